"""Modules of label correlation from runs with known numbers."""

from dataclasses import replace

from tiny_study import texts

from cgmvae.studies import ablation, replacement
from cgmvae.studies.results import Results
from cgmvae.studies.spec import Scope, unique

QUICK = Scope(quick=True)


def test_runs_are_shared_with_the_ablation(available):
    available("yeast", "scene", "sider")
    runs = unique(replacement.runs(Scope()))
    assert len(runs) == 3 * 4 * 9
    assert len(set(runs) & set(ablation.runs(Scope()))) == 3 * 2 * 9


def test_modules_stand_side_by_side_with_the_paper_s(made_up, available):
    available("yeast")
    for variant, score in zip(replacement.VARIANTS, (0.6, 0.62, 0.64, 0.61), strict=True):
        for split in (0, 1):
            spec = replace(variant.spec(QUICK, "yeast"), split=split)
            made_up.keep(spec, score + 0.02 * split, oracle=score + 0.1)
    honest, oracle, added = replacement.tables(Results(QUICK, made_up.store))
    cells = [f"{mean:.3f} ± – ± 0.014" for mean in (0.61, 0.63, 0.65, 0.62)]
    assert texts(honest)[0] == ["yeast", *cells, "2"]
    assert [cell.mark for cell in honest.rows[0][1:5]] == [None, "second", "best", None]
    assert texts(honest)[1][0] == "scene"
    assert texts(oracle)[:2] == [
        ["yeast", *(f"{mean:.3f} ± – ± 0.000" for mean in (0.7, 0.72, 0.74, 0.71)), "2"],
        ["— the paper", "–", "0.650", "0.655", "0.665"],
    ]
    notes = "\n".join(added.notes)
    assert "“contrastive” above “no module”, micro-F1: found on 1 of 1 data sets (yeast)" in notes
    assert "“contrastive” above “GNN”, micro-F1: found on 0 of 1 data sets, not found, but" in notes


def test_stand_ins_have_the_paper_s_numbers_of_what_they_stand_for(made_up, available):
    available()
    oracle = replacement.tables(Results(Scope(), made_up.store))[1]
    assert ["— the paper on ebird", "–", "0.601", "0.599", "0.633"] in texts(oracle)
    assert not any("delicious" in row[0] and "paper" in row[0] for row in texts(oracle))


def test_a_module_without_runs_says_so(made_up, available):
    available("yeast")
    made_up.keep(replacement.CONTRASTIVE.spec(QUICK, "yeast"), 0.5)
    honest, *_ = replacement.tables(Results(QUICK, made_up.store))
    row = texts(honest)[0]
    assert row == ["yeast", "not run", "not run", "not run", "0.500 ± – ± –", "0 of 2"]
