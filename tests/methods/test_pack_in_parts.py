"""Members that are trained in parts end where they would have ended in one pack."""

import numpy as np
import pytest
import torch
from sklearn.base import clone

from cgmvae.errors import InputError
from cgmvae.methods import fit_together
from cgmvae.methods.packed import Fit, make_pack
from cgmvae.training import pack

CLOSE = {"rtol": 0, "atol": 1e-4}


def limit(monkeypatch, room):
    """Let no more than so many members be trained at once; return the sizes that were tried."""
    train, sizes = pack.train, []

    def limited(network, members, *arguments, **options):
        sizes.append(len(members))
        if len(members) > room:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory.")
        return train(network, members, *arguments, **options)

    monkeypatch.setattr(pack, "train", limited)
    return sizes


def split(survey, seed, n_train):
    rows = np.random.default_rng(seed).permutation(120)
    train, held = rows[:n_train], rows[n_train : n_train + 30]
    return survey.X[train], survey.Y[train], (survey.X[held], survey.Y[held])


def assert_same(found, expected, X):
    for ours, theirs in zip(
        found.network_.parameters(), expected.network_.parameters(), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)
    np.testing.assert_allclose(found.predict_proba(X), expected.predict_proba(X), **CLOSE)
    np.testing.assert_array_equal(found.best_epoch_, expected.best_epoch_)
    np.testing.assert_allclose(found.best_value_, expected.best_value_, **CLOSE)
    assert found.history_.keys() == expected.history_.keys()
    for name, series in expected.history_.items():
        np.testing.assert_allclose(found.history_[name], series, rtol=1e-3, atol=1e-3)
    assert found.member_settings_ == expected.member_settings_


@pytest.mark.parametrize(("room", "sizes"), [(3, [5, 3, 2]), (1, [5, 3, 2, 1, 1, 1, 1, 1])])
def test_an_ensemble_is_the_same(tiny, survey, monkeypatch, room, sizes):
    model = tiny(n_members=5, epochs=6, settings={"patience": 2})
    expected = clone(model).fit(survey.X, survey.Y)
    tried = limit(monkeypatch, room)
    with pytest.warns(UserWarning, match="no memory for a pack of 5"):
        model.fit(survey.X, survey.Y)
    assert tried == sizes
    assert_same(model, expected, survey.X)


def test_several_estimators_are_the_same(tiny, survey, monkeypatch):
    models = [
        tiny(random_state=1, n_members=1),
        tiny(random_state=2, n_members=3, dropout=0.4, learning_rate=3e-3),
        tiny(random_state=3, n_members=2, kl_weight=0.1, weight_decay=0.1),
    ]
    data = [split(survey, seed, n_train) for seed, n_train in enumerate((70, 41, 90))]
    expected = [clone(model) for model in models]
    fit_together(expected, data)
    limit(monkeypatch, 3)  # the second estimator is divided
    with pytest.warns(UserWarning, match="no memory for a pack of 6"):
        fit_together(models, data)
    for model, whole in zip(models, expected, strict=True):
        assert_same(model, whole, survey.X)


def test_a_part_that_was_trained_is_not_trained_again(tiny, survey, monkeypatch, tmp_path):
    expected = tiny(n_members=4).fit(survey.X, survey.Y)
    sizes, epochs = limit(monkeypatch, 2), []

    def stop(epoch, *_):
        epochs.append(epoch)
        if len(epochs) == 6:
            raise KeyboardInterrupt

    state = tmp_path / "state"
    with pytest.warns(UserWarning, match="no memory"), pytest.raises(KeyboardInterrupt):
        tiny(n_members=4, checkpoint=state, progress=stop).fit(survey.X, survey.Y)
    assert epochs == [1, 2, 3, 4, 1, 2]
    assert sizes == [4, 2, 2]
    epochs.clear()
    sizes.clear()
    model = tiny(n_members=4, checkpoint=state, progress=lambda epoch, *_: epochs.append(epoch))
    model.fit(survey.X, survey.Y)  # which tries no larger pack than there was room for
    assert epochs == [3, 4]
    assert sizes == [2, 2]
    assert_same(model, expected, survey.X)


def test_members_that_are_compared_are_not_divided(tiny, survey, monkeypatch):
    model = tiny(n_members=4)
    fit = Fit(*model._prepare(survey.X, survey.Y, None, None, None))
    sizes = limit(monkeypatch, 2)
    with pytest.raises(torch.cuda.OutOfMemoryError):
        make_pack([model], [fit], keep=lambda epoch, places, values: places).train()
    assert sizes == [4]


def test_no_room_for_one_member_is_one_sentence(tiny, survey, monkeypatch):
    limit(monkeypatch, 0)
    with pytest.raises(InputError, match="too little memory for a single model"):
        tiny(n_members=1).fit(survey.X, survey.Y)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_card_with_little_memory_gives_the_same(tiny, survey):
    torch.cuda.empty_cache()
    # At a small rate, since products of fewer members are rounded in another way.
    plan = {"n_members": 8, "embedding_dim": 1024, "learning_rate": 1e-4, "device": "cuda"}
    model = tiny(**plan, settings={"latent_dim": 256})
    parts = ("feature_hidden", "label_hidden", "decoder_hidden")
    model.settings = {**model.settings, **dict.fromkeys(parts, (2048, 2048))}
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    expected = clone(model).fit(survey.X, survey.Y)
    needed = torch.cuda.max_memory_allocated() - before
    room = torch.cuda.memory_allocated() + 0.7 * needed
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(
        room / torch.cuda.get_device_properties(0).total_memory
    )
    try:
        with pytest.warns(UserWarning, match="no memory for a pack of 8"):
            model.fit(survey.X, survey.Y)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    found, whole = model.predict_proba(survey.X), expected.predict_proba(survey.X)
    np.testing.assert_allclose(found, whole, rtol=0, atol=2e-2)
