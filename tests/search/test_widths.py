"""Splits of a table have words of their own, and are searched together all the same."""

import numpy as np
import pytest
import scipy.sparse as sp
from cgmvae.methods.together import Fit

from cgmvae.data.columns import as_columns
from cgmvae.methods import CGMVAEClassifier
from cgmvae.methods.inputs import Rows
from cgmvae.search import PackedSearch
from cgmvae.search.widths import equally_wide


@pytest.mark.parametrize("form", [np.array, sp.csr_array])
def test_zeros_are_added_on_the_right(form):
    models = [CGMVAEClassifier(), CGMVAEClassifier()]
    fits = []
    for model, width in zip(models, (2, 3), strict=True):
        model.n_inputs_ = width
        rows = Rows(form(np.ones((2, width))), np.ones((2, 1)))
        fits.append(Fit(rows, rows, 0))
    found = equally_wide(models, fits)
    assert [model.n_inputs_ for model in models] == [3, 3]
    for fit, expected in zip(found, ([1, 1, 0], [1, 1, 1]), strict=True):
        for rows in (fit.train, fit.validation):
            features = rows.features.toarray() if sp.issparse(rows.features) else rows.features
            assert features.tolist() == [expected] * 2


def test_a_search_over_splits_of_a_table():
    rng = np.random.default_rng(0)
    words = np.array([f"word{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"])
    notes = [" ".join(rng.choice(words, 4)) for _ in range(60)]
    X = as_columns({"depth": rng.normal(size=60), "notes": notes})
    Y = np.column_stack([["worda" in note for note in notes], rng.random(60) < 0.5])
    base = CGMVAEClassifier(
        epochs=2,
        embedding_dim=8,
        device="cpu",
        settings={"feature_hidden": (8,), "label_hidden": (8,), "decoder_hidden": (8,)},
    )
    space = {"learning_rate": (1e-3, 1e-2)}
    search = PackedSearch(base, space, n_splits=3, n_best=1, random_state=0).fit(X, Y)
    assert all(len(result.values) == 3 for result in search.results_)
    assert search.predict_proba(X).shape == (60, 2)
