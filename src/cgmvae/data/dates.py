"""Dates and times that people write in tables, read without a guess at what they mean.

Year first (``2024-05-31``, ``2024/5/31``), or day first with dots (``31.05.2024``). With slashes or
hyphens, ``31/05/2024`` and ``05/31/2024`` are read where the whole column leaves no doubt which
comes first. A time may follow (``2024-05-31 06:30``, ``2024-05-31T06:30:00Z``); where it says how
far it is from UTC, it becomes UTC. :mod:`cgmvae.data.kinds` and :mod:`cgmvae.data.columns` use it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from cgmvae.errors import InputError

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


def parsed_dates(name: str, texts: Sequence[str]) -> NDArray[np.datetime64] | None:
    """Return texts as dates to the second, (n_texts,); None where one is no date.

    Parameters
    ----------
    name : str
        The column's name, for the message when day and month cannot be told apart.
    texts : sequence of str
        What the column holds; once each is enough.

    Examples
    --------
    >>> parsed_dates("day", ["31/05/2024", "01/06/2024"]).astype("datetime64[D]").tolist()
    [datetime.date(2024, 5, 31), datetime.date(2024, 6, 1)]
    """
    if (dates := _usual(texts)) is not None:
        return dates
    if (found := _matches(_YEAR_FIRST, texts)) is not None:
        return _dates(found, month_first=True)
    if (found := _matches(_YEAR_LAST, texts)) is None:
        return None
    by_day = _dates(found, month_first=False)
    if all(match["mark"] == "." for match in found):
        return by_day
    by_month = _dates(found, month_first=True)
    if by_day is None or by_month is None:
        return by_month if by_day is None else by_day
    if (differs := by_day != by_month).any():
        raise InputError(
            f"It is not clear whether {texts[int(differs.argmax())]!r} in the column {name!r} "
            "begins with the day or the month; write its dates year first, as in 2024-05-31."
        )
    return by_day


def _usual(texts: Sequence[str]) -> NDArray[np.datetime64] | None:
    """Read what most files hold, such as 2024-05-31 and 2024-05-31 06:30, all at once."""
    if not all(map(_looks_usual, texts)):
        return None
    try:
        return np.array(texts, dtype="datetime64[s]")
    except ValueError:
        return None


def _looks_usual(text: str) -> bool:
    return (
        text[:4].isdigit()
        and text[4:5] == text[7:8] == "-"
        and (len(text) == 10 or text[13::3] in (":", "::"))
    )


def _matches(pattern: re.Pattern[str], texts: Sequence[str]) -> list[re.Match[str]] | None:
    """Return the matches of all texts, or None at the first that is another thing."""
    found = []
    for text in texts:
        match = pattern.fullmatch(text)
        if match is None:
            return None
        found.append(match)
    return found


def _dates(found: Sequence[re.Match[str]], *, month_first: bool) -> NDArray[np.datetime64] | None:
    """Return the dates of all matches, or None where one does not exist, such as 30 February."""
    try:
        return np.array([_moment(match, month_first) for match in found], dtype="datetime64[s]")
    except (ValueError, OverflowError):
        return None


def _moment(match: re.Match[str], month_first: bool) -> datetime:
    month, day = int(match["one"]), int(match["other"])
    if not month_first:
        month, day = day, month
    hour, minute, second = (int(match[part] or 0) for part in ("hour", "minute", "second"))
    moment = datetime(int(match["year"]), month, day, hour, minute, second)
    if match["sign"] is None:
        return moment
    offset = timedelta(hours=int(match["zone_hours"]), minutes=int(match["zone_minutes"]))
    return moment - offset if match["sign"] == "+" else moment + offset
