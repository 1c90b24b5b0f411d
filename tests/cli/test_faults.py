"""Commands that are killed, interrupted or out of disk space lose and corrupt nothing."""

import errno
import json
import os
import resource
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from cgmvae.data import make_survey, readers
from cgmvae.data.serialization import read_tensors

from .conftest import contents

SIZES = ("--setting=embedding_dim=16", "--setting=feature_hidden=[16]", "--setting=label_hidden=16")
SMALL = (*SIZES, "--setting=decoder_hidden=[]", "--epochs=3", "--device=cpu")
COMMANDS = {
    "model": ("fit", "birds.npz", "--out=model", "--members=1", *SMALL, "--overwrite"),
    "found": ("search", "birds.npz", "--out=found", "--space=space.json", *SMALL, "--overwrite"),
    "table.csv": ("data", "convert", "birds.npz", "table.csv", "--overwrite"),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return the working folder, with a data set in it."""
    monkeypatch.chdir(tmp_path)
    survey, _ = make_survey(120, 6, 5, seed=0)
    readers.write(survey, "birds.npz")
    Path("space.json").write_text('{"dropout": [0.0, 0.3]}')
    return tmp_path


@contextmanager
def no_room(n_bytes):
    """Let no file grow beyond this size, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("target", COMMANDS)
def test_no_room_is_one_sentence_and_leaves_the_earlier_file(succeeds, refused, folder, target):
    Path(target).write_text("earlier")
    before = contents(folder)
    with no_room(2048):
        message = refused(*COMMANDS[target])
    assert message.startswith("Cannot write ")
    assert f"({os.strerror(errno.EFBIG)}); check the free space" in message
    after = contents(folder).items()  # a search may leave the folder that it is resumed from
    assert {k: v for k, v in after if not k.startswith("found.search")} == before
    succeeds(*COMMANDS[target])
    assert Path(target).read_bytes() != b"earlier"


def test_no_room_for_what_is_printed(script, folder):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*script, "data", "list"], stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 2
    assert done.stderr.decode() == (
        "Error: There is no space left on the disk; free some, and run the command again.\n"
    )


@pytest.fixture
def script():
    return [sys.executable, "-m", "cgmvae"]


STOPPED_AT = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background shell ignores it
def stop(event, arguments):
    if event == "import" and arguments[0] == {module!r}:
        os.kill(os.getpid(), signal.SIGINT)
sys.addaudithook(stop)
sys.argv = ["cgmvae", "data", "list"]
from cgmvae.__main__ import main
main()
"""


@pytest.mark.parametrize("module", ["rich", "cgmvae.data.catalog"])
def test_ctrl_c_while_packages_are_loaded_is_one_line(shell, module):
    outcome = shell("-c", STOPPED_AT.format(module=module))
    assert (outcome.code, outcome.out, outcome.err) == (130, "", "Error: Stopped.\n")


KILLED_AT = """
import os, signal, sys
from cgmvae.cli.main import run
from cgmvae.training import checkpoint
checkpoint.MIN_SECONDS, checkpoint.MAX_FRACTION = 0.0, 1e9
saved = []
def kill(event, arguments):
    if event == "os.rename" and str(arguments[1]).endswith(".checkpoint"):
        saved.append(arguments)
        if len(saved) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(kill)
run()
"""


def test_a_killed_fit_continues_to_the_same_model(succeeds, shell, folder):
    command = COMMANDS["model"]
    succeeds(*command)
    expected, _ = read_tensors("model")
    Path("model").unlink()
    assert shell("-c", KILLED_AT, *command).code == -signal.SIGKILL
    names = sorted(path.name for path in folder.iterdir())
    assert names[1:] == ["birds.npz", "model.checkpoint.previous", "space.json"]
    assert names[0].startswith(".model.checkpoint.")
    assert names[0].endswith(".unfinished")
    assert json.loads(succeeds(*command, "--json"))["continued"] is True
    found, _ = read_tensors("model")
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        # Products round by where their numbers lie in memory.
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-6)
    assert sorted(contents(folder)) == ["birds.npz", "model", "space.json"]
