"""The routes other than ``/predict``, and generated requests to all routes."""

from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
)
from starlette.testclient import TestClient

from cgmvae.errors import InputError
from cgmvae.serving.app import make_app

from .conftest import FEATURES, LABELS, with_names


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


def test_names_that_utf_8_cannot_encode(client, network):
    odd = with_names(network)
    odd.label_names_ = ("half \ud800", *LABELS[1:])
    served = client(odd)
    assert served.get("/labels").json()["labels"][0]["name"] == "half \ud800"
    found = served.post("/predict?top=5", json={"rows": [[0] * 6]}).json()["predictions"]
    assert "half \ud800" in [each["label"] for each in found[0]["top"]]


def test_health(client, network):
    found = client(network).get("/health").json()
    assert found["ready"] is True
    assert found["model"]["method"] == "CGMVAEClassifier"
    assert (found["model"]["n_columns"], found["model"]["n_labels"]) == (6, 5)


def test_a_replaced_model_is_served_without_losing_requests(client, gated, plain, caplog):
    models = [plain, InputError("It is damaged.")]

    def load():
        model = models.pop(0)
        if isinstance(model, InputError):
            raise model
        return model

    app = make_app(gated.model, load=load)
    with TestClient(app) as served, ThreadPoolExecutor(1) as clients:
        row = {"rows": [dict.fromkeys(FEATURES, 0)]}
        early = clients.submit(served.post, "/predict", json=row)
        assert gated.entered.wait(60)
        app.state.reload(app)
        assert served.get("/health").json()["model"]["method"] == "BinaryRelevance"
        late = clients.submit(served.post, "/predict", json={"rows": [[0] * 6]})
        gated.open.set()
        assert [each.result().status_code for each in (early, late)] == [200, 200]
        assert "height (m)" not in served.get("/openapi.json").text
        app.state.reload(app)
        assert served.get("/ready").status_code == 200
    assert "The model was not loaded again: It is damaged." in caplog.text


def test_metrics(client, network):
    served = client(network)
    for rows in ([[0] * 6], [[0] * 6] * 3, [[0]]):
        served.post("/predict", json={"rows": rows})
    served.get("/health")
    text = served.get("/metrics").text
    for line in (
        'cgmvae_requests_total{status="200"} 2.0',
        'cgmvae_requests_total{status="422"} 1.0',
        "cgmvae_request_seconds_count 3.0",
        'cgmvae_batch_rows_bucket{le="2.0"} 1.0',
        "cgmvae_batch_rows_sum 4.0",
        "cgmvae_closed_connections_total 0.0",
    ):
        assert line in text


def test_live_and_ready(client, network):
    served = client(network, api_key="a-key-of-enough-length")
    assert served.get("/live").json() == {"live": True}
    assert served.get("/ready").json() == {"ready": True}
    assert served.get("/metrics").status_code == 401
    served.app.state.draining = True
    assert (served.get("/live").status_code, served.get("/ready").status_code) == (200, 503)
    assert served.get("/health").json()["ready"] is False


def test_a_path_with_a_slash_does_not_redirect_elsewhere(client, network):
    response = client(network).get("/labels/", headers={"Host": "evil.example"})
    assert (response.status_code, "location" in response.headers) == (404, False)


def test_the_model_is_left_as_it_is(client, network):
    named = with_names(network)
    before = set(vars(named))
    client(named).post("/predict", json={"rows": [[0] * 6]})
    assert set(vars(named)) == before


@pytest.mark.parametrize(("method", "path"), [("GET", "/nothing"), ("GET", "/predict")])
def test_other_paths_are_rejected_in_json(client, network, method, path):
    response = client(network).request(method, path)
    assert response.status_code in (404, 405)
    assert response.json()["error"].endswith(".")


# --- Requests that schemathesis generates from the OpenAPI description ---

CHECKS = [not_a_server_error, response_schema_conformance, content_type_conformance]


def statuses_of(model, path, method, mode):
    """Send generated requests, and return the status of each response."""
    schema = schemathesis.openapi.from_asgi("/openapi.json", make_app(model))
    statuses = []

    @settings(max_examples=25, database=None, suppress_health_check=list(HealthCheck))
    @given(case=schema[path][method].as_strategy(generation_mode=mode))
    def ask(case):
        response = case.call_and_validate(checks=CHECKS)
        statuses.append(response.status_code)
        if response.status_code >= 400:
            assert list(response.json()) == ["error"]

    ask()
    return set(statuses)


def test_rows_of_all_column_types_are_answered_or_rejected(mixed):
    assert 200 in statuses_of(mixed, "/predict", "POST", GenerationMode.POSITIVE)
    assert 422 in statuses_of(mixed, "/predict", "POST", GenerationMode.NEGATIVE)


def test_labels_are_found_or_not(network):
    path = "/similar/{label}"
    assert 404 in statuses_of(network, path, "GET", GenerationMode.POSITIVE)
    assert 422 in statuses_of(network, path, "GET", GenerationMode.NEGATIVE)


@pytest.mark.parametrize("path", ["/labels", "/health", "/live", "/ready"])
def test_routes_without_parameters(network, path):
    assert statuses_of(network, path, "GET", GenerationMode.POSITIVE) == {200}
