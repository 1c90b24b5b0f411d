"""The page of a folder of runs: the tables and figures of every study that has runs in it.

:func:`collect_studies` asks the studies of :mod:`cgmvae.studies` for their tables and figures, and
:func:`render_results` renders the page, with the style and the escaping of
:mod:`cgmvae.report.page`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from cgmvae import __version__
from cgmvae.data.files import atomic_path
from cgmvae.errors import InputError
from cgmvae.evaluation import PAPER_METRICS
from cgmvae.methods import REGISTRY
from cgmvae.report import CriticalDifferenceDisplay, FewerDataDisplay, LabelSimilarityDisplay
from cgmvae.report.figures.style import Display, title_of
from cgmvae.report.page import (
    MEANINGS,
    content_policy,
    find_template,
    make_picture,
    read_template,
)
from cgmvae.studies.commands import STUDIES, describe_failures, study_origin
from cgmvae.studies.results import Results
from cgmvae.studies.spec import RunSpec, Scope, Study, StudyFigure, unique
from cgmvae.studies.store import DONE, Store
from cgmvae.studies.tables import Cell, Table

#: Number of figures of a study that are visible; the others are collapsed.
OPEN_PICTURES = 4

#: Minimum number of consecutive tables with the same title ending that are collapsed together.
MIN_GROUP = 3

#: Title and explanation of each kind of figure.
READINGS = {
    "critical-difference": (
        "Mean ranks",
        "Methods by their mean rank, the best on the left. A bar joins methods that do not differ "
        "significantly.",
    ),
    "fewer-data": (
        "Fewer rows",
        "Each line is a method, from a small share of the training rows on the left to all of them "
        "on the right.",
    ),
    "similarity": (
        "Similar labels",
        "Each cell is a pair of labels, from dissimilar in blue to similar in red; labels of one "
        "group are adjacent.",
    ),
}

#: Titles of the methods and metrics with which the name of a figure may end.
_SUBJECTS = {name: method.title for name, method in REGISTRY.items()} | {
    name: title_of(name) for name in PAPER_METRICS
}

#: Markup of notes, as in Markdown.
_NOTE_MARKS = re.compile(r"`(?P<code>[^`]+)`|\*\*(?P<strong>[^*]+)\*\*|\*(?P<em>[^*\s][^*]*)\*")

#: A cell with a number and its standard deviation, or a placeholder for one.
_NUMBER = re.compile(r"[-+−]?\.?\d[^;a-zA-Z]*( of \d+)?|–?")


@dataclass(frozen=True)
class StudyResults:
    """The results of a study in a folder."""

    study: Study
    done: Sequence[RunSpec]
    """The runs that are in the folder."""
    n_runs: int
    """Number of runs of the study."""
    tables: Sequence[Table]
    """The tables of the study, then the origin of its runs."""
    figures: Sequence[StudyFigure]
    failures: Sequence[str]
    """Why runs failed."""


def collect_studies(
    store: Store, scope: Scope, *, studies: Mapping[str, Study] = STUDIES
) -> list[StudyResults]:
    """Return the studies that have at least one run in the store."""
    if not stored_keys(store):
        raise InputError(f"{store.folder} holds no runs; name a folder that cgmvae bench wrote.")
    found = []
    for study in studies.values():
        runs = unique(study.runs(scope))
        if done := [spec for spec in runs if store.is_done(spec)]:
            results = Results(scope, store)
            tables = [*study.tables(results), *study_origin(study, scope, store)]
            figures, failures = study.figures(results), describe_failures(runs, store)
            found.append(StudyResults(study, done, len(runs), tables, figures, failures))
    if not found:
        size, other = ("quick", "full") if scope.quick else ("full", "quick")
        raise InputError(
            f"No run in {store.folder} belongs to the {size} version of a study on data that is "
            f"available; try the {other} version, or set CGMVAE_DATA as it was for the runs."
        )
    return found


def stored_keys(store: Store) -> set[str]:
    """Return the keys of all complete runs in the store."""
    return {path.parent.name for path in (store.folder / "runs").glob(f"*/{DONE}")}


def study_display(figure: StudyFigure) -> Display:
    """Return the display of a figure, of one of the kinds in :data:`READINGS`."""
    contents = figure.contents
    if figure.kind == "critical-difference":
        return CriticalDifferenceDisplay(
            contents["mean_ranks"], contents["names"], contents["critical_difference"]
        )
    if figure.kind == "fewer-data":
        return FewerDataDisplay(
            contents["fractions"],
            contents["values"],
            contents["deviations"],
            methods=contents["methods"],
            metric=contents["metric"],
            title=contents["data"],
        )
    if figure.kind == "similarity":  # in the order of the study, which groups the labels
        return LabelSimilarityDisplay.from_similarity(
            contents["matrix"], contents["names"], order="given", groups=contents.get("groups")
        )
    raise InputError(
        f"There is no figure of the kind {figure.kind!r}; use one of {', '.join(READINGS)}."
    )


def write_results_page(
    store: Store, scope: Scope, path: str | os.PathLike[str], *, command: str = ""
) -> list[StudyResults]:
    """Write the page of a folder of runs, atomically; return its results."""
    found = collect_studies(store, scope)
    page = render_results(found, quick=scope.quick, stored=stored_keys(store), command=command)
    with atomic_path(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return found


def render_results(
    found: Sequence[StudyResults], *, quick: bool, stored: set[str], command: str = ""
) -> str:
    """Return the page of some studies, quick or full versions.

    ``stored`` are the keys of all runs in the folder; the command is shown at the end of the page.
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
    """Return the values of the template for a study."""
    pictures = [
        make_picture(
            f"{READINGS[figure.kind][0]}: {_subject(figure.name, results.study.name)}",
            "",
            study_display(figure),
            size=None,
        )
        for figure in results.figures
    ]
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


def _subject(figure: str, study: str) -> str:
    """Return the subject of a figure, from the name of its file.

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
    """Yield what is collapsed together: a table, or many whose titles have the same ending."""
    for ending, group in groupby(tables, lambda table: table.title.rpartition(", ")[2]):
        own = list(group)
        if len(own) < MIN_GROUP:
            yield from ({"title": each.title, "tables": [_table(each)]} for each in own)
        else:
            yield {"title": f"{len(own)} tables, {ending}", "tables": [_table(t) for t in own]}


def _table(table: Table) -> dict[str, Any]:
    """Return the values of the template for a table."""
    rows = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in table.rows]
    whole = [row for row in rows if len(row) == len(table.columns)]
    return {
        "title": table.title,
        "columns": table.columns,
        "rows": rows,
        "numeric": [
            column > 0 and all(_NUMBER.fullmatch(row[column].text) for row in whole)
            for column in range(len(table.columns))
        ],
        "notes": [_note(note) for note in table.notes],
    }


def _note(text: str) -> Any:
    """Return a sentence as HTML, with its Markdown markup and everything else escaped.

    Examples
    --------
    >>> print(_note("**Best** < `cgmvae bench`"))
    <strong>Best</strong> &lt; <code>cgmvae bench</code>
    """
    from markupsafe import Markup, escape

    def tagged(mark: re.Match[str]) -> str:
        tag = mark.lastgroup or "em"
        return f"<{tag}>{mark[tag]}</{tag}>"

    return Markup(_NOTE_MARKS.sub(tagged, str(escape(text))))
