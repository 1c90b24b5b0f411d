"""``cgmvae predict``: write labels, probabilities or label sets of new rows to a CSV file."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from cgmvae.cli import console, models
from cgmvae.cli.arguments import (
    ModelArgument,
    OverwriteOption,
    Source,
    SourceArgument,
    check_target,
    flag,
    option,
)
from cgmvae.data import files
from cgmvae.data.columns import Columns, parse_numbers
from cgmvae.data.dataset import Matrix
from cgmvae.data.readers.table.roles import reject_repeated
from cgmvae.data.streaming import Blocks
from cgmvae.errors import InputError, NonFiniteScores, listed

#: Cells of features and labels per block, and the limits on its number of rows.
_BLOCK_CELLS, _BLOCK_ROWS = 2**22, (256, 16_384)

#: Predicted cells that are converted to text at a time.
_TEXT_CELLS = 2**18


#: First characters of what a spreadsheet takes for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def predict(
    model: ModelArgument,
    source: SourceArgument,
    out: Annotated[str, option("FILE.csv", "File to write the predictions to.")],
    probabilities: Annotated[
        bool, flag("--probabilities", "Write probabilities instead of 0 and 1.")
    ] = False,
    label_sets: Annotated[bool, flag("--label-sets", "Write one column of label names.")] = False,
    most_probable: Annotated[
        bool, flag("--most-probable", "Predict the label set that is most probable as a whole.")
    ] = False,
    separator: Annotated[str, option("TEXT", "Separator of the names in that column.")] = ";",
    known: Annotated[
        bool, flag("--known", "Take the labels in SOURCE as known; blank cells are predicted.")
    ] = False,
    keep: Annotated[
        list[str] | None, option("NAME", "Column of SOURCE to copy; repeat for each.")
    ] = None,
    uncertainty: Annotated[
        bool, flag("--uncertainty", "Add how much each probability varies, as NAME (sd).")
    ] = False,
    novelty: Annotated[
        bool, flag("--novelty", "Add how far each row lies outside the training rows.")
    ] = False,
    page: Annotated[
        str | None, option("FILE.html", "Write a page, too: maps, and how often each label is.")
    ] = None,
    overwrite: OverwriteOption = False,
) -> None:
    """Predict the labels of new rows, and write them to a CSV file.

    MODEL is a file that 'cgmvae fit' wrote. Columns are matched by name, in any order; label
    columns are not needed. If the model was fitted with --id, the first column identifies the rows.
    """
    if probabilities and (label_sets or most_probable):
        other = "--label-sets" if label_sets else "--most-probable"
        raise InputError(f"--probabilities and {other} exclude each other; leave one out.")
    if known and most_probable:
        raise InputError("--known and --most-probable exclude each other; leave one out.")
    if files.data_suffix(out) != ".csv":
        raise InputError(f"Predictions are written as CSV, not as {out}; name a .csv file.")
    for target in filter(None, (out, page)):
        check_target(target, model, source.name, overwrite=overwrite)
    fitted, names = models.load_model(model)
    if label_sets and not separator:
        raise InputError("The separator of the label sets is empty; give one, such as ';'.")
    if label_sets and (ambiguous := [name for name in fitted.label_names_ if separator in name]):
        raise InputError(
            f"The names {listed(ambiguous)} contain {separator!r}, the separator of label sets; "
            "choose another --separator."
        )
    if novelty and fitted.pipeline_.ranges is None:
        raise InputError(
            f"{model} was fitted on no dense columns of numbers, so it cannot say how new a row "
            "is; leave out --novelty."
        )
    if uncertainty and not hasattr(fitted, "uncertainty"):
        raise InputError(
            f"{model} has no members that could differ; leave out --uncertainty, or fit C-GMVAE or "
            "a blend."
        )
    source = models.as_recorded(source, fitted.origin_)
    if known and not getattr(fitted, "conditional", False):
        raise InputError(
            f"{model} has not learned what known labels say about the others; leave out --known, "
            "or fit C-GMVAE or a blend."
        )
    if known and fitted.label_factors_ is None:
        console.print_warning(
            "Known labels say nothing about the others here beyond what the features say, so the "
            "others are predicted as without them."
        )
    blocks, read = _open_blocks(source, fitted, names, known)
    recorded = (models.valid_origin(fitted.origin_) or {}).get("data", {}).get("options", {})
    if blocks.id_name is None and "id" in recorded:
        console.print_warning(
            f"{source.name} has no column {recorded['id']!r}, so its predictions have no "
            "identifiers."
        )
    copied = [*filter(None, [blocks.id_name]), *(keep or ())]
    header = [*copied, *(["labels"] if label_sets else fitted.label_names_)]
    header += [f"{name} (sd)" for name in fitted.label_names_ if uncertainty]
    header += ["novelty"] * novelty
    reject_repeated(header, "names more than one column of the predictions; rename one")
    cells = blocks.texts(copied) if copied else itertools.repeat(())
    joined_by, n_rows = separator if label_sets else None, 0
    from cgmvae.methods.communities import loadings_of, most_probable_sets

    novelties, summary = models.Novelties(fitted), _Summary(fitted)
    with (
        console.reading_progress("Predicting") as progress,
        files.atomic_path(out) as temporary,
        files.create_binary(temporary) as file,
    ):
        file.write(_csv([header]))
        for X, given in read:
            novelties.count(X)
            try:
                scores = fitted.predict_proba(X, **given)
            except NonFiniteScores as error:  # its row is that of the block
                raise NonFiniteScores(n_rows + error.row, error.column) from error
            predicted = fitted.threshold_rule_.apply(scores)
            if most_probable:
                predicted = most_probable_sets(scores, loadings_of(fitted)).astype(np.uint8)
            if page is not None:
                summary.add(X, scores, predicted)
            lines = _texts(fitted, scores if probabilities else predicted, joined_by)
            added = [fitted.uncertainty(X, random_state=0)] if uncertainty else []
            added += [fitted.novelty(X)[:, None]] if novelty else []
            if copied or added:
                lines = _between(lines, cells, np.hstack(added) if added else None)
            file.writelines(lines)
            n_rows += X.shape[0]
            progress(n_rows, blocks.share_read())
    novelties.warn()
    if page is not None:
        place = source.options.get("coordinates") or recorded.get("coordinates")
        summary.write_page(page, model, source.name, _places(blocks, place))
    console.print_text(
        f"Wrote predictions for {n_rows:,} row{'s' if n_rows != 1 else ''} and "
        f"{fitted.n_labels_:,} label{'s' if fitted.n_labels_ != 1 else ''} to {out}."
    )


class _Summary:
    """What a page says of all rows, collected block by block."""

    def __init__(self, fitted: Any) -> None:
        self._fitted = fitted
        self._probable = np.zeros(fitted.n_labels_)
        self._predicted = np.zeros(fitted.n_labels_, np.int64)
        self._expected: list[NDArray[np.float64]] = []
        self._novelty: list[NDArray[np.float64]] = []

    def add(
        self, X: Matrix | Columns, scores: NDArray[np.floating], predicted: NDArray[np.uint8]
    ) -> None:
        """Add the rows of a block."""
        self._probable += scores.sum(axis=0, dtype=np.float64)
        self._predicted += predicted.sum(axis=0, dtype=np.int64)
        self._expected.append(scores.sum(axis=1, dtype=np.float64))
        if self._fitted.pipeline_.ranges is not None:
            self._novelty.append(self._fitted.novelty(X))

    def write_page(
        self, path: str, model: str, data: str, places: NDArray[np.float64] | None
    ) -> None:
        """Write the page about the rows."""
        with console.needs_extra("A page", "report"):
            from cgmvae.report.new_rows import NewRows, write_new_rows

            rows = NewRows(
                files.data_name(data),
                Path(model).name,
                self._fitted.label_names_,
                self._probable,
                self._predicted,
                np.concatenate(self._expected),
                np.concatenate(self._novelty) if self._novelty else None,
                places,
            )
            write_new_rows(rows, path, far=models.FAR_OUTSIDE, command=models.current_command())
        console.print_text(f"Wrote {path}.")


def _places(blocks: Blocks, names: Any) -> NDArray[np.float64] | None:
    """Return the places of all rows, if the columns of the coordinates are there."""
    columns = names.split(",") if isinstance(names, str) else list(names or ())
    known = getattr(blocks, "all_names", ())
    if len(columns) != 2 or not {*columns} <= {*known}:
        return None
    cells = [cell for row in blocks.texts(columns) for cell in row]
    numbers = parse_numbers(cells)
    if numbers is None or not np.isfinite(numbers).all():
        console.print_warning(
            f"Some cells of {listed(columns)} are no numbers, so the page has no map."
        )
        return None
    return numbers.reshape(-1, 2)


def _open_blocks(
    source: Source, fitted: Any, names: Sequence[str] | None, with_known: bool
) -> tuple[Blocks, Iterator[tuple[Matrix | Columns, dict[str, Any]]]]:
    """Return the data, and an iterator over blocks of rows: the model's features, and ``known``."""
    n_features, n_labels = fitted.n_features_in_, fitted.n_labels_
    blocks = source.open_blocks(
        features=names or (),
        others=fitted.label_names_,
        n_features=n_features,
        n_labels=n_labels,
    )
    columns = models.match_features(blocks.column_names, names, n_features)
    fewest, most = _BLOCK_ROWS
    n_rows = min(max(fewest, _BLOCK_CELLS // (n_features + n_labels)), most)
    # A power of two, as most methods use for their own batches: the result is then independent of
    # the blocks to the last bit.
    n_rows = 1 << (n_rows.bit_length() - 1)
    read = blocks.read(columns.tolist(), n_rows=n_rows, kinds=fitted.input_kinds())
    if not with_known:
        return blocks, ((X, {}) for X in read)
    known = blocks.known_labels(fitted.label_names_, n_rows=n_rows)
    return blocks, ((X, {"known": each}) for X, each in zip(read, known, strict=True))


def _texts(fitted: Any, values: NDArray[np.number[Any]], separator: str | None) -> Iterator[bytes]:
    """Yield the CSV text of the rows of a block: probabilities, 0 and 1, or joined label names."""
    probabilities = values.dtype.kind == "f"
    names = np.array(fitted.label_names_, dtype=object)
    n_rows = max(1, _TEXT_CELLS // fitted.n_labels_)
    for start in range(0, len(values), n_rows):
        part = values[start : start + n_rows]
        if probabilities:
            yield _csv(part.astype(np.str_).tolist(), escape=False)
        elif separator is None:  # all cells have one digit
            cells = np.full((len(part), 2 * part.shape[1]), ord(","), np.uint8)
            cells[:, ::2] = part + ord("0")
            cells[:, -1] = ord("\n")
            yield cells.tobytes()
        else:
            yield _csv([separator.join(names[row])] for row in part.astype(bool))


def _between(
    texts: Iterable[bytes], before: Iterator[tuple[str, ...]], after: NDArray[np.floating] | None
) -> Iterator[bytes]:
    """Put the copied cells of its row before each line, and numbers after it."""
    numbers = itertools.repeat(()) if after is None else (map("{:.4g}".format, v) for v in after)
    for text in texts:
        rows = csv.reader(io.StringIO(text.decode(), newline=""))
        yield _csv(([*next(before), *row, *next(numbers)] for row in rows), escape=False)


def _csv(rows: Iterable[Sequence[str]], *, escape: bool = True) -> bytes:
    """Return rows as CSV; ``escape`` keeps a spreadsheet from running a name as a formula."""
    text = io.StringIO()
    if escape:
        rows = [[_escaped(cell) for cell in row] for row in rows]
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def _escaped(cell: str) -> str:
    return f"'{cell}" if cell.startswith(_FORMULA) and parse_numbers([cell]) is None else cell
