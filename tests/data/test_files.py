import gzip
from pathlib import Path

import pytest

from cgmvae.data.files import (
    atomic_path,
    atomic_paths,
    check_file,
    data_name,
    data_suffix,
    open_text,
    refuse_packed,
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

    def test_name_that_is_too_long(self, tmp_path):
        with (
            pytest.raises(InputError, match=r"Cannot write .*aaa \(File name too long\); choose"),
            atomic_path(tmp_path / ("a" * 300)),
        ):
            pass
        assert list(tmp_path.iterdir()) == []


class TestAtomicPaths:
    @staticmethod
    def targets(folder, *, old):
        """Return three paths, of which those numbered by ``old`` exist."""
        paths = [folder / name for name in ("a", "b", "c")]
        for place in old:
            paths[place].write_text(f"old {place}")
        return paths

    @staticmethod
    def write_new(targets):
        with atomic_paths(*targets) as temporaries:
            for temporary in temporaries:
                temporary.write_text("new")

    @staticmethod
    def contents(folder):
        return {path.name: path.read_text() for path in folder.iterdir()}

    @pytest.mark.parametrize("old", [(), (1,), (0, 1, 2)])
    def test_all_take_their_places(self, tmp_path, old):
        targets = self.targets(tmp_path, old=old)
        before = self.contents(tmp_path)
        with atomic_paths(*targets) as temporaries:
            for temporary in temporaries:
                temporary.write_text("new")
            temporaries_at = [temporary.parent.parent for temporary in temporaries]
            assert {name: (tmp_path / name).read_text() for name in before} == before
        assert temporaries_at == [tmp_path] * 3
        assert self.contents(tmp_path) == dict.fromkeys("abc", "new")

    @pytest.mark.parametrize("old", [(), (1,), (0, 1, 2)])
    @pytest.mark.parametrize("failing_place", ["a", "b", "c"])
    def test_one_that_cannot_be_replaced_leaves_all_as_they_were(
        self, tmp_path, monkeypatch, old, failing_place
    ):
        targets = self.targets(tmp_path, old=old)
        before = self.contents(tmp_path)
        replace = Path.replace

        def fail_once(path, target):
            if Path(target).name == failing_place and path.read_text() == "new":
                raise PermissionError(1, "Operation not permitted")
            return replace(path, target)

        monkeypatch.setattr(Path, "replace", fail_once)
        with pytest.raises(InputError, match=r"/a and .*/b and .*/c \(Operation not permitted\)"):
            self.write_new(targets)
        assert self.contents(tmp_path) == before

    def test_an_interruption_between_the_places(self, tmp_path, monkeypatch):
        targets = self.targets(tmp_path, old=(0, 2))
        before = self.contents(tmp_path)
        replace = Path.replace

        def interrupt(path, target):
            replace(path, target)
            if Path(target).name == "b":
                raise KeyboardInterrupt

        monkeypatch.setattr(Path, "replace", interrupt)
        with pytest.raises(KeyboardInterrupt):
            self.write_new(targets)
        assert self.contents(tmp_path) == before

    def test_a_file_that_the_block_did_not_write(self, tmp_path):
        targets = self.targets(tmp_path, old=(0,))
        with pytest.raises(InputError, match="Cannot write"), atomic_paths(*targets) as temporaries:
            temporaries[0].write_text("new")
        assert self.contents(tmp_path) == {"a": "old 0"}
