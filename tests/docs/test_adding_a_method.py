"""The page on adding a method, followed to the letter, ends in a method that keeps the contract."""

import os
import re
import shutil
import subprocess
import sys

import pytest
from pages import ROOT


@pytest.mark.slow
def test_the_method_of_the_page_keeps_the_contract(tmp_path):
    page = (ROOT / "docs" / "adding_a_method.md").read_text(encoding="utf-8")
    code = re.sub("^   ", "", re.search(r"```python\n(.*?)```", page, re.S)[1], flags=re.M)
    shutil.copytree(ROOT / "src" / "cgmvae", tmp_path / "cgmvae")
    for name in ("conftest.py", "contracts"):
        copy = shutil.copytree if "." not in name else shutil.copy
        copy(ROOT / "tests" / name, tmp_path / name)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow gpu\n")
    (tmp_path / "cgmvae" / "methods" / "class_means.py").write_text(code, encoding="utf-8")
    registry = tmp_path / "cgmvae" / "methods" / "registry.py"
    entry = '"class-means": Method("class means", "class_means.ClassMeans", "nobody"),'
    text = registry.read_text(encoding="utf-8")
    registry.write_text(text.replace('        "rbcc": Method(', f'{entry}"rbcc": Method('))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "ClassMeans"]
    done = subprocess.run(
        [*command, "contracts"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) >= 25
