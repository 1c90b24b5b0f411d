"""A run's folder: what is kept, what counts as done, and what is said about damage."""

import json
import resource
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from tiny_study import made_up

from cgmvae.data.splits import Split
from cgmvae.errors import InputError
from cgmvae.studies.spec import RunSpec
from cgmvae.studies.store import Store

SPEC = RunSpec("yeast", "cgmvae", seed=3)


@pytest.fixture
def store(tmp_path) -> Store:
    store = Store(tmp_path / "new" / "runs")
    store.write(SPEC, made_up(SPEC))
    return store


def test_everything_comes_back(store):
    record = made_up(SPEC)
    assert store.is_done(SPEC)
    assert store.report(SPEC) == record.report
    assert store.environment(SPEC) == record.environment
    for part, scores in store.predictions(SPEC).items():
        np.testing.assert_array_equal(scores, record.predictions[part])
    np.testing.assert_array_equal(store.similarity(SPEC), record.similarity)
    split = json.loads((store.run_folder(SPEC) / "split.json").read_text())
    assert Split(**split).equals(record.split)
    names = {path.name for path in store.run_folder(SPEC).iterdir()}
    assert names == {
        "spec.json", "split.json", "environment.json", "report.json", "predictions.npz",
        "similarity.npy", "DONE",
    }  # fmt: skip


def test_what_is_not_there(store):
    other = replace(SPEC, seed=4)
    assert not store.is_done(other)
    assert store.report(other) is store.environment(other) is store.error(other) is None
    with pytest.raises(InputError, match=r"missing; remove .* run the study again"):
        store.predictions(other)


def test_a_folder_without_its_mark_does_not_count(store):
    (store.run_folder(SPEC) / "DONE").unlink()
    (store.run_folder(SPEC) / "report.json").write_text("{")
    store.write_error(SPEC, "no memory", "a long story")
    assert store.error(SPEC) == "no memory"
    assert not store.is_done(SPEC)
    assert store.report(SPEC) is None
    store.write(SPEC, made_up(SPEC))
    assert store.error(SPEC) is None
    assert store.report(SPEC) == made_up(SPEC).report


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("report.json", Store.report),
        ("environment.json", Store.environment),
        ("predictions.npz", Store.predictions),
        ("similarity.npy", Store.similarity),
    ],
)
@pytest.mark.parametrize("damage", [b"", b"3", None])
def test_a_damaged_part_says_so_and_what_to_do(store, name, read, damage):
    path = store.run_folder(SPEC) / name
    path.unlink() if damage is None else path.write_bytes(damage)
    word = "missing" if damage is None else "damaged"
    with pytest.raises(InputError) as caught:
        read(store, SPEC)
    assert str(caught.value) == f"{path} is {word}; remove {path.parent} and run the study again."


def test_a_claim_is_for_one_at_a_time_and_for_all_runs_or_none(tmp_path):
    first, second = Store(tmp_path), Store(tmp_path)
    specs = [replace(SPEC, seed=seed) for seed in range(3)]
    with first.claim(specs[:2]) as held:
        assert held
        assert first.is_claimed(specs[0])
        assert not first.is_claimed(specs[2])
        with second.claim(specs[1:]) as also:
            assert not also
        assert not first.is_claimed(specs[2])
        with second.claim(specs[2:]) as other:
            assert other
    with second.claim(specs) as again:
        assert again


def test_a_file_in_place_of_the_folder(tmp_path):
    path = tmp_path / "runs"
    path.write_text("")
    with pytest.raises(InputError, match="is a file; give a folder"):
        Store(path)


@pytest.mark.parametrize(
    "act",
    [
        lambda store: store.write(SPEC, made_up(SPEC)),
        lambda store: store.write_error(SPEC, "why"),
        lambda store: store.claim([SPEC]).__enter__(),
    ],
)
def test_a_folder_that_cannot_be_made_is_one_sentence(act):
    with pytest.raises(
        InputError, match=r"^Cannot create the folder /proc/no/such/place/.*choose another"
    ):
        act(Store("/proc/no/such/place"))


@contextmanager
def no_room():
    """Let no file grow beyond some bytes, as on a full disk; not even a log of the tests."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_no_room_for_a_run_is_one_sentence_and_leaves_nothing(tmp_path):
    store = Store(tmp_path)
    large = replace(made_up(SPEC), predictions={"test": np.ones((100, 100))})
    with no_room(), pytest.raises(InputError, match=r"^Cannot write .*; check the free space"):
        store.write(SPEC, large)
    assert not store.is_done(SPEC)
    assert list((tmp_path / "runs").iterdir()) == []
