"""Are labels that belong together similar? The heat maps of birds for C-GMVAE and MPVAE.

The paper shows inner products of label embeddings. The store has the default similarity of each
method: for C-GMVAE the cosine of embeddings, which is the inner product in its contrastive term;
for MPVAE the correlation of its probit. Unlike the norm of an embedding, neither depends on how
frequent a label is. The diagonal has no information and is left out.

The runs are those of the study ``main``; a quick study trains for a few epochs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cgmvae.data import load_dataset
from cgmvae.errors import InputError
from cgmvae.evaluation import micro_auc
from cgmvae.methods.registry import REGISTRY
from cgmvae.studies.results import Results, spread_cell
from cgmvae.studies.spec import (
    RunSpec,
    Scope,
    Study,
    StudyFigure,
    data_choice,
    is_available,
)
from cgmvae.studies.statistics import SHARED_ROWS, difference_text, paired_difference, spread
from cgmvae.studies.tables import Cell, Table, number

#: Labels by data set and group: the birds of the paper's figure, in its order. The survey has no
#: Black-backed Gull; the Herring Gull replaces it.
GROUPS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "bbs_2003_2009": {
        "water": ("Larus_argentatus", "Stelgidopteryx_serripennis", "Ardea_herodias"),
        "forest": (
            "Baeolophus_bicolor",
            "Colaptes_auratus",
            "Mimus_polyglottos",
            "Bombycilla_cedrorum",
        ),
        "residential": ("Zenaida_macroura", "Passer_domesticus", "Sturnus_vulgaris"),
    }
}

_data = data_choice(tuple(GROUPS), quick=tuple(GROUPS))

METHODS = ("cgmvae", "mpvae")

#: Epochs of a quick study: the survey is large.
QUICK_EPOCHS = 3


class GroupedLabels(NamedTuple):
    """Some labels of a data set, in groups."""

    names: list[str]
    groups: list[str]
    """The group of each label."""
    columns: list[int]
    """The column of each label in the data set."""

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Indices of all pairs of the labels."""
        return list(combinations(range(len(self.names)), 2))

    def within(self, pair: tuple[int, int]) -> bool:
        """Return whether two labels are in the same group."""
        return self.groups[pair[0]] == self.groups[pair[1]]


def order_of(similarity: NDArray[np.float64], labels: GroupedLabels) -> tuple[float, float, float]:
    """Return how well a similarity separates the groups.

    The mean similarity of two labels of the same group, that of two labels of different groups, and
    the probability that a pair of the former kind is more similar than one of the latter; NaN
    without pairs of both kinds. The similarity, (n_labels, n_labels), is symmetric; its diagonal is
    ignored.

    Examples
    --------
    >>> birds = GroupedLabels(["gull", "heron", "owl"], ["water", "water", "forest"], [4, 7, 2])
    >>> order_of(np.array([[0, 5, 1], [5, 0, 3], [1, 3, 0]]), birds)
    (5.0, 2.0, 1.0)
    """
    values = np.array([similarity[pair] for pair in labels.pairs], np.float64)
    within = np.array([labels.within(pair) for pair in labels.pairs], bool)
    if within.all() or not within.any() or np.isnan(values).any():
        return np.nan, np.nan, np.nan
    right = micro_auc([within], [values])
    return float(values[within].mean()), float(values[~within].mean()), right


def find_breaks(
    similarity: NDArray[np.float64], labels: GroupedLabels
) -> list[tuple[str, float, str, float]]:
    """Return the pairs that break "intra-group always stronger than inter-group".

    Each pair of different groups is compared with the weakest pair within either group: names and
    similarity of both, where the former is at least as similar. The most similar pair comes first.
    Parameters as in :func:`order_of`.
    """
    # By group, the weakest pair within it; a group of one label has none.
    weakest: dict[str, tuple[int, int]] = {}
    for pair in filter(labels.within, labels.pairs):
        group = labels.groups[pair[0]]
        weakest[group] = min(weakest.get(group, pair), pair, key=lambda each: similarity[each])
    breaks = []
    for pair in labels.pairs:
        own = [weakest[labels.groups[i]] for i in pair if labels.groups[i] in weakest]
        low = min(own, key=lambda each: similarity[each], default=None)
        if low is not None and not labels.within(pair) and similarity[pair] >= similarity[low]:
            first, second = (" – ".join(labels.names[i] for i in each) for each in (pair, low))
            breaks.append((first, float(similarity[pair]), second, float(similarity[low])))
    return sorted(breaks, key=lambda each: -each[1])


def grouped_labels(data: str) -> GroupedLabels:
    """Return the grouped labels of an available data set."""
    column = {name: i for i, name in enumerate(load_dataset(data, download=False).label_names)}
    grouped = [(name, group) for group, names in GROUPS[data].items() for name in names]
    names, groups = map(list, zip(*grouped, strict=True))
    return GroupedLabels(names, groups, [column[name] for name in names])


def _methods(scope: Scope) -> list[str]:
    return [name for name in METHODS if name in scope.chosen_methods(METHODS)]


def _runs_of(scope: Scope, data: str, method: str) -> list[RunSpec]:
    """Return the runs of a method by split and seed; a quick study has one split."""
    spec = RunSpec(data, method, settings=scope.settings(method))
    if scope.quick:
        spec = replace(spec, settings={**spec.settings, "epochs": QUICK_EPOCHS})
        scope = replace(scope, splits=scope.chosen_splits()[:1])
    return scope.runs([spec])


def runs(scope: Scope) -> list[RunSpec]:
    """Return both methods on the data sets whose labels are grouped."""
    return [
        spec
        for data in _data(scope)
        if data in GROUPS and is_available(data)
        for method in _methods(scope)
        for spec in _runs_of(scope, data, method)
    ]


def _similarities(results: Results, data: str, method: str) -> NDArray[np.float64]:
    """Return the similarities of the grouped labels, (n_splits, n_seeds, n_labels, n_labels).

    NaN on the diagonal, and everywhere for a missing run.
    """
    columns = grouped_labels(data).columns
    specs = _runs_of(results.scope, data, method)
    found = np.full((len(specs), len(columns), len(columns)), np.nan)
    for own, spec in zip(found, specs, strict=True):
        if results.store.is_done(spec):
            with suppress(InputError):  # the run was copied here without this file
                own[:] = results.store.similarity(spec)[np.ix_(columns, columns)]
        np.fill_diagonal(own, np.nan)
    return found.reshape(-1, len(results.scope.chosen_seeds()), *found.shape[1:])


def _means(results: Results, data: str) -> Iterator[tuple[str, NDArray[np.float64]]]:
    """Yield each method that has runs, and their mean similarity, (n_labels, n_labels)."""
    for method in _methods(results.scope):
        every = _similarities(results, data, method)
        known = every[~np.isnan(every).all(axis=(2, 3))]
        if len(known):
            yield method, known.mean(axis=0)


def _order_table(results: Results, data: str) -> Table:
    labels, orders, rows = grouped_labels(data), {}, []
    for method in _methods(results.scope):
        found = _similarities(results, data, method)
        # How well each run separates the groups, (n_splits, n_seeds, 3).
        orders[method] = np.array([[order_of(own, labels) for own in line] for line in found])
        intra, inter, right = (spread(orders[method][:, :, i]) for i in range(3))
        if intra.n_runs == 0:
            continue
        gap = paired_difference(
            orders[method][:, :, 0], orders[method][:, :, 1], test_share=results.test_share
        )
        cells = [number(intra.mean), number(inter.mean), difference_text(gap)]
        share = spread_cell(Cell(number(right.mean)), right).text
        rows.append([REGISTRY[method].title, *cells, share, str(intra.n_runs)])
    columns = ["method", "intra-group", "inter-group", "difference", "in the right order", "runs"]
    notes = [
        "Mean similarity of two labels of the same group and of different groups, without the "
        "diagonal: cosines of embeddings for C-GMVAE, correlations of the probit for MPVAE. Their "
        f"difference has a 95% interval over splits. {SHARED_ROWS} “In the right order”: "
        "probability that a pair within a group is more similar than a pair between groups, .5 for "
        "no order; mean ± deviation over seeds ± deviation over splits."
    ]
    if set(METHODS) <= set(orders):  # the paper says so of its figures
        ours, theirs = (orders[method][:, :, 2] for method in METHODS)
        difference = paired_difference(ours, theirs, test_share=results.test_share)
        text = f"{difference.verdict} ({difference_text(difference)})"
        notes.append(f"Groups clearer with C-GMVAE than with MPVAE: {text}.")
    return Table(f"Similarity of labels within and between groups, {data}", columns, rows, notes)


def _method_tables(
    labels: GroupedLabels, similarity: NDArray[np.float64], title: str
) -> list[Table]:
    """Return the pairs that break the order of a method, and its matrix."""
    breaks = find_breaks(similarity, labels)
    rows = [[pair, number(own), weakest, number(low)] for pair, own, weakest, low in breaks]
    rows = rows or [["none"]]
    n_between = sum(not labels.within(pair) for pair in labels.pairs)
    note = (
        "Intra-group similarities always stronger than inter-group ones: "
        f"{'not found' if breaks else 'found'}; "
        f"{len(breaks)} of {n_between} pairs between groups are at least as strong as the weakest "
        "pair within one of their groups. Mean over the runs."
    )
    columns = ["pair between groups", "similarity", "weakest pair of their groups", "similarity"]
    matrix = [
        [f"{name} ({group})", *map(number, line)]
        for name, group, line in zip(labels.names, labels.groups, similarity, strict=True)
    ]
    return [
        Table(f"Pairs that break the order, {title}", columns, rows, [note]),
        Table(
            f"Label similarity, {title}", ["label", *labels.names], matrix, ["Mean over the runs."]
        ),
    ]


def tables(results: Results) -> list[Table]:
    """Return for each data set how well groups are separated, what breaks them, and the matrix."""
    found = []
    for data in _data(results.scope):
        if data not in GROUPS:
            text = f"its labels are not grouped; groups are known for {', '.join(GROUPS)}"
            found.append(Table(data, ["data"], [[text]]))
        elif is_available(data):
            found.append(_order_table(results, data))
            for method, similarity in _means(results, data):
                title = REGISTRY[method].title
                found += _method_tables(grouped_labels(data), similarity, title)
    return found


def figures(results: Results) -> list[StudyFigure]:
    """Return a heat map for each method, the mean over its runs."""
    found = []
    for data in _data(results.scope):
        if data not in GROUPS or not is_available(data):
            continue
        labels = grouped_labels(data)
        for method, similarity in _means(results, data):
            contents = {"names": labels.names, "matrix": similarity, "groups": labels.groups}
            found.append(StudyFigure(f"interpret_{data}_{method}", "similarity", contents))
    return found


STUDY = Study("interpret", runs, tables, figures, _data)
