"""Which features drive a label: how much worse it is predicted once a feature is shuffled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cgmvae.data.dataset import Matrix
from cgmvae.errors import InputError
from cgmvae.evaluation.metrics import label_table
from cgmvae.evaluation.ranking import rank
from cgmvae.methods.inputs import Targets, as_targets
from cgmvae.report.figures.names import names_for, one_line, place_of
from cgmvae.report.figures.style import BLUE, GREY, Display, tidy, title_of

Metric = Literal["average_precision", "f1"]
Values = NDArray[np.float64]


class FeatureImportanceDisplay(Display):
    """Permutation importance of features for each label.

    Parameters
    ----------
    drops : array, (n_tried, n_repeats, n_labels)
        The metric on the rows as they are, less the metric with the feature shuffled; NaN for a
        label that cannot be measured.
    baseline : array, (n_labels,)
        The metric on the rows as they are.
    feature_names : sequence of str
        Of the features that were tried, (n_tried,).
    label_names : sequence of str
    n_features : int
        Features of the data, tried or not.
    metric : {"average_precision", "f1"}
    """

    def __init__(
        self,
        drops: Values,
        baseline: Values,
        *,
        feature_names: Sequence[str],
        label_names: Sequence[str],
        n_features: int,
        metric: Metric,
    ) -> None:
        self.drops, self.baseline, self.metric = drops, baseline, metric
        self.feature_names, self.label_names = feature_names, label_names
        self.n_features = n_features

    @classmethod
    def from_estimator(
        cls,
        model: Any,
        X: Any,
        Y: Any,
        *,
        feature_names: Sequence[str] | None = None,
        metric: Metric = "average_precision",
        n_repeats: int = 5,
        max_features: int = 200,
        max_rows: int = 2000,
        random_state: int = 0,
    ) -> FeatureImportanceDisplay:
        """Shuffle one feature after another, and predict all labels each time.

        Parameters
        ----------
        model : fitted estimator
        X : array, CSR array or DataFrame, (n_samples, n_features)
            Rows that the model was not trained on.
        Y : labels in any accepted form
        feature_names : sequence of str, optional
            By default the names that the model saw, or else ``feature_0 …``.
        metric : {"average_precision", "f1"}
            Of the label's scores, or of the label as predicted.
        n_repeats : int
            Shuffles of each feature.
        max_features, max_rows : int
            Of more features or rows a seeded sample is taken; of sparse features, those that
            most rows have.
        random_state : int
        """
        if metric not in ("average_precision", "f1"):
            raise InputError(f"There is no metric {metric!r}; choose average_precision or f1.")
        rng = np.random.default_rng(random_state)
        targets, table = as_targets(Y, model.label_names_), _as_table(X)
        names = _feature_names(model, X, feature_names, table.shape[1])
        rows = _sample(table.shape[0], max_rows, rng)
        tried = _tried(table[rows], max_features, rng)
        measure = _measure(_predictor(model, X, metric), targets, rows, metric)
        table = table[rows]
        baseline = measure(table)
        drops = [
            [baseline - measure(shuffled) for shuffled in _shuffles(table, i, n_repeats, rng)]
            for i in tried
        ]
        return cls(
            np.array(drops),
            baseline,
            feature_names=[names[i] for i in tried],
            label_names=targets.names,
            n_features=len(names),
            metric=metric,
        )

    def importance(self, label: str | None = None) -> tuple[Values, Values]:
        """Return mean drop and standard deviation over shuffles of each feature, (n_tried,) each.

        Of one label, or of the mean over all labels that can be measured.
        """
        if label is None:
            measured = np.isfinite(self.baseline)
            drops = (
                self.drops[..., measured].mean(axis=-1) if measured.any() else self.drops[..., 0]
            )
        else:
            drops = self.drops[..., place_of(label, self.label_names)]
        return drops.mean(axis=1), drops.std(axis=1)

    def plot(
        self, ax: Any = None, *, label: str | None = None, n_shown: int = 12
    ) -> FeatureImportanceDisplay:
        """Draw the features that matter most to a label, or to all labels on average."""
        mean, spread = self.importance(label)
        best = np.argsort(-np.nan_to_num(mean, nan=-np.inf), kind="stable")[:n_shown]
        ax = self._start(ax, (7.5, 1.4 + 0.3 * len(best)))
        places = np.arange(len(best))
        if np.isfinite(mean[best]).all():
            ax.barh(places, mean[best], xerr=spread[best], color=BLUE, ecolor=GREY, height=0.7)
        else:
            ax.text(
                0.5, 0.5, "cannot be measured on these rows", ha="center", transform=ax.transAxes
            )
        texts = [one_line(self.feature_names[i]) for i in best]
        ax.set_yticks(places, texts, parse_math=False)
        ax.invert_yaxis()
        ax.axvline(0, color="black", lw=0.8)
        ax.set_xlabel(f"drop of {title_of(self.metric)} when the feature is shuffled")
        ax.set_title(self._heading(label), fontsize=10, parse_math=False)
        ax.locator_params(axis="x", nbins=6)
        tidy(ax, grid="x")
        return self

    def _heading(self, label: str | None) -> str:
        whose = "all labels, mean" if label is None else one_line(label, 50)
        n_tried = len(self.feature_names)
        if n_tried < self.n_features:
            return f"{whose} ({n_tried:,} of {self.n_features:,} features tried)"
        return whose


def _as_table(X: Any) -> Matrix:
    """Return features as an array or CSR array."""
    if sp.issparse(X):
        return sp.csr_array(X)
    return np.asarray(X)


def _feature_names(
    model: Any, X: Any, given: Sequence[str] | None, n_features: int
) -> tuple[str, ...]:
    found = getattr(model, "feature_names_in_", getattr(X, "columns", None))
    return names_for(found if given is None else given, n_features, "feature")


def _sample(n: int, most: int, rng: np.random.Generator) -> NDArray[np.int64]:
    return np.arange(n) if n <= most else np.sort(rng.choice(n, most, replace=False))


def _tried(table: Matrix, most: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the features to shuffle; one that hardly any row has would change nothing."""
    if not sp.issparse(table) or table.shape[1] <= most:
        return _sample(table.shape[1], most, rng)
    n_rows = np.bincount(table.indices, minlength=table.shape[1])
    return np.sort(np.argsort(-n_rows, kind="stable")[:most])


def _predictor(model: Any, X: Any, metric: Metric) -> Callable[[Matrix], NDArray[Any]]:
    """Return what gives scores, or labels for F1, for features in the form that X has."""

    def predict(features: Matrix) -> NDArray[Any]:
        if hasattr(X, "iloc"):
            # A model that was fitted with named columns wants them again.
            features = type(X)(features, columns=X.columns)
        scores = model.predict_proba(features)
        return model.threshold_rule_.apply(scores) if metric == "f1" else scores

    return predict


def _measure(
    predict: Callable[[Matrix], NDArray[Any]],
    targets: Targets,
    rows: NDArray[np.int64],
    metric: Metric,
) -> Callable[[Matrix], Values]:
    """Return what gives each label's metric, (n_labels,), for features of these rows."""
    Y = targets.labels[rows]
    unknown = None if targets.unknown is None else targets.unknown[rows]

    def measure(features: Matrix) -> Values:
        predicted = predict(features)
        if metric == "f1":
            return label_table(Y, predicted, unknown=unknown)["f1"]
        return rank(Y, predicted, unknown).by_label().average_precision()

    return measure


def _shuffles(
    table: Matrix, column: int, n_repeats: int, rng: np.random.Generator
) -> Iterator[Matrix]:
    """Give the features again and again with the values of one column in another order."""
    for _ in range(n_repeats):
        order = rng.permutation(table.shape[0])
        if not sp.issparse(table):
            shuffled = table.copy()
            shuffled[:, column] = table[order, column]
            yield shuffled
            continue
        by_column = sp.csc_array(table, copy=True)
        own = slice(by_column.indptr[column], by_column.indptr[column + 1])
        by_column.indices[own] = order[by_column.indices[own]]
        by_column.has_sorted_indices = False
        yield sp.csr_array(by_column)
