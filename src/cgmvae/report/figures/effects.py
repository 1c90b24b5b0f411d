"""What each parameter of a search did to the metric."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cgmvae.report.figures.style import BLUE, GREY, ORANGE, tidy
from cgmvae.search import SearchResult


def plot_effects(results: Sequence[SearchResult], *, metric: str = "validation metric") -> Any:
    """Draw what each searched parameter did to the metric, a panel each; return the figure.

    A point is a setting; grey ones were left out on the way and not trained to the end. The line
    joins the medians of those that were.
    """
    from matplotlib.figure import Figure

    varied = [
        name
        for name in results[0].setting
        if len({repr(result.setting[name]) for result in results}) > 1
    ] or list(results[0].setting)[:1]
    n_columns = min(3, len(varied))
    n_rows = -(-len(varied) // n_columns)
    figure = Figure(figsize=(4 * n_columns, 3.2 * n_rows), layout="constrained")
    panels = figure.subplots(n_rows, n_columns, squeeze=False, sharey=True)
    for i, axes in enumerate(panels.flat):
        if i < len(varied):
            _draw_effect(axes, results, varied[i])
        else:
            axes.set_visible(False)
    for row in panels:
        row[0].set_ylabel(metric)
    marks = {label: mark for mark, label in zip(*_marks(panels), strict=True)}
    figure.legend(
        marks.values(), marks, loc="outside lower center", ncols=3, frameon=False, fontsize=9
    )
    return figure


def _marks(panels: Any) -> tuple[list[Any], list[str]]:
    """Return handles and labels of all panels."""
    found = [axes.get_legend_handles_labels() for axes in panels.flat]
    return [mark for marks, _ in found for mark in marks], [n for _, names in found for n in names]


def _draw_effect(axes: Any, results: Sequence[SearchResult], name: str) -> None:
    choices = _ordered({repr(r.setting[name]): r.setting[name] for r in results}.values())
    places = {repr(choice): i for i, choice in enumerate(choices)}
    shake = np.random.default_rng(0).uniform(-0.15, 0.15, len(results))
    for whole, color, label in (
        (False, GREY, "left out early"),
        (True, BLUE, "trained to the end"),
    ):
        chosen = [i for i, result in enumerate(results) if result.finished == whole]
        x = [places[repr(results[i].setting[name])] + shake[i] for i in chosen]
        y = [results[i].value for i in chosen]
        if chosen:
            axes.scatter(x, y, s=14, color=color, alpha=0.7, linewidths=0, label=label)
    medians = [
        (place, np.median(own))
        for key, place in places.items()
        if (own := [r.value for r in results if repr(r.setting[name]) == key and r.finished])
    ]
    axes.plot(*zip(*medians, strict=True), color=ORANGE, linewidth=1.5, label="median")
    step = -(-len(choices) // 8)
    axes.set_xticks(range(0, len(choices), step), [_short(c) for c in choices[::step]], rotation=45)
    axes.set_title(name.replace("_", " "), fontsize=10)
    tidy(axes, grid="y")


def _ordered(choices: Any) -> list[Any]:
    choices = list(choices)
    try:
        return sorted(choices)
    except TypeError:
        return sorted(choices, key=str)


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
