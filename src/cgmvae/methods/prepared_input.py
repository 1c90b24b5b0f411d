"""From what ``fit`` and ``predict`` are given as X to the features that a method sees.

Numbers are checked as scikit-learn does it; tables with other columns are matched by name and go
through a preparation; large files on disk stay there. The one that uses it is
:class:`~cgmvae.methods.base.MultiLabelClassifier`.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.validation import (
    _check_feature_names,
    _check_n_features,
    check_is_fitted,
    validate_data,
)

from cgmvae.data.columns import Columns, ColumnType
from cgmvae.data.dataset import Features, Matrix, canonical
from cgmvae.data.mapped import MappedRows, as_mapped, check_finite
from cgmvae.methods.inputs import Rows, as_numbers, as_table, matched
from cgmvae.preparation import FeaturePreparation
from cgmvae.preparation.scaling import FeatureScaler, ScalingName


class PreparedInput(ABC):
    """X as a table or as numbers, prepared and scaled."""

    reads_batches: ClassVar[bool] = False
    """Whether the method learns from batches of rows, so that not all need be in memory."""

    scaling: ScalingName
    n_features_in_: int
    feature_names_in_: NDArray[Any]
    preparation_: FeaturePreparation | None
    n_inputs_: int
    scaler_: FeatureScaler

    def input_kinds(self) -> dict[str, ColumnType] | None:
        """Return what the columns of X hold, by name; None where the model knows no names."""
        check_is_fitted(self)
        if self.preparation_ is not None:
            return dict(self.preparation_.kinds)
        names = getattr(self, "feature_names_in_", None)
        return None if names is None else dict.fromkeys(map(str, names), "number")

    def prepared(self, X: Any) -> Matrix:
        """Return the features that are made of X, before they are scaled, (n_samples, n_inputs)."""
        check_is_fitted(self)
        features = self._validated(X, reset=False)
        return features if self.preparation_ is None else self.preparation_.transform(features)

    def prepared_names(self) -> list[str]:
        """Return the names of the features that are made of X."""
        check_is_fitted(self)
        if self.preparation_ is not None:
            return list(self.preparation_.feature_names_)
        names = getattr(self, "feature_names_in_", None)
        if names is None:
            return [f"feature_{i}" for i in range(self.n_inputs_)]
        return [str(name) for name in names]

    def _learn_features(self, train: Rows, validation: Rows) -> tuple[Rows, Rows]:
        """Learn preparation and scaling from training rows, and apply them to all."""
        measured = None
        if self.preparation_ is not None:
            measured = self.preparation_.fit(train.features).measured_
            train, validation = (
                rows._replace(features=self._held(self.preparation_.transform(rows.features)))
                for rows in (train, validation)
            )
        self.n_inputs_ = int(train.features.shape[1])
        self.scaler_ = FeatureScaler(self.scaling).fit(train.features, measured)
        return self._scaled(train), self._scaled(validation)

    def _held(self, features: Features) -> Features:
        """Return features as the method learns from them: read in batches, or all in memory."""
        if self.reads_batches and not isinstance(features, Columns):
            return MappedRows.of(features)
        return np.asarray(features) if isinstance(features, MappedRows) else features

    def _scaled(self, rows: Rows) -> Rows:
        return rows._replace(features=self.scaler_.transform(rows.features))

    def _scaled_features(self, X: Any) -> Matrix:
        features = self.prepared(X)
        return self.scaler_.transform(features)

    def _validated(self, X: Any, *, reset: bool) -> Features:
        if reset:
            table = as_table(X)
            self.preparation_ = None if table is None else FeaturePreparation(table.by_name())
            if table is not None:
                self.n_features_in_ = table.shape[1]
                self.feature_names_in_ = np.array(table.names, dtype=object)
                return table
        elif self.preparation_ is not None:
            return matched(X, self.preparation_.kinds)
        elif isinstance(X, Columns | Mapping):
            return as_numbers(X, self.input_kinds(), self.n_features_in_)
        if (mapped := as_mapped(X)) is not None:
            _check_feature_names(self, mapped, reset=reset)
            _check_n_features(self, mapped, reset=reset)
            check_finite(mapped)
            return mapped
        X = validate_data(
            self,
            X,
            reset=reset,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            ensure_all_finite="allow-nan",
        )
        return canonical(X) if sp.issparse(X) else X
