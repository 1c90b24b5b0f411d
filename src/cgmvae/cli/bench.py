"""``cgmvae bench``: the tables of the paper, and ours.

The work is done in :mod:`cgmvae.studies`; this file defines options and output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from typer.core import TyperCommand, TyperGroup

from cgmvae.cli import arguments, console
from cgmvae.cli.arguments import flag, option
from cgmvae.data.files import atomic_path, make_folder
from cgmvae.errors import InputError

if TYPE_CHECKING:
    from cgmvae.studies.commands import Progress as StudyProgress
    from cgmvae.studies.spec import Scope
    from cgmvae.studies.store import Store

#: Running jobs that the progress bar names before it only counts them.
_NAMED_JOBS = 2

_StudyArgument = Annotated[str, typer.Argument(metavar="STUDY", hidden=True)]


@dataclass
class _Runs:
    """The options that select the runs of a study."""

    folder: Annotated[str, option("FOLDER", "Folder of the runs.")] = "runs"
    quick: Annotated[bool, flag("--quick", "A small version, in minutes.")] = False
    data: Annotated[str | None, option("A,B", "Data sets, in place of the study's own.")] = None
    methods: Annotated[str | None, option("A,B", "Methods, in place of the study's own.")] = None
    splits: Annotated[str | None, option("A,B", "Seeds of the splits, such as 0,1,2.")] = None
    seeds: Annotated[str | None, option("A,B", "Seeds of the models, such as 0,1,2.")] = None
    split: Annotated[str, option("KIND", "random, or official where there is one.")] = "random"
    comparisons: Annotated[
        str | None, option("A,B", "Of the ablation: parts, modules, losses, rows, labels.")
    ] = None


class _RunsCommand(TyperCommand):
    """A command with the options of :class:`_Runs`, see :func:`_selected`."""

    def __init__(self, *given: Any, params: Sequence[Any], **more: Any) -> None:
        self._runs = arguments.parameters_of(_Runs)
        super().__init__(*given, params=[*params, *self._runs], **more)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; the options are its context's object."""
        ctx.obj = {parameter.name: ctx.params.pop(parameter.name) for parameter in self._runs}
        return super().invoke(ctx)


def _selected(ctx: typer.Context) -> tuple[Scope | None, Store]:
    """Return the runs that the options select, None if none of them is given, and the store."""
    from cgmvae.studies.commands import make_scope
    from cgmvae.studies.spec import Scope
    from cgmvae.studies.store import Store

    store = Store(ctx.obj.pop("folder"))
    scope = make_scope(**ctx.obj)
    return None if scope == Scope() else scope, store


class _Studies(TyperGroup):
    """The commands below and one per study; what they do is imported when one is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        from cgmvae.studies import STUDIES

        return [*STUDIES, *super().list_commands(ctx)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        own = super().get_command(ctx, cmd_name)
        from cgmvae.studies import STUDIES

        if own is not None or cmd_name not in STUDIES:
            return own
        single = typer.Typer(add_completion=False, rich_markup_mode=None)
        single.command(cmd_name, cls=_RunsCommand)(_command_of(cmd_name, STUDIES[cmd_name].title))
        return typer.main.get_command(single)


app = typer.Typer(
    cls=_Studies, help="Studies: run them, show their progress, write tables.", no_args_is_help=True
)


def _command_of(name: str, title: str) -> Callable[..., None]:
    """Return the command that runs a study and prints its tables."""

    def run(
        ctx: typer.Context,
        engine: Annotated[str, option("NAME", "local, or ray or dask for a cluster.")] = "local",
        workers: Annotated[
            int | None, option("N", "Parallel jobs on this machine (default 1).", min=1)
        ] = None,
        address: Annotated[str | None, option("TEXT", "Address of a running cluster.")] = None,
        gpus: Annotated[float, option("N", "GPUs per job on Ray.", min=0)] = 0,
        device: Annotated[str, option("NAME", "auto, cpu or cuda.")] = "auto",
    ) -> None:
        from cgmvae.studies import commands, find_study
        from cgmvae.studies.spec import Scope
        from cgmvae.training.device import find_device
        from cgmvae.training.engine import open_engine

        scope, store = _selected(ctx)
        study, scope = find_study(name), scope or Scope()
        if engine == "local":
            find_device(device)  # a cluster may have another one
        try:
            with (
                open_engine(engine, n_jobs=workers, address=address, gpus=gpus) as opened,
                study_progress(name) as progress,
            ):
                commands.remember_scope(study, scope, store)
                failed = commands.run_study(
                    study, scope, store, opened, device=device, on_progress=progress
                )
        except KeyboardInterrupt:
            raise console.Stopped(
                f"Stopped; finished runs are kept in {store.folder}, and the same command resumes."
            ) from None
        typer.echo(commands.study_tables(study, scope, store, "md"), nl=False)
        for line in commands.describe_failures(failed, store):
            console.print_warning(line)
        if failed:
            raise typer.Exit(1)

    run.__doc__ = (
        f"{title}.\n\nExecutes the missing runs, then prints the tables. If it is "
        "interrupted, the same command resumes it."
    )
    return run


@contextmanager
def study_progress(title: str) -> Iterator[Callable[[StudyProgress], None]]:
    """Show a bar: finished runs, running jobs, failed jobs."""
    now = TextColumn("{task.fields[now]}", markup=False)
    columns = (TextColumn(title), BarColumn(bar_width=20), MofNCompleteColumn(), now)
    with console.progress_bar(*columns, now="") as bar:

        def update(progress: StudyProgress) -> None:
            named = [f"{job[0].method} on {job[0].data}" for job in progress.running]
            more = len(named) - _NAMED_JOBS
            parts = [", ".join(named[:_NAMED_JOBS]) + (f" and {more} more" if more > 0 else "")]
            if progress.elsewhere:
                parts.append(f"{len(progress.elsewhere)} jobs elsewhere")
            if progress.failed:
                parts.append(f"{len(progress.failed)} failed")
            now = "; ".join(filter(None, parts))
            bar(completed=progress.done, total=progress.total, now=now)

        yield update


@app.command()
def communities(
    methods: Annotated[str, option("A,B", "Methods to fit.")] = "cgmvae",
    data: Annotated[str, option("A,B", "Sets.")] = "birds,plant,vegetation",
    tasks: Annotated[str, option("A,B", "1 and 2 interpolate, 3 extrapolates.")] = "1,2,3",
    environment_only: Annotated[
        bool, flag("--environment-only", "Leave out the coordinates of the sites.")
    ] = False,
    seed: Annotated[int, option("N", "Seed of models and draws.", min=0)] = 0,
    device: Annotated[str, option("NAME", "auto, cpu or cuda.")] = "auto",
    format: Annotated[str, option("NAME", "md, tex, html or csv.")] = "md",
) -> None:
    """Whole communities of species, beside HMSC and DMVP-DRNets.

    Fits methods on the benchmark of Norberg et al. (2019), and prints its measures. The sets are
    read from norberg2019/ in the folder CGMVAE_DATA. Nothing is stored: three sets and three
    tasks take a method a few minutes.
    """
    from cgmvae.studies import communities as study

    _check_format(format)
    names = _words(data)
    try:
        numbers = [int(word) for word in tasks.split(",")]
    except ValueError as error:
        raise InputError(f"{tasks!r} is not a list of tasks; write 1,2,3.") from error
    found = study.run(
        _words(methods),
        names,
        numbers,
        coordinates=not environment_only,
        seed=seed,
        device=device,
    )
    results = _with_bar("communities", found, len(names) * len(numbers))
    _print_tables(study.tables(results), device, format)


@app.command("label-sets")
def label_sets(
    methods: Annotated[str, option("A,B", "cgmvae, blend or both.")] = "cgmvae",
    data: Annotated[str, option("A,B", "Data sets of the catalog, and files.")] = "yeast",
    seed: Annotated[int, option("N", "Seed of splits, models and draws.", min=0)] = 0,
    device: Annotated[str, option("NAME", "auto, cpu or cuda.")] = "auto",
    format: Annotated[str, option("NAME", "md, tex, html or csv.")] = "md",
) -> None:
    """How likely label sets are, beside independence and chains.

    Fits methods on nine tenths of each data set, and prints the mean log-likelihood of the rest: by
    the factors of the method, by the same probabilities if labels were independent, and by
    classifier chains of logistic regressions. Nothing is stored.
    """
    from cgmvae.studies import label_sets as study

    _check_format(format)
    chosen, names = _words(methods), _words(data)
    found = study.run(chosen, names, seed=seed, device=device)
    results = _with_bar("label-sets", found, len(chosen) * len(names))
    _print_tables([study.table(results)], device, format)


def _with_bar(title: str, found: Iterable[Any], total: int) -> list[Any]:
    """Return what an iterator yields, with a bar until it ends."""
    results = []
    columns = (TextColumn(title), BarColumn(bar_width=20), MofNCompleteColumn())
    with console.progress_bar(*columns) as bar:
        bar(completed=0, total=total)
        for result in found:
            results.append(result)
            bar(completed=len(results))
    return results


def _check_format(format: str) -> None:
    from cgmvae.studies.tables import FORMATS

    if format not in FORMATS:
        raise InputError(f"There is no format {format!r}; choose one of {', '.join(FORMATS)}.")


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",")]


def _print_tables(tables: Sequence[Any], device: str, format: str) -> None:
    """Print tables, and where and with what their models were fitted."""
    from cgmvae.studies.communities import origin
    from cgmvae.studies.tables import render

    typer.echo(render([*tables, origin(device)], format), nl=False)


@app.command(cls=_RunsCommand)
def status(
    ctx: typer.Context,
    study: Annotated[str | None, typer.Argument(metavar="[STUDY]", hidden=True)] = None,
) -> None:
    """Show the progress of the studies, those with runs first, and why runs failed.

    STUDY is the name of a study; by default all are shown. Without options, a study has the scope
    that it was run with.
    """
    from cgmvae.studies import STUDIES, find_study
    from cgmvae.studies.commands import describe_failures, remembered_scope, study_status

    scope, store = _selected(ctx)
    chosen = {
        name: (find_study(name), scope or remembered_scope(name, store))
        for name in ([study] if study else STUDIES)
    }
    counts = [(name, *study_status(*each, store)) for name, each in chosen.items()]
    counts.sort(key=lambda row: row[1] == 0)
    console.print_table("Runs", ["study", "done", "running", "failed", "missing"], counts)
    lines = {
        line for found, own in chosen.values() for line in describe_failures(found.runs(own), store)
    }
    for line in sorted(lines):
        console.print_text(line)


@app.command(cls=_RunsCommand)
def table(
    ctx: typer.Context,
    study: _StudyArgument,
    format: Annotated[str, option("NAME", "md, tex, html or csv.")] = "md",
    out: Annotated[str | None, option("FILE", "File to write to.")] = None,
    overwrite: arguments.OverwriteOption = False,
) -> None:
    """Write the tables of STUDY from its finished runs.

    Without options that select runs, all with which the study was run are taken.
    """
    from cgmvae.studies import find_study
    from cgmvae.studies.commands import remembered_scope, study_tables

    scope, store = _selected(ctx)
    if out is not None:
        arguments.check_target(out, overwrite=overwrite)
    chosen = scope or remembered_scope(study, store)
    text = study_tables(find_study(study), chosen, store, format)
    if out is None:
        typer.echo(text, nl=False)
        return
    with atomic_path(out) as temporary:
        temporary.write_text(text, encoding="utf-8")
    console.print_text(f"Wrote {out}.")


@app.command(cls=_RunsCommand)
def figures(
    ctx: typer.Context,
    study: _StudyArgument,
    out: Annotated[str, option("FOLDER", "Folder to save to.")],
    format: Annotated[str, option("NAME", "png, svg or pdf.")] = "png",
) -> None:
    """Draw the figures of STUDY from its finished runs.

    Without options that select runs, all with which the study was run are taken.
    """
    from cgmvae.studies import find_study
    from cgmvae.studies.commands import remembered_scope
    from cgmvae.studies.results import Results

    scope, store = _selected(ctx)
    if format not in arguments.FIGURE_FORMATS:
        raise InputError(
            f"There is no format {format!r}; choose {', '.join(arguments.FIGURE_FORMATS)}."
        )
    chosen = scope or remembered_scope(study, store)
    found = find_study(study).figures(Results(chosen, store))
    if not found:
        console.print_text(
            f"The study {study} has nothing to draw; see cgmvae bench status {study}."
        )
        return
    folder = make_folder(out)
    for each in found:
        path = folder / f"{each.name}.{format}"
        with console.needs_extra("A figure", "report"):
            from cgmvae.report.figures.runs import display_of

            drawn = display_of(each.kind, each.contents).plot().figure_
        arguments.save_figure(drawn, path)
        console.print_text(f"Wrote {path}.")
