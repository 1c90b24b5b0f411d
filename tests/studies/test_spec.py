"""Which runs are the same, and which are made together."""

import random

import pytest

from cgmvae.errors import InputError
from cgmvae.studies.fewer_data import STUDY
from cgmvae.studies.spec import RunSpec, Scope, make_jobs, unique

GRID = [
    RunSpec(data, method, split, seed)
    for data in ("yeast", "scene")
    for method in ("cgmvae", "mlknn")
    for split in range(3)
    for seed in range(2)
]


@pytest.mark.parametrize(
    "change",
    [
        {"data": "scene"},
        {"method": "mpvae"},
        {"split": 1},
        {"seed": 1},
        {"train_fraction": 0.5},
        {"hidden_labels": 0.5},
        {"settings": {"n_members": 1}},
        {"official": True},
    ],
)
def test_every_field_makes_another_run(change):
    spec = RunSpec(**({"data": "yeast", "method": "cgmvae"} | change))
    assert spec != RunSpec("yeast", "cgmvae")


def test_the_same_run_written_otherwise():
    first = RunSpec("yeast", "cgmvae", settings={"a": (1, 2), "b": 3}, train_fraction=1)
    second = RunSpec("yeast", "cgmvae", settings={"b": 3, "a": [1, 2]}, train_fraction=1.0)
    assert first == second
    assert len({first, second}) == len(unique([first, second])) == 1


def test_official_splits_are_of_the_data_sets_that_have_one(available):
    scope = Scope(split="official", splits=(0, 1), seeds=(0,))
    assert STUDY.data(scope) == ("yeast", "scene", "delicious")
    available("yeast")
    runs = scope.runs([RunSpec("yeast", "mlknn")])
    assert [(run.split, run.official) for run in runs] == [(0, True), (1, True)]
    with pytest.raises(InputError, match="'sider' has no official split"):
        Scope(split="official", data=("yeast", "sider"))
    with pytest.raises(InputError, match="no split 'offical'; choose one of random, official"):
        Scope(split="offical")


def test_runs_with_other_settings_are_not_mixed_and_no_job_is_too_large(monkeypatch):
    specs = [
        RunSpec("yeast", "cgmvae", seed=seed, train_fraction=share, settings=settings)
        for settings in ({}, {"n_members": 1})
        for share in (0.5, 1)
        for seed in (0, 1)
    ]
    assert [len(job) for job in make_jobs(specs)] == [2, 2, 2, 2]
    specs = [RunSpec("yeast", "cgmvae", seed=seed) for seed in range(10)]
    monkeypatch.setattr("cgmvae.studies.spec.MAX_ON_CPU", 4)
    monkeypatch.setattr("cgmvae.studies.spec.MAX_ON_GPU", 4)
    assert [len(job) for job in make_jobs(specs)] == [4, 4, 2]


def test_jobs_of_networks_have_all_splits_and_seeds_and_do_not_depend_on_the_order():
    jobs = make_jobs(GRID)
    assert [len(job) for job in jobs] == [6, *[1] * 6, 6, *[1] * 6]
    assert [spec for job in jobs for spec in job] == GRID
    assert make_jobs(GRID + GRID[::-1]) == make_jobs(iter(GRID))
    mixed = random.Random(0).sample(GRID, len(GRID))
    assert {frozenset(job) for job in make_jobs(mixed)} == {frozenset(j) for j in make_jobs(GRID)}
