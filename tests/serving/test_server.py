"""A real server: many concurrent clients, and a shutdown that answers every request."""

import socket
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest

from cgmvae.errors import InputError
from cgmvae.serving import server

from .conftest import LABELS

ROWS = {"rows": [[0.5] * 6]}


def scores(response):
    assert response.status_code == 200, response.text
    found = response.json()["predictions"]
    return np.array([[row["probabilities"][name] for name in LABELS] for row in found])


def test_answers_of_many_clients_are_not_mixed_up(running, network, sites):
    X = sites.X.astype(np.float32)
    expected = network.predict_proba(X)

    def ask(place):
        chosen = [(place + step) % len(X) for step in range(1 + place % 4)]
        sent = {"rows": X[chosen].tolist()}
        found = scores(served.post("/predict?probabilities=true", json=sent))
        # Rows are scored in other batches than in the library, which changes the rounding.
        np.testing.assert_allclose(found, expected[chosen], rtol=1e-4, atol=1e-6)

    assert np.ptp(expected, axis=0).min() > 1e-3
    with running(network) as (served, _), ThreadPoolExecutor(16) as clients:
        list(clients.map(ask, range(240)))


def is_taken_in(served):
    """Send some requests, so that earlier ones are in the queue."""
    return all(served.get("/health").status_code == 200 for _ in range(30))


def test_shutdown_answers_received_requests(running, gated):
    with running(gated.model, batch_rows=1) as (served, process), ThreadPoolExecutor(6) as clients:
        asked = [clients.submit(served.post, "/predict", json=ROWS) for _ in range(6)]
        assert gated.entered.wait(60)
        assert is_taken_in(served)
        process.should_exit = True
        while is_open(served.base_url):
            pass
        gated.open.set()
        assert [each.result().status_code for each in asked] == [200] * 6
    assert gated.sizes == [1] * 6


def is_open(address):
    try:
        socket.create_connection((address.host, address.port), timeout=5).close()
    except OSError:
        return False
    return True


def test_a_client_that_disconnects_does_not_affect_others(running, gated):
    with running(gated.model) as (served, _):
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{served.base_url}/predict", json=ROWS, timeout=0.3)
        gated.open.set()
        assert served.post("/predict", json=ROWS).status_code == 200


def test_addresses():
    with server.bind("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        assert server.address(listening) == f"http://127.0.0.1:{port}"
        with pytest.raises(InputError, match="Cannot listen"):
            server.bind("127.0.0.1", port)
    with pytest.raises(InputError, match="no address"):
        server.bind("nowhere.invalid", 0)
    assert [server.is_local(host) for host in ("127.0.0.2", "::1", "localhost")] == [True] * 3
    assert [server.is_local(host) for host in ("0.0.0.0", "::", "example.org")] == [False] * 3
