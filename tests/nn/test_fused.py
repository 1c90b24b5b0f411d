"""Kernels against the operations that they stand for; they need an accelerator."""

import pytest
import torch
import torch.nn.functional as F

from cgmvae.nn import fused
from cgmvae.nn.noise import CounterNoise
from cgmvae.nn.packed import PackedMLP

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator"),
]

CUDA = torch.device("cuda")
STEPS = torch.tensor([3, 4, 9], dtype=torch.int32)
RATE = torch.tensor([0.0, 0.3, 0.7])


def noise_on(device):
    noise = CounterNoise([5, 6, 7], device)
    noise.seek(STEPS.to(device))
    return noise


@pytest.mark.parametrize("width", [1, 37, 512, 1024])
@pytest.mark.parametrize("slope", [0.0, 0.01])
def test_a_hidden_layer_is_its_operations(width, slope):
    draw = torch.Generator().manual_seed(width)
    x, dy = torch.randn(2, 3, 13, width, generator=draw)
    vectors = torch.randn(3, 3, width, generator=draw)  # bias, gain, shift
    plain = [part.double().requires_grad_() for part in (x, *vectors)]
    bias, gain, shift = (part[:, None] for part in plain[1:])
    normal = F.layer_norm(plain[0] + bias, (width,)) * gain + shift
    expected = noise_on("cpu").dropout(F.leaky_relu(normal, slope), RATE)
    on_card = [part.to(CUDA).requires_grad_() for part in (x, *vectors)]
    found = fused.hidden(*on_card, noise_on(CUDA).dropping(RATE.to(CUDA)), slope)
    assert torch.equal(found.cpu() == 0, expected == 0) or slope == 0
    torch.testing.assert_close(found.cpu().double(), expected, rtol=2e-4, atol=1e-4)
    grads = torch.autograd.grad(found, on_card, dy.to(CUDA))
    for own, other in zip(grads, torch.autograd.grad(expected, plain, dy.double()), strict=True):
        torch.testing.assert_close(own.cpu().double(), other, rtol=2e-3, atol=2e-3)


def test_dropout_drops_the_same_entries_everywhere():
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
            (6, 33, 17, 4), CounterNoise([1, 2, 3], device), layer_norm=True, activation="relu"
        )
        networks.append(network)
        outputs.append(network(x.to(device), noise_on(device), RATE.to(device)).cpu())
    for a, b in zip(*(network.parameters() for network in networks), strict=True):
        torch.testing.assert_close(a, b.cpu())
    torch.testing.assert_close(*outputs, rtol=1e-3, atol=1e-4)
