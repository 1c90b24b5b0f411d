import json
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from cgmvae.data import files
from cgmvae.data.serialization import read_tensors, write_tensors
from cgmvae.errors import InputError

DTYPES = ("f8", "f4", "f2", "i8", "i4", "i2", "i1", "u1", "?")
DESCRIPTION = {"kind": "test", "numbers": [1, 2.5, None, True], "name": "Ångström 🐟"}


def sample_arrays() -> dict[str, np.ndarray]:
    """Every type, and every odd shape."""
    arrays = {
        f"of type {dtype}": (np.arange(12).reshape(3, 4) % 5).astype(dtype) for dtype in DTYPES
    }
    return arrays | {
        "no dimension": np.array(2.5),
        "truth without dimension": np.array(True),
        "no rows": np.empty((0, 3), np.float32),
        "no columns": np.empty((2, 0, 5), np.int16),
        "extremes": np.array([np.nan, np.inf, -np.inf, -0.0, 5e-324]),
        "naïve ключ": np.array([2**63 - 1, -(2**63)]),
        "across": np.arange(6.0).reshape(2, 3).T,
        "every second": np.arange(10, dtype=np.int32)[::2],
    }


def assert_same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        assert found[name].shape == array.shape
        assert found[name].tobytes() == array.tobytes()


def packed(header: Any, body: bytes = b"", *, length: int | None = None) -> bytes:
    """Put a file together from any header, whole or made up."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + body


def header_of(*, checksum: Any = "00000000", **entries: Any) -> dict[str, Any]:
    own = json.dumps({"checksum": checksum, "description": {}})
    return {"__metadata__": {"cgmvae": own}, **entries}


def entry(dtype: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


class TestRoundTrip:
    def test_all_types_and_shapes(self, tmp_path):
        write_tensors(tmp_path / "a", sample_arrays(), DESCRIPTION)
        arrays, description = read_tensors(tmp_path / "a")
        assert_same(arrays, sample_arrays())
        assert description == DESCRIPTION

    @pytest.mark.parametrize(
        "arrays", [{}, {"a": np.empty(0)}, {"a": np.empty(0), "b": np.ones(1)}]
    )
    def test_little_or_nothing(self, tmp_path, arrays):
        write_tensors(tmp_path / "a", arrays, None)
        found, description = read_tensors(tmp_path / "a")
        assert_same(found, arrays)
        assert description is None

    def test_what_is_read_can_be_changed(self, tmp_path):
        write_tensors(tmp_path / "a", {"a": np.zeros(3), "b": np.zeros(3)}, None)
        arrays, _ = read_tensors(tmp_path / "a")
        arrays["a"] += 1
        assert arrays["b"].tolist() == [0, 0, 0]

    def test_the_other_byte_order(self, tmp_path):
        swapped = np.arange(5, dtype=">i4")
        write_tensors(tmp_path / "a", {"a": swapped}, None)
        found = read_tensors(tmp_path / "a")[0]["a"]
        assert found.dtype == np.dtype("<i4")
        assert found.tolist() == swapped.tolist()

    def test_the_same_arrays_give_the_same_bytes(self, tmp_path):
        for name in ("a", "b"):
            write_tensors(tmp_path / name, sample_arrays(), DESCRIPTION)
        assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()

    @pytest.mark.parametrize(
        "array", [np.ones(2, complex), np.array(["a"]), np.array([None]), np.ones(2, np.uint32)]
    )
    def test_types_that_the_layout_lacks_are_refused_before_anything_is_written(
        self, tmp_path, array
    ):
        with pytest.raises(InputError, match="array 'odd' of type"):
            write_tensors(tmp_path / "a", {"odd": array}, None)
        assert list(tmp_path.iterdir()) == []

    def test_the_name_of_the_description_is_taken(self, tmp_path):
        with pytest.raises(InputError, match="__metadata__"):
            write_tensors(tmp_path / "a", {"__metadata__": np.ones(1)}, None)

    def test_what_could_not_be_read_again_is_not_written(self, tmp_path, monkeypatch):
        monkeypatch.setattr(files, "JSON_VALUE_LIMIT", 500)
        write_tensors(tmp_path / "a", {"a": np.ones(2)}, ["x"] * 20)
        with pytest.raises(InputError, match="fewer or shorter names"):
            write_tensors(tmp_path / "b", {"a": np.ones(2)}, ["x"] * 1000)
        assert [path.name for path in tmp_path.iterdir()] == ["a"]

    def test_a_failed_write_leaves_the_old_file(self, tmp_path, monkeypatch):
        write_tensors(tmp_path / "a", {"a": np.ones(2)}, "old")

        def fail(path):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(files, "_flush_to_disk", fail)
        with pytest.raises(InputError, match="No space left"):
            write_tensors(tmp_path / "a", {"a": np.zeros(2)}, "new")
        assert read_tensors(tmp_path / "a")[1] == "old"
        assert len(list(tmp_path.iterdir())) == 1


class TestSafetensors:
    def test_it_reads_what_we_write(self, tmp_path):
        write_tensors(tmp_path / "a.safetensors", sample_arrays(), DESCRIPTION)
        assert_same(load_file(tmp_path / "a.safetensors"), sample_arrays())

    def test_a_file_without_our_description_is_refused(self, tmp_path):
        save_file({"a": np.ones(2)}, tmp_path / "a.safetensors")
        with pytest.raises(InputError, match="damaged"):
            read_tensors(tmp_path / "a.safetensors")


EIGHT = bytes(range(8))
DAMAGE = {
    "nothing but a length": packed(b""),
    "shorter than a length": b"\1\2\3",
    "length beyond the file": packed(header_of(), length=10_000),
    "enormous length": packed(header_of(), length=2**63),
    "not JSON": packed(b"{'a': 1}"),
    "nested without end": packed(b"[" * 200_000),
    "a number of too many digits": packed(b'{"a": ' + b"9" * 10_000 + b"}"),
    "a list": packed([1, 2]),
    "no description": packed({"a": entry()}, EIGHT),
    "entry is no JSON": packed({"__metadata__": {"cgmvae": "{"}}),
    "entry is no object": packed({"__metadata__": {"cgmvae": "[1]"}}),
    "entry without checksum": packed({"__metadata__": {"cgmvae": '{"description": 1}'}}),
    "entry nested too deeply": packed({"__metadata__": {"cgmvae": "[" * 40 + "]" * 40}}),
    "another checksum": packed(header_of()),
    "checksum is a word": packed(header_of(checksum="owl")),
    "checksum is a number": packed(header_of(checksum=3)),
    "type that NumPy lacks": packed(header_of(a=entry("BF16", [4])), EIGHT),
    "type that is not stored": packed(header_of(a=entry("C64", [1])), EIGHT),
    "enormous shape": packed(header_of(a=entry(shape=[2**62, 2**62])), EIGHT),
    "enormous claim": packed(header_of(a=entry("U8", [2**40], [0, 2**40])), EIGHT),
    "body cut off": packed(header_of(a=entry()), EIGHT[:7]),
    "more than the arrays": packed(header_of(a=entry()), EIGHT + b"\0"),
    "neither true nor false": packed(header_of(a=entry("BOOL", [8])), EIGHT),
}


class TestDamage:
    @pytest.mark.parametrize("content", DAMAGE.values(), ids=DAMAGE)
    def test_is_answered_with_one_error_that_names_the_file(self, tmp_path, content):
        (tmp_path / "model.bin").write_bytes(content)
        with pytest.raises(InputError, match=r"model\.bin is .*again\."):
            read_tensors(tmp_path / "model.bin")

    def test_every_truncation_is_refused(self, tmp_path):
        write_tensors(tmp_path / "a", {"a": np.arange(3.0), "b": np.ones(2, bool)}, DESCRIPTION)
        content = (tmp_path / "a").read_bytes()
        for end in range(len(content)):
            (tmp_path / "a").write_bytes(content[:end])
            with pytest.raises(InputError):
                read_tensors(tmp_path / "a")

    def test_every_changed_bit_of_an_array_is_noticed(self, tmp_path):
        arrays = {"a": np.arange(3.0), "b": np.ones(2, bool)}
        write_tensors(tmp_path / "a", arrays, DESCRIPTION)
        content = (tmp_path / "a").read_bytes()
        n_bytes = 3 * 8 + 2
        for place in range(8 * (len(content) - n_bytes), 8 * len(content)):
            changed = bytearray(content)
            changed[place // 8] ^= 1 << place % 8
            (tmp_path / "a").write_bytes(changed)
            with pytest.raises(InputError, match="damaged"):
                read_tensors(tmp_path / "a")
        for place in range(len(content) - n_bytes):  # the header may be harmed without consequence
            changed = bytearray(content)
            changed[place] ^= 0x55
            (tmp_path / "a").write_bytes(changed)
            with suppress(InputError):
                assert_same(read_tensors(tmp_path / "a")[0], arrays)
