"""Settings of C-GMVAE beside one another: what ablation, replacement and claims have in common.

A variant is C-GMVAE with some of its parameters changed, everything else (data, splits, seeds,
epochs) being the same. :mod:`~cgmvae.studies.measured` has the numbers,
:mod:`~cgmvae.studies.verdicts` the sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cgmvae.evaluation import METRIC_TITLES, PAPER_METRICS
from cgmvae.studies.measured import Measured
from cgmvae.studies.results import Spread
from cgmvae.studies.spec import RunSpec
from cgmvae.studies.study import Scope, is_here, paper_row, why_missing
from cgmvae.studies.tables import Cell, Table, marked, number
from cgmvae.studies.verdicts import DIFFERENCE_READING, difference_text, finding

#: Where the paper compares parts of its model, with stand-ins for eBird and mirflickr, and what is
#: run beside.
PARTS_DATA = (
    "bbs_2003_2009", "mirflickr_tags", "nus_vec", "yeast", "scene", "sider", "delicious",
)  # fmt: skip
QUICK_DATA = ("yeast", "scene")


@dataclass(frozen=True)
class Variant:
    """C-GMVAE with some of its parameters changed."""

    title: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of the estimator; everything else is its default."""

    def spec(self, scope: Scope, data: str) -> RunSpec:
        """Return the run of this variant, for any split and seed."""
        return RunSpec(data, "cgmvae", settings=scope.settings("cgmvae") | dict(self.settings))


#: The estimator as it is: mixture prior and contrastive term.
COMPLETE = Variant("GM + contrastive")
MIXTURE_ONLY = Variant("GM only", {"contrastive_weight": 0.0})
PLAIN = Variant("plain cross-entropy", {"kl_weight": 0.0, "contrastive_weight": 0.0})

#: What the paper prints of a variant on a data set, one number a metric, or nothing.
Printed = Callable[[str, Variant], Sequence[float | None] | None]


def variant_runs(scope: Scope, data: Sequence[str], variants: Sequence[Variant]) -> list[RunSpec]:
    """Return every variant on every data set that is here, with all splits and seeds."""
    return scope.runs([variant.spec(scope, name) for name in data for variant in variants])


def spread_cell(mean: Cell, own: Spread) -> Cell:
    """Write a mean, already marked, with its deviations."""
    return Cell(f"{mean.text} ± {number(own.over_seeds)} ± {number(own.over_splits)}", mean.mark)


def spread_reading(marked_within: str) -> str:
    """Say how to read a table of :func:`spread_cell`, and among what the best are marked."""
    return (
        "Mean ± deviation over seeds ± deviation over splits; the best and the second of each "
        f"{marked_within} are marked."
    )


def score_table(
    measured: Measured,
    data: Sequence[str],
    variants: Sequence[Variant],
    *,
    title: str,
    protocol: str,
    printed: Printed = lambda *_: None,
) -> Table:
    """Return the five metrics of each variant on each data set, the paper's below ours.

    The paper's numbers are shown under the protocol that they were taken with.
    """
    rows: list[Sequence[Cell | str]] = []
    for name in data:
        rows += _score_rows(measured, name, variants, protocol)
        if protocol == "test-oracle":
            beside = [(variant.title, printed(name, variant)) for variant in variants]
            rows += [
                [paper_row(name), own, *map(number, values)]
                for own, values in beside
                if values is not None
            ]
    columns = ["data", "variant", *METRIC_TITLES.values(), "runs"]
    return Table(f"{title}, thresholds: {protocol}", columns, rows, [spread_reading("data set")])


def _score_rows(
    measured: Measured, data: str, variants: Sequence[Variant], protocol: str
) -> list[list[Cell | str]]:
    if not is_here(data):
        return [[data, why_missing(data)]]
    specs = [variant.spec(measured.scope, data) for variant in variants]
    found = [measured.spreads(spec, protocol=protocol) for spec in specs]
    marks = {name: marked([own[name].mean for own in found]) for name in PAPER_METRICS}
    rows: list[list[Cell | str]] = []
    for place, (variant, own) in enumerate(zip(variants, found, strict=True)):
        n_runs = own[PAPER_METRICS[0]].n_runs
        if n_runs == 0:
            rows.append([data, variant.title, measured.why_empty(specs[place])])
            continue
        cells = [spread_cell(marks[name][place], own[name]) for name in PAPER_METRICS]
        rows.append([data, variant.title, *cells, measured.run_count(n_runs)])
    return rows


def difference_table(
    measured: Measured,
    data: Sequence[str],
    pairs: Sequence[tuple[Variant, Variant]],
    *,
    title: str,
    metrics: Sequence[str],
) -> Table:
    """Return what separates the two variants of each pair, and what follows from it."""
    rows: list[list[str]] = []
    notes = [DIFFERENCE_READING]
    for pair in pairs:
        ours, theirs = (variant.title for variant in pair)
        by_data = {
            name: measured.differences(*(variant.spec(measured.scope, name) for variant in pair))
            for name in data
            if is_here(name)
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
