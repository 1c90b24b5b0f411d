"""Building blocks whose tensors have a leading member axis, and the Gaussians of the paper."""
