"""The command itself: help, version, how it starts, and how it ends."""

import importlib.metadata
import re

import pytest

import cgmvae as library
from cgmvae.cli.arguments import Panel
from cgmvae.data.readers.options import PANELS

GROUPS = [(), ("data",), ("bench",)]
COMMANDS = ["fit", "compare", "search", "predict", "evaluate", "report", "describe", "serve"]
COMMANDS += [
    "export",
    "methods",
    "demo",
    "data list",
    "data describe",
    "data convert",
    "bench status",
]

#: Words of the code that a user of the command has no use for.
IMPLEMENTATION = re.compile(
    r"<\w+>|\blist\[|\b(str|int|bool|float32|None|ndarray|numpy|CSR|sparse|tensor|torch|pyarrow"
    r"|typer|kwargs|dataclass|callable|module|Python|MultiLabelDataset|InputError|dtype)\b|__|``|:\w+:"
)


def test_version(succeeds):
    assert succeeds("--version") == f"cgmvae {library.__version__}\n"
    assert library.__version__ == importlib.metadata.version("cgmvae")


@pytest.mark.parametrize("command", GROUPS[:2])
def test_without_a_command_the_help_is_shown(cgmvae, succeeds, command):
    outcome = cgmvae(*command)
    assert outcome.err == ""
    assert outcome.out.startswith(f"Usage: {' '.join(['cgmvae', *command])} ")
    assert outcome.out == succeeds(*command, "--help")


def test_help_lists_every_command_with_its_whole_summary(succeeds):
    for group in GROUPS[:2]:
        text = succeeds(*group, "--help").replace("[ARGS]...", "")
        assert "..." not in text
        for name in COMMANDS:
            *outer, inner = name.split()
            assert tuple(outer) != group or f"  {inner} " in text


def test_help_groups_the_options(succeeds):
    headings = re.findall(r"^(\S.*):$", succeeds("fit", "--help"), re.MULTILINE)
    assert headings == [*Panel, *PANELS, "Options"]


@pytest.mark.parametrize("command", ["predict", "evaluate", "report"])
def test_how_files_are_read_has_a_help_of_its_own_where_the_model_knows_it(succeeds, command):
    own, formats = succeeds(command, "--help"), succeeds(command, "--help-formats")
    assert "--help-formats" in own
    assert len(own.splitlines()) < 40
    assert re.findall(r"^(\S.*):$", formats, re.MULTILINE) == [*PANELS]
    for option in ("--label-prefix", "--delimiter", "--groups"):
        assert option in formats
        assert option not in own
    assert "--overwrite" not in formats


def test_help_is_for_users(succeeds):
    for command in COMMANDS:
        assert not IMPLEMENTATION.findall(succeeds(*command.split(), "--help")), command
    for name in ("SOURCE", "TARGET", "--json", "--label ", "--label-count", "--format"):
        assert name in succeeds("data", "describe" if "-" in name else "convert", "--help")


WRONG_USE = {
    "No such option: --bogus; see cgmvae --help.": ("--bogus",),
    "No such command 'bogus'; see cgmvae --help.": ("bogus",),
    "Missing argument 'SOURCE'; see cgmvae data describe --help.": ("data", "describe"),
    "Missing argument 'TARGET'; see cgmvae data convert --help.": ("data", "convert", "yeast"),
    "--label-count": ("data", "describe", "a.arff", "--label-count", "many"),
    "unexpected extra argument": ("data", "describe", "yeast", "scene"),
}


def test_wrong_use_is_one_line(refused):
    for sentence, arguments in WRONG_USE.items():
        assert sentence in refused(*arguments)


def test_ctrl_c_prints_one_line(cgmvae, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("cgmvae.data.catalog.load_dataset", stop)
    outcome = cgmvae("data", "describe", "yeast")
    assert (outcome.code, outcome.out, outcome.err) == (130, "", "Error: Stopped.\n")


def test_a_bug_is_not_reported_as_bad_input(cgmvae, monkeypatch):
    def break_down(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr("cgmvae.data.catalog.load_dataset", break_down)
    with pytest.raises(ZeroDivisionError):
        cgmvae("data", "describe", "yeast")


BLOCKED = """
import sys
sys.modules[{package!r}] = None
from cgmvae.cli.main import run
run()
"""


def test_a_missing_package_says_what_to_install(shell):
    outcome = shell("-c", BLOCKED.format(package="rich"), "--version")
    assert outcome.code == 1
    assert outcome.out == ""
    assert outcome.err == 'The command line needs more packages: pip install "cgmvae[cli]"\n'
    extras = importlib.metadata.metadata("cgmvae").get_all("Provides-Extra")
    assert "cli" in extras
