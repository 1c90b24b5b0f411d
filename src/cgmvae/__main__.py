"""The command ``cgmvae``, and ``python -m cgmvae`` where that is not on the path."""

import atexit
import contextlib
import os
import sys

#: The exit code of what Ctrl-C has stopped.
_STOPPED = 130


def main() -> None:
    """Run the command line; Ctrl-C while its packages are being loaded is one line, too."""
    try:
        from cgmvae.cli.main import run
    except KeyboardInterrupt:
        sys.stderr.write("Error: Stopped.\n")
        sys.exit(_STOPPED)
    try:
        run()
    except SystemExit as end:
        if end.code == _STOPPED:
            _leave()
        raise


def _leave() -> None:
    """End the process without taking the interpreter apart.

    A thread of Arrow may be in the middle of a file; what it asks of the interpreter then would end
    in a crash.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(_STOPPED)


if __name__ == "__main__":
    main()
