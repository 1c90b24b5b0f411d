"""``cgmvae serve``: a process that answers, logs little, and ends when it is told to."""

import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import pytest

import cgmvae as library
from cgmvae.data import make_survey

KEY = "a-key-of-enough-length"


@pytest.fixture
def survey(tmp_path, monkeypatch):
    """Fit birds.cgmvae in an empty folder; give the rows."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CGMVAE_API_KEY", raising=False)
    survey, _ = make_survey(250, 4, 5, seed=0)
    library.BinaryRelevance(random_state=0).fit(survey.X, survey).save("birds.cgmvae")
    return survey


@contextmanager
def serving(*options):
    """Run the command in a process of its own; give a client, and the process."""
    script = Path(sys.executable).with_name("cgmvae")
    command = [sys.executable, script, "serve", "birds.cgmvae", "--port", "0", *options]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, encoding="utf-8") as process:
        try:
            line = process.stdout.readline()
            found = re.fullmatch(
                r"Serving birds.cgmvae at (http://\S+); press Ctrl-C to stop.\n", line
            )
            address = found[1].replace("0.0.0.0", "127.0.0.1")
            with httpx.Client(base_url=address, timeout=60) as client:
                yield client, process
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("sign", "host", "warning"),
    [
        (signal.SIGTERM, "127.0.0.1", ""),
        (signal.SIGINT, "0.0.0.0", "Warning: Anyone who can reach 0.0.0.0 .*\n"),
    ],
)
def test_it_answers_until_it_is_told_to_end(survey, sign, host, warning):
    X = survey.X[:5].astype(np.float32)
    expected = library.load("birds.cgmvae").label_sets(X)
    with serving("--host", host) as (client, process):
        found = client.post("/predict?secret=1", json={"rows": X.tolist()}).json()
        assert [row["labels"] for row in found["predictions"]] == expected
        assert client.get("/health").json()["ready"] is True
        process.send_signal(sign)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "Stopped.\n")
    line = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ status=200 in=\d+ out=\d+ ms=[\d.]+\n"
    assert re.fullmatch(warning + line * 2, err)


def test_a_key_from_a_file(survey, tmp_path):
    (tmp_path / "key").write_text(f"{KEY}\n")
    with serving("--api-key-file", "key", "--quiet", "--host", "0.0.0.0") as (client, process):
        assert client.get("/labels").status_code == 401
        assert client.get("/labels", headers={"X-API-Key": KEY}).status_code == 200
        process.terminate()
        assert process.communicate(timeout=60) == ("Stopped.\n", "")


def test_wrong_use_is_answered_in_one_line(refused, survey, tmp_path, monkeypatch):
    (tmp_path / "short").write_text("short\n")
    (tmp_path / "other").write_bytes(b"\xff" * 40)
    (tmp_path / "long").write_text("a" * 5000)
    wrong = {
        "missing.cgmvae does not exist": ("missing.cgmvae",),
        "short": ("short",),
        "--port": ("birds.cgmvae", "--port", "70000"),
        "no address 'nowhere.invalid'": ("birds.cgmvae", "--host", "nowhere.invalid"),
        "Cannot listen at 192.0.2.1": ("birds.cgmvae", "--host", "192.0.2.1"),
        "missing does not exist": ("birds.cgmvae", "--api-key-file", "missing"),
        "at least 16 characters": ("birds.cgmvae", "--api-key-file", "short"),
        "not a readable key file": ("birds.cgmvae", "--api-key-file", "other"),
        "long is too long": ("birds.cgmvae", "--api-key-file", "long"),
        "--max-rows": ("birds.cgmvae", "--max-rows", "0"),
    }
    for words, arguments in wrong.items():
        assert words in refused("serve", *arguments), words
    monkeypatch.setenv("CGMVAE_API_KEY", "")
    assert "at least 16 characters" in refused("serve", "birds.cgmvae")


BLOCKED = """
import sys
sys.modules[{package!r}] = None
from cgmvae.cli.main import run
run()
"""


@pytest.mark.parametrize("package", ["fastapi", "uvicorn"])
def test_a_missing_package_is_answered_with_what_to_install(shell, survey, package):
    outcome = shell("-c", BLOCKED.format(package=package), "serve", "birds.cgmvae")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == 'Error: Serving needs more packages: pip install "cgmvae[serve]"\n'
