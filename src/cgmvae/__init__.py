"""Multi-label classification with a contrastive Gaussian mixture VAE, and its rivals."""

__version__ = "0.1.0"
