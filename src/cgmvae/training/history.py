"""What happened in each epoch, term by term and member by member."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class History:
    """Numbers of each epoch.

    Attributes
    ----------
    values : dict of str to list of array (n_members,)
        Training terms by name, and ``validation`` with the metric that chooses the best epoch. NaN
        for a member that had stopped.
    """

    def __init__(self) -> None:
        self.values: dict[str, list[NDArray[np.float64]]] = {}

    def add(self, **numbers: NDArray[np.float64]) -> None:
        """Append the numbers of one epoch."""
        for name, value in numbers.items():
            self.values.setdefault(name, []).append(np.asarray(value, np.float64))

    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """Return each series as an array, (n_epochs, n_members)."""
        return {name: np.stack(series) for name, series in self.values.items()}

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[np.float64]]) -> History:
        """Rebuild a history from :meth:`arrays`."""
        history = cls()
        history.values = {name: list(series) for name, series in arrays.items()}
        return history
