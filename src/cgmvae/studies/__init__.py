"""The paper's studies, and what it printed (:mod:`cgmvae.studies.published`)."""
