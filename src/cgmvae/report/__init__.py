"""What people look at: figures (:mod:`cgmvae.report.figures`)."""
