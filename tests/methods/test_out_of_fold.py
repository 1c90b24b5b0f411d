"""Scores out of fold: of methods with few rows, and of the members of a network."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp

from cgmvae.data import make_survey
from cgmvae.evaluation import learn_rule, micro_f1
from cgmvae.methods import BinaryRelevance, CGMVAEClassifier, MLkNN
from cgmvae.methods.inputs import Rows
from cgmvae.methods.neural import begin_fit, member_scores
from cgmvae.methods.out_of_fold import (
    FewRowsWarning,
    assign_folds,
    join_rows,
    score_out_of_fold,
)

pytestmark = [
    pytest.mark.usefixtures("rows_are_few"),
    pytest.mark.filterwarnings("ignore::cgmvae.methods.out_of_fold.FewRowsWarning"),
]


def quiet(model, *arguments, **more):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewRowsWarning)
        return model.fit(*arguments, **more)


def prepared(model, X, Y):
    """Return the rows that a fit learns from and holds out, and its seed."""
    return model._with_features(model._divided(model._begin(X, Y, None, None, None)))


def remembered(model, *arguments, **more):
    """Fit a model; return what each call of its learning and scoring saw."""
    seen = []

    class Remembering(type(model)):
        def _fit_rows(self, train, validation, seed):
            seen.append((train, validation))
            super()._fit_rows(train, validation, seed)

    made = Remembering(**model.get_params())
    return quiet(made, *arguments, **more), seen


def test_a_fit_warns_in_one_sentence(survey):
    with pytest.warns(FewRowsWarning, match="Only 120 training rows") as told:
        BinaryRelevance(random_state=0).fit(survey.X, survey.Y)
    (warning,) = told
    assert str(warning.message).count(".") == 1
    assert warning.filename == __file__


@pytest.mark.parametrize("n_rows", [199, 200])
def test_what_few_rows_are(n_rows):
    data, _ = make_survey(n_rows, 4, 6, seed=0)
    held = data.rows(slice(150, None))
    model, seen = remembered(
        BinaryRelevance(random_state=0),
        data.X[:150],
        data.Y[:150],
        validation_data=(held.X, held.Y),
    )
    if n_rows < 200:
        assert len(seen) == 6
        return
    assert len(seen) == 1
    assert model.threshold_rule_ == learn_rule(held.Y, model.predict_proba(held.X))


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_every_row_is_scored_by_a_model_that_did_not_see_it(survey, given, sparse):
    """Each row's first feature is its own number, so that rows are known wherever they turn up."""
    X = np.hstack([np.arange(1.0, 121)[:, None], survey.X])
    X = sp.csr_array(X) if sparse else X
    model = MLkNN(k=3, scaling="none", random_state=0)
    if given:
        rows = {"validation_data": (X[100:], survey.Y[100:])}
        _, seen = remembered(model, X[:100], survey.Y[:100], **rows)
    else:
        _, seen = remembered(model, X, survey.Y)
    _, *folds = seen
    assert len(folds) == 5

    def numbers(part):
        return part.features[:, [0]].toarray().ravel() if sparse else part.features[:, 0]

    for train, held in folds:
        assert sorted([*numbers(train), *numbers(held)]) == list(range(1, 121))
    assert sorted(np.concatenate([numbers(held) for _, held in folds])) == list(range(1, 121))


@pytest.mark.parametrize("rule", ["global", "per-label", "top-k"])
def test_the_rule_is_the_one_of_the_scores_out_of_fold(survey, rule):
    unknown = (survey.Y == 0) & (np.random.default_rng(0).random(survey.Y.shape) < 0.8)
    Y = np.where(unknown, np.nan, survey.Y)  # taken as absent, they would ask for another rule
    model = quiet(BinaryRelevance(threshold_rule=rule, random_state=0), survey.X, Y)
    train, validation, seed = prepared(model, survey.X, Y)
    rows, scores = score_out_of_fold(model, train, validation, seed)
    expected = learn_rule(rows.labels, scores, rule=rule, unknown=rows.unknown)
    np.testing.assert_array_equal(expected.apply(scores), model.threshold_rule_.apply(scores))
    blind = learn_rule(rows.labels, scores, rule=rule)
    assert (blind.apply(scores) != expected.apply(scores)).any()


def test_the_model_itself_is_that_of_its_training_rows(survey, monkeypatch):
    model = quiet(BinaryRelevance(random_state=0), survey.X, survey.Y)
    monkeypatch.setattr("cgmvae.methods.out_of_fold.FEW_ROWS", 0)
    plain = BinaryRelevance(random_state=0).fit(survey.X, survey.Y)
    np.testing.assert_array_equal(model.predict_proba(survey.X), plain.predict_proba(survey.X))


def test_groups_stay_together(survey):
    groups = np.array([f"site {i // 10}" for i in range(120)])
    X = np.hstack([np.arange(120)[:, None], survey.X])
    model = BinaryRelevance(scaling="none", random_state=0)
    _, (_, *folds) = remembered(model, X, survey.Y, groups=groups)
    for train, held in folds:
        places = [part.features[:, 0].astype(int) // 10 for part in (train, held)]
        assert not set(places[0]) & set(places[1])
    rows = {"validation_data": (X[100:], survey.Y[100:]), "groups": groups[:100]}
    _, (_, *folds) = remembered(model, X[:100], survey.Y[:100], **rows)
    assert sum(held.features.shape[0] for _, held in folds) == 120


def test_validation_rows_without_groups_are_groups_of_their_own():
    rows = Rows(np.zeros((3, 1)), np.zeros((3, 2), np.uint8), groups=np.array(["b", "a", "b"]))
    joined = join_rows(rows, rows._replace(groups=None))
    assert joined.groups[0] == joined.groups[2] != joined.groups[1]
    assert len(set(joined.groups)) == 5
    assert join_rows(rows, rows).groups.tolist() == ["b", "a", "b"] * 2


def test_folds_of_many_rows_are_random_and_of_one_size(survey, monkeypatch):
    rows = Rows(survey.X, survey.Y)
    monkeypatch.setattr("cgmvae.methods.out_of_fold._MANY_ROWS", 120)
    first, second = (assign_folds(rows, 5, seed) for seed in (0, 1))
    assert np.bincount(first).tolist() == [24] * 5
    assert 0.5 < (first != second).mean() < 1


@pytest.mark.parametrize("n_folds", [2, 5, 9])
def test_there_are_no_more_folds_than_rows_or_groups(survey, n_folds):
    rows = Rows(survey.X[:4], survey.Y[:4])
    by_group = rows._replace(groups=np.array(["a", "b", "c", "c"]))
    for own, most in ((rows, 4), (by_group, 3)):
        fold = assign_folds(own, n_folds, 0)
        assert sorted(set(fold)) == list(range(min(n_folds, most)))


def test_rows_without_weight_are_in_no_fold(survey):
    weights = (np.arange(120) % 3).astype(float)
    _, seen = remembered(BinaryRelevance(), survey.X, survey.Y, sample_weight=weights)
    assert len(seen) == 6
    for parts in seen:
        assert sum(part.labels.shape[0] for part in parts) == 80
        assert all((part.weights > 0).all() for part in parts)


@pytest.mark.parametrize("n_rows", [2, 3, 7])
def test_a_handful_of_rows(survey, n_rows):
    model = quiet(BinaryRelevance(random_state=0), survey.X[:n_rows], survey.Y[:n_rows])
    assert model.predict(survey.X).shape == (120, 5)


def test_the_threshold_wavers_less_than_that_of_held_rows():
    """Over many draws of 60 rows."""
    data, _ = make_survey(4000, 8, 6, seed=3)
    gains = []
    for seed in range(12):
        rows = np.random.default_rng(seed).permutation(4000)
        few, new = data.rows(rows[:60]), data.rows(rows[60:])
        model = quiet(BinaryRelevance(random_state=seed), few.X, few.Y)
        out_of_fold = model.score(new.X, new.Y)
        _, held, _ = prepared(model, few.X, few.Y)
        model.threshold_rule_ = model._learned_rule(held, model._score_rows(held.features))
        gains.append(out_of_fold - model.score(new.X, new.Y))
    assert np.mean(gains) > 0.005


#: What members say of their own fold, and not what the other folds say of it, is tested here.
TINY = {
    "embedding_dim": 8,
    "epochs": 3,
    "random_state": 0,
    "calibrate": False,
    "network": {"feature_hidden": (8,), "label_hidden": (8,), "decoder_hidden": (8,)},
}


def test_each_member_scores_the_fold_that_it_did_not_see(survey):
    model = quiet(CGMVAEClassifier(**TINY, n_members=8, n_folds=4), survey.X, survey.Y)
    assert model.member_folds_.tolist() == [0, 1, 2, 3] * 2
    assert model.oof_rows_.tolist() == list(range(120))
    train, validation, seed = begin_fit(model, survey.X, survey.Y)
    assert validation is None
    fold = assign_folds(train, 4, seed)
    (members,) = member_scores(model.network_, model.inputs(survey.X))
    for row in range(120):
        unseen = np.flatnonzero(model.member_folds_ == fold[row])
        expected = members[unseen, row].mean(0).detach().numpy()
        np.testing.assert_allclose(model.oof_proba_[row], expected, rtol=1e-5)


def test_the_labels_of_a_fold_change_nothing_that_its_scores_come_from(survey):
    """No out-of-fold probability, no bin edge and no scale of the members that left it out."""
    first = quiet(CGMVAEClassifier(**TINY, n_members=4), survey.X, survey.Y)
    train, _, seed = begin_fit(first, survey.X, survey.Y)
    fold = assign_folds(train, 4, seed)
    groups = fold  # whole folds as groups, so that changed labels cannot change the folds
    models = []
    for k in range(5):
        Y = survey.Y.copy()
        Y[fold == k] = 1 - Y[fold == k]
        # One epoch: which epoch is best may depend on the fold's labels.
        model = CGMVAEClassifier(**TINY | {"epochs": 1}, n_members=4)
        models.append(quiet(model, survey.X, Y, groups=groups))
    *changed, plain = models
    for k, model in enumerate(changed):
        np.testing.assert_array_equal(model.pipeline_.scaler.shift_, plain.pipeline_.scaler.shift_)
        np.testing.assert_array_equal(model.pipeline_.bins.lower_, plain.pipeline_.bins.lower_)
        same = fold == k
        np.testing.assert_array_equal(model.oof_proba_[same], plain.oof_proba_[same])
        assert not np.allclose(model.oof_proba_[~same], plain.oof_proba_[~same])


def test_groups_of_members_stay_together(survey):
    groups = np.arange(120) // 10
    model = quiet(CGMVAEClassifier(**TINY, n_members=4), survey.X, survey.Y, groups=groups)
    train, _, seed = begin_fit(model, survey.X, survey.Y, groups=groups)
    fold = assign_folds(train, 4, seed)
    assert all(len(set(fold[groups == g])) == 1 for g in range(12))
    assert set(fold) == {0, 1, 2, 3}


@pytest.mark.parametrize(("n_members", "n_scored"), [(1, 12), (3, 36), (4, 120)])
def test_few_members_hold_out_the_validation_fraction(survey, n_members, n_scored):
    model = quiet(CGMVAEClassifier(**TINY, n_members=n_members), survey.X, survey.Y)
    assert len(model.oof_rows_) == n_scored
    assert model.oof_proba_.shape == (n_scored, 5)


def test_rows_of_weight_0_have_no_score(survey):
    weights = (np.arange(120) % 3 > 0).astype(float)
    model = CGMVAEClassifier(**TINY, n_members=4)
    quiet(model, survey.X, survey.Y, sample_weight=weights)
    assert model.oof_rows_.tolist() == np.flatnonzero(weights).tolist()


def test_validation_rows_are_those_of_all_members(survey):
    model = CGMVAEClassifier(**TINY, n_members=4)
    quiet(model, survey.X[:90], survey.Y[:90], validation_data=(survey.X[90:], survey.Y[90:]))
    assert model.member_folds_.tolist() == [-1] * 4
    assert not hasattr(model, "oof_proba_")
    expected = learn_rule(survey.Y[90:], model.predict_proba(survey.X[90:]))
    assert model.threshold_rule_ == expected


def test_a_threshold_for_micro_f1_is_at_most_half_of_what_it_reaches(survey):
    model = CGMVAEClassifier(**TINY | {"random_state": 4}, n_members=4)
    quiet(model, survey.X, survey.Y)
    chosen = learn_rule(survey.Y, model.oof_proba_)
    reached = micro_f1(survey.Y, chosen.apply(model.oof_proba_))
    assert model.threshold_rule_.threshold <= reached / 2 < chosen.threshold


def test_rows_on_disk_are_folded_too(survey, tmp_path, monkeypatch):
    """Members skip their own fold of rows that all of them read."""
    path = tmp_path / "rows.npy"
    np.save(path, survey.X.astype(np.float32))
    mapped = np.load(path, mmap_mode="r")
    model = quiet(CGMVAEClassifier(**TINY, n_members=4), mapped, survey.Y)
    in_memory = quiet(CGMVAEClassifier(**TINY, n_members=4), np.array(mapped), survey.Y)
    assert model.oof_rows_.tolist() == list(range(120))
    assert model.member_folds_.tolist() == in_memory.member_folds_.tolist()
    changed = survey.Y.copy()
    train, _, seed = begin_fit(model, mapped, survey.Y)
    fold = assign_folds(train, 4, seed)
    changed[fold == 2] = 1 - changed[fold == 2]
    plain, other = (
        quiet(CGMVAEClassifier(**TINY | {"epochs": 1}, n_members=4), mapped, Y, groups=fold)
        for Y in (survey.Y, changed)
    )
    np.testing.assert_array_equal(plain.oof_proba_[fold == 2], other.oof_proba_[fold == 2])
