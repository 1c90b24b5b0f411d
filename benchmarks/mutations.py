"""Damage to valid files, for ``benchmarks/fuzz.py``: what a bad disk, editor or stranger does.

:func:`mutate` edits bytes anywhere. :func:`in_archive` and :func:`in_description` edit what lies
under a checksum or a stated length, and make these fit again, so that the damage is met further in.
All take the file, another one of its kind, and words of its format.
"""

from __future__ import annotations

import copy
import io
import json
import re
import zipfile
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

Edit = Callable[[bytes, bytes, Sequence[bytes], Random], bytes]

_NUMBERS = (
    *(b"0", b"-1", b"1", b"255", b"65536", b"2147483648", b"9223372036854775807"),
    *(b"18446744073709551616", b"1e308", b"1e999", b"-0.0", b"nan", b"inf", b"0x10", b"1_000"),
    b"1" + b"0" * 400,
)

_WORDS = (
    *(b"\0", b"\xff", b"\n", b"\r\n", b"\r", b"\t", b" ", b'"', b"'", b",", b";", b":", b"\\"),
    *(b"{", b"}", b"[", b"]", b"%", b"#", b"?", b"=", b"@", b"<", b">", b"&", b"\xef\xbb\xbf"),
    *("é".encode(), "\u2028".encode(), "\u202e".encode(), "𝟙".encode(), "٣".encode()),
)

#: What a JSON value may be replaced by.
_VALUES: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 2, 10**9, 2**31, 2**63, 10**30, 1e308, 1e999, 0.5),
    *("", "x", "é\0", "9" * 999, [], {}, [[]], [0], [-1], [10**9, 10**9], {"": 0}, "F32", "cpu"),
)

_NUMBER = re.compile(rb"\d+")


def mutate(content: bytes, other: bytes, words: Sequence[bytes], rng: Random) -> bytes:
    """Return the content after one to six edits of its bytes."""
    for _ in range(rng.choice((1, 1, 1, 1, 2, 3, 6))):
        content = rng.choice(_EDITS)(content, other, words, rng)
    return content


def _span(content: bytes, rng: Random) -> tuple[int, int]:
    """Return where a short or, now and then, a long piece begins and ends."""
    start = rng.randrange(len(content) + 1)
    longest = rng.choice((1, 4, 16, 64, len(content)))
    return start, min(len(content), start + rng.randint(0, longest))


def _set_byte(content: bytes, other: bytes, words: Sequence[bytes], rng: Random) -> bytes:
    start = rng.randrange(len(content) + 1)
    return content[:start] + bytes([rng.randrange(256)]) + content[start + 1 :]


def _flip_bit(content: bytes, other: bytes, words: Sequence[bytes], rng: Random) -> bytes:
    start = rng.randrange(len(content) or 1)
    flipped = bytes(byte ^ (1 << rng.randrange(8)) for byte in content[start : start + 1])
    return content[:start] + flipped + content[start + 1 :]


def _delete(content: bytes, other: bytes, words: Sequence[bytes], rng: Random) -> bytes:
    start, end = _span(content, rng)
    return content[:start] + content[end:]


def _repeat(content: bytes, other: bytes, words: Sequence[bytes], rng: Random) -> bytes:
    start, end = _span(content, rng)
    return content[:end] + content[start:end] * rng.choice((1, 2, 20)) + content[end:]


def _cut(content: bytes, other: bytes, words: Sequence[bytes], rng: Random) -> bytes:
    return content[: rng.randrange(len(content) + 1)]


def _splice(content: bytes, other: bytes, words: Sequence[bytes], rng: Random) -> bytes:
    return content[: rng.randrange(len(content) + 1)] + other[rng.randrange(len(other) + 1) :]


def _word(content: bytes, other: bytes, words: Sequence[bytes], rng: Random) -> bytes:
    start, end = _span(content, rng)
    end = rng.choice((start, min(end, start + 4)))
    return content[:start] + rng.choice((*_WORDS, *words)) + content[end:]


def _number(content: bytes, other: bytes, words: Sequence[bytes], rng: Random) -> bytes:
    found = list(_NUMBER.finditer(content))
    if not found:
        return content
    start, end = rng.choice(found).span()
    return content[:start] + rng.choice(_NUMBERS) + content[end:]


_EDITS: tuple[Edit, ...] = (
    *(_set_byte, _flip_bit, _delete, _repeat, _cut, _splice, _word, _word, _number, _number),
)


def in_archive(content: bytes, other: bytes, words: Sequence[bytes], rng: Random) -> bytes:
    """Return a zip archive with one member damaged, lost or doubled; the checksums are right."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    place = rng.randrange(len(members))
    name, inner = members.pop(place)
    kinds = rng.choice(("damage", "damage", "damage", "leave out", "double", "rename"))
    if kinds != "leave out":
        header = inner[:128] if rng.random() < 0.7 else inner  # what describes the array
        damaged = mutate(header, rng.choice(members or [("", b"")])[1], words, rng)
        new = name if kinds != "rename" else rng.choice(("Y.npy", "X_shape.npy", "../a.npy", ""))
        members.insert(place, (new, damaged + inner[len(header) :]))
    if kinds == "double":
        members.append((name, inner))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", rng.choice((0, 8))) as archive:
        for key, value in members:
            archive.writestr(zipfile.ZipInfo(key), value)
    return packed.getvalue()


def in_description(content: bytes, other: bytes, words: Sequence[bytes], rng: Random) -> bytes:
    """Return a tensor file with damage inside, with right lengths and without its checksum."""
    length = int.from_bytes(content[:8], "little")
    header, body = json.loads(content[8 : 8 + length]), content[8 + length :]
    header["__metadata__"].pop("checksum", None)
    description = json.loads(header["__metadata__"]["description"])
    for _ in range(rng.choice((1, 1, 2, 4))):
        what = rng.random()
        if what < 0.5:
            description = _damaged(description, rng)
        elif what < 0.7:
            header = _damaged(header, rng)
        else:
            body = rng.choice((_set_byte, _flip_bit))(body, other, words, rng)[: len(body)]
    if isinstance(header, dict) and isinstance(header.get("__metadata__"), dict):
        header["__metadata__"]["description"] = json.dumps(description)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


def _damaged(value: Any, rng: Random) -> Any:
    """Return a JSON value with one part replaced, left out, renamed or nested without end."""
    if not isinstance(value, dict | list) or not value or rng.random() < 0.1:
        return copy.deepcopy(rng.choice(_VALUES))
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    key = rng.choice(keys)
    what = rng.random()
    if what < 0.1:
        del value[key]
    elif what < 0.15 and isinstance(value, dict):
        value[rng.choice(("__class__", "_fitted_state", "x", *keys))] = value.pop(key)
    elif what < 0.17:
        nested: Any = 0
        for _ in range(rng.choice((10, 900))):
            nested = [nested]
        value[key] = nested
    elif what < 0.2 and isinstance(value, list):
        value += value * rng.choice((1, 50))
    else:
        value[key] = _damaged(value[key], rng)
    return value
