"""Tables whose columns are not all numbers: columns of numbers, categories, dates and text.

:class:`Columns` is what ``MultiLabelDataset.X`` holds where not all features are numbers. Tables
read by :mod:`cgmvae.data.readers.table` and DataFrames become one; :mod:`cgmvae.preparation` turns
it into the features that a method sees.

The type of a column is given by the caller, or guessed from its cells by the first rule that
applies:

1. number: every present cell is a number, or every one is true or false. A column without any
   present cell is a column of missing numbers. Numbers mixed with other values are rejected.
2. date: every present cell is a date (:func:`parse_dates`). Dates whose day and month cannot be
   told apart are rejected.
3. text: four words or more on average, and values that rarely repeat (more distinct values than
   half the number of cells, or more than 100).
4. category: at most half as many distinct values as cells, or at most five. If most of them look
   like numbers or dates (``10%``, ``9.3 m``, ``1,5``, one ``x`` among numbers), or some differ only
   in case or blanks, a warning says so.
5. Anything else has a different value in almost every row, like an identifier. It is set aside
   with a warning, since nothing can be learned from it; so are distinct whole numbers in a column
   that is named like an identifier (``site_id``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from cgmvae.errors import InputError, Sentence, Setting, listed, warn

#: What a column can hold.
ColumnType = Literal["number", "category", "date", "text"]

#: Spellings of a missing value in text.
MISSING = ("", "NA", "NaN", "nan", "?")

#: Mean number of words from which a column can be text.
TEXT_WORDS = 4

#: A column with at most this many distinct values is categorical even if none of them repeats.
FEW_VALUES = 5

#: Long values are text, even though they repeat, if there are more distinct ones than this.
MANY_VALUES = 100

#: A column with more distinct numbers than this is not categorical, whatever else it holds.
MANY_NUMBERS = 20

#: Names of the categorical dtypes of pandas and polars.
_CATEGORY_DTYPES = ("category", "categorical", "enum")

#: String forms of the missing values of pandas and NumPy.
_MISSING_OBJECTS = ("nan", "NaT", "<NA>", "None")

_BOOLEANS = {"true": 1.0, "false": 0.0}

#: Numbers, possibly with a decimal comma, separators of thousands, a currency or a unit.
_WRITTEN_NUMBER = re.compile(
    r"[-+]?[$€£¥]? ?(?:\d+|\d{1,3}(?:[,.' ]\d{3})+)(?:[.,]\d+)? ?"
    r"(?P<unit>[$€£¥%]|°[CF]?|[A-Za-zµ]{1,3}[23²³]?(?:/[A-Za-z]{1,3}[23²³]?)?)?",
    re.ASCII,
)

#: Names of columns that identify rows, whole or after another word (``site_id``, ``plotNr``).
_IDENTIFIER_NAME = re.compile(
    r"(?i:id|index|key|row|code|number|fid|gid|uid|no|nr|unnamed: 0)"
    r"|.*(?:[\W_](?i:id|no|nr|number|code|fid|gid|uid)|[a-z0-9](?:Id|ID|No|Nr|Number|Code))"
)


class IdentifierError(InputError):
    """A column has a different value in almost every row, so it cannot be a feature."""


@dataclass(frozen=True, eq=False)
class Columns:
    """Named columns of equal length, each with a type.

    Parameters
    ----------
    names : tuple of str
        Unique column names.
    values : tuple of array, (n_rows,) each
        float32 or float64 with NaN for numbers, objects (str or None) for categories and text,
        datetime64[s] with NaT for dates.
    kinds : tuple of {"number", "category", "date", "text"}
        The type of each column.

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
    kinds: tuple[ColumnType, ...]

    def __post_init__(self) -> None:
        if not len(self.names) == len(self.values) == len(self.kinds) > 0:
            raise InputError("Columns need a name, values and a type each; give at least one.")
        if len({len(values) for values in self.values}) != 1:
            raise InputError("The columns differ in length; give them the same number of rows.")
        check_unique(self.names)
        _check_types(self.kinds)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of columns."""
        return len(self.values[0]), len(self.names)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> Columns:
        """Select rows, or rows and columns, by index, slice or mask."""
        rows, columns = key if isinstance(key, tuple) else (key, slice(None))
        chosen = np.arange(len(self.names))[slice(None) if columns is Ellipsis else columns]
        return Columns(
            tuple(self.names[i] for i in chosen),
            tuple(self.values[i][rows] for i in chosen),
            tuple(self.kinds[i] for i in chosen),
        )

    def select(self, names: Sequence[str]) -> Columns:
        """Return the named columns, in the given order."""
        index = {name: i for i, name in enumerate(self.names)}
        _check_present(names, self.names)
        return self[:, [index[name] for name in names]]

    def append(self, other: Columns) -> Columns:
        """Return these rows and, below them, those of other columns with the same names."""
        pairs = zip(self.values, other.select(self.names).values, strict=True)
        return Columns(self.names, tuple(np.concatenate(pair) for pair in pairs), self.kinds)

    def by_name(self) -> dict[str, ColumnType]:
        """Return the type of each column by name."""
        return dict(zip(self.names, self.kinds, strict=True))

    def missing(self) -> NDArray[np.bool_]:
        """Return the mask of missing cells, (n_rows, n_columns)."""
        masks = []
        for values, kind in zip(self.values, self.kinds, strict=True):
            if kind == "number":
                masks.append(np.isnan(values))
            elif kind == "date":
                masks.append(np.isnat(values))
            else:
                masks.append(np.array([value is None for value in values], dtype=bool))
        return np.column_stack(masks)

    def as_matrix(self) -> NDArray[np.floating] | None:
        """Return the columns as one array, (n_rows, n_columns); None unless all are numbers."""
        return np.column_stack(self.values) if set(self.kinds) == {"number"} else None


def as_columns(
    X: Any, kinds: Mapping[str, ColumnType] | None = None, *, only: Sequence[str] | None = None
) -> Columns:
    """Convert a table to :class:`Columns`.

    Parameters
    ----------
    X : DataFrame, Columns, or mapping of name to sequence
        Numbers, booleans, text, categories or dates. A missing value is None, NaN or NaT, or in
        text a blank, ``NA``, ``NaN`` or ``?``.
    kinds : mapping of str to {"number", "category", "date", "text"}, optional
        Column types by name. The types of the other columns are guessed (see
        :mod:`cgmvae.data.columns`).
    only : sequence of str, optional
        Names of the columns to convert, in this order; by default all.
    """
    given = dict(kinds or {})
    _check_types(tuple(given.values()))
    own = X.by_name() if isinstance(X, Columns) else {}
    names = names_of(X)
    check_unique(names)
    wanted = tuple(names if only is None else only)
    _check_present(wanted, names)
    table = dict(zip(X.names, X.values, strict=True)) if isinstance(X, Columns) else X
    keys = dict(zip(names, table if isinstance(table, Mapping) else table.columns, strict=True))
    found: list[tuple[str, NDArray[Any], ColumnType]] = []
    identifiers = []
    for name in wanted:
        source = table[keys[name]]
        dtype = str(getattr(source, "dtype", "")).split("(")[0].lower()
        by_dtype: ColumnType | None = "category" if dtype in _CATEGORY_DTYPES else None
        try:
            values = np.asarray(source.to_numpy() if hasattr(source, "to_numpy") else source)
        except ValueError as error:
            raise InputError(
                f"The column {name!r} holds lists of different lengths; drop it, or convert it to "
                "text."
            ) from error
        try:
            typed = typed_column(name, values, given.get(name) or own.get(name) or by_dtype)
            found.append((name, *typed))
        except IdentifierError as error:
            identifiers.append(error)
    set_aside(identifiers, n_columns=len(wanted))
    used = tuple(name for name, _, _ in found)
    return Columns(used, tuple(v for _, v, _ in found), tuple(kind for _, _, kind in found))


def set_aside(identifiers: Sequence[IdentifierError], *, n_columns: int) -> None:
    """Warn that columns are not used as features; raise if none of ``n_columns`` is left."""
    if n_columns and len(identifiers) == n_columns:
        raise InputError("No feature column is left: ", *identifiers[0].sentence)
    for error in identifiers:
        warn(*error.sentence)


def names_of(X: Any) -> list[str]:
    """Return the column names of a table."""
    names = getattr(X, "names" if isinstance(X, Columns) else "columns", None)
    if names is None and not isinstance(X, Mapping):
        raise InputError("A table needs named columns; give a DataFrame, or columns by name.")
    return [str(name) for name in (X if names is None else names)]


def typed_column(
    name: str, values: NDArray[Any], kind: ColumnType | None, *, text_is_parsed: bool = True
) -> tuple[NDArray[Any], ColumnType]:
    """Convert a column, (n_rows,), to the representation of its type, and return both.

    ``kind`` is the type that the column must have; if it is None, it is guessed, and
    ``text_is_parsed`` says whether text may be numbers. The name is for messages.
    """
    if values.ndim != 1 or values.dtype.kind not in "fiubMOUT":
        raise InputError(
            f"The column {name!r} holds neither numbers, categories, dates nor text; drop it."
        )
    if kind in (None, "number") and values.dtype.kind in "fiub":
        if kind is None:
            reject_identifier(name, values)
        return _finite(name, values), "number"
    if values.dtype.kind == "M":
        if kind in (None, "date"):
            return values.astype("datetime64[s]"), "date"
        raise InputError(f"The column {name!r} holds dates; declare it as date, not {kind}.")
    texts = as_texts(name, values)
    is_given = kind is not None
    kind = kind or guess_type(name, texts, text_is_parsed=text_is_parsed)
    if kind == "number":
        numbers = _finite(name, _parse(name, texts, kind))
        if not is_given:
            reject_identifier(name, numbers)
        return numbers, kind
    return (_parse(name, texts, kind) if kind == "date" else texts), kind


def reject_identifier(name: str, values: NDArray[Any]) -> None:
    """Raise an IdentifierError for distinct whole numbers in a column named like an identifier."""
    if not _IDENTIFIER_NAME.fullmatch(name) or len(values) <= FEW_VALUES:
        return
    with np.errstate(invalid="ignore"):  # of what is infinite
        is_whole = values.dtype.kind in "iuf" and bool((values % 1 == 0).all())
    if is_whole and len(np.unique(values)) == len(values):
        raise IdentifierError(
            f"The column {name!r} has a different whole number in every row, so it is not used as "
            "a feature; if it identifies the rows, give ",
            Setting("id", name),
            ", and if it is a measurement, rename it.",
        )


def as_texts(name: str, values: NDArray[Any]) -> NDArray[Any]:
    """Return cells as stripped text, None where missing."""
    if values.dtype.kind == "f" and (np.nan_to_num(values) % 1).any():
        raise InputError(
            f"The column {name!r} holds fractional numbers, which cannot be categories or text; "
            "give it as numbers, or as text."
        )
    texts = np.empty(len(values), dtype=object)
    texts[:] = [_as_text(name, value) for value in values.tolist()]
    return texts


def guess_type(name: str, texts: NDArray[Any], *, text_is_parsed: bool = True) -> ColumnType:
    """Guess the type of a column from its cells, by the rules in the module's docstring.

    The cells are stripped, and None where missing. Text cannot be numbers (``text_is_parsed``) in
    files that store the types of their columns.

    >>> guess_type("habitat", np.array(["wetland", None, "forest", "wetland"], dtype=object))
    'category'
    """
    present = [text for text in texts if text is not None]
    distinct = list(dict.fromkeys(present))
    if not present:
        return "number"
    if text_is_parsed:
        if parse_numbers(distinct) is not None:
            return "number"
        others = [text for text in distinct if not _is_number(text)]
        if len(distinct) - len(others) > max(MANY_NUMBERS, len(others)):
            more = f" and {len(others) - 1:,} more such values" if len(others) > 1 else ""
            raise InputError(
                f"The column {name!r} holds numbers, but also {others[0]!r}{more}; correct these "
                "cells or leave them blank, drop the column (",
                Setting("drop", [name]),
                "), or declare its type (",
                Setting("category", [name]),
                ").",
            )
    if parse_dates(name, distinct) is not None:
        return "date"
    rarely_repeats = len(distinct) > len(present) / 2
    n_words = sum(len(text.split()) for text in distinct) / len(distinct)
    if n_words >= TEXT_WORDS and (rarely_repeats or len(distinct) > MANY_VALUES):
        return "text"
    unread = _unread(distinct, text_is_parsed)
    if rarely_repeats and len(distinct) > FEW_VALUES:
        advice: Sentence = ("if it identifies the rows, give ", Setting("id", name))
        if unread is not None:
            odd, what, remedy = unread
            advice = (f"most of its values look like {what}: ", *remedy)
        raise IdentifierError(
            f"The column {name!r} has a different value in almost every row, such as "
            f"{distinct[0]!r}, so it is not used as a feature; ",
            *advice,
            ".",
        )
    if unread is not None:
        odd, what, remedy = unread
        warn(
            f"The column {name!r} is read as categories because of {listed(odd)}, but most of its "
            f"values look like {what}; ",
            *remedy,
            ", or declare the column as ",
            Setting("category", [name]),
            ".",
        )
    _warn_of_spellings(name, distinct)
    return "category"


def _warn_of_spellings(name: str, distinct: Sequence[str]) -> None:
    """Warn of categories that differ only in case or blanks."""
    alike: dict[str, list[str]] = {}
    for text in distinct:
        alike.setdefault("".join(text.split()).casefold(), []).append(text)
    if several := [texts for texts in alike.values() if len(texts) > 1]:
        more = f", and {len(several) - 1:,} more are spelled in several ways" * (len(several) > 1)
        warn(
            f"The column {name!r} holds {listed(several[0])}, which differ only in case or blanks "
            f"and are different categories{more}; write them alike.",
        )


def _unread(
    distinct: Sequence[str], text_is_parsed: bool
) -> tuple[Sequence[str], str, Sentence] | None:
    """Return values of a column that may be numbers or dates, which of the two, and a remedy."""
    plain = {text for text in distinct if _is_number(text)}
    matches = {text: _WRITTEN_NUMBER.fullmatch(text) for text in distinct}
    units = {text: match["unit"] or "" for text, match in matches.items() if match}
    words = {unit for unit in units.values() if unit.isalnum()}
    if len(words) > 1:  # codes such as 1a and 2b
        units = {text: unit for text, unit in units.items() if unit not in words}
    numbers = units.keys() | plain if text_is_parsed else units.keys() - plain
    remedy: Sentence
    dates = [t for t in distinct if _YEAR_FIRST.fullmatch(t) or _YEAR_LAST.fullmatch(t)]
    if 2 * len(dates) > len(distinct):
        what, remedy = "dates", ("write all dates as in 2024-05-31",)
        odd = [text for text in distinct if text not in dates] or list(distinct)
    elif 2 * len(numbers) > len(distinct):
        what, remedy = "numbers", ("write these as numbers, or leave the cells blank",)
        odd = [text for text in distinct if text not in plain]
        if any("," in text for text in odd):
            remedy += ("; if they have decimal commas, give ", Setting("decimal", ","))
    else:
        return None
    return odd, what, remedy


def as_float64(numbers: NDArray[Any], name: str) -> NDArray[np.float64]:
    """Return the numbers of a column in float64; raise if one is beyond the range of float32.

    They are scaled in this precision, and only then rounded to that of the networks.
    """
    if (np.abs(numbers) > np.finfo(np.float32).max).any():
        raise InputError(
            f"The column {name!r} holds a number that is infinite or beyond float32; rescale it, "
            "or leave the cell blank if the value is missing."
        )
    return numbers.astype(np.float64, copy=False)


def parse_numbers(texts: Sequence[str]) -> NDArray[np.float64] | None:
    """Parse texts as numbers, or all as true (1) and false (0); None where one is neither."""
    booleans = [_BOOLEANS.get(text.lower()) for text in texts]
    if texts and None not in booleans:
        return np.array(booleans, dtype=np.float64)
    if not all(map(_is_number, texts)):
        return None
    return np.array([float(text) for text in texts], dtype=np.float64)


_TIME = (
    r"(?:[T ] *(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:[.,]\d+)?)?"
    r" *(?:Z|(?P<sign>[+-])(?P<zone_hours>\d{2}):?(?P<zone_minutes>\d{2}))?)?"
)
_YEAR_FIRST = re.compile(
    r"(?P<year>\d{4})(?P<mark>[-/])(?P<one>\d{1,2})(?P=mark)(?P<other>\d{1,2})" + _TIME
)
_YEAR_LAST = re.compile(
    r"(?P<one>\d{1,2})(?P<mark>[./-])(?P<other>\d{1,2})(?P=mark)(?P<year>\d{4})" + _TIME
)


def parse_dates(name: str, texts: Sequence[str]) -> NDArray[np.datetime64] | None:
    """Parse texts as dates to the second, (n_texts,); None where one is not a date.

    Accepted are year first (``2024-05-31``, ``2024/5/31``) and day first with dots
    (``31.05.2024``). With slashes or hyphens, ``31/05/2024`` and ``05/31/2024`` are accepted if the
    whole column leaves no doubt which comes first. A time may follow (``2024-05-31 06:30``,
    ``2024-05-31T06:30:00Z``); a time with an offset is converted to UTC.

    Distinct texts are enough; the column's name is for the message about ambiguous dates.

    >>> parse_dates("day", ["31/05/2024", "01/06/2024"]).astype("datetime64[D]").tolist()
    [datetime.date(2024, 5, 31), datetime.date(2024, 6, 1)]
    """
    if all(map(_is_iso, texts)):  # what most files hold, parsed all at once
        try:
            return np.array(texts, dtype="datetime64[s]")
        except ValueError:
            pass
    if (found := _match_all(_YEAR_FIRST, texts)) is not None:
        return _dates(found, month_first=True)
    if (found := _match_all(_YEAR_LAST, texts)) is None:
        return None
    by_day = _dates(found, month_first=False)
    if all(match["mark"] == "." for match in found):
        return by_day
    by_month = _dates(found, month_first=True)
    if by_day is None or by_month is None:
        return by_month if by_day is None else by_day
    if (differs := by_day != by_month).any():
        raise InputError(
            f"The date {texts[int(differs.argmax())]!r} in the column {name!r} may begin with the "
            "day or the month; write its dates year first, as in 2024-05-31."
        )
    return by_day


def _is_iso(text: str) -> bool:
    return (
        text[:4].isdigit()
        and text[4:5] == text[7:8] == "-"
        and (len(text) == 10 or text[13::3] in (":", "::"))
    )


def _match_all(pattern: re.Pattern[str], texts: Sequence[str]) -> list[re.Match[str]] | None:
    """Return the matches of all texts, or None if one does not match."""
    found = []
    for text in texts:
        match = pattern.fullmatch(text)
        if match is None:
            return None
        found.append(match)
    return found


def _dates(found: Sequence[re.Match[str]], *, month_first: bool) -> NDArray[np.datetime64] | None:
    """Return the dates of all matches, or None if one does not exist, such as 30 February."""

    def moment(match: re.Match[str]) -> datetime:
        month, day = int(match["one"]), int(match["other"])
        if not month_first:
            month, day = day, month
        hour, minute, second = (int(match[part] or 0) for part in ("hour", "minute", "second"))
        local = datetime(int(match["year"]), month, day, hour, minute, second)
        hours, minutes = int(match["zone_hours"] or 0), int(match["zone_minutes"] or 0)
        offset = timedelta(hours=hours, minutes=minutes)
        return local + offset if match["sign"] == "-" else local - offset

    try:
        return np.array(list(map(moment, found)), dtype="datetime64[s]")
    except (ValueError, OverflowError):
        return None


def _as_text(name: str, value: Any) -> str | None:
    if isinstance(value, str):
        stripped = value.strip()
        return None if stripped in MISSING else stripped
    if str(value) in _MISSING_OBJECTS:
        return None
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, list | tuple | set | dict | bytes | complex | np.ndarray):
        raise InputError(
            f"The column {name!r} holds cells of type {type(value).__name__}; drop it, or convert "
            "it to numbers or text."
        )
    return str(value)


def _parse(name: str, texts: NDArray[Any], kind: ColumnType) -> NDArray[Any]:
    """Parse texts as numbers or dates, each distinct text once."""
    present = np.array([text is not None for text in texts], dtype=bool)
    distinct = list(dict.fromkeys(texts[present]))
    is_date = kind == "date"
    parsed: Any = parse_dates(name, distinct) if is_date else parse_numbers(distinct)
    if parsed is None:
        parse = (lambda texts: parse_dates(name, texts)) if is_date else parse_numbers
        odd = next((text for text in distinct if parse([text]) is None), None)
        if odd is not None:
            raise InputError(
                f"The column {name!r} must hold {kind}s, but {odd!r} is not a {kind}; correct it, "
                "or leave the cell blank if the value is missing."
            )
        problem = (
            "mixes date formats; write all dates as in 2024-05-31"
            if is_date
            else "holds both numbers and true or false; write all as numbers"
        )
        raise InputError(f"The column {name!r} {problem}.")
    values = np.full(len(texts), "NaT" if is_date else "nan", parsed.dtype)
    index = {text: i for i, text in enumerate(distinct)}
    values[present] = parsed[[index[text] for text in texts[present]]]
    return values


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text  # which Python allows inside numbers


def _finite(name: str, values: NDArray[Any]) -> NDArray[np.floating]:
    numbers = values if values.dtype in (np.float32, np.float64) else values.astype(np.float64)
    if np.isinf(numbers).any():
        raise InputError(
            f"The column {name!r} holds an infinite number; replace it, or leave the cell blank "
            "if the value is missing."
        )
    return numbers


def check_unique(names: Sequence[str]) -> None:
    """Raise if two columns have the same name."""
    if len(set(names)) < len(names):
        repeated = next(name for name in names if list(names).count(name) > 1)
        raise InputError(f"Two columns are named {repeated!r}; names must be unique.")


def _check_present(wanted: Sequence[str], names: Sequence[str]) -> None:
    known = set(names)
    if absent := [name for name in wanted if name not in known]:
        raise InputError(f"There is no column {absent[0]!r}; the columns are {listed(names)}.")


def _check_types(kinds: Sequence[str]) -> None:
    known = get_args(ColumnType)
    if unknown := [kind for kind in kinds if kind not in known]:
        raise InputError(
            f"There is no column type {unknown[0]!r}; choose one of {', '.join(known)}."
        )
