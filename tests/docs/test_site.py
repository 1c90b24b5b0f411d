"""Links lead somewhere; the site builds without a warning, and loads nothing from elsewhere."""

import os
import re
import subprocess
import sys

import pytest
from pages import PAGES, ROOT

#: Pages whose commands take hours, so that only their links are followed.
RESULTS = [path.relative_to(ROOT) for path in (ROOT / "docs" / "results").rglob("*.md")]

#: An element other than a link to click on, with an attribute that a browser loads.
_LOADED = re.compile(
    r"<(?!a\b)[a-z]+\s[^>]*?\b(?:src|srcset|href|data|poster)=[\"']?(?://|[^\"'>]*?https?://)", re.I
)
#: An address that a style loads.
_STYLED = re.compile(r"(?:url\(|@import)\s*['\"]?(?:https?:)?//[^'\")\s]+", re.I)


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


@pytest.mark.slow
def test_every_page_is_there_and_loads_nothing_from_other_servers(built):
    pages = sorted(built.rglob("*.html"))
    sources = [path for path in (ROOT / "docs").rglob("*.md") if "notebook" not in path.parts]
    assert len(pages) > len(sources)  # and the 404 page
    for page in pages:
        text = re.sub(r"(<script\b[^>]*>).*?</script>", r"\1", page.read_text(), flags=re.S)
        assert [*_LOADED.findall(text), *_STYLED.findall(text)] == [], page


@pytest.mark.slow
def test_the_reference_shows_names_and_types(built):
    text = re.sub("<[^>]+>", "", (built / "api" / "estimators.html").read_text())
    text = " ".join(text.split())
    assert not re.search(":[a-z]+:[`~]", text)
    assert re.search(r"n_members \( ?int ?, default: 8", text)
    assert re.search(r"device \( ?str ?, default: (&#39;|&quot;|\")auto", text)


@pytest.mark.slow
def test_style_sheets_load_nothing_from_other_servers(built):
    sheets = sorted(built.rglob("*.css"))
    assert sheets
    for sheet in sheets:
        assert not _STYLED.search(sheet.read_text()), sheet


@pytest.mark.parametrize("page", [*PAGES, *RESULTS], ids=str)
def test_links_between_files_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", (ROOT / page).read_text())
    folder = (ROOT / page).parent
    assert not [link for link in links if ":" not in link and not (folder / link).exists()]
