"""Somebody who follows a page to the letter, in an empty folder of their own.

Python blocks share one namespace, shell blocks are given to bash. What a block leaves running in
the background, such as a server, runs until the page ends.
"""

import contextlib
import io
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

from fences import Block

#: The port that the pages name; another one, which is free, is taken in its place.
PORT = "8000"

#: Seconds after which something hangs.
PATIENCE = 600


class Reader:
    """Runs the blocks of one page.

    Parameters
    ----------
    folder : Path
        Where files are read and written.
    port : int
        What the pages' port is replaced by.
    """

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, str(port)
        self.names: dict[str, object] = {"__name__": "__main__"}
        self.shells: list[subprocess.Popen] = []

    def run(self, block: Block) -> str:
        """Run a block; return what it printed."""
        code = block.code.replace(PORT, self.port)
        printed = self._python(code) if block.language == "python" else self._shell(code)
        return printed.replace(self.port, PORT)

    def _python(self, code: str) -> str:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), warnings.catch_warnings():
            warnings.simplefilter("default")
            exec(compile(code, "<page>", "exec"), self.names)
        return printed.getvalue()

    def _shell(self, code: str) -> str:
        output = self.folder / f".output-{len(self.shells)}"
        with output.open("w") as file:
            shell = subprocess.Popen(
                ["bash", "-euo", "pipefail", "-c", code],
                cwd=self.folder,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.shells.append(shell)
        returned = shell.wait(PATIENCE)
        if code.rstrip().endswith("&"):
            _wait_for(lambda: output.stat().st_size > 0)
        printed = output.read_text()
        assert returned == 0, printed
        return printed

    def close(self) -> None:
        """End what still runs, and wait until it has."""
        for shell in self.shells:
            if _is_alive(shell):
                os.killpg(shell.pid, signal.SIGTERM)
                _wait_for(lambda shell=shell: not _is_alive(shell))


def _environment() -> dict[str, str]:
    return os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "88",
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
    }


def _is_alive(shell: subprocess.Popen) -> bool:
    """Tell whether a shell or anything that it started still runs."""
    shell.poll()  # so that one that has ended is no longer there
    try:
        os.killpg(shell.pid, 0)
    except ProcessLookupError:
        return False
    return True


def _wait_for(condition, seconds: float = PATIENCE) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)
