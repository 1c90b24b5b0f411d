"""The site builds without a warning, and its pages load nothing from other servers."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: Attributes that a browser loads automatically, by tag.
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
    """Collects what a page makes a browser load from other servers."""

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
    """Return the external addresses that a style sheet loads."""
    pattern = r"(?:url\(|@import)\s*['\"]?((?:https?:)?//[^'\")\s]+)"
    return re.findall(pattern, text, re.I)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Build the site; return its folder."""
    folder = tmp_path_factory.mktemp("site")
    build = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert build.returncode == 0, build.stderr
    assert "WARNING" not in build.stderr
    return folder


def test_every_page_is_there_and_loads_nothing_from_other_servers(built):
    pages = sorted(built.rglob("*.html"))
    assert len(pages) > len(list((ROOT / "docs").rglob("*.md")))  # and the 404 page
    for page in pages:
        requests = Requests()
        requests.feed(page.read_text())
        assert not requests.outside, page


def test_the_reference_shows_names_and_types(built):
    text = re.sub("<[^>]+>", "", (built / "api" / "estimators.html").read_text())
    text = " ".join(text.split())
    assert not re.search(":[a-z]+:[`~]", text)
    assert re.search(r"n_members \( ?int ?, default: 4", text)
    assert re.search(r"device \( ?str ?, default: (&#39;|&quot;|\")auto", text)


def test_style_sheets_load_nothing_from_other_servers(built):
    sheets = sorted(built.rglob("*.css"))
    assert sheets
    for sheet in sheets:
        assert not outside_styles(sheet.read_text()), sheet


def test_links_of_the_pages_outside_the_site_lead_somewhere():
    for name in ("README.md", "CONTRIBUTING.md"):
        links = re.findall(r"\]\(([^)#]+)[^)]*\)", (ROOT / name).read_text())
        missing = [link for link in links if ":" not in link and not (ROOT / link).exists()]
        assert not missing, name
