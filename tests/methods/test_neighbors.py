"""Votes of near training rows: what they are, when they are used, and that they are stored."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit, logit
from sklearn.base import clone

import cgmvae
from cgmvae.data.serialization import read_tensors, write_tensors
from cgmvae.errors import InputError
from cgmvae.methods import CGMVAEClassifier
from cgmvae.methods.inputs import Rows
from cgmvae.methods.neighbors import SHARE, Neighbors, learn_neighbors, voting_weights

TINY = {
    "n_members": 4,
    "epochs": 3,
    "embedding_dim": 8,
    "latent_dim": 2,
    "feature_hidden": (8,),
    "label_hidden": (8,),
    "decoder_hidden": (8,),
    "device": "cpu",
    "random_state": 0,
}


def by_hand(voters, query, k):
    """Return the votes for one row, one sum at a time."""
    rows = np.asarray(
        voters.features.todense() if sp.issparse(voters.features) else voters.features
    )
    labels = np.asarray(voters.labels)
    unknown = np.zeros(labels.shape, bool) if voters.unknown is None else voters.unknown
    squared = ((rows - query) ** 2).sum(1)
    nearest = np.argsort(squared)[:k]
    weights = np.exp(-8 * squared[nearest] / squared[nearest][k // 2]) * voters.row_weights[nearest]
    weights /= weights.sum()
    known = ~unknown[nearest]
    frequency = (voters.row_weights @ labels) / (voters.row_weights @ ~unknown)
    voted = (weights[:, None] * labels[nearest] * known).sum(0)
    return (k * voted + frequency) / (k * (weights[:, None] * known).sum(0) + 1)


@pytest.fixture
def places(rng):
    """Return rows whose labels depend on the place alone, in small patches."""
    features = rng.uniform(size=(600, 2)).astype(np.float32)
    patch = (features * 6).astype(int) @ [1, 6]
    likely = rng.random((36, 3)) < 0.3
    return features, (likely[patch] ^ (rng.random((600, 3)) < 0.05)).astype(np.uint8)


class TestVotes:
    @pytest.mark.parametrize("weighted", [False, True])
    @pytest.mark.parametrize("partly", [False, True])
    def test_they_are_the_sums_of_the_formula(self, places, rng, partly, weighted):
        features, labels = places
        unknown = rng.random(labels.shape) < 0.3 if partly else None
        if partly:
            labels = labels * ~unknown
        weights = rng.uniform(0.1, 2, len(labels)) if weighted else None
        voters = Neighbors.of(Rows(features, labels, unknown, weights), 12)
        queries = rng.uniform(size=(5, 2))
        for query, votes in zip(queries, voters.votes(queries), strict=True):
            np.testing.assert_allclose(votes, by_hand(voters, query, 12), rtol=1e-4)

    def test_sparse_rows_are_compared_by_their_angle(self, rng):
        features = sp.random_array((50, 20), density=0.2, rng=rng, format="csr")
        features.data[:] = 1
        labels = (rng.random((50, 2)) < 0.4).astype(np.uint8)
        voters = Neighbors.of(Rows(features, labels), 8)
        np.testing.assert_allclose(voters.votes(features * 5), voters.votes(features), rtol=1e-5)
        np.testing.assert_allclose(voters.votes(features.toarray()), voters.votes(features))

    def test_labels_may_be_sparse(self, places):
        features, labels = places
        dense = Neighbors.of(Rows(features, labels), 8)
        sparse = Neighbors.of(Rows(features, sp.csr_array(labels)), 8)
        np.testing.assert_allclose(sparse.votes(features), dense.votes(features))

    def test_equal_rows_vote_equally(self):
        np.testing.assert_allclose(voting_weights(np.zeros((1, 4), np.float32)), 1)

    def test_a_label_that_no_near_row_knows_has_its_frequency(self):
        features = np.array([[0.0], [0.1], [5.0], [6.0]], np.float32)
        unknown = np.array([[True], [True], [False], [False]])
        labels = np.array([[0], [0], [1], [0]], np.uint8)
        voters = Neighbors.of(Rows(features, labels, unknown), 2)
        np.testing.assert_allclose(voters.votes(np.zeros((1, 1))), 0.5)

    def test_fewer_rows_than_asked_for(self, places):
        features, labels = places
        assert Neighbors.of(Rows(features[:3], labels[:3]), 32).votes(features).shape == (600, 3)

    def test_blocks_of_rows_do_not_matter(self, places, monkeypatch):
        features, labels = places
        voters = Neighbors.of(Rows(features, labels), 8)
        votes = voters.votes(features)
        monkeypatch.setattr("cgmvae.methods.neighbors._BLOCK", 7)
        np.testing.assert_allclose(voters.votes(features), votes, rtol=1e-6)

    def test_blending_averages_log_odds(self):
        voters = Neighbors.of(Rows(np.zeros((1, 1), np.float32), np.ones((1, 1), np.uint8)), 1)
        object.__setattr__(voters, "weight", 0.25)
        blended = voters.blend(np.array([[0.8]]), np.array([[0.1]]))
        np.testing.assert_allclose(blended, expit(0.75 * logit(0.8) + 0.25 * logit(0.1)))


class TestLearning:
    def learn(self, features, labels, scores, folds=None, unknown=None):
        folds = np.arange(len(labels)) % 5 if folds is None else folds
        rows = Rows(features, labels, unknown)
        known = np.flatnonzero(folds >= 0)
        return learn_neighbors(rows, rows.take(known), folds, folds[known], scores[known], 8)

    def test_votes_that_know_more_than_the_network_are_used(self, places):
        features, labels = places
        scores = np.tile(labels.mean(0), (600, 1)).astype(np.float32)
        voters, blended = self.learn(features, labels, scores)
        assert 0.7 * SHARE < voters.weight <= SHARE
        assert blended.dtype == np.float32
        loss = [-np.log(np.where(labels, p, 1 - p)).mean() for p in (scores, blended)]
        assert loss[1] < 0.9 * loss[0]

    def test_votes_that_say_nothing_are_not(self, rng):
        labels = (rng.random((400, 3)) < 0.3).astype(np.uint8)
        scores = np.tile(labels.mean(0), (400, 1))
        voters, blended = self.learn(rng.normal(size=(400, 2)), labels, scores)
        assert voters is None
        assert np.array_equal(blended, scores)

    def test_a_row_does_not_hear_from_its_own_fold(self, rng):
        """Each row has a twin in its fold, which knows all: as in repeated visits of a site."""
        features = np.repeat(rng.normal(size=(150, 3)), 2, axis=0)
        labels = np.repeat((rng.random((150, 2)) < 0.4).astype(np.uint8), 2, axis=0)
        scores = np.tile(labels.mean(0), (300, 1))
        folds = np.repeat(np.arange(150) % 5, 2)
        assert self.learn(features, labels, scores, folds)[0] is None
        assert self.learn(features, labels, scores, np.arange(300) % 5)[0] is not None

    def test_unlabeled_rows_do_not_vote(self, places):
        features, labels = places
        folds = np.where(np.arange(600) < 300, np.arange(600) % 5, -1)
        unknown = np.broadcast_to((folds < 0)[:, None], labels.shape)
        scores = np.tile(labels.mean(0), (600, 1))
        voters, _ = self.learn(features, labels * ~unknown, scores, folds, unknown)
        assert voters.record().n_rows == 300


class TestModel:
    @pytest.fixture
    def fitted(self, places):
        return CGMVAEClassifier(**TINY).fit(*places)

    def test_they_are_part_of_what_a_model_predicts(self, fitted, places):
        X, _ = places
        assert fitted.neighbors_.weight > 0
        without = fitted.neighbors_
        fitted.neighbors_ = None
        network = fitted.predict_proba(X)
        fitted.neighbors_ = without
        np.testing.assert_allclose(
            fitted.predict_proba(X), without.blend(network, without.votes(fitted.inputs(X)))
        )

    def test_out_of_fold_they_help_as_much_as_on_new_rows(self, places):
        X, Y = places
        alone, voting = (
            CGMVAEClassifier(**TINY, n_neighbors=k).fit(X[:400], Y[:400]) for k in (0, 32)
        )
        for part in ("oof", "new"):
            losses = []
            for model in (alone, voting):
                p = model.oof_proba_ if part == "oof" else model.predict_proba(X[400:])
                true = Y[:400][model.oof_rows_] if part == "oof" else Y[400:]
                losses.append(-np.log(np.where(true, p, 1 - p)).mean())
            assert losses[1] < 0.95 * losses[0]

    def test_they_survive_saving_to_the_last_digit(self, fitted, places, tmp_path):
        fitted.round_weights()
        fitted.save(tmp_path / "m.cgmvae")
        loaded = cgmvae.load(tmp_path / "m.cgmvae")
        assert loaded.neighbors_.record() == fitted.neighbors_.record()
        assert np.array_equal(loaded.predict_proba(places[0]), fitted.predict_proba(places[0]))

    def test_sparse_rows_and_unknown_labels_survive_it_too(self, rng, tmp_path):
        X = sp.random_array((200, 30), density=0.2, rng=rng, format="csr")
        X.data[:] = 1
        Y = np.column_stack([X[:, [0]].toarray(), X[:, [1]].toarray()]) * 1.0
        Y[rng.random(Y.shape) < 0.2] = np.nan
        model = CGMVAEClassifier(**TINY, n_neighbors=8).fit(X, Y)
        assert sp.issparse(model.neighbors_.features)
        assert model.neighbors_.unknown is not None
        model.save(tmp_path / "m.cgmvae", precision="float32")
        loaded = cgmvae.load(tmp_path / "m.cgmvae")
        assert np.array_equal(loaded.predict_proba(X), model.predict_proba(X))

    @pytest.mark.parametrize(
        ("settings", "fit"),
        [
            ({"n_neighbors": 0}, {}),
            ({"preset": "paper"}, {}),
            ({}, {"validation_data": True}),
        ],
    )
    def test_when_there_are_none(self, places, settings, fit):
        X, Y = places
        if fit:
            fit = {"validation_data": (X[500:], Y[500:])}
        assert CGMVAEClassifier(**TINY, **settings).fit(X[:500], Y[:500], **fit).neighbors_ is None

    def test_many_rows_have_none_by_default(self, places, monkeypatch):
        monkeypatch.setattr("cgmvae.methods.cgmvae.MOST_ROWS", 599)
        assert CGMVAEClassifier(**TINY).fit(*places).neighbors_ is None
        assert CGMVAEClassifier(**TINY, n_neighbors=16).fit(*places).neighbors_.k == 16

    def test_a_second_fit_forgets_the_first(self, fitted, rng):
        X, Y = rng.normal(size=(300, 2)), (rng.random((300, 3)) < 0.4).astype(int)
        assert fitted.fit(X, Y).neighbors_ is None
        fresh = clone(fitted).fit(X, Y)
        assert np.array_equal(fitted.predict_proba(X), fresh.predict_proba(X))

    def test_a_number_is_refused_with_validation_rows_before_training(self, places):
        X, Y = places
        model = CGMVAEClassifier(**TINY, n_neighbors=8, progress=lambda *_: pytest.fail("trained"))
        with pytest.raises(InputError, match="n_neighbors does not go with validation rows"):
            model.fit(X[:500], Y[:500], validation_data=(X[500:], Y[500:]))

    @pytest.mark.parametrize("k", [-3, 2.5])
    def test_no_whole_number(self, places, k):
        with pytest.raises(InputError, match="n_neighbors"):
            CGMVAEClassifier(**TINY, n_neighbors=k).fit(*places)

    def test_known_labels_are_kept_and_the_others_hear_the_votes(self, fitted, places):
        known = np.full((600, 3), np.nan)
        known[:, 0] = 1
        found = fitted.predict_proba(places[0], known=known)
        assert (found[:, 0] == 1).all()
        voters, fitted.neighbors_ = fitted.neighbors_, None
        assert not np.allclose(found[:, 1:], fitted.predict_proba(places[0], known=known)[:, 1:])
        fitted.neighbors_ = voters

    @pytest.mark.parametrize(
        ("name", "change"),
        [
            ("features", lambda a: a[:, :1]),
            ("features", lambda a: a * np.nan),
            ("labels", lambda a: a + 2),
            ("labels", lambda a: a[1:]),
            ("row_weights", lambda a: a * 0),
            ("row_weights", lambda a: a[1:]),
        ],
    )
    def test_damaged_rows_are_refused(self, fitted, tmp_path, name, change):
        path = tmp_path / "m.cgmvae"
        fitted.save(path)
        tensors, description = read_tensors(path)
        key = f"fitted.neighbors.{name}"
        tensors[key] = change(tensors[key])
        write_tensors(path, tensors, description)
        with pytest.raises(InputError, match="is damaged"):
            cgmvae.load(path)

    @pytest.mark.parametrize("change", [{"k": 601}, {"k": 0}, {"weight": 1.5}, {"n_rows": 5}])
    def test_a_damaged_record_is_refused(self, fitted, tmp_path, change):
        path = tmp_path / "m.cgmvae"
        fitted.save(path)
        tensors, description = read_tensors(path)
        description["fitted"]["neighbors"] |= change
        write_tensors(path, tensors, description)
        with pytest.raises(InputError, match="is damaged"):
            cgmvae.load(path)
