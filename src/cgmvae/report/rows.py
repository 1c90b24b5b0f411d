"""The rows of a report, and models of columns seen as models of the features made from them.

Effects and baselines refer to features such as ``habitat=wetland``, importances to columns. Once
the rows are prepared, all of :mod:`cgmvae.report` works on numeric features, sparse if some are
words.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cgmvae.data import MultiLabelDataset
from cgmvae.preparation.features import ColumnSummary

#: Whether the model was trained on the rows of the report.
Standing = Literal["unseen", "trained", "unknown"]


@dataclass(frozen=True, eq=False)
class ReportRows:
    """Labeled rows with the model's features and labels, in the model's order."""

    test: MultiLabelDataset
    """The rows on which everything is measured."""
    numbers: NDArray[np.int64]
    """Their row numbers in the data that was read, counted from 1, (n_test,)."""
    standing: Standing
    train: MultiLabelDataset | None = None
    """The rows on which the model was trained, if known."""
    validation: MultiLabelDataset | None = None
    """The rows on which its thresholds were chosen, if known."""
    whole: MultiLabelDataset | None = None
    """All of these rows as they were read, if they were split."""

    @classmethod
    def all_of(cls, dataset: MultiLabelDataset, standing: Standing) -> ReportRows:
        """Report on all rows of a data set."""
        return cls(dataset, np.arange(1, dataset.n_samples + 1), standing)

    @classmethod
    def of_split(cls, dataset: MultiLabelDataset, split: Any) -> ReportRows:
        """Report on the test rows of a split."""
        train, validation, test = (
            dataset.rows(rows) for rows in (split.train, split.validation, split.test)
        )
        return cls(test, split.test + 1, "unseen", train, validation, dataset)

    @property
    def reference(self) -> MultiLabelDataset:
        """The rows on which labels are counted: the training rows if known, else all rows."""
        return self.test if self.train is None else self.train


def on_features(model: Any) -> Any:
    """Return a copy of the model that takes prepared features; itself if it takes numbers."""
    if model.pipeline_.columns is None:
        return model
    changed = copy.copy(model)
    changed.pipeline_ = model.pipeline_.of_features()
    changed.n_features_in_ = model.pipeline_.n_inputs
    changed.input_names_ = tuple(model.prepared_names())
    changed.__dict__.pop("feature_names_in_", None)
    return changed


def prepared_rows(model: Any, rows: ReportRows) -> ReportRows:
    """Return the rows with the features that the model prepares from their columns."""
    if model.pipeline_.columns is None:
        return rows
    names = tuple(model.prepared_names())
    prepared = {
        part: replace(dataset, X=model.prepared(dataset.X), feature_names=names)
        for part in ("test", "train", "validation")
        if (dataset := getattr(rows, part)) is not None
    }
    return replace(rows, **prepared)


def _features_by_column(model: Any) -> Iterator[tuple[ColumnSummary, range]]:
    """Yield how each column is encoded, and the indices of its features."""
    start = 0
    for column in model.pipeline_.columns.describe():
        yield column, range(start, start + column.n_features)
        start += column.n_features


def words_of(model: Any) -> dict[int, str]:
    """Return the features that are words, by index; prefixed by their column if there are several.

    A model without text columns has none.
    """
    preparation = model.pipeline_.columns
    if preparation is None:
        return {}
    texts = [each for each in _features_by_column(model) if each[0].kind == "text"]
    words: dict[int, str] = {}
    for column, features in texts:
        prefix = len(f"{column.column}: ") if len(texts) == 1 else 0
        words |= {i: preparation.feature_names_[i][prefix:] for i in features}
    return words


def plain_columns(model: Any, feature_names: Sequence[str]) -> dict[str, Sequence[int]]:
    """Return the columns without text by name, each with the indices of its features.

    Of a model that takes numbers, each feature is a column.
    """
    if model.pipeline_.columns is None:
        return {name: [i] for i, name in enumerate(feature_names)}
    found = _features_by_column(model)
    return {column.column: own for column, own in found if column.kind != "text" and len(own)}
