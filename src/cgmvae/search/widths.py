"""Splits of one table as equally wide features, so that their settings train in one pack.

Each split learns from its own training rows which words and categories have a feature, and they
need not be equally many; :class:`~cgmvae.search.packed_search.PackedSearch` fills up with zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import scipy.sparse as sp

from cgmvae.data.dataset import Matrix
from cgmvae.data.mapped import MappedRows
from cgmvae.methods.inputs import Rows
from cgmvae.methods.packed import PackedClassifier
from cgmvae.methods.together import Fit


def equally_wide(models: Sequence[PackedClassifier], fits: Sequence[Fit]) -> list[Fit]:
    """Return what the models learn from with as many features as the widest; tell the models."""
    width = max(model.n_inputs_ for model in models)
    for model in models:
        model.n_inputs_ = width
    return [
        fit._replace(train=_widened(fit.train, width), validation=_widened(fit.validation, width))
        for fit in fits
    ]


def _widened(rows: Rows, width: int) -> Rows:
    return rows._replace(features=_with_zeros(rows.features, width))


def _with_zeros(features: Matrix, width: int) -> Matrix:
    if isinstance(features, MappedRows):
        return features.then(partial(_with_zeros, width=width))
    n_rows, n_features = features.shape
    if sp.issparse(features):
        cells = (features.data, features.indices, features.indptr)
        return sp.csr_array(cells, shape=(n_rows, width))
    return np.pad(features, ((0, 0), (0, width - n_features)))
