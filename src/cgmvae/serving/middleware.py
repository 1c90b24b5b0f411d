"""ASGI middleware around the application: API key, memory limits, log, and unexpected errors.

One line is logged per request, with its status, the sizes of request and response, and its
duration. It contains neither content of the request nor addresses.
"""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from hmac import compare_digest
from pathlib import Path

from fastapi.security import APIKeyHeader, HTTPBearer
from starlette.datastructures import State
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cgmvae.serving.config import ServingConfig
from cgmvae.serving.responses import RequestError, overloaded

logger = logging.getLogger("cgmvae.serving")

#: Answered without an API key, however busy the server is, and not counted.
OPEN_PATHS = ("/health", "/live", "/ready")

#: The two ways to send the API key.
BEARER = HTTPBearer(scheme_name="bearer", auto_error=False)
KEY_HEADER = APIKeyHeader(name="X-API-Key", scheme_name="header", auto_error=False)

#: Responses up to this size, such as errors, are always sent.
_SMALL_RESPONSE = 2**16

#: Sent by a server that stops.
_CLOSE = (b"connection", b"close")

_HEADERS = [(b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]


class ServingMiddleware:
    """ASGI middleware around everything else."""

    def __init__(self, app: ASGIApp, config: ServingConfig) -> None:
        self._app, self._config = app, config
        self._n_active = self._held_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(receive, send, self, scope)
        scope["hold"] = exchange.hold
        self._n_active += 1
        try:
            await self._check(scope)
            await self._app(scope, exchange.receive, exchange.send)
            if exchange.dropped is not None:
                await exchange.fail(scope, exchange.dropped)
        except asyncio.CancelledError:  # the server stopped waiting for its last requests
            await exchange.fail(scope, overloaded("The server is stopping; try again later."))
        except RequestError as error:
            await exchange.fail(scope, error)
        except Exception as error:
            # Where it was raised, without its message, which may quote the request.
            frame = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{frame.name} ({Path(frame.filename).name}:{frame.lineno})"
            logger.error("Internal error: %s in %s", type(error).__name__, place)
            message = "Internal server error; the server's log says where."
            await exchange.fail(scope, RequestError(500, message))
        finally:
            self._n_active -= 1
            self._held_bytes -= exchange.held_bytes
            exchange.log()

    def hold(self, size: int) -> None:
        """Count bytes of request and response bodies that are in memory until they are sent."""
        if self._held_bytes + size > self._config.held_bytes:
            raise overloaded("Too much data is in progress; try again in a second.")
        self._held_bytes += size

    async def _check(self, scope: Scope) -> None:
        if scope["path"] in OPEN_PATHS:
            return
        if self._config.api_key is not None:
            connection, expected = HTTPConnection(scope), self._config.api_key.encode("ascii")
            bearer = await BEARER(connection)
            sent = (await KEY_HEADER(connection), bearer and bearer.credentials)
            # The time of a comparison does not depend on how much of the key matches.
            if not any(compare_digest((each or "").encode("latin-1"), expected) for each in sent):
                message = "The API key is missing or wrong; send it as 'Authorization: Bearer KEY'."
                raise RequestError(401, message, {"WWW-Authenticate": "Bearer"})
        if self._n_active > self._config.requests:
            raise overloaded("Too many requests are in progress; try again in a second.")


class _Exchange:
    """One request and its response, as they pass through."""

    def __init__(
        self, receive: Receive, send: Send, middleware: ServingMiddleware, scope: Scope
    ) -> None:
        self._receive, self._send, self._middleware = receive, send, middleware
        self._state: State = scope["app"].state
        self._is_counted = scope["path"] not in OPEN_PATHS
        self._started = time.perf_counter()
        self._bytes_in = self._bytes_out = self.held_bytes = 0
        self._status: int | None = None
        self.dropped: RequestError | None = None
        """Why the response was not sent."""

    async def receive(self) -> Message:
        message = await self._receive()
        size = len(message.get("body", b""))
        self.hold(size)
        self._bytes_in += size
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            size = int(dict(message["headers"]).get(b"content-length", 0))
            try:
                self.hold(size if size > _SMALL_RESPONSE else 0)
            except RequestError as error:  # Starlette would not propagate it from here
                self.dropped = error
                return
            self._status = message["status"]
            headers = [*message["headers"], *_HEADERS, *([_CLOSE] if self._state.draining else [])]
            message = {**message, "headers": headers}
        if self.dropped is None:
            self._bytes_out += len(message.get("body", b""))
            await self._send(message)

    def hold(self, size: int) -> None:
        """Count bytes that the request takes until its response is sent."""
        self._middleware.hold(size)
        self.held_bytes += size

    async def fail(self, scope: Scope, error: RequestError) -> None:
        """Send an error, unless part of a response was already sent."""
        if self._status is None:
            self.dropped = None
            await error.response()(scope, self.receive, self.send)

    def log(self) -> None:
        """Log status, sizes and duration, and count the request."""
        seconds = time.perf_counter() - self._started
        sizes = (self._bytes_in, self._bytes_out)
        logger.info("status=%s in=%d out=%d ms=%.1f", self._status, *sizes, seconds * 1000)
        if self._is_counted:
            self._state.metrics.add_request(self._status, seconds)
