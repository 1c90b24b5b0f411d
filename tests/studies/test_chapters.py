"""The whole paper in one folder, from real runs of a small part of it."""

import csv
import json
import re
from dataclasses import replace

import pytest

from cgmvae.data import catalog
from cgmvae.errors import InputError
from cgmvae.methods.registry import REGISTRY
from cgmvae.studies import chapters, find_study, runner, tuning
from cgmvae.studies.chapters import CHAPTERS, Paper
from cgmvae.studies.commands import missing_runs
from cgmvae.studies.limits import OutOfTime, TimeLimit
from cgmvae.studies.runner import run_job
from cgmvae.studies.spec import RunSpec, Scope, is_network, make_jobs
from cgmvae.studies.store import Store
from cgmvae.studies.tuning import TUNINGS, candidates, tuned_settings
from cgmvae.training.engine import Engine

FOREVER = TimeLimit(600, float("inf"))


@pytest.fixture
def small(monkeypatch):
    """Leave two chapters, of methods that are fitted within a second."""
    scope = Scope(quick=True, methods=("mlknn", "asl"), splits=(1, 2), seeds=(0,))
    data, methods, *_ = CHAPTERS
    monkeypatch.setattr(chapters, "CHAPTERS", (data, methods._replace(quick=scope)))


@pytest.fixture
def untrained(monkeypatch):
    """Return a function after which nothing may be trained."""

    def refuse(*_, **__):
        pytest.fail("trained again")

    return lambda: monkeypatch.setattr(runner, "make_records", refuse)


def test_pages_have_the_numbers_and_say_where_they_come_from(tmp_path, small, untrained):
    paper = Paper(tmp_path / "paper", quick=True, data=("yeast",))
    assert paper.make(device="cpu") == []
    names = {path.name for path in paper.folder.iterdir()}
    pages = {"README.md", "data.md", "data.csv", "methods.md", "methods.csv"}
    assert names == pages | {"paper.json", "runs"}
    origin = json.loads((paper.folder / "paper.json").read_text())
    made = f"Made {origin['date']} by `cgmvae paper --quick --data yeast` on {origin['device']}"
    for name in pages:
        assert made in (paper.folder / name).read_text()
    index = (paper.folder / "README.md").read_text()
    assert re.search(r"\| \[methods.md\]\(methods.md\) \| 4 of 4 runs \|", index)
    lines = (paper.folder / "methods.csv").read_text().splitlines()
    rows = [
        row for row in csv.reader(lines[1:]) if row[:2] == ["yeast, thresholds: validation", "ASL"]
    ]
    (run,) = [
        job
        for _, study, scope in paper.chapters()
        for job in make_jobs(study.runs(scope))
        if job[0].method == "asl"
    ]
    scores = [paper.store.report(spec)["metrics"]["validation"]["micro_f1"] for spec in run]
    assert rows[0][3].startswith(f"{sum(scores) / 2:.3f} ±")
    page = (paper.folder / "methods.md").read_text()
    assert all(f"thresholds: {name}" in page for name in ("validation", "test-oracle"))
    assert "| yeast | ASL |" in page.split("### Settings")[1]
    untrained()
    assert paper.make(device="cpu") == []
    again = json.loads((paper.folder / "paper.json").read_text())["seconds"]
    assert again >= origin["seconds"]


def test_pages_are_written_from_finished_runs_by_another_machine(tmp_path, small, untrained):
    paper = Paper(tmp_path, quick=True, data=("yeast",))
    with pytest.raises(InputError, match="There are no runs in"):
        paper.write_pages()
    paper.make(device="cpu")
    origin = {"device": "one H200", "commit": "1234567", "date": "2026-01-01", "torch": "2.11"}
    record = json.loads((tmp_path / "paper.json").read_text()) | origin
    (tmp_path / "paper.json").write_text(json.dumps(record))
    whole = (tmp_path / "methods.csv").read_text().splitlines()
    (tmp_path / "methods.csv").unlink()
    for name in ("predictions.npz", "split.json"):  # large, and on no page
        for path in tmp_path.rglob(name):
            path.unlink()
    untrained()
    assert paper.write_pages() == []
    made, *cells = (tmp_path / "methods.csv").read_text().splitlines()
    assert "Made 2026-01-01" in made
    assert "on one H200, commit 1234567" in made
    assert cells == whole[1:]


def test_what_time_did_not_allow_is_named_and_resumed(tmp_path, small):
    paper = Paper(tmp_path, quick=True, data=("yeast",))
    assert replace(paper, minutes=1e-9).make(device="cpu") == ["methods: 4 of 4 runs"]
    page = (tmp_path / "methods.md").read_text()
    assert "| yeast | mlknn: 2, asl: 2 | – |" in page.split("### Not run yet")[1]
    assert paper.make(device="cpu") == []
    assert "Not run yet" not in (tmp_path / "methods.md").read_text()


def test_a_failure_stops_nothing_and_is_not_tried_again_in_the_same_call(
    tmp_path, small, monkeypatch
):
    tried = []

    def fail_with_asl(job, **options):
        tried.append(job[0].method)
        if job[0].method == "asl":
            raise RuntimeError("no memory")
        return make_records(job, **options)

    make_records = runner.make_records
    monkeypatch.setattr(runner, "make_records", fail_with_asl)
    paper = Paper(tmp_path, quick=True, data=("yeast",))
    assert paper.make(device="cpu") == ["methods: 2 of 4 runs"]
    assert sorted(tried) == ["asl", "mlknn", "mlknn"]
    assert "RuntimeError: no memory" in (tmp_path / "methods.md").read_text()


def test_what_is_missing_comes_with_the_time_that_it_would_take(made_up, available):
    available("yeast", "scene")
    scope = Scope(data=("yeast", "scene"), methods=("mlknn",), splits=(1, 2), seeds=(0,))
    study = find_study("main")
    for run in study.runs(scope):
        if run.data == "yeast":
            made_up.keep(run, 0.5, seconds={"fit": 600.0})
    (table,) = missing_runs(study, scope, made_up.store)
    size = {name: catalog.find_entry(name).statistics for name in scope.data}
    cells = {name: own.samples * own.labels for name, own in size.items()}
    minutes = 2 * 10 * cells["scene"] / cells["yeast"]
    assert table.rows == [["scene", "mlknn: 2", f"{minutes:.1f}"]]


def test_networks_share_a_gpu_and_other_methods_the_cores_beside_it(monkeypatch):
    jobs = [(RunSpec("yeast", name),) for name in ("cgmvae", "asl", "mlknn", "haram", "sleec")]
    engine = Engine("spawn", 8)
    for on_gpu, shares in ((False, (8 / 5, 8 / 5)), (True, (2 / 2, 6 / 3))):
        monkeypatch.setattr(chapters, "uses_gpu", lambda *_, on_gpu=on_gpu: on_gpu)
        limits = chapters._limits(jobs, engine, "auto", 100.0, 0)
        assert [own.seconds for own in limits] == pytest.approx([300 * each for each in shares])
        assert not limits.networks.cuts_searches
        later = chapters._limits(jobs, engine, "auto", 100.0, 1)
        assert later.others.seconds > limits.others.seconds
        assert later.others.cuts_searches


def test_figures_are_drawn_on_the_page(tmp_path, small):
    drawn = []
    Paper(tmp_path, quick=True, data=("yeast",)).make(
        device="cpu", draw=lambda figure, path: drawn.append((figure.kind, path))
    )
    page = (tmp_path / "methods.md").read_text()
    assert {kind for kind, _ in drawn} == {"critical-difference"}
    assert all(f"]({path.name})" in page for _, path in drawn)


def test_every_study_of_the_paper_is_a_chapter_and_quick_ones_are_smaller(available):
    available("yeast", "scene", "sider", "bbs_2003_2009")
    for quick, whole in zip(Paper("a", quick=True).chapters(), Paper("a").chapters(), strict=True):
        n_quick, n_whole = (len(set(study.runs(scope))) for _, study, scope in (quick, whole))
        assert n_quick < n_whole or n_whole == n_quick == 0 or quick[0].name == "similarity"
    studies = {chapter.study for chapter in CHAPTERS}
    assert studies == {"stats", "main-tuned", "ablation", "fewer-data", "timing", "interpret"}


def test_chapters_without_data_are_left_out(available):
    available("sider")
    names = [chapter.name for chapter, *_ in Paper("a", data=("sider",)).chapters()]
    assert names == ["data", "methods", "ablation", "fewer_data", "time"]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"data": ("yeats",)}, "did you mean yeast"),
        ({"data": ("ebird",)}, "ebird is not available: put"),
        ({"minutes": 0.0}, "minutes is 0.0; give a positive number"),
    ],
)
def test_bad_input_is_one_sentence(wrong, words, tmp_path, available):
    available("yeast")
    with pytest.raises(InputError, match=words):
        Paper(tmp_path, **wrong)


class TestTime:
    def test_a_job_that_takes_too_long_is_stopped_and_done_the_next_time(self, tmp_path):
        store, job = Store(tmp_path), [RunSpec("yeast", "haram")]
        assert run_job(job, store, time_limit=TimeLimit(1e-3, float("inf"))) == "failed"
        assert store.error(job[0]) == "stopped after 0 s"
        assert run_job(job, store, time_limit=FOREVER) == "done"
        assert store.error(job[0]) is None

    def test_a_job_does_not_start_too_late(self, tmp_path):
        store, job = Store(tmp_path), [RunSpec("yeast", "mlknn")]
        assert run_job(job, store, time_limit=TimeLimit(600, 0.0)) == "failed"
        assert store.error(job[0]) is None

    def test_a_search_tries_as_many_settings_as_there_is_time_for(self, tmp_path):
        settings = {"n_members": 1, "epochs": 1, "hidden_dim": 8}
        spec = RunSpec("yeast", "asl", 1, train_fraction=0.05, settings=settings, tuning="few")
        store = Store(tmp_path)
        with pytest.raises(OutOfTime):
            tuned_settings(spec, store, device="cpu", time_limit=TimeLimit(1e-3, float("inf")))
        whole = tuned_settings(spec, store, device="cpu", time_limit=FOREVER)
        assert whole["n_settings"] == TUNINGS["few"].n_settings == len(candidates(spec))
        assert whole["best"] in candidates(spec)

    def test_a_search_that_is_cut_has_the_best_so_far(self, tmp_path, monkeypatch):
        settings = {"n_members": 1, "epochs": 1, "hidden_dim": 8}
        spec = RunSpec("yeast", "asl", 1, train_fraction=0.05, settings=settings, tuning="few")

        class Interrupted(tuning.PackedSearch):
            def fit(self, *rows, **more):
                if len(self.space) > 1:
                    raise OutOfTime
                return super().fit(*rows, **more)

        monkeypatch.setattr(tuning, "PackedSearch", Interrupted)
        for name, limit in (("whole", FOREVER._replace(cuts_searches=False)), ("cut", FOREVER)):
            store = Store(tmp_path / name)
            if name == "whole":
                with pytest.raises(OutOfTime):
                    tuned_settings(spec, store, device="cpu", time_limit=limit)
            else:
                found = tuned_settings(spec, store, device="cpu", time_limit=limit)
                assert (found["n_settings"], found["best"]) == (1, candidates(spec)[0])


def test_all_networks_draw_as_many_settings_from_spaces_of_about_one_size():
    sizes = {}
    for method in filter(is_network, REGISTRY):
        if REGISTRY[method].row:
            spec = RunSpec("yeast", method, tuning="equal")
            assert len(candidates(spec)) == TUNINGS["equal"].n_settings
            sizes[method] = 1
            for values in REGISTRY[method].space.values():
                sizes[method] *= len(values)
    assert len(sizes) == 6
    assert max(sizes.values()) < 6 * min(sizes.values())
