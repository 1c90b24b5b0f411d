"""Limits, the API key, the log, and internal errors."""

import json
import logging
import re
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count

import httpx
import pytest

from cgmvae.errors import InputError
from cgmvae.serving.config import ServingConfig
from cgmvae.serving.model import ServedModel
from cgmvae.serving.responses import RequestError

from .conftest import LABELS, with_names

KEY = "a-key-of-enough-length"
ROWS = {"rows": [[0.5] * 6]}


# --- Limits ----------------------------------------


def pieces(n, sent):
    """Yield a body in pieces, and record how many were taken."""
    for _ in range(n):
        sent.append(1)
        yield b" " * 1000


def test_a_body_is_rejected_while_it_streams(client, network):
    headers, sent = {"Content-Type": "application/json"}, []
    served = client(network, body_bytes=5000)
    response = served.post("/predict", content=pieces(50, sent), headers=headers)
    assert response.status_code == 413
    assert "more than 5,000 bytes" in response.json()["error"]
    assert "content-length" not in response.request.headers
    whole = served.post("/predict", content=b" " * 5001, headers=headers)
    assert (whole.status_code, whole.json()) == (413, response.json())
    fits = json.dumps(ROWS).ljust(5000).encode()
    assert served.post("/predict", content=fits, headers=headers).status_code == 200


def endless(seconds):
    for _ in count():
        time.sleep(seconds)
        yield b" " * 1000


@pytest.mark.parametrize(
    ("limits", "pause", "status"),
    [({"body_bytes": 5000}, 0.001, 413), ({"seconds": 0.3}, 0.05, 504)],
)
def test_a_real_server_hangs_up_on_a_body_without_end(running, network, limits, pause, status):
    with running(network, **limits) as (served, _):
        headers = {"Content-Type": "application/json"}
        response = served.post("/predict", content=endless(pause), headers=headers)
        assert response.status_code == status
        assert served.get("/health").status_code == 200


def test_rows_are_limited_by_their_number_and_that_of_labels(client, network):
    served = client(network, rows=3)
    assert served.post("/predict", json={"rows": ROWS["rows"] * 3}).status_code == 200
    response = served.post("/predict", json={"rows": ROWS["rows"] * 4})
    assert response.status_code == 413
    assert "more rows than the 3 that a request may have" in response.json()["error"]
    few = client(network, cells=2 * len(LABELS))
    assert few.post("/predict", json={"rows": ROWS["rows"] * 2}).status_code == 200
    assert few.post("/predict", json={"rows": ROWS["rows"] * 3}).status_code == 413


@pytest.mark.parametrize(
    ("kind", "content"),
    [("application/json", b'{"rows": [%b[]]}' % (b"[]," * 10**6)), ("text/csv", b"a\n" * 10**6)],
)
def test_too_many_rows_take_little_memory_and_leave_none(network, kind, content):
    model = ServedModel(network)
    tracemalloc.start()
    try:
        with pytest.raises(RequestError, match="more rows than the 100"):
            model.parse(content, kind, 100)
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20 * 2**20
    assert held < 2**20


def test_brackets_in_text_are_no_rows(client, mixed, mixed_table):
    row = {name: values[0] for name, values in mixed_table.items()}
    sent = {"rows": [{**row, "notes": '[[[{"[\\"[[' * 5}] * 3}
    served = client(mixed, rows=3)
    assert served.post("/predict", json=sent).status_code == 200
    sent["rows"][2] = {**row, "other": [[]]}
    assert served.post("/predict", json=sent).status_code == 413


def test_a_request_has_a_timeout(client, gated):
    response = client(gated.model, seconds=0.2).post("/predict", json=ROWS)
    assert response.status_code == 504
    assert "more than 0.2 seconds" in response.json()["error"]


def test_too_many_requests_get_503(running, gated):
    with running(gated.model, requests=2) as (served, _), ThreadPoolExecutor(2) as clients:
        asked = [clients.submit(served.post, "/predict", json=ROWS) for _ in range(2)]
        response = until(lambda: served.get("/labels"), 503)
        assert response.headers["Retry-After"] == "1"
        assert "Too many requests" in response.json()["error"]
        assert served.get("/health").status_code == 200
        gated.open.set()
        assert [each.result().status_code for each in asked] == [200, 200]
        assert served.get("/labels").status_code == 200


def until(ask, status):
    """Repeat a request until its response has this status; a timeout does not."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with suppress(httpx.TimeoutException):
            if (found := ask()).status_code == status:
                return found
    raise AssertionError(f"No response had the status {status}.")


def test_bytes_in_memory_are_limited(client, network):
    served = client(network, body_bytes=200, held_bytes=200, cells=10**6)
    assert served.post("/predict", json=ROWS).status_code == 200
    large = client(network, body_bytes=70_000, held_bytes=70_000)
    many = {"rows": ROWS["rows"] * 1000}
    response = large.post("/predict?probabilities=true", json=many)
    assert response.status_code == 503
    assert "Too much data" in response.json()["error"]
    assert large.post("/predict", json=ROWS).status_code == 200


@pytest.mark.parametrize(
    "limits",
    [
        {"rows": 0},
        {"seconds": float("inf")},
        {"batch_seconds": -1},
        {"api_key": "short"},
        {"api_key": "é" * 20},
        {"held_bytes": 9},
    ],
)
def test_invalid_limits_are_rejected(limits):
    with pytest.raises(InputError):
        ServingConfig(**limits)


# --- Key ----------------------------------------


@pytest.mark.parametrize("path", ["/labels", "/openapi.json", "/nothing", "/predict"])
def test_without_the_key_everything_is_shut(client, network, path):
    served = client(network, api_key=KEY)
    for headers in (
        {},
        {"X-API-Key": KEY[:-1]},
        {"X-API-Key": KEY + "x"},
        {"X-API-Key": "é".encode()},
        {"Authorization": KEY},
        {"Authorization": f"Basic {KEY}"},
        {"Authorization": "Bearer "},
    ):
        response = served.request("GET", path, headers=headers)
        assert response.status_code == 401
        assert response.headers["WWW-Authenticate"] == "Bearer"
        assert "API key is missing or wrong" in response.json()["error"]


def test_with_the_key_everything_is_open(client, network):
    served = client(network, api_key=KEY)
    for headers in ({"X-API-Key": KEY}, {"Authorization": f"bearer {KEY}"}):
        assert served.post("/predict", json=ROWS, headers=headers).status_code == 200
        assert "securitySchemes" in served.get("/openapi.json", headers=headers).text
    assert served.get("/health").status_code == 200


def test_the_key_is_not_shown():
    assert KEY not in repr(ServingConfig(api_key=KEY))


# --- Log and internal errors ----------------------------------------

LINE = re.compile(r"status=\d{3} in=\d+ out=\d+ ms=\d+\.\d")


def test_the_log_holds_size_status_and_time_and_nothing_else(client, network, caplog):
    caplog.set_level(logging.DEBUG)
    served = client(with_names(network), api_key=KEY)
    served.post("/predict?secret=owl", json=ROWS, headers={"X-API-Key": KEY})
    served.post("/predict", json={"rows": [{"secret": "owl"}]}, headers={"X-API-Key": KEY})
    served.get("/similar/secret-owl", headers={"X-API-Key": "secret-owl"})
    served.get("/secret-owl")
    own = [record for record in caplog.records if record.name.startswith(("cgmvae", "uvicorn"))]
    assert len(own) == 4
    assert all(LINE.fullmatch(record.getMessage()) for record in own)
    assert [record.getMessage()[7:10] for record in own] == ["200", "422", "401", "401"]


def test_an_internal_error_is_neutral_outside_and_one_line_in_the_log(client, network, caplog):
    def fail(_):
        raise ZeroDivisionError("secret-owl")

    broken = with_names(network)
    broken.predict_proba = fail
    served = client(broken)
    response = served.post("/predict", json=ROWS)
    assert response.status_code == 500
    assert response.json() == {"error": "Internal server error; the server's log says where."}
    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert "ZeroDivisionError in fail" in record.getMessage()
    assert "secret-owl" not in caplog.text
    assert "Traceback" not in caplog.text
    assert served.get("/labels").status_code == 200
