"""Training many members of any packed network in one loop."""
