"""What the commands print.

Tables are for people, JSON is for programs, and an error is one line on stderr.
"""

from __future__ import annotations

import json
import math
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

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

from cgmvae.errors import InputError, listed

console = Console()
error_console = Console(stderr=True)

#: Control characters: a column or label name that contains them could control the terminal.
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]")

#: The lists of the :func:`kept_warnings` that are open.
_KEPT: list[list[str]] = []

#: The least time between lines about progress, where there is no terminal to draw a bar on.
SECONDS_BETWEEN_LINES = 10.0


class Stopped(Exception):
    """The user pressed Ctrl-C in a command that can be resumed; the message says how."""


@contextmanager
def needs_extra(what: str, extra: str) -> Iterator[None]:
    """Turn a missing package inside the block into a message that says what to install."""
    try:
        yield
    except ImportError as error:
        raise InputError(f'{what} needs more packages: pip install "cgmvae[{extra}]"') from error


def literal(text: str, *, style: str = "") -> Text:
    """Return text that is printed verbatim: no markup, and control characters escaped."""
    return Text(_CONTROLS.sub(lambda control: repr(control[0])[1:-1], text), style=style)


def print_error(message: str) -> None:
    """Print an error on one line of stderr."""
    _print_line(f"Error: {message}", style="red")


def print_warning(message: str) -> None:
    """Print a warning on one line of stderr."""
    for kept in _KEPT:
        kept.append(message)
    _print_line(f"Warning: {message}", style="yellow")


@contextmanager
def kept_warnings() -> Iterator[list[str]]:
    """Return a list to which every warning that is printed inside the block is added."""
    kept: list[str] = []
    _KEPT.append(kept)
    try:
        yield kept
    finally:
        _KEPT.remove(kept)


def _print_line(message: str, *, style: str) -> None:
    error_console.print(literal(" ".join(message.split()), style=style), soft_wrap=True)


# --- Results ------------------------------------------------------------------------------------


def print_json(value: Any) -> None:
    """Print a value as indented JSON."""
    in_utf8 = "utf" in (sys.stdout.encoding or "").lower()
    typer.echo(json.dumps(value, indent=2, ensure_ascii=not in_utf8))


def print_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], *, caption: str = ""
) -> None:
    """Print a table, its first column aligned left and the others right.

    No cell is ever truncated: on a terminal that is too narrow each row becomes a list, and a file
    or pipe receives lines of any length.
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
    """Print text verbatim on one line of any length."""
    console.print(literal(text, style=style), soft_wrap=True)


def cell_text(value: Any) -> str:
    """Format a value for a table cell."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.0f}" if value.is_integer() and abs(value) >= 10 else f"{value:,.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def occurring_note(n_occurring: int, n_labels: int) -> str:
    """Return a sentence on the labels that macro-F1 is over; nothing if it is over all."""
    if n_occurring == n_labels:
        return ""
    return f"Macro-F1 is over the {n_occurring:,} of {n_labels:,} labels that occur."


def in_every_row_note(names: Sequence[str]) -> str:
    """Return a sentence on labels that every row has; nothing if there are none."""
    if not names:
        return ""
    return (
        f"P@1 says little: every row has {listed(names)}, and a method that ranks "
        f"{'it' if len(names) == 1 else 'one of them'} first is always right."
    )


def metric_text(value: float | None) -> str:
    """Format a metric as in the paper's tables; a dash where it is undefined."""
    return "–" if value is None or math.isnan(value) else f"{value:.3f}"


def without_nan(values: Mapping[str, Any]) -> dict[str, Any]:
    """Replace NaN, which JSON lacks, by None."""
    return {name: None if value != value else value for name, value in values.items()}


# --- Progress -----------------------------------------------------------------------------------


@contextmanager
def progress_bar(*columns: ProgressColumn, **fields: Any) -> Iterator[Callable[..., None]]:
    """Show a bar on stderr, and yield a function that updates it and its further fields.

    It is drawn only on a terminal, and disappears when done.
    """
    hidden = not error_console.is_interactive
    with Progress(*columns, console=error_console, transient=True, disable=hidden) as progress:
        yield partial(progress.update, progress.add_task("", total=None, **fields))


@contextmanager
def spinner(title: str) -> Iterator[None]:
    """Show a spinner and the elapsed time while the block runs."""
    with progress_bar(SpinnerColumn(), TextColumn(title), TimeElapsedColumn()):
        yield


@contextmanager
def download_progress(title: str) -> Iterator[Callable[[int, int | None], None]]:
    """Show a bar and yield a callback ``(bytes_done, bytes_total or None)``."""
    columns = (TextColumn(title), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with progress_bar(*columns, visible=False) as update:
        yield lambda done, total: update(completed=done, total=total, visible=True)


@contextmanager
def reading_progress(title: str) -> Iterator[Callable[[int, float | None], None]]:
    """Show a bar and yield a callback ``(rows_done, fraction_done or None)``."""
    rows, left = TextColumn("{task.fields[rows]:,} rows"), TimeRemainingColumn()
    columns = (TextColumn(title), BarColumn(), rows, TimeElapsedColumn(), left)
    with progress_bar(*columns, rows=0) as update:
        yield lambda rows, fraction: update(
            completed=fraction or 0.0, total=None if fraction is None else 1.0, rows=rows
        )


@contextmanager
def training_progress(
    title: str, metric: Callable[[], str]
) -> Iterator[Callable[[int, int, float], None]]:
    """Show a bar and yield a callback ``(epoch, epochs, best value so far)``.

    ``metric`` returns the name of that value. Without a terminal, lines say the same.
    """
    if not error_console.is_interactive:
        from cgmvae.training.progress import EpochLines

        yield EpochLines(metric, _SparseLines())
        return
    bar, best = BarColumn(bar_width=20), TextColumn("{task.fields[best]}")
    columns = (TextColumn(title), bar, MofNCompleteColumn(), best, TimeRemainingColumn())
    with progress_bar(*columns, best="") as update:
        yield lambda epoch, epochs, value: update(
            completed=epoch, total=epochs, best=f"best {metric()} {value:.3f}"
        )


@contextmanager
def steps() -> Iterator[Callable[[str], None]]:
    """Show a spinner, and yield a function that names what is being done.

    Without a terminal, lines say the same.
    """
    if not error_console.is_interactive:
        yield _SparseLines()
        return
    with progress_bar(SpinnerColumn(), TextColumn("{task.fields[name]}"), name="") as update:
        yield lambda name: update(name=name)


class _SparseLines:
    """Prints lines on stderr, but not before a while has passed since the last."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def __call__(self, line: str) -> None:
        if time.monotonic() - self._last >= SECONDS_BETWEEN_LINES:
            self._last = time.monotonic()
            error_console.print(literal(line), soft_wrap=True)
