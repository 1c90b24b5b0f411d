"""The deciding studies, from runs with known numbers."""

from dataclasses import replace

import numpy as np
import pytest
from tiny_study import texts

from cgmvae.studies import decide
from cgmvae.studies.ablation import COMPLETE, UNIMODAL
from cgmvae.studies.decide import (
    DECIDE,
    DECIDE_MODULES,
    DECIDE_REGIMES,
    MAIN_TUNED,
    PARTS,
    Arm,
    own_scope,
)
from cgmvae.studies.results import Results
from cgmvae.studies.spec import Scope, is_network, unique

YEAST = Scope(data=("yeast",))


def test_every_arm_is_tuned_in_every_network(available):
    available("yeast", "delicious")
    runs = unique(DECIDE.runs(Scope()))
    cells = unique(replace(run, split=0) for run in runs)
    assert len(cells) == 2 * 3 * 5
    assert len(runs) == 10 * len(cells)
    assert {run.split for run in runs} == set(range(1, 11))  # not the one of the search
    assert {(run.data, run.tuning) for run in runs} == {("yeast", "grid"), ("delicious", "random")}
    assert all(run.settings["n_members"] == 1 for run in runs)
    assert len(unique(replace(r, split=0) for r in DECIDE_MODULES.runs(Scope()))) == 2 * 2 * 4
    assert len(unique(replace(r, split=0) for r in DECIDE_REGIMES.runs(Scope()))) == 2 * 2 * 14
    assert {run.official for run in DECIDE.runs(Scope(split="official"))} == {True}


def test_settings_of_network_and_arm_are_joined():
    spec = Arm("paper", UNIMODAL).tuned(Scope(), "reuters")
    assert spec.settings["settings"] == {
        "decoder_hidden": (512, 512, 512),
        "prior": "label-sum",
    }
    assert spec.settings["preset"] == "paper"
    assert spec.settings["encoding"] == "standard"
    assert "encoding" not in Arm("tuned", UNIMODAL).tuned(Scope(), "yeast").settings


def test_the_main_table_has_each_network_tuned_with_the_same_budget(made_up, available):
    available("yeast")
    runs = {run.method: run for run in MAIN_TUNED.runs(YEAST)}
    assert {run.tuning for name, run in runs.items() if is_network(name)} == {"random"}
    assert {run.tuning for name, run in runs.items() if not is_network(name)} == {""}
    for table in MAIN_TUNED.tables(Results(YEAST, made_up.store)):
        titles = [row[0] for row in texts(table)]
        assert {"C-GMVAE, network paper", "MPVAE, its authors' settings"} < set(titles)
    assert "— the paper, MPVAE" in titles


def keep(made_up, variant, scores):
    scope = own_scope(YEAST)
    spec = Arm("paper", variant).tuned(scope, "yeast")
    record = {"best": {"dropout": 0.3}, "value": 0.7, "n_settings": 181}
    labels = {"train_positives": list(range(14)), "label_f1": [0.5] * 14}
    for split, score in zip(scope.splits, scores, strict=False):
        made_up.keep(replace(spec, split=split), score, oracle=score, tuned=record, **labels)


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
    tables = {table.title: table for table in DECIDE.tables(Results(YEAST, made_up.store))}
    claim = f"“{COMPLETE.title}” above “{UNIMODAL.title}”"
    rows = {tuple(row[:2]): row[2:] for row in texts(tables["Verdicts"])}
    assert rows[claim, "paper"] == [f"{verdict} 1"] * 3
    differences = tables["Network paper, thresholds: validation"]
    (row,) = (row for row in texts(differences) if row[1] == claim)
    assert row[2].endswith(verdict)
    assert row[-1] == str(len(gains))
    chosen = {row[1]: row[2:] for row in texts(tables["What was chosen, network paper"])}
    assert chosen[COMPLETE.title] == ["dropout 0.3", "181", "0.700"]
    assert chosen[PARTS[0].other.title] == ["not run"]


def test_intervals_are_wider_for_splits_that_share_rows(made_up, available):
    available("yeast")
    keep(made_up, COMPLETE, 0.6 + np.linspace(0, 0.02, 10))
    keep(made_up, UNIMODAL, [0.6] * 10)
    results = Results(own_scope(YEAST), made_up.store)
    found = decide.compare(results, "paper", PARTS[1], "yeast", "validation")["micro_f1"]
    deviation = np.linspace(0, 0.02, 10).std(ddof=1)
    expected = 2.262157 * deviation * np.sqrt(1 / 10 + 1 / 8)
    assert found.high - found.mean == pytest.approx(expected, rel=1e-6)
