"""Made-up data: a survey of sites and species, and images with several labels.

The survey has any size, and every probability in it is known. Presence is a thresholded Gaussian: a
species is seen where its latent score, made of the site's features, a factor that its group shares,
and noise, exceeds the threshold of its frequency. Tests compare what a method finds with the
:class:`SurveyTruth`; benchmarks use the sizes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from cgmvae.data.dataset import Matrix, MultiLabelDataset
from cgmvae.errors import InputError

#: The share of a species' niche direction (of its squared length) that its whole group shares.
SHARED_NICHE = 0.7

#: Axes of a group's niche space: the shared one and those on which its species differ.
NICHE_AXES = 4

#: Features that a group responds to and that are not zero, at a site on average. With sparse
#: features a group needs more of them in total for their sum to stay close to Gaussian.
NICHE_FEATURES = 30

#: No species is seen at more than this share of the sites.
MAX_FREQUENCY = 0.95

#: Labels are sparse by default if they have more values than this (100 MB dense) …
SPARSE_CELLS = 10**8

#: … and a smaller fraction of them than this is positive.
SPARSE_DENSITY = 0.05

#: Side of a canvas, and of each of its four cells; a digit has 8 × 8 pixels and moves in its cell.
CANVAS, CELL, DIGIT = 20, 10, 8

#: Every so many images of scikit-learn's 1,797 are for testing.
_TEST_EVERY = 4

#: Latent scores that are held at a time.
_BLOCK_CELLS = 2**22

_BISECTIONS = 200


@dataclass(frozen=True, eq=False)
class SurveyTruth:
    """The parameters that a synthetic survey was generated from.

    ``niche_axes`` and ``niche_weights`` hold the niche directions factored, since one direction
    for each of 30,000 species would be a large matrix; :meth:`niches` multiplies them out.
    """

    label_groups: NDArray[np.int64]
    """The group of each label, (n_labels,)."""
    frequencies: NDArray[np.float64]
    """The share of all sites at which each label is positive, (n_labels,)."""
    niche_axes: sp.csc_array
    """Orthonormal axes for each group, in group order, (n_features, n_groups * n_axes)."""
    niche_weights: sp.csr_array
    """Each label's unit direction on its group's axes, (n_labels, n_groups * n_axes)."""
    feature_strength: float
    """Share of the latent variance that the features explain."""
    group_strength: float
    """Share of the latent variance that the group's hidden factor explains."""
    labels: Matrix
    """All labels, the unknown ones included, (n_samples, n_labels)."""

    @property
    def thresholds(self) -> NDArray[np.float64]:
        """What the latent score must exceed for each label, (n_labels,)."""
        return -ndtri(self.frequencies)

    def niches(self, labels: ArrayLike | None = None) -> sp.csr_array:
        """Return the unit niche directions of these labels, or all, (n_chosen, n_features)."""
        chosen = self.niche_weights if labels is None else self.niche_weights[np.asarray(labels)]
        return sp.csr_array(chosen @ self.niche_axes.T)

    def latent_correlation(self, labels: ArrayLike | None = None) -> NDArray[np.float64]:
        """Return the correlations of the latent scores of these labels, or all, (n, n).

        Exact for Gaussian and for sparse features alike. Ask for a few labels at a time where
        there are many: the result is dense.
        """
        niches = self.niches(labels)
        groups = self.label_groups if labels is None else self.label_groups[np.asarray(labels)]
        correlation = self.feature_strength * (niches @ niches.T).toarray()
        correlation += self.group_strength * (groups[:, None] == groups)
        np.fill_diagonal(correlation, 1.0)
        return correlation


def make_survey(
    n_samples: int = 1000,
    n_features: int = 20,
    n_labels: int = 30,
    *,
    n_groups: int = 5,
    cardinality: float = 3.0,
    frequency_decay: float = 1.0,
    feature_strength: float = 0.5,
    group_strength: float = 0.3,
    feature_density: float = 1.0,
    unknown_share: float = 0.0,
    sparse_labels: bool | None = None,
    seed: int = 0,
) -> tuple[MultiLabelDataset, SurveyTruth]:
    r"""Generate a survey: sites with features, species in groups, and the parameters behind them.

    The latent score of label l at a site with features x is

    .. math:: s_l = \sqrt{a}\, x \cdot w_l + \sqrt{b}\, u_{g(l)} + \sqrt{1 - a - b}\, \epsilon_l

    with a the feature strength, b the group strength, :math:`w_l` a unit vector, and u and ε
    standard normal, drawn anew for each site. The label is positive where the score exceeds
    its Gaussian quantile, so it is a probit model whose marginals and latent correlations are
    known. With sparse features :math:`x \cdot w_l` has variance 1 but is only nearly Gaussian, so
    the frequencies are approximate then, the more so the rarer the label.

    Parameters
    ----------
    n_samples, n_features, n_labels : int
    n_groups : int
        Groups of labels; label l is in group ``l % n_groups``.
    cardinality : float
        Expected number of positive labels per row.
    frequency_decay : float
        Frequencies go with rank ** -frequency_decay; ranks are shuffled over the labels.
    feature_strength, group_strength : float
        Shares of the latent variance, together at most 1.
    feature_density : float
        Chance of a feature to be non-zero. At 1 features are normal; below 1 they are a CSR array
        of uniform values. Their variance is 1 either way.
    unknown_share : float
        Chance of a label to be unknown. The same seed hides labels of the same survey.
    sparse_labels : bool, optional
        Whether ``Y`` is a CSR array; by default if it is large and mostly zero.
    seed : int

    Returns
    -------
    dataset : MultiLabelDataset
    truth : SurveyTruth

    Examples
    --------
    >>> data, truth = make_survey(500, 8, 12, n_groups=3, cardinality=2.0, seed=1)
    >>> data.X.shape, data.Y.shape, float(truth.frequencies.sum().round(6))
    ((500, 8), (500, 12), 2.0)
    >>> truth.latent_correlation([0, 3]).shape
    (2, 2)
    """
    n_positive, strengths = MAX_FREQUENCY * n_labels, (feature_strength, group_strength)
    integers = {"n_samples": n_samples, "n_features": n_features, "n_labels": n_labels}
    integers |= {"n_groups": n_groups, "seed": seed}
    for name, value in integers.items():
        low = 0 if name == "seed" else 1
        if not isinstance(value, int | np.integer) or value < low:
            raise InputError(f"{name} is {value}; it must be an integer of at least {low}.")
    for name, given, fits, accepted in (
        ("n_groups", n_groups, n_groups <= n_labels, f"at most {n_labels:,}, the number of labels"),
        (
            "cardinality",
            cardinality,
            0 < cardinality <= n_positive,
            f"above 0 and at most {n_positive:g}",
        ),
        ("frequency_decay", frequency_decay, 0 <= frequency_decay < math.inf, "0 or more"),
        ("feature_density", feature_density, 0 < feature_density <= 1, "above 0 and at most 1"),
        ("unknown_share", unknown_share, 0 <= unknown_share < 1, "at least 0 and below 1"),
    ):
        if not fits:
            raise InputError(f"{name} is {given}; it must be {accepted}.")
    if not (min(strengths) >= 0 and sum(strengths) <= 1):
        raise InputError(
            f"feature_strength and group_strength are {strengths}; they are shares of one "
            "variance, so neither may be below 0 and their sum not above 1."
        )
    # One random stream per ingredient, so that an option changes nothing else.
    for_X, for_rank, for_niche, for_Y, for_unknown = np.random.default_rng(seed).spawn(5)
    X = _features((n_samples, n_features), feature_density, for_X)
    frequencies = for_rank.permutation(_frequencies(n_labels, cardinality, frequency_decay))
    groups = np.arange(n_labels) % n_groups
    axes = _niche_axes(n_features, n_groups, feature_density, for_niche)
    weights = _niche_weights(groups, axes.shape[1] // n_groups, for_niche)
    if sparse_labels is None:
        is_large = n_samples * n_labels > SPARSE_CELLS
        sparse_labels = is_large and cardinality / n_labels < SPARSE_DENSITY
    model = (groups, frequencies, axes, weights, feature_strength, group_strength)
    blocks = _label_blocks(X, SurveyTruth(*model, labels=np.empty((0, n_labels))), for_Y)
    Y = _collect(blocks, (n_samples, n_labels), sparse_labels)
    unknown = _bernoulli((n_samples, n_labels), unknown_share, for_unknown)
    dataset = MultiLabelDataset(
        X,
        Y,
        label_names=[f"species_{label}" for label in range(n_labels)],
        unknown=unknown if sparse_labels else unknown.toarray(),
        name="survey",
    )
    return dataset, SurveyTruth(*model, labels=Y)


def _features(shape: tuple[int, int], density: float, rng: np.random.Generator) -> Matrix:
    """Draw independent features of mean 0 and variance 1."""
    if density == 1:
        return rng.standard_normal(shape, dtype=np.float32)
    X = _bernoulli(shape, density, rng)
    half_width = math.sqrt(3 / density)  # of the uniform values that give a cell variance 1
    X.data = rng.uniform(-half_width, half_width, size=X.nnz).astype(np.float32)
    return X


def _bernoulli(shape: tuple[int, int], chance: float, rng: np.random.Generator) -> sp.csr_array:
    """Draw a CSR array of bool whose cells are independently True, from the gaps between them."""
    n_rows, n_columns = shape
    n_cells = n_rows * n_columns
    pieces, last = [np.empty(0, dtype=np.int64)], -1 if chance > 0 else n_cells
    while last < n_cells:
        gaps = rng.geometric(chance, size=int(1.01 * chance * (n_cells - last)) + 16)
        pieces.append(last + np.cumsum(np.minimum(gaps, n_cells + 1)))
        last = int(pieces[-1][-1])
    cells = np.concatenate(pieces)
    cells = cells[: np.searchsorted(cells, n_cells)]
    starts = np.searchsorted(cells, np.arange(n_rows + 1, dtype=np.int64) * n_columns)
    return sp.csr_array((np.ones(len(cells), dtype=bool), cells % n_columns, starts), shape=shape)


def _frequencies(n_labels: int, cardinality: float, decay: float) -> NDArray[np.float64]:
    """Scale rank ** -decay, capped, to add up to the cardinality; the commonest label first."""
    log_shape = -decay * np.log(np.arange(1, n_labels + 1))

    def capped(log_scale: float) -> NDArray[np.float64]:
        return np.exp(np.minimum(log_scale + log_shape, math.log(MAX_FREQUENCY)))

    low, high = math.log(cardinality / n_labels), math.log(MAX_FREQUENCY) - log_shape[-1]
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if capped(middle).sum() < cardinality else (low, middle)
    return capped(high)


def _niche_axes(
    n_features: int, n_groups: int, density: float, rng: np.random.Generator
) -> sp.csc_array:
    """Draw orthonormal axes on a few features for each group, (n_features, n_groups * n_axes)."""
    n_used = min(n_features, math.ceil(NICHE_FEATURES / density))
    n_axes = min(NICHE_AXES, n_used)
    used = np.empty((n_groups, n_axes, n_used), dtype=np.int32)
    values = np.empty(used.shape)
    for group in range(n_groups):
        used[group] = np.sort(rng.choice(n_features, n_used, replace=False))
        # Signs rather than normals: equal weights bring a sum of sparse features closest to normal.
        signs = 2.0 * rng.integers(0, 2, size=(n_used, n_axes)) - 1.0
        values[group] = np.linalg.qr(signs)[0].T
    starts = np.arange(n_groups * n_axes + 1) * n_used
    shape = (n_features, n_groups * n_axes)
    return sp.csc_array((values.ravel(), used.ravel(), starts), shape=shape)


def _niche_weights(
    groups: NDArray[np.int64], n_axes: int, rng: np.random.Generator
) -> sp.csr_array:
    """Draw each label's unit direction: the shared axis, and a direction of its own."""
    n_labels, n_groups = len(groups), int(groups.max()) + 1
    weights = np.ones((n_labels, n_axes))
    if n_axes > 1:
        own = rng.standard_normal((n_labels, n_axes - 1))
        own /= np.linalg.norm(own, axis=1, keepdims=True)
        weights[:, 0] = math.sqrt(SHARED_NICHE)
        weights[:, 1:] = math.sqrt(1 - SHARED_NICHE) * own
    columns = groups[:, None] * n_axes + np.arange(n_axes)
    starts = np.arange(n_labels + 1) * n_axes
    shape = (n_labels, n_groups * n_axes)
    return sp.csr_array((weights.ravel(), columns.ravel(), starts), shape=shape)


def _label_blocks(
    X: Matrix, truth: SurveyTruth, rng: np.random.Generator
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.bool_]]]:
    """Yield columns of labels, (n_block,), and their values, (n_samples, n_block)."""
    n_samples, n_groups = X.shape[0], int(truth.label_groups.max()) + 1
    n_axes = truth.niche_axes.shape[1] // n_groups
    width = max(1, _BLOCK_CELLS // n_samples)
    noise_strength = max(0.0, 1 - truth.feature_strength - truth.group_strength)
    thresholds = truth.thresholds.astype(np.float32)
    scales = np.sqrt([truth.feature_strength, truth.group_strength, noise_strength])
    feature_scale, group_scale, noise_scale = scales.astype(np.float32)
    for group in range(n_groups):
        own = slice(group * n_axes, (group + 1) * n_axes)
        axes = truth.niche_axes[:, own].toarray().astype(np.float32)
        position = X @ axes * feature_scale  # (n_samples, n_axes)
        factor = rng.standard_normal((n_samples, 1), dtype=np.float32) * group_scale
        members = np.flatnonzero(truth.label_groups == group)
        for start in range(0, len(members), width):
            block = members[start : start + width]
            scores = rng.standard_normal((n_samples, len(block)), dtype=np.float32)
            scores *= noise_scale
            scores += factor
            scores += position @ truth.niche_weights[block][:, own].toarray().T.astype(np.float32)
            yield block, scores > thresholds[block]


def _collect(
    blocks: Iterator[tuple[NDArray[np.int64], NDArray[np.bool_]]],
    shape: tuple[int, int],
    sparse: bool,
) -> Matrix:
    if not sparse:
        Y = np.zeros(shape, dtype=np.uint8)
        for columns, values in blocks:
            Y[:, columns] = values
        return Y
    rows, cells = [], []
    for columns, values in blocks:
        row, column = np.nonzero(values)
        rows.append(row)
        cells.append(columns[column])
    row, column = np.concatenate(rows), np.concatenate(cells)
    return sp.csr_array((np.ones(len(row), dtype=np.uint8), (row, column)), shape=shape)


def make_digits(
    n_samples: int, *, test: bool = False, seed: int = 0
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Put two to four of scikit-learn's handwritten digits on each canvas.

    Parameters
    ----------
    n_samples : int
        Number of canvases.
    test : bool
        Whether they are made of other images than those of training.
    seed : int
        Seed of digits and positions.

    Returns
    -------
    images : array, (n_samples, 1, 20, 20)
        Between 0 and 1.
    labels : array, (n_samples, 10)
        1 for each digit that is on the canvas.

    Examples
    --------
    >>> images, labels = make_digits(3)
    >>> images.shape, labels.shape
    ((3, 1, 20, 20), (3, 10))
    """
    from sklearn.datasets import load_digits

    source = load_digits()
    usable = np.flatnonzero((np.arange(len(source.target)) % _TEST_EVERY == 0) == test)
    rng = np.random.default_rng([seed, test])
    images = np.zeros((n_samples, 1, CANVAS, CANVAS), np.float32)
    labels = np.zeros((n_samples, 10), np.int64)
    for image, row in zip(images, labels, strict=True):
        for cell in rng.permutation(4)[: rng.integers(2, 5)]:
            chosen = rng.choice(usable)
            top, left = CELL * np.array(divmod(cell, 2)) + rng.integers(CELL - DIGIT + 1, size=2)
            image[0, top : top + DIGIT, left : left + DIGIT] = source.images[chosen] / 16
            row[source.target[chosen]] = 1
    return images, labels
