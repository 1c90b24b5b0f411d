"""Every block of code in the documentation runs, and prints what its page says.

How blocks are found and compared is said in ``fences``, how they are run in ``reader``.
"""

import re
import socket

import pytest
from fences import agrees, code_blocks
from pages import PAGES, ROOT
from reader import Reader

WITH_CODE = [page for page in PAGES if code_blocks((ROOT / page).read_text())]

#: Blocks that a test cannot run, by what they begin with, and why.
NOT_RUN = {
    "make ": "installs packages, and runs these very tests",
}


def blocks_to_run(page):
    blocks = code_blocks((ROOT / page).read_text())
    return [block for block in blocks if not block.code.startswith(tuple(NOT_RUN))]


@pytest.fixture
def reader(tmp_path, tmp_path_factory, monkeypatch):
    """Return a reader in an empty folder, who has no data but what is embedded."""
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


@pytest.mark.parametrize("page", WITH_CODE, ids=str)
def test_the_blocks_of_a_page_run_and_print_what_it_says(page, reader):
    for block in blocks_to_run(page):
        printed = reader.run(block)
        if block.shown is not None:
            where = f"{page}, line {block.line}"
            assert agrees(block.shown, printed), f"{where} printed:\n{printed}"


@pytest.mark.parametrize("beginning", NOT_RUN)
def test_what_is_not_run_is_still_in_the_documentation(beginning):
    blocks = [block for page in PAGES for block in code_blocks((ROOT / page).read_text())]
    assert any(block.code.startswith(beginning) for block in blocks)


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_fence_says_what_it_holds(page):
    opened = re.findall(r"^ *```(\w*)$", (ROOT / page).read_text(), re.M)[::2]
    assert set(opened) <= {"python", "bash", "text"}
