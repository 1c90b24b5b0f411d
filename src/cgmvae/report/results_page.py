"""One page of HTML from a folder of runs: every study that has some, with its tables and figures.

What it says is in :mod:`cgmvae.report.study_results`; the style, and how names are kept text, are
those of :mod:`cgmvae.report.page`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from cgmvae import __version__
from cgmvae.data.files import atomic_path
from cgmvae.evaluation import PAPER_METRICS
from cgmvae.methods import REGISTRY
from cgmvae.report.figures.style import title_of
from cgmvae.report.page import MEANINGS, content_policy, find_template, read_template
from cgmvae.report.pictures import Picture, make_picture
from cgmvae.report.studies import draw
from cgmvae.report.study_results import StudyResults, collect_studies, stored_keys
from cgmvae.studies.spec import Scope, StudyFigure
from cgmvae.studies.store import Store
from cgmvae.studies.tables import Cell, Table

#: Pictures of a study that are seen at once; the others are folded away.
OPEN_PICTURES = 4

#: Tables in a row whose titles end alike are folded together from this number on.
LEAST_GROUP = 3

#: What a figure of each kind is called, and how it is read.
READINGS = {
    "critical-difference": (
        "Mean ranks",
        "Methods from the best mean rank, on the left, to the worst. A bar joins those that the "
        "data sets do not tell apart.",
    ),
    "fewer-data": (
        "Fewer rows",
        "Each line is a method, from a small share of the training rows on the left to all of them "
        "on the right.",
    ),
    "similarity": (
        "Similar labels",
        "Each cell is a pair of labels, from unlike in blue to alike in red; labels of one group "
        "stand together.",
    ),
}

#: What the last part of a figure's name may be, and how it is written.
_SUBJECTS = {name: method.title for name, method in REGISTRY.items()} | {
    name: title_of(name) for name in PAPER_METRICS
}

#: What Markdown sets off in a note.
_NOTE_MARKS = re.compile(r"`([^`]+)`|\*\*([^*]+)\*\*|\*([^*\s][^*]*)\*")

#: A cell that is a number with its spread, or stands for one that is missing; no sentence.
_NUMBER = re.compile(r"[-+−]?\.?\d[^;a-zA-Z]*( of \d+)?|–?")


def write_results_page(
    store: Store, scope: Scope, path: str | os.PathLike[str], *, command: str = ""
) -> list[StudyResults]:
    """Write the page of a folder of runs, whole or not at all; return what is on it."""
    found = collect_studies(store, scope)
    page = render_results(found, quick=scope.quick, stored=stored_keys(store), command=command)
    with atomic_path(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return found


def render_results(
    found: Sequence[StudyResults], *, quick: bool, stored: set[str], command: str = ""
) -> str:
    """Return the page of some studies.

    Parameters
    ----------
    found : sequence of StudyResults
    quick : bool
        Whether these are the studies' small versions.
    stored : set of str
        Keys of all runs in the folder, those of no study too.
    command : str
        What made the page, to be shown at its end.
    """
    from markupsafe import Markup

    runs = {spec for results in found for spec in results.done}
    theme = read_template("scripts/theme.js")
    return find_template("results.html").render(
        studies=[_section(results) for results in found],
        runs=runs,
        n_others=len(stored - {spec.key for spec in runs}),
        quick=quick,
        meanings=[(title_of(name), MEANINGS[name]) for name in PAPER_METRICS],
        command=command,
        version=__version__,
        policy=content_policy(theme),
        style=Markup(read_template("style.css") + read_template("results.css")),
        theme=Markup(theme),
    )


def _section(results: StudyResults) -> dict[str, Any]:
    """Return what the template shows of a study."""
    pictures = list(_pictures(results))
    return {
        "name": results.study.name,
        "title": results.study.title,
        "n_done": len(results.done),
        "n_runs": results.n_runs,
        "readings": [READINGS[kind][1] for kind in dict.fromkeys(f.kind for f in results.figures)],
        "pictures": pictures[:OPEN_PICTURES],
        "more_pictures": pictures[OPEN_PICTURES:],
        "folds": list(_folds(results.tables)),
        "failures": results.failures,
    }


class _StudyDisplay:
    """A figure of a study in the manner of a display: drawn when ``plot`` is called."""

    def __init__(self, figure: StudyFigure) -> None:
        self.figure = figure

    def plot(self) -> _StudyDisplay:
        """Draw the figure."""
        self.figure_ = draw(self.figure)
        return self


def _pictures(results: StudyResults) -> Iterator[Picture]:
    for figure in results.figures:
        subject = _subject(figure.name, results.study.name)
        title = f"{READINGS[figure.kind][0]}: {subject}"
        yield make_picture(title, "", _StudyDisplay(figure).plot)


def _subject(figure: str, study: str) -> str:
    """Return what a figure is about, from the name of its file.

    Examples
    --------
    >>> _subject("fewer_data_yeast_micro_f1", "fewer-data"), _subject("main_validation", "main")
    ('yeast, micro-F1', 'validation')
    """
    rest = figure.removeprefix(study.replace("-", "_") + "_")
    for name, title in _SUBJECTS.items():
        if rest.endswith(f"_{name}"):
            return f"{rest.removesuffix(f'_{name}')}, {title}"
    return rest


def _folds(tables: Sequence[Table]) -> Iterator[dict[str, Any]]:
    """Yield what is opened at once: a table, or many of which the titles end alike."""
    for ending, group in groupby(tables, lambda table: table.title.rpartition(", ")[2]):
        alike = list(group)
        if len(alike) < LEAST_GROUP:
            yield from ({"title": each.title, "tables": [_table(each)]} for each in alike)
        else:
            title = f"{len(alike)} tables, {ending}"
            yield {"title": title, "tables": [_table(each) for each in alike]}


def _table(table: Table) -> dict[str, Any]:
    """Return a table for the template: all cells are cells, and columns know what they hold."""
    rows = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in table.rows]
    whole = [row for row in rows if len(row) == len(table.columns)]
    return {
        "title": table.title,
        "columns": table.columns,
        "rows": rows,
        "numeric": [
            place > 0 and all(_NUMBER.fullmatch(row[place].text) for row in whole)
            for place in range(len(table.columns))
        ],
        "notes": [_note(note) for note in table.notes],
    }


def _note(text: str) -> Any:
    """Return a sentence as HTML, with what Markdown would set off set off, and nothing else.

    Examples
    --------
    >>> print(_note("**Best** < `cgmvae bench`"))
    <strong>Best</strong> &lt; <code>cgmvae bench</code>
    """
    from markupsafe import Markup, escape

    parts, end = [], 0
    for mark in _NOTE_MARKS.finditer(text):
        tag = ("code", "strong", "em")[mark.lastindex - 1] if mark.lastindex else ""
        parts += [escape(text[end : mark.start()]), Markup(f"<{tag}>")]
        parts += [escape(mark[mark.lastindex or 0]), Markup(f"</{tag}>")]
        end = mark.end()
    return Markup("").join([*parts, escape(text[end:])])
