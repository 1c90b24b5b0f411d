"""Figures, one subject per file; :mod:`cgmvae.report` has their public names."""
