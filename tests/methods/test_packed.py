"""Estimators that are fitted together end where each would have ended alone."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone

from cgmvae.data.serialization import read_tensors, write_tensors
from cgmvae.errors import InputError
from cgmvae.methods import BinaryRelevance, fit_together, load
from cgmvae.methods.inputs import Rows
from cgmvae.training.pack import label_log_odds, training_rows
from cgmvae.training.selection import selection_value

CLOSE = {"rtol": 0, "atol": 1e-4}


def split(survey, seed, n_train=70):
    """Return training and validation rows; with other seeds other rows, in other numbers."""
    rows = np.random.default_rng(seed).permutation(120)
    train, held = rows[:n_train], rows[n_train : n_train + 30]
    return survey.X[train], survey.Y[train], (survey.X[held], survey.Y[held])


def assert_same(together, alone, X):
    np.testing.assert_allclose(together.predict_proba(X), alone.predict_proba(X), **CLOSE)
    np.testing.assert_allclose(together.transform(X), alone.transform(X), **CLOSE)
    np.testing.assert_array_equal(together.best_epoch_, alone.best_epoch_)
    np.testing.assert_allclose(together.best_value_, alone.best_value_, **CLOSE)
    assert together.threshold_rule_ == alone.threshold_rule_
    assert together.history_.keys() == alone.history_.keys()
    for name, series in alone.history_.items():
        assert together.history_[name].shape == series.shape == (4, alone.n_members)
        np.testing.assert_allclose(together.history_[name], series, rtol=1e-3, atol=1e-3)


def test_together_as_alone(tiny, survey):
    models = [
        tiny(random_state=1, n_members=1),
        tiny(random_state=2, n_members=3, dropout=0.4, learning_rate=3e-3, temperature=0.5),
        tiny(random_state=3, n_members=2, kl_weight=0.1, input_dropout=0.3, weight_decay=0.1),
    ]
    data = [split(survey, seed, n_train) for seed, n_train in enumerate((70, 41, 90))]
    alone = [clone(model) for model in models]
    fit_together(models, data)
    for model, single, (X, Y, held) in zip(models, alone, data, strict=True):
        single.fit(X, Y, validation_data=held)
        assert_same(model, single, survey.X)
    p = [model.predict_proba(survey.X) for model in models]
    assert np.abs(p[0] - p[1]).max() > 1e-2
    assert np.abs(p[1] - p[2]).max() > 1e-2


def test_unknown_labels_and_sparse_features_of_some(tiny, survey):
    models = [tiny(random_state=seed, scaling="max-abs") for seed in (1, 2)]
    alone = [clone(model) for model in models]
    data = [split(survey, 0), split(survey, 1)]
    X, Y, held = data[1]
    gaps = np.random.default_rng(0).random(Y.shape) < 0.3
    data[1] = (sp.csr_array(X), np.where(gaps, np.nan, Y), held)
    fit_together(models, data)
    for model, single, (X, Y, held) in zip(models, alone, data, strict=True):
        assert_same(model, single.fit(X, Y, validation_data=held), survey.X)


def test_without_validation_rows_they_are_held_out(tiny, survey):
    models = [tiny(random_state=seed) for seed in (1, 2)]
    alone = [clone(model).fit(survey.X, survey.Y) for model in models]
    fit_together(models, [(survey.X, survey.Y, None)] * 2)
    for model, single in zip(models, alone, strict=True):
        assert_same(model, single, survey.X)


def test_each_is_an_estimator_of_its_own(tiny, survey, tmp_path):
    models = [tiny(random_state=1, n_members=1), tiny(random_state=2, n_members=2)]
    fit_together(models, [split(survey, 0), split(survey, 1)])
    before = models[1].predict_proba(survey.X)
    with torch.no_grad():
        for parameter in models[0].network_.parameters():
            parameter.zero_()
    np.testing.assert_array_equal(models[1].predict_proba(survey.X), before)
    n_members = {len(parameter) for parameter in models[1].network_.parameters()}
    assert n_members == {2}
    models[1].save(tmp_path / "model")


def test_the_memory_of_each_weight_is_its_own(tiny, survey):
    """Views of one buffer would each be pickled with the whole buffer."""
    for parameter in tiny().fit(survey.X, survey.Y).network_.parameters():
        assert parameter.is_contiguous()
        assert parameter.untyped_storage().nbytes() == parameter.numel() * 4


@pytest.mark.parametrize(
    "change",
    [
        lambda tiny, X, Y: (tiny(embedding_dim=8), X, Y),
        lambda tiny, X, Y: (tiny(settings={"unit_norm": True}), X, Y),
        lambda tiny, X, Y: (tiny(), X[:, :4], Y),
        lambda tiny, X, Y: (tiny(), X, Y[:, :4]),
        lambda tiny, X, Y: (BinaryRelevance(), X, Y),
    ],
)
def test_only_what_is_alike_is_fitted_together(tiny, survey, change):
    other, X, Y = change(tiny, survey.X, survey.Y)
    with pytest.raises(InputError, match="fitted together"):
        fit_together([tiny(), other], [(survey.X, survey.Y, None), (X, Y, None)])


@pytest.mark.parametrize("name", ["n_members", "epochs", "batch_size"])
def test_there_must_be_something_to_train(tiny, survey, name):
    with pytest.raises(InputError, match=f"{name} is 0"):
        tiny(**{name: 0}).fit(survey.X, survey.Y)


def test_members_differ_and_are_averaged(fitted, survey):
    with torch.no_grad():
        (x,) = fitted._blocks(fitted._scaled_features(survey.X))
        each = fitted.network_(x).numpy()
    assert each.shape == (3, 120, 5)
    assert np.abs(each[0] - each[1]).max() > 1e-2
    np.testing.assert_allclose(fitted.predict_proba(survey.X), each.mean(0), atol=1e-6)


def test_the_best_epoch_is_that_of_the_validation_rows(tiny, survey):
    X, Y, held = split(survey, 0)
    model = tiny(epochs=8, settings={"selection": "micro_f1"}).fit(X, Y, validation_data=held)
    with torch.no_grad():
        (x,) = model._blocks(model._scaled_features(held[0]))
        p = model.network_(x)
    positive = torch.from_numpy(held[1]).bool().expand(p.shape)
    value = selection_value("micro_f1", p, positive, torch.ones_like(positive))
    np.testing.assert_allclose(model.best_value_, value, atol=1e-6)
    validation = model.history_["validation"]
    np.testing.assert_array_equal(model.best_epoch_, validation.argmax(0) + 1)
    np.testing.assert_array_equal(model.best_value_, validation.max(0))


def test_a_large_table_is_scored_in_blocks(fitted, survey):
    X = np.tile(survey.X, (20, 1))
    np.testing.assert_allclose(
        fitted.predict_proba(X), np.tile(fitted.predict_proba(survey.X), (20, 1)), atol=1e-5
    )


def test_log_odds_count_what_is_known():
    labels = np.array([[1, 0], [1, 0], [0, 0], [0, 0]], np.uint8)
    unknown = np.array([[0, 0], [0, 0], [0, 0], [1, 0]], bool)
    expected = [np.log(2.5 / 1.5), np.log(0.5 / 4.5)]
    for form in (np.asarray, sp.csr_array):
        rows = Rows(labels.astype(float), form(labels), form(unknown))
        np.testing.assert_allclose(label_log_odds(rows), expected)


def test_masks_and_weights_of_some_are_those_of_all(survey):
    """What one part knows in full and weighs alike is filled in beside the others."""
    plain = Rows(survey.X[:3], survey.Y[:3])
    mask = np.array([[1, 0, 0, 0, 1], [0, 1, 0, 0, 0]], bool)
    other = Rows(survey.X[3:5], survey.Y[3:5], mask, weights=np.array([2.0, 0.5]))
    for rows in (other, other._replace(unknown=sp.csr_array(mask))):
        stored = training_rows([plain, rows], torch.device("cpu"))
        every = torch.arange(5)
        np.testing.assert_array_equal(stored.features.gather(every), survey.X[:5])
        np.testing.assert_array_equal(stored.positive.gather(every), survey.Y[:5])
        unknown = stored.unknown.gather(every).numpy()
        np.testing.assert_array_equal(unknown, np.concatenate([np.zeros((3, 5), bool), mask]))
        assert stored.weight.tolist() == [1, 1, 1, 2, 0.5]
    nothing = training_rows([plain, plain], torch.device("cpu"))
    assert nothing.unknown is None
    assert nothing.weight is None


def test_a_stopped_fit_continues_to_the_same_end(tiny, survey, tmp_path):
    expected = tiny().fit(survey.X, survey.Y)

    class StoppedError(Exception):
        pass

    def stop(epoch, n_epochs, best):
        if epoch == 2:
            raise StoppedError

    path = tmp_path / "state"
    with pytest.raises(StoppedError):
        tiny(checkpoint=path, progress=stop).fit(survey.X, survey.Y)
    epochs = []
    model = tiny(checkpoint=path, progress=lambda epoch, *_: epochs.append(epoch))
    model.fit(survey.X, survey.Y)
    assert epochs == [3, 4]
    np.testing.assert_array_equal(model.predict_proba(survey.X), expected.predict_proba(survey.X))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("epoch", np.array([epoch])) for epoch in (-(2**62), 0, 5)),
        *(("members", np.array(places, np.int64)) for places in (0, [], [7], [[0, 1]])),
        ("history.validation", np.zeros((4, 1))),
        ("values", np.zeros(3)),
    ],
)
def test_a_state_that_cannot_be_is_refused(tiny, survey, tmp_path, name, value):
    path = tmp_path / "state"
    tiny(checkpoint=path).fit(survey.X, survey.Y)
    state, fingerprint = read_tensors(path)
    write_tensors(path, state | {name: value}, fingerprint)
    with pytest.raises(InputError, match=f"a wrong '{name.partition('.')[0]}'"):
        tiny(checkpoint=path).fit(survey.X, survey.Y)


class TestMembersThatDiffer:
    members = ({"learning_rate": 1e-2, "dropout": 0.0}, {"learning_rate": 3e-3, "kl_weight": 0.5})

    def test_each_is_trained_as_it_would_be_alone(self, tiny, survey):
        held = (survey.X[80:], survey.Y[80:])
        pack = tiny(members=self.members).fit(survey.X[:80], survey.Y[:80], validation_data=held)
        assert pack.network_.dropout.tolist() == pytest.approx([0.0, 0.2])
        assert [own["learning_rate"] for own in pack.member_settings_] == [1e-2, 3e-3]
        alike = tiny(n_members=2, **self.members[1])
        alike.fit(survey.X[:80], survey.Y[:80], validation_data=held)
        for mixed, plain in zip(
            pack.network_.parameters(), alike.network_.parameters(), strict=True
        ):
            torch.testing.assert_close(mixed[1], plain[1])
            assert not torch.equal(mixed[0], plain[0]) or mixed.dim() < 3

    def test_they_are_cloned_and_kept_in_a_file(self, tiny, survey, tmp_path):
        model = clone(tiny(members=self.members)).fit(survey.X, survey.Y)
        model.save(tmp_path / "model.cgmvae")
        loaded = load(tmp_path / "model.cgmvae")
        assert [dict(own) for own in loaded.members] == [dict(own) for own in self.members]
        np.testing.assert_array_equal(loaded.predict_proba(survey.X), model.predict_proba(survey.X))

    @pytest.mark.parametrize(
        ("own", "words"),
        [
            ({"embedding_dim": 7}, "another network or training plan"),
            ({"epochs": 7}, "another network or training plan"),
            ({"learning_rat": 1.0}, "learning_rat"),
        ],
    )
    def test_what_a_pack_cannot_hold_is_refused(self, tiny, survey, own, words):
        with pytest.raises(InputError, match=words):
            tiny(members=[{}, own]).fit(survey.X, survey.Y)
