"""Hyperparameter search: a whole grid as one pack (:mod:`cgmvae.search.packed_search`)."""

from cgmvae.search.packed_search import PackedSearch
from cgmvae.search.results import SearchResult
from cgmvae.search.space import PAPER_SPACE, grid, read_space, sample

__all__ = ["PAPER_SPACE", "PackedSearch", "SearchResult", "grid", "read_space", "sample"]
