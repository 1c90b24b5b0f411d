"""One job from data to stored runs: split, fit (networks as one pack), score, measure."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cgmvae.data import MultiLabelDataset, load_dataset, make_split
from cgmvae.data.splits import Split
from cgmvae.errors import InputError
from cgmvae.evaluation import PROTOCOLS, Scored, evaluate, label_table
from cgmvae.methods import find_method, fit_together
from cgmvae.methods.base import LabelSimilarity
from cgmvae.methods.packed import PackedClassifier
from cgmvae.studies.environment import describe_environment
from cgmvae.studies.peers import PEERS
from cgmvae.studies.spec import RunSpec
from cgmvae.studies.store import RunRecord, Store

Outcome = Literal["done", "busy", "failed"]

#: Test rows that diagnostics are taken on at most: they are means, and cost memory.
_DIAGNOSED_ROWS = 2000


class Parts(NamedTuple):
    """The rows of one run."""

    split: Split
    train: MultiLabelDataset
    validation: MultiLabelDataset
    test: MultiLabelDataset


class Scores(NamedTuple):
    """What a model made of the validation and the test rows, each (n_samples, n_labels)."""

    validation: NDArray[np.floating]
    test: NDArray[np.floating]
    seconds: dict[str, float]
    """``fit`` (of the whole pack, for networks) and, where it is known apart, ``predict``."""
    model: Any = None
    """The estimator, where it is one of this library."""


def run_job(job: Sequence[RunSpec], store: Store, *, device: str = "auto") -> Outcome:
    """Make and keep the runs of a job that are missing.

    A job that another process works at is "busy".
    """
    with store.claim([spec for spec in job if not store.is_done(spec)]) as held:
        if not held:
            return "busy"
        missing = [spec for spec in job if not store.is_done(spec)]
        if not missing:
            return "done"
        try:
            records = make_records(_pack(job, missing, store), device=device)
        except Exception as error:
            known = isinstance(error, InputError)
            message = str(error) if known else f"{type(error).__name__}: {error}"
            give_up(missing, store, message, "" if known else traceback.format_exc())
            return "failed"
        for spec in missing:
            store.write(spec, records[spec])
    return "done"


def _pack(job: Sequence[RunSpec], missing: list[RunSpec], store: Store) -> list[RunSpec]:
    """Return what is trained together: the missing runs.

    Where a process was killed while it wrote the runs of a pack, the rest of that pack belongs to
    them: a pack of another composition differs in its last digits.
    """
    wanted = {spec.key for spec in missing}
    for spec in job:
        pack = (store.environment(spec) or {}).get("pack", ())
        if wanted.intersection(pack):
            return [each for each in job if each.key in pack or each.key in wanted]
    return missing


def give_up(job: Sequence[RunSpec], store: Store, message: str, details: str = "") -> None:
    """Keep why the runs of a job that are missing could not be made, on one line."""
    for spec in job:
        if not store.is_done(spec):
            store.write_error(spec, " ".join(message.split()), details)


def make_records(job: Sequence[RunSpec], *, device: str = "auto") -> dict[RunSpec, RunRecord]:
    """Fit and measure runs; networks as one pack."""
    parts = [load_parts(spec) for spec in job]
    scored = _score_peer if job[0].method in PEERS else _score_method
    environment = describe_environment(device) | {"pack": [spec.key for spec in job]}
    return {
        spec: _record(own, scores, environment)
        for spec, own, scores in zip(job, parts, scored(job, parts, device), strict=True)
    }


@lru_cache(maxsize=2)
def _dataset(name: str) -> MultiLabelDataset:
    return load_dataset(name, download=False)


def load_parts(spec: RunSpec) -> Parts:
    """Return the rows of a run; labels are hidden in the training rows alone."""
    data = _dataset(spec.data)
    kind = "random" if data.groups is None else "group"
    split = make_split(data, kind, seed=spec.split, train_fraction=spec.train_fraction)
    train, validation, test = (
        data.rows(rows) for rows in (split.train, split.validation, split.test)
    )
    if spec.hidden_labels:
        train = hide_labels(train, spec.hidden_labels, spec.split)
    return Parts(split, train, validation, test)


def hide_labels(rows: MultiLabelDataset, share: float, seed: int) -> MultiLabelDataset:
    """Return the rows with this share of their labels, drawn at random, unknown."""
    if not 0 <= share < 1:
        raise InputError(f"hidden_labels is {share}; it must be at least 0 and below 1.")
    hidden = np.random.default_rng(seed).random(rows.Y.shape) < share
    if rows.unknown is not None:
        known = rows.unknown
        hidden |= known.toarray() if sp.issparse(known) else known
    labels = rows.Y.toarray() if sp.issparse(rows.Y) else rows.Y
    return replace(rows, Y=np.where(hidden, 0, labels).astype(np.uint8), unknown=hidden)


def _score_peer(job: Sequence[RunSpec], parts: Sequence[Parts], _: str) -> Iterator[Scores]:
    peer = PEERS[job[0].method]
    for spec, own in zip(job, parts, strict=True):
        start = time.perf_counter()
        validation, test = peer.scores(own.train, (own.validation, own.test), spec.seed)
        yield Scores(validation, test, {"fit": time.perf_counter() - start})


def _score_method(job: Sequence[RunSpec], parts: Sequence[Parts], device: str) -> Iterator[Scores]:
    models = [_estimator(spec, device) for spec in job]
    together = isinstance(models[0], PackedClassifier)
    start = time.perf_counter()
    if together:
        fit_together(models, [(p.train.X, p.train, (p.validation.X, p.validation)) for p in parts])
    seconds = time.perf_counter() - start
    for model, own in zip(models, parts, strict=True):
        start = time.perf_counter()
        if not together:
            held = (own.validation.X, own.validation)
            model.fit(own.train.X, own.train, validation_data=held)
            seconds = time.perf_counter() - start
        start = time.perf_counter()
        test = model.predict_proba(own.test.X)
        predicting = time.perf_counter() - start
        validation = model.predict_proba(own.validation.X)
        yield Scores(validation, test, {"fit": seconds, "predict": predicting}, model)


def _estimator(spec: RunSpec, device: str) -> Any:
    """Return the unfitted estimator of a run; lists, which JSON has, become tuples again."""
    estimator = find_method(spec.method).estimator
    model = estimator(**_with_tuples(spec.settings), random_state=spec.seed)
    return model.set_params(device=device) if isinstance(model, PackedClassifier) else model


def _with_tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_tuples(each) for name, each in value.items()}
    return tuple(map(_with_tuples, value)) if isinstance(value, list | tuple) else value


def _record(parts: Parts, scores: Scores, environment: dict[str, Any]) -> RunRecord:
    model = scores.model
    report = measure(parts, scores.validation, scores.test) | {"seconds": scores.seconds}
    if isinstance(model, PackedClassifier):
        report |= {
            "members": model.pack_size,
            "epochs": len(next(iter(model.history_.values()))),
            "best_epoch": model.best_epoch_.tolist(),
        }
    if hasattr(model, "diagnostics"):
        few = parts.test.rows(np.arange(min(parts.test.n_samples, _DIAGNOSED_ROWS)))
        report["diagnostics"] = model.diagnostics(few.X, few)
    similarity = model.label_similarity() if isinstance(model, LabelSimilarity) else None
    return RunRecord(
        split=parts.split,
        environment=environment,
        report=report,
        predictions={"validation": scores.validation, "test": scores.test},
        similarity=None if similarity is None else np.asarray(similarity, np.float32),
    )


def measure(
    parts: Parts, validation_scores: NDArray[np.floating], test_scores: NDArray[np.floating]
) -> dict[str, Any]:
    """Return the five metrics under each protocol, and F1 label by label.

    ``label_f1`` is that of the protocol ``validation``, NaN for a label neither true nor predicted;
    ``train_positives`` are counted among the labels that the model saw.
    """
    held, test = parts.validation, parts.test
    validation = Scored(held.Y, validation_scores, held.unknown)
    tested = Scored(test.Y, test_scores, test.unknown)
    found = {protocol: evaluate(tested, validation, protocol=protocol) for protocol in PROTOCOLS}
    rule = found["validation"].rules["micro_f1"]
    by_label = label_table(test.Y, rule.apply(test_scores), unknown=test.unknown)
    return {
        "metrics": {protocol: evaluation.metrics for protocol, evaluation in found.items()},
        "label_f1": by_label["f1"].tolist(),
        "train_positives": np.asarray(parts.train.Y.sum(axis=0)).ravel().tolist(),
        "rows": {name: getattr(parts, name).n_samples for name in ("train", "validation", "test")},
    }
