"""Response curves, on models whose response is known."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit

from cgmvae.data import Columns, MultiLabelDataset, as_columns
from cgmvae.errors import InputError
from cgmvae.methods import BinaryRelevance
from cgmvae.report import ResponseDisplay


class Reads:
    """The first label depends on a and b together, the second on c alone."""

    label_names_ = ("first", "second")
    input_names_ = ("a", "b", "c")

    def predict_proba(self, X):
        return expit(np.stack([X[:, 0] * X[:, 1], 2 * X[:, 2]], axis=1))


PANELS = {("first", "a"): 0.3, ("second", "c"): 0.2, ("second", "a"): 0.0}


def test_curves_are_predictions_with_one_column_changed(rng):
    X, reference = rng.normal(size=(30, 3)), rng.normal(size=(500, 3))
    display = ResponseDisplay.from_estimator(Reads(), X, PANELS, reference=reference)
    low, high = np.percentile(reference[:, 0], [1, 99])
    values, probabilities, seen = display.responses["a"]
    np.testing.assert_allclose(values, np.linspace(low, high, 20))
    expected = expit(values[None] * X[:, [1]])
    np.testing.assert_allclose(probabilities[..., 0], expected, rtol=1e-5)
    assert np.ptp(probabilities[..., 1], axis=1).max() == 0
    assert set(seen) <= set(reference[:, 0])
    np.testing.assert_allclose(
        display.responses["c"].probabilities[0, :, 1],
        expit(2 * display.responses["c"].values),
        rtol=1e-5,
    )


def test_a_table_has_means_and_bounds_of_each_panel(rng):
    display = ResponseDisplay.from_estimator(Reads(), rng.normal(size=(40, 3)), PANELS)
    titles, *rows = display.table()
    assert titles == ("label", "column", "importance", "value", "probability", "low", "high")
    assert [row[:3] for row in rows[::20]] == [
        ("first", "a", "0.3000"),
        ("second", "c", "0.2000"),
        ("second", "a", "0.0000"),
    ]
    curves = display.responses["a"].probabilities[:, 4, 0]
    found = [float(number) for number in rows[4][4:]]
    expected = [curves.mean(), *np.quantile(curves, [0.1, 0.9])]
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.fixture
def sites(rng):
    """Return sites of all types of columns, one of them empty, and the model of a label."""
    habitat = rng.choice(["bog", "wood", "field"], 200, p=[0.2, 0.3, 0.5])
    day = np.datetime64("2024-04-01", "s") + rng.integers(0, 80, 200) * np.timedelta64(86400, "s")
    table = {"habitat": habitat, "day": day, "depth": rng.normal(size=200), "none": [np.nan] * 200}
    X = as_columns(table, {"none": "number"})
    Y = np.stack([habitat == "bog", rng.random(200) < 0.5], axis=1).astype(int)
    data = MultiLabelDataset(X, Y, label_names=["sundew", "wren"])
    return X, BinaryRelevance(random_state=0).fit(X, data)


def test_categories_and_dates_are_changed_before_they_are_encoded(sites):
    X, model = sites
    panels = {("sundew", name): 0.1 for name in X.names}
    display = ResponseDisplay.from_estimator(model, X, panels)
    assert list(display.panels) == [("sundew", n) for n in ("habitat", "day", "depth")]
    habitat = display.responses["habitat"]
    assert habitat.values.tolist() == ["field", "wood", "bog"]
    assert habitat.probabilities[:, 2, 0].min() > 0.8 > 0.2 > habitat.probabilities[:, 1, 0].max()
    days = display.responses["day"].values
    assert days.dtype.kind == "M"
    assert (np.diff(days) > np.timedelta64(0, "s")).all()
    assert isinstance(X, Columns)


def test_a_panel_for_each_pair_with_a_line_for_each_row(sites, texts_apart):
    X, model = sites
    panels = {("sundew", "habitat"): 0.2, ("wren", "depth"): 0.1, ("wren", "day"): 0.0}
    display = ResponseDisplay.from_estimator(model, X, panels, max_rows=7).plot(n_columns=2)
    assert [panel.get_title() for panel in display.ax_] == ["sundew", "wren", "wren"]
    assert [panel.get_xlabel() for panel in display.ax_] == ["habitat", "depth", "day"]
    assert len(display.ax_[1].lines) == 7 + 2  # the mean and the rug
    mean = display.ax_[1].lines[7].get_ydata()
    curves = display.responses["depth"].probabilities[..., 1]
    np.testing.assert_allclose(mean, curves.mean(0))
    assert texts_apart(display.figure_, [panel.title for panel in display.ax_])


def test_words_and_unknown_columns_are_refused(rng):
    with pytest.raises(InputError, match="need dense rows"):
        ResponseDisplay.from_estimator(Reads(), sp.csr_array((3, 3)), PANELS)
    with pytest.raises(InputError, match="no column 'd'"):
        ResponseDisplay.from_estimator(Reads(), np.zeros((3, 3)), {("first", "d"): 0.0})
