"""A search is the trainings that it stands for, and survives being stopped."""

import json

import numpy as np
import pytest
import torch
from sklearn.base import clone

from cgmvae.data import make_survey
from cgmvae.errors import InputError
from cgmvae.methods import BinaryRelevance, CGMVAEClassifier, together
from cgmvae.search import PackedSearch, packed_search
from cgmvae.search.halving import Halving
from cgmvae.training.checkpoint import Checkpoint
from cgmvae.training.plan import TrainingConfig

SIZES = {"feature_hidden": (16,), "label_hidden": (16,), "decoder_hidden": (16,), "latent_dim": 4}
SPACE = {"learning_rate": (1e-4, 1e-2, 3e-2), "dropout": (0.0, 0.4)}


@pytest.fixture(scope="module")
def data():
    return make_survey(160, 6, 5, seed=0)[0]


def base(**changes):
    plan = {"epochs": 8, "batch_size": 32, "embedding_dim": 16, "device": "cpu"}
    return CGMVAEClassifier(**(plan | changes), settings=SIZES)


def search(**changes):
    plan = {"n_best": 2, "random_state": 0, "rungs": (), "metric": "micro_f1"}
    return PackedSearch(changes.pop("estimator", base()), SPACE, **(plan | changes))


def test_values_are_those_of_training_each_setting(data):
    held = (data.X[120:], data.Y[120:])
    found = search().fit(data.X[:120], data.Y[:120], validation_data=held)
    assert len(found.results_) == 6
    assert all(result.epochs == 8 for result in found.results_)
    values = [result.value for result in found.results_]
    assert values == sorted(values, reverse=True)
    # A member's seed is that of its place; the first setting can be trained alone.
    first = next(r for r in found.results_ if r.setting == {"learning_rate": 1e-4, "dropout": 0.0})
    seed = int(np.random.RandomState(0).randint(2**31 - 1))
    alone = clone(base(n_members=1, random_state=seed)).set_params(**first.setting)
    alone.settings = SIZES | {"selection": "micro_f1"}
    alone.fit(data.X[:120], data.Y[:120], validation_data=held)
    assert first.value == pytest.approx(alone.best_value_[0], abs=1e-6)


def test_the_ensemble_is_of_the_best_settings(data):
    found = search().fit(data.X, data.Y)
    best = found.best_estimator_
    assert [dict(own) for own in best.members] == [r.setting for r in found.results_[:2]]
    rates = [own["learning_rate"] for own in best.member_settings_]
    assert rates == [r.setting["learning_rate"] for r in found.results_[:2]]
    np.testing.assert_array_equal(found.predict(data.X), best.predict(data.X))
    assert found.predict_proba(data.X).shape == data.Y.shape


def test_splits_and_seeds_are_averaged(data):
    found = search(n_splits=2, n_seeds=3).fit(data.X, data.Y)
    for result in found.results_:
        assert len(result.values) == 6
        assert len(set(result.values)) > 1
        assert result.value == pytest.approx(np.mean(result.values))


def test_the_worse_are_left_out_on_the_way(data):
    found = search(rungs=(0.25, 0.5), factor=2).fit(data.X, data.Y)
    assert [result.epochs for result in found.results_] == [8, 8, 4, 2, 2, 2]
    full = search().fit(data.X, data.Y)
    # What goes on is trained as if it had always been alone.
    values = {json.dumps(r.setting): r.value for r in full.results_}
    for result in found.results_[:2]:
        assert result.value == pytest.approx(values[json.dumps(result.setting)], abs=1e-6)


def test_only_who_was_left_out_comes_after_the_others(data):
    """One that is planned shorter, or stops by itself, may be the best."""
    space = {"epochs": (6, 5), "learning_rate": (1e-7, 1e-2)}
    found = PackedSearch(base(), space, rungs=(), metric="micro_f1", random_state=0)
    results = found.fit(data.X, data.Y).results_
    assert all(result.finished for result in results)
    values = [result.value for result in results]
    assert values == sorted(values, reverse=True)
    assert [result.epochs for result in results] != [6, 6, 5, 5]
    halved = search(rungs=(0.5,), factor=2).fit(data.X, data.Y).results_
    assert [result.finished for result in halved] == [True] * 3 + [False] * 3


def test_settings_of_other_sizes_are_packed_apart(data, monkeypatch):
    packs = []
    original = packed_search.train_together

    def record(models, fits, **options):
        packs.append([dict(own) for own in models[0].members])
        return original(models, fits, **options)

    monkeypatch.setattr(packed_search, "train_together", record)
    space = {"embedding_dim": (8, 16), "dropout": (0.0, 0.2), "epochs": (2, 3)}
    found = PackedSearch(base(), space, n_best=9, rungs=(), random_state=0).fit(data.X, data.Y)
    assert sorted(map(len, packs)) == [2, 2, 2, 2]
    assert len(found.results_) == 8
    assert found.best_estimator_.pack_size == 2
    monkeypatch.setattr(packed_search, "members_that_fit", lambda *_: 1)
    packs.clear()
    PackedSearch(base(), {"dropout": (0.0, 0.2, 0.3)}, rungs=()).fit(data.X, data.Y)
    assert list(map(len, packs)) == [1, 1, 1]


class Killed(BaseException):
    """As a signal would."""


def stopping(calls, pack, epoch):
    """Return a progress that notes where it is, and is killed at the end of an epoch."""

    def progress(*told):
        calls.append((told[0], told[2]))
        if calls[-1] == (pack, epoch):
            raise Killed

    return progress


def assert_found(found, expected):
    assert [r.setting for r in found.results_] == [r.setting for r in expected.results_]
    np.testing.assert_allclose(
        [r.value for r in found.results_], [r.value for r in expected.results_], atol=1e-9
    )


PLAN = {"rungs": (0.5,), "factor": 2}


def test_a_stopped_search_continues(data, tmp_path, monkeypatch):
    monkeypatch.setattr(packed_search, "members_that_fit", lambda *_: 3)
    expected = search(**PLAN).fit(data.X, data.Y)
    plan = PLAN | {"folder": tmp_path / "search"}
    calls = []
    with pytest.raises(Killed):
        search(**plan, progress=stopping(calls, 1, 6)).fit(data.X, data.Y)
    assert calls[-1] == (1, 6)
    calls.clear()
    # What is measured may be another number now; the packs stay as they were.
    monkeypatch.setattr(packed_search, "members_that_fit", lambda *_: 2)
    found = search(**plan, progress=stopping(calls, None, 0)).fit(data.X, data.Y)
    assert calls == [(1, 7), (1, 8)]
    assert_found(found, expected)
    with pytest.raises(InputError, match="another search"):
        search(**plan, n_seeds=2).fit(data.X, data.Y)


def test_the_ensemble_of_a_stopped_search_continues(data, tmp_path, monkeypatch):
    expected = search().fit(data.X, data.Y)
    train, n_saved = Checkpoint.save, 0

    def stop(checkpoint, *state):
        nonlocal n_saved
        train(checkpoint, *state)
        n_saved += checkpoint.path.name == "ensemble.checkpoint"
        if n_saved == 5:
            raise Killed

    monkeypatch.setattr(Checkpoint, "save", stop)
    with pytest.raises(Killed):
        search(folder=tmp_path).fit(data.X, data.Y)
    found = search(folder=tmp_path).fit(data.X, data.Y)
    assert n_saved == 8
    assert found.best_estimator_.checkpoint is None
    np.testing.assert_array_equal(found.predict_proba(data.X), expected.predict_proba(data.X))


def test_a_folder_of_other_rows_or_a_damaged_one_is_refused(data, tmp_path):
    search(folder=tmp_path).fit(data.X, data.Y)
    with pytest.raises(InputError, match="another search"):
        search(folder=tmp_path).fit(data.X[:150], data.Y[:150])
    for path in tmp_path.glob("pack_*.json"):
        path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(InputError, match=r"pack_.*\.json is damaged; remove the folder"):
        search(folder=tmp_path).fit(data.X, data.Y)


def test_settings_that_an_accelerator_has_no_room_for_are_divided(data, tmp_path, monkeypatch):
    """As if the packs had been planned so small."""
    monkeypatch.setattr(packed_search, "members_that_fit", lambda *_: 3)
    expected = search(**PLAN).fit(data.X, data.Y)
    monkeypatch.undo()
    train, sizes = together.train, []

    def limited(network, members, *arguments, **options):
        sizes.append(len(members))
        if len(members) > 3:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory.")
        return train(network, members, *arguments, **options)

    monkeypatch.setattr(together, "train", limited)
    for tried in ([6, 3, 3, 2], [6, 2]):  # the second time they are there
        sizes.clear()
        with pytest.warns(UserWarning, match="no memory for a pack of 6"):
            found = search(**PLAN, folder=tmp_path).fit(data.X, data.Y)
        assert sizes == tried
        assert_found(found, expected)


def test_halving_counts_settings_not_members():
    rule = Halving(4, 2, TrainingConfig(epochs=10))
    rule.plan((0.2, 0.6), 2, least=1)
    assert rule.left_after == {2: 2, 6: 1}
    places = np.arange(16)  # two splits, four settings, two seeds
    values = np.tile([0.1, 0.1, 0.9, 0.0, 0.4, 0.4, np.nan, np.nan], 2)
    assert rule(1, places, values).tolist() == places.tolist()
    kept = rule(2, places, values)
    assert kept.tolist() == [2, 3, 4, 5, 10, 11, 12, 13]
    assert rule(6, kept, values[kept]).tolist() == [2, 3, 10, 11]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"n_splits": 0}, "n_splits is 0"),
        ({"factor": 1}, "factor must be"),
        ({"rungs": (1.5,)}, "rungs"),
        ({"metric": "f2"}, "no metric 'f2'"),
    ],
)
def test_bad_plans_are_refused(data, changes, words):
    with pytest.raises(InputError, match=words):
        search(**changes).fit(data.X, data.Y)


def test_only_networks_are_searched(data):
    with pytest.raises(InputError, match="and BinaryRelevance is none"):
        search(estimator=BinaryRelevance()).fit(data.X, data.Y)


def test_given_validation_rows_are_one_split(data):
    with pytest.raises(InputError, match="one split"):
        search(n_splits=2).fit(data.X, data.Y, validation_data=(data.X, data.Y))
