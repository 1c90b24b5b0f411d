"""The readers that ``benchmarks/fuzz.py`` tries, each with a pool of files to begin from.

The pools of data are those of ``fuzz_pools.py``; model files and checkpoints are those of every
method, fitted for a moment.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from fuzz_pools import label_files, matrices, npy, tables, tensor_files, texts, written
from mutations import Edit, in_archive, in_description, mutate

from cgmvae.data import make_survey, readers
from cgmvae.data.readers.arff import read_label_names
from cgmvae.data.serialization import read_tensors
from cgmvae.methods import METHODS, load
from cgmvae.methods.packed import Fit, train_together
from cgmvae.training.checkpoint import Checkpoint


@dataclass(frozen=True)
class Reader:
    """Something that reads files, and what it is given."""

    suffix: str
    pool: Callable[[], list[bytes]]
    read: Callable[[Path, Random], object]
    words: Sequence[bytes] = ()
    """What means something in its files."""
    edits: Sequence[Edit] = (mutate,)
    packed: bool = False
    """Whether its files may be compressed with gzip or bzip2."""


_SURVEY = make_survey(40, 4, 5, seed=0)[0]
_COUNTS = {"n_members": 2, "epochs": 2, "batch_size": 16, "n_restarts": 1, "n_learners": 2, "k": 3}
_WIDTHS = {"embedding_dim": 8, "hidden_dim": 8, "latent_dim": 4, "state_dim": 8, "n_neighbors": 5}
_QUICK = _COUNTS | _WIDTHS | {"device": "cpu", "random_state": 0}
_SIZES = {"feature_hidden": (8,), "label_hidden": (8,), "decoder_hidden": (8,), "latent_dim": 4}


def _quick(name: str, **changes: Any) -> Any:
    """Return a small, unfitted model of the class of this name."""
    parameters = METHODS[name]().get_params()
    given = {key: value for key, value in _QUICK.items() if key in parameters} | changes
    return METHODS[name](**given, **({"settings": _SIZES} if "settings" in parameters else {}))


def models() -> list[bytes]:
    """Return a model file of every method and rule of thresholds."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model")
        for name, rule in itertools.product(METHODS, ("global", "per-label", "top-k")):
            _quick(name, threshold_rule=rule).fit(_SURVEY.X, _SURVEY.Y).save(path)
            found.append(path.read_bytes())
    return found


@cache
def _prepared() -> tuple[Any, Fit]:
    model = _quick("CGMVAEClassifier", n_members=1)
    return model, Fit(*model._prepare(_SURVEY.X, _SURVEY.Y, None, None, None))


def _trained(checkpoint: Path, progress: Any = None) -> object:
    model, fit = _prepared()
    return train_together([model.set_params(checkpoint=checkpoint, progress=progress)], [fit])


def checkpoints() -> list[bytes]:
    """Return the state after each epoch of one training."""
    with tempfile.TemporaryDirectory() as folder:
        path, found = Path(folder, "state"), []
        _trained(path, lambda *_: found.append(path.read_bytes()))
        return found


def _read_checkpoint(path: Path, rng: Random) -> object:
    return None if Checkpoint(path).load(_fingerprint()) is None else _trained(path)


@cache
def _fingerprint() -> Any:
    """Return what tells the training from another; to ask before costs less than to begin it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "state")
        _trained(path)
        return read_tensors(path)[1]


_TABLE_OPTIONS: tuple[dict[str, Any], ...] = (
    *(
        {},
        {},
        {"label_count": 1},
        {"label_count": -1, "blank_labels": "unknown"},
        {"label_sets": "labels"},
    ),
    *({"label_prefix": "l", "counts": "presence"}, {"labels": ["l1"], "groups": "group"}),
)


def _read_table(path: Path, rng: Random) -> object:
    return readers.read(path, **rng.choice(_TABLE_OPTIONS))


def _read_released(path: Path, rng: Random) -> object:
    if rng.random() < 0.7:
        return readers.read(path, n_labels=rng.choice((1, 2)), meta_offset=rng.choice((0, 1)))
    matrix = path.with_name("whole.npy")
    matrix.write_bytes(npy(np.tile([1.0, 0.0, 0.5], (4, 1))))
    return readers.read(matrix, n_labels=1, test_index=path)


def _read_model(path: Path, rng: Random) -> object:
    model = load(path)
    return model.predict(_SURVEY.X[:2]) if model.n_features_in_ == _SURVEY.n_features else model


_ARFF_WORDS = (
    *(b"@relation 'a: -C 1'\n", b"@relation x\n", b"@attribute a numeric\n", b"@data\n", b"0,1\n"),
    *(b"@attribute 'l 1' {0,1}\n", b"@attribute b {x,'y z'}\n", b"{0 1,1 x}\n", b"?,", b"% c\n"),
    *(b"@attribute d date\n", b"@attribute s string\n", b"-split-number 1", b"@end", b"REAL", b"{"),
)
_SVM_WORDS = (
    *(b"1,2 1:0.5 3:1\n", b"0 ", b" 7:nan", b"# note\n", b"2 3 4\n", b"\n", b"-1,", b"qid:1 "),
    *(b"1:1e39", b"999999999:1 ", b",", b":"),
)
_CSV_WORDS = (
    *(b"a,b,l1,labels\n", b"0.5,1,0,x;y\n", b"group", b'"a\n""b"', b",", b"\n", b"NA", b"true"),
    *(b"2024-01-31", b"31/01/2024", b"1e5", b";", b"l1"),
)
_XML_WORDS = (
    *(b'<label name="a">', b"</label>", b"<labels>", b"</labels>", b"<!DOCTYPE a []>", b"&#0;"),
    *(b"<?xml version='1.0' encoding='utf-16'?>", b"&amp;", b"<![CDATA[", b"]]>", b"<!--"),
)
_NPY_WORDS = (
    *(b"'descr': '|O'", b"'<f8'", b"'fortran_order': True", b"'shape': (9999999999,)", b"(2, -1)"),
    *(b"(1, 2, 3)", b"__import__", b"9" * 60, b"(" * 200, b"\x93NUMPY\x03\x00", b"\x93NUMPY"),
)

READERS = {
    "arff": Reader(
        ".arff",
        lambda: written(".arff") + texts(_ARFF_WORDS),
        lambda path, rng: readers.read(path, label_count=rng.choice((None, 1, -1, -2))),
        _ARFF_WORDS,
        packed=True,
    ),
    "label-xml": Reader(
        ".xml",
        lambda: label_files() + texts(_XML_WORDS),
        lambda path, rng: read_label_names(path),
        _XML_WORDS,
        packed=True,
    ),
    "svmlight": Reader(
        ".svm",
        lambda: written(".svm") + texts(_SVM_WORDS),
        lambda path, rng: readers.read(path, n_labels=rng.choice((None, 4))),
        _SVM_WORDS,
        packed=True,
    ),
    "csv": Reader(
        ".csv",
        lambda: written(".csv") + texts(_CSV_WORDS),
        _read_table,
        _CSV_WORDS,
        packed=True,
    ),
    "parquet": Reader(".parquet", lambda: written(".parquet") + tables(), _read_table),
    "npz": Reader(
        ".npz",
        partial(written, ".npz"),
        lambda path, rng: readers.read(path),
        _NPY_WORDS,
        (mutate, in_archive, in_archive),
    ),
    "released": Reader(".npy", matrices, _read_released, _NPY_WORDS),
    "tensors": Reader(
        ".bin",
        tensor_files,
        lambda path, rng: read_tensors(path),
        edits=(mutate, in_description),
    ),
    "model": Reader(".cgmvae", models, _read_model, edits=(mutate, in_description, in_description)),
    "checkpoint": Reader(
        ".checkpoint",
        checkpoints,
        _read_checkpoint,
        edits=(mutate, in_description),
    ),
}
