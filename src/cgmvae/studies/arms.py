"""The study ``ablation``: what the parts of C-GMVAE add, every arm tuned by itself.

An :class:`Arm` is C-GMVAE with some settings changed. A :class:`Comparison` declares which arms are
compared, in which networks (presets), and with how much to learn from. The settings of every arm
are chosen on validation rows (:mod:`cgmvae.studies.tuning`), then compared on ten other splits. A
claim that one arm scores higher than another is found, not found, or undecided on a data set: see
:meth:`~cgmvae.studies.statistics.Difference.decision`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cgmvae.errors import InputError
from cgmvae.evaluation import METRIC_TITLES, PAPER_METRICS
from cgmvae.methods.diagnostics import ACTIVE_VARIANCE
from cgmvae.studies.published import published
from cgmvae.studies.results import Results, Rows, data_rows, settings_table, spread_note
from cgmvae.studies.rows import load_parts
from cgmvae.studies.spec import (
    RunSpec,
    Scope,
    Study,
    data_choice,
    is_available,
    preset_settings,
)
from cgmvae.studies.statistics import (
    SHARED_ROWS,
    Difference,
    difference_text,
    paired_difference,
    spread,
)
from cgmvae.studies.tables import Table, number
from cgmvae.studies.tuning import TUNED_ON

DATA = ("yeast", "scene", "sider", "mirflickr_tags", "bbs_2003_2009", "delicious")
_data = data_choice(DATA, quick=("yeast",))

#: Data sets small enough to try the whole grid for every arm; 40 settings on the others.
WHOLE_GRID = ("yeast", "scene", "sider")

#: Ten splits, none of them the one that the settings are chosen on; one seed each.
SPLITS, SEEDS = tuple(range(TUNED_ON + 1, TUNED_ON + 11)), (0,)
QUICK_EPOCHS = 2

#: A gain below this counts as none, and fewer splits decide nothing.
BOUND, MIN_SPLITS = 0.01, 10

NETWORKS = ("paper", "released", "tuned")
METRICS = ("example_f1", "micro_f1", "macro_f1")
PROTOCOLS = ("validation", "test-oracle")

#: Rare labels are the rarest 1 in this many.
RARE_FACTOR = 3


# --- What is compared -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Arm:
    """C-GMVAE with some settings changed, as in a RunSpec."""

    title: str
    settings: Mapping[str, Any] = field(default_factory=dict)


COMPLETE = Arm("GM + contrastive")
#: Without label branch and reconstruction, plain cross-entropy is a network and nothing else.
PLAIN = Arm(
    "plain cross-entropy",
    {
        "kl_weight": 0.0,
        "contrastive_weight": 0.0,
        "reconstruction_weight": 0.0,
        "label_branch": False,
    },
)
MIXTURE = Arm("GM only", {"contrastive_weight": 0.0})
CONTRASTIVE = Arm("contrastive only", {"kl_weight": 0.0, "reconstruction_weight": 0.0})
#: One Gaussian per label set, from the sum of its embeddings, as in earlier models.
UNIMODAL = Arm("uni-Gaussian", {"contrastive_weight": 0.0, "prior": "label-sum"})
STANDARD = Arm("N(0, I)", {"contrastive_weight": 0.0, "prior": "standard"})
COVARIANCE = Arm("GM + covariance", {"contrastive_weight": 0.0, "correlation": "covariance"})
GRAPH = Arm("GM + GNN", {"contrastive_weight": 0.0, "correlation": "graph"})
TRIPLET = Arm("GM + triplet", {"alignment": "triplet"})
RANKING = Arm("GM + ranking", {"alignment": "ranking"})
#: KL and contrastive term in the first half of the epochs; in the second, cross-entropy trains the
#: label embeddings on frozen feature embeddings.
TWO_STAGES = Arm("two stages", {"first_stage": 0.5})

#: A claim that the first arm scores higher than the second.
Claim = tuple[Arm, Arm]


class Condition(NamedTuple):
    """How much there is to learn from: fields of a RunSpec."""

    train_fraction: float = 1.0
    hidden_labels: float = 0.0


EVERYTHING = Condition()


@dataclass(frozen=True)
class Comparison:
    """Claims, and where they are examined."""

    title: str
    claims: Sequence[Claim]
    networks: Sequence[str] = ("paper", "tuned")
    conditions: Mapping[str, Condition] = field(default_factory=lambda: {"": EVERYTHING})
    """By title."""
    reported: Callable[[str], Mapping[str, Sequence[float | None]]] = lambda _: {}
    """The paper's numbers on a data set by arm: those of :data:`METRICS`."""
    detailed: bool = False
    """Whether rare labels and latent units have tables too."""

    @property
    def arms(self) -> list[Arm]:
        """All arms, each once."""
        return list({arm.title: arm for claim in self.claims for arm in claim}.values())


def _reported_modules(data: str) -> dict[str, list[float | None]]:
    """Return the paper's Table 7, which has micro-F1 alone."""
    rows = ((COVARIANCE, "covariance"), (GRAPH, "gnn"), (COMPLETE, "contrastive"))
    cells = {arm.title: published()["replacement"][row].get(data) for arm, row in rows}
    return {title: [None, value] for title, value in cells.items() if value is not None}


COMPARISONS: Mapping[str, Comparison] = {
    "parts": Comparison(
        "Mixture prior and contrastive term",
        (
            *((COMPLETE, other) for other in (PLAIN, UNIMODAL, MIXTURE, CONTRASTIVE)),
            (MIXTURE, UNIMODAL),
            (MIXTURE, STANDARD),
            (CONTRASTIVE, PLAIN),
        ),
        NETWORKS,
        reported=lambda data: published()["ablation"].get(data, {}),
        detailed=True,
    ),
    "modules": Comparison(
        "The contrastive module against covariance and GNN",
        tuple((COMPLETE, other) for other in (COVARIANCE, GRAPH, MIXTURE)),
        reported=_reported_modules,
    ),
    "losses": Comparison(
        "The contrastive loss against others, and one stage against two",
        tuple((COMPLETE, other) for other in (TRIPLET, RANKING, TWO_STAGES)),
    ),
    "rows": Comparison(
        "Few training rows",
        ((COMPLETE, PLAIN),),
        conditions={
            f"{share:.0%} of the rows": Condition(train_fraction=share)
            for share in (0.05, 0.1, 0.25, 0.5)
        },
    ),
    "labels": Comparison(
        "Unknown labels",
        ((COMPLETE, PLAIN),),
        conditions={
            f"{share:.0%} of the labels unknown": Condition(hidden_labels=share)
            for share in (0.25, 0.5, 0.75)
        },
    ),
}


# --- The runs -------------------------------------------------------------------------------------


def tuned_run(
    arm: Arm,
    network: str,
    scope: Scope,
    data: str,
    condition: Condition = EVERYTHING,
    *,
    tuning: str | None = None,
) -> RunSpec:
    """Return the tuned run of an arm in a network, for any split and seed.

    By default the search is as large as the data set allows.
    """
    settings: dict[str, Any] = {"n_members": 1}
    if network != "tuned":  # the authors' networks see standardized features
        settings["encoding"] = "standard"
    settings |= {**preset_settings(network, data), **arm.settings}
    tuning = scope.tuning or tuning or ("grid" if data in WHOLE_GRID else "random")
    if scope.quick and scope.tuning is None:
        settings, tuning = {**settings, "epochs": QUICK_EPOCHS, "embedding_dim": 32}, "quick"
    return RunSpec(data, "cgmvae", 0, 0, *condition, settings, tuning=tuning)


def _chosen(scope: Scope) -> list[Comparison]:
    """Return the comparisons of a scope; by default a quick study has the first."""
    names = scope.comparisons or tuple(COMPARISONS)[: 1 if scope.quick else None]
    for name in names:
        if name not in COMPARISONS:
            raise InputError(
                f"There is no comparison {name!r}; choose one of {', '.join(COMPARISONS)}."
            )
    return [COMPARISONS[name] for name in names]


def _networks(comparison: Comparison, scope: Scope) -> Sequence[str]:
    """Return the networks of a comparison; a quick study has the last one."""
    return comparison.networks[-1:] if scope.quick else comparison.networks


def runs(scope: Scope) -> list[RunSpec]:
    """Return every arm of every comparison on every available data set."""
    scope = scope.with_defaults(SPLITS, SEEDS)
    return scope.runs(
        [
            tuned_run(arm, network, scope, data, condition)
            for comparison in _chosen(scope)
            for data in _data(scope)
            for network in _networks(comparison, scope)
            for condition in comparison.conditions.values()
            for arm in comparison.arms
        ]
    )


# --- The tables -----------------------------------------------------------------------------------


def tables(results: Results) -> list[Table]:
    """Return the verdicts, then for each comparison and network what they follow from."""
    results = Results(results.scope.with_defaults(SPLITS, SEEDS), results.store)
    chosen = _chosen(results.scope)
    found = [_verdict_table(results, comparison) for comparison in chosen]
    for comparison in chosen:
        for network in _networks(comparison, results.scope):
            for protocol in PROTOCOLS:
                found.append(_difference_table(results, comparison, network, protocol))
                found.append(_score_table(results, comparison, network, protocol))
            if comparison.detailed:
                found.append(_rare_label_table(results, comparison, network))
                found.append(_latent_table(results, comparison, network))
            found.append(_settings_table(results, comparison, network))
    return found


def _claims(comparison: Comparison) -> Iterator[tuple[str, Arm, Arm, Condition]]:
    """Yield each claim under each condition, with a phrase for tables."""
    for condition, fields in comparison.conditions.items():
        for better, other in comparison.claims:
            title = _joined(f"“{better.title}” above “{other.title}”", condition)
            yield title, better, other, fields


def _joined(title: str, condition: str) -> str:
    return f"{title}, {condition}" if condition else title


def compare(
    results: Results,
    network: str,
    pair: Claim,
    data: str,
    condition: Condition = EVERYTHING,
    *,
    protocol: str = "validation",
) -> dict[str, Difference]:
    """Return how much higher the first of two arms scores, by metric."""
    first, second = (tuned_run(arm, network, results.scope, data, condition) for arm in pair)
    return {name: results.difference(first, second, name, protocol=protocol) for name in METRICS}


def _verdict(difference: Difference) -> str:
    enough = difference.n_splits >= MIN_SPLITS
    return difference.decision(BOUND) if enough else "too few splits"


def _verdict_table(results: Results, comparison: Comparison) -> Table:
    """Return on how many data sets each claim is found, by network and metric."""
    rows: Rows = []
    for network in _networks(comparison, results.scope):
        for title, better, other, condition in _claims(comparison):
            by_data = [
                compare(results, network, (better, other), data, condition)
                for data in filter(is_available, _data(results.scope))
            ]
            known = [each for each in by_data if each[METRICS[0]].n_splits]
            if known:
                counts = [Counter(_verdict(each[metric]) for each in known) for metric in METRICS]
                rows.append([title, network, *map(_counted, counts)])
    columns = ["claim", "network", *(METRIC_TITLES[metric] for metric in METRICS)]
    notes = [
        "Numbers of data sets, thresholds: validation. “Found”: the 95% interval of the "
        f"difference lies above 0, and reaches {BOUND}. “Not found”: it lies below {BOUND}, so "
        f"that a gain of {BOUND} is excluded. “Undecided”: neither. Fewer than {MIN_SPLITS} "
        "splits decide nothing. One verdict in forty is “found” by chance, and each arm was "
        "searched once.",
        _protocol_note(results.scope),
    ]
    return Table(f"{comparison.title}: verdicts", columns, rows, notes)


def _counted(counts: Counter[str]) -> str:
    named = ("found", "not found", "undecided", "too few splits")
    return ", ".join(f"{name} {counts[name]}" for name in named if counts[name])


def _cell(difference: Difference) -> str:
    return f"{difference_text(difference)}: {_verdict(difference)}"


def _difference_table(
    results: Results, comparison: Comparison, network: str, protocol: str
) -> Table:
    """Return the differences on each data set, with their verdicts."""
    rows: Rows = []
    for data in filter(is_available, _data(results.scope)):
        for title, better, other, condition in _claims(comparison):
            found = compare(results, network, (better, other), data, condition, protocol=protocol)
            if n_splits := found[METRICS[0]].n_splits:
                rows.append([data, title, *map(_cell, found.values()), str(n_splits)])
    columns = ["data", "claim", *(METRIC_TITLES[metric] for metric in METRICS), "splits"]
    title = f"{comparison.title}: network {network}, thresholds: {protocol}"
    return Table(title, columns, rows, [_protocol_note(results.scope)])


def _score_table(results: Results, comparison: Comparison, network: str, protocol: str) -> Table:
    """Return the scores of each arm, the paper's numbers below ours."""
    rows = data_rows(
        results,
        _data(results.scope),
        lambda data: dict(_arms(results.scope, comparison, network, data)),
        comparison.reported,
        protocol=protocol,
        metrics=PAPER_METRICS,
    )
    title = f"{comparison.title}: scores, network {network}, thresholds: {protocol}"
    columns = ["data", "arm", *METRIC_TITLES.values(), "runs"]
    return Table(title, columns, rows, [spread_note("data set")])


def _arms(
    scope: Scope, comparison: Comparison, network: str, data: str
) -> Iterator[tuple[str, RunSpec]]:
    for condition, fields in comparison.conditions.items():
        for arm in comparison.arms:
            yield _joined(arm.title, condition), tuned_run(arm, network, scope, data, fields)


def _settings_table(results: Results, comparison: Comparison, network: str) -> Table:
    """Return what was chosen for each arm, and from how many settings."""
    return settings_table(
        results,
        f"{comparison.title}: settings, network {network}",
        _data(results.scope),
        lambda data: dict(_arms(results.scope, comparison, network, data)),
    )


def _protocol_note(scope: Scope) -> str:
    rows = (
        "The test rows are the publisher's, the same in all runs; splits differ in the validation "
        "rows, and the intervals do not contain the chance of the test rows."
        if scope.official
        else f"{SHARED_ROWS} The settings were chosen on some rows that other splits test on, "
        "which favors all arms alike."
    )
    return (
        f"One member. Every arm's settings were chosen by itself on the validation rows of split "
        f"{TUNED_ON}; differences are paired over the splits {scope.chosen_splits()[0]} to "
        f"{scope.chosen_splits()[-1]}, with 95% intervals. {rows}"
    )


# --- Rare labels, latent units --------------------------------------------------------------------


def _rare_label_table(results: Results, comparison: Comparison, network: str) -> Table:
    """Return the first claim for the third of the labels with the fewest training rows."""
    rows: Rows = []
    for data in filter(is_available, _data(results.scope)):
        title, better, other, condition = next(_claims(comparison))
        first, second = (
            rare_scores(results, tuned_run(arm, network, results.scope, data, condition))
            for arm in (better, other)
        )
        share = results.test_share
        rare, rest = (paired_difference(first[i], second[i], test_share=share) for i in (0, 1))
        if rare.n_splits:
            rows.append([data, title, _cell(rare), _cell(rest), str(rare.n_splits)])
    columns = ["data", "claim", "F1 of the rarest third", "F1 of the others", "splits"]
    note = "Mean F1 of the labels that occur in the test rows, thresholds: validation."
    return Table(f"{comparison.title}: rare labels, network {network}", columns, rows, [note])


def rare_labels(train_positives: Sequence[int]) -> NDArray[np.bool_]:
    """Mark the third of the labels with the fewest training rows, (n_labels,).

    Examples
    --------
    >>> rare_labels([9, 2, 5, 1, 7, 8]).tolist()
    [False, True, False, True, False, False]
    """
    order = np.argsort(train_positives, kind="stable")
    rare = np.zeros(len(order), bool)
    rare[order[: max(1, len(order) // RARE_FACTOR)]] = True
    return rare


@lru_cache(maxsize=64)
def _tested_labels(data: str, split: int, official: bool) -> NDArray[np.bool_]:
    """Mark the labels that occur in the test rows, (n_labels,); the others cannot be evaluated."""
    labels = load_parts(RunSpec(data, "cgmvae", split=split, official=official)).test.Y
    return np.asarray(labels.sum(axis=0)).ravel() > 0


def rare_scores(results: Results, spec: RunSpec) -> NDArray[np.float64]:
    """Return the mean F1 of rare and of other labels, (2, n_splits, n_seeds).

    Labels that do not occur in the test rows are left out.
    """
    grid = results.reports(spec)
    found = np.full((2, len(grid), len(grid[0])), np.nan)
    for i, split in enumerate(results.scope.chosen_splits()):
        for j, report in enumerate(grid[i]):
            if report is not None:
                rare = rare_labels(report["train_positives"])
                tested = _tested_labels(spec.data, split, results.scope.official)
                f1 = np.array(report["label_f1"], np.float64)
                for k, chosen in enumerate((rare & tested, ~rare & tested)):
                    found[k, i, j] = f1[chosen].mean() if chosen.any() else np.nan
    return found


def _latent_table(results: Results, comparison: Comparison, network: str) -> Table:
    """Return how many latent units each arm uses, and what they are worth."""
    rows: Rows = []
    for data in filter(is_available, _data(results.scope)):
        for title, spec in _arms(results.scope, comparison, network, data):
            units, own, shuffled = (
                results.diagnostic(spec, name)
                for name in ("active_units", "micro_f1", "micro_f1_shuffled_z")
            )
            if (found := spread(units)).n_runs:
                lost = number(spread(own - shuffled).mean)
                rows.append([data, title, number(found.mean, 1), lost, str(found.n_runs)])
    note = (
        "Active units: latent units whose mean has a variance above "
        f"{ACTIVE_VARIANCE} over test rows. Lost without z: micro-F1 with the row's own z minus "
        "that with another row's."
    )
    columns = ["data", "arm", "active units", "lost without z", "runs"]
    return Table(f"{comparison.title}: latent units, network {network}", columns, rows, [note])


STUDY = Study("ablation", runs, tables, data=_data)
