"""Blocks of the formats that are read line by line: ARFF and svmlight."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any, Literal

from cgmvae.data import files
from cgmvae.data.dataset import Matrix, column_names
from cgmvae.data.readers import arff, svmlight
from cgmvae.data.readers.blocks.base import MatrixBlocks
from cgmvae.data.readers.svmlight_text import ParsedRows

_ReadParts = Callable[[IO[str], Path], Iterator[Matrix]]


class TextBlocks(MatrixBlocks):
    """Blocks of a text, which a format reads in parts from its beginning."""

    def __init__(
        self, path: str | os.PathLike[str], names: Sequence[str], read_parts: _ReadParts
    ) -> None:
        super().__init__(path, names)
        self._read_parts = read_parts

    def _parts(self, n_rows: int) -> Iterator[Matrix]:
        with files.open_text(self.path) as text:
            self._file = text.buffer  # type: ignore[attr-defined]
            yield from self._read_parts(text, self.path)


def arff_blocks(path: str | os.PathLike[str], **options: Any) -> TextBlocks:
    """Open an ARFF file; the options are those of :func:`cgmvae.data.readers.arff.read`."""
    names = arff.read_feature_names(Path(path), **options)
    names = list(column_names(names, "feature", len(names)))
    return TextBlocks(path, names, partial(arff.read_parts, **options))


def svmlight_blocks(
    path: str | os.PathLike[str],
    *,
    n_features: int,
    n_labels: int,
    zero_based: bool | Literal["auto"] = "auto",
) -> TextBlocks:
    """Open an svmlight file; the options are those of :func:`cgmvae.data.readers.svmlight.read`."""
    n_features = ParsedRows(Path(path)).n_columns("features", n_features, 0)
    names = column_names((), "feature", n_features)
    read_parts = partial(
        svmlight.read_parts, n_features=n_features, n_labels=n_labels, zero_based=zero_based
    )
    return TextBlocks(path, names, read_parts)
