"""Estimators on features that stay on disk."""

import numpy as np
import pytest
import scipy.sparse as sp

from cgmvae.data import mapped
from cgmvae.data.mapped import MappedRows
from cgmvae.errors import InputError
from cgmvae.methods import METHODS, BinaryRelevance, MLkNN
from cgmvae.training import plan


@pytest.fixture
def on_disk(tmp_path):
    """Return a function that saves an array and maps it into memory."""
    counter = iter(range(100))

    def store(array) -> MappedRows:
        path = tmp_path / f"{next(counter)}.npy"
        np.save(path, array)
        return MappedRows(np.load(path, mmap_mode="r"))

    return store


def test_fit_on_a_large_memory_mapped_array(tiny, survey, tmp_path, monkeypatch):
    np.save(tmp_path / "X.npy", survey.X)
    X = np.load(tmp_path / "X.npy", mmap_mode="r")
    seen = []
    monkeypatch.setattr(mapped, "LARGE_BYTES", X.nbytes)
    gather = MappedRows.gather
    monkeypatch.setattr(
        MappedRows,
        "gather",
        lambda rows, numbers: (seen.append(rows.on_disk), gather(rows, numbers))[1],
    )
    model = tiny().fit(X, survey.Y)
    assert any(seen)
    np.testing.assert_allclose(model.predict_proba(X), model.predict_proba(survey.X), atol=1e-6)
    assert model.n_features_in_ == 6


def test_predictions_keep_the_requested_order(tiny, survey, on_disk):
    X, Y = on_disk(survey.X), survey.Y
    model = tiny().fit(X[20:], Y[20:], validation_data=(X[:20], Y[:20]))
    expected = model.predict_proba(survey.X)
    order = np.random.default_rng(0).permutation(120)
    np.testing.assert_allclose(model.predict_proba(X[order]), expected[order], atol=1e-6)
    np.testing.assert_allclose(model.transform(X), model.transform(survey.X), atol=1e-5)
    known = np.full(Y.shape, np.nan)
    known[:, 0] = Y[:, 0]
    np.testing.assert_allclose(
        model.predict_proba(X, known), model.predict_proba(survey.X, known), atol=1e-5
    )


def test_the_order_of_indices_does_not_matter(tiny, survey, on_disk):
    """Only the order of the rows in the file matters, not the order of their indices."""
    X, Y = on_disk(survey.X), survey.Y
    held = (survey.X[:30], Y[:30])
    named = np.arange(30, 120)
    shuffled = np.random.default_rng(0).permutation(named)
    models = [tiny().fit(X[rows], Y[rows], validation_data=held) for rows in (named, shuffled)]
    scores = [model.predict_proba(survey.X) for model in models]
    np.testing.assert_array_equal(scores[0], scores[1])


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_rows_in_memory_train_the_same_copied_or_not(tiny, survey, form, monkeypatch):
    X = form(np.where(survey.X > 0, survey.X, 0))
    copied = tiny(scaling="max-abs").fit(X, survey.Y)
    monkeypatch.setattr("cgmvae.training.rows._COPIED_BYTES", 0)
    read = tiny(scaling="max-abs").fit(X, survey.Y)
    np.testing.assert_array_equal(read.predict_proba(X), copied.predict_proba(X))


@pytest.mark.parametrize("method", [BinaryRelevance, MLkNN])
def test_methods_without_batches_load_all_rows(method, survey, on_disk, monkeypatch):
    X = on_disk(survey.X)
    from_disk = method(random_state=0).fit(X, survey.Y)
    monkeypatch.setattr(mapped, "BLOCK_BYTES", 200)
    expected = method(random_state=0).fit(survey.X, survey.Y).predict_proba(survey.X)
    np.testing.assert_allclose(from_disk.predict_proba(X), expected, atol=1e-12)


def test_too_many_rows_for_a_method_are_rejected(survey, on_disk, monkeypatch):
    monkeypatch.setattr(mapped, "MEMORY_LIMIT", 1000)
    with pytest.raises(InputError, match="use fewer rows, or a neural"):
        MLkNN().fit(on_disk(survey.X), survey.Y)


@pytest.mark.parametrize("name", [n for n, m in METHODS.items() if m.reads_batches])
def test_every_network_learns_from_rows_on_disk(name, survey, on_disk):
    from tests.contracts.quick_estimators import quick

    model = quick(name).fit(on_disk(survey.X), survey.Y)
    assert np.isfinite(model.predict_proba(survey.X)).all()


def test_invalid_input_is_rejected(tiny, survey, on_disk):
    with pytest.raises(InputError, match="hold 1 infinite"):
        tiny().fit(
            on_disk(np.where(np.arange(720).reshape(120, 6) == 7, np.inf, survey.X)), survey.Y
        )
    model = tiny().fit(on_disk(survey.X), survey.Y)
    with pytest.raises(ValueError, match="X has 5 features"):
        model.predict(on_disk(survey.X[:, :5]))
    with pytest.raises(InputError, match="120 rows and Y 7"):
        tiny().fit(on_disk(survey.X), survey.Y[:7])


@pytest.fixture
def sorted_rows(rng):
    """Return training rows sorted by their labels, as surveys often are, and test rows."""
    X = rng.normal(size=(3000, 8)).astype(np.float32)
    Y = (X @ rng.normal(size=(8, 4)) + 0.3 * rng.normal(size=(3000, 4)) > 0.5).astype(np.uint8)
    order = np.lexsort(Y[:2000].T)
    return X[order], Y[order], X[2000:], Y[2000:]


def learned(model, sorted_rows, store):
    X, Y, X_test, Y_test = sorted_rows
    held = (X_test[:500], Y_test[:500])
    return model.fit(store(X), Y, validation_data=held).score(X_test[500:], Y_test[500:])


def test_rows_sorted_by_label_train_as_well(tiny, sorted_rows, on_disk, monkeypatch):
    """A window holds an eighth of the rows, as it does for half a million rows in practice."""
    monkeypatch.setattr(plan, "BLOCK_ROWS", 4)
    monkeypatch.setattr(plan, "WINDOW_BLOCKS", 64)
    settings = {"epochs": 3, "n_members": 1}
    in_memory = learned(tiny(**settings), sorted_rows, np.asarray)
    blocks = learned(tiny(**settings), sorted_rows, on_disk)
    assert blocks > in_memory - 0.02
    monkeypatch.setattr(plan, "block_order", lambda n_rows, generator: np.arange(n_rows))
    assert learned(tiny(**settings), sorted_rows, on_disk) < in_memory - 0.1
