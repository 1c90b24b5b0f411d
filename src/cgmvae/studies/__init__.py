"""The paper's studies, and the numbers it reports (:mod:`cgmvae.studies.published`).

A study is imported when it is first used: a list of them takes no time.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from cgmvae.errors import InputError

if TYPE_CHECKING:
    from cgmvae.studies.spec import Study


class Entry(NamedTuple):
    """A study in the list."""

    title: str
    """One line."""
    location: str
    """Module and name of its :class:`~cgmvae.studies.spec.Study`."""


STUDIES: Mapping[str, Entry] = {
    "main": Entry(
        "Ten methods on the paper's data sets, beside its numbers", "cgmvae.studies.paper.MAIN"
    ),
    "main-tuned": Entry("The same, every network tuned", "cgmvae.studies.paper.MAIN_TUNED"),
    "stats": Entry("The data sets, beside the paper's table", "cgmvae.studies.paper.STATS"),
    "ablation": Entry(
        "What the parts of C-GMVAE add, every arm tuned, with verdicts", "cgmvae.studies.arms.STUDY"
    ),
    "fewer-data": Entry(
        "10%, 50% and 100% of the training rows, neural methods", "cgmvae.studies.fewer_data.STUDY"
    ),
    "timing": Entry(
        "What training and prediction cost, beside the paper's table", "cgmvae.studies.timing.STUDY"
    ),
    "interpret": Entry("Which labels are similar, by groups", "cgmvae.studies.interpret.STUDY"),
}


def find_study(name: str) -> Study:
    """Return the study of this name."""
    if name not in STUDIES:
        raise InputError(f"There is no study {name!r}; choose one of {', '.join(STUDIES)}.")
    module, _, variable = STUDIES[name].location.rpartition(".")
    found: Study = getattr(import_module(module), variable)
    return found
