"""From probabilities to what a client gets: names of labels, and numbers where asked for."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cgmvae.serving.served import ServedModel, refuse_extremes


class Wish(NamedTuple):
    """What a client asked for beside the labels."""

    probabilities: bool = False
    """The probability of every label."""
    top: int | None = None
    """So many labels of the highest probabilities, whether they reach the threshold or not."""


def predictions(
    scores: NDArray[np.floating], model: ServedModel, wish: Wish
) -> list[dict[str, Any]]:
    """Return the labels of each row, as JSON can hold them.

    Parameters
    ----------
    scores : array, (n_samples, n_labels)
        Probabilities; written such that they are read back exactly.
    model : ServedModel
    wish : Wish
    """
    refuse_extremes(scores)
    names = np.array(model.label_names, dtype=object)
    found: list[dict[str, Any]] = [{"labels": names[row].tolist()} for row in model.chosen(scores)]
    if wish.top is not None:
        for answer, best in zip(found, _top(scores, model, wish.top), strict=True):
            answer["top"] = best
    if wish.probabilities:
        for answer, row in zip(found, scores.tolist(), strict=True):
            answer["probabilities"] = dict(zip(model.label_names, row, strict=True))
    return found


def _top(
    scores: NDArray[np.floating], model: ServedModel, k: int
) -> list[list[dict[str, str | float]]]:
    best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return [
        [
            {"label": model.label_names[place], "probability": probability}
            for place, probability in zip(places, row[places].tolist(), strict=True)
        ]
        for places, row in zip(best, scores, strict=True)
    ]
