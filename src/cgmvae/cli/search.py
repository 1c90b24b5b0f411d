"""``cgmvae search``: try many settings, and save the ensemble of the best."""

from __future__ import annotations

import csv
import math
import shlex
import shutil
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from cgmvae.cli import arguments, console, models
from cgmvae.cli.arguments import SourceArgument, option
from cgmvae.cli.fit import (
    choose_split,
    load_training_data,
    print_metrics,
    test_model,
    warn_of_optimism,
)
from cgmvae.data import MultiLabelDataset
from cgmvae.data.files import atomic_path
from cgmvae.data.splits import Split
from cgmvae.errors import InputError
from cgmvae.evaluation import METRIC_TITLES, Scored, evaluate, paired_difference


def search(
    source: SourceArgument,
    out: arguments.ModelFileOption = None,
    method: Annotated[
        str, option("NAME", "A neural network listed by 'cgmvae methods'.")
    ] = "cgmvae",
    space: Annotated[
        str, option("SPACE", "default, paper, paper-full, or a JSON file.")
    ] = "default",
    settings: Annotated[int | None, option("N", "Settings to try (default: all).", min=1)] = None,
    best: Annotated[int, option("N", "Settings in the ensemble.", min=1)] = 8,
    metric: Annotated[str, option("NAME", "Metric to compare settings by.")] = "mean_of_five",
    setting: Annotated[
        list[str] | None, option("NAME=VALUE", "A setting that all models share.")
    ] = None,
    epochs: arguments.EpochsOption = None,
    results: Annotated[
        str | None, option("FILE", "Write the results of all settings as CSV.")
    ] = None,
    device: arguments.DeviceOption = None,
    seed: arguments.SeedOption = 0,
    split: Annotated[
        str | None, option("KIND", "How test rows are set aside; see 'cgmvae fit'.")
    ] = None,
    overwrite: arguments.OverwriteOption = False,
    json: arguments.JsonOption = False,
) -> None:
    """Try many settings at once, and save the ensemble of the best.

    All settings are trained together, and those that fall behind are dropped early. Test rows
    choose nothing; at the end, the ensemble is compared on them with what 'cgmvae fit' makes of the
    same method without a search. If the search is interrupted, the same command resumes it.
    """
    from cgmvae.methods import find_method
    from cgmvae.methods.neural import NeuralClassifier
    from cgmvae.search import PackedSearch, read_space

    base = models.make_model(method, {"epochs": epochs, "device": device}, setting or ())
    if not isinstance(base, NeuralClassifier):
        title = find_method(method).title
        raise InputError(
            f"A search trains neural networks, which {title} is not; choose another --method."
        )
    tried = read_space(space, method)
    arguments.check_space(tried, type(base))
    out = out or arguments.target_for(source.name, ".cgmvae")
    for target in filter(None, (out, results)):
        arguments.check_target(target, source.name, overwrite=overwrite)
    with console.kept_warnings() as said:
        dataset = load_training_data(source)
        chosen = choose_split(dataset, split, seed)
        warn_of_optimism(dataset, chosen)
    found = PackedSearch(
        base,
        tried,
        n_settings=settings,
        n_best=best,
        metric=metric,
        folder=f"{out}.search",
        random_state=seed,
    )
    if Path(f"{out}.search").exists() and not json:
        console.print_text(f"Resuming the search in {out}.search.")
    _run(found, dataset, chosen)
    model = found.best_estimator_
    model.fit_warnings_ = said
    model.origin_ = models.origin_record(source, dataset, chosen)
    report = test_model(model, dataset, chosen, out)
    report |= {"method": method, "tried": len(found.results_)}
    plain = models.make_model(
        method, {"epochs": epochs, "device": device, "random_state": seed}, setting or ()
    )
    report |= _beside_defaults(model, plain, dataset, chosen)
    report["best"] = [
        dict(result.setting) | {"value": result.value} for result in found.results_[:best]
    ]
    if json:
        console.print_json(report)
    else:
        _print(report)
    # The model last, as 'fit' does.
    if results is not None:
        names = list(found.results_[0].setting)
        table = [[*(r.setting[n] for n in names), r.value, r.epochs] for r in found.results_]
        with (
            atomic_path(results) as temporary,
            temporary.open("w", encoding="utf-8", newline="") as file,
        ):
            csv.writer(file).writerows([[*names, "value", "epochs"], *table])
    models.save_model(model, out)
    shutil.rmtree(f"{out}.search", ignore_errors=True)
    if not json:
        console.print_text(
            f"Wrote {out}. To predict: cgmvae predict {shlex.quote(out)} SOURCE --out FILE.csv"
        )


def _run(search: Any, dataset: MultiLabelDataset, split: Split) -> None:
    rows, held_out = dataset.rows(split.train), dataset.rows(split.validation)
    from cgmvae.training.selection import selection_title

    best, done, lengths = -math.inf, dict[int, int](), dict[int, int]()
    try:
        with console.training_progress("Search", lambda: selection_title(search.metric)) as update:

            def progress(pack: int, packs: int, epoch: int, epochs: int, value: float) -> None:
                nonlocal best
                best, done[pack], lengths[pack] = max(best, value), epoch, epochs
                for earlier in range(pack):  # trained before this command was stopped and resumed
                    done.setdefault(earlier, lengths.setdefault(earlier, epochs))
                total = sum(lengths.get(each, epochs) for each in range(packs))
                update(sum(done.values()), total, best)

            search.progress = progress
            search.fit(rows.X, rows, validation_data=(held_out.X, held_out))
    except KeyboardInterrupt:
        if not Path(search.folder).exists():
            raise
        raise console.Stopped(f"Stopped; the same command resumes from {search.folder}.") from None


def _beside_defaults(
    model: Any, plain: Any, dataset: MultiLabelDataset, split: Split
) -> dict[str, Any]:
    """Fit a model without a search; compare the metric of the thresholds on the test rows."""
    rows = dataset.rows(np.sort(np.concatenate([split.train, split.validation])))
    with console.training_progress("The defaults", plain.selection_title) as progress:
        plain.set_params(progress=progress).fit(rows.X, rows, groups=rows.groups)
    test = dataset.rows(split.test)
    scores, rule = plain.predict_proba(test.X), plain.threshold_rule_
    found = evaluate(Scored(test.Y, scores, test.unknown), rule=rule)
    gain = paired_difference(
        model.threshold_metric,
        test.Y,
        model.predict(test.X),
        rule.apply(scores),
        unknown=test.unknown,
        groups=test.groups,
    )
    return {
        "defaults": console.without_nan(found.metrics),
        "gain": {"metric": model.threshold_metric} | console.without_nan(gain._asdict()),
    }


def _print(report: dict[str, Any]) -> None:
    split = report["split"]
    console.print_text(
        f"Tried {report['tried']} settings on {split['rows']['train']:,} training rows."
    )
    if report["columns"]:
        console.print_text(models.columns_text(report["columns"]))
    columns = list(report["best"][0])
    console.print_table(
        f"The {len(report['best'])} best, on validation rows",
        ["", *columns],
        [[str(i + 1), *row.values()] for i, row in enumerate(report["best"])],
    )
    print_metrics(f"Their ensemble on {split['rows']['test']:,} test rows", report["metrics"])
    print_metrics("The default settings on the same rows", report["defaults"])
    gain = report["gain"]
    words = "no better than"
    if gain["low"] is not None and gain["low"] > 0:
        words = "better than"
    elif gain["high"] is not None and gain["high"] < 0:
        words = "worse than"
    span = " to ".join(f"{gain[end]:+.3f}" for end in ("low", "high") if gain[end] is not None)
    console.print_text(
        f"The ensemble is {words} the defaults: {gain['value']:+.3f} "
        f"{METRIC_TITLES.get(gain['metric'], gain['metric'])}"
        f"{f', 95% interval {span}' if span else ''}."
        + ("" if words == "better than" else " 'cgmvae fit' is enough here.")
    )
