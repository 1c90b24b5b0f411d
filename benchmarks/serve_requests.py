"""Generated requests to applications in this process; ``serve.py --fuzz N`` runs it.

What schemathesis makes of an application's description, right and wrong, and bodies whose bytes
were altered, for a model of numbers and one of columns of all kinds.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import Any

import numpy as np
from resident import anonymous_bytes


def anonymous_megabytes() -> float:
    """Return the memory that belongs to this process alone."""
    return anonymous_bytes() / 2**20


class Watched:
    """A client in this process that counts statuses, the slowest answer and the most memory."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.statuses: Counter[int] = Counter()
        self.slowest = 0.0
        self.first = self.most = anonymous_megabytes()

    def __str__(self) -> str:
        counts = ", ".join(f"{status}: {n:,}" for status, n in sorted(self.statuses.items()))
        return f"{counts} | {self.slowest * 1000:,.0f} | {self.first:,.0f}, {self.most:,.0f}"

    def send(self, **request: Any) -> None:
        """Send one request."""
        start = time.perf_counter()
        response = self.client.request(**request)
        self.slowest = max(self.slowest, time.perf_counter() - start)
        self.statuses[response.status_code] += 1
        self.most = max(self.most, anonymous_megabytes())
        if response.status_code != 200 and list(response.json()) != ["error"]:
            raise AssertionError(f"A refusal is no sentence: {response.text}")


def small_models() -> dict[str, Any]:
    """Return a model of numbers, and one of columns of all kinds."""
    import cgmvae
    from cgmvae.data.columns import as_columns

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
        "all kinds": cgmvae.BinaryRelevance(random_state=0).fit(as_columns(columns), Y.astype(int)),
    }


def altered_bodies(rows: list[Any]) -> Any:
    """Return a strategy of requests whose bodies were right before some bytes were replaced."""
    from hypothesis import strategies as st

    whole = json.dumps({"rows": rows}).encode()
    named = rows[0] if isinstance(rows[0], dict) else dict(zip("ab", rows[0], strict=True))
    lines = [",".join(map(str, cells)) for cells in (named, named.values())]
    kinds = {"application/json": whole, "text/csv": "\n".join(lines).encode()}
    places, pieces = (
        st.integers(0, len(whole)),
        st.binary(max_size=6)
        | st.sampled_from(
            [b'"', b"\n", b",", b"[", b"}", b"1e39", b"null", b"\\ud800", b"-", b"\x00", b"\xff"]
        ),
    )
    edits = st.lists(st.tuples(places, st.integers(0, 4), pieces), min_size=1, max_size=4)

    def altered(kind: str, changes: list[tuple[int, int, bytes]]) -> dict[str, Any]:
        body = kinds[kind]
        for place, removed, piece in changes:
            body = body[:place] + piece + body[place + removed :]
        headers = {"Content-Type": kind}
        return {"method": "POST", "url": "/predict", "content": body, "headers": headers}

    return st.builds(altered, st.sampled_from(list(kinds)), edits)


def requests_of(app: Any, rows: list[Any]) -> dict[str, Any]:
    """Return strategies of requests by name."""
    import schemathesis
    from schemathesis import GenerationMode

    schema = schemathesis.openapi.from_asgi("/openapi.json", app)
    found = {"altered bytes": altered_bodies(rows)}
    for (path, method), mode in [
        (place, mode)
        for place in (("/predict", "POST"), ("/similar/{label}", "GET"))
        for mode in GenerationMode
    ]:
        strategy = schema[path][method].as_strategy(generation_mode=mode)
        found[f"{path}, {mode.value}"] = strategy.map(_as_request)
    return found


def _as_request(case: Any) -> dict[str, Any]:
    given = case.as_transport_kwargs(base_url="http://testserver")
    known = ("method", "url", "params", "headers", "json", "content", "data", "cookies")
    return {name: value for name, value in given.items() if name in known}


def send_all(watched: Watched, strategy: Any, n_requests: int) -> None:
    """Send so many requests of a strategy."""
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
    """Send generated requests, and print what came of them."""
    from starlette.testclient import TestClient

    from cgmvae.serving.app import make_app

    row = {"depth": 0.5, "height": 1.0, "habitat": "field", "day": "2024-05-31", "notes": "owl"}
    sent = {"numbers": [[0.5, 1.0]] * 2, "all kinds": [row] * 2}
    print("| model | requests | statuses | slowest ms | memory before, most (MB) |")
    print("|---|---|---|---|---|")
    for title, model in small_models().items():
        with TestClient(make_app(model)) as client:
            strategies = requests_of(client.app, sent[title])
            for name, strategy in strategies.items():
                watched = Watched(client)
                send_all(watched, strategy, -(-n_requests // 2 // len(strategies)))
                print(f"| {title} | {name} | {watched} |", flush=True)
