"""The processor's network in one function against the same network operation by operation."""

import itertools

import pytest
import torch
import torch.nn.functional as F

from cgmvae.nn.noise import GeneratorNoise
from cgmvae.nn.packed import PackedMLP
from cgmvae.nn.perceptron import TrainedPerceptron, Weights, perceptron
from cgmvae.nn.sparse_rows import SparseRows

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
    ours = perceptron(x, Weights(layers, norms), masks=masks, slope=slope)
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
        perceptron(passed, Weights(others, norms), masks=masks, slope=slope, started=True),
        perceptron(x, Weights(layers, norms), masks=masks, slope=slope),
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
        weights = Weights(pairs[: len(layers)], pairs[len(layers) :])
        return perceptron(x, weights, masks=masks, slope=slope)

    assert torch.autograd.gradcheck(function, leaves)


def test_inputs_that_need_no_gradient_get_none():
    x, layers, norms, masks = _parts(2, (6, 9, 4), layer_norm=True)
    plain = x.detach()
    perceptron(plain, Weights(layers, norms), masks=masks, slope=0.0).sum().backward()
    assert plain.grad is None
    without = layers[0][0].grad
    again = torch.autograd.grad(
        perceptron(x, Weights(layers, norms), masks=masks, slope=0.0).sum(), layers[0][0]
    )
    torch.testing.assert_close(without, again[0])


def test_inputs_are_left_alone():
    x, layers, norms, masks = _parts(2, (6, 9, 7, 4), layer_norm=True)
    tensors = [x, *itertools.chain(*layers, *norms), *masks]
    before = [tensor.detach().clone() for tensor in tensors]
    perceptron(x, Weights(layers, norms), masks=masks, slope=0.01).sum().backward()
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
    exact = perceptron(x, Weights(layers, norms), masks=masks, slope=0.0)
    layers, norms = ([tuple(p.float() for p in pair) for pair in each] for each in (layers, norms))
    weights = Weights(layers, norms)
    single = perceptron(x.float(), weights, masks=[mask.float() for mask in masks], slope=0.0)
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), exact, rtol=1e-4, atol=1e-4)


@every_style
def test_gradients_of_weights_go_where_they_are_to(n_members, widths, layer_norm, slope):
    x, layers, norms, masks = _parts(n_members, widths, layer_norm)
    weights = [weight for weight, _ in layers]
    plain = perceptron(x, Weights(layers, norms), masks=masks, slope=slope).sum()
    expected = torch.autograd.grad(plain, weights)
    rows = torch.full((n_members, 1000), torch.nan, dtype=DOUBLE)
    first = rows[:, : weights[0][0].numel()].view(weights[0].shape)
    places = [first, *[None] * (len(weights) - 1)]
    placed = perceptron(x, Weights(layers, norms), masks=masks, slope=slope, places=places).sum()
    found = torch.autograd.grad(placed, weights)
    assert found[0].data_ptr() == rows.data_ptr()
    assert bool(rows[:, weights[0][0].numel() :].isnan().all())
    for ours, its in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, its, rtol=1e-12, atol=1e-12)


def _trained(layers, norms, slope):
    """The network by hand, and the places of all gradients: views of one tensor, not yet set."""
    pairs = [*layers, *norms]
    n_members, sizes = len(layers[0][0]), [part[0].numel() for part in itertools.chain(*pairs)]
    flat = torch.full((n_members, sum(sizes)), torch.nan, dtype=layers[0][0].dtype)
    parts = zip(flat.split(sizes, dim=1), itertools.chain(*pairs), strict=True)
    places = [place.view(like.shape) for place, like in parts]
    paired = list(zip(places[::2], places[1::2], strict=True))
    plain = [(a.detach(), b.detach()) for a, b in pairs]
    weights, targets = (Weights(of[: len(layers)], of[len(layers) :]) for of in (plain, paired))
    return TrainedPerceptron(weights, targets, slope), places


def _upstream(output):
    generator = torch.Generator().manual_seed(4)
    return torch.randn(output.shape, generator=generator, dtype=output.dtype)


def _without_zeros(x):
    """Zeros in place of some numbers, of a whole row among them; the rows with and without them."""
    x = x.detach() * (torch.rand(x.shape, generator=torch.Generator().manual_seed(2)) < 0.5)
    x[:, 1] = 0.0
    stored = x != 0
    bounds = F.pad(stored.sum(-1).flatten().cumsum(0), (1, 0))
    starts = torch.stack([bounds[i * N_ROWS : (i + 1) * N_ROWS + 1] for i in range(len(x))])
    return x, SparseRows(x[stored], stored.nonzero()[:, 2], starts, x.shape[2])


def _assert_passes(passage, places, parts, slope, *, starts):
    """Compare a passage and its way back with autograd, for the input's columns from each start."""
    x, layers, norms, masks = parts
    expected = perceptron(x, Weights(layers, norms), masks=masks, slope=slope)
    torch.testing.assert_close(passage.output, expected, rtol=1e-12, atol=1e-12)
    upstream = _upstream(expected)
    d_x, *gradients = torch.autograd.grad(
        expected, [x, *itertools.chain(*layers, *norms)], upstream
    )
    passage.back(upstream)
    for ours, its in zip(places, gradients, strict=True):
        torch.testing.assert_close(ours, its, rtol=1e-10, atol=1e-12)
    for start in starts:
        found = passage.input_gradient(start)
        torch.testing.assert_close(found, d_x[..., start:], rtol=1e-10, atol=1e-12)


@every_style
def test_rows_pass_by_hand_and_back(n_members, widths, layer_norm, slope):
    x, layers, norms, masks = parts = _parts(n_members, widths, layer_norm)
    network, places = _trained(layers, norms, slope)
    assert network.widths == list(widths[1:-1])
    passage = network(x.detach(), masks)
    _assert_passes(passage, places, parts, slope, starts=(0, 2, widths[0] - 1))
    torch.testing.assert_close(passage.input_gradient(), passage.input_gradient(0))


@every_style
@pytest.mark.parametrize("n_first", [1, 4])
def test_columns_may_stand_beside_others(n_members, widths, layer_norm, slope, n_first):
    x, layers, norms, masks = parts = _parts(n_members, widths, layer_norm)
    network, places = _trained(layers, norms, slope)
    first, beside = x.detach()[..., :n_first], x.detach()[..., n_first:]
    passage = network(first, masks, beside=beside)
    _assert_passes(passage, places, parts, slope, starts=(0, n_first))


@every_style
@pytest.mark.parametrize("n_beside", [0, 2])
def test_sparse_rows_pass_as_dense_ones_do(n_members, widths, layer_norm, slope, n_beside):
    x, layers, norms, masks = _parts(n_members, widths, layer_norm)
    n_first = widths[0] - n_beside
    dense, sparse = _without_zeros(x[..., :n_first])
    beside = x.detach()[..., n_first:] if n_beside else None
    whole = dense if beside is None else torch.cat([dense, beside], dim=-1)
    network, places = _trained(layers, norms, slope)
    passage = network(sparse, masks, beside=beside)
    parts = whole.requires_grad_(), layers, norms, masks
    _assert_passes(passage, places, parts, slope, starts=(0, n_first) if n_beside else (0,))


@every_style
@pytest.mark.parametrize("sparse", [False, True])
def test_what_passes_is_left_alone(n_members, widths, layer_norm, slope, sparse):
    x, layers, norms, masks = _parts(n_members, widths, layer_norm)
    network, places = _trained(layers, norms, slope)
    dense, rows = _without_zeros(x[..., :4])
    beside = x.detach()[..., 4:]
    upstream = _upstream(dense.new_empty(n_members, N_ROWS, widths[-1]))
    held = [dense, *rows[:3], beside, *masks, upstream, *itertools.chain(*layers, *norms)]
    before = [part.detach().clone() for part in held]
    passage = network(rows if sparse else dense, masks, beside=beside)
    output = passage.output.clone()
    passage.back(upstream)
    first = [*(place.clone() for place in places), passage.input_gradient(4)]
    assert all(map(torch.equal, held, before))
    assert torch.equal(passage.output, output)
    passage.back(upstream)
    assert all(map(torch.equal, [*places, passage.input_gradient(4)], first))


@every_style
def test_single_precision_follows_double_by_hand(n_members, widths, layer_norm, slope):
    """One member in single precision may have products of its own."""
    x, layers, norms, masks = _parts(n_members, widths, layer_norm, torch.float32)
    network, places = _trained(layers, norms, slope)
    passage = network(x.detach(), masks)
    upstream = _upstream(passage.output)
    passage.back(upstream)
    found = [passage.output, passage.input_gradient(), *places]
    assert {part.dtype for part in found} == {torch.float32}
    exact = [part.detach().double().requires_grad_() for part in itertools.chain(*layers, *norms)]
    pairs = list(zip(exact[::2], exact[1::2], strict=True))
    weights = Weights(pairs[: len(layers)], pairs[len(layers) :])
    rows = x.detach().double().requires_grad_()
    output = perceptron(rows, weights, masks=[mask.double() for mask in masks], slope=slope)
    expected = output, *torch.autograd.grad(output, [rows, *exact], upstream.double())
    for ours, its in zip(found, expected, strict=True):
        torch.testing.assert_close(ours.double(), its, rtol=1e-4, atol=1e-4)


def test_two_batches_may_be_on_their_way():
    x, layers, norms, masks = _parts(2, (6, 9, 7, 4), layer_norm=True)
    network, places = _trained(layers, norms, 0.0)
    alone = network(x.detach(), masks)
    alone.back(_upstream(alone.output))
    expected = [place.clone() for place in places]
    first, second = network(x.detach(), masks), network(2 * x.detach(), masks)
    second.back(_upstream(second.output))
    first.back(_upstream(first.output))
    assert torch.equal(first.output, alone.output)
    assert all(map(torch.equal, places, expected))


@pytest.mark.parametrize("layer_norm", [True, False])
@pytest.mark.parametrize(("activation", "slope"), [("relu", 0.0), ("leaky_relu", 0.01)])
def test_a_module_is_trained_by_hand(layer_norm, activation, slope):
    noise = GeneratorNoise([5, 8])
    style = {"layer_norm": layer_norm, "activation": activation, "dtype": DOUBLE}
    mlp = PackedMLP((6, 9, 7, 4), noise, **style)
    places = {parameter: torch.full_like(parameter, torch.nan) for parameter in mlp.parameters()}
    network = mlp.by_hand(places)
    x = torch.randn(2, N_ROWS, 6, generator=torch.Generator().manual_seed(1), dtype=DOUBLE)
    rates = torch.tensor([0.2, 0.5], dtype=DOUBLE)
    noise.seek([3, 4])
    passage = network(x, noise.masks(N_ROWS, *network.widths, rate=rates, dtype=DOUBLE))
    upstream = _upstream(passage.output)
    passage.back(upstream)
    noise.seek([3, 4])
    expected = mlp(x, noise, rates)
    assert network.slope == slope
    torch.testing.assert_close(passage.output, expected, rtol=1e-12, atol=1e-12)
    gradients = torch.autograd.grad(expected, list(mlp.parameters()), upstream)
    for ours, its in zip(places.values(), gradients, strict=True):
        torch.testing.assert_close(ours, its, rtol=1e-10, atol=1e-12)
