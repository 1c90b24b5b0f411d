"""The paper's table of data sets, ours beside it."""

from __future__ import annotations

from cgmvae.data import catalog, load_dataset
from cgmvae.studies.results import Results
from cgmvae.studies.study import PAPER_DATA, STAND_INS, Scope, Study, is_here, why_missing
from cgmvae.studies.tables import Table

COLUMNS = {
    "samples": "samples",
    "labels": "labels",
    "mean_labels_per_sample": "mean labels a sample",
    "median_labels_per_sample": "median",
    "max_labels_per_sample": "most",
    "mean_samples_per_label": "mean samples a label",
}


def tables(scope: Scope, _: Results) -> list[Table]:
    """Return one table: a row for ours and, for the paper's data sets, one for the paper's."""
    rows = []
    for name in scope.chosen_data((*PAPER_DATA, *STAND_INS), ("yeast", "scene")):
        rows.append([name, *_own(name)])
        printed = catalog.find_entry(name).paper
        if printed is not None:
            rows.append(["— the paper", *(f"{getattr(printed, field):,}" for field in COLUMNS)])
    return [Table("The data sets", ["data", *COLUMNS.values()], rows)]


def _own(name: str) -> list[str]:
    if not is_here(name):
        return [why_missing(name)]
    found = load_dataset(name, download=False).describe()
    return [_text(getattr(found, field)) for field in COLUMNS]


def _text(value: float) -> str:
    return f"{value:,.2f}" if value != int(value) else f"{int(value):,}"


STUDY = Study("stats", "The data sets, beside the paper's table", lambda _: [], tables)
