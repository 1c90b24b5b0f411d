"""``cgmvae fit`` by torchrun: one model, one report, one line where something is wrong."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from cgmvae import load
from cgmvae.data import make_survey

TORCHRUN = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1"]
FIT = ["-m", "cgmvae", "fit", "survey.npz", "--epochs", "2", "--members", "1", "--device", "cpu"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("processes")
    survey, _ = make_survey(300, 6, 5, seed=0)
    np.savez(folder / "survey.npz", X=survey.X, Y=survey.Y)
    return folder


def run(folder, *arguments):
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_two_processes_write_the_model_of_one(folder):
    alone = run(folder, *FIT, "--out", "model.cgmvae", "--overwrite")
    assert alone.returncode == 0, alone.stderr
    expected = load(folder / "model.cgmvae")
    (folder / "model.cgmvae").unlink()
    together = run(folder, *TORCHRUN, *FIT, "--out", "model.cgmvae")
    assert together.returncode == 0, together.stderr
    assert together.stdout == alone.stdout
    found = load(folder / "model.cgmvae")
    weights = found.network_.state_dict(), expected.network_.state_dict()
    torch.testing.assert_close(*weights, rtol=1e-3, atol=1e-4)
    assert sorted(path.name for path in folder.iterdir()) == ["model.cgmvae", "survey.npz"]


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ([*FIT, "--out", "nowhere/model.cgmvae"], "The folder nowhere does not exist"),
        (["-m", "cgmvae", "methods"], "Only 'cgmvae fit' can run in several processes"),
    ],
)
def test_what_is_wrong_is_said_once(folder, command, line):
    found = run(folder, *TORCHRUN, *command)
    assert found.returncode != 0
    assert found.stderr.count("Error: ") - found.stderr.count("ChildFailedError: ") == 1
    assert f"Error: {line}" in found.stderr
    assert found.stdout == ""
