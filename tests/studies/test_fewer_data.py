"""Fewer rows: tables and figures from runs with known numbers."""

from dataclasses import replace

import numpy as np
import pytest
from tiny_study import texts

from cgmvae.studies import fewer_data
from cgmvae.studies.fewer_data import FRACTIONS, entry
from cgmvae.studies.results import Results
from cgmvae.studies.spec import Scope

QUICK = Scope(quick=True)


def keep(made_up, own, scores):
    """Store the runs of a method with a fraction of the rows of yeast, one score per split."""
    for split, score in enumerate(scores):
        made_up.keep(replace(entry(QUICK, "yeast", *own), split=split), score)


def test_half_the_rows_against_all_of_them(made_up, available):
    available("yeast")
    keep(made_up, fewer_data.HALF, (0.60, 0.62))
    keep(made_up, fewer_data.WHOLE, (0.65, 0.67))
    honest, _, differences, *_ = fewer_data.tables(Results(QUICK, made_up.store))
    assert texts(honest) == [
        ["yeast", "MPVAE (100%)", *["0.660"] * 4, "2"],
        ["yeast", "C-GMVAE (50%)", *["0.610"] * 4, "2"],
    ]
    assert honest.rows[0][2].mark == "best"
    assert texts(differences) == [["yeast", *["-0.050 [-0.050, -0.050]"] * 4]]
    assert differences.notes[1].endswith(
        ": below on 1 (yeast), indistinguishable on 0, above on 0 of 1 data sets."
    )


def test_the_paper_s_numbers_are_below_the_test_oracle_s(made_up, available):
    available("bbs_2003_2009")
    made_up.keep(entry(Scope(), "bbs_2003_2009", *fewer_data.HALF), 0.5)
    oracle = fewer_data.tables(Results(Scope(), made_up.store))[1]
    row = ["— the paper on ebird", "C-GMVAE (50%)", "0.842", "0.557", "0.615", "0.521"]
    assert row in texts(oracle)


def test_gains_are_over_c2ae_with_the_same_rows(made_up, available):
    available("yeast")
    for fraction, base in zip(FRACTIONS, (0.2, 0.4, 0.5), strict=True):
        keep(made_up, ("c2ae", fraction), (base, base))
        keep(made_up, ("cgmvae", fraction), (1.1 * base, 1.2 * base))
    keep(made_up, ("asl", 0.1), (0.4, 0.4))
    macro = fewer_data.tables(Results(QUICK, made_up.store))[-1]
    rows = {row[1]: row[2:] for row in texts(macro)}
    assert rows["C-GMVAE"] == ["0.230 (+15.0%)", "0.460 (+15.0%)", "0.575 (+15.0%)"]
    assert rows["C2AE"][0] == "0.200 (+0.0%)"
    assert rows["ASL"] == ["0.400 (+100.0%)", "–", "–"]
    assert "at 10% of the rows: found on 0 of 1 data sets, not found, but the" in macro.notes[1]
    assert "at 100% of the rows: found on 0 of 1 data sets, within noise" in macro.notes[3]


def test_a_figure_holds_gains_and_their_deviations_over_splits(made_up, available):
    available("yeast")
    assert fewer_data.figures(Results(QUICK, made_up.store)) == []
    keep(made_up, ("c2ae", 0.1), (0.2, 0.4))
    keep(made_up, ("cgmvae", 0.1), (0.22, 0.48))
    figures = fewer_data.figures(Results(QUICK, made_up.store))
    assert [figure.name for figure in figures] == [
        f"fewer_data_yeast_{metric}" for metric in fewer_data.METRICS
    ]
    contents = figures[-1].contents
    assert contents["methods"] == ["C-GMVAE", "MPVAE", "LaMP", "ASL", "RBCC"]
    assert contents["metric"] == "macro-F1, gain over C2AE in %"
    assert contents["values"].shape == contents["deviations"].shape == (5, 3)
    assert contents["values"][0, 0] == pytest.approx(15)
    assert contents["deviations"][0, 0] == pytest.approx(np.std([10, 20], ddof=1))
    assert np.isnan(contents["values"][1:]).all()


def test_peers_may_be_chosen_too(made_up, available):
    available("yeast")
    scope = replace(QUICK, methods=("c2ae", "mlp"))
    keep(made_up, ("c2ae", 0.1), (0.0, 0.2))  # there is no gain over a score of 0
    keep(made_up, ("mlp", 0.1), (0.3, 0.3))
    macro = fewer_data.tables(Results(scope, made_up.store))[-1]
    assert texts(macro)[1][1:3] == ["multi-layer perceptron", "0.300 (+50.0%)"]
    contents = fewer_data.figures(Results(scope, made_up.store))[0].contents
    assert contents["methods"] == ["multi-layer perceptron"]


def test_a_small_run_without_c2ae_shows_what_was_run(made_up, available):
    available("yeast")
    for fraction in FRACTIONS:
        keep(made_up, ("asl", fraction), (0.4, 0.6))
    results = Results(QUICK, made_up.store)
    macro = fewer_data.tables(results)[-1]
    assert texts(macro) == [["yeast", "ASL", "0.500", "0.500", "0.500"]]
    assert "no runs yet" not in " ".join(macro.notes)
    drawn = fewer_data.figures(results)[0].contents
    assert np.nanmax(drawn["values"], axis=0) == pytest.approx([0.5, 0.5, 0.5])
    assert "gain" not in drawn["metric"]
