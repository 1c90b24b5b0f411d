"""The server process: its socket, its signals and its log."""

from __future__ import annotations

import ipaddress
import logging
import os
import signal
import socket
import time
from contextlib import suppress
from typing import Any

import uvicorn
from fastapi import FastAPI

from cgmvae.errors import InputError
from cgmvae.serving.middleware import logger

#: Seconds that an idle connection is kept open.
_KEEP_ALIVE = 10

#: Seconds beyond the timeout of a request that the server waits for responses when it stops.
_SHUTDOWN_GRACE = 5


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


def run(app: FastAPI, listening: socket.socket, *, seconds: float) -> None:
    """Serve until Ctrl-C or SIGTERM, and answer the requests received until then.

    ``seconds`` is the timeout of a request. uvicorn raises the signal that stopped it again at its
    end, which is suppressed.
    """

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        with suppress(KeyboardInterrupt):
            uvicorn.Server(settings(app, seconds)).run(sockets=[listening])
    finally:
        signal.signal(signal.SIGTERM, before)


def settings(app: FastAPI, seconds: float) -> uvicorn.Config:
    """Return the configuration of uvicorn, without a log of its own."""
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=int(seconds) + _SHUTDOWN_GRACE,
    )


def log_to(stream: Any) -> None:
    """Write one line per request to a stream, with the time in UTC."""
    formatter = logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%dT%H:%M:%SZ")
    formatter.converter = time.gmtime
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.INFO)
