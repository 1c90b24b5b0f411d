"""``cgmvae paper``: every table and figure of the paper, in one folder."""

from __future__ import annotations

from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from joblib import cpu_count

from cgmvae.cli import arguments, console
from cgmvae.cli.arguments import flag, option
from cgmvae.cli.bench import study_progress

if TYPE_CHECKING:
    from cgmvae.studies.commands import Progress


#: Cores that the fits of one job use well.
_FEW_CORES = 2


def paper(
    out: Annotated[str, option("FOLDER", "Folder of the pages and of the runs.")] = "paper",
    quick: Annotated[bool, flag("--quick", "A small version, for two CPU cores.")] = False,
    data: Annotated[str | None, option("A,B", "Data sets, in place of all that are here.")] = None,
    minutes: Annotated[
        float | None, option("N", "Time for all of it (default 30, or 10 with --quick).", min=0.01)
    ] = None,
    workers: Annotated[
        int | None, option("N", "Parallel jobs (default one per core, of more than two).", min=1)
    ] = None,
    device: Annotated[str, option("NAME", "auto, cpu or cuda.")] = "auto",
    pages_only: Annotated[
        bool, flag("--pages-only", "Run nothing: write the pages and figures of finished runs.")
    ] = False,
) -> None:
    """Make the tables and figures of the paper, as a folder of pages.

    Every method is tuned on each data set with as many settings, and has as much time. What takes
    longer is left out, and its page says so; the same command resumes it. Each page has its numbers
    as CSV, too.
    """
    from cgmvae.studies.chapters import Paper
    from cgmvae.training.device import find_device
    from cgmvae.training.engine import open_engine

    names = None if data is None else tuple(word.strip() for word in data.split(","))
    find_device(device)
    whole = Paper(Path(out), quick, names, minutes)
    bars: dict[str, Any] = {}
    try:
        with open_engine(n_jobs=workers or _default_workers()) as engine, ExitStack() as stack:

            def show(name: str, progress: Progress) -> None:
                if name not in bars:
                    stack.close()
                    bars.clear()
                    console.error_console.print(console.literal(f"{name} …"))
                    bars[name] = stack.enter_context(study_progress(name))
                bars[name](progress)

            if pages_only:
                missing = whole.write_pages(_drawer())
            else:
                missing = whole.make(engine, device=device, draw=_drawer(), on_progress=show)
    except KeyboardInterrupt:
        raise console.Stopped(
            f"Stopped; finished runs are kept in {out}, and the same command resumes."
        ) from None
    console.print_text(f"Wrote {Path(out) / 'README.md'} and the pages that it lists.")
    for line in missing:
        console.print_warning(f"Not run for lack of time, or failed: {line}; see its page.")
    if missing:
        raise typer.Exit(1)


def _default_workers() -> int:
    """Return one per core; a fit uses two cores by itself, without starting processes first."""
    return n_cores if (n_cores := cpu_count()) > _FEW_CORES else 1


def _drawer() -> Any:
    """Return a function that draws figures; None without matplotlib."""
    if find_spec("matplotlib") is None:
        console.print_warning('Figures need more packages: pip install "cgmvae[report]"')
        return None
    from cgmvae.report.figures.runs import display_of

    def draw(figure: Any, path: Path) -> None:
        arguments.save_figure(display_of(figure.kind, figure.contents).plot().figure_, path)

    return draw
