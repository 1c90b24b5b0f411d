import numpy as np
import pytest

from cgmvae.errors import InputError
from cgmvae.training.checkpoint import Checkpoint, Pace

STATE = {"epoch": np.array([3]), "values": np.linspace(0, 1, 6).reshape(2, 3)}
NEWER = {"epoch": np.array([4]), "values": np.ones((2, 3))}
FINGERPRINT = {"seeds": [1, 2], "clip": None, "rate": 1e-3, "nested": {"rows": (1, 2)}}


@pytest.fixture
def checkpoint(tmp_path) -> Checkpoint:
    checkpoint = Checkpoint(tmp_path / "state.bin")
    checkpoint.save(STATE, FINGERPRINT)
    return checkpoint


def assert_holds(checkpoint: Checkpoint, state: dict) -> None:
    found = checkpoint.load(FINGERPRINT)
    assert found is not None
    assert found.keys() == state.keys()
    for name, array in state.items():
        np.testing.assert_array_equal(found[name], array)


def test_round_trip(checkpoint):
    assert_holds(checkpoint, STATE)
    checkpoint.save(NEWER, FINGERPRINT)
    assert_holds(checkpoint, NEWER)


def test_the_last_two_states_are_kept(checkpoint):
    folder = checkpoint.path.parent
    for state in (NEWER, STATE, NEWER):
        checkpoint.save(state, FINGERPRINT)
    assert {path.name for path in folder.iterdir()} == {"state.bin", "state.bin.previous"}
    checkpoint.path.write_bytes(checkpoint.path.read_bytes()[:-1])
    with pytest.warns(UserWarning, match=r"damaged.* the state before it is used"):
        assert_holds(checkpoint, STATE)
    checkpoint.path.unlink()
    assert checkpoint.exists()
    assert_holds(checkpoint, STATE)


def test_a_damaged_state_without_another_is_refused(checkpoint):
    checkpoint.path.write_bytes(b"nothing")
    with pytest.raises(InputError, match="damaged"):
        checkpoint.load(FINGERPRINT)


def test_remove(checkpoint):
    checkpoint.save(NEWER, FINGERPRINT)
    checkpoint.remove()
    assert not any(checkpoint.path.parent.iterdir())
    assert checkpoint.load(FINGERPRINT) is None
    checkpoint.remove()


def test_parts_belong_to_the_checkpoint(checkpoint):
    part, folder = checkpoint.part(0, 3), checkpoint.path.parent
    part.save(STATE, FINGERPRINT)
    part.save(NEWER, FINGERPRINT)
    assert_holds(checkpoint, STATE)
    assert_holds(part, NEWER)
    (folder / "state.bin.backup").touch()
    checkpoint.path.unlink()
    assert checkpoint.exists()
    checkpoint.remove()
    assert not checkpoint.exists()
    assert [path.name for path in folder.iterdir()] == ["state.bin.backup"]
    assert not Checkpoint(folder / "nowhere" / "state").exists()


def test_members_are_split_like_the_parts(tmp_path):
    whole = Checkpoint(tmp_path / "state")
    for first, last in ((0, 1), (2, 2), (7, 9)):
        whole.part(first, last).save(STATE, FINGERPRINT)
    division = [places.tolist() for places in whole.division(6)]
    assert division == [[0, 1], [2], [3, 4, 5]]
    whole.save(STATE, FINGERPRINT)
    assert [places.tolist() for places in whole.division(3)] == [[0, 1, 2]]


@pytest.mark.parametrize(
    "other", [{}, FINGERPRINT | {"seeds": [1, 3]}, FINGERPRINT | {"more": 1}, {"seeds": [1, 2]}]
)
def test_another_training_is_rejected(checkpoint, other):
    with pytest.raises(InputError, match="belongs to a training with other settings"):
        checkpoint.load(other)
    assert_holds(checkpoint, STATE)


class Clock:
    """Time that passes only when it is told to."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def saved_at(seconds_per_epoch, seconds_per_save, n_epochs=1000, n_bytes=1000):
    """Return when states are saved, counted from the start, and the largest share it took."""
    clock = Clock()
    pace, times, spent, shares = Pace(clock), [], 0.0, [0.0]
    for _ in range(n_epochs):
        clock.now += seconds_per_epoch
        if pace.is_due(n_bytes):
            times.append(clock.now - Clock.now)
            with pace.saving():
                clock.now += seconds_per_save
            spent += seconds_per_save
            shares.append(spent / (clock.now - Clock.now))
    return np.array(times), max(shares)


@pytest.fixture
def usual_pace(monkeypatch):
    """Save as seldom as outside of the tests."""
    monkeypatch.setattr("cgmvae.training.checkpoint.MIN_SECONDS", 60.0)
    monkeypatch.setattr("cgmvae.training.checkpoint.MAX_FRACTION", 0.03)


@pytest.mark.usefixtures("usual_pace")
class TestPace:
    def test_once_a_minute(self):
        times, _ = saved_at(7.0, 0.1)
        assert times[0] == 14.0  # the first state is not waited for as long
        assert 60.0 <= np.diff(times).min() <= np.diff(times).max() < 68.0
        assert len(saved_at(0.05, 0.1, n_epochs=199)[0]) == 0

    def test_at_most_three_percent_of_the_time(self):
        times, share = saved_at(7.0, 9.0, n_bytes=900_000_000)
        assert len(times) > 10
        assert 0.02 < share <= 0.03

    def test_an_epoch_longer_than_a_minute_is_saved(self):
        assert len(saved_at(300.0, 1.0, n_epochs=5)[0]) == 5
