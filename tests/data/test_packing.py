"""Packed files: every shape that a gzip or bzip2 file may have, and those that lie."""

import bz2
import gzip
import io
import struct
import zlib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cgmvae.data import files, packing
from cgmvae.data.files import create_binary, open_binary
from cgmvae.errors import InputError


def read_bytes(path: Path) -> bytes:
    with open_binary(path) as file:
        return file.read()


def lying_gzip(content: bytes, stated: int) -> bytes:
    """Pack content so that checksum and size at the end are those of something shorter."""
    packed = gzip.compress(content)
    return packed[:-4] + struct.pack("<I", stated)


@pytest.fixture
def watched(monkeypatch):
    """Return the sizes of what the unpackers of zlib take and give."""
    sizes = SimpleNamespace(taken=[], given=[])
    make = zlib.decompressobj

    class Watched:
        def __init__(self, wbits):
            self._unpacker = make(wbits)

        def __getattr__(self, name):
            return getattr(self._unpacker, name)

        def decompress(self, data, max_length):
            chunk = self._unpacker.decompress(data, max_length)
            sizes.taken.append(len(data))
            sizes.given.append(len(chunk))
            return chunk

    monkeypatch.setattr(zlib, "decompressobj", Watched)
    return sizes


@settings(deadline=None)
@given(content=st.binary(min_size=1, max_size=2000), suffix=st.sampled_from(["", ".gz", ".bz2"]))
def test_gives_what_was_created(tmp_path_factory, content, suffix):
    path = tmp_path_factory.mktemp("packed") / f"a.csv{suffix}"
    with create_binary(path) as file:
        file.write(content)
    assert read_bytes(path) == content


def test_packed_files_are_those_of_the_standard_library(tmp_path):
    for suffix, unpack in ((".gz", gzip.decompress), (".bz2", bz2.decompress)):
        path = tmp_path / f"a{suffix}"
        with create_binary(path) as file:
            file.write(b"owl" * 100)
        assert unpack(path.read_bytes()) == b"owl" * 100


def test_gzip_does_not_depend_on_name_and_time(tmp_path, monkeypatch):
    for name, now in (("a.gz", 1.0), ("b.gz", 2.0)):
        monkeypatch.setattr("time.time", lambda now=now: now)
        with create_binary(tmp_path / name) as file:
            file.write(b"owl")
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


def test_content_of_several_chunks_that_packs_badly(tmp_path, rng):
    content = rng.integers(0, 256, 3 * packing._CHUNK, dtype=np.uint8).tobytes()
    for name, packed in (("a.GZ", gzip.compress(content)), ("a.bz2", bz2.compress(content))):
        (tmp_path / name).write_bytes(packed)
        assert read_bytes(tmp_path / name) == content


def test_gzip_of_several_members(tmp_path):
    parts = [b"owl\n" * 1000, b"hawk\n", b"", b"wren"]
    (tmp_path / "a.gz").write_bytes(b"".join(gzip.compress(part) for part in parts))
    assert read_bytes(tmp_path / "a.gz") == b"".join(parts)


def test_second_member_may_begin_with_a_chunk_of_the_file(tmp_path, monkeypatch):
    first = gzip.compress(b"owl")
    monkeypatch.setattr(packing, "_PACKED_CHUNK", len(first))
    (tmp_path / "a.gz").write_bytes(first + gzip.compress(b"hawk"))
    assert read_bytes(tmp_path / "a.gz") == b"owlhawk"


def test_members_beyond_the_stated_size_are_no_lie(tmp_path, monkeypatch):
    monkeypatch.setattr(packing, "_STATED_SLACK", 10)
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"o") + gzip.compress(bytes(500)))
    (tmp_path / "b.gz").write_bytes(gzip.compress(bytes(10)) + gzip.compress(b"o"))
    assert len(read_bytes(tmp_path / "a.gz")) == 501
    assert len(read_bytes(tmp_path / "b.gz")) == 11


@pytest.mark.parametrize("last", [b"", b"owl"])
def test_many_small_members_are_accepted_far_beyond_the_slack(tmp_path, monkeypatch, rng, last):
    """As bgzip writes them: blocks of one size, and an empty member at the end."""
    monkeypatch.setattr(packing, "_STATED_SLACK", 1000)
    parts = [*(rng.bytes(900) for _ in range(300)), last]
    (tmp_path / "a.gz").write_bytes(b"".join(map(gzip.compress, parts)))
    assert read_bytes(tmp_path / "a.gz") == b"".join(parts)


def test_zeros_between_members_are_padding(tmp_path, monkeypatch):
    monkeypatch.setattr(packing, "_PACKED_CHUNK", 10)
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"owl") + bytes(95) + gzip.compress(b"hawk"))
    assert read_bytes(tmp_path / "a.gz") == b"owlhawk"


def test_what_follows_a_member_is_held_in_small_pieces(tmp_path, watched):
    """Each member copies all that follows it, which must not be the whole of a large file."""
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"") * 5000 + bytes(10**6))
    assert read_bytes(tmp_path / "a.gz") == b""
    assert max(watched.taken) <= packing._PACKED_CHUNK


def test_zeros_after_the_last_member_are_padding(tmp_path):
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"owl") + bytes(1000))
    # The last four bytes are then not the stated size; the slack covers it.
    assert read_bytes(tmp_path / "a.gz") == b"owl"


@pytest.mark.parametrize("keep", [3, 12, 100])
def test_truncated_gzip(tmp_path, rng, keep):
    (tmp_path / "a.gz").write_bytes(gzip.compress(rng.bytes(1000))[:keep])
    with pytest.raises(InputError, match=r"a\.gz is damaged .*; fetch the file again"):
        read_bytes(tmp_path / "a.gz")


def test_gzip_without_its_trailer(tmp_path):
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"owl")[:-1])
    with pytest.raises(InputError, match="ends too early"):
        read_bytes(tmp_path / "a.gz")


def test_gzip_with_a_wrong_checksum(tmp_path):
    packed = bytearray(gzip.compress(b"owl"))
    packed[-8] ^= 1
    (tmp_path / "a.gz").write_bytes(packed)
    with pytest.raises(InputError, match="is damaged"):
        read_bytes(tmp_path / "a.gz")


@pytest.mark.parametrize("suffix", [".gz", ".bz2"])
def test_garbage(tmp_path, suffix):
    (tmp_path / f"a{suffix}").write_bytes(b"this is no archive at all")
    with pytest.raises(InputError, match=r"is damaged .*; fetch the file again"):
        read_bytes(tmp_path / f"a{suffix}")


def test_truncated_bzip2(tmp_path, rng):
    (tmp_path / "a.bz2").write_bytes(bz2.compress(rng.bytes(1000))[:500])
    with pytest.raises(InputError, match="is damaged"):
        read_bytes(tmp_path / "a.bz2")


def test_gzip_that_unpacks_to_far_more_than_it_states(tmp_path, monkeypatch, watched):
    monkeypatch.setattr(packing, "_STATED_SLACK", 1000)
    monkeypatch.setattr(packing, "_CHUNK", 100)
    (tmp_path / "a.gz").write_bytes(lying_gzip(bytes(10**6), stated=10))
    seen: list[bytes] = []
    with (
        open_binary(tmp_path / "a.gz") as file,
        pytest.raises(InputError, match=r"unpacks to more than .* far more than it states"),
    ):
        seen.extend(iter(lambda: file.read(50), b""))
    assert 0 < sum(map(len, seen)) <= 1010
    assert 1010 < sum(watched.given) <= 1010 + 100


def test_a_large_file_may_hold_more_than_the_size_can_state(tmp_path, monkeypatch):
    """The size is stated modulo 4 GiB, so that only the check at the end tells a lie."""
    monkeypatch.setattr(packing, "_STATED_SLACK", 1000)
    monkeypatch.setattr(packing, "_CHUNK", 100)
    (tmp_path / "a.gz").write_bytes(lying_gzip(bytes(10**5), stated=10))
    monkeypatch.setattr(packing, "_WRAPPED_FROM", (tmp_path / "a.gz").stat().st_size)
    with pytest.raises(InputError, match=r"is damaged .*incorrect length check"):
        read_bytes(tmp_path / "a.gz")


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress)])
def test_more_than_is_accepted(tmp_path, monkeypatch, suffix, pack):
    monkeypatch.setattr(files, "UNPACKED_LIMIT", 1000)
    (tmp_path / f"a{suffix}").write_bytes(pack(bytes(1001)))
    with pytest.raises(InputError, match="unpacks to more than 1,000 bytes"):
        read_bytes(tmp_path / f"a{suffix}")


def test_as_much_as_is_accepted(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "UNPACKED_LIMIT", 1000)
    (tmp_path / "a.gz").write_bytes(gzip.compress(bytes(1000)))
    assert len(read_bytes(tmp_path / "a.gz")) == 1000


def test_closing_early_closes_the_file(tmp_path):
    (tmp_path / "a.gz").write_bytes(gzip.compress(bytes(10**5)))
    file = open_binary(tmp_path / "a.gz")
    assert file.read(10) == bytes(10)
    file.close()
    assert file.closed


def test_a_stream_that_ends_reads_as_ended(tmp_path):
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"owl"))
    with open_binary(tmp_path / "a.gz") as file:
        assert isinstance(file, io.BufferedReader)
        assert file.read() == b"owl"
        assert file.read() == b""


def test_the_lie_of_these_tests_is_one():
    with pytest.raises(zlib.error):
        zlib.decompress(lying_gzip(bytes(100), stated=10), wbits=31)
