"""``cgmvae report``: one page that anybody can open, about a model or about the runs of studies."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from cgmvae.cli.evaluate import load_labelled, with_labels
from cgmvae.cli.extras import needs_extra
from cgmvae.cli.origin import known_origin, recorded_source, recorded_split, same_data
from cgmvae.cli.output import print_text, working
from cgmvae.cli.sources import Source, feature_places, load_fitted, with_source
from cgmvae.cli.targets import OverwriteOption, check_target, refuse_inputs
from cgmvae.data import MultiLabelDataset
from cgmvae.errors import InputError

Origin = Mapping[str, Any] | None

_SubjectArgument = Annotated[str, typer.Argument(metavar="MODEL_OR_RESULTS", hidden=True)]


@with_source
def report(
    subject: _SubjectArgument,
    out: Annotated[str, typer.Option(metavar="FILE", help="The page, *.html.")],
    source: Source | None = None,
    baselines: Annotated[
        str | None,
        typer.Option(
            metavar="CHOICE",
            help="auto (without slow ones), all or none; of a model.",
            show_default="auto",
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="The small versions of the studies; of results.")
    ] = False,
    overwrite: OverwriteOption = False,
) -> None:
    """Write a page about a model, or about the runs of studies.

    MODEL is a file that 'cgmvae fit' wrote: it knows its data, and which rows test it. Its page has
    numbers beside those of plainer methods, warnings, plots, labels to explore, and how to make it
    all again. SOURCE is needed where that data has moved, and for other rows.

    RESULTS is a folder of runs that 'cgmvae bench' wrote. Its page has the tables and figures of
    every study that has runs there.
    """
    check_target(out, subject, overwrite=overwrite)
    if _is_folder(subject):
        if source is not None or baselines is not None:
            given = "SOURCE" if source is not None else "--baselines"
            raise InputError(f"{given} is for models, and {subject} is a folder; leave it out.")
        _report_results(subject, out, quick=quick)
    elif quick:
        raise InputError(f"--quick is for a folder of runs, and {subject} is none; leave it out.")
    else:
        _report_model(subject, source, out, baselines="auto" if baselines is None else baselines)


def _is_folder(path: str) -> bool:
    try:
        return Path(path).is_dir()
    except OSError:  # too long to be looked for
        return False


def _report_results(folder: str, out: str, *, quick: bool) -> None:
    from cgmvae.studies.spec import Scope
    from cgmvae.studies.store import Store

    with needs_extra("A report", "report"):
        from cgmvae.report.results_page import write_results_page

        with working("Computing tables and drawing figures"):
            found = write_results_page(Store(folder), Scope(quick=quick), out, command=_command())
    n_runs = len({spec for results in found for spec in results.done})
    studies = ", ".join(results.study.name for results in found)
    print_text(f"Wrote {out}, about {n_runs:,} run{'s' if n_runs > 1 else ''} of {studies}.")


def _report_model(model: str, source: Source | None, out: str, *, baselines: str) -> None:
    fitted, names = load_fitted(model)
    fitted.origin_ = known_origin(fitted.origin_)
    source = _source(model, fitted.origin_, source)
    refuse_inputs(Path(out), source.name)
    dataset = load_labelled(source, fitted, names)
    whole = _as_fitted(dataset, fitted, names, "label_sets" in source.options)
    rows = report_rows(fitted.origin_, dataset, whole)
    make_page(fitted, rows, out, baselines=baselines)
    print_text(f"Wrote {out}, about {rows.test.n_samples:,} rows of {dataset.name}.")


def _source(model: str, origin: Origin, given: Source | None) -> Source:
    """Return the data to read: what was given, else what the model was fitted on."""
    hint = f"name the data: cgmvae report {shlex.quote(model)} SOURCE --out FILE."
    if given is not None:
        plain = not (given.options or given.format or given.in_catalog)
        stored = recorded_source(origin) if plain and origin is not None else given
        # A file that was only moved is read as before.
        return given if stored.in_catalog else replace(stored, name=given.name)
    if origin is None:
        raise InputError(f"{model} does not say which data it was fitted on; {hint}")
    stored = recorded_source(origin)
    if not stored.in_catalog and not Path(stored.name).exists():
        raise InputError(f"{stored.name}, which {model} was fitted on, is not there now; {hint}")
    return stored


def _as_fitted(
    dataset: MultiLabelDataset, fitted: Any, names: Any, absent_is_negative: bool
) -> MultiLabelDataset:
    """Return the data set with the model's features and labels, in the model's order."""
    places = feature_places(dataset.feature_names, names, fitted.n_features_in_)
    labelled = with_labels(dataset, fitted.label_names_, absent_is_negative)
    return replace(
        labelled,
        X=dataset.X[:, places],
        feature_names=tuple(dataset.feature_names[place] for place in places),
    ).in_memory()


def report_rows(origin: Origin, read: MultiLabelDataset, fitted: MultiLabelDataset) -> Any:
    """Return the rows to report on, and whether the model was trained on them.

    Parameters
    ----------
    origin : mapping or None
        Where the model comes from.
    read : MultiLabelDataset
        The data as it was read; the recorded split is made again on it.
    fitted : MultiLabelDataset
        The same rows with the model's features and labels.
    """
    from cgmvae.report.rows import ReportRows

    if origin is None or not same_data(origin, read):
        return ReportRows.all_of(fitted, "unknown")
    if origin["split"] is None:
        return ReportRows.all_of(fitted, "trained")
    return ReportRows.of_split(fitted, recorded_split(origin, read))


def make_page(fitted: Any, rows: Any, out: str, *, baselines: Any = "auto") -> None:
    """Compute a report and write its page."""
    with needs_extra("A report", "report"):
        from cgmvae.report.contents import collect
        from cgmvae.report.page import write_page

        with working("Measuring the model beside others"):
            contents = collect(fitted, rows, origin=fitted.origin_, baselines=baselines)
        with working("Drawing plots and writing the page"):
            write_page(fitted, contents, out, command=_command())


def _command() -> str:
    return shlex.join(["cgmvae", *sys.argv[1:]])
