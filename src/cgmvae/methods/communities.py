"""Whole label sets: draws of them, how many labels they have, and which labels come together.

The margins are the model's own probabilities; the multivariate probit of
:mod:`cgmvae.methods.conditioning` says how labels come together around them. Without factors,
labels are independent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from scipy.stats import qmc

from cgmvae.data.mapped import dense
from cgmvae.errors import InputError
from cgmvae.methods.conditioning import (
    LabelFactors,
    label_set_log_likelihood,
    learn_factors,
    probits,
)
from cgmvae.methods.inputs import Rows, as_known, targets_of_rows

if TYPE_CHECKING:
    from cgmvae.methods.base import MultiLabelClassifier

#: What :func:`label_correlation` tells apart.
CorrelationKind = Literal["observed", "response", "residual"]

#: Most labels of which correlations of all pairs are kept, and most rows that are used for them.
_MAX_PAIRED, _MAX_ROWS = 1000, 5000

#: Points of the factors over which the number of labels is averaged, and numbers that are computed
#: at a time. More points change expected numbers and intervals by less than one label in a hundred.
_POINTS, _CELLS = 128, 2**22

#: Draws of the factors by which candidates for the most probable label set are compared, and how
#: many are kept, in two rounds.
_ROUNDS = ((32, 8), (1024, 1))

#: Numbers of labels further from their mean than this many standard deviations are left out.
_FAR = 8

#: Standard errors of an interval of 95%.
_TWO_SIDED = 1.96


class LabelCounts(NamedTuple):
    """Number of labels of each row, (n_samples,) each."""

    expected: NDArray[np.float64]
    lower: NDArray[np.int64]
    upper: NDArray[np.int64]


class LabelCorrelation(NamedTuple):
    """Correlation of all pairs of labels with an interval, (n_labels, n_labels) each."""

    value: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]

    def pairs(
        self, names: Sequence[str], *, floor: float = 0.1
    ) -> list[tuple[str, str, float, float, float]]:
        """Return pairs that are correlated, strongest first: two names, value, lower and upper.

        The value is at least ``floor`` away from 0, and the interval does not hold 0. There may be
        no such pair: the first of a ranking need not mean anything.

        Examples
        --------
        >>> value = np.array([[1, 0.3, 0.05], [0.3, 1, -0.4], [0.05, -0.4, 1]])
        >>> found = LabelCorrelation(value, value - 0.02, value + 0.02)
        >>> [pair[:2] for pair in found.pairs(["ash", "beech", "oak"])]
        [('beech', 'oak'), ('ash', 'beech')]
        """
        value, lower, upper = self
        certain = (np.abs(value) >= floor) & ((lower > 0) | (upper < 0))
        one, other = np.nonzero(np.triu(certain, 1))
        order = np.argsort(-np.abs(value[one, other]), kind="stable")
        return [
            (names[i], names[j], float(value[i, j]), float(lower[i, j]), float(upper[i, j]))
            for i, j in zip(one[order], other[order], strict=True)
        ]


class LabelPairs(NamedTuple):
    """What the rows of ``fit`` say of pairs of labels, (n_labels, n_labels) each."""

    observed: NDArray[np.float16]
    """Correlation of the labels"""
    observed_error: NDArray[np.float16]
    """Its standard error"""
    residual_error: NDArray[np.float16]
    """Standard error of the correlation beyond the features, of each pair by itself"""

    def arrays(self) -> dict[str, NDArray[np.float16]]:
        """Return the arrays that it is stored in, by name."""
        return {f"label_pairs.{name}": part for name, part in self._asdict().items()}

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]], n_labels: int) -> LabelPairs | None:
        """Take the arrays out of those of a model; None if there are none."""
        parts = [arrays.pop(f"label_pairs.{name}", None) for name in cls._fields]
        if all(part is None for part in parts):
            return None
        if any(part is None or part.shape != (n_labels, n_labels) for part in parts):
            raise ValueError("its correlations are not those of its labels")
        return cls(*(np.asarray(part, np.float16) for part in parts))


# --- Learned by fit ------------------------------------------------------------------------------


def learn_label_sets(model: Any, rows: Rows, scores: NDArray[np.floating], device: Any) -> None:
    """Set ``label_factors_`` and ``label_pairs_`` of a model from rows that are scored out of fold.

    Both are None if its parameter ``conditional`` says so.
    """
    model.label_factors_ = model.label_pairs_ = None
    if model.conditional:
        model.label_factors_ = learn_factors(rows, scores, seed=0, device=device)
        model.label_pairs_ = _learn_pairs(rows, scores, model.label_factors_)


def label_set_arrays(model: Any) -> dict[str, NDArray[Any]]:
    """Return the arrays that :func:`learn_label_sets` left in a model, by name."""
    parts = (model.label_factors_, model.label_pairs_)
    return {name: array for part in parts if part for name, array in part.arrays().items()}


def restore_label_sets(model: Any, arrays: dict[str, NDArray[Any]]) -> None:
    """Take what :func:`label_set_arrays` returned out of the arrays of a model."""
    model.label_factors_ = LabelFactors.from_arrays(arrays, model.n_labels_)
    model.label_pairs_ = LabelPairs.from_arrays(arrays, model.n_labels_)


def _learn_pairs(
    rows: Rows, scores: NDArray[np.floating], factors: LabelFactors | None
) -> LabelPairs | None:
    """Return correlations of the labels and their errors; None if there are too many labels.

    The error of a residual correlation r is that of the pair by itself: to first order, the mean
    residuals t of two labels, given what each of them is, have the mean product r · v · v', where v
    is the variance of t. It is wider than that of factors that all labels inform.
    """
    n_rows, n_labels = rows.labels.shape
    if n_labels > _MAX_PAIRED:
        return None
    chosen = np.sort(np.random.default_rng(0).permutation(n_rows)[:_MAX_ROWS])
    y = dense(rows.labels[chosen]).astype(np.float32)
    known = np.ones_like(y)
    if rows.unknown is not None:
        known -= dense(rows.unknown[chosen])
    y *= known
    both = np.maximum(known.T @ known, 1)  # rows that know both labels
    share = y.T @ known / both  # of the first label, among those
    variance = np.sqrt(share * (1 - share))
    covariance = y.T @ y / both - share * share.T
    deviations = variance * variance.T
    observed = np.divide(covariance, deviations, np.zeros_like(both), where=deviations > 0)
    error = np.where(deviations > 0, (1 - observed**2) / np.sqrt(both), 1)
    a = probits(scores[chosen]).numpy()
    p = ndtr(a)
    density = np.exp(-(a**2) / 2) / np.sqrt(2 * np.pi)
    mean = (known * density * (y - p) / (p * (1 - p))).astype(np.float32)
    v = (known * density**2 / (p * (1 - p))).astype(np.float32)
    r = np.zeros_like(both) if factors is None else factors.loadings @ factors.loadings.T
    # The sum over rows of (t · t' − r · v · v')².
    squares = (mean**2).T @ mean**2 - 2 * r * ((mean * v).T @ (mean * v))
    squares += r**2 * ((v**2).T @ v**2)
    residual_error = np.sqrt(np.maximum(squares, 0)) / np.maximum(v.T @ v, 1e-6)
    parts = (observed, error, np.minimum(residual_error, 1))
    return LabelPairs(*(part.astype(np.float16) for part in parts))


# --- Said of rows --------------------------------------------------------------------------------


def with_known_labels(
    model: MultiLabelClassifier, scores: NDArray[np.floating], known: Any
) -> NDArray[np.floating]:
    """Return probabilities given known labels, which are returned as they are known.

    Parameters
    ----------
    model : CGMVAEClassifier or BlendClassifier
    scores : array, (n_samples, n_labels)
        Probabilities by the features.
    known : array, CSR array, DataFrame or sequence of label sets, (n_samples, n_labels)
        1 or 0, NaN where a label is not known, or names of labels that are present.
    """
    if not model.conditional:
        raise InputError(
            "This model has not learned what known labels say about the others; fit it with "
            "conditional=True, or leave out known."
        )
    known = as_known(known, model.label_names_)
    targets = targets_of_rows(scores, known, model.label_names_, given_as="known")
    positive = dense(targets.labels).astype(bool)
    certain = np.ones_like(positive)
    if targets.unknown is not None:
        certain = ~dense(targets.unknown)
    if (factors := factors_of(model)) is not None:
        scores = factors.condition(scores, positive, certain)
    return np.where(certain, positive.astype(scores.dtype), scores)


def factors_of(model: MultiLabelClassifier) -> LabelFactors | None:
    """Return the factors of a model; None if it has not learned, or not found, any."""
    return getattr(model, "label_factors_", None)


def loadings_of(model: MultiLabelClassifier) -> NDArray[np.float64]:
    """Return the loadings of a model, (n_labels, n_factors); none if labels are independent."""
    factors = factors_of(model)
    return np.zeros((model.n_labels_, 0)) if factors is None else factors.loadings.astype(float)


def draw_label_sets(
    scores: NDArray[np.floating],
    loadings: NDArray[np.floating],
    n_draws: int,
    rng: np.random.Generator,
) -> NDArray[np.bool_]:
    """Return draws of label sets with these probabilities, (n_draws, n_samples, n_labels).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> drawn = draw_label_sets(np.full((1, 2), 0.5), np.full((2, 1), 0.97), 1000, rng)
    >>> bool((drawn[..., 0] == drawn[..., 1]).mean() > 0.8)
    True
    """
    n_rows, n_labels = scores.shape
    drawn = np.empty((n_draws, n_rows, n_labels), bool)
    for part, inside in _inside(scores, loadings, n_draws):
        factors = rng.normal(size=(n_draws, len(inside), loadings.shape[1]))
        noise = rng.normal(size=(n_draws, len(inside), n_labels))
        drawn[:, part] = inside + factors @ _slopes(loadings).T + noise > 0
    return drawn


def most_probable_sets(
    scores: NDArray[np.floating], loadings: NDArray[np.floating]
) -> NDArray[np.bool_]:
    """Return the label set of each row that is most probable as a whole, (n_samples, n_labels).

    Candidates are the most probable sets given points of the factors; without factors, there is
    one: the labels whose probability is above one half.

    Examples
    --------
    >>> most_probable_sets(np.array([[0.6, 0.45]]), np.full((2, 1), 0.95)).tolist()
    [[True, True]]
    """
    if not loadings.shape[1]:
        return np.asarray(scores > 0.5)
    points = _points_of_factors(loadings.shape[1])
    shifts = points @ _slopes(loadings).T  # (n_points, n_labels)
    found = np.empty(scores.shape, bool)
    for part, inside in _inside(scores, loadings, len(points)):
        own = inside[:, None] + shifts > 0  # (n_rows, n_points, n_labels)
        sets = [np.unique(each, axis=0) for each in own]
        for n_draws, n_kept in _ROUNDS:
            row = np.repeat(np.arange(len(sets)), list(map(len, sets)))
            tried = np.concatenate(sets)
            likelihood = label_set_log_likelihood(
                scores[part][row], tried, np.ones_like(tried), loadings, n_draws=n_draws, seed=0
            ).value
            order = np.lexsort((-likelihood, row))
            of_row = np.split(order, np.flatnonzero(np.diff(row)) + 1)
            sets = [tried[best[:n_kept]] for best in of_row]
        found[part] = np.concatenate(sets)
    return found


def count_labels(
    scores: NDArray[np.floating], loadings: NDArray[np.floating], level: float
) -> LabelCounts:
    """Return the number of labels of each row, and its interval: from tail to tail.

    Given the factors, it is a sum of independent labels; its distribution is averaged over points
    of the factors.
    """
    n_rows, n_labels = scores.shape
    n_factors = loadings.shape[1]
    points = _points_of_factors(n_factors) if n_factors else np.zeros((1, 0))
    shifts = points @ _slopes(loadings).T  # (n_points, n_labels)
    lower, upper = np.zeros((2, n_rows), np.int64)
    for part, inside in _inside(scores, loadings, len(points)):
        p = ndtr(inside[:, None] + shifts).reshape(-1, n_labels)
        cumulative = _count_distribution(p).reshape(len(inside), len(points), -1)
        cumulative = cumulative.mean(1).cumsum(1)
        tail = (1 - level) / 2
        # Beyond the last number there is nothing but rounding.
        lower[part] = np.minimum((cumulative < tail).sum(1), cumulative.shape[1] - 1)
        upper[part] = np.minimum((cumulative < 1 - tail).sum(1), cumulative.shape[1] - 1)
    return LabelCounts(scores.sum(1, dtype=np.float64), lower, upper)


def _points_of_factors(n_factors: int) -> NDArray[np.float64]:
    """Return points spread as the factors are, (n_points, n_factors)."""
    uniform = qmc.Sobol(n_factors, seed=0).random(_POINTS)
    return np.asarray(ndtri(np.clip(uniform, 1e-6, 1 - 1e-6)))


def _count_distribution(p: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return the probability of each sum of independent labels, (n, n_sums), labels in turn."""
    variance = (p * (1 - p)).sum(1)
    most = min(p.shape[1], int((p.sum(1) + _FAR * np.sqrt(variance)).max()) + _FAR)
    found = np.zeros((len(p), most + 1))
    found[:, 0] = 1
    for own in p.T[:, :, None]:
        found[:, 1:] = (1 - own) * found[:, 1:] + own * found[:, :-1]
        found[:, :1] *= 1 - own
    return found


def _inside(
    scores: NDArray[np.floating], loadings: NDArray[np.floating], n_each: int
) -> Iterator[tuple[slice, NDArray[np.float64]]]:
    """Yield blocks of rows, with the probits of their labels divided by what factors leave."""
    rest = np.sqrt(1 - np.square(loadings).sum(1))
    size = max(1, _CELLS // (n_each * scores.shape[1]))
    for row in range(0, len(scores), size):
        part = slice(row, row + size)
        yield part, ndtri(scores[part].astype(np.float64)) / rest


def _slopes(loadings: NDArray[np.floating]) -> NDArray[np.floating]:
    return loadings / np.sqrt(1 - np.square(loadings).sum(1, keepdims=True))


# --- Said of pairs of labels ---------------------------------------------------------------------


def label_correlation(model: MultiLabelClassifier, kind: CorrelationKind) -> LabelCorrelation:
    """Return the correlation of all pairs of labels; see the method of the same name."""
    if kind == "response":
        members = model.member_similarities()
        return LabelCorrelation(members.mean(0), members.min(0), members.max(0))
    if kind not in ("observed", "residual"):
        raise InputError(f"There is no {kind!r}; use observed, response or residual.")
    pairs = getattr(model, "label_pairs_", None)
    if pairs is None:
        raise InputError(
            "This model has not learned which labels come together: fit CGMVAEClassifier or "
            f"BlendClassifier with conditional=True, for at most {_MAX_PAIRED:,} labels."
        )
    if kind == "observed":
        value, error = pairs.observed.astype(float), pairs.observed_error.astype(float)
    else:
        loadings = loadings_of(model)
        value, error = loadings @ loadings.T, pairs.residual_error.astype(float)
    lower, upper = (np.clip(value + sign * _TWO_SIDED * error, -1, 1) for sign in (-1, 1))
    for each in (value, lower, upper):
        np.fill_diagonal(each, 1.0)
    return LabelCorrelation(value, lower, upper)
