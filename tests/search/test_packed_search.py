"""A search gives what separate trainings give, and resumes after an interruption."""

import json

import numpy as np
import pytest
import torch
from sklearn.base import clone

from cgmvae.data import make_survey
from cgmvae.data.columns import as_columns
from cgmvae.errors import InputError
from cgmvae.methods import BinaryRelevance, CGMVAEClassifier
from cgmvae.methods.neural import begin_fit, fit_together
from cgmvae.search import PackedSearch, packed_search
from cgmvae.search.packed_search import Halving, members_that_fit
from cgmvae.training import engine
from cgmvae.training import pack as pack_module
from cgmvae.training.checkpoint import Checkpoint

SIZES = {"feature_hidden": (16,), "label_hidden": (16,), "decoder_hidden": (16,), "latent_dim": 4}
SPACE = {"learning_rate": (1e-4, 1e-2, 3e-2), "dropout": (0.0, 0.4)}


@pytest.fixture(scope="module")
def data():
    return make_survey(160, 6, 5, seed=0)[0]


def base(**changes):
    plan = {"epochs": 4, "batch_size": 32, "embedding_dim": 16, "device": "cpu"}
    return CGMVAEClassifier(**(plan | changes), network=SIZES)


def search(**changes):
    plan = {"n_best": 2, "random_state": 0, "rungs": (), "metric": "micro_f1"}
    return PackedSearch(changes.pop("estimator", base()), SPACE, **(plan | changes))


def test_values_are_those_of_training_each_setting(data):
    held = (data.X[120:], data.Y[120:])
    found = search().fit(data.X[:120], data.Y[:120], validation_data=held)
    assert len(found.results_) == 6
    assert all(result.epochs == 4 for result in found.results_)
    values = [result.value for result in found.results_]
    assert values == sorted(values, reverse=True)
    # A member's seed follows from its index, so the first setting can be trained alone.
    first = next(r for r in found.results_ if r.setting == {"learning_rate": 1e-4, "dropout": 0.0})
    seed = int(np.random.RandomState(0).randint(2**31 - 1))
    alone = clone(base(n_members=1, random_state=seed)).set_params(**first.setting)
    alone.training = {"selection": "micro_f1"}
    alone.fit(data.X[:120], data.Y[:120], validation_data=held)
    assert first.value == pytest.approx(alone.best_value_[0], abs=1e-6)


def test_the_best_settings_form_the_ensemble(data):
    found = search().fit(data.X, data.Y)
    best = found.best_estimator_
    assert [dict(own) for own in best.members] == [r.setting for r in found.results_[:2]]
    rates = [own["learning_rate"] for own in best.member_settings_]
    assert rates == [r.setting["learning_rate"] for r in found.results_[:2]]
    np.testing.assert_array_equal(found.predict(data.X), best.predict(data.X))
    assert found.predict_proba(data.X).shape == data.Y.shape


def test_the_worst_settings_are_dropped_and_come_last(data):
    found = search(rungs=(0.25, 0.5), factor=2).fit(data.X, data.Y)
    assert [result.epochs for result in found.results_] == [4, 4, 2, 1, 1, 1]
    full = search().fit(data.X, data.Y)
    # A setting that is kept is trained as if the others had never been there.
    values = {json.dumps(r.setting): r.value for r in full.results_}
    for result in found.results_[:2]:
        assert result.value == pytest.approx(values[json.dumps(result.setting)], abs=1e-6)
    assert [result.finished for result in found.results_] == [True] * 2 + [False] * 4


def test_a_setting_with_fewer_epochs_may_be_the_best(data):
    space = {"epochs": (4, 3), "learning_rate": (1e-7, 1e-2)}
    found = PackedSearch(base(), space, rungs=(), metric="micro_f1", random_state=0)
    results = found.fit(data.X, data.Y).results_
    assert all(result.finished for result in results)
    values = [result.value for result in results]
    assert values == sorted(values, reverse=True)
    assert [result.epochs for result in results] != [4, 4, 3, 3]


def test_settings_of_other_sizes_are_trained_in_other_packs(data, monkeypatch):
    packs = []
    original = packed_search.make_pack

    def record(models, fits, **options):
        if models[0].members is not None:  # not a pack whose memory is measured
            packs.append([dict(own) for own in models[0].members])
        return original(models, fits, **options)

    monkeypatch.setattr(packed_search, "make_pack", record)
    space = {"embedding_dim": (8, 16), "dropout": (0.0, 0.2), "epochs": (2, 3)}
    found = PackedSearch(base(), space, n_best=9, rungs=(), random_state=0).fit(data.X, data.Y)
    assert sorted(map(len, packs)) == [2, 2, 2, 2]
    assert len(found.results_) == 8
    assert found.best_estimator_.pack_size == 2
    monkeypatch.setattr(packed_search, "members_that_fit", lambda *_: 1)
    packs.clear()
    PackedSearch(base(), {"dropout": (0.0, 0.2, 0.3)}, rungs=()).fit(data.X, data.Y)
    assert list(map(len, packs)) == [1, 1, 1]


def test_packs_that_are_trained_side_by_side_give_the_same(data, monkeypatch):
    monkeypatch.setattr(packed_search, "members_that_fit", lambda *_: 3)
    expected = search(**PLAN, refit=False).fit(data.X, data.Y)
    told, trained_here = [], []
    make_pack = packed_search.make_pack

    def record(*arguments, **options):
        trained_here.append(arguments)
        return make_pack(*arguments, **options)

    monkeypatch.setattr(packed_search, "make_pack", record)
    monkeypatch.setattr(engine, "max_processes", lambda: 2)
    found = search(**PLAN, refit=False, progress=lambda *now: told.append(now[:4]))
    assert_found(found.fit(data.X, data.Y), expected)
    assert trained_here == []
    for pack in (0, 1):
        assert [now for now in told if now[0] == pack] == [
            (pack, 2, epoch, 4) for epoch in range(1, 5)
        ]


class Killed(BaseException):
    """What a signal raises."""


def stopping(calls, pack, epoch):
    """Return a callback that records its calls and raises at the end of an epoch."""

    def progress(*state):
        calls.append((state[0], state[2]))
        if calls[-1] == (pack, epoch):
            raise Killed

    return progress


def assert_found(found, expected):
    assert [r.setting for r in found.results_] == [r.setting for r in expected.results_]
    np.testing.assert_allclose(
        [r.value for r in found.results_], [r.value for r in expected.results_], atol=1e-9
    )


PLAN = {"rungs": (0.5,), "factor": 2}


def test_an_interrupted_search_resumes(data, tmp_path, monkeypatch):
    monkeypatch.setattr(packed_search, "members_that_fit", lambda *_: 3)
    expected = search(**PLAN).fit(data.X, data.Y)
    plan = PLAN | {"folder": tmp_path / "search"}
    calls = []
    with pytest.raises(Killed):
        search(**plan, progress=stopping(calls, 1, 3)).fit(data.X, data.Y)
    assert calls[-1] == (1, 3)
    calls.clear()
    # The packs stay as they were, even if another capacity is measured now.
    monkeypatch.setattr(packed_search, "members_that_fit", lambda *_: 2)
    found = search(**plan, progress=stopping(calls, None, 0)).fit(data.X, data.Y)
    assert calls == [(1, 4)]
    assert_found(found, expected)
    with pytest.raises(InputError, match="another search"):
        search(**plan, n_best=1).fit(data.X, data.Y)


def test_the_ensemble_of_an_interrupted_search_resumes(data, tmp_path, monkeypatch):
    expected = search().fit(data.X, data.Y)
    train, n_saved = Checkpoint.save, 0

    def stop(checkpoint, *state):
        nonlocal n_saved
        train(checkpoint, *state)
        n_saved += checkpoint.path.name == "ensemble.checkpoint"
        if n_saved == 3:
            raise Killed

    monkeypatch.setattr(Checkpoint, "save", stop)
    with pytest.raises(Killed):
        search(folder=tmp_path).fit(data.X, data.Y)
    found = search(folder=tmp_path).fit(data.X, data.Y)
    assert n_saved == 4
    assert found.best_estimator_.checkpoint is None
    np.testing.assert_array_equal(found.predict_proba(data.X), expected.predict_proba(data.X))


def test_a_folder_of_other_rows_or_a_damaged_one_is_refused(data, tmp_path):
    search(folder=tmp_path).fit(data.X, data.Y)
    with pytest.raises(InputError, match="another search"):
        search(folder=tmp_path).fit(data.X[:150], data.Y[:150])
    for path in tmp_path.glob("pack_*.json"):
        path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(InputError, match=r"pack_.*\.json is damaged, .*; remove the folder"):
        search(folder=tmp_path).fit(data.X, data.Y)


def test_a_pack_that_exceeds_gpu_memory_is_split(data, tmp_path, monkeypatch):
    monkeypatch.setattr(packed_search, "members_that_fit", lambda *_: 3)
    expected = search(**PLAN).fit(data.X, data.Y)
    monkeypatch.undo()
    train, sizes = pack_module.train, []

    def limited(network, members, *arguments, **options):
        sizes.append(len(members))
        if len(members) > 3:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory.")
        return train(network, members, *arguments, **options)

    monkeypatch.setattr(pack_module, "train", limited)
    for tried in ([6, 3, 3, 2], [6, 2]):  # the second time the results are stored
        sizes.clear()
        with pytest.warns(UserWarning, match="no memory for a pack of 6"):
            found = search(**PLAN, folder=tmp_path).fit(data.X, data.Y)
        assert sizes == tried
        assert_found(found, expected)


def test_halving_keeps_the_best_in_their_order():
    rule = Halving(4)
    rule.plan(10, (0.2, 0.6), 2, least=1)
    assert rule.kept_after == {2: 2, 6: 1}
    members, values = np.arange(4), np.array([0.1, 0.4, 0.9, np.nan])
    assert rule(1, members, values).tolist() == members.tolist()
    kept = rule(2, members, values)
    assert kept.tolist() == [1, 2]
    assert rule(6, kept, values[kept]).tolist() == [2]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"n_best": 0}, "n_best is 0"),
        ({"factor": 1}, "factor must be"),
        ({"rungs": (1.5,)}, "rungs"),
        ({"metric": "f2"}, "no metric 'f2'"),
        ({"estimator": BinaryRelevance()}, "BinaryRelevance is not"),
    ],
)
def test_invalid_parameters(data, changes, words):
    with pytest.raises(InputError, match=words):
        search(**changes).fit(data.X, data.Y, validation_data=(data.X, data.Y))


def test_models_of_tables_with_other_words_are_fitted_together():
    """Each model takes its own words, and zeros in place of those that only others have."""
    kinds = {"notes": "text"}
    tables = [
        as_columns({"notes": np.array(["owl fen", "owl bog", "owl elm"] * 10, object)}, kinds),
        as_columns({"notes": np.array(["hawk fen", "hawk bog"] * 15, object)}, kinds),
    ]
    Y = (np.arange(60).reshape(30, 2) % 3 == 0).astype(int)
    models = [base(epochs=1), base(epochs=1)]
    fit_together(models, [(table, Y, None) for table in tables])
    assert {model.pipeline_.n_inputs for model in models} == {3, 4}
    assert [model.pipeline_.n_more for model in models] == [0, 1]
    for model, table in zip(models, tables, strict=True):
        columns = model.inputs(table)
        assert columns.shape == (30, 4)
        assert (columns.toarray()[:, model.pipeline_.n_inputs :] == 0).all()
        assert np.isfinite(model.predict_proba(table)).all()


def test_pack_size_on_a_cpu_is_limited_by_memory_and_a_maximum(data, monkeypatch):
    model = CGMVAEClassifier(embedding_dim=8, device="cpu", random_state=0)
    fit = begin_fit(model, data.X, data.Y)
    assert members_that_fit(model, fit) == packed_search._MAX_ON_CPU
    monkeypatch.setattr(packed_search, "machine_memory", lambda: 1 << 24)
    few = members_that_fit(model, fit)
    assert 1 <= few < packed_search._MAX_ON_CPU
    monkeypatch.setattr(packed_search, "machine_memory", lambda: 1)
    assert members_that_fit(model, fit) == 1
