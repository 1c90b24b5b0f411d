"""Named arrays and a JSON description in one file, in the safetensors layout.

Eight bytes give the length of a JSON header, which names each array's type, shape and place; the
bytes follow. Nothing in such a file can run. Models and checkpoints are kept so. The layout is read
and written here, because every claim of a file from a stranger is checked before it is used.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cgmvae.data.files import atomic_path, check_file
from cgmvae.errors import InputError

_DTYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "<i1",
    "U8": "<u1",
    "BOOL": "|b1",
}
_CODES = {np.dtype(name): code for code, name in _DTYPES.items()}

#: The layout's own bound of the header.
_HEADER_LIMIT = 100_000_000


def write_tensors(
    path: str | os.PathLike[str], tensors: Mapping[str, NDArray[Any]], description: Any
) -> None:
    """Write arrays and a description that JSON can hold; atomic."""
    little = {name: _little(name, array) for name, array in tensors.items()}
    header: dict[str, Any] = {"__metadata__": {"description": json.dumps(description)}}
    start = 0
    for name, array in little.items():
        end = start + array.nbytes
        code, shape = _CODES[array.dtype], list(array.shape)
        header[name] = {"dtype": code, "shape": shape, "data_offsets": [start, end]}
        start = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for array in little.values():
            file.write(array.tobytes())


def _little(name: str, array: NDArray[Any]) -> NDArray[Any]:
    """Return the array with little-endian numbers, refusing what the layout cannot hold."""
    dtype = array.dtype.newbyteorder("<")
    if dtype not in _CODES or name == "__metadata__":
        raise InputError(
            f"The array {name!r} of type {array.dtype} cannot be kept in a model file; "
            f"use another name or one of {', '.join(str(known) for known in _CODES)}."
        )
    return array.astype(dtype, copy=False)


def read_tensors(path: str | os.PathLike[str]) -> tuple[dict[str, NDArray[Any]], Any]:
    """Read arrays and their description, refusing what does not add up."""
    path = check_file(path)
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(_HEADER_LIMIT, size - 8):
            raise InputError(f"{path} is not a model file, or it is damaged; fetch it again.")
        try:
            header = json.loads(file.read(length))
            description = json.loads(header.pop("__metadata__")["description"])
            places = {name: _place(entry, size - 8 - length) for name, entry in header.items()}
            _check_cover(places, size - 8 - length)
            body = file.read(size - 8 - length)
            return {name: _array(body, *place) for name, place in places.items()}, description
        except _DAMAGE as error:
            raise InputError(f"{path} is damaged ({error}); fetch or write it again.") from error


#: What a lying header can cause: bad JSON, wrong types, missing entries, nesting without end.
_DAMAGE = (ValueError, TypeError, LookupError, AttributeError, RecursionError, OverflowError)

#: Type, shape, first and last place of an array.
_Place = tuple[np.dtype[Any], tuple[int, ...], int, int]


def _place(entry: Mapping[str, Any], n_bytes: int) -> _Place:
    dtype = np.dtype(_DTYPES[entry["dtype"]])
    shape = tuple(entry["shape"])
    start, end = entry["data_offsets"]
    if any(type(n) is not int for n in (*shape, start, end)):
        raise ValueError("a size or place is not a whole number")
    if min(shape, default=1) < 0 or not 0 <= start <= end <= n_bytes:
        raise ValueError("an array lies outside the file")
    if end - start != math.prod(shape) * dtype.itemsize:
        raise ValueError("an array's size does not fit its shape")
    return dtype, shape, start, end


def _check_cover(places: Mapping[str, _Place], n_bytes: int) -> None:
    """Arrays must follow each other without gap or overlap, to the end of the file."""
    position = 0
    for _, _, start, end in sorted(places.values(), key=lambda place: place[2:]):
        if start != position:
            raise ValueError("its arrays overlap or leave gaps")
        position = end
    if position != n_bytes:
        raise ValueError("its arrays do not fill it")


def _array(
    body: bytes, dtype: np.dtype[Any], shape: tuple[int, ...], start: int, end: int
) -> NDArray[Any]:
    if dtype.kind == "b" and body[start:end].translate(None, b"\0\1"):
        raise ValueError("a truth value is neither 0 nor 1")
    array = np.frombuffer(body, dtype, math.prod(shape), start)
    return array.reshape(shape).copy()
