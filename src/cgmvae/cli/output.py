"""What the commands print: tables for people, JSON for machines, errors on one line."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

console = Console()
error_console = Console(stderr=True)

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]

#: Control characters, which could steer the terminal; a name may hold them.
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def literal(text: str, *, style: str = "") -> Text:
    """Return a text that is printed as it is: no markup, and control characters escaped."""
    return Text(_CONTROLS.sub(lambda control: repr(control[0])[1:-1], text), style=style)


def say_error(message: str) -> None:
    """Print one line that says what is wrong."""
    _say(f"Error: {message}", style="red")


def say_warning(message: str) -> None:
    """Print one line that says what to watch for."""
    _say(f"Warning: {message}", style="yellow")


class Stopped(Exception):
    """The user stopped a command that has something to say about going on."""


def _say(message: str, *, style: str) -> None:
    error_console.print(literal(" ".join(message.split()), style=style), soft_wrap=True)


def print_json(value: Any) -> None:
    """Print a value as JSON, readable by people too."""
    in_utf8 = "utf" in (sys.stdout.encoding or "").lower()
    typer.echo(json.dumps(value, indent=2, ensure_ascii=not in_utf8))


def print_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], *, caption: str = ""
) -> None:
    """Print a table whose first column is text and whose others are numbers or text.

    No cell is ever cut: on a terminal that is too narrow, each row becomes a list instead, and a
    file or a pipe gets the lines as long as they are.
    """
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for i, column in enumerate(columns):
        table.add_column(literal(column), justify="left" if i == 0 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(literal(cell_text(value)) for value in row))
    table.width = _needed_width(table)
    if table.width > console.width:
        table.width, table.padding = None, 0
        table.width = _needed_width(table)
    print_text(title, style="italic")
    if table.width <= console.width or not console.is_terminal:
        console.print(table, crop=False)
    else:
        for first, *others in rows:
            print_text(cell_text(first), style="bold")
            for column, value in zip(columns[1:], others, strict=True):
                print_text(f"  {column}: {cell_text(value)}")
    if caption:
        print_text(caption)


def _needed_width(table: Table) -> int:
    unbounded = console.options.update(max_width=sys.maxsize)
    return console.measure(table, options=unbounded).maximum


def print_text(text: str, *, style: str = "") -> None:
    """Print a text on one line, however long, and as it is."""
    console.print(literal(text, style=style), soft_wrap=True)


def cell_text(value: Any) -> str:
    """Write a number as people read it."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.0f}" if value.is_integer() and abs(value) >= 10 else f"{value:,.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def metric_text(value: float | None) -> str:
    """Write a metric as the paper's tables do; a dash where it has no value."""
    return "–" if value is None or math.isnan(value) else f"{value:.3f}"


def without_nan(values: Mapping[str, float]) -> dict[str, float | None]:
    """Return numbers for JSON, which has no NaN."""
    return {name: None if math.isnan(value) else value for name, value in values.items()}


def progress_bar(*columns: ProgressColumn) -> Progress:
    """Return a bar on stderr that is gone in the end, and not drawn where nobody watches."""
    hidden = not error_console.is_interactive
    return Progress(*columns, console=error_console, transient=True, disable=hidden)


@contextmanager
def download_progress(title: str) -> Iterator[Any]:
    """Show a bar and give a callback ``(bytes_done, bytes_total or None)``."""
    columns = (TextColumn(title), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with progress_bar(*columns) as progress:
        task = progress.add_task(title, total=None, visible=False)

        def update(done: int, total: int | None) -> None:
            progress.update(task, completed=done, total=total, visible=True)

        yield update


@contextmanager
def reading_progress(title: str) -> Iterator[Any]:
    """Show a bar and give a callback ``(rows_done, share_done or None)``."""
    rows, left = TextColumn("{task.fields[rows]:,} rows"), TimeRemainingColumn()
    columns = (TextColumn(title), BarColumn(), rows, TimeElapsedColumn(), left)
    with progress_bar(*columns) as progress:
        task = progress.add_task(title, total=None, rows=0)

        def update(rows: int, share: float | None) -> None:
            total = None if share is None else 1.0
            progress.update(task, completed=share or 0.0, total=total, rows=rows)

        yield update


@contextmanager
def working(title: str) -> Iterator[None]:
    """Show that something is being done, and for how long."""
    columns = (SpinnerColumn(), TextColumn(title), TimeElapsedColumn())
    with progress_bar(*columns) as progress:
        progress.add_task(title, total=None)
        yield


@contextmanager
def training_progress(title: str) -> Iterator[Any]:
    """Show a bar and give a callback ``(epoch, epochs, best validation metric so far)``."""
    bar, best = BarColumn(bar_width=20), TextColumn("{task.fields[best]}")
    columns = (TextColumn(title), bar, MofNCompleteColumn(), best, TimeRemainingColumn())
    with progress_bar(*columns) as progress:
        task = progress.add_task(title, total=None, best="")

        def update(epoch: int, epochs: int, value: float) -> None:
            best = f"best validation metric {value:.3f}"
            progress.update(task, completed=epoch, total=epochs, best=best)

        yield update


@contextmanager
def search_progress(title: str) -> Iterator[Any]:
    """Show a bar and give a callback ``(pack, packs, epoch, epochs, best metric so far)``."""
    with training_progress(title) as update:
        seen = -math.inf

        def tell(pack: int, packs: int, epoch: int, epochs: int, value: float) -> None:
            nonlocal seen
            seen = max(seen, value)
            update(pack * epochs + epoch, packs * epochs, seen)

        yield tell
