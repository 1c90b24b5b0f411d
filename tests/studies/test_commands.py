"""What the commands of a study do, and ``python -m cgmvae.studies``, which needs no others."""

import pytest
from tiny_study import STUDY, runs

from cgmvae.errors import InputError
from cgmvae.studies.__main__ import main
from cgmvae.studies.commands import (
    STUDIES,
    describe_failures,
    find_study,
    make_scope,
    run_study,
    study_origin,
    study_status,
    study_tables,
)
from cgmvae.studies.spec import RunSpec, Scope
from cgmvae.studies.store import Store

SMALL = ("--data", "yeast", "--methods", "mlknn", "--splits", "0")


def test_a_scope_from_texts():
    scope = make_scope(quick=True, data="Yeast, nus-vec", methods="mlknn,mlp", splits="2,0,2")
    assert scope == Scope(True, ("yeast", "nus_vec"), ("mlknn", "mlp"), (2, 0), None)
    assert scope.chosen_seeds() == (0,)
    assert make_scope() == Scope()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"data": "yeats"}, "did you mean yeast"),
        ({"methods": "mlknn,ml-knn"}, "no method 'ml-knn'; choose one of cgmvae, .*, mlp"),
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
    for name, study in STUDIES.items():
        scope = Scope(quick=True)
        wanted = {spec.key for spec in study.runs(scope)}
        status = study_status(study, scope, Store(tmp_path / "runs"))
        assert status == (0, 0, 0, len(wanted)), name
        assert study_tables(study, scope, Store(tmp_path), "md").startswith("### ")


@pytest.mark.parametrize(
    ("name", "n_runs", "others"),
    [
        ("ablation", 2 * 9 * 9, {"main": 2 * 9}),  # 5 + 4 variants, of which one is the default
        ("replacement", 2 * 4 * 9, {"main": 2 * 9, "ablation": 2 * 2 * 9}),
        ("claims", 2 * 9 * 28, {"main": 2 * 9 * 5, "ablation": 2 * 9 * 2}),
        ("fewer-data", 2 * 3 * 6 * 9, {"main": 2 * 6 * 9}),
    ],
)
def test_equal_runs_are_shared_between_studies(available, name, n_runs, others):
    available("yeast", "scene")  # with three splits and three seeds each
    runs = set(STUDIES[name].runs(Scope()))
    assert len(runs) == n_runs
    assert {each: len(runs & set(STUDIES[each].runs(Scope()))) for each in others} == others


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


def test_runs_of_another_process_are_waited_for(whole_store, tmp_path, monkeypatch):
    """A busy job is tried again until it is stored."""
    monkeypatch.setattr("cgmvae.studies.commands._POLL_SECONDS", 0)
    asked, told = [], []

    def engine(jobs, store):
        asked.append(len(jobs))
        for job in jobs:
            if len(asked) == 1 and job == jobs[0]:
                yield job, "busy"
            else:
                for spec in job:
                    (tmp_path / "runs").mkdir(exist_ok=True)
                    store.run_folder(spec).symlink_to(whole_store.run_folder(spec))
                yield job, "done"

    def record(progress) -> None:
        told.append((progress.done, len(progress.elsewhere)))

    assert run_study(STUDY, Scope(), Store(tmp_path), engine, on_progress=record) == []
    assert asked == [5, 1]
    assert told[0] == (0, 0)
    assert told[5] == (8, 1)
    assert told[-1] == (9, 0)


def test_a_study_that_is_done_trains_nothing(whole_store):
    def engine(jobs, _):
        pytest.fail(f"{len(jobs)} jobs were made again")

    assert run_study(STUDY, Scope(), whole_store, engine) == []


def test_a_pack_that_is_partly_there_is_trained_as_the_study_asks(whole_store, tmp_path):
    """In another pack a run would differ in its last digits."""
    pack = [spec for spec in runs(Scope()) if spec.method == "asl"]
    (tmp_path / "runs").mkdir()
    store = Store(tmp_path)
    for spec in runs(Scope()):
        if spec != pack[1]:
            store.run_folder(spec).symlink_to(whole_store.run_folder(spec))
    asked = []

    def engine(jobs, _):
        asked.extend(jobs)
        return iter(())

    run_study(STUDY, Scope(), store, engine)
    assert asked == [tuple(pack)]


def test_the_bare_command_line(capsys, tmp_path):
    folder = ("--folder", str(tmp_path))
    assert main(["main", *SMALL, *folder]) == 0
    printed = capsys.readouterr()
    assert "now: mlknn on yeast" in printed.err
    assert "1 of 1 runs" in printed.err
    assert main(["table", "main", *SMALL, *folder]) == 0
    assert capsys.readouterr().out == printed.out
    assert main(["status", "main", *SMALL, *folder]) == 0
    assert capsys.readouterr().out == "main, 1 done, 0 running, 0 failed, 0 missing\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("main", "--data", "yeats"),
        ("main", *SMALL, "--folder", "/proc/none"),
        ("table", "mian"),
    ],
)
def test_bad_input_is_one_line(capsys, arguments):
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines()[-1].startswith("Error: ")


def test_runs_of_an_installed_package_have_no_commit(made_up):
    made_up.keep(runs(Scope())[0], 0.5, environment={"commit": None, "torch": "2"})
    (table,) = study_origin(STUDY, Scope(), made_up.store)
    assert table.rows == [["–", "–", "–", "–", "2", "1"]]


def test_a_folder_that_is_not_there_has_no_tables(tmp_path):
    nowhere = Store(tmp_path / "nowhere")
    with pytest.raises(InputError, match="There is no folder"):
        study_tables(find_study("main"), Scope(quick=True), nowhere, "md")
    assert study_tables(find_study("stats"), Scope(quick=True), nowhere, "md")  # it has no runs
