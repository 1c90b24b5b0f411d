"""How much of a request is read, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.requests import ClientDisconnect, Request

from cgmvae.serving.config import ServingConfig
from cgmvae.serving.refusals import Refusal

#: Said of a client that left before its answer; nobody receives it, but it is in the log.
_LEFT = 499

#: With an answer to a request that was not read to its end, so that nobody need read it.
_HANG_UP = {"Connection": "close"}


async def read_body(request: Request, config: ServingConfig) -> bytes:
    """Read a request's body, and stop where it grows beyond the limit.

    The length that the client announced only serves to refuse at once: what counts is what comes.
    """
    announced = request.headers.get("content-length", "0")
    if announced.isascii() and announced.isdigit() and int(announced) > config.body_bytes:
        raise _too_large(config)
    parts, size = [], 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > config.body_bytes:
                raise _too_large(config)
            parts.append(part)
    except ClientDisconnect as error:
        raise Refusal(_LEFT, "The client left before its request was complete.") from error
    return b"".join(parts)


def _too_large(config: ServingConfig) -> Refusal:
    sentence = f"The body has more than {config.body_bytes:,} bytes; send several requests."
    return Refusal(413, sentence, _HANG_UP)


@asynccontextmanager
async def time_limit(config: ServingConfig) -> AsyncIterator[None]:
    """Refuse what is not done within the time of a request."""
    try:
        async with asyncio.timeout(config.seconds):
            yield
    except TimeoutError as error:
        raise Refusal(
            504,
            f"The request took more than {config.seconds:g} seconds; send fewer rows, or try again "
            "later.",
            _HANG_UP,
        ) from error
