"""Engines: workers of this machine and of a Ray cluster, and what happens when they are killed."""

import importlib.util
import multiprocessing
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from tiny_study import STUDY, runs, written

from cgmvae.errors import InputError
from cgmvae.studies.commands import find_study, make_engine, make_scope, run_study, study_status
from cgmvae.studies.engines import RETRIES, _serve, local_engine, next_job, ray_engine
from cgmvae.studies.spec import RunSpec, Scope, expected_work, make_jobs
from cgmvae.studies.store import Store

JOBS = make_jobs(runs(Scope()))

needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None,
    reason='Ray is large and belongs to an extra of its own: pip install "cgmvae[ray]"',
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

    engine = local_engine(workers=2, device="cpu")
    assert run_study(STUDY, Scope(), store, engine, on_progress=kill_once) == []
    assert killed
    assert written(store) == whole_table
    assert multiprocessing.active_children() == []


def test_a_job_whose_worker_is_killed_each_time_is_given_up(tmp_path):
    store, seen = Store(tmp_path), []
    for event in local_engine(workers=2, device="cpu")(JOBS[:1], store):
        seen.append(event)
        if event[1] == "started":
            kill_a_worker()
    assert seen == [(JOBS[0], "started")] * (RETRIES + 1) + [(JOBS[0], "failed")]
    assert "killed in every attempt" in store.error(JOBS[0][0])


def test_few_networks_share_a_gpu_while_other_workers_run_methods_for_cpus():
    network, other, forest = (
        (RunSpec("yeast", name),) for name in ("cgmvae", "lamp", "binary-relevance")
    )
    assert next_job([network, forest], [other], most_networks=2) == network
    assert next_job([network, forest], [other, network], most_networks=2) == forest
    assert next_job([network], [other, network], most_networks=2) is None
    assert next_job([], [], most_networks=2) is None


def test_workers_start_with_the_longest_jobs():
    runs = [("yeast", "mlknn"), ("yeast", "lamp"), ("delicious", "cgmvae"), ("delicious", "lamp")]
    jobs = [(RunSpec(data, method),) for data, method in runs]
    several = (RunSpec("delicious", "lamp"), RunSpec("delicious", "lamp", seed=1))
    by_length = sorted([*jobs, several], key=expected_work)
    assert by_length == [*jobs, several]


def test_stopping_ends_the_workers(tmp_path):
    events = local_engine(workers=2, device="cpu")(JOBS, Store(tmp_path))
    assert [next(events)[1], next(events)[1]] == ["started", "started"]
    assert len(multiprocessing.active_children()) == 2
    events.close()
    assert multiprocessing.active_children() == []


def test_a_worker_sends_back_that_the_folder_cannot_be_written():
    ours, theirs = multiprocessing.Pipe()
    options = (theirs, "/proc/none", "cpu", torch.get_num_threads())
    thread = threading.Thread(target=_serve, args=options)
    thread.start()
    ours.send(JOBS[0])
    with pytest.raises(InputError, match="Cannot create the folder /proc/none"):
        raise ours.recv()
    ours.close()
    thread.join()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"name": "slurm"}, "no engine 'slurm'; choose one of local, ray"),
        ({"workers": 0}, "0 workers"),
        ({"device": "tpu9"}, "no device 'tpu9'"),
        ({"address": "10.0.0.1:6379"}, "Only the engine ray"),
        ({"gpus": 1}, "Only the engine ray"),
    ],
)
def test_wrong_options(options, words):
    with pytest.raises(InputError, match=words):
        make_engine(**options)


def test_without_ray_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r'needs Ray: pip install "cgmvae\[ray\]"'):
        make_engine("ray")


def ray_workers() -> list[int]:
    """Return the descendants of this process that make a job for Ray."""
    parents, found = {}, []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parents[folder.name] = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            if b"_run_in_folder" in (folder / "cmdline").read_bytes():
                found.append(folder.name)

    def is_own(pid: str) -> bool:
        return pid == str(os.getpid()) or (pid in parents and is_own(parents[pid]))

    return [int(pid) for pid in found if is_own(pid)]


@needs_ray
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning")  # Ray's own
def test_a_ray_cluster_gives_the_same_tables_though_a_worker_is_killed(whole_table, tmp_path):
    store, killed = Store(tmp_path), []

    def kill_one(_) -> None:
        for worker in ray_workers():
            if not killed:
                killed.append(worker)
                os.kill(worker, signal.SIGKILL)

    engine = ray_engine(workers=2, device="cpu")
    assert run_study(STUDY, Scope(), store, engine, on_progress=kill_one) == []
    assert killed
    assert written(store) == whole_table


@needs_ray
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_cluster_that_does_not_answer(tmp_path):
    engine = ray_engine(address="127.0.0.1:1")
    with pytest.raises(InputError, match=r"No Ray cluster answers at 127\.0\.0\.1:1"):
        list(engine(JOBS, Store(tmp_path)))


HEAD = """
import pathlib, ray, sys
ray.init(num_cpus=2, include_dashboard=False, _node_ip_address="127.0.0.1")
pathlib.Path(sys.argv[1]).write_text(ray.get_runtime_context().gcs_address)
sys.stdout.write("ready\\n")
sys.stdout.flush()
sys.stdin.read()
"""


@needs_ray
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
        command = [sys.executable, "-m", "cgmvae.studies", *small, *where]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        head.stdin.close()
    assert done.returncode == 0, done.stderr
    scope = make_scope(data="yeast", methods="mlknn", splits="0,1")
    assert study_status(find_study("main"), scope, Store(tmp_path / "runs")) == (2, 0, 0, 0)


PARENT = """
import sys, time
from cgmvae.studies import engines

engines.run_job = lambda *_, **__: time.sleep(600)

if __name__ == "__main__":
    worker = engines.Worker(sys.argv[1], "cpu", 1)
    worker.start("a long job")
    print(worker._process.pid, flush=True)
    sys.stdin.read()
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_a_worker_in_a_job_ends_with_its_parent(tmp_path):
    (tmp_path / "parent.py").write_text(PARENT)
    command = [sys.executable, str(tmp_path / "parent.py"), str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        worker = int(parent.stdout.readline())
        parent.kill()
    deadline = time.monotonic() + 60
    while state_of(worker) != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.1)


def state_of(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"
