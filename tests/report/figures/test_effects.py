import numpy as np

from cgmvae.report import plot_effects
from cgmvae.search import SearchResult


def test_effects_show_every_setting_and_the_medians(tmp_path):
    results = [
        SearchResult({"rate": rate, "kind": kind, "same": 1}, value, [value], epochs, finished)
        for rate, kind, value, epochs, finished in [
            (0.1, "a", 0.5, 4, True),
            (0.1, "b", 0.7, 3, True),  # it stopped by itself
            (0.2, "a", 0.9, 4, True),
            (0.2, "b", 0.1, 1, False),
        ]
    ]
    figure = plot_effects(results, metric="micro F1")
    rate, kind = (axes for axes in figure.axes if axes.get_visible())
    assert (rate.get_title(), kind.get_title()) == ("rate", "kind")
    assert rate.get_ylabel() == "micro F1"
    points = np.concatenate([part.get_offsets() for part in rate.collections])
    assert sorted(points[:, 1].tolist()) == [0.1, 0.5, 0.7, 0.9]
    np.testing.assert_allclose(rate.lines[0].get_ydata(), [0.6, 0.9])
    assert [label.get_text() for label in kind.get_xticklabels()] == ["a", "b"]
    figure.savefig(tmp_path / "effects.png")
    assert (tmp_path / "effects.png").stat().st_size > 1000
