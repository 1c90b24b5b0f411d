"""Everything that the page of a folder of runs says, before a word of HTML is written.

:func:`collect_studies` asks the studies of :mod:`cgmvae.studies` for their tables and figures;
:mod:`cgmvae.report.results_page` turns these into a page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cgmvae.errors import InputError
from cgmvae.studies.commands import STUDIES, describe_failures, study_origin
from cgmvae.studies.results import Results
from cgmvae.studies.spec import RunSpec, Scope, Study, StudyFigure, unique
from cgmvae.studies.store import DONE, Store
from cgmvae.studies.tables import Table


@dataclass(frozen=True)
class StudyResults:
    """What a folder knows about a study."""

    study: Study
    done: Sequence[RunSpec]
    """The runs that are there."""
    n_runs: int
    """How many the study asks for."""
    tables: Sequence[Table]
    """Those of the study, then where its runs were made."""
    figures: Sequence[StudyFigure]
    failures: Sequence[str]
    """Why runs could not be made."""


def collect_studies(
    store: Store, scope: Scope, *, studies: Mapping[str, Study] = STUDIES
) -> list[StudyResults]:
    """Return the studies that have at least one run in the store.

    Parameters
    ----------
    store : Store
        Of a folder that ``cgmvae bench`` wrote; any other is refused.
    scope : Scope
    studies : mapping of str to Study
        Those to look for, by name.
    """
    if not stored_keys(store):
        raise InputError(
            f"{store.folder} holds no runs; name a folder that cgmvae bench --folder wrote."
        )
    found = [_results(study, scope, store) for study in studies.values()]
    found = [results for results in found if results.done]
    if not found:
        other = "without --quick" if scope.quick else "with --quick"
        raise InputError(
            f"No run in {store.folder} belongs to a study of this size on data that is here; "
            f"try {other}, or set CGMVAE_DATA as it was when the runs were made."
        )
    return found


def stored_keys(store: Store) -> set[str]:
    """Return the keys of all runs that are in the store, whole."""
    return {place.parent.name for place in (store.folder / "runs").glob(f"*/{DONE}")}


def _results(study: Study, scope: Scope, store: Store) -> StudyResults:
    runs = unique(study.runs(scope))
    done = [spec for spec in runs if store.is_done(spec)]
    if not done:
        return StudyResults(study, (), len(runs), (), (), ())
    results = Results(scope, store)
    return StudyResults(
        study,
        done,
        len(runs),
        tables=[*study.tables(results), *study_origin(study, scope, store)],
        figures=study.figures(results),
        failures=describe_failures(runs, store),
    )
