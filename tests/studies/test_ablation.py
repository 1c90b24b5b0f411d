"""The ablation from runs with known numbers, and once from real ones."""

from dataclasses import replace

import pytest

from cgmvae.studies.commands import run_study
from cgmvae.studies.engines import local_engine
from cgmvae.studies.results import Results
from cgmvae.studies.spec import unique
from cgmvae.studies.store import Store
from cgmvae.studies.studies import ablation, main
from cgmvae.studies.study import Scope
from cgmvae.studies.variants import COMPLETE, MIXTURE_ONLY, PLAIN

QUICK = Scope(quick=True)


def by_title(tables):
    return {table.title: table for table in tables}


def texts(table):
    return [[getattr(cell, "text", cell) for cell in row] for row in table.rows]


def keep_all(made_up, data, scores, *, oracle=None):
    """Keep the default weights' runs: one score a variant, the second split .01 above."""
    for variant, score in zip(ablation.VARIANTS, scores, strict=True):
        for split in (0, 1):
            spec = replace(variant.spec(QUICK, data), split=split)
            made_up.keep(spec, score + 0.01 * split, oracle=oracle and oracle[variant.title])


def test_runs_are_shared_with_the_main_study_and_between_the_weights(here):
    here("yeast", "scene")
    runs = unique(ablation.runs(Scope()))
    assert len(runs) == 2 * 9 * 9  # 2 data sets, 5 + 4 variants, 3 × 3 splits and seeds
    assert len({run.key for run in runs}) == len(runs)
    shared = set(runs) & set(main.runs(Scope()))
    assert len(shared) == 2 * 9
    assert {str(run.settings) for run in shared} == {"{}"}


def test_a_quick_study_has_the_default_weights_alone(here):
    here("yeast", "scene")
    runs = unique(ablation.runs(QUICK))
    assert len(runs) == 2 * 5 * 2
    assert all(run.settings["n_members"] == 1 for run in runs)
    assert not any("cross_entropy_weight" in run.settings for run in runs)


def test_the_paper_s_weights_leave_switched_off_terms_off():
    for variant, heavy in zip(ablation.VARIANTS[1:], ablation.HEAVY_VARIANTS[1:], strict=True):
        off = {name for name, value in variant.settings.items() if value == 0}
        assert off == {name for name, value in heavy.settings.items() if value == 0}
        assert heavy.settings["cross_entropy_weight"] == 0.5


def test_scores_are_marked_within_their_data_set(made_up, here):
    here("yeast", "scene")
    keep_all(made_up, "yeast", (0.5, 0.6, 0.4, 0.3, 0.7))
    keep_all(made_up, "scene", (0.9, 0.1, 0.2, 0.3, 0.4))
    table = by_title(ablation.tables(QUICK, Results(made_up.store)))[
        "Ablation, default weights, thresholds: validation"
    ]
    marks = {(row[0], row[1]): row[2].mark for row in table.rows}
    assert {key for key, mark in marks.items() if mark == "best"} == {
        ("yeast", COMPLETE.title),
        ("scene", PLAIN.title),
    }
    assert {key for key, mark in marks.items() if mark == "second"} == {
        ("yeast", ablation.UNIMODAL.title),
        ("scene", COMPLETE.title),
    }
    assert texts(table)[0][2] == "0.505 ± – ± 0.007"
    assert texts(table)[0][-1] == "2"


def test_what_the_parts_add_is_found_or_not(made_up, here):
    here("yeast", "scene")
    keep_all(made_up, "yeast", (0.5, 0.6, 0.8, 0.3, 0.7))
    keep_all(made_up, "scene", (0.5, 0.6, 0.8, 0.3, 0.7))
    noisy = replace(PLAIN.spec(QUICK, "scene"), split=1)
    made_up.keep(noisy, 0.9)
    table = by_title(ablation.tables(QUICK, Results(made_up.store)))[
        "What the parts add, default weights"
    ]
    notes = "\n".join(table.notes)
    assert (
        "“GM + contrastive” above “plain cross-entropy”, micro-F1: found on 1 of 2 data sets "
        "(yeast), within noise on 1 (scene); mean +0.102." in notes
    )
    assert (
        "“GM + contrastive” above “GM only”, micro-F1: found on 0 of 2 data sets, not found, but "
        "the opposite, on 2 (yeast, scene); mean -0.100." in notes
    )
    assert ["yeast", "GM + contrastive − uni-Gaussian", *["+0.100 [+0.100, +0.100]"] * 3] in texts(
        table
    )


def test_the_paper_s_numbers_stand_beside_the_oracle_s(made_up, here):
    here("bbs_2003_2009")
    scope = Scope(quick=True, data=("bbs_2003_2009", "nus_vec"))
    tables = by_title(ablation.tables(scope, Results(made_up.store)))
    rows = texts(tables["Ablation, default weights, thresholds: test-oracle"])
    assert ["— the paper on ebird", "uni-Gaussian", "0.545", "0.583", "0.490", "–", "–"] in rows
    assert ["— the paper", "GM only", "0.472", "0.505", "0.218", "–", "–"] in rows
    assert any(row[0] == "nus_vec" and row[1].startswith("not here: put") for row in rows)
    honest = texts(tables["Ablation, default weights, thresholds: validation"])
    assert not any("paper" in row[0] for row in honest)


def test_the_relative_gain_is_the_oracle_s_and_the_paper_s_own(made_up, here):
    here("yeast", "scene")
    oracle = dict.fromkeys((v.title for v in ablation.VARIANTS), 0.5)
    keep_all(made_up, "yeast", [0.1] * 5, oracle=oracle | {COMPLETE.title: 0.6})
    keep_all(made_up, "scene", [0.1] * 5, oracle=oracle | {COMPLETE.title: 0.55})
    table = ablation.tables(QUICK, Results(made_up.store))[-1]
    ours, paper = texts(table)
    assert ours[1].startswith("+15.0 [")
    cells = {"ebird": (0.538, 0.490), "mirflickr": (0.440, 0.413), "nus_vec": (0.226, 0.203)}
    expected = sum(100 * (a / b - 1) for a, b in cells.values()) / 3
    assert paper[-1].startswith(f"{expected:+.1f} [")


def test_missing_runs_are_said_to_be_missing(made_up, here):
    here("yeast", "scene")
    made_up.keep(COMPLETE.spec(QUICK, "yeast"), 0.5)
    failed = MIXTURE_ONLY.spec(QUICK, "yeast")
    made_up.store.write_error(replace(failed, split=1), "The device is full.")
    tables = ablation.tables(QUICK, Results(made_up.store))
    rows = texts(tables[0])
    assert ["yeast", COMPLETE.title, *["0.500 ± – ± –"] * 5, "1 of 2"] in rows
    assert ["yeast", MIXTURE_ONLY.title, "The device is full."] in rows
    assert ["scene", COMPLETE.title, "not run"] in rows
    assert tables[2].notes[1].endswith("no runs yet.")


def test_from_real_runs_on_yeast(tmp_path, monkeypatch):
    tiny = {"n_members": 1, "epochs": 1, "embedding_dim": 8, "batch_size": 1024}
    monkeypatch.setattr(Scope, "settings", lambda *_: tiny)
    scope, store = Scope(quick=True, data=("yeast",), splits=(0, 1)), Store(tmp_path)
    assert run_study(ablation.STUDY, scope, store, local_engine(device="cpu")) == []
    table = ablation.tables(scope, Results(store))[0]
    assert [row[-1] for row in texts(table)] == ["2"] * 5
    means = [float(row[2].split()[0]) for row in texts(table)]
    assert all(0.2 < mean < 0.8 for mean in means)


@pytest.mark.parametrize("scope", [QUICK, Scope()])
def test_tables_without_any_run(scope, made_up):
    assert ablation.tables(scope, Results(made_up.store))
