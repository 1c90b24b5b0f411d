"""What training and prediction cost: the ten methods on one machine, beside the paper's table.

A network is fitted three times with one member: once to warm the machine up, then for few and for
more epochs. The difference of the last two is what epochs cost; what a fit costs besides (reading,
compiling, recording, a search for structure) falls out of it. Runs of this study are its own: those
of other studies train several members, splits and seeds at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from cgmvae.methods import REGISTRY, MultiLabelClassifier
from cgmvae.studies.measured import NOT_RUN
from cgmvae.studies.published import published
from cgmvae.studies.results import Results
from cgmvae.studies.spec import RunSpec, is_network
from cgmvae.studies.study import (
    Scope,
    Study,
    data_title,
    is_here,
    paper_data,
    refusal,
    why_missing,
)
from cgmvae.studies.tables import Table, number

DATA = ("bbs_2003_2009", "mirflickr_tags", "yeast", "scene", "sider", "delicious")
QUICK_DATA = ("yeast",)

#: Epochs of the fits of a network; the first is thrown away.
WARM_UP, FEW, MORE = 1, 5, 25
#: In a quick study.
QUICK_MORE = 10

#: The default, said aloud: it makes these runs others than those of the main study, which may come
#: from another machine.
_OWN_RUN = {"threshold_rule": MultiLabelClassifier.threshold_rule}

#: What has to be the same for times to be compared.
_MACHINE = ("device", "torch", "commit")


class Cost(NamedTuple):
    """Seconds that a method takes; NaN where they are not known."""

    epoch: float
    """Of training."""
    besides: float
    """Of a fit, without its epochs; all of it for a method without any."""
    predict: float
    """All test rows."""

    @property
    def is_disturbed(self) -> bool:
        """Whether more epochs took no longer than few, or no time is left for the rest of a fit."""
        return self.epoch <= 0 or self.besides < 0


_UNKNOWN = Cost(np.nan, np.nan, np.nan)


def _methods(scope: Scope) -> list[str]:
    return [name for name in scope.chosen_methods(tuple(REGISTRY)) if name in REGISTRY]


def _fits(scope: Scope, data: str, method: str) -> list[RunSpec]:
    """Return the runs that a method's times follow from, in the order in which they are made."""
    # One split and one seed: several would be trained at once.
    split, seed = scope.chosen_splits()[0], scope.chosen_seeds()[0]
    if not is_network(method):
        return [RunSpec(data, method, split, seed, settings=_OWN_RUN)]
    return [
        RunSpec(data, method, split, seed, settings={"n_members": 1, "epochs": epochs})
        for epochs in (WARM_UP, FEW, QUICK_MORE if scope.quick else MORE)
    ]


def _data(scope: Scope) -> tuple[str, ...]:
    return scope.chosen_data(DATA, QUICK_DATA)


def runs(scope: Scope) -> list[RunSpec]:
    """Return the fits of each method on each data set that is here and that it takes."""
    return [
        spec
        for data in _data(scope)
        if is_here(data)
        for method in _methods(scope)
        if refusal(data, method) is None
        for spec in _fits(scope, data, method)
    ]


def cost_of(reports: Sequence[Mapping[str, Any] | None]) -> Cost:
    """Return what the reports of a method's fits say.

    Parameters
    ----------
    reports : sequence of mapping
        The only fit; or for a network that of the warm-up, of few and of more epochs. None for a
        fit that was not made.

    Examples
    --------
    >>> few = {"epochs": 5, "seconds": {"fit": 3.0, "predict": 0.5}}
    >>> more = {"epochs": 25, "seconds": {"fit": 7.0, "predict": 0.25}}
    >>> cost_of([None, few, more])
    Cost(epoch=0.2, besides=2.0, predict=0.25)
    """
    if len(reports) == 1:
        (only,) = reports
        return Cost(np.nan, *_seconds(only)) if only is not None else _UNKNOWN
    few, more = reports[-2:]
    if few is None or more is None:
        return _UNKNOWN
    (short, _), (long, predict) = _seconds(few), _seconds(more)
    epoch = (long - short) / (more["epochs"] - few["epochs"])
    return Cost(epoch, short - epoch * few["epochs"], predict)


def _seconds(report: Mapping[str, Any]) -> tuple[float, float]:
    return report["seconds"]["fit"], report["seconds"]["predict"]


def _costs(scope: Scope, results: Results, data: str) -> dict[str, Cost]:
    return {
        method: cost_of([results.report(spec) for spec in _fits(scope, data, method)])
        for method in _methods(scope)
    }


def _data_table(scope: Scope, results: Results, data: str) -> Table:
    title = data_title(data)
    if not is_here(data):
        return Table(title, ["data"], [[why_missing(data)]])
    costs = _costs(scope, results, data)
    printed = _printed_costs(data)
    rows = []
    for method, cost in costs.items():
        row = [REGISTRY[method].title, *_row(cost, costs.get("cgmvae", _UNKNOWN))]
        if np.isnan(cost.besides):
            row = [REGISTRY[method].title, _why_empty(scope, results, data, method)]
        elif printed:
            row += _printed_row(printed, REGISTRY[method].row)
        rows.append(row)
    columns = _COLUMNS + (_PAPER_COLUMNS if printed else [])
    notes = [_READING, *_findings(costs), *_doubts(scope, results, data, costs)]
    return Table(title, columns, rows, notes)


_COLUMNS = [
    "method",
    "training, s an epoch",
    "× C-GMVAE",
    "s a fit besides",
    "test, s",
    "× C-GMVAE",
]
_PAPER_COLUMNS = ["paper: s an epoch", "× C-GMVAE", "test, s", "× C-GMVAE"]
_READING = (
    "One member, one split; an epoch includes its validation. Methods without epochs have all "
    "their training in the column “s a fit besides”, and run on the processor. Test: all test "
    "rows. To be run by one worker, in one go, alone on its machine."
)


def _row(cost: Cost, reference: Cost) -> list[str]:
    return [
        number(cost.epoch),
        number(_ratio(cost.epoch, reference.epoch), 2),
        number(cost.besides, 2),
        number(cost.predict),
        number(_ratio(cost.predict, reference.predict), 2),
    ]


def _ratio(seconds: float, reference: float) -> float:
    return seconds / reference if reference > 0 else np.nan


def _printed_costs(data: str) -> dict[str, Cost]:
    """Return the paper's seconds on the data set, or the one that it stands in for."""
    name = paper_data(data)
    table = published()["timing"]
    return {
        row: Cost(each[name][0], np.nan, each[name][1])
        for row, each in table.items()
        if name in each
    }


def _printed_row(printed: Mapping[str, Cost], row: str) -> list[str]:
    epoch, ratio, _, *test = _row(printed.get(row, _UNKNOWN), printed["C-GMVAE"])
    return [epoch, ratio, *test]


def _findings(costs: Mapping[str, Cost]) -> list[str]:
    """Say whether C-GMVAE is the cheapest network, which the paper's table shows."""
    networks = {
        method: cost
        for method, cost in costs.items()
        if is_network(method) and not cost.is_disturbed
    }
    return [
        _place({method: getattr(cost, field) for method, cost in networks.items()}, what)
        for field, what in (("epoch", "to train"), ("predict", "at test"))
    ]


def _place(seconds: Mapping[str, float], what: str) -> str:
    known = sorted((value, method) for method, value in seconds.items() if not np.isnan(value))
    order = [method for _, method in known]
    claim = f"C-GMVAE is the cheapest network {what}"
    if "cgmvae" not in order or len(order) < 2:
        return f"{claim}: not known."
    if order[0] == "cgmvae":
        return f"{claim}: found, of {len(order)}."
    cheaper = ", ".join(REGISTRY[method].title for method in order[: order.index("cgmvae")])
    return f"{claim}: not found; {cheaper} cost less ({len(order)} networks timed)."


def _doubts(scope: Scope, results: Results, data: str, costs: Mapping[str, Cost]) -> list[str]:
    """Say what makes the times doubtful: several machines, runs made together, no clear epoch."""
    specs = [spec for method in costs for spec in _fits(scope, data, method)]
    found = [each for spec in specs if (each := results.store.environment(spec)) is not None]
    machines = {tuple(str(each.get(name)) for name in _MACHINE) for each in found}
    doubts = []
    if len(machines) > 1:
        names = "; ".join(", ".join(machine) for machine in sorted(machines))
        doubts.append(f"These runs cannot be compared: they come from {names}.")
    if any(len(each.get("pack", ())) > 1 for each in found):
        doubts.append(
            "Some runs were trained together with others: their times are of all of them."
        )
    disturbed = [REGISTRY[method].title for method, cost in costs.items() if cost.is_disturbed]
    if disturbed:
        doubts.append(
            f"Fits of few and of more epochs contradict each other for {', '.join(disturbed)}: the "
            "machine was not warm or not alone. They are left out of the judgement."
        )
    return doubts


def _why_empty(scope: Scope, results: Results, data: str, method: str) -> str:
    if (reason := refusal(data, method)) is not None:
        return reason
    errors = (results.store.error(spec) for spec in _fits(scope, data, method))
    return next((error for error in errors if error is not None), NOT_RUN)


def tables(scope: Scope, results: Results) -> list[Table]:
    """Return a table for each data set."""
    return [_data_table(scope, results, data) for data in _data(scope)]


STUDY = Study("timing", "What training and prediction cost, beside the paper's table", runs, tables)
