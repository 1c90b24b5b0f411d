"""The command itself: help, version, ways to start it, and how it ends."""

import importlib.metadata
import re

import pytest

import cgmvae as library

COMMANDS = [(), ("data",), ("data", "list"), ("data", "describe"), ("data", "convert")]

#: Words of the code that a user of the command has no use for.
IMPLEMENTATION = re.compile(
    r"<\w+>|\blist\[|\b(str|int|bool|float32|None|ndarray|numpy|CSR|sparse|tensor|torch|pyarrow"
    r"|typer|kwargs|dataclass|callable|module|Python|MultiLabelDataset|InputError|dtype)\b|__|``|:\w+:"
)


def test_version(succeeds):
    assert succeeds("--version") == f"cgmvae {library.__version__}\n"
    assert library.__version__ == importlib.metadata.version("cgmvae")


@pytest.mark.parametrize("command", COMMANDS[:2])
def test_without_a_command_the_help_is_shown(cgmvae, succeeds, command):
    outcome = cgmvae(*command)
    assert outcome.err == ""
    assert outcome.out.startswith(f"Usage: {' '.join(['cgmvae', *command])} ")
    assert outcome.out == succeeds(*command, "--help")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_for_users(succeeds, command):
    text = succeeds(*command, "--help")
    assert not IMPLEMENTATION.findall(text)


def test_summaries_are_whole(succeeds):
    assert "..." not in succeeds("data", "--help").replace("[ARGS]...", "")


def test_help_names_every_command_and_option(succeeds):
    for name in ("data", "demo", "--version"):
        assert name in succeeds("--help")
    for name in ("list", "describe", "convert"):
        assert f"  {name} " in succeeds("data", "--help")
    for name in ("SOURCE", "--json", "--label ", "--label-count", "--format"):
        assert name in succeeds("data", "describe", "--help")
    assert "TARGET" in succeeds("data", "convert", "--help")


WRONG_USE = {
    "No such option: --bogus; see cgmvae --help.": ("--bogus",),
    "No such command 'bogus'; see cgmvae --help.": ("bogus",),
    "No such command 'bogus'; see cgmvae data --help.": ("data", "bogus"),
    "Missing argument 'SOURCE'; see cgmvae data describe --help.": ("data", "describe"),
    "Missing argument 'TARGET'; see cgmvae data convert --help.": ("data", "convert", "yeast"),
    "--label-count": ("data", "describe", "a.arff", "--label-count", "many"),
    "--target-format": ("data", "describe", "a.arff", "--target-format", "npz"),
    "unexpected extra argument": ("data", "describe", "yeast", "scene"),
}


@pytest.mark.parametrize("sentence", WRONG_USE)
def test_wrong_use_is_answered_in_one_line(refused, sentence):
    assert sentence in refused(*WRONG_USE[sentence])


def test_ctrl_c_is_answered_in_one_line(cgmvae, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("cgmvae.data.catalog.load_dataset", stop)
    outcome = cgmvae("data", "describe", "yeast")
    assert (outcome.code, outcome.out, outcome.err) == (130, "", "Error: Stopped.\n")


def test_a_defect_is_not_dressed_up_as_bad_input(cgmvae, monkeypatch):
    def break_down(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr("cgmvae.data.catalog.load_dataset", break_down)
    with pytest.raises(ZeroDivisionError):
        cgmvae("data", "describe", "yeast")


def test_it_starts_as_a_module(shell):
    outcome = shell("-m", "cgmvae", "--version")
    version = f"cgmvae {library.__version__}\n"
    assert (outcome.code, outcome.out, outcome.err) == (0, version, "")


BLOCKED = """
import sys
sys.modules[{package!r}] = None
from cgmvae.cli.main import run
run()
"""


@pytest.mark.parametrize("package", ["typer", "rich"])
def test_a_missing_package_is_answered_with_what_to_install(shell, package):
    outcome = shell("-c", BLOCKED.format(package=package), "--version")
    assert outcome.code == 1
    assert outcome.out == ""
    assert outcome.err == 'The command line needs more packages: pip install "cgmvae[cli]"\n'
    extras = importlib.metadata.metadata("cgmvae").get_all("Provides-Extra")
    assert "cli" in extras
