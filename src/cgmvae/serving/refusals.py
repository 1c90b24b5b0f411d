"""How a request is refused: a status and one sentence, as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

#: Characters of a name that a sentence quotes.
_SHOWN = 60

#: Characters of a sentence, which may quote what a client sent.
_LONGEST = 500


class Refusal(Exception):
    """A request that gets no answer but this sentence."""

    def __init__(
        self, status: int, sentence: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(sentence)
        self.status, self.headers = status, headers
        self.sentence = sentence if len(sentence) <= _LONGEST else f"{sentence[:_LONGEST]}…"

    def response(self) -> Response:
        """Return what the client is told."""
        return json_response({"error": self.sentence}, self.status, self.headers)


def json_response(
    content: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return an answer in JSON, all ASCII: a name may hold half a character."""
    body = json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")
    return Response(body, status, headers, "application/json")


def come_again(sentence: str) -> Refusal:
    """Return the refusal of a server that has too much to do at the moment."""
    return Refusal(503, sentence, {"Retry-After": "1"})


def shown(value: Any) -> str:
    """Quote what a client sent, cut where it is long."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
