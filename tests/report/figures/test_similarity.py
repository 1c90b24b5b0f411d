import itertools

import numpy as np
import pytest

from cgmvae.errors import InputError
from cgmvae.methods import MLkNN
from cgmvae.report import LabelSimilarityDisplay


def test_a_models_similarity_is_shown_without_its_diagonal(fitted):
    model, _ = fitted
    display = LabelSimilarityDisplay.from_estimator(model)
    assert np.isnan(np.diag(display.shown)).all()
    expected = model.label_similarity()
    for (i, first), (j, second) in itertools.permutations(enumerate(display.order), 2):
        assert display.shown[i, j] == pytest.approx(expected[first, second])
    assert sorted(display.order) == list(range(5))


def test_clusters_bring_labels_of_a_line_into_its_order(rng):
    places = np.array([0.0, 1.0, 1.5, 4.0, 4.2, 4.3, 9.0, 9.6])
    shuffle = rng.permutation(8)
    similarity = -np.abs(places[shuffle][:, None] - places[shuffle])
    order = LabelSimilarityDisplay.from_similarity(similarity).order
    found = places[shuffle][order]
    assert found.tolist() in (places.tolist(), places[::-1].tolist())


def test_names_and_groups_rule_the_order():
    names = ["owl", "Gull", "hawk", "auk"]
    groups = ["raptor", "sea", "raptor", "sea"]
    by_name = LabelSimilarityDisplay.from_similarity(np.eye(4), names, order="names")
    assert [names[i] for i in by_name.order] == ["auk", "Gull", "hawk", "owl"]
    grouped = LabelSimilarityDisplay.from_similarity(np.eye(4), names, order="names", groups=groups)
    assert [names[i] for i in grouped.order] == ["hawk", "owl", "auk", "Gull"]
    given = LabelSimilarityDisplay.from_similarity(np.eye(4), names, order="given")
    assert given.order.tolist() == [0, 1, 2, 3]


def test_ticks_are_the_names_in_order_and_nothing_is_read_as_a_formula(odd_names, texts_apart):
    display = LabelSimilarityDisplay.from_similarity(np.eye(5), odd_names, order="given").plot()
    ticks = display.ax_.get_yticklabels()
    assert [tick.get_text() for tick in ticks] == ["<b>x</b>", "$a$", "a_b", "two lines", "R&D"]
    assert not any(tick.get_parse_math() for tick in ticks)
    assert texts_apart(display.figure_, [*ticks, *display.ax_.get_xticklabels()])


def test_many_names_are_thinned_until_none_overlap(rng, texts_apart):
    n_labels = 200
    names = [f"a rather long name {i}" for i in range(n_labels)]
    similarity = rng.uniform(-1, 1, (n_labels, n_labels))
    display = LabelSimilarityDisplay.from_similarity(similarity, names, order="given").plot()
    ticks = display.ax_.get_yticklabels()
    every = int(display.ax_.get_yticks()[1])
    assert every > 1
    assert [tick.get_text() for tick in ticks] == names[::every]
    assert texts_apart(display.figure_, ticks)
    assert texts_apart(display.figure_, display.ax_.get_xticklabels())


def test_too_many_names_are_left_away():
    from matplotlib.figure import Figure

    ax = Figure(figsize=(2, 2), layout="constrained").subplots()
    LabelSimilarityDisplay.from_similarity(np.eye(983), order="given").plot(ax)
    assert ax.get_xticklabels() == []
    assert ax.get_xlabel() == "983 labels"


def test_groups_are_named_and_divided():
    groups = ["a", "a", "$b$", "$b$", "$b$"]
    display = LabelSimilarityDisplay.from_similarity(np.eye(5), groups=groups).plot()
    (right,) = display.ax_.child_axes
    assert [tick.get_text() for tick in right.get_yticklabels()] == ["a", "$b$"]
    assert list(right.get_yticks()) == [0.5, 3.0]
    assert [line.get_ydata()[0] for line in display.ax_.lines][:1] == [1.5]


@pytest.mark.parametrize("similarity", [np.ones((1, 1)), np.zeros((2, 2)), np.full((3, 3), np.nan)])
def test_one_label_no_similarity_and_no_number_can_be_drawn(similarity):
    display = LabelSimilarityDisplay.from_similarity(similarity).plot()
    assert len(display.ax_.get_xticklabels()) == len(similarity)
    display.figure_.draw_without_rendering()


def test_a_page_shows_names_as_text(odd_names):
    similarity = np.array(np.eye(5)[::-1])
    figure = LabelSimilarityDisplay.from_similarity(
        similarity, odd_names, order="given"
    ).to_plotly()
    (heat,) = figure.data
    assert list(heat.x[:2]) == ["&lt;b&gt;x&lt;/b&gt;", "&#36;a&#36;"]
    assert heat.x == heat.y
    np.testing.assert_array_equal(np.isnan(heat.z), np.eye(5, dtype=bool))
    assert heat.z[0][4] == 1
    assert figure.layout.xaxis.type == "category"


@pytest.mark.parametrize(
    ("similarity", "options", "message"),
    [
        (np.ones((2, 3)), {}, "must have a row and a column"),
        (np.ones((0, 0)), {}, "must have a row and a column"),
        (np.eye(2), {"order": "size"}, "no order 'size'"),
        (np.eye(2), {"groups": ["a"]}, "1 groups for 2 labels"),
        (np.eye(2), {"label_names": ["a"]}, "1 label names for 2 labels"),
    ],
)
def test_bad_input_is_refused(similarity, options, message):
    with pytest.raises(InputError, match=message):
        LabelSimilarityDisplay.from_similarity(similarity, **options)


def test_a_method_without_similarity_is_refused():
    with pytest.raises(InputError, match="MLkNN does not learn which labels are alike"):
        LabelSimilarityDisplay.from_estimator(MLkNN())
