import bz2
import gzip
import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cgmvae.data import files
from cgmvae.data.files import (
    atomic_path,
    check_file,
    create_binary,
    data_name,
    data_suffix,
    open_binary,
    open_text,
    refuse_packed,
)
from cgmvae.errors import InputError


def read_bytes(path: Path) -> bytes:
    with open_binary(path) as file:
        return file.read()


def lying_gzip(content: bytes, stated: int) -> bytes:
    """Pack content so that checksum and size at the end are those of something shorter."""
    packed = gzip.compress(content)
    return packed[:-4] + struct.pack("<I", stated)


def failing(error: OSError):
    def fail(*_args, **_kwargs):
        raise error

    return fail


def write_half(target: Path, error: BaseException) -> None:
    with atomic_path(target) as temporary:
        temporary.write_text("half")
        raise error


class TestCheckFile:
    def test_gives_the_path_of_a_file(self, tmp_path):
        (tmp_path / "a.csv").write_bytes(b"x")
        assert check_file(str(tmp_path / "a.csv")) == tmp_path / "a.csv"

    def test_missing_file(self, tmp_path):
        with pytest.raises(InputError, match=r"nothing\.csv does not exist; check the path"):
            check_file(tmp_path / "nothing.csv")

    def test_folder(self, tmp_path):
        with pytest.raises(InputError, match="is a folder; name the file inside it"):
            check_file(tmp_path)

    def test_empty_file(self, tmp_path):
        (tmp_path / "a.csv").touch()
        with pytest.raises(InputError, match="is empty; fetch or write it again"):
            check_file(tmp_path / "a.csv")

    def test_name_that_is_too_long(self, tmp_path):
        with pytest.raises(InputError, match=r"cannot be read \(File name too long\)"):
            check_file(tmp_path / ("a" * 300))

    def test_file_without_permission(self, tmp_path, monkeypatch):
        (tmp_path / "a.csv").write_bytes(b"x")
        monkeypatch.setattr(Path, "open", failing(PermissionError(13, "Permission denied")))
        with pytest.raises(InputError, match=r"cannot be read \(Permission denied\)"):
            check_file(tmp_path / "a.csv")


class TestOpenBinary:
    @settings(deadline=None)
    @given(
        content=st.binary(min_size=1, max_size=2000), suffix=st.sampled_from(["", ".gz", ".bz2"])
    )
    def test_gives_what_was_created(self, tmp_path_factory, content, suffix):
        path = tmp_path_factory.mktemp("packed") / f"a.csv{suffix}"
        with create_binary(path) as file:
            file.write(content)
        assert read_bytes(path) == content

    def test_packed_files_are_those_of_the_standard_library(self, tmp_path):
        for suffix, unpack in ((".gz", gzip.decompress), (".bz2", bz2.decompress)):
            path = tmp_path / f"a{suffix}"
            with create_binary(path) as file:
                file.write(b"owl" * 100)
            assert unpack(path.read_bytes()) == b"owl" * 100

    def test_gzip_does_not_depend_on_name_and_time(self, tmp_path, monkeypatch):
        for name, now in (("a.gz", 1.0), ("b.gz", 2.0)):
            monkeypatch.setattr("time.time", lambda now=now: now)
            with create_binary(tmp_path / name) as file:
                file.write(b"owl")
        assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()

    def test_content_of_several_chunks_that_packs_badly(self, tmp_path, rng):
        content = rng.integers(0, 256, 3 * files._CHUNK, dtype=np.uint8).tobytes()
        for name, packed in (("a.GZ", gzip.compress(content)), ("a.bz2", bz2.compress(content))):
            (tmp_path / name).write_bytes(packed)
            assert read_bytes(tmp_path / name) == content

    def test_gzip_of_several_members(self, tmp_path):
        parts = [b"owl\n" * 1000, b"hawk\n", b"", b"wren"]
        (tmp_path / "a.gz").write_bytes(b"".join(gzip.compress(part) for part in parts))
        assert read_bytes(tmp_path / "a.gz") == b"".join(parts)

    def test_second_member_may_begin_with_a_chunk_of_the_file(self, tmp_path, monkeypatch):
        first = gzip.compress(b"owl")
        monkeypatch.setattr(files, "_CHUNK", len(first))
        (tmp_path / "a.gz").write_bytes(first + gzip.compress(b"hawk"))
        assert read_bytes(tmp_path / "a.gz") == b"owlhawk"

    def test_members_beyond_the_stated_size_are_no_lie(self, tmp_path, monkeypatch):
        monkeypatch.setattr(files, "_STATED_SLACK", 10)
        (tmp_path / "a.gz").write_bytes(gzip.compress(b"o") + gzip.compress(bytes(500)))
        (tmp_path / "b.gz").write_bytes(gzip.compress(bytes(10)) + gzip.compress(b"o"))
        assert len(read_bytes(tmp_path / "a.gz")) == 501
        assert len(read_bytes(tmp_path / "b.gz")) == 11

    def test_zeros_after_the_last_member_are_padding(self, tmp_path):
        (tmp_path / "a.gz").write_bytes(gzip.compress(b"owl") + bytes(1000))
        # The last four bytes are then not the stated size; the slack covers it.
        assert read_bytes(tmp_path / "a.gz") == b"owl"

    @pytest.mark.parametrize("keep", [3, 12, 100])
    def test_truncated_gzip(self, tmp_path, rng, keep):
        (tmp_path / "a.gz").write_bytes(gzip.compress(rng.bytes(1000))[:keep])
        with pytest.raises(InputError, match=r"a\.gz is damaged .*; fetch the file again"):
            read_bytes(tmp_path / "a.gz")

    def test_gzip_without_its_trailer(self, tmp_path):
        (tmp_path / "a.gz").write_bytes(gzip.compress(b"owl")[:-1])
        with pytest.raises(InputError, match="ends too early"):
            read_bytes(tmp_path / "a.gz")

    def test_gzip_with_a_wrong_checksum(self, tmp_path):
        packed = bytearray(gzip.compress(b"owl"))
        packed[-8] ^= 1
        (tmp_path / "a.gz").write_bytes(packed)
        with pytest.raises(InputError, match="is damaged"):
            read_bytes(tmp_path / "a.gz")

    @pytest.mark.parametrize("suffix", [".gz", ".bz2"])
    def test_garbage(self, tmp_path, suffix):
        (tmp_path / f"a{suffix}").write_bytes(b"this is no archive at all")
        with pytest.raises(InputError, match=r"is damaged .*; fetch the file again"):
            read_bytes(tmp_path / f"a{suffix}")

    def test_truncated_bzip2(self, tmp_path, rng):
        (tmp_path / "a.bz2").write_bytes(bz2.compress(rng.bytes(1000))[:500])
        with pytest.raises(InputError, match="is damaged"):
            read_bytes(tmp_path / "a.bz2")

    def test_gzip_that_unpacks_to_far_more_than_it_states(self, tmp_path, monkeypatch):
        monkeypatch.setattr(files, "_STATED_SLACK", 1000)
        monkeypatch.setattr(files, "_CHUNK", 100)
        (tmp_path / "a.gz").write_bytes(lying_gzip(bytes(10**6), stated=10))
        seen: list[bytes] = []
        with (
            open_binary(tmp_path / "a.gz") as file,
            pytest.raises(InputError, match=r"unpacks to more than .* far more than it states"),
        ):
            seen.extend(iter(lambda: file.read(50), b""))
        assert 0 < sum(map(len, seen)) <= 1010

    @pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress)])
    def test_more_than_is_accepted(self, tmp_path, monkeypatch, suffix, pack):
        monkeypatch.setattr(files, "UNPACKED_LIMIT", 1000)
        (tmp_path / f"a{suffix}").write_bytes(pack(bytes(1001)))
        with pytest.raises(InputError, match="unpacks to more than 1,000 bytes"):
            read_bytes(tmp_path / f"a{suffix}")

    def test_as_much_as_is_accepted(self, tmp_path, monkeypatch):
        monkeypatch.setattr(files, "UNPACKED_LIMIT", 1000)
        (tmp_path / "a.gz").write_bytes(gzip.compress(bytes(1000)))
        assert len(read_bytes(tmp_path / "a.gz")) == 1000

    def test_closing_early_closes_the_file(self, tmp_path):
        (tmp_path / "a.gz").write_bytes(gzip.compress(bytes(10**5)))
        file = open_binary(tmp_path / "a.gz")
        assert file.read(10) == bytes(10)
        file.close()
        assert file.closed


class TestOpenText:
    def test_utf8_with_a_byte_order_mark(self, tmp_path):
        (tmp_path / "a.txt").write_bytes("\ufeffcafé".encode())
        with open_text(tmp_path / "a.txt") as text:
            assert text.read() == "café"

    def test_packed_text(self, tmp_path):
        (tmp_path / "a.txt.gz").write_bytes(gzip.compress("héron\nowl".encode()))
        with open_text(tmp_path / "a.txt.gz") as text:
            assert list(text) == ["héron\n", "owl"]

    def test_line_ends_are_kept_when_asked(self, tmp_path):
        (tmp_path / "a.txt").write_bytes(b"a\r\nb")
        with open_text(tmp_path / "a.txt") as text:
            assert text.read() == "a\nb"
        with open_text(tmp_path / "a.txt", newline="") as text:
            assert text.read() == "a\r\nb"

    @pytest.mark.parametrize("pack", [bytes, gzip.compress])
    def test_another_encoding_far_into_the_file(self, tmp_path, pack):
        path = tmp_path / ("a.txt" if pack is bytes else "a.txt.gz")
        path.write_bytes(pack(b"x\n" * 50_000 + "é".encode("latin-1")))
        with (
            pytest.raises(InputError, match=r"is not UTF-8 text \(byte 0xe9\); save it as UTF-8"),
            open_text(path) as text,
        ):
            list(text)

    def test_utf16(self, tmp_path):
        (tmp_path / "a.txt").write_text("owl", encoding="utf-16")
        with pytest.raises(InputError, match="is not UTF-8"), open_text(tmp_path / "a.txt") as text:
            text.read()

    def test_other_errors_of_the_block_pass(self, tmp_path):
        (tmp_path / "a.txt").write_bytes(b"x")
        with pytest.raises(ZeroDivisionError), open_text(tmp_path / "a.txt"):
            raise ZeroDivisionError


@pytest.mark.parametrize(
    ("path", "suffix", "name"),
    [
        ("folder.d/a.arff", ".arff", "a"),
        ("a.ARFF.GZ", ".arff", "a"),
        ("v1.2.csv.bz2", ".csv", "v1.2"),
        ("a", "", "a"),
        ("a.gz", "", "a"),
    ],
)
def test_suffix_and_name_look_through_the_packing(path, suffix, name):
    assert data_suffix(path) == suffix
    assert data_name(path) == name


def test_refuse_packed():
    refuse_packed("a.npz", "npz")
    with pytest.raises(
        InputError, match=r"a\.npz\.gz ends in \.gz, but npz is compressed by itself"
    ):
        refuse_packed("a.npz.gz", "npz")


class TestAtomicPath:
    def test_takes_the_place_of_the_old_file(self, tmp_path):
        target = tmp_path / "a.csv"
        target.write_text("old")
        with atomic_path(target) as temporary:
            temporary.write_text("new")
            assert target.read_text() == "old"
        assert target.read_text() == "new"
        assert list(tmp_path.iterdir()) == [target]

    def test_keeps_the_suffix_for_writers_that_look_at_it(self, tmp_path):
        with atomic_path(tmp_path / "a.csv.gz") as temporary:
            assert temporary.name == "a.csv.gz"
            temporary.touch()

    def test_an_error_leaves_the_old_file_and_nothing_else(self, tmp_path):
        target = tmp_path / "a.csv"
        target.write_text("old")
        with pytest.raises(ZeroDivisionError):
            write_half(target, ZeroDivisionError())
        assert target.read_text() == "old"
        assert list(tmp_path.iterdir()) == [target]

    def test_an_error_leaves_no_new_file(self, tmp_path):
        with pytest.raises(KeyboardInterrupt):
            write_half(tmp_path / "a.csv", KeyboardInterrupt())
        assert list(tmp_path.iterdir()) == []

    def test_full_disk(self, tmp_path):
        with pytest.raises(InputError, match=r"Cannot write .*a\.csv \(No space left on device\)"):
            write_half(tmp_path / "a.csv", OSError(28, "No space left on device"))
        assert list(tmp_path.iterdir()) == []

    def test_missing_folder(self, tmp_path):
        with (
            pytest.raises(InputError, match=r"The folder .*nowhere does not exist; make it first"),
            atomic_path(tmp_path / "nowhere" / "a.csv"),
        ):
            pass

    def test_a_file_where_the_folder_should_be(self, tmp_path):
        (tmp_path / "file").touch()
        with (
            pytest.raises(InputError, match="does not exist; make it first"),
            atomic_path(tmp_path / "file" / "a.csv"),
        ):
            pass

    def test_a_folder_where_the_file_should_be(self, tmp_path):
        with (
            pytest.raises(InputError, match="is a folder; name a file inside it"),
            atomic_path(tmp_path),
        ):
            pass

    def test_read_only_folder(self, tmp_path, monkeypatch):
        error = PermissionError(13, "Permission denied")
        monkeypatch.setattr("tempfile.mkdtemp", failing(error))
        with (
            pytest.raises(InputError, match=r"Cannot write into .* \(Permission denied\)"),
            atomic_path(tmp_path / "a.csv"),
        ):
            pass

    def test_long_names(self, tmp_path):
        target = tmp_path / ("a" * 250)
        with atomic_path(target) as temporary:
            temporary.write_text("x")
        assert target.read_text() == "x"


def test_a_stream_that_ends_reads_as_ended(tmp_path):
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"owl"))
    with open_binary(tmp_path / "a.gz") as file:
        assert isinstance(file, io.BufferedReader)
        assert file.read() == b"owl"
        assert file.read() == b""


def test_the_lie_of_these_tests_is_one():
    with pytest.raises(zlib.error):
        zlib.decompress(lying_gzip(bytes(100), stated=10), wbits=31)
