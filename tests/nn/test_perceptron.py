"""The processor's network in one function against the same network operation by operation."""

import itertools

import pytest
import torch
import torch.nn.functional as F

from cgmvae.nn.noise import GeneratorNoise
from cgmvae.nn.packed import PackedMLP
from cgmvae.nn.perceptron import perceptron

N_ROWS = 5
DOUBLE = torch.float64

every_style = pytest.mark.parametrize(
    ("n_members", "widths", "layer_norm", "slope"),
    [
        (1, (6, 9, 7, 4), True, 0.0),
        (3, (6, 9, 7, 4), True, 0.0),
        (1, (6, 9, 7, 4), True, 0.01),
        (3, (6, 9, 7, 4), False, 0.01),
        (1, (6, 9, 4), False, 0.0),
        (2, (6, 4), True, 0.0),
    ],
)


def _parts(n_members, widths, layer_norm, dtype=DOUBLE):
    """Inputs, layers, norms and masks of a network, leaves where they have gradients."""
    draw = torch.Generator().manual_seed(3)

    def leaf(*shape):
        return torch.randn(n_members, *shape, generator=draw, dtype=dtype).requires_grad_()

    x = leaf(N_ROWS, widths[0])
    layers = [(leaf(a, b), leaf(b)) for a, b in itertools.pairwise(widths)]
    hidden = widths[1:-1]
    norms = [(leaf(width), leaf(width)) for width in hidden] if layer_norm else []
    rates = torch.linspace(0.2, 0.6, n_members, dtype=dtype)
    noise = GeneratorNoise(range(n_members))
    masks = noise.masks(N_ROWS, *hidden, rate=rates, dtype=dtype)
    return x, layers, norms, masks


def _by_operation(x, layers, norms, masks, slope):
    *before, (weight, bias) = layers
    for i, (layer, mask) in enumerate(zip(before, masks, strict=True)):
        x = torch.baddbmm(layer[1][:, None], x, layer[0])
        if norms:
            gain, shift = (part[:, None] for part in norms[i])
            x = F.layer_norm(x, x.shape[-1:]) * gain + shift
        x = F.leaky_relu(x, slope) * mask
    return torch.baddbmm(bias[:, None], x, weight)


@every_style
def test_outputs_and_gradients_are_those_of_the_operations(n_members, widths, layer_norm, slope):
    x, layers, norms, masks = _parts(n_members, widths, layer_norm)
    leaves = [x, *itertools.chain(*layers, *norms)]
    ours = perceptron(x, layers, norms, masks=masks, slope=slope)
    its = _by_operation(x, layers, norms, masks, slope)
    torch.testing.assert_close(ours, its, rtol=1e-12, atol=1e-12)
    upstream = torch.randn(ours.shape, generator=torch.Generator().manual_seed(4), dtype=DOUBLE)
    for mine, expected in zip(
        torch.autograd.grad(ours, leaves, upstream),
        torch.autograd.grad(its, leaves, upstream),
        strict=True,
    ):
        torch.testing.assert_close(mine, expected, rtol=1e-10, atol=1e-12)


@every_style
def test_rows_may_have_passed_the_first_map(n_members, widths, layer_norm, slope):
    x, layers, norms, masks = _parts(n_members, widths, layer_norm)
    if not masks:
        pytest.skip("no hidden layer")
    (weight, bias), *others = layers
    leaves = [x, *itertools.chain(*layers, *norms)]
    passed = torch.baddbmm(bias[:, None], x, weight)
    before = passed.detach().clone()
    found = [
        perceptron(passed, others, norms, masks=masks, slope=slope, started=True),
        perceptron(x, layers, norms, masks=masks, slope=slope),
    ]
    torch.testing.assert_close(*found, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(passed, before, rtol=0, atol=0)
    gradients = [torch.autograd.grad(each.square().sum(), leaves) for each in found]
    for mine, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, expected, rtol=1e-10, atol=1e-10)


@every_style
def test_gradcheck(n_members, widths, layer_norm, slope):
    x, layers, norms, masks = _parts(n_members, widths, layer_norm)
    leaves = [x, *itertools.chain(*layers, *norms)]

    def function(x, *flat):
        pairs = list(zip(flat[::2], flat[1::2], strict=True))
        return perceptron(x, pairs[: len(layers)], pairs[len(layers) :], masks=masks, slope=slope)

    assert torch.autograd.gradcheck(function, leaves)


def test_inputs_that_need_no_gradient_get_none():
    x, layers, norms, masks = _parts(2, (6, 9, 4), layer_norm=True)
    plain = x.detach()
    perceptron(plain, layers, norms, masks=masks, slope=0.0).sum().backward()
    assert plain.grad is None
    without = layers[0][0].grad
    again = torch.autograd.grad(
        perceptron(x, layers, norms, masks=masks, slope=0.0).sum(), layers[0][0]
    )
    torch.testing.assert_close(without, again[0])


def test_inputs_are_left_alone():
    x, layers, norms, masks = _parts(2, (6, 9, 7, 4), layer_norm=True)
    tensors = [x, *itertools.chain(*layers, *norms), *masks]
    before = [tensor.detach().clone() for tensor in tensors]
    perceptron(x, layers, norms, masks=masks, slope=0.01).sum().backward()
    for old, new in zip(before, tensors, strict=True):
        assert torch.equal(old, new)


@pytest.mark.parametrize("layer_norm", [True, False])
def test_training_without_dropout_is_evaluation(layer_norm):
    noise = GeneratorNoise([5, 8])
    mlp = PackedMLP((6, 9, 7, 4), noise, layer_norm=layer_norm, activation="relu", dtype=DOUBLE)
    x = torch.randn(2, N_ROWS, 6, dtype=DOUBLE)
    rates = torch.zeros(2, dtype=DOUBLE)
    torch.testing.assert_close(mlp(x, noise, rates), mlp(x, None, rates), rtol=0, atol=1e-12)


def test_members_in_float32_are_those_in_float64():
    parts = _parts(3, (6, 9, 7, 4), layer_norm=True)
    x, layers, norms, masks = parts
    exact = perceptron(x, layers, norms, masks=masks, slope=0.0)
    layers, norms = ([tuple(p.float() for p in pair) for pair in each] for each in (layers, norms))
    single = perceptron(x.float(), layers, norms, masks=[mask.float() for mask in masks], slope=0.0)
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), exact, rtol=1e-4, atol=1e-4)


@every_style
def test_gradients_of_weights_go_where_they_are_to(n_members, widths, layer_norm, slope):
    x, layers, norms, masks = _parts(n_members, widths, layer_norm)
    weights = [weight for weight, _ in layers]
    plain = perceptron(x, layers, norms, masks=masks, slope=slope).sum()
    expected = torch.autograd.grad(plain, weights)
    rows = torch.full((n_members, 1000), torch.nan, dtype=DOUBLE)
    first = rows[:, : weights[0][0].numel()].view(weights[0].shape)
    places = [first, *[None] * (len(weights) - 1)]
    placed = perceptron(x, layers, norms, masks=masks, slope=slope, places=places).sum()
    found = torch.autograd.grad(placed, weights)
    assert found[0].data_ptr() == rows.data_ptr()
    assert bool(rows[:, weights[0][0].numel() :].isnan().all())
    for ours, its in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, its, rtol=1e-12, atol=1e-12)
