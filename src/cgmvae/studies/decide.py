"""Studies that decide claims of the paper: every arm tuned by itself, and verdicts computed.

An arm is a variant of C-GMVAE in one of its three networks, the presets ``paper``, ``released`` and
``tuned``, with one member. The settings of every arm are chosen on validation rows
(:mod:`cgmvae.studies.tuning`) before it is compared with others on further splits. A claim says
that one arm scores higher than another. It is found, not found, or undecided on a data set: see
:meth:`~cgmvae.studies.statistics.Difference.decision`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cgmvae.evaluation import METRIC_TITLES, PAPER_METRICS
from cgmvae.methods.registry import REGISTRY
from cgmvae.studies.ablation import (
    COMPLETE,
    CONTRASTIVE_ONLY,
    COVARIANCE,
    GRAPH,
    MIXTURE_ONLY,
    NO_MODULE,
    PLAIN,
    UNIMODAL,
    Variant,
)
from cgmvae.studies.published import published_value
from cgmvae.studies.regimes import rare_scores
from cgmvae.studies.results import NOT_RUN, Results, Rows, score_rows, spread_note
from cgmvae.studies.spec import (
    PAPER_DATA,
    STAND_INS,
    RunSpec,
    Scope,
    Study,
    data_choice,
    data_title,
    is_available,
    is_network,
    paper_data,
    preset_settings,
    why_missing,
)
from cgmvae.studies.statistics import Difference, difference_text, paired_difference
from cgmvae.studies.tables import Table, number
from cgmvae.studies.tuning import TUNED_ON, TUNINGS

DATA = ("yeast", "scene", "sider", "mirflickr_tags", "bbs_2003_2009", "delicious")
_data = data_choice(DATA, quick=("yeast",))

#: Data sets small enough to try the whole grid for every arm; 40 settings on the others.
WHOLE_GRID = ("yeast", "scene", "sider")

#: Ten splits, none of them the one that the settings are chosen on; one seed each.
SPLITS, SEEDS = tuple(range(TUNED_ON + 1, TUNED_ON + 11)), (0,)
QUICK_SPLITS, QUICK_EPOCHS = SPLITS[:2], 2

#: A gain below this counts as none, and fewer splits decide nothing.
BOUND, LEAST_SPLITS = 0.01, 10

#: Test rows by training rows of a random split into 80, 10 and 10%.
TEST_SHARE = 1 / 8

NETWORKS = ("paper", "released", "tuned")
METRICS = ("example_f1", "micro_f1", "macro_f1")
PROTOCOLS = ("validation", "test-oracle")


@dataclass(frozen=True)
class Arm:
    """A variant in one of the networks."""

    network: str
    """A preset."""
    variant: Variant

    def tuned(self, scope: Scope, data: str, tuning: str | None = None) -> RunSpec:
        """Return its tuned run on a data set, for any split and seed.

        By default the search is as large as the data set allows.
        """
        settings: dict[str, Any] = {"n_members": 1}
        if self.network != "tuned":  # the authors' networks see standardized features
            settings["encoding"] = "standard"
        for part in (preset_settings(self.network, data), self.variant.settings):
            both = {**settings.get("settings", {}), **part.get("settings", {})}
            settings |= {**part, **({"settings": both} if both else {})}
        tuning = tuning or ("grid" if data in WHOLE_GRID else "random")
        if scope.quick:
            settings, tuning = {**settings, "epochs": QUICK_EPOCHS, "embedding_dim": 32}, "quick"
        return replace(self.variant, settings=settings, tuning=tuning).spec(scope, data)


@dataclass(frozen=True)
class Claim:
    """That one variant scores higher than another."""

    better: Variant
    other: Variant

    @property
    def title(self) -> str:
        """A phrase for tables."""
        return f"“{self.better.title}” above “{self.other.title}”"


#: Without label branch and reconstruction, plain cross-entropy is a network and nothing else.
_PLAIN = replace(
    PLAIN,
    settings={**PLAIN.settings, "reconstruction_weight": 0.0, "settings": {"label_branch": False}},
)
_CONTRASTIVE = replace(
    CONTRASTIVE_ONLY, settings={**CONTRASTIVE_ONLY.settings, "reconstruction_weight": 0.0}
)
PARTS = (
    *(Claim(COMPLETE, other) for other in (_PLAIN, UNIMODAL, MIXTURE_ONLY, _CONTRASTIVE)),
    Claim(MIXTURE_ONLY, UNIMODAL),
    Claim(_CONTRASTIVE, _PLAIN),
)

_WITH_MODULE = Variant("contrastive", COMPLETE.settings)
MODULES = tuple(Claim(_WITH_MODULE, other) for other in (COVARIANCE, GRAPH, NO_MODULE))

#: Few training rows, and unknown labels: fields of the runs by title.
REGIMES: Mapping[str, Mapping[str, Any]] = {
    **{f"{share:.0%} of the rows": {"train_fraction": share} for share in (0.05, 0.1, 0.25, 0.5)},
    **{
        f"{share:.0%} of the labels unknown": {"hidden_labels": share}
        for share in (0.25, 0.5, 0.75)
    },
}
IN_REGIMES = tuple(
    Claim(
        *(
            replace(variant, title=f"{variant.title}, {regime}", **fields)
            for variant in (COMPLETE, _PLAIN)
        )
    )
    for regime, fields in REGIMES.items()
)


@dataclass(frozen=True)
class Decision:
    """Claims about some networks, and the study that decides them."""

    claims: Sequence[Claim]
    networks: Sequence[str]
    rare_labels: bool = False
    """Whether the first claim is also decided for the rarest third of the labels."""

    def runs(self, scope: Scope) -> list[RunSpec]:
        """Return every tuned arm on every available data set."""
        scope = own_scope(scope)
        arms = [
            Arm(network, variant)
            for network in self.chosen(scope)
            for claim in self.claims
            for variant in (claim.better, claim.other)
        ]
        return scope.runs([arm.tuned(scope, data) for data in _data(scope) for arm in arms])

    def chosen(self, scope: Scope) -> Sequence[str]:
        """Return the networks; a quick study has the last one."""
        return self.networks[-1:] if scope.quick else self.networks

    def tables(self, results: Results) -> list[Table]:
        """Return the verdicts, the differences by network and protocol, and what was chosen."""
        results = Results(own_scope(results.scope), results.store)
        networks = self.chosen(results.scope)
        found = [
            self._differences(results, network, protocol)
            for network in networks
            for protocol in PROTOCOLS
        ]
        rare = [self._rare_labels(results, network) for network in networks]
        return [
            self._verdicts(results),
            *found,
            *(rare if self.rare_labels else ()),
            *(self._settings(results, network) for network in networks),
        ]

    def _verdicts(self, results: Results) -> Table:
        """Return on how many data sets each claim is found, by network and metric."""
        rows: Rows = []
        for network in self.chosen(results.scope):
            for claim in self.claims:
                by_data = [
                    compare(results, network, claim, data, "validation")
                    for data in filter(is_available, _data(results.scope))
                ]
                cells = [
                    _counted([_verdict(each[metric]) for each in by_data]) for metric in METRICS
                ]
                rows.append([claim.title, network, *cells])
        columns = ["claim", "network", *(METRIC_TITLES[metric] for metric in METRICS)]
        notes = [
            f"Numbers of data sets, thresholds: validation. “Found”: the 95% interval of the "
            f"difference lies above 0, and reaches {BOUND}. “Not found”: it lies below {BOUND}, so "
            f"that a gain of {BOUND} is excluded. “Undecided”: neither. Fewer than {LEAST_SPLITS} "
            "splits decide nothing.",
            _protocol_note(results.scope),
        ]
        return Table("Verdicts", columns, rows, notes)

    def _differences(self, results: Results, network: str, protocol: str) -> Table:
        """Return the differences on each data set, with their verdicts."""
        rows: Rows = []
        for data in _data(results.scope):
            if not is_available(data):
                rows.append([data, why_missing(data)])
                continue
            for claim in self.claims:
                by_metric = compare(results, network, claim, data, protocol)
                n_splits = by_metric[METRICS[0]].n_splits
                cells = [_cell(each) for each in by_metric.values()] if n_splits else [NOT_RUN]
                rows.append([data, claim.title, *cells, *([str(n_splits)] if n_splits else [])])
        columns = ["data", "claim", *(METRIC_TITLES[metric] for metric in METRICS), "splits"]
        title = f"Network {network}, thresholds: {protocol}"
        return Table(title, columns, rows, [_protocol_note(results.scope)])

    def _rare_labels(self, results: Results, network: str) -> Table:
        """Return the first claim for the third of the labels with the fewest training rows."""
        claim, rows = self.claims[0], []
        for data in filter(is_available, _data(results.scope)):
            pair = [
                rare_scores(results, Arm(network, variant).tuned(results.scope, data))
                for variant in (claim.better, claim.other)
            ]
            rare, others = (
                paired_difference(pair[0][i], pair[1][i], test_share=_test_share(results.scope))
                for i in (0, 1)
            )
            rows.append([data, claim.title, _cell(rare), _cell(others), str(rare.n_splits)])
        columns = ["data", "claim", "F1 of the rarest third", "F1 of the others", "splits"]
        note = "Mean F1 of the labels that occur in the test rows, thresholds: validation."
        return Table(f"Rare labels, network {network}", columns, rows, [note])

    def _settings(self, results: Results, network: str) -> Table:
        """Return what was chosen for each arm, and from how many settings."""
        rows: Rows = []
        variants = {v.title: v for claim in self.claims for v in (claim.better, claim.other)}
        for data in filter(is_available, _data(results.scope)):
            for title, variant in variants.items():
                spec = Arm(network, variant).tuned(results.scope, data)
                record = results.tuned(spec)
                if record is None:
                    rows.append([data, title, results.why_empty(spec)])
                    continue
                best = ", ".join(f"{name} {value:g}" for name, value in record["best"].items())
                chosen = best or "the preset's own"
                rows.append(
                    [data, title, chosen, str(record["n_settings"]), number(record["value"])]
                )
        columns = ["data", "arm", "chosen", "of settings", "mean of five on validation rows"]
        return Table(f"What was chosen, network {network}", columns, rows)


def own_scope(scope: Scope) -> Scope:
    """Return the scope with the default splits and seeds of these studies."""
    splits = scope.splits or (QUICK_SPLITS if scope.quick else SPLITS)
    return replace(scope, splits=splits, seeds=scope.chosen_seeds(SEEDS))


def compare(
    results: Results, network: str, claim: Claim, data: str, protocol: str
) -> dict[str, Difference]:
    """Return how much higher the better arm of a claim scores, by metric."""
    pair = [
        Arm(network, variant).tuned(results.scope, data) for variant in (claim.better, claim.other)
    ]
    share = _test_share(results.scope)
    return {
        metric: paired_difference(
            *(results.metric(spec, metric, protocol=protocol) for spec in pair), test_share=share
        )
        for metric in METRICS
    }


def _test_share(scope: Scope) -> float:
    return 0.0 if scope.official else TEST_SHARE


def _verdict(difference: Difference) -> str:
    enough = difference.n_splits >= LEAST_SPLITS
    return difference.decision(BOUND) if enough else "too few splits"


def _cell(difference: Difference) -> str:
    return f"{difference_text(difference)}: {_verdict(difference)}"


def _counted(decisions: Sequence[str]) -> str:
    """Return how often each verdict was reached."""
    counts = Counter(decisions)
    named = ("found", "not found", "undecided", "too few splits")
    return ", ".join(f"{name} {counts[name]}" for name in named if counts[name])


def _protocol_note(scope: Scope) -> str:
    rows = (
        "The test rows are the publisher's, the same in all runs; splits differ in the validation "
        "rows, and the intervals do not contain the chance of the test rows."
        if scope.official
        else "Splits share rows: the intervals are widened for it as Nadeau and Bengio (2003) "
        "propose, and the settings were chosen on some rows that other splits test on, which "
        "favors all arms alike."
    )
    return (
        f"One member. Every arm's settings were chosen by itself on the validation rows of split "
        f"{TUNED_ON}; differences are paired over the splits {scope.chosen_splits()[0]} to "
        f"{scope.chosen_splits()[-1]}, with 95% intervals. {rows}"
    )


def _study(name: str, title: str, decision: Decision) -> Study:
    return Study(name, title, decision.runs, decision.tables)


DECIDE = _study(
    "decide",
    "Mixture prior and contrastive term, every arm tuned, with verdicts",
    Decision(PARTS, NETWORKS, rare_labels=True),
)
DECIDE_MODULES = _study(
    "decide-modules",
    "The contrastive module against GNN and covariance, tuned, with verdicts",
    Decision(MODULES, ("paper", "tuned")),
)
DECIDE_REGIMES = _study(
    "decide-regimes",
    "Few rows and unknown labels, tuned, with verdicts",
    Decision(IN_REGIMES, ("paper", "tuned")),
)


# --- The main table with every network tuned on each data set, as the paper did -------------------

_main_data = data_choice((*PAPER_DATA, *STAND_INS), quick=("yeast",))


def _entries(scope: Scope, data: str) -> dict[str, RunSpec]:
    """Return the runs of all methods on a data set by title; any split and seed.

    C-GMVAE is there with each network, a method whose authors' settings are known also with these.
    All networks have one member and are tuned with the same number of settings.
    """
    found = {}
    for method in scope.chosen_methods(("cgmvae", "asl") if scope.quick else tuple(REGISTRY)):
        own = REGISTRY[method]
        if method == "cgmvae":
            for network in NETWORKS[-1:] if scope.quick else NETWORKS:
                arm = Arm(network, COMPLETE)
                found[f"{own.title}, network {network}"] = arm.tuned(scope, data, "random")
            continue
        if not is_network(method):
            found[f"{own.title}, not tuned"] = RunSpec(data, method)
            continue
        tuning, epochs = ("quick", {"epochs": QUICK_EPOCHS}) if scope.quick else ("random", {})
        fixed = {name: value for name, value in own.original.items() if name not in own.space}
        for title, settings in ((own.title, {}), (f"{own.title}, its authors' settings", fixed)):
            if title == own.title or fixed:
                settings = {**settings, **epochs, "n_members": 1}
                found[title] = RunSpec(data, method, settings=settings, tuning=tuning)
    return found


def main_runs(scope: Scope) -> list[RunSpec]:
    """Return every entry on every available data set."""
    scope = own_scope(scope)
    return scope.runs([run for data in _main_data(scope) for run in _entries(scope, data).values()])


def main_tables(results: Results) -> list[Table]:
    """Return the scores on each data set under both protocols, beside the paper's."""
    results = Results(own_scope(results.scope), results.store)
    return [
        _main_table(results, data, protocol)
        for protocol in PROTOCOLS
        for data in _main_data(results.scope)
    ]


def _main_table(results: Results, data: str, protocol: str) -> Table:
    title = f"{data_title(data)}, thresholds: {protocol}"
    if not is_available(data):
        return Table(title, ["data"], [[why_missing(data)]])
    entries = _entries(results.scope, data)
    rows: Rows = [*score_rows(results, entries, protocol=protocol)]
    if protocol == "test-oracle":
        for method in dict.fromkeys(spec.method for spec in entries.values()):
            row = REGISTRY[method].row
            reported = [published_value(metric, row, paper_data(data)) for metric in PAPER_METRICS]
            rows.append([f"— the paper, {row}", *map(number, reported), ""])
    notes = [
        f"{spread_note('column')} Networks have one member; the settings of each were chosen from "
        f"{TUNINGS['random'].n_settings} on the validation rows of split {TUNED_ON}; the scores "
        "are those of other splits."
    ]
    return Table(title, ["method", *METRIC_TITLES.values(), "runs"], rows, notes)


MAIN_TUNED = Study(
    "main-tuned",
    "Ten methods, their networks tuned on each data set, beside the paper",
    main_runs,
    main_tables,
)
