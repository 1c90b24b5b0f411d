"""C-GMVAE, in reading order.

``label_encoder`` → ``feature_encoder`` → ``decoder`` → ``network`` → ``objective`` → ``presets``.
"""
