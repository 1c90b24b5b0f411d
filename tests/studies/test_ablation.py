"""Variants of C-GMVAE do what their names say; ablation and replacement from known numbers."""

from dataclasses import replace

import numpy as np
import pytest
from tiny_study import texts

from cgmvae.data import make_survey
from cgmvae.methods import CGMVAEClassifier
from cgmvae.studies import ablation, claims
from cgmvae.studies.ablation import COMPLETE, MIXTURE_ONLY, PLAIN, Variant
from cgmvae.studies.results import Results
from cgmvae.studies.spec import Scope

QUICK = Scope(quick=True)


def by_title(tables):
    return {table.title: table for table in tables}


def keep_all(made_up, data, scores, *, oracle=None):
    """Store runs with default weights: one score per variant, .01 higher on the second split."""
    for variant, score in zip(ablation.VARIANTS, scores, strict=True):
        for split in (0, 1):
            spec = replace(variant.spec(QUICK, data), split=split)
            made_up.keep(spec, score + 0.01 * split, oracle=oracle and oracle[variant.title])


def test_the_paper_s_weights_leave_switched_off_terms_off():
    for variant, heavy in zip(ablation.VARIANTS[1:], ablation.WEIGHTED_VARIANTS[1:], strict=True):
        off = {name for name, value in variant.settings.items() if value == 0}
        assert off == {name for name, value in heavy.settings.items() if value == 0}
        assert heavy.settings["cross_entropy_weight"] == 0.5


def test_what_the_parts_add_is_found_or_not(made_up, available):
    available("yeast", "scene")
    keep_all(made_up, "yeast", (0.5, 0.6, 0.8, 0.3, 0.7))
    keep_all(made_up, "scene", (0.5, 0.6, 0.8, 0.3, 0.7))
    noisy = replace(PLAIN.spec(QUICK, "scene"), split=1)
    made_up.keep(noisy, 0.9)
    table = by_title(ablation.ablation_tables(Results(QUICK, made_up.store)))[
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


def test_the_paper_s_numbers_are_below_the_test_oracle_s(made_up, available):
    available("bbs_2003_2009")
    scope = Scope(quick=True, data=("bbs_2003_2009", "nus_vec"))
    tables = by_title(ablation.ablation_tables(Results(scope, made_up.store)))
    rows = texts(tables["Ablation, default weights, thresholds: test-oracle"])
    assert ["— the paper on ebird", "uni-Gaussian", "0.545", "0.583", "0.490", "–", "–"] in rows
    assert ["— the paper", "GM only", "0.472", "0.505", "0.218", "–", "–"] in rows
    assert any(row[0] == "nus_vec" and row[1].startswith("not available: put") for row in rows)
    honest = texts(tables["Ablation, default weights, thresholds: validation"])
    assert not any("paper" in row[0] for row in honest)


def test_relative_gains_of_ours_and_of_the_paper(made_up, available):
    available("yeast", "scene")
    oracle = dict.fromkeys((v.title for v in ablation.VARIANTS), 0.5)
    keep_all(made_up, "yeast", [0.1] * 5, oracle=oracle | {COMPLETE.title: 0.6})
    keep_all(made_up, "scene", [0.1] * 5, oracle=oracle | {COMPLETE.title: 0.55})
    table = ablation.ablation_tables(Results(QUICK, made_up.store))[-1]
    ours, paper = texts(table)
    assert ours[1].startswith("+15.0 [")
    cells = {"ebird": (0.538, 0.490), "mirflickr": (0.440, 0.413), "nus_vec": (0.226, 0.203)}
    expected = sum(100 * (a / b - 1) for a, b in cells.values()) / 3
    assert paper[-1].startswith(f"{expected:+.1f} [")


def test_missing_runs_have_a_reason(made_up, available):
    available("yeast", "scene")
    made_up.keep(COMPLETE.spec(QUICK, "yeast"), 0.5)
    failed = MIXTURE_ONLY.spec(QUICK, "yeast")
    made_up.store.write_error(replace(failed, split=1), "The device is full.")
    tables = ablation.ablation_tables(Results(QUICK, made_up.store))
    rows = texts(tables[0])
    assert ["yeast", COMPLETE.title, *["0.500 ± – ± –"] * 5, "1 of 2"] in rows
    assert ["yeast", MIXTURE_ONLY.title, "The device is full."] in rows
    assert ["scene", COMPLETE.title, "not run"] in rows
    assert tables[2].notes[1].endswith("no runs yet.")


ALL = {
    repr(variant.settings): variant
    for variant in (
        *ablation.VARIANTS,
        *ablation.WEIGHTED_VARIANTS,
        *ablation.MODULES,
        *(v for group in claims.COLLAPSE.values() for v in group.values()),
        *(v for group in claims.LOSSES.values() for v in group.values()),
        claims.TWO_STAGES,
        claims.TWO_LONG_STAGES,
    )
}
SMALL = {"latent_dim": 3, "feature_hidden": (8,), "label_hidden": (8,), "decoder_hidden": (8,)}


def fitted(variant, data, **others):
    settings = variant.settings | {"settings": SMALL | variant.settings.get("settings", {})}
    model = CGMVAEClassifier(
        **({"epochs": 2, "embedding_dim": 8, "n_members": 1, "random_state": 0} | settings | others)
    )
    return model.fit(data.X, data.Y)


def test_all_variants_train_and_differ(survey):
    scores = {
        name: fitted(variant, survey).predict_proba(survey.X) for name, variant in ALL.items()
    }
    assert all(np.isfinite(each).all() for each in scores.values())
    assert len({each.tobytes() for each in scores.values()}) == len(scores)


@pytest.mark.parametrize(
    ("variant", "terms"),
    [
        (PLAIN, {"cross_entropy"}),
        (ablation.UNIMODAL, {"kl", "cross_entropy"}),
        (MIXTURE_ONLY, {"kl", "cross_entropy"}),
        (ablation.CONTRASTIVE_ONLY, {"contrastive", "cross_entropy"}),
        (COMPLETE, {"kl", "contrastive", "cross_entropy"}),
        (ablation.GRAPH, {"kl", "cross_entropy"}),
        (ablation.COVARIANCE, {"kl", "cross_entropy"}),
    ],
    ids=lambda value: getattr(value, "title", ""),
)
def test_a_variant_has_the_terms_of_its_name(variant, terms, survey):
    assert set(fitted(variant, survey).network_.functions) == terms


def test_two_stages_leave_cross_entropy_to_the_second():
    """Only the cross-entropy depends on the label biases: a first stage does not move them."""
    data, _ = make_survey(400, 6, 5, seed=0)
    first_alone = Variant("first stage alone", {"settings": {"first_stage": 1.0}})
    short, long = (fitted(first_alone, data, epochs=epochs).label_bias_ for epochs in (1, 10))
    np.testing.assert_array_equal(short, long)
    both = fitted(claims.TWO_STAGES, data, epochs=20, learning_rate=0.02)
    losses = both.history_["cross_entropy"][:, 0]
    assert losses[10:].mean() < losses[:10].mean()


def test_modules_stand_side_by_side_with_the_paper_s(made_up, available):
    available("yeast")
    for variant, score in zip(ablation.MODULES, (0.6, 0.62, 0.64, 0.61), strict=True):
        for split in (0, 1):
            spec = replace(variant.spec(QUICK, "yeast"), split=split)
            made_up.keep(spec, score + 0.02 * split, oracle=score + 0.1)
    honest, oracle, added = ablation.replacement_tables(Results(QUICK, made_up.store))
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
    oracle = ablation.replacement_tables(Results(Scope(), made_up.store))[1]
    assert ["— the paper on ebird", "–", "0.601", "0.599", "0.633"] in texts(oracle)
    assert not any("delicious" in row[0] and "paper" in row[0] for row in texts(oracle))
