"""Files larger than memory: reading them in blocks, and converting tables to mapped folders.

:func:`open_blocks` opens a file of any format of :mod:`cgmvae.data.readers`. CSV and Parquet are
read block by block, everything else is loaded. The checks are those of reading the whole file, and
so is the result. :func:`unpack` writes a table as the folder that training can read from.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cgmvae.data import files, readers
from cgmvae.data.columns import MISSING, ColumnType
from cgmvae.data.dataset import (
    Features,
    MultiLabelDataset,
    as_features,
    column_names,
    stack_datasets,
)
from cgmvae.data.mapped import BLOCK_BYTES, MappedRows, dense
from cgmvae.data.readers import ReadingOptions, mapped, npz, svmlight, table
from cgmvae.data.readers.options import as_list
from cgmvae.data.readers.table.cells import (
    columns_of,
    dataset_of,
    ids_of,
    is_text,
    load_pyarrow,
    warn_of_blank_rows,
    warn_of_ids,
    with_missing,
    without_blank_rows,
)
from cgmvae.data.readers.table.roles import (
    ColumnRoles,
    choose_roles,
    reject_absent,
    reject_repeated,
)
from cgmvae.errors import InputError, listed

#: The formats that :func:`unpack` converts, and all that hold a table.
TABLES = ("csv", "parquet")
TABLE_FORMATS = (*TABLES, *table.LOADERS)

#: Rows whose identifiers are read at a time.
_ID_ROWS = 2**14

#: Rows per part of a table that is loaded as a whole.
_LOADED_ROWS = 2**16

#: Bytes of a column of a Parquet file that are read at once.
_PARQUET_BUFFER = 2**20

#: A day at the beginning of a cell: first number, separator, second number.
_DAY = re.compile(r"(\d{1,4})([-./])(\d{1,2})\2\d{1,4}")

#: Number of characters of a day, and the highest number of a month.
_DAY_LENGTH, _MONTHS = 10, 12


def open_blocks(
    path: str | os.PathLike[str],
    format: str | None = None,
    *,
    features: Collection[str] = (),
    others: Collection[str] = (),
    **options: Any,
) -> Blocks:
    r"""Open a file for reading its features in blocks.

    Parameters
    ----------
    path : path
        The file.
    format : str, optional
        A name of :data:`cgmvae.data.readers.FORMATS`; by default determined by the suffix.
    features : collection of str
        Columns of a table that are features, even if the file says that they are groups.
    others : collection of str
        Columns of a table that are not features, unless they are in ``features``. The file need not
        have any of them.
    **options
        Those of :class:`~cgmvae.data.ReadingOptions` that the format has.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "birds.csv")
    ...     _ = path.write_text("height,owl\n0.5,1\n,1\n2,0\n")
    ...     blocks = open_blocks(path, others=["owl"])
    ...     [X.tolist() for X in blocks.read([0], n_rows=2)]
    [[[0.5], [nan]], [[2.0]]]
    """
    chosen = readers.choose(path, format)
    chosen.check(options)
    given = ReadingOptions(**options)
    if chosen.name in TABLE_FORMATS:
        return _table_blocks(path, chosen.name, features, others, given)
    if chosen.name == "npz":
        X, names = npz.read_features(path, given)
    elif chosen.name == "svmlight":
        X, names = svmlight.read_features(path, given), None
    else:
        return Blocks.of(chosen.read(path, given), path)
    return Blocks(path, column_names(names, "feature", X.shape[1]), X)


class Blocks:
    """The rows of a file, read in blocks of equal size; here of features in memory.

    Attributes
    ----------
    column_names : tuple of str
        The columns that can be features.
    id_name : str or None
        The column that identifies the rows, if any.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        column_names: Sequence[str],
        X: Features = None,
        ids: Sequence[str] | None = None,
    ) -> None:
        self.path = Path(path)
        self.column_names = tuple(column_names)
        self._X: Any = None if X is None else as_features(X)
        self._ids = ids
        self.id_name = None if ids is None else "id"
        self._share: float | None = None
        self._file: IO[bytes] | None = None

    @classmethod
    def of(cls, dataset: MultiLabelDataset, path: str | os.PathLike[str]) -> Blocks:
        """Return the blocks of a data set."""
        ids = None if dataset.ids is None else dataset.ids.tolist()
        return cls(path, dataset.feature_names, dataset.X, ids)

    def read(
        self,
        indices: Sequence[int],
        *,
        n_rows: int,
        kinds: Mapping[str, ColumnType] | None = None,
    ) -> Iterator[Features]:
        """Yield the features of the next rows, until the end of the file.

        Parameters
        ----------
        indices : sequence of int
            The columns to read, as indices into ``column_names``, in the order of the result.
        n_rows : int
            Number of rows per block; the last one may have fewer.
        kinds : mapping of str to {"number", "category", "date", "text"}, optional
            Column types by name; columns that are not in it are numbers.
        """
        total = self._X.shape[0]
        for start in range(0, total, n_rows):
            self._share = start / total
            rows = slice(start, min(start + n_rows, total))
            block = self._X[rows]
            if isinstance(block, MappedRows):
                block = block.gather(np.arange(len(block)))
            yield block[:, list(indices)]

    def texts(self, names: Sequence[str]) -> Iterator[tuple[str, ...]]:
        """Yield the cells of all rows in some columns of a table, as text, or the identifiers."""
        if self._ids is None or list(names) != [self.id_name]:
            raise InputError(
                f"{self.path} is no table, so there is no column {names[-1]!r} to keep; give CSV, "
                "say."
            )
        for name in self._ids:
            yield (name,)

    def known_labels(self, names: Sequence[str], *, n_rows: int) -> Iterator[NDArray[np.floating]]:
        """Yield the labels that are in a table, in blocks like those of :meth:`read`.

        Each is (n_rows, n_labels), with NaN for blank cells and for labels without a column. Of a
        column of label sets, all labels that are not named are NaN.
        """
        raise InputError(
            f"Labels that are known cannot be told from others in {self.path}; give a table, such "
            "as CSV, where their cells are blank."
        )

    def share_read(self) -> float | None:
        """Return how much of the file has been read, from 0 to 1; None if unknown."""
        if self._file is not None and not self._file.closed and self._file.seekable():
            self._share = self._file.tell() / self.path.stat().st_size
        return self._share


class _Table(NamedTuple):
    """A table in a file, or in memory."""

    names: Sequence[str]
    """All its columns."""
    parts: Callable[[TableBlocks, Sequence[str], int], Iterator[Any]]
    """Yields some columns of all rows as Arrow tables, preferably of that many rows, and notes in
    the blocks how much has been read."""
    text_is_parsed: bool
    stored: Mapping[bytes, bytes]
    """The metadata of its schema."""
    may_be_blank: bool = True
    """Whether the parts hold all columns, because rows may be blank in all of them."""


class TableBlocks(Blocks):
    """Blocks of a table, given the columns that are features and those that are not.

    Columns are found by name, and their types are given, never guessed from a block. The meaning of
    a cell may still depend on other rows; see :class:`_Context`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        source: _Table,
        features: Collection[str],
        others: Collection[str],
        options: ReadingOptions,
    ) -> None:
        self._source, self.stored = source, source.stored
        self.all_names = tuple(source.names)
        reject_repeated(self.all_names)
        groups, ids = (table.stored_column(self.stored, key) for key in table.COLUMN_KEYS)
        given = replace(options, id=options.id or ids)
        named = {*given.ignored, given.groups, given.id, given.sets_column}
        rest = [name for name in self.all_names if name not in named]
        if count := given.label_count:
            rest = rest[count:] if count > 0 else rest[:count]
        if prefix := given.label_prefix:
            rest = [name for name in rest if not name.startswith(prefix)]
        unused = {*others, groups, ids}.difference(features).union(as_list(given.labels or ()))
        super().__init__(path, [name for name in rest if name not in unused])
        self.text_is_parsed = source.text_is_parsed
        self._options = given
        self._has_warned = False
        self.id_name = given.id_column if given.id_column in self.all_names else None

    def tables(self, names: Sequence[str], *, n_rows: int) -> Iterator[Any]:
        """Yield some columns of all rows as Arrow tables of about ``n_rows`` rows."""
        n_blank = n_total = 0
        try:
            for part in self._source.parts(self, names, n_rows):
                filled = without_blank_rows(part) if self._source.may_be_blank else part
                n_total += part.num_rows
                n_blank += part.num_rows - filled.num_rows
                yield with_missing(
                    filled.select(names),
                    as_list(self._options.missing),
                    self._options.named_columns,
                )
        except OSError as error:
            raise InputError(
                f"{self.path} cannot be read ({error.strerror or error}); fetch it again."
            ) from error
        if n_blank and not self._has_warned:
            warn_of_blank_rows(n_blank, n_total, self.path)
            self._has_warned = True

    def texts(self, names: Sequence[str]) -> Iterator[tuple[str, ...]]:
        """Yield the cells of all rows in some columns, as text; the table is read once more."""
        reject_absent(names, self.all_names)
        for part in self.tables(names, n_rows=_ID_ROWS):
            yield from zip(*(ids_of(part, name).tolist() for name in names), strict=True)

    def known_labels(self, names: Sequence[str], *, n_rows: int) -> Iterator[NDArray[np.floating]]:
        """Yield the labels that are in the table; see :meth:`Blocks.known_labels`."""
        column = self._options.sets_column
        wanted = names if column is None else [column]
        present = [name for name in wanted if name in self.all_names]
        if not present:
            raise InputError(f"{self.path} has no column of known labels ({listed(wanted)}).")
        not_read: dict[str, Any] = dict.fromkeys(("groups", "coordinates", "block_size", "long"))
        options = replace(self._options, id=None, label_sets=column, kinds={}, **not_read)
        options = replace(options, blank_labels="unknown")
        tables = self.tables(present, n_rows=n_rows)
        if column is not None:  # a part may name no label at all
            tables = iter([load_pyarrow().concat_tables(tables)])
        roles = ColumnRoles((), tuple(present) if column is None else ())
        for part in _even_tables(tables, n_rows) if column is None else tables:
            given = dataset_of(
                part, roles, options, name="known", text_is_parsed=self.text_is_parsed
            )
            index = [
                names.index(name) if name in names else len(names) for name in given.label_names
            ]
            for start in range(0, given.n_samples, n_rows):
                rows = slice(start, start + n_rows)
                labels = dense(given.targets()[rows])
                known = np.full((len(labels), len(names) + 1), np.nan, np.float32)
                known[:, index] = labels if column is None else np.where(labels == 1, 1, np.nan)
                yield known[:, :-1]

    def read(
        self,
        indices: Sequence[int],
        *,
        n_rows: int,
        kinds: Mapping[str, ColumnType] | None = None,
    ) -> Iterator[Features]:
        """Yield the features of the next rows; see :meth:`Blocks.read`."""
        given, names = kinds or {}, [self.column_names[i] for i in indices]
        types: dict[str, ColumnType] = {name: given.get(name, "number") for name in names}
        context = _Context(types)
        if context.dates:
            for part in self.tables(context.dates, n_rows=n_rows):
                context.note_dates(part)
        for part in _even_tables(self.tables(names, n_rows=n_rows), n_rows):
            rows = context.prepended_to(part)
            values, _ = columns_of(rows, names, kinds=types, text_is_parsed=self.text_is_parsed)
            yield values[rows.num_rows - part.num_rows :]


def _table_blocks(
    path: str | os.PathLike[str],
    format: str,
    features: Collection[str],
    others: Collection[str],
    options: ReadingOptions,
) -> TableBlocks:
    """Open a table; a long one is pivoted if it has the two columns."""
    if format == "csv":
        source = _csv_table(path, options)
    elif format == "parquet":
        source = _parquet_table(path)
    else:
        load, text_is_parsed = table.LOADERS[format]
        source = _loaded_table(path, load(path, options), text_is_parsed)
    blocks = TableBlocks(path, source, features, others, options)
    pair = options.row_and_label
    if pair is not None and {*pair} <= {*blocks.all_names}:
        names = [name for name in blocks.all_names if name not in as_list(options.drop)]
        rows = load_pyarrow().concat_tables(blocks.tables(names, n_rows=_LOADED_ROWS))
        source = _loaded_table(path, table.pivot(rows, *pair), blocks.text_is_parsed)
        return TableBlocks(path, source, features, others, options)
    return blocks


def _csv_table(path: str | os.PathLike[str], options: ReadingOptions) -> _Table:
    load_pyarrow()
    file = table.open_csv(path, options)

    def parts(blocks: TableBlocks, names: Sequence[str], _: int) -> Iterator[Any]:
        def open_file() -> IO[bytes]:
            blocks._file = files.open_binary(blocks.path)
            return blocks._file

        return file.tables(open_file, verbatim=options.named_columns)

    return _Table(file.names, parts, text_is_parsed=True, stored={})


def _parquet_table(path: str | os.PathLike[str]) -> _Table:
    """Open a Parquet file; columns that are not asked for are not read unless rows may be blank."""
    pa = load_pyarrow()
    files.reject_compressed(path, "Parquet")
    files.check_file(path)
    with table.open_parquet(path) as file:
        schema, total = file.schema_arrow, file.metadata.num_rows
        files.check_unpacked(path, table.unpacked_bytes(file.metadata), in_blocks=True)
        may_be_blank = table.may_have_blank_rows(file.metadata)
    table.check_rows(path, total)

    def parts(blocks: TableBlocks, names: Sequence[str], n_rows: int) -> Iterator[Any]:
        n_read = 0
        columns = None if may_be_blank else list(names)
        with table.open_parquet(path, buffer_size=_PARQUET_BUFFER, pre_buffer=False) as file:
            for batch in file.iter_batches(n_rows, columns=columns):
                batch.validate(full=True)
                n_read += batch.num_rows
                blocks._share = n_read / total
                yield pa.Table.from_batches([batch])

    return _Table(
        schema.names,
        parts,
        text_is_parsed=False,
        stored=schema.metadata or {},
        may_be_blank=may_be_blank,
    )


def _loaded_table(path: str | os.PathLike[str], rows: Any, text_is_parsed: bool) -> _Table:
    """Return an Arrow table in memory."""
    table.check_rows(path, rows.num_rows)

    def parts(_: TableBlocks, names: Sequence[str], n_rows: int) -> Iterator[Any]:
        yield rows

    return _Table(rows.column_names, parts, text_is_parsed, rows.schema.metadata or {})


class _Context:
    """Cells that determine how the cells of other blocks are parsed.

    Read in one piece, a column of text is numbers or true and false, not both; and ``01/02/2024``
    is unambiguous if another row has ``31/01/2024``. The cells that decide such questions are
    prepended to each block, as rows of their own, so that every block is parsed as the whole file
    would be.
    """

    def __init__(self, kinds: Mapping[str, ColumnType]) -> None:
        self._numbers = [name for name, kind in kinds.items() if kind == "number"]
        self.dates = [name for name, kind in kinds.items() if kind == "date"]
        self._cells: dict[str, dict[Hashable, str]] = {name: {} for name in kinds}

    def note_dates(self, rows: Any) -> None:
        """Remember one day of each format in the date columns of an Arrow table."""
        import pyarrow.compute as pc

        for name in self.dates:
            if not is_text(rows.column(name)):
                continue
            days = pc.utf8_slice_codeunits(
                pc.utf8_trim_whitespace(rows.column(name)), 0, _DAY_LENGTH
            )
            for day in filter(None, days.unique().to_pylist()):
                if match := _DAY.match(day):
                    first, mark, second = match.groups()
                    order = mark, len(first) > 2, int(first) > _MONTHS, int(second) > _MONTHS
                    self._cells[name].setdefault(order, match[0])

    def prepended_to(self, rows: Any) -> Any:
        """Return the table with the remembered cells as its first rows."""
        import pyarrow as pa

        for name in self._numbers:  # their first present cell
            if self._cells[name] or not is_text(rows.column(name)):
                continue
            for cell in rows.column(name).unique().to_pylist():
                if cell is not None and cell.strip() not in MISSING:
                    self._cells[name][0] = cell
                    break
        n_rows = max(map(len, self._cells.values()), default=0)
        if n_rows == 0:
            return rows
        columns = []
        for field in rows.schema:
            cells: list[str | None] = list(self._cells[field.name].values())
            columns.append(pa.array(cells + [None] * (n_rows - len(cells)), field.type))
        return pa.concat_tables([pa.table(columns, schema=rows.schema), rows])


def _even_tables(tables: Iterable[Any], n_rows: int) -> Iterator[Any]:
    """Cut and join Arrow tables into tables of ``n_rows`` rows; the last may have fewer."""
    waiting: list[Any] = []
    n_missing = n_rows
    for table_ in tables:
        start = 0
        while start < table_.num_rows:
            waiting.append(table_.slice(start, n_missing))
            start += n_missing
            n_missing -= waiting[-1].num_rows
            if n_missing == 0:
                yield load_pyarrow().concat_tables(waiting)
                waiting, n_missing = [], n_rows
    if waiting:
        yield load_pyarrow().concat_tables(waiting)


def unpack(
    path: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    format: str | None = None,
    progress: Callable[[int, float | None], None] = lambda *_: None,
    **options: Any,
) -> MultiLabelDataset:
    """Convert a table to a new mapped folder, and return the data set in it.

    The labels and groups are read first, and held in memory; then the features are copied in
    blocks. All features must be numbers.

    Parameters
    ----------
    path : path
        A CSV or Parquet file.
    target : path
        The folder; if the conversion fails, it is not created.
    format : {"csv", "parquet"}, optional
        By default determined by the suffix.
    progress : callable
        Called after each block with the number of rows written, and the share of the file read.
    **options
        Those of :class:`~cgmvae.data.ReadingOptions` that the format has.
    """
    blocks = open_blocks(path, format, **options)
    assert isinstance(blocks, TableBlocks)
    given = table.with_stored_options(ReadingOptions(**options), blocks.stored, blocks.path)
    roles = choose_roles(blocks.all_names, given)
    for name in roles.features:
        if (kind := given.types.get(name, "number")) != "number":
            raise InputError(
                f"A mapped folder holds only numbers, but the column {name!r} is of type {kind}; "
                "drop the column, or leave the table as it is."
            )
    index = {name: i for i, name in enumerate(blocks.column_names)}
    indices = [index[name] for name in roles.features]
    n_rows = max(1, BLOCK_BYTES // (np.dtype(np.float64).itemsize * len(indices)))
    labels = _read_labels(blocks, roles, given, n_rows)

    def features() -> Iterator[Any]:
        n_written = 0
        for block in blocks.read(indices, n_rows=n_rows):
            yield block
            n_written += block.shape[0]
            progress(n_written, blocks.share_read())

    mapped.write_blocks(
        labels, features(), target, feature_names=roles.features, dtype=np.dtype(np.float64)
    )
    return mapped.read(target, ReadingOptions())


def _read_labels(
    blocks: TableBlocks, roles: ColumnRoles, options: ReadingOptions, n_rows: int
) -> MultiLabelDataset:
    """Return a data set with all labels and groups, but no features."""
    singles = {name for name in options.named_columns if name is not None}
    place = options.place or ()
    tables = blocks.tables([*roles.labels, *singles, *place], n_rows=n_rows)
    if options.sets_column is not None or place:  # what they mean depends on all rows together
        tables = iter([load_pyarrow().concat_tables(tables)])
    labels = stack_datasets(
        [
            dataset_of(
                rows,
                ColumnRoles((), roles.labels),
                options,
                name=files.data_name(blocks.path),
                text_is_parsed=blocks.text_is_parsed,
            )
            for rows in tables
        ]
    )
    warn_of_ids(labels, options)
    return labels
