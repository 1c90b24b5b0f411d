"""Anonymous resident memory: what a process holds beyond files that the system can drop."""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType
from typing import Self

#: Seconds between two looks.
_INTERVAL = 0.005


def anonymous_bytes(process: int | str = "self") -> int:
    """Return the anonymous resident bytes of a process."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise OSError("This system does not tell anonymous memory.")


class PeakAnonymous:
    """Watches this process inside a ``with`` block.

    Attributes
    ----------
    before : int
        Bytes at the start of the block.
    peak : int
        The most bytes seen in it.
    """

    def __enter__(self) -> Self:
        """Begin to watch."""
        self.before = self.peak = anonymous_bytes()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Look once more, and stop."""
        self._done.set()
        self._thread.join()
        self.peak = max(self.peak, anonymous_bytes())

    @property
    def above(self) -> int:
        """The most bytes above those at the start."""
        return self.peak - self.before

    def _watch(self) -> None:
        while not self._done.wait(_INTERVAL):
            self.peak = max(self.peak, anonymous_bytes())
