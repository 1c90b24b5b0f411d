"""How the tests call the command: as its users do, and with what they see."""

import math
import os
import subprocess
import sys
import warnings
from dataclasses import dataclass, replace

import pytest

import cgmvae as library
from cgmvae.cli import console
from cgmvae.cli.main import run
from cgmvae.data import make_survey, readers

LABELS = ("owl, gray", "café [x]", " a;b ", 'say "hi"', "日本")
FEATURES = ("tree height (m)", "%sand", "α", "[b]x[/b]", "f,e", "line\nbreak")


@dataclass(frozen=True)
class Outcome:
    """What one call of the command printed, and its exit code."""

    code: int
    out: str
    err: str


def contents(folder):
    """Return everything below a folder: names, and the bytes of files."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


@pytest.fixture(autouse=True)
def no_stored_data(tmp_path_factory, monkeypatch):
    """Let no data set of this machine be found but the embedded one; nothing is downloaded."""
    monkeypatch.setenv("CGMVAE_CACHE", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.delenv("CGMVAE_DATA", raising=False)


@pytest.fixture
def survey(tmp_path, monkeypatch):
    """Work in an empty folder with birds.csv and birds.npz, of odd names; give the data set."""
    monkeypatch.chdir(tmp_path)
    survey, _ = make_survey(150, len(FEATURES), len(LABELS), seed=0)
    survey = replace(survey, label_names=LABELS, feature_names=FEATURES, groups=None)
    for name in ("birds.csv", "birds.npz"):
        readers.write(survey, name)
    return survey


@pytest.fixture
def model(survey):
    """Fit and save birds.cgmvae; return the model."""
    model = library.BinaryRelevance(random_state=0).fit(survey.X, survey)
    model.save("birds.cgmvae")
    return model


@pytest.fixture
def cgmvae(monkeypatch, capsys):
    """Call ``cgmvae …`` in this process, through the very function that the script calls.

    On a slow machine it would write lines about its progress.
    """
    monkeypatch.setattr(console, "SECONDS_BETWEEN_LINES", math.inf)

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["cgmvae", *map(str, arguments)])
        capsys.readouterr()
        with warnings.catch_warnings(), pytest.raises(SystemExit) as ended:
            run()
        out, err = capsys.readouterr()
        return Outcome(ended.value.code or 0, out, err)

    return call


@pytest.fixture
def succeeds(cgmvae):
    """Call a command that must end well and say nothing on stderr; give what it printed."""

    def call(*arguments):
        outcome = cgmvae(*arguments)
        assert (outcome.code, outcome.err) == (0, "")
        return outcome.out

    return call


@pytest.fixture
def refused(cgmvae):
    """Call a command that must refuse its input; give the sentence that says why."""

    def call(*arguments):
        outcome = cgmvae(*arguments)
        assert (outcome.code, outcome.out) == (2, "")
        assert outcome.err.startswith("Error: ")
        assert outcome.err.endswith("\n")
        assert outcome.err.count("\n") == 1, outcome.err
        return outcome.err.removeprefix("Error: ")[:-1]

    return call


@pytest.fixture
def shell():
    """Run Python in a process of its own, without a terminal."""

    def call(*arguments, **environment):
        done = subprocess.run(
            [sys.executable, *map(str, arguments)],
            env={**os.environ, "PYTHONIOENCODING": "utf-8", **environment},
            capture_output=True,
            encoding="utf-8",
            timeout=120,
            check=False,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    return call
