"""C-GMVAE, in reading order: ``network`` → ``objective`` → ``presets``."""
