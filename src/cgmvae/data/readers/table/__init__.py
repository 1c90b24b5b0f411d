"""Tables with one row per sample: CSV and Parquet, through pyarrow (the extra ``tables``).

``columns`` decides by name what the columns mean, and ``cells`` converts an Arrow table to a data
set and back. Every cell of a CSV file is read as text first, so that nothing is mistaken for a date
or loses its leading zeros before the type of the column is known. Numbers are read as
float64, because they are rounded only after scaling. The official split of a data set is not
written; ``npz`` stores it.
"""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from inspect import Signature, signature
from typing import IO, Any, get_args

from cgmvae.data import files
from cgmvae.data.columns import Columns, ColumnType
from cgmvae.data.dataset import MultiLabelDataset
from cgmvae.data.readers.table.cells import GROUP_COLUMN, dataset_of, load_pyarrow, table_of
from cgmvae.data.readers.table.columns import TableOptions, choose_roles
from cgmvae.errors import InputError, first_line

__all__ = ["read_csv", "read_parquet", "write_csv", "write_parquet"]

#: Bytes per block that is parsed, of which Arrow holds several; and where a row does not fit.
_SMALL_BLOCK, _BLOCK = 2**21, 64 * 2**20

#: Arrow's message about a row with too many or too few cells. Its callback for such rows cannot be
#: used, because it fails on rows that are not UTF-8.
_WRONG_ROW = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+)")

#: Keys of the metadata that :func:`write_parquet` adds to the schema: the names of the label
#: columns as a JSON list, the name of the group column, and the types of the features as a JSON
#: object.
LABELS_KEY, GROUPS_KEY, KINDS_KEY = b"cgmvae.labels", b"cgmvae.groups", b"cgmvae.kinds"

#: The smallest number of bytes that a cell of a Parquet file takes in memory.
_CELL_BYTES = 4


def _takes_table_options(read: Callable[..., MultiLabelDataset]) -> Callable[..., Any]:
    """Show the fields of :class:`TableOptions` in the signature instead of ``**options``."""
    path, *own, _ = signature(read).parameters.values()
    options = [p.replace(kind=p.KEYWORD_ONLY) for p in signature(TableOptions).parameters.values()]
    read.__signature__ = Signature([path, *options, *own])  # type: ignore[attr-defined]
    return read


@_takes_table_options
def read_csv(
    path: str | os.PathLike[str], *, name: str | None = None, delimiter: str = ",", **options: Any
) -> MultiLabelDataset:
    r"""Read a data set from a CSV file in UTF-8 whose first line names the columns.

    A cell that is blank, ``NA``, ``NaN`` or ``?`` is missing. If all features are numbers, or true
    and false, ``X`` is an array; otherwise it is :class:`~cgmvae.data.columns.Columns`, and the
    types of columns not in ``text``, ``category`` or ``date`` are guessed
    (:mod:`cgmvae.data.columns`).

    Parameters
    ----------
    path : path
        The file, possibly compressed with gzip or bzip2.
    name : str, optional
        Name of the data set; by default that of the file.
    delimiter : str, default=","
        Separator of the cells.
    **options
        The meaning of the columns: the fields of
        :class:`~cgmvae.data.readers.table.columns.TableOptions`.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "birds.csv")
    ...     _ = path.write_text("height,owl,hawk\n0.5,1,0\n,1,1\n")
    ...     data = read_csv(path, label_count=-2)
    >>> data.label_names, data.X.tolist()
    (('owl', 'hawk'), [[0.5], [nan]])
    """
    given = TableOptions(**options)
    pa = load_pyarrow()
    names = read_csv_names(path, delimiter)
    roles = choose_roles(names, given)
    parts = iterate_csv(path, len(names), delimiter, partial(files.open_binary, path))
    table = pa.concat_tables(parts).rename_columns(names)
    return dataset_of(table, roles, given, name=name or files.data_name(path), text_is_parsed=True)


@_takes_table_options
def read_parquet(
    path: str | os.PathLike[str], *, name: str | None = None, **options: Any
) -> MultiLabelDataset:
    """Read a data set from a Parquet file.

    The options are those of :func:`read_csv`. A file written by :func:`write_parquet` needs none:
    it stores which columns are labels and groups, the types of its features, and that a blank label
    is unknown. Otherwise the Arrow types determine those of the features (dictionaries are
    categories); text can be a category, a date or text, but not a number. Groups of an integer type
    stay integers.
    """
    given = TableOptions(**options)
    files.reject_compressed(path, "Parquet")
    path = files.check_file(path)
    with open_parquet(path) as file:
        names, stored = file.schema_arrow.names, file.schema_arrow.metadata or {}
        given = with_stored_options(given, stored, path)
        roles = choose_roles(names, given)
        n_bytes = unpacked_bytes(file.metadata)
        if n_bytes > files.UNPACKED_LIMIT:
            raise InputError(
                f"{path} unpacks to {n_bytes:,} bytes, more than the {files.UNPACKED_LIMIT:,} that "
                "are accepted; convert it to a mapped folder, and use that."
            )
        table = file.read()
        table.validate(full=True)
    if table.num_rows == 0:
        raise InputError(f"{path} has columns and no rows; check how it was written.")
    return dataset_of(table, roles, given, name=name or files.data_name(path), text_is_parsed=False)


def write_csv(dataset: MultiLabelDataset, path: str | os.PathLike[str]) -> None:
    """Write a data set as CSV: features, labels, and groups in the column ``group``.

    Missing features and unknown labels are left blank. A file that ends in ``.gz`` or ``.bz2`` is
    compressed. The official split and the types of the columns are not written.
    """
    pa = load_pyarrow()
    table = table_of(dataset)
    _reject_nul(table.column_names)
    with files.atomic_path(path) as temporary, files.create_binary(temporary) as file:
        pa.csv.write_csv(table, file)


def write_parquet(dataset: MultiLabelDataset, path: str | os.PathLike[str]) -> None:
    """Write a data set as Parquet: features, labels, and groups in the column ``group``.

    Missing features and unknown labels are null. The schema's metadata stores which columns are the
    labels and the groups, and the types of the features unless all are numbers (``cgmvae.labels``,
    ``cgmvae.groups``, ``cgmvae.kinds``). The official split is not written.
    """
    pa = load_pyarrow()
    files.reject_compressed(path, "Parquet")
    metadata = {LABELS_KEY: json.dumps(dataset.label_names)}
    if dataset.groups is not None:
        metadata[GROUPS_KEY] = GROUP_COLUMN
    if isinstance(dataset.X, Columns):
        metadata[KINDS_KEY] = json.dumps(dataset.X.by_name())
    table = table_of(dataset).replace_schema_metadata(metadata)
    with files.atomic_path(path) as temporary:
        pa.parquet.write_table(table, temporary)


def read_csv_names(path: str | os.PathLike[str], delimiter: str) -> list[str]:
    """Read the column names from the first line, which may continue inside quotes."""
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n':
        raise InputError(f"The delimiter {delimiter!r} must be one character, such as ',' or ';'.")
    try:
        with files.open_text(path, newline="") as text:
            names = next(csv.reader(text, delimiter=delimiter, strict=True), [])
    except csv.Error as error:
        raise InputError(
            f"The first line of {path} does not name the columns ({error})."
        ) from error
    if not names:
        raise InputError(f"The first line of {path} is empty; it must name the columns.")
    _reject_nul(names)
    return names


def iterate_csv(
    path: str | os.PathLike[str],
    n_columns: int,
    delimiter: str,
    open_file: Callable[[], IO[bytes]],
) -> Iterator[Any]:
    """Yield the cells of a CSV file as Arrow tables of text, some rows at a time.

    ``open_file`` is called again if a row is too long for small blocks; the rows that have been
    read are skipped then. The path is for messages.
    """
    pa = load_pyarrow()
    parse = pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    text = pa.csv.ConvertOptions(column_types={f"f{i}": pa.string() for i in range(n_columns)})
    n_rows, table = 0, None
    for block in (_SMALL_BLOCK, _BLOCK):
        # Only a reader without threads reports the number of a wrong row.
        read = pa.csv.ReadOptions(
            use_threads=False,
            block_size=block,
            autogenerate_column_names=True,
            skip_rows_after_names=1,
        )
        n_skipped = n_rows
        try:
            with open_file() as file:
                for batch in pa.csv.open_csv(file, read, parse, text):
                    rest = batch.slice(min(n_skipped, batch.num_rows))
                    n_skipped -= batch.num_rows - rest.num_rows
                    if rest.num_rows:
                        table = pa.Table.from_batches([rest])
                        n_rows += rest.num_rows
                        yield table
            break
        except pa.ArrowInvalid as error:
            if _WRONG_ROW.search(str(error)) or block == _BLOCK:
                raise _csv_error(path, error) from error
    if table is None:
        raise InputError(f"{path} has a header and no rows; check how it was written.")
    _reject_open_quote(path, table, delimiter)


def _csv_error(path: str | os.PathLike[str], error: Exception) -> InputError:
    if wrong_row := _WRONG_ROW.search(str(error)):
        number, expected, found = wrong_row.groups()
        return InputError(
            f"Row {number} of {path} has {found} cells and the header {expected} (the header is "
            "row 1); correct the row, or check the delimiter."
        )
    if "UTF8" in str(error):
        try:
            with files.open_text(path) as text:
                while text.read(_BLOCK):
                    pass
        except InputError as clearer:
            return clearer
    return InputError(f"{path} is not a readable CSV file ({first_line(error)}); check it.")


def _reject_open_quote(path: str | os.PathLike[str], table: Any, delimiter: str) -> None:
    """Reject a file that ends inside a quote, of which Arrow makes one long cell."""
    last = table.column(table.num_columns - 1)[-1].as_py()
    if "\n" not in last and "\r" not in last:
        return
    usual_limit = csv.field_size_limit(_BLOCK)
    try:
        with files.open_text(path, newline="") as text:
            for _ in csv.reader(text, delimiter=delimiter, strict=True):
                pass
    except csv.Error as error:
        raise InputError(f"{path} has a quote that is not closed ({error}); close it.") from error
    finally:
        csv.field_size_limit(usual_limit)


def _reject_nul(names: Iterable[str]) -> None:
    """Reject the character NUL in a header, which Arrow mistakes for an escape character."""
    if any("\0" in name for name in names):
        raise InputError("A column name holds the character NUL; rename the column.")


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
    options: TableOptions, stored: dict[bytes, bytes], path: os.PathLike[str]
) -> TableOptions:
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
        groups=options.groups or stored_groups(stored),
    )


def stored_groups(stored: dict[bytes, bytes]) -> str | None:
    """Return the name of the group column in the schema's metadata; None if there is none."""
    name = stored.get(GROUPS_KEY)
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
