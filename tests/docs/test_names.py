"""Files, functions, commands, options and results that pages mention exist."""

import ast
import re
import shlex
from itertools import pairwise

import pytest
import typer
from pages import PAGES, ROOT

from cgmvae.cli.main import app

PACKAGE = ROOT / "src" / "cgmvae"

_FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.M | re.S)
_FILE = re.compile(r"[\w/-]+\.(?:py|toml)|(?:tests|benchmarks|docs|src)/[\w/.-]*")
_FUNCTION = re.compile(r"\w+(?:\.\w+)?")


def spans(text):
    """Return the inline code of a page."""
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", _FENCE.sub("", text))]


def exists(name):
    """Return whether a file exists: from the root, in the package, or anywhere by a bare name."""
    if any((place / name).exists() for place in (ROOT, PACKAGE)):
        return True
    return "/" not in name and next(PACKAGE.rglob(name), None) is not None


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_the_files_of_a_page_exist(page):
    names = [span for span in spans((ROOT / page).read_text()) if _FILE.fullmatch(span)]
    assert [name for name in names if not exists(name)] == []


def test_the_rooms_of_the_architecture_are_those_of_the_package():
    page = (ROOT / "docs" / "architecture.md").read_text()
    rooms = dict(re.findall(r"^\| `(\w+)/` \| (.*) \|$", page, re.M))
    assert rooms.keys() == {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    for room, row in rooms.items():
        names = [name for name in spans(row) if re.fullmatch(r"\w+(\.py|\.toml|/)", name)]
        assert [name for name in names if not next((PACKAGE / room).rglob(name), None)] == []


def sources(path):
    """Return the source of the functions and classes of a file, methods by both names."""
    text, kinds = path.read_text(), (ast.FunctionDef, ast.ClassDef)
    outer = [node for node in ast.parse(text).body if isinstance(node, kinds)]
    inner = [(each, node) for each in outer for node in each.body if isinstance(node, kinds)]
    found = {node.name: ast.get_source_segment(text, node) for _, node in inner}
    found |= {node.name: ast.get_source_segment(text, node) for node in outer}
    return found | {f"{each.name}.{node.name}": found[node.name] for each, node in inner}


def test_the_equations_are_in_the_functions_that_the_paper_map_names():
    page = (ROOT / "docs" / "paper_map.md").read_text()
    table = page.split("## Equations\n")[1].split("\n## ")[0]
    n_found = 0
    for row in re.findall(r"^\| .* \|$", table, re.M)[1:]:
        _, paper, _, where, *_ = re.split(r"(?<!\\)\|", row)
        equation = re.match(r" (Eq\. \d)", paper)
        for file, after in pairwise(re.split(r"`([\w/]+\.py)`", where)[1:]):
            if not file.endswith(".py"):
                continue
            found = sources(PACKAGE / file)
            names = {name for name in spans(after) if _FUNCTION.fullmatch(name)} - {"paper"}
            assert names <= found.keys(), row
            if equation:
                assert all(equation[1] in found[name] for name in names), row
            n_found += len(names)
    assert n_found > 8


def test_the_line_of_the_weighted_sum_is_the_one_that_is_differentiated():
    lines = (PACKAGE / "training" / "step.py").read_text().splitlines()
    (number,) = [i for i, line in enumerate(lines) if line.endswith("# Eq. 8")]
    name = lines[number].split(" = ")[0].strip()
    assert f"self.flat.gradients({name}.sum())" in lines[number + 1]


def command_lines(text):
    """Return the commands of this library in the inline code and text blocks of a page."""
    shown = [
        line for kind, body in _FENCE.findall(text) if kind == "text" for line in body.split("\n")
    ]
    lines = [line.strip().removeprefix("$ ") for line in (*spans(text), *shown)]
    return [line for line in lines if re.match("cgmvae [a-z]", line)]


def inside(group):
    """Return the commands of a group by name; none if it is a single command."""
    if not hasattr(group, "list_commands"):
        return {}
    context = group.make_context("cgmvae", [], resilient_parsing=True)
    return {name: group.get_command(context, name) for name in group.list_commands(context)}


def options_of(command):
    return {name for each in command.params for name in (*each.opts, *each.secondary_opts)}


@pytest.fixture(scope="module")
def program():
    return typer.main.get_command(app)


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_the_commands_of_a_page_exist_and_have_its_options(page, program):
    for line in command_lines((ROOT / page).read_text()):
        command, words = program, shlex.split(line)[1:]
        while words and (within := inside(command)):
            if words[0].isupper():  # a placeholder
                break
            assert words[0] in within, line
            command, words = within[words[0]], words[1:]
        given = {word for word in words if word.startswith("--")}
        assert given <= options_of(command), line


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_options_that_stand_alone_exist(page, program):
    harnesses = "".join(path.read_text() for path in (ROOT / "benchmarks").glob("*.py"))
    known, waiting = set(re.findall(r'"(--[a-z-]+)"', harnesses)), [program]
    while waiting:
        known |= options_of(waiting[-1])
        waiting += inside(waiting.pop()).values()
    alone = [span.split()[0] for span in spans((ROOT / page).read_text()) if span.startswith("--")]
    assert [option for option in alone if option not in known] == []


def test_every_deviation_is_marked_at_its_line():
    page = (ROOT / "docs" / "paper_map.md").read_text()
    rows = set(re.findall(r"^\| (D\d+) \|", page, re.M))
    files = [*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.toml")]
    marked = {
        name for path in files for name in re.findall(r"# Deviation (D\d+)", path.read_text())
    }
    assert rows == marked != set()
