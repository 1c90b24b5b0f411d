"""Members that are trained side by side in threads: models, progress, failures, resuming."""

import numpy as np
import pytest
import torch
from torch import nn

from cgmvae.methods import LaMP
from cgmvae.training import pack


@pytest.fixture(autouse=True)
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def trained_parts(monkeypatch):
    """Return a list of the parts that are trained, by their members."""
    seen, original = [], pack.Pack._train_part

    def train_part(self, numbers, *rest):
        seen.append(numbers.tolist())
        return original(self, numbers, *rest)

    monkeypatch.setattr(pack.Pack, "_train_part", train_part)
    return seen


def test_the_members_are_those_of_a_pack_in_one_piece(tiny, survey, trained_parts):
    model = tiny(n_members=5).fit(survey.X, survey.Y)
    assert sorted(trained_parts) == [[0, 1, 2], [3, 4]]
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)
    whole = tiny(n_members=5).fit(survey.X, survey.Y)
    assert trained_parts[2:] == [[0, 1, 2, 3, 4]]
    np.testing.assert_allclose(model.oof_proba_, whole.oof_proba_, atol=1e-4)
    np.testing.assert_array_equal(model.best_epoch_, whole.best_epoch_)
    np.testing.assert_allclose(
        model.history_["validation"], whole.history_["validation"], atol=1e-4
    )


def test_progress_is_reported_once_per_epoch_in_the_thread_of_the_caller(tiny, survey):
    calls = []
    tiny(n_members=4, epochs=5, progress=lambda *call: calls.append(call)).fit(survey.X, survey.Y)
    assert [epoch for epoch, *_ in calls] == [1, 2, 3, 4, 5]
    assert {n_epochs for _, n_epochs, _ in calls} == {5}


def test_an_error_of_the_caller_ends_all_parts(tiny, survey):
    class Interrupted(Exception):
        pass

    def interrupt(epoch, *_):
        if epoch == 2:
            raise Interrupted

    model = tiny(n_members=4, epochs=10_000, progress=interrupt)
    with pytest.raises(Interrupted):
        model.fit(survey.X, survey.Y)
    assert torch.get_num_threads() == 2


def test_an_error_of_one_part_ends_the_others(tiny, survey, monkeypatch):
    original = pack.train

    def train(network, members, *rest, **more):
        if len(members) == 2:
            raise ZeroDivisionError
        return original(network, members, *rest, **more)

    monkeypatch.setattr(pack, "train", train)
    with pytest.raises(ZeroDivisionError):
        tiny(n_members=5, epochs=10_000).fit(survey.X, survey.Y)


def test_a_stopped_fit_resumes_in_its_parts(tiny, survey, tmp_path, monkeypatch, trained_parts):
    """Also with another number of threads: the parts are those of the checkpoint."""
    monkeypatch.setattr("cgmvae.training.checkpoint.Pace.is_due", lambda *_: True)
    path = tmp_path / "state"

    def stop(epoch, *_):
        if epoch == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tiny(n_members=4, epochs=9, checkpoint=path, progress=stop).fit(survey.X, survey.Y)
    assert len(list(tmp_path.iterdir())) >= 2
    epochs = []
    torch.set_num_threads(1)
    resumed = tiny(n_members=4, epochs=9, checkpoint=path, progress=lambda *e: epochs.append(e[0]))
    resumed.fit(survey.X, survey.Y)
    assert trained_parts[2:] == [[0, 1], [2, 3]]
    assert not {1, 2, 3} & set(epochs)
    assert list(tmp_path.iterdir()) == []
    whole = tiny(n_members=4, epochs=9).fit(survey.X, survey.Y)
    np.testing.assert_allclose(resumed.oof_proba_, whole.oof_proba_, atol=1e-4)


def test_other_methods_are_trained_in_threads_too(survey, trained_parts):
    LaMP(epochs=2, embedding_dim=8, n_members=4, random_state=0).fit(survey.X, survey.Y)
    assert sorted(trained_parts) == [[0, 1], [2, 3]]


def test_an_encoder_of_ones_own_keeps_to_one_thread(tiny, survey, trained_parts):
    """It draws from torch's own generator, whose order threads would change."""
    encoder = nn.Sequential(nn.Linear(survey.X.shape[1], 4), nn.Dropout(0.5))
    tiny(n_members=4, encoder=encoder, epochs=2).fit(survey.X.astype(np.float32), survey.Y)
    assert trained_parts == [[0, 1, 2, 3]]
