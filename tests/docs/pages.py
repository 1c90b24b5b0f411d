"""The pages of the documentation, their code blocks, and a reader who runs them.

A ``text`` block right after a block of code is its output. In it, ``...`` matches anything, and
whitespace is collapsed. What depends on the machine that a model was trained on may differ: a
number with a decimal point may be slightly off, and another one may be marked as the best with
asterisks.
"""

import contextlib
import io
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).parents[2]

#: All pages except the results, which list commands that took hours, and the notebook.
PAGES = sorted(
    path.relative_to(ROOT)
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    if not {"results", "notebook"} & {*path.relative_to(ROOT).parts}
)

CODE = ("python", "bash")

_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)\n(?P<body>.*?)^(?P=indent)```$", re.M | re.S
)
_DECIMAL = re.compile(r"[-+]?\d+\.\d+")

#: A whole decimal number of a page, not the beginning of one that goes on with "...".
_WHOLE = re.compile(_DECIMAL.pattern + r"(?!\d|\.\.\.)")

#: Absolute and relative tolerance of decimal numbers.
_ABSOLUTE, _RELATIVE = 0.005, 0.02


@dataclass(frozen=True)
class Block:
    """A block of code, and the output that the page shows for it."""

    language: str
    code: str
    line: int
    shown: str | None


def code_blocks(text: str) -> list[Block]:
    """Return the code blocks of a page, in order."""
    blocks = []
    for fence, after in pairwise([*_FENCE.finditer(text), None]):
        if fence["language"] in CODE:
            follows = after is not None and not text[fence.end() : after.start()].strip()
            has_output = follows and after["language"] == "text"
            shown = dedent(after["body"]) if has_output else None
            line = text.count("\n", 0, fence.start()) + 2
            blocks.append(Block(fence["language"], dedent(fence["body"]), line, shown))
    return blocks


def agrees(shown: str, printed: str) -> bool:
    """Return whether a block printed what its page shows."""
    shown, printed = (" ".join(text.replace("*", "").split()) for text in (shown, printed))
    pieces = [re.escape(piece.strip()) for piece in _WHOLE.sub("\0", shown).split("...")]
    pattern = ".*?".join(pieces).replace(re.escape("\0"), f"({_DECIMAL.pattern})")
    found = re.fullmatch(pattern, printed)
    return found is not None and all(
        abs(float(here) - float(there)) <= max(_ABSOLUTE, _RELATIVE * abs(float(there)))
        for here, there in zip(found.groups(), _WHOLE.findall(shown), strict=True)
    )


#: The port in the pages, which is replaced by a free one.
PORT = "8000"

#: Seconds after which a block is considered to hang.
PATIENCE = 600


class Reader:
    """Runs the blocks of one page in an empty folder.

    Python blocks share one namespace, shell blocks are passed to bash. What a block starts in the
    background, such as a server, runs until the page ends.

    Parameters
    ----------
    folder : Path
        Where files are read and written.
    port : int
        Replacement for the port in the pages.
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
        """Terminate what is still running, and wait for it."""
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
    """Return whether a shell or anything that it started is still running."""
    shell.poll()  # reap it if it has ended
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
