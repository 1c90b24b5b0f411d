"""``cgmvae report``: a self-contained HTML page about a model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from cgmvae.cli import arguments, console, models
from cgmvae.cli.arguments import OptionalSourceArgument, Source, option
from cgmvae.cli.evaluate import as_fitted, load_labeled
from cgmvae.data import MultiLabelDataset

Origin = Mapping[str, Any] | None


def report(
    model: arguments.ModelArgument,
    source: OptionalSourceArgument = None,
    out: Annotated[
        str | None, option("FILE", "Page to write.", show_default="MODEL.html, here")
    ] = None,
    baselines: Annotated[str, option("CHOICE", "auto (skips slow ones), all or none.")] = "auto",
    overwrite: arguments.OverwriteOption = False,
) -> None:
    """Write a page about a model.

    MODEL is a file that 'cgmvae fit' wrote; it records its data and its test rows. The page
    compares its metrics with those of simpler methods, and shows warnings, plots, an explorer of
    the labels, and how to reproduce the result. SOURCE is needed if that data has moved, and for
    other rows.
    """
    out = out or arguments.target_for(model, ".html")
    arguments.check_target(out, model, overwrite=overwrite)
    fitted, rows = model_and_rows(model, source, out)
    make_page(fitted, rows, out, baselines=baselines)
    say_written(out, rows)


def model_and_rows(model: str, source: Source | None, out: str) -> tuple[Any, Any]:
    """Return a model and the rows to report on, after checking that ``out`` is not their file."""
    fitted, names = models.load_model(model)
    fitted.origin_ = models.valid_origin(fitted.origin_)
    source = models.source_to_read(model, fitted.origin_, source)
    arguments.check_not_input(Path(out), source.name)
    dataset = load_labeled(source, fitted, names)
    whole = as_fitted(dataset, fitted, names, source.names_present_labels)
    return fitted, report_rows(fitted.origin_, dataset, whole.in_memory())


def say_written(out: str, rows: Any) -> None:
    """Print what was written, and about how many rows."""
    n = rows.test.n_samples
    console.print_text(f"Wrote {out}, about {n:,} row{'s' if n != 1 else ''} of {rows.test.name}.")


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
