"""Tuned runs: what is tried, one search per cell, and its settings in the runs."""

import json

import pytest

from cgmvae.errors import InputError
from cgmvae.methods import REGISTRY
from cgmvae.search import PAPER_SPACE, grid
from cgmvae.studies import tuning
from cgmvae.studies.runner import run_job
from cgmvae.studies.spec import RunSpec, make_jobs
from cgmvae.studies.store import Store
from cgmvae.studies.tuning import candidates, tuned_settings

TINY = {
    "n_members": 1,
    "epochs": 2,
    "embedding_dim": 8,
    "feature_hidden": [8],
    "label_hidden": [8],
    "decoder_hidden": [8],
}


def spec(split=1, **changes):
    fields = {"train_fraction": 0.05, "settings": TINY, "tuning": "quick"} | changes
    return RunSpec("yeast", "cgmvae", split, **fields)


class TestCandidates:
    def test_the_grid_with_random_weights_and_the_preset_itself(self):
        tried = candidates(spec(tuning="grid", settings={"preset": "paper"}))
        assert tried[0] == {}
        points = [{name: each[name] for name in PAPER_SPACE} for each in tried[1:]]
        assert points == grid(PAPER_SPACE)
        for name, values in tuning.WEIGHT_SPACE.items():
            assert {each[name] for each in tried[1:]} == set(values)

    def test_what_the_arm_fixes_is_not_searched(self):
        for settings, missing in (
            ({"contrastive_weight": 0.0}, {"contrastive_weight", "temperature"}),
            (
                {"contrastive_weight": 0.0, "kl_weight": 0.0},
                {"contrastive_weight", "temperature", "kl_weight", "cross_entropy_weight"},
            ),
            ({"embedding_dim": 8}, {"embedding_dim"}),
        ):
            tried = candidates(spec(tuning="random", settings=settings))
            assert len(tried) == 40
            everything = PAPER_SPACE.keys() | tuning.WEIGHT_SPACE.keys()
            assert all(each.keys() == everything - missing for each in tried[1:])

    def test_other_methods_have_their_own_space_and_their_authors_values(self):
        first, *others = candidates(RunSpec("yeast", "mpvae", tuning="random"))
        original = REGISTRY["mpvae"].original
        assert first["ranking_weight"] == original["ranking_weight"]
        assert len(others) == 39
        assert all(each.keys() == REGISTRY["mpvae"].space.keys() for each in others)


def test_a_cell_is_searched_once_and_its_runs_have_the_best_settings(tmp_path, monkeypatch):
    store, job = Store(tmp_path), [spec(1), spec(2)]
    assert len(make_jobs([*job, spec(1, train_fraction=0.1)])) == 2
    assert run_job(job, store, device="cpu") == "done"
    reports = [store.report(each) for each in job]
    record = tuned_settings(job[0], store)
    assert reports[0]["tuned"] == reports[1]["tuned"] == record
    assert record["n_settings"] == 3
    assert record["best"] in candidates(job[0])
    monkeypatch.setattr(tuning, "_search", lambda *_: pytest.fail("searched again"))
    assert run_job([*job, spec(3)], store, device="cpu") == "done"
    # A run with the same settings given by hand is the same run.
    (path,) = (tmp_path / "searches").glob("*.json")
    best = json.loads(path.read_text())["best"]
    plain = spec(1, tuning="", settings=TINY | best)
    assert run_job([plain], Store(tmp_path / "plain"), device="cpu") == "done"
    metrics = Store(tmp_path / "plain").report(plain)["metrics"]
    for protocol, values in reports[0]["metrics"].items():
        assert metrics[protocol] == pytest.approx(values, abs=1e-6)


def test_an_unknown_search_is_rejected(tmp_path):
    with pytest.raises(InputError, match="no search 'gird'; choose one of grid"):
        tuned_settings(spec(tuning="gird"), Store(tmp_path))
