"""``cgmvae report``: a self-contained HTML page about a model or about the runs of studies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from cgmvae.cli import arguments, console, models
from cgmvae.cli.arguments import Source, flag, option, with_source
from cgmvae.cli.evaluate import as_fitted, load_labelled
from cgmvae.data import MultiLabelDataset
from cgmvae.errors import InputError

Origin = Mapping[str, Any] | None


@with_source
def report(
    subject: Annotated[str, typer.Argument(metavar="MODEL_OR_RESULTS", hidden=True)],
    source: Source | None = None,
    out: Annotated[
        str | None, option("FILE", "Page to write.", show_default="MODEL.html, here")
    ] = None,
    baselines: Annotated[
        str | None,
        option("CHOICE", "For a model: auto (skips slow ones), all or none.", show_default="auto"),
    ] = None,
    quick: Annotated[
        bool, flag("--quick", "For results: the small versions of the studies.")
    ] = False,
    overwrite: arguments.OverwriteOption = False,
) -> None:
    """Write a page about a model, or about the runs of studies.

    MODEL is a file that 'cgmvae fit' wrote; it records its data and its test rows. The page
    compares its metrics with those of simpler methods, and shows warnings, plots, an explorer of
    the labels, and how to reproduce the result. SOURCE is needed if that data has moved, and for
    other rows.

    RESULTS is a folder of runs that 'cgmvae bench' wrote. The page has the tables and figures of
    every study that has runs there.
    """
    out = out or arguments.target_for(subject, ".html")
    arguments.check_target(out, subject, overwrite=overwrite)
    try:
        is_folder = Path(subject).is_dir()
    except OSError:  # the name is too long for the file system
        is_folder = False
    if is_folder:
        if source is not None or baselines is not None:
            given = "SOURCE" if source is not None else "--baselines"
            raise InputError(f"{given} is for models, but {subject} is a folder; leave it out.")
        _report_results(subject, out, quick=quick)
    elif quick:
        raise InputError(f"--quick is for a folder of runs, which {subject} is not; leave it out.")
    else:
        _report_model(subject, source, out, baselines="auto" if baselines is None else baselines)


def _report_results(folder: str, out: str, *, quick: bool) -> None:
    from cgmvae.studies.spec import Scope
    from cgmvae.studies.store import Store

    with console.needs_extra("A report", "report"):
        from cgmvae.report.results_page import write_results_page

        with console.spinner("Computing tables and drawing figures"):
            found = write_results_page(
                Store(folder), Scope(quick=quick), out, command=models.current_command()
            )
    n_runs = len({spec for results in found for spec in results.done})
    studies = ", ".join(results.study.name for results in found)
    console.print_text(
        f"Wrote {out}, about {n_runs:,} run{'s' if n_runs > 1 else ''} of {studies}."
    )


def _report_model(model: str, source: Source | None, out: str, *, baselines: str) -> None:
    fitted, names = models.load_model(model)
    fitted.origin_ = models.valid_origin(fitted.origin_)
    source = models.source_to_read(model, fitted.origin_, source)
    arguments.check_not_input(Path(out), source.name)
    dataset = load_labelled(source, fitted, names)
    whole = as_fitted(dataset, fitted, names, source.names_present_labels)
    rows = report_rows(fitted.origin_, dataset, whole.in_memory())
    make_page(fitted, rows, out, baselines=baselines)
    console.print_text(f"Wrote {out}, about {rows.test.n_samples:,} rows of {dataset.name}.")


def report_rows(origin: Origin, read: MultiLabelDataset, fitted: MultiLabelDataset) -> Any:
    """Return the rows to report on, and whether a model of this origin was trained on them.

    The recorded split is reproduced on the data as it was ``read``; ``fitted`` has the same rows
    with the model's features and labels.
    """
    from cgmvae.report.rows import ReportRows

    if origin is None or not models.same_data(origin, read):
        return ReportRows.all_of(fitted, "unknown")
    if origin["split"] is None:
        return ReportRows.all_of(fitted, "trained")
    return ReportRows.of_split(fitted, models.recorded_split(origin, read))


def make_page(fitted: Any, rows: Any, out: str, *, baselines: Any = "auto") -> None:
    """Compute a report and write its page."""
    with console.needs_extra("A report", "report"):
        from cgmvae.report.contents import collect
        from cgmvae.report.page import write_page

        with console.steps() as step:
            contents = collect(fitted, rows, origin=fitted.origin_, baselines=baselines, step=step)
            step("Drawing plots and writing the page")
            write_page(fitted, contents, out, command=models.current_command())
