"""Heat map of label similarity, and similarity against co-occurrence."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from matplotlib.figure import Figure

from cgmvae.errors import InputError
from cgmvae.methods import MLkNN
from cgmvae.methods.diagnostics import similarity_cooccurrence
from cgmvae.report import LabelSimilarityDisplay, SimilarityCooccurrenceDisplay
from cgmvae.report.figures.similarity import association, pair_counts


def test_a_models_similarity_is_shown_without_its_diagonal(fitted):
    model, _ = fitted
    display = LabelSimilarityDisplay.from_estimator(model)
    assert np.isnan(np.diag(display.shown)).all()
    expected = model.label_similarity()
    for (i, first), (j, second) in itertools.permutations(enumerate(display.order), 2):
        assert display.shown[i, j] == pytest.approx(expected[first, second])
    assert sorted(display.order) == list(range(5))


def test_clusters_bring_labels_of_a_line_into_its_order(rng):
    points = np.array([0.0, 1.0, 1.5, 4.0, 4.2, 4.3, 9.0, 9.6])
    shuffle = rng.permutation(8)
    similarity = -np.abs(points[shuffle][:, None] - points[shuffle])
    order = LabelSimilarityDisplay.from_similarity(similarity).order
    found = points[shuffle][order]
    assert found.tolist() in (points.tolist(), points[::-1].tolist())


def test_groups_rule_the_order():
    names = ["owl", "Gull", "hawk", "auk"]
    groups = ["raptor", "sea", "raptor", "sea"]
    grouped = LabelSimilarityDisplay.from_similarity(np.eye(4), names, order="given", groups=groups)
    assert [names[i] for i in grouped.order] == ["owl", "hawk", "Gull", "auk"]
    (right,) = grouped.plot().ax_.child_axes
    assert [tick.get_text() for tick in right.get_yticklabels()] == ["raptor", "sea"]
    assert list(right.get_yticks()) == [0.5, 2.5]
    assert grouped.ax_.lines[0].get_ydata()[0] == 1.5


def test_ticks_are_the_names_in_order_and_nothing_is_read_as_a_formula(odd_names, texts_apart):
    display = LabelSimilarityDisplay.from_similarity(np.eye(5), odd_names, order="given").plot()
    ticks = display.ax_.get_yticklabels()
    assert [tick.get_text() for tick in ticks] == ["<b>x</b>", "$a$", "a_b", "two lines", "R&D"]
    assert not any(tick.get_parse_math() for tick in ticks)
    assert texts_apart(display.figure_, [*ticks, *display.ax_.get_xticklabels()])


def test_many_names_are_thinned_until_none_overlap(rng, texts_apart):
    n_labels = 120
    names = [f"a rather long name {i}" for i in range(n_labels)]
    similarity = rng.uniform(-1, 1, (n_labels, n_labels))
    display = LabelSimilarityDisplay.from_similarity(similarity, names, order="given").plot()
    ticks = display.ax_.get_yticklabels()
    every = int(display.ax_.get_yticks()[1])
    assert every > 1
    assert [tick.get_text() for tick in ticks] == names[::every]
    assert texts_apart(display.figure_, ticks)
    assert texts_apart(display.figure_, display.ax_.get_xticklabels())
    ax = Figure(figsize=(2, 2), layout="constrained").subplots()
    display.plot(ax)
    assert (ax.get_xticklabels(), ax.get_xlabel()) == ([], "120 labels")


@pytest.mark.parametrize("similarity", [np.ones((1, 1)), np.zeros((2, 2)), np.full((3, 3), np.nan)])
def test_one_label_no_similarity_and_no_number_can_be_drawn(similarity):
    display = LabelSimilarityDisplay.from_similarity(similarity).plot()
    assert len(display.ax_.get_xticklabels()) == len(similarity)
    display.figure_.draw_without_rendering()


@pytest.mark.parametrize(
    ("similarity", "options", "message"),
    [
        (np.ones((2, 3)), {}, "must have a row and a column"),
        (np.ones((0, 0)), {}, "must have a row and a column"),
        (np.eye(2), {"order": "size"}, "no order 'size'"),
        (np.eye(2), {"groups": ["a"]}, "1 groups for 2 labels"),
        (np.eye(2), {"label_names": ["a"]}, "1 label names for 2 label columns"),
    ],
)
def test_bad_input_is_rejected(similarity, options, message):
    with pytest.raises(InputError, match=message):
        LabelSimilarityDisplay.from_similarity(similarity, **options)


@pytest.fixture
def table(rng):
    """Return labels, the last of which does not occur, and the mask of unknown ones."""
    labels = (rng.uniform(size=(60, 5)) < [0.6, 0.4, 0.5, 0.2, 0.0]).astype(np.uint8)
    unknown = rng.uniform(size=labels.shape) < 0.2
    return np.where(unknown, 0, labels).astype(np.uint8), unknown


@pytest.mark.parametrize("sparse", [False, True])
def test_pairs_are_counted_on_the_rows_that_know_both(table, sparse):
    labels, unknown = table
    form = sp.csr_array if sparse else np.asarray
    counts = pair_counts(form(labels), form(unknown))
    for i in range(5):
        for j in range(5):
            rows = ~unknown[:, i] & ~unknown[:, j]
            first, second = labels[rows, i], labels[rows, j]
            assert counts.known[i, j] == rows.sum()
            assert counts.both[i, j] == (first & second).sum()
            assert counts.first[i, j] == first.sum()


def test_correlations_are_those_of_the_columns(table):
    labels, unknown = table
    counts = pair_counts(labels, unknown)
    correlation = association(counts)
    assert np.isnan(correlation[4]).all()  # the label does not occur
    for i in range(4):
        for j in range(4):
            rows = ~unknown[:, i] & ~unknown[:, j]
            first, second = labels[rows, i].astype(float), labels[rows, j].astype(float)
            assert correlation[i, j] == pytest.approx(np.corrcoef(first, second)[0, 1])


def test_pairs_and_their_rank_correlation_are_the_models(fitted):
    model, data = fitted
    display = SimilarityCooccurrenceDisplay.from_similarity(model.label_similarity(), data)
    assert display.pairs.tolist() == [[i, j] for i in range(5) for j in range(i + 1, 5)]
    similarity = model.label_similarity()
    np.testing.assert_allclose(display.similarity, [similarity[i, j] for i, j in display.pairs])
    assert display.rank_correlation == pytest.approx(similarity_cooccurrence(similarity, data.Y))


def test_the_worst_disagreements_of_both_kinds_are_named(odd_names, texts_apart, points_of):
    rng = np.random.default_rng(0)
    first = rng.integers(0, 2, 200)
    Y = np.column_stack([first, first, *rng.integers(0, 2, (3, 200))])
    similarity = np.eye(5)
    similarity[2, 3] = similarity[3, 2] = 0.9
    display = SimilarityCooccurrenceDisplay.from_similarity(similarity, Y, label_names=odd_names)
    worst = display.pairs[display.most_disagreeing(2)].tolist()
    assert sorted(worst) == [[0, 1], [2, 3]]
    assert [len(set(display.most_disagreeing(k).tolist())) for k in (0, 3, 100)] == [0, 3, 10]
    assert display.disagreement[display.pairs.tolist().index([2, 3])] > 0
    assert display.disagreement[display.pairs.tolist().index([0, 1])] < 0
    display.plot(n_named=2)
    named = next(text for text in display.ax_.texts if "–" in text.get_text())
    assert "<b>x</b> – $a$" in named.get_text()
    assert "a_b – two lines" in named.get_text()
    assert not named.get_parse_math()
    assert len(points_of(display.ax_)) == 10 + 2
    assert texts_apart(display.figure_, display.ax_.texts)


def test_many_pairs_are_counted_in_cells(rng):
    similarity, Y = rng.uniform(size=(90, 90)), rng.integers(0, 2, (100, 90))
    display = SimilarityCooccurrenceDisplay.from_similarity(similarity, Y)
    display.plot()
    assert display.ax_.collections[0].get_array().sum() == 90 * 89 / 2


@pytest.mark.parametrize("Y", [np.ones((4, 1)), np.zeros((4, 3))])
def test_without_a_pair_to_measure_the_plot_is_empty(Y):
    display = SimilarityCooccurrenceDisplay.from_similarity(np.eye(Y.shape[1]), Y).plot()
    assert len(display.pairs) == 0
    assert np.isnan(display.rank_correlation)
    assert display.ax_.get_title() == "0 pairs of labels"


def test_a_different_number_of_labels_is_rejected():
    with pytest.raises(InputError, match="MLkNN does not learn which labels are similar"):
        LabelSimilarityDisplay.from_estimator(MLkNN())
    with pytest.raises(InputError, match="2 labels and Y of 3"):
        SimilarityCooccurrenceDisplay.from_similarity(np.eye(2), np.zeros((4, 3)))
