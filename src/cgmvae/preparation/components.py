"""Principal components of scaled and encoded features.

Piecewise-linear columns of one feature are nearly the same, and so are the features of one image or
molecule. The first principal components keep what the columns share: a network learns more from
them than from a thousand columns, and its first layer is a tenth of the size
(``docs/notebook/defaults.md``).
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cgmvae.data.dataset import Matrix
from cgmvae.data.mapped import MappedRows, dense

#: Number of components, ``auto`` for that of ``model.plan.n_components``, or None for the columns
#: themselves.
NumberOfComponents = int | Literal["auto"] | None

# Deviation D19: the paper and the released code have no components.
#: Passes over the rows that find them, and how many more directions than components are followed.
_PASSES, _SPARE = 4, 10


class PrincipalComponents:
    """Replaces dense rows by their first principal components, all divided by one number.

    Components keep their relative sizes: whitening them would blow up noise.

    Parameters
    ----------
    n_components : int or None
        At most as many as rows. Rows with no more columns are left as they are, and all with None.

    Attributes
    ----------
    mean_ : array, (n_columns,)
        Empty, like the vectors, if rows are left as they are.
    vectors_ : array, (n_columns, n_components)
        A row x becomes (x − mean) · vectors.

    Examples
    --------
    >>> X = np.outer(np.arange(4.0), [3.0, 4.0])
    >>> PrincipalComponents(1).fit(X).transform(X).shape
    (4, 1)
    """

    def __init__(self, n_components: int | None = None) -> None:
        self.n_components = n_components
        self.mean_, self.vectors_ = np.zeros(0), np.zeros((0, 0))

    def fit(self, X: Matrix) -> PrincipalComponents:
        """Learn from training rows, (n_samples, n_columns)."""
        rows = MappedRows.of(X)
        if self.n_components is None or rows.shape[1] <= self.n_components:
            return self
        n_components = min(self.n_components, len(rows))
        sample = rows.sample()
        self.mean_ = sample.mean(axis=0, dtype=np.float64)
        centered = np.empty(sample.shape, np.float32)
        np.subtract(sample, self.mean_, out=centered, casting="same_kind")
        sizes, vectors = leading_directions(centered, n_components)
        mean_size = np.sqrt((sizes**2).mean() / len(sample)) or 1.0
        self.vectors_ = vectors / mean_size
        return self

    @property
    def is_used(self) -> bool:
        """Whether rows are replaced."""
        return self.vectors_.size > 0

    def transform(self, X: Matrix) -> Matrix:
        """Return the components of rows, in the precision of X; of MappedRows lazily."""
        if not self.is_used:
            return X
        if isinstance(X, MappedRows):
            return X.then(self.transform)
        # In float64, so that a row does not depend on the others of its block.
        return project(dense(X), self.mean_, self.vectors_).astype(X.dtype)

    def inverse_transform(self, components: NDArray[Any]) -> NDArray[Any]:
        """Return the rows that these are the components of, (n_rows, n_columns)."""
        if not self.is_used:
            return components
        return components @ np.linalg.pinv(self.vectors_) + self.mean_

    def state(self) -> dict[str, NDArray[Any]]:
        """Return what was learned as arrays by name."""
        return {"mean": self.mean_, "vectors": self.vectors_}

    @classmethod
    def from_state(cls, arrays: dict[str, NDArray[Any]], n_columns: int) -> PrincipalComponents:
        """Rebuild components from :meth:`state`; raise if they do not fit the columns."""
        components = cls()
        components.mean_, components.vectors_ = arrays["mean"], arrays["vectors"]
        if components.mean_.shape != (n_columns,) or components.vectors_.ndim != 2:
            raise ValueError("its principal components are not those of its columns")
        if len(components.vectors_) != n_columns or not components.is_used:
            raise ValueError("its principal components are not those of its columns")
        if not all(np.isfinite(array).all() for array in arrays.values()):
            raise ValueError("its principal components are not finite")
        return components


def project(rows: Any, mean: Any, vectors: Any) -> Any:
    """Return the components of rows, for arrays or tensors."""
    return (rows - mean) @ vectors


def leading_directions(
    centered: NDArray[np.floating], n_directions: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return singular values and right singular vectors, (n_columns, n_directions), nearly.

    Subspace iteration from a random start (Halko, Martinsson and Tropp 2011). It takes a quarter of
    the time of scikit-learn's, which decomposes two tall matrices per pass instead of one. Products
    are taken in float32, which is as exact as the few passes are.
    """
    centered = centered.astype(np.float32, copy=False)
    n_followed = min(n_directions + _SPARE, *centered.shape)
    basis = np.random.default_rng(0).normal(size=(centered.shape[1], n_followed))
    for _ in range(_PASSES):
        product = centered.T @ (centered @ basis.astype(np.float32))
        basis, _ = np.linalg.qr(product.astype(np.float64))
    inside = (centered @ basis.astype(np.float32)).astype(np.float64)
    squares, rotation = np.linalg.eigh(inside.T @ inside)
    largest = slice(None, -n_directions - 1, -1)  # they ascend
    return np.sqrt(squares[largest].clip(min=0)), basis @ rotation[:, largest]
