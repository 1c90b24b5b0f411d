"""Named arrays and a JSON description in one file, in the safetensors layout.

Eight bytes give the length of a JSON header, which names each array's type, shape and place; the
bytes follow. Nothing in such a file can run. Models and checkpoints are kept so. The layout is read
and written here, because every claim of a file from a stranger is checked before it is used, and
because a checksum in the header tells a damaged file from a whole one.
"""

from __future__ import annotations

import json
import math
import os
import zlib
from collections.abc import Iterable, Mapping
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from cgmvae.data.files import atomic_path, check_file
from cgmvae.errors import InputError, one_line

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

#: The layout's own bound of the header, in bytes.
_HEADER_LIMIT = 100_000_000

#: Bounds of what its JSON may hold: a value takes up to a hundred bytes of memory and two of text.
_VALUE_LIMIT, _DEPTH_LIMIT = 5_000_000, 32


def write_tensors(
    path: str | os.PathLike[str], tensors: Mapping[str, NDArray[Any]], description: Any
) -> None:
    """Write arrays and a description that JSON can hold; atomic."""
    little = {name: _little(name, array) for name, array in tensors.items()}
    entries: dict[str, Any] = {}
    start = 0
    for name, array in little.items():
        end = start + array.nbytes
        code, shape = _CODES[array.dtype], list(array.shape)
        entries[name] = {"dtype": code, "shape": shape, "data_offsets": [start, end]}
        start = end
    text = json.dumps(description)
    metadata = {"description": text, "checksum": f"{_checksum(text, little):08x}"}
    header = json.dumps({"__metadata__": metadata, **entries}).encode()
    if len(header) > _HEADER_LIMIT or max(map(_n_values, (header, text.encode()))) > _VALUE_LIMIT:
        raise InputError(
            f"{path} would need a description of {len(header):,} bytes, more than such a file can "
            "hold; use fewer or shorter names."
        )
    _write(path, header + b" " * (-len(header) % 8), little)


def _write(path: str | os.PathLike[str], header: bytes, little: Mapping[str, NDArray[Any]]) -> None:
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        file.write(len(header).to_bytes(8, "little"))
        file.write(header)
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
            return _read(file, length, size - 8 - length)
        except _DAMAGE as error:
            raise InputError(
                f"{path} is damaged ({one_line(error)}); fetch or write it again."
            ) from error
        except MemoryError as error:
            raise InputError(
                f"{path} holds {size:,} bytes, more than the memory can take; use a larger machine."
            ) from error


def _read(file: IO[bytes], length: int, n_bytes: int) -> tuple[dict[str, NDArray[Any]], Any]:
    header = _parsed(file.read(length))
    metadata = header.pop("__metadata__")
    description = _parsed(metadata["description"].encode())
    places = {name: _place(entry, n_bytes) for name, entry in header.items()}
    _check_cover(places, n_bytes)
    arrays = {name: _array(file, 8 + length, place) for name, place in places.items()}
    checksum = metadata.get("checksum")  # files of earlier versions have none
    if checksum is not None and int(checksum, 16) != _checksum(metadata["description"], arrays):
        raise ValueError("its bytes are not those that were written")
    return arrays, description


#: What a lying header can cause: bad JSON, wrong types, missing entries, nesting without end.
_DAMAGE = (ValueError, TypeError, LookupError, AttributeError, RecursionError, OverflowError)


def _parsed(text: bytes) -> Any:
    """Return the values of a JSON text that is neither too large nor too deep to be held."""
    if _n_values(text) > _VALUE_LIMIT:
        raise ValueError("its description has too many values")
    parsed = json.loads(text)
    level = [parsed]
    for _ in range(_DEPTH_LIMIT):
        level = [inner for each in level for inner in _inside(each)]
        if not level:
            return parsed
    raise ValueError("its description is nested too deeply")


def _inside(value: Any) -> Iterable[Any]:
    """Return the values that a list or an object of JSON holds."""
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _n_values(text: bytes) -> int:
    """Return no fewer values than a JSON text has, without reading it."""
    return 1 + sum(text.count(mark) for mark in (b",", b"[", b"{", b":"))


def _checksum(description: str, arrays: Mapping[str, NDArray[Any]]) -> int:
    """Return a checksum of all that a file says, whatever the order of its arrays."""
    total = zlib.crc32(description.encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        total = zlib.crc32(f"{name} {_CODES[array.dtype]} {arrays[name].shape}".encode(), total)
        total = zlib.crc32(array.data, total)
    return total


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


def _array(file: IO[bytes], body: int, place: _Place) -> NDArray[Any]:
    """Read one array; ``body`` is where in the file places are counted from."""
    dtype, shape, start, end = place
    array = np.empty(shape, dtype)
    flat = array.reshape(-1).view(np.uint8)
    file.seek(body + start)
    if file.readinto(flat.data) != end - start:  # type: ignore[attr-defined]
        raise ValueError("it ends too early")
    if dtype.kind == "b" and (flat > 1).any():
        raise ValueError("a truth value is neither 0 nor 1")
    return array
