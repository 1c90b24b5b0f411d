"""Cells that say how the cells of other blocks are to be read.

In one piece, a column of text is numbers or true and false, not both; and ``01/02/2024`` is
understood where another row has ``31/01/2024``. Blocks of a file have other rows: the cells that
decide such things are put before each of them, as rows of their own, so that
:func:`cgmvae.data.readers.table.cells.columns_of` says the same of every block.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from typing import Any

from cgmvae.data.kinds import MISSING, Kind

#: A day at the beginning of a cell: whatever comes first, a mark, and what comes second.
_DAY = re.compile(r"(\d{1,4})([-./])(\d{1,2})\2\d{1,4}")

#: Characters of a cell that hold its day.
_DAY_LENGTH = 10

#: No month has a number above this.
_MONTHS = 12


class Witnesses:
    """The cells that were noted, by column.

    Parameters
    ----------
    kinds : mapping of str to {"number", "category", "date", "text"}
        What the columns hold.
    """

    def __init__(self, kinds: Mapping[str, Kind]) -> None:
        self._numbers = [name for name, kind in kinds.items() if kind == "number"]
        self.dates = [name for name, kind in kinds.items() if kind == "date"]
        self._cells: dict[str, dict[Hashable, str]] = {name: {} for name in kinds}

    def note_dates(self, table: Any) -> None:
        """Keep a day of each way in which the cells of the date columns write it."""
        import pyarrow.compute as pc

        for name in self.dates:
            if not _is_text(table.column(name)):
                continue
            days = pc.utf8_slice_codeunits(
                pc.utf8_trim_whitespace(table.column(name)), 0, _DAY_LENGTH
            )
            for day in filter(None, days.unique().to_pylist()):
                if match := _DAY.match(day):
                    self._cells[name].setdefault(_way(match), match[0])

    def before(self, table: Any) -> Any:
        """Return the table with the cells that are kept as its first rows."""
        import pyarrow as pa

        self._note_numbers(table)
        n_rows = max(map(len, self._cells.values()))
        if n_rows == 0:
            return table
        columns = []
        for field in table.schema:
            cells: list[str | None] = list(self._cells[field.name].values())
            columns.append(pa.array(cells + [None] * (n_rows - len(cells)), field.type))
        return pa.concat_tables([pa.table(columns, schema=table.schema), table])

    def _note_numbers(self, table: Any) -> None:
        """Keep the first cell that is present of each column of numbers."""
        for name in self._numbers:
            if self._cells[name] or not _is_text(table.column(name)):
                continue
            for cell in table.column(name).unique().to_pylist():
                if cell is not None and cell.strip() not in MISSING:
                    self._cells[name][0] = cell
                    break


def _is_text(column: Any) -> bool:
    import pyarrow as pa

    return pa.types.is_string(column.type) or pa.types.is_large_string(column.type)


def _way(match: re.Match[str]) -> Hashable:
    """Return what decides whether the day or the month comes first."""
    first, mark, second = match.groups()
    return mark, len(first) > 2, int(first) > _MONTHS, int(second) > _MONTHS
