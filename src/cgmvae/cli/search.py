"""``cgmvae search``: from a data set to the ensemble of the best settings."""

from __future__ import annotations

import csv
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from cgmvae.cli.columns import columns_text
from cgmvae.cli.extras import needs_extra
from cgmvae.cli.fit import (
    choose_split,
    describe,
    load,
    make_model,
    save,
    test_metrics,
)
from cgmvae.cli.origin import origin_record
from cgmvae.cli.output import (
    JsonOption,
    Stopped,
    metric_text,
    print_json,
    print_table,
    print_text,
    search_progress,
)
from cgmvae.cli.settings import check_space
from cgmvae.cli.sources import Source, with_source
from cgmvae.cli.targets import PICTURES, OverwriteOption, check_target, write_picture
from cgmvae.data.files import atomic_path
from cgmvae.errors import InputError
from cgmvae.evaluation import METRIC_TITLES


@with_source
def search(
    source: Source,
    out: Annotated[str, typer.Option(metavar="MODEL", help="File of the model, *.cgmvae.")],
    method: Annotated[
        str, typer.Option(metavar="NAME", help="Any method of 'cgmvae methods' that is a network.")
    ] = "cgmvae",
    space: Annotated[
        str, typer.Option(metavar="SPACE", help="default, paper, or a JSON file of values.")
    ] = "default",
    settings: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Settings to try (default: all).")
    ] = None,
    splits: Annotated[
        int, typer.Option(min=1, metavar="N", help="Splits that each setting is tried on.")
    ] = 1,
    seeds: Annotated[int, typer.Option(min=1, metavar="N", help="Seeds on each split.")] = 1,
    best: Annotated[int, typer.Option(min=1, metavar="N", help="Settings in the ensemble.")] = 8,
    metric: Annotated[
        str, typer.Option(metavar="NAME", help="What settings are compared by.")
    ] = "mean_of_five",
    setting: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A setting that all share."),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Passes over the training rows.")
    ] = None,
    results: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write all settings as CSV.")
    ] = None,
    plot: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Draw what each parameter did (png, svg, pdf)."),
    ] = None,
    device: Annotated[
        str | None, typer.Option(metavar="NAME", help="auto (default), cpu or cuda.")
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, max=2**32 - 1, metavar="N", help="Same seed, same result.")
    ] = 0,
    split: Annotated[
        str | None,
        typer.Option(metavar="KIND", help="How test rows are set aside; see 'cgmvae fit'."),
    ] = None,
    overwrite: OverwriteOption = False,
    json: JsonOption = False,
) -> None:
    """Try many settings at once, and save the ensemble of the best.

    Settings are trained together; those that fall behind are left out on the way. Test rows take
    no part. When it is stopped, the same command continues.
    """
    from cgmvae.methods import find_method
    from cgmvae.methods.packed import PackedClassifier
    from cgmvae.search import PackedSearch, read_space

    base = make_model(method, {"epochs": epochs, "device": device}, setting or ())
    if not isinstance(base, PackedClassifier):
        title = find_method(method).title
        raise InputError(f"A search trains networks, and {title} is none; choose another --method.")
    tried = read_space(space, method)
    check_space(tried, type(base))
    for target in filter(None, (out, results, plot)):
        check_target(target, source.name, overwrite=overwrite)
    if plot is not None:
        _picture(plot)
    dataset = load(source)
    chosen = choose_split(dataset, split, seed)
    found = PackedSearch(
        base,
        tried,
        n_settings=settings,
        n_splits=splits,
        n_seeds=seeds,
        n_best=best,
        metric=metric,
        folder=f"{out}.search",
        random_state=seed,
    )
    _run(found, dataset, chosen)
    model = found.best_estimator_
    model.origin_ = origin_record(source, dataset, chosen)
    metrics = test_metrics(model, dataset.rows(chosen.test))
    if results is not None:
        _write_results(found.results_, results)
    if plot is not None:
        _draw(found.results_, plot, metric)
    save(model, dataset, out)
    shutil.rmtree(f"{out}.search", ignore_errors=True)
    report = describe(model, dataset, chosen) | {"model": out, "method": method}
    report |= {"tried": len(found.results_), "metrics": metrics}
    report["best"] = [
        dict(result.setting) | {"value": result.value} for result in found.results_[:best]
    ]
    if json:
        print_json(report)
    else:
        _print(report)


def _run(search: Any, dataset: Any, chosen: Any) -> None:
    rows = dataset.rows(chosen.train)
    held = dataset.rows(chosen.validation)
    given: dict[str, Any] = {"validation_data": (held.X, held)}
    if search.n_splits > 1:
        import numpy as np

        rows = dataset.rows(np.concatenate([chosen.train, chosen.validation]))
        given = {"groups": rows.groups}
    try:
        with search_progress("Search") as progress:
            search.progress = progress
            search.fit(rows.X, rows, **given)
    except KeyboardInterrupt:
        if not Path(search.folder).exists():
            raise
        raise Stopped(f"Stopped; the same command continues from {search.folder}.") from None


def _write_results(results: Sequence[Any], path: str) -> None:
    names = list(results[0].setting)
    with (
        atomic_path(path) as temporary,
        temporary.open("w", encoding="utf-8", newline="") as stream,
    ):
        writer = csv.writer(stream)
        writer.writerow([*names, "value", "epochs"])
        for result in results:
            writer.writerow(
                [*(result.setting[name] for name in names), result.value, result.epochs]
            )


def _draw(results: Sequence[Any], path: str, metric: str) -> None:
    with needs_extra("A plot", "report"):
        from cgmvae.report import plot_effects

        figure = plot_effects(results, metric=metric.replace("_", " "))
    write_picture(figure, Path(path), _picture(path))


def _picture(path: str) -> str:
    """Return the kind of picture that a file's name asks for."""
    kind = Path(path).suffix.removeprefix(".").lower()
    if kind not in PICTURES:
        raise InputError(f"{path} does not end in .png, .svg or .pdf; name a file that does.")
    return kind


def _print(report: dict[str, Any]) -> None:
    split, out = report["split"], report["model"]
    print_text(f"Tried {report['tried']} settings on {split['rows']['train']:,} training rows.")
    if report["columns"]:
        print_text(columns_text(report["columns"]))
    columns = list(report["best"][0])
    print_table(
        f"The {len(report['best'])} best, on validation rows",
        ["", *columns],
        [[str(i + 1), *row.values()] for i, row in enumerate(report["best"])],
    )
    print_table(
        f"Their ensemble on {split['rows']['test']:,} test rows",
        ["thresholds", *METRIC_TITLES.values()],
        [["validation", *(metric_text(report["metrics"][name]) for name in METRIC_TITLES)]],
    )
    print_text(f"Wrote {out}. To predict: cgmvae predict {shlex.quote(out)} SOURCE --out FILE.csv")
