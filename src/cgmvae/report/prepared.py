"""A model of columns seen as a model of the features that it makes of them.

Importances, effects and baselines speak of features such as ``habitat=wetland``; with the rows
prepared once, all of :mod:`cgmvae.report` works on numbers alone, sparse where there are words.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from cgmvae.data import MultiLabelDataset
from cgmvae.report.rows import ReportRows


def on_features(model: Any) -> Any:
    """Return the model as one that takes what ``prepared`` gives; itself where X was numbers."""
    if getattr(model, "preparation_", None) is None:
        return model
    changed = copy.copy(model)
    changed.preparation_, changed.n_features_in_ = None, model.n_inputs_
    changed.__dict__.pop("feature_names_in_", None)
    return changed


def prepared_rows(model: Any, rows: ReportRows) -> ReportRows:
    """Return the rows with the features that the model makes of their columns."""
    if getattr(model, "preparation_", None) is None:
        return rows

    names = tuple(model.prepared_names())

    def prepared(dataset: MultiLabelDataset) -> MultiLabelDataset:
        return replace(dataset, X=model.prepared(dataset.X), feature_names=names)

    return replace(
        rows,
        test=prepared(rows.test),
        train=None if rows.train is None else prepared(rows.train),
        validation=None if rows.validation is None else prepared(rows.validation),
    )


def words_of(model: Any) -> dict[int, str]:
    """Return the features that are words, by place; with their column where there are several."""
    preparation = getattr(model, "preparation_", None)
    if preparation is None:
        return {}
    columns = preparation.describe()
    alone = [column.kind for column in columns].count("text") == 1
    found: dict[int, str] = {}
    start = 0
    for column in columns:
        places = range(start, start + column.n_features)
        if column.kind == "text":
            names = (preparation.feature_names_[place] for place in places)
            cut = len(f"{column.column}: ") if alone else 0
            found |= {place: name[cut:] for place, name in zip(places, names, strict=True)}
        start = places.stop
    return found
