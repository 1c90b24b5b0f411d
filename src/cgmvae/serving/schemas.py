"""What requests and answers look like, for the description of the interface.

Nothing is checked against these: requests are read in ``rows``, and ``answers`` and ``served`` make
what is answered.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from cgmvae.data.columns import ColumnType
from cgmvae.serving.config import ServingConfig
from cgmvae.serving.served import ServedModel

#: What a cell can be, by the kind of its column.
_CELLS: dict[ColumnType, dict[str, Any]] = {
    "number": {"type": ["number", "boolean", "null"], "minimum": -3.4e38, "maximum": 3.4e38},
    "category": {"type": ["string", "number", "null"]},
    "date": {"type": ["string", "null"]},
    "text": {"type": ["string", "null"]},
}

#: Columns up to which the description names each.
_NAMED_COLUMNS = 500


class Problem(BaseModel):
    """Why a request was refused."""

    error: str = Field(description="One sentence.")


class TopLabel(BaseModel):
    """One of the likeliest labels of a row."""

    label: str
    probability: float


class Prediction(BaseModel):
    """The labels of one row."""

    model_config = ConfigDict(extra="forbid")

    labels: list[str]
    top: list[TopLabel] = Field(default=[], description="Where asked for with ?top=.")
    probabilities: dict[str, float] = Field(
        default={}, description="Where asked for with ?probabilities=true."
    )


class Thresholds(BaseModel):
    """How probabilities become labels."""

    rule: Literal["global", "per-label", "top-k"]
    threshold: float | None = Field(default=None, description="Of the rule global.")
    thresholds: dict[str, float] | None = Field(default=None, description="Of per-label.")
    k: int | None = Field(default=None, description="Of top-k.")


class Predictions(BaseModel):
    """The answer to rows, in their order."""

    predictions: list[Prediction]
    thresholds: Thresholds
    ignored_columns: list[str] = Field(description="Columns that the model does not know.")


class LabelDescription(BaseModel):
    """What is known of a label."""

    name: str
    threshold: float | None = Field(description="The probability that it must reach.")


class Labels(BaseModel):
    """All labels, in the model's order."""

    labels: list[LabelDescription]
    thresholds: Thresholds


class SimilarLabel(BaseModel):
    """A label that is like another."""

    label: str
    similarity: float


class Similar(BaseModel):
    """Labels that are like one, the most alike first."""

    label: str
    similarity_is: str = Field(description="What the number means.")
    similar: list[SimilarLabel]


class ModelDescription(BaseModel):
    """What kind of model is served."""

    method: str
    n_columns: int
    n_labels: int
    library: str = Field(description="Version of the library.")


class Health(BaseModel):
    """Whether requests can be sent."""

    ready: bool
    model: ModelDescription


def request_body(model: ServedModel, config: ServingConfig) -> dict[str, Any]:
    """Return the description of what is sent to ``/predict``."""
    rows = {
        "type": "array",
        "minItems": 1,
        "maxItems": config.rows_for(len(model.label_names)),
        "items": {"anyOf": _row_schemas(model)},
    }
    schema = {
        "type": "object",
        "properties": {"rows": rows},
        "required": ["rows"],
        "additionalProperties": False,
    }
    text = {"type": "string", "description": "A header with the names of the columns, and rows."}
    content = {"application/json": {"schema": schema}, "text/csv": {"schema": text}}
    return {"requestBody": {"required": True, "content": content}}


def _row_schemas(model: ServedModel) -> list[dict[str, Any]]:
    """Return what a row can be: an object by name where names are known, or a list in order."""
    n_columns = model.n_columns
    by_place: dict[str, Any] = {"type": "array", "minItems": n_columns, "maxItems": n_columns}
    by_name: dict[str, Any] = {"type": "object"}
    if n_columns <= _NAMED_COLUMNS:
        cells = [_CELLS[kind] for kind in model.kinds]
        by_place["prefixItems"] = cells
        by_name["properties"] = dict(zip(model.column_names or (), cells, strict=False))
        by_name["required"] = list(model.column_names or ())
    return [by_place] if model.column_names is None else [by_name, by_place]
