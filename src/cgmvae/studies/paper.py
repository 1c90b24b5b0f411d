"""The paper's tables of data sets (``stats``) and of methods (``main``, ``main-tuned``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cgmvae.data import catalog, load_dataset
from cgmvae.evaluation import METRIC_TITLES, PAPER_METRICS, PROTOCOLS
from cgmvae.methods.registry import PAPER_METHODS, REGISTRY
from cgmvae.studies.arms import COMPLETE, NETWORKS, QUICK_EPOCHS, SEEDS, SPLITS, tuned_run
from cgmvae.studies.published import published_value
from cgmvae.studies.results import (
    Results,
    Rows,
    rank_figures,
    rank_table,
    score_rows,
    settings_table,
    spread_note,
)
from cgmvae.studies.spec import (
    PAPER_DATA,
    STAND_INS,
    RunSpec,
    Scope,
    Study,
    StudyFigure,
    data_choice,
    data_title,
    is_available,
    is_network,
    method_title,
    paper_data,
    paper_row,
)
from cgmvae.studies.tables import Table, number
from cgmvae.studies.tuning import TUNED_ON

_data = data_choice((*PAPER_DATA, *STAND_INS), quick=("yeast", "scene"))


# --- The data sets --------------------------------------------------------------------------------

STATISTICS = {
    "samples": "samples",
    "labels": "labels",
    "mean_labels_per_sample": "mean labels per sample",
    "median_labels_per_sample": "median",
    "max_labels_per_sample": "maximum",
    "mean_samples_per_label": "mean samples per label",
}


def _statistics_tables(results: Results) -> list[Table]:
    """Return one table: a row for our copy of each data set, and one for the paper's."""
    rows = []
    for name in _data(results.scope):
        if is_available(name):
            found = load_dataset(name, download=False).describe()
            values = [getattr(found, field) for field in STATISTICS]
            cells = [f"{each:,.2f}" if each != int(each) else f"{int(each):,}" for each in values]
            rows.append([name, *cells])
        reported = catalog.find_entry(name).paper
        if reported is not None:
            cells = [f"{getattr(reported, field):,}" for field in STATISTICS]
            title = "— the paper" if is_available(name) else f"{name}, the paper"
            rows.append([title, *cells, f"{reported.training_share:.2f}"])
    note = (
        "The training share is what the paper's row implies if its last column counts training "
        "rows only: labels · mean samples per label / (samples · mean labels per sample). The text "
        "of the paper says 0.80 for all."
    )
    columns = ["data", *STATISTICS.values(), "implied training share"]
    return [Table("The data sets", columns, rows, [note])]


STATS = Study("stats", lambda _: [], _statistics_tables, data=_data)


# --- Methods on data sets -------------------------------------------------------------------------


@dataclass(frozen=True)
class MethodTables:
    """A study that compares methods: ranks, and scores by protocol and data set."""

    name: str
    data: Callable[[Scope], tuple[str, ...]]
    entries: Callable[[Scope, str], dict[str, RunSpec]]
    """The runs on a data set by title, any split and seed."""
    note: str
    splits: Sequence[int] = (0, 1, 2)
    seeds: Sequence[int] = (0, 1, 2)

    def study(self) -> Study:
        """Return the study."""
        return Study(self.name, self._runs, self._tables, self._figures, self.data)

    def _runs(self, scope: Scope) -> list[RunSpec]:
        scope = scope.with_defaults(self.splits, self.seeds)
        specs = [spec for data in self.data(scope) for spec in self.entries(scope, data).values()]
        return scope.runs(specs)

    def _results(self, results: Results) -> Results:
        return Results(results.scope.with_defaults(self.splits, self.seeds), results.store)

    def _tables(self, results: Results) -> list[Table]:
        results = self._results(results)
        data = [name for name in self.data(results.scope) if is_available(name)]
        scores = [self._scores(results, name, protocol) for protocol in PROTOCOLS for name in data]
        settings = settings_table(
            results, "Settings", data, lambda name: self.entries(results.scope, name)
        )
        ranks = rank_table(results, data, self.entries)
        return [ranks, *scores, settings]

    def _figures(self, results: Results) -> list[StudyFigure]:
        results = self._results(results)
        data = self.data(results.scope)
        return rank_figures(results, data, self.entries, self.name, PROTOCOLS)

    def _scores(self, results: Results, data: str, protocol: str) -> Table:
        entries = self.entries(results.scope, data)
        found = score_rows(results, entries, protocol=protocol)
        rows: Rows = []
        waiting = [spec.method for title, spec in entries.items() if title in found]
        for cells in found.values():
            rows.append(cells)
            method = waiting.pop(0)
            last = method not in waiting
            if protocol == "test-oracle" and method in REGISTRY and last:
                own = REGISTRY[method].row
                values = [
                    published_value(metric, own, paper_data(data)) for metric in PAPER_METRICS
                ]
                if any(value is not None for value in values):
                    rows.append([paper_row(data), *map(number, values), ""])
        title = f"{data_title(data)}, thresholds: {protocol}"
        notes = [f"{spread_note('column')}{self.note}"]
        return Table(title, ["method", *METRIC_TITLES.values(), "runs"], rows, notes)


def _defaults(scope: Scope, data: str) -> dict[str, RunSpec]:
    """Return every method with its default settings."""
    methods = scope.chosen_methods(PAPER_METHODS)
    return {
        method_title(name): RunSpec(data, name, settings=scope.settings(name)) for name in methods
    }


MAIN = MethodTables("main", _data, _defaults, "").study()


def _tuned(scope: Scope, data: str) -> dict[str, RunSpec]:
    """Return every method, networks tuned with the same number of settings.

    C-GMVAE is there with each of its networks, a method whose authors' settings are known also with
    these. All networks have one member.
    """
    found = {}
    small = scope.quick and scope.tuning is None
    for method in scope.chosen_methods(("cgmvae", "asl") if small else PAPER_METHODS):
        title = method_title(method)
        if method == "cgmvae":
            for network in NETWORKS[-1:] if small else NETWORKS:
                run = tuned_run(COMPLETE, network, scope, data, tuning="random")
                found[f"{title}, network {network}"] = run
            continue
        if not is_network(method):
            found[f"{title}, not tuned"] = RunSpec(data, method)
            continue
        tuning, epochs = ("quick", {"epochs": QUICK_EPOCHS}) if small else ("random", {})
        tuning = scope.tuning or tuning
        own = REGISTRY[method]
        fixed = {name: value for name, value in own.original.items() if name not in own.space}
        for text, settings in ((title, {}), (f"{title}, its authors' settings", fixed)):
            if text == title or (fixed and not scope.quick):
                settings = {**settings, **epochs, "n_members": 1}
                found[text] = RunSpec(data, method, settings=settings, tuning=tuning)
    return found


MAIN_TUNED = MethodTables(
    "main-tuned",
    data_choice((*PAPER_DATA, *STAND_INS), quick=("yeast",)),
    _tuned,
    f" Networks have one member; the settings of each were chosen on the validation rows of split "
    f"{TUNED_ON}; the scores are those of other splits.",
    SPLITS,
    SEEDS,
).study()
