"""What a command loads: torch takes seconds to import, so only what computes loads it."""

import json

import cgmvae as library

#: Runs the command, and says last which slow modules were loaded.
LOADED = """
import atexit, sys
slow = "torch", "torch._dynamo", "sklearn"
atexit.register(lambda: print("loaded:", *(name for name in slow if name in sys.modules)))
from cgmvae.cli.main import run
run()
"""


#: Runs commands one after the other; prints their exit codes and the slow modules.
ENDED = """
import json, sys
from cgmvae.cli.main import run
codes = []
for command in json.loads(sys.argv[1]):
    sys.argv = ["cgmvae", *command]
    try:
        run()
    except SystemExit as ended:
        codes.append(ended.code or 0)
slow = "torch", "sklearn", "cgmvae.studies.commands"
print(codes, [name for name in slow if name in sys.modules])
"""


BAD_OPTIONS = {
    "There is no method 'bogus'": ("birds.npz", "--method", "bogus"),
    "There is no device 'gpu'": ("birds.npz", "--device", "gpu"),
    "There is no split 'bogus'": ("birds.npz", "--split", "bogus"),
    "There is no metric 'bogus'": ("birds.npz", "--threshold-metric", "bogus"),
    "There is no rule 'bogus'": ("birds.npz", "--threshold-rule", "bogus"),
    "nowhere.csv": ("nowhere.csv",),
    "no data set 'bogus'": ("bogus",),
}


def test_what_needs_no_torch_does_not_load_it(shell, model, survey):
    """Lists, descriptions, and bad options of fit, in one process."""
    commands = [["fit", *arguments, "--out", "m.cgmvae"] for arguments in BAD_OPTIONS.values()]
    commands += [["methods", "--json"], ["describe", "birds.cgmvae", "--json"], ["bench", "--help"]]
    outcome = shell("-c", ENDED, json.dumps(commands))
    assert outcome.out.splitlines()[-1] == "[2, 2, 2, 2, 2, 2, 2, 0, 0, 0] []"
    for sentence, line in zip(BAD_OPTIONS, outcome.err.splitlines(), strict=True):
        assert sentence in line


def test_predict_does_not_load_the_compiler_of_torch(shell, survey):
    """Arithmetic on meta tensors loads it, for instance."""
    sizes = {"latent_dim": 4, "embedding_dim": 8, "feature_hidden": (8,), "decoder_hidden": (8,)}
    model = library.CGMVAEClassifier(network=sizes, n_members=1, epochs=1, random_state=0)
    model.fit(survey.X, survey).save("m.cgmvae")
    outcome = shell("-c", LOADED, "predict", "m.cgmvae", "birds.npz", "--out", "p.csv")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.endswith("loaded: torch sklearn\n")
