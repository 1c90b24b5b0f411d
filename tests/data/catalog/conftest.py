"""Folders that the catalog looks into, and a small data set to put into them."""

from decimal import Decimal

import numpy as np
import pytest

from cgmvae.data import catalog
from cgmvae.data.dataset import MultiLabelDataset


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Return an empty data folder and an empty cache that the catalog looks into."""
    folders = tmp_path / "data", tmp_path / "cache"
    for variable, folder in zip(("CGMVAE_DATA", "CGMVAE_CACHE"), folders, strict=True):
        folder.mkdir()
        monkeypatch.setenv(variable, str(folder))
    return folders


@pytest.fixture
def real(data_folder, folders, monkeypatch):
    """Return the folder of real data, with an empty cache."""
    monkeypatch.setenv("CGMVAE_DATA", str(data_folder))
    return data_folder


@pytest.fixture
def tiny():
    """Return a data set of three rows."""
    return MultiLabelDataset(
        np.float32([[0.5, 1], [2, 0], [0, 3]]),
        [[1, 0], [1, 1], [0, 1]],
        feature_names=["a", "b"],
        label_names=["owl", "hawk"],
    )


@pytest.fixture
def tiny_entry(monkeypatch):
    """Put a small data set into the catalog in the place of all others."""

    def put(**fields):
        entry = catalog.CatalogEntry(
            name="tiny",
            title="Three rows",
            domain="tests",
            source="https://example.org",
            licence="none",
            file=fields.pop("file", "tiny/tiny.npz"),
            statistics=catalog.ExpectedStatistics(3, 2, 2, Decimal("1.33")),
            **fields,
        )
        monkeypatch.setattr(catalog, "entries", lambda: {"tiny": entry})
        return entry

    return put
