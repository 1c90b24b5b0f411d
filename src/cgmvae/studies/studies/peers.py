"""C-GMVAE against what people use instead: forests, boosting, regressions, chains, a perceptron."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cgmvae.data import catalog
from cgmvae.evaluation import METRIC_TITLES, PAPER_METRICS, PROTOCOLS
from cgmvae.studies.measured import Measured
from cgmvae.studies.peers import PEERS
from cgmvae.studies.rank_table import rank_figures, rank_table
from cgmvae.studies.results import Difference, Results, paired_difference, spread
from cgmvae.studies.spec import RunSpec
from cgmvae.studies.statistics import RankTest, rank_methods
from cgmvae.studies.study import Scope, Study, StudyFigure, is_here, method_title, why_missing
from cgmvae.studies.tables import Cell, Table, marked
from cgmvae.studies.variants import spread_cell, spread_reading
from cgmvae.studies.verdicts import SHARED_ROWS, difference_text, finding

DATA = (
    "yeast", "scene", "sider", "reuters_tfidf", "bbs_2003_2009", "mirflickr_tags", "delicious",
)  # fmt: skip
QUICK_DATA = ("yeast", "scene")

OURS = "cgmvae"
METHODS = (OURS, *PEERS)


def _data(scope: Scope) -> tuple[str, ...]:
    return scope.chosen_data(DATA, QUICK_DATA)


def _methods(scope: Scope) -> list[str]:
    """Return C-GMVAE, whatever is chosen, and the chosen peers."""
    chosen = scope.chosen_methods(METHODS)
    return [name for name in METHODS if name == OURS or name in chosen]


def _seeds(scope: Scope, method: str) -> tuple[int, ...]:
    seeds = scope.chosen_seeds()
    return seeds if method not in PEERS or PEERS[method].seeded else seeds[:1]


def cells_of(data: str) -> int:
    """Return rows times labels of a data set of the catalog."""
    size = catalog.find_entry(data).statistics
    return size.samples * size.labels


def is_too_large(data: str, method: str) -> bool:
    """Tell whether a peer is left out on a data set."""
    bound = PEERS[method].most_cells if method in PEERS else None
    return bound is not None and cells_of(data) > bound


def _spec(scope: Scope, data: str, method: str) -> RunSpec:
    return RunSpec(data, method, settings=scope.settings(method))


def runs(scope: Scope) -> list[RunSpec]:
    """Return C-GMVAE and every peer on every data set that is here and not too large for it."""
    return [
        replace(_spec(scope, data, method), split=split, seed=seed)
        for data in _data(scope)
        if is_here(data)
        for method in _methods(scope)
        if not is_too_large(data, method)
        for split, seed in product(scope.chosen_splits(), _seeds(scope, method))
    ]


class Scored(NamedTuple):
    """The metrics of each method on one data set under one protocol."""

    values: dict[str, NDArray[np.float64]]
    """(n_splits, n_seeds, 5) by method; a method without seeds has one. NaN without a run."""

    def means(self) -> NDArray[np.float64]:
        """Return the mean of each method and metric, (n_methods, 5)."""
        return np.array(
            [
                [spread(values[:, :, i]).mean for i in range(len(PAPER_METRICS))]
                for values in self.values.values()
            ]
        )

    def best_peers(self) -> list[str | None]:
        """Return for each metric the peer with the highest mean, or None without any."""
        rows = [(name, row) for name, row in zip(self.values, self.means(), strict=True)]
        peers = [(name, row) for name, row in rows if name != OURS and not np.isnan(row).any()]
        if not peers:
            return [None] * len(PAPER_METRICS)
        best = np.argmax([row for _, row in peers], axis=0)
        return [peers[i][0] for i in best]


def _scored(scope: Scope, results: Results, data: str, protocol: str) -> Scored:
    return Scored(
        {
            method: results.metrics(
                _spec(scope, data, method),
                scope.chosen_splits(),
                _seeds(scope, method),
                protocol=protocol,
            )
            for method in _methods(scope)
        }
    )


def _data_table(scope: Scope, results: Results, data: str, protocol: str) -> Table:
    title = f"{data}, thresholds: {protocol}"
    if not is_here(data):
        return Table(title, ["data"], [[why_missing(data)]])
    scored = _scored(scope, results, data, protocol)
    marks = [marked(column) for column in scored.means().T.tolist()]
    rows: list[list[Cell | str]] = []
    for place, (method, values) in enumerate(scored.values.items()):
        spreads = [spread(values[:, :, i]) for i in range(len(PAPER_METRICS))]
        if spreads[0].n_runs == 0:
            rows.append([method_title(method), _why_empty(scope, results, data, method)])
            continue
        cells = [spread_cell(marks[i][place], own) for i, own in enumerate(spreads)]
        rows.append([method_title(method), *cells, str(spreads[0].n_runs)])
    return Table(title, ["method", *METRIC_TITLES.values(), "runs"], rows, [_READING])


_READING = (
    f"{spread_reading('column')} C-GMVAE with its defaults; what the peers leave open is chosen on "
    "the validation rows."
)


def _why_empty(scope: Scope, results: Results, data: str, method: str) -> str:
    if is_too_large(data, method):
        bound = PEERS[method].most_cells
        return f"left out: {cells_of(data):,} rows × labels, more than {bound:,}"
    return Measured(scope, results).why_empty(_spec(scope, data, method))


def _difference_table(scope: Scope, results: Results) -> Table:
    """Return how far C-GMVAE is above the best peer of each data set and metric."""
    rows: list[Sequence[str]] = []
    by_metric: dict[str, dict[str, Difference]] = {name: {} for name in PAPER_METRICS}
    for data in filter(is_here, _data(scope)):
        scored = _scored(scope, results, data, "validation")
        cells = []
        for i, (metric, peer) in enumerate(zip(PAPER_METRICS, scored.best_peers(), strict=True)):
            if peer is None:
                cells.append("–")
                continue
            ours, theirs = (scored.values[name][:, :, i] for name in (OURS, peer))
            difference = paired_difference(ours, theirs)
            by_metric[metric][data] = difference
            cells.append(f"{difference_text(difference)} ({method_title(peer)})")
        rows.append([data, *cells])
    notes = [_DIFFERENCE_READING]
    notes += [
        finding(f"C-GMVAE above the best peer, {METRIC_TITLES[metric]}", found)
        for metric, found in by_metric.items()
    ]
    return Table("C-GMVAE less the best peer", ["data", *METRIC_TITLES.values()], rows, notes)


_DIFFERENCE_READING = (
    "Protocol validation; paired over splits and seeds, with the 95% interval over splits. "
    f"{SHARED_ROWS} The best peer of each data set and metric is chosen by its mean on the same "
    "test rows, which favours the peers."
)


def _ranks(scope: Scope, results: Results, protocol: str) -> RankTest:
    """Rank methods over data sets and metrics, by their means."""
    scores = [
        _scored(scope, results, data, protocol).means().T for data in filter(is_here, _data(scope))
    ]
    return rank_methods(np.reshape(scores, (-1, len(_methods(scope)))))


def _titles(scope: Scope) -> list[str]:
    return [method_title(method) for method in _methods(scope)]


def tables(scope: Scope, results: Results) -> list[Table]:
    """Return what separates C-GMVAE from the best peer, the ranks, and each data set's scores."""
    each = [
        _data_table(scope, results, data, protocol)
        for protocol in PROTOCOLS
        for data in _data(scope)
    ]
    tests = {protocol: _ranks(scope, results, protocol) for protocol in PROTOCOLS}
    ranks = rank_table(_titles(scope), tests)
    return [_difference_table(scope, results), ranks, *each]


def figures(scope: Scope, results: Results) -> list[StudyFigure]:
    """Return the critical-difference plot of the protocol ``validation``, if there is one."""
    test = _ranks(scope, results, "validation")
    return rank_figures("peers_validation", _titles(scope), test)


STUDY = Study("peers", "C-GMVAE against what people use instead", runs, tables, figures)
