"""The page of a folder of runs: tables and figures of the studies, escaped, self-contained."""

import numpy as np
import pytest

from cgmvae.data.splits import Split
from cgmvae.errors import InputError
from cgmvae.report.results_page import (
    OPEN_PICTURES,
    collect_studies,
    render_results,
    stored_keys,
    study_display,
    write_results_page,
)
from cgmvae.studies.commands import find_study, run_study
from cgmvae.studies.engines import local_engine
from cgmvae.studies.results import Results
from cgmvae.studies.spec import RunSpec, Scope, Study, StudyFigure
from cgmvae.studies.store import RunRecord, Store
from cgmvae.studies.tables import Cell, Table

from .conftest import Elements, emulate, requested

HOSTILE = '<img src="x" onerror="alert(1)"></script>{{ 7 * 7 }}'
MADE = Scope(quick=True, data=("yeast",), methods=("mlknn", "binary-relevance"), splits=(0, 1))
FOUND, FAILED = RunSpec("yeast", "mlknn"), RunSpec("yeast", "mlknn", seed=1)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Return a store with real runs of the main study."""
    store = Store(tmp_path_factory.mktemp("results"))
    assert run_study(find_study("main"), MADE, store, local_engine(device="cpu")) == []
    return store


@pytest.fixture(scope="module")
def page(store, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "page.html"
    write_results_page(store, Scope(quick=True), path, command="cgmvae report <runs>")
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def hostile_page(tmp_path_factory):
    """Write the page of a study whose every text is markup, with all kinds of figures."""
    store = Store(tmp_path_factory.mktemp("hostile"))
    split = Split([0], [1], [2], kind="random", seed=0, train_fraction=1.0)
    store.write(FOUND, RunRecord(split, {"device": HOSTILE}, {}, {}))
    store.write_error(FAILED, HOSTILE)
    study = Study(
        HOSTILE, f"{HOSTILE} of a study", lambda _: [FOUND, FAILED], _hostile_tables, _figures
    )
    found = collect_studies(store, Scope(), studies={"hostile": study})
    path = tmp_path_factory.mktemp("page") / "page.html"
    page = render_results(found, quick=False, stored={"other"}, command=HOSTILE)
    path.write_text(page, encoding="utf-8")
    return path


def _hostile_tables(*_):
    row = [HOSTILE, Cell(HOSTILE, "best"), Cell("0.5", "second"), *["0.123 ± 0.456 ± 0.789"] * 20]
    notes = [f"**{HOSTILE}**, *{HOSTILE}*, `{HOSTILE}`", "a_long_word_" * 40]
    short = [HOSTILE, "not run"]
    return [Table(HOSTILE, [HOSTILE, *map(str, range(22))], [row, short], notes)]


def _figures(*_):
    fewer = {
        "fractions": [0.1, 1.0],
        "methods": [HOSTILE],
        "values": np.array([[0.1, 0.2]]),
        "deviations": np.full((1, 2), 0.01),
        "metric": HOSTILE,
        "data": HOSTILE,
    }
    ranks = {"names": ["a", HOSTILE], "mean_ranks": [1.2, 1.8], "critical_difference": 0.5}
    alike = {"names": ["a", HOSTILE], "matrix": np.eye(2)}
    return [
        StudyFigure("ranks", "critical-difference", ranks),
        StudyFigure("alike_cgmvae", "similarity", alike),
        *[StudyFigure(f"{HOSTILE}_{i}", "fewer-data", fewer) for i in range(OPEN_PICTURES)],
    ]


def test_the_tables_are_those_of_the_study(page, store):
    study, scope = find_study("main"), Scope(quick=True)
    expected = study.tables(Results(scope, store))
    elements = Elements(page)
    assert len(expected) > 3
    shown = dict(zip([table.title for table in expected], elements.tables, strict=False))
    for table in expected:
        rows = [[getattr(cell, "text", cell) for cell in row] for row in table.rows]
        assert shown[table.title] == [list(table.columns), *rows]
        assert table.title in elements.texts
    tags = {"best": "strong", "second": "em"}
    cells = [cell for table in expected for row in table.rows for cell in row]
    marks = [(tags[cell.mark], cell.text) for cell in cells if getattr(cell, "mark", None)]
    assert elements.marked == marks
    assert {tag for tag, _ in marks} == {"strong", "em"}


def test_it_says_where_the_runs_were_made_and_how_many_there_are(page, store):
    elements = Elements(page)
    assert "cgmvae bench main --quick" in elements.texts
    assert "cgmvae report <runs>" in elements.texts
    origin = store.environment(find_study("main").runs(MADE)[0])
    assert elements.tables[-1][1][:2] == [origin["date"], origin["device"]]
    assert elements.tables[-1][1][-1] == "4"
    wanted = len(find_study("main").runs(Scope(quick=True)))
    assert any(text.startswith(f"4 of {wanted:,} runs are complete") for text in elements.texts)
    assert "more complete run" not in page


def test_the_contents_lead_to_every_study_with_runs_and_nowhere_else(page, hostile_page):
    for text in (page, hostile_page.read_text(encoding="utf-8")):
        elements = Elements(text)
        ids = {attributes["id"] for _, attributes in elements.found if "id" in attributes}
        targets = {a["href"][1:] for tag, a in elements.found if tag == "a"}
        assert targets <= ids
        assert {each for each in ids if each.startswith("study-")} <= targets
        assert elements.outside() == []
        assert not {"study-ablation", "study-stats"} & ids


def test_no_text_becomes_markup(hostile_page):
    elements = Elements(hostile_page.read_text(encoding="utf-8"))
    tags = [tag for tag, _ in elements.found]
    assert tags.count("script") == 1
    assert tags.count("svg") == tags.count("figure") == OPEN_PICTURES + 2
    assert not any("onerror" in attributes for _, attributes in elements.found)
    assert "49" not in elements.texts
    assert elements.tables[0][0][0] == elements.tables[0][1][0] == HOSTILE
    assert ("strong", HOSTILE) in elements.marked
    assert elements.texts.count(f"{HOSTILE} of a study") == 2
    assert f"mlknn on yeast (1 run): {HOSTILE}" in elements.texts
    assert HOSTILE in elements.tables[1][1]
    assert any("The folder holds 1 more complete run that" in text for text in elements.texts)


def test_folders_without_runs(store, tmp_path):
    with pytest.raises(InputError, match="holds no runs; name a folder"):
        collect_studies(Store(tmp_path), Scope())
    (tmp_path / "runs" / "unfinished").mkdir(parents=True)
    assert stored_keys(Store(tmp_path)) == set()
    other = {"other": Study("other", "Other", lambda _: [FAILED], lambda *_: [])}
    with pytest.raises(
        InputError, match=r"the full version of a study on data .* try the quick version"
    ):
        collect_studies(store, Scope(), studies=other)
    with pytest.raises(InputError, match="try the full version"):
        collect_studies(store, Scope(quick=True), studies=other)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_in_a_browser(browser, hostile_page, width, scheme):
    emulate(browser, width, 900, scheme)
    browser.get_log("performance")
    browser.get(hostile_page.as_uri())
    browser.execute_script("document.querySelectorAll('details').forEach((e) => e.open = true)")
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    outside = browser.execute_script(
        "return [...document.querySelectorAll('main *')]"
        ".filter((e) => !e.closest('.picture, pre, .wide-table > *'))"
        ".filter((e) => e.getBoundingClientRect().right > innerWidth + 1)"
        ".map((e) => e.outerHTML.slice(0, 80))"
    )
    assert outside == []
    theme = "return document.documentElement.dataset.theme"
    assert browser.execute_script(theme) == scheme
    browser.find_element("id", "theme").click()
    assert browser.execute_script(theme) == ("light" if scheme == "dark" else "dark")
    browser.execute_script("localStorage.removeItem('theme')")
    assert requested(browser) <= {"file", "data"}
    assert browser.get_log("browser") == []


def test_similarity_keeps_the_order_of_the_study():
    contents = {"names": ["gull", "duck", "owl"], "matrix": np.eye(3)[::-1]}
    display = study_display(StudyFigure("birds", "similarity", contents))
    assert display.order.tolist() == [0, 1, 2]


def test_an_unknown_kind():
    with pytest.raises(InputError, match="kind 'pie'"):
        study_display(StudyFigure("a", "pie", {}))
