"""Time until a model is there, compared with what people would use instead.

    python benchmarks/fit_time.py [--data yeast scene sider] [--repeats 3] [--out FILE.json]
    python benchmarks/fit_time.py --data reuters_text imdb --repeats 1

For each data set a random forest of 300 trees, the default fits of C-GMVAE and of the blend, and
LightGBM (100 trees per label, if it is installed) are fitted on the same 90% of the rows in one
run: seconds, the ratio to the first, peak memory, micro-F1 and macro-F1 on the rest with each
method's own threshold, the size of the model file, seconds for the labels of 24,170 rows (ten times
yeast) and their ratio to the first, and milliseconds for one row. With sparse features LinearSVC is
fitted too, and the forest only if the rows are few; with raw text (``reuters_text``, the documents
of the data set reuters) TfidfVectorizer and LinearSVC are the only other method. Times are medians;
a ratio compares two methods in one repetition. A data set that is run replaces its numbers in the
file.
"""

from __future__ import annotations

import gzip
import json
import os
import statistics
import sys
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse as sp
from measurement import (
    MIB,
    TINY,
    TINY_ROWS,
    PeakMemory,
    Results,
    add_out,
    environment,
    made,
    make_parser,
    print_header,
    print_row,
    seconds,
)
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

from cgmvae.data import load_dataset, make_split
from cgmvae.data.catalog import locate
from cgmvae.evaluation import macro_f1, micro_f1
from cgmvae.methods import BinaryRelevance, BlendClassifier, CGMVAEClassifier

#: Trees of the forest, and of LightGBM for each label; with --quick a few of both.
FOREST_TREES, BOOSTED_TREES, QUICK_TREES = 300, 100, 3

#: Rows that are predicted at once, ten times those of yeast; and how often a single one is.
BULK_ROWS, SINGLE_ROWS = 24_170, 20

#: A forest grows for many minutes on more sparse rows than these.
FEW_SPARSE_ROWS = 10_000

#: The name that stands for the documents of the data set reuters.
TEXT = "reuters_text"


class Fitted(NamedTuple):
    """One measured fit."""

    seconds: float
    peak: int
    """Bytes of memory beyond those before the fit."""
    micro_f1: float
    macro_f1: float
    size: int | None
    """Bytes of the model's file."""
    bulk: float
    """Seconds until many rows are predicted."""
    row: float
    """Seconds until one row is predicted."""


def measured(model: Any, X: Any, labels: Any, X_test: Any, truth: Any) -> Fitted:
    """Fit a model, and measure it."""
    with PeakMemory() as memory:
        took = seconds(lambda: model.fit(X, labels))
    size = None
    if isinstance(model, CGMVAEClassifier | BlendClassifier):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.cgmvae"
            model.save(path)
            size = path.stat().st_size
    found = model.predict(X_test)
    f1 = micro_f1(truth, found), macro_f1(truth, found)
    many, one = (_repeated(X_test, n) for n in (BULK_ROWS, 1))
    bulk = seconds(lambda: model.predict(many))
    row = statistics.median(seconds(lambda: model.predict(one)) for _ in range(SINGLE_ROWS))
    return Fitted(took, memory.peak - memory.before, *f1, size, bulk, row)


def _repeated(X: Any, n_rows: int) -> Any:
    rows = np.resize(np.arange(X.shape[0]), n_rows)
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


def read_texts() -> list[str]:
    """Return title and body of the documents of the data set reuters, in its order."""
    path = locate("reuters")
    if path is None:
        raise SystemExit("The documents of reuters are missing; put them beside its features.")
    with gzip.open(path.with_name("reuters_raw.jsonl.gz"), "rt") as file:
        documents = [json.loads(line) for line in file]
    return [f"{document['title']}\n{document['body']}" for document in documents]


def fits(name: str, *, quick: bool) -> dict[str, Fitted]:
    """Fit all methods on one data set."""
    is_text = name == TEXT
    data = load_dataset("reuters" if is_text else name)
    texts = np.array(read_texts() if is_text else [])
    if quick:
        data = data.rows(np.arange(TINY_ROWS))
    settings: dict[str, Any] = TINY if quick else {}
    n_forest, n_boosted = (QUICK_TREES,) * 2 if quick else (FOREST_TREES, BOOSTED_TREES)
    n_jobs = 1 if quick else -1
    split = make_split(data, seed=0, drop_empty=True)
    rows = np.sort(np.concatenate([split.train, split.validation])), split.test
    train, test = map(data.rows, rows)
    X, X_test = train.X, test.X
    if is_text:
        X, X_test = (pd.DataFrame({"text": texts[own]}) for own in rows)

    def measure(model: Any, labels: Any, *inputs: Any) -> Fitted:
        given, asked = inputs or (X, X_test)
        return measured(model, given, labels, asked, test.Y)

    ours = CGMVAEClassifier(random_state=0, **settings)
    found = {}
    if is_text:
        linear = make_pipeline(TfidfVectorizer(sublinear_tf=True), OneVsRestClassifier(LinearSVC()))
        found["LinearSVC"] = measure(linear, train.Y, X["text"], X_test["text"])
    elif not sp.issparse(X) or train.n_samples <= FEW_SPARSE_ROWS:
        forest = RandomForestClassifier(n_forest, n_jobs=n_jobs, random_state=0)
        found["random forest"] = measure(forest, train.Y)
    if sp.issparse(X) and not is_text:
        found["LinearSVC"] = measure(OneVsRestClassifier(LinearSVC()), train.Y)
    found["C-GMVAE"] = measure(ours, train)
    found["blend"] = measure(BlendClassifier(auto_network=clone(ours), random_state=0), train)
    try:
        from lightgbm import LGBMClassifier
    except ImportError:
        return found
    if not is_text:
        trees = LGBMClassifier(n_estimators=n_boosted, n_jobs=n_jobs, verbose=-1, random_state=0)
        found["LightGBM"] = measure(BinaryRelevance(trees), train)
    return found


def summarize(runs: Sequence[dict[str, Fitted]]) -> dict[str, dict[str, Any]]:
    """Return medians over the repetitions by method, and ratios to the first method."""
    first = next(iter(runs[0]))
    found = {}
    for method, fitted in runs[0].items():

        def median(name: str, method: str = method) -> float:
            return statistics.median(getattr(run[method], name) for run in runs)

        def ratio(name: str, method: str = method) -> float:
            pairs = ((getattr(run[method], name), getattr(run[first], name)) for run in runs)
            return statistics.median(own / other for own, other in pairs)

        found[method] = {
            "seconds": round(median("seconds"), 2),
            "ratio": round(ratio("seconds"), 3),
            "peak_mib": round(fitted.peak / MIB),
            "micro_f1": round(fitted.micro_f1, 4),
            "macro_f1": round(fitted.macro_f1, 4),
            "file_mib": None if fitted.size is None else round(fitted.size / MIB, 1),
            "bulk_seconds": round(median("bulk"), 3),
            "bulk_ratio": round(ratio("bulk"), 3),
            "row_ms": round(1000 * median("row"), 2),
        }
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table."""
    parser = make_parser(__doc__)
    add_out(parser)
    parser.add_argument("--data", nargs="*", default=["yeast", "scene", "sider"])
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args(argv)
    if options.quick:
        options.data, options.repeats = ["yeast", *([TEXT] if locate("reuters") else [])], 1
    # scikit-learn names every label without an example, and predicts it nowhere.
    warnings.filterwarnings("ignore", "Label not")
    print(environment())
    results, origin = Results(options.out), made("python benchmarks/fit_time.py", "cpu")
    origin |= {"repeats": options.repeats, "load": round(os.getloadavg()[0], 1)}
    printed = False
    for name in options.data:
        found = summarize([fits(name, quick=options.quick) for _ in range(options.repeats)])
        results.add((name,), {"made": origin, "methods": found})
        for method, values in found.items():
            if not printed:
                print_header("data", "method", *values)
                printed = True
            print_row(name, method, *values.values())
    return 0


if __name__ == "__main__":
    sys.exit(main())
