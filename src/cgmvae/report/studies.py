"""The figures of studies, drawn: each kind that :mod:`cgmvae.studies` knows has its display."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from cgmvae.errors import InputError
from cgmvae.report import (
    CriticalDifferenceDisplay,
    FewerDataDisplay,
    LabelSimilarityDisplay,
)
from cgmvae.studies.spec import StudyFigure

Contents = Mapping[str, Any]


def draw(figure: StudyFigure) -> Any:
    """Draw a figure of a study.

    Parameters
    ----------
    figure : StudyFigure
        Its kind is one of :data:`KINDS`.

    Returns
    -------
    matplotlib Figure

    Examples
    --------
    >>> contents = {"names": ["a", "b"], "mean_ranks": [1.2, 1.8], "critical_difference": 0.5}
    >>> drawn = draw(StudyFigure("ranks", "critical-difference", contents))
    >>> type(drawn).__name__
    'Figure'
    """
    if figure.kind not in KINDS:
        raise InputError(f"No figure of the kind {figure.kind!r} is known: {', '.join(KINDS)}.")
    return KINDS[figure.kind](figure.contents)


def _critical_difference(contents: Contents) -> Any:
    display = CriticalDifferenceDisplay(
        contents["mean_ranks"], contents["names"], contents["critical_difference"]
    )
    return display.plot().figure_


def _fewer_data(contents: Contents) -> Any:
    display = FewerDataDisplay(
        contents["fractions"],
        contents["values"],
        contents["deviations"],
        methods=contents["methods"],
        metric=contents["metric"],
    ).plot()
    display.ax_.set_title(contents["data"], parse_math=False)
    return display.figure_


def _similarity(contents: Contents) -> Any:
    """Keep the order of the study, which chose labels and groups to be read together."""
    display = LabelSimilarityDisplay.from_similarity(
        contents["matrix"], contents["names"], order="given", groups=contents.get("groups")
    )
    return display.plot().figure_


KINDS: Mapping[str, Callable[[Contents], Any]] = MappingProxyType(
    {
        "critical-difference": _critical_difference,
        "fewer-data": _fewer_data,
        "similarity": _similarity,
    }
)
