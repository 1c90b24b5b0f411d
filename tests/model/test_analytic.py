"""Terms that give their gradients along against the same terms operation by operation."""

import pytest
import torch

from cgmvae.model import analytic, objective
from cgmvae.model.objective import chosen_components
from cgmvae.nn.gaussian import LOG_VARIANCE_RANGE, Gaussian

N_MEMBERS, N_ROWS, WIDTH = 3, 8, 5
DOUBLE, SINGLE = torch.float64, torch.float32

#: Rows of :func:`_masks`, by what is special about them.
EMPTY, ALL, NOTHING_KNOWN, MAYBE, WEIGHTLESS = 0, 1, 4, 5, 7

every_labelling = pytest.mark.parametrize("n_labels", [4, 1])
every_bias = pytest.mark.parametrize("with_bias", [True, False])


def _draw(seed):
    generator = torch.Generator().manual_seed(seed)
    return lambda *shape: torch.randn(N_MEMBERS, *shape, generator=generator, dtype=DOUBLE)


def _masks(n_labels):
    """Rows of every kind: some, all and no positives, with some, all and no labels known."""
    draw = torch.Generator().manual_seed(5)
    positive = torch.rand(N_MEMBERS, N_ROWS, n_labels, generator=draw) < 0.5
    known = torch.rand(N_MEMBERS, N_ROWS, n_labels, generator=draw) < 0.7
    known[:, :4] = True
    positive[:, EMPTY], positive[:, ALL], positive[:, 2, 0] = False, True, True
    known[:, NOTHING_KNOWN] = False
    known[:, MAYBE, 0], positive[:, MAYBE] = False, False
    known[:, WEIGHTLESS], positive[:, WEIGHTLESS, 0] = True, True
    return positive & known, known


def _row_weights(seed):
    """How much rows count: one of them not at all, and one for a single member not."""
    weight = _draw(seed)(N_ROWS)
    weight[:, WEIGHTLESS], weight[1, 2] = 0.0, 0.0
    return weight


def _assert_close(found, expected, *, rtol=1e-10, atol=1e-10):
    assert found.keys() == expected.keys()
    for name, its in expected.items():
        torch.testing.assert_close(
            found[name].double(), its, rtol=rtol, atol=atol, msg=lambda text, name=name: name + text
        )


def _kl_inputs(n_labels):
    """Mean, log-variance and ε of the posteriors, means and log-variances of the components."""
    draw = _draw(6)
    return [draw(N_ROWS, WIDTH) for _ in range(3)] + [draw(n_labels + 1, WIDTH) for _ in range(2)]


def _kl(mean, log_variance, epsilon, centers, log_spreads, chosen, weight):
    """The term and the gradients of its weighted sum, those of the draw taken to what moves it."""
    drift = torch.exp(0.5 * log_variance) * epsilon
    components = Gaussian(centers, log_spreads)
    found = analytic.kl_to_mixture(mean + drift, epsilon, log_variance, components, chosen, weight)
    return _by_input(found, drift)


def _by_input(found, drift):
    """The term, and its gradients by what the posterior and the components consist of."""
    return {
        "kl": found.kl,
        "mean": found.d_z,
        "log_variance": torch.addcmul(found.d_log_variance, found.d_z, drift, value=0.5),
        "centers": found.d_components.mean,
        "log_spreads": found.d_components.log_variance,
    }


def _composed_kl(mean, log_variance, epsilon, centers, log_spreads, chosen, weight):
    """The same by autograd, through the draw too."""
    leaves = mean, log_variance, centers, log_spreads = [
        part.detach().clone().requires_grad_()
        for part in (mean, log_variance, centers, log_spreads)
    ]
    posterior, components = Gaussian(mean, log_variance), Gaussian(centers, log_spreads)
    z = mean + torch.exp(0.5 * log_variance) * epsilon
    term = objective.kl_to_mixture(z, posterior, components, chosen)
    gradients = torch.autograd.grad((weight * term).sum(), leaves)
    names = ("mean", "log_variance", "centers", "log_spreads")
    return {"kl": term.detach(), **dict(zip(names, gradients, strict=True))}


def _label_inputs(n_labels, with_bias):
    """Embeddings, label embeddings and biases."""
    draw = _draw(7)
    return [draw(N_ROWS, WIDTH), draw(n_labels, WIDTH), draw(n_labels) if with_bias else None]


def _temperature(dtype=DOUBLE):
    return torch.linspace(0.2, 0.9, N_MEMBERS, dtype=dtype)


def _label_terms(embedding, labels, bias, masks, weights):
    """The terms and the gradients of their weighted sum."""
    positive, known = masks
    place = torch.full_like(labels, torch.nan)
    found = analytic.contrastive_and_cross_entropy(
        embedding.clone(),
        labels,
        bias,
        _temperature(embedding.dtype),
        positive=positive,
        known=known,
        weights=weights,
        place=place,
    )
    gradients = {"embedding": found.d_embedding, "labels": place}
    if bias is not None:
        gradients["bias"] = found.d_bias
    return {
        "contrastive": found.contrastive,
        "cross_entropy": found.cross_entropy,
        **gradients,
    }


def _composed_label_terms(embedding, labels, bias, masks, weights):
    """The same by autograd."""
    given = {"embedding": embedding, "labels": labels, "bias": bias}
    leaves = {
        name: part.detach().clone().requires_grad_()
        for name, part in given.items()
        if part is not None
    }
    embedding, labels = leaves["embedding"], leaves["labels"]
    logits = embedding @ labels.transpose(1, 2)
    if bias is not None:
        logits = logits + leaves["bias"][:, None]
    similarity = objective.cosine_similarity(embedding, labels) / _temperature()[:, None, None]
    terms = {
        "contrastive": objective.contrastive(similarity, *masks),
        "cross_entropy": objective.cross_entropy(logits, *masks),
    }
    total = sum((w * term).sum() for w, term in zip(weights, terms.values(), strict=True))
    gradients = torch.autograd.grad(total, list(leaves.values()))
    values = {name: term.detach() for name, term in terms.items()}
    return values | dict(zip(leaves, gradients, strict=True))


def _two_weights():
    return _row_weights(8), _row_weights(9)


@every_labelling
def test_kl_and_its_gradients_are_those_of_the_operations(n_labels):
    inputs, chosen = _kl_inputs(n_labels), chosen_components(*_masks(n_labels))
    assert not bool(chosen.any(-1).all())
    assert bool(chosen[..., -1].any())
    given = (*inputs, chosen, _row_weights(8))
    _assert_close(_kl(*given), _composed_kl(*given))


@every_labelling
def test_rows_without_prior_have_no_kl_and_pull_at_nothing(n_labels):
    inputs, chosen = _kl_inputs(n_labels), chosen_components(*_masks(n_labels))
    found = _kl(*inputs, chosen, torch.ones(N_MEMBERS, N_ROWS, dtype=DOUBLE))
    without = [NOTHING_KNOWN, MAYBE]
    for name in ("kl", "mean", "log_variance"):
        assert bool((found[name][:, without] == 0).all()), name
        assert bool((found[name][:, ALL] != 0).all()), name
    alone = _kl(*inputs, torch.zeros_like(chosen), _row_weights(8))
    for name, part in alone.items():
        assert bool((part == 0).all()), name


def test_rows_that_do_not_count_have_a_kl_and_pull_at_nothing():
    chosen = chosen_components(*_masks(4))
    found = _kl(*_kl_inputs(4), chosen, torch.zeros(N_MEMBERS, N_ROWS, dtype=DOUBLE))
    assert bool((found.pop("kl")[:, WEIGHTLESS] != 0).all())
    for name, gradient in found.items():
        assert bool((gradient == 0).all()), name


@every_bias
@every_labelling
def test_label_terms_and_their_gradients_are_those_of_the_operations(n_labels, with_bias):
    given = (*_label_inputs(n_labels, with_bias), _masks(n_labels), _two_weights())
    found = _label_terms(*given)
    assert bool((found["contrastive"][:, [EMPTY, NOTHING_KNOWN, MAYBE]] == 0).all())
    assert bool((found["cross_entropy"][:, NOTHING_KNOWN] == 0).all())
    _assert_close(found, _composed_label_terms(*given))


@pytest.mark.parametrize("place", [0, 1], ids=["contrastive", "cross-entropy"])
def test_one_term_alone_may_count(place):
    weights = [_row_weights(8), _row_weights(9)]
    weights[1 - place] = torch.zeros_like(weights[0])
    given = (*_label_inputs(4, with_bias=True), _masks(4), weights)
    found = _label_terms(*given)
    assert bool((found["bias"] != 0).any()) == (place == 1)
    _assert_close(found, _composed_label_terms(*given))


def test_rows_of_no_known_label_pull_at_no_embedding():
    masks, ones = _masks(4), torch.ones(N_MEMBERS, N_ROWS, dtype=DOUBLE)
    gradient = _label_terms(*_label_inputs(4, True), masks, (ones, ones))["embedding"]
    assert bool((gradient[:, NOTHING_KNOWN] == 0).all())
    assert bool((gradient[:, EMPTY] != 0).all())


def test_embeddings_of_norm_0_have_finite_gradients():
    embedding, labels, bias = _label_inputs(4, with_bias=True)
    embedding[:, 2], labels[:, 3] = 0.0, 0.0
    embedding[:, ALL] *= 1e-15  # shorter than what norms are held to
    given = (embedding, labels, bias, _masks(4), _two_weights())
    found = _label_terms(*given)
    assert all(bool(torch.isfinite(part).all()) for part in found.values())
    _assert_close(found, _composed_label_terms(*given))


def test_single_precision_follows_double():
    masks = _masks(4)
    inputs = [part.float() for part in _kl_inputs(4)]
    chosen, weight = chosen_components(*masks), _row_weights(8).float()
    found = _kl(*inputs, chosen, weight)
    assert {part.dtype for part in found.values()} == {SINGLE}
    exact = _composed_kl(*(part.double() for part in inputs), chosen, weight.double())
    _assert_close(found, exact, rtol=1e-5, atol=1e-5)
    inputs = [part.float() for part in _label_inputs(4, with_bias=True)]
    weights = [each.float() for each in _two_weights()]
    found = _label_terms(*inputs, masks, weights)
    assert {part.dtype for part in found.values()} == {SINGLE}
    exact = _composed_label_terms(
        *(part.double() for part in inputs), masks, [each.double() for each in weights]
    )
    _assert_close(found, exact, rtol=1e-5, atol=1e-5)


def test_kl_keeps_its_digits_at_both_bounds_of_the_variances():
    """Float32 components far apart, as narrow and as wide as they come, and rows near them."""
    draw = torch.Generator().manual_seed(9)
    n_rows, n_components, width = 24, 12, 16
    bounds = torch.tensor([*LOG_VARIANCE_RANGE, 0.0])

    def at_bounds(n):
        picked = bounds[torch.randint(3, (1, n, width), generator=draw)]
        picked[:, :4], picked[:, 4:8] = bounds[0], bounds[1]
        return picked

    log_variance, log_spreads = at_bounds(n_rows), at_bounds(n_components)
    centers = 60 * torch.rand(1, n_components, width, generator=draw) - 30
    epsilon = torch.randn(1, n_rows, width, generator=draw)
    z = centers[:, torch.arange(n_rows) % n_components] + torch.exp(0.5 * log_variance) * epsilon
    chosen = torch.rand(1, n_rows, n_components, generator=draw) < 0.3
    chosen[:, torch.arange(12), torch.arange(12)] = True
    weight = torch.rand(1, n_rows, generator=draw)
    given = [part.double() for part in (log_variance, epsilon, centers, log_spreads)]
    # The mean that the very same z has in float64.
    mean = z.double() - torch.exp(0.5 * given[0]) * given[1]
    expected = _composed_kl(mean, *given, chosen, weight.double())
    assert expected["mean"].abs().max() > 1e4
    components = Gaussian(centers, log_spreads)
    found = analytic.kl_to_mixture(z, epsilon, log_variance, components, chosen, weight)
    ours = _by_input(found, torch.exp(0.5 * log_variance) * epsilon)
    assert {part.dtype for part in ours.values()} == {SINGLE}
    _assert_close(ours, expected, rtol=2e-6, atol=2e-5)


def test_cross_entropy_keeps_its_digits_where_a_label_is_all_but_certain():
    one = torch.ones(1, 1, 1)
    yes = torch.ones(1, 1, 1, dtype=torch.bool)
    found = analytic.contrastive_and_cross_entropy(
        18 * one,
        one,
        None,
        torch.ones(1),
        positive=yes,
        known=yes,
        weights=(torch.ones(1, 1), torch.ones(1, 1)),
        place=torch.empty(1, 1, 1),
    )
    exact = torch.tensor(18.0, dtype=DOUBLE)
    for ours, its in (
        (-found.d_embedding, torch.sigmoid(-exact)),
        (-found.d_bias, torch.sigmoid(-exact)),
        (found.cross_entropy, torch.log1p(torch.exp(-exact))),
    ):
        torch.testing.assert_close(ours.double().sum(), its, rtol=1e-5, atol=0)


def test_the_embedding_alone_is_used_up():
    """In float64, where what is computed in float64 might be the input itself."""
    positive, known = _masks(4)
    embedding, labels, bias = _label_inputs(4, with_bias=True)
    kept = [labels, bias, _temperature(), positive, known, *_two_weights()]
    before = [part.clone() for part in kept]
    place = torch.full_like(labels, torch.nan)
    found = analytic.contrastive_and_cross_entropy(
        embedding, *kept[:3], positive=positive, known=known, weights=tuple(kept[5:]), place=place
    )
    assert found.d_embedding.data_ptr() == embedding.data_ptr()
    assert all(map(torch.equal, kept, before))
    z, epsilon, log_variance, centers, log_spreads = given = _kl_inputs(4)
    given += [chosen_components(positive, known), _row_weights(8)]
    before = [part.clone() for part in given]
    analytic.kl_to_mixture(z, epsilon, log_variance, Gaussian(centers, log_spreads), *given[5:])
    assert all(map(torch.equal, given, before))
