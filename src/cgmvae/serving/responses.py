"""What the server sends: response schemas, errors as one sentence in JSON, and the docs page."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse

#: Maximum length of a value quoted in an error message, and of the message itself.
_MAX_QUOTE, _MAX_MESSAGE = 60, 500


# --- Schemas --------------------------------------------------------------------------------------


class ErrorMessage(BaseModel):
    """Why a request was rejected."""

    error: str = Field(description="One sentence.")


class TopLabel(BaseModel):
    """One of the most probable labels of a row."""

    label: str
    probability: float


class Prediction(BaseModel):
    """The labels of one row."""

    model_config = ConfigDict(extra="forbid")

    labels: list[str]
    top: list[TopLabel] = Field(default=[], description="If requested with ?top=.")
    probabilities: dict[str, float] = Field(
        default={}, description="If requested with ?probabilities=true."
    )


class Thresholds(BaseModel):
    """How probabilities become labels."""

    rule: Literal["global", "per-label", "top-k"]
    threshold: float | None = Field(default=None, description="Of the rule global.")
    thresholds: dict[str, float] | None = Field(default=None, description="Of the rule per-label.")
    k: int | None = Field(default=None, description="Of the rule top-k.")


class Predictions(BaseModel):
    """The labels of all rows, in the order of the request."""

    predictions: list[Prediction]
    thresholds: Thresholds
    ignored_columns: list[str] = Field(description="Columns that the model does not use.")


class LabelDescription(BaseModel):
    """A label and its threshold."""

    name: str
    threshold: float | None = Field(description="Minimum probability of a predicted label.")


class Labels(BaseModel):
    """All labels, in the model's order."""

    labels: list[LabelDescription]
    thresholds: Thresholds


class SimilarLabel(BaseModel):
    """A label and its similarity to the requested one."""

    label: str
    similarity: float


class Similar(BaseModel):
    """The labels most similar to the requested one, in descending order."""

    label: str
    similarity_is: str = Field(description="What the similarity measures.")
    similar: list[SimilarLabel]


class ModelDescription(BaseModel):
    """The model that is served."""

    method: str
    n_columns: int
    n_labels: int
    library: str = Field(description="Version of cgmvae.")


class Health(BaseModel):
    """Whether the server is ready."""

    ready: bool
    model: ModelDescription


class Live(BaseModel):
    """Whether the server process runs."""

    live: bool


class Ready(BaseModel):
    """Whether the server takes requests."""

    ready: bool


class AsciiJSONResponse(JSONResponse):
    """JSON in ASCII: a label name may contain a lone surrogate, which UTF-8 cannot encode."""

    def render(self, content: Any) -> bytes:
        """Return the body."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


# --- Errors ---------------------------------------------------------------------------------------


class RequestError(Exception):
    """A request that is rejected with a status and a message."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers
        self.message = message if len(message) <= _MAX_MESSAGE else f"{message[:_MAX_MESSAGE]}…"

    def response(self) -> JSONResponse:
        """Return the response that the client receives."""
        return AsciiJSONResponse({"error": self.message}, self.status, self.headers)


def overloaded(message: str) -> RequestError:
    """Return the error of a server that is too busy at the moment."""
    return RequestError(503, message, {"Retry-After": "1"})


def quoted(value: Any) -> str:
    """Quote a value of the request, truncated if it is long."""
    text = repr(value)
    return text if len(text) <= _MAX_QUOTE else f"{text[:_MAX_QUOTE]}…"


# --- The page /docs -------------------------------------------------------------------------------

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem }
h2 { margin-top: 2.5rem; border-top: 1px solid #8888; padding-top: 1rem; overflow-wrap: anywhere }
code, pre { font-family: ui-monospace, monospace; font-size: .9em }
pre { background: #8881; padding: .8rem; overflow: auto; max-height: 24rem }
table { border-collapse: collapse } td { padding: .2rem 1.2rem .2rem 0; vertical-align: top }
:root { color-scheme: light dark }
"""

_DIGEST = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

#: Content security policy of the page: its own style sheet, and nothing else.
DOCS_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_DIGEST}'; base-uri 'none'; form-action 'none'"
)


def render_docs(openapi: Mapping[str, Any]) -> str:
    """Return a page about an OpenAPI description, without scripts and external resources."""
    info = openapi["info"]
    title = escape(f"{info['title']} {info['version']}")
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{title}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{title}</h1><p>{escape(info['description'])} The OpenAPI description is at ",
        '<a href="openapi.json"><code>/openapi.json</code></a>. Errors are returned as ',
        '<code>{"error": "…"}</code>, with one sentence.</p>',
    ]
    for path, methods in openapi["paths"].items():
        for method, operation in methods.items():
            title, text = escape(f"{method.upper()} {path}"), escape(operation["description"])
            parts.append(f"<h2><code>{title}</code></h2><p>{text}</p>")
            parameters = operation.get("parameters", ())
            parts += _table("Parameters", {p["name"]: p.get("description", "") for p in parameters})
            for media_type, body in operation.get("requestBody", {}).get("content", {}).items():
                schema = escape(json.dumps(body["schema"], indent=2))
                parts.append(f"<h3>Body, <code>{escape(media_type)}</code></h3><pre>{schema}</pre>")
            answers = operation["responses"].items()
            parts += _table("Responses", {status: each["description"] for status, each in answers})
    return "".join([*parts, "</body></html>"])


def _table(title: str, rows: Mapping[str, str]) -> Iterator[str]:
    if rows:
        yield f"<h3>{title}</h3><table>"
        for name, text in rows.items():
            yield f"<tr><td><code>{escape(name)}</code></td><td>{escape(text)}</td></tr>"
        yield "</table>"
