"""What blocks of every format have in common: columns by place, an even size, one way to fail.

A format gives its rows in parts, as large as they come; here they are put into blocks of the same
number of rows, so that what is made of a block does not depend on how a file was cut.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from cgmvae.data.columns import Columns
from cgmvae.data.dataset import Matrix, MultiLabelDataset, as_features
from cgmvae.data.kinds import Kind
from cgmvae.data.stacked import stacked
from cgmvae.errors import InputError


class Blocks(ABC):
    """The rows of a file, read a block at a time.

    Attributes
    ----------
    column_names : tuple of str
        The columns that can be features.
    """

    def __init__(self, path: str | os.PathLike[str], column_names: Sequence[str]) -> None:
        self.path = Path(path)
        self.column_names = tuple(column_names)
        self._share: float | None = None
        self._file: IO[bytes] | None = None

    def read(
        self, places: Sequence[int], *, n_rows: int, kinds: Mapping[str, Kind] | None = None
    ) -> Iterator[Matrix | Columns]:
        """Yield the features of the next rows, until there are none left.

        Parameters
        ----------
        places : sequence of int
            The columns that are wanted, by their place in ``column_names``, in the order wanted.
        n_rows : int
            Rows of a block; the last one may have fewer.
        kinds : mapping of str to {"number", "category", "date", "text"}, optional
            What the columns hold; numbers, where it does not say.
        """
        with self._as_one_sentence():
            yield from self._blocks(places, n_rows, kinds or {})

    @contextmanager
    def _as_one_sentence(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise InputError(
                f"{self.path} cannot be read ({error.strerror or error}); fetch it again."
            ) from error

    def share_read(self) -> float | None:
        """Return how much of the file has been read, from 0 to 1; None where nobody can tell."""
        if self._file is not None and not self._file.closed and self._file.seekable():
            self._share = self._file.tell() / self.path.stat().st_size
        return self._share

    @abstractmethod
    def _blocks(
        self, places: Sequence[int], n_rows: int, kinds: Mapping[str, Kind]
    ) -> Iterator[Matrix | Columns]:
        """Yield the blocks of :meth:`read`."""


class MatrixBlocks(Blocks):
    """Blocks of a format whose features are numbers without a kind."""

    def _blocks(
        self, places: Sequence[int], n_rows: int, kinds: Mapping[str, Kind]
    ) -> Iterator[Matrix]:
        for part in even_parts(self._parts(n_rows), n_rows):
            yield as_features(part)[:, list(places)]

    @abstractmethod
    def _parts(self, n_rows: int) -> Iterator[Matrix]:
        """Yield all the features in parts, best of ``n_rows`` rows."""


class LoadedBlocks(MatrixBlocks):
    """The rows of a data set that is in memory."""

    def __init__(self, dataset: MultiLabelDataset, path: str | os.PathLike[str]) -> None:
        super().__init__(path, dataset.feature_names)
        self._dataset = dataset

    def _parts(self, n_rows: int) -> Iterator[Matrix]:
        yield self._dataset.X


def even_parts(parts: Iterable[Any], n_rows: int) -> Iterator[Any]:
    """Cut and join tables or matrices, so that each has ``n_rows`` rows; the last may have fewer.

    Examples
    --------
    >>> import numpy as np
    >>> parts = [np.arange(3)[:, None], np.arange(3, 5)[:, None]]
    >>> [part.ravel().tolist() for part in even_parts(parts, 2)]
    [[0, 1], [2, 3], [4]]
    """
    waiting: list[Any] = []
    n_missing = n_rows
    for part in parts:
        start = 0
        while start < part.shape[0]:
            waiting.append(part[start : start + n_missing])
            start += n_missing
            n_missing -= waiting[-1].shape[0]
            if n_missing == 0:
                yield _joined(waiting)
                waiting, n_missing = [], n_rows
    if waiting:
        yield _joined(waiting)


def _joined(parts: list[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    if not hasattr(parts[0], "schema"):
        return stacked(parts)
    import pyarrow as pa

    return pa.concat_tables(parts)
