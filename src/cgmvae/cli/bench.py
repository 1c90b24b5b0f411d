"""``cgmvae bench STUDY | status | table | figures``: the paper's tables and figures, and ours.

The work is done in :mod:`cgmvae.studies.commands`; this file defines options and output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from typer.core import TyperGroup

from cgmvae.cli import arguments, console
from cgmvae.cli.arguments import flag, option
from cgmvae.data.files import atomic_path, make_folder
from cgmvae.errors import InputError

if TYPE_CHECKING:
    from cgmvae.studies.commands import Progress as StudyProgress
    from cgmvae.studies.spec import Scope, Study
    from cgmvae.studies.store import Store

#: Running jobs that the progress bar names before it only counts them.
_NAMED_JOBS = 2

_StudyArgument = Annotated[str, typer.Argument(metavar="STUDY", hidden=True)]


def _list_option(help_: str) -> Any:
    return Annotated[str | None, option("A,B", help_)]


#: Annotation and default of the options that select the runs of a study.
_SCOPE_OPTIONS: dict[str, tuple[Any, Any]] = {
    "folder": (Annotated[str, option("FOLDER", "Folder of the runs.")], "runs"),
    "quick": (Annotated[bool, flag("--quick", "A small version, in minutes.")], False),
    "data": (_list_option("Data sets, in place of the study's own."), None),
    "methods": (_list_option("Methods, in place of the study's own."), None),
    "splits": (_list_option("Seeds of the splits, such as 0,1,2."), None),
    "seeds": (_list_option("Seeds of the models, such as 0,1,2."), None),
    "split": (Annotated[str, option("KIND", "random, or official where there is one.")], "random"),
}


class _Studies(TyperGroup):
    """The commands below and one per study; the studies are imported on first use."""

    def list_commands(self, ctx: Any) -> list[str]:
        from cgmvae.studies.commands import STUDIES

        return [*STUDIES, *super().list_commands(ctx)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        own = super().get_command(ctx, cmd_name)
        from cgmvae.studies.commands import STUDIES

        if own is not None or cmd_name not in STUDIES:
            return own
        single = typer.Typer(add_completion=False, rich_markup_mode=None)
        single.command(cmd_name)(_command_of(STUDIES[cmd_name]))
        return typer.main.get_command(single)


app = typer.Typer(
    cls=_Studies, help="Studies: run them, show their progress, write tables.", no_args_is_help=True
)


def _with_scope(command: Callable[..., None]) -> Callable[..., None]:
    """Turn a function of a ``scope`` and a ``store`` into a command with the options for them."""

    def call(**given: Any) -> None:
        from cgmvae.studies.commands import make_scope
        from cgmvae.studies.store import Store

        store = Store(given.pop("folder"))
        scope = make_scope(**{n: given.pop(n) for n in _SCOPE_OPTIONS if n != "folder"})
        command(scope=scope, store=store, **given)

    without = {"scope": "Scope", "store": "Store"}
    return arguments.with_options(command, call, _SCOPE_OPTIONS, without)


def _command_of(study: Study) -> Callable[..., None]:
    """Return the command that runs a study and prints its tables."""

    def run(
        scope: Scope,
        store: Store,
        engine: Annotated[str, option("NAME", "local, or ray for a cluster.")] = "local",
        workers: Annotated[
            int | None, option("N", "Parallel jobs on this machine (default 1).", min=1)
        ] = None,
        address: Annotated[str | None, option("TEXT", "Address of a running Ray cluster.")] = None,
        gpus: Annotated[float, option("N", "GPUs per job on Ray.", min=0)] = 0,
        device: Annotated[str, option("NAME", "auto, cpu or cuda.")] = "auto",
    ) -> None:
        from cgmvae.studies import commands

        chosen = commands.make_engine(
            engine, workers=workers, address=address, gpus=gpus, device=device
        )
        try:
            with _progress(study.name) as progress:
                failed = commands.run_study(study, scope, store, chosen, on_progress=progress)
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
        f"{study.title}.\n\nExecutes the missing runs, then prints the tables. If it is "
        "interrupted, the same command resumes it."
    )
    return _with_scope(run)


@contextmanager
def _progress(title: str) -> Iterator[Callable[[StudyProgress], None]]:
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
@_with_scope
def status(
    scope: Scope,
    store: Store,
    study: Annotated[str | None, typer.Argument(metavar="[STUDY]", hidden=True)] = None,
) -> None:
    """Show the progress of the studies, and why runs failed.

    STUDY is the name of a study; by default all are shown.
    """
    from cgmvae.studies.commands import STUDIES, describe_failures, find_study, study_status

    chosen = STUDIES.values() if study is None else [find_study(study)]
    counts = [(each.name, *study_status(each, scope, store)) for each in chosen]
    console.print_table("Runs", ["study", "done", "running", "failed", "missing"], counts)
    lines = {line for each in chosen for line in describe_failures(each.runs(scope), store)}
    for line in sorted(lines):
        console.print_text(line)


@app.command()
@_with_scope
def table(
    scope: Scope,
    store: Store,
    study: _StudyArgument,
    format: Annotated[str, option("NAME", "md, tex, html or csv.")] = "md",
    out: Annotated[str | None, option("FILE", "File to write to.")] = None,
    overwrite: arguments.OverwriteOption = False,
) -> None:
    """Write the tables of STUDY from its finished runs."""
    from cgmvae.studies.commands import find_study, study_tables

    if out is not None:
        arguments.check_target(out, overwrite=overwrite)
    text = study_tables(find_study(study), scope, store, format)
    if out is None:
        typer.echo(text, nl=False)
        return
    with atomic_path(out) as temporary:
        temporary.write_text(text, encoding="utf-8")
    console.print_text(f"Wrote {out}.")


@app.command()
@_with_scope
def figures(
    scope: Scope,
    store: Store,
    study: _StudyArgument,
    out: Annotated[str, option("FOLDER", "Folder to save to.")],
    format: Annotated[str, option("NAME", "png, svg or pdf.")] = "png",
) -> None:
    """Draw the figures of STUDY from its finished runs."""
    from cgmvae.studies.commands import find_study
    from cgmvae.studies.results import Results

    if format not in arguments.FIGURE_FORMATS:
        raise InputError(
            f"There is no format {format!r}; choose {', '.join(arguments.FIGURE_FORMATS)}."
        )
    found = find_study(study).figures(Results(scope, store))
    if not found:
        console.print_text(
            f"The study {study} has nothing to draw; see cgmvae bench status {study}."
        )
        return
    folder = make_folder(out)
    for each in found:
        path = folder / f"{each.name}.{format}"
        with console.needs_extra("A figure", "report"):
            from cgmvae.report.results_page import study_display

            drawn = study_display(each).plot().figure_
        arguments.save_figure(drawn, path)
        console.print_text(f"Wrote {path}.")
