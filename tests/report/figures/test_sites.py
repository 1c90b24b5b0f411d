"""Maps of test rows."""

import numpy as np
import pytest

from cgmvae.data import MultiLabelDataset
from cgmvae.errors import InputError
from cgmvae.report import SiteMapDisplay
from cgmvae.report.figures import sites


def rows(n=60, scale=(5.0, 7.0), **given):
    rng = np.random.default_rng(0)
    places = np.array([45.0, 5.0]) + rng.random((n, 2)) * scale
    return MultiLabelDataset(rng.random((n, 2)), rng.integers(0, 2, (n, 4)), **given), places


def display_of(data, places, others=()):
    rng = np.random.default_rng(1)
    data = MultiLabelDataset(data.X, data.Y, unknown=data.unknown, coordinates=places)
    scores = rng.random(data.Y.shape)
    display = SiteMapDisplay.from_predictions(data, scores > 0.5, scores, others=others)
    return display, data, scores


def test_errors_are_counted_over_known_labels():
    data, places = rows(unknown=np.arange(240).reshape(60, 4) % 3 == 0)
    display, data, scores = display_of(data, places)
    wrong, expected = display.values.values()
    for i in range(60):
        known = ~data.unknown[i]
        is_wrong = data.Y[i, known] != (scores[i, known] > 0.5)
        assert wrong[i] == pytest.approx(100 * is_wrong.mean())
        assert expected[i] == pytest.approx(sum(scores[i]))


def test_north_is_up_and_degrees_of_longitude_are_narrower():
    data, places = rows()
    display = display_of(data, places, places + 1)[0].plot()
    for panel in display.ax_:
        others, tested = (each.get_offsets() for each in panel.collections[:2])
        np.testing.assert_allclose(tested, places[:, ::-1])
        np.testing.assert_allclose(others, places[:, ::-1] + 1)
        north = np.concatenate([places, places + 1])[:, 0].mean()
        assert panel.get_aspect() == pytest.approx(1 / np.cos(np.radians(north)))
    meters = display_of(data, places * 1e5)[0].plot()
    assert meters.ax_[0].get_aspect() == 1
    meters.figure_.draw_without_rendering()


def test_many_places_are_a_sample(monkeypatch):
    monkeypatch.setattr(sites, "_MAX_PLACES", 20)
    data, places = rows()
    display = display_of(data, places, places)[0].plot()
    assert [len(each.get_offsets()) for each in display.ax_[0].collections[:2]] == [20, 20]


def test_rows_without_places_are_refused():
    data, _ = rows()
    with pytest.raises(InputError, match="have no coordinates"):
        SiteMapDisplay.from_predictions(data, data.Y, data.Y)
