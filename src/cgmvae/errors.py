"""The one exception that says: what you gave cannot be used, and here is what to do about it."""


class InputError(ValueError):
    """Bad input, described in one sentence that says what is wrong and what to do.

    The command line prints the sentence and ends with exit code 2; anything else that is raised
    is a defect of this library.
    """
