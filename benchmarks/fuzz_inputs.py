"""Inputs of ``benchmarks/fuzz.py``: valid files drawn by hypothesis, and ways to damage them.

The valid files are data sets with hostile names and extreme numbers in each format, texts of a
format's own words, and tables of unexpected types. :func:`mutate` edits bytes anywhere.
:func:`in_archive` and :func:`in_description` edit what a checksum or a stated length protects, and
then make these valid again, so that the damage is met further in.
"""

from __future__ import annotations

import copy
import io
import json
import re
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any
from xml.sax.saxutils import quoteattr

import arff
import numpy as np
import scipy.sparse as sp
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cgmvae.data import MultiLabelDataset, readers
from cgmvae.data.mapped import dense
from cgmvae.data.serialization import write_tensors
from cgmvae.errors import InputError

#: Takes a file, another one of its kind, words of its format, and where to draw from.
Edit = Callable[[bytes, bytes, Sequence[bytes], Random], bytes]


def examples(strategy: st.SearchStrategy[Any], n: int) -> list[Any]:
    """Return up to ``n`` examples of a strategy, the same ones each time; None is left out."""
    found: list[Any] = []

    @seed(0)
    @settings(
        max_examples=n,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def keep(example: Any) -> None:
        found.append(example)

    keep()
    return [example for example in found if example is not None]


@st.composite
def datasets(draw: st.DrawFn) -> MultiLabelDataset | None:
    """Draw small data sets, half of them with arbitrary names and numbers."""
    n_rows, n_features, n_labels = (draw(st.integers(1, top)) for top in (6, 5, 4))
    wild = draw(st.booleans())
    numbers = st.floats(width=32) if wild else st.sampled_from([0.0, 1.0, -2.5, float("nan")])
    letters = st.characters() if wild else st.sampled_from("abl1 ")
    X = draw(hnp.arrays(np.float32, (n_rows, n_features), elements=numbers))
    labels = draw(hnp.arrays(np.uint8, (n_rows, n_labels), elements=st.integers(0, 1)))
    unknown = draw(st.none() | hnp.arrays(bool, labels.shape))
    n_names = n_features + n_labels
    names = draw(
        st.lists(st.text(letters, min_size=1), min_size=n_names, max_size=n_names, unique=True)
    )
    try:
        return MultiLabelDataset(
            sp.csr_array(X) if draw(st.booleans()) else X,
            labels if unknown is None else np.where(unknown, 0, labels).astype(np.uint8),
            unknown=unknown,
            feature_names=names[:n_features],
            label_names=names[n_features:],
            groups=draw(st.none() | hnp.arrays(np.int64, n_rows)),
        )
    except InputError:
        return None


def texts(words: Sequence[bytes], n: int) -> list[bytes]:
    """Return texts of a format's words with anything between them."""
    parts = st.sampled_from(words) | st.text(max_size=6).map(str.encode)
    return examples(st.lists(parts, min_size=1, max_size=40).map(b"".join), 1 + n // 4)


def written(suffix: str, n: int) -> list[bytes]:
    """Return data sets as the library writes them, if the format can hold them."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"data{suffix}")
        for data in examples(datasets(), n):
            try:
                readers.write(data, path)
            except InputError:
                continue
            found.append(path.read_bytes())
    return found


def arff_files(n: int) -> list[bytes]:
    """Return data sets as liac-arff writes them."""
    return [arff_text(data).encode(errors="replace") for data in examples(datasets(), n)]


def arff_text(data: MultiLabelDataset) -> str:
    """Return an ARFF file with the labels behind the features, and sparse rows if X is sparse."""
    attributes = [(name, "NUMERIC") for name in data.feature_names]
    attributes += [(name, ["0", "1"]) for name in data.label_names]
    targets = dense(data.targets()).astype(object)
    targets = np.where(targets != targets, None, np.where(targets == 1, "1", "0"))
    rows = np.hstack([dense(data.X).astype(object), targets])
    rows = np.where(rows != rows, None, rows).tolist()
    if sp.issparse(data.X):
        rows = [{i: v for i, v in enumerate(row) if v not in (0, "0")} for row in rows]
    return arff.dumps({"relation": "r", "attributes": attributes, "data": rows})


def label_files(n: int) -> list[bytes]:
    """Return XML files of label names, as Mulan has them."""
    names_of_labels = st.lists(st.text(st.characters(codec="utf-8")), max_size=6)
    labels = (
        "".join(f"<label name={quoteattr(name)}/>" for name in names)
        for names in examples(names_of_labels, n)
    )
    return [f"<labels>{each}</labels>".encode() for each in labels]


def matrices(n: int) -> list[bytes]:
    """Return arrays of any type and shape as NumPy writes them."""
    types = st.sampled_from(["f4", "f8", ">f8", "i8", "u1", "?", "f2", "c8", "U3", "S2", "M8[s]"])
    shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=6)
    rows = st.tuples(st.integers(1, 6), st.just(5))
    readable = hnp.arrays(np.float32, rows, elements=st.sampled_from([0.0, 1.0, np.nan]))
    either = types.flatmap(lambda t: hnp.arrays(t, shapes)) | readable
    return [npy(array) for array in examples(either, n)]


def npy(array: Any) -> bytes:
    """Return an array as NumPy writes it."""
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def tables(n: int) -> list[bytes]:
    """Return Parquet files with columns of any type."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    text, numbers = ["a;b", None, "0"], [0, None, 1]
    kinds = [pa.int8(), pa.uint64(), pa.int64(), pa.timestamp("ns"), pa.timestamp("us", "UTC")]
    kinds += [pa.decimal128(9, 2), pa.duration("s"), pa.float64()]
    arrays = [pa.array(numbers, kind) for kind in kinds]
    arrays += [pa.array(text, kind) for kind in (pa.string(), pa.large_string(), pa.binary())]
    arrays += [pa.array(text).dictionary_encode(), pa.array([[1], None, []]), pa.nulls(3)]
    arrays += [pa.array([{"a": 1}, None, {"a": None}]), pa.array([True, None, False])]
    arrays += [pa.array(numbers, pa.int32()).cast(pa.date32())]

    def parquet(columns: list[tuple[str, Any]]) -> bytes:
        file = io.BytesIO()
        names, values = zip(*columns, strict=True)
        pq.write_table(pa.Table.from_arrays(list(values), list(names)), file, compression="none")
        return file.getvalue()

    names = st.sampled_from(["labels", "l1", "group", "x", ""]) | st.text(max_size=4)
    columns = st.lists(st.tuples(names, st.sampled_from(arrays)), min_size=1, max_size=5)
    return [parquet(each) for each in examples(columns, n)]


def tensor_files(n: int) -> list[bytes]:
    """Return files of named arrays."""
    types = st.sampled_from(["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u1", "?"])
    shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
    arrays = st.dictionaries(st.text(max_size=6), types.flatmap(lambda t: hnp.arrays(t, shapes)))
    found = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "tensors")
        for each in examples(arrays, min(n, 300)):
            write_tensors(path, each, {"kind": "x", "list": [1, {"a": None}]})
            found.append(path.read_bytes())
    return found


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

#: Replacements of a JSON value.
_VALUES: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 2, 10**9, 2**31, 2**63, 10**30, 1e308, 1e999, 0.5),
    *("", "x", "é\0", "9" * 999, [], {}, [[]], [0], [-1], [10**9, 10**9], {"": 0}, "F32", "cpu"),
)

_DIGITS = re.compile(rb"\d+")


_BYTE_EDITS = ("set byte", "flip bit")
_EDITS = (*_BYTE_EDITS, "delete", "repeat", "cut", "splice", "word", "word", "number", "number")


def mutate(content: bytes, other: bytes, words: Sequence[bytes], rng: Random) -> bytes:
    """Return the content after one to six edits of its bytes."""
    for _ in range(rng.choice((1, 1, 1, 1, 2, 3, 6))):
        content = _edited(content, other, words, rng, rng.choice(_EDITS))
    return content


def _edited(content: bytes, other: bytes, words: Sequence[bytes], rng: Random, edit: str) -> bytes:
    """Return the content after one edit, mostly of a few bytes."""
    start = rng.randrange(len(content) + 1)
    longest = rng.choice((1, 4, 16, 64, len(content)))
    end = min(len(content), start + rng.randint(0, longest))
    before, after = content[:start], content[end:]
    match edit:
        case "set byte":
            return before + bytes([rng.randrange(256)]) + content[start + 1 :]
        case "flip bit":
            byte = bytes(each ^ (1 << rng.randrange(8)) for each in content[start : start + 1])
            return before + byte + content[start + 1 :]
        case "delete":
            return before + after
        case "repeat":
            return before + content[start:end] * rng.choice((2, 3, 21)) + after
        case "cut":
            return before
        case "splice":
            return before + other[rng.randrange(len(other) + 1) :]
        case "word":
            end = rng.choice((start, min(end, start + 4)))
            return before + rng.choice((*_WORDS, *words)) + content[end:]
    if not (numbers := list(_DIGITS.finditer(content))):
        return content
    start, end = rng.choice(numbers).span()
    return content[:start] + rng.choice(_NUMBERS) + content[end:]


def in_archive(content: bytes, other: bytes, words: Sequence[bytes], rng: Random) -> bytes:
    """Return a zip archive with one file damaged, lost, doubled or renamed, and valid checksums."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    position = rng.randrange(len(members))
    name, inner = members.pop(position)
    kinds = rng.choice(("damage", "damage", "damage", "leave out", "double", "rename"))
    if kinds != "leave out":
        header = inner[:128] if rng.random() < 0.7 else inner  # where the array is described
        damaged = mutate(header, rng.choice(members or [("", b"")])[1], words, rng)
        new = name if kinds != "rename" else rng.choice(("Y.npy", "X_shape.npy", "../a.npy", ""))
        members.insert(position, (new, damaged + inner[len(header) :]))
    if kinds == "double":
        members.append((name, inner))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", rng.choice((0, 8))) as archive:
        for key, value in members:
            archive.writestr(zipfile.ZipInfo(key), value)
    return packed.getvalue()


def in_description(content: bytes, other: bytes, words: Sequence[bytes], rng: Random) -> bytes:
    """Return a tensor file with damage inside, with valid lengths and without its checksum."""
    length = int.from_bytes(content[:8], "little")
    header, body = json.loads(content[8 : 8 + length]), content[8 + length :]
    description = json.loads(header["__metadata__"]["cgmvae"])["description"]
    for _ in range(rng.choice((1, 1, 2, 4))):
        what = rng.random()
        if what < 0.5:
            description = _damaged(description, rng)
        elif what < 0.7:
            header = _damaged(header, rng)
        elif what < 0.85:
            body = _with_number(body, rng)
        else:
            body = _edited(body, other, words, rng, rng.choice(_BYTE_EDITS))[: len(body)]
    if isinstance(header, dict) and isinstance(header.get("__metadata__"), dict):
        entry = {"checksum": None, "description": description}
        header["__metadata__"]["cgmvae"] = json.dumps(entry)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


def _with_number(body: bytes, rng: Random) -> bytes:
    """Return arrays with one number replaced by one that hardly belongs there."""
    number = np.array(rng.choice((np.nan, np.inf, -np.inf, 1e30, -1.0, 5.0)), rng.choice("fd"))
    start = rng.randrange(len(body) // number.nbytes + 1) * number.nbytes
    return (body[:start] + number.tobytes() + body[start + number.nbytes :])[: len(body)]


def _damaged(value: Any, rng: Random) -> Any:
    """Return a JSON value with one part replaced, left out, renamed, repeated or deeply nested."""
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
    elif what < 0.3:
        value[key] = value[rng.choice(keys)]
    else:
        value[key] = _damaged(value[key], rng)
    return value
