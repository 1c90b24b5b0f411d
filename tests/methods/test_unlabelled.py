"""Rows without labels: they are left out unless settings say so."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from cgmvae.data import make_survey
from cgmvae.errors import InputError
from cgmvae.methods import BinaryRelevance, MLkNN, fit_together, packed
from cgmvae.methods.inputs import UnlabeledRowsWarning
from cgmvae.methods.out_of_fold import assign_folds

LEARNING = {
    "consistency": {"consistency_weight": 1.0},
    "pseudo-labels": {"consistency_weight": 1.0, "confidence": 0.6},
    "prior": {"unlabelled_prior": "predicted"},
    "reconstruction": {"reconstruction": "gaussian", "reconstruction_weight": 0.1},
}
learning = pytest.mark.parametrize("settings", LEARNING.values(), ids=LEARNING)


@pytest.fixture
def unlabelled():
    """Return rows like those of the survey, with another mean."""
    return make_survey(80, 6, 5, seed=1)[0].X + 3


def hidden(survey, X):
    """Return the survey with further rows whose labels are all NaN."""
    return np.vstack([survey.X, X]), np.vstack([survey.Y, np.full((len(X), 5), np.nan)])


@pytest.mark.parametrize("method", [BinaryRelevance, MLkNN, "cgmvae"])
def test_rows_without_labels_are_left_out_and_a_line_says_so(method, tiny, survey, unlabelled):
    """Preparation, scaling and encoding do not learn from them either."""
    make = tiny if method == "cgmvae" else partial(method, random_state=0)
    plain = make().fit(survey.X, survey.Y)
    with pytest.warns(UnlabeledRowsWarning, match=r"^80 rows .* other \d+\.$") as told:
        apart = make().fit(survey.X, survey.Y, unlabelled=unlabelled)
    assert told[0].filename == __file__
    with pytest.warns(UnlabeledRowsWarning):
        inside = make().fit(*hidden(survey, unlabelled))
    for other in (apart, inside):
        np.testing.assert_array_equal(plain.predict_proba(survey.X), other.predict_proba(survey.X))
    if method == "cgmvae":
        np.testing.assert_array_equal(plain.oof_rows_, inside.oof_rows_)


@learning
def test_members_learn_from_them_if_settings_say_so(tiny, survey, unlabelled, settings):
    fits = [
        tiny(settings=settings, scaling="none", encoding="standard").fit(
            survey.X, survey.Y, unlabelled=X
        )
        for X in (unlabelled, -unlabelled)
    ]
    first, second = (model.predict_proba(survey.X) for model in fits)
    assert np.abs(first - second).max() > 1e-4
    assert fits[0].n_rows_ == 120
    assert np.isfinite(first).all()


def test_given_apart_or_as_rows_without_labels_is_the_same(tiny, survey, unlabelled):
    settings = LEARNING["consistency"]
    apart = tiny(settings=settings).fit(survey.X, survey.Y, unlabelled=unlabelled)
    inside = tiny(settings=settings).fit(*hidden(survey, unlabelled))
    np.testing.assert_array_equal(apart.predict_proba(survey.X), inside.predict_proba(survey.X))
    np.testing.assert_array_equal(apart.oof_rows_, inside.oof_rows_)


@pytest.mark.parametrize(
    "own",
    [*({"settings": settings} for settings in LEARNING.values()), {"pseudo_labels": 0.8}],
    ids=[*LEARNING, "limits per label"],
)
def test_scores_out_of_fold_do_not_depend_on_the_labels_of_the_fold(
    tiny, survey, unlabelled, own, monkeypatch
):
    """Neither directly nor through what is predicted for rows without labels."""
    # The limits do, a little: other folds are scored by members that were trained on this one.
    monkeypatch.setattr(packed, "certain_limits", lambda *rows, unknown: (0.4, 0.6))
    # Folds of groups do not depend on labels, and a single epoch is not chosen by them.
    given = {"unlabelled": unlabelled, "groups": np.arange(120)}
    parameters = {"n_members": 4, "epochs": 1, "calibrate": False, "n_neighbors": 0, **own}
    first = tiny(**parameters).fit(survey.X, survey.Y, **given)
    train, _, seed = first._prepare(survey.X, survey.Y, None, None, np.arange(120))
    held = assign_folds(train, 4, seed) == first.member_folds_[1]
    second = tiny(**parameters).fit(
        survey.X, np.where(held[:, None], 1 - survey.Y, survey.Y), **given
    )
    np.testing.assert_array_equal(first.oof_proba_[held], second.oof_proba_[held])
    assert np.abs(first.oof_proba_ - second.oof_proba_)[~held].max() > 1e-4


@pytest.mark.parametrize("form", ["sparse", "table"])
def test_other_forms(tiny, survey, unlabelled, form):
    settings = LEARNING["consistency"]
    if form == "sparse":
        X, more = sp.csr_array(survey.X), sp.csr_array(unlabelled)
    else:
        X, more = (
            pd.DataFrame(part).assign(kind=[kind] * len(part)).rename(columns=str)
            for part, kind in ((survey.X, "a"), (unlabelled, "b"))
        )
    model = tiny(settings=settings).fit(X, survey.Y, unlabelled=more)
    assert model.predict_proba(X).shape == (120, 5)
    if form == "table":  # what only rows without labels have is known too
        assert model.n_inputs_ == 8


def test_mismatched_rows_are_rejected(tiny, survey, unlabelled):
    with pytest.raises(ValueError, match="5 features"):
        tiny().fit(survey.X, survey.Y, unlabelled=unlabelled[:, :5])


def test_sampled_labels_do_not_go_together_with_predictions(tiny, survey):
    settings = {"sampled_labels": 2, "consistency_weight": 1.0}
    with pytest.raises(InputError, match="leave out sampled_labels"):
        tiny(settings=settings).fit(survey.X, survey.Y)
    with pytest.raises(InputError, match=r"confidence is 0\.2"):
        tiny(settings={"confidence": 0.2}).fit(survey.X, survey.Y)


class TestPseudoLabels:
    def test_members_learn_what_a_first_fit_is_sure_of(self, tiny, survey, unlabelled, monkeypatch):
        seen = []
        limits = packed.certain_limits
        monkeypatch.setattr(
            packed,
            "certain_limits",
            lambda *rows, **more: seen.append(rows) or limits(*rows, **more),
        )
        fits = [
            tiny(pseudo_labels=0.7, scaling="none", encoding="standard", n_members=4).fit(
                survey.X, survey.Y, unlabelled=X
            )
            for X in (unlabelled, -unlabelled)
        ]
        first, second = (model.predict_proba(survey.X) for model in fits)
        assert np.abs(first - second).max() > 1e-4
        # Limits, scores and thresholds come from labeled rows alone.
        assert [len(labels) for labels, *_ in seen] == [90] * 8
        np.testing.assert_array_equal(np.sort(fits[0].oof_rows_), np.arange(120))

    def test_nothing_is_learned_where_nothing_is_sure(self, tiny, survey, unlabelled, monkeypatch):
        monkeypatch.setattr(packed, "certain_limits", lambda *rows, unknown: (-np.inf, np.inf))
        fits = [
            tiny(pseudo_labels=0.7, scaling="none", encoding="standard").fit(
                survey.X, survey.Y, unlabelled=X
            )
            for X in (unlabelled, -unlabelled)
        ]
        first, second = (model.predict_proba(survey.X) for model in fits)
        np.testing.assert_allclose(first, second, atol=1e-6)

    @pytest.mark.parametrize("held", [False, True])
    def test_models_fitted_together_are_taught_as_alone(self, tiny, survey, unlabelled, held):
        X, Y = hidden(survey, unlabelled)
        validation = (survey.X[:20], survey.Y[:20]) if held else None
        alone = tiny(pseudo_labels=0.7).fit(X, Y, validation_data=validation)
        models = [tiny(pseudo_labels=0.7), tiny(pseudo_labels=0.7, random_state=1)]
        fit_together(models, [(X, Y, validation)] * 2)
        np.testing.assert_allclose(
            models[0].predict_proba(survey.X), alone.predict_proba(survey.X), atol=1e-5
        )

    def test_without_such_rows_nothing_changes(self, tiny, survey):
        plain, own = (tiny(pseudo_labels=each).fit(survey.X, survey.Y) for each in (None, 0.9))
        np.testing.assert_array_equal(plain.predict_proba(survey.X), own.predict_proba(survey.X))

    @pytest.mark.parametrize("precision", [0.5, 1.0])
    def test_a_share_out_of_range_is_rejected(self, tiny, survey, precision):
        with pytest.raises(InputError, match=rf"pseudo_labels is {precision}; .* above \.5"):
            tiny(pseudo_labels=precision).fit(survey.X, survey.Y)
