"""How a file is read: one field per option, for Python, the command line and their documentation.

A field with a help text is an option of the command line, too. :data:`cgmvae.data.readers.FORMATS`
says which of them a format has.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from cgmvae.data.columns import ColumnType
from cgmvae.errors import InputError, Setting

Counts = Literal["refuse", "presence"]
BlankLabels = Literal["absent", "unknown"]

#: Headings under which the command line lists the options: where the labels are, what the other
#: columns mean, and how the file is written.
PANELS = "Labels of a file", "Other columns of a file", "Format of a file"
LABELS, COLUMNS, FILE = PANELS

#: The options that say where the labels of a table are.
LABEL_OPTIONS = ("labels", "label_prefix", "label_count", "label_sets", "long")


def _option(
    panel: str, help_: str, default: Any = None, *, flag: str | None = None, names: bool = False
) -> Any:
    """Return a field that is an option of the command line, under a heading.

    ``flag`` is given if it is not the field's name; ``names`` is whether the value names columns
    that a file with other rows need not have.
    """
    about = {"panel": panel, "help": help_, "flag": flag, "names_columns": names}
    return field(default=default, metadata=about)


@dataclass(frozen=True)
class ReadingOptions:
    """How a file is read, and what its columns mean.

    In a table, exactly one of ``labels``, ``label_prefix``, ``label_count``, ``label_sets`` and
    ``long`` says where the labels are; the cells of label columns are 0 and 1, true and false, yes
    and no, present and absent, or marked with an x. All other columns are features.

    Parameters
    ----------
    labels : sequence of str, optional
        The names of the label columns (or attributes).
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
    groups : str, optional
        The column of the groups, which are read as text; in an npz archive the key of the groups,
        by default ``"group"`` if it is there.
    id : str, optional
        The column that identifies the rows, read as text; by default the row column of ``long``.
        It may be that of the groups, too.
    coordinates : pair of str or "LAT,LON", optional
        The columns of a row's place, from south to north and from west to east. Blocks in space
        become the groups (:func:`~cgmvae.data.splits.spatial_blocks`), so that a test is about new
        places. The columns are features, too, unless they are dropped.
    block_size : float, optional
        Width of the blocks, in the unit of the coordinates; by default it is chosen.
    drop : sequence of str
        Columns to ignore.
    missing : sequence of str
        Cells that stand for a missing value, such as ``-9999``.
    category, date, text : sequence of str
        Feature columns that hold categories (including numeric codes), dates, and free text.
    kinds : mapping of str to {"number", "category", "date", "text"}, optional
        Types of feature columns, such as a model's ``input_kinds()``. Names that are not in the
        file are ignored; the types of other columns are not guessed.
    xml : path, optional
        Mulan's XML file with the label names of an ARFF file; nested labels count like the others.
    delimiter, decimal, encoding : str, optional
        How the text of a table is written; by default found out from the first rows
        (:class:`~cgmvae.data.readers.table.delimited.DelimitedFile`).
    sheet : str, optional
        Sheet of a workbook, needed if it has several.
    n_labels, n_features : int, optional
        Number of columns of Y and X in svmlight files in which the last ones do not occur; files of
        the released code need ``n_labels``.
    zero_based : bool or "auto"
        Whether the feature indices of svmlight files start at 0. ``"auto"`` assumes that they start
        at 1 if the index 0 does not occur, as scikit-learn does; with a header, only if the index
        ``n_features`` occurs, because the extreme-classification repository starts at 0.
    meta_offset : int
        Number of columns before the labels of a released file, which are skipped.
    """

    labels: Sequence[str] | None = _option(
        LABELS, "Name of a label column; repeat for each.", flag="--label"
    )
    label_prefix: str | None = _option(LABELS, "Columns whose name starts with TEXT are labels.")
    label_count: int | None = _option(
        LABELS, "The first N columns are labels; the last N if negative."
    )
    label_sets: str | None = _option(
        LABELS, "Column that holds all labels of a row, separated or as a list.", names=True
    )
    long: str | Sequence[str] | None = _option(
        LABELS, "ROW,LABEL: the columns of a table with one row per occurrence.", names=True
    )
    separator: str | None = _option(LABELS, "Separator of the labels in that column (default ;).")
    counts: Counts = _option(
        LABELS, "'presence' takes any count or code but 0 in a label column as 1.", "refuse"
    )
    blank_labels: BlankLabels | None = _option(
        LABELS, "Meaning of a blank label cell: 'absent' or 'unknown'."
    )

    groups: str | None = _option(
        COLUMNS, "Column (or npz key) of groups that a split keeps together.", names=True
    )
    id: str | None = _option(
        COLUMNS, "Column that identifies the rows: no feature, but in all output.", names=True
    )
    coordinates: str | Sequence[str] | None = _option(
        COLUMNS, "LAT,LON: columns of the place; blocks in space become the groups.", names=True
    )
    block_size: float | None = _option(
        COLUMNS, "Width of those blocks, in the unit of the coordinates (default: chosen)."
    )
    drop: Sequence[str] = _option(COLUMNS, "Column to leave out; repeat for each.", (), names=True)
    missing: Sequence[str] = _option(
        COLUMNS, "Cell that is a missing value, as -9999; repeat for each.", ()
    )
    category: Sequence[str] = _option(
        COLUMNS, "Column of categories; repeat for each.", (), names=True
    )
    date: Sequence[str] = _option(COLUMNS, "Column of dates; repeat for each.", (), names=True)
    text: Sequence[str] = _option(COLUMNS, "Column of free text; repeat for each.", (), names=True)
    kinds: Mapping[str, ColumnType] | None = None

    xml: str | os.PathLike[str] | None = _option(
        FILE, "XML file with the label names of an ARFF file."
    )
    delimiter: str | None = _option(
        FILE, "Separator of the cells of a text table (default: found out)."
    )
    decimal: str | None = _option(
        FILE, "Decimal mark of a text table, . or , (default: found out)."
    )
    encoding: str | None = _option(
        FILE, "Encoding of a text table, such as cp1252 (default UTF-8)."
    )
    sheet: str | None = _option(FILE, "Sheet of a workbook that has several.")
    n_labels: int | None = _option(FILE, "Number of labels (svmlight and released files).")
    n_features: int | None = _option(FILE, "Number of features (svmlight files).")
    zero_based: bool | Literal["auto"] = _option(
        FILE, "Whether svmlight features are numbered from 0 or from 1.", "auto"
    )
    meta_offset: int = _option(FILE, "Columns to skip before the labels (released files).", 0)

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
        return self._pair("long", "A long table needs two columns, that of the row and the label")

    @property
    def place(self) -> tuple[str, str] | None:
        """The two columns of ``coordinates``."""
        return self._pair("coordinates", "A place needs two columns, such as latitude, longitude")

    def _pair(self, option: str, needed: str) -> tuple[str, str] | None:
        """Return the two columns that an option names; ``needed`` is what an error says."""
        given = getattr(self, option)
        if given is None:
            return None
        pair = given.split(",") if isinstance(given, str) else as_list(given)
        if len(pair) != 2 or pair[0] == pair[1]:
            example = "ROW,LABEL" if option == "long" else "LAT,LON"
            raise InputError(f"{needed}, not {given!r}; give ", Setting(option, example), ".")
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
            parts: list[str | Setting] = ["Name the label columns with exactly one of "]
            for name in LABEL_OPTIONS:
                parts += [Setting(name), ", "]
            parts[-1] = f"; {len(given)} of them were given." if given else "; none was given."
            raise InputError(*parts)
        if self.counts not in get_args(Counts):
            raise InputError(f"counts must be 'refuse' or 'presence', not {self.counts!r}.")
        if self.blank_labels not in (None, *get_args(BlankLabels)):
            raise InputError(
                f"blank_labels must be 'absent' or 'unknown', not {self.blank_labels!r}."
            )
        if self.place is not None and self.groups is not None:
            raise InputError(
                "Blocks in space are the groups of the rows; give either ",
                Setting("coordinates", ",".join(self.place)),
                " or ",
                Setting("groups", self.groups),
                ".",
            )
        if self.block_size is not None and self.place is None:
            raise InputError(
                "The size of blocks says nothing without the columns of the place; give ",
                Setting("coordinates", "LAT,LON"),
                ".",
            )
        if self.separator == "":
            raise InputError("The separator of label sets is empty; give one, such as ';'.")


def table_options() -> tuple[str, ...]:
    """Return the names of the options that say what the columns of a table mean."""
    about = (f.name for f in fields(ReadingOptions) if f.metadata.get("panel") in (LABELS, COLUMNS))
    return (*about, "kinds")


def as_list(names: Sequence[str]) -> list[str]:
    """Return names as a list; a string is a single name."""
    return [names] if isinstance(names, str) else [str(name) for name in names]
