"""The figures of studies as drawn."""

import numpy as np
import pytest

from cgmvae.errors import InputError
from cgmvae.report.studies import draw
from cgmvae.studies.spec import StudyFigure


def texts(figure) -> set[str]:
    from matplotlib.text import Text

    return {each.get_text().strip() for each in figure.findobj(Text)}


def test_critical_difference():
    contents = {
        "names": ["C-GMVAE", "b_1"],
        "mean_ranks": np.array([1.25, 1.75]),
        "critical_difference": 0.8,
    }
    found = texts(draw(StudyFigure("ranks", "critical-difference", contents)))
    assert {"C-GMVAE  1.25", "1.75  b_1", "critical difference 0.80"} <= found


def test_fewer_data():
    contents = {
        "fractions": [0.1, 0.5, 1.0],
        "methods": ["C-GMVAE", "MPVAE"],
        "values": np.array([[0.1, 0.2, np.nan], [0.0, 0.1, 0.2]]),
        "deviations": np.full((2, 3), 0.01),
        "metric": "micro-F1 above C2AE",
        "data": "a$b$",
    }
    figure = draw(StudyFigure("fewer", "fewer-data", contents))
    assert {"C-GMVAE", "MPVAE", "micro-F1 above C2AE", "a$b$", "10 %", "100 %"} <= texts(figure)
    assert not figure.axes[0].title.get_parse_math()
    drawn = {bars.get_label(): bars.lines[0].get_ydata() for bars in figure.axes[0].containers}
    np.testing.assert_array_equal(drawn["C-GMVAE"], [0.1, 0.2, np.nan])
    np.testing.assert_array_equal(drawn["MPVAE"], [0.0, 0.1, 0.2])


@pytest.mark.parametrize("groups", [None, ["water", "water", "forest"]])
def test_similarity_keeps_the_order_of_the_study(groups):
    matrix = np.array([[9.0, 0.1, 0.9], [0.1, 9.0, 0.2], [0.9, 0.2, 9.0]])
    contents = {"names": ["gull", "duck", "owl"], "matrix": matrix, "groups": groups}
    figure = draw(StudyFigure("birds", "similarity", contents))
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["gull", "duck", "owl"]
    shown = np.ma.filled(axes.images[0].get_array(), np.nan)
    expected = matrix.copy()
    np.fill_diagonal(expected, np.nan)
    np.testing.assert_array_equal(shown, expected)
    assert ("forest" in texts(figure)) == (groups is not None)


def test_an_unknown_kind():
    with pytest.raises(InputError, match="kind 'pie'"):
        draw(StudyFigure("a", "pie", {}))
