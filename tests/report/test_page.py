"""The HTML of a page: self-contained, escaped, with the numbers of the contents."""

import base64
import hashlib
import html
import json
import re
from dataclasses import replace

import pytest

from cgmvae.evaluation import Interval
from cgmvae.report import CalibrationDisplay, page
from cgmvae.report.contents import Finding, Verdict
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
    assert "all 1 columns that are not text were shuffled" in texts
    assert "message: said" not in texts


def test_a_blend_shows_each_expert_and_what_comes_from_the_network(blend_report):
    page = Elements(blend_report.path.read_text(encoding="utf-8"))
    texts, model = " ".join(page.texts), blend_report.model
    (table,) = (
        rows for rows in page.tables if rows and rows[0] == ["expert", "weight", "alone", "adds"]
    )
    assert len(table) == 1 + len(model.experts_)
    for row, expert in zip(table[1:], model.experts_, strict=True):
        weight = f"{expert.weight:.2f}" if expert.weight else "dropped"
        assert row[:3] == [f"{expert.name} ({expert.kind})", weight, f"{expert.score:.3f}"]
    has_network = model.cgmvae_ is not None
    is_said = "the cosine of the labels' embeddings in the C-GMVAE expert" in texts
    assert is_said == has_network
    assert ("correlation of the labels' probabilities" in texts) != has_network
    assert texts.count("This is about the C-GMVAE expert.") == 2 * has_network
    assert ("autoencoder encodes the features" in texts) == has_network
    assert ("net__epochs=3" in texts) == has_network
    assert "trees__n_trees=20" in texts or "trees" not in model.models_
    findings = [finding.title for finding in blend_report.contents.for_experts]
    assert has_network or findings == []


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


def test_every_section_of_the_menu_is_there(elements, joint_report):
    ids = {attributes.get("id") for _, attributes in elements.found}
    assert {anchor for anchor, _ in page.SECTIONS} <= ids
    elements = Elements(joint_report.path.read_text(encoding="utf-8"))
    ids = {attributes.get("id") for _, attributes in elements.found}
    used = set(re.findall(r'byId\("([a-z0-9-]+)"\)', elements.scripts[2]))
    assert used <= ids


@pytest.mark.parametrize(
    ("difference", "words"),
    [
        (Interval(0.02, 0.01, 0.03), "0.020 better than forest"),
        (Interval(-0.02, -0.03, -0.01), "0.020 worse than forest"),
        (Interval(0.0002, 0.0001, 0.0003), "Less than 0.001 better than forest"),
        (Interval(0.02, -0.01, 0.03), "Not significantly different from forest"),
        (Interval(0.0, -0.01, 0.01), "Not significantly different from forest"),
        (Interval(0.0, 0.0, 0.0), "Exactly as good as forest"),
    ],
)
def test_a_verdict_in_words(difference, words):
    assert words in page._sentence(Verdict("micro_f1", "forest", difference))


JARGON = (
    "test-oracle",
    "latent unit",
    "posterior",
    "Labels in latent space",
    "latent space hardly",
)


def test_what_only_experts_read_is_folded_away(text, report, undrawn):
    contents = replace(
        report.contents, for_experts=[Finding("note", "The posterior collapsed", "")]
    )
    whole = page.render(report.model, contents)
    before, fold, after = re.split("<details>|</details>", whole)
    assert all(word in fold for word in ("test-oracle", "posterior", "Labels in latent space"))
    for word in JARGON:
        assert word not in before + after


def test_an_oracle_that_is_lower_than_the_models_own_threshold_is_explained(report, undrawn):
    sentence = "It can be lower than with the model’s own threshold, as it is here"
    own = report.contents.all_labels
    for shift, said in ((0.01, False), (-0.01, True)):
        oracle = {name: value + shift for name, value in own.items()}
        contents = replace(report.contents, oracle=oracle)
        assert (sentence in page.render(report.model, contents)) == said


def test_the_page_says_which_labels_are_predicted_well(text, report):
    assert html.unescape(text).count(report.contents.well_predicted) == 2
    rows = Elements(text).tables
    (table,) = (table for table in rows if table[0][:3] == ["label", "rows", "skill"])
    best = report.contents.labels[0]
    assert table[1][2] == f"{best.skill:.3f}{best.skill_low:.3f} to {best.skill_high:.3f}".replace(
        "-", "−"
    )
