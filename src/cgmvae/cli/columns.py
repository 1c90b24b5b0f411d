"""What a model made of the columns of a table, in a line and for JSON; used by the commands."""

from __future__ import annotations

from collections import Counter
from typing import Any

#: One and several columns of a kind.
_WORDS = {
    "number": ("number", "numbers"),
    "category": ("category", "categories"),
    "date": ("date", "dates"),
    "text": ("text column", "text columns"),
}


def columns_record(model: Any) -> list[dict[str, Any]] | None:
    """Return what was made of each column; None where the data was numbers."""
    if model.preparation_ is None:
        return None
    return [row._asdict() for row in model.preparation_.describe()]


def columns_text(record: list[dict[str, Any]]) -> str:
    """Return how many columns of each kind became how many features."""
    counts = Counter(row["kind"] for row in record)
    kinds = [
        f"{counts[kind]:,} {one if counts[kind] == 1 else several}"
        for kind, (one, several) in _WORDS.items()
        if counts[kind]
    ]
    return f"{', '.join(kinds)}: {sum(row['n_features'] for row in record):,} features."
