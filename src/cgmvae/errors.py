"""The one exception that says: what you gave cannot be used, and here is what to do about it."""


class InputError(ValueError):
    """Bad input, described in one sentence that says what is wrong and what to do.

    The command line prints the sentence and ends with exit code 2; anything else that is raised
    is a defect of this library.
    """


#: Characters of a text that are shown; a file from a stranger may have its say in it.
_LONGEST = 160


def one_line(text: object) -> str:
    r"""Return a text on one line of bounded length, without control characters.

    >>> one_line("two\nlines \x1b[31m")
    'two lines ?[31m'
    """
    words = " ".join(str(text).split())
    shown = "".join(each if each.isprintable() else "?" for each in words[:_LONGEST])
    return shown + ("…" if len(words) > _LONGEST else "")
