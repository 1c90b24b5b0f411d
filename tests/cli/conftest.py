"""How the tests call the command: as its users do, and with what they see."""

import os
import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import pytest

from cgmvae.cli.main import run


@dataclass(frozen=True)
class Outcome:
    """What one call of the command printed, and its exit code."""

    code: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def no_stored_data(tmp_path_factory, monkeypatch):
    """Let no data set of this machine be found but the embedded one; nothing is downloaded."""
    monkeypatch.setenv("CGMVAE_CACHE", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.delenv("CGMVAE_DATA", raising=False)


@pytest.fixture
def cgmvae(monkeypatch, capsys):
    """Call ``cgmvae …`` in this process, through the very function that the script calls."""

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


def check_refused(outcome):
    assert outcome.code == 2
    assert outcome.out == ""
    assert "Traceback" not in outcome.err
    assert outcome.err.endswith("\n")
    lines = outcome.err[:-1].split("\n")
    assert len(lines) == 1, outcome.err
    assert lines[0].startswith("Error: ")
    return lines[0].removeprefix("Error: ")


@pytest.fixture
def refused(cgmvae):
    """Call a command that must refuse its input; give the sentence that says why."""
    return lambda *arguments: check_refused(cgmvae(*arguments))


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


@pytest.fixture
def script_refused(shell):
    """As ``refused``, by the installed script in a process of its own."""
    script = Path(sys.executable).with_name("cgmvae")
    return lambda *arguments: check_refused(shell(script, *arguments))
