"""Rows of a table before numbers are made of them: columns of numbers, categories, dates, text.

:class:`Columns` is what ``MultiLabelDataset.X`` is where not all features are numbers. The files of
:mod:`cgmvae.data.readers.table` and DataFrames become one; what an estimator makes of it is
decided in :mod:`cgmvae.preparation`. What a column holds is told or guessed
(:mod:`cgmvae.data.kinds`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from cgmvae.data.column_values import typed_column
from cgmvae.data.kinds import Kind
from cgmvae.errors import InputError, listed

#: The names of types of columns that hold categories, in pandas and polars.
_CATEGORY_TYPES = ("category", "categorical", "enum")


@dataclass(frozen=True, eq=False)
class Columns:
    """Named columns of the same rows, each of one kind.

    Parameters
    ----------
    names : tuple of str
        Unique names of the columns.
    values : tuple of array, (n_rows,) each
        float32 or float64 with NaN for numbers, objects (str or None) for categories and text,
        datetime64[s] with NaT for dates.
    kinds : tuple of {"number", "category", "date", "text"}
        What each column holds.

    Examples
    --------
    >>> sites = as_columns({"depth": [0.5, 2.0], "habitat": ["wetland", None]})
    >>> sites.shape, sites.kinds
    ((2, 2), ('number', 'category'))
    >>> sites[[0]].select(["habitat"]).values[0].tolist()
    ['wetland']
    """

    names: tuple[str, ...]
    values: tuple[NDArray[Any], ...]
    kinds: tuple[Kind, ...]

    def __post_init__(self) -> None:
        if not len(self.names) == len(self.values) == len(self.kinds) > 0:
            raise InputError("Columns need a name, values and a kind each, and there must be one.")
        if len({len(values) for values in self.values}) != 1:
            raise InputError("The columns have different numbers of rows; make them equally long.")
        _refuse_repeated(self.names)
        _check_kinds(self.kinds)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of columns."""
        return len(self.values[0]), len(self.names)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, places: Any) -> Columns:
        """Return rows by number, slice or mask; or, after a comma, of columns by number."""
        rows, columns = places if isinstance(places, tuple) else (places, slice(None))
        chosen = np.arange(len(self.names))[slice(None) if columns is Ellipsis else columns]
        return Columns(
            tuple(self.names[i] for i in chosen),
            tuple(self.values[i][rows] for i in chosen),
            tuple(self.kinds[i] for i in chosen),
        )

    def select(self, names: Sequence[str]) -> Columns:
        """Return the columns of these names, in this order."""
        place = {name: i for i, name in enumerate(self.names)}
        _refuse_absent(names, self.names)
        return self[:, [place[name] for name in names]]

    def by_name(self) -> dict[str, Kind]:
        """Return the kind of each column by its name."""
        return dict(zip(self.names, self.kinds, strict=True))

    def missing(self) -> NDArray[np.bool_]:
        """Tell which cells are missing, (n_rows, n_columns)."""
        pairs = zip(self.values, self.kinds, strict=True)
        return np.column_stack([_is_missing(values, kind) for values, kind in pairs])

    def as_matrix(self) -> NDArray[np.floating] | None:
        """Return the columns as one array, (n_rows, n_columns); None unless all are numbers."""
        return np.column_stack(self.values) if set(self.kinds) == {"number"} else None


def as_columns(
    X: Any, kinds: Mapping[str, Kind] | None = None, *, only: Sequence[str] | None = None
) -> Columns:
    """Read the columns of a table.

    Parameters
    ----------
    X : DataFrame, Columns, or mapping of name to sequence
        Numbers, truth values, text, categories, dates; missing as None, NaN or NaT, or in text as
        a blank, ``NA``, ``NaN`` or ``?``.
    kinds : mapping of str to {"number", "category", "date", "text"}, optional
        What columns hold, by name. The others are guessed (:mod:`cgmvae.data.kinds`).
    only : sequence of str, optional
        Names of the columns to read, in this order; by default all.
    """
    told = dict(kinds or {})
    _check_kinds(tuple(told.values()))
    own = X.by_name() if isinstance(X, Columns) else {}
    names = names_of(X)
    _refuse_repeated(names)
    wanted = tuple(names if only is None else only)
    _refuse_absent(wanted, names)
    table = dict(zip(X.names, X.values, strict=True)) if isinstance(X, Columns) else X
    keys = dict(zip(names, table if isinstance(table, Mapping) else table.columns, strict=True))
    found = []
    for name in wanted:
        source = table[keys[name]]
        kind = told.get(name) or own.get(name) or _typed(source)
        found.append(typed_column(name, _array(name, source), kind))
    return Columns(wanted, tuple(f[0] for f in found), tuple(f[1] for f in found))


def names_of(X: Any) -> list[str]:
    """Return the names of the columns of a table."""
    names = getattr(X, "names" if isinstance(X, Columns) else "columns", None)
    if names is None and not isinstance(X, Mapping):
        raise InputError("A table needs named columns; give a DataFrame, or columns by name.")
    return [str(name) for name in (X if names is None else names)]


def _is_missing(values: NDArray[Any], kind: Kind) -> NDArray[np.bool_]:
    if kind == "number":
        return np.isnan(values)
    if kind == "date":
        return np.isnat(values)
    return np.array([value is None for value in values], dtype=bool)


def _array(name: str, column: Any) -> NDArray[Any]:
    try:
        return np.asarray(column.to_numpy() if hasattr(column, "to_numpy") else column)
    except ValueError as error:
        raise InputError(
            f"The column {name!r} holds lists of different lengths; drop it, or make text of it."
        ) from error


def _typed(column: Any) -> Kind | None:
    """Return "category" for a column whose type says so."""
    type_ = str(getattr(column, "dtype", "")).split("(")[0].lower()
    return "category" if type_ in _CATEGORY_TYPES else None


def _refuse_repeated(names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        twice = next(name for name in names if list(names).count(name) > 1)
        raise InputError(f"The name {twice!r} is that of two columns; names must be unique.")


def _refuse_absent(wanted: Sequence[str], names: Sequence[str]) -> None:
    known = set(names)
    if absent := [name for name in wanted if name not in known]:
        raise InputError(f"There is no column {absent[0]!r}; the columns are {listed(names)}.")


def _check_kinds(kinds: Sequence[str]) -> None:
    if unknown := [kind for kind in kinds if kind not in get_args(Kind)]:
        raise InputError(
            f"There is no kind of column {unknown[0]!r}; choose one of {', '.join(get_args(Kind))}."
        )
