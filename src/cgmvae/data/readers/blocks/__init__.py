"""Reading the features of files that are larger than the memory, a block of rows at a time.

:func:`open_blocks` opens a file of any format of :mod:`cgmvae.data.readers`. CSV, Parquet, ARFF,
svmlight and npz are read as the blocks are asked for; ``.npy`` files of the released code, and npz
files whose array is in Fortran order, are loaded. What is said of a whole file (its encoding, its
rows, its cells) is said of its blocks too. ``cgmvae predict`` reads this way.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from typing import Any

from cgmvae.data import readers
from cgmvae.data.readers.blocks.base import Blocks, LoadedBlocks
from cgmvae.data.readers.blocks.npz import NpzBlocks
from cgmvae.data.readers.blocks.table import CsvBlocks, ParquetBlocks
from cgmvae.data.readers.blocks.text import arff_blocks, svmlight_blocks

__all__ = ["Blocks", "LoadedBlocks", "open_blocks"]

_TABLES: dict[str, Callable[..., Blocks]] = {"csv": CsvBlocks, "parquet": ParquetBlocks}
_OTHERS: dict[str, Callable[..., Blocks]] = {
    "arff": arff_blocks,
    "npz": NpzBlocks,
    "svmlight": svmlight_blocks,
}


def open_blocks(
    path: str | os.PathLike[str],
    format: str | None = None,
    *,
    features: Collection[str] = (),
    others: Collection[str] = (),
    **options: Any,
) -> Blocks:
    r"""Open a file for reading its features a block at a time.

    Parameters
    ----------
    path : path
        The file.
    format : str, optional
        A name of :data:`cgmvae.data.readers.FORMATS`; by default the file's suffix tells.
    features : collection of str
        Columns of a table that are features, also where it says that they are groups.
    others : collection of str
        Columns of a table that are none, unless they are among ``features``. Neither need be there.
    **options
        What the format's own ``read`` takes. svmlight needs ``n_features`` and ``n_labels``.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "birds.csv")
    ...     _ = path.write_text("height,owl\n0.5,1\n,1\n2,0\n")
    ...     blocks = open_blocks(path, others=["owl"])
    ...     [X.tolist() for X in blocks.read([0], n_rows=2)]
    [[[0.5], [nan]], [[2.0]]]
    """
    chosen = readers.choose(path, format)
    if chosen.name in _TABLES:
        return _TABLES[chosen.name](path, features, others, **options)
    if chosen.name in _OTHERS:
        return _OTHERS[chosen.name](path, **options)
    return LoadedBlocks(chosen.read(path, **options), path)
