"""Names in figures: one line, plain text, no overlap."""

import numpy as np
from matplotlib.figure import Figure

from cgmvae.report.figures.style import one_line, place_names, spread_order


def test_names_are_one_line_of_bounded_length():
    assert one_line("two\nlines\tand \x07 more") == "two lines and more"
    assert one_line("a" * 28) == "a" * 28
    assert len(one_line("ab" * 100)) == 28
    assert one_line("owl", 5) == "owl"


def test_placed_names_overlap_neither_each_other_nor_the_edge(rng, texts_apart):
    figure = Figure(figsize=(4, 3), layout="constrained")
    ax = figure.subplots()
    points = rng.uniform(size=(60, 2))
    ax.scatter(*points.T)
    written = place_names(ax, points, [f"name {i}" for i in range(60)], avoid_points=False)
    assert 5 < len(written) < 60
    assert [text.get_text() for text in ax.texts] == [f"name {i}" for i in written]
    assert texts_apart(figure, ax.texts)
    frame = ax.get_window_extent()
    boxes = [text.get_window_extent() for text in ax.texts]
    assert all(box.x0 >= frame.x0 - 1 and box.x1 <= frame.x1 + 1 for box in boxes)


def test_names_keep_clear_of_points_where_asked():
    ax = Figure(figsize=(4, 3)).subplots()
    points = np.array([[0.5, 0.5], [0.53, 0.5], [0.56, 0.5], [0.59, 0.5]])
    ax.scatter(*points.T)
    ax.set(xlim=(0, 1), ylim=(0, 1))
    place_names(ax, points, ["first", "second", "third", "fourth"], order=[0])
    (text,) = ax.texts
    box = text.get_window_extent()
    assert not any(box.contains(*point) for point in ax.transData.transform(points))


def test_only_so_many_names_are_written_and_the_first_of_the_order_first():
    ax = Figure(figsize=(4, 3)).subplots()
    points = np.array([[0.2, 0.2], [0.5, 0.5], [0.8, 0.8]])
    ax.set(xlim=(0, 1), ylim=(0, 1))
    assert place_names(ax, points, ["a", "b", "c"], order=[2, 0, 1], most=2) == [2, 0]


def test_every_part_of_the_plane_is_named_before_any_twice(rng):
    crowd = rng.uniform(0, 0.1, size=(50, 2))
    points = np.vstack([crowd, [[1.0, 1.0]], [[0.0, 1.0]]])
    weight = np.arange(52.0)[::-1]
    assert set(spread_order(points, weight)[:3]) == {0, 50, 51}
    assert sorted(spread_order(points)) == list(range(52))
