"""Tables with one row a sample: CSV and Parquet, through pyarrow (the extra ``tables``).

What the columns mean is decided in :mod:`cgmvae.data.formats.columns`, and their cells become
arrays in :mod:`cgmvae.data.formats.cells`; this file reads and writes them. Every cell of a CSV
file is read as text first, so that nothing is taken for a date or loses its leading zeros.
Features are kept as float32: integers beyond 2**24 and float64 values are rounded to it. The
official split of a data set is not written; ``npz`` keeps it.
"""

from __future__ import annotations

import csv
import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cgmvae.data import files
from cgmvae.data.dataset import Matrix, MultiLabelDataset
from cgmvae.data.formats.cells import dataset_of
from cgmvae.data.formats.columns import BlankLabels, Counts, TableOptions, choose_roles
from cgmvae.errors import InputError

#: The name of the column that the groups are written to.
GROUP_COLUMN = "group"

#: Where a Parquet file of ours keeps the names of its label columns, as a JSON list, and the name
#: of its group column, where it has one.
LABELS_KEY, GROUPS_KEY = b"cgmvae.labels", b"cgmvae.groups"

#: The most bytes that a sparse data set may take as the dense table that is written.
DENSE_LIMIT = 2 * 2**30

#: Bytes that are parsed at a time; a row must fit into one block.
_BLOCK = 64 * 2**20

#: The fewest bytes that a cell of a Parquet file takes once it is read.
_CELL_BYTES = 4


def read_csv(
    path: str | os.PathLike[str],
    *,
    labels: Sequence[str] | None = None,
    label_prefix: str | None = None,
    label_count: int | None = None,
    label_sets: str | None = None,
    separator: str = ";",
    counts: Counts = "refuse",
    blank_labels: BlankLabels | None = None,
    groups: str | None = None,
    drop: Sequence[str] = (),
    name: str | None = None,
    delimiter: str = ",",
) -> MultiLabelDataset:
    r"""Read a data set from a CSV file in UTF-8 whose first line names the columns.

    The label columns are named by exactly one of ``labels``, ``label_prefix``, ``label_count`` and
    ``label_sets``; their cells are 0 and 1, or true and false. All other columns are features:
    numbers, or true and false, with NaN for a cell that is blank, ``NA``, ``NaN`` or ``?``.

    Parameters
    ----------
    path : path
        The file, possibly compressed with gzip or bzip2.
    labels : sequence of str, optional
        The names of the label columns.
    label_prefix : str, optional
        What the names of the label columns begin with; the names are kept whole.
    label_count : int, optional
        The first ``label_count`` columns, or the last ``-label_count``, are labels (the sign is
        MEKA's), not counting the columns of ``groups`` and ``drop``.
    label_sets : str, optional
        One column with the names of a row's labels, such as ``owl;hawk``. The labels come out
        sorted by name.
    separator : str, default=";"
        What separates the names in ``label_sets``; blanks around a name do not count.
    counts : {"refuse", "presence"}, default="refuse"
        What a number above 0 other than 1 in a label column is: an error, or a 1.
    blank_labels : {"absent", "unknown"}, optional
        What a blank label cell means; without it a blank one is an error. With ``label_sets``,
        "unknown" makes every label of that row unknown.
    groups : str, optional
        The column of the groups, which are read as text.
    drop : sequence of str
        Columns to leave out.
    name : str, optional
        Name of the data set; by default that of the file.
    delimiter : str, default=","
        What separates the cells.

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
    options = TableOptions(
        labels, label_prefix, label_count, label_sets, separator, counts, blank_labels, groups, drop
    )
    pa = _pyarrow()
    names = _header(path, delimiter)
    roles = choose_roles(names, options)
    table = _parse(pa, path, len(names), delimiter).rename_columns(names)
    return dataset_of(
        table, roles, options, name=name or files.data_name(path), text_is_parsed=True
    )


def read_parquet(
    path: str | os.PathLike[str],
    *,
    labels: Sequence[str] | None = None,
    label_prefix: str | None = None,
    label_count: int | None = None,
    label_sets: str | None = None,
    separator: str = ";",
    counts: Counts = "refuse",
    blank_labels: BlankLabels | None = None,
    groups: str | None = None,
    drop: Sequence[str] = (),
    name: str | None = None,
) -> MultiLabelDataset:
    """Read a data set from a Parquet file.

    The options are those of :func:`read_csv`. A file that :func:`write_parquet` wrote needs none:
    it says itself which columns are labels and groups, and that a blank label is unknown. Features
    must have a numeric or boolean type; groups of an integer type stay integers.
    """
    options = TableOptions(
        labels, label_prefix, label_count, label_sets, separator, counts, blank_labels, groups, drop
    )
    pa = _pyarrow()
    files.refuse_packed(path, "Parquet")
    path = files.check_file(path)
    try:
        with pa.parquet.ParquetFile(path) as file:
            names, stored = file.schema_arrow.names, file.schema_arrow.metadata or {}
            options = _completed(options, stored, path)
            roles = choose_roles(names, options)
            _check_size(path, file.metadata)
            table = file.read()
            table.validate(full=True)
    except InputError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{path} is not a readable Parquet file ({_line(error)}).") from error
    if table.num_rows == 0:
        raise InputError(f"{path} has columns and no rows; check how it was written.")
    return dataset_of(
        table, roles, options, name=name or files.data_name(path), text_is_parsed=False
    )


def write_csv(dataset: MultiLabelDataset, path: str | os.PathLike[str]) -> None:
    """Write a data set as CSV: features, labels, and groups in the column ``group``.

    Missing features and unknown labels are left blank. A path that ends in ``.gz`` or ``.bz2`` is
    compressed. The official split is not written.
    """
    pa = _pyarrow()
    table = _table_of(pa, dataset)
    _refuse_nul(table.column_names)
    with files.atomic_path(path) as temporary, files.create_binary(temporary) as file:
        pa.csv.write_csv(table, file)


def write_parquet(dataset: MultiLabelDataset, path: str | os.PathLike[str]) -> None:
    """Write a data set as Parquet: features, labels, and groups in the column ``group``.

    Missing features and unknown labels are null. The schema's metadata says which columns are the
    labels and the groups (``cgmvae.labels``, ``cgmvae.groups``). The official split is not written.
    """
    pa = _pyarrow()
    files.refuse_packed(path, "Parquet")
    table = _table_of(pa, dataset)
    metadata = {LABELS_KEY: json.dumps(dataset.label_names)}
    if dataset.groups is not None:
        metadata[GROUPS_KEY] = GROUP_COLUMN
    table = table.replace_schema_metadata(metadata)
    with files.atomic_path(path) as temporary:
        pa.parquet.write_table(table, temporary)


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.csv
        import pyarrow.parquet
    except ImportError as error:
        raise InputError(
            'CSV and Parquet need pyarrow; install it with pip install "cgmvae[tables]".'
        ) from error
    return pyarrow


def _header(path: str | os.PathLike[str], delimiter: str) -> list[str]:
    """Read the names of the columns from the first line, which may go on inside quotes."""
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n':
        raise InputError(f"The delimiter {delimiter!r} must be one character, such as ',' or ';'.")
    try:
        with files.open_text(path, newline="") as text:
            names = next(csv.reader(text, delimiter=delimiter, strict=True), [])
    except csv.Error as error:
        raise InputError(f"The first line of {path} does not name columns ({error}).") from error
    if not names:
        raise InputError(f"The first line of {path} is empty; it must name the columns.")
    _refuse_nul(names)
    return names


def _refuse_nul(names: Iterable[str]) -> None:
    """Refuse the character NUL in a header, which Arrow takes for an escape when it skips it."""
    if any("\0" in name for name in names):
        raise InputError("The name of a column holds the character NUL; rename the column.")


def _parse(pa: Any, path: str | os.PathLike[str], n_columns: int, delimiter: str) -> Any:
    """Read every cell below the header as text, into columns ``f0``, ``f1`` and on."""
    wrong_rows = []

    def note_wrong_row(row: Any) -> str:
        wrong_rows.append(row)
        return "error"

    # Only a reader without threads knows the number of a wrong row.
    read = pa.csv.ReadOptions(
        use_threads=False,
        block_size=_BLOCK,
        autogenerate_column_names=True,
        skip_rows_after_names=1,
    )
    parse = pa.csv.ParseOptions(
        delimiter=delimiter, newlines_in_values=True, invalid_row_handler=note_wrong_row
    )
    text = pa.csv.ConvertOptions(column_types={f"f{i}": pa.string() for i in range(n_columns)})
    try:
        with files.open_binary(path) as file:
            table = pa.csv.read_csv(file, read, parse, text)
    except pa.ArrowInvalid as error:
        raise _csv_error(path, error, wrong_rows) from error
    if table.num_rows == 0:
        raise InputError(f"{path} has a header and no rows; check how it was written.")
    _refuse_open_quote(path, table, delimiter)
    return table


def _csv_error(path: str | os.PathLike[str], error: Exception, wrong_rows: list[Any]) -> InputError:
    if wrong_rows:
        row = wrong_rows[0]
        return InputError(
            f"Row {row.number} of {path} has {row.actual_columns} cells and the header "
            f"{row.expected_columns} (the header is row 1); repair the row, or check the delimiter."
        )
    if "UTF8" in str(error):
        try:
            with files.open_text(path) as text:
                while text.read(_BLOCK):
                    pass
        except InputError as clearer:
            return clearer
    return InputError(f"{path} is not a readable CSV file ({_line(error)}).")


def _refuse_open_quote(path: str | os.PathLike[str], table: Any, delimiter: str) -> None:
    """Refuse a file that ends inside a quote, where Arrow takes the rest for one long cell."""
    last = table.column(table.num_columns - 1)[-1].as_py()
    if "\n" not in last and "\r" not in last:
        return
    try:
        with files.open_text(path, newline="") as text:
            for _ in csv.reader(text, delimiter=delimiter, strict=True):
                pass
    except csv.Error as error:
        raise InputError(f"{path} has a quote that is not closed ({error}); repair it.") from error


def _completed(
    options: TableOptions, stored: dict[bytes, bytes], path: os.PathLike[str]
) -> TableOptions:
    """Add what a Parquet file of ours says about its own columns."""
    if options.names_labels() or LABELS_KEY not in stored:
        return options
    try:
        labels = json.loads(stored[LABELS_KEY])
    except ValueError:
        labels = None
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise InputError(f"{path} has damaged stored names of its labels; name them with labels.")
    own_groups = stored[GROUPS_KEY].decode() if GROUPS_KEY in stored else None
    return replace(
        options,
        labels=labels,
        blank_labels=options.blank_labels or "unknown",
        groups=options.groups or own_groups,
    )


def _check_size(path: os.PathLike[str], metadata: Any) -> None:
    stated = sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
    n_bytes = max(stated, metadata.num_rows * metadata.num_columns * _CELL_BYTES)
    if n_bytes > files.UNPACKED_LIMIT:
        raise InputError(
            f"{path} unpacks to {n_bytes:,} bytes, more than the {files.UNPACKED_LIMIT:,} that are "
            "accepted; divide it into several files."
        )


def _line(error: Exception) -> str:
    return str(error).split("\n")[0].rstrip(".")


def _table_of(pa: Any, dataset: MultiLabelDataset) -> Any:
    """Build the Arrow table of a data set: feature columns, label columns, group column."""
    names = [*dataset.feature_names, *dataset.label_names]
    if dataset.groups is not None:
        names.append(GROUP_COLUMN)
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(
            f"The name {twice[0]!r} would be given to two columns among the features, the labels "
            f"and {GROUP_COLUMN!r}; rename one, or write npz."
        )
    if "" in names:
        raise InputError("A feature or label has an empty name; rename it, or write npz.")
    X, Y, unknown = (_dense(part) for part in (dataset.X, dataset.Y, dataset.unknown))
    columns = [pa.array(X[:, j], from_pandas=True) for j in range(dataset.n_features)]
    for j in range(dataset.n_labels):
        columns.append(pa.array(Y[:, j], mask=None if unknown is None else unknown[:, j]))
    if dataset.groups is not None:
        columns.append(pa.array(_written_groups(dataset.groups)))
    return pa.table(columns, names=names)


def _written_groups(groups: NDArray[Any]) -> NDArray[Any]:
    if groups.dtype.kind in "iu":
        return groups
    groups = groups.astype(np.str_)
    if (np.char.strip(groups) == "").any():
        raise InputError("A row has a blank group, which no table can keep; name it, or write npz.")
    return groups


def _dense(matrix: Matrix | None) -> Any:
    if matrix is None or not sp.issparse(matrix):
        return matrix
    n_bytes = matrix.shape[0] * matrix.shape[1] * matrix.dtype.itemsize
    if n_bytes > DENSE_LIMIT:
        raise InputError(
            f"The sparse data would take {n_bytes:,} bytes as a table, more than the "
            f"{DENSE_LIMIT:,} that are written; write npz or svmlight instead."
        )
    return matrix.toarray()
