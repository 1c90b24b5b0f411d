"""Building blocks whose every tensor has a leading member axis, and the Gaussians of the paper."""
