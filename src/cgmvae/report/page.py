"""One page of HTML from what a report says: complete in itself, and deaf to the network.

Names of labels and files are text everywhere: jinja2 escapes them in HTML, :func:`embedded_json`
in the data, and the scripts only ever set text. A content security policy allows the page's own two
scripts by their checksums and forbids every request.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Iterator
from importlib import resources
from typing import Any

from cgmvae.data.files import atomic_path
from cgmvae.evaluation import PAPER_METRICS
from cgmvae.methods import REGISTRY, method_name
from cgmvae.report.comparison import Verdict
from cgmvae.report.contents import Contents
from cgmvae.report.figures.style import title_of
from cgmvae.report.pictures import pictures

#: The explorer's scripts, in the order in which they need each other.
SCRIPTS = (
    *("store", "scoring", "search", "label", "viewport"),
    *("heatmap", "labelmap", "thresholds", "errors", "start"),
)

SECTIONS = (
    ("summary", "Summary"),
    ("numbers", "Numbers"),
    ("warnings", "Warnings"),
    ("labels", "Labels"),
    ("thresholds", "Thresholds"),
    ("errors", "Errors"),
    ("plots", "Plots"),
    ("card", "Model card"),
    ("reproduce", "Reproduce"),
)

MEANINGS = {
    "example_f1": "How well the labels of a row are met, on average over the rows.",
    "micro_f1": "All labels of all rows in one pot: common labels weigh most.",
    "macro_f1": "The mean over labels: a rare label weighs as much as a common one.",
    "hamming_accuracy": "Share of all yes-or-no answers that are right; easily high where labels "
    "are rare.",
    "precision_at_1": "How often the label that the model is surest of is there.",
}

#: The least span of a metric's scale, so that small differences do not look large.
_LEAST_SPAN = 0.1

#: A difference of which three decimals would show nothing.
_SMALL = 0.001


def write_page(
    model: Any, contents: Contents, path: str | os.PathLike[str], *, command: str = ""
) -> None:
    """Write the page of a report, whole or not at all."""
    page = render(model, contents, command=command)
    with atomic_path(path) as temporary:
        temporary.write_text(page, encoding="utf-8")


def render(model: Any, contents: Contents, *, command: str = "") -> str:
    """Return the page of a report.

    Parameters
    ----------
    model : estimator
        The one that the contents are about; some plots ask it more.
    contents : Contents
    command : str
        What made the page, to be shown at its end.
    """
    from markupsafe import Markup

    theme, script = read_template("scripts/theme.js"), _explorer_script()
    return find_template("report.html").render(
        c=contents,
        command=command,
        sections=SECTIONS,
        metrics=[_metric(contents, name) for name in PAPER_METRICS],
        explorer_notes=list(_notes(contents)),
        pictures=list(pictures(model, contents)),
        publication=_publication(model),
        policy=content_policy(theme, script),
        style=Markup(read_template("style.css")),
        theme=Markup(theme),
        script=Markup(script),
        data=Markup(embedded_json(contents.explorer.packed())),
    )


def embedded_json(value: Any) -> str:
    r"""Return JSON that can stand inside a ``script`` element whatever its texts say.

    Examples
    --------
    >>> embedded_json(["</script>"])
    '["\\u003c/script\\u003e"]'
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def find_template(name: str) -> Any:
    """Return a template of this package, in which every text is escaped."""
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
        "f": _three_digits,
        "f2": "{:.2f}".format,
        "percent": "{:.0%}".format,
        "duration": _duration,
    }
    return environment.get_template(name)


def read_template(name: str) -> str:
    """Return the text of a style or a script."""
    place = resources.files("cgmvae.report") / "templates" / name
    return place.read_text(encoding="utf-8")


def _explorer_script() -> str:
    parts = "\n".join(read_template(f"scripts/{name}.js") for name in SCRIPTS)
    return f'(() => {{\n"use strict";\n{parts}}})();\n'


def content_policy(*scripts: str) -> str:
    """Return a policy that allows these scripts and forbids every request."""
    sums = (hashlib.sha256(script.encode()).digest() for script in scripts)
    allowed = " ".join(f"'sha256-{base64.b64encode(each).decode()}'" for each in sums)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _metric(contents: Contents, name: str) -> dict[str, Any]:
    """Return one metric of all methods, with places on a scale that all its intervals fit on."""
    found = [(measured.title, measured.metrics[name]) for measured in contents.measured]
    numbers = [value for _, interval in found for value in interval if value == value]
    low, high = (min(numbers), max(numbers)) if numbers else (0.0, 1.0)
    spare = max(_LEAST_SPAN - (high - low), 0) / 2
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
    if verdict.sign == 0:
        return f"These rows do not tell it from {verdict.rival}, the best of the others ({span})."
    size = f"{abs(value):.3f}" if abs(value) >= _SMALL else f"Less than {_SMALL}"
    word = "better" if verdict.sign > 0 else "worse"
    return f"{size} {word} than {verdict.rival}, the best of the others ({span})."


def _notes(contents: Contents) -> Iterator[str]:
    explorer, test = contents.explorer, contents.rows.test
    if len(explorer.rows) < test.n_samples:
        yield (
            f"To keep the page small it carries {len(explorer.rows):,} of {test.n_samples:,} rows, "
            "drawn at random: thresholds and errors below are those of these rows."
        )
    if len(explorer.names) < test.n_labels:
        yield (
            f"To keep the page small it carries the {len(explorer.names):,} commonest of "
            f"{test.n_labels:,} labels: numbers below are those of these labels."
        )


def _publication(model: Any) -> str:
    name = method_name(model)
    return REGISTRY[name].paper if name in REGISTRY else ""


def _three_digits(value: float) -> str:
    return "–" if value != value else f"{value:.3f}"


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} seconds" if seconds < 120 else f"{seconds / 60:.0f} minutes"
