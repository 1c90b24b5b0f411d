"""Jobs in other processes: results, warnings, errors and reports are those of one process."""

import importlib.util
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import traceback
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from joblib import parallel_config
from torch import nn
from work_to_send import described, endless, killed

from cgmvae.data import make_survey
from cgmvae.errors import InputError
from cgmvae.methods import CGMVAEClassifier, fit_together
from cgmvae.training import checkpoint, engine
from cgmvae.training.checkpoint import Checkpoint
from cgmvae.training.engine import (
    SERIAL,
    Engine,
    active_engine,
    max_processes,
    open_engine,
    run,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux")


def needs(package):
    return pytest.mark.skipif(
        importlib.util.find_spec(package) is None,
        reason=f"{package} is large and belongs to an extra of its own",
    )


needs_ray = needs("ray")

FORK = Engine("fork", 2)
SPAWN = Engine("spawn", 2)
CPU = torch.device("cpu")

#: A library of matrix products rounds by where in memory a member lies.
SINGLE = {"rtol": 1e-4, "atol": 1e-5}

SIZES = {"feature_hidden": (16,), "label_hidden": (16,), "decoder_hidden": (16,), "latent_dim": 4}
TINY = {"epochs": 4, "batch_size": 17, "learning_rate": 1e-2, "device": "cpu", "random_state": 0}


def estimated(**changes):
    """Fit an estimator as a user does; return its weights, history and predictions."""
    data = make_survey(90, 6, 5, unknown_share=0.1, seed=4)[0]
    own = TINY | {"network": SIZES, "embedding_dim": 16} | changes
    model = CGMVAEClassifier(**own).fit(data.X, data)
    weights = {name: part.numpy() for name, part in model.network_.state_dict().items()}
    return weights, model.history_, model.best_epoch_, model.predict_proba(data.X)


@pytest.fixture
def two_processes(monkeypatch):
    monkeypatch.setattr(engine, "max_processes", lambda: 2)


def results(work, jobs, own=FORK, **options):
    """Return the results in the order of the jobs."""
    found = dict(run(work, jobs, own, **options))
    return [found[number] for number in range(len(jobs))]


@pytest.mark.parametrize("own", [SERIAL, FORK, SPAWN], ids=lambda own: own.kind)
def test_every_job_is_done_once_and_tells_what_it_does(own):
    started, told = [], []
    found = results(
        described, "abcde", own, on_start=started.append, on_report=lambda *each: told.append(each)
    )
    assert [job for job, *_ in found] == list("abcde")
    assert started == [0, 1, 2, 3, 4]
    for number, job in enumerate("abcde"):
        assert [each for each in told if each[0] == number] == [
            (number, job, "begun"),
            (number, job, "done"),
        ]
    processes = {process for _, process, _ in found}
    assert (processes == {os.getpid()}) == (own == SERIAL)
    assert len(processes) <= own.n_jobs
    assert multiprocessing.active_children() == []


def test_forked_processes_work_side_by_side_with_one_thread_each():
    torch.set_num_threads(2)
    try:
        barrier = multiprocessing.get_context("fork").Barrier(3)

        def work(job, _):
            barrier.wait(timeout=60)
            return os.getpid(), torch.get_num_threads()

        found = results(work, range(3), Engine("fork", 3))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert len({process for process, _ in found} - {os.getpid()}) == 3
    assert [n_threads for _, n_threads in found] == [1, 1, 1]


def test_forked_processes_need_not_pickle_what_they_work_on():
    unpicklable = [lambda: 1, lambda: 2]
    with pytest.raises(Exception, match="pickle"):
        pickle.dumps(unpicklable)
    assert results(lambda job, _: job(), unpicklable) == [1, 2]


def test_a_result_is_given_before_the_other_jobs_are_done(tmp_path):
    def work(job, _):
        while job == 0 and not (tmp_path / "go").exists():
            time.sleep(0.01)
        return job

    found = run(work, range(2), FORK)
    assert next(found) == (1, 1)
    (tmp_path / "go").touch()
    assert list(found) == [(0, 0)]


@pytest.mark.parametrize("n_started", [0, 1])
def test_with_fewer_processes_all_jobs_are_done(monkeypatch, n_started):
    fork, forked = os.fork, []

    def limited():
        if len(forked) == n_started:
            raise BlockingIOError("Resource temporarily unavailable")
        forked.append(fork())
        return forked[-1]

    monkeypatch.setattr(os, "fork", limited)
    found = results(described, range(4))
    assert [job for job, *_ in found] == [0, 1, 2, 3]
    assert {process for _, process, _ in found} == set(forked or [os.getpid()])


def test_a_job_that_may_not_start_yet_is_overtaken(tmp_path):
    """A pair of the same letter never runs side by side."""
    now, seen = set(), []

    def may_start(job, running):
        return job[0] not in {each[0] for each in running}

    found = run(lambda job, _: job, ["a1", "a2", "b1"], FORK, on_start=now.add, may_start=may_start)
    for number, _ in found:
        seen.append(set(now))
        now.discard(number)
    assert {0, 1} not in [each - {2} for each in seen]
    assert seen[0] == {0, 2}
    assert len(seen) == 3


def test_warnings_of_all_jobs_are_given():
    def work(job, _):
        warnings.warn(f"from job {job}", RuntimeWarning, stacklevel=1)

    with pytest.warns(RuntimeWarning) as told:
        results(work, range(3))
    assert {str(each.message) for each in told} == {f"from job {job}" for job in range(3)}


def test_an_error_of_a_job_ends_all():
    def work(job, report):
        if job == 0:
            raise InputError("There is nothing to learn.", parameter="X")
        for epoch in range(1, 1000):
            report(epoch, 1000, 0.0)
            time.sleep(0.05)

    with pytest.raises(InputError, match="nothing to learn") as caught:
        results(work, range(2))
    assert caught.value.parameter == "X"
    assert multiprocessing.active_children() == []


def test_an_error_of_the_library_says_where_it_was():
    def work(job, _):
        raise ZeroDivisionError("a bug")

    with pytest.raises(ZeroDivisionError, match="a bug") as caught:
        results(work, range(2))
    assert "in work" in caught.value.__notes__[0]


def test_an_error_that_pickle_cannot_send_keeps_its_words():
    class OwnError(Exception):
        pass

    def work(job, _):
        raise OwnError("the encoder takes no such rows")

    with pytest.raises(RuntimeError, match="OwnError: the encoder takes no such rows"):
        results(work, range(2))


def test_a_job_whose_process_is_killed():
    with pytest.raises(InputError, match="was killed, perhaps because memory ran out"):
        results(killed, range(2))
    assert multiprocessing.active_children() == []


def test_a_killed_job_is_tried_again_and_then_given_up():
    started = []
    options = {"on_start": started.append, "on_killed": lambda number, _: -number, "retries": 2}
    assert results(killed, range(4), **options) == [0, -1, 2, 3]
    assert sorted(started) == [0, 1, 1, 1, 2, 3]


SPAWNING = """
import signal
from cgmvae.training.engine import Engine, run
from work_to_send import endless
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background shell ignores it
if __name__ == "__main__":
    list(run(endless, range(2), Engine("spawn", 2)))
"""


def spawning():
    """Run a command that spawns two processes; only its own exec and imports take a while."""
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    os.execve(sys.executable, [sys.executable, "-c", SPAWNING], os.environ | {"PYTHONPATH": path})


def forking():
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        list(run(endless, range(2), FORK))
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(1)


@pytest.mark.parametrize(
    ("start", "ending"),
    [
        (forking, signal.SIGINT),
        (forking, signal.SIGTERM),
        (forking, signal.SIGKILL),
        (spawning, signal.SIGKILL),
    ],
)
def test_a_process_that_is_ended_leaves_no_others_behind(start, ending):
    """Ctrl-C goes to the whole group, of which only the first process has something to say."""
    (output, out), (errors, err) = os.pipe(), os.pipe()
    process = os.fork()
    if not process:
        os.setsid()
        os.dup2(out, 1)
        os.dup2(err, 2)
        start()
    os.close(out)
    os.close(err)
    with os.fdopen(output) as lines:
        started = [int(lines.readline()) for _ in range(2)]
        (os.killpg if ending == signal.SIGINT else os.kill)(process, ending)
        with os.fdopen(errors) as said:
            assert said.read().count("Traceback") == (ending == signal.SIGINT)
    os.waitpid(process, 0)
    end = time.monotonic() + 30
    while running := [pid for pid in started if Path(f"/proc/{pid}").exists()]:
        assert time.monotonic() < end, running
        time.sleep(0.05)


# --- Which engine -------------------------------------------------------------------------------


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
    monkeypatch.setattr(engine, "cpu_count", lambda: 4)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    monkeypatch.setattr(engine.sys, "platform", system)
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", daemon)
    assert max_processes() == expected


@pytest.mark.parametrize(
    ("n_members", "n_cores", "expected"), [(8, 2, 2), (8, 16, 8), (2, 16, 1), (1, 2, 1), (3, 2, 2)]
)
def test_number_of_processes(monkeypatch, n_members, n_cores, expected):
    monkeypatch.setattr(engine, "max_processes", lambda: n_cores)
    assert active_engine(n_members, CPU).n_jobs == expected
    assert active_engine(n_members, torch.device("cuda")) == SERIAL


def test_joblib_says_how_many_processes(monkeypatch):
    monkeypatch.setattr(engine, "max_processes", lambda: 4)
    assert active_engine(8, CPU) == Engine("fork", 4)
    for options in ({"n_jobs": 1}, {"backend": "threading"}, {"backend": "sequential"}):
        with parallel_config(**options):
            assert active_engine(8, CPU) == SERIAL
    with parallel_config(n_jobs=2):
        assert active_engine(8, CPU) == FORK


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"name": "slurm"}, "no engine 'slurm'; choose one of local, ray, dask"),
        ({"n_jobs": 0}, "0 workers"),
        ({"address": "10.0.0.1:6379"}, "Only the engines ray and dask"),
        ({"gpus": 1}, "Only the engines ray and dask"),
        ({"name": "dask", "gpus": 1}, "only ray GPUs"),
        pytest.param({"name": "ray", "n_jobs": 1}, "one job at a time", marks=needs_ray),
    ],
)
def test_wrong_options(options, words):
    with pytest.raises(InputError, match=words), open_engine(**options):
        pass


@pytest.mark.parametrize(("name", "package"), [("ray", "ray"), ("dask", "distributed")])
def test_without_a_package_it_says_what_to_install(monkeypatch, name, package):
    monkeypatch.setitem(sys.modules, package, None)
    with (
        pytest.raises(InputError, match=rf'pip install "cgmvae\[{name}\]"'),
        open_engine(name),
    ):
        pass


@needs_ray
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_cluster_that_does_not_answer():
    with (
        pytest.raises(InputError, match=r"No Ray cluster answers at 127\.0\.0\.1:1"),
        open_engine("ray", address="127.0.0.1:1"),
    ):
        pass


# --- What is spread -----------------------------------------------------------------------------


def test_two_processes_give_the_members_of_one(two_processes, monkeypatch):
    epochs = []
    found = estimated(n_members=5, progress=lambda *told: epochs.append(told[:2]))
    monkeypatch.setattr(engine, "max_processes", lambda: 1)
    wanted = estimated(n_members=5)
    assert epochs == [(epoch, 4) for epoch in range(1, 5)]
    for parts in zip(found, wanted, strict=True):
        flat = [list(part.values()) if isinstance(part, dict) else [part] for part in parts]
        for a, b in zip(*flat, strict=True):
            np.testing.assert_allclose(a, b, **SINGLE)


def test_estimators_that_are_fitted_together(two_processes, monkeypatch):
    def fitted():
        own = {"network": SIZES, "embedding_dim": 16, "n_members": 3}
        models = [CGMVAEClassifier(**TINY | own) for _ in range(3)]
        data = [make_survey(n, 6, 5, seed=n)[0] for n in (80, 90, 100)]
        fit_together(models, [(each.X, each.Y, None) for each in data])
        return [model.predict_proba(each.X) for model, each in zip(models, data, strict=True)]

    found = fitted()
    monkeypatch.setattr(engine, "max_processes", lambda: 1)
    for a, b in zip(found, fitted(), strict=True):
        np.testing.assert_allclose(a, b, **SINGLE)


class Stopped(Exception):
    """A user has pressed Ctrl-C."""


def test_a_stopped_training_is_resumed_by_any_number_of_processes(
    two_processes, monkeypatch, tmp_path
):
    monkeypatch.setattr(checkpoint, "FIRST_SECONDS", 0.0)
    monkeypatch.setattr(checkpoint, "MIN_SECONDS", 0.0)
    monkeypatch.setattr(checkpoint, "MAX_FRACTION", np.inf)

    def stop(epoch, *_):
        if epoch == 2:
            raise Stopped

    wanted = estimated(n_members=4)
    path = Checkpoint(tmp_path / "state")
    with pytest.raises(Stopped):
        estimated(n_members=4, checkpoint=path, progress=stop)
    assert multiprocessing.active_children() == []
    # A process may have been stopped while it wrote its next state.
    states = {each.name.removesuffix(".previous") for each in tmp_path.glob("state*")}
    assert states == {"state.0-1", "state.2-3"}
    monkeypatch.setattr(engine, "max_processes", lambda: 1)
    epochs = []
    found = estimated(n_members=4, checkpoint=path, progress=lambda epoch, *_: epochs.append(epoch))
    assert min(epochs, default=4) >= 3  # a process may have been at its end already
    np.testing.assert_allclose(found[-1], wanted[-1], **SINGLE)


def test_members_of_one_process_that_fail_do_not_fail_the_others(two_processes):
    rates = [{"learning_rate": rate} for rate in (1e-2, 1e-2, 1e30, 1e30)]
    with pytest.warns(UserWarning, match="not finite") as told:
        *_, best, scores = estimated(members=rates)
    assert len(best) == 2
    assert np.isfinite(scores).all()
    assert "Member 2 stopped in epoch 1" in str(told[0].message)
    with pytest.raises(InputError, match="lower"):
        estimated(members=[rates[2]] * 2)


def test_an_encoder_that_pickle_cannot_name(two_processes):
    class Own(nn.Sequential):
        pass

    data = make_survey(80, 6, 5, seed=0)[0]
    model = CGMVAEClassifier(
        encoder=Own(nn.Linear(6, 3)), n_members=2, epochs=1, device="cpu", random_state=0
    )
    assert model.fit(data.X, data.Y).predict_proba(data.X).shape == (80, 5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # those of Ray and Dask
@pytest.mark.parametrize(
    "name",
    [pytest.param("ray", marks=needs_ray), pytest.param("dask", marks=needs("distributed"))],
)
def test_a_cluster_trains_the_members_of_one_process(monkeypatch, name):
    """Jobs whose workers are killed are done by others; a job that kills each of them is not."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # for the workers
    wanted = estimated(n_members=4)
    lock, epochs = threading.Lock(), []

    def progress(*now):
        with lock:
            epochs.append(now[:2])

    with open_engine(name, n_jobs=2) as own:
        assert active_engine(4, CPU) == own == Engine("joblib", 2)
        assert active_engine(1, CPU) == SERIAL
        found = estimated(n_members=4, progress=progress)
        told = {}
        works = results(described, "abc", own, on_report=lambda *each: told.update({each[0]: each}))
        with pytest.raises(ZeroDivisionError, match="by zero"):
            results(lambda job, _: 1 / job, range(2), own)
        with pytest.raises(InputError, match=r"cannot be sent to a cluster: .*lock"):
            results(lambda job, _: lock, range(2), own)
        if name == "ray":
            options = {"on_killed": lambda number, _: -number, "retries": 1}
            assert results(killed, range(4), own, **options) == [0, -1, 2, 3]
        with pytest.raises(InputError, match=r"lost (a|the) worker"):
            results(killed, range(3), own)
    np.testing.assert_allclose(found[-1], wanted[-1], **SINGLE)
    assert epochs == [(4, 4)]
    assert [job for job, *_ in works] == ["a", "b", "c"]
    assert os.getpid() not in {process for _, process, _ in works}
    assert told == {number: (number, job, "done") for number, job in enumerate("abc")}
