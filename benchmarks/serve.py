"""Throughput of a served model, and its robustness to generated requests.

    python benchmarks/serve.py [--clients 1 16 64] [--seconds 10]
    python benchmarks/serve.py --fuzz 10000
    python benchmarks/serve.py --hostile

The first starts ``cgmvae serve`` twice in processes of their own, with micro-batching and without,
and beside them a minimal FastAPI application around scikit-learn's ``MLPClassifier``, and measures
them in turn at each number of clients. Each request has one row of yeast, and a client
sends the next when it has the response. Clients are plain sockets in this process. The model is
C-GMVAE with its default sizes; how long it was trained does not matter here. A server's CPU time
per request hardly depends on other programs; the other times do, so the load average is printed
with them.

The second sends generated requests to applications in this process, for a model of numbers and one
of columns of all types: valid and invalid ones that schemathesis derives from their description,
and bodies whose bytes were altered. It counts statuses.

The third attacks a server that may open 1,024 files: with connections that send nothing, and with
large bodies of empty rows. Meanwhile it asks for ``/health`` on new connections, and prints the
slowest response, the memory above that before, and the size of the log. ``--quick`` does a little
of all.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import resource
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import joblib
import numpy as np
from measurement import (
    MIB,
    TINY,
    anonymous_bytes,
    environment,
    hypothesis_files_in,
    make_parser,
    print_header,
    print_row,
)
from sklearn.neural_network import MLPClassifier

import cgmvae
from cgmvae.data.columns import as_columns

BATCHING = {"with batches": [], "without": ["--batch-rows", "1"]}

#: What people write around scikit-learn; it prints its address as ``cgmvae serve`` does.
PEER = """
import socket, sys, joblib, numpy, uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

app, model = FastAPI(), joblib.load(sys.argv[1])

class Request(BaseModel):
    rows: list[list[float]]

@app.post("/predict")
def predict(request: Request):
    return {"predictions": model.predict(numpy.array(request.rows)).tolist()}

config = uvicorn.Config(app, access_log=False, log_level="warning")
# As uvicorn.run opens it: without the protocol, asyncio leaves out TCP_NODELAY.
listening = socket.socket(proto=socket.IPPROTO_TCP)
listening.bind(("127.0.0.1", 0))
print(f"Serving at :{listening.getsockname()[1]};", flush=True)
uvicorn.Server(config).run(sockets=[listening])
"""

# Throughput


def fitted_model(*, quick: bool) -> tuple[Any, list[list[float]]]:
    """Return C-GMVAE after one epoch on yeast, and rows to send."""
    data = cgmvae.load_dataset("yeast")
    settings = TINY if quick else {"epochs": 1}
    model = cgmvae.CGMVAEClassifier(random_state=0, **settings).fit(data.X, data)
    return model, data.X[:500].astype(np.float32).tolist()


def serve(model: Path, *options: str) -> Any:
    """Run ``cgmvae serve``; see :func:`server`."""
    return server("-m", "cgmvae", "serve", str(model), "--port", "0", "--quiet", *options)


def serve_peer(folder: Path) -> Any:
    """Run a minimal application around scikit-learn's network; see :func:`server`."""
    data = cgmvae.load_dataset("yeast")
    with warnings.catch_warnings(action="ignore"):  # one epoch does not converge
        network = MLPClassifier(max_iter=1, random_state=0).fit(data.X, data.Y)
    joblib.dump(network, path := folder / "network.joblib")
    return server("-c", PEER, str(path))


@contextmanager
def server(*command: str, log: Any = None) -> Iterator[tuple[int, int]]:
    """Run Python with these arguments; yield the process id and the port that it prints."""
    command = (sys.executable, *command)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process:
        try:
            line = process.stdout.readline() if process.stdout else ""
            yield process.pid, int(re.findall(r":(\d+);", line)[0])
        finally:
            process.terminate()


def cpu_seconds(process: int) -> float:
    """Return the CPU time that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def send_requests(
    port: int, bodies: list[bytes], first: int, until: float
) -> list[tuple[float, int]]:
    """Send requests one after the other; return the latency and the status of each."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    found, number = [], first
    while (start := time.perf_counter()) < until:
        body = bodies[number % len(bodies)]
        number += 1
        writer.write(
            b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
        )
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(re.findall(rb"content-length: (\d+)", head)[0]))
        found.append((time.perf_counter() - start, int(head[9:12])))
    writer.close()
    return found


async def load(port: int, bodies: list[bytes], n_clients: int, seconds: float) -> list[Any]:
    """Let clients send requests for some seconds; return latencies and statuses."""
    until = time.perf_counter() + seconds
    clients = [send_requests(port, bodies, 7 * client, until) for client in range(n_clients)]
    return [response for responses in await asyncio.gather(*clients) for response in responses]


def measure_server(
    process: int, port: int, bodies: list[bytes], n_clients: int, seconds: float
) -> list[str]:
    """Measure a server after a warm-up, and return the cells of the table."""
    asyncio.run(load(port, bodies, n_clients, seconds / 10))
    before, start = cpu_seconds(process), time.perf_counter()
    found = asyncio.run(load(port, bodies, n_clients, seconds))
    elapsed, used = time.perf_counter() - start, cpu_seconds(process) - before
    times = np.percentile([1000 * wait for wait, _ in found], [50, 99])
    numbers = [len(found) / elapsed, *times, 1000 * used / len(found)]
    return [*(f"{each:,.1f}" for each in numbers), str(sum(code != 200 for _, code in found))]


def measure(numbers: list[int], seconds: float, *, quick: bool) -> None:
    """Print the table of both servers at each number of clients."""
    model, rows = fitted_model(quick=quick)
    bodies = [json.dumps({"rows": [row]}).encode() for row in rows]
    print(environment())
    columns = ("requests per second", "p50 ms", "p99 ms", "CPU ms per request", "errors")
    print_header("clients", "server", *columns)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as running:
        model.save(path := Path(folder, "yeast.cgmvae"))
        servers = {
            name: running.enter_context(serve(path, *options))
            for name, options in list(BATCHING.items())[: 1 if quick else None]
        }
        servers["scikit-learn, FastAPI"] = running.enter_context(serve_peer(Path(folder)))
        for n_clients in numbers:
            for name, address in servers.items():
                print_row(n_clients, name, *measure_server(*address, bodies, n_clients, seconds))
    print(f"load average {os.getloadavg()[0]:.1f} at the end")


# Generated requests


class Watched:
    """A client in this process that records statuses, the slowest response and peak memory."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.statuses: Counter[int] = Counter()
        self.slowest = 0.0
        self.first = self.most = anonymous_bytes() / MIB

    def cells(self) -> tuple[str, str, str]:
        """Return the cells of the table."""
        counts = ", ".join(f"{status}: {n:,}" for status, n in sorted(self.statuses.items()))
        return counts, f"{self.slowest * 1000:,.0f}", f"{self.first:,.0f}, {self.most:,.0f}"

    def send(self, **request: Any) -> None:
        """Send one request."""
        start = time.perf_counter()
        response = self.client.request(**request)
        self.slowest = max(self.slowest, time.perf_counter() - start)
        self.statuses[response.status_code] += 1
        self.most = max(self.most, anonymous_bytes() / MIB)
        if response.status_code != 200 and list(response.json()) != ["error"]:
            raise AssertionError(f"An error is not one sentence: {response.text}")


def small_models() -> dict[str, Any]:
    """Return a model of numbers, and one of columns of all types."""
    rng = np.random.default_rng(0)
    words = ["owl", "hawk", "tree", "lake", "river", "stone"]
    depth, height = rng.normal(size=(2, 250))
    habitat = rng.choice(["wetland", "forest", "field"], 250)
    notes = [" ".join(rng.choice(words, 6)) for _ in range(250)]
    days = [f"2024-{1 + i % 12:02d}-{1 + i % 28:02d}" for i in range(250)]
    columns = {"depth": depth, "height": height, "habitat": habitat, "day": days, "notes": notes}
    Y = np.column_stack([habitat == "wetland", ["owl" in text for text in notes], depth > 0])
    network = cgmvae.CGMVAEClassifier(epochs=2, embedding_dim=16, n_members=2, random_state=0)
    return {
        "numbers": network.fit(np.column_stack([depth, height]), Y.astype(int)),
        "all types": cgmvae.BinaryRelevance(random_state=0).fit(as_columns(columns), Y.astype(int)),
    }


def altered_bodies(rows: list[Any]) -> Any:
    """Return a strategy of requests whose bodies were valid before some bytes were replaced."""
    from hypothesis import strategies as st

    whole = json.dumps({"rows": rows}).encode()
    named = rows[0] if isinstance(rows[0], dict) else dict(zip("ab", rows[0], strict=True))
    lines = [",".join(map(str, cells)) for cells in (named, named.values())]
    kinds = {"application/json": whole, "text/csv": "\n".join(lines).encode()}
    words = [b'"', b"\n", b",", b"[", b"}", b"1e39", b"null", b"\\ud800", b"-", b"\x00", b"\xff"]
    positions, pieces = st.integers(0, len(whole)), st.binary(max_size=6) | st.sampled_from(words)
    edits = st.lists(st.tuples(positions, st.integers(0, 4), pieces), min_size=1, max_size=4)

    def altered(kind: str, changes: list[tuple[int, int, bytes]]) -> dict[str, Any]:
        body = kinds[kind]
        for start, removed, piece in changes:
            body = body[:start] + piece + body[start + removed :]
        headers = {"Content-Type": kind}
        return {"method": "POST", "url": "/predict", "content": body, "headers": headers}

    return st.builds(altered, st.sampled_from(list(kinds)), edits)


def requests_of(app: Any, rows: list[Any]) -> dict[str, Any]:
    """Return strategies of requests by name."""
    import schemathesis
    from schemathesis import GenerationMode

    schema = schemathesis.openapi.from_asgi("/openapi.json", app)
    found = {"altered bytes": altered_bodies(rows)}
    operations = (("/predict", "POST"), ("/similar/{label}", "GET"))
    for (path, method), mode in itertools.product(operations, GenerationMode):
        strategy = schema[path][method].as_strategy(generation_mode=mode)
        found[f"{path}, {mode.value}"] = strategy.map(_as_request)
    return found


def _as_request(case: Any) -> dict[str, Any]:
    """Return a generated request as the client takes it; the applications ignore cookies."""
    given = case.as_transport_kwargs(base_url="http://testserver")
    known = ("method", "url", "params", "headers", "json", "content", "data")
    request = {name: value for name, value in given.items() if name in known}
    if isinstance(request.get("data"), str | bytes):
        request["content"] = request.pop("data")
    return request


def send_all(watched: Watched, strategy: Any, n_requests: int) -> None:
    """Send this number of requests of a strategy."""
    from hypothesis import HealthCheck, Phase, given, settings

    @settings(
        max_examples=n_requests,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def send(request: dict[str, Any]) -> None:
        watched.send(**request)

    send()


def fuzz(n_requests: int) -> None:
    """Send generated requests, and print the statuses of the responses."""
    from starlette.testclient import TestClient

    from cgmvae.serving.app import make_app

    row = {"depth": 0.5, "height": 1.0, "habitat": "field", "day": "2024-05-31", "notes": "owl"}
    sent = {"numbers": [[0.5, 1.0]] * 2, "all types": [row] * 2}
    print_header("model", "requests", "statuses", "slowest ms", "memory before, peak (MiB)")
    for title, model in small_models().items():
        with TestClient(make_app(model)) as client:
            strategies = requests_of(client.app, sent[title])
            for name, strategy in strategies.items():
                watched = Watched(client)
                send_all(watched, strategy, -(-n_requests // 2 // len(strategies)))
                print_row(title, name, *watched.cells())


# Hostile clients


def idle_clients(port: int, n_clients: int, seconds: float) -> None:
    """Hold connections that send nothing."""
    with ExitStack() as opened:
        for _ in range(n_clients):
            opened.enter_context(socket.create_connection(("127.0.0.1", port)))
        time.sleep(seconds)


def large_bodies(port: int, n_clients: int, n_bytes: int) -> None:
    """Send bodies of empty rows, all at the same time."""
    body = b'{"rows": [%b[]]}' % (b"[]," * (n_bytes // 3 - 8))

    def send(_: int) -> None:
        connection = HTTPConnection("127.0.0.1", port)
        with suppress(OSError):  # the server hangs up on a body that it refuses
            connection.request("POST", "/predict", body, {"Content-Type": "application/json"})
            connection.getresponse().read()
        connection.close()

    with ThreadPoolExecutor(n_clients) as clients:
        list(clients.map(send, range(n_clients)))


def ask_for_health(port: int) -> float:
    """Return the latency of ``/health`` on a new connection, in seconds."""
    start = time.perf_counter()
    with urlopen(f"http://127.0.0.1:{port}/health", timeout=60) as response:
        response.read()
    return time.perf_counter() - start


def hostile(*, quick: bool) -> None:
    """Attack a server, and print how it fares."""
    n_idle, seconds, n_large, n_bytes = (20, 0.2, 2, 10**5) if quick else (1020, 15, 32, 8 * MIB)
    attacks = {
        f"{n_idle:,} idle connections": partial(idle_clients, n_clients=n_idle, seconds=seconds),
        f"{n_large} bodies of {n_bytes:,} bytes": partial(
            large_bodies, n_clients=n_large, n_bytes=n_bytes
        ),
    }
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    model, _ = fitted_model(quick=True)
    print(environment())
    print_header("attack", "slowest /health ms", "memory above idle (MiB)", "log bytes", "asked")
    with tempfile.TemporaryDirectory() as folder, ExitStack() as running:
        model.save(path := Path(folder, "yeast.cgmvae"))
        log = running.enter_context(Path(folder, "log").open("wb"))
        command = ("-m", "cgmvae", "serve", str(path), "--port", "0")
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
        process, port = running.enter_context(server(*command, log=log))
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        clients = running.enter_context(ThreadPoolExecutor(1))
        for name, attack in attacks.items():
            ask_for_health(port)
            before, logged = anonymous_bytes(process), Path(folder, "log").stat().st_size
            under_way, latencies, most = clients.submit(attack, port), [], before
            while not latencies or not under_way.done():
                latencies.append(ask_for_health(port))
                most = max(most, anonymous_bytes(process))
                time.sleep(0.02)
            under_way.result()
            size = Path(folder, "log").stat().st_size - logged
            memory = (most - before) / MIB
            print_row(name, f"{1000 * max(latencies):,.0f}", f"{memory:,.0f}", size, len(latencies))
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, fuzz or attack."""
    parser = make_parser(__doc__)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--fuzz", type=int, metavar="N", help="send N generated requests instead")
    parser.add_argument("--hostile", action="store_true", help="attack a server instead")
    options = parser.parse_args(argv)
    if options.quick:
        options.clients, options.seconds, options.fuzz = [2], 0.2, 20
    if options.quick or options.hostile:
        hostile(quick=options.quick)
    if options.quick or not (options.fuzz or options.hostile):
        measure(options.clients, options.seconds, quick=options.quick)
    if options.fuzz:
        with tempfile.TemporaryDirectory() as folder, hypothesis_files_in(Path(folder)):
            fuzz(options.fuzz)
    return 0


if __name__ == "__main__":
    sys.exit(main())
