"""The process that serves: its socket, its signals, its log."""

from __future__ import annotations

import ipaddress
import logging
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import uvicorn
from fastapi import FastAPI

from cgmvae.errors import InputError
from cgmvae.serving.boundary import logger

#: Seconds that a finished connection is kept open for the next request.
_KEEP_ALIVE = 10

#: Seconds beyond a request's own time that its answer may take to be sent when the server ends.
_LAST_ANSWERS = 5


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0 takes any that is free."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise InputError(f"There is no address {host!r} here; choose another --host.") from error
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(1024)
    except OSError as error:
        listening.close()
        raise InputError(
            f"Cannot listen at {host}, port {port} ({error.strerror}); choose another --host or "
            "--port."
        ) from error
    return listening


def address(listening: socket.socket) -> str:
    """Return where a listening socket is reached, for people."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_local(host: str) -> bool:
    """Tell whether only programs of this machine reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def run(app: FastAPI, listening: socket.socket, *, seconds: float) -> None:
    """Serve until Ctrl-C or SIGTERM, and answer what was taken in.

    Parameters
    ----------
    app : FastAPI
    listening : socket
        From :func:`bind`.
    seconds : float
        How long a request can take.
    """
    with _signals_end_quietly():
        uvicorn.Server(settings(app, seconds)).run(sockets=[listening])


def settings(app: FastAPI, seconds: float) -> uvicorn.Config:
    """Return how uvicorn runs the application: without a log of its own."""
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=int(seconds) + _LAST_ANSWERS,
    )


@contextmanager
def _signals_end_quietly() -> Iterator[None]:
    """Let the signals that end the server, which uvicorn raises again at its end, do no more."""

    def end(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        with suppress(KeyboardInterrupt):
            yield
    finally:
        signal.signal(signal.SIGTERM, before)


def log_to(stream: Any) -> None:
    """Write a line for each request, with the time in UTC."""
    form = logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%dT%H:%M:%SZ")
    form.converter = time.gmtime
    handler = logging.StreamHandler(stream)
    handler.setFormatter(form)
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.INFO)
