"""Do labels that belong together lie together? The paper's heat map of birds, and MPVAE's.

The paper shows inner products of label embeddings. The store keeps the similarity that a method
gives by default: for C-GMVAE the cosine of embeddings, which is the inner product that its
contrastive term sees; for MPVAE the correlation of its probit. Neither depends on how frequent a
label is, as the length of an embedding does. The diagonal says nothing and is left out.

The runs are those of the study ``main``; a quick one trains for a few epochs.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from cgmvae.data import load_dataset
from cgmvae.errors import InputError
from cgmvae.methods import REGISTRY
from cgmvae.studies.label_groups import GroupedLabels, GroupOrder, find_breaks, order_of
from cgmvae.studies.measured import NOT_RUN
from cgmvae.studies.results import Results, paired_difference, spread
from cgmvae.studies.spec import RunSpec
from cgmvae.studies.study import Scope, Study, StudyFigure, is_here, why_missing
from cgmvae.studies.tables import Table, number
from cgmvae.studies.verdicts import SHARED_ROWS, difference_text

#: Labels by data set and group: the birds of the paper's figure, in its order. The survey has no
#: Black-backed Gull; the Herring Gull takes its place.
GROUPS: Mapping[str, Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
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
)

METHODS = ("cgmvae", "mpvae")

#: Epochs of a quick study: the survey is large.
QUICK_EPOCHS = 3


def _data(scope: Scope) -> tuple[str, ...]:
    return scope.chosen_data(tuple(GROUPS), tuple(GROUPS))


def _methods(scope: Scope) -> list[str]:
    return [name for name in METHODS if name in scope.chosen_methods(METHODS)]


def _runs_of(scope: Scope, data: str, method: str) -> list[list[RunSpec]]:
    """Return the runs of a method by split and seed; a quick study makes do with one split."""
    splits, settings = scope.chosen_splits(), scope.settings(method)
    if scope.quick:
        splits, settings = splits[:1], settings | {"epochs": QUICK_EPOCHS}
    return [
        [RunSpec(data, method, split, seed, settings=settings) for seed in scope.chosen_seeds()]
        for split in splits
    ]


def runs(scope: Scope) -> list[RunSpec]:
    """Return both methods on the data sets whose labels are grouped."""
    return [
        spec
        for data in _data(scope)
        if data in GROUPS and is_here(data)
        for method in _methods(scope)
        for line in _runs_of(scope, data, method)
        for spec in line
    ]


def grouped_labels(data: str) -> GroupedLabels:
    """Return the grouped labels of a data set that is here."""
    place = {name: i for i, name in enumerate(load_dataset(data, download=False).label_names)}
    grouped = [(name, group) for group, names in GROUPS[data].items() for name in names]
    names, groups = map(list, zip(*grouped, strict=True))
    return GroupedLabels(names, groups, [place[name] for name in names])


def _similarities(
    scope: Scope, results: Results, data: str, method: str
) -> list[list[NDArray[np.float64] | None]]:
    """Return the similarity of the grouped labels by split and seed, None without a run."""
    columns = grouped_labels(data).columns
    chosen = np.ix_(columns, columns)

    def similarity(spec: RunSpec) -> NDArray[np.float64] | None:
        if not results.store.is_done(spec):
            return None
        try:
            found = np.array(results.store.similarity(spec)[chosen], np.float64)
        except InputError:  # the run was brought here without it
            return None
        np.fill_diagonal(found, np.nan)
        return found

    return [[similarity(spec) for spec in line] for line in _runs_of(scope, data, method)]


def _mean(similarities: list[list[NDArray[np.float64] | None]]) -> NDArray[np.float64] | None:
    """Return the mean over the runs that are there, (n_labels, n_labels)."""
    known = [each for line in similarities for each in line if each is not None]
    return np.mean(known, axis=0) if known else None


def _orders(
    similarities: list[list[NDArray[np.float64] | None]], labels: GroupedLabels
) -> NDArray[np.float64]:
    """Return how well each run keeps groups together, (n_splits, n_seeds, 3)."""
    nothing = GroupOrder(np.nan, np.nan, np.nan)
    return np.array(
        [
            [nothing if each is None else order_of(each, labels) for each in line]
            for line in similarities
        ]
    )


def _order_table(scope: Scope, results: Results, data: str) -> Table:
    labels, orders, rows = grouped_labels(data), {}, []
    for method in _methods(scope):
        orders[method] = _orders(_similarities(scope, results, data, method), labels)
        intra, inter, right = (spread(orders[method][:, :, i]) for i in range(3))
        gap = paired_difference(orders[method][:, :, 0], orders[method][:, :, 1])
        title = REGISTRY[method].title
        if intra.n_runs == 0:
            rows.append([title, NOT_RUN])
            continue
        cells = [number(intra.mean), number(inter.mean), difference_text(gap)]
        share = f"{number(right.mean)} ± {number(right.over_seeds)} ± {number(right.over_splits)}"
        rows.append([title, *cells, share, str(intra.n_runs)])
    columns = ["method", "intra-group", "inter-group", "difference", "in the right order", "runs"]
    notes = [_READING, *_sharper(orders)]
    return Table(f"Similarity of labels within and between groups, {data}", columns, rows, notes)


_READING = (
    "Mean similarity of two labels of one group and of different groups, diagonal left out: "
    "cosines of embeddings for C-GMVAE, correlations of the probit for MPVAE. Their difference has "
    f"a 95% interval over splits. {SHARED_ROWS} “In the right order”: chance that a pair within a "
    "group is more alike than a pair between groups, .5 for no order; mean ± deviation over seeds "
    "± deviation over splits."
)


def _sharper(orders: Mapping[str, NDArray[np.float64]]) -> list[str]:
    """Say whether C-GMVAE shows the groups more clearly, which the paper says of its figures."""
    if set(METHODS) - set(orders):
        return []
    ours, theirs = (orders[method][:, :, 2] for method in METHODS)
    difference = paired_difference(ours, theirs)
    text = difference_text(difference)
    return [f"Groups clearer with C-GMVAE than with MPVAE: {difference.verdict} ({text})."]


def _matrix_table(labels: GroupedLabels, similarity: NDArray[np.float64], title: str) -> Table:
    rows = [
        [f"{name} ({group})", *map(number, line)]
        for name, group, line in zip(labels.names, labels.groups, similarity, strict=True)
    ]
    return Table(title, ["label", *labels.names], rows, ["Mean over the runs."])


def _break_table(labels: GroupedLabels, similarity: NDArray[np.float64], title: str) -> Table:
    breaks = find_breaks(similarity, labels)
    rows = [
        [
            " – ".join(each.pair),
            number(each.similarity),
            " – ".join(each.weakest),
            number(each.weakest_similarity),
        ]
        for each in breaks
    ]
    n_between = sum(not labels.within(pair) for pair in labels.pairs)
    verdict = "not found" if breaks else "found"
    note = (
        f"Intra-group similarities always stronger than inter-group ones: {verdict}; "
        f"{len(breaks)} of {n_between} pairs between groups are no weaker than the weakest pair "
        "within a group of theirs. Mean over the runs."
    )
    columns = ["pair between groups", "similarity", "weakest pair of their groups", "similarity"]
    return Table(title, columns, rows, [note])


def _data_tables(scope: Scope, results: Results, data: str) -> list[Table]:
    if data not in GROUPS:
        text = f"no groups of its labels are known; there are some for {', '.join(GROUPS)}"
        return [Table(data, ["data"], [[text]])]
    if not is_here(data):
        return [Table(data, ["data"], [[why_missing(data)]])]
    found, labels = [_order_table(scope, results, data)], grouped_labels(data)
    for method in _methods(scope):
        similarity = _mean(_similarities(scope, results, data, method))
        if similarity is not None:
            title = REGISTRY[method].title
            found.append(_break_table(labels, similarity, f"Pairs that break the order, {title}"))
            found.append(_matrix_table(labels, similarity, f"Label similarity, {title}"))
    return found


def tables(scope: Scope, results: Results) -> list[Table]:
    """Return for each data set how well groups are kept, what breaks them, and the similarities."""
    return [table for data in _data(scope) for table in _data_tables(scope, results, data)]


def figures(scope: Scope, results: Results) -> list[StudyFigure]:
    """Return a heat map for each method, the mean over its runs."""
    found = []
    for data in _data(scope):
        if data not in GROUPS or not is_here(data):
            continue
        labels = grouped_labels(data)
        for method in _methods(scope):
            similarity = _mean(_similarities(scope, results, data, method))
            if similarity is not None:
                contents = {"names": labels.names, "matrix": similarity, "groups": labels.groups}
                found.append(StudyFigure(f"interpret_{data}_{method}", "similarity", contents))
    return found


STUDY = Study("interpret", "Which labels lie together, by groups", runs, tables, figures)
