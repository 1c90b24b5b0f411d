"""Where jobs run: in this process, in several worker processes, or on a Ray cluster.

All engines share the store's folder and its locks, so any number of them may work on one study.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any, Literal

import torch
from joblib import cpu_count
from threadpoolctl import threadpool_limits

from cgmvae.errors import InputError
from cgmvae.studies.runner import Outcome, run_job, write_errors
from cgmvae.studies.spec import Job, expected_work, is_network
from cgmvae.studies.store import Store
from cgmvae.training.device import find_device
from cgmvae.training.workers import end_with_parent

#: How often a job whose process was killed is tried again.
RETRIES = 2

#: Networks that are trained on one GPU at a time: more of them slow each other down.
GPU_JOBS = 2

#: Seconds that an idle worker has to exit by itself.
_EXIT_SECONDS = 10.0

#: Seconds that a Ray cluster has to accept a connection.
_CONNECT_SECONDS = 10.0

_KILLED = "Its process was killed in every attempt, perhaps because it ran out of memory."


#: A job and what happened to it; not every engine reports when a job starts.
Event = tuple[Job, Outcome | Literal["started"]]

#: Runs jobs in some order, and yields their events; closing the iterator stops all work.
Engine = Callable[[Iterable[Job], Store], Iterator[Event]]


def local_engine(*, workers: int = 1, device: str = "auto") -> Engine:
    """Return an engine that runs jobs on this machine: in one process, or in several workers.

    Several workers start with the longest jobs, so that none of them is left alone at the end. At
    most :data:`GPU_JOBS` workers train networks on a GPU; the others run methods for CPUs.
    """
    if workers < 1:
        raise InputError(f"There cannot be {workers} workers; use at least 1.")
    find_device(device)

    def run(jobs: Iterable[Job], store: Store) -> Iterator[Event]:
        if workers > 1:
            longest_first = deque(sorted(jobs, key=expected_work, reverse=True))
            yield from _run_in_workers(longest_first, store, workers, device)
            return
        for job in jobs:
            yield job, "started"
            yield job, run_job(job, store, device=device)

    return run


def _run_in_workers(jobs: deque[Job], store: Store, n_workers: int, device: str) -> Iterator[Event]:
    threads = max(1, cpu_count() // n_workers)
    most_networks = GPU_JOBS if find_device(device).type == "cuda" else n_workers
    deaths: dict[Job, int] = {}
    idle: list[Worker] = []
    busy: dict[Any, tuple[Worker, Job]] = {}

    def start_worker() -> Worker:
        worker = Worker(str(store.folder.absolute()), device, threads)
        stack.callback(worker.stop)
        return worker

    with ExitStack() as stack:
        while jobs or busy:
            while len(busy) < n_workers:
                running = [job for _, job in busy.values()]
                if (job := next_job(jobs, running, most_networks)) is None:
                    break
                jobs.remove(job)
                worker = idle.pop() if idle else start_worker()
                worker.start(job)
                busy[worker.pipe] = worker, job
                yield job, "started"
            for pipe in wait(list(busy)):
                worker, job = busy.pop(pipe)
                outcome = worker.outcome()
                if outcome is not None:
                    idle.append(worker)
                    yield job, outcome
                    continue
                deaths[job] = deaths.get(job, 0) + 1
                if deaths[job] <= RETRIES:
                    jobs.append(job)
                    continue
                write_errors(job, store, _KILLED)
                yield job, "failed"


def next_job(waiting: Iterable[Job], running: Sequence[Job], most_networks: int) -> Job | None:
    """Return the first job that may start beside those that run; None if there is none."""

    def trains_network(job: Job) -> bool:
        return is_network(job[0].method)

    full = sum(map(trains_network, running)) >= most_networks
    return next((job for job in waiting if not (full and trains_network(job))), None)


class Worker:
    """A process that runs one job after the other.

    Each worker has its own pipe, so that it is known which job a process had that was killed, for
    instance because memory ran out.
    """

    def __init__(self, folder: str, device: str, threads: int) -> None:
        # A forked process would inherit locks that threads of this one hold.
        context = get_context("spawn")
        self.pipe, theirs = context.Pipe()
        # Not a daemon: those may not start the processes that scikit-learn's forests use.
        self._process = context.Process(target=_serve, args=(theirs, folder, device, threads))
        # The process inherits the blocked signal, and so ignores Ctrl-C. Windows cannot block it:
        # there Ctrl-C reaches the workers too.
        set_mask = getattr(signal, "pthread_sigmask", None)
        before = set_mask(signal.SIG_BLOCK, {signal.SIGINT}) if set_mask else None
        try:
            self._process.start()
        finally:
            if set_mask:
                set_mask(signal.SIG_SETMASK, before)
        theirs.close()
        self.job: Job | None = None

    def start(self, job: Job) -> None:
        """Send a job to the process; if it is dead, :meth:`outcome` returns None."""
        self.job = job
        with suppress(OSError):  # a closed pipe, which outcome() notices too
            self.pipe.send(job)

    def outcome(self) -> Outcome | None:
        """Wait for the job and return its outcome, or None if the process was killed."""
        try:
            found = self.pipe.recv()
        except (EOFError, OSError):
            return None
        self.job = None
        if isinstance(found, InputError):
            raise found
        return found

    def stop(self) -> None:
        """End the process; its current job is lost."""
        self.pipe.close()
        if self.job is None:  # it exits by itself, together with the processes that it started
            self._process.join(_EXIT_SECONDS)
        self._process.terminate()
        self._process.join()


def _serve(pipe: Connection, folder: str, device: str, threads: int) -> None:
    """Run jobs until the other end of the pipe is closed."""
    threading.Thread(target=end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    threadpool_limits(threads)  # of NumPy and SciPy, which would use all cores in every worker
    store = Store(folder)
    try:
        while True:
            job = pipe.recv()
            try:
                found: Outcome | InputError = run_job(job, store, device=device)
            except InputError as error:  # the folder cannot be written, whatever the job
                found = error
            pipe.send(found)
    except (EOFError, BrokenPipeError):
        return


def ray_engine(
    *,
    address: str | None = None,
    workers: int | None = None,
    gpus: float = 0,
    device: str = "auto",
) -> Engine:
    """Return an engine for a Ray cluster whose machines share the store's folder and the data.

    A job takes one CPU core and ``gpus`` GPUs, of which fractions can be shared; it is tried again
    on another worker if its own is lost. Without the address of a running cluster, one is started
    on this machine for ``workers`` parallel jobs (by default one per core), and stopped after them.
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
                try:
                    outcome = ray.get(ready)
                except ray.exceptions.RayTaskError as error:  # the folder cannot be written
                    raise error.cause from error
                except ray.exceptions.RayError:
                    write_errors(job, store, _KILLED)
                    outcome = "failed"
                yield job, outcome
        finally:
            if started:
                ray.shutdown()

    return run


def _start_ray(ray: Any, address: str | None, workers: int | None) -> None:
    """Join a cluster, or start one that is reachable from this machine only."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # send nothing to Ray's authors
    if address is None:
        ray.init(
            num_cpus=workers or cpu_count(),
            include_dashboard=False,
            _node_ip_address="127.0.0.1",
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        if host and port.isdecimal():  # where nothing listens, Ray itself would try for minutes
            socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS).close()
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(
            f"No Ray cluster answers at {address}; check the address, and RAY_AUTH_TOKEN if the "
            "cluster asks for a token."
        ) from error


def _run_in_folder(job: Job, folder: str, device: str) -> Outcome:
    return run_job(job, Store(folder), device=device)
