"""The published numbers against the paper's text, where the paper is at hand."""

import re

import pytest

from cgmvae.evaluation import PAPER_METRICS
from cgmvae.methods import REGISTRY
from cgmvae.methods.registry import PAPER_METHODS
from cgmvae.studies.published import published, published_value

NAMES = ("ebird", "mirflickr", "nus_vec", "yeast", "scene", "sider", "reuters", "bookmarks")
NAMES += ("delicious",)


@pytest.fixture(scope="module")
def text(paper):
    return re.sub(r"\\(?:textbf|underline)\{([^}]*)\}", r"\1", paper)


def table_before(text, caption):
    return text[: text.index(caption)].rpartition("\\toprule")[2]


def rows_of(text, caption):
    """Return the cells of a table's rows, the table being the last one before its caption."""
    rows = table_before(text, caption).split("\\\\")
    return [[cell.strip() for cell in row.split("&")] for row in rows]


def named(rows, name):
    (row,) = (row for row in rows if re.sub(r"\\\w+\s*", "", row[0]).strip() == name)
    return row[1:]


@pytest.mark.parametrize(
    ("caption", "metrics"),
    [
        ("The example-F1 (ex-F1) and micro-F1", ("example_f1", "micro_f1")),
        ("The macro-F1 (ma-F1) and Hamming accuracy", ("macro_f1", "hamming_accuracy")),
        ("The precision@1 scores", ("precision_at_1",)),
    ],
)
def test_the_main_tables(text, caption, metrics):
    rows = rows_of(text, caption)
    for name in PAPER_METHODS:
        method = REGISTRY[name]
        own = "MLARAM" if (method.row, metrics) == ("HARAM", ("precision_at_1",)) else method.row
        cells = [None if cell == "-" else float(cell) for cell in named(rows, own)]
        expected = [published_value(m, method.row, name) for m in metrics for name in NAMES]
        assert cells == expected


def test_standard_deviations(text):
    for caption, metrics in (
        ("The example-F1 (ex-F1) and micro-F1", ("example_f1", "micro_f1")),
        ("The macro-F1 (ma-F1) and Hamming accuracy", ("macro_f1", "hamming_accuracy")),
    ):
        (row,) = (row for row in rows_of(text, caption) if row[0].startswith("std"))
        cells = [published()["std"][metric][name] for metric in metrics for name in NAMES]
        assert [float(cell) for cell in row[1:]] == cells


def flat(name):
    """Return the numbers of a published table that has lists in two levels of mappings."""
    return [n for own in published()[name].values() for values in own.values() for n in values]


def test_ablation_half_of_the_data_and_replacement(text):
    for name, caption in (("ablation", "Ablation study on"), ("half", "Comparisons between MPVAE")):
        printed = re.findall(r"0\.\d{3}", table_before(text, caption))
        assert [float(n) for n in printed] == flat(name)
    rows = rows_of(text, "mi-F1 performance after replacing")
    for row, own in (("Covariance", "covariance"), ("GNN", "gnn"), ("contrastive", "contrastive")):
        cells = list(published()["replacement"][own].values())
        assert [float(cell) for cell in named(rows, row)] == cells


def test_times(text):
    table = table_before(text, "Comparison of different models' time costs").replace("C2AE", "C-AE")
    table = re.sub(r"multicolumn\{\d\}|cline\{\d-\d\}|multirow\{\d\}", "", table)
    numbers = [int(n) for n in re.findall(r"(?<![\w.])\d+(?![\w.])", table)]
    assert numbers == flat("timing")


def test_every_method_has_its_row():
    for method in (REGISTRY[name] for name in PAPER_METHODS):
        for metric in PAPER_METRICS:
            assert published_value(metric, method.row, "yeast") is not None
    assert published_value("micro_f1", "RBCC", "delicious") is None
