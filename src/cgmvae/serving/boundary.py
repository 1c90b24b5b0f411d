"""The outermost layer of the application: who is let in, what is logged, what a defect looks like.

One line is logged for each request, with its status, the bytes that came and went, and the time it
took; nothing that a client sent is in it, and no address.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
import traceback
from pathlib import Path

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cgmvae.serving.config import ServingConfig
from cgmvae.serving.refusals import Refusal, come_again

logger = logging.getLogger("cgmvae.serving")

#: What is answered without a key, and however much there is to do.
OPEN_PATH = "/health"

#: Bytes of an answer that is always sent, such as a refusal.
_SMALL = 2**16

_HEADERS = [
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
]


class Boundary:
    """ASGI middleware around everything else.

    Parameters
    ----------
    app : ASGI application
    config : ServingConfig
        Key, and number of requests that are worked at.
    """

    def __init__(self, app: ASGIApp, config: ServingConfig) -> None:
        self._app, self._config = app, config
        self._working = 0
        self._ledger = _Ledger(config.held_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(receive, send, self._ledger)
        self._working += 1
        try:
            await self._answer(scope, exchange)
        finally:
            self._working -= 1
            exchange.end()

    async def _answer(self, scope: Scope, exchange: _Exchange) -> None:
        try:
            self._check(scope)
            await self._app(scope, exchange.receive, exchange.send)
            if exchange.dropped is not None:
                await exchange.give_up(scope, exchange.dropped)
        except asyncio.CancelledError:  # the server has waited long enough for its last requests
            await exchange.give_up(scope, come_again("The server is stopping; try again later."))
        except Refusal as refusal:
            await exchange.give_up(scope, refusal)
        except Exception as error:
            logger.error("A defect of the server: %s", _place_of(error))
            sentence = "The server failed at this request; its log says where."
            await exchange.give_up(scope, Refusal(500, sentence))

    def _check(self, scope: Scope) -> None:
        if scope["path"] == OPEN_PATH:
            return
        if self._config.api_key is not None and not _has_key(scope, self._config.api_key):
            sentence = "The API key is missing or wrong; send it as 'Authorization: Bearer KEY'."
            raise Refusal(401, sentence, {"WWW-Authenticate": "Bearer"})
        if self._working > self._config.requests:
            raise come_again("Too many requests are being worked at; try again in a second.")


class _Ledger:
    """The bytes of bodies and answers that are held at the moment."""

    def __init__(self, most: int) -> None:
        self._most, self._held = most, 0

    def take(self, size: int) -> None:
        if self._held + size > self._most:
            raise come_again("Too much data is being worked at; try again in a second.")
        self._held += size

    def release(self, size: int) -> None:
        self._held -= size


class _Exchange:
    """One request and its answer, as they pass."""

    def __init__(self, receive: Receive, send: Send, ledger: _Ledger) -> None:
        self._receive, self._send, self._ledger = receive, send, ledger
        self._started = time.perf_counter()
        self._bytes_in = self._bytes_out = self._held = 0
        self._status: int | None = None
        self.dropped: Refusal | None = None
        """Why the answer was not sent."""

    async def receive(self) -> Message:
        message = await self._receive()
        size = len(message.get("body", b""))
        self._hold(size)
        self._bytes_in += size
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            try:
                self._hold_answer(message)
            except Refusal as refusal:  # Starlette would not let it pass from here
                self.dropped = refusal
                return
            self._status = message["status"]
            message = {**message, "headers": [*message["headers"], *_HEADERS]}
        if self.dropped is None:
            self._bytes_out += len(message.get("body", b""))
            await self._send(message)

    def _hold_answer(self, start: Message) -> None:
        size = int(dict(start["headers"]).get(b"content-length", 0))
        if size > _SMALL:
            self._hold(size)

    def _hold(self, size: int) -> None:
        self._ledger.take(size)
        self._held += size

    async def give_up(self, scope: Scope, refusal: Refusal) -> None:
        """Tell the client, unless it has part of an answer already."""
        if self._status is None:
            self.dropped = None
            await refusal.response()(scope, self.receive, self.send)

    def end(self) -> None:
        """Let go of what was held, and write the line of the log."""
        self._ledger.release(self._held)
        milliseconds = (time.perf_counter() - self._started) * 1000
        logger.info(
            "status=%s in=%d out=%d ms=%.1f",
            self._status,
            self._bytes_in,
            self._bytes_out,
            milliseconds,
        )


def _has_key(scope: Scope, key: str) -> bool:
    """Tell whether one of the two headers holds the key, in a time that does not depend on it."""
    wanted, found = key.encode("ascii"), False
    for name, value in scope["headers"]:
        if name == b"x-api-key":
            found |= hmac.compare_digest(value, wanted)
        elif name == b"authorization" and value[:7].lower() == b"bearer ":
            found |= hmac.compare_digest(value[7:].strip(), wanted)
    return found


def _place_of(error: Exception) -> str:
    """Say where an error was raised, without its message, which may quote what a client sent."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {frame.name} ({Path(frame.filename).name}:{frame.lineno})"
