"""The one exception that says: what you gave cannot be used, and here is what to do about it.

And how its sentence quotes what others wrote: a text, another error, a list of names.
"""

from collections.abc import Sequence


class InputError(ValueError):
    """Bad input, described in one sentence that says what is wrong and what to do.

    The command line prints the sentence and ends with exit code 2; anything else that is raised
    is a defect of this library.

    Parameters
    ----------
    message : str
        The sentence.
    parameter : str, optional
        Name of the parameter that the sentence is about; the command line adds its option.
    """

    def __init__(self, message: str, *, parameter: str | None = None) -> None:
        super().__init__(message)
        self.parameter = parameter


#: Characters of a text that are shown; a file from a stranger may have its say in it.
_LONGEST = 160

#: How many names a sentence lists before it stops.
_NAMED = 5


def one_line(text: object) -> str:
    r"""Return a text on one line of bounded length, without control characters.

    >>> one_line("two\nlines \x1b[31m")
    'two lines ?[31m'
    """
    words = " ".join(str(text).split())
    shown = "".join(each if each.isprintable() else "?" for each in words[:_LONGEST])
    return shown + ("…" if len(words) > _LONGEST else "")


def first_line(error: Exception) -> str:
    r"""Return what an error says in its first line, without the full stop.

    >>> first_line(ValueError("It is too long.\nTo allow it, do this."))
    'It is too long'
    """
    return one_line(str(error).partition("\n")[0]).rstrip(".")


def listed(names: Sequence[str]) -> str:
    """Return the first few of some names, in quotes.

    >>> listed(["owl", "hawk"]), listed(list("abcdefg"))
    ("'owl', 'hawk'", "'a', 'b', 'c', 'd', 'e' and 2 more")
    """
    shown = ", ".join(map(repr, names[:_NAMED]))
    return shown if len(names) <= _NAMED else f"{shown} and {len(names) - _NAMED:,} more"
