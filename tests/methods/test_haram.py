"""HARAM against plain loops and scikit-multilearn's ML-ARAM."""

import numpy as np
import pytest
import scipy.sparse as sp
from skmultilearn.adapt import MLARAM

from cgmvae.methods import haram
from cgmvae.methods.haram import (
    HARAM,
    Boxes,
    Rule,
    above_largest_difference,
    activation,
    learn_categories,
    overlap,
    vote_weights,
)

#: One network without an upper level, whose categories stay in the order of their first rows.
FLAT = {"n_voters": 1, "searched_fraction": 1.0, "cluster_vigilance": 0.0, "random_state": 0}


def fit(model, X, Y, **more):
    """Fit on all rows in the given order; the threshold rule does not matter here."""
    return model.fit(X, Y, validation_data=(X, Y), **more)


def unit_square(rng, n_rows, n_features, n_labels):
    """Return rows that fill [0, 1] in each feature, so that scaling changes nothing."""
    X = rng.random((n_rows, n_features))
    X[0], X[1] = 0, 1
    return X, (rng.random((n_rows, n_labels)) < 0.4).astype(int)


def weights(boxes):
    """Return boxes as the papers write them: (u, 1 − v)."""
    boxes = boxes.dense()
    return np.hstack([boxes.lower, 1 - boxes.upper])


@pytest.mark.filterwarnings("ignore:numpy.core:DeprecationWarning")
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
@pytest.mark.parametrize(("vigilance", "threshold"), [(0.6, 0.2), (0.95, 0.02)])
def test_without_clusters_equals_ml_aram(form, vigilance, threshold):
    """The same categories, counts, rankings and labels as scikit-multilearn's network.

    That network adds labels into the table that it is given, so it gets a copy; its ranks are
    counts, ours are divided by the rows of the voting categories, one number a row of X. Its α is
    10⁻¹³. Labels are compared where one difference of ranks is clearly the largest: else rounding
    decides.
    """
    rng = np.random.default_rng(1)
    X, Y = unit_square(rng, 200, 4, 3)
    queries = rng.random((80, 4))
    theirs = MLARAM(vigilance=vigilance, threshold=threshold)
    theirs.fit(X.copy(), Y.copy())
    model = HARAM(vigilance=vigilance, vote_threshold=threshold, choice=1e-13, **FLAT)
    (network,) = fit(model, form(X), Y).voters_
    assert 8 < len(theirs.neurons) < 200
    expected = [neuron.vc for neuron in theirs.neurons]
    np.testing.assert_allclose(weights(network.categories), expected, rtol=0, atol=1e-12)
    counts = [neuron.label for neuron in theirs.neurons]
    np.testing.assert_array_equal(network.positives.toarray(), counts)
    ranks, scores = theirs.predict_proba(queries.copy()), model.predict_proba(form(queries))
    some = ranks.any(axis=1)
    np.testing.assert_allclose(
        scores[some] / scores[some].sum(axis=1, keepdims=True),
        ranks[some] / ranks[some].sum(axis=1, keepdims=True),
        atol=1e-5,
    )
    drops = np.sort(-np.diff(-np.sort(-scores)), axis=1)
    clear = drops[:, -1] - drops[:, -2] > 1e-5
    assert clear.sum() > 40
    ours = model.predict_by_largest_difference(form(queries))
    np.testing.assert_array_equal(ours[clear], theirs.predict(queries.copy())[clear])


def test_categories_nearly_as_active_as_the_best_vote():
    activations = np.array(
        [[0.9, 0.88, 0.5], [0.9, -np.inf, 0.5], [0.3, 0.3, 0.3], [0, 0, -np.inf]]
    )
    # (0.9 − 0.88) / 0.9 = 0.0222 and 0.9 − 0.5 = 0.4: the second votes from 0.0556 on.
    expected = [[0.9, 0.88, 0], [0.9, 0, 0], [0.3, 0.3, 0.3], [1, 1, 0]]
    np.testing.assert_array_equal(vote_weights(activations, 0.056), expected)
    expected[0] = [0.9, 0, 0]
    np.testing.assert_array_equal(vote_weights(activations, 0.055), expected)
    np.testing.assert_array_equal(vote_weights(activations, 0.0), expected)
    assert vote_weights(activations[:2], 1.0).tolist() == [[0.9, 0.88, 0], [0.9, 0, 0]]


def test_labels_before_the_largest_drop():
    scores = np.array([[0.1, 0.9, 0.7, 0.0], [0.5, 0.5, 0.5, 0.4], [0.0, 0.3, 0.9, 0.2]])
    expected = [[0, 1, 1, 0], [1, 1, 1, 0], [0, 0, 1, 0]]
    assert above_largest_difference(scores).astype(int).tolist() == expected
    assert above_largest_difference(scores[:, :1]).tolist() == [[False], [True], [False]]


def clustered(rng, **parameters):
    X, Y = unit_square(rng, 300, 4, 3)
    parameters = {"vigilance": 0.9, "n_voters": 1, "random_state": 0} | parameters
    return fit(HARAM(**parameters), X, Y)


def test_only_categories_of_the_most_active_clusters_are_searched(rng, monkeypatch):
    model, queries = clustered(rng, searched_fraction=0.2), rng.random((40, 4))
    (network,) = model.voters_
    sizes = np.bincount(network.cluster_of)
    assert 5 < len(network.clusters) < len(network.categories) / 3
    inputs = model._inputs(queries)
    # A plain loop: open the most active clusters until a fifth of the categories is there.
    of_clusters = activation(inputs, network.clusters, model.choice)
    expected = np.zeros((40, len(network.categories)), bool)
    for i, row in enumerate(of_clusters):
        for cluster in np.argsort(-row, kind="stable"):
            if expected[i].sum() >= 0.2 * len(network.categories):
                break
            expected[i] |= network.cluster_of == cluster
    assert (expected.sum(axis=1) < 0.2 * len(network.categories) + sizes.max()).all()
    compared = []

    def counting(inputs, boxes, choice):
        compared.append(len(inputs) * len(boxes))
        return activation(inputs, boxes, choice)

    monkeypatch.setattr(haram, "activation", counting)
    found = network.activations(inputs, model.choice, 0.2)
    np.testing.assert_array_equal(np.isfinite(found), expected)
    assert sum(compared) == 40 * len(network.clusters) + expected.sum()
    everywhere = network.activations(inputs, model.choice, 1.0)
    np.testing.assert_array_equal(found[expected], everywhere[expected])


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_searching_all_clusters_equals_a_flat_search(rng, form):
    model, queries = clustered(rng, n_voters=2), form(rng.random((40, 4)))
    model.set_params(searched_fraction=1.0)
    flat = model.predict_proba(queries)
    model.set_params(searched_fraction=1 - 1e-9)  # goes through the clusters and opens them all
    np.testing.assert_array_equal(model.predict_proba(queries), flat)
    model.set_params(searched_fraction=0.01)
    assert np.abs(model.predict_proba(queries) - flat).max() > 0.1


def test_voters_differ_in_row_order_and_are_averaged(rng):
    X, Y = unit_square(rng, 150, 3, 2)
    three = fit(HARAM(vigilance=0.7, n_voters=3, random_state=0), X, Y)
    one = fit(HARAM(vigilance=0.7, n_voters=1, random_state=0), X, Y)
    first, second, third = three.voters_
    np.testing.assert_array_equal(weights(first.categories), weights(one.voters_[0].categories))
    for voter in (second, third):
        assert not np.array_equal(weights(voter.categories), weights(first.categories))
        np.testing.assert_array_equal(voter.positives.sum(axis=0), Y.sum(axis=0))
    expected = three.predict_proba(X)
    alone = []
    for voter in three.voters_:
        three.voters_ = [voter]
        alone.append(three.predict_proba(X))
    np.testing.assert_allclose(np.mean(alone, axis=0), expected, atol=1e-12)


def test_features_are_scaled_to_the_training_range(rng):
    X, Y = unit_square(rng, 60, 3, 2)
    expected = fit(HARAM(n_voters=1), X, Y).predict_proba(X)
    for shift, scale in ((0, 4.0), (8, 4.0), (-8, 4.0), (-2, 4.0)):  # around, above, below 0
        for form in (np.asarray, sp.csr_array):
            model = fit(HARAM(n_voters=1), form(X * scale + shift), Y)
            np.testing.assert_allclose(model.minimum_, shift, atol=1e-12)
            np.testing.assert_allclose(model.maximum_, shift + scale, atol=1e-12)
            np.testing.assert_allclose(
                model.predict_proba(form(X * scale + shift)), expected, atol=1e-9
            )
            outside = np.array([[-5, 0.4, 9.0], [0.3, 7.0, -1]])
            np.testing.assert_allclose(
                model.predict_proba(form(outside * scale + shift)),
                model.predict_proba(form(outside.clip(0, 1) * scale + shift)),
                atol=1e-12,
            )


def test_an_implicit_zero_below_the_range_is_clipped(rng):
    X, Y = unit_square(rng, 120, 3, 2)
    model = fit(HARAM(random_state=0), sp.csr_array(X + 2), Y)
    query = np.array([[0, 2.5, 2.5]])
    np.testing.assert_allclose(
        model.predict_proba(sp.csr_array(query)), model.predict_proba(np.maximum(query, 2))
    )


def test_scores_are_weighted_fractions_of_known_rows(rng):
    X, Y = unit_square(rng, 200, 3, 4)
    mask, row_weights = rng.random(Y.shape) < 0.4, rng.random(200) + 0.1
    mask[:, 3] = True
    given = np.where(mask, np.nan, Y)
    model = HARAM(vigilance=0.7, vote_threshold=0.3, **FLAT)
    fit(model, X, given, sample_weight=row_weights)
    (network,) = model.voters_
    votes = vote_weights(network.activations(model._inputs(X), model.choice, 1.0), 0.3)
    # Which rows a category took, found again from its counts' definition.
    told = ~mask.all(axis=1)
    np.testing.assert_allclose(network.rows.sum(), row_weights[told].sum())
    known = network.rows[:, None] - network.unknown.toarray()
    np.testing.assert_allclose(known.sum(0), (row_weights[:, None] * ~mask)[told].sum(0), atol=1e-9)
    np.testing.assert_allclose(network.positives.sum(0), np.nansum(row_weights[:, None] * given, 0))
    frequency = network.positives.sum(0)[:3] / known.sum(0)[:3]
    found = model.predict_proba(X)
    for i in range(200):
        for label in range(3):
            weight = sum(v * k for v, k in zip(votes[i], known[:, label], strict=True))
            positive = votes[i] @ network.positives.toarray()[:, label]
            expected = positive / weight if weight > 1e-9 else frequency[label]
            assert found[i, label] == pytest.approx(expected, abs=1e-5)
    assert found[:, 3].max() < 1e-5


def test_an_unknown_label_matches_either_value():
    X = np.array([[0.0], [0.02], [0.04], [1.0]])
    Y = np.array([[1, np.nan], [1, 0], [1, 1], [0, 0]])
    (network,) = fit(HARAM(vigilance=0.5, **FLAT), X, Y).voters_
    # The second row tells the first one's category what it did not know; the third contradicts it.
    assert network.rows.tolist() == [2, 1, 1]
    assert network.positives.toarray().tolist() == [[2, 0], [1, 1], [0, 0]]
    assert network.unknown.toarray().tolist() == [[0, 1], [0, 0], [0, 0]]


DEGENERATE = {
    "constant features": lambda X, Y: (np.full_like(X, 3), Y),
    "extreme values": lambda X, Y: (X * 1e100, Y),
    "equal rows": lambda X, Y: (np.repeat(X[:2], 60, axis=0), Y),
}


@pytest.mark.parametrize("case", DEGENERATE)
@pytest.mark.parametrize(
    ("form", "vigilance"),
    [(np.asarray, 0.0), (np.asarray, 1.0), (sp.csr_array, 0.7)],
)
def test_degenerate_rows(survey, case, form, vigilance):
    X, Y = DEGENERATE[case](survey.X.astype(float), survey.Y.astype(float))
    model = HARAM(vigilance=vigilance, n_voters=1, random_state=0).fit(form(X), Y)
    p = model.predict_proba(form(X))
    assert p.shape == Y.shape
    assert ((p > 0) & (p < 1)).all()
    if case == "constant features":
        # Every row is the same to it, so all of them vote: the label's frequency remains.
        assert np.ptp(p, axis=0).max() < 1e-12
    predicted = model.predict_by_largest_difference(form(X))
    assert (predicted.sum(axis=1) > 0).all()
    assert (predicted.sum(axis=1) < Y.shape[1]).all()


def test_sparse_features_are_densified_in_blocks(rng, monkeypatch):
    X = sp.random_array((150, 2000), density=5e-3, format="csr", rng=rng)
    Y = (rng.random((150, 2)) < 0.5).astype(int)
    monkeypatch.setattr(haram, "_BLOCK_CELLS", 16_000)
    original, seen = sp.csr_array.toarray, []

    def recorded(self, *args, **kwargs):
        seen.append(self.shape)
        return original(self, *args, **kwargs)

    monkeypatch.setattr(sp.csr_array, "toarray", recorded)
    model = fit(HARAM(vigilance=0.995, n_voters=1, random_state=0), X, Y)
    model.predict_proba(X)
    assert len(model.voters_[0].categories) > 50
    assert sp.issparse(model.voters_[0].categories.lower)
    assert max(n_rows for n_rows, n_columns in seen if n_columns == 2000) == 8


def rows(features):
    return Boxes.between(features, features)


def plain_art(patterns, rule, labels=None):
    """Present complement-coded patterns one after the other, as Carpenter et al. describe it."""
    found, agreed, winners = [], [], []
    for i, pattern in enumerate(patterns):
        label = np.zeros(0) if labels is None else labels[i]
        common = [np.minimum(pattern, w).sum() for w in found]
        choice = [c / (rule.choice + w.sum()) for c, w in zip(common, found, strict=True)]
        for j in np.argsort(-np.array(choice), kind="stable"):
            known = (agreed[j] != 0) & (label != 0)
            same_labels = (agreed[j][known] == label[known]).all()
            if same_labels and common[j] / pattern.sum() >= rule.vigilance:
                both = np.minimum(pattern, found[j])
                found[j] = rule.rate * both + (1 - rule.rate) * found[j]
                agreed[j] = np.where(agreed[j] == 0, label, agreed[j])
                break
        else:
            j = len(found)
            found.append(pattern)
            agreed.append(label)
        winners.append(j)
    return np.array(found), np.array(winners)


def some_features(rng, kind, n_rows=300, n_features=5):
    features = rng.random((n_rows, n_features))
    if kind in ("dense", "boxes"):
        return features
    features[features < 0.4] = 0
    if kind == "binary":
        features = (features > 0).astype(float)
    return sp.csr_array(features)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("binary", [False, True])
def test_overlap_is_the_sum_of_elementwise_minima(rng, form, binary):
    corners = rng.random((4, 7, 5)).round() if binary else rng.random((4, 7, 5))
    a, b = (np.sort(pair, axis=0) for pair in (corners[:2], corners[2:]))
    inputs, boxes = (Boxes.between(*map(form, pair)) for pair in (a, b))
    assert inputs.binary == boxes.binary == binary
    expected = [[np.minimum(x, w).sum() for w in weights(boxes)] for x in weights(inputs)]
    np.testing.assert_allclose(overlap(inputs, boxes), expected, rtol=1e-12)
    np.testing.assert_allclose(boxes.norms, weights(boxes).sum(axis=1), rtol=1e-12)


@pytest.mark.parametrize("kind", ["dense", "sparse", "binary", "boxes"])
@pytest.mark.parametrize(("rate", "vigilance"), [(1.0, 0.7), (0.4, 0.85)])
def test_categories_equal_a_plain_loop(rng, kind, rate, vigilance):
    """The 300 rows are three blocks, so categories change within blocks and between them."""
    inputs = rows(some_features(rng, kind, n_features=9 if kind == "binary" else 5))
    if kind == "boxes":
        inputs = Boxes.between(*np.sort(rng.random((2, 300, 5)), axis=0))
    rule = Rule(vigilance + 1e-3, 0.1, rate)
    boxes, winners = learn_categories(inputs, rule)
    expected, expected_winners = plain_art(weights(inputs), rule)
    assert 1 < len(expected) < 290
    np.testing.assert_array_equal(winners, expected_winners)
    np.testing.assert_allclose(weights(boxes), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(boxes.norms, expected.sum(axis=1), rtol=1e-12)
    assert sp.issparse(boxes.lower) == sp.issparse(inputs.lower)
    assert boxes.binary == (kind == "binary" and rate == 1)


def test_known_labels_of_a_category_agree(rng):
    inputs = rows(some_features(rng, "dense", n_features=2))
    labels = rng.choice([-1, 0, 1], (300, 3), p=[0.3, 0.4, 0.3]).astype(np.int8)
    rule = Rule(0.8, 0.1, 1.0)
    boxes, winners = learn_categories(inputs, rule, labels)
    expected, expected_winners = plain_art(weights(inputs), rule, labels)
    np.testing.assert_array_equal(winners, expected_winners)
    np.testing.assert_allclose(weights(boxes), expected, rtol=1e-12, atol=1e-12)
    members = [labels[winners == j] for j in range(len(boxes))]
    assert max(map(len, members)) > 2
    assert not any(((each == 1).any(0) & (each == -1).any(0)).any() for each in members)


def test_boxes_that_fill_the_space_are_merged():
    """Their weights are all 0, so a match of 0/0 must be accepted."""
    full = Boxes.between(np.zeros((3, 2)), np.ones((3, 2)))
    boxes, winners = learn_categories(full, Rule(1.0, 0.1, 1.0))
    assert len(boxes) == 1
    assert winners.tolist() == [0, 0, 0]


def test_labels_that_tie_are_ranked_by_their_frequency():
    X = np.linspace(0, 1, 12)[:, None]
    Y = np.zeros((12, 3), np.uint8)
    Y[:4], Y[4:, 2], Y[8:, 1] = 1, 1, 1  # in the first rows all labels tie
    model = HARAM(n_voters=1, random_state=0).fit(X, Y, validation_data=(X, Y))
    scores = model.predict_proba(X[:2])
    np.testing.assert_allclose(scores, 1, atol=1e-5)
    assert (np.argsort(-scores, axis=1) == [2, 1, 0]).all()
    assert ((scores > 0) & (scores < 1)).all()
