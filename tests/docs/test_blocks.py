"""The code blocks of the documentation are valid, run, and print what their page shows."""

import re
import socket
import subprocess

import pytest
from pages import PAGES, ROOT, Reader, agrees, code_blocks

#: Beginnings of blocks that a test cannot run, and why.
NOT_RUN = {
    "make ": "installs packages, and runs these very tests",
}

#: Pages that train or export for more than a few seconds.
SLOW = ("README.md", "tables_of_the_paper.md", "documents_and_tags.md", "sites_and_species.md")
SLOW += (
    "survey_in_space.md",
    "large_data.md",
    "models.md",
    "own_encoder.md",
    "report.md",
    "search.md",
)


def blocks_to_run(page):
    blocks = code_blocks((ROOT / page).read_text())
    return [block for block in blocks if not block.code.startswith(tuple(NOT_RUN))]


RUN = [
    pytest.param(page, id=str(page), marks=pytest.mark.slow if page.name in SLOW else ())
    for page in PAGES
    if blocks_to_run(page)
]


@pytest.fixture
def reader(tmp_path, tmp_path_factory, monkeypatch):
    """Return a reader in an empty folder, with no data set but the embedded one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setenv("CGMVAE_CACHE", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.delenv("CGMVAE_DATA", raising=False)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    reader = Reader(tmp_path, port)
    yield reader
    reader.close()


@pytest.mark.parametrize("page", RUN)
def test_the_blocks_of_a_page_run_and_print_what_it_shows(page, reader):
    for block in blocks_to_run(page):
        printed = reader.run(block)
        if block.shown is not None:
            where = f"{page}, line {block.line}"
            assert agrees(block.shown, printed), f"{where} printed:\n{printed}"


def test_every_block_parses():
    for page in PAGES:
        for block in code_blocks((ROOT / page).read_text()):
            if block.language == "python":
                compile(block.code, f"{page}, line {block.line}", "exec")
            else:
                check = subprocess.run(["bash", "-n"], input=block.code.encode())
                assert check.returncode == 0, f"{page}, line {block.line}"


def test_every_fence_names_its_language():
    for page in PAGES:
        opened = re.findall(r"^ *```(\w*)$", (ROOT / page).read_text(), re.M)[::2]
        assert set(opened) <= {"python", "bash", "text", "nginx"}, page
