"""Every program in ``benchmarks/`` runs with ``--quick`` and prints its numbers."""

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
    "accuracy": r"\| yeast \| \*C-GMVAE − best peer\* \| [+-]0\.\d+ ±",
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
