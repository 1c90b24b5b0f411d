"""NumPy archives: the library's own exact format."""

from __future__ import annotations

import os

from cgmvae.data.dataset import MultiLabelDataset


def read(
    path: str | os.PathLike[str], *, groups: str = "group", name: str | None = None
) -> MultiLabelDataset:
    """Read an archive."""
    raise NotImplementedError


def write(dataset: MultiLabelDataset, path: str | os.PathLike[str]) -> None:
    """Write an archive."""
    raise NotImplementedError
