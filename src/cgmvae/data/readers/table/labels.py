"""The labels of an Arrow table: a column for each, or one column with sets of names.

:mod:`cgmvae.data.readers.table.cells` puts them beside the features. Nothing here loops over cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cgmvae.data.dataset import Matrix
from cgmvae.data.kinds import MISSING
from cgmvae.data.readers.conventions import labels_as_stored
from cgmvae.data.readers.table.columns import Counts, TableOptions
from cgmvae.data.readers.table.numbers import numbers_of, plain_column
from cgmvae.errors import InputError

#: Rows whose values are told of where a column cannot be labels.
_LOOKED_AT = 100


def label_columns(
    table: Any, names: Sequence[str], options: TableOptions
) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Return the labels and the mask of the unknown ones, both (n_samples, n_labels)."""
    shape = (table.num_rows, len(names))
    labels, unknown = np.zeros(shape, dtype=np.uint8), np.zeros(shape, dtype=bool)
    for j, name in enumerate(names):
        values = numbers_of(table.column(name), np.float64, text_is_parsed=True)
        if values is None:
            some = dict.fromkeys(map(repr, table.column(name).slice(0, _LOOKED_AT).to_pylist()))
            raise InputError(
                f"The label column {name!r} holds {', '.join([*some][:3])}; labels must be 0 and "
                "1, or true and false, so convert or drop it."
            )
        blank = np.isnan(values)
        if blank.any():
            unknown[:, j] = blank & _blank_is_unknown(name, options)
        labels[:, j] = _presence(np.where(blank, 0, values), name, options.counts)
    return labels, unknown


def _presence(values: NDArray[np.float64], name: str, counts: Counts) -> NDArray[np.bool_]:
    if (values < 0).any():
        raise InputError(
            f"The label column {name!r} holds {values.min():g}, which is neither a label nor a "
            "count; convert it to 0 and 1, and leave unknown labels blank."
        )
    odd = values[(values != 0) & (values != 1)]
    if odd.size and counts == "refuse":
        raise InputError(
            f"The label column {name!r} holds {odd[0]:g}; labels must be 0 or 1, so give "
            "counts='presence' to take everything above 0 as 1."
        )
    return values > 0


def _blank_is_unknown(name: str, options: TableOptions) -> bool:
    if options.blank_labels is None:
        raise InputError(
            f"The label column {name!r} has blank cells; say with blank_labels='absent' or "
            "blank_labels='unknown' what they mean."
        )
    return options.blank_labels == "unknown"


def label_sets(
    table: Any, name: str, options: TableOptions
) -> tuple[Matrix, sp.csr_array | None, list[str]]:
    """Return labels and unknown labels, (n_samples, n_labels), and the names, sorted."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = plain_column(table.column(name))
    if not pa.types.is_large_string(column.type):
        raise InputError(f"The column {name!r} of label sets is not text; name its labels instead.")
    nothing = pa.scalar("", column.type)
    column = pc.fill_null(column.combine_chunks(), nothing)
    missing = pc.is_in(pc.utf8_trim_whitespace(column), value_set=pa.array(MISSING, column.type))
    sets = pc.split_pattern(pc.if_else(missing, nothing, column), options.separator)
    parts, rows = pc.utf8_trim_whitespace(sets.flatten()), pc.list_parent_indices(sets)
    filled = pc.not_equal(parts, "")
    parts, rows = parts.filter(filled), rows.filter(filled).to_numpy()
    labels = sorted(parts.unique().to_pylist())
    if not labels:
        raise InputError(f"The column {name!r} of label sets holds no label; check its name.")
    codes = pc.index_in(parts, value_set=pa.array(labels, parts.type)).to_numpy()
    shape = (table.num_rows, len(labels))
    Y = sp.csr_array((np.ones(len(codes), dtype=np.int64), (rows, codes)), shape=shape)
    Y.data = np.ones(Y.nnz, dtype=np.uint8)  # a label that a set names twice was summed
    blank = np.diff(Y.indptr) == 0
    if blank.any() and _blank_is_unknown(name, options):
        return labels_as_stored(Y), _full_rows(blank, len(labels)), labels
    return labels_as_stored(Y), None, labels


def _full_rows(chosen: NDArray[np.bool_], n_columns: int) -> sp.csr_array:
    """Return a mask that is true in every cell of the chosen rows, (n_rows, n_columns)."""
    indptr = np.concatenate([[0], np.cumsum(chosen * n_columns)])
    indices = np.tile(np.arange(n_columns), chosen.sum())
    cells = (np.ones(len(indices), dtype=bool), indices, indptr)
    return sp.csr_array(cells, shape=(len(chosen), n_columns))
