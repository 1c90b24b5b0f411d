"""What a search found, and where it is kept until the search is through.

::

    FOLDER/plan.json            what is searched, and which settings are trained together
    FOLDER/pack_ID.json         what became of the settings of a pack that is finished
    FOLDER/pack_ID.checkpoint   the state of the one that is not
    FOLDER/ensemble.checkpoint  the state of the last training, that of the best settings
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cgmvae.data.files import atomic_path, make_folder
from cgmvae.errors import InputError
from cgmvae.training.checkpoint import Checkpoint

#: Settings that are trained together, by their numbers.
Pack = list[int]


class SearchResult(NamedTuple):
    """What became of one setting."""

    setting: dict[str, Any]
    value: float
    """Mean of the metric over splits and seeds, at each one's best epoch."""
    values: list[float]
    """The metric of each split and seed."""
    epochs: int
    """Epochs that it was trained for."""
    finished: bool = True
    """Whether it was trained to its end, and not left out on the way."""


class SearchFolder:
    """A folder that holds what a search has finished; a search that was stopped continues from it.

    Parameters
    ----------
    path : path, optional
        Made when something is kept; without it nothing is.
    settings : sequence of dict
        All that are tried.
    describe : callable
        Returns what tells this search from another, as JSON can hold it; asked where there is a
        folder.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        settings: Sequence[dict[str, Any]],
        describe: Callable[[], dict[str, Any]],
    ) -> None:
        self.path = None if path is None else Path(path)
        self.settings = settings
        self.description = {} if path is None else describe()

    def packs(self, make: Callable[[], list[Pack]]) -> list[Pack]:
        """Return the packs of the search that was stopped, or those that ``make`` makes.

        How many settings fit into a pack is measured, and may be another number the next time.
        """
        stored = self._read("plan.json")
        if stored is None:
            packs = make()
            self._write("plan.json", {"search": self.description, "packs": packs})
            return packs
        if stored.get("search") != self.description:
            raise InputError(
                f"{self.path} is of another search; remove the folder or name another."
            )
        return stored["packs"]

    def results(self, pack: Pack) -> list[SearchResult] | None:
        """Return what became of a pack, or None where it is not finished."""
        stored = self._read(f"{_name(pack)}.json")
        if stored is None:
            return None
        return [
            SearchResult(self.settings[number], *found)
            for number, found in zip(pack, stored["results"], strict=True)
        ]

    def keep(self, pack: Pack, found: Sequence[SearchResult]) -> None:
        """Keep what became of a pack, and forget the state of its training."""
        if self.path is None:
            return
        self._write(f"{_name(pack)}.json", {"results": [result[1:] for result in found]})
        Checkpoint(self.path / f"{_name(pack)}.checkpoint").remove()

    def checkpoint(self, pack: Pack | None) -> Path | None:
        """Return where the state of a pack's training is kept, or of the ensemble's for None."""
        if self.path is None:
            return None
        return self.path / f"{'ensemble' if pack is None else _name(pack)}.checkpoint"

    def _read(self, name: str) -> dict[str, Any] | None:
        if self.path is None or not (path := self.path / name).exists():
            return None
        try:
            return dict(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise InputError(f"{path} is damaged; remove the folder {self.path}.") from error

    def _write(self, name: str, content: dict[str, Any]) -> None:
        if self.path is None:
            return
        with atomic_path(make_folder(self.path) / name) as temporary:
            temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _name(pack: Pack) -> str:
    return f"pack_{hashlib.blake2b(repr(pack).encode(), digest_size=6).hexdigest()}"
