"""``cgmvae compare``: a leaderboard of methods on one data set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np

from cgmvae.cli import arguments, console
from cgmvae.cli.arguments import Panel, SourceArgument, flag, option
from cgmvae.cli.fit import choose_split, load_training_data, warn_of_optimism
from cgmvae.errors import InputError
from cgmvae.evaluation import METRIC_TITLES


def compare(
    source: SourceArgument,
    method: Annotated[
        list[str] | None,
        option("NAME", "Only this method of 'cgmvae methods'; repeat for each."),
    ] = None,
    time_limit: Annotated[
        float, option("SECONDS", "Stop a method that takes longer.", min=1)
    ] = 60.0,
    metric: Annotated[
        str, option("NAME", "What methods are sorted by, and thresholds learned for.")
    ] = "micro_f1",
    folds: Annotated[
        int | None, option("N", "Test all rows, in N folds.", panel=Panel.TEST, min=2)
    ] = None,
    split: Annotated[
        str | None, option("KIND", "How test rows are set aside; see 'cgmvae fit'.")
    ] = None,
    per_label: Annotated[
        bool, flag("--per-label", "Show the skill of each method for each label, too.")
    ] = False,
    seed: arguments.SeedOption = 0,
    json: arguments.JsonOption = False,
) -> None:
    """Compare all methods on the same test rows, and say which to use.

    These are C-GMVAE, a mixed forest, linear machines and votes alone, their blend, and the other
    methods of 'cgmvae methods'. Test rows are those of 'cgmvae fit' with the same seed. The
    difference of each to the best has a 95% interval from a paired bootstrap; skill is how much
    better probabilities are than the frequency of the label. Labels that fewer than 20 training
    rows have, or do not have, are left out.
    """
    from cgmvae.studies.leaderboard import advice, leaderboard, make_folds, rows_of

    if folds is not None and split is not None:
        raise InputError("--folds and --split exclude each other; leave one out.")
    source.check()
    dataset = load_training_data(source)
    if folds is None:
        chosen = choose_split(dataset, split, seed)
        warn_of_optimism(dataset, chosen)
        parts = [rows_of(chosen)]
    else:
        parts = make_folds(dataset, folds, seed)
    with console.steps() as step:
        entries = leaderboard(
            dataset,
            parts,
            methods=method,
            metric=metric,
            time_limit=time_limit,
            seed=seed,
            on_start=lambda title: step(f"{title} …"),
        )
    n_rows = sum(len(test) for _, test in parts)
    sentence = advice(entries, metric)
    names = [*entries[0].skills] if per_label else []
    if json:
        records = [console.without_nan(entry.record(names)) for entry in entries]
        report = {"data": dataset.name, "rows": n_rows, "folds": folds, "metric": metric}
        console.print_json(report | {"methods": records, "advice": sentence})
        return
    _print(entries, f"{dataset.name}: {n_rows:,} test rows", metric)
    if per_label:
        _print_skills([entry for entry in entries if entry.skills], names)
    console.print_text(sentence)


def _print(entries: Sequence[Any], title: str, metric: str) -> None:
    """Print the leaderboard; what differs from the best beside the metric it is sorted by."""
    heads = ["method", METRIC_TITLES.get(metric, metric), "to the best", "95% from", "to"]
    others = [name for name in METRIC_TITLES if name != metric]
    heads += [*(METRIC_TITLES[name] for name in others), "skill", "well", "seconds", "MB"]
    rows = []
    done = [entry for entry in entries if entry.metrics is not None]
    for entry in done:
        record = entry.record()
        size = record["file_bytes"]
        gap = [record[name] for name in ("difference", "low", "high")]
        rows.append(
            [
                entry.title,
                console.metric_text(record[metric]),
                *("–" if entry is done[0] else _signed(value) for value in gap),
                *(console.metric_text(record[name]) for name in others),
                console.metric_text(record["mean_skill"]),
                record["labels_predicted_well"],
                f"{record['seconds']:.1f}",
                None if size is None else f"{size / 1e6:.2f}",
            ]
        )
    console.print_table(
        title,
        heads,
        rows,
        caption="Skill is the mean over labels of how much better the probabilities are than the "
        "frequency of the label; well is the number of labels predicted well. Each interval is of "
        "one comparison.",
    )
    for entry in entries:
        if entry.note:
            console.print_text(f"Without result: {entry.title} ({entry.note.rstrip('.')}).")


def _print_skills(entries: Sequence[Any], names: Sequence[str]) -> None:
    rows = [
        [name, *(console.metric_text(entry.skills[name].value) for entry in entries)]
        for name in names
    ]
    console.print_table("Skill for each label", ["label", *(e.title for e in entries)], rows)


def _signed(value: float | None) -> str:
    return "–" if value is None or np.isnan(value) else f"{value:+.3f}"
