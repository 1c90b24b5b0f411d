"""The values of one column as its kind keeps them: floats, dates, or text with None for missing.

:mod:`cgmvae.data.columns` puts columns together; :mod:`cgmvae.data.readers.table.cells` reads them
from files. What a column holds is told or guessed (:mod:`cgmvae.data.kinds`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cgmvae.data.dates import parsed_dates
from cgmvae.data.kinds import MISSING, Kind, guess_kind, parsed_numbers
from cgmvae.errors import InputError

#: What pandas and NumPy print for a missing value that is no text.
_MISSING_OBJECTS = ("nan", "NaT", "<NA>", "None")


def typed_column(
    name: str, values: NDArray[Any], kind: Kind | None, *, text_is_parsed: bool = True
) -> tuple[NDArray[Any], Kind]:
    """Return a column's values as its kind keeps them, and the kind; guessed where it is None.

    Parameters
    ----------
    name : str
        The column's name, for messages.
    values : array, (n_rows,)
        Numbers, truth values, datetime64, text or Python objects.
    kind : {"number", "category", "date", "text"} or None
        What the values must be.
    text_is_parsed : bool
        Whether text may be guessed to be numbers.
    """
    if values.ndim != 1 or values.dtype.kind not in "fiubMOUT":
        raise InputError(
            f"The column {name!r} holds neither numbers, categories, dates nor text; drop it."
        )
    if kind in (None, "number") and values.dtype.kind in "fiub":
        return _finite(name, values), "number"
    if values.dtype.kind == "M":
        if kind in (None, "date"):
            return values.astype("datetime64[s]"), "date"
        raise InputError(f"The column {name!r} holds dates, not what is of the kind {kind}.")
    texts = as_texts(name, values)
    kind = kind or guess_kind(name, texts, text_is_parsed=text_is_parsed)
    if kind == "number":
        return _finite(name, _from_texts(name, texts, kind)), kind
    return (_from_texts(name, texts, kind) if kind == "date" else texts), kind


def as_texts(name: str, values: NDArray[Any]) -> NDArray[Any]:
    """Return cells as text without blanks around them, and None where they are missing."""
    if values.dtype.kind == "f" and (np.nan_to_num(values) % 1).any():
        raise InputError(
            f"The column {name!r} holds numbers with fractions, which are no categories or text; "
            "give it as numbers, or as text."
        )
    texts = np.empty(len(values), dtype=object)
    texts[:] = [_text(name, value) for value in values.tolist()]
    return texts


def _text(name: str, value: Any) -> str | None:
    if isinstance(value, str):
        stripped = value.strip()
        return None if stripped in MISSING else stripped
    if str(value) in _MISSING_OBJECTS:
        return None
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, list | tuple | set | dict | bytes | complex | np.ndarray):
        raise InputError(
            f"The column {name!r} holds cells of the type {type(value).__name__}; drop it, or "
            "make numbers or text of it."
        )
    return str(value)


def _from_texts(name: str, texts: NDArray[Any], kind: Kind) -> NDArray[Any]:
    """Read texts as numbers or dates, each different one once."""
    present = np.array([text is not None for text in texts], dtype=bool)
    different = list(dict.fromkeys(texts[present]))
    is_date = kind == "date"
    parsed: Any = parsed_dates(name, different) if is_date else parsed_numbers(different)
    if parsed is None:
        raise InputError(_not_of_kind(name, different, kind))
    values = np.full(len(texts), "NaT" if is_date else "nan", parsed.dtype)
    places = {text: place for place, text in enumerate(different)}
    values[present] = parsed[[places[text] for text in texts[present]]]
    return values


def _not_of_kind(name: str, different: Sequence[str], kind: Kind) -> str:
    reads = parsed_numbers if kind == "number" else lambda texts: parsed_dates(name, texts)
    odd = next((text for text in different if reads([text]) is None), None)
    if odd is None and kind == "number":
        return f"The column {name!r} holds both numbers and true or false; write all as numbers."
    if odd is None:
        return f"The column {name!r} writes dates in several ways; write all as in 2024-05-31."
    return (
        f"The column {name!r} must hold {kind}s, and {odd!r} is none; correct it, or leave the "
        "cell blank where the value is missing."
    )


def _finite(name: str, values: NDArray[Any]) -> NDArray[np.floating]:
    numbers = values if values.dtype in (np.float32, np.float64) else values.astype(np.float64)
    if np.isinf(numbers).any():
        raise InputError(
            f"The column {name!r} holds an infinite number; replace it, or leave the cell blank "
            "where the value is missing."
        )
    return numbers
