"""Terms with gradients of their own against the same terms operation by operation."""

import pytest
import torch

from cgmvae.model import analytic, objective
from cgmvae.model.network import chosen_components
from cgmvae.nn.gaussian import Gaussian

N_MEMBERS, N_ROWS, WIDTH = 2, 7, 5
DOUBLE = torch.float64

every_labelling = pytest.mark.parametrize("n_labels", [4, 1])
every_bias = pytest.mark.parametrize("with_bias", [True, False])


def _leaf(draw, *shape, scale=1.0, dtype=DOUBLE):
    values = torch.randn(N_MEMBERS, *shape, generator=draw, dtype=DOUBLE) * scale
    return values.to(dtype).requires_grad_()


def _masks(n_labels):
    """Rows of every kind: some, all and no positives, with some, all and no labels known."""
    draw = torch.Generator().manual_seed(5)
    positive = torch.rand(N_MEMBERS, N_ROWS, n_labels, generator=draw) < 0.5
    known = torch.rand(N_MEMBERS, N_ROWS, n_labels, generator=draw) < 0.7
    known[:, :4] = True
    positive[:, 0], positive[:, 1], positive[:, 2, 0] = False, True, True
    known[:, 4] = False
    known[:, 5, 0], positive[:, 5] = False, False
    return positive & known, known


def _kl_inputs(n_labels, dtype=DOUBLE):
    draw = torch.Generator().manual_seed(6)
    rows = [_leaf(draw, N_ROWS, WIDTH, dtype=dtype) for _ in range(3)]
    components = [_leaf(draw, n_labels + 1, WIDTH, dtype=dtype) for _ in range(2)]
    return [*rows, *components]


def _kl(form, z, mean, log_variance, centers, log_spreads, chosen):
    posterior, components = Gaussian(mean, log_variance), Gaussian(centers, log_spreads)
    return form.kl_to_mixture(z, posterior, components, chosen)


def _label_inputs(n_labels, with_bias, dtype=DOUBLE):
    draw = torch.Generator().manual_seed(7)
    bias = [_leaf(draw, n_labels, dtype=dtype)] if with_bias else []
    return [
        _leaf(draw, N_ROWS, WIDTH, dtype=dtype),
        _leaf(draw, n_labels, WIDTH, dtype=dtype),
        *bias,
    ]


def _temperature(dtype=DOUBLE):
    return torch.linspace(0.2, 0.9, N_MEMBERS, dtype=dtype)


def _label_terms(positive, known, embedding, labels, bias=None):
    return analytic.contrastive_and_cross_entropy(
        embedding, labels, bias, _temperature(embedding.dtype), positive=positive, known=known
    )


def _composed_label_terms(positive, known, embedding, labels, bias=None):
    inner = embedding @ labels.transpose(1, 2)
    cosines = objective.cosine_similarity(embedding, labels)
    similarity = cosines / _temperature(embedding.dtype)[:, None, None]
    logits = inner if bias is None else inner + bias[:, None]
    return (
        objective.contrastive(similarity, positive, known),
        objective.cross_entropy(logits, positive, known),
    )


def _assert_equal(found, expected, inputs, tolerance=1e-10):
    """Compare results, and the gradients of a weighted sum of them."""
    draw = torch.Generator().manual_seed(8)
    weights = [torch.randn(part.shape, generator=draw, dtype=DOUBLE) for part in found]
    for ours, its in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, its, rtol=tolerance, atol=tolerance)
    gradients = [
        torch.autograd.grad(sum((p * w).sum() for p, w in zip(parts, weights, strict=True)), inputs)
        for parts in (found, expected)
    ]
    for ours, its in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, its, rtol=tolerance, atol=tolerance)


@every_labelling
def test_kl_and_its_gradients_are_those_of_the_operations(n_labels):
    inputs, chosen = _kl_inputs(n_labels), chosen_components(*_masks(n_labels))
    assert not bool(chosen.any(-1).all())
    assert bool(chosen[..., -1].any())
    found, expected = ([_kl(form, *inputs, chosen)] for form in (analytic, objective))
    assert bool((found[0][:, 5] == 0).all())
    _assert_equal(found, expected, inputs)


@every_labelling
def test_gradcheck_of_the_kl(n_labels):
    chosen = chosen_components(*_masks(n_labels))
    assert torch.autograd.gradcheck(lambda *x: _kl(analytic, *x, chosen), _kl_inputs(n_labels))


@every_bias
@every_labelling
def test_label_terms_and_their_gradients_are_those_of_the_operations(n_labels, with_bias):
    masks, inputs = _masks(n_labels), _label_inputs(n_labels, with_bias)
    found, expected = (form(*masks, *inputs) for form in (_label_terms, _composed_label_terms))
    assert bool((found[0][:, [0, 4, 5]] == 0).all())
    assert bool((found[1][:, 4] == 0).all())
    _assert_equal(found, expected, inputs)


@every_bias
@every_labelling
def test_gradcheck_of_the_label_terms(n_labels, with_bias):
    masks = _masks(n_labels)
    inputs = _label_inputs(n_labels, with_bias)
    assert torch.autograd.gradcheck(lambda *x: _label_terms(*masks, *x), inputs)


def test_one_term_alone_can_be_differentiated():
    masks, inputs = _masks(4), _label_inputs(4, with_bias=True)
    for i in range(2):
        found, expected = (
            form(*masks, *inputs)[i] for form in (_label_terms, _composed_label_terms)
        )
        if i == 0:
            inputs = inputs[:2]
        _assert_equal([found], [expected], inputs)


def test_embeddings_of_norm_0_have_finite_gradients():
    masks, inputs = _masks(4), _label_inputs(4, with_bias=True)
    with torch.no_grad():
        inputs[0][:, 2], inputs[1][:, 3] = 0.0, 0.0
    _assert_equal(_label_terms(*masks, *inputs), _composed_label_terms(*masks, *inputs), inputs)


def test_single_precision_follows_double():
    single, masks = torch.float32, _masks(4)
    chosen = chosen_components(*masks)
    exact = _kl(analytic, *_kl_inputs(4), chosen)
    found = _kl(analytic, *_kl_inputs(4, single), chosen)
    assert found.dtype == single
    torch.testing.assert_close(found.double(), exact, rtol=1e-4, atol=1e-4)
    exact_terms = _label_terms(*masks, *_label_inputs(4, True))
    for part, its in zip(
        _label_terms(*masks, *_label_inputs(4, True, single)), exact_terms, strict=True
    ):
        assert part.dtype == single
        torch.testing.assert_close(part.double(), its, rtol=1e-5, atol=1e-5)


def test_cross_entropy_keeps_its_digits_where_a_label_is_all_but_certain():
    one = torch.ones(1, 1, 1)
    logits = (18 * one).requires_grad_()
    yes = torch.ones(1, 1, 1, dtype=torch.bool)
    terms = analytic.contrastive_and_cross_entropy(
        logits, one, None, torch.ones(1), positive=yes, known=yes
    )
    (gradient,) = torch.autograd.grad(terms[1].sum(), logits)
    exact = torch.sigmoid(torch.tensor(-18.0, dtype=DOUBLE))
    torch.testing.assert_close(-gradient.double().sum(), exact, rtol=1e-5, atol=0)
