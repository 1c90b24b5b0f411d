"""Tables with one row a sample: CSV and Parquet, through pyarrow (the extra ``tables``).

What the columns mean is decided in ``columns``, and their cells become arrays in ``cells``, with
``numbers`` and ``labels``; a data set becomes a table in ``arrow``. ``csv_text`` and
``parquet_file`` know what is peculiar to the two kinds of file. Every cell of a CSV file is read as
text first, so that nothing is taken for a date or loses its leading zeros before it is known what
the column holds. Numbers are kept as float32: integers beyond 2**24 and float64 values are rounded
to it. The official split of a data set is not written; ``npz`` keeps it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from cgmvae.data import files
from cgmvae.data.dataset import MultiLabelDataset
from cgmvae.data.kinds import Kind
from cgmvae.data.readers.table import csv_text, parquet_file
from cgmvae.data.readers.table.arrow import load_pyarrow, table_of
from cgmvae.data.readers.table.cells import dataset_of
from cgmvae.data.readers.table.columns import BlankLabels, Counts, TableOptions, choose_roles
from cgmvae.errors import InputError, first_line

__all__ = ["read_csv", "read_parquet", "write_csv", "write_parquet"]


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
    text: Sequence[str] = (),
    category: Sequence[str] = (),
    date: Sequence[str] = (),
    kinds: Mapping[str, Kind] | None = None,
    name: str | None = None,
    delimiter: str = ",",
) -> MultiLabelDataset:
    r"""Read a data set from a CSV file in UTF-8 whose first line names the columns.

    The label columns are named by exactly one of ``labels``, ``label_prefix``, ``label_count`` and
    ``label_sets``; their cells are 0 and 1, or true and false. All other columns are features. A
    cell that is blank, ``NA``, ``NaN`` or ``?`` is missing. Where all features are numbers, or true
    and false, ``X`` is an array; otherwise it is :class:`~cgmvae.data.columns.Columns`, and what is
    not named by ``text``, ``category`` or ``date`` is guessed (:mod:`cgmvae.data.kinds`).

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
    text, category, date : sequence of str
        Feature columns of running text, of categories (numbers too), and of dates.
    kinds : mapping of str to {"number", "category", "date", "text"}, optional
        What feature columns hold, such as a model's ``input_kinds()``. Names that the file does not
        have are passed over; nothing is guessed of its other columns.
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
    ).with_kinds(kinds, {"text": text, "category": category, "date": date})
    load_pyarrow()
    names = csv_text.read_names(path, delimiter)
    roles = choose_roles(names, options)
    table = csv_text.read_cells(path, len(names), delimiter).rename_columns(names)
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
    text: Sequence[str] = (),
    category: Sequence[str] = (),
    date: Sequence[str] = (),
    kinds: Mapping[str, Kind] | None = None,
    name: str | None = None,
) -> MultiLabelDataset:
    """Read a data set from a Parquet file.

    The options are those of :func:`read_csv`. A file that :func:`write_parquet` wrote needs none:
    it says itself which columns are labels and groups, what its features hold, and that a blank
    label is unknown. Types say what features hold (dictionaries are categories), but text may be a
    category, a date or text; it is no number. Groups of an integer type stay integers.
    """
    options = TableOptions(
        labels, label_prefix, label_count, label_sets, separator, counts, blank_labels, groups, drop
    ).with_kinds(kinds, {"text": text, "category": category, "date": date})
    pa = load_pyarrow()
    files.refuse_packed(path, "Parquet")
    path = files.check_file(path)
    try:
        with pa.parquet.ParquetFile(path) as file:
            names, stored = file.schema_arrow.names, file.schema_arrow.metadata or {}
            options = parquet_file.completed(options, stored, path)
            roles = choose_roles(names, options)
            parquet_file.check_size(path, file.metadata)
            table = file.read()
            table.validate(full=True)
    except InputError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{path} is not a readable Parquet file ({first_line(error)}).") from error
    if table.num_rows == 0:
        raise InputError(f"{path} has columns and no rows; check how it was written.")
    return dataset_of(
        table, roles, options, name=name or files.data_name(path), text_is_parsed=False
    )


def write_csv(dataset: MultiLabelDataset, path: str | os.PathLike[str]) -> None:
    """Write a data set as CSV: features, labels, and groups in the column ``group``.

    Missing features and unknown labels are left blank. A path that ends in ``.gz`` or ``.bz2`` is
    compressed. The official split is not written, nor what columns of text hold.
    """
    pa = load_pyarrow()
    table = table_of(dataset)
    csv_text.refuse_nul(table.column_names)
    with files.atomic_path(path) as temporary, files.create_binary(temporary) as file:
        pa.csv.write_csv(table, file)


def write_parquet(dataset: MultiLabelDataset, path: str | os.PathLike[str]) -> None:
    """Write a data set as Parquet: features, labels, and groups in the column ``group``.

    Missing features and unknown labels are null. The schema's metadata says which columns are the
    labels and the groups, and what the features hold where not all are numbers (``cgmvae.labels``,
    ``cgmvae.groups``, ``cgmvae.kinds``). The official split is not written.
    """
    pa = load_pyarrow()
    files.refuse_packed(path, "Parquet")
    table = table_of(dataset).replace_schema_metadata(parquet_file.metadata_of(dataset))
    with files.atomic_path(path) as temporary:
        pa.parquet.write_table(table, temporary)
