"""What an array in NumPy's format says about itself, read with mistrust.

An ``.npy`` file begins with it, and so does each array of an ``.npz`` file. The formats compare it
with what their file holds before anything is loaded.
"""

from __future__ import annotations

from math import prod
from tokenize import TokenError
from typing import IO, Any, NamedTuple

import numpy as np

from cgmvae.errors import first_line

#: How the header is read in each version of the format that holds numbers and text.
_READERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}

#: What NumPy raises at a header that is none, beside a ValueError.
_DAMAGE = (TypeError, LookupError, SyntaxError, TokenError, RecursionError, MemoryError)


class ArrayHeader(NamedTuple):
    """Shape, order and type of an array, as it states them."""

    shape: tuple[int, ...]
    is_fortran: bool
    dtype: np.dtype[Any]

    def fits(self, n_bytes: int) -> bool:
        """Tell whether values of this shape and type take so many bytes."""
        return self.n_bytes == n_bytes and min(self.shape, default=0) >= 0

    @property
    def n_bytes(self) -> int:
        """What the values take; at least a byte each, or texts of width 0 could be any number."""
        return prod(self.shape) * max(self.dtype.itemsize, 1)


def read_array_header(file: IO[bytes]) -> ArrayHeader:
    """Read the header from the first byte of an array; a ValueError says why it is none."""
    version = np.lib.format.read_magic(file)
    if version not in _READERS:
        raise ValueError(f"version {version} of the array format")
    try:
        return ArrayHeader(*_READERS[version](file))
    except _DAMAGE as error:
        raise ValueError(first_line(error)) from error
