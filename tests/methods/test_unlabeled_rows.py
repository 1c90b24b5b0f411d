"""Rows whose labels are all unknown: every method leaves them out."""

from functools import partial

import numpy as np
import pytest

from cgmvae.data import make_survey
from cgmvae.methods import BinaryRelevance, MLkNN
from cgmvae.methods.inputs import UnlabeledRowsWarning


@pytest.fixture
def with_unlabeled(survey):
    """Return X and Y of the survey with further rows, of another mean, whose labels are NaN."""
    more = make_survey(80, 6, 5, seed=1)[0].X + 3
    return np.vstack([survey.X, more]), np.vstack([survey.Y, np.full((80, 5), np.nan)])


@pytest.mark.parametrize("method", [BinaryRelevance, MLkNN, "cgmvae"])
def test_they_are_left_out_and_a_line_says_so(method, tiny, survey, with_unlabeled):
    """Preparation, scaling and encoding do not learn from them either."""
    make = tiny if method == "cgmvae" else partial(method, random_state=0)
    plain = make().fit(survey.X, survey.Y)
    with pytest.warns(UnlabeledRowsWarning, match=r"^80 rows .* other 120\.$") as told:
        model = make().fit(*with_unlabeled)
    assert told[0].filename == __file__
    np.testing.assert_array_equal(plain.predict_proba(survey.X), model.predict_proba(survey.X))
    # What 'cgmvae describe' says: other methods hold out a tenth.
    assert model.plan_.profile.n_rows == (120 if method == "cgmvae" else 108)
    if method == "cgmvae":
        np.testing.assert_array_equal(plain.oof_rows_, model.oof_rows_)


def test_out_of_fold_rows_are_those_of_x(tiny, survey, with_unlabeled):
    """Also where the rows before them are left out, for want of labels or of weight."""
    X, Y = (part[::-1] for part in with_unlabeled)
    weights = np.ones(200)
    weights[[0, 100]] = 0  # one without labels, one with
    with pytest.warns(UnlabeledRowsWarning, match=r"^79 rows .* other 119\.$"):
        model = tiny(n_members=4).fit(X, Y, sample_weight=weights)
    np.testing.assert_array_equal(model.oof_rows_, np.delete(np.arange(80, 200), 20))


@pytest.mark.parametrize("method", [BinaryRelevance, "cgmvae"])
def test_they_do_not_validate(method, tiny, survey, with_unlabeled):
    make = tiny if method == "cgmvae" else partial(method, random_state=0)
    X, Y = with_unlabeled
    models = [
        make().fit(survey.X, survey.Y, validation_data=held)
        for held in (
            (survey.X[:40], survey.Y[:40]),
            (X[np.r_[:40, 120:200]], Y[np.r_[:40, 120:200]]),
        )
    ]
    first, second = (model.predict_proba(survey.X) for model in models)
    np.testing.assert_array_equal(first, second)
    assert models[0].threshold_rule_ == models[1].threshold_rule_
