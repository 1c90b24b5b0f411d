"""What the commands of a study do."""

import pytest
from tiny_study import STUDY, runs

from cgmvae.errors import InputError
from cgmvae.studies import STUDIES, commands, find_study
from cgmvae.studies.commands import (
    describe_failures,
    make_scope,
    remember_scope,
    remembered_scope,
    run_study,
    study_origin,
    study_status,
    study_tables,
)
from cgmvae.studies.spec import RunSpec, Scope, make_jobs
from cgmvae.studies.store import Store


def test_a_scope_from_texts():
    scope = make_scope(quick=True, data="Yeast, nus-vec", methods="mlknn,mlp", splits="2,0,2")
    assert scope == Scope(True, ("yeast", "nus_vec"), ("mlknn", "mlp"), (2, 0), None)
    assert scope.chosen_seeds() == (0,)
    assert make_scope() == Scope()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"data": "yeats"}, "did you mean yeast"),
        ({"methods": "mlknn,ml-knn"}, "no method 'ml-knn'; choose one of .*cgmvae, .*, mlp"),
        ({"splits": "0;1"}, "'0;1' is not a list of integers; write 0,1,2"),
        ({"seeds": "-1"}, "-1 is not a valid seed"),
        ({"splits": str(2**32)}, "not a valid seed"),
    ],
)
def test_invalid_scopes(given, words):
    with pytest.raises(InputError, match=words):
        make_scope(**given)


def test_every_study_has_runs_and_tables_before_anything_was_run(tmp_path, monkeypatch):
    monkeypatch.delenv("CGMVAE_DATA", raising=False)
    monkeypatch.setenv("CGMVAE_CACHE", str(tmp_path))
    for name in STUDIES:
        study, scope = find_study(name), Scope(quick=True)
        assert study.name == name
        wanted = {spec.key for spec in study.runs(scope)}
        status = study_status(study, scope, Store(tmp_path / "runs"))
        assert status == (0, 0, 0, len(wanted)), name
        assert study_tables(study, scope, Store(tmp_path), "md").startswith("### ")


@pytest.mark.parametrize(
    ("name", "n_runs", "others"),
    [
        # The arms without the whole grid, which the main table does not need.
        ("ablation", 2 * 10 * (3 * 6 + 2 * (2 + 3 + 14)), {"main-tuned": 0}),
        ("fewer-data", 2 * 3 * 6 * 9, {"main": 2 * 6 * 9}),
    ],
)
def test_equal_runs_are_shared_between_studies(available, name, n_runs, others):
    available("yeast", "scene")  # with three splits and three seeds each
    runs = set(find_study(name).runs(Scope()))
    assert len(runs) == n_runs
    assert {each: len(runs & set(find_study(each).runs(Scope()))) for each in others} == others


def test_status_tells_apart_what_became_of_runs(whole_store, tmp_path):
    assert study_status(STUDY, Scope(), whole_store) == (9, 0, 0, 0)
    store, (first, second, *_) = Store(tmp_path), runs(Scope())
    store.write_error(first, "no memory")
    with store.claim([second]):
        assert study_status(STUDY, Scope(), store) == (0, 1, 1, 7)


def test_failures_with_the_same_reason_are_one_line(tmp_path):
    store = Store(tmp_path)
    specs = [RunSpec("yeast", "mlknn", split) for split in (0, 1, 2)]
    for spec, reason in zip(specs, ("too large", "too large", "lost"), strict=True):
        store.write_error(spec, reason)
    assert describe_failures([*specs, specs[0]], store) == [
        "mlknn on yeast (2 runs): too large",
        "mlknn on yeast (1 run): lost",
    ]


@pytest.fixture
def made_by(monkeypatch):
    """Return a function that replaces what makes a job, and the list of jobs that were made."""

    def replace(make):
        asked = []

        def run_job(job, store, *, device, time_limit):
            asked.append(job)
            return make(job, asked)

        monkeypatch.setattr(commands, "run_job", run_job)
        return asked

    return replace


def test_runs_of_another_process_are_waited_for(whole_store, tmp_path, monkeypatch, made_by):
    """A busy job is tried again until it is stored."""
    monkeypatch.setattr(commands, "_POLL_SECONDS", 0)
    store, told = Store(tmp_path), []
    (tmp_path / "runs").mkdir()

    def make(job, asked):
        if len(asked) == 1:
            return "busy"
        for spec in job:
            store.run_folder(spec).symlink_to(whole_store.run_folder(spec))
        return "done"

    asked = made_by(make)
    assert run_study(STUDY, Scope(), store, on_progress=lambda now: told.append(state(now))) == []
    jobs = make_jobs(runs(Scope()))
    assert asked == [*jobs, jobs[0]]
    assert told[0] == (0, 0, 0)
    assert told[1:3] == [(0, 1, 0), (0, 0, 1)]
    assert told[-4:] == [(8, 0, 1), (8, 1, 0), (9, 0, 0), (9, 0, 0)]


def state(progress):
    return progress.done, len(progress.running), len(progress.elsewhere)


def test_a_study_that_is_done_trains_nothing(whole_store, made_by):
    asked = made_by(lambda *_: "done")
    assert run_study(STUDY, Scope(), whole_store) == []
    assert asked == []


def test_a_pack_that_is_partly_there_is_trained_as_the_study_asks(whole_store, tmp_path, made_by):
    """In another pack a run would differ in its last digits."""
    pack = [spec for spec in runs(Scope()) if spec.method == "asl"]
    (tmp_path / "runs").mkdir()
    store = Store(tmp_path)
    for spec in runs(Scope()):
        if spec != pack[1]:
            store.run_folder(spec).symlink_to(whole_store.run_folder(spec))
    asked = made_by(lambda *_: "done")
    run_study(STUDY, Scope(), store)
    assert asked == [tuple(pack)]


def test_a_folder_remembers_with_which_scopes_a_study_was_run(tmp_path):
    store, one = Store(tmp_path), Scope(data=("yeast",), seeds=(0,))
    assert remembered_scope("tiny", store) == Scope()
    remember_scope(STUDY, one, store)
    assert remembered_scope("tiny", store) == one
    remember_scope(STUDY, Scope(data=("scene", "yeast"), methods=("mlknn",), seeds=(1,)), store)
    assert remembered_scope("tiny", store) == Scope(data=("yeast", "scene"), seeds=(0, 1))
    remember_scope(STUDY, Scope(quick=True), store)
    assert remembered_scope("tiny", store) == Scope(quick=True)
    assert remembered_scope("main", store) == Scope()


def test_tables_end_with_what_is_missing(made_up, available):
    available("yeast")
    study = find_study("main")
    scope = Scope(data=("yeast", "scene"), methods=("mlknn", "asl"), splits=(0, 1), seeds=(0,))
    made_up.keep(RunSpec("yeast", "mlknn"), 0.5)
    text = study_tables(study, scope, made_up.store, "md")
    assert text.startswith("### Mean ranks")
    assert "not run" not in text
    ending = text.partition("### Not run yet\n")[2]
    assert "| yeast | mlknn: 1, asl: 2 |" in ending
    assert "| scene | not available: put " in ending


def test_runs_of_an_installed_package_have_no_commit(made_up):
    made_up.keep(runs(Scope())[0], 0.5, environment={"commit": None, "torch": "2"})
    (table,) = study_origin(STUDY, Scope(), made_up.store)
    assert table.rows == [["–", "–", "–", "–", "2", "1"]]


def test_a_folder_that_is_not_there_has_no_tables(tmp_path):
    nowhere = Store(tmp_path / "nowhere")
    with pytest.raises(InputError, match="There is no folder"):
        study_tables(find_study("main"), Scope(quick=True), nowhere, "md")
    assert study_tables(find_study("stats"), Scope(quick=True), nowhere, "md")  # it has no runs
