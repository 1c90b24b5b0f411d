"""Valid and invalid requests that schemathesis generates from the OpenAPI description."""

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
)

from cgmvae.serving.app import make_app

from .conftest import with_names

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


def test_rows_are_answered_or_rejected(network):
    model = with_names(network)
    assert 200 in statuses_of(model, "/predict", "POST", GenerationMode.POSITIVE)
    assert 422 in statuses_of(model, "/predict", "POST", GenerationMode.NEGATIVE)


def test_rows_of_all_column_types_are_answered_or_rejected(mixed):
    assert 200 in statuses_of(mixed, "/predict", "POST", GenerationMode.POSITIVE)
    assert 422 in statuses_of(mixed, "/predict", "POST", GenerationMode.NEGATIVE)


def test_labels_are_found_or_not(network):
    path = "/similar/{label}"
    assert 404 in statuses_of(network, path, "GET", GenerationMode.POSITIVE)
    assert 422 in statuses_of(network, path, "GET", GenerationMode.NEGATIVE)


@pytest.mark.parametrize("path", ["/labels", "/health"])
def test_what_takes_no_parameters(network, path):
    assert statuses_of(network, path, "GET", GenerationMode.POSITIVE) == {200}
