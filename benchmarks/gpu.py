"""How fast packed training is on an accelerator, beside what the card could do.

    python benchmarks/gpu.py [--members 1 8 64 200] [--precision bf16] [--profile] [--grid]

Yeast, E = 1024, batch 128. For each number of members: milliseconds a step, and a member-epoch with
everything (validation, host work). The floor of a step is the larger of two times: its counted
floating-point operations at the card's measured TF32 matrix rate, and the bytes of Adam's update
(gradient, weights and two moments read, the last three written) at its measured copy bandwidth.

``--profile`` adds what the time of a step of 200 members goes to, by kind of kernel.

``--grid`` adds the long measurements: 600 trainings of 80 epochs, three of whose members are
trained again alone; one member for 100 epochs; 64 members packed against one by one.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from cgmvae.data import load_dataset, make_split
from cgmvae.methods import CGMVAEClassifier
from cgmvae.methods.packed import Fit, label_log_odds, training_rows
from cgmvae.nn.rng import make_streams
from cgmvae.training.device import fast_products
from cgmvae.training.loop import train
from cgmvae.training.plan import Planner
from cgmvae.training.step import PackedStep, StepInput

DEVICE = torch.device("cuda")


def seconds(work: Callable[[], Any]) -> float:
    """Return the seconds that the work takes, the card's included."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def ceilings() -> tuple[float, float]:
    """Return the card's TF32 operations and copied bytes a second."""
    torch.set_float32_matmul_precision("high")
    a, b = torch.randn(2, 8192, 8192, device=DEVICE)
    source, target = torch.randn(2, 1 << 30, device=DEVICE)
    times = []
    for work in (lambda: a @ b, lambda: target.copy_(source)):
        seconds(work)
        times.append(min(seconds(lambda work=work: [work() for _ in range(5)]) for _ in range(5)))
    torch.set_float32_matmul_precision("highest")
    return 5 * 2 * 8192**3 / times[0], 5 * 2 * source.nbytes / times[1]


class Pack:
    """A pack of yeast's training rows, ready to train."""

    def __init__(self, n_members: int, epochs: int, precision: str, seed: int = 0) -> None:
        data = load_dataset("yeast")
        split = make_split(data, seed=0)
        rows, held = data.rows(split.train), data.rows(split.validation)
        self.model = CGMVAEClassifier(
            n_members=n_members,
            epochs=epochs,
            embedding_dim=1024,
            settings={"precision": precision},
            random_state=seed,
        )
        self.fit = Fit(*self.model._prepare(rows.X, rows.Y, (held.X, held.Y), None, None))
        self.members = self.model._make_members(self.fit.train, self.fit.validation, seed, 0)
        self.config = self.model._training_config(self.fit.train)
        self.rows = training_rows([self.fit], DEVICE)

    def network(self, members: list[Any]) -> Any:
        """Return a fresh network of these members."""
        log_odds = label_log_odds(self.fit.train)[None].repeat(len(members), axis=0)
        streams = make_streams([member.seed for member in members], DEVICE)
        return self.model._build_network(members, log_odds, streams)

    def train(self, members: list[Any]) -> Any:
        """Train these members and return their network."""
        network = self.network(members)
        train(network, members, self.rows, self.config, device=DEVICE)
        return network

    def ready_step(self) -> Callable[[], None]:
        """Return a step that is recorded, over and over on one batch."""
        step = PackedStep(self.network(self.members), self.members, self.config, DEVICE)
        order, weight, rates, numbers = Planner(self.members, self.config).epoch(1)
        batch = self.rows.batch(
            torch.from_numpy(order[:, 0]).to(DEVICE), torch.from_numpy(weight[:, 0]).to(DEVICE)
        )
        given = StepInput(
            batch,
            torch.from_numpy(rates[0]).float().to(DEVICE),
            torch.from_numpy(numbers[0]).int().to(DEVICE),
            torch.tensor(0, device=DEVICE),
        )
        for _ in range(10):
            step.take(given)
        return lambda: step.take(given)

    def step_seconds(self, n_steps: int = 200) -> float:
        """Return the seconds of one recorded step."""
        with fast_products(DEVICE):
            take = self.ready_step()
            return seconds(lambda: [take() for _ in range(n_steps)]) / n_steps


def operations_and_parameters() -> tuple[int, int]:
    """Return a member's floating-point operations a step, and its number of weights."""
    pack = Pack(1, 1, "tf32")
    step = PackedStep(pack.network(pack.members), pack.members, pack.config, DEVICE)
    order, weight, *_ = Planner(pack.members, pack.config).epoch(0)
    batch = pack.rows.batch(
        torch.from_numpy(order[:, 0]).to(DEVICE), torch.from_numpy(weight[:, 0]).to(DEVICE)
    )
    with FlopCounterMode(display=False) as counter:
        means = step._mean_terms(batch)
        torch.stack(list(means.values())).sum().backward()
    return counter.get_total_flops(), step.flat.values.shape[1]


def table(counts: list[int], precision: str) -> None:
    """Print the times by number of members."""
    rate, bandwidth = ceilings()
    operations, parameters = operations_and_parameters()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    print(f"measured: TF32 {rate / 1e12:.0f} TFLOP/s, copy {bandwidth / 1e12:.2f} TB/s")
    print(f"a member: {operations / 1e6:.0f} MFLOP a step, {parameters / 1e6:.2f} M weights\n")
    print("| members | ms a step | floor, ms | share of the floor | ms a member-epoch |")
    print("|---|---|---|---|---|")
    for n in counts:
        floor = n * max(operations / rate, 28 * parameters / bandwidth)
        step = Pack(n, 4, precision).step_seconds()
        short, long = Pack(n, 4, precision), Pack(n, 14, precision)
        short.train(short.members)
        epoch = (
            seconds(lambda p=long: p.train(p.members)) - seconds(lambda p=short: p.train(p.members))
        ) / 10
        print(
            f"| {n} | {step * 1e3:.3f} | {floor * 1e3:.3f} | {floor / step:.0%} "
            f"| {epoch / n * 1e3:.3f} |",
            flush=True,
        )


#: Parts of kernels' names, by what they do; the first that fits counts.
KINDS = {
    "matrix products": ("gemm", "cutlass", "xmma", "nvjet", "sm90"),
    "Adam's update": ("adam",),
    "normalisation, activation, dropout": ("hidden_forward", "hidden_backward", "drop"),
    "norms of gradients": ("square_sums",),
    "sums": ("reduce",),
    "copies": ("memcpy", "copy", "cat"),
}


def profile(precision: str, n_members: int = 200, n_steps: int = 20) -> None:
    """Print what a step's time goes to: kinds of kernels, and the longest of them."""
    from torch.profiler import ProfilerActivity, profile

    with fast_products(DEVICE):
        take = Pack(n_members, 4, precision).ready_step()
        with profile(activities=[ProfilerActivity.CUDA]) as found:
            for _ in range(n_steps):
                take()
            torch.cuda.synchronize()
    kernels = {
        e.key: (e.self_device_time_total / n_steps / 1e3, e.count // n_steps)
        for e in found.key_averages()
    }
    kinds: dict[str, float] = {}
    for name, (milliseconds, _) in kernels.items():
        kind = next(
            (k for k, parts in KINDS.items() if any(p in name.lower() for p in parts)),
            "other elementwise work",
        )
        kinds[kind] = kinds.get(kind, 0.0) + milliseconds
    print(f"\nA step of {n_members} members, {sum(kinds.values()):.2f} ms in kernels\n")
    print("| kernels | ms |\n|---|---|")
    for kind, milliseconds in sorted(kinds.items(), key=lambda item: -item[1]):
        print(f"| {kind} | {milliseconds:.2f} |")
    print()
    for name, (milliseconds, count) in sorted(kernels.items(), key=lambda item: -item[1][0])[:40]:
        print(f"{milliseconds:7.3f} ms, {count:3d} times: {name[:150]}")


def alone_and_packed(pack: Pack, network: Any) -> None:
    """Print how far three members of a trained pack are from training them alone."""
    gaps = []
    for k in (0, len(pack.members) // 2, len(pack.members) - 1):
        alone = pack.train([pack.members[k]])
        own, other = (
            torch.cat([p[i].detach().flatten() for p in each.parameters()])
            for each, i in ((alone, 0), (network, k))
        )
        gaps.append(f"{float((own - other).norm() / own.norm()):.1e}")
    print(f"weights alone and in the pack differ by {', '.join(gaps)} of their norm")


def grid(precision: str) -> None:
    """Print the long measurements."""
    for epochs in (2, 80):
        pack = Pack(600, epochs, precision)
        networks: list[Any] = []
        taken = seconds(lambda pack=pack, found=networks: found.append(pack.train(pack.members)))
        print(f"\n600 trainings of {epochs} epochs: {taken:.1f} s")
        alone_and_packed(pack, networks[0])
    one = Pack(1, 100, precision)
    data = load_dataset("yeast")
    split = make_split(data, seed=0)
    rows, held = data.rows(split.train), data.rows(split.validation)
    model = one.model
    whole = seconds(lambda: model.fit(rows.X, rows.Y, validation_data=(held.X, held.Y)))
    print(f"one member, 100 epochs, the whole fit: {whole:.2f} s")
    packed = Pack(64, 20, precision)
    together = seconds(lambda: packed.train(packed.members))
    single = seconds(lambda: [packed.train([member]) for member in packed.members[:8]]) * 8
    print(f"64 packed / 64 one by one (8 measured): {together / single:.3f}")


def main() -> None:
    """Print the measurements."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--members", nargs="*", type=int, default=[1, 8, 64, 200])
    parser.add_argument("--precision", choices=("tf32", "bf16"), default="tf32")
    parser.add_argument("--grid", action="store_true")
    parser.add_argument("--profile", action="store_true")
    arguments = parser.parse_args()
    if arguments.members:
        table(arguments.members, arguments.precision)
    if arguments.profile:
        profile(arguments.precision)
    if arguments.grid:
        grid(arguments.precision)


if __name__ == "__main__":
    main()
