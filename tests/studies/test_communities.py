"""The benchmark of communities, on made-up sites in the form of the real ones."""

import numpy as np
import pytest

from cgmvae.data import make_survey
from cgmvae.errors import InputError
from cgmvae.evaluation.joint import label_quality
from cgmvae.methods import BinaryRelevance
from cgmvae.studies.communities import (
    NUMBERS,
    SETS,
    Result,
    at_least_as_good,
    load_sites,
    run,
    tables,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder of sites, of which other models have said nothing right."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "norberg2019").mkdir()
    data, _ = make_survey(240, 4, 12, seed=0)
    X, Y = data.X.astype(np.float32), np.asarray(data.Y).astype(np.uint8)
    arrays = {}
    for task in (1, 2, 3):
        arrays |= {f"Xt_{task}": X[:160, :2], f"Xv_{task}": X[160:, :2]}
        arrays |= {f"St_{task}": X[:160, 2:], f"Sv_{task}": X[160:, 2:]}
        arrays |= {f"Yt_{task}": Y[:160], f"Yv_{task}": Y[160:]}
        worst = np.where(["discrimination" in name for name in NUMBERS], -1.0, 999.0)
        arrays |= {f"DMVP_{task}": worst, f"HMSC_{task}": -worst}
    np.savez(folder / "norberg2019" / "birds.npz", **arrays)
    return folder


@pytest.fixture(autouse=True)
def named(folder, monkeypatch):
    monkeypatch.setenv("CGMVAE_DATA", str(folder))


def test_coordinates_are_features_unless_they_are_left_out():
    sites = load_sites("birds", 2)
    assert sites.X.shape == (160, 4)
    assert sites.new_X.shape == (80, 4)
    np.testing.assert_array_equal(
        load_sites("birds", 2, coordinates=False).new_X, sites.new_X[:, :2]
    )


def test_numbers_are_those_of_the_fitted_method_on_the_sites_to_predict():
    (result,) = run(["binary-relevance"], ["birds"], [3])
    sites = load_sites("birds", 3)
    model = BinaryRelevance(random_state=0).fit(sites.X, sites.Y)
    expected = label_quality(sites.new_Y, model.predict_proba(sites.new_X))
    found = result.numbers["binary relevance"]
    np.testing.assert_allclose(found[:4], expected)
    np.testing.assert_array_equal(result.numbers["HMSC"], sites.stored["HMSC"])
    (again,) = run(["binary-relevance"], ["birds"], [3])
    np.testing.assert_array_equal(again.numbers["binary relevance"], found)


def test_tables_say_who_is_ahead():
    results = list(run(["binary-relevance"], ["birds"], [1, 3]))
    interpolation, extrapolation, first, third, ahead = tables(results)
    assert "interpolation" in interpolation.title
    assert "extrapolation" in extrapolation.title
    assert (first.title, third.title) == ("birds, task 1", "birds, task 3")
    assert [row[0] for row in first.rows] == list(NUMBERS)
    kinds = ("all", "interpolation", "extrapolation")
    assert ahead.rows == [["binary relevance", kind, "100%", "0%"] for kind in kinds]
    best = [row[1].mark for row in first.rows]
    assert not any("precision" in name and mark for name, mark in zip(NUMBERS, best, strict=True))


def test_more_discrimination_is_better_and_less_of_everything_else():
    found = at_least_as_good(np.full(20, 2.0), np.full(20, 1.0))
    compared = [name for name in NUMBERS if "precision" not in name]
    assert len(found) == 15
    assert {n for n, good in zip(compared, found, strict=True) if good} == {
        n for n in compared if "discrimination" in n
    }


def test_means_are_over_sets():
    numbers = [{"A": np.full(20, value)} for value in (1.0, 2.0)]
    stored = dict.fromkeys(("DMVP-DRNets", "HMSC"), np.zeros(20))
    results = [Result(n, 1, own | stored) for n, own in zip(SETS, numbers, strict=False)]
    assert tables(results)[0].rows[0][1].text == "1.500"


def test_what_is_missing_is_said_before_anything_is_fitted():
    with pytest.raises(InputError, match=r"plant\.npz; name the folder"):
        next(run(["binary-relevance"], ["birds", "plant"], [1]))
