"""The command line ``cgmvae``, a thin layer with one function per command."""
