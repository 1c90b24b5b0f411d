"""``POST /predict``: the response agrees with the library, whatever the format of the rows."""

import copy
import csv
import io
import json

import numpy as np
import pytest

from cgmvae.data.columns import as_columns
from cgmvae.evaluation.thresholds import LabelThresholds, TopK
from cgmvae.methods.conditioning import LabelFactors
from cgmvae.preparation.scaling import FeatureScaler

from .conftest import FEATURES, LABELS, with_names


def objects(X):
    return [dict(zip(FEATURES, row, strict=True)) for row in X.tolist()]


def table(header, rows):
    text = io.StringIO()
    csv.writer(text).writerows([header, *rows])
    return {"content": text.getvalue(), "headers": {"Content-Type": "text/csv"}}


def body(text):
    return {"content": text, "headers": {"Content-Type": "application/json"}}


def answer(client, sent, **query):
    response = client.post("/predict", params=query, **sent)
    assert response.status_code == 200, response.text
    return response.json()


def probabilities(client, sent):
    found = answer(client, sent, probabilities=True)["predictions"]
    return np.array([[row["probabilities"][name] for name in LABELS] for row in found], np.float32)


def rejected(client, sent, status=422):
    response = client.post("/predict", **sent)
    assert response.status_code == status
    assert list(response.json()) == ["error"]
    sentence = response.json()["error"]
    assert "\n" not in sentence
    assert sentence.endswith((".", "…"))
    return sentence


# --- Responses ----------------------------------------


def test_probabilities_are_those_of_the_library_bit_for_bit(client, named, network, sites):
    X = sites.X[:33].astype(np.float64)
    expected = network.predict_proba(X)
    served = client(named)
    assert np.array_equal(probabilities(served, {"json": {"rows": objects(X)}}), expected)
    assert np.array_equal(probabilities(served, {"json": {"rows": X.tolist()}}), expected)
    assert np.array_equal(probabilities(served, table(FEATURES, X.tolist())), expected)


def test_a_blend_is_served_with_all_its_experts(client, blend, sites):
    X = sites.X[:33].astype(np.float64)
    expected = blend.predict_proba(X)
    assert np.abs(expected - blend.cgmvae_.predict_proba(blend.inputs(X))).max() > 0.02
    served = client(with_names(blend))
    found = probabilities(served, {"json": {"rows": objects(X)}})
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    alone = [probabilities(served, {"json": {"rows": [row]}})[0] for row in X[:3].tolist()]
    np.testing.assert_allclose(alone, expected[:3], rtol=1e-5)


def test_labels_are_those_of_the_library(client, named, network, plain, sites):
    X = sites.X[:40].astype(np.float32)
    for model, fitted in ((named, network), (plain, plain)):
        found = answer(client(model), {"json": {"rows": X.tolist()}})
        assert [row["labels"] for row in found["predictions"]] == fitted.label_sets(X)
        assert found["thresholds"] == {
            "rule": "global",
            "threshold": fitted.threshold_rule_.threshold,
        }


@pytest.mark.parametrize("rule", [TopK(2), LabelThresholds(np.linspace(0.1, 0.9, len(LABELS)))])
def test_other_threshold_rules(client, network, sites, rule):
    model = with_names(network)
    model.threshold_rule_ = rule
    found = answer(client(model), {"json": {"rows": objects(sites.X[:9].astype(np.float32))}})
    expected = rule.apply(network.predict_proba(sites.X[:9].astype(np.float32))).astype(bool)
    names = np.array(LABELS, dtype=object)
    assert [row["labels"] for row in found["predictions"]] == [list(names[r]) for r in expected]
    told = found["thresholds"]
    assert told.get("k") == getattr(rule, "k", None)
    if told["rule"] == "per-label":
        assert told["thresholds"] == dict(zip(LABELS, rule.thresholds, strict=True))


def test_the_likeliest_labels(client, named, network, sites):
    X = sites.X[:9].astype(np.float64)
    found = answer(client(named), {"json": {"rows": X.tolist()}}, top=2)["predictions"]
    for row, expected in zip(found, network.predict_proba(X), strict=True):
        best = np.argsort(-expected)[:2]
        assert row["top"] == [{"label": LABELS[i], "probability": float(expected[i])} for i in best]
    every = answer(client(named), {"json": {"rows": X.tolist()}}, top=99)["predictions"]
    assert len(every[0]["top"]) == len(LABELS)


def test_missing_values(client, named, network, sites):
    X = sites.X[:3].astype(np.float64)
    X[0, 1] = X[2, 5] = np.nan
    cells = [[None if np.isnan(cell) else cell for cell in row] for row in X.tolist()]
    expected = network.predict_proba(X)
    assert np.array_equal(probabilities(client(named), {"json": {"rows": cells}}), expected)
    cells[0][1], cells[2][5] = "", "NA"
    assert np.array_equal(probabilities(client(named), table(FEATURES, cells)), expected)


def test_columns_in_another_order_and_others(client, named, network, sites):
    X = sites.X[:3].astype(np.float64)
    rows = [{"note": [1], **dict(reversed(row.items()))} for row in objects(X)]
    rows[1]["another 日本"] = {}
    sent = body(json.dumps({"rows": rows}))
    assert np.array_equal(probabilities(client(named), sent), network.predict_proba(X))
    assert answer(client(named), sent)["ignored_columns"] == ["note", "another 日本"]
    wide = table([*FEATURES[::-1], "note"], [[*row[::-1], "x"] for row in X.tolist()])
    assert np.array_equal(probabilities(client(named), wide), network.predict_proba(X))
    assert answer(client(named), wide)["ignored_columns"] == ["note"]


def test_all_kinds_of_columns(client, mixed, mixed_table):
    cells = zip(*mixed_table.values(), strict=True)
    rows = [dict(zip(mixed_table, row, strict=True)) for row in cells][:8]
    rows[0]["habitat"] = rows[1]["notes"] = rows[2]["day"] = rows[3]["depth"] = None
    rows[4]["habitat"] = "never seen"
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    expected = mixed.predict_proba(as_columns(columns, mixed.input_kinds()))
    for sent in (
        {"json": {"rows": rows}},
        {"json": {"rows": [list(row.values()) for row in rows]}},
        table(list(rows[0]), [["" if v is None else v for v in row.values()] for row in rows]),
    ):
        found = answer(client(mixed), sent, probabilities=True)["predictions"]
        scores = np.array([list(row["probabilities"].values()) for row in found])
        assert np.array_equal(scores.astype(expected.dtype), expected)


# --- Errors ----------------------------------------


def test_a_missing_column_is_named(client, named, plain, sites):
    rows = objects(sites.X[:2])
    del rows[1]["%sand"]
    assert "Row 2 lacks '%sand'" in rejected(client(named), {"json": {"rows": rows}})
    sent = table(FEATURES[1:], sites.X[:2, 1:].tolist())
    assert "lacks 'height (m)'" in rejected(client(named), sent)
    assert "does not know the names" in rejected(client(plain), {"json": {"rows": rows}})
    assert "5 columns, and the model takes 6" in rejected(client(plain), sent)


CELLS = "0," * (len(FEATURES) - 1)
BAD = {
    "is not JSON (Input data was truncated": "{",
    "an object with a list of rows": '{"rows": 1}',
    "a list of rows": '{"rows": [], "top": 3}',
    "There are no rows": '{"rows": []}',
    "all objects, by name, or all lists": '{"rows": [[], {}]}',
    "Row 1 has 1 values, and the model takes 6": '{"rows": [[1]]}',
    "NaN is not a number": '{"rows": [[NaN]]}',
    "nests lists too deeply": '{"rows": [' + "[" * 5000,
    "has 99999": f'{{"rows": [[{CELLS}{"9" * 5000}]]}}',
    "beyond float32": f'{{"rows": [[{CELLS}1e39]]}}',
    "'rows' holds a number that": f'{{"rows": [[{CELLS}1{"0" * 400}]]}}',
    "'rows', which takes numbers": f'{{"rows": [[{CELLS}"7"]]}}',
    "has [[]] in": f'{{"rows": [[{CELLS}[[]]]]}}',
    "is not UTF-8 (byte 2)": b'{"\xff',
}


@pytest.mark.parametrize("words", BAD)
def test_bad_json(client, named, words):
    assert words in rejected(client(named), body(BAD[words]))


def test_numbers_far_from_the_training_data(client, network, plain):
    extreme = {"json": {"rows": [[0] * 6, [3e38] * 6, [-3e38] * 6]}}
    for model in (network, plain):
        found = np.array(probabilities(client(model), extreme))
        assert ((found >= 0) & (found <= 1)).all()


def test_scores_that_are_no_numbers(client, network):
    model = with_names(network)
    model.pipeline_ = copy.copy(model.pipeline_)
    model.pipeline_.scaler = FeatureScaler("none").fit(np.zeros((2, 6)))
    extreme = {"rows": [[0] * 6, [0, 3e38, 0, 0, 0, 0]]}
    sentence = rejected(client(model), {"json": extreme})
    assert sentence.startswith("Row 2 is so far from the training data")
    assert "'%sand'" in sentence


BAD_TABLES = {
    "not CSV with a header": "",
    "There are no rows": ",".join("abc"),
    "'a' names more than one": "a,a\n1,2",
    "Row 2 has 1 cells and the header 2": "a,b\n1,2\n1\n",
    "not CSV (unexpected end": 'a,"b',
    "field larger than field limit (131072)); correct it, or send JSON": f"a\n{'x' * 200_000}",
}


@pytest.mark.parametrize("words", BAD_TABLES)
def test_bad_csv(client, named, words):
    sent = {"content": BAD_TABLES[words], "headers": {"Content-Type": "text/csv"}}
    assert words in rejected(client(named), sent)


def test_very_many_columns_are_rejected_in_time(client, plain, named):
    header = [f"c{place}" for place in range(100_000)]
    sent = table(header, [["0"] * len(header)])
    assert "100,000 columns, and the model takes 6" in rejected(client(plain, seconds=20), sent)
    assert "The header lacks" in rejected(client(named, seconds=20), sent)


def test_cells_of_the_wrong_kind(client, mixed, mixed_table):
    row = {name: values[0] for name, values in mixed_table.items()}
    wrong = {"depth": "deep", "habitat": ["field"], "day": "soon", "notes": 7}
    for name, cell in wrong.items():
        sentence = rejected(client(mixed), {"json": {"rows": [{**row, name: cell}]}})
        assert repr(name) in sentence
        assert (json.dumps(cell) if isinstance(cell, list) else repr(cell)) in sentence


@pytest.mark.parametrize("kind", [None, "text/plain", "text/csv; charset=utf-16", "\xff/;;;"])
def test_other_kinds_of_content(client, named, kind):
    headers = {} if kind is None else {"Content-Type": kind.encode("latin-1")}
    sent = {"content": '{"rows": [[1]]}', "headers": headers}
    assert "application/json or text/csv" in rejected(client(named), sent, 415)


def test_quoted_values_are_truncated(client, named):
    long = {"json": {"rows": [{**dict.fromkeys(FEATURES, 0), "rows": "x" * 10**5}]}}
    assert len(rejected(client(named), long)) < 300


@pytest.mark.parametrize("query", [{"top": 0}, {"top": "many"}, {"probabilities": "perhaps"}])
def test_bad_queries(client, named, query):
    response = client(named).post("/predict", params=query, json={"rows": [[0] * 6]})
    assert response.status_code == 422
    assert f"The parameter '{next(iter(query))}' is invalid" in response.json()["error"]


# --- Known labels -----------------------------------------------------------------------------


@pytest.fixture(scope="session")
def conditional(network):
    """Return the network with factors of two labels, so that each says something of the other."""
    model = copy.copy(network)
    loadings = np.zeros((len(LABELS), 1), np.float32)
    loadings[:2] = 0.9
    model.label_factors_ = LabelFactors(loadings, np.zeros(4, np.float32))
    return model


def test_known_labels_of_each_row_are_those_of_the_library(client, conditional, sites):
    X = sites.X[:4].astype(np.float64)
    known = np.full((4, len(LABELS)), np.nan)
    known[0, 0], known[1, :2], known[3, 1] = 1, (0, 1), 1
    expected = conditional.predict_proba(X, known=known)
    assert not np.array_equal(expected[3], conditional.predict_proba(X)[3])
    given = [{LABELS[0]: True, LABELS[2]: None}, {LABELS[0]: 0, LABELS[1]: 1}, None, [LABELS[1]]]
    sent = {"json": {"rows": X.tolist(), "known": given}}
    assert np.array_equal(probabilities(client(conditional), sent), expected)
    nothing = {"json": {"rows": X.tolist(), "known": None}}
    assert np.array_equal(probabilities(client(conditional), nothing), conditional.predict_proba(X))


@pytest.mark.parametrize(
    ("known", "words"),
    [
        ([{LABELS[0]: 1}, None], 'There are 1 rows, and "known" has 2 entries'),
        ([{"no such": 1}], "There is no label 'no such', which is \"known\" of row 1"),
        ([["no such"]], "There is no label 'no such'"),
        ([{LABELS[0]: 2}], "is known as 2; send 1, 0, or null"),
        ([{LABELS[0]: "yes"}], "an object, such as"),
        ([3], "an object, such as"),
        ("a", "an object, such as"),
    ],
)
def test_known_labels_that_are_refused(client, network, known, words):
    assert words in rejected(client(network), {"json": {"rows": [[0] * 6], "known": known}})


def test_known_labels_need_a_model_that_learned_what_they_say(client, plain):
    sentence = rejected(client(plain), {"json": {"rows": [[0] * 6], "known": [[LABELS[0]]]}})
    assert "This BinaryRelevance has not learned what known labels say" in sentence


def test_known_labels_do_not_count_as_rows(client, network):
    served = client(network, rows=2)
    sent = {"json": {"rows": [[0] * 6] * 2, "known": [{LABELS[0]: 1}] * 2}}
    assert len(answer(served, sent)["predictions"]) == 2
    sent["json"] = {"rows": [[0] * 6] * 3, "known": [{LABELS[0]: 1}] * 3}
    assert "more rows than the 2" in rejected(served, sent, 413)
