"""The paper's ablation: mixture prior and contrastive term switched off, alone and together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cgmvae.evaluation import METRIC_TITLES, PAPER_METRICS
from cgmvae.studies.measured import Measured
from cgmvae.studies.published import published
from cgmvae.studies.results import Difference, Results, interval_of_mean
from cgmvae.studies.spec import RunSpec
from cgmvae.studies.study import Scope, Study, is_here, paper_data
from cgmvae.studies.tables import Table
from cgmvae.studies.variants import (
    COMPLETE,
    MIXTURE_ONLY,
    PARTS_DATA,
    PLAIN,
    QUICK_DATA,
    Variant,
    difference_table,
    score_table,
    variant_runs,
)
from cgmvae.studies.verdicts import difference_text

#: One Gaussian for a row's label set, from the sum of its embeddings, as in the models before.
UNIMODAL = Variant("uni-Gaussian", {"contrastive_weight": 0.0, "settings": {"prior": "label-sum"}})
CONTRASTIVE_ONLY = Variant("contrastive only", {"kl_weight": 0.0})
VARIANTS = (PLAIN, UNIMODAL, MIXTURE_ONLY, CONTRASTIVE_ONLY, COMPLETE)

#: Eq. 8 as the paper weighs it. The default's KL is much lighter: what it cannot show may show
#: here.
HEAVY: Mapping[str, Any] = {
    "kl_weight": 1.0,
    "contrastive_weight": 1.0,
    "cross_entropy_weight": 0.5,
}


def _heavy(variant: Variant) -> Variant:
    """Return the variant with the paper's weights for the terms that it has."""
    return Variant(variant.title, {**HEAVY, **variant.settings})


#: Cross-entropy alone has no weights to choose: its run is the same.
HEAVY_VARIANTS = (PLAIN, *(_heavy(variant) for variant in VARIANTS[1:]))

#: The metrics of the paper's table.
METRICS = ("example_f1", "micro_f1", "macro_f1")

#: What the paper's text says of the last of them, in %.
PROSE_GAIN = 7


def _data(scope: Scope) -> tuple[str, ...]:
    return scope.chosen_data(PARTS_DATA, QUICK_DATA)


def _blocks(scope: Scope) -> dict[str, Sequence[Variant]]:
    """Return the variants by what their tables are called; a quick study has the defaults alone."""
    blocks: dict[str, Sequence[Variant]] = {"default weights": VARIANTS}
    return blocks if scope.quick else blocks | {"the paper's weights": HEAVY_VARIANTS}


def runs(scope: Scope) -> list[RunSpec]:
    """Return every variant, with the default weights and with the paper's."""
    variants = [variant for block in _blocks(scope).values() for variant in block]
    return variant_runs(scope, _data(scope), variants)


def _printed(data: str, variant: Variant) -> Sequence[float | None] | None:
    values = published()["ablation"].get(paper_data(data), {}).get(variant.title)
    return None if values is None else [*values, *[None] * (len(PAPER_METRICS) - len(values))]


def tables(scope: Scope, results: Results) -> list[Table]:
    """Return for each set of weights the scores of both protocols and what each part adds."""
    measured, data, found = Measured(scope, results), _data(scope), []
    for title, variants in _blocks(scope).items():
        found += [
            score_table(
                measured,
                data,
                variants,
                title=f"Ablation, {title}",
                protocol=protocol,
                printed=_printed,
            )
            for protocol in ("validation", "test-oracle")
        ]
        pairs = [(variants[-1], other) for other in variants[:-1]]
        own = f"What the parts add, {title}"
        found.append(difference_table(measured, data, pairs, title=own, metrics=METRICS))
    return [*found, _relative_table(measured)]


def _relative_table(measured: Measured) -> Table:
    """Return the mean relative gain of the complete model over the unimodal one."""
    rows = [
        [title, *(difference_text(_gain(measured, variants, metric), 1) for metric in METRICS)]
        for title, variants in _blocks(measured.scope).items()
    ]
    printed = (interval_of_mean(gains) for gains in _printed_gains().T)
    rows.append(["— the paper's table", *(difference_text(gain, 1) for gain in printed)])
    notes = [
        "Mean over data sets of the ratio of the scores less 1, thresholds: test-oracle; in "
        "brackets the 95% interval over data sets. The last row is computed from the paper's "
        f"table; its prose says {PROSE_GAIN}% for macro-F1."
    ]
    columns = ["weights", *(METRIC_TITLES[metric] for metric in METRICS)]
    return Table(f"“{COMPLETE.title}” over “{UNIMODAL.title}”, in %", columns, rows, notes)


def _gain(measured: Measured, variants: Sequence[Variant], metric: str) -> Difference:
    scope, complete = measured.scope, variants[-1]
    unimodal = variants[VARIANTS.index(UNIMODAL)]
    pairs = [
        (complete.spec(scope, name), unimodal.spec(scope, name))
        for name in _data(scope)
        if is_here(name)
    ]
    return interval_of_mean(measured.gains(pairs, metric, protocol="test-oracle"))


def _printed_gains() -> NDArray[np.float64]:
    """Return the gains of the paper's table in %, (n_data, n_metrics)."""
    cells = published()["ablation"].values()
    ours, theirs = (
        np.array([row[variant.title] for row in cells]) for variant in (COMPLETE, UNIMODAL)
    )
    return 100 * (ours / theirs - 1)


STUDY = Study("ablation", "Mixture prior and contrastive term, switched off in turn", runs, tables)
