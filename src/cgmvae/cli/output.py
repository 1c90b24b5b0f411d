"""What the commands print: tables for people, JSON for machines, errors on one line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

console = Console()
error_console = Console(stderr=True)

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def say_error(message: str) -> None:
    """Print one line that says what is wrong."""
    error_console.print(Text(f"Error: {' '.join(message.split())}", style="red"), soft_wrap=True)


def say_warning(message: str) -> None:
    """Print one line that says what to watch for."""
    error_console.print(
        Text(f"Warning: {' '.join(message.split())}", style="yellow"), soft_wrap=True
    )


#: The paper's five metrics as column titles.
METRIC_TITLES = {
    "example_f1": "example-F1",
    "micro_f1": "micro-F1",
    "macro_f1": "macro-F1",
    "hamming_accuracy": "Hamming acc.",
    "precision_at_1": "P@1",
}


def print_json(value: Any) -> None:
    """Print a value as JSON, readable by people too."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], *, caption: str = ""
) -> None:
    """Print a table whose first column is text and whose others are numbers or text."""
    table = Table(title=title, caption=caption or None, box=box.SIMPLE_HEAD, pad_edge=False)
    table.title_justify = table.caption_justify = "left"
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i == 0 else "right", no_wrap=i == 0)
    for row in rows:
        table.add_row(*(Text(cell_text(value)) for value in row))
    console.print(table)


def cell_text(value: Any) -> str:
    """Write a number as people read it."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.0f}" if value.is_integer() and abs(value) >= 10 else f"{value:,.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


@contextmanager
def download_progress(title: str) -> Iterator[Any]:
    """Show a bar and give a callback ``(bytes_done, bytes_total or None)``."""
    columns = (TextColumn(title), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=error_console, transient=True) as progress:
        task = progress.add_task(title, total=None, visible=False)

        def update(done: int, total: int | None) -> None:
            progress.update(task, completed=done, total=total, visible=True)

        yield update
