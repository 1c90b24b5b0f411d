"""Model files and checkpoints: named arrays and a JSON description in one safetensors file.

Nothing in such a file can run code. The safetensors library reads and writes the arrays, and checks
sizes and offsets; this module adds an atomic write, limits on the JSON, and a checksum that detects
damage. The description and the checksum are one entry of the file's metadata.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cgmvae.data.files import atomic_path, check_file, parse_limited_json
from cgmvae.errors import InputError, one_line

#: The metadata entry of this library. A single one, because safetensors stores several in an
#: arbitrary order, and the same content should give the same bytes.
_ENTRY = "cgmvae"

#: The limit of safetensors on the header, in bytes.
_HEADER_LIMIT = 100_000_000

_DTYPES = set(map(np.dtype, ("f8", "f4", "f2", "i8", "i4", "i2", "i1", "u1", "bool")))

#: What a damaged header can cause: bad JSON, wrong types, missing entries.
_DAMAGE = (ValueError, TypeError, LookupError, AttributeError, OverflowError)


def write_tensors(
    path: str | os.PathLike[str], tensors: Mapping[str, NDArray[Any]], description: Any
) -> None:
    """Write arrays and a description that JSON can hold; the write is atomic.

    Contiguous arrays are written from where they are, without a copy.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    arrays = {name: _storable(name, array) for name, array in tensors.items()}
    text = json.dumps(description)
    checksum = f"{_checksum(text, arrays):08x}"
    entry = f'{{"checksum": "{checksum}", "description": {text}}}'
    n_bytes = len(json.dumps(entry)) + sum(len(json.dumps(name)) + 100 for name in arrays)
    try:
        parse_limited_json(entry.encode())
        if n_bytes > _HEADER_LIMIT:
            raise ValueError("it is too long")
    except ValueError as error:
        raise InputError(
            f"{path} would need a description of {n_bytes:,} bytes, more than a model file can "
            f"hold ({error}); use fewer or shorter names."
        ) from error
    with atomic_path(path) as temporary:
        temporary.touch()
        permissions = temporary.stat().st_mode  # the library writes files for their owner alone
        try:
            save_file(arrays, temporary, metadata={_ENTRY: entry})
            temporary.chmod(permissions)
        except SafetensorError as error:  # the library's word for a full disk and the like
            number = re.search(r"\(os error (\d+)\)", str(error))
            reason = one_line(error) if number is None else os.strerror(int(number[1]))
            raise OSError(reason) from error


def read_tensors(
    path: str | os.PathLike[str], *, advice: str = "fetch or write it again"
) -> tuple[dict[str, NDArray[Any]], Any]:
    """Read arrays and their description, rejecting a file that is damaged.

    ``advice`` is what to do then.
    """
    from safetensors import SafetensorError

    path = check_file(path)
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(_HEADER_LIMIT, size - 8):
            raise InputError(f"{path} is not a model file, or it is damaged; {advice}.")
        header = file.read(length)
    try:
        return _read(path, parse_limited_json(header))
    except (*_DAMAGE, SafetensorError) as error:
        raise InputError(f"{path} is damaged ({one_line(error)}); {advice}.") from error
    except MemoryError as error:
        raise InputError(
            f"{path} holds {size:,} bytes, more than fits into memory; use a larger machine."
        ) from error


def _read(path: Path, header: Any) -> tuple[dict[str, NDArray[Any]], Any]:
    from safetensors import safe_open

    entry = parse_limited_json(header["__metadata__"][_ENTRY].encode())
    description = entry["description"]
    with safe_open(path, framework="np") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    for array in arrays.values():
        if array.dtype not in _DTYPES:
            raise ValueError(f"an array of type {array.dtype}")
        if array.dtype == bool and (array.view(np.uint8) > 1).any():
            raise ValueError("a boolean is neither 0 nor 1")
    if int(entry["checksum"], 16) != _checksum(json.dumps(description), arrays):
        raise ValueError("its checksum differs")
    return arrays, description


def _storable(name: str, array: NDArray[Any]) -> NDArray[Any]:
    """Return the array little-endian and contiguous, rejecting what a file cannot hold."""
    dtype = array.dtype.newbyteorder("<")
    if dtype not in _DTYPES or name == "__metadata__":
        raise InputError(
            f"The array {name!r} of type {array.dtype} cannot be stored in a model file; use "
            f"another name, or one of {', '.join(sorted(map(str, _DTYPES)))}."
        )
    return np.asarray(array, dtype, order="C")


def _checksum(description: str, arrays: Mapping[str, NDArray[Any]]) -> int:
    """Return a checksum of the description and of all arrays, whatever their order."""
    total = zlib.crc32(description.encode())
    for name in sorted(arrays):
        array = arrays[name]
        kind = array.dtype.kind.upper() if array.dtype != bool else "BOOL"
        code = kind if kind == "BOOL" else f"{kind}{8 * array.dtype.itemsize}"
        total = zlib.crc32(f"{name} {code} {array.shape}".encode(), total)
        total = zlib.crc32(np.ascontiguousarray(array).data, total)
    return total
