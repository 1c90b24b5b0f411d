"""The generated parts of pages are those of today's code and data files."""

import sys

import pytest
from pages import ROOT

sys.path.insert(0, str(ROOT / "tools"))

import generated

PAGES = {str(path.relative_to(ROOT)): path for path in generated.generated_pages()}


def test_all_parts_are_on_a_page():
    text = "".join(path.read_text("utf-8") for path in PAGES.values())
    assert all(f"<!-- begin {name} -->" in text for name in generated.PARTS_OF_PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_current(page):
    text = PAGES[page].read_text("utf-8")
    assert generated.rendered(text) == text, "run tools/generated.py"


def test_the_options_of_fit_are_in_the_reference():
    text = PAGES["docs/reference/cli.md"].read_text("utf-8")
    fit = text.split("## cgmvae fit\n")[1].split("\n## ")[0]
    assert all(f"`{option}" in fit for option in ("--method", "--setting", "--label-sets"))


def test_a_sign_agrees_with_its_interval():
    for record in generated.records("claims.csv"):
        low, high = float(record["low"]), float(record["high"])
        sign = generated.symbol(record)
        assert low <= float(record["difference"]) <= high
        # Intervals are rounded to three digits.
        assert {
            "✓": low >= 0 and high >= 0.01,
            "=": high <= 0.01 and record["high"].startswith("+"),
            "✗": high <= 0,
            "?": high >= 0.01 and low <= 0.0005,
        }[sign], record


def test_the_count_of_the_caveats_is_that_of_the_file():
    page = PAGES["docs/results/paper.md"].read_text("utf-8")
    grid = page.split("<!-- begin claims -->")[1].split("<!-- end claims -->")[0]
    signs = {sign: grid.count(f"{sign}\u00a0") for sign in "✓=✗?"}
    assert f"{signs['✓']} of the {sum(signs.values())} verdicts in the first table" in page


def test_every_data_file_says_where_it_comes_from():
    files = sorted(generated.DATA.glob("*.csv"))
    assert files
    for path in files:
        assert path.read_text("utf-8").startswith("# "), path
    assert sum(path.stat().st_size for path in files) < 1_000_000
