"""Where a run says that it was made."""

import shutil
import subprocess

import pytest

from cgmvae.studies import environment


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")
@pytest.mark.parametrize("own", [True, False])
def test_the_commit_is_that_of_the_package_s_own_tree(own, tmp_path, monkeypatch):
    """A package that is installed inside somebody's repository is not of that commit."""
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init"], [*identity, "commit", "--allow-empty", "-m", "theirs"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True, capture_output=True)
    place = tmp_path / ("src" if own else ".venv/lib/site-packages") / "cgmvae" / "studies"
    place.mkdir(parents=True)
    monkeypatch.setattr(environment, "__file__", str(place / "environment.py"))
    monkeypatch.delenv("CGMVAE_COMMIT", raising=False)
    commit = environment._commit.__wrapped__()
    assert (commit is not None) == own


def test_a_commit_that_is_given_is_taken(monkeypatch):
    monkeypatch.setenv("CGMVAE_COMMIT", "abc")
    assert environment._commit.__wrapped__() == "abc"
