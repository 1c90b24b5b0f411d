"""Claims of the paper's text, from runs with known numbers and from the paper's source."""

import re
from dataclasses import replace

from tiny_study import texts

from cgmvae.studies import ablation, claims
from cgmvae.studies.claims import METRICS, PROSE, RIVALS, reported_gains
from cgmvae.studies.paper_tables import main_runs
from cgmvae.studies.results import Results
from cgmvae.studies.spec import Scope

QUICK = Scope(quick=True)
COLLAPSE, LOSSES, SCORES, IMPROVEMENTS = 0, 2, 1, 4


def keep(made_up, variant, scores, units=None):
    """Store the runs of a variant on yeast: a score and active units per split."""
    for split, score in enumerate(scores):
        found = {}
        if units is not None:
            found = {"active_units": units[split], "micro_f1": 0.6, "micro_f1_shuffled_z": 0.55}
        made_up.keep(replace(variant.spec(QUICK, "yeast"), split=split), score, diagnostics=found)


def test_active_units_by_prior(made_up, available):
    available("yeast")
    group = claims.COLLAPSE["z"]
    keep(made_up, group["mixture"], (0.5, 0.5), units=(3, 4))
    keep(made_up, group["standard"], (0.5, 0.5), units=(1, 2))
    table = claims.tables(Results(QUICK, made_up.store))[COLLAPSE]
    assert texts(table)[:3] == [
        ["yeast", "mixture, z", "3.5", "0.600", "0.050", "2"],
        ["yeast", "uni-Gaussian, z", "not run"],
        ["yeast", "N(0, I), z", "1.5", "0.600", "0.050", "2"],
    ]
    notes = "\n".join(table.notes)
    assert "with N(0, I), z: found on 1 of 1 data sets (yeast); mean +2.0." in notes
    assert "with uni-Gaussian, z: no runs yet." in notes
    assert "“mixture, z” has fewer than 6.4 active units on 1 of 1 data sets (yeast)." in notes
    assert "“mixture, (x, z)”: no runs yet." in notes


def test_losses_are_compared_at_equal_weights(made_up, available):
    available("yeast")
    light, heavy = claims.LOSSES.values()
    keep(made_up, light["contrastive"], (0.5, 0.6))
    keep(made_up, light["triplet"], (0.4, 0.5))
    keep(made_up, heavy["contrastive"], (0.3, 0.4))
    keep(made_up, heavy["triplet"], (0.5, 0.6))
    tables = claims.tables(Results(QUICK, made_up.store))
    notes = "\n".join(tables[LOSSES].notes)
    assert (
        "“contrastive, default weight” above “triplet, default weight”, micro-F1: found on 1 of 1"
        in notes
    )
    assert (
        "“contrastive, weight 1” above “triplet, weight 1”, micro-F1: found on 0 of 1 data sets, "
        "not found, but the opposite, on 1 (yeast); mean -0.200." in notes
    )
    best = [row[1] for row in tables[SCORES].rows if getattr(row[2], "mark", None) == "best"]
    assert best == [light["contrastive"].title, heavy["triplet"].title]


def test_average_improvements_three_ways(made_up, available):
    available("yeast", "scene")
    scores = {"yeast": {"cgmvae": 0.6, "asl": 0.5}, "scene": {"cgmvae": 0.55, "asl": 0.5}}
    for run in main_runs(QUICK):
        if run.method in scores[run.data]:
            made_up.keep(run, scores[run.data][run.method], oracle=0.5)
    table = claims.tables(Results(QUICK, made_up.store))[IMPROVEMENTS]
    rows = {(row[0], row[1]): row[2:] for row in texts(table)}
    text, tables, oracle, honest, n_data, verdict = rows["micro-F1", "ASL"]
    assert (text, tables, n_data, verdict) == ("+4.4", "+4.6", "2", "within noise")
    assert oracle == "+0.0 [+0.0, +0.0]"
    assert honest.startswith("+15.0 [")
    assert rows["macro-F1", "LaMP"][2:] == ["–", "–", "0", "not known"]


def test_improvements_are_over_the_splits_that_both_have(made_up, available):
    available("yeast", "scene")
    scores = {"cgmvae": (0.6, 0.9), "asl": (0.5, None), "lamp": (0.0, 0.0)}
    for run in main_runs(QUICK):
        score = scores.get(run.method, (None, None))[run.split]
        if score is not None:
            made_up.keep(run, score)
    rows = texts(claims.tables(Results(QUICK, made_up.store))[IMPROVEMENTS])
    honest = {(row[0], row[1]): row[5:7] for row in rows}
    assert honest["micro-F1", "ASL"] == ["+20.0 [+20.0, +20.0]", "2"]
    assert honest["micro-F1", "LaMP"] == ["–", "0"]  # nothing is a share of 0


def test_the_paper_s_text_against_its_own_tables(made_up, available):
    available()
    note = claims.tables(Results(QUICK, made_up.store))[IMPROVEMENTS].notes[-1]
    gaps = [
        PROSE[metric][rival] - reported_gains(metric, rival).mean()
        for metric in METRICS
        for rival in RIVALS
    ]
    far = sum(abs(gap) > 0.1 for gap in gaps)
    assert f"in {far} of 12 numbers, most in macro-F1 over LaMP: {max(gaps):+.1f}." in note


def test_the_prose_is_the_paper_s(paper):
    start = paper.index("On ex-F1, C-GMVAE improves over ASL by")
    passage = paper[start : paper.index("respectively", start)]
    printed = [float(n) for n in re.findall(r"([\d.]+)\\%", passage)]
    assert printed == [PROSE[metric][rival] for metric in METRICS for rival in RIVALS]
    assert "on ma-F1, C-GMVAE improves over the unimodal Gaussian model by 7\\%" in paper
    assert ablation.PROSE_GAIN == 7
