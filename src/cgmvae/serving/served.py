"""The model that is served: what it takes, what it says, and what it knows of its labels."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cgmvae import __version__
from cgmvae.data.columns import Columns, ColumnType
from cgmvae.errors import InputError
from cgmvae.evaluation.thresholds import describe_rule
from cgmvae.methods.similarity import LabelSimilarity, nearest_places
from cgmvae.serving.refusals import Refusal, shown

#: Rows as a model takes them.
Features = NDArray[np.float32] | Columns

TypedColumn = Callable[[Any, str, ColumnType], NDArray[Any]]


class ServedModel:
    """A fitted estimator as the server uses it; the estimator itself is left as it is.

    Attributes
    ----------
    column_names : tuple of str or None
        Names of the columns that it takes, in its order; None where it does not know them.
    n_columns : int
        How many columns it takes.
    kinds : tuple of {"number", "category", "date", "text"}
        What each of them holds.
    label_names : list of str
        In the order of its probabilities.
    """

    def __init__(self, model: Any) -> None:
        self._model = copy.copy(model)
        self.n_columns = int(model.n_features_in_)
        kinds: dict[str, ColumnType] | None = model.input_kinds()
        self.column_names = None if kinds is None else tuple(kinds)
        unnamed: list[ColumnType] = ["number"] * self.n_columns
        self.kinds = tuple(unnamed if kinds is None else kinds.values())
        self._takes_array = model.preparation_ is None
        if self._takes_array and kinds is not None:
            # Columns are matched here; scikit-learn would warn of arrays without names.
            del self._model.feature_names_in_
        self.label_names = list(model.label_names_)
        self._places = {name: place for place, name in enumerate(self.label_names)}
        self._similarity: NDArray[np.floating] | None = None
        self._one_at_a_time = threading.Lock()

    def joined(self, columns: Sequence[Any], typed: TypedColumn) -> Features:
        """Return columns, in the model's order, as the model takes them.

        Parameters
        ----------
        columns : sequence of sequence, (n_columns, n_samples)
        typed : callable
            Turns the values, the title and the kind of a column into an array.
        """
        titles = self.column_names or tuple(str(place + 1) for place in range(self.n_columns))
        values = tuple(map(typed, columns, titles, self.kinds))
        if self._takes_array:
            return np.column_stack(values)
        return Columns(titles, values, self.kinds)

    def score(self, parts: Sequence[Features]) -> NDArray[np.floating]:
        """Return the probabilities of the rows of several requests, (n_samples, n_labels)."""
        rows = _one_after_the_other(parts)
        with np.errstate(all="ignore"):  # what is not finite is looked for in the answer
            try:
                return self._model.predict_proba(rows)
            except ValueError:  # of scikit-learn, where scaling made a number infinite
                refuse_extremes(self._model.scaler_.transform(self._model.prepared(rows)))
                raise

    def chosen(self, scores: NDArray[np.floating]) -> NDArray[np.bool_]:
        """Return which labels the model's threshold rule gives, (n_samples, n_labels)."""
        return self._model.threshold_rule_.apply(scores).astype(bool)

    def describe(self) -> dict[str, Any]:
        """Return what kind of model it is."""
        return {
            "method": type(self._model).__name__,
            "n_columns": self.n_columns,
            "n_labels": len(self.label_names),
            "library": __version__,
        }

    def threshold_rule(self) -> dict[str, Any]:
        """Return how probabilities become labels, as JSON can hold it."""
        rule = describe_rule(self._model.threshold_rule_)
        if "thresholds" in rule:
            rule["thresholds"] = dict(zip(self.label_names, rule["thresholds"], strict=True))
        return rule

    def labels(self) -> list[dict[str, Any]]:
        """Return each label with the threshold that it must reach, where there is one."""
        rule = describe_rule(self._model.threshold_rule_)
        thresholds = rule.get("thresholds") or [rule.get("threshold")] * len(self.label_names)
        return [
            {"name": name, "threshold": threshold}
            for name, threshold in zip(self.label_names, thresholds, strict=True)
        ]

    def similar(self, label: str, k: int) -> dict[str, Any]:
        """Return the k labels most like this one, the most alike first."""
        if not isinstance(self._model, LabelSimilarity):
            raise Refusal(
                404,
                f"{type(self._model).__name__} does not learn which labels are alike; serve "
                "C-GMVAE or MPVAE.",
            )
        if label not in self._places:
            raise Refusal(404, f"There is no label {shown(label)}; GET /labels lists them.")
        similarity = self._similarities()[self._places[label]]
        nearest = nearest_places(similarity, self._places[label], k)
        return {
            "label": label,
            "similarity_is": self._model.similarity_is,
            "similar": [
                {"label": self.label_names[i], "similarity": float(similarity[i])} for i in nearest
            ],
        }

    def _similarities(self) -> NDArray[np.floating]:
        """Return how alike labels are, (n_labels, n_labels); computed when first asked for."""
        with self._one_at_a_time:
            if self._similarity is None:
                self._similarity = self._model.label_similarity()
            return self._similarity


def refuse_extremes(values: Any) -> None:
    """Refuse rows of which numbers became infinite on their way, (n_samples, n_values)."""
    odd = np.flatnonzero(~np.isfinite(np.asarray(values.sum(axis=1))))
    if len(odd):
        raise InputError(
            f"Row {odd[0] + 1:,} is so far from what the model learnt on that it gives no "
            "probability; check the units of its numbers."
        )


def _one_after_the_other(parts: Sequence[Any]) -> Features:
    first = parts[0]
    if len(parts) == 1:
        return first
    if not isinstance(first, Columns):
        return np.concatenate(parts)
    values = zip(*(part.values for part in parts), strict=True)
    return Columns(first.names, tuple(map(np.concatenate, values)), first.kinds)
