"""The table of results in the README is a part of the page that it names."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
METHODS = ("cgmvae", "random_forest", "extra_trees", "logistic_regression")


def cells(line):
    return [cell.strip(" *") for cell in line.strip("|").split("|")]


def test_the_results_of_the_readme_are_those_of_the_page():
    page = (ROOT / "docs" / "results" / "accuracy.md").read_text()
    unseen = page.split("### validation, mean over splits 3, 4, 5, 6, 7\n")[1].split("\n###")[0]
    micro_f1 = {(c[0], c[1]): c[3] for line in unseen.splitlines() if len(c := cells(line)) == 7}
    readme = (ROOT / "README.md").read_text().split("## Results\n")[1].split("\n## ")[0]
    rows = [cells(line) for line in re.findall(r"^\|.*\d\.\d.*\|$", readme, re.M)]
    assert len(rows) == 6
    for data, *shown in rows:
        found = [micro_f1.get((data, method)) for method in METHODS]
        assert shown == ["–" if value is None else f"{float(value):.3f}" for value in found]
