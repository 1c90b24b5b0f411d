"""Packs: estimators fitted together or in parts equal those fitted alone."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone

from cgmvae.data.serialization import read_tensors, write_tensors
from cgmvae.errors import InputError
from cgmvae.methods import ASL, BinaryRelevance, CGMVAEClassifier, fit_together, load, neural
from cgmvae.methods.inputs import Rows
from cgmvae.methods.neural import begin_fit, make_pack
from cgmvae.training import pack
from cgmvae.training.checkpoint import Checkpoint
from cgmvae.training.pack import label_log_odds, training_rows

CLOSE = {"rtol": 0, "atol": 1e-4}


def split(survey, seed, n_train=70):
    """Return training and validation rows chosen by a seed."""
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


def test_joint_fits_with_unknown_labels_and_sparse_features(tiny, survey):
    models = [
        tiny(
            random_state=seed,
            scaling="max-abs",
            encoding="standard",
            label_scale=1.0,
        )
        for seed in (1, 2)
    ]
    alone = [clone(model) for model in models]
    data = [split(survey, 0), split(survey, 1)]
    X, Y, held = data[1]
    gaps = np.random.default_rng(0).random(Y.shape) < 0.3
    data[1] = (sp.csr_array(X), np.where(gaps, np.nan, Y), held)
    fit_together(models, data)
    for model, single, (X, Y, held) in zip(models, alone, data, strict=True):
        assert_same(model, single.fit(X, Y, validation_data=held), survey.X)


def test_jointly_fitted_estimators_are_independent(tiny, survey, tmp_path):
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


@pytest.mark.parametrize(
    "change",
    [
        lambda tiny, X, Y: (tiny(embedding_dim=8), X, Y),
        lambda tiny, X, Y: (tiny(unit_norm=True), X, Y),
        lambda tiny, X, Y: (tiny(), X[:, :4], Y),
        lambda tiny, X, Y: (tiny(), X, Y[:, :4]),
        lambda tiny, X, Y: (BinaryRelevance(), X, Y),
    ],
)
def test_different_estimators_cannot_be_fitted_together(tiny, survey, change):
    other, X, Y = change(tiny, survey.X, survey.Y)
    with pytest.raises(InputError, match="fitted together"):
        fit_together([tiny(), other], [(survey.X, survey.Y, None), (X, Y, None)])


def test_log_odds_use_known_labels():
    labels = np.array([[1, 0], [1, 0], [0, 0], [0, 0]], np.uint8)
    unknown = np.array([[0, 0], [0, 0], [0, 0], [1, 0]], bool)
    expected = [np.log(2.5 / 1.5), np.log(0.5 / 4.5)]
    for form in (np.asarray, sp.csr_array):
        rows = Rows(labels.astype(float), form(labels), form(unknown))
        np.testing.assert_allclose(label_log_odds(rows), expected)


def test_missing_masks_and_weights_are_filled_in(survey):
    """Parts without a mask or weights are filled in when other parts have them."""
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


def test_an_invalid_checkpoint_is_rejected(tiny, survey, tmp_path):
    path = tmp_path / "state"
    tiny(checkpoint=Checkpoint(path)).fit(survey.X, survey.Y)
    state, fingerprint = read_tensors(path)
    for name, value in (
        *(("epoch", np.array([epoch])) for epoch in (-(2**62), 0, 5)),
        *(("members", np.array(places, np.int64)) for places in (0, [], [7], [[0, 1]])),
        ("history.validation", np.zeros((4, 1))),
        ("values", np.zeros(3)),
    ):
        write_tensors(path, state | {name: value}, fingerprint)
        with pytest.raises(InputError, match=f"a wrong '{name.partition('.')[0]}'"):
            tiny(checkpoint=path).fit(survey.X, survey.Y)


def test_a_fit_removes_its_checkpoint(tiny, survey, tmp_path):
    seen = []
    model = tiny(checkpoint=tmp_path / "state", progress=lambda *_: seen.extend(tmp_path.iterdir()))
    model.fit(survey.X, survey.Y)
    assert {path.name for path in seen} == {"state", "state.previous"}
    fit_together([model], [(survey.X, survey.Y, None)])
    assert not any(tmp_path.iterdir())


class TestPrecision:
    """Weights are rounded to float16 before anything is learned from what they predict."""

    def weights(self, path):
        arrays, _ = read_tensors(path)
        return [a for name, a in arrays.items() if "network" in name or "embeddings" in name]

    def test_a_file_takes_half_the_space_and_predicts_the_same(self, tiny, survey, tmp_path):
        model = tiny().fit(survey.X, survey.Y)
        model.save(tmp_path / "model")
        assert {array.dtype for array in self.weights(tmp_path / "model")} == {np.dtype("f2")}
        loaded = load(tmp_path / "model")
        assert next(loaded.network_.parameters()).dtype == torch.float32
        found, expected = loaded.predict_proba(survey.X), model.predict_proba(survey.X)
        np.testing.assert_array_equal(found, expected)

    @pytest.mark.parametrize("change", ["a probability would move", "a weight is too large"])
    def test_weights_stay_as_they_are(self, tiny, survey, tmp_path, monkeypatch, change):
        if change == "a probability would move":
            monkeypatch.setattr("cgmvae.methods.neural._MAX_MOVE", 0.0)
        else:
            adopt = neural.adopt

            def with_a_large_weight(model, trained):
                adopt(model, trained)
                model.network_.label_encoder.background.data[:] = 1e5

            monkeypatch.setattr(neural, "adopt", with_a_large_weight)
        model = tiny().fit(survey.X, survey.Y)
        model.save(tmp_path / "model")
        assert {array.dtype for array in self.weights(tmp_path / "model")} == {np.dtype("f4")}
        found, expected = (
            load(tmp_path / "model").predict_proba(survey.X),
            model.predict_proba(survey.X),
        )
        np.testing.assert_array_equal(found, expected)

    def test_scores_out_of_fold_are_those_of_the_stored_weights(self, tiny, survey, tmp_path):
        model = tiny(calibrate=False).fit(survey.X, survey.Y)
        model.save(tmp_path / "model")
        scaled = model.inputs(survey.X[model.oof_rows_])
        loaded = load(tmp_path / "model")
        found = neural._score_folds(loaded.network_, scaled, model.oof_folds_, loaded.member_folds_)
        np.testing.assert_array_equal(found, model.oof_proba_)


class TestMembersThatDiffer:
    members = ({"learning_rate": 1e-2, "dropout": 0.0}, {"learning_rate": 3e-3, "kl_weight": 0.5})

    def test_each_member_trains_as_alone(self, tiny, survey):
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

    def test_members_are_cloned_and_saved(self, tiny, survey, tmp_path):
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
    def test_members_of_another_shape_are_rejected(self, tiny, survey, own, words):
        with pytest.raises(InputError, match=words):
            tiny(members=[{}, own]).fit(survey.X, survey.Y)


@pytest.mark.parametrize(
    ("training", "message"),
    [
        ({"schedule": "linear"}, "schedule is 'linear'; choose one of .*cosine"),
        ({"optimizer": "sgd"}, "optimizer is 'sgd'; choose one of adamw, adam"),
        ({"precision": "fp8"}, "precision is 'fp8'"),
        ({"steps": 3}, "no setting 'steps' in TrainingConfig"),
    ],
)
def test_an_invalid_plan_is_rejected(survey, training, message):
    with pytest.raises(InputError, match=message):
        ASL(training=training).fit(survey.X, survey.Y)


def limit(monkeypatch, room):
    """Limit the number of members that fit into memory; return the sizes that were tried."""
    train, sizes = pack.train, []

    def limited(network, members, *arguments, **options):
        sizes.append(len(members))
        if len(members) > room:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory.")
        return train(network, members, *arguments, **options)

    monkeypatch.setattr(pack, "train", limited)
    return sizes


def assert_same_members(found, expected, X):
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


def test_an_ensemble_trained_in_parts_is_the_same(tiny, survey, monkeypatch):
    model = tiny(n_members=3, epochs=5, patience=2)
    expected = clone(model).fit(survey.X, survey.Y)
    tried = limit(monkeypatch, 1)
    with pytest.warns(UserWarning, match="no memory for a pack of 3"):
        model.fit(survey.X, survey.Y)
    assert tried == [3, 2, 1, 1, 1]
    assert_same_members(model, expected, survey.X)


def test_estimators_trained_in_parts_are_the_same(tiny, survey, monkeypatch):
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
        assert_same_members(model, whole, survey.X)


def test_a_trained_part_is_not_trained_again(tiny, survey, monkeypatch, tmp_path):
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
    assert_same_members(model, expected, survey.X)


def test_members_that_are_compared_are_not_split(tiny, survey, monkeypatch):
    model = tiny(n_members=4)
    fit = begin_fit(model, survey.X, survey.Y)
    sizes = limit(monkeypatch, 2)
    with pytest.raises(torch.cuda.OutOfMemoryError):
        make_pack([model], [fit], keep=lambda epoch, places, values: places).train()
    assert sizes == [4]


def test_progress_prints_each_epoch(tiny, survey, capsys):
    tiny(epochs=2, progress=True).fit(survey.X, survey.Y)
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("Epoch 1 of 2: best mean of five validation metrics 0.")
    assert second.endswith(" 0 s left")


def test_too_little_memory_for_one_member(tiny, survey, monkeypatch):
    limit(monkeypatch, 0)
    with pytest.raises(InputError, match="too little memory for a single model"):
        tiny(n_members=1).fit(survey.X, survey.Y)


@pytest.mark.parametrize("too_much", [{"n_members": 100_000_000}, {"latent_dim": 100_000_000}])
def test_a_pack_larger_than_memory_is_rejected_before_it_is_allocated(survey, too_much):
    model = CGMVAEClassifier(device="cpu", random_state=0, **too_much)
    with pytest.raises(InputError, match=r"needs [\d,.]+ GB .* smaller network or fewer members"):
        model.fit(survey.X, survey.Y)


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried")]
)
def test_memory_that_cannot_be_had_is_one_sentence(tiny, survey, monkeypatch, error):
    def fails(*_, **__):
        raise error

    monkeypatch.setattr(pack, "train", fails)
    with pytest.raises(InputError, match="too little memory for 2 models of this size"):
        tiny(n_members=2).fit(survey.X, survey.Y)


def test_a_batch_is_not_filled_up_far_beyond_the_rows(tiny, survey):
    sizes = {}
    for size in (100, 1_000_000_000):
        model = tiny(batch_size=size)
        fit = begin_fit(model, survey.X, survey.Y)
        sizes[size] = make_pack([model], [fit]).config.batch_size
    assert sizes == {100: 100, 1_000_000_000: 1024}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_with_little_memory_gives_the_same(tiny, survey):
    torch.cuda.empty_cache()
    # At a small rate, since products of fewer members are rounded in another way.
    plan = {"n_members": 8, "embedding_dim": 1024, "learning_rate": 1e-4, "device": "cuda"}
    model = tiny(**plan, latent_dim=256)
    parts = ("feature_hidden", "label_hidden", "decoder_hidden")
    model.network = dict.fromkeys(parts, (2048, 2048))
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


@pytest.mark.parametrize("n_rows", [1, 120])
@pytest.mark.parametrize("encoder", [None, torch.nn.Linear(6, 4)])
def test_threads_that_score_blocks_give_what_one_gives(tiny, survey, monkeypatch, encoder, n_rows):
    """An encoder of the user's is lent the weights of one member at a time."""
    monkeypatch.setattr("cgmvae.methods.predictor.SCORED_ROWS", 8)
    X = survey.X.astype(np.float32)
    model = tiny(encoder=encoder).fit(X, survey.Y)
    alone = model.predict_proba(X[:n_rows])
    torch.set_num_threads(4)
    try:
        for _ in range(5):
            np.testing.assert_array_equal(model.predict_proba(X[:n_rows]), alone)
        assert torch.get_num_threads() == 4
    finally:
        torch.set_num_threads(1)
