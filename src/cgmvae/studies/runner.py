"""One job from data to stored runs: split, fit (networks as one pack), score, measure."""

from __future__ import annotations

import datetime
import math
import os
import platform
import subprocess
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy
import sklearn
import torch
from joblib import cpu_count
from numpy.typing import NDArray

from cgmvae import __version__
from cgmvae.errors import InputError
from cgmvae.evaluation import PROTOCOLS, Scored, evaluate, label_table
from cgmvae.methods import CGMVAEClassifier, find_method, fit_together
from cgmvae.methods.neural import NeuralClassifier
from cgmvae.studies.limits import OutOfTime, TimeLimit, limited
from cgmvae.studies.peers import PEERS
from cgmvae.studies.rows import Parts, load_parts
from cgmvae.studies.spec import RunSpec, is_network
from cgmvae.studies.store import RunRecord, Store
from cgmvae.studies.tuning import tuned_settings
from cgmvae.training.checkpoint import Checkpoint
from cgmvae.training.device import find_device, free_memory

Outcome = Literal["done", "busy", "failed"]

#: Largest number of test rows for diagnostics, which are means and need memory.
_DIAGNOSTIC_ROWS = 2000


class Scores(NamedTuple):
    """A model's scores of the validation and the test rows, each (n_samples, n_labels)."""

    validation: NDArray[np.floating]
    test: NDArray[np.floating]
    seconds: dict[str, float]
    """``fit`` (of the whole pack, for networks; NaN if a killed one was resumed) and, where it is
    timed separately, ``predict``."""
    model: Any = None
    """The fitted estimator, if it is one of this library."""


#: How the reason begins why a run has no numbers that took too long.
STOPPED = "stopped after"


def run_job(
    job: Sequence[RunSpec],
    store: Store,
    *,
    device: str = "auto",
    time_limit: TimeLimit | None = None,
) -> Outcome:
    """Make and store the missing runs of a job.

    The outcome is "busy" if another process works on the job. When its time is over, half of which
    its search has, it is stopped, which counts as a failure; networks resume where they were.
    """
    seconds = None
    if time_limit is not None:
        _warm_up(device if is_network(job[0].method) else "cpu")
        seconds = time_limit.left()
        if seconds <= 0:
            return "failed"
    start = time.perf_counter()
    with store.claim([spec for spec in job if not store.is_done(spec)]) as held:
        if not held:
            return "busy"
        missing = [spec for spec in job if not store.is_done(spec)]
        if not missing:
            return "done"
        try:
            # The runs of a job that are tuned share their search.
            tuned = None
            if job[0].tuning:
                tuned = tuned_settings(job[0], store, device=device, time_limit=time_limit)
            pack = _pack(job, missing, store)
            checkpoint = store.checkpoint(pack, _commit() or __version__)
            spent = time.perf_counter() - start
            with limited(None if seconds is None else seconds - spent):
                records = make_records(pack, tuned=tuned, device=device, checkpoint=checkpoint)
        except OutOfTime:
            write_errors(missing, store, f"{STOPPED} {seconds:.0f} s")
            return "failed"
        except Exception as error:
            if seconds is not None and time.perf_counter() - start >= seconds:
                write_errors(missing, store, f"{STOPPED} {seconds:.0f} s")  # it became an error
                return "failed"
            known = isinstance(error, InputError)
            message = str(error) if known else f"{type(error).__name__}: {error}"
            write_errors(missing, store, message, "" if known else traceback.format_exc())
            return "failed"
        finally:
            if time_limit is not None and is_network(job[0].method):
                free_memory()  # the next network may be another process's
        for spec in missing:
            store.write(spec, records[spec])
        store.remove_checkpoints(pack)
    return "done"


@cache
def _warm_up(device: str) -> None:
    """Train a tiny network, for all that is imported then, and compiled for a GPU.

    An import that a limit of time interrupts would leave half a module.
    """
    rows = np.random.default_rng(0).random((64, 3))
    model = CGMVAEClassifier(epochs=1, embedding_dim=8, n_members=1, device=device, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(rows, (rows > 0.5).astype(np.uint8))


def _pack(job: Sequence[RunSpec], missing: list[RunSpec], store: Store) -> list[RunSpec]:
    """Return the runs that are trained together: the missing ones.

    If a process was killed while it stored the runs of a pack, the whole pack is trained again: in
    a pack of other runs the results would differ in their last digits.
    """
    missing_keys = {spec.key for spec in missing}
    for spec in job:
        pack = (store.environment(spec) or {}).get("pack", ())
        if missing_keys.intersection(pack):
            return [each for each in job if each.key in pack or each.key in missing_keys]
    return missing


def write_errors(job: Sequence[RunSpec], store: Store, message: str, details: str = "") -> None:
    """Store on one line why the missing runs of a job failed."""
    for spec in job:
        if not store.is_done(spec):
            store.write_error(spec, " ".join(message.split()), details)


def make_records(
    job: Sequence[RunSpec],
    *,
    tuned: Mapping[str, Any] | None = None,
    device: str = "auto",
    checkpoint: Path | None = None,
) -> dict[RunSpec, RunRecord]:
    """Fit and measure runs; networks as one pack, whose state is saved in ``checkpoint``.

    ``tuned`` is the record of the search whose best settings the runs have in addition.
    """
    parts = [load_parts(spec) for spec in job]
    environment = describe_environment(device) | {"pack": [spec.key for spec in job]}
    if job[0].method in PEERS:
        scored = _score_peer(job, parts)
    else:
        best = {} if tuned is None else tuned["best"]
        scored = _score_method(job, parts, best, device, checkpoint)
    more = {} if tuned is None else {"tuned": tuned}
    return {
        spec: _record(own, scores, environment, more)
        for spec, own, scores in zip(job, parts, scored, strict=True)
    }


def _score_peer(job: Sequence[RunSpec], parts: Sequence[Parts]) -> Iterator[Scores]:
    peer = PEERS[job[0].method]
    for spec, own in zip(job, parts, strict=True):
        start = time.perf_counter()
        validation, test = peer.scores(own.train, (own.validation, own.test), spec.seed)
        yield Scores(validation, test, {"fit": time.perf_counter() - start})


def _score_method(
    job: Sequence[RunSpec],
    parts: Sequence[Parts],
    tuned: Mapping[str, Any],
    device: str,
    checkpoint: Path | None,
) -> Iterator[Scores]:
    estimator = find_method(job[0].method).estimator
    models = [estimator(random_state=spec.seed) for spec in job]
    for model, spec in zip(models, job, strict=True):
        model.set_params(**model.as_parameters(spec.parameters(tuned)))
    packed = isinstance(models[0], NeuralClassifier)
    resumed = checkpoint is not None and Checkpoint(checkpoint).exists()
    start = time.perf_counter()
    if packed:
        for model in models:
            model.set_params(device=device, checkpoint=checkpoint)
        fit_together(models, [(own.train.X, own.train, _held_out(own)) for own in parts])
    # Of the first part of a training that was killed nobody knows how long it took.
    fit_seconds = math.nan if resumed else time.perf_counter() - start
    for model, own in zip(models, parts, strict=True):
        if not packed:
            start = time.perf_counter()
            model.fit(own.train.X, own.train, validation_data=_held_out(own))
            fit_seconds = time.perf_counter() - start
        start = time.perf_counter()
        test = model.predict_proba(own.test.X)
        seconds = {"fit": fit_seconds, "predict": time.perf_counter() - start}
        yield Scores(model.predict_proba(own.validation.X), test, seconds, model)


def _held_out(parts: Parts) -> tuple[Any, Any]:
    """Return the validation rows."""
    return parts.validation.X, parts.validation


def _record(
    parts: Parts, scores: Scores, environment: dict[str, Any], more: dict[str, Any]
) -> RunRecord:
    model = scores.model
    report = measure(parts, scores.validation, scores.test) | {"seconds": scores.seconds} | more
    if isinstance(model, NeuralClassifier):
        report |= {
            "members": model.pack_size,
            "epochs": len(next(iter(model.history_.values()))),
            "best_epoch": model.best_epoch_.tolist(),
        }
    if hasattr(model, "diagnostics"):
        few = parts.test.rows(np.arange(min(parts.test.n_samples, _DIAGNOSTIC_ROWS)))
        report["diagnostics"] = model.diagnostics(few.X, few)
    similarity = None
    if model is not None and model.similarity_is is not None:
        similarity = model.label_similarity()
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
    """Return the five metrics under each protocol, macro-F1 as in the paper, and F1 by label.

    ``label_f1`` is that of the protocol ``validation``, NaN for a label that is neither true nor
    predicted; ``train_positives`` counts the known positive labels of the training rows.
    """
    held_out, test = parts.validation, parts.test
    validation = Scored(held_out.Y, validation_scores, held_out.unknown)
    tested = Scored(test.Y, test_scores, test.unknown)
    found = {
        protocol: evaluate(tested, validation, protocol=protocol, absent=0)
        for protocol in PROTOCOLS
    }
    rule = found["validation"].rules["micro_f1"]
    by_label = label_table(test.Y, rule.apply(test_scores), unknown=test.unknown)
    return {
        "metrics": {protocol: evaluation.metrics for protocol, evaluation in found.items()},
        "label_f1": by_label["f1"].tolist(),
        "train_positives": np.asarray(parts.train.Y.sum(axis=0)).ravel().tolist(),
        "rows": {name: getattr(parts, name).n_samples for name in ("train", "validation", "test")},
    }


def describe_environment(device: str = "auto") -> dict[str, Any]:
    """Return versions, commit, device and date, for JSON; nothing that names a person or host."""
    found = find_device(device)
    is_gpu = found.type == "cuda"
    return {
        "cgmvae": __version__,
        "commit": _commit(),
        "python": platform.python_version(),
        **{package.__name__: package.__version__ for package in (torch, np, scipy, sklearn)},
        "device": torch.cuda.get_device_name(found) if is_gpu else f"{cpu_count()} CPU cores",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


@cache
def _commit() -> str | None:
    """Return the commit of the source tree, or None for an installed package."""
    if given := os.environ.get("CGMVAE_COMMIT"):  # a copy of the tree without its history
        return given
    tree = Path(__file__).parents[3]
    if not (tree / ".git").exists():  # git would find the repository around an installed package
        return None
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    try:
        done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip() or None
