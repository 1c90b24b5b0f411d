"""``cgmvae fit``: small trainings through files, what they leave behind, and how they stop."""

import errno
import json
import re
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import cgmvae as library
from cgmvae.cli import console, models
from cgmvae.cli.arguments import parse_settings
from cgmvae.data import make_split, readers
from cgmvae.data.serialization import read_tensors
from cgmvae.errors import InputError
from cgmvae.evaluation import Scored, evaluate
from cgmvae.methods import CGMVAEClassifier

from .conftest import contents

SMALL = ("--members", "1", "--epochs", "3", "--setting", "embedding_dim=16")
SMALL += ("--setting", "feature_hidden=[16]", "--setting", "label_hidden=16")
SMALL += ("--setting", "decoder_hidden=[]")


def fit(call, *arguments, source="birds.npz", out="birds.cgmvae", small=SMALL):
    return call("fit", source, "--out", out, *small, *arguments)


def stop_after(monkeypatch, epoch):
    """Press Ctrl-C at the end of an epoch, or before the first."""

    @contextmanager
    def progress(title, metric):
        def update(done, epochs, best):
            assert (epochs, 0 <= best <= 1) == (3, True)
            if done == epoch:
                raise KeyboardInterrupt

        if epoch == 0:
            raise KeyboardInterrupt
        yield update

    monkeypatch.setattr(console, "training_progress", progress)


def test_progress_is_printed_as_lines_without_a_terminal(cgmvae, survey, monkeypatch):
    monkeypatch.setattr(console, "SECONDS_BETWEEN_LINES", 0.0)
    lines = fit(cgmvae).err.splitlines()
    assert [line.partition(":")[0] for line in lines] == [f"Epoch {i} of 3" for i in (1, 2, 3)]
    assert re.fullmatch(r".*: best mean of five validation metrics 0\.\d{4}, .* s left", lines[0])


# --- What is fitted -----------------------------------------------------------------------------


def test_a_csv_file_becomes_a_model(succeeds, survey, tmp_path):
    output = fit(succeeds, "--json", "--label-count", "-5", source="birds.csv")
    assert set(contents(tmp_path)) == {"birds.csv", "birds.npz", "birds.cgmvae"}
    model, report = library.load("birds.cgmvae"), json.loads(output)
    assert model.label_names_ == survey.label_names
    assert model.input_names_ == survey.feature_names
    assert model.cgmvae_.network_.config.feature_hidden == (16,)
    assert model.cgmvae_.network_.config.embedding_dim == 16
    assert (model.cgmvae_.plan_.training.epochs, len(model.cgmvae_.member_folds_)) == (3, 1)
    assert len(report["best_epochs"]) == 1
    assert [expert["name"] for expert in report["experts"]] == ["cgmvae", "trees", "votes"]
    split = make_split(survey, seed=0)
    assert report["split"]["kind"] == "random"
    assert report["split"]["rows"]["train"] == len(split.train)
    test = survey.rows(split.test)
    scored = Scored(test.Y, model.predict_proba(test.X))
    expected = evaluate(scored, rule=model.threshold_rule_).metrics
    assert report["metrics"] == pytest.approx(expected, rel=1e-6)
    text = fit(succeeds, "--label-count", "-5", source="birds.csv", out="my birds.cgmvae")
    row = next(line.split() for line in text.splitlines() if line.strip().startswith("validation"))
    assert row[1:] == [f"{value:.3f}" for value in report["metrics"].values()]
    assert (
        f"Wrote my birds.cgmvae: blend from {len(split.train) + len(split.validation)} rows" in text
    )
    assert "cgmvae predict 'my birds.cgmvae' SOURCE --out" in text


def test_model_and_page_are_named_after_their_source(succeeds, refused, survey, tmp_path):
    given = ("fit", "birds.csv", "--label-count", "-5", "--method", "binary-relevance")
    assert "Wrote birds.cgmvae" in succeeds(*given)
    assert "birds.cgmvae exists" in refused(*given)
    assert "Wrote birds.html" in succeeds("report", "birds.cgmvae", "--baselines", "none")
    files = [(tmp_path / name).stat().st_mode for name in ("birds.csv", "birds.cgmvae")]
    assert files[0] == files[1]  # others may read the model as they may read the data


def without_origin(path):
    """Return a model file's content but for where it comes from: date, seconds, command."""
    tensors, description = read_tensors(path)
    assert description.pop("origin")["data"]["source"] == "birds.npz"
    return {name: array.tobytes() for name, array in tensors.items()}, description


def test_the_same_seed_gives_the_same_file(succeeds, survey, tmp_path):
    fit(succeeds, out="a.cgmvae")
    fit(succeeds, out="b.cgmvae")
    fit(succeeds, "--seed", "1", out="c.cgmvae")
    a, b, c = (without_origin(tmp_path / f"{name}.cgmvae") for name in "abc")
    assert a == b != c


def test_groups_are_not_divided(succeeds, survey):
    groups = np.arange(survey.n_samples) // 4
    readers.write(replace(survey, groups=groups), "birds.npz")
    fit(succeeds)
    origin = library.load("birds.cgmvae").origin_
    assert origin["split"]["kind"] == "group"
    split = models.recorded_split(origin, readers.read("birds.npz"))
    parts = [set(groups[rows]) for rows in (split.train, split.validation, split.test)]
    assert sum(map(len, parts)) == len(set.union(*parts))
    fit(succeeds, "--split", "random", "--overwrite")
    assert library.load("birds.cgmvae").origin_["split"]["kind"] == "random"


def test_without_a_test(succeeds, survey):
    report = json.loads(fit(succeeds, "--no-test", "--json"))
    assert report["split"] is None
    text = fit(succeeds, "--no-test", "--overwrite")
    assert "from all 150 rows of birds." in text
    assert "Out of fold" in text
    assert f"{report['metrics']['micro_f1']:.3f}" in text
    assert "Out of fold: example-F1" in succeeds("describe", "birds.cgmvae")


def test_rows_without_a_label_count_unless_dropped(succeeds, survey):
    Y = survey.Y.copy()
    Y[:90] = 0
    n_empty = int((~Y.any(1)).sum())
    readers.write(replace(survey, Y=Y), "plots.npz")
    given = {"source": "plots.npz", "small": ("--method", "binary-relevance")}
    kept = json.loads(fit(succeeds, "--all-rows", "--json", **given, out="kept.cgmvae"))
    assert sum(kept["split"]["rows"].values()) == 150
    columns = dict(zip(survey.feature_names, survey.X.T, strict=True))
    predicted = library.load("kept.cgmvae").predict_proba(columns)
    np.testing.assert_allclose(predicted.mean(0), Y.mean(0), atol=0.05)
    text = fit(succeeds, "--drop-empty", **given, out="dropped.cgmvae")
    assert f"{n_empty:,} rows without a positive label were left out." in text
    dropped = library.load("dropped.cgmvae")
    assert dropped.origin_["split"]["drop_empty"]
    assert (dropped.predict_proba(columns).mean(0) > Y.mean(0) + 0.05).all()


def test_a_single_method_is_no_blend(succeeds, survey):
    text = fit(succeeds, "--method", "cgmvae", "--preset", "paper", out="alone.cgmvae")
    assert "alone.cgmvae: C-GMVAE from" in text
    assert "Experts of the blend" not in text
    assert library.load("alone.cgmvae").preset == "paper"


def test_each_expert_is_printed_as_it_is_stored(succeeds, survey):
    text = fit(succeeds, "--preset", "released")
    model = library.load("birds.cgmvae")
    assert model.cgmvae_.preset == "released"
    for expert in model.experts_:
        (line,) = (line for line in text.splitlines() if line.startswith(f" {expert.name} "))
        weight = f"{expert.weight:.2f}" if expert.weight else "dropped"
        assert line.split(expert.kind)[1].split()[:2] == [weight, f"{expert.score:.3f}"]


def has_one_for_each_row(path, n_rows):
    """Return whether a file contains an array with as many entries as there are rows."""
    tensors, _ = read_tensors(path)
    return any(array.shape[:1] == (n_rows,) for array in tensors.values())


def test_training_rows_are_stored_unless_they_must_not_be(succeeds, refused, survey):
    text = fit(succeeds, "--no-test")
    model = library.load("birds.cgmvae")
    kinds = [e.kind for e in model.experts_ if e.name in model.models_ and e.name != "cgmvae"]
    kept = f"The file contains 150 training rows ({', '.join(kinds)})."
    assert text.splitlines()[-1].startswith(kept)
    assert has_one_for_each_row("birds.cgmvae", 150)
    text = fit(succeeds, "--no-test", "--no-training-rows", out="private.cgmvae")
    assert text.endswith("The file contains no training rows.\n")
    assert list(library.load("private.cgmvae").models_) == ["cgmvae"]
    assert not has_one_for_each_row("private.cgmvae", 150)
    for method, words in {"mlknn": "ML-kNN keeps training rows", "trees": "mixed forest"}.items():
        given = ("--method", method, "--no-training-rows")
        assert words in fit(refused, *given, small=(), out="no.cgmvae")


# --- Stopping and going on ----------------------------------------------------------------------


def test_a_stopped_fit_continues(cgmvae, succeeds, survey, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        stop_after(patch, 0)
        outcome = fit(cgmvae)
    assert (outcome.code, outcome.out, outcome.err) == (130, "", "Error: Stopped.\n")
    assert set(contents(tmp_path)) == {"birds.csv", "birds.npz"}
    fit(succeeds, out="whole.cgmvae")
    with monkeypatch.context() as patch:
        stop_after(patch, 2)
        outcome = fit(cgmvae)
    sentence = "Stopped; the same command resumes from birds.cgmvae.checkpoint."
    assert (outcome.code, outcome.out, outcome.err) == (130, "", f"Error: {sentence}\n")
    before = set(contents(tmp_path))
    states = {"birds.cgmvae.checkpoint", "birds.cgmvae.checkpoint.previous"}
    assert before == {"birds.csv", "birds.npz", "whole.cgmvae", *states}
    assert "Resumed the interrupted training" in fit(succeeds)
    continued, whole = (without_origin(tmp_path / f"{name}.cgmvae") for name in ("birds", "whole"))
    assert continued == whole
    assert library.load("birds.cgmvae").origin_["seconds"] is None  # of the first part nobody knows
    assert not states & set(contents(tmp_path))


def test_a_fit_stopped_while_trees_grow_continues(cgmvae, succeeds, survey, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    fit(succeeds, out="whole.cgmvae")
    with monkeypatch.context() as patch:
        patch.setattr("cgmvae.methods.trees.grow_tree", stop)
        outcome = fit(cgmvae)
    assert outcome.code == 130
    assert outcome.err.endswith("the same command resumes from birds.cgmvae.checkpoint.\n")
    assert "Resumed the interrupted training" in fit(succeeds)
    assert without_origin("birds.cgmvae") == without_origin("whole.cgmvae")


def test_a_fit_stopped_while_it_prints_can_be_given_again(cgmvae, succeeds, survey, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(console, "print_table", stop)
        assert fit(cgmvae).code == 130
    text = fit(succeeds)
    assert text.index("validation") < text.index("Wrote birds.cgmvae")


def test_a_damaged_checkpoint_says_to_remove_it(cgmvae, refused, succeeds, survey, monkeypatch):
    with monkeypatch.context() as patch:
        stop_after(patch, 1)
        assert fit(cgmvae).code == 130
    checkpoint = Path("birds.cgmvae.checkpoint")
    checkpoint.write_bytes(checkpoint.read_bytes()[:-1])
    assert fit(refused).endswith("; remove it, and training starts over.")
    checkpoint.unlink()
    fit(succeeds)


# --- Refusals -----------------------------------------------------------------------------------


BAD = {
    "no method 'magic'; choose one of blend, cgmvae, trees": ("--method", "magic"),
    "no preset 'best'; choose one of": ("--preset", "best"),
    "no device 'abacus'; use auto, cpu or cuda": ("--device", "abacus"),
    "no split 'odd'": ("--split", "odd"),
    "has no groups to split by": ("--split", "group"),
    "'guess'": ("--threshold-rule", "guess"),
    "--members": ("--members", "0"),
    "--no-test excludes --split": ("--no-test", "--split", "random"),
    "The setting 'latent_dim' has no value": ("--setting", "latent_dim"),
    "no setting 'size'; there are activation,": ("--setting", "size=3"),
    "latent_dim is 0; it must be a whole number": ("--setting", "latent_dim=0"),
    "dropout is 1; it must be at least 0 and below 1": ("--setting", "dropout=1"),
    "layer_norm is 1; it must be true or false": ("--setting", "layer_norm=1"),
    "prior is 'flat'; choose one of mixture": ("--setting", "prior=flat"),
    "selection is 3; it must be a name": ("--setting", "selection=3"),
    "folder no does not exist": ("--out", "no/birds.cgmvae"),
    "birds.npz is an input": ("--out", "birds.npz", "--overwrite"),
    "File name too long": ("--out", "a" * 300),
    "--label-count does not apply to npz files": ("--label-count", "2"),
}


def test_bad_options_change_nothing(refused, survey, tmp_path):
    before = contents(tmp_path)
    for words, arguments in BAD.items():
        assert words in fit(refused, *arguments), words
    assert contents(tmp_path) == before


def test_options_of_another_method_are_refused(refused, survey):
    for option, value in {"preset": "tuned", "members": "2", "device": "cpu"}.items():
        arguments = ("--method", "binary-relevance", f"--{option}", value)
        sentence = fit(refused, *arguments, small=())
        assert f"--{option} does not apply to binary relevance" in sentence
    arguments = ("--method", "binary-relevance", "--setting", "latent_dim=4")
    assert "no setting 'latent_dim'; there are n_jobs" in fit(refused, *arguments, small=())
    arguments = ("--method", "lamp", "--setting", "graph=ring")  # left to the method
    assert "graph is 'ring'" in fit(refused, *arguments, small=())


def test_an_unwritable_folder_is_refused_before_anything_is_read(refused, survey, monkeypatch):
    def deny(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(tempfile, "TemporaryFile", deny)
    sentence = fit(refused, source="missing.npz")
    assert sentence == (
        "Cannot write birds.cgmvae (Permission denied); choose another name or folder."
    )


def test_data_without_features_or_with_too_few_rows(refused, survey):
    np.savez("narrow.npz", X=np.zeros((40, 0), np.float32), Y=survey.Y[:40])
    np.savez("short.npz", X=survey.X[:3], Y=survey.Y[:3])
    assert "no features" in fit(refused, source="narrow.npz")
    assert "leaves no" in fit(refused, source="short.npz")


# --- Settings, help, start ----------------------------------------------------------------------


def test_settings_are_read_as_json_or_words():
    given = ("latent_dim=8", "feature_hidden=[8, 4]", "label_hidden=3", "decoder_hidden=[]")
    given += ("prior=standard", 'activation="relu"', "clip=null", "dropout=0", "layer_norm=false")
    assert parse_settings(given, CGMVAEClassifier) == {
        "latent_dim": 8,
        "feature_hidden": (8, 4),
        "label_hidden": (3,),
        "decoder_hidden": (),
        "prior": "standard",
        "activation": "relu",
        "clip": None,
        "dropout": 0,
        "layer_norm": False,
    }
    with pytest.raises(InputError, match="network"):
        parse_settings(["network=1"], CGMVAEClassifier)
