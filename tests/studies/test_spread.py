"""Studies whose jobs are spread over workers of this machine or of a cluster, also killed ones."""

import importlib.util
import multiprocessing
import os
import secrets
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from tiny_study import STUDY, runs, written

from cgmvae.errors import InputError
from cgmvae.studies import commands, find_study
from cgmvae.studies.commands import (
    RETRIES,
    make_runs,
    make_scope,
    may_start,
    run_study,
    study_status,
)
from cgmvae.studies.limits import TimeLimit, TimeLimits
from cgmvae.studies.spec import RunSpec, Scope, Study, expected_work, make_jobs
from cgmvae.studies.store import Store
from cgmvae.training.engine import Engine, open_engine

TWO_WORKERS = Engine("spawn", 2)


def needs(package: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(
        importlib.util.find_spec(package) is None,
        reason=f"{package} is large and belongs to an extra of its own",
    )


def kill_a_worker() -> None:
    """Kill the worker that was started last: an earlier one may be dying still."""
    os.kill(max(child.pid for child in multiprocessing.active_children()), signal.SIGKILL)


def test_two_workers_of_which_one_is_killed_give_the_same_tables(whole_table, tmp_path):
    store, killed = Store(tmp_path), []

    def kill_once(progress) -> None:
        if len(progress.running) == 2 and not killed:
            killed.append([job[0] for job in progress.running])
            kill_a_worker()

    failed = run_study(STUDY, Scope(), store, TWO_WORKERS, device="cpu", on_progress=kill_once)
    assert failed == []
    assert killed
    assert written(store) == whole_table
    assert multiprocessing.active_children() == []


def test_a_job_whose_worker_is_killed_each_time_is_given_up(tmp_path):
    store, spec, n_killed = Store(tmp_path), runs(Scope())[0], 0

    def kill_each_time(progress) -> None:
        nonlocal n_killed
        if progress.running:
            n_killed += 1
            kill_a_worker()

    single = Study("single", lambda _: [spec], lambda _: [])
    failed = run_study(single, Scope(), store, TWO_WORKERS, on_progress=kill_each_time)
    assert failed == [spec]
    assert n_killed == RETRIES + 1
    assert store.error(spec).startswith("A process was killed, perhaps because memory ran out")


def test_few_networks_share_a_gpu_while_other_workers_run_methods_for_cpus():
    network, other, forest = (
        (RunSpec("yeast", name),) for name in ("cgmvae", "lamp", "binary-relevance")
    )
    assert may_start(network, [other], on_gpu=True)
    assert not may_start(network, [other, network], on_gpu=True)
    assert may_start(forest, [other, network], on_gpu=True)
    assert may_start(network, [other, network], on_gpu=False)


def test_workers_start_with_the_longest_jobs(tmp_path):
    runs = [("yeast", "mlknn"), ("yeast", "lamp"), ("delicious", "cgmvae"), ("delicious", "lamp")]
    jobs = [(RunSpec(data, method),) for data, method in runs]
    several = (RunSpec("delicious", "lamp"), RunSpec("delicious", "lamp", seed=1))
    by_length = sorted([*jobs, several], key=expected_work)
    assert by_length == [*jobs, several]


def test_stopping_ends_the_workers_which_have_begun_with_the_longest_jobs(tmp_path):
    begun = []

    def stop(progress) -> None:
        begun[:] = progress.running
        if len(begun) == 2:
            assert len(multiprocessing.active_children()) == 2
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_study(STUDY, Scope(), Store(tmp_path), TWO_WORKERS, device="cpu", on_progress=stop)
    assert multiprocessing.active_children() == []
    lengths = sorted(map(expected_work, make_jobs(runs(Scope()))))
    assert sorted(map(expected_work, begun)) == lengths[-2:]


def test_workers_that_do_not_notice_the_end_of_the_time_are_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(commands, "_GRACE_SECONDS", -1000.0)  # before they can notice it
    limit = TimeLimit(600, time.time() + 1001)
    store = Store(tmp_path)
    make_runs(runs(Scope()), store, TWO_WORKERS, device="cpu", limits=TimeLimits(limit, limit))
    assert study_status(STUDY, Scope(), store) == (0, 0, 0, 9)
    assert multiprocessing.active_children() == []


def test_workers_say_that_the_folder_cannot_be_written():
    with pytest.raises(InputError, match="Cannot create the folder /proc/none"):
        run_study(STUDY, Scope(), Store("/proc/none"), TWO_WORKERS, device="cpu")


def cluster_workers() -> list[int]:
    """Return the descendants of this process that do a job for Ray or Dask."""
    parents, found = {}, []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parents[folder.name] = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            command = (folder / "cmdline").read_bytes()
            if b"run_batch" in command or b"spawn_main" in command:
                found.append(folder.name)

    def is_own(pid: str) -> bool:
        return pid == str(os.getpid()) or (pid in parents and is_own(parents[pid]))

    return [int(pid) for pid in found if is_own(pid)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # those of Ray and Dask
@pytest.mark.parametrize(
    "name",
    [pytest.param("ray", marks=needs("ray")), pytest.param("dask", marks=needs("distributed"))],
)
def test_a_cluster_gives_the_same_tables_though_a_worker_is_killed(name, whole_table, tmp_path):
    store, killed = Store(tmp_path), []

    def kill_one(progress) -> None:
        if progress.done and not killed and (workers := cluster_workers()):
            killed.append(workers[0])
            os.kill(workers[0], signal.SIGKILL)

    with open_engine(name, n_jobs=2) as engine:
        assert engine == Engine("joblib", 2)
        failed = run_study(STUDY, Scope(), store, engine, device="cpu", on_progress=kill_one)
    assert failed == []
    assert killed
    assert written(store) == whole_table


HEAD = """
import pathlib, ray, sys
ray.init(num_cpus=2, include_dashboard=False, _node_ip_address="127.0.0.1")
pathlib.Path(sys.argv[1]).write_text(ray.get_runtime_context().gcs_address)
sys.stdout.write("ready\\n")
sys.stdout.flush()
sys.stdin.read()
"""


@needs("ray")
@pytest.mark.slow
def test_a_cluster_that_runs_already(tmp_path):
    """A head in a process of its own, with a token that only it and the study know."""
    environment = os.environ | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    small = ["main", "--data", "yeast", "--methods", "mlknn", "--splits", "0,1"]
    head = subprocess.Popen(
        [sys.executable, "-c", HEAD, str(tmp_path / "address")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
    )
    with head:
        assert head.stdout.readline() == "ready\n"
        address = (tmp_path / "address").read_text()
        where = ["--folder", str(tmp_path / "runs"), "--engine", "ray", "--address", address]
        command = [sys.executable, "-m", "cgmvae", "bench", *small, *where]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        head.stdin.close()
    assert done.returncode == 0, done.stderr
    scope = make_scope(data="yeast", methods="mlknn", splits="0,1")
    assert study_status(find_study("main"), scope, Store(tmp_path / "runs")) == (2, 0, 0, 0)
