"""Fuzzy ART against a plain loop over rows and complement-coded weights."""

import numpy as np
import pytest
import scipy.sparse as sp

from cgmvae.methods import fuzzy_art
from cgmvae.methods.fuzzy_art import Boxes, Rule, learn_categories, overlap


def rows(features):
    return Boxes.between(features, features)


def weights(boxes):
    """Return boxes as the papers write them: (u, 1 − v)."""
    boxes = boxes.dense()
    return np.hstack([boxes.lower, 1 - boxes.upper])


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
    if kind == "dense":
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


def test_the_overlap_does_not_depend_on_the_origin(rng):
    points, other, origin = rng.random((6, 4)), rng.random((3, 4)), rng.normal(size=4)
    np.testing.assert_allclose(
        overlap(rows(points - origin), rows(other - origin)), overlap(rows(points), rows(other))
    )


@pytest.mark.parametrize("kind", ["dense", "sparse", "binary"])
@pytest.mark.parametrize(("rate", "vigilance"), [(1.0, 0.7), (0.4, 0.85)])
def test_categories_equal_a_plain_loop(rng, kind, rate, vigilance):
    """The 300 rows are three blocks, so categories change within blocks and between them."""
    inputs = rows(some_features(rng, kind, n_features=9 if kind == "binary" else 5))
    rule = Rule(vigilance + 1e-3, 0.1, rate)
    boxes, winners = learn_categories(inputs, rule)
    expected, expected_winners = plain_art(weights(inputs), rule)
    assert 1 < len(expected) < 290
    np.testing.assert_array_equal(winners, expected_winners)
    np.testing.assert_allclose(weights(boxes), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(boxes.norms, expected.sum(axis=1), rtol=1e-12)
    assert sp.issparse(boxes.lower) == sp.issparse(inputs.lower)
    assert boxes.binary == (kind == "binary" and rate == 1)


def test_boxes_are_clustered_like_rows(rng):
    lower, upper = np.sort(rng.random((2, 200, 4)), axis=0)
    inputs, rule = Boxes.between(lower, upper), Rule(0.6, 0.1, 1.0)
    boxes, winners = learn_categories(inputs, rule)
    expected, expected_winners = plain_art(weights(inputs), rule)
    assert 1 < len(expected) < 200
    np.testing.assert_array_equal(winners, expected_winners)
    np.testing.assert_allclose(weights(boxes), expected, rtol=1e-12, atol=1e-12)


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


def test_the_size_of_blocks_does_not_matter(rng, monkeypatch):
    inputs = rows(some_features(rng, "sparse"))
    boxes, winners = learn_categories(inputs, Rule(0.7, 0.1, 1.0))
    monkeypatch.setattr(fuzzy_art, "_BLOCK_CELLS", 35)
    other, other_winners = learn_categories(inputs, Rule(0.7, 0.1, 1.0))
    np.testing.assert_array_equal(winners, other_winners)
    np.testing.assert_allclose(weights(boxes), weights(other), rtol=1e-12)
