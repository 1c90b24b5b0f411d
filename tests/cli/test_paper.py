"""``cgmvae paper``: options, warnings and errors; what it writes is tested with the studies."""

import pytest

from cgmvae.studies import chapters
from cgmvae.studies.spec import Scope


@pytest.fixture
def small(monkeypatch):
    """Leave the methods' chapter, of one method that takes a second."""
    scope = Scope(quick=True, methods=("mlknn",), splits=(1, 2), seeds=(0,))
    own = chapters.CHAPTERS[1]._replace(quick=scope)
    monkeypatch.setattr(chapters, "CHAPTERS", (own,))


def test_it_writes_pages_and_resumes(cgmvae, small, tmp_path):
    command = ("paper", "--quick", "--data", "yeast", "--out", tmp_path)
    outcome = cgmvae(*command, "--minutes", "0.01", "--workers", "1")
    first = (tmp_path / "methods.md").read_text()
    if outcome.code:  # on a slow machine
        assert "Not run for lack of time, or failed: methods:" in outcome.err
        assert "Not run yet" in first
    again = cgmvae(*command)
    assert (again.code, again.err) == (0, "paper …\n" if outcome.code else "")
    assert again.out == f"Wrote {tmp_path / 'README.md'} and the pages that it lists.\n"
    page = (tmp_path / "methods.md").read_text()
    pages = cgmvae(*command, "--pages-only")
    assert (pages.code, pages.out) == (0, again.out)
    assert "| ML-kNN, not tuned |" in page
    assert "Not run yet" not in page


def test_wrong_use_is_one_sentence_before_anything_is_written(refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    for words, arguments in {
        "did you mean yeast": ("--data", "yeats"),
        "ebird is not available: put": ("--data", "ebird"),
        "--minutes": ("--minutes", "0"),
        "There is no device 'tpu9'": ("--device", "tpu9"),
        "Cannot create the folder file": ("--out", "file"),
    }.items():
        assert words in refused("paper", *arguments)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
