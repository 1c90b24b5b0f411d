"""The rows that a report is about: those to learn from, to choose on, and to test on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cgmvae.data import MultiLabelDataset

#: Whether the rows that are reported on took part in the training: no, yes, or nobody knows.
Standing = Literal["unseen", "trained", "unknown"]


@dataclass(frozen=True, eq=False)
class ReportRows:
    """Labelled rows with the model's features and labels, in the model's order.

    Attributes
    ----------
    test : MultiLabelDataset
        The rows that everything is measured on.
    numbers : array of int, (n_test,)
        Where each of them is in the data that was read, counted from 1.
    standing : {"unseen", "trained", "unknown"}
        Whether the model was trained on them.
    train, validation : MultiLabelDataset, optional
        The rows that the model learnt from and chose thresholds on, where they are known.

    Examples
    --------
    >>> data = MultiLabelDataset([[0.0], [1.0]], [[1, 0], [0, 1]])
    >>> ReportRows.all_of(data, "trained").numbers
    array([1, 2])
    """

    test: MultiLabelDataset
    numbers: NDArray[np.int64]
    standing: Standing
    train: MultiLabelDataset | None = None
    validation: MultiLabelDataset | None = None

    @classmethod
    def all_of(cls, dataset: MultiLabelDataset, standing: Standing) -> ReportRows:
        """Report on all rows, for a model whose own rows were all of these or are not known."""
        return cls(dataset, np.arange(1, dataset.n_samples + 1), standing)

    @classmethod
    def of_split(cls, dataset: MultiLabelDataset, split: Any) -> ReportRows:
        """Report on the test rows of a split."""
        train, validation, test = (
            dataset.rows(rows) for rows in (split.train, split.validation, split.test)
        )
        return cls(test, split.test + 1, "unseen", train, validation)

    @property
    def reference(self) -> MultiLabelDataset:
        """Rows to count labels on: those that were learnt from where known, else all there are."""
        return self.test if self.train is None else self.train
