"""The study of arms: they do what their names say; verdicts and tables from known numbers."""

from dataclasses import replace

import numpy as np
import pytest
from tiny_study import texts

from cgmvae.data import make_survey
from cgmvae.errors import InputError
from cgmvae.methods import CGMVAEClassifier
from cgmvae.studies import arms
from cgmvae.studies.arms import (
    COMPARISONS,
    COMPLETE,
    PLAIN,
    SEEDS,
    SPLITS,
    STUDY,
    TWO_STAGES,
    UNIMODAL,
    Arm,
    rare_labels,
    tuned_run,
)
from cgmvae.studies.results import Results
from cgmvae.studies.spec import Scope, unique

PARTS = Scope(data=("yeast",), comparisons=("parts",))
OWN = PARTS.with_defaults(SPLITS, SEEDS)

ARMS = {arm.title: arm for comparison in COMPARISONS.values() for arm in comparison.arms}
SMALL = {"latent_dim": 3, "feature_hidden": (8,), "label_hidden": (8,), "decoder_hidden": (8,)}


def fitted(arm, data, **others):
    settings = {"epochs": 2, "embedding_dim": 8, "n_members": 1, "random_state": 0}
    model = CGMVAEClassifier()
    model.set_params(**model.as_parameters(settings | SMALL | arm.settings | others))
    return model.fit(data.X, data.Y)


def test_all_arms_train_and_differ(survey):
    scores = {name: fitted(arm, survey).predict_proba(survey.X) for name, arm in ARMS.items()}
    assert all(np.isfinite(each).all() for each in scores.values())
    assert len({each.tobytes() for each in scores.values()}) == len(scores)


@pytest.mark.parametrize(
    ("arm", "terms"),
    [
        (PLAIN, {"cross_entropy"}),
        (UNIMODAL, {"kl", "cross_entropy"}),
        (arms.STANDARD, {"kl", "cross_entropy"}),
        (arms.MIXTURE, {"kl", "cross_entropy"}),
        (arms.CONTRASTIVE, {"contrastive", "cross_entropy"}),
        (COMPLETE, {"kl", "contrastive", "cross_entropy"}),
        (arms.GRAPH, {"kl", "cross_entropy"}),
        (arms.COVARIANCE, {"kl", "cross_entropy"}),
    ],
    ids=lambda value: getattr(value, "title", ""),
)
def test_an_arm_has_the_terms_of_its_name(arm, terms, survey):
    assert set(fitted(arm, survey).network_.functions) == terms


def test_two_stages_leave_cross_entropy_to_the_second():
    """Only the cross-entropy depends on the label biases: a first stage does not move them."""
    data, _ = make_survey(400, 6, 5, seed=0)
    first_alone = Arm("first stage alone", {"first_stage": 1.0})
    short, long = (fitted(first_alone, data, epochs=epochs).label_bias_ for epochs in (1, 10))
    np.testing.assert_array_equal(short, long)
    both = fitted(TWO_STAGES, data, epochs=20, learning_rate=0.02)
    losses = both.history_["cross_entropy"][:, 0]
    assert losses[10:].mean() < losses[:10].mean()


def cells(*names):
    """Return how many runs a study of these comparisons has but for splits."""
    scope = Scope(comparisons=names)
    return len(unique(replace(run, split=0) for run in STUDY.runs(scope)))


def test_every_arm_is_tuned_in_every_network(available):
    available("yeast", "delicious")
    runs = STUDY.runs(Scope())
    assert {run.split for run in runs} == set(SPLITS)  # not the one of the search
    assert {(run.data, run.tuning) for run in runs} == {("yeast", "grid"), ("delicious", "random")}
    assert all(run.settings["n_members"] == 1 for run in runs)
    assert cells("parts") == 2 * 3 * 6
    assert cells("modules") == 2 * 2 * 4
    assert cells("losses") == 2 * 2 * 4
    assert cells("rows", "labels") == 2 * 2 * 2 * 7
    assert {run.official for run in STUDY.runs(Scope(split="official"))} == {True}
    with pytest.raises(InputError, match="no comparison 'part'; choose one of parts, modules"):
        STUDY.runs(Scope(comparisons=("part",)))


def test_settings_of_network_and_arm_are_joined():
    spec = tuned_run(UNIMODAL, "paper", Scope(), "reuters")
    assert spec.settings["decoder_hidden"] == (512, 512, 512)
    assert spec.settings["prior"] == "label-sum"
    assert spec.settings["preset"] == "paper"
    assert spec.settings["encoding"] == "standard"
    assert "encoding" not in tuned_run(UNIMODAL, "tuned", Scope(), "yeast").settings


def keep(made_up, arm, scores, **more):
    spec = tuned_run(arm, "paper", OWN, "yeast")
    record = {"best": {"dropout": 0.3}, "value": 0.7, "n_settings": 181}
    labels = {"train_positives": list(range(14)), "label_f1": [0.5] * 14} | more
    for split, score in zip(OWN.splits, scores, strict=False):
        made_up.keep(replace(spec, split=split), score, oracle=score, tuned=record, **labels)


def tables(made_up, scope=PARTS):
    found = STUDY.tables(Results(scope, made_up.store))
    return {
        table.title.removeprefix("Mixture prior and contrastive term: "): table for table in found
    }


@pytest.mark.parametrize(
    ("gains", "verdict"),
    [
        (np.linspace(0.02, 0.03, 10), "found"),
        (np.linspace(-0.004, 0.004, 10), "not found"),
        (np.linspace(-0.05, 0.06, 10), "undecided"),
        (np.full(9, 0.02), "too few splits"),
    ],
)
def test_verdicts(made_up, available, gains, verdict):
    available("yeast")
    keep(made_up, COMPLETE, 0.6 + gains)
    keep(made_up, UNIMODAL, [0.6] * 10)
    found = tables(made_up)
    claim = f"“{COMPLETE.title}” above “{UNIMODAL.title}”"
    assert texts(found["verdicts"]) == [[claim, "paper", *[f"{verdict} 1"] * 3]]
    (row,) = texts(found["network paper, thresholds: validation"])
    assert row[1] == claim
    assert row[2].endswith(verdict)
    assert row[-1] == str(len(gains))
    chosen = {row[1]: row[2:] for row in texts(found["settings, network paper"])}
    assert chosen[COMPLETE.title] == ["dropout 0.3", "181", "0.700", "–"]
    assert set(chosen) == {COMPLETE.title, UNIMODAL.title}  # what was not run is left out
    assert found["network tuned, thresholds: validation"].rows == []


def test_intervals_are_wider_for_splits_that_share_rows(made_up, available):
    available("yeast")
    keep(made_up, COMPLETE, 0.6 + np.linspace(0, 0.02, 10))
    keep(made_up, UNIMODAL, [0.6] * 10)
    results = Results(OWN, made_up.store)
    found = arms.compare(results, "paper", (COMPLETE, UNIMODAL), "yeast")["micro_f1"]
    deviation = np.linspace(0, 0.02, 10).std(ddof=1)
    expected = 2.262157 * deviation * np.sqrt(1 / 10 + 1 / 8)
    assert found.high - found.mean == pytest.approx(expected, rel=1e-6)


def test_the_paper_s_numbers_are_below_the_test_oracle_s(made_up, available, monkeypatch):
    available("yeast")
    monkeypatch.setattr("cgmvae.studies.spec.STAND_INS", {"yeast": "ebird"})
    keep(made_up, COMPLETE, [0.6] * 10)
    found = tables(made_up)
    rows = texts(found["scores, network paper, thresholds: test-oracle"])
    assert ["yeast", COMPLETE.title, *["0.600 ± – ± 0.000"] * 5, "10"] in rows
    assert ["— the paper on ebird", "uni-Gaussian", "0.545", "0.583", "0.490"] in rows
    honest = texts(found["scores, network paper, thresholds: validation"])
    assert not any("paper" in row[0] for row in honest)
    assert COMPARISONS["modules"].reported("ebird")["GM + GNN"] == [None, 0.599]
    assert COMPARISONS["modules"].reported("delicious") == {}


def test_runs_that_failed_have_a_reason(made_up, available):
    available("yeast")
    spec = replace(tuned_run(COMPLETE, "paper", OWN, "yeast"), split=1)
    made_up.store.write_error(spec, "The device is full.")
    rows = texts(tables(made_up)["scores, network paper, thresholds: validation"])
    assert rows == [["yeast", COMPLETE.title, "The device is full."]]


def test_rare_labels_and_latent_units(made_up, available):
    available("yeast")
    for arm, rare, units in ((COMPLETE, 0.4, 60), (PLAIN, 0.3, 0)):
        keep(
            made_up,
            arm,
            [0.6] * 10,
            train_positives=[5] * 4 + [50] * 10,
            label_f1=[rare] * 4 + [0.6] * 10,
            diagnostics={"active_units": units, "micro_f1": 0.6, "micro_f1_shuffled_z": 0.55},
        )
    found = tables(made_up)
    (row,) = found["rare labels, network paper"].rows
    assert row[2:] == ["+0.100 [+0.100, +0.100]: found", "+0.000 [+0.000, +0.000]: not found", "10"]
    rows = {row[1]: row[2:] for row in found["latent units, network paper"].rows}
    assert rows[COMPLETE.title] == ["60.0", "0.050", "10"]


def test_labels_that_no_test_row_has_are_left_out(made_up, monkeypatch):
    labels = {"label_f1": [0.0, *[0.4] * 3, *[0.6] * 10], "train_positives": [5] * 4 + [50] * 10}
    keep(made_up, COMPLETE, [0.5] * 10, **labels)
    monkeypatch.setattr(arms, "_tested_labels", lambda *_: np.arange(14) > 0)
    spec = tuned_run(COMPLETE, "paper", OWN, "yeast")
    scores = arms.rare_scores(Results(OWN, made_up.store), spec)
    np.testing.assert_allclose(scores[0], 0.4)


def test_the_rarest_third_is_rounded_down_but_not_to_nothing():
    assert rare_labels([3, 1]).tolist() == [False, True]
