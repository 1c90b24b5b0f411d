"""From the columns of X to the numbers that a method sees, as one object.

Columns of a table are encoded, all features are scaled, continuous ones get piecewise-linear
columns, and their principal components may take the place of all of them. Each of the four is
learned from the training rows, in this order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, get_args

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cgmvae.data.columns import Columns, ColumnType
from cgmvae.data.dataset import Features, Matrix
from cgmvae.data.mapped import MappedRows
from cgmvae.declared import as_declared
from cgmvae.preparation.components import PrincipalComponents
from cgmvae.preparation.encoders import ENCODERS
from cgmvae.preparation.features import FeaturePreparation
from cgmvae.preparation.piecewise import PiecewiseLinear
from cgmvae.preparation.ranges import TrainingRanges
from cgmvae.preparation.scaling import FeatureScaler, ScalingName


@dataclass(frozen=True)
class FeaturePlan:
    """How features are prepared; see the classes of :mod:`cgmvae.preparation`."""

    scaling: ScalingName = "auto"
    """Of :class:`~cgmvae.preparation.scaling.FeatureScaler`."""
    n_bins: int = 0
    """Of :class:`~cgmvae.preparation.piecewise.PiecewiseLinear`."""
    n_components: int | None = None
    """Of :class:`~cgmvae.preparation.components.PrincipalComponents`."""


class FeaturePipeline:
    """All preparation of features, fitted on training rows.

    Parameters
    ----------
    kinds : mapping of str to {"number", "category", "date", "text"}, optional
        Type of each column by name; None if X is a matrix of numbers.

    Attributes
    ----------
    columns : FeaturePreparation or None
        How columns are encoded as features; None if X is a matrix.
    scaler : FeatureScaler
    bins : PiecewiseLinear
    components : PrincipalComponents
    n_inputs : int
        Number of features before scaling.
    ranges : TrainingRanges or None
        The range of each column of X in the training rows; None if no column has one.

    Examples
    --------
    >>> rows = np.arange(24.0)[:, None] ** 2
    >>> pipeline = FeaturePipeline()
    >>> numbers = pipeline.fit_columns(rows)
    >>> pipeline.fit(numbers, FeaturePlan(n_bins=8)).n_columns
    9
    """

    #: Columns of zeros at the end, for networks that take more columns than there are.
    n_more = 0

    def __init__(self, kinds: Mapping[str, ColumnType] | None = None) -> None:
        self.columns = None if kinds is None else FeaturePreparation(kinds)
        self.ranges: TrainingRanges | None = None

    def fit_columns(self, features: Features) -> Matrix:
        """Learn how columns become features; return the features of these rows."""
        if self.columns is not None:
            assert isinstance(features, Columns)
            self.columns.fit(features)
        self.ranges = TrainingRanges.of(features)
        return self.numbers(features)

    def fit(self, numbers: Matrix, plan: FeaturePlan) -> FeaturePipeline:
        """Learn scaling, bins and components from the features of training rows."""
        self.n_inputs = int(numbers.shape[1])
        measured = None if self.columns is None else self.columns.measured_
        self.scaler = FeatureScaler(plan.scaling).fit(numbers, measured)
        scaled = self.scaler.transform(numbers)
        self.bins = PiecewiseLinear(plan.n_bins).fit(scaled)
        self.components = PrincipalComponents(plan.n_components).fit(self.bins.transform(scaled))
        return self

    @property
    def n_columns(self) -> int:
        """Number of columns that :meth:`transform` returns."""
        if self.components.is_used:
            return int(self.components.vectors_.shape[1]) + self.n_more
        return self.n_inputs + self.bins.n_columns + self.n_more

    @property
    def reduces(self) -> bool:
        """Whether rows become fewer columns, which are better computed once."""
        return self.components.is_used

    def numbers(self, features: Features) -> Matrix:
        """Return columns as features, NaN where they are missing; a matrix as it is."""
        return features if self.columns is None else self.columns.transform(features)

    def transform(self, numbers: Matrix) -> Matrix:
        """Return features as the method sees them; MappedRows lazily."""
        columns = self.components.transform(self.bins.transform(self.scaler.transform(numbers)))
        return padded(columns, self.n_columns) if self.n_more else columns

    def feature_names(self, names: tuple[str, ...] | None) -> list[str]:
        """Return the names of the features before scaling, given those of the columns of X."""
        if self.columns is not None:
            return list(self.columns.feature_names_)
        return [f"feature_{i}" for i in range(self.n_inputs)] if names is None else list(names)

    def largest_input(self, columns: NDArray[Any]) -> int:
        """Return the feature with the largest value in a row that was transformed."""
        own = columns[None, : self.n_columns - self.n_more]
        scaled = self.components.inverse_transform(own)[0, : self.n_inputs]
        return int(np.argmax(np.abs(scaled)))

    def of_features(self) -> FeaturePipeline:
        """Return the pipeline of rows whose columns are encoded already."""
        rest = FeaturePipeline()
        rest.n_inputs, rest.scaler = self.n_inputs, self.scaler
        rest.bins, rest.components, rest.n_more = self.bins, self.components, self.n_more
        return rest

    def equals(self, other: FeaturePipeline) -> bool:
        """Return whether both have learned the same."""
        own, its = self.arrays(), other.arrays()
        return (
            own.keys() == its.keys()
            and all(np.array_equal(own[name], its[name]) for name in own)
            and self.description() == other.description()
        )

    # In model files.

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return what was learned of features, as arrays by name."""
        scaler = self.scaler
        arrays = {"shift": scaler.shift_, "scale": scaler.scale_, "fill": scaler.fill_}
        if self.bins.n_columns:
            arrays |= {f"bins.{name}": array for name, array in self.bins.state().items()}
        if self.components.is_used:
            own = self.components.state().items()
            arrays |= {f"components.{name}": array for name, array in own}
        if self.ranges is not None:
            arrays["ranges"] = self.ranges.bounds
        return arrays

    def description(self) -> dict[str, Any]:
        """Return everything else that was learned, as JSON values."""
        return {
            "columns": None if self.columns is None else describe_columns(self.columns),
            "n_inputs": self.n_inputs,
            "n_more": self.n_more,
            "scaling": self.scaler.kind_,
            "has_ranges": self.ranges is not None,
        }

    @classmethod
    def restored(cls, arrays: Mapping[str, NDArray[Any]], description: Any) -> FeaturePipeline:
        """Rebuild a pipeline; raise if it is inconsistent, since it may come from a file."""
        pipeline = cls()
        pipeline.columns = restore_columns(description["columns"])
        pipeline.n_inputs = n_inputs = int(description["n_inputs"])
        pipeline.n_more = max(0, int(description["n_more"]))
        if pipeline.columns is not None and len(pipeline.columns.feature_names_) != n_inputs:
            raise ValueError("its features are not those of its columns")
        if description["has_ranges"]:
            pipeline.ranges = _restored_ranges(arrays["ranges"], pipeline)
        pipeline.scaler = _restored_scaler(arrays, description["scaling"], n_inputs)
        pipeline.bins = PiecewiseLinear(0).fit(np.zeros((1, n_inputs)))
        if bins := _with_prefix(arrays, "bins."):
            pipeline.bins = PiecewiseLinear.from_state(bins, n_inputs)
        pipeline.components = PrincipalComponents()
        if components := _with_prefix(arrays, "components."):
            width = n_inputs + pipeline.bins.n_columns
            pipeline.components = PrincipalComponents.from_state(components, width)
        return pipeline


def computed(features: Features) -> Features:
    """Return rows that are made when they are read as an array, unless they are on disk."""
    if not isinstance(features, MappedRows) or features.on_disk:
        return features
    return MappedRows(np.asarray(features))


def padded(features: Any, width: int) -> Any:
    """Return rows with columns of zeros appended, (n_rows, width); MappedRows lazily."""
    if isinstance(features, MappedRows):
        return features.then(partial(padded, width=width))
    n_rows, n_features = features.shape
    if sp.issparse(features):
        cells = (features.data, features.indices, features.indptr)
        return sp.csr_array(cells, shape=(n_rows, width))
    return np.pad(features, ((0, 0), (0, width - n_features)))


def describe_columns(columns: FeaturePreparation) -> list[dict[str, Any]]:
    """Return the encoders of all columns as JSON values."""
    pairs = zip(columns.kinds.items(), columns.encoders_, strict=True)
    return [
        {"name": name, "kind": kind, "learned": dataclasses.asdict(encoder)}
        for (name, kind), encoder in pairs
    ]


def restore_columns(state: Any) -> FeaturePreparation | None:
    """Return what :func:`describe_columns` described; raise if it is inconsistent."""
    if state is None:
        return None
    classes = [ENCODERS[column["kind"]] for column in state]
    encoders = [
        encoder(**as_declared(encoder, column["learned"]))
        for encoder, column in zip(classes, state, strict=True)
    ]
    kinds = {str(column["name"]): column["kind"] for column in state}
    if len(kinds) < len(encoders):
        raise ValueError("two columns have the same name")
    return FeaturePreparation(kinds).with_encoders(encoders)


def _restored_ranges(bounds: NDArray[Any], pipeline: FeaturePipeline) -> TrainingRanges:
    n_columns = pipeline.n_inputs if pipeline.columns is None else len(pipeline.columns.kinds)
    if bounds.shape != (2, n_columns) or bounds.dtype != np.float64:
        raise ValueError("its ranges are not two numbers per column")
    if not (bounds[0] <= bounds[1]).all():
        raise ValueError("its ranges end before they begin")
    return TrainingRanges(bounds)


def _restored_scaler(
    arrays: Mapping[str, NDArray[Any]], kind: Any, n_features: int
) -> FeatureScaler:
    if kind == "auto" or kind not in get_args(ScalingName):
        raise ValueError("its scaling is unknown")
    scaler = FeatureScaler(kind)
    scaler.kind_ = kind
    for name in ("shift", "scale", "fill"):
        array = arrays[name]
        if array.shape != (n_features,) or array.dtype.kind != "f":
            raise ValueError(f"its {name!r} is not a vector of {n_features:,} numbers")
        if not np.isfinite(array).all():
            raise ValueError("its scaling is not finite")
        setattr(scaler, f"{name}_", array)
    if not (scaler.scale_ > 0).all():
        raise ValueError("its scaling is not positive")
    return scaler


def _with_prefix(arrays: Mapping[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    return {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }
