"""Conversion between Arrow tables and data sets: features, labels and groups, in both directions.

Only columns that are not numbers are converted cell by cell.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cgmvae.data.columns import (
    MISSING,
    Columns,
    ColumnType,
    IdentifierError,
    as_float64,
    as_texts,
    parse_numbers,
    reject_identifier,
    set_aside,
    typed_column,
)
from cgmvae.data.dataset import Features, Matrix, MultiLabelDataset
from cgmvae.data.readers.conventions import labels_as_stored
from cgmvae.data.readers.options import ReadingOptions
from cgmvae.data.readers.table.roles import ColumnRoles
from cgmvae.data.splits import spatial_blocks
from cgmvae.errors import InputError, Setting, listed, one_line, warn

#: Names of the columns that groups and identifiers are written to.
GROUP_COLUMN, ID_COLUMN = "group", "id"

#: Upper limit of the bytes of a sparse data set as the dense table that is written.
DENSE_LIMIT = 2 * 2**30

#: Words and marks in a label column, in lower case, and what is an absence among codes.
_LABEL_WORDS = {
    **dict.fromkeys(("1", "true", "yes", "y", "present", "x"), 1),
    **dict.fromkeys(("0", "false", "no", "n", "absent"), 0),
}
_ABSENT_CODES = (".", "-")

#: Separators that are proposed for a column of label sets, and the share of its cells that have it.
SEPARATORS, SEPARATOR_SHARE = (";", "|", ",", "/"), 0.2

#: The number that most often stands for a missing value.
_USUAL_MISSING = -9999

#: What a number holds before and after its decimal mark.
_BLANK_OR_SIGN, _REST = r"\s*[-+]?[0-9]*", r"[0-9]+(?:[eE][-+]?[0-9]+)?\s*"

_SURROGATE = re.compile("[\ud800-\udfff]")


def load_pyarrow() -> Any:
    """Import pyarrow with the submodules that are used, or say how to install it."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.csv
        import pyarrow.feather
        import pyarrow.parquet
    except ImportError as error:
        raise InputError(
            'Tables need pyarrow; install it with pip install "cgmvae[tables]".'
        ) from error
    return pyarrow


def dataset_of(
    table: Any, roles: ColumnRoles, options: ReadingOptions, *, name: str, text_is_parsed: bool
) -> MultiLabelDataset:
    """Convert an Arrow table with one row per sample to a data set.

    ``text_is_parsed`` says whether text in the feature columns may be numbers, as in CSV.
    """
    features, names = columns_of(
        table,
        roles.features,
        kinds=options.types,
        text_is_parsed=text_is_parsed,
        guess=options.kinds is None,
    )
    labels: Sequence[str] = roles.labels
    Y: Matrix
    unknown: Matrix | None
    if options.sets_column is None:
        Y, unknown = _label_columns(table, labels, options)
    else:
        Y, unknown, labels = _label_sets(table, options.sets_column, options)
    place = groups = None
    if options.place is not None:
        place = np.stack([_coordinate(table, name) for name in options.place], axis=1)
        groups = spatial_blocks(place, options.block_size)
    elif options.groups is not None:
        groups = _groups(table, options.groups)
    return MultiLabelDataset(
        features,
        Y,
        label_names=labels,
        feature_names=names,
        unknown=unknown,
        groups=groups,
        ids=None if options.id_column is None else ids_of(table, options.id_column),
        coordinates=place,
        name=name,
    )


def columns_of(
    table: Any,
    names: Sequence[str],
    *,
    kinds: Mapping[str, ColumnType],
    text_is_parsed: bool,
    guess: bool = True,
) -> tuple[Features, tuple[str, ...]]:
    """Convert the named columns of an Arrow table to features; return them and their names.

    They become a float64 array, (n_samples, n_features), if all are numbers, otherwise Columns. The
    types of columns that are not in ``kinds`` are guessed, or text unless they are numbers; if rows
    are read in parts, all types must be given. Identifiers that a guess finds are set aside.
    """
    features = np.empty((table.num_rows, len(names)), dtype=np.float64)
    others: dict[int, tuple[NDArray[Any], ColumnType]] = {}
    identifiers: dict[int, IdentifierError] = {}
    for j, name in enumerate(names):
        column = table.column(name)
        kind = kinds.get(name, _arrow_type(column))
        try:
            values, kind = _values(name, column, kind, text_is_parsed=text_is_parsed, guess=guess)
        except IdentifierError as error:
            identifiers[j] = error
            continue
        if kind == "number":
            features[:, j] = as_float64(values, name)
        else:
            others[j] = values, kind
    set_aside(list(identifiers.values()), n_columns=len(names))
    kept = [j for j in range(len(names)) if j not in identifiers]
    names = tuple(names[j] for j in kept)
    if not others:
        return features[:, kept] if identifiers else features, names
    found = [others.get(j, (features[:, j], "number")) for j in kept]
    return Columns(names, tuple(f[0] for f in found), tuple(f[1] for f in found)), names


def _values(
    name: str, column: Any, kind: ColumnType | None, *, text_is_parsed: bool, guess: bool
) -> tuple[NDArray[Any], ColumnType]:
    """Return the values of a column, (n_samples,), and its type."""
    if kind in (None, "number"):
        values = numbers_of(column, np.float64, text_is_parsed)
        if values is not None:
            if kind is None and guess:
                reject_identifier(name, values)
            return values, "number"
    cells = objects_of(column)
    if kind == "number":  # in digits that Arrow cannot parse, or blank in every row
        texts = as_texts(name, cells)
        present = [text for text in texts if text is not None]
        if present and not (text_is_parsed and parse_numbers(present) is not None):
            odd = next((text for text in present if parse_numbers([text]) is None), present[0])
            raise InputError(
                f"Not numeric: {name!r}, which must hold numbers and holds {odd!r}; correct it, or "
                "leave the cell blank if the value is missing."
            )
    kind = kind or (None if guess else "text")
    return typed_column(name, cells, kind, text_is_parsed=text_is_parsed)


def _arrow_type(column: Any) -> ColumnType | None:
    """Return the column type of an Arrow type; None for text, which may be any."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        return "category"
    return "date" if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type) else None


def objects_of(column: Any) -> NDArray[Any]:
    """Return a column that is not numeric as an array of objects or dates."""
    import pyarrow as pa

    column = plain_column(column)
    is_date = _arrow_type(column) == "date"
    return (column.cast(pa.timestamp("s"), safe=False) if is_date else column).to_numpy()


def _coordinate(table: Any, name: str) -> NDArray[Any]:
    """Return a coordinate of each row, (n_samples,)."""
    values = numbers_of(table.column(name), np.float64, text_is_parsed=True)
    if values is None or not np.isfinite(values).all():
        raise InputError(
            f"The column {name!r} is not a number in every row, but every row needs its place; "
            "correct it, or leave out the rows without one."
        )
    return values


def _groups(table: Any, name: str) -> NDArray[Any]:
    """Return the groups, (n_samples,): integers unchanged, everything else as text."""
    import pyarrow as pa

    column = plain_column(table.column(name))
    if pa.types.is_integer(column.type) and not column.null_count:
        return column.to_numpy()
    try:
        column = column.cast(pa.large_string())
    except pa.ArrowException as error:
        raise InputError(
            f"The groups of column {name!r} are neither text nor numbers; convert them."
        ) from error
    if has_blanks(column):
        raise InputError(
            f"The group column {name!r} has blank cells; give every row a group, or drop it."
        )
    return column.to_numpy().astype(np.str_)


def ids_of(table: Any, name: str) -> NDArray[np.str_]:
    """Return the identifiers of the rows as text, (n_samples,); empty where the cell is blank."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        column = plain_column(table.column(name)).cast(pa.large_string())
    except pa.ArrowException as error:
        raise InputError(
            f"The identifiers of column {name!r} are neither text nor numbers; convert them."
        ) from error
    return pc.fill_null(column, "").to_numpy().astype(np.str_)


def has_blanks(column: Any) -> bool:
    """Return whether a cell of a column is missing, or empty text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if column.null_count or not pa.types.is_large_string(column.type):
        return bool(column.null_count)
    return bool(pc.any(pc.equal(pc.utf8_trim_whitespace(column), "")).as_py())


def numbers_of(column: Any, dtype: Any, text_is_parsed: bool) -> NDArray[Any] | None:
    """Return a column as floats with NaN for missing cells, or None if it is not numeric."""
    import pyarrow as pa

    column = plain_column(column)
    types = pa.types
    if types.is_large_string(column.type):
        column = _parse_text(column, pa.from_numpy_dtype(dtype)) if text_is_parsed else None
    elif types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    elif types.is_decimal(column.type) or types.is_null(column.type):
        column = column.cast(pa.float64())
    elif not (types.is_integer(column.type) or types.is_floating(column.type)):
        column = None
    if column is None:
        return None
    with np.errstate(over="ignore"):
        return column.to_numpy().astype(dtype, copy=False)


def with_decimal_points(table: Any, indices: Sequence[int]) -> Any:
    """Replace the decimal comma of numbers by a point, in these columns of text."""
    import pyarrow.compute as pc

    for i in indices:
        name, column = table.column_names[i], table.column(i)
        with_point = column.filter(
            pc.match_substring_regex(column, rf"^{_BLANK_OR_SIGN}\.{_REST}$")
        )
        if len(with_point):
            raise InputError(
                f"The column {name!r} holds {with_point[0].as_py()!r}, but the decimal mark of "
                "the file is a comma; write numbers without separators of thousands, or give ",
                Setting("decimal", "."),
                ".",
            )
        pattern = rf"^({_BLANK_OR_SIGN}),({_REST})$"
        column = pc.replace_substring_regex(column, pattern=pattern, replacement=r"\1.\2")
        table = table.set_column(i, name, column)
    return table


def is_text(column: Any) -> bool:
    """Return whether a column holds text."""
    import pyarrow as pa

    return pa.types.is_string(column.type) or pa.types.is_large_string(column.type)


def plain_column(column: Any) -> Any:
    """Decode dictionaries, and convert all text to the same type."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return column.cast(pa.large_string()) if pa.types.is_string(column.type) else column


def _parse_text(column: Any, number: Any) -> Any | None:
    """Parse a column of text as numbers or as true and false; None if it is neither."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = pc.utf8_trim_whitespace(column)
    missing = pc.is_in(column, value_set=pa.array(MISSING, column.type))
    column = pc.if_else(missing, pa.scalar(None, column.type), column)
    try:
        return column.cast(number)
    except pa.ArrowInvalid:
        column = pc.utf8_lower(column)
    booleans = pa.array(["true", "false"], column.type)
    if not pc.all(pc.is_in(column.drop_null(), value_set=booleans)).as_py():
        return None
    return pc.equal(column, booleans[0]).cast(pa.uint8())


def _label_columns(
    table: Any, names: Sequence[str], options: ReadingOptions
) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Return the labels and the mask of the unknown ones, both (n_samples, n_labels)."""
    shape = (table.num_rows, len(names))
    labels, unknown = np.zeros(shape, dtype=np.uint8), np.zeros(shape, dtype=bool)
    found = {name: _label_values(name, table.column(name), options) for name in names}
    has_marks = any(is_marked for _, is_marked in found.values())
    for j, (name, (values, is_marked)) in enumerate(found.items()):
        blank = np.isnan(values)
        if options.blank_labels is None and (is_marked or (has_marks and blank.all())):
            pass  # what has no mark is absent
        elif blank.any():
            unknown[:, j] = blank & _blank_is_unknown(name, options)
        values = np.where(blank, 0, values)
        if (values < 0).any():
            raise InputError(
                f"The label column {name!r} holds {values.min():g}, which is neither a label nor a "
                "count; convert it to 0 and 1, and leave unknown labels blank."
            )
        odd = values[(values != 0) & (values != 1)]
        if odd.size and options.counts == "refuse":
            raise InputError(
                f"The label column {name!r} holds {odd[0]:g}; labels must be 0 or 1, so give ",
                Setting("counts", "presence"),
                " to count everything above 0 as 1.",
            )
        labels[:, j] = values > 0
    return labels, unknown


def _label_values(
    name: str, column: Any, options: ReadingOptions
) -> tuple[NDArray[np.float64], bool]:
    """Return a label column as numbers, NaN where blank, and whether it holds nothing but marks."""
    values = numbers_of(column, np.float64, text_is_parsed=True)
    if values is not None:
        return values, False
    is_words = is_text(plain_column(column))
    texts = as_texts(name, objects_of(column)) if is_words else map(str, column.to_pylist())
    codes = [text for text in dict.fromkeys(texts) if text is not None]
    known: dict[Any, Any] = {None: np.nan} | {
        code: _LABEL_WORDS.get(code.lower()) for code in codes
    }
    odd = [code for code in codes if known[code] is None]
    if odd and (options.counts == "refuse" or not is_words):
        raise InputError(
            f"The label column {name!r} holds {', '.join(map(repr, codes[:3]))}; labels must be 0 "
            "and 1, true and false, yes and no, present and absent, or x, so convert or drop it, "
            "or give ",
            Setting("counts", "presence"),
            " to take every code but 0 as 1.",
        )
    for code in odd:
        number = parse_numbers([code])
        known[code] = float(code not in _ABSENT_CODES) if number is None else number[0]
    return np.array([known[text] for text in texts]), all(known[code] > 0 for code in codes)


def _blank_is_unknown(name: str, options: ReadingOptions) -> bool:
    if options.blank_labels is None:
        raise InputError(
            f"The label column {name!r} has blank cells; give ",
            Setting("blank_labels", "absent"),
            " or ",
            Setting("blank_labels", "unknown"),
            ".",
        )
    return options.blank_labels == "unknown"


def _label_sets(
    table: Any, name: str, options: ReadingOptions
) -> tuple[Matrix, sp.csr_array | None, list[str]]:
    """Return labels and unknown labels, (n_samples, n_labels), and the sorted names."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = plain_column(table.column(name)).combine_chunks()
    is_list = pa.types.is_list(column.type) or pa.types.is_large_list(column.type)
    is_blank = np.zeros(len(column), bool)
    if is_list:
        is_blank = column.is_null().to_numpy(zero_copy_only=False)
        sets = column.cast(pa.large_list(pa.large_string()))
    elif pa.types.is_large_string(column.type):
        nothing = pa.scalar("", column.type)
        column = pc.fill_null(column, nothing)
        missing = pc.is_in(
            pc.utf8_trim_whitespace(column), value_set=pa.array(MISSING, column.type)
        )
        column = pc.if_else(missing, nothing, column)
        if options.separator is None:
            _reject_other_separator(name, column)
        sets = pc.split_pattern(column, options.separator or SEPARATORS[0])
    else:
        raise InputError(
            f"The column {name!r} of label sets is not text; name the label columns instead."
        )
    parts, rows = pc.utf8_trim_whitespace(sets.flatten()), pc.list_parent_indices(sets)
    parts = pc.fill_null(parts, "")
    filled = pc.not_equal(parts, "")
    parts, rows = parts.filter(filled), rows.filter(filled).to_numpy()
    labels = sorted(parts.unique().to_pylist())
    if not labels:
        raise InputError(f"The column {name!r} of label sets holds no label; check its name.")
    codes = pc.index_in(parts, value_set=pa.array(labels, parts.type)).to_numpy()
    shape = (table.num_rows, len(labels))
    Y = sp.csr_array((np.ones(len(codes), dtype=np.int64), (rows, codes)), shape=shape)
    Y.data = np.ones(Y.nnz, dtype=np.uint8)  # a label that a set names twice was summed
    if not is_list:  # an empty list is not blank: it says that the row has no label
        is_blank = np.diff(Y.indptr) == 0
    if is_blank.any() and _blank_is_unknown(name, options):
        unknown = sp.csr_array(is_blank[:, None]) @ sp.csr_array(np.ones((1, len(labels)), bool))
        return labels_as_stored(Y), unknown, labels
    return labels_as_stored(Y), None, labels


def _reject_other_separator(name: str, column: Any) -> None:
    """Reject label sets without the usual separator, many of which have another one."""
    import pyarrow.compute as pc

    filled = column.filter(pc.not_equal(column, ""))
    if pc.any(pc.match_substring(filled, SEPARATORS[0])).as_py():
        return
    for separator in SEPARATORS[1:]:
        cells = filled.filter(pc.match_substring(filled, separator))
        if not len(cells) or len(cells) < SEPARATOR_SHARE * len(filled):
            continue
        parts = pc.utf8_trim_whitespace(pc.split_pattern(filled, separator).flatten())
        if len(parts.unique()) <= len(filled.unique()):
            raise InputError(
                f"No cell of the column {name!r} holds {SEPARATORS[0]!r}, but {len(cells):,} of "
                f"{len(filled):,} hold {separator!r}, such as {one_line(cells[0])!r}; give ",
                Setting("separator", separator),
                ", or ",
                Setting("separator", SEPARATORS[0]),
                " if a cell is one label.",
            )


def without_blank_rows(table: Any) -> Any:
    """Return the rows of an Arrow table that have a filled cell."""
    import pyarrow.compute as pc

    blank = np.ones(table.num_rows, bool)
    for column in table.itercolumns():
        if not blank.any():
            return table
        cells = plain_column(column)
        if is_text(cells):
            cells = pc.fill_null(pc.equal(pc.utf8_trim_whitespace(cells), ""), True)
        else:
            cells = cells.is_null()
        blank &= cells.to_numpy()
    return table.filter(~blank) if blank.any() else table


def warn_of_blank_rows(n_blank: int, n_rows: int, path: object) -> None:
    """Warn that blank rows were left out."""
    if n_blank:
        warn(
            f"{n_blank:,} of the {n_rows:,} rows of {path} are entirely blank, and are left out.",
        )


def with_missing(table: Any, codes: Sequence[str], kept: Collection[str | None]) -> Any:
    """Replace the codes of missing values by nulls, except in the columns ``kept``."""
    import pyarrow as pa
    import pyarrow.compute as pc

    pattern, plain = r"^([-+]?[0-9]+)\.0*$", r"\1"  # -9999.0 is -9999
    codes = [re.sub(pattern, plain, code.strip()) for code in codes]
    numbers = pa.array([float(code) for code in codes if parse_numbers([code]) is not None])
    for i, name in enumerate(table.column_names if codes else ()):
        column = plain_column(table.column(i))
        if name in kept:
            continue
        if is_text(column):
            cells = pc.replace_substring_regex(pc.utf8_trim_whitespace(column), pattern, plain)
            is_code = pc.is_in(cells, value_set=pa.array(codes, column.type))
        elif pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
            is_code = pc.is_in(column.cast(pa.float64()), value_set=numbers.cast(pa.float64()))
        else:
            continue
        column = pc.if_else(is_code, pa.scalar(None, column.type), column)
        table = table.set_column(i, name, column)
    return table


def warn_of_codes(dataset: MultiLabelDataset) -> None:
    """Warn of features that hold the number that most often stands for a missing value."""
    X = dataset.X
    columns = X.values if isinstance(X, Columns) else X.T
    held = [
        name
        for name, values in zip(dataset.feature_names, columns, strict=True)
        if values.dtype.kind == "f" and (values == _USUAL_MISSING).any()
    ]
    if held:
        warn(
            f"The number {_USUAL_MISSING}, which often stands for a missing value, is in "
            f"{listed(held)}; if it does, give ",
            Setting("missing", str(_USUAL_MISSING)),
            ".",
        )


def warn_of_ids(dataset: MultiLabelDataset, options: ReadingOptions) -> None:
    """Warn of rows whose identifier is blank, or that of another row unless it names a group."""
    if dataset.ids is None:
        return
    ids, counts = np.unique(np.char.strip(dataset.ids), return_counts=True)
    n_blank = int(counts[ids == ""].sum())
    repeated = (
        [] if options.groups == options.id_column else ids[(counts > 1) & (ids != "")].tolist()
    )
    found = [f"is blank in {n_blank:,} of {dataset.n_samples:,} rows"] * (n_blank > 0)
    found += [f"repeats {listed(repeated)}"] * bool(repeated)
    if found:
        warn(
            f"The column {options.id_column!r}, which identifies the rows, {' and '.join(found)}; "
            "give every row a name of its own.",
        )


def table_of(dataset: MultiLabelDataset) -> Any:
    """Convert a data set to an Arrow table: features, labels, groups, identifiers."""
    pa = load_pyarrow()
    names = [*dataset.feature_names, *dataset.label_names]
    if dataset.groups is not None:
        names.append(GROUP_COLUMN)
    if dataset.ids is not None:
        names.append(ID_COLUMN)
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(
            f"The name {twice[0]!r} would be given to two columns among the features, the labels, "
            f"{GROUP_COLUMN!r} and {ID_COLUMN!r}; rename one, or write npz."
        )
    if "" in names:
        raise InputError("A feature or label has an empty name; rename it, or write npz.")
    _reject_surrogates(names)
    Y, unknown = _dense(dataset.Y), _dense(dataset.unknown)
    columns = _feature_columns(dataset.X)
    for j in range(dataset.n_labels):
        columns.append(pa.array(Y[:, j], mask=None if unknown is None else unknown[:, j]))
    if dataset.groups is not None:
        groups = dataset.groups
        if groups.dtype.kind not in "iu":
            groups = groups.astype(np.str_)
            if (np.char.strip(groups) == "").any():
                raise InputError(
                    "A row has a blank group, which a table cannot store; name it, or write npz."
                )
            _reject_surrogates(np.unique(groups).tolist())
        columns.append(pa.array(groups))
    if dataset.ids is not None:
        _reject_surrogates(dataset.ids.tolist())
        columns.append(pa.array(dataset.ids))
    return pa.table(columns, names=names)


def _feature_columns(X: Features) -> list[Any]:
    pa = load_pyarrow()
    if not isinstance(X, Columns):
        X = _dense(X).astype(np.float64)  # as it is read, so that CSV gives all of its digits
        return [pa.array(X[:, j], from_pandas=True) for j in range(X.shape[1])]
    texts = {text for values in X.values if values.dtype == object for text in values}
    _reject_surrogates([text for text in texts if text is not None])
    columns = []
    for values in X.values:
        if values.dtype.kind == "M":  # dates without times are written as days
            days = values.astype("datetime64[D]")
            values = days if ((days == values) | np.isnat(values)).all() else values
        columns.append(pa.array(values, from_pandas=True))
    return columns


def _reject_surrogates(names: list[str]) -> None:
    """Reject names with an unpaired surrogate, which UTF-8 cannot encode."""
    for name in names:
        if _SURROGATE.search(name):
            raise InputError(
                f"The name {name!r} holds an unpaired surrogate, which a table cannot store; "
                "rename it, or write npz."
            )


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
