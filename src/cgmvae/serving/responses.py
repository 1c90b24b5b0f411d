"""What the server sends: response schemas, and errors as one sentence in JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
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
