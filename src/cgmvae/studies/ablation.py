"""Variants of C-GMVAE, and the paper's ablation: mixture prior and contrastive term switched off.

A variant is C-GMVAE with some parameters changed, on the same data, splits, seeds and epochs. The
studies ``replacement``, ``claims`` and ``regimes`` compare variants too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cgmvae.evaluation import METRIC_TITLES, PAPER_METRICS
from cgmvae.studies.published import published
from cgmvae.studies.results import Results, Rows, score_rows, spread_note
from cgmvae.studies.spec import (
    RunSpec,
    Scope,
    Study,
    is_available,
    paper_data,
    paper_row,
    why_missing,
)
from cgmvae.studies.statistics import (
    DIFFERENCE_NOTE,
    Difference,
    difference_text,
    finding,
    interval_of_mean,
)
from cgmvae.studies.tables import Table, number

#: Data sets on which the paper compares parts of its model, with stand-ins for eBird and mirflickr,
#: and others that we add.
PARTS_DATA = (
    "bbs_2003_2009", "mirflickr_tags", "nus_vec", "yeast", "scene", "sider", "delicious",
)  # fmt: skip
QUICK_DATA = ("yeast", "scene")


@dataclass(frozen=True)
class Variant:
    """C-GMVAE with some of its parameters changed."""

    title: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of the estimator; the others keep their defaults."""

    def spec(self, scope: Scope, data: str) -> RunSpec:
        """Return the run of this variant, for any split and seed."""
        return RunSpec(data, "cgmvae", settings=scope.settings("cgmvae") | dict(self.settings))


#: The default estimator: mixture prior and contrastive term.
COMPLETE = Variant("GM + contrastive")
MIXTURE_ONLY = Variant("GM only", {"contrastive_weight": 0.0})
PLAIN = Variant("plain cross-entropy", {"kl_weight": 0.0, "contrastive_weight": 0.0})
#: One Gaussian per label set, from the sum of its embeddings, as in earlier models.
UNIMODAL = Variant("uni-Gaussian", {"contrastive_weight": 0.0, "settings": {"prior": "label-sum"}})
CONTRASTIVE_ONLY = Variant("contrastive only", {"kl_weight": 0.0})
VARIANTS = (PLAIN, UNIMODAL, MIXTURE_ONLY, CONTRASTIVE_ONLY, COMPLETE)

#: The weights of Eq. 8 in the paper. The default weight of the KL is much smaller, so effects that
#: it hides may show with these.
PAPER_WEIGHTS: Mapping[str, Any] = {
    "kl_weight": 1.0,
    "contrastive_weight": 1.0,
    "cross_entropy_weight": 0.5,
}

#: Plain cross-entropy has no weights to choose: its run is the same.
WEIGHTED_VARIANTS = (
    PLAIN,
    *(Variant(each.title, {**PAPER_WEIGHTS, **each.settings}) for each in VARIANTS[1:]),
)

#: The metrics of the paper's table.
METRICS = ("example_f1", "micro_f1", "macro_f1")

#: What the paper's text says about the gain in the last of them, in %.
PROSE_GAIN = 7

#: The paper's numbers for a variant on a data set, one per metric, or None.
Reported = Callable[[str, Variant], Sequence[float | None] | None]


def variant_runs(scope: Scope, data: Sequence[str], variants: Sequence[Variant]) -> list[RunSpec]:
    """Return every variant on every available data set, with all splits and seeds."""
    return scope.runs([variant.spec(scope, name) for name in data for variant in variants])


def score_table(
    results: Results,
    data: Sequence[str],
    variants: Sequence[Variant],
    *,
    title: str,
    protocol: str,
    reported: Reported = lambda *_: None,
) -> Table:
    """Return the five metrics of each variant on each data set, the paper's numbers below ours.

    The paper's numbers appear under the protocol that they were computed with.
    """
    rows: Rows = []
    for name in data:
        if is_available(name):
            specs = {variant.title: variant.spec(results.scope, name) for variant in variants}
            rows += [[name, *row] for row in score_rows(results, specs, protocol=protocol)]
        else:
            rows.append([name, why_missing(name)])
        if protocol == "test-oracle":
            for variant in variants:
                values = reported(name, variant)
                if values is not None:
                    rows.append([paper_row(name), variant.title, *map(number, values)])
    columns = ["data", "variant", *METRIC_TITLES.values(), "runs"]
    return Table(f"{title}, thresholds: {protocol}", columns, rows, [spread_note("data set")])


def difference_table(
    results: Results,
    data: Sequence[str],
    pairs: Sequence[tuple[Variant, Variant]],
    *,
    title: str,
    metrics: Sequence[str],
) -> Table:
    """Return the differences between the variants of each pair, and what follows from them."""
    rows: Rows = []
    notes = [DIFFERENCE_NOTE]
    for pair in pairs:
        ours, theirs = (variant.title for variant in pair)
        by_data = {
            name: results.differences(*(variant.spec(results.scope, name) for variant in pair))
            for name in data
            if is_available(name)
        }
        rows += [
            [name, f"{ours} − {theirs}", *(difference_text(own[metric]) for metric in metrics)]
            for name, own in by_data.items()
        ]
        notes += [
            finding(
                f"“{ours}” above “{theirs}”, {METRIC_TITLES[metric]}",
                {name: own[metric] for name, own in by_data.items()},
            )
            for metric in metrics
        ]
    columns = ["data", "difference", *(METRIC_TITLES[metric] for metric in metrics)]
    return Table(title, columns, rows, notes)


def _data(scope: Scope) -> tuple[str, ...]:
    return scope.chosen_data(PARTS_DATA, QUICK_DATA)


def _blocks(scope: Scope) -> dict[str, Sequence[Variant]]:
    """Return the variants by the title of their tables; a quick study has the default weights."""
    blocks: dict[str, Sequence[Variant]] = {"default weights": VARIANTS}
    return blocks if scope.quick else blocks | {"the paper's weights": WEIGHTED_VARIANTS}


def runs(scope: Scope) -> list[RunSpec]:
    """Return every variant, with the default weights and with the paper's."""
    variants = [variant for block in _blocks(scope).values() for variant in block]
    return variant_runs(scope, _data(scope), variants)


def _reported(data: str, variant: Variant) -> Sequence[float | None] | None:
    values = published()["ablation"].get(paper_data(data), {}).get(variant.title)
    return None if values is None else [*values, *[None] * (len(PAPER_METRICS) - len(values))]


def tables(results: Results) -> list[Table]:
    """Return for each set of weights the scores under both protocols and what each part adds."""
    data, found = _data(results.scope), []
    for title, variants in _blocks(results.scope).items():
        found += [
            score_table(
                results,
                data,
                variants,
                title=f"Ablation, {title}",
                protocol=protocol,
                reported=_reported,
            )
            for protocol in ("validation", "test-oracle")
        ]
        pairs = [(variants[-1], other) for other in variants[:-1]]
        own = f"What the parts add, {title}"
        found.append(difference_table(results, data, pairs, title=own, metrics=METRICS))
    return [*found, _gain_table(results)]


def _gain_table(results: Results) -> Table:
    """Return the mean relative gain of the complete model over the unimodal one."""
    rows = [
        [title, *(difference_text(_gain(results, variants, metric), 1) for metric in METRICS)]
        for title, variants in _blocks(results.scope).items()
    ]
    reported = (interval_of_mean(gains) for gains in _reported_gains().T)
    rows.append(["— the paper's table", *(difference_text(gain, 1) for gain in reported)])
    notes = [
        "Mean over data sets of the ratio of the scores minus 1, thresholds: test-oracle; in "
        "brackets the 95% interval over data sets. The last row is computed from the paper's "
        f"table; its text says {PROSE_GAIN}% for macro-F1."
    ]
    columns = ["weights", *(METRIC_TITLES[metric] for metric in METRICS)]
    return Table(f"“{COMPLETE.title}” over “{UNIMODAL.title}”, in %", columns, rows, notes)


def _gain(results: Results, variants: Sequence[Variant], metric: str) -> Difference:
    complete, unimodal = variants[-1], variants[VARIANTS.index(UNIMODAL)]
    pairs = [
        (complete.spec(results.scope, name), unimodal.spec(results.scope, name))
        for name in _data(results.scope)
        if is_available(name)
    ]
    return interval_of_mean(results.gains(pairs, metric, protocol="test-oracle"))


def _reported_gains() -> NDArray[np.float64]:
    """Return the gains in the paper's table in %, (n_data, n_metrics)."""
    cells = published()["ablation"].values()
    ours, theirs = (
        np.array([row[variant.title] for row in cells]) for variant in (COMPLETE, UNIMODAL)
    )
    return 100 * (ours / theirs - 1)


STUDY = Study("ablation", "Mixture prior and contrastive term, switched off in turn", runs, tables)
