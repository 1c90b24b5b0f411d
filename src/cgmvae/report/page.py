"""The page of a report: one HTML file without external resources.

Names of labels and files are plain text everywhere: jinja2 escapes them in HTML and in the data,
and the scripts only ever set text. A content security policy allows the page's own two scripts by
their hashes and forbids every request.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

import numpy as np

from cgmvae.data.files import atomic_path
from cgmvae.evaluation import PAPER_METRICS
from cgmvae.evaluation.breakdown import MIN_LABEL_ROWS, of_labels
from cgmvae.report import (
    CalibrationDisplay,
    LabelF1Display,
    LabelWordsDisplay,
    LatentMapDisplay,
    SimilarityCooccurrenceDisplay,
    ThresholdCurveDisplay,
    TrainingHistoryDisplay,
)
from cgmvae.report.contents import N_PANELS, N_SHUFFLES, Contents, Verdict, network_of
from cgmvae.report.figures.sites import SiteMapDisplay
from cgmvae.report.figures.style import (
    AMBER,
    BLUE,
    GRAY,
    GREEN,
    ORANGE,
    PURPLE,
    SKY,
    Display,
    title_of,
)
from cgmvae.report.rows import on_features, words_of

#: The explorer's scripts, in order of their dependencies.
SCRIPTS = (
    *("store", "scoring", "search", "label", "given", "viewport"),
    *("table", "heatmap", "labelmap", "thresholds", "errors", "start"),
)

SECTIONS = (
    ("summary", "Summary"),
    ("numbers", "Numbers"),
    ("warnings", "Warnings"),
    ("table", "Table"),
    ("labels", "Labels"),
    ("thresholds", "Thresholds"),
    ("errors", "Errors"),
    ("plots", "Plots"),
    ("experts", "For experts"),
    ("card", "Model card"),
    ("reproduce", "Reproduce"),
)

MEANINGS = {
    "example_f1": "F1 of the labels of a row, averaged over the rows; 1 for a row that has no "
    "label and for which none is predicted.",
    "micro_f1": "F1 over all labels of all rows together: frequent labels weigh most.",
    "macro_f1": "F1 averaged over the labels that occur: a rare label weighs as much as a frequent "
    "one.",
    "hamming_accuracy": "Share of all yes-or-no decisions that are correct; it is high wherever "
    "labels are rare.",
    "precision_at_1": "How often the most probable label of a row is true.",
}

#: Minimum range of a metric's axis, so that small differences do not look large.
_MIN_RANGE = 0.1

#: Smaller differences round to 0.
_SMALL = 0.001

#: Width and height of the plots in inches: on a phone, text is as large as in a footnote.
PLOT_SIZE, TALL_PLOT_SIZE, MAP_SIZE = (5.0, 4.2), (5.0, 6.0), (5.0, 7.0)

#: The page's variable for each color of the figures, so that they follow the theme.
_VARIABLES = {
    "#000000": "--ink",
    "#ffffff": "--panel",
    GRAY: "--rival",
    "#808080": "--rival",  # matplotlib's gray, its grid, and the frame of its legends
    "#b0b0b0": "--soft",
    "#cccccc": "--line",
    BLUE: "--blue",
    ORANGE: "--orange",
    GREEN: "--green",
    PURPLE: "--purple",
    AMBER: "--amber",
    SKY: "--sky",
}

#: Matplotlib's warning about a character that its font lacks; the reader's fonts may have it.
_NO_GLYPH = "Glyph .* missing from font"


def write_page(
    model: Any, contents: Contents, path: str | os.PathLike[str], *, command: str = ""
) -> None:
    """Write the page of a report, atomically."""
    page = render(model, contents, command=command)
    with atomic_path(path) as temporary:
        temporary.write_text(page, encoding="utf-8")


def render(model: Any, contents: Contents, *, command: str = "") -> str:
    """Return the page of a report, which ends with the command that made it.

    Some plots need the model that the contents describe.
    """
    from jinja2.utils import htmlsafe_json_dumps
    from markupsafe import Markup

    drawn = list(pictures(model, contents))
    theme = read_template("scripts/theme.js")
    parts = "\n".join(read_template(f"scripts/{name}.js") for name in SCRIPTS)
    script = f'(() => {{\n"use strict";\n{parts}}})();\n'
    return find_template("report.html").render(
        c=contents,
        command=command,
        sections=SECTIONS,
        metrics=[_metric(contents, name) for name in PAPER_METRICS],
        explorer_notes=list(_notes(contents)),
        places={name: place for place, name in enumerate(contents.explorer.names)},
        min_label_rows=MIN_LABEL_ROWS,
        n_left_out=contents.rows.test.n_labels - len(contents.compared),
        oracle_is_lower=any(
            contents.oracle[name] < value for name, value in contents.all_labels.items()
        ),
        pictures=[picture for picture in drawn if not picture.for_experts],
        expert_pictures=[picture for picture in drawn if picture.for_experts],
        policy=content_policy(theme, script),
        style=Markup(read_template("style.css")),
        theme=Markup(theme),
        script=Markup(script),
        data=htmlsafe_json_dumps(
            contents.explorer.packed(), separators=(",", ":"), allow_nan=False
        ),
    )


def find_template(name: str) -> Any:
    """Return a template of this package with autoescaping."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("cgmvae.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {
        "n": "{:,}".format,
        "rows": lambda n: "1 row" if n == 1 else f"{n:,} rows",
        "f": lambda value: "–" if value != value else f"{value:.3f}".replace("-", "−"),
        "f2": "{:.2f}".format,
        "percent": "{:.0%}".format,
        "duration": lambda s: f"{s:.0f} seconds" if s < 120 else f"{s / 60:.0f} minutes",
    }
    return environment.get_template(name)


def read_template(name: str) -> str:
    """Return the content of a style sheet or a script."""
    path = resources.files("cgmvae.report") / "templates" / name
    return path.read_text(encoding="utf-8")


def content_policy(*scripts: str) -> str:
    """Return a content security policy that allows these scripts and forbids every request."""
    sums = (hashlib.sha256(script.encode()).digest() for script in scripts)
    allowed = " ".join(f"'sha256-{base64.b64encode(each).decode()}'" for each in sums)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _metric(contents: Contents, name: str) -> dict[str, Any]:
    """Return one metric of all methods, with positions on an axis that fits all intervals."""
    found = [(measured.title, measured.metrics[name]) for measured in contents.measured]
    numbers = [value for _, interval in found for value in interval if value == value]
    low, high = (min(numbers), max(numbers)) if numbers else (0.0, 1.0)
    spare = max(_MIN_RANGE - (high - low), 0) / 2
    start, end = max(low - spare - 0.01, 0.0), min(high + spare + 0.01, 1.0)

    def at(value: float) -> float:
        return round(100 * (value - start) / (end - start), 2) if value == value else 0.0

    lines = [
        {
            "title": title,
            **interval._asdict(),
            "at": at(interval.value),
            "low_at": at(interval.low),
            "width": round(at(interval.high) - at(interval.low), 2),
        }
        for title, interval in found
    ]
    verdict = next((v for v in contents.verdicts if v.metric == name), None)
    return {
        "name": name,
        "title": title_of(name),
        "meaning": MEANINGS[name],
        "lines": lines,
        "start": start,
        "end": end,
        "verdict": _sentence(verdict) if verdict else "",
    }


def _sentence(verdict: Verdict) -> str:
    value, low, high = verdict.difference
    span = f"95% interval {low:+.3f} to {high:+.3f}".replace("-", "−")
    if value == low == high == 0:
        return f"Exactly as good as {verdict.rival}, the best baseline."
    if verdict.sign == 0:
        return f"Not significantly different from {verdict.rival}, the best baseline ({span})."
    size = f"{abs(value):.3f}" if abs(value) >= _SMALL else f"Less than {_SMALL}"
    word = "better" if verdict.sign > 0 else "worse"
    return f"{size} {word} than {verdict.rival}, the best baseline ({span})."


def _notes(contents: Contents) -> Iterator[str]:
    explorer, test = contents.explorer, contents.rows.test
    few, small = len(explorer.rows), "To keep the page small, the explorer has"
    if few < test.n_samples:
        rows = f"{few:,} of {test.n_samples:,} rows, drawn at random"
        yield f"{small} {rows}; thresholds and errors below refer to them."
    if (few := len(explorer.names)) < len(contents.compared):
        labels = f"the {few:,} most frequent of {len(contents.compared):,} labels"
        yield f"{small} {labels}; numbers below refer to them."


# --- Plots ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Picture:
    """A plot, or a table of words, with its title and explanation."""

    title: str
    text: str
    svg: Any = ""
    """An element of the page."""
    notes: Sequence[str] = ()
    """Numbered lines below the plot."""
    words: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Words by label."""
    for_experts: bool = False
    """Whether only those can read it who know the method."""


def pictures(model: Any, contents: Contents) -> Iterator[Picture]:
    """Yield the plots that the model and the rows allow."""
    words = words_of(model)
    model = on_features(model)
    reference, test, own = contents.rows.reference, contents.rows.test, contents.measured[0]
    if test.coordinates is not None:
        train = contents.rows.train
        in_blocks = train is not None and test.groups is not None
        yield make_picture(
            "Where it errs",
            "Each colored point is a test row at its place; training rows are gray. "
            + ("No block in space has rows of both, so this is a test in new places. " * in_blocks)
            + "Regions of many errors lack a feature, or training rows.",
            SiteMapDisplay.from_predictions(
                test,
                own.predicted,
                own.scores,
                others=() if train is None else train.coordinates,
            ),
            MAP_SIZE,
        )
    if (curve := getattr(model, "threshold_curve_", None)) is not None:
        which = f"{curve.n_rows:,} validation rows, which may also have chosen the best epoch"
        if curve.out_of_fold:
            which = f"{curve.n_rows:,} training rows, each scored by models that did not see it"
        yield make_picture(
            "Threshold curves",
            f"Each metric as a function of the threshold, on {which}. The dashed line is the "
            "threshold that the model uses.",
            ThresholdCurveDisplay.from_fit(model),
        )
    yield make_picture(
        "Frequent and rare labels",
        "Each point is a label: how frequent it is, and how well it is predicted on the test rows. "
        "Rare labels have few examples to learn from.",
        LabelF1Display.from_predictions(test, own.predicted, label_names=test.label_names),
    )
    yield make_picture(
        "Calibration",
        "If the curve follows the diagonal, labels with a probability of 0.8 are true in 80% of "
        "all cases.",
        CalibrationDisplay.from_predictions(test, own.scores, label_names=test.label_names),
    )
    if len(contents.compared) > 1:
        seen = of_labels(reference, contents.compared)
        similarity = contents.similarity[np.ix_(contents.compared, contents.compared)]
        pairs = SimilarityCooccurrenceDisplay.from_similarity(
            similarity, seen, label_names=seen.label_names
        )
        yield make_picture(
            "Similarity and co-occurrence",
            "Each point is a pair of labels: how similar they are to the model, and how strongly "
            "they co-occur. The pairs with the largest disagreement are listed.",
            pairs,
            notes=[pairs.describe(pair) for pair in pairs.most_disagreeing().tolist()],
            listed=False,
        )
    yield from _columns_that_matter(model, contents, words)
    network = network_of(model)
    of = "" if network is model else "This is about the C-GMVAE expert. "
    if hasattr(network, "label_prior"):
        yield make_picture(
            "Labels in latent space",
            f"{of}Every label is a Gaussian in latent space, projected on two dimensions. Labels "
            "whose Gaussians are close are similar to the model.",
            LatentMapDisplay.from_estimator(network, labels=contents.compared),
            for_experts=True,
        )
    if hasattr(network, "history_"):
        yield make_picture(
            "Training",
            f"{of}The loss terms, and the validation metric that selects the best epoch. Thin "
            "lines are the members of the ensemble.",
            TrainingHistoryDisplay.from_estimator(network),
            TALL_PLOT_SIZE,
            for_experts=True,
        )


def _columns_that_matter(
    model: Any,
    contents: Contents,
    words: Mapping[int, str],
) -> Iterator[Picture]:
    """Yield the importance of the columns without text, responses, and the words of each label."""
    reference = contents.rows.reference
    if (importance := contents.importance) is not None:
        n_tried, n_columns = len(importance.feature_names), importance.n_features
        which = "all" if n_tried == n_columns else f"{n_tried:,} of"
        kind = "columns that are not text" if words else "columns"
        yield make_picture(
            "Which columns matter",
            f"Tried on {importance.n_rows:,} test rows: {which} {n_columns:,} {kind} were "
            f"shuffled, one at a time, {N_SHUFFLES} times each. The bars show by how much the "
            "average precision drops, averaged over the labels; the more it drops, the more the "
            "model relies on the column. The table of labels names the columns of each.",
            importance,
        )
    if (responses := contents.responses) is not None:
        yield make_picture(
            "How labels respond",
            "For the labels that are predicted best, the columns that they rely on most: how the "
            "probability changes if nothing but the column does. The thick line is the mean, thin "
            "ones are single rows, and ticks at the bottom are training rows: where there are few, "
            "the curve is a guess. The command cgmvae effects writes the curves of all labels.",
            responses,
            (PLOT_SIZE[0], 0.5 + 1.9 * -(-len(responses.panels) // N_PANELS[1])),
            n_columns=N_PANELS[1],
        )
    if words:
        found = LabelWordsDisplay.from_estimator(
            model, reference.X, reference, words=words, labels=contents.compared
        )
        yield Picture(
            "Which words matter",
            f"For the {len(found.label_names):,} most frequent labels, the words that go with a "
            "high probability were removed from the texts that contain them. These lower the "
            "log-odds of the label most; the number is by how much.",
            words={
                label: [f"{word} {effect:.1f}" for word, effect in found.top(label)]
                for label in found.label_names
            },
        )


def make_picture(
    title: str,
    text: str,
    display: Display,
    size: tuple[float, float] | None = PLOT_SIZE,
    *,
    notes: Sequence[str] = (),
    for_experts: bool = False,
    **options: Any,
) -> Picture:
    """Draw a display, at a size in inches or at its own, with the options of its ``plot``."""
    display.size = size
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", _NO_GLYPH, UserWarning)
        figure = display.plot(**options).figure_
        svg = inline_svg(figure, title)
    return Picture(title, text, svg, notes=notes, for_experts=for_experts)


def inline_svg(figure: Any, title: str) -> Any:
    """Return a figure as an element of the page, in its fonts and with its colors."""
    from markupsafe import Markup, escape
    from matplotlib import rc_context
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        text.set_path_effects([])  # the style sheet draws a halo around all text
    stream = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": title}):
        figure.savefig(stream, format="svg", dpi=72, transparent=True, metadata={"Date": None})
    svg = stream.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.DOTALL)
    width, height = 72 * figure.get_size_inches()
    start = f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(title)}">'
    return Markup(start + re.sub("<[^>]+>", _restyled, svg[svg.index(">") + 1 :]))


def _restyled(tag: re.Match[str]) -> str:
    """Return a tag of an SVG with the fonts and colors of the page, and without needless bytes."""
    text = re.sub(r'^<g id="[^"]*"', "<g", tag[0])
    text = re.sub(r"(\d\.\d{2})\d+", r"\1", text)  # a hundredth of a point is enough
    text = re.sub(r"font-family: [^;\"]*;? ?", "", text)
    for color, variable in _VARIABLES.items():
        text = text.replace(f": {color.lower()}", f": var({variable})")
    return text
