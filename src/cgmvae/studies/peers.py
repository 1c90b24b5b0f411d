"""C-GMVAE against common alternatives: forests, boosting, regressions, chains, a perceptron."""

from __future__ import annotations

from cgmvae.data import catalog
from cgmvae.evaluation import METRIC_TITLES, PAPER_METRICS, PROTOCOLS
from cgmvae.studies.results import (
    Results,
    Rows,
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
    data_choice,
    is_available,
    method_title,
    why_missing,
)
from cgmvae.studies.statistics import SHARED_ROWS, Difference, difference_text, finding
from cgmvae.studies.tables import Table

DATA = (
    "yeast", "scene", "sider", "reuters_tfidf", "bbs_2003_2009", "mirflickr_tags", "delicious",
)  # fmt: skip
_data = data_choice(DATA, quick=("yeast", "scene"))

OURS = "cgmvae"
METHODS = (OURS, *PEERS)


def _specs(scope: Scope, data: str) -> dict[str, RunSpec]:
    """Return the runs on a data set by method: C-GMVAE and the chosen peers."""
    chosen = scope.chosen_methods(METHODS)
    methods = [name for name in METHODS if name == OURS or name in chosen]
    return {name: RunSpec(data, name, settings=scope.settings(name)) for name in methods}


def why_too_large(data: str, method: str) -> str | None:
    """Return why a data set is too large for a peer, or None if it is not."""
    limit = PEERS[method].max_cells if method in PEERS else None
    size = catalog.find_entry(data).statistics
    n_cells = size.samples * size.labels
    if limit is None or n_cells <= limit:
        return None
    return f"left out: {n_cells:,} rows × labels, more than {limit:,}"


def runs(scope: Scope) -> list[RunSpec]:
    """Return C-GMVAE and every peer on each available data set that is not too large for it."""
    return scope.runs(
        [
            spec
            for data in _data(scope)
            for method, spec in _specs(scope, data).items()
            if why_too_large(data, method) is None
        ]
    )


def _data_table(results: Results, data: str, protocol: str) -> Table:
    title = f"{data}, thresholds: {protocol}"
    if not is_available(data):
        return Table(title, ["data"], [[why_missing(data)]])
    rows: Rows = []
    for name, *cells in score_rows(results, _specs(results.scope, data), protocol=protocol):
        method = str(name)
        reason = why_too_large(data, method)
        rows.append([method_title(method), *(cells if reason is None else [reason])])
    note = (
        f"{spread_note('column')} C-GMVAE has its default settings; those of the peers are tuned "
        "on the validation rows."
    )
    return Table(title, ["method", *METRIC_TITLES.values(), "runs"], rows, [note])


def _difference_table(results: Results) -> Table:
    """Return how far C-GMVAE is above the best peer of each data set and metric."""
    rows: Rows = []
    by_metric: dict[str, dict[str, Difference]] = {name: {} for name in PAPER_METRICS}
    for data in filter(is_available, _data(results.scope)):
        peers = _specs(results.scope, data)
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


def tables(results: Results) -> list[Table]:
    """Return C-GMVAE against the best peer, the ranks, and the scores on each data set."""
    data = _data(results.scope)
    each = [_data_table(results, name, protocol) for protocol in PROTOCOLS for name in data]
    return [_difference_table(results), rank_table(results, data, _specs), *each]


def figures(results: Results) -> list[StudyFigure]:
    """Return the critical-difference plot of the protocol ``validation``, if there is one."""
    return rank_figures(results, _data(results.scope), _specs, "peers", ["validation"])


STUDY = Study("peers", "C-GMVAE against common alternatives", runs, tables, figures)
