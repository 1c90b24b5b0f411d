"""The arrays of the explorer: exact where they are compared with thresholds."""

import base64
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cgmvae.data import make_split, make_survey
from cgmvae.evaluation.thresholds import GlobalThreshold, LabelThresholds, TopK
from cgmvae.methods import BinaryRelevance
from cgmvae.report.explorer import GRID, UNKNOWN, _coded, _label_map, explore
from cgmvae.report.rows import ReportRows


@pytest.fixture(scope="module")
def rows():
    data, _ = make_survey(300, 5, 6, unknown_share=0.1, seed=3)
    return ReportRows.of_split(data, make_split(data, seed=0, fractions=(0.5, 0.2, 0.3)))


@pytest.fixture(scope="module")
def model(rows):
    return BinaryRelevance(random_state=0).fit(rows.train.X, rows.train)


def explored(model, rows):
    scores = model.predict_proba(rows.test.X)
    return explore(model, rows, scores, np.corrcoef(scores, rowvar=False))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@settings(max_examples=40)
@given(data=st.data())
def test_comparing_codes_is_comparing_scores(dtype, data):
    steps = data.draw(st.lists(st.integers(0, 10_000), min_size=4, max_size=4))
    shifts = data.draw(st.lists(st.sampled_from([0, 1, -1]), min_size=4, max_size=4))
    at = (np.array(steps) / 10_000).astype(dtype)
    towards = np.where(np.array(shifts) > 0, 2, -2).astype(dtype)
    scores = np.where(np.array(shifts) == 0, at, np.nextafter(at, towards)).clip(0, 1)[None]
    own = GlobalThreshold(data.draw(st.sampled_from([0.29, 0.5, 0.57])))
    codes, rule = _coded(scores, own, np.arange(4), scores)
    for place in [*steps, rule["threshold"]]:
        if place > 0:
            expected = GlobalThreshold(GRID[place - 1]).apply(scores)
            np.testing.assert_array_equal(codes >= place, expected)


@settings(max_examples=40)
@given(st.lists(st.floats(0.01, 0.99), min_size=3, max_size=3), st.integers(0, 2**32 - 1))
def test_thresholds_between_the_steps_keep_their_labels(thresholds, seed):
    rule = LabelThresholds(np.array(thresholds))
    near = np.random.default_rng(seed).normal(thresholds, 5e-5, (50, 3))
    scores = near.clip(0, 1).astype(np.float32)
    codes, coded = _coded(scores, rule, np.arange(3), scores)
    np.testing.assert_array_equal(codes >= coded["arrays"]["thresholds"], rule.apply(scores))


def test_top_k_is_kept_as_it_is():
    scores = np.array([[0.50001, 0.50002, 0.5], [0.1, 0.1, 0.2]], np.float32)
    _, coded = _coded(scores, TopK(1), np.arange(3), scores)
    kept = np.unpackbits(coded["arrays"]["own"], bitorder="little")[:6].reshape(2, 3)
    np.testing.assert_array_equal(kept, [[0, 1, 0], [0, 0, 1]])


def test_cells_pairs_and_rows(model, rows):
    explorer = explored(model, rows)
    arrays, test = explorer.arrays, rows.test
    unknown = np.asarray(test.unknown)
    assert ((arrays["scores"] == UNKNOWN) == unknown).all()
    truth = np.unpackbits(arrays["truth"], bitorder="little")[: test.Y.size].reshape(test.Y.shape)
    np.testing.assert_array_equal(truth, np.where(unknown, 0, test.Y))
    np.testing.assert_array_equal(arrays["numbers"], rows.numbers)
    assert explorer.facts["n_known"] == (~unknown).sum()
    packed = explorer.packed()["arrays"]["scores"]
    assert packed["type"] == "uint16"
    read = np.frombuffer(base64.b64decode(packed["data"]), "<u2")
    np.testing.assert_array_equal(read, arrays["scores"].ravel())
    both_known = ~rows.train.unknown[:, 1] & ~rows.train.unknown[:, 3]
    a, b = (rows.train.Y[both_known, i].astype(float) for i in (1, 3))
    place = [*zip(*np.triu_indices(6, 1), strict=True)].index((1, 3))
    assert arrays["together"][place] == (a * b).sum()
    lift = (a * b).mean() / (a.mean() * b.mean())
    assert 2 ** (arrays["log_lift"][place] / 1000) == pytest.approx(lift, rel=1e-3)
    assert arrays["correlation"][place] / 1e4 == pytest.approx(np.corrcoef(a, b)[0, 1], abs=1e-4)


def test_few_labels_have_few_clusters(model, rows):
    similarity = np.kron(np.eye(2), np.ones((3, 3)))
    cluster = explore(model, rows, model.predict_proba(rows.test.X), similarity).arrays["cluster"]
    assert cluster.tolist() in ([0, 0, 0, 1, 1, 1], [1, 1, 1, 0, 0, 0])


@pytest.mark.parametrize("n", [1, 2, 40, 400])
def test_dots_on_the_map_do_not_overlap(n, rng):
    coordinates = np.repeat(rng.normal(size=((n + 1) // 2, 2)), 2, axis=0)[:n]  # pairs coincide
    found = _label_map(coordinates, rng.integers(0, 500, n).astype(float))
    centers, radii = found["map"], found["radius"]
    apart = np.linalg.norm(centers[:, None] - centers, axis=2) - radii[:, None] - radii
    assert (apart[~np.eye(n, dtype=bool)] > 0).all()
    assert (centers >= radii[:, None]).all()
    assert (centers <= 1 - radii[:, None]).all()


def test_rows_have_their_identifier_and_a_few_words(model, rows):
    names = np.array([f"plot {i}" for i in rows.numbers])
    rows = replace(rows, test=replace(rows.test, ids=names))
    scores = model.predict_proba(rows.test.X)
    facts = explore(model, rows, scores, np.eye(6), describe_row="row {}".format).facts
    assert facts["row_ids"] == names.tolist()
    assert facts["row_texts"][:2] == ["row 0", "row 1"]


def test_more_rows_and_labels_than_a_page_carries(model, rows, monkeypatch):
    monkeypatch.setattr("cgmvae.report.explorer.MAX_ROWS", 20)
    monkeypatch.setattr("cgmvae.report.explorer.MAX_LABELS", 4)
    explorer = explored(model, rows)
    assert len(np.unique(explorer.rows)) == 20
    frequency = np.asarray(rows.train.Y.sum(0)).ravel()
    assert set(explorer.labels) == set(np.argsort(-frequency, kind="stable")[:4])
    assert explorer.names == tuple(model.label_names_[i] for i in explorer.labels)
    assert explorer.arrays["scores"].shape == (20, 4)
    np.testing.assert_array_equal(explored(model, rows).rows, explorer.rows)


@pytest.mark.parametrize("n_labels", [1, 2])
def test_hardly_any_labels(n_labels):
    data, _ = make_survey(60, 3, n_labels, n_groups=1, cardinality=0.5 * n_labels, seed=1)
    rows = ReportRows.all_of(replace(data, unknown=None), "trained")
    model = BinaryRelevance(random_state=0).fit(data.X, data)
    explorer = explore(model, rows, model.predict_proba(data.X), np.eye(n_labels))
    assert len(explorer.arrays["similarity"]) == n_labels * (n_labels - 1) // 2
