"""Variants of C-GMVAE: parts switched off (``ablation``) or replaced (``replacement``).

A variant is C-GMVAE with some parameters changed, on the same data, splits, seeds and epochs. The
studies ``claims``, ``regimes`` and ``fewer-data`` compare variants too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cgmvae.evaluation import METRIC_TITLES, PAPER_METRICS
from cgmvae.studies.published import published
from cgmvae.studies.results import Results, Rows, score_rows, spread_cell, spread_note
from cgmvae.studies.spec import (
    RunSpec,
    Scope,
    Study,
    data_choice,
    is_available,
    paper_data,
    paper_row,
    why_missing,
)
from cgmvae.studies.statistics import (
    DIFFERENCE_NOTE,
    Difference,
    Spread,
    difference_text,
    finding,
    interval_of_mean,
)
from cgmvae.studies.tables import Cell, Table, marked, number

#: Data sets on which the paper compares parts of its model, with stand-ins for eBird and mirflickr,
#: and others that we add.
PARTS_DATA = (
    "bbs_2003_2009", "mirflickr_tags", "nus_vec", "yeast", "scene", "sider", "delicious",
)  # fmt: skip

#: The data sets of a scope.
parts_data = data_choice(PARTS_DATA, quick=("yeast", "scene"))


@dataclass(frozen=True)
class Variant:
    """A method with some of its parameters or of its training rows changed, as in a RunSpec."""

    title: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    method: str = "cgmvae"
    train_fraction: float = 1.0
    hidden_labels: float = 0.0
    tuning: str = ""

    def spec(self, scope: Scope, data: str) -> RunSpec:
        """Return the run of this variant, for any split and seed."""
        settings = scope.settings(self.method) | dict(self.settings)
        rows = (self.train_fraction, self.hidden_labels)
        return RunSpec(data, self.method, 0, 0, *rows, settings, tuning=self.tuning)


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


def variant_runs(scope: Scope, data: Sequence[str], variants: Sequence[Variant]) -> list[RunSpec]:
    """Return every variant on every available data set, with all splits and seeds."""
    return scope.runs([variant.spec(scope, name) for name in data for variant in variants])


def variant_rows(
    results: Results,
    data: Sequence[str],
    variants: Sequence[Variant],
    *,
    protocol: str,
    reported: Mapping[str, Mapping[str, Sequence[float]]],
    metrics: Sequence[str] = PAPER_METRICS,
    cell: Callable[[Cell, Spread], Cell] = spread_cell,
) -> Rows:
    """Return the scores of each variant on each data set, the paper's numbers below ours.

    The paper's numbers, by data set and title, are those of the first metrics. They appear under
    the protocol that they were computed with.
    """
    rows: Rows = []
    for name in data:
        if is_available(name):
            specs = {variant.title: variant.spec(results.scope, name) for variant in variants}
            scores = score_rows(results, specs, protocol=protocol, metrics=metrics, cell=cell)
            rows += [[name, *row] for row in scores]
        else:
            rows.append([name, why_missing(name)])
        if protocol == "test-oracle":
            for title, values in reported.get(paper_data(name), {}).items():
                missing = [None] * (len(metrics) - len(values))
                rows.append([paper_row(name), title, *map(number, [*values, *missing])])
    return rows


def score_table(title: str, protocol: str, rows: Rows) -> Table:
    """Return a table of the rows of :func:`variant_rows`."""
    columns = ["data", "variant", *METRIC_TITLES.values(), "runs"]
    return Table(f"{title}, thresholds: {protocol}", columns, rows, [spread_note("data set")])


def differences_by_data(
    results: Results, data: Sequence[str], first: Variant, second: Variant
) -> dict[str, dict[str, Difference]]:
    """Return how much higher the first variant scores, by available data set and metric."""
    return {
        name: results.differences(first.spec(results.scope, name), second.spec(results.scope, name))
        for name in filter(is_available, data)
    }


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
    for ours, theirs in pairs:
        by_data = differences_by_data(results, data, ours, theirs)
        pair = f"{ours.title} − {theirs.title}"
        for name, own in by_data.items():
            rows.append([name, pair, *(difference_text(own[metric]) for metric in metrics)])
        for metric in metrics:
            claim = f"“{ours.title}” above “{theirs.title}”, {METRIC_TITLES[metric]}"
            notes.append(finding(claim, {name: own[metric] for name, own in by_data.items()}))
    columns = ["data", "difference", *(METRIC_TITLES[metric] for metric in metrics)]
    return Table(title, columns, rows, notes)


def _blocks(scope: Scope) -> dict[str, Sequence[Variant]]:
    """Return the variants by the title of their tables; a quick study has the default weights."""
    blocks: dict[str, Sequence[Variant]] = {"default weights": VARIANTS}
    return blocks if scope.quick else blocks | {"the paper's weights": WEIGHTED_VARIANTS}


def ablation_runs(scope: Scope) -> list[RunSpec]:
    """Return every variant, with the default weights and with the paper's."""
    variants = [variant for block in _blocks(scope).values() for variant in block]
    return variant_runs(scope, parts_data(scope), variants)


def ablation_tables(results: Results) -> list[Table]:
    """Return for each set of weights the scores under both protocols and what each part adds."""
    data, found = parts_data(results.scope), []
    reported = published()["ablation"]
    for title, variants in _blocks(results.scope).items():
        for protocol in ("validation", "test-oracle"):
            rows = variant_rows(results, data, variants, protocol=protocol, reported=reported)
            found.append(score_table(f"Ablation, {title}", protocol, rows))
        pairs = [(variants[-1], other) for other in variants[:-1]]
        own = f"What the parts add, {title}"
        found.append(difference_table(results, data, pairs, title=own, metrics=METRICS))
    return [*found, _gain_table(results)]


def _gain_table(results: Results) -> Table:
    """Return the mean relative gain of the complete model over the unimodal one."""
    scope, unimodal = results.scope, VARIANTS.index(UNIMODAL)
    rows = []
    for title, variants in _blocks(scope).items():
        pairs = [
            (variants[-1].spec(scope, name), variants[unimodal].spec(scope, name))
            for name in filter(is_available, parts_data(scope))
        ]
        gains = [results.gains(pairs, metric, protocol="test-oracle") for metric in METRICS]
        rows.append([title, *(difference_text(interval_of_mean(each), 1) for each in gains)])
    cells = published()["ablation"].values()
    ours, theirs = (np.array([row[each.title] for row in cells]) for each in (COMPLETE, UNIMODAL))
    reported = map(interval_of_mean, (100 * (ours / theirs - 1)).T)  # one per metric
    rows.append(["— the paper's table", *(difference_text(gain, 1) for gain in reported)])
    notes = [
        "Mean over data sets of the ratio of the scores minus 1, thresholds: test-oracle; in "
        "brackets the 95% interval over data sets. The last row is computed from the paper's "
        f"table; its text says {PROSE_GAIN}% for macro-F1."
    ]
    columns = ["weights", *(METRIC_TITLES[metric] for metric in METRICS)]
    return Table(f"“{COMPLETE.title}” over “{UNIMODAL.title}”, in %", columns, rows, notes)


ABLATION = Study(
    "ablation",
    "Mixture prior and contrastive term, switched off in turn",
    ablation_runs,
    ablation_tables,
)

# --- What the contrastive module replaces: a network of labels, a covariance matrix ---------------

CONTRASTIVE = Variant("contrastive")
NO_MODULE = Variant("no module", MIXTURE_ONLY.settings)
COVARIANCE = Variant(
    "covariance", {"contrastive_weight": 0.0, "settings": {"correlation": "covariance"}}
)
GRAPH = Variant("GNN", {"contrastive_weight": 0.0, "settings": {"correlation": "graph"}})
MODULES = (NO_MODULE, COVARIANCE, GRAPH, CONTRASTIVE)

MODULE_METRIC = "micro_f1"


def replacement_runs(scope: Scope) -> list[RunSpec]:
    """Return the mixture model with each module, and with none."""
    return variant_runs(scope, parts_data(scope), MODULES)


def replacement_tables(results: Results) -> list[Table]:
    """Return micro-F1 by data set and module under both protocols, and the differences."""
    return [
        *(_module_table(results, protocol) for protocol in ("validation", "test-oracle")),
        difference_table(
            results,
            parts_data(results.scope),
            [(CONTRASTIVE, other) for other in (COVARIANCE, GRAPH, NO_MODULE)],
            title="What the contrastive module adds",
            metrics=[MODULE_METRIC],
        ),
    ]


def _module_table(results: Results, protocol: str) -> Table:
    """Return a row for each data set and, under the paper's protocol, one for the paper."""
    rows: Rows = []
    for data in parts_data(results.scope):
        if is_available(data):
            specs = [variant.spec(results.scope, data) for variant in MODULES]
            found = [results.spreads(spec, protocol=protocol)[MODULE_METRIC] for spec in specs]
            marks = marked([own.mean for own in found])
            scores = [
                spread_cell(mean, own) if own.n_runs else Cell(results.why_empty(spec))
                for spec, mean, own in zip(specs, marks, found, strict=True)
            ]
            n_runs = min(own.n_runs for own in found)
            rows.append([data, *scores, results.run_count(specs[0], n_runs)])
        else:
            rows.append([data, why_missing(data)])
        cells = [published()["replacement"].get(each.title.lower(), {}) for each in MODULES]
        reported = [own.get(paper_data(data)) for own in cells]
        if protocol == "test-oracle" and any(reported):
            rows.append([paper_row(data), *map(number, reported)])
    columns = ["data", *(variant.title for variant in MODULES), "runs"]
    notes = [spread_note("data set")]
    return Table(f"micro-F1 by module, thresholds: {protocol}", columns, rows, notes)


REPLACEMENT = Study(
    "replacement",
    "The contrastive module against GNN and covariance",
    replacement_runs,
    replacement_tables,
)
