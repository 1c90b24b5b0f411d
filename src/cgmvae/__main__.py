"""``python -m cgmvae``: the command line, where ``cgmvae`` is not on the path."""

from cgmvae.cli.main import run

if __name__ == "__main__":
    run()
