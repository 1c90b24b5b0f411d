"""Entry point of the command ``cgmvae`` and of ``python -m cgmvae``."""

import atexit
import contextlib
import os
import sys

#: The exit code after Ctrl-C.
_STOPPED = 130


def main() -> None:
    """Run the command line; Ctrl-C prints one line even while packages are being imported."""
    try:
        from cgmvae.cli.main import run
    except KeyboardInterrupt:
        sys.stderr.write("Error: Stopped.\n")
        sys.exit(_STOPPED)
    try:
        run()
    except SystemExit as end:
        if end.code == _STOPPED:
            _exit_now()
        raise


def _exit_now() -> None:
    """End the process without finalizing the interpreter.

    A thread of Arrow may still be reading a file; it would crash when it calls into an interpreter
    that is being finalized.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(_STOPPED)


if __name__ == "__main__":
    main()
