"""The command ``cgmvae``, and ``python -m cgmvae`` where that is not on the path."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C while its packages are being loaded is one line, too."""
    try:
        from cgmvae.cli.main import run
    except KeyboardInterrupt:
        sys.stderr.write("Error: Stopped.\n")
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
