"""The routes other than ``/predict``: labels, similar labels, health and docs."""

import re
from urllib.parse import quote

import pytest

from .conftest import LABELS, with_names


def test_labels_and_their_thresholds(client, network):
    found = client(network).get("/labels").json()
    threshold = network.threshold_rule_.threshold
    assert found["labels"] == [{"name": name, "threshold": threshold} for name in LABELS]
    assert found["thresholds"]["threshold"] == threshold


@pytest.mark.parametrize("label", LABELS)
def test_similar_labels_whatever_their_names(client, network, label):
    found = client(network).get(f"/similar/{quote(label, safe='').replace('.', '%2E')}?k=3").json()
    assert found["label"] == label
    assert [(each["label"], each["similarity"]) for each in found["similar"]] == (
        network.nearest_labels(label, 3)
    )
    assert found["similarity_is"] == network.similarity_is


def test_similar_labels_that_cannot_be_had(client, network, plain):
    served = client(network)
    assert len(served.get("/similar/..%2F?k=3").json()["error"]) > 0
    assert served.get("/similar/nothing").status_code == 404
    assert "There is no label 'nothing'" in served.get("/similar/nothing").json()["error"]
    assert "'k'" in served.get(f"/similar/{quote(LABELS[0], safe='')}?k=0").json()["error"]
    response = client(plain).get("/similar/x")
    assert response.status_code == 404
    assert "BinaryRelevance does not learn" in response.json()["error"]


def test_health(client, network):
    found = client(network).get("/health").json()
    assert found["ready"] is True
    assert found["model"]["method"] == "CGMVAEClassifier"
    assert (found["model"]["n_columns"], found["model"]["n_labels"]) == (6, 5)


def test_the_model_is_left_as_it_is(client, network):
    named = with_names(network)
    before = set(vars(named))
    client(named).post("/predict", json={"rows": [[0] * 6]})
    assert set(vars(named)) == before


def test_the_page_asks_for_nothing_outside_and_escapes_names(client, network):
    response = client(with_names(network)).get("/docs")
    page = response.text
    assert "default-src 'none'" in response.headers["Content-Security-Policy"]
    assert not re.search(r"<script|https?:|url\(|@import| src=|<link", page)
    for path in ("POST /predict", "GET /labels", "GET /similar/{label}", "GET /health"):
        assert path in page
    assert "height (m)" in page
    assert re.findall(r'href="([^"]*)"', page) == ["openapi.json"]


@pytest.mark.parametrize(("method", "path"), [("GET", "/nothing"), ("GET", "/predict")])
def test_other_paths_are_rejected_in_json(client, network, method, path):
    response = client(network).request(method, path)
    assert response.status_code in (404, 405)
    assert response.json()["error"].endswith(".")
