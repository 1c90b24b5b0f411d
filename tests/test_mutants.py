"""Tests notice small changes of the source; see ``tools/mutants.py``."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
from mutants import MIN_CAUGHT, ROOT, mutants, run


def test_the_source_has_every_text_that_is_to_be_changed():
    listed = mutants()
    assert len(set(listed)) == len(listed) >= 100
    for mutant in listed:
        text = (ROOT / "src" / "cgmvae" / mutant.file).read_text(encoding="utf-8")
        assert mutant.old != mutant.new
        assert text.count(mutant.old) == 1, f"{mutant}: change tools/mutants.py with the source"
        assert all((ROOT / "tests" / test.partition("::")[0]).is_file() for test in mutant.tests)


@pytest.mark.slow
def test_nearly_all_mutants_are_caught():
    results = list(run(mutants(), workers=os.cpu_count() or 1))
    survivors = [str(result.mutant) for result in results if not result.is_caught]
    assert len(survivors) <= (1 - MIN_CAUGHT) * len(results), "\n".join(survivors)
