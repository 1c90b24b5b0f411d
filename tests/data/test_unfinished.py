"""Remnants of killed processes are removed, and nothing else is."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cgmvae.data import unfinished
from cgmvae.data.files import atomic_path


def killed_while_writing(path: Path) -> Path:
    """Return what a process leaves that is killed before its file has taken its place."""
    code = (
        "import os, signal\n"
        "from cgmvae.data.files import atomic_path\n"
        f"with atomic_path({str(path)!r}) as temporary:\n"
        "    temporary.write_text('half')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False)
    assert done.returncode == -signal.SIGKILL
    (remnant,) = path.parent.glob(f".*{unfinished.SUFFIX}")
    return remnant


def write(path: Path, text: str = "whole") -> None:
    with atomic_path(path) as temporary:
        temporary.write_text(text)


def test_a_remnant_is_removed_by_the_next_that_writes_there(tmp_path):
    target = tmp_path / "model.cgmvae"
    remnant = killed_while_writing(target)
    assert [path.read_text() for path in remnant.iterdir()] == ["half"]
    write(tmp_path / "other")
    assert remnant.exists()
    write(target)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.cgmvae", "other"]


def test_what_is_being_written_is_left_alone(tmp_path):
    target = tmp_path / "a"
    with unfinished.unfinished_folder(target) as theirs:
        (theirs / "a").write_text("half")
        write(target)
        assert (theirs / "a").read_text() == "half"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("name", [".a.abcdefgh", ".a.abcdefg.unfinished", ".b.abcdefgh.unfinished"])
def test_folders_of_the_user_are_left_alone(tmp_path, name):
    (tmp_path / name).mkdir()
    outside = tmp_path / "elsewhere"
    outside.mkdir()
    (tmp_path / ".a.abcdefgh.unfinished").symlink_to(outside)
    write(tmp_path / "a")
    assert (tmp_path / name).is_dir()
    assert outside.is_dir()


def test_a_folder_that_was_taken_for_a_remnant_is_made_again(tmp_path, monkeypatch):
    lock, made = unfinished._lock, []

    def removed_before(folder, *, wait):
        made.append(folder)
        if len(made) == 1:
            folder.rmdir()
        return lock(folder, wait=wait)

    monkeypatch.setattr(unfinished, "_lock", removed_before)
    with atomic_path(tmp_path / "a") as temporary:
        temporary.write_text("x")
        assert temporary.parent == made[1]
    assert (tmp_path / "a").read_text() == "x"


def test_without_locks_nothing_is_removed(tmp_path, monkeypatch):
    remnant = killed_while_writing(tmp_path / "a")
    monkeypatch.setattr(unfinished, "fcntl", None)
    write(tmp_path / "a")
    assert remnant.exists()
    assert (tmp_path / "a").read_text() == "whole"
