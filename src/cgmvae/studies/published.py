"""The numbers that the paper reports, read from ``published.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def published() -> Mapping[str, Any]:
    """Return all tables by name: main, std, ablation, half, replacement, timing."""
    text = files("cgmvae.studies").joinpath("published.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def published_value(metric: str, method: str, data: str) -> float | None:
    """Return one cell of Tables 1 to 3, or None where the paper leaves it empty.

    The method is named as in the paper, the data set as in the catalog.

    Examples
    --------
    >>> published_value("micro_f1", "C-GMVAE", "yeast")
    0.665
    """
    return published()["main"][metric].get(method, {}).get(data)
