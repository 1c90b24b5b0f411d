"""Ranks of methods as a table and as a figure, for the studies that compare methods."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from cgmvae.studies.statistics import RankTest
from cgmvae.studies.study import StudyFigure
from cgmvae.studies.tables import Table, number


def rank_table(titles: Sequence[str], tests: Mapping[str, RankTest]) -> Table:
    """Return the mean ranks of methods under each protocol, and what the tests say of them."""
    rows = [
        [title, *(number(test.mean_ranks[i], 2) for test in tests.values())]
        for i, title in enumerate(titles)
    ]
    notes = [
        f"{protocol}: over {test.n_problems} pairs of data set and metric on which every method "
        f"has a score; Friedman p = {_small(test.p_value)}, Nemenyi's critical difference (.05) "
        f"{number(test.critical_difference, 2)}. Metrics of one data set are not independent, so "
        "the test is too sure of itself."
        for protocol, test in tests.items()
    ]
    return Table("Mean ranks, 1 the best", ["method", *tests], rows, notes)


def rank_figures(name: str, titles: Sequence[str], test: RankTest) -> list[StudyFigure]:
    """Return the critical-difference plot of a test, or nothing where it has none."""
    if math.isnan(test.critical_difference):
        return []
    contents = {
        "names": list(titles),
        "mean_ranks": test.mean_ranks,
        "critical_difference": test.critical_difference,
    }
    return [StudyFigure(name, "critical-difference", contents)]


def _small(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.2g}"
