"""The tables of ``docs/results/paper.md`` from the files that ``cgmvae paper`` writes.

``docs/results/data/paper/NAME.csv`` is the file of a chapter, copied as it is: a line that says how
it was made, then its tables, one below the other. What was not run is said, not left out.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cgmvae.studies.chapters import CHAPTERS, QUICK_NOTE
from cgmvae.studies.published import published_value
from cgmvae.studies.spec import paper_data

FOLDER = Path(__file__).parents[1] / "docs" / "results" / "data" / "paper"

MISSING = "Not run yet"

#: A difference with its interval and its verdict, as the chapter of the ablation writes it.
_VERDICT = re.compile(
    r"(?P<difference>[+-][\d.]+)(?: \[(?P<low>.+), (?P<high>.+)\])?: (?P<verdict>.*)"
)
_CLAIM = re.compile("“(?P<arm>.*)” above “(?P<against>.*)”")

#: Names of methods in the paper that differ from ours.
_NAMES = {"binary relevance": "BR", "ML-kNN": "MLKNN"}


class Block(NamedTuple):
    """A table of a file."""

    columns: list[str]
    rows: list[list[str]]


def read_chapter(name: str) -> tuple[str, dict[str, Block]]:
    """Return the line that says how a chapter was made, and its tables by title."""
    made, *lines = (FOLDER / f"{name}.csv").read_text("utf-8").splitlines()
    blocks: dict[str, Block] = {}
    columns: list[str] = []
    for row in filter(None, csv.reader(lines)):
        if row[0] == "table":
            columns = row[1:]
        else:
            blocks.setdefault(row[0], Block(columns, [])).rows.append(row[1:])
    return made.removeprefix("# "), blocks


def chapters() -> dict[str, tuple[str, dict[str, Block]]]:
    """Return the chapters that there are files of."""
    return {own.name: read_chapter(own.name) for own in CHAPTERS if _exists(own.name)}


def _exists(name: str) -> bool:
    return (FOLDER / f"{name}.csv").exists()


def short(value: str) -> str:
    """Return a text with its numbers without a leading zero, and with real minus signs."""
    return re.sub(r"(?<![\w.])-(?=[\d.])", "−", re.sub(r"(?<![\d.])0\.(?=\d)", ".", value))


Render = Callable[[Sequence[str], Any], str]


def made(table: Render) -> str:
    """Return where the numbers come from, and what is missing by chapter."""
    lines, rows = [], []
    titles = {own.name: own.title for own in CHAPTERS}
    for name, (line, blocks) in chapters().items():
        whole, _, runs = line.rpartition("; ")
        lines.append(whole)
        missing = [
            f"{data}: {runs}" + (f" (estimate: {minutes} minutes)" if minutes.strip("–") else "")
            for data, runs, minutes in blocks.get(MISSING, Block([], [])).rows
            if not runs.startswith("not available")
        ]
        file = f"`docs/results/data/paper/{name}.csv`"
        rows.append([titles[name], file, runs.rstrip("."), "; ".join(missing) or "–"])
    text = "".join(f"{line}.\n\n" for line in dict.fromkeys(lines))
    if any("--quick" in line for line in lines):
        text = f"**{QUICK_NOTE}**\n\n{text}"
    return text + table(("in the paper", "cells", "runs", "not run"), rows)


def _missing(blocks: Mapping[str, Block], line: str) -> str:
    """Return a sentence on the runs that a table lacks."""
    done, _, total = line.rpartition("; ")[2].partition(" of ")
    n_missing = int(total.split()[0]) - int(done) if total else 0
    return f"\n– not run: {n_missing} of {total.rstrip('.')}.\n" if n_missing else ""


def methods(table: Render, chapter: str, metric: str, protocol: str) -> str:
    """Return one metric of every method on every data set, the paper's number in parentheses."""
    line, blocks = read_chapter(chapter)
    ending = f", thresholds: {protocol}"
    own = {title.removesuffix(ending): b for title, b in blocks.items() if title.endswith(ending)}
    names = list(
        dict.fromkeys(row[0] for b in own.values() for row in b.rows if not row[0].startswith("—"))
    )
    rows = []
    for name in names:
        cells = []
        for data, block in own.items():
            found = next((row for row in block.rows if row[0] == name), [])
            column = block.columns.index(metric)
            value = found[column].split(" ±")[0] if len(found) > column else ""
            row = name.split(",")[0]
            known = published_value(
                metric.replace("-", "_").lower(), _NAMES.get(row, row), paper_data(data.split()[0])
            )
            text = short(value) if value else "–"
            if value and " of " in found[-1]:
                text += f" ({found[-1]} runs)"
            if known is not None and protocol == "test-oracle":
                text += f" ({short(f'{known:.3f}')})"
            cells.append(text)
        rows.append([name, *cells])
    return table(("method", *own), rows) + _missing(blocks, line)


def claims() -> Iterator[dict[str, str]]:
    """Yield the differences between arms, as records of ``claims.csv``."""
    for title, block in read_chapter("ablation")[1].items():
        found = re.search(r": network (\w+), thresholds: validation$", title)
        if found is None or "scores" in title:
            continue
        for data, claim, *cells, n_splits in block.rows:
            names = _CLAIM.fullmatch(claim)
            assert names is not None
            for metric, cell in zip(block.columns[2:], cells, strict=False):
                if (own := _VERDICT.fullmatch(cell)) is not None:
                    verdict = own["verdict"].replace("too few splits", "undecided")
                    yield {
                        **names.groupdict(),
                        "condition": "all rows",
                        "network": found[1],
                        "data": data,
                        "metric": metric,
                        "difference": own["difference"],
                        "low": own["low"] or "",
                        "high": own["high"] or "",
                        "verdict": verdict,
                        "n_splits": n_splits,
                    }


def missing_claims() -> str:
    """Return a sentence on the runs that the grid of claims lacks."""
    line, blocks = read_chapter("ablation")
    return _missing(blocks, line)


def half(table: Render) -> str:
    """Return C-GMVAE with half the rows minus MPVAE with all of them."""
    line, blocks = read_chapter("fewer_data")
    own = blocks.get("C-GMVAE (50%) − MPVAE (100%)", Block(["data"], []))
    rows = [[row[0], *map(short, row[1:])] for row in own.rows]
    text = table(tuple(own.columns), rows) if rows else ""
    return text + _missing(blocks, line)


def times(table: Render) -> str:
    """Return seconds of an epoch of every network relative to C-GMVAE."""
    line, blocks = read_chapter("time")
    own = {title: b for title, b in blocks.items() if b.columns[:2] == ["method", _EPOCH]}
    names = dict.fromkeys(row[0] for block in own.values() for row in block.rows)
    rows = []
    for name in names:
        cells = []
        for block in own.values():
            found = next((row for row in block.rows if row[0] == name), [])
            ratio = found[2] if len(found) > 2 else ""
            cells.append(f"{short(ratio)} ({short(found[1])} s)" if ratio.strip("–") else "–")
        if set(cells) != {"–"}:
            rows.append([name, *cells])
    return table(("network", *own), rows) + _missing(blocks, line)


_EPOCH = "training, s per epoch"
