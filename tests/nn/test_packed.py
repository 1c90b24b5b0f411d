"""Packed layers against torch's layers, member by member."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from cgmvae.nn import cuda
from cgmvae.nn.packed import (
    PackedLinear,
    PackedMLP,
    inner_products,
    inner_products_and_cosines,
    keep_members,
)
from cgmvae.nn.rng import CounterStreams, GeneratorStreams, make_streams

SEEDS = (5, 8, 13)
WIDTHS = (6, 9, 7, 4)
ACTIVATIONS = {"relu": nn.ReLU(), "leaky_relu": nn.LeakyReLU()}
DOUBLE = torch.float64

every_style = pytest.mark.parametrize(
    ("layer_norm", "activation"), [(True, "relu"), (False, "leaky_relu"), (True, "leaky_relu")]
)


@pytest.fixture
def x(rng):
    return torch.from_numpy(rng.normal(size=(len(SEEDS), 5, WIDTHS[0])))


def _mlp(seeds=SEEDS, widths=WIDTHS, *, layer_norm=True, activation="relu", rng=None):
    mlp = PackedMLP(
        widths,
        GeneratorStreams(seeds),
        "mlp",
        layer_norm=layer_norm,
        activation=activation,
        dtype=DOUBLE,
    )
    if rng is not None:  # gains and shifts that are not those of the start
        with torch.no_grad():
            for norm in mlp.norms:
                norm.gain.copy_(torch.from_numpy(rng.uniform(0.5, 2, norm.gain.shape)))
                norm.shift.copy_(torch.from_numpy(rng.normal(size=norm.shift.shape)))
    return mlp


def _own_linear(layer, member):
    own = nn.Linear(layer.weight.shape[1], layer.weight.shape[2], dtype=DOUBLE)
    with torch.no_grad():
        own.weight.copy_(layer.weight[member].T)
        own.bias.copy_(layer.bias[member])
    return own


def _own_norm(norm, member):
    own = nn.LayerNorm(norm.gain.shape[1], dtype=DOUBLE)
    with torch.no_grad():
        own.weight.copy_(norm.gain[member])
        own.bias.copy_(norm.shift[member])
    return own


def _own_modules(mlp, member, activation):
    """Lists of each hidden layer's modules, and the last layer."""
    *hidden, last = mlp.layers
    blocks = []
    for i, layer in enumerate(hidden):
        block = [_own_linear(layer, member)]
        block += [_own_norm(mlp.norms[i], member)] if len(mlp.norms) else []
        blocks.append(nn.Sequential(*block, ACTIVATIONS[activation]))
    return blocks, _own_linear(last, member)


def _assert_same_gradients(mlp, member, blocks, last):
    """Compare the gradients of a member with those of its own modules."""
    for layer, its in zip(mlp.layers, [*(b[0] for b in blocks), last], strict=True):
        torch.testing.assert_close(layer.weight.grad[member], its.weight.grad.T)
        torch.testing.assert_close(layer.bias.grad[member], its.bias.grad)
    for norm, block in zip(mlp.norms, blocks if len(mlp.norms) else [], strict=True):
        torch.testing.assert_close(norm.gain.grad[member], block[1].weight.grad)
        torch.testing.assert_close(norm.shift.grad[member], block[1].bias.grad)


@every_style
def test_a_member_of_an_mlp_equals_a_sequential(x, rng, layer_norm, activation):
    mlp = _mlp(layer_norm=layer_norm, activation=activation, rng=rng)
    out = mlp(x, None, torch.full((3,), 0.5))
    for i in range(len(SEEDS)):
        blocks, last = _own_modules(mlp, i, activation)
        own = nn.Sequential(*blocks, last)
        torch.testing.assert_close(out[i], own(x[i]), rtol=0, atol=1e-12)


@every_style
def test_gradients_equal_those_of_a_sequential(x, rng, layer_norm, activation):
    mlp = _mlp(layer_norm=layer_norm, activation=activation, rng=rng)
    target = torch.from_numpy(rng.normal(size=(len(SEEDS), 5, WIDTHS[-1])))
    ((mlp(x, None, torch.zeros(3)) - target) ** 2).sum().backward()
    for i in range(len(SEEDS)):
        blocks, last = _own_modules(mlp, i, activation)
        own = nn.Sequential(*blocks, last)
        ((own(x[i]) - target[i]) ** 2).sum().backward()
        _assert_same_gradients(mlp, i, blocks, last)


@every_style
def test_gradients_with_dropout_equal_those_of_a_sequential(x, rng, layer_norm, activation):
    mlp = _mlp(layer_norm=layer_norm, activation=activation, rng=rng)
    rates = torch.tensor([0.0, 0.3, 0.6], dtype=DOUBLE)
    target = torch.from_numpy(rng.normal(size=(len(SEEDS), 5, WIDTHS[-1])))
    streams = GeneratorStreams(SEEDS)
    given = x.clone().requires_grad_()
    ((mlp(given, streams, rates) - target) ** 2).sum().backward()
    streams.seek([0] * len(SEEDS))
    masks = [
        streams.mask(f"mlp.{i}", 5, width, rate=rates, dtype=DOUBLE)
        for i, width in enumerate(WIDTHS[1:-1])
    ]
    for i in range(len(SEEDS)):
        blocks, last = _own_modules(mlp, i, activation)
        own = given.detach()[i].requires_grad_()
        hidden = own
        for block, mask in zip(blocks, masks, strict=True):
            hidden = block(hidden) * mask[i]
        ((last(hidden) - target[i]) ** 2).sum().backward()
        torch.testing.assert_close(given.grad[i], own.grad)
        _assert_same_gradients(mlp, i, blocks, last)


@every_style
def test_dropout_follows_the_activation(x, rng, layer_norm, activation):
    mlp = _mlp(layer_norm=layer_norm, activation=activation, rng=rng)
    rates = torch.tensor([0.0, 0.3, 0.6], dtype=DOUBLE)
    streams = GeneratorStreams(SEEDS)
    streams.seek([4, 4, 4])
    out = mlp(x, streams, rates)
    streams.seek([4, 4, 4])
    masks = [
        streams.dropout(f"mlp.{i}", torch.ones(3, 5, width, dtype=DOUBLE), rates)
        for i, width in enumerate(WIDTHS[1:-1])
    ]
    assert any(bool((mask == 0).any()) for mask in masks)
    for i in range(len(SEEDS)):
        blocks, last = _own_modules(mlp, i, activation)
        hidden = x[i]
        for block, mask in zip(blocks, masks, strict=True):
            hidden = block(hidden) * mask[i]
        torch.testing.assert_close(out[i], last(hidden), rtol=0, atol=1e-12)
    torch.testing.assert_close(out[0], mlp(x, None, rates)[0])


@pytest.mark.parametrize("kind", [GeneratorStreams, CounterStreams])
def test_initial_weights_and_outputs_do_not_depend_on_the_pack(x, kind):
    def made(seeds):
        style = {"layer_norm": True, "activation": "relu", "dtype": DOUBLE}
        return PackedMLP(WIDTHS, kind(seeds), "mlp", **style)

    pack, rates = made(SEEDS), torch.full((3,), 0.4)
    streams = kind(SEEDS)
    out = pack(x, streams, rates)
    for i, seed in enumerate(SEEDS):
        alone = made([seed])
        for ours, its in zip(pack.parameters(), alone.parameters(), strict=True):
            assert torch.equal(ours[i : i + 1], its)
        its = alone(x[i : i + 1], kind([seed]), rates[i : i + 1])
        torch.testing.assert_close(out[i : i + 1], its, rtol=0, atol=1e-12)


def test_initial_weights_are_those_of_torch():
    layer = PackedLinear(100, 300, GeneratorStreams([1, 2]), "layer", dtype=torch.float32)
    assert layer.weight.dtype == torch.float32
    for member in layer.weight.detach().numpy():
        assert np.abs(member).max() <= 0.1
        assert stats.kstest(member.ravel(), stats.uniform(-0.1, 0.2).cdf).pvalue > 1e-3
    for member in layer.bias.detach().numpy():
        assert np.abs(member).max() <= 0.1
        assert stats.kstest(member, stats.uniform(-0.1, 0.2).cdf).pvalue > 1e-3
    assert not torch.equal(layer.weight[0], layer.weight[1])


def test_an_mlp_without_hidden_layers_is_affine(x):
    mlp = _mlp(widths=(6, 4))
    out = mlp(x, GeneratorStreams(SEEDS), torch.full((3,), 0.9))
    assert torch.equal(out, mlp.layers[0](x))
    assert len(mlp.norms) == 0


def test_kept_members_are_unchanged():
    network = PackedMLP(
        (3, 5, 2), make_streams([1, 2, 3], "cpu"), "mlp", layer_norm=True, activation="relu"
    )
    network.register_buffer("rate", torch.tensor([0.1, 0.2, 0.3]))
    x = torch.randn(3, 4, 3)
    before = network(x, None, network.rate)
    places = torch.tensor([0, 2])
    keep_members(network, places)
    assert torch.equal(network.rate, torch.tensor([0.1, 0.3]))
    torch.testing.assert_close(network(x[places], None, network.rate), before[places])


def test_inner_products():
    x, labels = torch.randn(2, 5, 7), torch.randn(2, 3, 7)
    expected = torch.einsum("mbe,mle->mbl", x, labels)
    torch.testing.assert_close(inner_products(x, labels), expected)


def test_inner_products_and_cosines():
    x, labels = (torch.randn(2, n, 7, dtype=DOUBLE, requires_grad=True) for n in (5, 3))
    inner, cosines = inner_products_and_cosines(x, labels)
    torch.testing.assert_close(inner, torch.einsum("mbe,mle->mbl", x, labels))
    expected = torch.cosine_similarity(x[:, :, None], labels[:, None], dim=-1)
    torch.testing.assert_close(cosines, expected)
    assert torch.autograd.gradcheck(inner_products_and_cosines, (x, labels))


@pytest.mark.parametrize("n_rows", [1, 7, 12])
def test_gradients_that_are_summed_in_parts(n_rows):
    shapes = (2, n_rows, 3), (2, 3, 4), (2, 4)
    x, weight, bias = (torch.randn(*shape, dtype=DOUBLE, requires_grad=True) for shape in shapes)
    torch.testing.assert_close(cuda.tall_affine(x, weight, bias), x @ weight + bias[:, None])
    assert torch.autograd.gradcheck(cuda.tall_affine, (x, weight, bias))
    assert torch.autograd.gradcheck(lambda *given: cuda.tall_affine(*given, None), (x, weight))
