"""``cgmvae bench STUDY | status | table | figures``: the paper's tables and figures, and ours.

What the commands do is in :mod:`cgmvae.studies.commands`; this file is how they look.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from typer.core import TyperGroup

from cgmvae.cli.extras import needs_extra
from cgmvae.cli.output import (
    Stopped,
    print_table,
    print_text,
    progress_bar,
    say_warning,
)
from cgmvae.cli.targets import PICTURES, OverwriteOption, check_target, write_picture
from cgmvae.data.files import atomic_path, make_folder
from cgmvae.errors import InputError

if TYPE_CHECKING:
    from cgmvae.studies.commands import Progress as StudyProgress
    from cgmvae.studies.engines import Engine
    from cgmvae.studies.spec import Scope, Study
    from cgmvae.studies.store import Store

#: Jobs under way that the bar names; of more it says the number.
_NAMED_JOBS = 2

_FolderOption = Annotated[str, typer.Option(metavar="FOLDER", help="Where the runs are kept.")]
_QuickOption = Annotated[bool, typer.Option("--quick", help="A small version, in minutes.")]
_StudyArgument = Annotated[str, typer.Argument(metavar="STUDY", hidden=True)]


def _list_option(help_: str) -> Any:
    return Annotated[str | None, typer.Option(metavar="A,B", help=help_)]


#: Options that say how much of a study is meant, as :func:`make_scope` knows them.
_SCOPE_OPTIONS: dict[str, tuple[Any, Any]] = {
    "folder": (_FolderOption, "runs"),
    "quick": (_QuickOption, False),
    "data": (_list_option("Data sets in place of the study's own."), None),
    "methods": (_list_option("Methods in place of the study's own."), None),
    "splits": (_list_option("Seeds of the splits, such as 0,1,2."), None),
    "seeds": (_list_option("Seeds of the models, such as 0,1,2."), None),
}


class _Studies(TyperGroup):
    """The commands below, and one for each study; these are loaded when somebody asks."""

    def list_commands(self, ctx: Any) -> list[str]:
        from cgmvae.studies.commands import STUDIES

        return [*STUDIES, *super().list_commands(ctx)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        from cgmvae.studies.commands import STUDIES

        if cmd_name not in STUDIES:
            return None
        alone = typer.Typer(add_completion=False, rich_markup_mode=None)
        alone.command(cmd_name)(_command_of(STUDIES[cmd_name]))
        return typer.main.get_command(alone)


app = typer.Typer(
    cls=_Studies,
    help="Studies: run them, see how far they are, write tables.",
    no_args_is_help=True,
)


def _with_scope(command: Callable[..., None]) -> Callable[..., None]:
    """Turn a function of a ``scope`` and a ``store`` into a command with the options for them."""
    hints = get_type_hints(command, globals() | _experiment_types(), include_extras=True)
    own = [
        p.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[p.name])
        for p in inspect.signature(command).parameters.values()
        if p.name not in ("scope", "store")
    ]
    scoping = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)
        for name, (hint, default) in _SCOPE_OPTIONS.items()
    ]

    def run(**given: Any) -> None:
        from cgmvae.studies.commands import make_scope
        from cgmvae.studies.store import Store

        store = Store(given.pop("folder"))
        names = [name for name in _SCOPE_OPTIONS if name != "folder"]
        scope = make_scope(**{name: given.pop(name) for name in names})
        command(scope=scope, store=store, **given)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__annotations__ = {p.name: p.annotation for p in [*own, *scoping]}
    run.__signature__ = inspect.Signature([*own, *scoping])  # type: ignore[attr-defined]
    return run


def _experiment_types() -> dict[str, Any]:
    """Return stand-ins for the types that are not loaded yet; no option has them."""
    return {"Scope": object, "Store": object}


def _command_of(study: Study) -> Callable[..., None]:
    """Return the command that runs a study and prints its tables."""

    def run(
        scope: Scope,
        store: Store,
        engine: Annotated[
            str, typer.Option(metavar="NAME", help="local, or ray for a cluster.")
        ] = "local",
        workers: Annotated[
            int | None,
            typer.Option(min=1, metavar="N", help="Jobs at a time on this machine (default 1)."),
        ] = None,
        address: Annotated[
            str | None, typer.Option(metavar="TEXT", help="Of a Ray cluster that is running.")
        ] = None,
        gpus: Annotated[
            float, typer.Option(min=0, metavar="N", help="Accelerators of each job on Ray.")
        ] = 0,
        device: Annotated[str, typer.Option(metavar="NAME", help="auto, cpu or cuda.")] = "auto",
    ) -> None:
        from cgmvae.studies.commands import make_engine

        chosen = make_engine(engine, workers=workers, address=address, gpus=gpus, device=device)
        _run_and_print(study, scope, store, chosen)

    run.__doc__ = (
        f"{study.title}.\n\nRuns what is missing, then prints the tables. When it is stopped, the "
        "same command goes on."
    )
    return _with_scope(run)


def _run_and_print(study: Study, scope: Scope, store: Store, engine: Engine) -> None:
    from cgmvae.studies.commands import describe_failures, run_study, study_tables

    try:
        with _progress(study.name) as tell:
            failed = run_study(study, scope, store, engine, on_progress=tell)
    except KeyboardInterrupt:
        raise Stopped(
            f"Stopped; what is done is kept in {store.folder}, and the same command goes on."
        ) from None
    typer.echo(study_tables(study, scope, store, "md"), nl=False)
    for line in describe_failures(failed, store):
        say_warning(line)
    if failed:
        raise typer.Exit(1)


@contextmanager
def _progress(title: str) -> Iterator[Callable[[StudyProgress], None]]:
    """Show a bar: runs done, what runs now, what could not be made."""
    now = TextColumn("{task.fields[now]}", markup=False)
    columns = (TextColumn(title), BarColumn(bar_width=20), MofNCompleteColumn(), now)
    with progress_bar(*columns) as bar:
        task = bar.add_task(title, total=None, now="")

        def tell(progress: StudyProgress) -> None:
            bar.update(task, completed=progress.done, total=progress.total, now=_now(progress))

        yield tell


def _now(progress: StudyProgress) -> str:
    """Say in a few words what is going on."""
    named = [f"{job[0].method} on {job[0].data}" for job in progress.running]
    more = len(named) - _NAMED_JOBS
    parts = [", ".join(named[:_NAMED_JOBS]) + (f" and {more} more" if more > 0 else "")]
    if progress.elsewhere:
        parts.append(f"{len(progress.elsewhere)} jobs elsewhere")
    if progress.failed:
        parts.append(f"{len(progress.failed)} failed")
    return "; ".join(filter(None, parts))


@app.command()
@_with_scope
def status(
    scope: Scope,
    store: Store,
    study: Annotated[str | None, typer.Argument(metavar="[STUDY]", hidden=True)] = None,
) -> None:
    """Show how far the studies are, and why runs failed.

    STUDY is one of them; without it, all are shown.
    """
    from cgmvae.studies.commands import STUDIES, describe_failures, find_study, study_status

    chosen = STUDIES.values() if study is None else [find_study(study)]
    counts = [(each.name, *study_status(each, scope, store)) for each in chosen]
    print_table("Runs", ["study", "done", "running", "failed", "missing"], counts)
    lines = {line for each in chosen for line in describe_failures(each.runs(scope), store)}
    for line in sorted(lines):
        print_text(line)


@app.command()
@_with_scope
def table(
    scope: Scope,
    store: Store,
    study: _StudyArgument,
    format: Annotated[str, typer.Option(metavar="NAME", help="md, tex, html or csv.")] = "md",
    out: Annotated[str | None, typer.Option(metavar="FILE", help="Write to a file.")] = None,
    overwrite: OverwriteOption = False,
) -> None:
    """Write the tables of STUDY from the runs that are there."""
    from cgmvae.studies.commands import find_study, study_tables

    if out is not None:
        check_target(out, overwrite=overwrite)
    text = study_tables(find_study(study), scope, store, format)
    if out is None:
        typer.echo(text, nl=False)
        return
    with atomic_path(out) as temporary:
        temporary.write_text(text, encoding="utf-8")
    print_text(f"Wrote {out}.")


@app.command()
@_with_scope
def figures(
    scope: Scope,
    store: Store,
    study: _StudyArgument,
    out: Annotated[str, typer.Option(metavar="FOLDER", help="Where the pictures go.")],
    format: Annotated[str, typer.Option(metavar="NAME", help="png, svg or pdf.")] = "png",
) -> None:
    """Draw the figures of STUDY from the runs that are there."""
    from cgmvae.studies.commands import find_study
    from cgmvae.studies.results import Results

    if format not in PICTURES:
        raise InputError(f"There is no picture {format!r}; choose one of {', '.join(PICTURES)}.")
    found = find_study(study).figures(Results(scope, store))
    if not found:
        print_text(f"The study {study} has nothing to draw; see cgmvae bench status {study}.")
        return
    folder = make_folder(out)
    for each in found:
        path = folder / f"{each.name}.{format}"
        write_picture(_drawn(each), path, format)
        print_text(f"Wrote {path}.")


def _drawn(figure: Any) -> Any:
    with needs_extra("A figure", "report"):
        from cgmvae.report.results_page import study_display

        return study_display(figure).plot().figure_
