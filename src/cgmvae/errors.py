"""Errors and warnings for users, and how they quote text, other errors and lists of names."""

import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, cast

_PACKAGE = __name__.partition(".")[0]


@dataclass(frozen=True)
class Setting:
    """A parameter, and a value, in a sentence; the command line writes its option instead.

    >>> print(Setting("labels", ["owl"]))
    labels=['owl']
    """

    parameter: str
    value: Any = None

    def __str__(self) -> str:
        return self.parameter if self.value is None else f"{self.parameter}={self.value!r}"


#: The parts of a sentence; joined, they are what Python users read.
Sentence = tuple[str | Setting, ...]


class InputError(ValueError):
    """Bad input, described in one sentence that says what is wrong and what to do.

    The command line prints the sentence and exits with code 2; any other exception is a bug in this
    library.

    Parameters
    ----------
    *sentence : str or Setting
        The parts of the sentence.
    parameter : str, optional
        Name of the parameter that the sentence is about; the command line adds its option.
    """

    def __init__(self, *sentence: str | Setting, parameter: str | None = None) -> None:
        super().__init__("".join(map(str, sentence)))
        self.sentence, self.parameter = sentence, parameter


class NonFiniteScores(InputError):
    """A row for which a model computes no probabilities; ``row`` counts from 0."""

    def __init__(self, row: int, column: str) -> None:
        super().__init__(
            f"Row {row + 1:,} is so far from the training data that the model gives no "
            f"probability, above all in the column {one_line(column)!r}; check its unit."
        )
        self.row, self.column = row, column


#: Maximum length of quoted text, which may come from a file of unknown origin.
_LONGEST = 160

#: Maximum number of names in a list.
_NAMED = 5


def one_line(text: object) -> str:
    r"""Return text as one line of limited length, without control characters.

    >>> one_line("two\nlines \x1b[31m")
    'two lines ?[31m'
    """
    words = " ".join(str(text).split())
    shown = "".join(each if each.isprintable() else "?" for each in words[:_LONGEST])
    return shown + ("…" if len(words) > _LONGEST else "")


def first_line(error: Exception) -> str:
    r"""Return the first line of an error message, without the period.

    >>> first_line(ValueError("It is too long.\nTo allow it, do this."))
    'It is too long'
    """
    return one_line(str(error).partition("\n")[0]).rstrip(".")


def listed(names: Sequence[str]) -> str:
    """Return the first few names, quoted.

    >>> listed(["owl", "hawk"]), listed(list("abcdefg"))
    ("'owl', 'hawk'", "'a', 'b', 'c', 'd', 'e' and 2 more")
    """
    shown = ", ".join(map(repr, names[:_NAMED]))
    return shown if len(names) <= _NAMED else f"{shown} and {len(names) - _NAMED:,} more"


def warn(*sentence: str | Setting, category: type[Warning] = UserWarning) -> None:
    """Warn, and name the line outside of this package that led here."""
    warning = category("".join(map(str, sentence)))
    warning.sentence = sentence  # type: ignore[attr-defined]
    frame, level = sys._getframe(1), 2
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        frame, level = cast(FrameType, frame.f_back), level + 1
    warnings.warn(warning, stacklevel=level)
