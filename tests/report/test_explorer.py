"""The page in a real browser: its numbers against the library, and its safety."""

import csv
import re

import numpy as np
import pytest
from selenium.webdriver import Keys
from selenium.webdriver.common.by import By

from cgmvae.evaluation import GlobalThreshold, LabelThresholds
from cgmvae.report.explorer import FLOOR
from cgmvae.report.figures.similarity import association, pair_counts

from .conftest import requested

pytestmark = pytest.mark.slow


@pytest.fixture
def page(open_page, report):
    return open_page(report)


def known_labels(test):
    return np.where(test.unknown, 0, test.Y).astype(bool), ~test.unknown


# --- Thresholds -----------------------------------------------------------------------------------


def test_the_models_own_numbers(page):
    expected = page.measured(page.report.model.threshold_rule_)
    assert page.live() == expected
    shown = [line.text for line in page.all("[data-metric] .own .value")]
    assert [text.split()[0] for text in shown] == list(expected.values())
    assert re.search(r"; \d+% of the predicted labels are correct, \d+% of", page.text("#live-say"))


def test_numbers_under_any_threshold(page):
    for threshold in (0.01, 0.1234, 1.0):
        page.set_threshold("#threshold-number", threshold)
        assert page.live() == page.measured(GlobalThreshold(threshold))


def test_the_slider_by_keyboard(page):
    slider = page.find("#threshold")
    start = round(page.report.model.threshold_rule_.threshold * 100)
    page.browser.execute_script("arguments[0].focus()", slider)
    slider.send_keys(*[Keys.ARROW_RIGHT] * 7)
    assert page.find("#threshold-number").get_attribute("value") == f"{(start + 7) / 100:.2f}"
    assert page.live() == page.measured(GlobalThreshold((start + 7) / 100))
    assert "▲" in page.text("#live") or "▼" in page.text("#live")


def test_a_threshold_for_one_label(page):
    true, _ = known_labels(page.report.test)
    middle = round(float(np.median(page.report.scores[true[:, 0], 0])), 2)  # many cells change
    page.choose(page.names[0])
    page.set_threshold("#label-threshold-number", middle)
    thresholds = np.full(len(page.names), page.report.model.threshold_rule_.threshold)
    thresholds[0] = middle
    assert page.live() == page.measured(LabelThresholds(thresholds))
    page.set_threshold("#threshold-number", 0.4)  # all but the one set by hand
    thresholds[1:] = 0.4
    assert page.live() == page.measured(LabelThresholds(thresholds))
    assert page.text("#by-hand button") == f"{page.names[0]} {middle:.2f} ×"
    page.find("#by-hand button").click()
    assert page.live() == page.measured(GlobalThreshold(0.4))


def test_rules_that_are_not_one_threshold(open_page, ruled_report):
    page = open_page(ruled_report)
    own = ruled_report.model.threshold_rule_
    assert page.live() == page.measured(own)
    page.set_threshold("#threshold-number", 0.33)
    assert page.live() == page.measured(GlobalThreshold(0.33))
    page.find("#own").click()
    assert page.live() == page.measured(own)


# --- Labels ---------------------------------------------------------------------------------------


def test_search_by_keyboard(page):
    field = page.find("#search")
    page.type("#search", Keys.CONTROL, "a", Keys.NULL, "OWL")
    options = [item.text.split("\n")[0] for item in page.all("#matches [role=option]")]
    assert sorted(options) == ["owl 10", "owl 2"]
    assert field.get_attribute("aria-expanded") == "true"
    field.send_keys(Keys.ARROW_DOWN)
    active = field.get_attribute("aria-activedescendant")
    chosen = page.find(f"#{active}").text.split("\n")[0]
    assert chosen == options[1]
    field.send_keys(Keys.ENTER)
    assert page.text("#label-name") == chosen
    assert field.get_attribute("aria-expanded") == "false"
    field.send_keys("x")
    assert field.get_attribute("aria-expanded") == "true"
    field.send_keys(Keys.ESCAPE)
    assert field.get_attribute("aria-expanded") == "false"
    assert page.text("#label-name") == chosen


@pytest.mark.parametrize("keys", [(), (Keys.ESCAPE, Keys.ARROW_DOWN)])
def test_search_lists_all_labels_when_it_is_opened(page, keys):
    page.type("#search", *keys)
    options = [item.text.split("\n")[0] for item in page.all("#matches [role=option]")]
    assert sorted(options) == sorted(page.names)
    assert page.find("#matches [aria-selected=true] div").text == page.text("#label-name")


def upper_quarter(similarity):
    pairs = np.sort(similarity[np.triu_indices(len(similarity), 1)].round(4))
    return max(pairs[int(0.75 * (len(pairs) - 1))], FLOOR)


def test_no_label_is_alike_below_the_upper_quarter_of_all_pairs(page):
    similarity = page.report.contents.similarity
    others = np.where(np.eye(len(similarity), dtype=bool), -1, similarity.round(4))
    n_alike = (others > upper_quarter(similarity)).sum(1)
    assert n_alike.min() == 0
    assert n_alike.max() > 0
    for label in n_alike.argsort()[[0, -1]]:
        page.choose(page.names[label])
        said = page.text("#neighbor-rows") + page.text("#map-say")
        assert said.count("No label is similar to") == (0 if n_alike[label] else 2)
        assert len(page.all("#neighbor-rows [data-label], tr[data-label]")) == n_alike[label]


def test_nearest_labels_with_similarity_and_lift(page):
    similarity = np.where(
        np.eye(len(page.names), dtype=bool), -2.0, page.report.contents.similarity
    )
    own = int(similarity.max(1).argmax())
    page.choose(page.names[own])
    similarity = similarity[own]
    counts = pair_counts(page.report.contents.rows.train.Y, page.report.contents.rows.train.unknown)
    rows = [
        [cell.text for cell in row.find_elements(By.TAG_NAME, "td")]
        for row in page.all("#neighbor-rows tr")
    ]
    alike = (similarity.round(4) > upper_quarter(page.report.contents.similarity)).sum()
    order = np.argsort(-similarity)[:alike]
    assert [row[0].split("\n")[0] for row in rows] == [page.names[i] for i in order]
    for label, (_, alike, together, lift) in zip(order, rows, strict=True):
        assert float(alike.replace("−", "-")) == pytest.approx(similarity[label], abs=0.0051)
        assert int(together) == counts.both[own, label]
        expected = counts.both[own, label] * counts.known[own, label]
        expected /= counts.first[own, label] * counts.first[label, own]
        assert float(lift) == pytest.approx(expected, abs=0.0061)


def test_where_similarity_and_rows_disagree(page):
    page.choose(page.names[0])
    similarity = np.delete(page.report.contents.similarity[0], 0)
    train = page.report.contents.rows.train
    joint = np.delete(association(pair_counts(train.Y, train.unknown))[0], 0)
    n = len(similarity)
    gap = (similarity.argsort().argsort() - joint.argsort().argsort()) / (n - 1)
    gap[gap * joint >= 0] = 0
    page.find("#neighbor-order label:nth-of-type(3) span").click()
    rows = page.all("#neighbor-rows tr")
    assert len(rows) == (np.abs(gap) >= 0.5).sum() > 0
    places = [page.names.index(row.find_element(By.TAG_NAME, "button").text) - 1 for row in rows]
    sizes = np.abs(gap[places])
    assert (np.diff(sizes) <= 0).all()
    for row, place in zip(rows, places, strict=True):
        marks = [mark.text for mark in row.find_elements(By.CLASS_NAME, "disagree")]
        assert ("more similar" in marks[0]) == (gap[place] > 0)


def test_labels_that_go_together_beyond_the_features(open_page, joint_report):
    page = open_page(joint_report)
    value, lower, upper = joint_report.model.label_correlation("residual")
    certain = (
        (np.abs(value) >= FLOOR) & ((lower > 0) | (upper < 0)) & ~np.eye(len(value), dtype=bool)
    )
    assert 0 < certain.sum() < certain.size - len(certain)
    page.find("#neighbor-order input[value=beyond] + span").click()
    for own in range(len(value)):
        page.choose(page.names[own])
        shown = {
            int(row.get_attribute("data-label")): row.find_elements(By.TAG_NAME, "td")[-1].text
            for row in page.all("#neighbor-rows [data-label]")
        }
        expected = np.flatnonzero(certain[own])
        order = expected[np.argsort(-np.abs(value[own, expected]), kind="stable")]
        assert list(shown) == order.tolist()
        for label, text in shown.items():
            assert float(text.replace("−", "-")) == pytest.approx(value[own, label], abs=0.0051)
    page.find("#heat-value option[value=residual]").click()
    page.point_at("#heat-canvas", 0.97, 0.03)
    order = joint_report.contents.explorer.arrays["order"]
    said = re.search(r"beyond the features (−?[\d.]+)", page.text("#heat-say"))[1]
    pair = value[order[0], order[-1]]
    assert float(said.replace("−", "-")) == pytest.approx(pair, abs=0.0051)


def test_known_labels_move_the_others_as_the_library_does(open_page, joint_report):
    page = open_page(joint_report)
    typical = joint_report.scores.mean(0, dtype=np.float64)[None]
    start = page.names.index(page.text("#given-label"))
    positive, given = np.zeros((2, 1, len(page.names)), bool)
    positive[0, start] = given[0, start] = True
    other = (start + 1) % len(page.names)
    for is_added in (False, True):
        if is_added:
            page.choose(page.names[other])
            page.find("#given-absent").click()
            given[0, other] = True
        expected = joint_report.model.label_factors_.condition(typical, positive, given)[0]
        rows = page.all("#given-rows [data-label]")
        found = {
            int(row.get_attribute("data-label")): float(row.get_attribute("data-probability"))
            for row in rows
        }
        assert found == pytest.approx({label: expected[label] for label in found}, abs=2e-5)
        moves = [abs(expected[label] - typical[0, label]) for label in found]
        assert moves == sorted(moves, reverse=True)
        assert len(found) == len(page.names) - given.sum()
    page.find("#given-known button").click()
    page.find("#given-known button").click()
    assert page.text("#given-rows") == "No label is known."


def test_a_model_without_factors_says_nothing_of_known_labels(page):
    assert page.all("#given") == page.all("[value=beyond]") == page.all("[value=residual]") == []


def test_heat_map(page):
    order = page.report.contents.explorer.arrays["order"]
    canvas = page.find("#heat-canvas")
    page.point_at("#heat-canvas", 0.97, 0.03)  # the last column of the first row
    text = page.text("#heat-say")
    first, last = order[0], order[-1]
    similarity = page.report.contents.similarity[first, last]
    assert text.startswith(f"{page.names[first]} and {page.names[last]}: similarity ")
    shown = re.search(r"similarity (−?[\d.]+)", text)[1].replace("−", "-")
    assert float(shown) == pytest.approx(similarity, abs=0.0051)
    page.click_at("#heat-canvas", 0.97, 0.03)
    assert page.text("#label-name") == page.names[first]
    assert canvas.get_attribute("data-shown") == str(len(page.names))
    page.find("#heat [data-zoom=in]").click()
    page.settle()
    assert int(canvas.get_attribute("data-shown")) < len(page.names)
    page.find("#heat [data-zoom=all]").click()
    page.find("#heat-order option[value=name]").click()
    page.settle()
    page.browser.execute_script("arguments[0].focus()", canvas)
    canvas.send_keys(*[Keys.ARROW_UP, Keys.ARROW_LEFT] * len(page.names), Keys.ARROW_RIGHT)
    by_name = page.browser.execute_script(
        "return arguments[0].sort(new Intl.Collator('en', {numeric: true}).compare)",
        list(page.names),
    )
    assert page.text("#heat-say").startswith(f"{by_name[0]} and {by_name[1]}: ")
    canvas.send_keys(Keys.ENTER)
    assert page.text("#label-name") == by_name[0]


def test_map(page):
    unit = page.report.contents.explorer.arrays["map"]
    label = int(np.argmax(np.linalg.norm(unit - 0.5, axis=1)))
    page.choose(page.names[(label + 1) % len(page.names)])
    page.point_at("#map-canvas", *unit[label])
    assert page.text("#map-say").startswith(f"{page.names[label]} and ")
    assert page.find("#map-canvas").get_attribute("data-named") == str(len(page.names))
    page.click_at("#map-canvas", *unit[label])
    assert page.text("#label-name") == page.names[label]
    inwards = Keys.ARROW_LEFT if unit[label, 0] > 0.5 else Keys.ARROW_RIGHT
    page.browser.execute_script("document.getElementById('map-canvas').focus()")
    page.find("#map-canvas").send_keys(inwards)
    assert page.text("#label-name") != page.names[label]


def test_two_fingers_zoom_the_heat_map(page):
    page.point_at("#heat-canvas", 0.5, 0.5)
    canvas = page.find("#heat-canvas")
    x, y, width, height = page.browser.execute_script(
        "const b = arguments[0].getBoundingClientRect(); return [b.x, b.y, b.width, b.height]",
        canvas,
    )
    for kind, apart in (("touchStart", 40), ("touchMove", 80), ("touchEnd", None)):
        fingers = [] if apart is None else [-apart, apart]
        at = [
            {"x": x + width / 2 + dx, "y": y + height / 2, "id": i} for i, dx in enumerate(fingers)
        ]
        page.browser.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": at})
    page.settle()
    assert canvas.get_attribute("data-shown") == "6"  # the fewest labels that it shows


# --- Table ----------------------------------------------------------------------------------------


def column(page, place):
    script = "return [...document.querySelectorAll('#label-table tbody tr')].map("
    return page.browser.execute_script(script + f"(row) => row.cells[{place}].textContent.trim())")


def test_the_table_sorts_by_any_column_with_undefined_values_last(page):
    rows = {row.label: row for row in page.report.contents.labels}
    for place, name in ((1, "rows"), (2, "skill"), (3, "f1"), (8, "auc")):
        for sign in (1, -1):
            page.find(f"#label-table th:nth-child({place + 1}) button").click()
            found = [getattr(rows[label], name) for label in column(page, 0)]
            defined = [value for value in found if value == value]
            assert found[: len(defined)] == sorted(defined, key=lambda value: sign * value)
    page.find("#label-table tbody a").click()
    assert page.text("#label-name") == column(page, 0)[0]


def test_the_table_is_saved_as_csv(page, tmp_path):
    where = {"behavior": "allow", "downloadPath": str(tmp_path)}
    page.browser.execute_cdp_cmd("Browser.setDownloadBehavior", where)
    page.browser.execute_script("document.getElementById('label-csv').click()")
    page.wait((tmp_path / "labels.csv").exists)
    with (tmp_path / "labels.csv").open(encoding="utf-8", newline="") as file:
        head, *lines = csv.reader(file)
    assert head[:5] == ["label", "rows", "skill", "skill 95% from", "skill 95% to"]
    assert [line[0] for line in lines] == [row.label for row in page.report.contents.labels]
    assert [line[1] for line in lines] == [str(row.rows) for row in page.report.contents.labels]
    for line, row in zip(lines, page.report.contents.labels, strict=True):
        bounds = (row.skill, row.skill_low, row.skill_high)
        assert line[2:5] == ["" if value != value else f"{value:.3f}" for value in bounds]
    assert "–" not in str(lines)


# --- Errors ---------------------------------------------------------------------------------------


def test_worst_rows(page):
    true, known = known_labels(page.report.test)
    predicted = page.report.contents.measured[0].predicted.astype(bool) & known
    wrong = (true ^ predicted).sum(1)
    worst = np.argsort(-wrong, kind="stable")
    items = page.all("#error-rows > li")
    numbers = [int(item.get_attribute("data-row")) for item in items]
    assert numbers == page.report.contents.rows.numbers[worst[: len(items)]].tolist()
    assert page.text("#error-page").endswith(f"of {(wrong > 0).sum()} rows")
    for item, row in zip(items, worst, strict=False):
        for kind, cells in {
            "missed": true & ~predicted,
            "extra": predicted & ~true,
            "found": true & predicted,
        }.items():
            chips = item.find_elements(By.CSS_SELECTOR, f".chip.{kind}")
            names = [
                page.browser.execute_script("return arguments[0].firstChild.data", chip)
                for chip in chips
            ]
            assert sorted(names) == sorted(np.array(page.names, dtype=object)[cells[row]])
            for chip, name in zip(chips, names, strict=True):
                score = page.report.scores[row, page.names.index(name)]
                value = float(chip.find_element(By.TAG_NAME, "b").text)
                assert value == pytest.approx(score, abs=0.0051)
    page.find("#error-next").click()
    page.settle()
    after = [int(item.get_attribute("data-row")) for item in page.all("#error-rows > li")]
    expected = page.report.contents.rows.numbers[worst[len(items) : 2 * len(items)]]
    assert after == expected.tolist()


def test_an_error_shows_the_text_of_its_row(open_page, text_report):
    page = open_page(text_report)
    rows, original = text_report.contents.rows, text_report.rows.test
    page.find("#error-order option[value=surprise]").click()  # rows without an error, too
    page.settle()
    first = page.find("#error-rows > li")
    row = rows.numbers.tolist().index(int(first.get_attribute("data-row")))
    assert first.find_element(By.CLASS_NAME, "row-text").text == original.X.values[0][row]
    assert "Rows are numbered from 1, in the order of messages" in page.text("#errors")


def test_errors_of_one_label_under_a_new_threshold(page):
    page.choose(page.names[6])
    page.set_threshold("#threshold-number", 0.5)
    page.find("#error-filter").click()
    page.settle()
    true, known = known_labels(page.report.test)
    wrong = true[:, 6] ^ ((page.report.scores[:, 6] >= np.float32(0.5)) & known[:, 6])
    assert page.text("#error-page").endswith(f"of {wrong.sum()} rows")


def test_one_label_alone(open_page, lonely_report):
    page = open_page(lonely_report)
    assert page.live() == page.measured(lonely_report.model.threshold_rule_)
    assert page.text("#label-name") == page.names[0]
    assert page.all("#neighbor-rows tr") == []
    page.set_threshold("#label-threshold-number", 0.2)
    assert page.live() == page.measured(GlobalThreshold(0.2))


# --- Safety and layout ------------------------------------------------------------------------


def test_names_are_text(page):
    script = "return [document.images.length, document.scripts.length, document.title]"
    assert page.browser.execute_script(script) == [0, 3, "C-GMVAE on birds & <b>bees</b>"]
    for name in page.names[:4]:
        page.choose(name)
    assert page.text("h1") == "C-GMVAE on birds & <b>bees</b>"
    assert page.browser.execute_script(script)[:2] == [0, 3]


def test_nothing_is_asked_of_the_network(page):
    assert requested(page.browser) <= {"file", "data"}
    blocked = page.browser.execute_async_script(
        "const done = arguments[0];"
        "document.addEventListener('securitypolicyviolation', (e) => done(e.violatedDirective));"
        "fetch('http://127.0.0.1:9/').catch(() => setTimeout(() => done('let through'), 500))"
    )
    assert blocked == "connect-src"
    assert "Content Security Policy" in str(page.browser.get_log("browser"))  # ours, just now


@pytest.mark.parametrize("width", [360, 768])
def test_no_sideways_scrolling(page, width):
    page.look_at(width, 800, "light")
    page.settle()
    page.choose(page.names[6])
    width_of = "return document.documentElement.scrollWidth"
    assert page.browser.execute_script(width_of) <= width
    outside = page.browser.execute_script(
        "return [...document.querySelectorAll('main *')]"
        ".filter((e) => !e.closest('.picture, pre, .hidden, .choice input, .table > *'))"
        ".filter((e) => e.getBoundingClientRect().right > innerWidth + 1)"
        ".map((e) => e.outerHTML.slice(0, 80))"
    )
    assert outside == []


BROKEN_WORDS = """
const broken = [];
const all = "#label-table th, #neighbor-rows td, .chip, h3, dt";
for (const element of document.querySelectorAll(all)) {
  for (const node of element.childNodes) {
    const text = node.textContent, inner = node.nodeType === 3 ? node : node.firstChild;
    if (!inner || inner.nodeType !== 3) continue;
    for (const { 0: word, index } of text.matchAll(/[^\\s-]+/g)) {
      if (word.length > 14) continue;
      const range = document.createRange();
      range.setStart(inner, index);
      range.setEnd(inner, index + word.length);
      const lines = new Set([...range.getClientRects()].map((box) => Math.round(box.top)));
      if (lines.size > 1) broken.push(word);
    }
  }
}
return broken;
"""


def test_words_are_not_broken_on_a_phone(page):
    page.look_at(390, 800, "light")
    page.settle()
    page.choose(page.names[6])
    assert page.browser.execute_script(BROKEN_WORDS) == []


def test_no_card_is_alone_in_its_row(page):
    page.look_at(1400, 900, "light")
    page.settle()
    script = """
    return [".metrics", "#plots .plots"].map((name) => {
      const grid = document.querySelector(name), right = grid.getBoundingClientRect().right;
      return right - grid.lastElementChild.getBoundingClientRect().right;
    });"""
    assert page.browser.execute_script(script) == pytest.approx([0, 0], abs=1)


@pytest.mark.parametrize("width", [390, 800, 1400])
def test_the_last_of_the_facts_fills_its_row(page, width):
    page.look_at(width, 900, "light")
    page.settle()
    script = """
    const facts = document.querySelector(".facts"), right = facts.getBoundingClientRect().right;
    return right - facts.lastElementChild.getBoundingClientRect().right;"""
    assert page.browser.execute_script(script) == pytest.approx(0, abs=2)


def test_intervals_are_borders_which_are_printed_without_background(page):
    """Browsers print borders, but no backgrounds unless their users ask for them."""
    script = """
    return [".own .whisker", ".own .dot"].map((name) => {
      const style = getComputedStyle(document.querySelector(name));
      return [parseFloat(style.borderTopWidth), style.borderTopColor, style.borderTopStyle];
    });"""
    for width, color, style in page.browser.execute_script(script):
        assert width >= 2.5
        assert color == "rgb(0, 96, 154)"
        assert style == "solid"


def test_marks_of_plots_are_light_on_a_dark_page(page):
    """Matplotlib writes no color for what is filled with black."""
    page.look_at(1280, 900, "dark")
    page.settle()
    script = """
    document.querySelectorAll("details").forEach((each) => { each.open = true; });
    const light = (color) => Math.max(...color.match(/[\\d.]+/g).slice(0, 3).map(Number));
    return [...document.querySelectorAll(".picture :is(use, path, text)")]
      .map((each) => getComputedStyle(each).fill)
      .filter((fill) => fill !== "none" && fill !== arguments[0]).map(light);"""
    assert min(page.browser.execute_script(script, "rgb(26, 32, 38)")) > 60  # but for the panel
