"""C-GMVAE against common alternatives: forests, boosting, regressions, chains, a perceptron."""

from __future__ import annotations

import numpy as np

from cgmvae.data import catalog
from cgmvae.evaluation import METRIC_TITLES, PAPER_METRICS, PROTOCOLS
from cgmvae.studies.results import (
    Results,
    Rows,
    rank_by_means,
    rank_figures,
    rank_table,
    score_rows,
    spread_note,
)
from cgmvae.studies.sklearn_peers import PEERS
from cgmvae.studies.spec import (
    RunSpec,
    Scope,
    Study,
    StudyFigure,
    is_available,
    method_title,
    why_missing,
)
from cgmvae.studies.statistics import (
    SHARED_ROWS,
    Difference,
    RankTest,
    difference_text,
    finding,
    paired_difference,
    spread,
)
from cgmvae.studies.tables import Table

DATA = (
    "yeast", "scene", "sider", "reuters_tfidf", "bbs_2003_2009", "mirflickr_tags", "delicious",
)  # fmt: skip
QUICK_DATA = ("yeast", "scene")

OURS = "cgmvae"
METHODS = (OURS, *PEERS)


def _data(scope: Scope) -> tuple[str, ...]:
    return scope.chosen_data(DATA, QUICK_DATA)


def _specs(scope: Scope, data: str) -> dict[str, RunSpec]:
    """Return the runs on a data set by method: C-GMVAE and the chosen peers."""
    chosen = scope.chosen_methods(METHODS)
    methods = [name for name in METHODS if name == OURS or name in chosen]
    return {name: RunSpec(data, name, settings=scope.settings(name)) for name in methods}


def _n_cells(data: str) -> int:
    """Return rows × labels of a data set."""
    size = catalog.find_entry(data).statistics
    return size.samples * size.labels


def is_too_large(data: str, method: str) -> bool:
    """Return whether a data set is too large for a peer."""
    limit = PEERS[method].max_cells if method in PEERS else None
    return limit is not None and _n_cells(data) > limit


def runs(scope: Scope) -> list[RunSpec]:
    """Return C-GMVAE and every peer on each available data set that is not too large for it."""
    return scope.runs(
        [
            spec
            for data in _data(scope)
            for method, spec in _specs(scope, data).items()
            if not is_too_large(data, method)
        ]
    )


def _data_table(results: Results, data: str, protocol: str) -> Table:
    title = f"{data}, thresholds: {protocol}"
    if not is_available(data):
        return Table(title, ["data"], [[why_missing(data)]])
    rows: Rows = []
    for name, *cells in score_rows(results, _specs(results.scope, data), protocol=protocol):
        method = str(name)
        if is_too_large(data, method):
            limit = PEERS[method].max_cells
            cells = [f"left out: {_n_cells(data):,} rows × labels, more than {limit:,}"]
        rows.append([method_title(method), *cells])
    note = (
        f"{spread_note('column')} C-GMVAE has its default settings; those of the peers are tuned "
        "on the validation rows."
    )
    return Table(title, ["method", *METRIC_TITLES.values(), "runs"], rows, [note])


def _best_peer(results: Results, data: str, metric: str) -> RunSpec | None:
    """Return the peer with the highest mean, or None without any run."""
    specs = [spec for name, spec in _specs(results.scope, data).items() if name != OURS]
    means = [spread(results.metric(spec, metric)).mean for spec in specs]
    return None if np.isnan(means).all() else specs[int(np.nanargmax(means))]


def _difference_table(results: Results) -> Table:
    """Return how far C-GMVAE is above the best peer of each data set and metric."""
    rows: Rows = []
    by_metric: dict[str, dict[str, Difference]] = {name: {} for name in PAPER_METRICS}
    for data in filter(is_available, _data(results.scope)):
        ours, cells = _specs(results.scope, data)[OURS], []
        for metric, differences in by_metric.items():
            peer = _best_peer(results, data, metric)
            if peer is None:
                cells.append("–")
                continue
            differences[data] = paired_difference(
                results.metric(ours, metric), results.metric(peer, metric)
            )
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


def _ranks(results: Results, protocol: str) -> RankTest:
    scope = results.scope
    return rank_by_means(results, _data(scope), lambda data: _specs(scope, data), protocol=protocol)


def _titles(scope: Scope) -> list[str]:
    return [method_title(method) for method in _specs(scope, _data(scope)[0])]


def tables(results: Results) -> list[Table]:
    """Return C-GMVAE against the best peer, the ranks, and the scores on each data set."""
    each = [
        _data_table(results, data, protocol)
        for protocol in PROTOCOLS
        for data in _data(results.scope)
    ]
    tests = {protocol: _ranks(results, protocol) for protocol in PROTOCOLS}
    return [_difference_table(results), rank_table(_titles(results.scope), tests), *each]


def figures(results: Results) -> list[StudyFigure]:
    """Return the critical-difference plot of the protocol ``validation``, if there is one."""
    test = _ranks(results, "validation")
    return rank_figures("peers_validation", _titles(results.scope), test)


STUDY = Study("peers", "C-GMVAE against common alternatives", runs, tables, figures)
