"""What a column holds: numbers, categories, dates or text; and how that is guessed from its cells.

:mod:`cgmvae.data.columns` asks this for the columns of a DataFrame, and
:mod:`cgmvae.data.readers.table.cells` for those of a file. The rules, the first that fits:

1. number: every cell that is present reads as a number, or every one as true or false. A column
   without a present cell is one of numbers that are all missing. Numbers with other things between
   them are refused.
2. date: every one reads as a date (:mod:`cgmvae.data.dates`). Dates whose day and month cannot be
   told apart are refused.
3. text: four words or more on average, and values that hardly repeat (more than half as many as
   cells, or more than 100).
4. category: at most half as many different values as cells, or at most five.
5. What is left has a word of its own in almost every row, like an identifier, and is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cgmvae.data.dates import parsed_dates
from cgmvae.errors import InputError

Kind = Literal["number", "category", "date", "text"]

#: How a missing value is spelled in text.
MISSING = ("", "NA", "NaN", "nan", "?")

#: The mean number of words from which a column may be text.
TEXT_WORDS = 4

#: Values that may all differ and still be categories.
FEW_VALUES = 5

#: Different values from which long ones are text, though they repeat.
MANY_VALUES = 100

#: Different numbers from which a column that also holds other things is no category.
MANY_NUMBERS = 20

_TRUTHS = {"true": 1.0, "false": 0.0}


def guess_kind(name: str, texts: NDArray[Any], *, text_is_parsed: bool = True) -> Kind:
    """Return what a column holds, by the rules above.

    Parameters
    ----------
    name : str
        The column's name, for messages.
    texts : object array of str or None, (n_rows,)
        Its cells, without blanks around them; None where missing.
    text_is_parsed : bool
        Whether text may be numbers; in a file that knows the types of its columns it is none.

    Examples
    --------
    >>> guess_kind("habitat", np.array(["wetland", None, "forest", "wetland"], dtype=object))
    'category'
    """
    present = [text for text in texts if text is not None]
    different = list(dict.fromkeys(present))
    if not present:
        return "number"
    if text_is_parsed:
        if parsed_numbers(different) is not None:
            return "number"
        _refuse_mixed_numbers(name, different)
    if parsed_dates(name, different) is not None:
        return "date"
    hardly_repeats = len(different) > len(present) / 2
    n_words = sum(len(text.split()) for text in different) / len(different)
    if n_words >= TEXT_WORDS and (hardly_repeats or len(different) > MANY_VALUES):
        return "text"
    if hardly_repeats and len(different) > FEW_VALUES:
        raise InputError(
            f"The column {name!r} has a value of its own in almost every row, such as "
            f"{different[0]!r}; drop it (--drop), or say what it is (--category or --text; in "
            "Python, category, text or kinds)."
        )
    return "category"


def parsed_numbers(texts: Sequence[str]) -> NDArray[np.float64] | None:
    """Return texts as numbers, true as 1 and false as 0; None where one is neither."""
    truths = [_TRUTHS.get(text.lower()) for text in texts]
    if texts and None not in truths:
        return np.array(truths, dtype=np.float64)
    if not all(map(_is_number, texts)):
        return None
    return np.array([float(text) for text in texts], dtype=np.float64)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text  # which Python's numbers may hold


def _refuse_mixed_numbers(name: str, different: Sequence[str]) -> None:
    """Refuse a column of many numbers and a few other things, which would become categories."""
    others = [text for text in different if not _is_number(text)]
    n_numbers = len(different) - len(others)
    if n_numbers > max(MANY_NUMBERS, len(others)):
        more = f" and {len(others) - 1:,} more such values" if len(others) > 1 else ""
        raise InputError(
            f"The column {name!r} holds numbers, but also {others[0]!r}{more}; correct these cells "
            "or leave them blank, drop the column (--drop), or make it a category (--category)."
        )
