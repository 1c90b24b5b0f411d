"""Blocks of tables: CSV and Parquet.

Columns are found by name; what they hold is told, never guessed from a block. What a cell means
may still depend on other rows: ``01/02/2024`` on dates that leave no doubt, ``true`` on whether the
column holds numbers. Such cells are kept (:mod:`cgmvae.data.readers.blocks.witnesses`), so that a
file gives the same in blocks as in one piece.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any

from cgmvae.data import files
from cgmvae.data.columns import Columns
from cgmvae.data.dataset import Matrix
from cgmvae.data.kinds import Kind
from cgmvae.data.readers.blocks.base import Blocks, even_parts
from cgmvae.data.readers.blocks.witnesses import Witnesses
from cgmvae.data.readers.table import csv_text, parquet_file
from cgmvae.data.readers.table.arrow import load_pyarrow
from cgmvae.data.readers.table.cells import columns_of
from cgmvae.data.readers.table.columns import as_list, refuse_repeated
from cgmvae.errors import InputError, first_line

#: Bytes of a column of a Parquet file that are read at once.
_BUFFER = 2**20


class TableBlocks(Blocks):
    """Blocks of a table of Arrow.

    Parameters
    ----------
    path : path
        The file.
    names : sequence of str
        The columns of the file.
    others : collection of str
        Columns that are no features.
    options : mapping
        Reading options that name columns: those of labels and groups, and those to leave out.
    """

    text_is_parsed = False

    def __init__(
        self,
        path: str | os.PathLike[str],
        names: Sequence[str],
        others: Collection[str],
        options: Mapping[str, Any],
    ) -> None:
        refuse_repeated(names)
        super().__init__(path, [n for n in _unlabelled(names, options) if n not in others])
        self.all_names = tuple(names)
        self.stored: dict[bytes, bytes] = {}

    def tables(self, names: Sequence[str], *, n_rows: int) -> Iterator[Any]:
        """Yield some columns of all rows as Arrow tables of about ``n_rows`` rows."""
        with self._as_one_sentence():
            yield from self._tables(names, n_rows)

    def _blocks(
        self, places: Sequence[int], n_rows: int, kinds: Mapping[str, Kind]
    ) -> Iterator[Matrix | Columns]:
        names = [self.column_names[place] for place in places]
        told: dict[str, Kind] = {name: kinds.get(name, "number") for name in names}
        witnesses = Witnesses(told)
        if witnesses.dates:
            for table in self._tables(witnesses.dates, n_rows):
                witnesses.note_dates(table)
        for table in even_parts(self._tables(names, n_rows), n_rows):
            rows = witnesses.before(table)
            values = columns_of(rows, names, kinds=told, text_is_parsed=self.text_is_parsed)
            yield values[rows.num_rows - table.num_rows :]

    @abstractmethod
    def _tables(self, names: Sequence[str], n_rows: int) -> Iterator[Any]:
        """Yield these columns of all rows in parts, best of ``n_rows`` rows."""


class CsvBlocks(TableBlocks):
    """Blocks of a CSV file; see :class:`TableBlocks`."""

    text_is_parsed = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        features: Collection[str],
        others: Collection[str],
        *,
        delimiter: str = ",",
        **options: Any,
    ) -> None:
        load_pyarrow()
        names = csv_text.read_names(path, delimiter)
        super().__init__(path, names, set(others).difference(features), options)
        self._delimiter = delimiter

    def _tables(self, names: Sequence[str], n_rows: int) -> Iterator[Any]:
        n_columns = len(self.all_names)
        parts = csv_text.iterate_cells(self.path, n_columns, self._delimiter, self._open_file)
        for table in parts:
            yield table.rename_columns(list(self.all_names)).select(names)

    def _open_file(self) -> IO[bytes]:
        self._file = files.open_binary(self.path)
        return self._file


class ParquetBlocks(TableBlocks):
    """Blocks of a Parquet file; see :class:`TableBlocks`. Other columns are not read."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        features: Collection[str],
        others: Collection[str],
        **options: Any,
    ) -> None:
        files.refuse_packed(path, "Parquet")
        files.check_file(path)
        with self._opened(path) as file:
            schema, self._n_rows = file.schema_arrow, file.metadata.num_rows
            files.check_unpacked(path, parquet_file.unpacked_bytes(file.metadata))
        if self._n_rows == 0:
            raise InputError(f"{path} has columns and no rows; check how it was written.")
        stored = schema.metadata or {}
        others = {*others, parquet_file.own_groups(stored) or ""}.difference(features)
        super().__init__(path, schema.names, others, options)
        self.stored = stored

    def _tables(self, names: Sequence[str], n_rows: int) -> Iterator[Any]:
        pa = load_pyarrow()
        n_read = 0
        with self._opened(self.path) as file:
            for batch in file.iter_batches(n_rows, columns=list(names)):
                batch.validate(full=True)
                n_read += batch.num_rows
                self._share = n_read / self._n_rows
                yield pa.Table.from_batches([batch]).select(names)

    @staticmethod
    @contextmanager
    def _opened(path: str | os.PathLike[str]) -> Iterator[Any]:
        """Open the file, and turn what Arrow says of a damaged one into one sentence."""
        pa = load_pyarrow()
        try:
            with pa.parquet.ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False) as file:
                yield file
        except InputError:
            raise
        except (pa.ArrowException, OSError, ValueError) as error:
            raise InputError(
                f"{path} is not a readable Parquet file ({first_line(error)})."
            ) from error


def _unlabelled(columns: Sequence[str], options: Mapping[str, Any]) -> list[str]:
    """Return the columns that the reading options do not name as something else."""
    named = {*as_list(options.get("drop") or ()), options.get("groups")}
    rest = [name for name in columns if name not in named]
    if count := options.get("label_count"):
        rest = rest[count:] if count > 0 else rest[:count]
    if prefix := options.get("label_prefix"):
        rest = [name for name in rest if not name.startswith(prefix)]
    labels = set(as_list(options.get("labels") or ()))
    return [name for name in rest if name not in labels]
