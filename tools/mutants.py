"""Break the source in small ways, one at a time, and check that the tests notice.

Each mutant is a change of a few characters that alters what the package computes. The tests of its
room run on the changed source until one fails; a mutant that no test catches is a hole in the
tests. Usage::

    python tools/mutants.py [--only WORD ...] [--sample N] [--workers N] [--results FILE]

``--only`` takes mutants of files whose path contains one of the words, ``--sample`` takes some that
are spread evenly over the list. The results are appended to a file, one JSON object a line, and a
stopped run is resumed from it: what was tried on the same source is not tried again. The end is a
table with one line per room, and the mutants that survived. The exit status is 1 if less than 95%
are caught. Real data sets are not used, so that everybody can run this.

All libraries are imported once. Each mutant is tried in a fork of that process, in which the
changed text is imported instead of the file; processes that a test starts see the file as it is.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "cgmvae"

#: Fraction of the mutants that the tests must catch.
MIN_CAUGHT = 0.95

#: Seconds after which a run is stopped: a mutant that hangs is caught.
TIME_LIMIT = 300

#: Exit status of pytest if all tests passed, if some failed, and ours if it could not be run.
_PASSED, _FAILED, _BROKEN = 0, 1, 70

#: What the tests import besides the package and its tests.
LIBRARIES = (
    "torch", "torch._dynamo", "numpy", "pandas", "pyarrow.parquet", "arff", "safetensors.torch",
    "scipy.optimize", "scipy.sparse.linalg", "scipy.special", "scipy.stats", "sklearn.ensemble",
    "sklearn.linear_model", "sklearn.metrics", "sklearn.model_selection", "sklearn.neighbors",
    "sklearn.svm", "sklearn.utils.estimator_checks", "joblib", "hypothesis.extra.numpy",
    "torchmetrics", "filelock", "requests", "platformdirs", "pytest", "doctest", "pdb",
    "xdist.plugin", "_pytest.doctest", "_pytest.junitxml", "_pytest.unittest",
)  # fmt: skip

#: Plugins of pytest that the tests, and the options of all runs, need.
PLUGINS = "xdist.plugin,_hypothesis_pytestplugin"


class Room(NamedTuple):
    """A file of the package, tests that must notice when it is wrong, and mutants of it."""

    file: str
    """Relative to ``src/cgmvae``"""
    tests: tuple[str, ...]
    """Relative to ``tests``"""
    changes: tuple[tuple[str, str], ...]
    """Text that occurs once in the file, and what it is replaced with."""


class Mutant(NamedTuple):
    """One change of a file; see :class:`Room`."""

    file: str
    tests: tuple[str, ...]
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.file}: {' '.join(self.old.split())} → {' '.join(self.new.split())}"


class Result(NamedTuple):
    """What the tests said about a mutant."""

    mutant: Mutant
    caught_by: str
    """Name of the test that failed; empty if none did."""
    seconds: float


#: Why a mutant survives, by its file and new text, where that is known.
REASONS: dict[tuple[str, str], str] = {}


ROOMS = (
    Room(
        "model/objective.py",
        ("model/test_objective.py", "model/test_network.py", "model/test_correlation.py"),
        (
            (
                "(known > positive).all(-1, keepdim=True)",
                "(known > positive).any(-1, keepdim=True)",
            ),
            ("log_density(z, posterior) - mixture", "log_density(z, posterior) + mixture"),
            ("* torch.exp(-prior.log_variance)", "* torch.exp(-posterior.log_variance)"),
            ("(torch.exp(gap) - 1 - gap + distance)", "(torch.exp(gap) - 1 + gap + distance)"),
            ("(0.5 * (features - predicted) ** 2)", "((features - predicted) ** 2)"),
            ('features, reduction="none").sum(-1)', 'features, reduction="none").mean(-1)'),
            ("inner / (rows[:, :, None] * columns[:, None, :])", "inner / rows[:, :, None]"),
            ("similarity + counts.log()", "similarity - counts.log()"),
            (".sum(-1) / n_positive.clamp(min=1)", ".sum(-1)"),
            ("logits.masked_fill(~known, -torch.inf).masked_fill", "logits.masked_fill"),
            ("F.relu(gap + 2 * closer", "F.relu(gap - 2 * closer"),
            ("(negative.sum(-1) * positive.sum(-1))", "(negative.sum(-1) + positive.sum(-1))"),
            ("losses = losses * counts[:, None, :]", "losses = losses / counts[:, None, :]"),
            ("torch.where(positive, -logits, logits)", "torch.where(positive, logits, -logits)"),
            ("math.log(shifted.shape[1]) - torch.logsumexp", "-torch.logsumexp"),
            ("/ (1 + len(others)) if others", "if others"),
            (
                "torch.where(has_prior, kl_to_gaussian(out.posterior, out.prior), 0.0)",
                "kl_to_gaussian(out.posterior, out.prior)",
            ),
            ("contrastive(each / temperature", "contrastive(each * temperature"),
            ("ranking(torch.sigmoid(v.logits)", "ranking(v.logits"),
            ("_total(cross_entropy(view.logits", "_mean(cross_entropy(view.logits"),
        ),
    ),
    Room(
        "model/network.py",
        ("model/test_network.py", "model/test_many_labels.py"),
        (
            (
                "[output, self.background[:, None]], dim=1",
                "[self.background[:, None], output], dim=1",
            ),
            ("F.normalize(embedding, dim=-1) if self.unit_norm else embedding", "embedding"),
            (
                "z.shape[1], 1) >= self.config.skip_dropout",
                "z.shape[1], 1) < self.config.skip_dropout",
            ),
            ("if not self.config.decoder_dropout:", "if self.config.decoder_dropout:"),
            ("inner + self.label_bias[:, None, :]\n        return", "inner\n        return"),
            ("self._reconstruct(given, draws", "self._reconstruct(features, draws"),
            ("if config.own_kl_draw else", "if not config.own_kl_draw else"),
            ("(views[0], views[-1]) if config.label_branch", "views if config.label_branch"),
            ("n_rest / max(n_drawn, 1)", "n_drawn / max(n_rest, 1)"),
            ("components.mean) / weights.sum(-1, keepdim=True)", "components.mean)"),
            (
                "_columns_of(batch.positive, labels) & real,\n            _columns",
                "_columns_of(batch.positive, labels),\n            _columns",
            ),
        ),
    ),
    Room(
        "model/correlation.py",
        ("model/test_correlation.py",),
        (
            ("1 + (self.factors**2).sum(-1)", "(self.factors**2).sum(-1)"),
            ("counts / own[:, None, :]", "counts / own[:, :, None]"),
            ("share / share.sum(-1, keepdim=True)", "share / share.sum(1, keepdim=True)"),
            ("return embeddings + self.second(", "return self.second("),
        ),
    ),
    Room(
        "model/plan.py",
        ("model/test_plan.py",),
        (
            (
                "math.log(max(n, 1) / first) / math.log(last / first)",
                "(n - first) / (last - first)",
            ),
            ("low * (high / low) ** share", "low + (high - low) * share"),
            (
                "round(min(MAX_EPOCHS, max(least, ROWS_SEEN / n_rows)))",
                "round(max(least, ROWS_SEEN / n_rows))",
            ),
            (
                "min(batch_size, MAX_BATCH) / MIN_BATCH",
                "min(batch_size, MAX_BATCH) / MAX_BATCH",
            ),
            ("rate /= 2", "rate /= 1"),
            ("min(bins, MAX_COLUMNS // max(1, data.n_columns))", "bins"),
            ("(1 - MOSTLY) * features.size", "MOSTLY * features.size"),
            (
                "components = None if data.is_sparse else n_components(data)",
                "components = n_components(data)",
            ),
            (
                "preset.dropout + many * (MIN_DROPOUT - preset.dropout)",
                "preset.dropout - many * preset.dropout",
            ),
            ("round(max(least, PATIENCE * epochs))", "round(max(least, epochs / 2))"),
        ),
    ),
    Room(
        "nn/gaussian.py",
        ("nn/test_gaussian.py", "model/test_objective.py"),
        (
            (
                "cls(mean, log_variance.clamp(*LOG_VARIANCE_RANGE))",
                "cls(mean, log_variance + (log_variance.clamp(*LOG_VARIANCE_RANGE) - log_variance)"
                ".detach())",
            ),
            ("torch.exp(0.5 * self.log_variance)", "torch.exp(self.log_variance)"),
            ("-0.5 * (total + z.shape[-1] * math.log(2 * math.pi))", "-0.5 * total"),
            ("return -dmean, dmean,", "return dmean, dmean,"),
            ("(squares - 1).mul_(0.5 * gradient)", "squares.mul_(0.5 * gradient)"),
            ("scaled.transpose(1, 2), alpha=-2)", "scaled.transpose(1, 2), alpha=-1)"),
            ("total - n_chosen.clamp(min=1).double().log()", "total"),
            ("second - 2 * mean * first", "second - mean * first"),
            ("0.5 * (squares - total)", "0.5 * squares"),
        ),
    ),
    Room(
        "nn/packed.py",
        ("nn/test_packed.py",),
        (
            ("bound = n_in**-0.5", "bound = n_out**-0.5"),
            (
                "addcmul(self.shift[:, None, :], normal, self.gain",
                "addcmul(self.gain[:, None, :], normal, self.shift",
            ),
            ("dx.sum(1).mul_(scales)", "dx.sum(1)"),
            ("addcmul_(normal, along, value=-1)", "addcmul_(normal, along, value=1)"),
            ("turned = dcosines * cosines", "turned = dcosines"),
            ("/ of_labels / of_labels", "/ of_labels"),
        ),
    ),
    Room(
        "nn/rng.py",
        ("nn/test_rng.py",),
        (
            ("[key + number * _STRIDE for", "[key + 0 * number for"),
            ("(1 - rate).reciprocal_()", "(1 - rate)"),
            ("torch.log1p(-u[:, 0])", "torch.log1p(-u[:, 1])"),
            ("angle = 2 * math.pi * u[:, 1]", "angle = math.pi * u[:, 1]"),
            ('f"{self._part}{part}/"', 'f"{part}/"'),
            (">> 8) & 0xFFFFFF", ">> 8) & 0xFFFF"),
        ),
    ),
    Room(
        "nn/sparse.py",
        ("nn/test_sparse.py",),
        (
            ("self._n_taken += 1", "self._n_taken += 0"),
            ("d_weight, d_out.sum(1)", "d_weight, d_out.mean(1)"),
            ("weight[:, x.n_columns :].mT), d_weight", "weight[:, -x.n_columns :].mT), d_weight"),
            (
                "factors = x.values[x.starts[i, 0] : x.starts[i, -1]][own.order]",
                "factors = x.values[x.starts[i, 0] : x.starts[i, -1]]",
            ),
        ),
    ),
    Room(
        "evaluation/metrics.py",
        ("evaluation/test_metrics.py",),
        (
            ("self.row_known > 0\n", "self.row_known >= 0\n"),
            (
                "2 * self.label_both.sum(-1) / total.clip(1)",
                "self.label_both.sum(-1) / total.clip(1)",
            ),
            ("(n_known - wrong) / n_known.clip(1)", "(n_known - wrong / 2) / n_known.clip(1)"),
            (
                "((total == 2 * self.row_both) * counted).sum(-1)",
                "(total == 2 * self.row_both).sum(-1)",
            ),
            ("empty, counted = 0, total > 0", "empty, counted = 0, total >= 0"),
            ("true, guess = true & known, guess & known", "true = true & known"),
            ("both / counts.label_predicted", "both / counts.label_true.clip(1)"),
        ),
    ),
    Room(
        "evaluation/ranking.py",
        ("evaluation/test_ranking.py",),
        (
            (
                'np.argsort(-scores, axis=1, kind="stable")',
                'np.argsort(scores, axis=1, kind="stable")[:, ::-1]',
            ),
            ("np.minimum(k, self.n_known)", "np.full_like(self.n_known, k)"),
            ("np.minimum(self.n_true, hits.shape[1])", "np.full_like(self.n_true, hits.shape[1])"),
            ("self._reaching(self.known), 0)", "self._reaching(self.true), 0)"),
            (
                "self.n_true * false.sum(1))\n        return np.where(",
                "self.n_true * self.n_known)\n        return np.where(",
            ),
            ("ordered[:, :-1] != ordered[:, 1:]", "True"),
            (
                "(1 + _ratio(advantage, self.n_true * false.sum(1))) / 2",
                "_ratio(advantage, self.n_true * false.sum(1))",
            ),
            ("& (ranking.n_true < ranking.n_known)", ""),
            ("np.where(trivial, 1.0, ", "np.where(trivial, 0.0, "),
        ),
    ),
    Room(
        "evaluation/thresholds.py",
        ("evaluation/test_thresholds.py",),
        (
            ("scores >= scores.dtype.type(", "scores > scores.dtype.type("),
            ("scores >= self.thresholds", "scores > self.thresholds"),
            ('scores, side="right")', 'scores, side="left")'),
            (
                "counts.label_true / (counts.label_true + SHRINKAGE)",
                "SHRINKAGE / (counts.label_true + SHRINKAGE)",
            ),
            (
                '(1 if metric == "hamming_accuracy" else values.max()) * total',
                "values.max() * total",
            ),
            ("(rank.max(axis, keepdims=True) + 1) // 2", "rank.max(axis, keepdims=True)"),
            ("TopK(n_labels - int(", "TopK(n_labels - 1 - int("),
        ),
    ),
    Room(
        "evaluation/protocols.py",
        ("evaluation/test_protocols.py",),
        (
            ('test if protocol == "test-oracle" else validation', "validation or test"),
            ('learn("global", name, NINE_THRESHOLDS)', 'learn("global", name, FINE_THRESHOLDS)'),
            ("learn(rule, metric, FINE_THRESHOLDS)", "learn(rule, metric, NINE_THRESHOLDS)"),
            ('"unknown": rows.unknown', '"unknown": None'),
            ("counts.value(name, empty, absent)", "counts.value(name)"),
        ),
    ),
    Room(
        "evaluation/calibration.py",
        ("evaluation/test_calibration.py",),
        (
            ('given, side="right")', 'given, side="left")'),
            ("gaps @ curve.count / n_known", "gaps.mean()"),
            (
                "values / self.temperature + np.array(self.shifts)",
                "(values + np.array(self.shifts)) / self.temperature",
            ),
            ("_fit(total - own, share)", "_fit(total, share)"),
            ("float(slope) ** share", "float(slope)"),
            ("(shifts + (1 - slope) * centers)", "shifts"),
            ("places[known]", "places.ravel()"),
            ("if after >= _log_loss(_CENTERS, total):", "if after < 0:"),
        ),
    ),
    Room(
        "evaluation/intervals.py",
        ("evaluation/test_intervals.py",),
        (
            ("tail = (1 - confidence) / 2", "tail = 1 - confidence"),
            ("if self.n_units < MIN_UNITS:", "if False:"),
            ("np.arange(n_rows) if groups is None else", "np.arange(n_rows) if n_rows else"),
            ("resampled - other_resampled", "resampled"),
            ("both, total = 2 * (true & guess)", "both, total = (true & guess)"),
            ("np.where(total == 0, counted,", "np.where(total == 0, 0,"),
            ("_columns(known.sum(1) - (total", "_columns(true.shape[1] - (total"),
        ),
    ),
    Room(
        "evaluation/breakdown.py",
        ("evaluation/test_breakdown.py",),
        (
            ("np.lexsort((-surprise, -n_wrong))", "np.lexsort((-n_wrong, -surprise))"),
            ("rule.apply(scores).astype(bool) & known", "rule.apply(scores).astype(bool)"),
            ("np.argsort(-scores[row, labels]", "np.argsort(scores[row, labels]"),
            ("-np.log(right), 0).sum(1) / known.sum(1).clip(1)", "-np.log(right), 0).sum(1)"),
        ),
    ),
    Room(
        "evaluation/joint.py",
        ("evaluation/test_joint.py",),
        (
            ("positives * (positives + 1) / 2", "positives * (positives - 1) / 2"),
            ("np.maximum(1, pairs), 1.0)", "np.maximum(1, pairs), 0.5)"),
            ("np.abs(part.sum(0))", "np.abs(part).sum(0)"),
            ("np.sqrt(p * (1 - p)).mean()", "(p * (1 - p)).mean()"),
            ("(0.25, 0.75)", "(0.05, 0.95)"),
            ("np.maximum(1, 2 * shared + unshared)", "np.maximum(1, shared + unshared)"),
            ("np.maximum(1, shared + fewer)", "np.maximum(1, 2 * shared + fewer)"),
            ("np.array(self.dissimilarity).T.ravel()", "np.array(self.dissimilarity).ravel()"),
            ("one + rng.integers(1, len(labels)", "one + rng.integers(0, len(labels)"),
            ("draws.std(0).mean()", "draws.std()"),
        ),
    ),
    Room(
        "data/splits.py",
        ("data/test_splits.py",),
        (
            ('rank, side="right")[group]', 'rank, side="left")[group]'),
            ("fractions[1] / (fractions[0] + fractions[1])", "fractions[1]"),
            (
                "int(round(fractions[0] + fractions[1], _CUT_DECIMALS) * n)",
                "int((fractions[0] + fractions[1]) * n)",
            ),
            ("int(train_fraction * len(train))", "round(train_fraction * len(train))"),
            ("_permutation(n, seed) < n_held", "_permutation(n, seed) <= n_held"),
            ("min(n - 1, max(1, round(fraction * n)))", "max(1, round(fraction * n))"),
            ("int(priority.argmin())", "int(np.flatnonzero(left)[-1])"),
            ("want[part] -= 1", "want[part] -= 0"),
            ("(want[part], room[part])", "(room[part], want[part])"),
            ("positives.data == 1", "positives.data != 0"),
            ("np.floor(places / size)", "np.round(places / size)"),
            ("width *= 0.75", "width *= 0.5"),
            ("min(_MIN_BLOCKS, len(np.unique(places, axis=0)) // 2)", "_MIN_BLOCKS // 10"),
            ("part[rest] = _assign(len(rest), room, room, rng)", "part[rest] = 0"),
        ),
    ),
    Room(
        "data/readers/svmlight.py",
        ("data/readers/test_svmlight.py",),
        (
            ("indices.size == 0 or indices.min() == 0", "indices.size == 0 or indices.min() == 1"),
            ('indices.max(initial=-1) != self._n_columns("features", 0)', "indices.min() == 0"),
            ("np.ones(Y.nnz, np.uint8)", "Y.data.astype(np.uint8)"),
            ("(features.indices + 1)", "features.indices"),
            ("line.rstrip() or ' 1:0'", "line.rstrip()"),
            ('1 if kind == "features" else 2', '2 if kind == "features" else 1'),
        ),
    ),
    Room(
        "data/readers/arff.py",
        ("data/readers/test_arff.py",),
        (
            ("word in _TRUE for word in words", "word not in _TRUE for word in words"),
            ("np.arange(n_samples) < n_train", "np.arange(n_samples) <= n_train"),
            ("np.full(len(absent), omitted)", "np.full(len(absent), 1.0)"),
            ("range(n)[:count] if count > 0", "range(n)[:count] if count < 0"),
            ("np.where(np.isnan(cells), cells, cells == codes)", "cells == codes"),
        ),
    ),
    Room(
        "training/plan.py",
        ("training/test_plan.py", "methods/test_rows_on_disk.py"),
        (
            ("own_steps - 1) + 0.5", "own_steps - 1)"),
            ("own / member.learning_rate for", "own for"),
            ("~np.isin(own, member.validation_rows)", "1.0"),
            ("1 + number * self.steps_of", "1 + number * self.n_steps"),
            ("period *= factor", "period += factor"),
            ("(progress - warmup) / (1 - warmup)", "progress"),
            ("floor + (highest - floor) * factors", "highest * factors"),
            ('self.config.kl_warmup) if term == "kl"', 'self.config.kl_warmup) if term != "kl"'),
            ("rows[rows < n_rows]", "rows % n_rows"),
        ),
    ),
    Room(
        "training/step.py",
        ("training/test_step.py", "training/test_loop.py"),
        (
            ("((norms + losses).abs() < torch.inf)", "(norms.abs() < torch.inf)"),
            (
                "batch.weight / total_weight.masked_fill(total_weight == 0, 1.0)[:, None]",
                "batch.weight / batch.weight.shape[1]",
            ),
            ("now.copy_(weight * factor(name))", "now.copy_(weight)"),
            ("self._alive & (total_weight > 0)", "self._alive"),
            ("self._alive ^= failed", "pass"),
            (
                "torch.where(self._learns, self.flat.values, self._frozen)",
                "torch.where(self._learns, self._frozen, self.flat.values)",
            ),
        ),
    ),
    Room(
        "training/loop.py",
        ("training/test_loop.py",),
        (
            (
                "self.epoch - self.best_epoch < self.config.patience",
                "self.epoch - self.best_epoch <= self.config.patience",
            ),
            ("value > self.best_value + _ROUNDING", "value >= self.best_value"),
            ("better &= torch.isfinite(self.flat.values.sum(1))", "pass"),
            ("sums[name] / n_steps", "sums[name]"),
            ("known = (batch.known & real[..., None])", "known = batch.known"),
            ("self.flat.set(self.best)", "pass"),
            ("new.copy_(values[kept])", "pass"),
            ("(self.running & ~failed) | (self.best_epoch > 0)", "self.running & ~failed"),
        ),
    ),
    Room(
        "training/optimizer.py",
        ("training/test_optimizer.py",),
        (
            ("self._n_decayed = flat.n_matrices + decay_all", "self._n_decayed = flat.n_matrices"),
            ("self._decays[i] if number < self._n_decayed else 0.0", "self._decays[i]"),
            ("(self.clip / norms)", "(norms / self.clip)"),
            ("if shrinks[i] < 1:", "if shrinks[i] > 1:"),
            ("self.n_steps += active[:, None]\n        steps", "self.n_steps += 1\n        steps"),
            ("rates[self.flat.of_encoder[number]][i]", "rates[0][i]"),
            ("torch.stack(dots).sum(1).sqrt_()", "torch.stack(dots).sum(1)"),
            ('_fused_adamw_ if self.kind == "adamw"', '_fused_adamw_ if self.kind != "adamw"'),
            ("block.zero_()  #", "block.mul_(1)  #"),
            ("_BETAS, _EPSILON = (0.9, 0.999)", "_BETAS, _EPSILON = (0.9, 0.99)"),
        ),
    ),
    Room(
        "training/selection.py",
        ("training/test_selection.py",),
        (
            ("scores[:, rows] >= float(threshold)", "scores[:, rows] > float(threshold)"),
            (") & known[:, rows]\n", ")\n"),
            ("scores.masked_fill(~known, -1.0)", "scores"),
            ("usable.sum(-1).clamp(min=1)", "usable.shape[-1]"),
            ("in SET_METRICS[:4]", "in SET_METRICS[1:5]"),
        ),
    ),
    Room(
        "methods/conditioning.py",
        ("methods/test_conditioning.py", "methods/test_communities.py"),
        (
            (
                "torch.where(only_present, strengths[2], strengths[0])",
                "torch.where(only_present, strengths[0], strengths[2])",
            ),
            ("torch.where(present, 1.0, -1.0)", "torch.where(present, -1.0, 1.0)"),
            ("(1 - mean * (mean + a))", "(1 - mean * mean)"),
            ("flatten(1) @ pairs.T + 1 - explained", "flatten(1) @ pairs.T + 1"),
            ("strengths[3] * torch.log1p(-named)", "-strengths[3] * torch.log1p(-named)"),
            ("(counted & ~given)", "counted"),
            ("np.where(given[part].any(1, keepdims=True), changed, scores[part])", "changed"),
            (
                "(rng.random(group.max() + 1) < _HELD_OUT)[group]",
                "rng.random(len(group)) < _HELD_OUT",
            ),
            ("return known & np.where(only_present", "return np.where(only_present"),
            ("/ n_draws**0.5", "/ n_draws"),
            ("(self.sign * ratio) @ slopes - mode", "(self.sign * ratio) @ slopes"),
            (
                "0.5 * (normal.square() - factors.square())",
                "0.5 * (factors.square() - normal.square())",
            ),
            (
                "(torch.special.log_ndtr(self.sign * inside) * self.sign.abs())",
                "torch.special.log_ndtr(self.sign * inside)",
            ),
        ),
    ),
    Room(
        "methods/communities.py",
        ("methods/test_communities.py", "methods/test_conditioning.py"),
        (
            ("factors @ _slopes(loadings).T + noise > 0", "factors @ loadings.T + noise > 0"),
            ("rest = np.sqrt(1 - np.square(loadings).sum(1))", "rest = 1.0"),
            ("tail = (1 - level) / 2", "tail = 1 - level"),
            ("found[:, :1] *= 1 - own", "found[:, :1] *= own"),
            ("share * share.T", "share * share"),
            ("(1 - observed**2) / np.sqrt(both)", "1 / np.sqrt(both)"),
            ("known -= dense(rows.unknown[chosen])", "known -= 0"),
            ("(mean**2).T @ mean**2 - 2 * r", "(mean**2).T @ mean**2 + 2 * r"),
            ("(lower > 0) | (upper < 0)", "lower > 0"),
            ("np.where(certain, positive.astype(scores.dtype), scores)", "scores"),
            ("sign * _TWO_SIDED * error", "sign * error"),
            (
                "points @ _slopes(loadings).T  # (n_points, n_labels)\n    lower",
                "points @ loadings.T  # (n_points, n_labels)\n    lower",
            ),
        ),
    ),
    Room(
        "methods/neighbors.py",
        ("methods/test_neighbors.py",),
        (
            ("weights *= k / weights.sum(axis=1, keepdims=True)", "weights *= 1"),
            ("squared[:, k // 2 : k // 2 + 1]", "squared[:, :1]"),
            ("self._votes(features, rows, own=rows)", "self._votes(features, rows)"),
            ("self._votes(features[own], rows[~own])", "self._votes(features[own], rows)"),
            ("compared = normalize(compared.astype(np.float64))", "pass"),
            (
                "np.exp(-SHARPNESS * squared / median",
                "np.exp(-SHARPNESS * np.sqrt(squared) / median",
            ),
            ("own is None else len(rows) - 1", "own is None else len(rows) - 2"),
        ),
    ),
    Room(
        "methods/votes.py",
        ("methods/test_votes.py",),
        (
            ("(positive + self.frequencies) / (known + 1)", "positive / known.clip(1e-9)"),
            ("known -= self.row_weights @ self.unknown", "known -= 0"),
            ("centered[dense(self.unknown)] = 0", "pass"),
        ),
    ),
    Room(
        "methods/linear.py",
        ("methods/test_linear.py",),
        (
            ("rows.take(np.flatnonzero(part != k))", "rows"),
            ("sample_weight=weights[known]", "sample_weight=None"),
            ("(slope * coefficients).astype", "coefficients.astype"),
            ("bounds = [(0.0, MAX_WEIGHT)]", "bounds = [(None, None)]"),
        ),
    ),
    Room(
        "methods/combination.py",
        ("methods/test_combination.py",),
        (
            ("moved[:-1] = moved[:-1].clip(0)", "pass"),
            ("true = labels * counted", "true = labels * 1.0"),
            ("np.full(len(odds), 1 / len(odds)), 0)", "np.zeros(len(odds)), 0)"),
            ("np.mean(shifts**2 + 1 / (curvature + penalty))", "np.mean(shifts**2)"),
            ("where=True if known is None else known", "where=True"),
            ("min(helps.values()) > MIN_GAIN", "min(helps.values()) > -9"),
            ("if name not in keep", "if True"),
            ("losses[self.unknown] = 0", "pass"),
            ("if now.value <= before:", "if True:"),
            ("float((counted * np.logaddexp(0, z)", "float((2 * counted * np.logaddexp(0, z)"),
            ("shift_penalty * shifts @ shifts) / 2", "shift_penalty * shifts @ shifts)"),
            (
                "np.arange(len(scores)) if self.groups is None else self.groups",
                "np.arange(len(scores))",
            ),
        ),
    ),
    Room(
        "methods/trees.py",
        ("methods/test_trees.py",),
        (
            ("self._count(leaves, drawn == 0)", "self._count(leaves)"),
            ("weights * drawn[:, tree]", "weights"),
            ("_, group = np.unique(groups, return_inverse=True)", "pass"),
            (
                "is_right = cells.take(row + feature.take(node)) > self.threshold.take(node)",
                "is_right = cells.take(row + feature.take(node)) >= self.threshold.take(node)",
            ),
            ("weights / np.bincount(leaf, weights, len(self.sizes))[leaf]", "weights * 1.0"),
            ("np.mean(moved != leaves) < _MAX_MOVED", "np.mean(moved != leaves) >= 0"),
            ("several = np.diff(shares.indptr) != 1", "several = np.diff(shares.indptr) < 0"),
            ("targets @ rng.normal(size=(n_labels, N_PROJECTIONS))", "targets[:, :N_PROJECTIONS]"),
            ('"best" if tree % 2 else "random"', '"random"'),
            ("[group]\n\n\ndef grow_tree", "[group].clip(0, 1)\n\n\ndef grow_tree"),
        ),
    ),
    Room(
        "methods/votes.py",
        ("serving/test_onnx_export.py",),
        (
            ("np.asarray(weights.sum(axis=1)).reshape", "np.ones(weights.shape[0]).reshape"),
            ("known = known - dense(weights", "known = known - 0 * dense(weights"),
        ),
    ),
    Room(
        "methods/blend.py",
        ("methods/test_blend.py",),
        (
            ("if self.keep_training_rows or not keeps_rows(each[1])", "if True"),
            ("if kept and not self.keep_training_rows", "if False"),
            ("if each.equals(own)), own)", "if True), own)"),
            ("self.auto_network = restore_parameters(network)", "pass"),
        ),
    ),
    Room(
        "methods/out_of_fold.py",
        ("methods/test_out_of_fold.py",),
        (
            (
                "fitted._fit_rows(rows.take(outside), held, seed)",
                "fitted._fit_rows(rows, held, seed)",
            ),
            ("own = len(groups) + np.arange", "own = np.arange"),
            ("rng.permutation(n_rows) % n_folds", "np.arange(n_rows) % n_folds"),
            ("scores[inside] = fitted", "scores[outside[: len(inside)]] = fitted"),
        ),
    ),
    Room(
        "methods/binary_relevance.py",
        ("methods/test_binary_relevance.py",),
        (
            ("known = np.flatnonzero(~unknown)", "known = np.arange(len(unknown))"),
            ('{"sample_weight": rows.weights[known]}', "{}"),
            ("return float(y[0]) if len(y) else 0.0", "return 0.0"),
            ("dict.fromkeys(unseeded, seed)", "dict.fromkeys(unseeded, 0)"),
            ("predict_proba(features)[:, 1]", "predict_proba(features)[:, 0]"),
        ),
    ),
    Room(
        "methods/predictor.py",
        ("serving/test_onnx_export.py", "methods/test_binary_relevance.py"),
        (
            (
                "torch.where(self.constant, self.intercepts, torch.sigmoid(log_odds))",
                "torch.sigmoid(log_odds)",
            ),
            ("(probabilities >= self.thresholds.to", "(probabilities > self.thresholds.to"),
            ("odds = torch.log(p) - torch.log1p(-p)", "odds = torch.log(p)"),
            ("length < 10 * torch.finfo(rows.dtype).eps", "length < 0"),
        ),
    ),
    Room(
        "methods/nearest.py",
        ("methods/test_nearest.py",),
        (
            ("between[excluded, own[part][excluded]]", "between[excluded, excluded]"),
            ("keys.sort(axis=1)", "keys[:, ::-1].sort(axis=1)"),
            ("ROUNDING * squares", "0 * squares"),
        ),
    ),
    Room(
        "methods/mlknn.py",
        ("methods/test_mlknn.py",),
        (
            ("(s + n_rows) / (2 * s + n_rows.sum(axis=0))", "n_rows / n_rows.sum(axis=0)"),
            ("(s * counts.shape[2] + n_rows)", "(s * (counts.shape[2] - 1) + n_rows)"),
            (
                "np.arange(start, rows.stop) if among_themselves",
                "np.arange(start, rows.stop) if not among_themselves",
            ),
            ("known & (n_known <= self.n_neighbors_)", "known"),
            ("np.clip(n_known - 1, 0, k)", "np.clip(n_known, 0, k)"),
            ("having == without, _ABOVE_HALF,", "having == without, 0.5,"),
            ("np.where(dense(self.unknown_[rows]), 0.0, weight)", "weight"),
        ),
    ),
    Room(
        "methods/rbcc.py",
        ("methods/test_rbcc.py",),
        (
            ("absent * (1 - share) + present * share", "absent * share + present * (1 - share)"),
            ("[joint * (1 - positive), joint * positive]", "[joint * positive, joint * positive]"),
            ("label_sets[..., label], chosen, -chosen", "label_sets[..., label], -chosen, chosen"),
            ("= chosen >= n", "= chosen < n"),
            ("(highest >> k)", "(1 << k)"),
            ("(parents >= 0) & known.gather(-1, parents.clamp(min=0))", "parents >= 0"),
            ("joint.sum(gone) if gone else joint", "joint.mean(gone) if gone else joint"),
            ("members.logsumexp(0) - math.log(len(logits))", "members.logsumexp(0)"),
        ),
    ),
    Room(
        "methods/label_structure.py",
        ("methods/test_label_structure.py",),
        (
            ("0.5 * np.log(weights.sum())", "1.0 * np.log(weights.sum())"),
            ("weights * weights.sum() / (weights**2).sum()", "weights * 1.0"),
            ("if family == families[parent] | {parent}", "if family >= families[parent]"),
            ("max(last[parent], position[child])", "position[child]"),
        ),
    ),
    Room(
        "methods/haram.py",
        ("methods/test_haram.py",),
        (
            ("threshold * (largest - smallest) * largest", "threshold * (largest - smallest)"),
            ("boxes.norms - distance) / 2", "boxes.norms - distance)"),
            ("np.cumsum(sizes, axis=1) - sizes <", "np.cumsum(sizes, axis=1) <"),
            ("rate * lower + (1 - rate) * self.lower", "(1 - rate) * lower + rate * self.lower"),
            (">= rule.vigilance * block.norms[i]", "> rule.vigilance * block.norms[i]"),
            ("(agreed[found] * own >= 0)", "(agreed[found] * own >= -1)"),
            ("ranked[:, 1:], axis=1) + 1", "ranked[:, 1:], axis=1)"),
            (
                "(np.clip(features.astype(np.float64), minimum, maximum) - origin)",
                "(features.astype(np.float64) - origin)",
            ),
            ("np.where(agreed[winner] == 0, own, agreed[winner])", "agreed[winner]"),
        ),
    ),
    Room(
        "methods/sleec.py",
        ("methods/test_sleec.py",),
        (
            ("self.first == self.second, 1.0, 2.0", "self.first == self.second, 1.0, 1.0"),
            ("self.first == self.second, 0.5, 1.0", "self.first == self.second, 1.0, 1.0"),
            ("own_size - (own @ unknown.T).toarray()", "own_size"),
            ("1.0 + votes.sum(axis=1)", "2.0 + votes.sum(axis=1)"),
            ("rows] = -np.inf", "rows] = np.inf"),
            ("l1_weight / (2 * penalty)", "l1_weight / penalty"),
            ("dual += predicted - sparse", "dual -= predicted - sparse"),
            ("np.maximum(values[-rank:], 0.0)", "np.abs(values[-rank:])"),
            ("np.average(norms, weights=self.weights_)", "np.average(norms)"),
            ("scores / len(self.learners_)", "scores"),
        ),
    ),
    Room(
        "methods/lamp.py",
        ("methods/test_lamp.py",),
        (
            ("query * query.shape[-1] ** -0.5", "query"),
            ("message.view(nodes.shape).masked_fill(alone, 0.0).flatten(1, 2)", "message"),
            ("values / values[..., :1].clamp(min=_MIN_SHARE)", "values"),
            ("torch.stack(earlier).sum(0)", "torch.stack(earlier).mean(0)"),
            (".sum(-1) + self.label_bias[:, None]", ".sum(-1)"),
            ("| np.eye(n_labels, dtype=bool)", ""),
            ("labels - labels.multiply(sp.csr_array(rows.unknown))", "labels"),
        ),
    ),
    Room(
        "methods/c2ae.py",
        ("methods/test_c2ae.py",),
        (
            ("-1.0).masked_fill(~known, 0.0)", "-1.0)"),
            ("codes - (codes * share).sum(1, keepdim=True)", "codes"),
            ("objective.ranking(torch.sigmoid(logits)", "objective.ranking(logits"),
            ("torch.where(labeled, distance, 0.0)", "distance"),
            ("weight = batch.weight * labeled", "weight = batch.weight"),
            ("self.decode(label_codes, streams)", "self.decode(feature_codes, streams)"),
            ("self.batch_size // 2", "self.batch_size"),
        ),
    ),
    Room(
        "methods/mpvae.py",
        ("methods/test_mpvae.py",),
        (
            ("kl_to_gaussian(posterior, prior)", "kl_to_gaussian(prior, posterior)"),
            ("torch.where(batch.known.any(-1), divergence, 0.0)", "divergence"),
            (".mean(1) / slope", ".mean(1)"),
            ("ndtri(expit(label_log_odds))", "label_log_odds"),
            ("dim2=2).sqrt()", "dim2=2)"),
            ("((2.0 * positive - 1.0) * known)", "(2.0 * positive - 1.0)"),
        ),
    ),
    Room(
        "methods/asl.py",
        ("methods/test_asl.py",),
        (
            ("torch.exp(gamma_positive * log_rest)", "torch.exp(gamma_negative * log_rest)"),
            ("torch.sigmoid(logits) - margin", "torch.sigmoid(logits)"),
            ("torch.logaddexp(log_rest, torch.log(margin))", "log_rest"),
            ("of_negative).masked_fill(~known, 0.0)", "of_negative)"),
        ),
    ),
    Room(
        "preparation/encoders.py",
        ("preparation/test_features.py",),
        (
            (
                '(years + 1).astype("datetime64[s]") - years.astype("datetime64[s]")',
                "np.full(years.shape, 365 * 86_400)",
            ),
            ("1 + np.log((1 + self.n_texts)", "np.log((1 + self.n_texts)"),
            ("sublinear_tf=True", "sublinear_tf=False"),
            ("NOTABLE_SHARE <= missing.mean() < 1", "NOTABLE_SHARE < missing.mean() < 1"),
            ("if count >= least", "if count > least"),
        ),
    ),
    Room(
        "preparation/ranges.py",
        ("preparation/test_ranges.py",),
        (
            ("np.fmax(low - values, values - high)", "values - high"),
            (
                "np.fmin(low, np.fmin.reduce(values, axis=0))",
                "np.minimum(low, np.minimum.reduce(values, axis=0))",
            ),
            (
                "np.where((width > 0) & np.isfinite(width), width, 1.0)",
                "np.where(np.isfinite(width), width + 1, 1.0)",
            ),
            ("np.fmax(beyond, 0.0)", "beyond"),
            ('v if kind == "number" else missing for', 'v if kind != "text" else missing for'),
        ),
    ),
    Room(
        "preparation/pipeline.py",
        ("preparation/test_pipeline.py", "methods/test_wide_features.py"),
        (
            (
                "PiecewiseLinear(plan.n_bins).fit(scaled)",
                "PiecewiseLinear(plan.n_bins).fit(numbers)",
            ),
            ("fit(self.bins.transform(scaled))", "fit(scaled)"),
            ("np.argmax(np.abs(scaled))", "np.argmax(scaled)"),
        ),
    ),
    Room(
        "preparation/scaling.py",
        ("preparation/test_scaling.py",),
        (
            ("return mean, squares / n", "return mean, squares / (n - 1)"),
            ("squares = n_zeros * mean**2", "squares = 0 * mean"),
            ("np.sqrt(_without_rounding(variance, mean, len(rows)))", "np.sqrt(variance)"),
            ("if np.isfinite(bound):", "if False:"),
        ),
    ),
    Room(
        "preparation/piecewise.py",
        ("preparation/test_piecewise.py",),
        (
            ("<= FEW_VALUES", "< FEW_VALUES"),
            (".clip(0, 1)", ".clip(-1, 1)"),
            ("np.linspace(0, 1, n_bins + 1)", "np.linspace(0, 1, n_bins)"),
        ),
    ),
    Room(
        "preparation/components.py",
        ("preparation/test_components.py",),
        (
            ("vectors / mean_size", "vectors"),
            ("return (rows - mean) @", "return rows @"),
            ("slice(None, -n_directions - 1, -1)", "slice(n_directions)"),
        ),
    ),
    Room(
        "studies/statistics.py",
        ("studies/test_statistics.py",),
        (
            ("row.var(ddof=1) for", "row.var() for"),
            ("np.sqrt(1 / n + test_share)", "np.sqrt(1 / n)"),
            ("stats.t.ppf(0.975, n - 1)", "stats.t.ppf(0.95, n - 1)"),
            ("stats.rankdata(-complete, axis=1)", "stats.rankdata(complete, axis=1)"),
            ("np.inf) / np.sqrt(2)", "np.inf)"),
            ("if self.high < bound:", "if self.low < bound:"),
        ),
    ),
)


def mutants(words: Sequence[str] = ()) -> list[Mutant]:
    """Return all mutants, or those of files whose path contains one of the words."""
    return [
        Mutant(room.file, room.tests, *change)
        for room in ROOMS
        for change in room.changes
        if not words or any(word in room.file for word in words)
    ]


# --- One mutant in a process of its own ---------------------------------------------------------


def _test(mutant: Mutant, output: Path) -> int:
    """Run the tests of a mutant in this process, until one fails; return pytest's exit status."""
    import pytest

    class FirstFailure:
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.failed:
                output.with_suffix(".failed").write_text(report.nodeid, encoding="utf-8")

    with output.open("w", encoding="utf-8") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    for name in [name for name in os.environ if name.startswith(("PYTEST", "CGMVAE"))]:
        del os.environ[name]
    # "CI": no random examples, and none that are kept.
    os.environ |= {"PYTHONPATH": str(PACKAGE.parent), "CI": "1"}
    # Other plugins take a second to load.
    os.environ |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": PLUGINS}
    sys.path.insert(0, str(PACKAGE.parent))
    os.chdir(ROOT)
    if mutant.file:
        _import_changed(PACKAGE / mutant.file, mutant)
    tests = [f"tests/{test}" for test in mutant.tests]
    options = ["-x", "-n", "0", "-p", "no:cacheprovider", "-p", "no:unraisableexception"]
    # What pytest would rewrite is imported already.
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    return int(pytest.main([*options, *tests], plugins=[FirstFailure()]))


def _import_changed(path: Path, mutant: Mutant) -> None:
    """Let this process import a file with the change of a mutant, past its compiled form."""
    text = path.read_text(encoding="utf-8")
    changed = text.replace(mutant.old, mutant.new, 1).encode()
    path_stats, get_data = SourceFileLoader.path_stats, SourceFileLoader.get_data

    def stats_of_others(loader: SourceFileLoader, name: str) -> Any:
        if name == str(path):
            raise OSError("The compiled form is that of the file as it is.")
        return path_stats(loader, name)

    def changed_data(loader: SourceFileLoader, name: str) -> bytes:
        return changed if name == str(path) else get_data(loader, name)

    SourceFileLoader.path_stats, SourceFileLoader.get_data = stats_of_others, changed_data


# --- All mutants --------------------------------------------------------------------------------


class _Process(NamedTuple):
    """A process that runs the tests of a mutant."""

    mutant: Mutant
    started: float
    output: Path
    """What pytest prints; the name of the test that failed is written beside it."""


def run(chosen: Sequence[Mutant], workers: int) -> Iterator[Result]:
    """Run the tests of each mutant, some at a time, and yield what they say.

    Raises ``RuntimeError`` if tests fail without a mutant, or cannot be run.
    """
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    for name in LIBRARIES:
        importlib.import_module(name)
    gc.freeze()
    with tempfile.TemporaryDirectory() as folder:
        # Modules are compiled once, whatever the environment says of their compiled form.
        sys.pycache_prefix, sys.dont_write_bytecode = folder, False
        # First a change that changes nothing, once for each set of tests.
        sets_of_tests = dict.fromkeys(mutant.tests for mutant in chosen)
        for result in _try([Mutant("", tests, "", "") for tests in sets_of_tests], workers):
            if result.caught_by:
                raise RuntimeError(f"Without any mutant, this fails: {result.caught_by}")
        yield from _try(chosen, workers)


def _try(chosen: Sequence[Mutant], workers: int) -> Iterator[Result]:
    """Run the tests of each mutant in a process of its own, and yield what they say."""
    waiting = list(chosen)[::-1]
    running: dict[int, _Process] = {}
    with tempfile.TemporaryDirectory() as folder:
        try:
            while waiting or running:
                while waiting and len(running) < workers:
                    mutant, output = waiting.pop(), Path(folder, str(len(waiting)))
                    running[_start(mutant, output)] = _Process(mutant, time.monotonic(), output)
                time.sleep(0.02)
                for number, process in list(running.items()):
                    seconds = time.monotonic() - process.started
                    if seconds > TIME_LIMIT:
                        os.killpg(number, signal.SIGKILL)
                    ended, status = os.waitpid(number, os.WNOHANG)
                    if ended:
                        del running[number]
                        yield Result(process.mutant, _failed(status, process.output), seconds)
        finally:
            for number in running:
                os.killpg(number, signal.SIGKILL)
                os.waitpid(number, 0)


def _start(mutant: Mutant, output: Path) -> int:
    """Fork a process that tests a mutant; return its number, which is that of its group, too."""
    sys.stdout.flush()
    number = os.fork()
    if number:
        os.setpgid(number, number)
        return number
    status = _BROKEN
    try:
        os.setpgid(0, 0)
        status = _test(mutant, output)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _failed(status: int, output: Path) -> str:
    """Return the test that failed in a process that has ended; nothing if all passed."""
    if os.WIFSIGNALED(status):
        return f"signal {os.WTERMSIG(status)}, sent if tests take more than {TIME_LIMIT} s"
    code = os.WEXITSTATUS(status)
    if code not in (_PASSED, _FAILED):
        raise RuntimeError(f"The tests could not be run:\n{output.read_text(encoding='utf-8')}")
    return output.with_suffix(".failed").read_text(encoding="utf-8") if code else ""


# --- Results that are kept ----------------------------------------------------------------------


def source_version() -> str:
    """Return the commit, and a checksum of what differs from it in the source and its tests."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(ROOT), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    commit, differing = git("rev-parse", "HEAD").strip(), git("diff", "HEAD", "--", "src", "tests")
    own = hashlib.sha256(differing.encode()).hexdigest()[:12]
    return f"{commit} and changes {own}" if differing else commit


def stored(file: Path, version: str) -> dict[Mutant, Result]:
    """Return the results of a file that are of this version of the source."""
    found = {}
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    for entry in map(json.loads, lines):
        if entry["version"] == version:
            mutant = Mutant(entry["file"], tuple(entry["tests"]), entry["old"], entry["new"])
            found[mutant] = Result(mutant, entry["caught_by"], entry["seconds"])
    return found


def store(file: Path, version: str, result: Result) -> None:
    """Append a result to a file."""
    entry = {"version": version} | result.mutant._asdict()
    entry |= {"caught_by": result.caught_by, "seconds": round(result.seconds, 1)}
    with file.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(entry, ensure_ascii=False) + "\n")


def table(results: Sequence[Result]) -> str:
    """Return a Markdown table of how many mutants are caught, a line for each folder of tests."""
    lines = ["| folder | mutants | caught |", "|---|---|---|"]
    for folder in dict.fromkeys(result.mutant.file.partition("/")[0] for result in results):
        own = [each for each in results if each.mutant.file.startswith(f"{folder}/")]
        lines.append(f"| `{folder}` | {len(own)} | {sum(bool(each.caught_by) for each in own)} |")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Try the mutants, print which are caught, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD")
    parser.add_argument("--sample", type=int, metavar="N")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--results", type=Path, default=Path("mutants.jsonl"))
    options = parser.parse_args(argv)
    chosen = mutants(options.only)
    if options.sample:
        chosen = chosen[:: max(1, len(chosen) // options.sample)]
    version = source_version()
    found = stored(options.results, version)
    start, n_stored = time.monotonic(), sum(mutant in found for mutant in chosen)
    for result in run([mutant for mutant in chosen if mutant not in found], options.workers):
        store(options.results, version, result)
        found[result.mutant] = result
        verdict = "caught  " if result.caught_by else "SURVIVED"
        print(f"{verdict} {result.seconds:5.1f} s  {result.mutant}", flush=True)
    results = [found[mutant] for mutant in chosen]
    n_caught = sum(bool(result.caught_by) for result in results)
    share = n_caught / len(results)
    seconds = time.monotonic() - start
    print(f"\nCommit {version}, {n_stored} results of before, {seconds:.0f} s for the rest:\n")
    print(table(results))
    print(f"\n{n_caught} of {len(results)} mutants are caught ({share:.1%}).")
    for mutant, caught_by, _ in results:
        if not caught_by:
            reason = REASONS.get((mutant.file, mutant.new), "no reason is known")
            print(f"survived: {mutant}\n    {reason}")
    return int(share < MIN_CAUGHT)


if __name__ == "__main__":
    sys.exit(main())
