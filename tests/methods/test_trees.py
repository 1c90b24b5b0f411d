"""A mixed forest: the way down, the votes in the leaves, rows out of bag, and what is stored."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.tree import DecisionTreeRegressor, ExtraTreeRegressor

from cgmvae.data import make_survey
from cgmvae.evaluation import macro_auc
from cgmvae.methods import MixedForest, trees
from cgmvae.methods.trees import Forest, LeafRows, draw_rows, grow_tree, smallest_integers

N_ROWS, N_FEATURES, N_LABELS = 200, 5, 3


@pytest.fixture
def rows(rng):
    X = rng.normal(size=(N_ROWS, N_FEATURES)).astype(np.float32)
    Y = (X[:, :N_LABELS] + 0.5 * rng.normal(size=(N_ROWS, N_LABELS)) > 0.3).astype(np.uint8)
    return X, Y


@pytest.fixture
def fitted(rows):
    return MixedForest(n_trees=20, random_state=0, scaling="none").fit(*rows)


class TestForest:
    def test_rows_reach_the_leaves_that_scikit_learn_finds(self, rows, rng):
        X, Y = rows
        forests, expected, n_before = [], [], 0
        for seed in range(4):
            weights = draw_rows(N_ROWS, None, seed).astype(float)
            kind, of_kind = [("random", ExtraTreeRegressor), ("best", DecisionTreeRegressor)][
                seed % 2
            ]
            forests.append(grow_tree(X, Y.astype(float), weights, kind, 2, seed))
            model = of_kind(max_features=2, random_state=np.random.RandomState(seed))
            tree = model.fit(X, Y.astype(float), sample_weight=weights).tree_
            number = np.cumsum(tree.children_left < 0) - 1
            expected.append(n_before + number[tree.apply(X)])
            n_before += number[-1] + 1
        forest = Forest.of(forests)
        assert forest.n_leaves == n_before
        for features in (X, sp.csr_array(X)):
            np.testing.assert_array_equal(forest.leaves(features), np.column_stack(expected))

    def test_a_tree_of_equal_labels_is_a_leaf(self, rows):
        X, _ = rows
        constant = grow_tree(X, np.ones((N_ROWS, 1)), np.ones(N_ROWS), "random", 2, 0)
        other = grow_tree(X, X[:, :1].astype(float), np.ones(N_ROWS), "random", 2, 0)
        forest = Forest.of([constant, other, constant])
        leaves = forest.leaves(X)
        assert (leaves[:, 0] == 0).all()
        assert (leaves[:, 2] == forest.n_leaves - 1).all()
        assert len(np.unique(leaves[:, 1])) == forest.n_leaves - 2

    def test_blocks_of_rows_change_nothing(self, fitted, rows, monkeypatch):
        expected = fitted.forest_.leaves(rows[0])
        monkeypatch.setattr(trees, "_BLOCK_ROWS", 7)
        np.testing.assert_array_equal(fitted.forest_.leaves(rows[0]), expected)

    @pytest.mark.parametrize(
        ("name", "change"),
        [
            ("right", lambda a: a + (a > 0)),  # the last split leads out of its tree
            ("right", lambda a: np.where(a > 0, 1, 0)),  # both children are one
            ("right", lambda a: np.where(a > 0, -a, 0)),  # back to the parents
            ("right", lambda a: a[:-1]),
            ("roots", lambda a: a[::-1]),
            ("roots", lambda a: a + 1),
            ("roots", lambda a: a[:0]),
            ("feature", lambda a: a + N_FEATURES),
            ("feature", lambda a: -1 - a),
            ("feature", lambda a: a[1:]),
            ("feature", lambda a: a.astype(float)),
            ("threshold", lambda a: a[1:]),
        ],
    )
    def test_damaged_arrays_are_refused(self, fitted, name, change):
        arrays = fitted.forest_.arrays()
        with pytest.raises(ValueError, match=r"its|shape"):
            Forest.from_arrays(arrays | {name: change(arrays[name])}, N_FEATURES)

    def test_the_smallest_integers(self):
        for most, kind in ((0, "i1"), (127, "i1"), (128, "i2"), (40_000, "i4"), (2**40, "i8")):
            assert smallest_integers(np.array([0, most])).dtype == kind


class TestVotes:
    def test_each_tree_has_one_vote_for_the_rows_in_the_leaf(self, rows, rng):
        X, Y = rows
        weights = rng.uniform(0.5, 3, N_ROWS)
        model = MixedForest(n_trees=7, random_state=0, scaling="none")
        model.fit(X, Y, sample_weight=weights)
        queries = rng.normal(size=(9, N_FEATURES)).astype(np.float32)
        ends = np.append(0, np.cumsum(model.leaf_rows_.sizes, dtype=int))
        total = np.zeros((9, N_LABELS))
        for query, reached in enumerate(model.forest_.leaves(queries)):
            for leaf in reached:
                inside = model.leaf_rows_.rows[ends[leaf] : ends[leaf + 1]]
                total[query] += np.average(Y[inside], axis=0, weights=weights[inside])
        frequency = np.average(Y, axis=0, weights=weights)
        np.testing.assert_allclose(model.predict_proba(queries), (total + frequency) / 8)

    def test_leaves_hold_the_rows_that_their_tree_drew(self, fitted, rows):
        X, _ = rows
        leaves, ends = fitted.forest_.leaves(X), np.cumsum(fitted.leaf_rows_.sizes, dtype=int)
        leaf_of_entry = np.searchsorted(ends, np.arange(ends[-1]), side="right")
        forest = fitted.forest_
        first_leaf = [forest.is_leaf[:root].sum() for root in forest.roots]
        tree = np.searchsorted(first_leaf, leaf_of_entry, side="right") - 1
        assert len(leaf_of_entry) == 20 * N_ROWS
        np.testing.assert_array_equal(leaves[fitted.leaf_rows_.rows, tree], leaf_of_entry)

    def test_it_is_as_good_as_scikit_learns_forests(self):
        data, _ = make_survey(900, 8, 6, seed=3)
        train, test = data.rows(slice(600)), data.rows(slice(600, None))
        model = MixedForest(random_state=0).fit(train.X, train.Y)
        ours = macro_auc(test.Y, model.predict_proba(test.X))
        for kind in (ExtraTreesClassifier, RandomForestClassifier):
            other = kind(400, bootstrap=True, random_state=0).fit(train.X, train.Y)
            scores = np.column_stack([p[:, 1] for p in other.predict_proba(test.X)])
            assert ours > macro_auc(test.Y, scores) - 0.01

    def test_many_labels_are_learned_from_projections(self, monkeypatch):
        data, _ = make_survey(600, 6, 60, seed=1)
        train, test = data.rows(slice(400)), data.rows(slice(400, None))
        aucs = []
        for n_projections in (8, 1000):
            monkeypatch.setattr(trees, "N_PROJECTIONS", n_projections)
            model = MixedForest(n_trees=40, random_state=0).fit(train.X, train.Y)
            aucs.append(macro_auc(test.Y, model.predict_proba(test.X)))
        assert aucs[0] > aucs[1] - 0.02


class TestOutOfBag:
    def test_rows_are_scored_by_trees_that_did_not_draw_them(self, rng):
        """Labels are random: a tree that drew a row knows them, no other does."""
        X, Y = rng.normal(size=(300, 4)), (rng.random((300, 2)) < 0.5).astype(int)
        model = MixedForest(random_state=0).fit(X, Y)
        assert macro_auc(Y, model.predict_proba(X)) > 0.99
        assert abs(macro_auc(Y, model.oof_proba_) - 0.5) < 0.1

    def test_groups_are_drawn_as_a_whole(self, rng):
        """Each row has a twin that knows its labels."""
        X, Y = rng.normal(size=(150, 4)), (rng.random((150, 2)) < 0.5).astype(int)
        X, Y, group = (np.repeat(each, 2, axis=0) for each in (X, Y, np.arange(150)))
        model = MixedForest(random_state=0)
        assert macro_auc(Y, model.fit(X, Y).oof_proba_) > 0.9
        assert abs(macro_auc(Y, model.fit(X, Y, groups=group).oof_proba_) - 0.5) < 0.1
        drawn = draw_rows(300, group, 0)
        np.testing.assert_array_equal(drawn[::2], drawn[1::2])

    def test_they_are_those_of_the_rows_that_were_given(self, rows):
        X, Y = rows
        weights = np.where(np.arange(N_ROWS) % 4 == 0, 0.0, 1.0)
        model = MixedForest(n_trees=10, random_state=0).fit(X, Y, sample_weight=weights)
        np.testing.assert_array_equal(model.oof_rows_, np.flatnonzero(weights))
        assert model.oof_proba_.shape == (len(model.oof_rows_), N_LABELS)


class TestGrowing:
    @pytest.mark.parametrize(("sparse", "tried"), [(False, [90, 17]), (True, [17, 17])])
    def test_one_half_of_the_trees_is_split_at_random(self, rng, monkeypatch, sparse, tried):
        X = rng.normal(size=(20, 300))
        found = []

        def recorded(features, targets, weights, kind, n_tried, seed):
            found.append((kind, n_tried))
            return grow_tree(features, targets, weights, kind, n_tried, seed)

        monkeypatch.setattr(trees, "grow_tree", recorded)
        model = MixedForest(n_trees=4, random_state=0)
        model.fit(sp.csr_array(X) if sparse else X, np.eye(20)[:, :2])
        expected = list(zip(["random", "best"], tried, strict=True))
        assert sorted(found) == sorted(2 * expected)

    def test_few_rows_have_more_trees(self):
        counts = []
        for n_rows in (100, 1000):
            data, _ = make_survey(n_rows, 3, 5, seed=0)
            counts.append(len(MixedForest(random_state=0).fit(data.X, data.Y).forest_.roots))
        assert counts == [400, 300]

    def test_thresholds_are_rounded_where_that_moves_no_rows(self, rows):
        X, Y = rows
        for scaled, is_rounded in ((X, True), (2**12 + X, False)):
            model = MixedForest(n_trees=40, random_state=0, scaling="none").fit(scaled, Y)
            thresholds = model.forest_.threshold
            half = thresholds.astype(np.float16).astype(np.float32)
            assert np.array_equal(thresholds, half) == is_rounded
            assert macro_auc(Y, model.oof_proba_) > 0.8


def test_a_row_on_a_threshold_goes_to_the_left():
    nodes = np.array([0, 0, 0]), np.array([0.5, 0, 0], np.float32), np.array([2, 0, 0])
    forest = Forest(*nodes, np.array([0]))
    rows = np.array([[0.4], [0.5], [0.6]], np.float32)
    assert forest.leaves(rows).ravel().tolist() == [0, 0, 1]


def test_the_last_of_many_labels_is_learned_too(rng):
    """Trees of more than 32 labels are grown on projections, in which each label has a part."""
    X, Y = rng.normal(size=(150, 3)), np.zeros((150, 40), int)
    Y[:, 39] = X[:, 0] > 0
    scores = MixedForest(n_trees=20, random_state=0).fit(X, Y).oof_proba_[:, 39]
    assert scores[Y[:, 39] == 1].mean() > scores[Y[:, 39] == 0].mean() + 0.5


def test_votes_of_leaves_are_the_shares_of_their_rows():
    sizes, rows = np.array([1, 0, 3, 2]), np.array([2, 0, 1, 1, 0, 2])
    weights = np.array([1.0, 2.0, 3.0])
    leaves = LeafRows(sizes, rows)
    place, votes = leaves.distinct_votes(weights)
    expected = [[0, 0, 1], [0, 0, 0], [0.2, 0.8, 0], [0.25, 0, 0.75]]
    np.testing.assert_allclose(votes.toarray()[place], expected)
