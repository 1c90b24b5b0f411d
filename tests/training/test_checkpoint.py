import numpy as np
import pytest

from cgmvae.errors import InputError
from cgmvae.training.checkpoint import Checkpoint

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
    assert [path.name for path in checkpoint.path.parent.iterdir()] == ["state.bin"]


def test_remove(checkpoint):
    checkpoint.remove()
    assert checkpoint.load(FINGERPRINT) is None
    checkpoint.remove()


def test_parts_belong_to_the_checkpoint(checkpoint):
    part, folder = checkpoint.part(0, 3), checkpoint.path.parent
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
