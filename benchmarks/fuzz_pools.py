"""Files that ``benchmarks/fuzz.py`` begins from, drawn by hypothesis.

Data sets with hostile names and extreme numbers, written in each format; texts of a format's own
words; tables of types that nobody expects.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cgmvae.data import MultiLabelDataset, readers
from cgmvae.data.readers.arff import write_label_names
from cgmvae.data.serialization import write_tensors
from cgmvae.errors import InputError

#: Files that are drawn, of each kind that a pool has.
_DRAWN = 1000


def drawn(strategy: st.SearchStrategy[Any], n: int = _DRAWN) -> list[Any]:
    """Return examples of a strategy, the same ones each time; None is left out."""
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
    """Draw small data sets; half of them with any names and numbers, half with tame ones."""
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


def texts(words: Sequence[bytes]) -> list[bytes]:
    """Return texts of a format's words with anything between them."""
    parts = st.sampled_from(words) | st.text(max_size=6).map(str.encode)
    return drawn(st.lists(parts, min_size=1, max_size=40).map(b"".join), _DRAWN // 4)


def written(suffix: str) -> list[bytes]:
    """Return data sets as the library writes them, as far as the format can hold them."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"data{suffix}")
        for data in drawn(datasets()):
            try:
                readers.write(data, path)
            except InputError:
                continue
            found.append(path.read_bytes())
    return found


def label_files() -> list[bytes]:
    """Return Mulan's XML files."""
    with tempfile.TemporaryDirectory() as folder:
        path, found = Path(folder, "labels.xml"), []
        for names in drawn(st.lists(st.text(st.characters(codec="utf-8")), max_size=6)):
            write_label_names(names, path)
            found.append(path.read_bytes())
        return found


def matrices() -> list[bytes]:
    """Return matrices of any type, as NumPy writes them, and lists of row numbers."""
    types = st.sampled_from(["f4", "f8", ">f8", "i8", "u1", "?", "f2", "c8", "U3", "S2", "M8[s]"])
    shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=6)
    rows = st.tuples(st.integers(1, 6), st.just(5))
    readable = hnp.arrays(np.float32, rows, elements=st.sampled_from([0.0, 1.0, np.nan]))
    either = types.flatmap(lambda t: hnp.arrays(t, shapes)) | readable
    return [npy(array) for array in drawn(either)]


def npy(array: Any) -> bytes:
    """Return an array as NumPy writes it."""
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def tables() -> list[bytes]:
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
    return [parquet(each) for each in drawn(columns)]


def tensor_files() -> list[bytes]:
    """Return files of named arrays."""
    types = st.sampled_from(["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u1", "?"])
    shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
    arrays = st.dictionaries(st.text(max_size=6), types.flatmap(lambda t: hnp.arrays(t, shapes)))
    found = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "tensors")
        for each in drawn(arrays, 300):
            write_tensors(path, each, {"kind": "x", "list": [1, {"a": None}]})
            found.append(path.read_bytes())
    return found
