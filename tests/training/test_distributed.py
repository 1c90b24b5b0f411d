"""Two processes give the weights of one; if one ends, the other ends with an error."""

import os
import pickle
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import shared_cases
import torch

from cgmvae.errors import InputError
from cgmvae.nn.batch import BatchShard
from cgmvae.training.checkpoint import Checkpoint
from cgmvae.training.distributed import ALONE, Group, _is_called_for, current_group
from cgmvae.training.step import _shard

EXACT, DOUBLE = {"rtol": 0, "atol": 0}, {"rtol": 1e-9, "atol": 1e-9}

#: A library of matrix products rounds by where in memory a member lies.
SINGLE = {"rtol": 1e-4, "atol": 1e-5}


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def start(rank: int, port: int, folder: Path) -> subprocess.Popen:
    told = {"RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    environment = os.environ | {name: str(value) for name, value in told.items()}
    command = [sys.executable, shared_cases.__file__, str(folder)]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Run all cases in two processes; return their folder, exit codes and stderr."""
    folder, port = tmp_path_factory.mktemp("shared"), free_port()
    shared_cases.stopped(ALONE, folder, "by one")
    processes = [start(rank, port, folder) for rank in (0, 1)]
    said = [process.communicate(timeout=400)[1] for process in processes]
    return folder, [process.returncode for process in processes], said


@pytest.fixture(scope="module")
def results(ran):
    folder, _, said = ran
    files = [folder / "results 0", folder / "results 1"]
    assert all(file.exists() for file in files), said
    return [pickle.loads(file.read_bytes()) for file in files]


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    shared_cases.stopped(ALONE, folder, "by one")
    return shared_cases.cases(ALONE, folder)


def assert_close(found, wanted, tolerance):
    """Compare arrays in tuples, lists and mappings."""
    if isinstance(wanted, dict):
        assert found.keys() == wanted.keys()
        found, wanted = list(found.values()), list(wanted.values())
    if isinstance(wanted, tuple | list):
        for a, b in zip(found, wanted, strict=True):
            assert_close(a, b, tolerance)
    elif isinstance(wanted, str):
        assert found == wanted
    else:
        np.testing.assert_allclose(found, wanted, **tolerance)


@pytest.mark.parametrize(
    ("case", "tolerance"),
    [
        ("rows", DOUBLE),
        ("rows, one left out", DOUBLE),
        ("continued", DOUBLE),
        ("one member", SINGLE),
        ("members", SINGLE),
        ("whole batches", EXACT),
    ],
)
def test_two_processes_give_the_weights_of_one(results, expected, case, tolerance):
    for found in results:
        assert_close(found[case], expected[case], tolerance)


def test_a_failure_is_shared_and_reported_once(results, expected):
    *wanted, messages = expected["failing"]
    assert len(messages) == 1
    assert f"row {shared_cases.ROWS[30]} is not finite" in messages[0]
    for found, said in zip(results, (messages, []), strict=True):
        assert_close(found["failing"], [*wanted, said], DOUBLE)


def test_one_process_resumes_the_training_of_two(ran, expected):
    folder, *_ = ran
    found = shared_cases.continued(ALONE, folder, "by two")
    assert_close(found, expected["rows"], DOUBLE)


def test_one_process_reads_members_trained_by_two(ran, expected):
    folder, *_ = ran
    assert {path.name for path in folder.glob("members*[0-9]")} == {"members.0-1", "members.2-3"}
    epochs = []
    found = shared_cases.estimated(
        n_members=4,
        checkpoint=Checkpoint(folder / "members"),
        progress=lambda *told: epochs.append(told),
    )
    assert epochs == []
    assert_close(found, expected["members"], SINGLE)


def test_the_remaining_process_ends_with_a_clear_error(ran):
    folder, codes, said = ran
    assert codes == [0, -signal.SIGKILL], said
    assert "Another process of this training has ended" in (folder / "left alone").read_text()


def test_a_single_process(monkeypatch):
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    group = current_group()
    assert (group.rank, group.size, group.leads) == (0, 1, True)
    tensor = torch.ones(2)
    group.sum_(tensor)
    group.broadcast_(tensor)
    assert tensor.tolist() == [1, 1]
    assert group.gather("mine") == ["mine"]
    assert group.broadcast(lambda: 3) == 3
    assert group.is_first("anything")
    assert group.is_first("anything")


@pytest.mark.parametrize(
    ("variables", "called"),
    [
        ({}, True),
        ({"WORLD_SIZE": "1"}, False),
        ({"CGMVAE_JOINED": "1"}, False),  # by the process that started this one
        ({"CGMVAE_JOINED": str(os.getpid())}, True),
    ],
)
def test_detection_of_torchrun(monkeypatch, variables, called):
    told = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    monkeypatch.delenv("CGMVAE_JOINED", raising=False)
    for name, value in (told | variables).items():
        monkeypatch.setenv(name, value)
    assert _is_called_for() == called
    monkeypatch.delenv("RANK")
    assert not _is_called_for()


def test_shards_make_up_the_batch():
    shares = [BatchShard(first, 3, 7) for first in range(3)]
    assert [share.n_own for share in shares] == [3, 2, 2]
    whole = torch.arange(28).reshape(2, 14)
    together = torch.full_like(whole, -1).view(2, 7, 2)
    for share in shares:
        together[:, share.rows] = share.take(whole, 1).view(2, share.n_own, 2)
        assert share.size_of_whole(2 * share.n_own) == 14
    assert torch.equal(together.flatten(1), whole)


def test_a_batch_too_small_to_be_split():
    with pytest.raises(InputError, match="A batch of 2 rows cannot be shared by 3 processes"):
        _shard(Group(0, 3), 2)
