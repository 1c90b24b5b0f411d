"""The plots of a page: displays of :mod:`cgmvae.report.figures` as pictures inside the page."""

from __future__ import annotations

import base64
import io
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from cgmvae.data import MultiLabelDataset
from cgmvae.report import (
    CalibrationDisplay,
    FeatureImportanceDisplay,
    LabelF1Display,
    LabelWordsDisplay,
    LatentMapDisplay,
    SimilarityCooccurrenceDisplay,
    ThresholdCurveDisplay,
    TrainingHistoryDisplay,
)
from cgmvae.report.contents import Contents
from cgmvae.report.prepared import on_features, words_of

#: A drawing of more bytes than this is stored as points of colour instead.
SVG_LIMIT = 300_000

#: Points an inch of a picture on the page, and of one that is stored as points of colour.
_PAGE_DPI, _PNG_DPI = 72, 144

#: How matplotlib says that its font lacks a letter.
_NO_GLYPH = "Glyph .* missing from font"

#: Features · rows · labels · repeats that are predicted again to see which features matter.
_SHUFFLED_CELLS = 5e7
_SHUFFLED_FEATURES, _SHUFFLES = 200, 3


@dataclass(frozen=True)
class Picture:
    """One plot: what it is, how to read it, and the picture itself as an address in the page."""

    title: str
    text: str
    address: str
    width: int
    height: int


def pictures(model: Any, contents: Contents) -> Iterator[Picture]:
    """Yield the plots that the model and the rows allow."""
    words, model = words_of(model), on_features(model)
    yield from _of_predictions(model, contents)
    yield from _of_labels(model, contents)
    if words:
        yield make_picture(
            "Words that speak for a label",
            "How much the log-odds of a label fall when a word is taken out of the texts that have "
            "it: the words with the largest fall, for the commonest labels.",
            lambda: LabelWordsDisplay.from_estimator(
                model, contents.rows.reference.X, contents.rows.reference, words=words
            ),
        )
    if hasattr(model, "history_"):
        yield make_picture(
            "Training",
            "The terms that training makes small, and the number on validation rows that chooses "
            "the best epoch. Thin lines are single networks.",
            lambda: TrainingHistoryDisplay.from_estimator(model),
        )


def _of_predictions(model: Any, contents: Contents) -> Iterator[Picture]:
    test, own, held = contents.rows.test, contents.measured[0], contents.rows.validation
    if held is not None:
        yield make_picture(
            "Threshold curves",
            "What each number would be on the validation rows under other thresholds. The line is "
            "the threshold that the model uses.",
            lambda: ThresholdCurveDisplay.from_estimator(model, held.X, held),
        )
    yield make_picture(
        "Common and rare labels",
        "Each point is a label: how common it is, and how well it is predicted on the rows tested. "
        "Rare labels have little to learn from.",
        lambda: LabelF1Display.from_predictions(test, own.predicted, label_names=test.label_names),
    )
    yield make_picture(
        "Can probabilities be believed?",
        "Where the curve follows the diagonal, labels with a probability of 0.8 are true eight "
        "times in ten.",
        lambda: CalibrationDisplay.from_predictions(test, own.scores, label_names=test.label_names),
    )


def _of_labels(model: Any, contents: Contents) -> Iterator[Picture]:
    if len(contents.similarity) > 1:
        yield make_picture(
            "Alike, and together?",
            "Each point is a pair of labels: how alike the model finds them, and how strongly they "
            "occur together. Pairs far from the others are named.",
            lambda: _cooccurrence(contents),
        )
    yield make_picture(
        "Which features matter",
        "How much worse the ranking of rows becomes, over all labels, when a feature is shuffled.",
        lambda: _importance(model, contents.rows.test),
    )
    if hasattr(model, "label_prior"):
        yield make_picture(
            "Labels in latent space",
            "Every label is a cloud in the space of codes, seen from its widest side: near clouds "
            "are labels that the model takes for much the same.",
            lambda: LatentMapDisplay.from_estimator(model),
        )


def _cooccurrence(contents: Contents) -> Any:
    reference = contents.rows.reference
    return SimilarityCooccurrenceDisplay.from_similarity(
        contents.similarity, reference, label_names=reference.label_names
    )


def _importance(model: Any, test: MultiLabelDataset) -> Any:
    n_features = min(test.n_features, _SHUFFLED_FEATURES)
    n_rows = int(_SHUFFLED_CELLS / (n_features * _SHUFFLES * test.n_labels))
    return FeatureImportanceDisplay.from_estimator(
        model,
        test.X,
        test,
        feature_names=test.feature_names,
        n_repeats=_SHUFFLES,
        max_features=n_features,
        max_rows=max(n_rows, 50),
    )


def make_picture(title: str, text: str, make: Callable[[], Any]) -> Picture:
    """Draw the display that ``make`` returns."""
    with warnings.catch_warnings(record=True) as told:
        warnings.filterwarnings("always", _NO_GLYPH, UserWarning)
        figure = make().plot().figure_
        address = _drawn(figure, "svg", _PAGE_DPI)
        if told:  # letters that are not in the font here are left to the reader's fonts
            address = _drawn(figure, "svg", _PAGE_DPI, letters="none")
        if len(address) > SVG_LIMIT:
            address = _drawn(figure, "png", _PNG_DPI)
    width, height = (round(inches * _PAGE_DPI) for inches in figure.get_size_inches())
    return Picture(title, text, address, width, height)


def _drawn(figure: Any, format_: str, dpi: int, *, letters: str = "path") -> str:
    """Return a figure as an address that holds the picture; its paper is left away."""
    from matplotlib import rc_context

    stream = io.BytesIO()
    metadata = {"Date": None} if format_ == "svg" else {}
    with rc_context({"svg.fonttype": letters}):
        figure.savefig(stream, format=format_, dpi=dpi, transparent=True, metadata=metadata)
    kind = {"svg": "image/svg+xml", "png": "image/png"}[format_]
    return f"data:{kind};base64,{base64.b64encode(stream.getvalue()).decode('ascii')}"
