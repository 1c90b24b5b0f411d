"""Tables with one row a sample: CSV and Parquet."""

from __future__ import annotations

import os
from typing import Any

from cgmvae.data.dataset import MultiLabelDataset


def read_csv(path: str | os.PathLike[str], **options: Any) -> MultiLabelDataset:
    """Read a CSV file."""
    raise NotImplementedError


def write_csv(dataset: MultiLabelDataset, path: str | os.PathLike[str]) -> None:
    """Write a CSV file."""
    raise NotImplementedError


def read_parquet(path: str | os.PathLike[str], **options: Any) -> MultiLabelDataset:
    """Read a Parquet file."""
    raise NotImplementedError


def write_parquet(dataset: MultiLabelDataset, path: str | os.PathLike[str]) -> None:
    """Write a Parquet file."""
    raise NotImplementedError
