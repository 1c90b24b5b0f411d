"""Tests notice small changes of the source; see ``tools/mutants.py``."""

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
import mutants
from mutants import PACKAGE, ROOT, Result


def test_the_source_has_every_text_that_is_to_be_changed():
    listed = mutants.mutants()
    assert len(set(listed)) == len(listed) >= 100
    for mutant in listed:
        text = (PACKAGE / mutant.file).read_text(encoding="utf-8")
        assert mutant.old != mutant.new
        assert text.count(mutant.old) == 1, f"{mutant}: change tools/mutants.py with the source"
        assert all((ROOT / "tests" / test.partition("::")[0]).is_file() for test in mutant.tests)


def test_results_of_other_sources_are_not_taken(tmp_path):
    file, (first, second) = tmp_path / "results.jsonl", mutants.mutants()[:2]
    mutants.store(file, "one", Result(first, "tests/test_it.py::test_it", 1.5))
    mutants.store(file, "other", Result(second, "", 2.0))
    assert mutants.stored(file, "one") == {first: Result(first, "tests/test_it.py::test_it", 1.5)}
    assert mutants.stored(tmp_path / "none", "one") == {}


@pytest.mark.slow
def test_nearly_all_mutants_are_caught(tmp_path):
    command = [sys.executable, str(ROOT / "tools" / "mutants.py"), "--results"]
    done = subprocess.run([*command, str(tmp_path / "results")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
