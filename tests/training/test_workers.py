"""Forked processes share a training: results, warnings, errors and progress are those of one."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import shared_cases
import torch
from torch import nn

from cgmvae.data import make_survey
from cgmvae.errors import InputError
from cgmvae.methods import CGMVAEClassifier, fit_together
from cgmvae.training import checkpoint, pack, workers
from cgmvae.training.checkpoint import Checkpoint
from cgmvae.training.workers import _MergedProgress, most_processes, run_shares

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux")

#: A library of matrix products rounds by where in memory a member lies.
SINGLE = {"rtol": 1e-4, "atol": 1e-5}


@pytest.fixture
def two_processes(monkeypatch):
    monkeypatch.setattr(pack, "most_processes", lambda: 2)


def test_every_share_has_a_process_and_a_thread_of_its_own():
    torch.set_num_threads(2)
    try:
        found = run_shares(lambda share, _: (share, os.getpid(), torch.get_num_threads()), 3)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert [share for share, *_ in found] == [0, 1, 2]
    assert [n_threads for *_, n_threads in found] == [1, 1, 1]
    assert len({process for _, process, _ in found}) == 3
    assert found[0][1] == os.getpid()


def test_shares_without_a_process_are_worked_on_here(monkeypatch):
    started = iter([os.fork, None])

    def fork():
        if (own := next(started)) is None:
            raise BlockingIOError("Resource temporarily unavailable")
        return own()

    monkeypatch.setattr(os, "fork", fork)
    told = []

    def work(share, report):
        report(1, 1, share / 10)
        return share, os.getpid()

    found = run_shares(work, 4, lambda *each: told.append(each))
    assert [share for share, _ in found] == [0, 1, 2, 3]
    assert [process == os.getpid() for _, process in found] == [True, False, True, True]
    assert told == [(1, 1, 0.3)]


def test_warnings_of_all_shares_are_given():
    def work(share, report):
        warnings.warn(f"from share {share}", RuntimeWarning, stacklevel=1)

    with pytest.warns(RuntimeWarning) as told:
        run_shares(work, 3)
    assert {str(each.message) for each in told} == {f"from share {share}" for share in range(3)}


@pytest.mark.parametrize("failing", [0, 1])
def test_an_error_of_a_share_ends_all(failing):
    def work(share, report):
        if share == failing:
            raise InputError("There is nothing to learn.", parameter="X")
        for epoch in range(1, 1000):
            report(epoch, 1000, 0.0)
            time.sleep(0.05)

    with pytest.raises(InputError, match="nothing to learn") as caught:
        run_shares(work, 2)
    assert caught.value.parameter == "X"
    assert multiprocessing.active_children() == []


def test_an_error_of_the_library_says_where_it_was():
    def work(share, report):
        if share:
            raise ZeroDivisionError("a bug")

    with pytest.raises(ZeroDivisionError, match="a bug") as caught:
        run_shares(work, 2)
    assert "in work" in caught.value.__notes__[0]


def test_an_error_that_pickle_cannot_send_keeps_its_words():
    class OwnError(Exception):
        pass

    def work(share, report):
        if share:
            raise OwnError("the encoder takes no such rows")

    with pytest.raises(RuntimeError, match="OwnError: the encoder takes no such rows"):
        run_shares(work, 2)


def test_a_share_that_was_killed():
    def work(share, report):
        if share:
            os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(InputError, match="was killed, perhaps because memory ran out"):
        run_shares(work, 2)


def test_a_killed_process_leaves_no_others_behind():
    program = """
import os, time
from cgmvae.training.workers import run_shares
def work(share, report):
    os.write(1, f"{os.getpid()}\\n".encode())
    time.sleep(300)
run_shares(work, 3)
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
    ) as process:
        started = [int(process.stdout.readline()) for _ in range(3)]
        process.kill()
    end = time.monotonic() + 30
    while running := [pid for pid in started if Path(f"/proc/{pid}").exists()]:
        assert time.monotonic() < end, running
        time.sleep(0.05)


def test_progress_is_that_of_the_slowest_share_at_work():
    told = []
    progress = _MergedProgress(2, lambda *each: told.append(each))
    progress.add(0, 4, 9, 0.5)  # resumed after epoch 3
    assert told == []
    progress.add(1, 4, 9, 0.6)
    progress.add(1, 5, 9, 0.7)
    progress.add(1, 6, 9, 0.7)
    assert told == [(4, 9, 0.6)]
    progress.end(0)  # stopped early: no member has improved
    assert told[1:] == [(5, 9, 0.7), (6, 9, 0.7)]
    progress.add(1, 7, 9, 0.8)
    progress.end(1)
    assert told[3:] == [(7, 9, 0.8)]


@pytest.mark.parametrize(
    ("system", "daemon", "gpu", "expected"),
    [
        ("linux", False, False, 3),
        ("darwin", False, False, 1),
        ("linux", True, False, 1),
        ("linux", False, True, 1),
    ],
)
def test_processes_are_forked_only_where_that_is_safe(monkeypatch, system, daemon, gpu, expected):
    monkeypatch.setattr(workers, "cpu_count", lambda: 4)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    monkeypatch.setattr(workers.sys, "platform", system)
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", daemon)
    assert most_processes() == expected


def test_two_processes_give_the_members_of_one(two_processes, monkeypatch):
    epochs = []
    found = shared_cases.estimated(n_members=5, progress=lambda *told: epochs.append(told[:2]))
    monkeypatch.setattr(pack, "most_processes", lambda: 1)
    wanted = shared_cases.estimated(n_members=5)
    assert epochs == [(epoch, 4) for epoch in range(1, 5)]
    for parts in zip(found, wanted, strict=True):
        flat = [list(part.values()) if isinstance(part, dict) else [part] for part in parts]
        for a, b in zip(*flat, strict=True):
            np.testing.assert_allclose(a, b, **SINGLE)


@pytest.mark.parametrize(
    ("n_members", "n_cores", "expected"), [(8, 2, 2), (8, 16, 8), (2, 16, 1), (1, 2, 1), (3, 2, 2)]
)
def test_number_of_processes(monkeypatch, n_members, n_cores, expected):
    monkeypatch.setattr(pack, "most_processes", lambda: n_cores)
    found = pack.Pack([pack.Task((), [None] * n_members)], None, None, device=torch.device("cpu"))
    assert found._n_shares() == expected


def test_estimators_that_are_fitted_together(two_processes, monkeypatch):
    def fitted():
        own = {"settings": shared_cases.SIZES, "embedding_dim": 16, "n_members": 3}
        models = [CGMVAEClassifier(**shared_cases.TINY | own) for _ in range(3)]
        data = [make_survey(n, 6, 5, seed=n)[0] for n in (80, 90, 100)]
        fit_together(models, [(each.X, each.Y, None) for each in data])
        return [model.predict_proba(each.X) for model, each in zip(models, data, strict=True)]

    found = fitted()
    monkeypatch.setattr(pack, "most_processes", lambda: 1)
    for a, b in zip(found, fitted(), strict=True):
        np.testing.assert_allclose(a, b, **SINGLE)


class Stopped(Exception):
    """A user has pressed Ctrl-C."""


def test_a_stopped_training_is_resumed_by_any_number_of_processes(
    two_processes, monkeypatch, tmp_path
):
    monkeypatch.setattr(checkpoint, "FIRST_SECONDS", 0.0)
    monkeypatch.setattr(checkpoint, "LEAST_SECONDS", 0.0)
    monkeypatch.setattr(checkpoint, "LARGEST_FRACTION", np.inf)

    def stop(epoch, *_):
        if epoch == 2:
            raise Stopped

    wanted = shared_cases.estimated(n_members=4)
    path = Checkpoint(tmp_path / "state")
    with pytest.raises(Stopped):
        shared_cases.estimated(n_members=4, checkpoint=path, progress=stop)
    assert multiprocessing.active_children() == []
    # A process may have been stopped while it wrote its next state.
    states = {each.name.removesuffix(".previous") for each in tmp_path.glob("state*")}
    assert states == {"state.0-1", "state.2-3"}
    monkeypatch.setattr(pack, "most_processes", lambda: 1)
    epochs = []
    found = shared_cases.estimated(
        n_members=4, checkpoint=path, progress=lambda epoch, *_: epochs.append(epoch)
    )
    assert min(epochs, default=4) >= 3  # a process may have been at its end already
    np.testing.assert_allclose(found[-1], wanted[-1], **SINGLE)


def test_members_of_one_process_that_fail_do_not_fail_the_others(two_processes):
    rates = [{"learning_rate": rate} for rate in (1e-2, 1e-2, 1e30, 1e30)]
    with pytest.warns(UserWarning, match="not finite") as told:
        *_, best, scores = shared_cases.estimated(members=rates)
    assert len(best) == 2
    assert np.isfinite(scores).all()
    assert "Member 2 stopped in epoch 1" in str(told[0].message)
    with pytest.raises(InputError, match="lower"):
        shared_cases.estimated(members=[rates[2]] * 2)


def test_an_encoder_that_pickle_cannot_name(two_processes):
    class Own(nn.Sequential):
        pass

    data = make_survey(80, 6, 5, seed=0)[0]
    model = CGMVAEClassifier(
        encoder=Own(nn.Linear(6, 3)), n_members=2, epochs=1, device="cpu", random_state=0
    )
    assert model.fit(data.X, data.Y).predict_proba(data.X).shape == (80, 5)
