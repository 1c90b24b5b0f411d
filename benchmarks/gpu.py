"""Speed of packed training on a GPU, compared with the limits of the card.

    python benchmarks/gpu.py [--members 1 8 64 200] [--precision bf16] [--large] [--profile]
        [--grid] [--out FILE.json]

Yeast, E = 1024, batches of 256 rows; otherwise the network of the defaults or, with ``--large``,
one with the paper's hidden layers and latent dimensions. For each number of members: milliseconds
per step, and milliseconds per member and epoch with everything (validation, work of the host). The
floor of a step is the larger of two times: its counted floating-point operations at the card's
measured TF32 matrix rate, and the bytes of Adam's update (gradient, weights and two moments read,
the last three written) at its measured copy bandwidth.

``--profile`` adds the time that a step of 200 members spends in each kind of kernel.

``--grid`` adds the long measurements: 600 trainings of 80 epochs, three members of which are
trained again alone; one member for 100 epochs; 64 members packed and one by one.

``--quick`` runs all of this in small, on the CPU if there is no GPU.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
from measurement import (
    TINY_NETWORK,
    TINY_ROWS,
    Results,
    add_out,
    fit_input,
    load_parts,
    made,
    make_parser,
    print_header,
    print_row,
    seconds,
)
from torch.utils.flop_counter import FlopCounterMode

from cgmvae.methods import CGMVAEClassifier
from cgmvae.methods.neural import begin_fit, make_pack
from cgmvae.nn.rng import make_streams
from cgmvae.training.device import fast_products, find_device
from cgmvae.training.loop import train
from cgmvae.training.plan import Planner, column
from cgmvae.training.step import EpochInput, PackedStep

#: Bytes that Adam's update moves per weight: four float32 numbers read, three written.
ADAM_BYTES = 7 * 4


class Scale(NamedTuple):
    """How large everything is."""

    n_rows: int | None = None
    network: Mapping[str, Any] = MappingProxyType({"embedding_dim": 1024})
    matrix_width: int = 8192
    n_copied: int = 2**30
    """Numbers that are copied to measure the bandwidth."""
    n_steps: int = 200
    epochs: tuple[int, int] = (4, 14)
    """Two lengths of training, whose difference is the time of the epochs alone."""
    profiled_members: int = 200
    grid_members: int = 600
    grid_epochs: tuple[int, ...] = (2, 80)
    single_epochs: int = 100
    packed: tuple[int, int] = (64, 8)
    """Members packed, and those of them that are also trained one by one."""


#: The sizes of the paper's network.
PAPER_SIZES = {
    "latent_dim": 64,
    "label_hidden": (512, 256),
    "feature_hidden": (256, 512, 256),
    "decoder_hidden": (512, 512),
}
LARGE = Scale(network=MappingProxyType({"embedding_dim": 1024, "network": PAPER_SIZES}))

QUICK = Scale(TINY_ROWS, TINY_NETWORK, 64, 2**12, 2, (1, 2), 2, 3, (1,), 1, (2, 1))


class YeastPack:
    """A pack of yeast's training rows, ready to train."""

    def __init__(
        self, n_members: int, epochs: int, precision: str, scale: Scale, device: str = "auto"
    ) -> None:
        self.model = CGMVAEClassifier(
            n_members=n_members,
            epochs=epochs,
            # To the last epoch: the preset would stop members that do not improve.
            training={"precision": precision, "patience": None},
            **scale.network,
            random_state=0,
            device=device,
        )
        self.data = fit_input(load_parts("yeast", 0, scale.n_rows))
        self.pack = make_pack([self.model], [begin_fit(self.model, *self.data)])
        self.all = np.arange(n_members)

    def train(self, members: np.ndarray | None = None) -> Any:
        """Train all members, or those of these numbers, and return their network."""
        network, chosen, rows = self.pack.assemble(self.all if members is None else members)
        train(network, chosen, rows, self.pack.config, device=self.pack.device)
        return network

    def steps(self, n_steps: int) -> tuple[Callable[[], None], int]:
        """Return what takes at least so many steps, recorded by now if on a GPU, and how many."""
        network, members, rows = self.pack.assemble(self.all)
        step = PackedStep(network, members, self.pack.config, self.pack.device)
        epoch = first_epoch(members, self.pack.config, self.pack.device)
        n_epochs = -(-n_steps // len(epoch.rates))

        def take() -> None:
            for _ in range(n_epochs):
                step.take_epoch(rows, epoch)

        take()
        return take, n_epochs * len(epoch.rates)

    def step_seconds(self, n_steps: int) -> float:
        """Return the seconds per step."""
        with fast_products(self.pack.device):
            take, n_steps = self.steps(n_steps)
            return seconds(take) / n_steps


def first_epoch(members: Any, config: Any, device: torch.device) -> EpochInput:
    """Return the input of a training's first epoch."""
    dtypes = (torch.int64, torch.float32, torch.float32, torch.int32)
    parts = zip(Planner(members, config).epoch(0), dtypes, strict=True)
    return EpochInput(*(torch.from_numpy(part).to(device, dtype) for part, dtype in parts))


def ceilings(scale: Scale) -> tuple[float, float]:
    """Return the TF32 operations and the copied bytes per second that the device reaches."""
    device, width = find_device(), scale.matrix_width
    a, b = torch.randn(2, width, width, device=device)
    source, target = torch.randn(2, scale.n_copied, device=device)
    times = []
    with fast_products(device):
        for work in (lambda: a @ b, lambda: target.copy_(source)):
            seconds(work)
            repeated = [seconds(lambda work=work: [work() for _ in range(5)]) for _ in range(5)]
            times.append(min(repeated))
    return 5 * 2 * width**3 / times[0], 5 * 2 * source.nbytes / times[1]


def operations_and_weights(scale: Scale) -> tuple[int, int]:
    """Return a member's floating-point operations per step, and its number of weights.

    They are counted on the CPU, where no product is padded.
    """
    one = YeastPack(1, 1, "tf32", scale, device="cpu")
    network, members, rows = one.pack.assemble(one.all)
    streams = make_streams(column(members, "seed"), "cpu")
    epoch = first_epoch(members, one.pack.config, one.pack.device)
    batch = rows.batch(epoch.order[:, 0], epoch.weight[:, 0])
    with FlopCounterMode(display=False) as counter:
        torch.stack(list(network.terms(batch, streams).values())).sum().backward()
    return counter.get_total_flops(), sum(p.numel() for p in network.parameters())


def table(counts: list[int], precision: str, scale: Scale, results: Results) -> None:
    """Print the times by number of members, and keep them."""
    rate, bandwidth = ceilings(scale)
    operations, weights = operations_and_weights(scale)
    print(f"measured: TF32 {rate / 1e12:.3g} TFLOP/s, copy {bandwidth / 1e12:.3g} TB/s")
    print(f"a member: {operations / 1e6:.3g} MFLOP per step, {weights / 1e6:.3g} M weights\n")
    names = ("ms per step", "floor, ms", "share of the floor", "ms per member and epoch")
    print_header("members", *names)
    for n in counts:
        floor = n * max(operations / rate, ADAM_BYTES * weights / bandwidth)
        step = YeastPack(n, scale.epochs[0], precision, scale).step_seconds(scale.n_steps)
        short, long = (YeastPack(n, epochs, precision, scale) for epochs in scale.epochs)
        short.train()
        epochs = (seconds(long.train) - seconds(short.train)) / np.diff(scale.epochs).item()
        values = [round(1e3 * value, 3) for value in (step, floor, epochs / n)]
        results.add(("steps", precision, str(n)), dict(zip(STEP_FIELDS, values, strict=True)))
        print_row(n, *values[:2], f"{floor / step:.0%}", values[2])


#: What is kept of a number of members.
STEP_FIELDS = ("step_ms", "floor_ms", "member_epoch_ms")

#: Parts of kernel names by what the kernels do; the first kind that matches counts.
KINDS = {
    "matrix products": ("gemm", "cutlass", "xmma", "nvjet", "sm90", "bmm", "addmm"),
    "Adam's update": ("adam",),
    "normalization, activation, dropout": ("hidden_forward", "hidden_backward", "drop"),
    "terms of the objective": ("mixture_kl", "label_loss"),
    "norms of gradients": ("square_sums",),
    "sums": ("reduce",),
    "copies": ("memcpy", "copy", "cat"),
}


def profile(precision: str, scale: Scale) -> None:
    """Print the time of a step by kind of kernel, and the kernels that take longest."""
    from torch.profiler import ProfilerActivity, profile

    pack = YeastPack(scale.profiled_members, scale.epochs[0], precision, scale)
    on_gpu = pack.pack.device.type == "cuda"
    activity = ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU
    with fast_products(pack.pack.device):
        take, n_steps = pack.steps(min(scale.n_steps, 20))
        with profile(activities=[activity]) as found:
            seconds(take)
    kernels = {}
    for event in found.key_averages():
        spent = event.self_device_time_total if on_gpu else event.self_cpu_time_total
        kernels[event.key] = (spent / n_steps / 1e3, event.count // n_steps)
    kinds: dict[str, float] = {}
    for name, (milliseconds, _) in kernels.items():
        kind = next(
            (k for k, parts in KINDS.items() if any(p in name.lower() for p in parts)),
            "other elementwise work",
        )
        kinds[kind] = kinds.get(kind, 0.0) + milliseconds
    print(
        f"\nA step of {scale.profiled_members} members, {sum(kinds.values()):.2f} ms in "
        f"{sum(count for _, count in kernels.values())} kernels\n"
    )
    print_header("kernels", "ms")
    for kind, milliseconds in sorted(kinds.items(), key=lambda item: -item[1]):
        print_row(kind, f"{milliseconds:.2f}")
    print()
    for name, (milliseconds, count) in sorted(kernels.items(), key=lambda item: -item[1][0])[:40]:
        print(f"{milliseconds:7.3f} ms, {count:3d} times: {name[:150]}")


def alone_and_packed(pack: YeastPack, network: Any) -> None:
    """Print by how much three members of a trained pack differ from the same ones trained alone."""
    gaps = []
    for k in (0, len(pack.all) // 2, len(pack.all) - 1):
        alone = pack.train(np.array([k]))
        own, other = (
            torch.cat([p[i].detach().flatten() for p in each.parameters()])
            for each, i in ((alone, 0), (network, k))
        )
        gaps.append(f"{float((own - other).norm() / own.norm()):.1e}")
    print(f"weights alone and in the pack differ by {', '.join(gaps)} of their norm")


def grid(precision: str, scale: Scale, results: Results) -> None:
    """Print the long measurements, and keep them."""
    for epochs in scale.grid_epochs:
        pack = YeastPack(scale.grid_members, epochs, precision, scale)
        trained: list[Any] = []
        taken = seconds(lambda pack=pack, trained=trained: trained.append(pack.train()))
        what = f"{scale.grid_members} trainings of {epochs} epochs in one pack"
        results.add(("whole", what), round(taken, 2))
        print(f"\n{what}: {taken:.1f} s")
        alone_and_packed(pack, trained[0])
    one = YeastPack(1, scale.single_epochs, precision, scale)
    X, Y, validation = one.data
    whole = seconds(lambda: one.model.fit(X, Y, validation_data=validation))
    what = f"one member, {scale.single_epochs} epochs, the whole fit"
    results.add(("whole", what), round(whole, 2))
    print(f"{what}: {whole:.2f} s")
    n_members, n_single = scale.packed
    packed = YeastPack(n_members, scale.epochs[0] * 5, precision, scale)
    together = seconds(packed.train)
    single = seconds(lambda: [packed.train(packed.all[k : k + 1]) for k in range(n_single)])
    ratio = together / (single * n_members / n_single)
    print(f"{n_members} packed / {n_members} one by one ({n_single} measured): {ratio:.3f}")


def main(argv: Sequence[str] | None = None) -> int:
    """Print the measurements."""
    parser = make_parser(__doc__)
    add_out(parser)
    parser.add_argument("--members", nargs="*", type=int, default=[1, 8, 64, 200])
    parser.add_argument("--precision", choices=("tf32", "bf16"), default="tf32")
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--grid", action="store_true")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args(argv)
    if options.large and options.out:
        parser.error("--out keeps the numbers of the default network; leave out --large")
    scale = QUICK if options.quick else LARGE if options.large else Scale()
    if options.quick:
        options.members, options.grid, options.profile = [1, 3], True, True
    on_gpu = torch.cuda.is_available()
    if not on_gpu and not options.quick:
        parser.error("there is no GPU here; only --quick runs without one")
    device = torch.cuda.get_device_name() if on_gpu else "CPU (its times say nothing about a GPU)"
    print(f"{device}, torch {torch.__version__}")
    results = Results(options.out)
    results.add(("made",), made("python benchmarks/gpu.py"))
    if options.members:
        table(options.members, options.precision, scale, results)
    if options.profile:
        profile(options.precision, scale)
    if options.grid:
        grid(options.precision, scale, results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
