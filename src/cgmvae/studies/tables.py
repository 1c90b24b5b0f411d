"""Tables of results, and their Markdown, LaTeX, HTML and CSV."""

from __future__ import annotations

import csv
import html
import io
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

Mark = Literal["best", "second"]


@dataclass(frozen=True)
class Cell:
    """A text, and whether it is the best or second-best value of its kind."""

    text: str
    mark: Mark | None = None


@dataclass(frozen=True)
class Table:
    """A table with notes."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell | str]]
    notes: Sequence[str] = field(default_factory=tuple)
    """Sentences below the table; backticks mark code, as in Markdown."""

    def __post_init__(self) -> None:
        longest = max(map(len, self.rows), default=0)
        if longest > len(self.columns):
            raise ValueError(f"{longest} cells do not fit the columns of {self.title!r}")


def number(value: float | None, digits: int = 3) -> str:
    """Format a number, or a dash for None and NaN.

    Examples
    --------
    >>> number(0.66666), number(None), number(float("nan"))
    ('0.667', '–', '–')
    """
    if value is None or math.isnan(value):
        return "–"
    text = f"{value:.{digits}f}"
    return text if float(text) else text.removeprefix("-")


def marked(values: Sequence[float]) -> list[Cell]:
    """Format numbers, of which higher ones are better, and mark the best and the second-best.

    Numbers are compared as they are printed, so equal texts have equal marks.

    Examples
    --------
    >>> [cell.mark for cell in marked([0.1234, 0.3, 0.1231, float("nan")])]
    ['second', 'best', 'second', None]
    """
    texts = [number(value) for value in values]
    levels = sorted({text for text in texts if text != "–"}, key=float, reverse=True)
    marks: dict[str, Mark] = dict(zip(levels, ("best", "second"), strict=False))
    return [Cell(text, marks.get(text)) for text in texts]


def render(tables: Iterable[Table], format: str) -> str:
    """Return the text of tables, one below the other, in one of the :data:`FORMATS`."""
    return "\n".join(FORMATS[format](table) for table in tables)


def _lines(table: Table) -> list[list[Cell]]:
    """Return the rows as cells without line breaks, short rows padded."""

    def one_line(cell: Cell | str) -> Cell:
        own = cell if isinstance(cell, Cell) else Cell(cell)
        return replace(own, text=" ".join(own.text.split()))

    width = len(table.columns)
    return [[*map(one_line, row), *[Cell("")] * (width - len(row))] for row in table.rows]


def _sentence(note: str, escape: Callable[[str], str], command: str) -> str:
    """Escape a note, and format its code (in backticks) as ``command % text``."""
    parts = re.split("`([^`]+)`", note)  # every second part was between backticks
    return "".join(command % escape(p) if i % 2 else escape(p) for i, p in enumerate(parts))


#: Characters with a meaning in Markdown; an underscore inside a word has none.
_MARKDOWN_MARKS = re.compile(r"[\\`*|<\[\]]|(?<!\w)_|_(?!\w)")


def _markdown(table: Table) -> str:
    def escape(text: str) -> str:
        return _MARKDOWN_MARKS.sub(lambda mark: "\\" + mark[0], text)

    def text(cell: Cell) -> str:
        around = {"best": "**", "second": "*", None: ""}[cell.mark]
        return f"{around}{escape(cell.text)}{around}"

    lines = [f"### {escape(table.title)}", ""]
    lines += [f"| {' | '.join(map(escape, table.columns))} |", "|" + "---|" * len(table.columns)]
    lines += [f"| {' | '.join(map(text, row))} |" for row in _lines(table)]
    lines += [line for note in table.notes for line in ("", note)]
    return "\n".join([*lines, ""])


_TEX_ESCAPES = {c: f"\\{c}" for c in "&%$#_{}"} | {"~": r"\textasciitilde{}", "–": "--"}
_TEX_ESCAPES |= {"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "±": r"$\pm$"}
_TEX_ESCAPES |= {"−": "$-$", "×": r"$\times$", "<": "$<$", ">": "$>$", "|": r"\textbar{}"}
_TEX_ESCAPES |= {"—": "---", "≤": r"$\le$", "≥": r"$\ge$", "`": r"\textasciigrave{}"}


def _tex(table: Table) -> str:
    def escape(text: str) -> str:
        return "".join(_TEX_ESCAPES.get(character, character) for character in text)

    def text(cell: Cell) -> str:
        command = {"best": r"\textbf{%s}", "second": r"\underline{%s}", None: "%s"}[cell.mark]
        return command % escape(cell.text)

    rows = [" & ".join(map(text, row)) + r" \\" for row in _lines(table)]
    lines = [
        r"\begin{table}",
        rf"\caption{{{escape(table.title)}}}",
        rf"\begin{{tabular}}{{{'l' * len(table.columns)}}}",
        r"\hline",
        " & ".join(map(escape, table.columns)) + r" \\",
        r"\hline",
        *rows,
        r"\hline",
        r"\end{tabular}",
        *(r"\par " + _sentence(note, escape, r"\texttt{%s}") for note in table.notes),
        r"\end{table}",
    ]
    return "\n".join([*lines, ""])


def _html(table: Table) -> str:
    def text(cell: Cell) -> str:
        tag = {"best": "strong", "second": "em", None: ""}[cell.mark]
        escaped = html.escape(cell.text)
        return f"<td><{tag}>{escaped}</{tag}></td>" if tag else f"<td>{escaped}</td>"

    head = "".join(f"<th>{html.escape(column)}</th>" for column in table.columns)
    rows = ["<tr>" + "".join(map(text, row)) + "</tr>" for row in _lines(table)]
    lines = [
        "<table>",
        f"<caption>{html.escape(table.title)}</caption>",
        f"<thead><tr>{head}</tr></thead>",
        "<tbody>",
        *rows,
        "</tbody>",
        "</table>",
        *(f"<p>{_sentence(note, html.escape, '<code>%s</code>')}</p>" for note in table.notes),
    ]
    return "\n".join([*lines, ""])


def _csv(table: Table) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["table", *table.columns])
    writer.writerows([table.title, *(cell.text for cell in row)] for row in _lines(table))
    return stream.getvalue()


FORMATS: Mapping[str, Callable[[Table], str]] = {
    "md": _markdown, "tex": _tex, "html": _html, "csv": _csv,
}  # fmt: skip
