"""What must hold of every term of the objective, for any labels, similarities and Gaussians."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cgmvae.model import objective
from cgmvae.model.objective import chosen_components
from cgmvae.nn.gaussian import LOG_VARIANCE_RANGE, Gaussian

repeatable = settings(max_examples=25, deadline=None, derandomize=True)

LABEL_TERMS = ("contrastive", "triplet", "ranking", "cross_entropy")
SCORES = st.floats(-20, 20, width=32)
#: What may lie under an unknown label; with NaN left out, anything.
JUNK = st.floats(allow_nan=False, allow_infinity=True)


def _array(draw, shape, elements):
    return torch.from_numpy(draw(hnp.arrays(np.float64, shape, elements=elements)))


@st.composite
def labeled(draw):
    """Draw (scores, draws, positive, known), (n_members, n_rows, n_labels); any may be odd."""
    shape = draw(hnp.array_shapes(min_dims=3, max_dims=3, min_side=1, max_side=5))
    known = torch.from_numpy(draw(hnp.arrays(np.bool_, shape)))
    positive = torch.from_numpy(draw(hnp.arrays(np.bool_, shape))) & known
    order = draw(st.permutations(range(positive.numel())))
    draws = torch.tensor(order, dtype=torch.float64).reshape(shape) / positive.numel()
    return _array(draw, shape, SCORES), draws, positive, known


@st.composite
def latent(draw):
    """Draw (z, posterior, components, positive, known): rows with the Gaussians of their labels."""
    n_members, n_rows, n_labels, dim = (draw(st.integers(1, 4)) for _ in range(4))
    known = torch.from_numpy(draw(hnp.arrays(np.bool_, (n_members, n_rows, n_labels))))
    positive = torch.from_numpy(draw(hnp.arrays(np.bool_, tuple(known.shape)))) & known
    means, spreads = st.floats(-5, 5), st.floats(*LOG_VARIANCE_RANGE)

    def gaussian(n):
        shape = (n_members, n, dim)
        return Gaussian(_array(draw, shape, means), _array(draw, shape, spreads))

    z = _array(draw, (n_members, n_rows, dim), means)
    return z, gaussian(n_rows), gaussian(n_labels + 1), positive, known


def _label_term(name, scores, draws, positive, known):
    if name == "triplet":
        return objective.triplet(scores, positive, known, draws)
    return getattr(objective, name)(scores, positive, known)


def _kl(z, posterior, components, positive, known):
    return objective.kl_to_mixture(z, posterior, components, chosen_components(positive, known))


def _same(ours, expected):
    torch.testing.assert_close(ours, expected, rtol=1e-11, atol=1e-11)


@repeatable
@given(labeled(), st.randoms(use_true_random=False))
def test_terms_follow_rows_and_ignore_the_order_of_labels_and_other_members(case, random):
    _, n_rows, n_labels = case[0].shape
    rows, labels = random.sample(range(n_rows), n_rows), random.sample(range(n_labels), n_labels)
    padded = [torch.cat([part, part[:1].flip(1, 2)]) for part in case]
    for name in LABEL_TERMS:
        expected = _label_term(name, *case)
        _same(_label_term(name, *(part[:, rows] for part in case)), expected[:, rows])
        _same(_label_term(name, *(part[..., labels] for part in case)), expected)
        _same(_label_term(name, *padded)[:-1], expected)


@repeatable
@given(labeled(), st.data())
def test_what_lies_under_unknown_labels_changes_no_term_and_no_gradient(case, data):
    scores, draws, positive, known = case
    junk = _array(data.draw, tuple(scores.shape), JUNK)
    for name in LABEL_TERMS:
        results = []
        for made in (scores, torch.where(known, scores, junk)):
            leaf = made.clone().requires_grad_()
            value = _label_term(name, leaf, draws, positive, known)
            results.append((value.detach(), *torch.autograd.grad(value.sum(), leaf)))
        (value, gradient), (soiled, its) = results
        assert torch.isfinite(value).all()
        assert torch.equal(value, soiled)
        assert torch.equal(gradient, its)
        assert bool((gradient[~known] == 0).all())
        # Nor do the draws that pick a triplet's labels.
        drawn = torch.where(known, draws, 1 - draws)
        assert torch.equal(_label_term(name, scores, drawn, positive, known), value)


@repeatable
@given(labeled(), st.floats(-50, 50))
def test_a_constant_on_all_similarities_leaves_what_compares_them(case, constant):
    for name in ("contrastive", "triplet", "ranking"):
        shifted = _label_term(name, case[0] + constant, *case[1:])
        torch.testing.assert_close(shifted, _label_term(name, *case), rtol=1e-9, atol=1e-10)


@repeatable
@given(labeled())
def test_terms_are_losses(case):
    """No term is negative, and none falls when a known label's score moves to the wrong side."""
    scores, draws, positive, known = case
    for name in LABEL_TERMS:
        leaf = scores.clone().requires_grad_()
        value = _label_term(name, leaf, draws, positive, known)
        assert bool((value >= -1e-12).all())
        (gradient,) = torch.autograd.grad(value.sum(), leaf)
        negative = known & ~positive
        assert bool((gradient[negative] >= 0).all())
        if name != "contrastive":  # there, a positive that is ahead holds back the others
            assert bool((gradient[positive] <= 0).all())


@repeatable
@given(latent(), st.randoms(use_true_random=False))
def test_kl_follows_rows_and_ignores_the_order_of_labels(case, random):
    z, posterior, components, positive, known = case
    expected = _kl(*case)
    rows = random.sample(range(z.shape[1]), z.shape[1])
    turned = Gaussian(*(part[:, rows] for part in posterior))
    _same(_kl(z[:, rows], turned, components, positive[:, rows], known[:, rows]), expected[:, rows])
    labels = random.sample(range(positive.shape[2]), positive.shape[2])
    named = Gaussian(*(part[:, [*labels, -1]] for part in components))
    _same(_kl(z, posterior, named, positive[..., labels], known[..., labels]), expected)


@repeatable
@given(latent())
def test_kl_ignores_one_more_member_and_what_is_not_chosen(case):
    z, posterior, components, positive, known = case

    def padded(part):
        return torch.cat([part, part[:1] + 1])

    expected = _kl(*case)
    more = _kl(
        padded(z),
        Gaussian(*map(padded, posterior)),
        Gaussian(*map(padded, components)),
        *(torch.cat([part, part[:1]]) for part in (positive, known)),
    )
    _same(more[:-1], expected)
    # A component that no row of the member chooses may be anything.
    idle = ~chosen_components(positive, known).any(1)
    moved = Gaussian(
        torch.where(idle[..., None], 30.0, components.mean),
        torch.where(idle[..., None], -8.0, components.log_variance),
    )
    _same(_kl(z, posterior, moved, positive, known), expected)


@repeatable
@given(latent())
def test_kl_is_0_for_rows_that_may_have_labels(case):
    z, posterior, components, positive, known = case
    inputs = [part.clone().requires_grad_() for part in (z, *posterior, *components)]
    value = _kl(inputs[0], Gaussian(*inputs[1:3]), Gaussian(*inputs[3:]), positive, known)
    gradients = torch.autograd.grad(value.sum(), inputs)
    assert all(torch.isfinite(gradient).all() for gradient in gradients)
    maybe = ~positive.any(-1) & ~known.all(-1)
    assert bool((value[maybe] == 0).all())
    assert all(bool((gradient[maybe] == 0).all()) for gradient in gradients[:3])
