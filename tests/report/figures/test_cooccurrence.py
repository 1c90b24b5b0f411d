import numpy as np
import pytest
import scipy.sparse as sp

from cgmvae.errors import InputError
from cgmvae.methods.diagnostics import similarity_cooccurrence
from cgmvae.report import SimilarityCooccurrenceDisplay
from cgmvae.report.figures.association import LIFT_PRIOR, association, pair_counts


@pytest.fixture
def table(rng):
    """Return labels, of which nobody has the last, and the mask of the unknown ones."""
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
            assert counts.second[i, j] == second.sum()


def test_correlation_and_lift_are_those_of_the_columns(table):
    labels, unknown = table
    counts = pair_counts(labels, unknown)
    correlation, lift = association(counts), association(counts, "lift")
    for i in range(4):
        for j in range(4):
            rows = ~unknown[:, i] & ~unknown[:, j]
            first, second = labels[rows, i].astype(float), labels[rows, j].astype(float)
            assert correlation[i, j] == pytest.approx(np.corrcoef(first, second)[0, 1])
            expected = first.mean() * second.mean() * rows.sum()
            observed = (first * second).sum()
            assert lift[i, j] == pytest.approx(
                np.log2((observed + LIFT_PRIOR) / (expected + LIFT_PRIOR))
            )


def test_a_label_that_nobody_has_cannot_be_measured(table):
    counts = pair_counts(table[0])
    for measure in ("correlation", "lift"):
        values = association(counts, measure)
        assert np.isnan(values[4]).all()
        assert np.isfinite(values[:4, :4]).all()


def test_pairs_and_their_rank_correlation_are_the_models(fitted):
    model, data = fitted
    display = SimilarityCooccurrenceDisplay.from_estimator(model, data)
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
    assert display.disagreement[display.pairs.tolist().index([2, 3])] > 0
    assert display.disagreement[display.pairs.tolist().index([0, 1])] < 0
    display.plot(n_named=2)
    named = next(text for text in display.ax_.texts if "–" in text.get_text())
    assert "<b>x</b> – $a$" in named.get_text()
    assert "a_b – two lines" in named.get_text()
    assert not named.get_parse_math()
    assert len(points_of(display.ax_)) == 10 + 2
    assert texts_apart(display.figure_, display.ax_.texts)


@pytest.mark.parametrize("k", [0, 1, 2, 3, 7, 100])
def test_so_many_pairs_are_named_where_there_are_as_many(rng, k):
    Y = rng.integers(0, 2, (50, 5))
    similarity = rng.uniform(size=(5, 5))
    display = SimilarityCooccurrenceDisplay.from_similarity(similarity, Y)
    chosen = display.most_disagreeing(k)
    assert len(set(chosen.tolist())) == min(k, 10)


def test_many_pairs_are_counted_in_cells_and_sampled_on_a_page(rng):
    similarity, Y = rng.uniform(size=(90, 90)), rng.integers(0, 2, (100, 90))
    display = SimilarityCooccurrenceDisplay.from_similarity(similarity, Y, measure="lift")
    display.plot()
    assert display.ax_.collections[0].get_array().sum() == 90 * 89 / 2
    others, worst = display.to_plotly().data
    assert (len(others.x), len(worst.x)) == (3000, 8)


def test_a_page_shows_names_as_text(odd_names, rng):
    Y = rng.integers(0, 2, (50, 5))
    display = SimilarityCooccurrenceDisplay.from_similarity(np.eye(5), Y, label_names=odd_names)
    figure = display.to_plotly(n_named=0)
    assert list(figure.data[0].customdata[0][:2]) == ["&lt;b&gt;x&lt;/b&gt;", "&#36;a&#36;"]
    assert len(figure.data[0].x) == 10


@pytest.mark.parametrize("Y", [np.ones((4, 1)), np.zeros((4, 3))])
def test_without_a_pair_to_measure_the_plot_is_empty(Y):
    display = SimilarityCooccurrenceDisplay.from_similarity(np.eye(Y.shape[1]), Y).plot()
    assert len(display.pairs) == 0
    assert np.isnan(display.rank_correlation)
    assert display.ax_.get_title() == "0 pairs of labels"


def test_labels_of_another_number_and_unknown_measures_are_refused():
    with pytest.raises(InputError, match="2 labels and Y of 3"):
        SimilarityCooccurrenceDisplay.from_similarity(np.eye(2), np.zeros((4, 3)))
    with pytest.raises(InputError, match="no measure 'jaccard'"):
        SimilarityCooccurrenceDisplay.from_similarity(
            np.eye(2), np.zeros((4, 2)), measure="jaccard"
        )
