"""The paper's studies, and the numbers it reports (:mod:`cgmvae.studies.published`)."""
