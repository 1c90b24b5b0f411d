"""``cgmvae bench``: run studies, show their progress, write tables and figures."""

import csv
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cgmvae.cli.main import app
from cgmvae.studies import STUDIES
from cgmvae.studies.spec import RunSpec
from cgmvae.studies.store import Store

SMALL = ("--data", "yeast", "--methods", "mlknn,binary-relevance", "--splits", "0,1", "--quick")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Return the folder of a study that was run; tests must not change it."""
    folder = tmp_path_factory.mktemp("bench") / "runs"
    result = CliRunner().invoke(app, ["bench", "main", *SMALL, "--folder", str(folder)])
    assert (result.exit_code, result.stderr) == (0, "")
    return folder


def test_it_lists_every_study(succeeds):
    text = succeeds("bench", "--help")
    for name, study in STUDIES.items():
        assert re.search(rf"^  {name} +{re.escape(study.title[:20])}", text, re.MULTILINE)
        assert study.title in " ".join(succeeds("bench", name, "--help").split())
    for name in ("communities", "status", "table", "figures"):
        assert f"  {name} " in text
    assert "<" not in text


def test_status_before_and_after(succeeds, folder, tmp_path):
    before = succeeds("bench", "status", "main", *SMALL, "--folder", tmp_path)
    assert re.search(r"main +0 +0 +0 +4", before)
    after = succeeds("bench", "status", "main", *SMALL, "--folder", folder)
    assert re.search(r"main +4 +0 +0 +0", after)
    everything = succeeds("bench", "status", "--folder", folder, "--quick")
    for name in STUDIES:
        assert f" {name} " in everything


def test_the_table_in_every_format(succeeds, folder, tmp_path):
    table = ("bench", "table", "main", *SMALL, "--folder", folder)
    assert "| ML-kNN |" in succeeds(*table)
    assert r"\begin{tabular}" in succeeds(*table, "--format", "tex")
    assert "<table>" in succeeds(*table, "--format", "html")
    out = tmp_path / "main.csv"
    assert succeeds(*table, "--format", "csv", "--out", out) == f"Wrote {out}.\n"
    rows = list(csv.reader(out.read_text(encoding="utf-8").splitlines()))
    assert sum(row[1:2] == ["ML-kNN"] for row in rows) == 4  # ranks, and three protocols
    again = succeeds("bench", "main", *SMALL, "--folder", folder)
    assert again == succeeds(*table)  # nothing is run twice, and the same is printed


def test_figures(succeeds, folder, tmp_path):
    draw = ("bench", "figures", "main", *SMALL, "--folder", folder, "--out", tmp_path / "new")
    assert "main_validation.png" in succeeds(*draw)
    assert (tmp_path / "new" / "main_validation.png").read_bytes().startswith(b"\x89PNG")
    succeeds(*draw, "--format", "svg")
    assert "C-GMVAE" not in (tmp_path / "new" / "main_validation.svg").read_text()
    assert "nothing to draw" in succeeds("bench", "figures", "stats", "--out", tmp_path)


def test_tables_and_figures_are_of_what_was_run_without_its_options(succeeds, folder, tmp_path):
    own = ("--folder", folder)
    table = succeeds("bench", "table", "main", *own)
    assert table == succeeds("bench", "table", "main", *SMALL, *own)
    assert "main_validation.png" in succeeds(
        "bench", "figures", "main", *own, "--out", tmp_path / "drawn"
    )
    text = succeeds("bench", "status", *own)
    assert re.search(r"main +4 +0 +0 +0", text)
    names = re.findall(r"^ ([a-z-]+) +\d", text, re.MULTILINE)
    assert names[0] == "main"
    assert set(names) == set(STUDIES)


WRONG_USE = {
    "No such command 'mian'": ("mian",),
    "There is no study 'mian'": ("table", "mian"),
    "There is no format 'xls'": ("table", "main", "--format", "xls"),
    "no format 'gif'": ("figures", "main", "--out", "a", "--format", "gif"),
    "did you mean yeast": ("main", "--data", "yeats"),
    "--workers": ("main", "--workers", "0"),
    "There is no device 'tpu9'": ("main", "--device", "tpu9"),
    "There is no set 'fish'": ("communities", "--data", "fish"),
    "learns no label sets": ("label-sets", "--methods", "mlknn"),
    "no format 'xls'": ("label-sets", "--format", "xls"),
    "not a list of tasks": ("communities", "--tasks", "one"),
    "name the folder that holds norberg2019/": ("communities",),
    "Cannot create the folder /proc/none": ("main", "--quick", "--folder", "/proc/none"),
}


def test_wrong_use_is_one_sentence_before_anything_is_computed(refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CGMVAE_DATA", str(tmp_path))
    for words, arguments in WRONG_USE.items():
        assert words in refused("bench", *arguments)
    assert list(tmp_path.iterdir()) == []


def test_runs_that_failed_are_named_with_their_reason(cgmvae, succeeds, tmp_path, monkeypatch):
    def break_down(*_, **__):
        raise MemoryError("no more")

    small = ("--data", "yeast", "--methods", "mlknn", "--splits", "0,1", "--folder", tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("cgmvae.studies.runner.make_records", break_down)
        outcome = cgmvae("bench", "main", *small)
    line = "mlknn on yeast (2 runs): MemoryError: no more"
    assert (outcome.code, outcome.err) == (1, f"Warning: {line}\n")
    assert "| ML-kNN | MemoryError: no more |" in outcome.out
    assert line in succeeds("bench", "status", "main", *small)
    assert "MemoryError" not in succeeds("bench", "main", *small)  # it is tried again


def test_a_damaged_run_says_so(refused, succeeds, tmp_path):
    small = ("--data", "yeast", "--methods", "mlknn", "--splits", "0", "--folder", tmp_path)
    succeeds("bench", "main", *small)
    report = Store(tmp_path).run_folder(RunSpec("yeast", "mlknn")) / "report.json"
    report.write_text("{")
    sentence = refused("bench", "table", "main", *small)
    assert sentence == f"{report} is damaged; remove {report.parent} and run the study again."


def test_ctrl_c_keeps_finished_runs_and_the_same_command_resumes(
    tmp_path, folder, cgmvae, succeeds, monkeypatch
):
    write = Store.write

    def write_and_stop(*arguments):
        write(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Store, "write", write_and_stop)
        outcome = cgmvae("bench", "main", *SMALL, "--folder", tmp_path)
    assert (outcome.code, outcome.out) == (130, "")
    assert outcome.err == (
        f"Error: Stopped; finished runs are kept in {tmp_path}, and the same command resumes.\n"
    )
    assert len(list((tmp_path / "runs").glob("*/report.json"))) == 1
    again = succeeds("bench", "main", *SMALL, "--folder", tmp_path)
    whole = succeeds("bench", "table", "main", *SMALL, "--folder", folder)
    numbers, where = "### Mean ranks", "### Where the runs were made"  # on another day, perhaps
    assert again.startswith(numbers)
    assert again.partition(where)[0] == whole.partition(where)[0]
