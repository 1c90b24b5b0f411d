"""The HTML of a page: self-contained, escaped, with the numbers of the contents."""

import base64
import hashlib
import json
import re

import pytest

from cgmvae.evaluation import Interval
from cgmvae.report import page
from cgmvae.report.contents import Verdict

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
    assert tags.count("img") == tags.count("figure")
    assert "b" not in tags
    assert elements.outside() == []
    data = json.loads(elements.scripts[1])
    assert data["names"] == list(report.model.label_names_)


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
    assert "forest was skipped: it needs rows whose labels are all known" in text


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
