"""How a served model holds up: requests a second, and what generated requests do to it.

    python benchmarks/serve.py [--clients 1 16 64] [--seconds 10]
    python benchmarks/serve.py --fuzz 10000

The first starts ``cgmvae serve`` twice in processes of their own, with micro-batching and without,
and measures one after the other at each number of clients; they send one row of yeast a request,
each its next when it has the answer. Clients are plain sockets in this process. The model is
C-GMVAE with its default sizes; how long it was trained does not matter here. The processor time of
a server a request hardly depends on what else the machine does; the other times do, so the load
average is printed with them.

The second sends generated requests to applications in this process: what schemathesis makes of
their description, right and wrong, and bodies whose bytes were altered. It counts statuses.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from serve_requests import fuzz

#: Seconds before times count.
WARM_UP = 1.0

BATCHING = {"with batches": [], "without": ["--batch-rows", "1"]}


def fitted_model() -> tuple[Any, list[list[float]]]:
    """Return C-GMVAE after one epoch on yeast, and rows to ask about."""
    from cgmvae.data import load_dataset
    from cgmvae.methods import CGMVAEClassifier

    data = load_dataset("yeast")
    model = CGMVAEClassifier(epochs=1, random_state=0).fit(data.X, data)
    return model, data.X[:500].astype(np.float32).tolist()


@contextmanager
def server(model: Path, *options: str) -> Iterator[tuple[int, int]]:
    """Run ``cgmvae serve``; give its process and its port."""
    command = [sys.executable, "-m", "cgmvae", "serve", str(model), "--port", "0", "--quiet"]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline() if process.stdout else ""
            yield process.pid, int(re.findall(r":(\d+);", line)[0])
        finally:
            process.terminate()


def processor_seconds(process: int) -> float:
    """Return the processor time that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def ask(port: int, bodies: list[bytes], first: int, until: float) -> list[tuple[float, int]]:
    """Send one request after the other; return when each was answered, how late, and how."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    found, place = [], first
    while (start := time.perf_counter()) < until:
        body = bodies[place % len(bodies)]
        place += 1
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
    """Let clients ask for some seconds; return how late each answer was, and its status."""
    until = time.perf_counter() + seconds
    asking = [ask(port, bodies, 7 * client, until) for client in range(n_clients)]
    return [answer for answers in await asyncio.gather(*asking) for answer in answers]


def row_of(process: int, port: int, bodies: list[bytes], n_clients: int, seconds: float) -> str:
    """Measure a server, and return the cells of the table."""
    asyncio.run(load(port, bodies, n_clients, WARM_UP))
    before, start = processor_seconds(process), time.perf_counter()
    found = asyncio.run(load(port, bodies, n_clients, seconds))
    elapsed, used = time.perf_counter() - start, processor_seconds(process) - before
    middle, late = np.percentile([1000 * wait for wait, _ in found], [50, 99])
    errors = sum(status != 200 for _, status in found)
    return (
        f"{len(found) / elapsed:,.1f} | {middle:,.1f} | {late:,.1f} "
        f"| {1000 * used / len(found):,.2f} | {errors}"
    )


def measure(numbers: list[int], seconds: float) -> None:
    """Print the table of both servers at each number of clients."""
    model, rows = fitted_model()
    bodies = [json.dumps({"rows": [row]}).encode() for row in rows]
    print(f"{os.cpu_count()} processors, load average {os.getloadavg()[0]:.1f} at the start")
    print("| clients | server | requests a second | p50 ms | p99 ms | processor ms | errors |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        model.save(path := Path(folder, "yeast.cgmvae"))
        with ExitStack() as running:
            servers = {
                name: running.enter_context(server(path, *options))
                for name, options in BATCHING.items()
            }
            for n_clients in numbers:
                for name, place in servers.items():
                    cells = row_of(*place, bodies, n_clients, seconds)
                    print(f"| {n_clients} | {name} | {cells} |", flush=True)
    print(f"load average {os.getloadavg()[0]:.1f} at the end")


def main() -> None:
    """Measure or fuzz."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--fuzz", type=int, metavar="N", help="send N generated requests instead")
    arguments = parser.parse_args()
    if arguments.fuzz:
        fuzz(arguments.fuzz)
    else:
        measure(arguments.clients, arguments.seconds)


if __name__ == "__main__":
    main()
