"""Rows at their places: where a model errs, how many labels it predicts, and how new they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cgmvae.data.dataset import MultiLabelDataset, as_places
from cgmvae.errors import InputError
from cgmvae.evaluation.metrics import as_bool
from cgmvae.report.figures.style import GRAY, SEQUENTIAL, Display, Values, tidy

#: More places than this are drawn as a sample of them.
_MAX_PLACES = 2000

#: Titles of maps.
EXPECTED, NOVELTY = "expected number of labels", "novelty"

#: Coordinates within these bounds are taken for latitude and longitude in degrees.
_DEGREES = (90.0, 180.0)


@dataclass(eq=False, repr=False)
class SiteMapDisplay(Display):
    """Maps of rows: the share of labels that are wrong, and how many are expected.

    Examples
    --------
    >>> data = MultiLabelDataset([[1], [2]], [[1, 0], [1, 1]], coordinates=[[50, 8], [51, 9]])
    >>> display = SiteMapDisplay.from_predictions(data, [[1, 1], [1, 1]], [[0.9, 0.6], [0.8, 0.9]])
    >>> [values.round(1).tolist() for values in display.values.values()]
    [[50.0, 0.0], [1.5, 1.7]]
    """

    places: Values
    """From south to north, and from west to east, (n_samples, 2)."""
    values: Mapping[str, Values]
    """What each map shows, (n_samples,) by title."""
    _: KW_ONLY
    others: Values = field(default_factory=lambda: np.empty((0, 2)))
    """Places of the training rows, (n_others, 2)."""

    @classmethod
    def from_predictions(
        cls, rows: MultiLabelDataset, predicted: Any, scores: Any, *, others: Any = ()
    ) -> SiteMapDisplay:
        """Compare labels and predictions of rows that have coordinates; ``others`` are places."""
        if rows.coordinates is None:
            raise InputError("The rows have no coordinates; give them to the data set.")
        known = np.ones(rows.Y.shape, bool) if rows.unknown is None else ~as_bool(rows.unknown)
        errors = (as_bool(rows.Y) != as_bool(np.asarray(predicted))) & known
        values = {
            "labels that are wrong, in %": 100
            * errors.sum(axis=1)
            / np.maximum(known.sum(axis=1), 1),
            EXPECTED: np.asarray(scores).sum(axis=1),
        }
        others = as_places(others if len(others) else np.empty((0, 2)))
        return cls(rows.coordinates, values, others=others)

    def plot(self, ax: Any = None) -> SiteMapDisplay:
        """Draw the maps, with the training rows in gray; beyond 2,000 rows, a sample."""
        n = len(self.values)
        panels = self._start_panels(ax, n, (6, 4.5 * n), nrows=n, sharex=True, sharey=True)
        everywhere = np.concatenate([self.places, self.others])
        in_degrees = (np.abs(everywhere) <= _DEGREES).all()
        stretch = 1 / np.cos(np.radians(everywhere[:, 0].mean())) if in_degrees else 1.0
        shown, others = _sample(len(self.places)), _sample(len(self.others))
        for panel, (title, values) in zip(panels, self.values.items(), strict=True):
            north, east = self.others[others].T
            panel.scatter(east, north, s=5, c=GRAY, alpha=0.5, lw=0)
            north, east = self.places[shown].T
            points = panel.scatter(east, north, s=22, c=values[shown], cmap=SEQUENTIAL, lw=0.4)
            points.set_edgecolor(GRAY)
            panel.figure.colorbar(points, ax=panel, label=title)
            panel.set_aspect(stretch, adjustable="box")
            tidy(panel)
        return self


def _sample(n: int) -> NDArray[np.int64]:
    """Return the indices of all of n places, or of as many of them as are drawn."""
    if n <= _MAX_PLACES:
        return np.arange(n)
    return np.sort(np.random.default_rng(0).choice(n, _MAX_PLACES, replace=False))
