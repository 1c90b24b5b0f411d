"""``cgmvae predict``: labels, probabilities or label sets for new rows, as a CSV file."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from cgmvae.cli.output import print_text, reading_progress
from cgmvae.cli.sources import ModelArgument, Source, feature_places, load_fitted, with_source
from cgmvae.cli.targets import check_target
from cgmvae.data import files
from cgmvae.data.columns import Columns
from cgmvae.data.dataset import Matrix
from cgmvae.data.streaming import Blocks
from cgmvae.errors import InputError, listed

#: The column that label sets are written to.
SETS_COLUMN = "labels"

#: The most cells of features and labels in a block, and the fewest and the most rows.
_BLOCK_CELLS, _BLOCK_ROWS = 2**22, (256, 16_384)

#: Predicted cells that are turned into text at a time.
_TEXT_CELLS = 2**18


@with_source
def predict(
    model: ModelArgument,
    source: Source,
    out: Annotated[str, typer.Option(metavar="FILE.csv", help="File of the predictions.")],
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Write probabilities, not 0 and 1.")
    ] = False,
    label_sets: Annotated[
        bool, typer.Option("--label-sets", help="Write one column with the names of the labels.")
    ] = False,
    separator: Annotated[
        str, typer.Option(metavar="TEXT", help="What separates the names in that column.")
    ] = ";",
) -> None:
    """Predict the labels of new rows, and write them to a CSV file.

    MODEL is a file that 'cgmvae fit' wrote. Columns are found by their names, in any order; label
    columns need not be there.
    """
    if probabilities and label_sets:
        raise InputError("--probabilities and --label-sets exclude each other; leave one out.")
    if files.data_suffix(out) != ".csv":
        raise InputError(f"Predictions are written as CSV, not as {out}; name a .csv file.")
    check_target(out, model, source.name, overwrite=True)
    fitted, names = load_fitted(model)
    if label_sets:
        _check_separator(separator, fitted.label_names_)
    as_texts = _how_written(fitted, probabilities, separator if label_sets else None)
    blocks, read = _open_blocks(source, fitted, names)
    n_rows = 0
    with reading_progress("Predicting") as tell, _created(out) as file:
        file.write(_csv([[SETS_COLUMN] if label_sets else fitted.label_names_]))
        for X in read:
            file.writelines(as_texts(fitted.predict_proba(X)))
            n_rows += X.shape[0]
            tell(n_rows, blocks.share_read())
    print_text(f"Wrote predictions for {n_rows:,} rows and {fitted.n_labels_:,} labels to {out}.")


def _check_separator(separator: str, names: Sequence[str]) -> None:
    """Refuse a separator by which the sets could not be taken apart again."""
    if not separator:
        raise InputError("The separator of the label sets is empty; give one, such as ';'.")
    if unclear := [name for name in names if separator in name]:
        raise InputError(
            f"The names {listed(unclear)} hold {separator!r}, which separates the names of a set; "
            "choose another --separator."
        )


def _open_blocks(
    source: Source, fitted: Any, names: Sequence[str] | None
) -> tuple[Blocks, Iterator[Matrix | Columns]]:
    """Return the data, and what reads the model's features from it, a block of rows at a time."""
    n_features, n_labels = fitted.n_features_in_, fitted.n_labels_
    blocks = source.open_blocks(
        features=names or (),
        others=fitted.label_names_,
        n_features=n_features,
        n_labels=n_labels,
    )
    places = feature_places(blocks.column_names, names, n_features)
    fewest, most = _BLOCK_ROWS
    n_rows = min(max(fewest, _BLOCK_CELLS // (n_features + n_labels)), most)
    # A power of two: most methods score rows in such numbers, so that the blocks change no bit.
    n_rows = 1 << (n_rows.bit_length() - 1)
    return blocks, blocks.read(places.tolist(), n_rows=n_rows, kinds=fitted.input_kinds())


def _how_written(
    fitted: Any, probabilities: bool, separator: str | None
) -> Callable[[NDArray[np.floating]], Iterator[bytes]]:
    """Return what turns the scores of a block into the text of its rows."""
    n_rows = max(1, _TEXT_CELLS // fitted.n_labels_)
    names = np.array(fitted.label_names_, dtype=object)

    def texts(scores: NDArray[np.floating]) -> Iterator[bytes]:
        values = scores if probabilities else fitted.threshold_rule_.apply(scores)
        for start in range(0, len(values), n_rows):
            part = values[start : start + n_rows]
            if probabilities:
                yield _csv(part.astype(np.str_).tolist())
            elif separator is None:
                yield _bits(part)
            else:
                yield _csv([separator.join(names[row])] for row in part.astype(bool))

    return texts


def _csv(rows: Iterable[Sequence[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def _bits(values: NDArray[Any]) -> bytes:
    """Return rows of 0 and 1 as CSV."""
    cells = np.full((len(values), 2 * values.shape[1]), ord(","), np.uint8)
    cells[:, ::2] = values + ord("0")
    cells[:, -1] = ord("\n")
    return cells.tobytes()


@contextmanager
def _created(path: str) -> Iterator[IO[bytes]]:
    with files.atomic_path(path) as temporary, files.create_binary(temporary) as file:
        yield file
