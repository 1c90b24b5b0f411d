"""What training and prediction cost: the ten methods on one machine, beside the paper's table.

A network is fitted three times with one member: once to warm up, then for few and for more epochs.
The difference of the last two gives the cost of an epoch, without the overhead of a fit (reading,
compilation, CUDA graphs, a search for structure). Other studies train several members, splits and
seeds at once, so this study has its own runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from cgmvae.methods.base import MultiLabelClassifier
from cgmvae.methods.registry import PAPER_METHODS, REGISTRY
from cgmvae.studies.published import published
from cgmvae.studies.results import Results
from cgmvae.studies.spec import (
    RunSpec,
    Scope,
    Study,
    data_choice,
    data_title,
    is_available,
    is_network,
    paper_data,
    why_unsupported,
)
from cgmvae.studies.tables import Table, number

DATA = ("bbs_2003_2009", "mirflickr_tags", "yeast", "scene", "sider", "delicious")
_data = data_choice(DATA, quick=("yeast",))

#: Epochs of the fits of a network; the first fit is discarded.
WARM_UP, FEW, MORE = 1, 5, 25
#: In a quick study.
QUICK_MORE = 10

#: An explicit default, so that these runs differ from those of the main study, which may come from
#: another machine.
_OWN_RUN = {"threshold_rule": MultiLabelClassifier.threshold_rule}

#: What must be equal for times to be comparable.
_MACHINE = ("device", "torch", "commit")


class Cost(NamedTuple):
    """Seconds that a method takes; NaN if unknown."""

    epoch: float
    """One epoch of training."""
    overhead: float
    """A fit without its epochs; the whole fit of a method that has no epochs."""
    predict: float
    """All test rows."""

    @property
    def is_disturbed(self) -> bool:
        """Whether more epochs took no longer than few, or no time remains for the overhead."""
        return self.epoch <= 0 or self.overhead < 0


_UNKNOWN = Cost(np.nan, np.nan, np.nan)


def _methods(scope: Scope) -> list[str]:
    return [name for name in scope.chosen_methods(PAPER_METHODS) if name in REGISTRY]


def _fits(scope: Scope, data: str, method: str) -> list[RunSpec]:
    """Return the runs from which a method's times follow, in the order they are made."""
    # One split and one seed: several would be trained at once.
    split, seed = scope.chosen_splits()[0], scope.chosen_seeds()[0]
    if not is_network(method):
        return [RunSpec(data, method, split, seed, settings=_OWN_RUN, official=scope.official)]
    return [
        RunSpec(
            data,
            method,
            split,
            seed,
            settings={"n_members": 1, "epochs": epochs},
            official=scope.official,
        )
        for epochs in (WARM_UP, FEW, QUICK_MORE if scope.quick else MORE)
    ]


def runs(scope: Scope) -> list[RunSpec]:
    """Return the fits of each method on each available data set that it supports."""
    return [
        spec
        for data in filter(is_available, _data(scope))
        for method in _methods(scope)
        if why_unsupported(data, method) is None
        for spec in _fits(scope, data, method)
    ]


def cost_of(reports: Sequence[Mapping[str, Any] | None]) -> Cost:
    """Compute the cost of a method from the reports of its fits, None for a missing one.

    The fits are the only one or, for a network, the warm-up, few epochs and more epochs.

    Examples
    --------
    >>> few = {"epochs": 5, "seconds": {"fit": 3.0, "predict": 0.5}}
    >>> more = {"epochs": 25, "seconds": {"fit": 7.0, "predict": 0.25}}
    >>> cost_of([None, few, more])
    Cost(epoch=0.2, overhead=2.0, predict=0.25)
    """
    *_, few, more = (None, *reports)
    if more is None or (few is None and len(reports) > 1):
        return _UNKNOWN
    fit, predict = more["seconds"]["fit"], more["seconds"]["predict"]
    if few is None:
        return Cost(np.nan, fit, predict)
    short = few["seconds"]["fit"]
    epoch = (fit - short) / (more["epochs"] - few["epochs"])
    return Cost(epoch, short - epoch * few["epochs"], predict)


def _data_table(results: Results, data: str) -> Table:
    costs = {
        method: cost_of([results.store.report(spec) for spec in _fits(results.scope, data, method)])
        for method in _methods(results.scope)
    }
    name = paper_data(data)
    reported = {
        row: Cost(each[name][0], np.nan, each[name][1])
        for row, each in published()["timing"].items()
        if name in each
    }
    timed = any(not np.isnan(cost.overhead) for cost in costs.values())
    rows = []
    for method, cost in costs.items():
        row = [REGISTRY[method].title, *_row(cost, costs.get("cgmvae", _UNKNOWN))]
        if np.isnan(cost.overhead):
            errors = map(results.store.error, _fits(results.scope, data, method))
            why = next(filter(None, errors), None) or (timed and why_unsupported(data, method))
            if not why:
                continue
            row = [REGISTRY[method].title, why]
        elif reported:
            own = reported.get(REGISTRY[method].row, _UNKNOWN)
            epoch, ratio, _, *test = _row(own, reported["C-GMVAE"])
            row += [epoch, ratio, *test]
        rows.append(row)
    columns = _COLUMNS + (_PAPER_COLUMNS if reported else [])
    notes = [_NOTE, *_findings(costs), *_doubts(results, data, costs)]
    return Table(data_title(data), columns, rows, notes)


_COLUMNS = [
    "method",
    "training, s per epoch",
    "× C-GMVAE",
    "overhead, s per fit",
    "test, s",
    "× C-GMVAE",
]
_PAPER_COLUMNS = ["paper: s per epoch", "× C-GMVAE", "test, s", "× C-GMVAE"]
_NOTE = (
    "One member, one split; an epoch includes its validation. Methods without epochs have all "
    "their training in the column “overhead”, and run on the CPU. Test: all test rows. Run this "
    "study with one worker, without interruption, on an otherwise idle machine."
)


def _row(cost: Cost, reference: Cost) -> list[str]:
    def ratio(seconds: float, other: float) -> str:
        return number(seconds / other if other > 0 else None, 2)

    return [
        number(cost.epoch),
        ratio(cost.epoch, reference.epoch),
        number(cost.overhead, 2),
        number(cost.predict),
        ratio(cost.predict, reference.predict),
    ]


def _findings(costs: Mapping[str, Cost]) -> list[str]:
    """Return whether C-GMVAE is the cheapest network, as in the paper's table."""
    found = []
    for field, what in (("epoch", "to train"), ("predict", "at test")):
        seconds = {
            method: getattr(cost, field)
            for method, cost in costs.items()
            if is_network(method) and not cost.is_disturbed and not np.isnan(getattr(cost, field))
        }
        order = sorted(seconds, key=lambda method: (seconds[method], method))
        claim = f"C-GMVAE is the cheapest network {what}"
        if "cgmvae" not in order or len(order) < 2:
            found.append(f"{claim}: not known.")
        elif order[0] == "cgmvae":
            found.append(f"{claim}: found, of {len(order)}.")
        else:
            cheaper = ", ".join(REGISTRY[name].title for name in order[: order.index("cgmvae")])
            found.append(f"{claim}: not found; {cheaper} cost less ({len(order)} networks timed).")
    return found


def _doubts(results: Results, data: str, costs: Mapping[str, Cost]) -> list[str]:
    """Return what makes the times doubtful: several machines, shared packs, negative times."""
    specs = [spec for method in costs for spec in _fits(results.scope, data, method)]
    found = [each for spec in specs if (each := results.store.environment(spec)) is not None]
    machines = {tuple(str(each.get(name)) for name in _MACHINE) for each in found}
    doubts = []
    if len(machines) > 1:
        names = "; ".join(", ".join(machine) for machine in sorted(machines))
        doubts.append(f"These runs cannot be compared: they come from {names}.")
    if any(len(each.get("pack", ())) > 1 for each in found):
        doubts.append(
            "Some runs were trained together with others: their times are those of the whole pack."
        )
    disturbed = [REGISTRY[method].title for method, cost in costs.items() if cost.is_disturbed]
    if disturbed:
        doubts.append(
            f"Fits of few and of more epochs contradict each other for {', '.join(disturbed)}: the "
            "machine was not warmed up or not idle. These methods are not compared."
        )
    return doubts


def tables(results: Results) -> list[Table]:
    """Return a table for each data set."""
    return [_data_table(results, data) for data in filter(is_available, _data(results.scope))]


STUDY = Study("timing", runs, tables, data=_data)
