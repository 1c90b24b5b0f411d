"""The generated parts of pages are those of today's code and data files."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from pages import ROOT

sys.path.insert(0, str(ROOT / "tools"))

import generated

PAGES = {str(path.relative_to(ROOT)): path for path in generated.generated_pages()}

#: Pages of results that were measured by one command, and have all of its numbers in a file.
MEASURED = ("ablation", "generalize", "paper", "speed")


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


def test_numbers_lose_their_leading_zero_and_nothing_else():
    given = "C-GMVAE 0.5, 20.20, -0.013 [-0.1, +0.0], 10.0 s, 0.00"
    shown = "C-GMVAE .5, 20.20, −.013 [−.1, +.0], 10.0 s, .00"
    assert generated.paper_tables.short(given) == shown


METHODS = """# Made 2026-11-20 by `cgmvae paper` on one H200, commit x, in 9 s; 5 of 8 runs.
table,method,example-F1,micro-F1,macro-F1,runs
"yeast, thresholds: test-oracle","C-GMVAE, network tuned",0.668,0.686 ± – ± 0.000,0.446,2 of 4
"yeast, thresholds: test-oracle",— the paper,,0.665,,
"scene, thresholds: test-oracle",ML-kNN,stopped after 3 s,,,

table,data,missing runs,estimated minutes
Not run yet,scene,mlknn: 3,7
Not run yet,ebird,not available: put it there,
"""
CLAIM = "“GM + contrastive” above “GM only”"
ABLATION = f"""# Made 2026-11-20 by `cgmvae paper` on one H200, commit x, in 9 s; 8 of 8 runs.
table,data,claim,example-F1,micro-F1,macro-F1,splits
"A: network paper, thresholds: validation",yeast,{CLAIM},"+0.020 [+0.010, +0.030]: found",\
"-0.020 [-0.030, -0.010]: not found","+0.001 [-0.003, +0.005]: not found",10
"A: network paper, thresholds: validation",scene,{CLAIM},"+0.020 [-0.010, +0.030]: undecided",\
-0.020: too few splits,+0.001,3
"A: network paper, thresholds: test-oracle",yeast,{CLAIM},"+0.020 [+0.010, +0.030]: found",,,10
"""


def test_the_page_of_the_paper_says_what_was_found_and_what_was_not_run(tmp_path, monkeypatch):
    monkeypatch.setattr(generated.paper_tables, "FOLDER", tmp_path)
    (tmp_path / "methods.csv").write_text(METHODS, "utf-8")
    (tmp_path / "ablation.csv").write_text(ABLATION, "utf-8")
    text = generated.PARTS_OF_PAGES["paper-methods-micro-test-oracle"]()
    assert "| C-GMVAE, network tuned | .686 (2 of 4 runs) (.665) | – (.762) |" in text
    assert "| ML-kNN | – (.625) | – (.667) |" in text
    assert "– not run: 3 of 8 runs." in text
    made = generated.PARTS_OF_PAGES["paper-made"]()
    assert made.count("Made 2026-11-20") == 1
    assert "| 5 of 8 runs | scene: mlknn: 3 (estimate: 7 minutes) |" in made
    assert "ebird" not in made
    claims = generated.PARTS_OF_PAGES["paper-claims"]()
    cells = "✓ +.020 / ✗ −.020 / = +.001 | ? +.020 / ? −.020 |"
    assert f"| both over mixture | paper | {cells}" in claims
    assert "not run" not in claims


def test_the_comparison_says_what_was_not_run_and_names_differences(monkeypatch):
    scores = {"blend": 0.7, "C-GMVAE": 0.69, "blend without C-GMVAE": 0.71, "mlp": 0.5}
    results = {
        data: {
            method: {
                seed: dict.fromkeys(generated.generalize.PROTOCOLS, [own] * 5) | {"made": "here"}
                for seed in "012"
            }
            for method, own in {**scores, "mlp": peer}.items()
        }
        for data, peer in (("flags", 0.75), ("yeast", 0.5))
    }
    results["yeast"]["tabm"] = {"0": {"not_run": "more than 600 s", "made": "there"}}
    results["flags"]["tabm"] = results["flags"]["mlp"]
    monkeypatch.setattr(generated, "_comparison", lambda: results)
    parts = generated.PARTS_OF_PAGES
    assert "| yeast | .500 | not run: more than 600 s |" in parts["peers-one"]()
    assert "| flags | 3 | .690 | .700 | .710 | mlp .750 | tabm .750 |" in parts["comparison-one"]()
    assert "ahead by more than .005 on: flags (−.050)." in parts["comparison-in-words"]()
    findings = parts["comparison-findings"]()
    assert "Blend minus C-GMVAE alone: +.010 ± .000" in findings
    assert "By more than .005: none; behind by more: flags (−.010), yeast (−.010)." in findings
    assert "blend without C-GMVAE 1.50" in parts["comparison-ranks-one"]()
    assert "| there | tabm (yeast) |" in parts["comparison-origin"]()


def commits(text):
    """Return the words that look like commits."""
    return set(re.findall(r"\b(?=\d*[a-f])(?=[a-f]*\d)[0-9a-f]{7}\b", text))


@pytest.mark.parametrize("name", MEASURED)
def test_a_page_of_results_names_commit_date_and_data_file(name):
    text = (ROOT / "docs" / "results" / f"{name}.md").read_text("utf-8")
    assert commits(text)
    assert re.search(r"\b20\d\d-\d\d-\d\d\b", text)
    files = re.findall(r"`docs/results/data/([\w.-]+)`", text)
    assert files
    assert all((generated.DATA / file).exists() for file in files)


def test_the_commits_of_pages_and_data_files_are_in_the_history():
    git = ["git", "-C", str(ROOT)]
    shallow = subprocess.run([*git, "rev-parse", "--is-shallow-repository"], capture_output=True)
    if shallow.stdout.strip() != b"false":
        pytest.skip("there is no whole history")
    pages = (ROOT / "docs").rglob("*.md")
    files = filter(Path.is_file, generated.DATA.rglob("*"))
    named = {
        commit: path.name
        for path in (*pages, *files)
        for line in path.read_text("utf-8").splitlines()
        if path.suffix == ".md" or line.startswith(("#", '{"made"'))
        for commit in commits(line)
    }
    missing = {
        commit: page
        for commit, page in named.items()
        if subprocess.run(
            [*git, "cat-file", "-e", f"{commit}^{{commit}}"], capture_output=True
        ).returncode
    }
    assert len(named) > 5
    assert missing == {}


def test_every_data_file_says_where_it_comes_from():
    files = sorted(generated.DATA.rglob("*.csv"))
    assert files
    for path in files:
        assert path.read_text("utf-8").startswith("# "), path
    assert sum(path.stat().st_size for path in files) < 1_000_000
