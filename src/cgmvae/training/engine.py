"""Where jobs run side by side: in processes of this machine, or on a cluster that joblib knows.

Members of a training, packs of a search and jobs of a study are spread by :func:`run`. A training
and a search run on this machine unless joblib is told otherwise (``joblib.parallel_config``); a
study is told by its options.

joblib's own processes are not used on this machine. They are sent their data and import the library
anew, which takes as long as a small training; and when one is killed, it is not known which job it
had.
"""

from __future__ import annotations

import logging
import os
import pickle
import signal
import socket
import sys
import threading
import traceback
import warnings
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from multiprocessing import current_process, get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import torch
from joblib import (
    Parallel,
    cpu_count,
    delayed,
    parallel_config,
    wrap_non_picklable_objects,
)
from joblib.parallel import LokyBackend, MultiprocessingBackend, get_active_backend
from threadpoolctl import threadpool_limits

from cgmvae.errors import InputError

Job = TypeVar("Job")
Result = TypeVar("Result")

#: Called with what a job has to tell while it runs.
Report = Callable[..., None]

#: Does a job, and returns something that pickle can write.
Work = Callable[[Job, Report], Result]

ENGINES = ("local", "ray", "dask")

#: Seconds that a process without a job has to exit by itself.
_EXIT_SECONDS = 10.0

#: Seconds that a Ray cluster has to accept a connection.
_CONNECT_SECONDS = 10.0


class Engine(NamedTuple):
    """Where jobs run, and how many of them at a time."""

    kind: Literal["serial", "fork", "spawn", "joblib"]
    """``serial``: one after the other, in this process. ``fork``: in processes of one thread that
    start at once and share the memory of this one. ``spawn``: in processes that start from scratch,
    share the cores and may start others. ``joblib``: in the workers of joblib's active backend."""
    n_jobs: int = 1


SERIAL = Engine("serial")


def max_processes() -> int:
    """Return how many forked processes may train side by side: one per thread of torch.

    One where processes are not forked: on other systems than Linux, in a daemon of
    ``multiprocessing``, and where torch has a GPU, whose threads would not survive the fork.
    """
    if sys.platform != "linux" or current_process().daemon or torch.cuda.is_available():
        return 1
    return min(torch.get_num_threads(), cpu_count())


def active_engine(n_jobs: int, device: torch.device) -> Engine:
    """Return the engine for some jobs that train networks: the one that joblib is told to use.

    By default these are forked processes, for jobs on a CPU. There are none if there would be few
    processes on many cores, which are slower than one process with many threads.
    """
    backend, wanted = get_active_backend()
    if type(backend) not in (LokyBackend, MultiprocessingBackend):
        if getattr(backend, "supports_sharedmem", False):  # threads, which Python's lock holds up
            return SERIAL
        n_workers = min(n_jobs, backend.effective_n_jobs(-1 if wanted is None else wanted))
        return Engine("joblib", n_workers) if n_workers > 1 else SERIAL
    n_processes = max_processes()
    if wanted is not None:
        n_processes = min(n_processes, backend.effective_n_jobs(wanted))
    n_workers = min(n_jobs, n_processes)
    if device.type != "cpu" or n_workers == 1 or 2 * n_workers < n_processes:
        return SERIAL
    return Engine("fork", n_workers)


@contextmanager
def open_engine(
    name: str = "local",
    *,
    n_jobs: int | None = None,
    address: str | None = None,
    gpus: float = 0,
) -> Iterator[Engine]:
    """Give the engine of this name; it is closed at the end.

    Parameters
    ----------
    name : str
        One of :data:`ENGINES`. The machines of a cluster must share the folders that jobs use.
    n_jobs : int, optional
        Number of jobs at a time; by default 1 on this machine, and one per core on a cluster.
    address : str, optional
        Of a running cluster; by default one is started on this machine.
    gpus : float
        GPUs of each job on Ray, of which fractions can be shared.
    """
    if name not in ENGINES:
        raise InputError(f"There is no engine {name!r}; choose one of {', '.join(ENGINES)}.")
    if n_jobs is not None and n_jobs < 1:
        raise InputError(f"There cannot be {n_jobs} workers; use at least 1.")
    if (gpus and name != "ray") or (address is not None and name == "local"):
        raise InputError(
            "Only the engines ray and dask take an address, and only ray GPUs per job; choose one "
            "of them, or leave the option out."
        )
    if name == "ray":
        with _ray(address, n_jobs, gpus) as engine:
            yield engine
    elif name == "dask":
        with _dask(address, n_jobs) as engine:
            yield engine
    else:
        yield SERIAL if n_jobs in (None, 1) else Engine("spawn", n_jobs)


@contextmanager
def _ray(address: str | None, n_jobs: int | None, gpus: float) -> Iterator[Engine]:
    """Join a Ray cluster, or start one that is reachable from this machine only."""
    try:
        import ray
        from ray.util.joblib.ray_backend import RayBackend
    except ImportError as error:
        raise InputError('The engine ray needs Ray: pip install "cgmvae[ray]"') from error

    class Backend(RayBackend):
        """Gives results one by one, which joblib allows only where a backend says so."""

        supports_return_generator = True

    with ExitStack() as stack:
        if not ray.is_initialized():
            stack.callback(ray.shutdown)
            _start_ray(ray, address, n_jobs)
        resources = ray.cluster_resources()
        n_workers = int(resources.get("CPU", 1))
        if gpus:
            n_workers = min(n_workers, int(resources.get("GPU", 0) / gpus))
        n_workers = _room(n_workers, n_jobs)
        backend = Backend(ray_remote_args={"num_cpus": 1, "num_gpus": gpus})
        stack.enter_context(parallel_config(backend, n_jobs=n_workers))
        yield Engine("joblib", n_workers)


def _start_ray(ray: Any, address: str | None, n_jobs: int | None) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # send nothing to Ray's authors
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        own = {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}
        ray.init(num_cpus=n_jobs or cpu_count(), **own, **quiet)
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        if host and port.isdecimal():  # where nothing listens, Ray itself would try for minutes
            socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS).close()
        ray.init(address=address, **quiet)
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(
            f"No Ray cluster answers at {address}; check the address, and RAY_AUTH_TOKEN if the "
            "cluster asks for a token."
        ) from error


@contextmanager
def _dask(address: str | None, n_jobs: int | None) -> Iterator[Engine]:
    """Join a Dask cluster, or start one on this machine."""
    try:
        from distributed import Client
        from joblib._dask import DaskDistributedBackend
    except ImportError as error:
        raise InputError('The engine dask needs Dask: pip install "cgmvae[dask]"') from error
    own = {"n_workers": n_jobs or cpu_count(), "threads_per_worker": 1, "dashboard_address": None}
    try:
        client = Client(**own) if address is None else Client(address, timeout=_CONNECT_SECONDS)
    except (OSError, ValueError) as error:
        raise InputError(f"No Dask cluster answers at {address}; check the address.") from error
    with client:
        n_workers = _room(sum(client.ncores().values()), n_jobs)

        class Backend(DaskDistributedBackend):
            """Says what joblib needs to know when workers are lost."""

            def effective_n_jobs(self, n_jobs: int) -> int:
                """Return the number of workers, lost ones too: with one, joblib would not use it.

                Others take their place.
                """
                return n_workers

            def submit(self, func: Any, callback: Any = None) -> Any:
                """Submit a job; tell also of one that Dask gives up, for which joblib would wait.

                Dask itself has tried it again, and joblib cannot use this backend afterwards.
                """

                def tell(done: Any) -> None:
                    if (error := done.exception()) is not None:
                        callback(InputError(f"Dask lost the workers of a job: {error}"))

                future = super().submit(func, callback)
                future.add_done_callback(tell)
                return future

        with parallel_config(Backend(client=client)):
            yield Engine("joblib", n_workers)


def _room(n_workers: int, n_jobs: int | None) -> int:
    """Return how many jobs a cluster runs at a time; with a single one joblib would not use it."""
    n_workers = min(n_workers, n_jobs or n_workers)
    if n_workers < 2:
        raise InputError(
            "The cluster would run one job at a time; use the engine local, more workers or a "
            "fraction of a GPU per job."
        )
    return n_workers


def run(
    work: Work[Job, Result],
    jobs: Sequence[Job],
    engine: Engine = SERIAL,
    *,
    on_start: Callable[[int], None] = lambda _: None,
    on_report: Callable[..., None] = lambda *_: None,
    on_killed: Callable[[int, str], Result] | None = None,
    retries: int = 0,
    may_start: Callable[[Job, Sequence[Job]], bool] = lambda *_: True,
) -> Generator[tuple[int, Result], None, None]:
    """Yield the number and the result of each job as soon as it is done.

    Warnings and exceptions of all jobs are those of this function. Closing the iterator, like an
    exception, ends all jobs; so does the end of this process, even if it is killed.

    Parameters
    ----------
    work : callable
        Called as ``work(job, report)``. In ``spawn`` and ``joblib`` it is pickled, with the jobs.
    jobs : sequence
    engine : Engine
    on_start : callable, optional
        Called with the number of a job that starts; not with those of a cluster.
    on_report : callable, optional
        Called with the number of a job and what it has reported: each time, or only the last time,
        when the job is done, on a cluster.
    on_killed : callable, optional
        Called with the number of a job whose process was killed each time, and with what is known
        of the reason; returns the job's result. By default this is an error.
    retries : int
        How often a job whose process was killed is tried again.
    may_start : callable, optional
        Whether a job may start beside those that run, on this machine; if not, a later one does.
    """
    if engine.kind == "serial":
        yield from _run_here(work, jobs, range(len(jobs)), on_start, on_report)
        return
    killed = _Killed(retries, on_killed)
    if engine.kind == "joblib":
        yield from _run_with_joblib(work, jobs, engine.n_jobs, on_report, killed)
    else:
        yield from _run_in_processes(work, jobs, engine, on_start, on_report, killed, may_start)


def _run_here(
    work: Work[Job, Result],
    jobs: Sequence[Job],
    numbers: Sequence[int],
    on_start: Callable[[int], None],
    on_report: Callable[..., None],
) -> Iterator[tuple[int, Result]]:
    """Do jobs in this process, one after the other."""
    for number in numbers:
        on_start(number)
        yield number, work(jobs[number], partial(on_report, number))


class _Killed(Generic[Result]):
    """Counts how often the process of a job was killed, and ends the retries."""

    def __init__(self, retries: int, result: Callable[[int, str], Result] | None) -> None:
        self._retries, self._result = retries, result
        self._counts: Counter[int] = Counter()

    def is_final(self, number: int) -> bool:
        """Take note that the process of a job was killed; return whether it was the last time."""
        self._counts[number] += 1
        return self._counts[number] > self._retries

    def result(self, number: int, error: Exception | None = None) -> Result:
        """Return the result of a job that is given up, or raise."""
        if error is None:
            reason = "A process was killed, perhaps because memory ran out"
            advice = "use fewer of them by setting the environment variable OMP_NUM_THREADS=1"
        else:
            words = str(error).strip().rpartition("\n")[2]
            reason = f"The cluster lost a worker ({type(error).__name__}: {words})"
            advice = "it may need more memory, or another version of a package"
        if self._result is not None:
            return self._result(number, reason)
        raise InputError(f"{reason}; {advice}.") from error


class _Outcome(NamedTuple):
    """What became of a job in another process."""

    value: Any
    error: Exception | None
    warnings: list[Warning]

    def result(self) -> Any:
        """Give the warnings of the job again, and return its result or raise its error."""
        for warning in self.warnings:
            warnings.warn(warning, stacklevel=5)
        if self.error is not None:
            raise self.error
        return self.value


def _attempt(work: Work[Job, Any], job: Job, report: Report) -> _Outcome:
    """Do a job in another process; return what becomes of it."""
    value, failure = None, None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            value = work(job, report)
        except Exception as error:
            failure = _sendable(error)
            if not isinstance(failure, InputError):
                failure.add_note(f"In another process:\n{traceback.format_exc()}")
    told = [each.message for each in caught if isinstance(each.message, Warning)]
    return _Outcome(value, failure, told)


def _sendable(error: Exception) -> Exception:
    """Return the error, or its words if pickle cannot bring it to another process."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


# --- On a cluster -------------------------------------------------------------------------------


def _run_with_joblib(
    work: Work[Job, Result],
    jobs: Sequence[Job],
    n_jobs: int,
    on_report: Callable[..., None],
    killed: _Killed[Result],
) -> Iterator[tuple[int, Result]]:
    """Run jobs in the workers of joblib's backend.

    A backend that loses a worker gives up all jobs, and does not say which of them it had. The jobs
    that had been sent are then tried again one at a time, after the others.
    """
    try:
        pickled = pickle.dumps(wrap_non_picklable_objects(work, keep_wrapper=False))
    except Exception as error:  # with which a backend may wait forever
        raise InputError(f"This training cannot be sent to a cluster: {error}.") from error
    backend, _ = get_active_backend()
    return_as = "generator_unordered" if backend.supports_return_generator else "list"
    rounds = deque([list(range(len(jobs)))])
    while rounds:
        waiting = deque(rounds.popleft())
        sent: set[int] = set()

        def calls(waiting: deque[int] = waiting, sent: set[int] = sent) -> Iterator[Any]:
            while waiting:
                number = waiting.popleft()
                sent.add(number)
                yield delayed(_attempt_on_cluster)(pickled, jobs[number], number)

        parallel = Parallel(n_jobs=n_jobs, batch_size=1, pre_dispatch="n_jobs", return_as=return_as)
        outcomes = iter(parallel(calls()))
        while True:
            try:
                number, told, outcome = next(outcomes)
            except StopIteration:
                break
            except InputError:
                raise
            except Exception as error:
                if waiting:
                    rounds.append(list(waiting))
                for number in sorted(sent):
                    if killed.is_final(number):
                        yield number, killed.result(number, error)
                    else:
                        rounds.append([number])
                break
            sent.remove(number)
            if told:
                on_report(number, *told)
            yield number, outcome.result()


def _attempt_on_cluster(
    pickled: bytes, job: Job, number: int
) -> tuple[int, tuple[Any, ...], _Outcome]:
    """Do a job on one core; return its number, what it reported last, and what became of it."""
    told: tuple[Any, ...] = ()

    def report(*now: Any) -> None:
        nonlocal told
        told = now

    with parallel_config("sequential"):
        outcome = _attempt(pickle.loads(pickled), job, report)
    return number, told, outcome


# --- On this machine ----------------------------------------------------------------------------


def _run_in_processes(
    work: Work[Job, Result],
    jobs: Sequence[Job],
    engine: Engine,
    on_start: Callable[[int], None],
    on_report: Callable[..., None],
    killed: _Killed[Result],
    may_start: Callable[[Job, Sequence[Job]], bool],
) -> Iterator[tuple[int, Result]]:
    """Run jobs in processes of this machine, as many as memory and limits allow."""
    waiting = list(range(len(jobs)))
    n_processes = engine.n_jobs
    idle: list[_Process] = []
    busy: dict[Any, _Process] = {}
    with ExitStack() as stack:
        while waiting or busy:
            while len(busy) < n_processes:
                running = [jobs[each.number] for each in busy.values() if each.number is not None]
                ready = (each for each in waiting if may_start(jobs[each], running))
                if (number := next(ready, None)) is None:
                    break
                if not idle:
                    try:
                        process = _Process(engine, work, jobs)
                    except OSError:
                        n_processes = len(busy)
                        break
                    stack.callback(process.stop)
                    idle.append(process)
                waiting.remove(number)
                process = idle.pop()
                process.start(number)
                busy[process.pipe] = process
                on_start(number)
            if not busy:  # not even one process could be started
                yield from _run_here(work, jobs, waiting, on_start, on_report)
                return
            for pipe in wait(list(busy)):
                process = busy[pipe]
                assert process.number is not None
                number, message = process.number, process.message()
                if isinstance(message, tuple) and not isinstance(message, _Outcome):
                    on_report(number, *message)
                    continue
                del busy[pipe]
                if isinstance(message, _Outcome):
                    process.number = None
                    idle.append(process)
                    yield number, message.result()
                elif killed.is_final(number):
                    yield number, killed.result(number)
                else:
                    waiting.append(number)


class _Process:
    """A process that does one job after the other.

    Each has its own pipe, so that it is known which job a process had that was killed.
    """

    def __init__(self, engine: Engine, work: Work[Job, Any], jobs: Sequence[Job]) -> None:
        forked = engine.kind == "fork"
        n_threads = 1 if forked else max(1, cpu_count() // engine.n_jobs)
        context: Any = get_context(engine.kind)
        self.number: int | None = None
        """Of the job that it has."""
        self.pipe, theirs = context.Pipe()
        # A forked process ends at once. Another one may start processes, which a daemon may not.
        self._process = context.Process(
            target=_serve, args=(theirs, work, jobs, n_threads, forked), daemon=forked
        )
        try:
            if not forked and sys.platform != "win32":
                resource_tracker.ensure_running()  # which unblocks the signal that is blocked next
            with _without_interrupts(), _one_thread() if forked else nullcontext():
                self._process.start()
        except OSError:
            self.pipe.close()
            raise
        finally:
            theirs.close()

    def start(self, number: int) -> None:
        """Send the number of a job to the process; if it is dead, :meth:`message` returns None."""
        self.number = number
        with suppress(OSError):
            self.pipe.send(number)

    def message(self) -> Any:
        """Return what the process says next: a report, an outcome, or None if it was killed."""
        try:
            return self.pipe.recv()
        except (EOFError, OSError):
            return None

    def stop(self) -> None:
        """End the process, whatever it does."""
        if self.number is None and not self._process.daemon:
            with suppress(OSError):
                self.pipe.send(None)
            self._process.join(_EXIT_SECONDS)  # together with the processes that it started
        self._process.terminate()
        self._process.join()
        self.pipe.close()


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Keep Ctrl-C from processes that start, until they ignore it: this one ends them.

    They inherit the blocked signal, which Windows does not have.
    """
    if sys.platform == "win32":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let a process that is forked use a single thread: it does not have the others."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # that threads are not forked
            yield
    finally:
        torch.set_num_threads(n_threads)


def _serve(
    pipe: Connection, work: Work[Job, Any], jobs: Sequence[Job], n_threads: int, forked: bool
) -> None:
    """Do jobs until there is None."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if not forked:
        torch.set_num_threads(n_threads)
        threadpool_limits(n_threads)  # of NumPy and SciPy, which would use all cores everywhere
    with suppress(EOFError, BrokenPipeError):
        while (number := pipe.recv()) is not None:
            pipe.send(_attempt(work, jobs[number], lambda *told: pipe.send(told)))


def _end_with_parent() -> None:
    """End this process when the one that started it was killed, in the middle of work too."""
    if (parent := parent_process()) is not None:
        parent.join()
        os._exit(1)
