"""Where mixture prior and contrastive term help: few rows, unknown labels, rare labels.

C-GMVAE against plain cross-entropy with the same network, from the same seeds. Intervals are over
splits, so the study has five of them with one seed each: a run averages several members already.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from cgmvae.evaluation import METRIC_TITLES, PAPER_METRICS
from cgmvae.studies.ablation import COMPLETE, PLAIN, Variant, differences_by_data, variant_runs
from cgmvae.studies.results import Results
from cgmvae.studies.rows import load_parts
from cgmvae.studies.spec import RunSpec, Scope, Study, data_choice, is_available, why_missing
from cgmvae.studies.statistics import (
    SHARED_ROWS,
    Difference,
    difference_text,
    finding,
    interval_of_mean,
    paired_difference,
    spread,
)
from cgmvae.studies.tables import Table, number

DATA = ("bbs_2003_2009", "mirflickr_tags", "yeast", "scene", "sider", "delicious")
_data = data_choice(DATA, quick=("yeast",))
SPLITS, SEEDS = (0, 1, 2, 3, 4), (0,)

#: Rare labels are the rarest 1 in this many.
RARE_FACTOR = 3


#: How much a model has to learn from, by title: fields of its runs.
EVERYTHING = "all rows, all labels"
REGIMES: Mapping[str, Mapping[str, Any]] = {
    **{f"{share:.0%} of the rows": {"train_fraction": share} for share in (0.05, 0.1, 0.25)},
    EVERYTHING: {},
    **{
        f"{share:.0%} of the labels unknown": {"hidden_labels": share}
        for share in (0.25, 0.5, 0.75)
    },
}


def _variants(regime: str) -> list[Variant]:
    """Return C-GMVAE and plain cross-entropy in a regime."""
    return [replace(variant, **REGIMES[regime]) for variant in (COMPLETE, PLAIN)]


def runs(scope: Scope) -> list[RunSpec]:
    """Return both settings in every regime on every available data set."""
    variants = [variant for regime in REGIMES for variant in _variants(regime)]
    return variant_runs(scope.with_defaults(SPLITS, SEEDS), _data(scope), variants)


#: One difference per metric, by regime and data set.
Found = Mapping[str, Mapping[str, Sequence[Difference]]]


def _summary_table(found: Found) -> Table:
    """Return the differences in each regime, over the data sets."""
    rows, notes = [], [_SUMMARY_NOTE]
    for regime, by_data in found.items():
        rows.append([regime, *map(_over_data, zip(*by_data.values(), strict=True))])
        notes.append(_verdict(regime, [each for own in by_data.values() for each in own]))
    titles = ["regime", *METRIC_TITLES.values()]
    return Table("C-GMVAE minus plain cross-entropy, over the data sets", titles, rows, notes)


_SUMMARY_NOTE = (
    "Same network, splits and seeds, KL and contrastive weights 0; protocol validation. Mean over "
    "the data sets that have runs, in brackets its 95% interval over them; then on how many the "
    "interval over splits lies above or below 0. One interval in twenty misses 0 by chance: the "
    "sentences below say that the terms help or hurt where more do than chance would explain, as "
    "if metrics and splits were independent. They are not: splits share rows. "
    "Validation rows are complete, with all their labels, in every regime."
)


def _over_data(differences: Sequence[Difference]) -> str:
    means = np.array([each.mean for each in differences if each.n_splits > 0])
    verdicts = Counter(each.verdict for each in differences)
    return (
        f"{difference_text(interval_of_mean(means))}; {verdicts['found']} above, "
        f"{verdicts['not found']} below of {len(means)}"
    )


def _verdict(where: str, differences: Sequence[Difference]) -> str:
    """Return a sentence that counts the pairs of data set and metric in which the terms help."""
    verdicts = Counter(each.verdict for each in differences if each.n_splits > 0)
    if not verdicts:
        return f"{where}: no runs yet."
    known = sum(verdicts.values()) - verdicts["not known"]
    if known == 0:
        return f"{where}: not known, for lack of a second split."
    above, below = verdicts["found"], verdicts["not found"]
    # More intervals lie on one side of 0 than the expected one in forty.
    helps, hurts = (bool(stats.binom.sf(n - 1, known, 0.025) < 0.05) for n in (above, below))
    judgment = _JUDGMENTS[helps, hurts]
    return (
        f"{where}: mixture prior and contrastive term {judgment}: higher in {above}, lower in "
        f"{below}, within noise in {verdicts['within noise']} of {known} pairs of data set and "
        "metric."
    )


_JUDGMENTS = {
    (True, False): "help",
    (False, True): "hurt",
    (True, True): "help on some data and hurt on other",
    (False, False): "stay within noise",
}


def _data_table(results: Results, data: str, found: Found) -> Table:
    if not is_available(data):
        return Table(data, ["data"], [[why_missing(data)]])
    rows = []
    for regime, by_data in found.items():
        pair = [variant.spec(results.scope, data) for variant in _variants(regime)]
        ours, plain = (results.metric(spec, PAPER_METRICS[0]) for spec in pair)
        n_pairs = int((~np.isnan(ours - plain)).sum())
        if n_pairs == 0:
            rows.append([regime, results.why_empty(*pair)])
            continue
        levels = results.spreads(pair[0]).values()
        cells = [
            f"{number(own.mean)} ({difference_text(difference)})"
            for own, difference in zip(levels, by_data[data], strict=True)
        ]
        rows.append([regime, *cells, str(n_pairs)])
    note = (
        "C-GMVAE's mean, protocol validation, and how much higher it is than that of plain "
        "cross-entropy on the same splits and seeds, with the 95% interval over splits. "
        f"{SHARED_ROWS}"
    )
    return Table(data, ["regime", *METRIC_TITLES.values(), "pairs"], rows, [note])


def rare_labels(train_positives: Sequence[int]) -> NDArray[np.bool_]:
    """Mark the third of the labels with the fewest training rows, (n_labels,).

    Examples
    --------
    >>> rare_labels([9, 2, 5, 1, 7, 8]).tolist()
    [False, True, False, True, False, False]
    """
    order = np.argsort(train_positives, kind="stable")
    rare = np.zeros(len(order), bool)
    rare[order[: max(1, len(order) // RARE_FACTOR)]] = True
    return rare


@lru_cache(maxsize=64)
def _tested_labels(data: str, split: int, official: bool) -> NDArray[np.bool_]:
    """Mark the labels that occur in the test rows, (n_labels,); the others cannot be evaluated."""
    labels = load_parts(RunSpec(data, "cgmvae", split=split, official=official)).test.Y
    return np.asarray(labels.sum(axis=0)).ravel() > 0


def rare_scores(results: Results, spec: RunSpec) -> NDArray[np.float64]:
    """Return the mean F1 of rare and of other labels, and the number of rare labels left out.

    (3, n_splits, n_seeds); labels that do not occur in the test rows are left out.
    """
    grid = results.reports(spec)
    found = np.full((3, len(grid), len(grid[0])), np.nan)
    for i, split in enumerate(results.scope.chosen_splits()):
        for j, report in enumerate(grid[i]):
            if report is not None:
                rare = rare_labels(report["train_positives"])
                tested = _tested_labels(spec.data, split, results.scope.official)
                f1 = np.array(report["label_f1"], np.float64)
                for k, chosen in enumerate((rare & tested, ~rare & tested)):
                    found[k, i, j] = f1[chosen].mean() if chosen.any() else np.nan
                found[2, i, j] = (rare & ~tested).sum()
    return found


def _rare_table(results: Results) -> Table:
    rows, rare, beyond = [], {}, {}
    for data in filter(is_available, _data(results.scope)):
        ours, plain = (
            rare_scores(results, variant.spec(results.scope, data)) for variant in (COMPLETE, PLAIN)
        )
        rare[data], others = (paired_difference(ours[i], plain[i]) for i in (0, 1))
        beyond[data] = paired_difference(ours[0] - plain[0], ours[1] - plain[1])
        means = (number(spread(each).mean) for each in (ours[0], plain[0]))
        left_out = number(spread(ours[2]).mean, 1)
        rows.append([data, *means, *map(difference_text, (rare[data], others)), left_out])
    columns = ["data", COMPLETE.title, PLAIN.title, "difference", "difference on the others"]
    notes = [
        "All rows, all labels. Mean F1 of the third of the labels with the fewest training rows, "
        "at the threshold learned on the validation rows for micro-F1; 95% intervals over splits. "
        f"{SHARED_ROWS} Labels that do not occur in the test rows are left out; the last column "
        "counts them, as a mean over splits.",
        finding("Higher on the rarest third of the labels", rare),
        finding("Larger gain on the rarest third than on the others", beyond),
    ]
    return Table("F1 of the rarest third of the labels", [*columns, "left out"], rows, notes)


def tables(results: Results) -> list[Table]:
    """Return where the two terms help, also on rare labels, and the numbers of each data set."""
    own = Results(results.scope.with_defaults(SPLITS, SEEDS), results.store)
    found = {
        regime: {
            data: list(differences.values())
            for data, differences in differences_by_data(
                own, _data(own.scope), *_variants(regime)
            ).items()
        }
        for regime in REGIMES
    }
    each = [_data_table(own, data, found) for data in _data(own.scope)]
    return [_summary_table(found), _rare_table(own), *each]


STUDY = Study("regimes", "Where mixture prior and contrastive term help", runs, tables)
