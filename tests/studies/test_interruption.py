"""Processes killed with SIGKILL, and several at once: nothing is lost, damaged or done twice."""

import json
import signal
import time
from dataclasses import asdict

import numpy as np
import pytest
from tiny_study import STUDY, made_up, runs, written

from cgmvae.studies.commands import study_status
from cgmvae.studies.spec import Scope
from cgmvae.studies.store import Store

KILLED = -signal.SIGKILL


@pytest.fixture(scope="module")
def duration(order, tmp_path_factory) -> float:
    """Return the seconds that the whole study takes here."""
    start = time.perf_counter()
    assert order(folder=str(tmp_path_factory.mktemp("timed"))) == [0]
    return time.perf_counter() - start


def check_runs(store: Store) -> None:
    """Check that every run that is done is complete."""
    for spec in runs(Scope()):
        if store.is_done(spec):
            assert json.loads((store.run_folder(spec) / "spec.json").read_text()) == asdict(spec)
            assert set(store.predictions(spec)) == {"validation", "test"}
            assert store.report(spec)["metrics"]
            assert spec.key in store.environment(spec)["pack"]


def test_killed_at_random_moments_it_gives_the_same_tables(order, duration, whole_table, tmp_path):
    rng, longest = np.random.default_rng(0), duration
    codes, folders = [], [tmp_path / "0"]
    while codes.count(KILLED) < 5:
        moment = {"kill_after": rng.uniform(0, longest)}
        if len(codes) % 2:  # writing is short, so a timer would seldom hit it
            moment = {"kill_at": int(rng.integers(1, 150))}
        codes += order(folder=str(folders[-1]), **moment)
        store = Store(folders[-1])
        check_runs(store)
        assert study_status(STUDY, Scope(), store).running == 0  # the locks are free again
        if codes[-1] == 0:  # it finished before: start again, and kill sooner
            folders.append(tmp_path / str(len(folders)))
            longest /= 2
    assert set(codes) <= {0, KILLED}
    for folder in folders:
        assert order(folder=str(folder)) == [0]
        assert written(Store(folder)) == whole_table


def test_killed_at_any_file_operation_a_run_is_complete_or_absent(order, tmp_path):
    spec, moment, outcomes = runs(Scope())[0], 0, []
    while not outcomes or outcomes[-1] == KILLED:
        moment += 1
        folder = tmp_path / str(moment)
        store = Store(folder)
        store.write_error(spec, "it failed the first time")
        outcomes += order(folder=str(folder), write=True, kill_at=moment)
        was_done = store.is_done(spec)
        if was_done:
            assert store.report(spec) == made_up(spec).report
            assert store.predictions(spec)["test"].shape == (1, 2)
            assert store.similarity(spec).tolist() == [[1, 0], [0, 1]]
        else:
            assert store.report(spec) is None
        assert not store.is_claimed(spec)
        assert order(folder=str(folder), write=True) == [0]
        assert [path.name for path in (folder / "runs").iterdir()] == [spec.key]
        assert store.error(spec) is None
    assert outcomes[-1] == 0
    assert len(outcomes) > 10  # every part of a run was interrupted


def test_two_processes_at_once_train_every_run_once(order, whole_table, tmp_path):
    log = tmp_path / "log"
    assert order(folder=str(tmp_path / "runs"), children=2, log=str(log)) == [0, 0]
    assert sorted(log.read_text().split()) == sorted(spec.key for spec in runs(Scope()))
    assert written(Store(tmp_path / "runs")) == whole_table


def test_one_of_two_is_killed_and_the_other_takes_over(order, duration, whole_table, tmp_path):
    folder, codes, moment = tmp_path, [0, 0], duration
    while codes == [0, 0]:  # both finished before
        moment /= 2
        folder = tmp_path / str(moment)
        codes = order(folder=str(folder), children=2, kill_after=moment)
    assert codes == [KILLED, 0]
    assert written(Store(folder)) == whole_table
