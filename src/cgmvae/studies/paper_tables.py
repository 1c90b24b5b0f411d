"""The paper's tables of data sets (study ``stats``) and of ten methods (study ``main``).

The study ``peers`` has the tables of ``main`` for C-GMVAE and common alternatives: forests, boosted
trees, linear models, chains, networks.
"""

from __future__ import annotations

from collections.abc import Sequence

from cgmvae.data import catalog, load_dataset
from cgmvae.evaluation import METRIC_TITLES, PAPER_METRICS, PROTOCOLS
from cgmvae.methods.registry import REGISTRY
from cgmvae.studies.peers import PEERS, SEMI_SUPERVISED
from cgmvae.studies.published import published_value
from cgmvae.studies.results import (
    Results,
    Rows,
    Specs,
    rank_figures,
    rank_table,
    score_rows,
    spread_note,
)
from cgmvae.studies.spec import (
    PAPER_DATA,
    STAND_INS,
    RunSpec,
    Scope,
    Study,
    data_choice,
    data_title,
    is_available,
    method_title,
    why_missing,
)
from cgmvae.studies.statistics import SHARED_ROWS, Difference, difference_text, finding
from cgmvae.studies.tables import Table, number

_data = data_choice((*PAPER_DATA, *STAND_INS), quick=("yeast", "scene"))

PEER_DATA = (
    "yeast", "scene", "sider", "reuters_tfidf", "bbs_2003_2009", "mirflickr_tags", "delicious",
)  # fmt: skip
_peer_data = data_choice(PEER_DATA, quick=("yeast", "scene"))

OURS = "cgmvae"

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
        cells = [why_missing(name)]
        if is_available(name):
            found = load_dataset(name, download=False).describe()
            values = [getattr(found, field) for field in STATISTICS]
            cells = [f"{each:,.2f}" if each != int(each) else f"{int(each):,}" for each in values]
        rows.append([name, *cells])
        reported = catalog.find_entry(name).paper
        if reported is not None:
            cells = [f"{getattr(reported, field):,}" for field in STATISTICS]
            rows.append(["— the paper", *cells, f"{reported.training_share:.2f}"])
    note = (
        "The training share is what the paper's row implies if its last column counts training "
        "rows only: labels · mean samples per label / (samples · mean labels per sample). The text "
        "of the paper says 0.80 for all."
    )
    columns = ["data", *STATISTICS.values(), "implied training share"]
    return [Table("The data sets", columns, rows, [note])]


STATS = Study("stats", "The data sets, beside the paper's table", lambda _: [], _statistics_tables)


def _specs(scope: Scope, data: str) -> dict[str, RunSpec]:
    """Return the main study's runs on a data set by method; any split and seed."""
    methods = scope.chosen_methods(tuple(REGISTRY))
    return {name: RunSpec(data, name, settings=scope.settings(name)) for name in methods}


def _peer_specs(scope: Scope, data: str) -> dict[str, RunSpec]:
    """Return the runs on a data set of C-GMVAE and the chosen peers; any split and seed."""
    others = [name for name in PEERS if name not in SEMI_SUPERVISED]
    chosen = scope.chosen_methods(others)
    methods = [OURS, *(name for name in others if name in chosen)]
    return {
        name: RunSpec(data, name, cross_validated=True, settings=scope.settings(name))
        for name in methods
    }


def main_runs(scope: Scope) -> list[RunSpec]:
    """Return every method on every available data set."""
    return scope.runs([spec for data in _data(scope) for spec in _specs(scope, data).values()])


def peer_runs(scope: Scope) -> list[RunSpec]:
    """Return C-GMVAE and every installed peer on each data set that is not too large for it."""
    specs = [spec for data in _peer_data(scope) for spec in _peer_specs(scope, data).values()]
    return scope.runs(specs)


def _data_table(results: Results, data: str, protocol: str, specs: Specs) -> Table:
    is_main = specs is _specs
    title = f"{data_title(data) if is_main else data}, thresholds: {protocol}"
    if not is_available(data):
        return Table(title, ["data"], [[why_missing(data)]])
    with_paper = is_main and protocol == "test-oracle" and data in PAPER_DATA
    rows: Rows = []
    for name, *cells in score_rows(results, specs(results.scope, data), protocol=protocol):
        method = str(name)
        rows.append([method_title(method), *cells])
        if with_paper and method in REGISTRY and len(cells) > 1:
            row = REGISTRY[method].row
            reported = [published_value(metric, row, data) for metric in PAPER_METRICS]
            rows.append(["— the paper", *map(number, reported), ""])
    note = spread_note("column")
    if not is_main:
        note += (
            " C-GMVAE has its default settings. The peers are bagged over five folds, and their "
            "settings are chosen on the fold that is left out. All learn thresholds out of fold."
        )
    return Table(title, ["method", *METRIC_TITLES.values(), "runs"], rows, [note])


def _score_tables(results: Results, data: Sequence[str], specs: Specs) -> list[Table]:
    """Return the ranks of the methods, and their scores for each protocol and data set."""
    each = [_data_table(results, name, protocol, specs) for protocol in PROTOCOLS for name in data]
    return [rank_table(results, data, specs), *each]


def _difference_table(results: Results) -> Table:
    """Return how far C-GMVAE is above the best peer of each data set and metric."""
    rows: Rows = []
    by_metric: dict[str, dict[str, Difference]] = {name: {} for name in PAPER_METRICS}
    for data in filter(is_available, _peer_data(results.scope)):
        peers = _peer_specs(results.scope, data)
        ours, cells = peers.pop(OURS), []
        for metric, differences in by_metric.items():
            peer = results.best(list(peers.values()), metric)
            if peer is None:
                cells.append("–")
                continue
            differences[data] = results.difference(ours, peer, metric)
            cells.append(f"{difference_text(differences[data])} ({method_title(peer.method)})")
        rows.append([data, *cells])
    notes = [
        "Protocol validation; paired over splits and seeds, with the 95% interval over splits. "
        f"{SHARED_ROWS} The best peer of each data set and metric is chosen by its mean on the "
        "same test rows, which favors the peers."
    ]
    notes += [
        finding(f"C-GMVAE above the best peer, {METRIC_TITLES[metric]}", found)
        for metric, found in by_metric.items()
    ]
    return Table("C-GMVAE minus the best peer", ["data", *METRIC_TITLES.values()], rows, notes)


MAIN = Study(
    "main",
    "Ten methods on the paper's data sets, beside its numbers",
    main_runs,
    lambda results: _score_tables(results, _data(results.scope), _specs),
    lambda results: rank_figures(results, _data(results.scope), _specs, "main", list(PROTOCOLS)),
)


def _peer_tables(results: Results) -> list[Table]:
    """Return C-GMVAE against the best peer, the ranks, and the scores on each data set."""
    scores = _score_tables(results, _peer_data(results.scope), _peer_specs)
    return [_difference_table(results), *scores]


PEER_STUDY = Study(
    "peers",
    "C-GMVAE against common alternatives",
    peer_runs,
    _peer_tables,
    lambda results: rank_figures(
        results, _peer_data(results.scope), _peer_specs, "peers", ["validation"]
    ),
)
