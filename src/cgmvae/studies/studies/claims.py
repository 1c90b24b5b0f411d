"""What the paper says in prose: collapse, losses, stages, and average improvements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cgmvae.methods.diagnostics import ACTIVE_VARIANCE
from cgmvae.model.presets import PRESETS
from cgmvae.studies.improvements import METRICS, RIVAL_METHODS, improvement_table
from cgmvae.studies.measured import Measured
from cgmvae.studies.results import (
    Difference,
    Results,
    paired_difference,
    spread,
)
from cgmvae.studies.spec import RunSpec
from cgmvae.studies.studies import main
from cgmvae.studies.study import Scope, Study, is_here, why_missing
from cgmvae.studies.tables import Cell, Table, number
from cgmvae.studies.variants import (
    MIXTURE_ONLY,
    Variant,
    difference_table,
    score_table,
    variant_runs,
)
from cgmvae.studies.verdicts import finding, listed

DATA = ("bbs_2003_2009", "yeast", "scene", "sider", "delicious")
QUICK_DATA = ("yeast",)

PRIORS = {"mixture": "mixture", "label-sum": "uni-Gaussian", "standard": "N(0, I)"}
DECODERS = {"z": "z", "xz": "(x, z)"}


def _prior(prior: str, decoder: str) -> Variant:
    """Return C-GMVAE with this prior and the KL weighed 1, as in the paper's Eq. 8."""
    settings = {"prior": prior, "decoder_input": decoder}
    return Variant(
        f"{PRIORS[prior]}, {DECODERS[decoder]}", {"kl_weight": 1.0, "settings": settings}
    )


#: By decoder, then by prior.
COLLAPSE = {decoder: {prior: _prior(prior, decoder) for prior in PRIORS} for decoder in DECODERS}
DEFAULT = Variant("the default")

#: Losses on the embeddings by weight: they have different scales, so one weight is no fair trial.
WEIGHTS: Mapping[str, Mapping[str, Any]] = {
    "default weight": {},
    "weight 1": {"contrastive_weight": 1.0},
}


def _aligned(loss: str, weight: str) -> Variant:
    changed = {} if loss == "contrastive" else {"settings": {"alignment": loss}}
    return Variant(f"{loss}, {weight}", {**WEIGHTS[weight], **changed})


#: By weight, then by loss.
LOSSES = {
    weight: {loss: _aligned(loss, weight) for loss in ("contrastive", "triplet", "ranking")}
    for weight in WEIGHTS
}
NO_LOSS = Variant("none of them", MIXTURE_ONLY.settings)

ONE_STAGE = Variant("one stage")
#: KL and contrastive term in the first half of the epochs, cross-entropy in the second.
TWO_STAGES = Variant("two stages", {"settings": {"first_stage": 0.5}})
#: Each stage as long as the whole training of the default.
TWO_LONG_STAGES = Variant(
    "two stages, twice the epochs",
    {"epochs": 2 * PRESETS["tuned"].training["epochs"], **TWO_STAGES.settings},
)


def _data(scope: Scope) -> tuple[str, ...]:
    return scope.chosen_data(DATA, QUICK_DATA)


def _main_scope(scope: Scope) -> Scope:
    return replace(scope, methods=("cgmvae", *RIVAL_METHODS))


def _flat(variants: Mapping[str, Mapping[str, Variant]]) -> list[Variant]:
    return [variant for group in variants.values() for variant in group.values()]


def runs(scope: Scope) -> list[RunSpec]:
    """Return the variants that the claims are about, and the main study's runs of five methods."""
    variants = [DEFAULT, *_flat(COLLAPSE), NO_LOSS, *_flat(LOSSES), TWO_STAGES, TWO_LONG_STAGES]
    return [*variant_runs(scope, _data(scope), variants), *main.runs(_main_scope(scope))]


def tables(scope: Scope, results: Results) -> list[Table]:
    """Return a table, or two, for each claim."""
    measured, data = Measured(scope, results), _data(scope)
    losses = [
        (group["contrastive"], group[loss])
        for loss in ("triplet", "ranking")
        for group in LOSSES.values()
    ]
    contrasts = {
        "Contrastive against other losses": losses,
        "Two stages, of which the paper saw no advantage": [
            (two, ONE_STAGE) for two in (TWO_STAGES, TWO_LONG_STAGES)
        ],
    }
    return [
        _collapse_table(measured),
        score_table(
            measured,
            data,
            [NO_LOSS, *_flat(LOSSES)],
            title="Losses on the embeddings",
            protocol="validation",
        ),
        *(
            difference_table(measured, data, pairs, title=title, metrics=METRICS)
            for title, pairs in contrasts.items()
        ),
        _improvement_table(measured),
    ]


def _collapse_table(measured: Measured) -> Table:
    """Return what the latent space does under each prior, and what that says of the mixture."""
    rows = [row for data in _data(measured.scope) for row in _collapse_rows(measured, data)]
    n_units = PRESETS["tuned"].network.latent_dim
    notes = [
        f"Of {n_units} latent units those whose mean varies by more than {ACTIVE_VARIANCE} over "
        "test rows; micro-F1 with the row's own z, and what is lost with another row's. The KL has "
        "the weight 1, but for the default. uni-Gaussian: one learnt Gaussian for a label set."
    ]
    for decoder, variants in COLLAPSE.items():
        for other in ("label-sum", "standard"):
            claim = f"More active units with the mixture than with {PRIORS[other]}"
            seen = f"decoder sees {DECODERS[decoder]}"
            pair = (variants["mixture"], variants[other])
            notes.append(finding(f"{claim}, {seen}", _unit_differences(measured, pair), digits=1))
        notes.append(_collapsed(measured, variants["mixture"]))
    columns = ["data", "prior, decoder sees", "active units", "micro-F1", "lost without z", "runs"]
    return Table("Posterior collapse by prior", columns, rows, notes)


def _collapse_rows(measured: Measured, data: str) -> list[list[Cell | str]]:
    if not is_here(data):
        return [[data, why_missing(data)]]
    rows: list[list[Cell | str]] = []
    for variant in (*_flat(COLLAPSE), DEFAULT):
        spec = variant.spec(measured.scope, data)
        units, own, shuffled = (
            measured.diagnostic(spec, name)
            for name in ("active_units", "micro_f1", "micro_f1_shuffled_z")
        )
        found = spread(units)
        if found.n_runs == 0:
            rows.append([data, variant.title, measured.why_empty(spec)])
            continue
        scores = [number(spread(values).mean) for values in (own, own - shuffled)]
        count = measured.run_count(found.n_runs)
        rows.append([data, variant.title, number(found.mean, 1), *scores, count])
    return rows


def _unit_differences(measured: Measured, pair: Sequence[Variant]) -> dict[str, Difference]:
    return {
        data: paired_difference(
            *(
                measured.diagnostic(variant.spec(measured.scope, data), "active_units")
                for variant in pair
            )
        )
        for data in _data(measured.scope)
        if is_here(data)
    }


#: Share of the latent units below which a posterior is called collapsed.
COLLAPSED_SHARE = 0.1


def _collapsed(measured: Measured, variant: Variant) -> str:
    """Say on which data sets the mixture prior did not prevent collapse."""
    bound = COLLAPSED_SHARE * PRESETS["tuned"].network.latent_dim
    means = {
        data: spread(measured.diagnostic(variant.spec(measured.scope, data), "active_units")).mean
        for data in _data(measured.scope)
        if is_here(data)
    }
    known = {data: mean for data, mean in means.items() if not np.isnan(mean)}
    if not known:
        return f"“{variant.title}”: no runs yet."
    low = [data for data, mean in known.items() if mean < bound]
    return (
        f"“{variant.title}” has fewer than {bound:.1f} active units on {len(low)} of {len(known)} "
        f"data sets{listed(low)}."
    )


def _improvement_table(measured: Measured) -> Table:
    pairs = {rival: _pairs(measured.scope, rival) for rival in RIVAL_METHODS}
    return improvement_table(measured, pairs)


def _pairs(scope: Scope, rival: str) -> list[tuple[RunSpec, RunSpec]]:
    """Return the main study's runs of C-GMVAE and of another method, by data set."""
    found = {(spec.method, spec.data): spec for spec in main.runs(_main_scope(scope))}
    return [
        (found["cgmvae", data], spec) for (method, data), spec in found.items() if method == rival
    ]


STUDY = Study("claims", "What the paper says in prose", runs, tables)
