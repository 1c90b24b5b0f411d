"""Opening files, limits on compressed ones, and atomic writes."""

import bz2
import gzip
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock
from hypothesis import given, settings
from hypothesis import strategies as st

from cgmvae.data import files
from cgmvae.data.files import (
    TEMPORARY_SUFFIX,
    atomic_path,
    check_file,
    check_unpacked,
    create_binary,
    data_name,
    data_suffix,
    open_binary,
    open_text,
    parse_limited_json,
)
from cgmvae.errors import InputError


def failing(error: OSError):
    def fail(*_args, **_kwargs):
        raise error

    return fail


def write_half(target: Path, error: BaseException) -> None:
    with atomic_path(target) as temporary:
        temporary.write_text("half")
        raise error


class TestCheckFile:
    def test_missing_file_folder_and_empty_file(self, tmp_path):
        (tmp_path / "a.csv").touch()
        for name, problem in {
            "nothing.csv": r"nothing\.csv does not exist; check the path",
            ".": "is a folder; name the file inside it",
            "a.csv": "is empty; fetch or write it again",
        }.items():
            with pytest.raises(InputError, match=problem):
                check_file(tmp_path / name)

    def test_name_that_is_too_long(self, tmp_path):
        with pytest.raises(InputError, match=r"cannot be read \(File name too long\)"):
            check_file(tmp_path / ("a" * 300))

    def test_file_without_permission(self, tmp_path, monkeypatch):
        (tmp_path / "a.csv").write_bytes(b"x")
        monkeypatch.setattr(Path, "open", failing(PermissionError(13, "Permission denied")))
        with pytest.raises(InputError, match=r"cannot be read \(Permission denied\)"):
            check_file(tmp_path / "a.csv")


class TestOpenText:
    def test_utf8_with_a_byte_order_mark(self, tmp_path):
        (tmp_path / "a.txt").write_bytes("\ufeffcafé".encode())
        with open_text(tmp_path / "a.txt") as text:
            assert text.read() == "café"

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
def test_suffix_and_name_ignore_compression(path, suffix, name):
    assert data_suffix(path) == suffix
    assert data_name(path) == name


def read_bytes(path: Path) -> bytes:
    with open_binary(path) as file:
        return file.read()


class TestCompression:
    @settings(max_examples=30, deadline=None)
    @given(
        content=st.binary(min_size=1, max_size=2000), suffix=st.sampled_from(["", ".gz", ".bz2"])
    )
    def test_gives_what_was_created(self, tmp_path_factory, content, suffix):
        path = tmp_path_factory.mktemp("compressed") / f"a.csv{suffix}"
        with create_binary(path) as file:
            file.write(content)
        assert read_bytes(path) == content

    def test_gzip_of_several_members_with_padding(self, tmp_path):
        parts = [b"owl\n" * 1000, b"hawk\n", b"", b"wren"]
        members = b"".join(gzip.compress(part) + bytes(95) for part in parts)
        (tmp_path / "a.gz").write_bytes(members)
        assert read_bytes(tmp_path / "a.gz") == b"".join(parts)

    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("a.gz", gzip.compress(bytes(range(256)) * 4)[:12]),
            ("a.gz", gzip.compress(b"owl")[:-1]),
            ("a.gz", gzip.compress(b"owl")[:-8] + bytes(8)),
            ("a.gz", b"this is no archive at all"),
            ("a.bz2", b"this is no archive at all"),
            ("a.bz2", bz2.compress(bytes(range(256)) * 4)[:100]),
        ],
        ids=["truncated", "no trailer", "wrong checksum", "no gzip", "no bzip2", "truncated bzip2"],
    )
    def test_damage(self, tmp_path, name, content):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=r"is damaged .*; fetch the file again"):
            read_bytes(tmp_path / name)

    @pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress)])
    def test_no_more_than_the_limit_is_unpacked(self, tmp_path, monkeypatch, suffix, pack):
        monkeypatch.setattr(files, "UNPACKED_LIMIT", 1000)
        path = tmp_path / f"a{suffix}"
        path.write_bytes(pack(bytes(1000)))
        assert len(read_bytes(path)) == 1000
        path.write_bytes(pack(bytes(1001)))
        with pytest.raises(InputError, match="unpacks to more than the 1,000 bytes"):
            read_bytes(path)

    def test_a_bomb_is_stopped_by_its_own_size(self, tmp_path, monkeypatch):
        monkeypatch.setattr(files, "_UNPACKED_FREE", 1000)
        path = tmp_path / "a.gz"
        path.write_bytes(gzip.compress(bytes(10**6)))
        with (
            open_binary(path) as file,
            pytest.raises(InputError, match=r"more than the .* bytes that are accepted"),
        ):
            file.read()
        limit = 100 * path.stat().st_size
        assert limit < 10**6
        monkeypatch.setattr(files, "UNPACKED_LIMIT", 10)
        check_unpacked(path, limit, in_blocks=True)
        for n_bytes, in_blocks in ((limit + 1, True), (11, False)):
            with pytest.raises(InputError, match="divide it into several files"):
                check_unpacked(path, n_bytes, in_blocks=in_blocks)


class TestLimitedJson:
    @pytest.mark.parametrize(
        "text",
        [b"{", b"[" * 200_000, b"[" * 40 + b"]" * 40, b"[" + b"{}," * 2_500_000 + b"{}]", b"\xff"],
    )
    def test_what_is_not(self, text):
        with pytest.raises(ValueError, match=r"too (many|deep)|Expecting|decode"):
            parse_limited_json(text)


class TestAtomicPath:
    def test_permissions_stay(self, tmp_path):
        target = tmp_path / "a.txt"
        target.write_text("old")
        target.chmod(0o600)
        with atomic_path(target) as temporary:
            temporary.write_text("new")
        assert target.stat().st_mode & 0o777 == 0o600
        assert target.read_text() == "new"

    def test_a_link_stays_a_link(self, tmp_path):
        (tmp_path / "kept").mkdir()
        link, target = tmp_path / "a.txt.gz", tmp_path / "kept" / "b"
        link.symlink_to(target)
        for text in (b"first", b"second"):
            with atomic_path(link) as temporary, create_binary(temporary) as file:
                file.write(text)
            assert link.is_symlink()
            assert gzip.decompress(target.read_bytes()) == text
        assert sorted(tmp_path.rglob("*")) == [link, tmp_path / "kept", target]

    def test_the_folder_is_flushed_after_the_file_took_its_place(self, tmp_path, monkeypatch):
        flushed = []

        def fsync(descriptor):
            name = Path(f"/proc/self/fd/{descriptor}").readlink()
            flushed.append((name.name, (tmp_path / "a.txt").exists()))

        monkeypatch.setattr(os, "fsync", fsync)
        with atomic_path(tmp_path / "a.txt") as temporary:
            temporary.write_text("new")
        assert flushed == [("a.txt", False), (tmp_path.name, True)]

    def test_an_error_leaves_the_old_file_and_nothing_else(self, tmp_path):
        target = tmp_path / "a.csv"
        target.write_text("old")
        with pytest.raises(ZeroDivisionError):
            write_half(target, ZeroDivisionError())
        assert target.read_text() == "old"
        assert list(tmp_path.iterdir()) == [target]

    def test_full_disk(self, tmp_path):
        with pytest.raises(InputError, match=r"Cannot write .*a\.csv \(No space left on device\)"):
            write_half(tmp_path / "a.csv", OSError(28, "No space left on device"))
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("nowhere/a.csv", r"The folder .*nowhere does not exist"),
            (".", "is a folder; name a file inside it"),
            ("a" * 300, r"Cannot write .*aaa \(File name too long\); choose"),
        ],
    )
    def test_paths_that_cannot_be_written(self, tmp_path, name, message):
        with pytest.raises(InputError, match=message), atomic_path(tmp_path / name):
            pass
        assert list(tmp_path.iterdir()) == []

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

    def test_a_file_that_the_block_did_not_write(self, tmp_path):
        with pytest.raises(InputError, match="Cannot write"), atomic_path(tmp_path / "a.csv"):
            pass
        assert list(tmp_path.iterdir()) == []


def killed_while_writing(path: Path) -> Path:
    """Return the folder that a process leaves when it is killed while it writes a file."""
    code = (
        "import os, signal\n"
        "from cgmvae.data.files import atomic_path\n"
        f"with atomic_path({str(path)!r}) as temporary:\n"
        "    temporary.write_text('half')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False)
    assert done.returncode == -signal.SIGKILL
    (folder,) = path.parent.glob(f".*{TEMPORARY_SUFFIX}")
    return folder


def write(path: Path) -> None:
    with atomic_path(path) as temporary:
        temporary.write_text("whole")


class TestTemporaryFolders:
    def test_that_of_a_killed_process_is_removed_by_the_next_writer(self, tmp_path, monkeypatch):
        target = tmp_path / "model.cgmvae"
        folder = killed_while_writing(target)
        assert (folder / target.name).read_text() == "half"
        write(tmp_path / "other")
        assert folder.exists()
        with monkeypatch.context() as patch:  # a file system without locks

            def fail(*_args, **_kwargs):
                raise NotImplementedError

            patch.setattr(files, "FileLock", fail)
            write(target)
        assert folder.exists()
        write(target)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["model.cgmvae", "other"]

    def test_that_of_a_process_killed_before_it_held_the_lock_is_removed(self, tmp_path):
        (tmp_path / f".a.abcdefgh{TEMPORARY_SUFFIX}").mkdir()
        write(tmp_path / "a")
        assert [path.name for path in tmp_path.iterdir()] == ["a"]

    def test_one_that_another_process_removes_before_the_lock_is_held(self, tmp_path, monkeypatch):
        class Lock(FileLock):
            def acquire(self, *args, **kwargs):
                Path(self.lock_file).parent.rmdir()
                return super().acquire(*args, **kwargs)

        monkeypatch.setattr(files, "FileLock", Lock)
        write(tmp_path / "a")
        assert [path.name for path in tmp_path.iterdir()] == ["a"]

    def test_that_of_a_process_at_work_is_left_alone(self, tmp_path):
        target = tmp_path / "a"
        with atomic_path(target) as theirs:
            theirs.write_text("half")
            write(target)
            assert theirs.read_text() == "half"
        assert [path.name for path in tmp_path.iterdir()] == ["a"]
        assert target.read_text() == "half"

    @pytest.mark.parametrize("name", [".a.abcdefgh", ".b.abcdefgh.unfinished"])
    def test_folders_of_the_user_are_left_alone(self, tmp_path, name):
        (tmp_path / name).mkdir()
        outside = tmp_path / "elsewhere"
        outside.mkdir()
        (tmp_path / ".a.abcdefgh.unfinished").symlink_to(outside)
        write(tmp_path / "a")
        assert (tmp_path / name).is_dir()
        assert outside.is_dir()
