"""The roles of the columns of a table: features, labels, groups, identifiers, or none.

They are decided by name alone, before :mod:`cgmvae.data.readers.table.cells` converts the cells.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from cgmvae.data.readers.options import ReadingOptions, as_list
from cgmvae.errors import InputError, Setting, listed


@dataclass(frozen=True)
class ColumnRoles:
    """The feature columns and, unless one column holds label sets, the label columns."""

    features: tuple[str, ...]
    labels: tuple[str, ...]


def choose_roles(names: Sequence[str], options: ReadingOptions) -> ColumnRoles:
    """Decide by name which columns are features and which are labels."""
    options.check()
    reject_repeated(names)
    labels = as_list(options.labels or ())
    groups = None if options.groups == options.id_column else options.groups
    columns = (groups, options.id, options.sets_column)
    single = [name for name in columns if name is not None]
    taken = [*options.ignored, *single, *labels]
    typed = [name for name, _ in options.declared]
    place = options.place or ()
    reject_absent([*taken, *typed, *place], names)
    rest = [name for name in names if name not in set(taken)]
    if options.labels is None and options.sets_column is None:
        labels = _labels_by_rule(rest, options)
    elif not labels and options.sets_column is None:
        raise InputError("The list of label columns is empty; name at least one.")
    chosen = set(labels)
    reject_repeated(
        [*taken, *chosen.difference(taken), *typed],
        "is given twice among the labels, groups, identifiers, dropped columns and types; give it "
        "once",
    )
    if used := chosen.union(single).intersection(place):
        raise InputError(f"{listed(sorted(used))} cannot be a coordinate as well; check its role.")
    features = [name for name in rest if name not in chosen]
    if not features:
        raise InputError("No feature columns are left besides the labels; check the options.")
    if "" in (*features, *labels):
        raise InputError("A column has no name; name it, or drop it (", Setting("drop", [""]), ").")
    return ColumnRoles(tuple(features), tuple(labels))


def _labels_by_rule(names: list[str], options: ReadingOptions) -> list[str]:
    if options.label_prefix is not None:
        found = [name for name in names if name.startswith(options.label_prefix)]
        if not found:
            raise InputError(
                f"No column begins with {options.label_prefix!r}; the first ones are "
                f"{listed(names)}."
            )
        return found
    count = options.label_count or 0
    if not 0 < abs(count) < len(names):
        raise InputError(
            f"label_count is {count}, but there are {len(names)} columns; give the number of label "
            "columns, negative if they come last."
        )
    return names[:count] if count > 0 else names[count:]


def reject_absent(wanted: Sequence[str], names: Sequence[str]) -> None:
    """Reject names of columns that a table does not have."""
    known = set(names)
    if absent := [name for name in wanted if name not in known]:
        close = difflib.get_close_matches(absent[0], names, n=3)
        hint = f"did you mean {' or '.join(map(repr, close))}?" if close else ""
        raise InputError(
            f"There is no column {absent[0]!r}; {hint or f'the columns are {listed(names)}.'}"
        )


def reject_repeated(
    names: Sequence[str], complaint: str = "names more than one column; rename one"
) -> None:
    """Reject names of which one appears twice."""
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise InputError(f"{listed(repeated)} {complaint}.")
