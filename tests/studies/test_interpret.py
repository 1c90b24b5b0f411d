"""The study of label similarities: its runs, groups, tables and figures."""

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cgmvae.data import load_dataset
from cgmvae.studies import interpret
from cgmvae.studies.interpret import STUDY, GroupedLabels, find_breaks, order_of
from cgmvae.studies.paper import MAIN
from cgmvae.studies.results import Results
from cgmvae.studies.spec import Scope
from cgmvae.studies.tables import Table

YEAST = Scope(data=("yeast",), splits=(0, 1), seeds=(0, 1))
GROUPS = {"odd": ("Class1", "Class3"), "even": ("Class2", "Class4"), "last": ("Class14",)}


@pytest.fixture
def grouped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Group labels of yeast, which is always available."""
    monkeypatch.setattr(interpret, "GROUPS", {"yeast": GROUPS})


def similarity_of(values: Mapping[tuple[int, int], float], rest: float = 0.0) -> Any:
    """Return a similarity of yeast's 14 labels, given for some pairs of classes."""
    found = np.full((14, 14), rest, np.float32)
    for (i, j), value in values.items():
        found[i - 1, j - 1] = found[j - 1, i - 1] = value
    np.fill_diagonal(found, 1.0)
    return found


def keep_all(made_up: Any, clear: float = 0.8, blurred: float = 0.1) -> None:
    """Store runs: C-GMVAE's separate both groups, MPVAE's one of them."""
    for spec in STUDY.runs(YEAST):
        noise = 0.02 * spec.split
        own = {(1, 3): clear - noise, (2, 4): clear if spec.method == "cgmvae" else -blurred}
        made_up.keep(spec, 0.5, similarity=similarity_of(own))


def tables(made_up: Any, scope: Scope = YEAST) -> list[Table]:
    return STUDY.tables(Results(scope, made_up.store))


def plain_order(similarity: Any, labels: GroupedLabels) -> float:
    """Count in plain loops how many pairs of pairs are in the right order."""
    n = range(len(labels.names))
    pairs = [(i, j) for i, j in product(n, n) if i < j]
    intra = [similarity[p] for p in pairs if labels.groups[p[0]] == labels.groups[p[1]]]
    inter = [similarity[p] for p in pairs if labels.groups[p[0]] != labels.groups[p[1]]]
    right = [1.0 if a > b else 0.5 if a == b else 0.0 for a in intra for b in inter]
    return sum(right) / len(right)


def test_order_is_that_of_plain_loops(rng: np.random.Generator) -> None:
    labels = GroupedLabels(list("abcdef"), list("xxyyyz"), list(range(6)))
    for _ in range(20):
        table = rng.integers(0, 5, (6, 6)).astype(float)
        table += table.T
        assert order_of(table, labels)[2] == pytest.approx(plain_order(table, labels))


def test_order_without_pairs_of_both_kinds_is_not_known() -> None:
    for groups in ("xx", "xy"):
        order = order_of(np.ones((2, 2)), GroupedLabels(["a", "b"], list(groups), [0, 1]))
        assert np.isnan(order).all()


def test_breaks_are_compared_with_the_weakest_pair_of_either_group() -> None:
    labels = GroupedLabels(list("abcd"), list("xxyy"), list(range(4)))
    table = np.zeros((4, 4))
    for i, j, value in ((0, 1, 0.9), (2, 3, 0.5), (0, 2, 0.7), (1, 3, 0.5), (1, 2, 0.4)):
        table[i, j] = table[j, i] = value
    assert find_breaks(table, labels) == [
        ("a – c", 0.7, "c – d", 0.5),
        ("b – d", 0.5, "c – d", 0.5),
    ]
    # A label alone in its group is compared with the other group.
    labels = GroupedLabels(list("abc"), list("xxy"), list(range(3)))
    table = np.array([[0, 0.3, 0.6], [0.3, 0, 0.2], [0.6, 0.2, 0]])
    assert [each[0] for each in find_breaks(table, labels)] == ["a – c"]


def test_full_runs_are_those_of_the_main_study_and_quick_ones_are_short(available: Any) -> None:
    available("bbs_2003_2009")
    specs = STUDY.runs(Scope())
    assert len(specs) == 2 * 3 * 3
    assert set(specs) <= set(MAIN.runs(Scope()))
    specs = STUDY.runs(Scope(quick=True))
    assert [spec.method for spec in specs] == ["cgmvae", "mpvae"]
    assert all(spec.settings == {"n_members": 1, "epochs": 3} for spec in specs)


def test_the_birds_are_in_the_survey(data_folder: Path) -> None:
    labels = interpret.grouped_labels("bbs_2003_2009")
    names = load_dataset("bbs_2003_2009", download=False).label_names
    assert [names[i] for i in labels.columns] == labels.names
    assert [labels.groups.count(group) for group in ("water", "forest", "residential")] == [3, 4, 3]


@pytest.mark.usefixtures("grouped")
def test_groups_are_measured_and_compared(made_up: Any) -> None:
    keep_all(made_up)
    first = tables(made_up)[0]
    # Pairs within: (1, 3) and (2, 4); C-GMVAE .8 and .8, less .02 for the first on split 1.
    assert first.rows[0][:4] == ["C-GMVAE", "0.795", "0.000", "+0.795 [+0.724, +0.866]"]
    assert first.rows[0][4:] == ["1.000 ± 0.000 ± 0.000", "4"]
    assert first.rows[1][4] == "0.500 ± 0.000 ± 0.000"
    assert "C-GMVAE than with MPVAE: found (+0.500" in first.notes[1]
    found = {table.title: table for table in tables(made_up)}
    ours, theirs = (found[f"Pairs that break the order, {title}"] for title in ("C-GMVAE", "MPVAE"))
    assert ours.rows == [["none"]]
    assert ": found; 0 of 8 pairs" in ours.notes[0]
    assert ": not found; 6 of 8 pairs" in theirs.notes[0]  # those of the even group
    assert {row[2] for row in theirs.rows} == {"Class2 – Class4"}
    matrix = found["Label similarity, C-GMVAE"]  # without its diagonal
    assert matrix.rows[0] == ["Class1 (odd)", "–", "0.790", "0.000", "0.000", "0.000"]
    figures = STUDY.figures(Results(YEAST, made_up.store))
    assert [figure.kind for figure in figures] == ["similarity"] * 2
    contents = figures[0].contents
    assert contents["names"] == ["Class1", "Class3", "Class2", "Class4", "Class14"]
    assert contents["groups"] == ["odd", "odd", "even", "even", "last"]
    assert np.isnan(np.diagonal(contents["matrix"])).all()


@pytest.mark.usefixtures("grouped")
def test_missing_runs(made_up: Any) -> None:
    assert tables(made_up)[0].rows == []
    assert "not known" in tables(made_up)[0].notes[1]
    assert STUDY.figures(Results(YEAST, made_up.store)) == []
    made_up.keep(STUDY.runs(YEAST)[0], 0.5)  # brought here without its similarity
    assert tables(made_up)[0].rows == []


def test_data_without_groups_is_named(made_up: Any) -> None:
    assert STUDY.runs(YEAST) == []
    (table,) = tables(made_up)
    assert "its labels are not grouped" in table.rows[0][0]
