"""The results of a search, and the folder that stores them until the search has finished.

::

    FOLDER/plan.json            what is searched, and which settings share a pack
    FOLDER/pack_ID.json         the results of a finished pack
    FOLDER/pack_ID.checkpoint   the checkpoint of the pack in training
    FOLDER/ensemble.checkpoint  the checkpoint of the final ensemble of the best settings
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cgmvae.data.files import atomic_path, make_folder, read_json
from cgmvae.errors import InputError
from cgmvae.training.checkpoint import Checkpoint

#: Indices of the settings that are trained together.
Pack = list[int]


class SearchResult(NamedTuple):
    """The result of one setting."""

    setting: dict[str, Any]
    value: float
    """The metric at its best epoch."""
    epochs: int
    """Number of epochs it was trained for."""
    finished: bool = True
    """False if it was dropped before the end of the training."""


class SearchFolder:
    """The folder of a search, from which an interrupted search resumes.

    It is created on the first write; nothing is stored if ``path`` is None. ``describe`` returns
    what distinguishes this search from another one, in JSON types.
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
        """Return the packs of the interrupted search, or those that ``make`` returns.

        How many settings fit into a pack is measured, so ``make`` may return others next time.
        """
        stored = self._read("plan.json")
        if stored is None:
            packs = make()
            self._write("plan.json", {"search": self.description, "packs": packs})
            return packs
        if stored.get("search") != self.description:
            raise InputError(
                f"{self.path} belongs to another search; remove the folder or choose another one."
            )
        return stored["packs"]

    def results(self, pack: Pack) -> list[SearchResult] | None:
        """Return the results of a pack, or None if it is not finished."""
        stored = self._read(f"{_name(pack)}.json")
        if stored is None:
            return None
        return [
            SearchResult(self.settings[number], *found)
            for number, found in zip(pack, stored["results"], strict=True)
        ]

    def keep(self, pack: Pack, found: Sequence[SearchResult]) -> None:
        """Store the results of a pack, and remove its checkpoint."""
        if self.path is None:
            return
        self._write(f"{_name(pack)}.json", {"results": [result[1:] for result in found]})
        Checkpoint(self.path / f"{_name(pack)}.checkpoint").remove()

    def checkpoint(self, pack: Pack | None) -> Checkpoint | None:
        """Return a pack's checkpoint, or the ensemble's for None; None without a folder."""
        if self.path is None:
            return None
        return Checkpoint(self.path / f"{'ensemble' if pack is None else _name(pack)}.checkpoint")

    def _read(self, name: str) -> dict[str, Any] | None:
        if self.path is None or not (path := self.path / name).exists():
            return None
        return dict(read_json(path, advice=f"remove the folder {self.path}"))

    def _write(self, name: str, content: dict[str, Any]) -> None:
        if self.path is None:
            return
        with atomic_path(make_folder(self.path) / name) as temporary:
            temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _name(pack: Pack) -> str:
    return f"pack_{hashlib.blake2b(repr(pack).encode(), digest_size=6).hexdigest()}"
