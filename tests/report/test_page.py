"""The HTML of a page: self-contained, escaped, with the numbers of the contents."""

import base64
import hashlib
import html
import json
import re
from dataclasses import replace

import pytest

from cgmvae.evaluation import Interval
from cgmvae.methods.serialization import VotesRecord
from cgmvae.report import CalibrationDisplay, page
from cgmvae.report.contents import Verdict
from cgmvae.report.figures.style import one_line

from .conftest import Elements


@pytest.fixture(scope="module")
def text(report):
    return report.path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def elements(text):
    return Elements(text)


def test_no_name_becomes_markup(elements, report):
    tags = [tag for tag, _ in elements.found]
    assert tags.count("script") == 3
    assert tags.count("svg") == tags.count("figure") + 1  # the curve of a label
    assert "img" not in tags
    assert "b" not in tags
    assert elements.outside() == []
    data = json.loads(elements.scripts[1])
    assert data["names"] == list(report.model.label_names_)


def test_plots_are_in_the_fonts_and_colors_of_the_page(text, report):
    plots = "".join(re.findall(r'<div class="picture">(<svg.*?</svg>)', text, flags=re.DOTALL))
    written = html.unescape(" ".join(re.findall(r"<text[^>]*>(.*?)</text>", plots)))
    assert all(one_line(name) in written for name in report.model.label_names_)
    error = CalibrationDisplay.from_predictions(report.test, report.scores).error
    assert f"expected calibration error: {error:.3f}" in written
    assert "font-family" not in plots
    assert re.findall(r": (#[0-9a-f]{6})", plots) == []
    assert len(set(re.findall('viewBox="0 0 ([0-9]+)', plots))) == 1
    assert "loading=" not in text


def test_a_model_of_texts_shows_words_by_label_and_what_was_tried(text_report):
    page = Elements(text_report.path.read_text(encoding="utf-8"))
    (table,) = (
        rows for rows in page.tables if rows and rows[0][0] in text_report.model.label_names_
    )
    found = {label: set(re.findall("[a-z]+", words)[:2]) for label, words in table}
    assert found == {"sea": {"wave", "gull"}, "hill": {"rock", "goat"}, "<i>": {"lamp", "desk"}}
    texts = " ".join(page.texts)
    assert "all 1 features that are not words were shuffled" in texts
    assert "message: said" not in texts


def test_the_policy_allows_the_two_scripts_and_no_request(elements):
    policy = next(a["content"] for _, a in elements.found if "http-equiv" in a)
    assert policy.startswith("default-src 'none';")
    theme, _, explorer = elements.scripts
    for script in (theme, explorer):
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert "unsafe-inline" not in policy.split("style-src")[0]


def test_it_shows_the_numbers_of_all_methods(text, report):
    for measured in report.contents.measured:
        for interval in measured.metrics.values():
            shown = f">{interval.value:.3f}<span"
            assert shown in text
            assert f"95% interval {interval.low:.3f} to {interval.high:.3f}" in text
    assert "cgmvae report &lt;m&gt; &amp; go" in text
    assert "was skipped" not in text


def test_it_says_that_training_rows_have_a_say(text, report):
    assert "The model file contains" not in text
    contents = replace(report.contents, votes=VotesRecord(1234, False, 32, 0.25))
    words = " ".join(page.render(report.model, contents).split())
    assert "with the labels of the 32 nearest training rows, which count 25%." in words
    assert "The model file contains the 1,234 training rows" in words


def test_it_says_that_there_is_a_linear_model(text, report):
    sentence = "A linear support vector machine per label is added to their log-odds."
    assert sentence not in text
    contents = replace(report.contents, has_linear_model=True)
    assert sentence in " ".join(page.render(report.model, contents).split())


def test_every_section_of_the_menu_is_there(elements):
    ids = {attributes.get("id") for _, attributes in elements.found}
    assert {anchor for anchor, _ in page.SECTIONS} <= ids
    used = set(re.findall(r'byId\("([a-z0-9-]+)"\)', elements.scripts[2]))
    assert used <= ids


@pytest.mark.parametrize(
    ("difference", "words"),
    [
        (Interval(0.02, 0.01, 0.03), "0.020 better than forest"),
        (Interval(-0.02, -0.03, -0.01), "0.020 worse than forest"),
        (Interval(0.0002, 0.0001, 0.0003), "Less than 0.001 better than forest"),
        (Interval(0.02, -0.01, 0.03), "Not significantly different from forest"),
    ],
)
def test_a_verdict_in_words(difference, words):
    assert words in page._sentence(Verdict("micro_f1", "forest", difference))
