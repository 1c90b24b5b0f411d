"""``cgmvae effects``: how each label responds to the columns that it relies on."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Annotated

import numpy as np

from cgmvae.cli import arguments, console
from cgmvae.cli.arguments import OptionalSourceArgument, option
from cgmvae.cli.report import model_and_rows, say_written
from cgmvae.data import files
from cgmvae.errors import InputError


def effects(
    model: arguments.ModelArgument,
    source: OptionalSourceArgument = None,
    out: Annotated[
        str | None, option("FILE.csv", "Table to write.", show_default="MODEL.effects.csv, here")
    ] = None,
    figure: Annotated[str | None, option("FILE", "Draw the curves, as .svg, .png or .pdf.")] = None,
    only: Annotated[list[str] | None, option("NAME", "Only this label; repeat for each.")] = None,
    columns: Annotated[int, option("N", "Columns of each label.", min=1)] = 3,
    overwrite: arguments.OverwriteOption = False,
) -> None:
    """Write how labels respond to the columns they rely on.

    In up to 50 test rows a column is set to one value after the other, while all else stays as it
    is. The table has a row for each value: the mean probability of the label, and the bounds below
    and above which a tenth of the rows are ('low', 'high'). 'importance' is by how much the average
    precision of the label drops if the column is shuffled. MODEL and SOURCE are as for
    'cgmvae report'.
    """
    out = out or arguments.target_for(model, ".effects.csv")
    if files.data_suffix(out) != ".csv":
        raise InputError(f"Effects are written as CSV, not as {out}; name a .csv file.")
    if figure is not None:
        arguments.check_figure(figure)
    for target in filter(None, (out, figure)):
        arguments.check_target(target, model, overwrite=overwrite)
    fitted, rows = model_and_rows(model, source, out)
    labels = np.array([fitted.label_index(name) for name in only or fitted.label_names_])
    with console.needs_extra("A response curve", "report"):
        from cgmvae.report.contents import column_importance, label_responses

        with console.steps() as step:
            step("Trying which columns matter")
            importance = column_importance(fitted, rows, labels)
            step("Changing them")
            found = label_responses(fitted, rows, importance, n_columns=columns)
            if found is None:
                raise InputError(f"{model} has no columns of numbers, dates or categories.")
            if figure is not None:
                arguments.save_figure(found.plot(n_columns=columns).figure_, Path(figure))
    with files.atomic_path(out) as path, path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(found.table())
    say_written(out, rows)
