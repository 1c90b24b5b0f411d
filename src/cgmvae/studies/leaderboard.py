"""A leaderboard: which method is best on one data set, by how much, and what it costs.

All methods are trained on the same rows and tested on the same other rows: each expert of the blend
alone, the blend, and the comparison methods of the library. Differences to the best have paired
bootstrap intervals, and a method that takes too long is stopped.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cgmvae.data.dataset import MultiLabelDataset
from cgmvae.data.mapped import MappedRows, vstack
from cgmvae.data.splits import Split, make_split
from cgmvae.errors import InputError, listed, warn
from cgmvae.evaluation.breakdown import GOOD_SKILL, MIN_LABEL_ROWS, compared_labels, of_labels
from cgmvae.evaluation.intervals import (
    NAMED_METRICS,
    Interval,
    label_skills,
    paired_difference,
)
from cgmvae.evaluation.metrics import METRIC_TITLES, SET_METRICS, count
from cgmvae.evaluation.ranking import rank
from cgmvae.methods.inputs import Rows, targets_of_rows
from cgmvae.methods.out_of_fold import assign_folds
from cgmvae.methods.registry import REGISTRY, find_method
from cgmvae.preparation.features import table_columns
from cgmvae.studies.limits import OutOfTime, limited

#: A registered method, or a name and an estimator of one's own.
Competitor: TypeAlias = str | tuple[str, Any]

#: How much faster a method must be for :func:`advice` to recommend it before the best.
MUCH_FASTER = 2.0


@dataclass(frozen=True)
class Entry:
    """A method in the leaderboard; one that did not finish has only a name and a note."""

    method: str
    """Its registered name, or the one that was given"""
    title: str
    note: str = ""
    """Why there are no results"""
    seconds: float | None = None
    """To fit it and to predict the test rows, in all folds"""
    file_bytes: int | None = None
    """Size of its model file, of the last fold; None if it cannot be saved"""
    metrics: dict[str, float] | None = None
    """The paper's five metrics, and the one that methods are sorted by"""
    difference: Interval | None = None
    """Its metric minus that of the best method, with a paired interval"""
    skills: Mapping[str, Interval] = field(default_factory=dict)
    """By label: how much better its probabilities are than the frequency of the label"""

    def record(self, label_names: Sequence[str] = ()) -> dict[str, Any]:
        """Return a row of the table; ``label_names`` adds the skill of these labels."""
        values = [skill.value for skill in self.skills.values()]
        well = sum(each.value >= GOOD_SKILL and each.low > 0 for each in self.skills.values())
        metrics: Mapping[str, float | None] = self.metrics or dict.fromkeys(METRIC_TITLES)
        gap: Sequence[float | None] = self.difference or (None, None, None)
        found: dict[str, Any] = {"method": self.method, **metrics}
        found |= dict(zip(("difference", "low", "high"), gap, strict=True))
        found["mean_skill"] = float(np.nanmean(values)) if not np.isnan(values).all() else None
        found["labels_predicted_well"] = well if values else None
        found |= {"seconds": self.seconds, "file_bytes": self.file_bytes, "note": self.note}
        skills = {name: each.value for name, each in self.skills.items()}
        return found | {f"skill of {name}": skills.get(name) for name in label_names}


class _Tested(NamedTuple):
    """What a method gave for the test rows of all folds, one after the other."""

    scores: NDArray[np.floating]
    predicted: NDArray[np.integer]
    seconds: float
    file_bytes: int | None


def compare(
    X: Any,
    Y: Any,
    *,
    methods: Sequence[Competitor] | None = None,
    split: Split | None = None,
    n_folds: int | None = None,
    metric: str = "micro_f1",
    time_limit: float = 60.0,
    groups: Any = None,
    per_label: bool = False,
    random_state: int = 0,
) -> Any:
    """Return a leaderboard of methods, best first: a pandas DataFrame, or a list of dicts without.

    Labels that fewer than 20 training rows have, or do not have, are learned, but not compared.

    Parameters
    ----------
    X, Y
        As in ``fit``.
    methods : sequence of str or (str, estimator), optional
        Registered methods, and estimators of this library by a name; by default all that are
        registered: each expert of the blend, the blend, and the comparison methods.
    split : Split, optional
        Its training and validation rows are learned from, its test rows tested on; by default
        that of :func:`~cgmvae.data.make_split`.
    n_folds : int, optional
        Test all rows, in this many folds, instead of a single split.
    metric : str
        What methods are sorted by, and thresholds of registered ones learned for: one of the
        paper's five metrics, or ``subset_accuracy``.
    time_limit : float
        Seconds after which a method is stopped, of all folds together. It is not stopped on
        Windows, nor in another thread than the main one.
    groups : array, (n_samples,), optional
        Rows of one group are on the same side of a split.
    per_label : bool
        Whether to add a column ``skill of LABEL`` for each label.
    random_state : int
        Seed of the split and of all methods.

    Examples
    --------
    >>> from cgmvae.data import make_survey
    >>> data, _ = make_survey(600, 5, 5, seed=0)
    >>> table = compare(data.X, data.Y, methods=["trees", "binary-relevance"])
    >>> sorted(table["method"])
    ['binary-relevance', 'trees']
    """
    dataset = _as_dataset(X, Y, groups)
    entries = leaderboard(
        dataset,
        _folds(dataset, split, n_folds, random_state),
        methods=methods,
        metric=metric,
        time_limit=time_limit,
        seed=random_state,
    )
    names = [*entries[0].skills] if per_label else []
    records = [entry.record(names) for entry in entries]
    try:
        import pandas as pd  # type: ignore[import-untyped]
    except ImportError:
        return records
    table = pd.DataFrame(records)
    table.attrs["advice"] = advice(entries, metric)
    return table


def leaderboard(
    dataset: MultiLabelDataset,
    folds: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]],
    *,
    methods: Sequence[Competitor] | None = None,
    metric: str = "micro_f1",
    time_limit: float = 60.0,
    seed: int = 0,
    on_start: Callable[[str], None] = lambda _: None,
) -> list[Entry]:
    """Return the methods, best first, and after them those that did not finish.

    ``folds`` are pairs of rows to learn from and rows to test on; ``on_start`` is called with the
    title of each method. All numbers are about the labels that enough training rows have, and do
    not have (:func:`~cgmvae.evaluation.breakdown.compared_labels`).
    """
    if metric not in NAMED_METRICS:
        raise InputError(
            f"There is no metric {metric!r}; choose one of {', '.join(NAMED_METRICS)}."
        )
    if not time_limit > 0:
        raise InputError(f"time_limit is {time_limit}; give a positive number of seconds.")
    learned = np.unique(np.concatenate([train for train, _ in folds]))
    labels = compared_labels(dataset.rows(learned))
    if left_out := np.delete(np.arange(dataset.n_labels), labels).tolist():
        be, them = ("is", "it") if len(left_out) == 1 else ("are", "them")
        warn(
            f"{len(left_out):,} of {dataset.n_labels:,} labels {be} left out of the comparison, "
            f"because fewer than {MIN_LABEL_ROWS} training rows have {them}, or do not: "
            f"{listed([dataset.label_names[label] for label in left_out])}."
        )
    rows = of_labels(dataset.rows(np.concatenate([test for _, test in folds])), labels)
    models = [_model(each, metric, seed) for each in (REGISTRY if methods is None else methods)]
    results: dict[str, _Tested] = {}
    entries = []
    with _told_once():
        for name, title, model in models:
            on_start(title)
            try:
                with limited(time_limit):
                    results[name] = _test(model, dataset, folds, labels)
            except OutOfTime:
                entries.append(Entry(name, title, f"stopped after {time_limit:g} s"))
            except InputError as error:
                entries.append(Entry(name, title, str(error)))
            else:
                entries.append(_measured(Entry(name, title), results[name], rows, metric))
    done = [each for each in entries if each.metrics is not None]
    done.sort(key=lambda each: -(each.metrics or {})[metric])
    ranked = []
    for each in done:
        own, best = (_outputs(results[name], metric) for name in (each.method, done[0].method))
        gap = paired_difference(
            metric, rows.Y, own, best, unknown=rows.unknown, groups=rows.groups, seed=seed
        )
        ranked.append(replace(each, difference=gap))
    return ranked + [each for each in entries if each.metrics is None]


def advice(entries: Sequence[Entry], metric: str = "micro_f1") -> str:
    """Return one sentence: which method to use, because it is best, or as good and much faster."""
    done = [each for each in entries if each.metrics is not None]
    if not done:
        return "No method finished; allow more time."
    best, title = done[0], METRIC_TITLES.get(metric, metric)
    if best.difference is not None and np.isnan(best.difference.low):
        return "There are too few test rows (or groups) to tell which method is better."
    for each in done[1:]:
        gap = each.difference
        if gap is None or gap.high < 0 or not each.seconds or not best.seconds:
            continue
        if (times := best.seconds / each.seconds) >= MUCH_FASTER:
            return (
                f"Use {each.title}: not measurably worse than {best.title} on these rows "
                f"({gap.value:+.3f} {title}, 95% interval {gap.low:+.3f} to {gap.high:+.3f}), and "
                f"{times:.0f} times as fast."
            )
    return f"Use {best.title}: best on these rows, and nothing as good is twice as fast."


def _as_dataset(X: Any, Y: Any, groups: Any) -> MultiLabelDataset:
    features: Any = table_columns(X)
    if features is None:
        features = X if sp.issparse(X) or isinstance(X, MappedRows) else np.asarray(X)
    targets = targets_of_rows(features, Y)
    if groups is None and isinstance(Y, MultiLabelDataset):
        groups = Y.groups
    return MultiLabelDataset(
        features, targets.labels, targets.names, unknown=targets.unknown, groups=groups
    )


def _folds(
    dataset: MultiLabelDataset, split: Split | None, n_folds: int | None, seed: int
) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    if n_folds is None:
        kind = "random" if dataset.groups is None else "group"
        split = split or make_split(dataset, kind, seed=seed)
        return [rows_of(split)]
    if split is not None:
        raise InputError("split and n_folds exclude each other; leave one out.")
    return make_folds(dataset, n_folds, seed)


def rows_of(split: Split) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows of a split to learn from, and those to test on."""
    return np.sort(np.concatenate([split.train, split.validation])), split.test


def make_folds(
    dataset: MultiLabelDataset, n_folds: int, seed: int
) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Return the rows to learn from and to test on in each fold."""
    if n_folds < 2:
        raise InputError(f"There cannot be {n_folds} folds; use at least 2.")
    rows = Rows(dataset.X, dataset.Y, dataset.unknown, groups=dataset.groups)
    fold = assign_folds(rows, n_folds, seed)
    numbers = range(int(fold.max()) + 1)
    return [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in numbers]


def _model(competitor: Competitor, metric: str, seed: int) -> tuple[str, str, Any]:
    """Return name, title and unfitted estimator of a method."""
    if isinstance(competitor, str):
        method = find_method(competitor)
        thresholds: dict[str, Any] = {"threshold_metric": metric} if metric in SET_METRICS else {}
        return competitor, method.title, method.estimator(random_state=seed, **thresholds)
    name, model = competitor
    return name, name, model


def _test(
    model: Any,
    dataset: MultiLabelDataset,
    folds: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]],
    labels: NDArray[np.int64],
) -> _Tested:
    """Fit a method and predict some labels of the test rows, in each fold."""
    scores, predicted = [], []
    started = time.perf_counter()
    for train, test in folds:
        learned = dataset.rows(train)
        model.fit(learned.X, learned)
        scores.append(model.predict_proba(dataset.X[test]))
        predicted.append(model.threshold_rule_.apply(scores[-1]))
    seconds = time.perf_counter() - started
    return _Tested(
        np.concatenate(scores)[:, labels],
        vstack(predicted)[:, labels],
        seconds,
        _file_bytes(model),
    )


def _file_bytes(model: Any) -> int | None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        try:
            model.save(path)
        except InputError:
            return None
        return path.stat().st_size


def _outputs(tested: _Tested, metric: str) -> NDArray[Any]:
    return tested.scores if metric == "precision_at_1" else tested.predicted


def _measured(entry: Entry, tested: _Tested, rows: MultiLabelDataset, metric: str) -> Entry:
    counts = count(rows.Y, tested.predicted, rows.unknown)
    at_1 = float(np.nanmean(rank(rows.Y, tested.scores, rows.unknown).precision_at_k(1)))
    metrics = {
        name: at_1 if name == "precision_at_1" else float(counts.value(name))
        for name in dict.fromkeys((*METRIC_TITLES, metric))
    }
    skills = label_skills(rows.Y, tested.scores, unknown=rows.unknown, groups=rows.groups)
    return replace(
        entry,
        seconds=tested.seconds,
        file_bytes=tested.file_bytes,
        metrics=metrics,
        skills=dict(zip(rows.label_names, skills, strict=True)),
    )


@contextmanager
def _told_once() -> Iterator[None]:
    """Give each user warning of the block once, at its end: many methods say the same."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for text, kind in {str(w.message): w.category for w in caught}.items():
        if issubclass(kind, UserWarning):
            warn(text, category=kind)
