"""A page about rows that were predicted: how many labels, where, and how new the rows are."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cgmvae import __version__
from cgmvae.data.files import atomic_path
from cgmvae.report.figures.sites import EXPECTED, NOVELTY, SiteMapDisplay
from cgmvae.report.page import content_policy, find_template, make_picture, read_template

#: Width and height of each map in inches.
_MAP_SIZE = (5.0, 3.5)


@dataclass(frozen=True, eq=False)
class NewRows:
    """What a model predicted for rows."""

    data: str
    """Name of the rows."""
    model: str
    """Name of the model."""
    label_names: Sequence[str]
    probable: NDArray[np.float64]
    """Sum of the probabilities of each label over the rows, (n_labels,)."""
    predicted: NDArray[np.int64]
    """Rows for which each label is predicted, (n_labels,)."""
    expected: NDArray[np.float64]
    """Sum of the probabilities of each row, (n_samples,)."""
    novelty: NDArray[np.float64] | None
    """How far each row lies outside the training rows, (n_samples,); None if unknown."""
    places: NDArray[np.float64] | None
    """From south to north and from west to east, (n_samples, 2); None if unknown."""


def write_new_rows(
    rows: NewRows, path: str | os.PathLike[str], *, far: float, command: str
) -> None:
    """Write the page, atomically; rows whose novelty is above ``far`` are counted."""
    from markupsafe import Markup

    picture = None
    if rows.places is not None:
        values = {EXPECTED: rows.expected}
        text = "Each point is a row at its place: the sum of the probabilities of its labels"
        if rows.novelty is not None:
            values[NOVELTY] = rows.novelty
            text += (
                ", and how far it lies outside the training rows, as a share of the range of the "
                "column where it is furthest. Where that is not near 0, the prediction is a guess"
            )
        size = (_MAP_SIZE[0], _MAP_SIZE[1] * len(values))
        display = SiteMapDisplay(rows.places, values)
        picture = make_picture("Map", f"{text}.", display, size)
    theme = read_template("scripts/theme.js")
    order = np.argsort(-rows.probable, kind="stable").tolist()
    page = find_template("new_rows.html").render(
        r=rows,
        n_far=None if rows.novelty is None else int((rows.novelty > far).sum()),
        far=far,
        labels=[(rows.label_names[i], rows.probable[i], int(rows.predicted[i])) for i in order],
        picture=picture,
        command=command,
        version=__version__,
        policy=content_policy(theme),
        style=Markup(read_template("style.css")),
        theme=Markup(theme),
    )
    with atomic_path(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
