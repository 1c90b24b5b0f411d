"""``cgmvae fit`` started by torchrun: one model, one report, one error message."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from cgmvae import load
from cgmvae.data import make_survey

TORCHRUN = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1"]
FIT = ["fit", "survey.npz", "--epochs", "2", "--members", "1", "--device", "cpu"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    survey, _ = make_survey(300, 6, 5, seed=0)
    np.savez("survey.npz", X=survey.X, Y=survey.Y)
    return tmp_path


def run_in_two_processes(*arguments):
    return subprocess.run(
        [sys.executable, *TORCHRUN, "-m", "cgmvae", *arguments],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_two_processes_write_the_model_of_one(succeeds, folder):
    alone = succeeds(*FIT, "--out", "model.cgmvae")
    expected = load("model.cgmvae")
    (folder / "model.cgmvae").unlink()
    together = run_in_two_processes(*FIT, "--out", "model.cgmvae")
    assert together.returncode == 0, together.stderr
    assert together.stdout == alone
    weights = load("model.cgmvae").network_.state_dict(), expected.network_.state_dict()
    torch.testing.assert_close(*weights, rtol=1e-3, atol=1e-4)
    assert sorted(path.name for path in folder.iterdir()) == ["model.cgmvae", "survey.npz"]


@pytest.mark.slow
def test_an_error_is_printed_once(folder):
    found = run_in_two_processes(*FIT, "--out", "nowhere/model.cgmvae")
    assert found.returncode != 0
    assert found.stderr.count("Error: ") - found.stderr.count("ChildFailedError: ") == 1
    assert "Error: The folder nowhere does not exist" in found.stderr
    assert found.stdout == ""


def test_other_commands_are_not_distributed(refused, monkeypatch):
    class Group:
        def is_first(self, _):
            return True

    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setattr("cgmvae.training.distributed.current_group", Group)
    assert "Only 'cgmvae fit' can run in several processes" in refused("methods")
