"""Where jobs run: in this process, in several on this machine, or on a Ray cluster.

All engines share the store's folder and its locks: any number of them may work on one study.
"""

from __future__ import annotations

import logging
import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from multiprocessing.connection import wait
from typing import Any, Literal, NamedTuple

from joblib import cpu_count

from cgmvae.errors import InputError
from cgmvae.studies.runner import Outcome, give_up, run_job
from cgmvae.studies.store import Store
from cgmvae.studies.workers import Job, Worker, WorkPlace, cores_each
from cgmvae.training.device import find_device

#: How often a job is tried again whose process was killed.
RETRIES = 2

#: Seconds in which a cluster must answer.
_ANSWER_SECONDS = 10.0

_KILLED = "The process that made it was killed each time, perhaps for want of memory."


class Event(NamedTuple):
    """What happened to a job; not every engine knows when one is started."""

    job: Job
    what: Outcome | Literal["started"]


#: Runs jobs in some order, and tells of each; closing the iterator ends what is under way.
Engine = Callable[[Iterable[Job], Store], Iterator[Event]]


def local_engine(*, workers: int = 1, device: str = "auto") -> Engine:
    """Return an engine of this machine.

    Parameters
    ----------
    workers : int
        Processes; with 1 the jobs run in this process.
    device : str
        Where networks are trained.
    """
    if workers < 1:
        raise InputError(f"There cannot be {workers} workers; take at least 1.")
    find_device(device)

    def run(jobs: Iterable[Job], store: Store) -> Iterator[Event]:
        if workers > 1:
            place = WorkPlace(str(store.folder.absolute()), device, cores_each(workers))
            yield from _run_in_workers(deque(jobs), store, place, workers)
            return
        for job in jobs:
            yield Event(job, "started")
            yield Event(job, run_job(job, store, device=device))

    return run


def _run_in_workers(
    jobs: deque[Job], store: Store, place: WorkPlace, n_workers: int
) -> Iterator[Event]:
    deaths: dict[Job, int] = {}
    idle: list[Worker] = []
    busy: dict[Any, tuple[Worker, Job]] = {}
    with ExitStack() as stack:
        while jobs or busy:
            while jobs and len(busy) < n_workers:
                worker, job = idle.pop() if idle else _begin(place, stack), jobs.popleft()
                worker.start(job)
                busy[worker.pipe] = worker, job
                yield Event(job, "started")
            for pipe in wait(list(busy)):
                worker, job = busy.pop(pipe)
                outcome = worker.outcome()
                if outcome is not None:
                    idle.append(worker)
                    yield Event(job, outcome)
                    continue
                deaths[job] = deaths.get(job, 0) + 1
                if deaths[job] <= RETRIES:
                    jobs.append(job)
                    continue
                give_up(job, store, _KILLED)
                yield Event(job, "failed")


def _begin(place: WorkPlace, stack: ExitStack) -> Worker:
    worker = Worker(place)
    stack.callback(worker.stop)
    return worker


def ray_engine(
    *,
    address: str | None = None,
    workers: int | None = None,
    gpus: float = 0,
    device: str = "auto",
) -> Engine:
    """Return an engine of a Ray cluster whose machines share the store's folder and the data.

    A job takes one processor core, and is tried again on another worker when its own is lost.

    Parameters
    ----------
    address : str, optional
        Of a running cluster; by default one is started on this machine, and ended with the jobs.
    workers : int, optional
        Jobs at a time on the cluster that is started; as many as there are cores by default.
    gpus : float
        What a job takes of the accelerators.
    device : str
        Where networks are trained.
    """
    try:
        import ray
    except ImportError as error:
        raise InputError('The Ray engine needs Ray: pip install "cgmvae[ray]"') from error

    def run(jobs: Iterable[Job], store: Store) -> Iterator[Event]:
        started = not ray.is_initialized()
        if started:
            _start_ray(ray, address, workers)
        try:
            task = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=RETRIES)(_run_in_folder)
            folder = str(store.folder.absolute())
            waiting = {task.remote(job, folder, device): job for job in jobs}
            while waiting:
                (ready,), _ = ray.wait(list(waiting), num_returns=1)
                job = waiting.pop(ready)
                yield Event(job, _ray_outcome(ray, ready, job, store))
        finally:
            if started:
                ray.shutdown()

    return run


def _start_ray(ray: Any, address: str | None, workers: int | None) -> None:
    """Join a cluster, or start one on this machine that nobody outside can reach."""
    if address is None:
        ray.init(
            num_cpus=workers or cpu_count(),
            include_dashboard=False,
            _node_ip_address="127.0.0.1",
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
        return
    try:
        _check_answers(address)
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(
            f"No Ray cluster answers at {address}; check the address, and RAY_AUTH_TOKEN where it "
            "asks for one."
        ) from error


def _check_answers(address: str) -> None:
    """Raise an OSError where nobody listens: Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        with socket.create_connection((host, int(port)), timeout=_ANSWER_SECONDS):
            pass


def _ray_outcome(ray: Any, ready: Any, job: Job, store: Store) -> Outcome:
    try:
        return ray.get(ready)
    except ray.exceptions.RayTaskError as error:  # the folder: no job can be kept
        raise error.cause from error
    except ray.exceptions.RayError:
        give_up(job, store, _KILLED)
        return "failed"


def _run_in_folder(job: Job, folder: str, device: str) -> Outcome:
    return run_job(job, Store(folder), device=device)
