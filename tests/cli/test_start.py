"""What a command loads: torch takes seconds to import, so only what computes loads it."""

import json

import pytest

import cgmvae as library

#: Runs the command, and says last which slow modules were loaded.
LOADED = """
import atexit, sys
slow = "torch", "torch._dynamo", "sklearn", "cgmvae.studies.commands"
atexit.register(lambda: print("loaded:", *(name for name in slow if name in sys.modules)))
from cgmvae.cli.main import run
run()
"""


#: Runs commands that exit one after the other; prints their codes and the slow modules.
REFUSED = """
import json, sys
from cgmvae.cli.main import run
codes = []
for command in json.loads(sys.argv[1]):
    sys.argv = ["cgmvae", *command]
    try:
        run()
    except SystemExit as ended:
        codes.append(ended.code)
print(codes, [name for name in ("torch", "sklearn") if name in sys.modules])
"""


@pytest.fixture
def start(shell):
    """Run a command in a process of its own; give its outcome and the slow modules it loaded."""

    def call(*arguments):
        outcome = shell("-c", LOADED, *arguments)
        return outcome, outcome.out.rpartition("loaded:")[2].split()

    return call


def test_methods_and_describe_need_no_torch(start, model, succeeds):
    for command in (("methods", "--json"), ("describe", "birds.cgmvae", "--json")):
        outcome, loaded = start(*command)
        assert (outcome.code, outcome.err, loaded) == (0, "", [])
        assert outcome.out.startswith(succeeds(*command))


def test_the_list_of_studies_needs_no_torch(start):
    outcome, loaded = start("bench", "--help")
    assert (outcome.code, outcome.err, loaded) == (0, "", [])


BAD_OPTIONS = {
    "There is no method 'bogus'": ("birds.npz", "--method", "bogus"),
    "There is no device 'gpu'": ("birds.npz", "--device", "gpu"),
    "There is no split 'bogus'": ("birds.npz", "--split", "bogus"),
    "There is no metric 'bogus'": ("birds.npz", "--threshold-metric", "bogus"),
    "There is no rule 'bogus'": ("birds.npz", "--threshold-rule", "bogus"),
    "nowhere.csv": ("nowhere.csv",),
    "no data set 'bogus'": ("bogus",),
}


def test_bad_options_of_fit_are_refused_before_torch_is_loaded(shell, survey):
    commands = [["fit", *arguments, "--out", "m.cgmvae"] for arguments in BAD_OPTIONS.values()]
    outcome = shell("-c", REFUSED, json.dumps(commands))
    assert outcome.out == "[2, 2, 2, 2, 2, 2, 2] []\n"
    for sentence, line in zip(BAD_OPTIONS, outcome.err.splitlines(), strict=True):
        assert sentence in line


def test_predict_does_not_load_the_compiler_of_torch(start, survey):
    """Arithmetic on meta tensors loads it, for instance."""
    sizes = {"latent_dim": 4, "embedding_dim": 8, "feature_hidden": (8,), "decoder_hidden": (8,)}
    model = library.CGMVAEClassifier(network=sizes, n_members=1, epochs=1, random_state=0)
    model.fit(survey.X, survey).save("m.cgmvae")
    outcome, loaded = start("predict", "m.cgmvae", "birds.npz", "--out", "p.csv")
    assert (outcome.code, outcome.err, loaded) == (0, "", ["torch", "sklearn"])
