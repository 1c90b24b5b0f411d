"""Tables with one row per sample, through pyarrow (the extra ``tables``).

CSV in all its dialects, Excel workbooks (the extra ``excel``), JSON lines, Feather and Parquet.
``roles`` decides by name what the columns mean, ``cells`` converts an Arrow table to a data set
and back, ``delimited`` reads text, and ``layout`` pivots long tables. Every cell of a text file is
read as text first, so that nothing is mistaken for a date or loses its leading zeros before the
type of the column is known. Numbers are read as float64, because they are rounded only after
scaling. The official split of a data set is not written; ``npz`` stores it.
"""

from __future__ import annotations

import datetime
import json
import os
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, get_args

from cgmvae.data import files
from cgmvae.data.columns import Columns, ColumnType
from cgmvae.data.dataset import MultiLabelDataset
from cgmvae.data.readers.options import ReadingOptions, as_list
from cgmvae.data.readers.table.cells import (
    GROUP_COLUMN,
    ID_COLUMN,
    dataset_of,
    load_pyarrow,
    table_of,
    warn_of_blank_rows,
    warn_of_codes,
    warn_of_ids,
    with_missing,
    without_blank_rows,
)
from cgmvae.data.readers.table.delimited import DelimitedFile, suffix_delimiter
from cgmvae.data.readers.table.layout import UnnamedLabelsError, find_row_column, pivot
from cgmvae.data.readers.table.roles import choose_roles, reject_repeated
from cgmvae.errors import InputError, Setting, first_line

__all__ = [
    "UnnamedLabelsError",
    "read_csv",
    "read_loaded",
    "read_parquet",
    "write_csv",
    "write_parquet",
]

#: Keys of the metadata that :func:`write_parquet` adds to the schema: the names of the label
#: columns as a JSON list, the types of the features as a JSON object, and the names of the columns
#: of groups and of identifiers.
LABELS_KEY, KINDS_KEY = b"cgmvae.labels", b"cgmvae.kinds"
COLUMN_KEYS = GROUPS_KEY, IDS_KEY = b"cgmvae.groups", b"cgmvae.ids"

#: The smallest number of bytes that a cell of a Parquet file takes in memory.
_CELL_BYTES = 4


def read_csv(
    path: str | os.PathLike[str], options: ReadingOptions, *, name: str | None = None
) -> MultiLabelDataset:
    """Read a data set from a text file whose first line names the columns.

    A cell that is blank, ``NA``, ``NaN`` or ``?`` is missing. If all features are numbers, or true
    and false, ``X`` is an array; otherwise it is :class:`~cgmvae.data.columns.Columns`, and the
    types of columns not in ``text``, ``category`` or ``date`` are guessed
    (:mod:`cgmvae.data.columns`).
    """
    pa = load_pyarrow()
    file = open_csv(path, options)
    if options.label_options:
        choose_roles(file.names, options)  # before the rows are read
    table = pa.concat_tables(file.tables(verbatim=options.named_columns))
    return _dataset(table, options, path, name, text_is_parsed=True)


def open_csv(path: str | os.PathLike[str], options: ReadingOptions) -> DelimitedFile:
    """Open a text table to see its columns, and to read it any number of times."""
    return DelimitedFile(path, options.delimiter, options.decimal, options.encoding)


def read_loaded(
    path: str | os.PathLike[str], options: ReadingOptions, *, format: str, name: str | None = None
) -> MultiLabelDataset:
    """Read a data set from a table that is loaded as a whole: a format of :data:`LOADERS`.

    A sheet of an Excel workbook, whose first row names the columns and whose text may be numbers;
    JSON lines, one object per row, where ``label_sets`` may be a list of names (an empty list is a
    row without labels); or a Feather (Arrow) file.
    """
    load, text_is_parsed = LOADERS[format]
    return _dataset(load(path, options), options, path, name, text_is_parsed=text_is_parsed)


def read_parquet(
    path: str | os.PathLike[str], options: ReadingOptions, *, name: str | None = None
) -> MultiLabelDataset:
    """Read a data set from a Parquet file.

    A file written by :func:`write_parquet` needs none:
    it stores which columns are labels and groups, the types of its features, and that a blank label
    is unknown. Otherwise the Arrow types determine those of the features (dictionaries are
    categories); text can be a category, a date or text, but not a number. Groups of an integer type
    stay integers.
    """
    files.reject_compressed(path, "Parquet")
    path = files.check_file(path)
    with open_parquet(path) as file:
        names, stored = file.schema_arrow.names, file.schema_arrow.metadata or {}
        completed = with_stored_options(options, stored, path)
        if completed.label_options:
            choose_roles(names, completed)  # before the rows are read
        files.check_unpacked(
            path,
            unpacked_bytes(file.metadata),
            advice=("convert it to a mapped folder with 'cgmvae data convert', and use that",),
        )
        table = file.read()
        table.validate(full=True)
    return _dataset(table, options, path, name, text_is_parsed=False)


def _dataset(
    table: Any,
    options: ReadingOptions,
    path: str | os.PathLike[str],
    name: str | None,
    *,
    text_is_parsed: bool,
) -> MultiLabelDataset:
    """Convert a table to a data set; a table of several rows per sample is pivoted or rejected."""
    n_rows = table.num_rows
    table = without_blank_rows(table)
    check_rows(path, table.num_rows)
    warn_of_blank_rows(n_rows - table.num_rows, n_rows, path)
    options = with_stored_options(options, table.schema.metadata or {}, path)
    reject_repeated(table.column_names)
    if not options.label_options:
        raise UnnamedLabelsError(path, table, text_is_parsed=text_is_parsed)
    roles = choose_roles(table.column_names, options)
    table = with_missing(table, as_list(options.missing), options.named_columns)
    if options.row_and_label is not None:
        table = pivot(table.drop_columns(as_list(options.drop)), *options.row_and_label)
    dataset = dataset_of(
        table, roles, options, name=name or files.data_name(path), text_is_parsed=text_is_parsed
    )
    if options.kinds is None:
        warn_of_codes(dataset)
    warn_of_ids(dataset, options)
    label = options.label_sets
    if label is not None and options.kinds is None and dataset.Y.sum(axis=1).max() == 1:
        row = find_row_column(table, label, roles.features)
        if row is not None:
            raise InputError(
                f"{path} has one row per {row!r} and {label!r}, so that the same {row!r} would be "
                "in several rows; make them one row (",
                Setting("long", f"{row},{label}"),
                f" in place of label_sets), or drop {row!r} (",
                Setting("drop", [row]),
                ").",
            )
    return dataset


def check_rows(path: str | os.PathLike[str], n_rows: int) -> None:
    """Reject a table without rows."""
    if n_rows == 0:
        raise InputError(f"{path} has columns and no rows; check how it was written.")


def load_xlsx(path: str | os.PathLike[str], options: ReadingOptions) -> Any:
    """Load a sheet of an Excel workbook as an Arrow table."""
    sheet = options.sheet
    pa = load_pyarrow()
    files.reject_compressed(path, "a workbook")
    path = files.check_file(path)
    try:
        import openpyxl
    except ImportError as error:
        raise InputError(
            'Excel workbooks need openpyxl; install it with pip install "cgmvae[excel]".'
        ) from error
    try:
        with zipfile.ZipFile(path) as archive:
            files.check_unpacked(path, sum(member.file_size for member in archive.infolist()))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about styles and charts
            book = openpyxl.load_workbook(path, read_only=True, data_only=True)
            names = book.sheetnames
            if sheet is None and len(names) > 1:
                raise InputError(
                    f"{path} has the sheets {', '.join(map(repr, names))}; choose one, such as ",
                    Setting("sheet", names[0]),
                    ".",
                )
            if sheet is not None and sheet not in names:
                raise InputError(
                    f"{path} has no sheet {sheet!r}; there are {', '.join(map(repr, names))}."
                )
            chosen = book[sheet or names[0]]
            chosen.reset_dimensions()  # which not every program writes right
            rows = list(chosen.iter_rows(values_only=True))
            book.close()
    except InputError:
        raise
    except Exception as error:  # openpyxl raises whatever a damaged file leads to
        raise InputError(
            f"{path} is not a readable Excel workbook ({first_line(error)}); save it again."
        ) from error
    while rows and not any(map(_is_filled, rows[0])):
        del rows[0]
    if not rows:
        raise InputError(f"{path} has no rows; check which sheet holds the table.")
    width = max(i + 1 for row in rows for i, cell in enumerate(row) if _is_filled(cell))
    header, *cells = [(*row, *[None] * width)[:width] for row in rows]
    columns = [_sheet_column([row[i] for row in cells]) for i in range(width)]
    return pa.table(columns, names=["" if name is None else str(name) for name in header])


def _is_filled(cell: Any) -> bool:
    return cell is not None and cell != ""


def _sheet_column(cells: list[Any]) -> Any:
    """Convert the cells of a workbook to an Arrow array: of text, unless all have one type."""
    pa = load_pyarrow()
    types = {type(cell) for cell in cells if cell is not None}
    if types == {bool} or not types - {int, float}:
        return pa.array(cells, pa.bool_() if bool in types else pa.float64())
    if not types - {datetime.datetime, datetime.date}:
        return pa.array(cells, pa.timestamp("s"))
    whole = (int(cell) if isinstance(cell, float) and cell.is_integer() else cell for cell in cells)
    return pa.array([None if cell is None else str(cell) for cell in whole], pa.string())


def load_jsonl(path: str | os.PathLike[str], _: ReadingOptions) -> Any:
    """Load JSON lines as an Arrow table, whose columns are the keys of all lines."""
    pa = load_pyarrow()
    rows, names = [], dict[str, None]()
    # Arrow's own reader crashes on a line such as ``null``.
    with files.open_text(path) as text:
        for number, line in enumerate(text, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                row = None
            if not isinstance(row, dict):
                raise InputError(f"{path}, line {number:,}: not a JSON object; write one per line.")
            rows.append(row)
            names.update(dict.fromkeys(row))
    columns = {}
    for name in names:
        try:
            columns[name] = pa.array([row.get(name) for row in rows])
        except (pa.ArrowException, OverflowError, UnicodeError) as error:
            raise InputError(
                f"The values of {name!r} in {path} have different types ({first_line(error)}); "
                "write all as numbers, or all as text."
            ) from error
    return pa.table(columns)


def load_feather(path: str | os.PathLike[str], _: ReadingOptions) -> Any:
    """Load a Feather file as an Arrow table."""
    pa = load_pyarrow()
    files.reject_compressed(path, "Feather")
    path = files.check_file(path)
    try:
        table = pa.feather.read_table(path, memory_map=False)
        table.validate(full=True)
        return table
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(
            f"{path} is not a readable Feather file ({first_line(error)}); check it."
        ) from error


#: Formats that are loaded as a whole, and whether their text may be numbers.
LOADERS: dict[str, tuple[Callable[..., Any], bool]] = {
    "xlsx": (load_xlsx, True),
    "jsonl": (load_jsonl, False),
    "feather": (load_feather, False),
}


def write_csv(dataset: MultiLabelDataset, path: str | os.PathLike[str]) -> None:
    """Write a data set as CSV (or with tabs): features, labels, columns ``group`` and ``id``.

    Missing features and unknown labels are left blank. A file that ends in ``.gz`` or ``.bz2`` is
    compressed. The official split and the types of the columns are not written.
    """
    pa = load_pyarrow()
    table = table_of(dataset)
    if any("\0" in name for name in table.column_names):  # which Arrow takes for an escape
        raise InputError("A column name holds the character NUL; rename the column.")
    options = pa.csv.WriteOptions(delimiter=suffix_delimiter(path) or ",")
    with files.atomic_path(path) as temporary, files.create_binary(temporary) as file:
        pa.csv.write_csv(table, file, options)


def write_parquet(dataset: MultiLabelDataset, path: str | os.PathLike[str]) -> None:
    """Write a data set as Parquet: features, labels, and the columns ``group`` and ``id``.

    Missing features and unknown labels are null. The schema's metadata stores which columns are the
    labels, groups and identifiers, and the types of the features unless all are numbers
    (``cgmvae.labels``, ``cgmvae.groups``, ``cgmvae.ids``, ``cgmvae.kinds``). The official split is
    not written.
    """
    pa = load_pyarrow()
    files.reject_compressed(path, "Parquet")
    metadata = {LABELS_KEY: json.dumps(dataset.label_names)}
    if dataset.groups is not None:
        metadata[GROUPS_KEY] = GROUP_COLUMN
    if dataset.ids is not None:
        metadata[IDS_KEY] = ID_COLUMN
    if isinstance(dataset.X, Columns):
        metadata[KINDS_KEY] = json.dumps(dataset.X.by_name())
    table = table_of(dataset).replace_schema_metadata(metadata)
    with files.atomic_path(path) as temporary:
        pa.parquet.write_table(table, temporary)


@contextmanager
def open_parquet(path: str | os.PathLike[str], **options: Any) -> Iterator[Any]:
    """Open a Parquet file, and report a damaged one in one sentence; options are pyarrow's."""
    pa = load_pyarrow()
    try:
        with pa.parquet.ParquetFile(path, **options) as file:
            yield file
    except InputError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(
            f"{path} is not a readable Parquet file ({first_line(error)}); check it."
        ) from error


def with_stored_options(
    options: ReadingOptions, stored: Mapping[bytes, bytes], path: str | os.PathLike[str]
) -> ReadingOptions:
    """Complete the options with what :func:`write_parquet` stored in the schema's metadata."""
    if options.kinds is None and KINDS_KEY in stored:
        kinds = _parse_json(stored[KINDS_KEY])
        known = get_args(ColumnType)
        if not isinstance(kinds, dict) or not all(kind in known for kind in kinds.values()):
            raise InputError(f"The stored column types of {path} are damaged; write it again.")
        options = replace(options, kinds=kinds)
    if options.label_options or LABELS_KEY not in stored:
        return options
    labels = _parse_json(stored[LABELS_KEY])
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise InputError(f"The stored label names of {path} are damaged; name them with labels.")
    return replace(
        options,
        labels=labels,
        blank_labels=options.blank_labels or "unknown",
        groups=options.groups or stored_column(stored, GROUPS_KEY),
        id=options.id or stored_column(stored, IDS_KEY),
    )


def stored_column(stored: Mapping[bytes, bytes], key: bytes) -> str | None:
    """Return the name of the group or id column in the schema's metadata; None if absent."""
    name = stored.get(key)
    return None if name is None else name.decode(errors="replace")


def _parse_json(text: bytes) -> Any:
    """Parse JSON; None if it is damaged."""
    try:
        return files.parse_limited_json(text)
    except ValueError:
        return None


def unpacked_bytes(metadata: Any) -> int:
    """Return how many bytes a Parquet file takes in memory at least, according to its metadata."""
    stated = sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
    return int(max(stated, metadata.num_rows * metadata.num_columns * _CELL_BYTES))


def may_have_blank_rows(metadata: Any) -> bool:
    """Return whether a Parquet file may have rows without a filled cell, by its statistics."""

    def is_filled(column: int) -> bool:
        schema = metadata.schema.column(column)
        if schema.physical_type == "BYTE_ARRAY" or schema.max_repetition_level:
            return False
        groups = (metadata.row_group(i) for i in range(metadata.num_row_groups))
        found = [group.column(column).statistics for group in groups]
        return all(
            each is not None and each.has_null_count and not each.null_count for each in found
        )

    return not any(map(is_filled, range(metadata.num_columns)))
