"""Votes of near training rows as an expert: what they are, and who votes for whom."""

import numpy as np
import pytest
import scipy.sparse as sp

import cgmvae
from cgmvae.data.serialization import read_tensors, write_tensors
from cgmvae.errors import InputError
from cgmvae.methods.neighbors import NearestVotes


class TestExpert:
    def test_votes_against_a_plain_loop(self, rng):
        X, Y = rng.normal(size=(60, 3)), (rng.random((60, 4)) < 0.4).astype(np.uint8)
        plain = {"scaling": "none", "encoding": "standard"}
        model = NearestVotes(n_neighbors=5, **plain).fit(X.astype(np.float16), Y)
        rows, queries = X.astype(np.float16).astype(float), rng.normal(size=(7, 3))
        found = model.predict_proba(queries)
        for query, own in zip(queries, found, strict=True):
            squared = ((rows - query) ** 2).sum(1)
            nearest = np.argsort(squared)[:5]
            weights = np.exp(-8 * squared[nearest] / np.sort(squared)[2])
            share = weights @ Y[nearest] / weights.sum()
            np.testing.assert_allclose(own, (5 * share + Y.mean(0)) / 6, rtol=1e-3)

    def test_a_row_does_not_vote_for_itself_nor_its_group(self, rng):
        X, Y = rng.normal(size=(100, 4)), (rng.random((100, 2)) < 0.5).astype(int)
        X, Y, group = (np.repeat(each, 2, axis=0) for each in (X, Y, np.arange(100)))
        model = NearestVotes(n_neighbors=3)
        alone, together, known = (
            np.abs(p - Y).mean()
            for p in (
                model.fit(X, Y).oof_proba_,
                model.fit(X, Y, groups=group).oof_proba_,
                model.predict_proba(X),
            )
        )
        assert known < alone < 0.45 < together

    def test_of_few_rows_all_others_vote(self, rng):
        X, Y = rng.normal(size=(6, 3)).astype(np.float16), rng.integers(0, 2, (6, 2))
        model = NearestVotes(scaling="none", encoding="standard").fit(X, Y)
        for i, own in enumerate(model.oof_proba_):
            others = np.delete(np.arange(6), i)
            squared = ((X[others].astype(float) - X[i].astype(float)) ** 2).sum(1)
            weights = np.exp(-8 * squared / np.sort(squared)[2])
            share = weights @ Y[others] / weights.sum()
            np.testing.assert_allclose(own, (5 * share + Y.mean(0)) / 6, rtol=1e-3)

    def test_few_rows_and_unknown_labels(self, rng):
        X, Y = rng.normal(size=(4, 2)), np.array([[1, 0], [0, 1], [1, np.nan], [1, 1]])
        model = NearestVotes().fit(X, Y)
        assert np.isfinite(model.oof_proba_).all()
        assert np.isfinite(model.predict_proba(X)).all()

    def test_sparse_rows_are_compared_by_their_angle(self, rng):
        X = sp.csr_array(rng.random((80, 30)) * (rng.random((80, 30)) < 0.2) + np.eye(80, 30))
        Y = (rng.random((80, 3)) < 0.4).astype(int)
        model = NearestVotes(n_neighbors=4, scaling="none").fit(X, Y)
        assert model.by_angle_
        longer = sp.csr_array(X * rng.uniform(1, 5, (80, 1)))
        np.testing.assert_allclose(model.predict_proba(longer), model.predict_proba(X), atol=1e-2)

    def test_damaged_rows_are_refused(self, rng, tmp_path):
        X, Y = rng.normal(size=(60, 3)), (rng.random((60, 4)) < 0.4).astype(np.uint8)
        NearestVotes(n_neighbors=5).fit(X, Y).save(tmp_path / "m")
        tensors, description = read_tensors(tmp_path / "m")
        for name, change in (
            ("features", np.nan),
            ("voters.row_weights", -1),
            ("voters.labels", 3),
        ):
            key = f"fitted.{name}"
            wrong = np.full_like(tensors[key], change)
            write_tensors(tmp_path / "m", tensors | {key: wrong}, description)
            with pytest.raises(InputError, match="is damaged"):
                cgmvae.load(tmp_path / "m")
