"""``cgmvae predict``: write labels, probabilities or label sets of new rows to a CSV file."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Annotated, Any

import numpy as np
from numpy.typing import NDArray

from cgmvae.cli import console, models
from cgmvae.cli.arguments import ModelArgument, Source, check_target, flag, option, with_source
from cgmvae.data import files
from cgmvae.data.columns import Columns
from cgmvae.data.dataset import Matrix
from cgmvae.data.streaming import Blocks
from cgmvae.errors import InputError, listed

#: Name of the column of label sets.
SETS_COLUMN = "labels"

#: Cells of features and labels per block, and the limits on its number of rows.
_BLOCK_CELLS, _BLOCK_ROWS = 2**22, (256, 16_384)

#: Predicted cells that are converted to text at a time.
_TEXT_CELLS = 2**18


@with_source
def predict(
    model: ModelArgument,
    source: Source,
    out: Annotated[str, option("FILE.csv", "File to write the predictions to.")],
    probabilities: Annotated[
        bool, flag("--probabilities", "Write probabilities instead of 0 and 1.")
    ] = False,
    label_sets: Annotated[bool, flag("--label-sets", "Write one column of label names.")] = False,
    separator: Annotated[str, option("TEXT", "Separator of the names in that column.")] = ";",
) -> None:
    """Predict the labels of new rows, and write them to a CSV file.

    MODEL is a file that 'cgmvae fit' wrote. Columns are matched by name, in any order; label
    columns are not needed.
    """
    if probabilities and label_sets:
        raise InputError("--probabilities and --label-sets exclude each other; leave one out.")
    if files.data_suffix(out) != ".csv":
        raise InputError(f"Predictions are written as CSV, not as {out}; name a .csv file.")
    check_target(out, model, source.name, overwrite=True)
    fitted, names = models.load_model(model)
    if label_sets:
        _check_separator(separator, fitted.label_names_)
    as_csv = _formatter(fitted, probabilities, separator if label_sets else None)
    blocks, read = _open_blocks(source, fitted, names)
    n_rows = 0
    with console.reading_progress("Predicting") as progress, _created(out) as file:
        file.write(_csv([[SETS_COLUMN] if label_sets else fitted.label_names_]))
        for X in read:
            file.writelines(as_csv(fitted.predict_proba(X)))
            n_rows += X.shape[0]
            progress(n_rows, blocks.share_read())
    console.print_text(
        f"Wrote predictions for {n_rows:,} rows and {fitted.n_labels_:,} labels to {out}."
    )


def _check_separator(separator: str, names: Sequence[str]) -> None:
    """Reject a separator that makes the sets ambiguous."""
    if not separator:
        raise InputError("The separator of the label sets is empty; give one, such as ';'.")
    if ambiguous := [name for name in names if separator in name]:
        raise InputError(
            f"The names {listed(ambiguous)} contain {separator!r}, the separator of label sets; "
            "choose another --separator."
        )


def _open_blocks(
    source: Source, fitted: Any, names: Sequence[str] | None
) -> tuple[Blocks, Iterator[Matrix | Columns]]:
    """Return the data, and an iterator over the model's features in blocks of rows."""
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
    return blocks, blocks.read(columns.tolist(), n_rows=n_rows, kinds=fitted.input_kinds())


def _formatter(
    fitted: Any, probabilities: bool, separator: str | None
) -> Callable[[NDArray[np.floating]], Iterator[bytes]]:
    """Return a function from the scores of a block to the CSV text of its rows."""
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
    """Format rows of 0 and 1 as CSV."""
    cells = np.full((len(values), 2 * values.shape[1]), ord(","), np.uint8)
    cells[:, ::2] = values + ord("0")
    cells[:, -1] = ord("\n")
    return cells.tobytes()


@contextmanager
def _created(path: str) -> Iterator[IO[bytes]]:
    with files.atomic_path(path) as temporary, files.create_binary(temporary) as file:
        yield file
