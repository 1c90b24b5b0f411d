"""CUDA kernels against the operations that they replace; they need a GPU."""

import pytest
import torch
import torch.nn.functional as F

from cgmvae.nn import cuda
from cgmvae.nn.packed import PackedMLP
from cgmvae.nn.rng import CounterStreams
from cgmvae.training.optimizer import FlatParameters, gradient_norms

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]

CUDA = torch.device("cuda")
STEPS = torch.tensor([3, 4, 9], dtype=torch.int32)
RATE = torch.tensor([0.0, 0.3, 0.7])


def distance(found, exact):
    return float(((found - exact).norm() / exact.norm()).detach())


def noise_on(device):
    streams = CounterStreams([5, 6, 7], device)
    streams.seek(STEPS.to(device))
    return streams


@pytest.mark.parametrize("width", [1, 37, 512, 1024])
@pytest.mark.parametrize("slope", [0.0, 0.01])
def test_hidden_layer_equals_its_operations(width, slope):
    draw = torch.Generator().manual_seed(width)
    x, dy = torch.randn(2, 3, 13, width, generator=draw)
    vectors = torch.randn(3, 3, width, generator=draw)  # bias, gain, shift
    plain = [part.double().requires_grad_() for part in (x, *vectors)]
    bias, gain, shift = (part[:, None] for part in plain[1:])
    normal = F.layer_norm(plain[0] + bias, (width,)) * gain + shift
    expected = noise_on("cpu").dropout(F.leaky_relu(normal, slope), RATE)
    on_card = [part.to(CUDA).requires_grad_() for part in (x, *vectors)]
    found = cuda.hidden(*on_card, noise_on(CUDA).dropping(RATE.to(CUDA)), slope)
    assert torch.equal(found.cpu() == 0, expected == 0) or slope == 0
    torch.testing.assert_close(found.cpu().double(), expected, rtol=2e-4, atol=1e-4)
    grads = torch.autograd.grad(found, on_card, dy.to(CUDA))
    for own, other in zip(grads, torch.autograd.grad(expected, plain, dy.double()), strict=True):
        torch.testing.assert_close(own.cpu().double(), other, rtol=2e-3, atol=2e-3)


def test_dropout_is_the_same_on_both_devices():
    x = torch.randn(3, 11, 13)
    expected = noise_on("cpu").dropout(x, RATE)
    on_card = x.to(CUDA).requires_grad_()
    found = noise_on(CUDA).dropout(on_card, RATE.to(CUDA))
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-6, atol=0)
    (gradient,) = torch.autograd.grad(found.sum(), on_card)
    torch.testing.assert_close(gradient.cpu(), (expected / x), rtol=1e-4, atol=1e-6)


def test_a_network_is_the_same_on_both_devices():
    networks, outputs = [], []
    x = torch.randn(3, 20, 6)
    for device in ("cpu", "cuda"):
        network = PackedMLP(
            (6, 33, 17, 4), CounterStreams([1, 2, 3], device), layer_norm=True, activation="relu"
        )
        networks.append(network)
        outputs.append(network(x.to(device), noise_on(device), RATE.to(device)).cpu())
    for a, b in zip(*(network.parameters() for network in networks), strict=True):
        torch.testing.assert_close(a, b.cpu())
    torch.testing.assert_close(*outputs, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("n", [1, 7, 4097])
def test_random_numbers_are_the_same_on_both_devices(n):
    here, there = noise_on("cpu"), noise_on(CUDA)
    for section in (0, 3):
        for streams in (here, there):
            streams.section(section)
        assert torch.equal(here.uniform(n), there.uniform(n).cpu())
        torch.testing.assert_close(here.normal(n, 1), there.normal(n, 1).cpu(), rtol=0, atol=2e-5)


def test_gradient_norms():
    parts = [torch.randn(3, n, device=CUDA) for n in (1, 8192, 20_001)]
    expected = torch.cat(parts, dim=1).double().norm(dim=1)
    torch.testing.assert_close(gradient_norms(parts).double(), expected, rtol=1e-5, atol=0)
    parts[1][1, 17] = torch.nan
    assert torch.isfinite(gradient_norms(parts)).tolist() == [True, False, True]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_update_equals_adamw(dtype):
    torch.manual_seed(0)
    values = torch.randn(2, 3000, device=CUDA)
    rounded = torch.zeros_like(values, dtype=torch.bfloat16)
    expected = torch.nn.Parameter(values.clone())
    oracle = torch.optim.AdamW([expected], lr=0.1, weight_decay=0.2)
    mean, square = torch.zeros_like(values), torch.zeros_like(values)
    for step in range(1, 4):
        gradient = torch.randn(2, 3000, device=CUDA).to(dtype)
        expected.grad = gradient.float()
        oracle.step()
        scalars = [1.0, 1.0, 0.0, 1 - 0.1 * 0.2, 0.1 / (1 - 0.9**step), (1 - 0.999**step) ** -0.5]
        cuda.update(
            values,
            mean,
            square,
            gradient,
            torch.tensor([scalars] * 2, device=CUDA),
            rounded=rounded,
            betas=(0.9, 0.999),
            epsilon=1e-8,
            decayed=True,
        )
    torch.testing.assert_close(values, expected.detach(), rtol=1e-4, atol=1e-5)
    assert torch.equal(rounded, values.bfloat16())


@pytest.mark.parametrize("half", [True, False])
def test_training_precision(half):
    network = PackedMLP(
        (6, 64, 32, 4), CounterStreams([1, 2, 3], CUDA), layer_norm=True, activation="relu"
    )
    x = torch.randn(3, 20, 6, device=CUDA)
    exact = network(x, noise_on(CUDA), RATE.to(CUDA))
    expected = torch.autograd.grad(exact.square().sum(), list(network.parameters()))
    flat = FlatParameters(network, half=half)
    found = network(x, noise_on(CUDA), RATE.to(CUDA))
    assert found.dtype == torch.float32
    assert distance(found, exact) < (0.02 if half else 1e-5)
    gradients = flat.gradients(found.square().sum())
    dtype = torch.bfloat16 if half else torch.float32
    assert {gradient.dtype for gradient in gradients[:3]} == {dtype}
    wanted = dict(zip([name for name, _ in network.named_parameters()], expected, strict=True))
    for name, gradient in zip(flat.names[:3], gradients, strict=False):
        other = wanted[name].flatten(1)
        assert distance(gradient[:, : other.shape[1]], other) < (0.1 if half else 1e-3)
        assert not gradient[:, other.shape[1] :].any()  # rows that fill up a tile
    flat.release()
    torch.testing.assert_close(network(x, noise_on(CUDA), RATE.to(CUDA)), exact)
