"""CUDA kernels against the operations that they replace; they need a GPU."""

import pytest
import torch
import torch.nn.functional as F

from cgmvae.model import objective
from cgmvae.nn import cuda
from cgmvae.nn.gaussian import LOG_VARIANCE_RANGE, Gaussian
from cgmvae.nn.packed import (
    PackedLayerNorm,
    PackedMLP,
    inner_products,
    inner_products_and_cosines,
)
from cgmvae.nn.rng import CounterStreams
from cgmvae.training.optimizer import FlatParameters, gradient_norms

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
#: Members, rows, labels and dimensions of z: none, and all, in whole tiles.
SHAPES = [(3, 21, 5, 7), (2, 256, 16, 64), (1, 70, 130, 3), (5, 3, 1, 1)]
STEPS = torch.tensor([3, 4, 9], dtype=torch.int32)
RATE = torch.tensor([0.0, 0.3, 0.7])


def distance(found, exact):
    return float(((found - exact).norm() / exact.norm()).detach())


def noise_on(device):
    streams = CounterStreams([5, 6, 7], device)
    streams.seek(STEPS.to(device))
    return streams


def assert_same_on_both_devices(function, inputs, *others, tolerance=1e-4):
    """Compare values and gradients in float32 on the GPU with those in float64 on the CPU."""
    found, slopes = [], None
    for device, dtype in ((CPU, torch.float64), (CUDA, torch.float32)):
        own = [part.detach().to(device, dtype).requires_grad_() for part in inputs]
        given = [part.to(device, dtype) if part.is_floating_point() else part for part in others]
        values = function(*own, *(part.to(device) for part in given))
        values = values if isinstance(values, tuple) else (values,)
        if slopes is None:
            slopes = [torch.randn_like(value) for value in values]
        gradients = torch.autograd.grad(values, own, [s.to(device, dtype) for s in slopes])
        found.append([part.detach().cpu().double() for part in (*values, *gradients)])
    for exact, other in zip(*found, strict=True):
        scale = float(exact.abs().max())
        torch.testing.assert_close(other, exact, rtol=tolerance, atol=tolerance * scale)


def labels_of(n_members, n_rows, n_labels):
    """Return labels with unknown ones; the first rows have none known, none, and all."""
    draw = torch.Generator().manual_seed(n_labels)
    known = torch.rand(n_members, n_rows, n_labels, generator=draw) < 0.8
    positive = known & (torch.rand(known.shape, generator=draw) < 0.3)
    positive[:, 0], known[:, 0] = False, False
    positive[:, 1], known[:, 1] = False, True
    positive[:, 2], known[:, 2] = True, True
    return positive, known


@pytest.mark.parametrize("width", [1, 37, 512, 1024])
@pytest.mark.parametrize("slope", [0.0, 0.01])
def test_hidden_layer_equals_its_operations(width, slope):
    draw = torch.Generator().manual_seed(width)
    x, dy = torch.randn(2, 3, 13, width, generator=draw)
    vectors = torch.randn(3, 3, width, generator=draw)  # bias, gain, shift
    plain = [part.double().requires_grad_() for part in (x, *vectors)]
    bias, gain, shift = (part[:, None] for part in plain[1:])
    normal = F.layer_norm(plain[0] + bias, (width,)) * gain + shift
    expected = noise_on("cpu").dropout("layer", F.leaky_relu(normal, slope), RATE)
    on_card = [part.to(CUDA).requires_grad_() for part in (x, *vectors)]
    found = cuda.hidden(*on_card, noise_on(CUDA).dropping("layer", RATE.to(CUDA)), slope)
    assert torch.equal(found.cpu() == 0, expected == 0) or slope == 0
    torch.testing.assert_close(found.cpu().double(), expected, rtol=2e-4, atol=1e-4)
    grads = torch.autograd.grad(found, on_card, dy.to(CUDA))
    for own, other in zip(grads, torch.autograd.grad(expected, plain, dy.double()), strict=True):
        torch.testing.assert_close(own.cpu().double(), other, rtol=2e-3, atol=2e-3)


def test_hidden_layer_takes_vectors_that_lie_apart():
    x, flat = torch.randn(3, 13, 37, device=CUDA), torch.randn(3, 200, device=CUDA)
    vectors = [flat[:, 40 * i : 40 * i + 37] for i in range(3)]
    outputs = [
        cuda.hidden(x, *parts, noise_on(CUDA).dropping("layer", RATE.to(CUDA)), 0.0)
        for parts in (vectors, [part.contiguous() for part in vectors])
    ]
    assert torch.equal(*outputs)


@pytest.mark.parametrize("width", [1, 37, 64, 1500])
@pytest.mark.parametrize("drops", [True, False])
def test_normalized_sum_equals_its_operations(width, drops):
    norm = PackedLayerNorm(3, width, dtype=torch.float64, device=CPU)
    for vector in norm.parameters():
        vector.data = torch.randn(vector.shape, dtype=torch.float64)
    x, message = torch.randn(2, 3, 300, width)
    own, found = list(norm.parameters()), []
    for device, dtype in ((CPU, torch.float64), (CUDA, torch.float32), (CUDA, torch.bfloat16)):
        norm.to(device, torch.float32 if device is CUDA else dtype)
        given = [part.to(device, dtype).requires_grad_() for part in (x, message)]
        streams = noise_on(device) if drops else None
        y = norm.residual(*given, streams, "message", RATE.to(device))
        assert y.dtype == dtype
        slopes = torch.linspace(-1, 1, y.numel()).view(y.shape).to(y)
        found.append([y, *torch.autograd.grad(y, [*given, *own], slopes)])
    if width == 1:  # all that is normalized is 0, and so are most gradients
        found = [each[:1] for each in found]
    for other, tolerance in ((found[1], 1e-5), (found[2], 1e-2)):
        for a, b in zip(other, found[0], strict=True):
            assert distance(a.cpu().double(), b) < tolerance


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("term", [objective.contrastive, objective.cross_entropy])
@pytest.mark.parametrize("all_known", [True, False])
def test_terms_of_labels(shape, term, all_known):
    positive, known = labels_of(*shape[:3])
    known = torch.ones((), dtype=torch.bool).expand_as(known) if all_known else known
    x, temperature = 3 * torch.randn(shape[:3]), torch.linspace(0.1, 1.0, shape[0])
    assert_same_on_both_devices(
        lambda x, temperature, *labels: term(x / temperature[:, None, None], *labels),
        [x],
        temperature,
        positive,
        known,
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_kl_to_mixture(shape):
    n_members, n_rows, n_labels, width = shape
    draw = torch.Generator().manual_seed(0)
    rows = 2 * torch.randn(3, n_members, n_rows, width, generator=draw)
    components = 2 * torch.randn(2, n_members, n_labels + 1, width, generator=draw)
    assert_same_on_both_devices(
        lambda z, mean, log_variance, means, log_variances, chosen: objective.kl_to_mixture(
            z, Gaussian(mean, log_variance), Gaussian(means, log_variances), chosen
        ),
        [*rows, *components],
        objective.chosen_components(*labels_of(n_members, n_rows, n_labels)),
        tolerance=1e-3,
    )


def test_terms_of_what_is_not_finite():
    positive, known = (part.to(CUDA) for part in labels_of(1, 5, 4))
    x = torch.zeros(1, 5, 4, device=CUDA)
    x[0, 3, 2] = torch.nan
    positive[0, 3], known[0, 3] = True, True
    posterior = Gaussian(x, torch.zeros_like(x))
    chosen = objective.chosen_components(positive, known)
    components = Gaussian(torch.zeros(1, 5, 4, device=CUDA), torch.zeros(1, 5, 4, device=CUDA))
    for loss in (
        objective.contrastive(x, positive, known),
        objective.cross_entropy(x, positive, known),
        objective.kl_to_mixture(x, posterior, components, chosen),
    ):
        assert loss.isnan().tolist() == [[False, False, False, True, False]]
    assert bool(Gaussian.from_output(x).log_variance.isnan().any())


def test_gaussians_and_draws():
    output = LOG_VARIANCE_RANGE[1] * torch.randn(3, 11, 26)
    assert_same_on_both_devices(lambda x: tuple(Gaussian.from_output(x)), [output])
    draw = torch.randn(2, 3, 11, 13)
    assert_same_on_both_devices(
        lambda mean, log_variance: Gaussian(mean, log_variance).sample(noise_on(mean.device)),
        list(draw),
    )


@pytest.mark.parametrize("n_labels", [1, 14, 16])
def test_inner_products_and_cosines(n_labels):
    torch.manual_seed(n_labels)
    x, labels = torch.randn(3, 9, 24), torch.randn(3, n_labels, 24)
    assert_same_on_both_devices(inner_products_and_cosines, [x, labels])
    x[0, 0], labels[1, 0] = 0.0, 0.0
    for device in (CPU, CUDA):
        own = [part.detach().to(device).requires_grad_() for part in (x, labels)]
        inner = inner_products(*own)
        expected = inner, objective.cosine_similarity(*own, inner)
        found = inner_products_and_cosines(*own)
        for a, b in zip(found, expected, strict=True):
            torch.testing.assert_close(a, b)
        slopes = torch.randn(2, *inner.shape, device=device)
        for a, b in zip(
            *(torch.autograd.grad(each, own, slopes.unbind()) for each in (found, expected)),
            strict=True,
        ):
            torch.testing.assert_close(a, b)


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("n_rows", [cuda._TALL, cuda._TALL + 1])
def test_affine_maps_of_very_many_rows(n_rows, biased):
    inputs = [torch.randn(3, n_rows, 5), torch.randn(3, 5, 7), *([torch.randn(3, 7)] * biased)]
    assert_same_on_both_devices(cuda.affine, inputs, tolerance=2e-3)  # TF32 may be enabled
    halves = [part.to(CUDA, torch.bfloat16).requires_grad_() for part in inputs]
    with torch.autocast("cuda", torch.bfloat16):
        y = cuda.affine(*(part.to(CUDA) for part in inputs))
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y, cuda.tall_affine(*halves, *([None] * (not biased))))


def test_dropout_is_the_same_on_both_devices():
    x = torch.randn(3, 11, 13)
    expected = noise_on("cpu").dropout("x", x, RATE)
    on_card = x.to(CUDA).requires_grad_()
    found = noise_on(CUDA).dropout("x", on_card, RATE.to(CUDA))
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-6, atol=0)
    (gradient,) = torch.autograd.grad(found.sum(), on_card)
    torch.testing.assert_close(gradient.cpu(), (expected / x), rtol=1e-4, atol=1e-6)


def test_a_network_is_the_same_on_both_devices():
    networks, outputs = [], []
    x = torch.randn(3, 20, 6)
    for device in ("cpu", "cuda"):
        network = PackedMLP(
            (6, 33, 17, 4),
            CounterStreams([1, 2, 3], device),
            "mlp",
            layer_norm=True,
            activation="relu",
        )
        networks.append(network)
        outputs.append(network(x.to(device), noise_on(device), RATE.to(device)).cpu())
    for a, b in zip(*(network.parameters() for network in networks), strict=True):
        torch.testing.assert_close(a, b.cpu())
    torch.testing.assert_close(*outputs, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("n", [1, 7, 4097])
def test_random_numbers_are_the_same_on_both_devices(n):
    here, there = noise_on("cpu"), noise_on(CUDA)
    # Keys of names are 32 bits, of which a kernel takes half as negative numbers.
    for name in ("a", "b", "c", "decoder.0", "decoder.1", "z"):
        for part in ("first", "second"):
            own, other = here.within(part), there.within(part)
            assert torch.equal(own.uniform(name, n), other.uniform(name, n).cpu())
        samples = [
            Gaussian(*torch.zeros(2, 3, n, 1, device=device)).sample(streams, name).cpu()
            for device, streams in ((CPU, here), (CUDA, there))
        ]
        torch.testing.assert_close(*samples, rtol=0, atol=2e-5)
    own, other = (streams.within("third").normal("z", n, 1) for streams in (here, there))
    torch.testing.assert_close(own, other.cpu(), rtol=0, atol=2e-5)


def test_gradient_norms():
    parts = [torch.randn(3, n, device=CUDA) for n in (1, 8192, 20_001)]
    expected = torch.cat(parts, dim=1).double().norm(dim=1)
    torch.testing.assert_close(gradient_norms(parts).double(), expected, rtol=1e-5, atol=0)
    parts[1][1, 17] = torch.nan
    assert torch.isfinite(gradient_norms(parts)).tolist() == [True, False, True]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.Adam])
@pytest.mark.parametrize("clip", [None, 20.0])
def test_update_equals_adam(dtype, kind, clip):
    torch.manual_seed(0)
    values = torch.randn(3, 3000, device=CUDA)
    rounded = torch.zeros_like(values, dtype=torch.bfloat16)
    before = values.clone()
    expected = [torch.nn.Parameter(own.clone()) for own in values[:2]]
    oracle = kind(expected, lr=0.1, weight_decay=0.2)
    mean, square = torch.zeros_like(values), torch.zeros_like(values)
    active = torch.tensor([True, True, False], device=CUDA)
    powers = torch.tensor([0.9, 0.999], dtype=torch.float64, device=CUDA).expand(3, 2)
    rates, decays = torch.full((2, 3), 0.1, device=CUDA)
    decays *= 2
    for step in range(1, 4):
        gradient = torch.randn(3, 3000, device=CUDA).to(dtype)
        norms = gradient.float().norm(dim=1)
        for parameter, own, norm in zip(expected, gradient.float(), norms, strict=False):
            parameter.grad = own if clip is None else own * (clip / norm).clamp(max=1)
        oracle.step()
        cuda.update(
            values,
            mean,
            square,
            gradient,
            (active, norms, (powers**step).contiguous(), rates, decays),
            rounded=rounded,
            clip=clip,
            betas=(0.9, 0.999),
            epsilon=1e-8,
            decayed=True,
            decoupled=kind is torch.optim.AdamW,
        )
    exact = torch.stack([parameter.detach() for parameter in expected])
    torch.testing.assert_close(values[:2], exact, rtol=1e-4, atol=1e-5)
    assert torch.equal(rounded[:2], values[:2].bfloat16())
    assert torch.equal(values[2], before[2])
    assert not mean[2].any()


@pytest.mark.parametrize("half", [True, False])
def test_training_precision(half):
    network = PackedMLP(
        (6, 64, 32, 4), CounterStreams([1, 2, 3], CUDA), "mlp", layer_norm=True, activation="relu"
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
