"""The roles of the columns of a table: features, labels, groups, identifiers, or none.

They are decided by name alone, before :mod:`cgmvae.data.readers.table.cells` converts the cells.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from cgmvae.data.columns import ColumnType
from cgmvae.errors import InputError, Setting, listed

Counts = Literal["refuse", "presence"]
BlankLabels = Literal["absent", "unknown"]

#: The options that say where the labels of a table are.
LABEL_OPTIONS = ("labels", "label_prefix", "label_count", "label_sets", "long")


@dataclass(frozen=True)
class TableOptions:
    """What the columns of a table mean.

    Exactly one of ``labels``, ``label_prefix``, ``label_count``, ``label_sets`` and ``long`` says
    where the labels are; the cells of label columns are 0 and 1, true and false, yes and no,
    present and absent, or marked with an x. All other columns are features.

    Parameters
    ----------
    labels : sequence of str, optional
        The names of the label columns.
    label_prefix : str, optional
        Prefix of the names of the label columns; it stays part of the names.
    label_count : int, optional
        The first ``label_count`` columns, or the last ``-label_count``, are labels (as in MEKA),
        not counting the columns of ``groups``, ``id`` and ``drop``.
    label_sets : str, optional
        A column with the names of each row's labels, such as ``owl;hawk`` or (in files with types)
        a list of names. The labels are sorted by name.
    long : pair of str or "ROW,LABEL", optional
        For a table with one row per occurrence of a label: the column that says which rows belong
        together, such as a site, and the column with the label. They become one row, whose other
        columns must be the same in all of them; a blank label adds nothing.
    separator : str, optional
        Separator of the names in ``label_sets``, by default ``;``; blanks around a name are
        ignored.
    counts : {"refuse", "presence"}, default="refuse"
        Whether a number above 1 or a code (``+``, ``2a``) in a label column is an error, or counts
        as 1. A dot or a hyphen is then 0.
    blank_labels : {"absent", "unknown"}, optional
        What a blank label cell means; by default it is an error, except beside marks such as ``x``,
        where it is absent. With ``label_sets``, "unknown" makes every label of the row unknown.
    missing : sequence of str
        Cells that stand for a missing value, such as ``-9999``.
    groups : str, optional
        The column of the groups, which are read as text.
    id : str, optional
        The column that identifies the rows, read as text; by default the row column of ``long``.
        It may be that of the groups, too.
    drop : sequence of str
        Columns to ignore.
    text, category, date : sequence of str
        Feature columns that hold free text, categories (including numeric codes), and dates.
    kinds : mapping of str to {"number", "category", "date", "text"}, optional
        Types of feature columns, such as a model's ``input_kinds()``. Names that are not in the
        file are ignored; the types of other columns are not guessed.
    """

    labels: Sequence[str] | None = None
    label_prefix: str | None = None
    label_count: int | None = None
    label_sets: str | None = None
    long: str | Sequence[str] | None = None
    separator: str | None = None
    counts: Counts = "refuse"
    blank_labels: BlankLabels | None = None
    missing: Sequence[str] = ()
    groups: str | None = None
    id: str | None = None
    drop: Sequence[str] = ()
    text: Sequence[str] = ()
    category: Sequence[str] = ()
    date: Sequence[str] = ()
    kinds: Mapping[str, ColumnType] | None = None

    @property
    def declared(self) -> list[tuple[str, ColumnType]]:
        """The columns of ``text``, ``category`` and ``date``, with their types."""
        named: dict[ColumnType, Sequence[str]]
        named = {"text": self.text, "category": self.category, "date": self.date}
        return [(name, kind) for kind, names in named.items() for name in as_list(names)]

    @property
    def types(self) -> dict[str, ColumnType]:
        """The given column types by name."""
        return {**(self.kinds or {}), **dict(self.declared)}

    @property
    def row_and_label(self) -> tuple[str, str] | None:
        """The two columns of ``long``."""
        if self.long is None:
            return None
        pair = self.long.split(",") if isinstance(self.long, str) else as_list(self.long)
        if len(pair) != 2 or pair[0] == pair[1]:
            raise InputError(
                f"A long table needs two columns, that of the row and that of the label, not "
                f"{self.long!r}; give ",
                Setting("long", "ROW,LABEL"),
                ".",
            )
        return pair[0], pair[1]

    @property
    def sets_column(self) -> str | None:
        """The column that names the labels of a row, of ``label_sets`` or ``long``."""
        return self.label_sets if self.row_and_label is None else self.row_and_label[1]

    @property
    def id_column(self) -> str | None:
        """The column that identifies the rows, of ``id`` or ``long``."""
        return self.id or (self.row_and_label or (None,))[0]

    @property
    def named_columns(self) -> tuple[str | None, ...]:
        """The columns that hold no numbers: of label sets, groups and identifiers."""
        return self.sets_column, self.groups, self.id_column

    @property
    def ignored(self) -> list[str]:
        """The columns that are not read: of ``drop``, and the row of ``long``."""
        return [*as_list(self.drop), *(self.row_and_label or ())[:1]]

    @property
    def label_options(self) -> list[str]:
        """The given options that say which columns are labels."""
        return [option for option in LABEL_OPTIONS if getattr(self, option) is not None]

    def check(self) -> None:
        """Reject options that contradict each other or do not exist."""
        given = self.label_options
        if len(given) != 1:
            raise InputError(
                f"Name the label columns with exactly one of {', '.join(LABEL_OPTIONS)}; "
                f"{' and '.join(given) if given else 'none'} was given."
            )
        if self.counts not in get_args(Counts):
            raise InputError(f"counts must be 'refuse' or 'presence', not {self.counts!r}.")
        if self.blank_labels not in (None, *get_args(BlankLabels)):
            raise InputError(
                f"blank_labels must be 'absent' or 'unknown', not {self.blank_labels!r}."
            )
        if self.separator == "":
            raise InputError("The separator of label sets is empty; give one, such as ';'.")


@dataclass(frozen=True)
class ColumnRoles:
    """The feature columns and, unless one column holds label sets, the label columns."""

    features: tuple[str, ...]
    labels: tuple[str, ...]


def choose_roles(names: Sequence[str], options: TableOptions) -> ColumnRoles:
    """Decide by name which columns are features and which are labels."""
    options.check()
    reject_repeated(names)
    labels = as_list(options.labels or ())
    groups = None if options.groups == options.id_column else options.groups
    columns = (groups, options.id, options.sets_column)
    single = [name for name in columns if name is not None]
    taken = [*options.ignored, *single, *labels]
    typed = [name for name, _ in options.declared]
    known = set(names)
    absent = [name for name in (*taken, *typed) if name not in known]
    if absent:
        close = difflib.get_close_matches(absent[0], names, n=3)
        hint = f"did you mean {' or '.join(map(repr, close))}?" if close else ""
        raise InputError(
            f"There is no column {absent[0]!r}; {hint or f'the columns are {listed(names)}.'}"
        )
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
    features = [name for name in rest if name not in chosen]
    if not features:
        raise InputError("No feature columns are left besides the labels; check the options.")
    if "" in (*features, *labels):
        raise InputError("A column has no name; name it, or drop it (", Setting("drop", [""]), ").")
    return ColumnRoles(tuple(features), tuple(labels))


def _labels_by_rule(names: list[str], options: TableOptions) -> list[str]:
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


def reject_repeated(
    names: Sequence[str], complaint: str = "names more than one column; rename one"
) -> None:
    """Reject names of which one appears twice."""
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise InputError(f"{listed(repeated)} {complaint}.")


def as_list(names: Sequence[str]) -> list[str]:
    """Return names as a list; a string is a single name."""
    return [names] if isinstance(names, str) else [str(name) for name in names]
