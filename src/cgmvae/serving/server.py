"""The server process: its socket, its signals and its log."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import logging
import math
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from contextlib import suppress
from functools import partial
from multiprocessing import get_context, parent_process
from typing import Any

import torch
import uvicorn
from fastapi import FastAPI
from threadpoolctl import threadpool_limits
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from cgmvae.errors import InputError
from cgmvae.methods import load
from cgmvae.serving.app import make_app
from cgmvae.serving.config import ServingConfig
from cgmvae.serving.metrics import FOLDER_VARIABLE
from cgmvae.serving.middleware import logger

#: Connections that the event loop accepts before it looks at those that it has.
_ACCEPTED_AT_ONCE = 32

#: Descriptors that connections leave free: 64 for files and threads, and those of new connections,
#: which are accepted three times before the first ones beyond the limit are closed. If a descriptor
#: is missing, asyncio accepts nothing for a second.
_SPARE_DESCRIPTORS = 64 + 3 * _ACCEPTED_AT_ONCE

#: Seconds between two log lines about connections that were closed.
_LOG_SECONDS = 60

#: Part of the grace period in which a stopping server still accepts requests.
_DRAINING = 0.25


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 takes any free port."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        return socket.create_server((host, port), family=family, backlog=1024, dualstack_ipv6=both)
    except (socket.gaierror, UnicodeError) as error:
        raise InputError(
            f"There is no address {host!r} on this machine; choose another host."
        ) from error
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else error
        raise InputError(
            f"Cannot listen at {host}, port {port} ({reason}); choose another host or port."
        ) from error


def address(listening: socket.socket) -> str:
    """Return the URL of a listening socket."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_local(host: str) -> bool:
    """Return whether an address can only be reached from this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def serve_file(
    path: str,
    config: ServingConfig,
    listening: socket.socket,
    *,
    threads: int,
    quiet: bool,
    model: Any = None,
) -> None:
    """Serve a model from its file, unless it is given already; see :func:`run`.

    The limit of threads also holds for NumPy, whose threads would busy-wait for a core that the
    event loop uses. The garbage collector ignores what was loaded by then; otherwise it would visit
    all objects of all libraries again and again, while every request waits.
    """
    torch.set_num_threads(threads)
    if not quiet:
        log_to(sys.stderr)
    app = make_app(model or load(path), config, partial(load, path))
    gc.collect()
    gc.freeze()
    with threadpool_limits(threads):
        run(app, listening, config)


def serve_in_workers(n_workers: int, *args: Any, **options: Any) -> None:
    """Serve a model in several processes that share the socket, until Ctrl-C or SIGTERM.

    A worker that ends is replaced, SIGHUP is passed on, and workers end with this process. The
    other arguments are those of :func:`serve_file`.
    """
    context = get_context("spawn")
    is_stopping = threading.Event()

    def start() -> Any:
        worker = context.Process(
            target=_work, args=args, kwargs=options, daemon=True, name="worker"
        )
        worker.start()
        return worker

    def reload(*_: Any) -> None:
        for worker in workers:
            os.kill(worker.pid, signal.SIGHUP)

    with tempfile.TemporaryDirectory() as folder:
        os.environ[FOLDER_VARIABLE] = folder
        workers = [start() for _ in range(n_workers)]
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: is_stopping.set())
        if hasattr(signal, "SIGHUP"):
            signal.signal(signal.SIGHUP, reload)
        while not is_stopping.wait(0.5):
            for i, worker in enumerate(workers):
                if not worker.is_alive():
                    logger.error("A worker ended (exit code %s) and is replaced.", worker.exitcode)
                    workers[i] = start()
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.join()


def _work(*args: Any, **options: Any) -> None:
    """Serve in a worker process, which stops if the process that started it was killed."""

    def follow_parent() -> None:
        if (parent := parent_process()) is not None:
            parent.join()
            signal.raise_signal(signal.SIGTERM)

    threading.Thread(target=follow_parent, daemon=True).start()
    serve_file(*args, **options)


def run(app: FastAPI, listening: socket.socket, config: ServingConfig) -> None:
    """Serve until Ctrl-C or SIGTERM, and answer the requests received until then.

    uvicorn raises the signal that stopped it again at its end, which is suppressed.
    """

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        with suppress(KeyboardInterrupt):
            Server(app, config).run(sockets=[listening])
    finally:
        signal.signal(signal.SIGTERM, before)


class Server(uvicorn.Server):
    """uvicorn with limits for connections, and with a shutdown that loses no request.

    uvicorn by itself waits forever for a client that connects and sends nothing, or half a request.
    """

    def __init__(self, app: FastAPI, config: ServingConfig) -> None:
        self.app, self.limits = app, config
        self.n_closed = 0
        self._logged = -math.inf
        super().__init__(
            uvicorn.Config(
                app,
                http=partial(_Connection, self),  # type: ignore[arg-type]
                log_config=None,
                log_level=logging.ERROR,  # no line per malformed request
                access_log=False,
                server_header=False,
                proxy_headers=False,
                ws="none",
                backlog=_ACCEPTED_AT_ONCE,
                timeout_keep_alive=math.ceil(config.idle_seconds),
                timeout_graceful_shutdown=math.ceil(config.grace_seconds * (1 - _DRAINING)),
                timeout_notify=0,
                callback_notify=self._close_late_connections,
            )
        )
        self.max_connections = min(config.connections, _max_descriptors() - _SPARE_DESCRIPTORS)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen, with a queue that holds more connections than are accepted at once."""
        await super().startup(sockets)
        for listening in sockets or ():
            listening.listen(1024)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer requests for a while and ask clients to close; then close, and wait for the rest.

        A client whose next request was already on its way gets its response.
        """
        self.app.state.draining = True
        end = time.monotonic() + self.limits.grace_seconds * _DRAINING
        while self.server_state.connections and time.monotonic() < end and not self.force_exit:
            await asyncio.sleep(0.02)
        await super().shutdown(sockets)

    def make_room(self, new: _Connection) -> bool:
        """Close the other connection that has been idle longest, if there are too many.

        Return False if all others are in use. A client that opens connections and sends nothing
        thus keeps nobody else out.
        """
        connections = self._connections()
        if len(connections) <= self.max_connections:
            return True
        idle = [each for each in connections if each.is_idle() and each is not new]
        if idle:
            self._close(min(idle, key=lambda each: each.since))
        return bool(idle)

    def _connections(self) -> set[Any]:  # uvicorn declares its own class
        return self.server_state.connections

    def _close(self, connection: _Connection) -> None:
        connection.transport.abort()
        self._connections().discard(connection)  # asyncio reports it lost later
        self.count_closed()

    def count_closed(self) -> None:
        """Count a connection that was closed, for the log and the metrics."""
        self.n_closed += 1
        self.app.state.metrics.closed_connections.inc()

    async def _close_late_connections(self) -> None:
        """Close connections beyond their timeout; uvicorn calls this once per second."""
        now = time.monotonic()
        for connection in list(self._connections()):
            if now - connection.since > connection.max_seconds():
                self._close(connection)
        if self.n_closed and now - self._logged >= _LOG_SECONDS:
            logger.warning("Closed %d idle or slow connections.", self.n_closed)
            self.n_closed, self._logged = 0, now


class _Connection(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """A connection that knows since when it waits for a request.

    The clock starts when the connection is opened and when a response was sent; data do not reset
    it, so that a client cannot keep a connection by sending a byte at a time.
    """

    def __init__(self, server: Server, **options: Any) -> None:
        super().__init__(**options)
        self._server = server
        self.since = time.monotonic()

    def connection_made(self, transport: Any) -> None:
        """Accept the connection if there is room."""
        # asyncio only does this for sockets whose protocol is given as TCP.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().connection_made(transport)
        self._is_refused = not self._server.make_room(self)

    def data_received(self, data: bytes) -> None:
        """Read a part of a request, or refuse it: a client expects no response before it sends."""
        if not self._is_refused:
            super().data_received(data)
            return
        self._server.count_closed()
        self.transport.write(_NO_ROOM)
        self.transport.close()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self.since = time.monotonic()
        super().on_response_complete()

    def is_idle(self) -> bool:
        """Return whether no request is in progress."""
        return self.cycle is None or self.cycle.response_complete

    def max_seconds(self) -> float:
        """Return how long the connection may wait for a request, and take until its response."""
        limits = self._server.limits
        return limits.idle_seconds + (0 if self.is_idle() else 2 * limits.seconds)


_NO_ROOM = (
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\n"
    b"Content-Type: application/json\r\nContent-Length: 67\r\n\r\n"
    b'{"error":"Too many connections are open; try again in a second."}\r\n'
)


def _max_descriptors() -> float:
    """Return how many files and sockets this process may open."""
    try:
        import resource
    except ImportError:  # Windows, which has no such limit
        return math.inf
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return math.inf if limit == resource.RLIM_INFINITY else limit


def log_to(stream: Any) -> None:
    """Write one line per request to a stream, with the time in UTC."""
    formatter = logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%dT%H:%M:%SZ")
    formatter.converter = time.gmtime
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.INFO)
