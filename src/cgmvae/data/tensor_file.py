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
    header: dict[str, Any] = {"__metadata__": {"description": json.dumps(description)}}
    start = 0
    for name, array in tensors.items():
        end = start + array.nbytes
        code = _CODES[array.dtype.newbyteorder("<") if array.dtype.itemsize > 1 else array.dtype]
        header[name] = {"dtype": code, "shape": list(array.shape), "data_offsets": [start, end]}
        start = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for array in tensors.values():
            file.write(np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes())


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
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise InputError(f"{path} is damaged ({error}); fetch or write it again.") from error
        body = file.read()
    _check_cover(path, places, len(body))
    return {
        name: np.frombuffer(body, dtype, math.prod(shape), start).reshape(shape).copy()
        for name, (dtype, shape, start, _) in places.items()
    }, description


def _place(
    entry: Mapping[str, Any], n_bytes: int
) -> tuple[np.dtype[Any], tuple[int, ...], int, int]:
    dtype = np.dtype(_DTYPES[entry["dtype"]])
    shape = tuple(int(n) for n in entry["shape"])
    start, end = (int(n) for n in entry["data_offsets"])
    if min(shape, default=1) < 0 or not 0 <= start <= end <= n_bytes:
        raise ValueError("an array lies outside the file")
    if end - start != math.prod(shape) * dtype.itemsize:
        raise ValueError("an array's size does not fit its shape")
    return dtype, shape, start, end


def _check_cover(path: Any, places: Mapping[str, tuple[Any, Any, int, int]], n_bytes: int) -> None:
    """Arrays must follow each other without gap or overlap, to the end of the file."""
    position = 0
    for _, _, start, end in sorted(places.values(), key=lambda place: place[2:]):
        if start != position:
            break
        position = end
    if position != n_bytes:
        raise InputError(f"{path} is damaged (its arrays do not fill it); fetch or write it again.")
