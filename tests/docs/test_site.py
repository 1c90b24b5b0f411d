"""The site builds without a warning, and asks nobody for anything when it is read."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: Attributes that a browser follows by itself, by tag.
FETCHED = {
    "audio": {"src"},
    "embed": {"src"},
    "iframe": {"src"},
    "image": {"href", "xlink:href"},
    "img": {"src", "srcset"},
    "input": {"src"},
    "link": {"href"},
    "object": {"data"},
    "script": {"src"},
    "source": {"src", "srcset"},
    "track": {"src"},
    "use": {"href", "xlink:href"},
    "video": {"poster", "src"},
}
_OUTSIDE = re.compile(r"(?:https?:)?//", re.I)


class Requests(HTMLParser):
    """Collects what a page makes a browser fetch from elsewhere."""

    def __init__(self):
        super().__init__()
        self.outside = []

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in FETCHED.get(tag, ()) and _OUTSIDE.search(value or ""):
                self.outside.append((tag, value))
            if name == "style":
                self.handle_data(value or "")

    def handle_data(self, data):
        if self.cdata_elem != "script":
            self.outside += [("style", url) for url in outside_styles(data)]


def outside_styles(text):
    """Return the addresses elsewhere that a style sheet fetches."""
    pattern = r"(?:url\(|@import)\s*['\"]?((?:https?:)?//[^'\")\s]+)"
    return re.findall(pattern, text, re.I)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Build the site; give its folder and what the build said."""
    folder = tmp_path_factory.mktemp("site")
    build = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert build.returncode == 0, build.stderr
    return folder, build.stderr


def test_the_site_builds_without_a_warning(built):
    _, said = built
    assert "WARNING" not in said


def test_every_page_is_there_and_asks_nobody_else_for_anything(built):
    folder, _ = built
    pages = sorted(folder.rglob("*.html"))
    assert len(pages) > len(
        list((ROOT / "docs").rglob("*.md"))
    )  # and the page of what is not found
    for page in pages:
        requests = Requests()
        requests.feed(page.read_text())
        assert not requests.outside, page


def test_the_reference_shows_names_and_types_as_they_are(built):
    folder, _ = built
    text = re.sub("<[^>]+>", "", (folder / "api" / "estimators.html").read_text())
    text = " ".join(text.split())
    assert not re.search(":[a-z]+:[`~]", text)
    assert re.search(r"n_members \( ?int ?, default: 4", text)
    assert re.search(r"device \( ?str ?, default: (&#39;|&quot;|\")auto", text)


def test_style_sheets_ask_nobody_else_for_anything(built):
    folder, _ = built
    sheets = sorted(folder.rglob("*.css"))
    assert sheets
    for sheet in sheets:
        assert not outside_styles(sheet.read_text()), sheet


@pytest.mark.parametrize(
    "page",
    [
        '<img src="https://elsewhere.org/a.png">',
        '<link rel="stylesheet" href="//elsewhere.org/a.css">',
        '<script src="https://elsewhere.org/a.js"></script>',
        "<style>@import 'https://elsewhere.org/a.css';</style>",
        '<p style="background: url(https://elsewhere.org/a.png)">',
    ],
)
def test_a_request_elsewhere_would_be_found(page):
    requests = Requests()
    requests.feed(page)
    assert len(requests.outside) == 1


def test_links_of_the_pages_outside_the_site_lead_somewhere():
    for name in ("README.md", "CONTRIBUTING.md"):
        links = re.findall(r"\]\(([^)#]+)[^)]*\)", (ROOT / name).read_text())
        missing = [link for link in links if ":" not in link and not (ROOT / link).exists()]
        assert not missing, name
