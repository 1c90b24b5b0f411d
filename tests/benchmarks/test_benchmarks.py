"""Every program in ``benchmarks/`` runs with ``--quick`` and prints its numbers."""

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"

#: Files that only hold what the benchmarks share.
SHARED = {"measurement", "fuzz_inputs"}

#: A result that each benchmark prints, with its number.
EXPECTED = {
    "ablation": r"\| yeast \| 2 \| [+-]0\.\d+ ± 0\.\d+ \| ",
    "fit_time": r"\| yeast \| C-GMVAE \| \d+\.\d+ \| \d+\.\d+ \| \d+ \| 0\.\d+ \|",
    "fuzz": r"\| checkpoint \| 30 \| [1-9]\d* \| \d+ \| 0 \|",  # those as they are can be read
    "generalize": r"\| yeast \| 0\.\d+ \| 0\.\d+ \| 0\.\d+ \| 0\.\d+ \| [+-]0\.\d+ \|",
    "gpu": r"weights alone and in the pack differ by \d",
    "kills": r"\| save \| 1 \| .*\| 1 of 1 \|",
    "scale": r"mapped, 1,000 rows .* micro-F1 0\.\d+",
    "serve": r"\| all types \| altered bytes \| (200|422): \d",
}

#: These fork processes, which a process with threads, such as this one, must not do.
FORKING = {"fuzz", "kills"}

#: Ten readers, several runs of five commands, and generated requests take long on tiny data too.
SLOW = {"fuzz", "kills", "serve"}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(path.stem, marks=pytest.mark.slow if path.stem in SLOW else ())
        for path in sorted(FOLDER.glob("*.py"))
        if path.stem not in SHARED
    ],
)
def test_quick_run(name, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    path = str(FOLDER / f"{name}.py")
    if name in FORKING:
        code = subprocess.run([sys.executable, path, "--quick"], check=False).returncode
    else:
        monkeypatch.syspath_prepend(FOLDER)
        monkeypatch.setattr(sys, "argv", [path, "--quick"])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(path, run_name="__main__")
        code = ended.value.code
    printed, errors = capfd.readouterr()
    assert code == 0, printed + errors
    assert re.search(EXPECTED[name], printed), printed + errors
    assert list(tmp_path.iterdir()) == []


def test_a_fit_that_takes_too_long_is_ended_and_other_files_are_added(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    import generalize

    out, other = tmp_path / "own.json", tmp_path / "other.json"
    mine = {"yeast": {"mlp": {"0": {"validation": [0.5] * 5}, "1": {"not_run": "more than 9 s"}}}}
    theirs = {"yeast": {"mlp": {"0": {"not_run": "no"}, "1": {"validation": [0.7] * 5}}}}
    out.write_text(json.dumps(mine))
    other.write_text(json.dumps(theirs))
    command = ["--quick", "--out", str(out), "--merge", str(other), "--jobs", "2"]
    with pytest.raises(SystemExit):
        generalize.main(command)  # without a limit
    assert generalize.main([*command, "--limit", "0.1"]) == 0
    found = json.loads(out.read_text())
    assert found["yeast"]["mlp"]["1"] == {"validation": [0.7] * 5}
    assert generalize.means(found, "validation")["yeast"] == {"mlp": 0.6}
    for method in (*generalize.OURS, "extra-trees"):
        assert found["yeast"][method]["0"]["not_run"] == "more than 0.1 s"
        assert "commit" in found["yeast"][method]["0"]["made"]


@pytest.mark.slow
def test_a_fit_in_a_process_of_its_own_gives_the_same(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    from generalize import Cell

    cell = Cell("yeast", "linear-svm", 0, True)
    apart, here = cell.run_apart(600, 1), cell.run()
    assert apart["linear-svm"]["validation"] == pytest.approx(here["linear-svm"]["validation"])
