"""A real server: many concurrent clients, and a shutdown that answers every request."""

import gc
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from cgmvae.errors import InputError
from cgmvae.serving import server
from cgmvae.serving.app import make_app
from cgmvae.serving.config import ServingConfig

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


def test_a_stopping_server_answers_requests_that_are_on_their_way(running, network):
    with running(network, grace_seconds=40) as (served, process):
        assert "connection" not in served.get("/health").headers
        process.should_exit = True
        while not process.app.state.draining:
            time.sleep(0.01)
        response = served.post("/predict", json=ROWS)
        assert (response.status_code, response.headers["connection"]) == (200, "close")


def is_open(address):
    try:
        socket.create_connection((address.host, address.port), timeout=5).close()
    except OSError:
        return False
    return True


def idle_connection(served, sent=b""):
    connection = socket.create_connection((served.base_url.host, served.base_url.port), timeout=60)
    connection.sendall(sent)
    return connection


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /health HTT",
        b"GET /health HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n",
        b"POST /predict HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n",
    ],
)
def test_a_client_that_sends_too_slowly_is_disconnected(running, network, sent, caplog):
    with running(network, idle_seconds=0.1, seconds=0.1) as (served, _):
        with idle_connection(served, sent) as connection, suppress(ConnectionResetError):
            while connection.recv(1000):
                pass
        assert served.get("/health").status_code == 200
    assert len([record for record in caplog.records if "Closed" in record.getMessage()]) <= 1


def test_idle_connections_keep_nobody_out(running, network, caplog):
    with running(network, connections=3) as (served, process), ExitStack() as opened:
        for _ in range(50):
            opened.enter_context(idle_connection(served))
        assert served.get("/health").status_code == 200
        assert len(process.server_state.connections) <= 3


def test_connections_beyond_those_in_use_are_refused_in_a_sentence(running, gated):
    with running(gated.model, connections=2) as (served, _), ThreadPoolExecutor(2) as clients:
        asked = [clients.submit(served.post, "/predict", json=ROWS) for _ in range(2)]
        assert gated.entered.wait(60)
        while (response := httpx.get(f"{served.base_url}/health")).status_code == 200:
            pass
        assert response.status_code == 503
        assert "Too many connections" in response.json()["error"]
        gated.open.set()
        assert [each.result().status_code for each in asked] == [200, 200]


def test_the_limit_of_connections_is_below_that_of_files(network):
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    try:
        limits = ServingConfig(connections=5000)
        assert server.Server(make_app(network), limits).max_connections == 864
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_new_connections_leave_descriptors_for_files(running, network, monkeypatch):
    open_files = Path("/dev/fd")
    if not open_files.exists():
        pytest.skip("counts the open files of this process")
    n_open, accept = [], socket.socket.accept

    def accept_and_count(listening):
        accepted = accept(listening)
        n_open.append(len(list(open_files.iterdir())))
        return accepted

    with server.bind("127.0.0.1", 0) as listening, ExitStack() as opened:
        for _ in range(300):  # in the queue until the server starts, which accepts at full speed
            opened.enter_context(socket.create_connection(listening.getsockname()))
        before = len(list(open_files.iterdir()))
        monkeypatch.setattr(socket.socket, "accept", accept_and_count)
        with running(network, listening, connections=10):
            while len(n_open) < 300:
                time.sleep(0.01)
    assert max(n_open) - before < 10 + server._SPARE_DESCRIPTORS


def test_a_client_that_disconnects_does_not_affect_others(running, gated):
    with running(gated.model) as (served, _):
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{served.base_url}/predict", json=ROWS, timeout=0.3)
        gated.open.set()
        assert served.post("/predict", json=ROWS).status_code == 200


def test_a_server_process_limits_threads_and_garbage_collection(network, monkeypatch):
    found = {}

    def run(*_):
        found["threads"] = {each["num_threads"] for each in threadpool_info()}
        found["frozen"] = gc.get_freeze_count()

    before = torch.get_num_threads()
    monkeypatch.setattr(server, "run", run)
    try:
        with threadpool_limits(2):
            server.serve_file("", ServingConfig(), None, threads=1, quiet=True, model=network)
    finally:
        gc.unfreeze()
        torch.set_num_threads(before)
    assert found["threads"] == {1}
    assert found["frozen"] > 0


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
