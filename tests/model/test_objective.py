"""The terms of the objective against plain loops, by gradcheck, and at the edges."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import distributions

from cgmvae.model import objective
from cgmvae.model.objective import chosen_components
from cgmvae.nn.gaussian import LOG_VARIANCE_RANGE, Gaussian

N_MEMBERS, N_ROWS, N_LABELS, DIM = 2, 6, 5, 4

#: Terms that are functions of (logits or similarities, positive, known).
LABEL_TERMS = {
    "contrastive": objective.contrastive,
    "ranking": objective.ranking,
    "cross_entropy": objective.cross_entropy,
    "triplet": lambda scores, positive, known: objective.triplet(
        scores, positive, known, _draws(scores.shape)
    ),
}
every_label_term = pytest.mark.parametrize("term", LABEL_TERMS)


def _draws(shape):
    return torch.from_numpy(np.random.default_rng(99).random(tuple(shape)))


def _tensor(rng, *shape, scale=1.0):
    return torch.from_numpy(rng.normal(size=shape) * scale)


def _gaussian(rng, n, dim=DIM):
    return Gaussian(
        _tensor(rng, N_MEMBERS, n, dim),
        torch.from_numpy(rng.uniform(-2, 2, (N_MEMBERS, n, dim))),
    )


@pytest.fixture
def masks(rng):
    """Positive and known cells: some rows random, one each all positive, empty and all unknown."""
    known = torch.from_numpy(rng.random((N_MEMBERS, N_ROWS, N_LABELS)) < 0.7)
    positive = torch.from_numpy(rng.random(known.shape) < 0.5) & known
    positive[:, 0], known[:, 0] = True, True
    positive[:, 1], known[:, 1] = False, True
    positive[:, 2], known[:, 2] = False, False
    positive[:, 3, 0], known[:, 3, 0] = True, True
    positive[:, 3, 1], known[:, 3, 1] = False, True
    positive[:, 4], known[:, 4, 0], known[:, 4, 1] = False, False, True
    return positive, known


@pytest.fixture
def scores(rng):
    return _tensor(rng, N_MEMBERS, N_ROWS, N_LABELS)


def _rows(scores, positive, known):
    """Yield for each (member, row): its index, scores, positives and known negatives."""
    for m, i in np.ndindex(*scores.shape[:2]):
        labels = range(scores.shape[2])
        yes = [k for k in labels if positive[m, i, k]]
        no = [k for k in labels if known[m, i, k] and not positive[m, i, k]]
        yield (m, i), scores[m, i].tolist(), yes, no


def _by_loop(one_row, scores, positive, known):
    out = np.zeros(tuple(scores.shape[:2]))
    for place, own, yes, no in _rows(scores, positive, known):
        out[place] = one_row(place, own, yes, no)
    return out


def _loop_contrastive(place, own, yes, no):
    if not yes:
        return 0.0
    total = math.fsum(math.exp(own[k]) for k in yes + no)
    return math.fsum(-math.log(math.exp(own[k]) / total) for k in yes) / len(yes)


def _loop_ranking(place, own, yes, no):
    if not yes or not no:
        return 0.0
    pairs = [math.exp(own[n] - own[p]) for p in yes for n in no]
    return math.fsum(pairs) / len(pairs)


def _loop_cross_entropy(place, own, yes, no):
    def sigmoid(logit):
        return 1 / (1 + math.exp(-logit))

    of_yes = [-math.log(sigmoid(own[k])) for k in yes]
    return math.fsum(of_yes + [-math.log(1 - sigmoid(own[k])) for k in no])


class TestOracle:
    def test_contrastive(self, scores, masks):
        expected = _by_loop(_loop_contrastive, scores, *masks)
        ours = objective.contrastive(scores, *masks)
        np.testing.assert_allclose(ours.numpy(), expected, rtol=1e-12, atol=1e-14)
        assert (expected > 0.1).any()

    def test_triplet(self, scores, masks):
        draws = _draws(scores.shape)

        def one_row(place, own, yes, no):
            if not yes or not no:
                return 0.0
            up = max(yes, key=lambda k: float(draws[*place, k]))
            down = max(no, key=lambda k: float(draws[*place, k]))
            # Squared distances of unit vectors with these cosines.
            near, far = 2 - 2 * own[up], 2 - 2 * own[down]
            return max(0.0, gap + near - far)

        for gap in (1.0, 0.3, 6.0):
            ours = objective.triplet(scores, *masks, draws, gap=gap).numpy()
            expected = _by_loop(one_row, scores, *masks)
            np.testing.assert_allclose(ours, expected, rtol=1e-12, atol=1e-14)
        assert (expected > 0).any()
        gap = 1.0
        ours = objective.triplet(scores, *masks, draws).numpy()
        np.testing.assert_allclose(ours, _by_loop(one_row, scores, *masks), atol=1e-14)

    def test_triplet_samples_labels_uniformly(self, rng):
        n = 30_000
        similarity = torch.arange(5.0).double().expand(1, n, 5)
        positive = torch.tensor([True, False, True, True, False]).expand(1, n, 5)
        draws = torch.from_numpy(rng.random((1, n, 5)))
        known = torch.ones_like(positive)
        # With a gap this wide the value tells which pair was picked: gap + 2 (negative − positive).
        steps = (objective.triplet(similarity, positive, known, draws, gap=100.0) - 100) / 2
        pairs, counts = torch.unique(steps, return_counts=True)
        expected = torch.tensor([n - p for n in (1, 4) for p in (0, 2, 3)]).sort().values
        times = np.unique(expected.numpy(), return_counts=True)
        assert pairs.tolist() == times[0].tolist()
        assert stats.chisquare(counts.numpy(), times[1] * n / 6).pvalue > 1e-3

    def test_ranking(self, scores, masks):
        expected = _by_loop(_loop_ranking, scores, *masks)
        ours = objective.ranking(scores, *masks)
        np.testing.assert_allclose(ours.numpy(), expected, rtol=1e-12, atol=1e-14)
        assert (expected > 0.1).any()

    def test_cross_entropy(self, scores, masks):
        expected = _by_loop(_loop_cross_entropy, scores * 3, *masks)
        ours = objective.cross_entropy(scores * 3, *masks)
        np.testing.assert_allclose(ours.numpy(), expected, rtol=1e-12, atol=1e-14)
        positive, known = masks
        torchs = torch.nn.functional.binary_cross_entropy_with_logits(
            scores * 3, positive.double(), weight=known.double(), reduction="none"
        )
        torch.testing.assert_close(ours, torchs.sum(-1))

    @pytest.mark.parametrize("term", ["contrastive", "cross_entropy"])
    def test_a_sampled_label_counts_as_often_as_it_stands_for_others(self, term, scores, masks):
        """Whole counts: the label is simply repeated. A label with a positive stands for itself."""
        positive, known = (mask[:, :, [0, 1, 2, 2, 3, 4]] for mask in masks)
        scores, positive = scores[:, :, [0, 1, 2, 2, 3, 4]], positive.clone()
        counts = torch.tensor([[1, 4, 1, 3, 7, 2], [2, 1, 5, 1, 1, 3]])
        positive &= counts[:, None] == 1
        found = LABEL_TERMS[term](scores, positive, known, counts.double())
        for m, times in enumerate(counts):
            repeated = (
                part[m : m + 1].repeat_interleave(times, dim=2)
                for part in (scores, positive, known)
            )
            torch.testing.assert_close(found[m : m + 1], LABEL_TERMS[term](*repeated))
        assert bool((found != LABEL_TERMS[term](scores, positive, known)).any())

    def test_cross_entropy_is_precise_for_nearly_certain_labels(self):
        for sign, positive in ((1, True), (-1, False)):
            logits = torch.tensor([[[18.0 * sign]]], requires_grad=True)
            mask = torch.tensor([[[positive]]])
            loss = objective.cross_entropy(logits, mask, torch.ones_like(mask))
            assert loss.item() == pytest.approx(math.log1p(math.exp(-18)), rel=1e-6)
            loss.sum().backward()
            assert logits.grad.item() == pytest.approx(-sign / (1 + math.exp(18)), rel=1e-6)

    def test_gaussian_reconstruction(self, rng):
        features, predicted = _tensor(rng, 2, 3, 7), _tensor(rng, 2, 3, 7)
        ours = objective.gaussian_reconstruction(features, predicted).numpy()
        logs = stats.norm(predicted.numpy(), 1).logpdf(features.numpy()).sum(-1)
        np.testing.assert_allclose(ours, -logs - 7 * 0.5 * math.log(2 * math.pi), rtol=1e-12)
        pairs = zip(features[1, 2].tolist(), predicted[1, 2].tolist(), strict=True)
        assert ours[1, 2] == pytest.approx(math.fsum(0.5 * (a - b) ** 2 for a, b in pairs))

    def test_bernoulli_reconstruction(self, rng):
        logits = _tensor(rng, 2, 3, 7, scale=3)
        binary = torch.from_numpy(rng.integers(0, 2, (2, 3, 7)).astype(float))
        ours = objective.bernoulli_reconstruction(binary, logits)
        logs = distributions.Bernoulli(logits=logits).log_prob(binary).sum(-1)
        torch.testing.assert_close(ours, -logs)
        shares = torch.from_numpy(rng.random((2, 3, 7)))
        ours = objective.bernoulli_reconstruction(shares, logits)
        for m, i in np.ndindex(2, 3):
            terms = []
            for x, logit in zip(shares[m, i].tolist(), logits[m, i].tolist(), strict=True):
                p = 1 / (1 + math.exp(-logit))
                terms.append(-x * math.log(p) - (1 - x) * math.log(1 - p))
            assert ours[m, i].item() == pytest.approx(math.fsum(terms), rel=1e-12)

    def test_kl_to_gaussian(self, rng):
        posterior, prior = _gaussian(rng, N_ROWS), _gaussian(rng, N_ROWS)
        ours = objective.kl_to_gaussian(posterior, prior)
        normals = [
            distributions.Normal(g.mean, g.log_variance.exp().sqrt()) for g in (posterior, prior)
        ]
        torch.testing.assert_close(ours, distributions.kl_divergence(*normals).sum(-1))
        for m, i in np.ndindex(N_MEMBERS, N_ROWS):
            terms = []
            for d in range(DIM):
                q_mean, q_log = (float(part[m, i, d]) for part in posterior)
                p_mean, p_log = (float(part[m, i, d]) for part in prior)
                spread = (math.exp(q_log) + (q_mean - p_mean) ** 2) / math.exp(p_log)
                terms.append(0.5 * (p_log - q_log + spread - 1))
            assert ours[m, i].item() == pytest.approx(math.fsum(terms), rel=1e-12)

    def test_kl_to_mixture(self, rng, masks):
        posterior, components = _gaussian(rng, N_ROWS), _gaussian(rng, N_LABELS + 1)
        z, chosen = _tensor(rng, N_MEMBERS, N_ROWS, DIM), chosen_components(*masks)
        ours = objective.kl_to_mixture(z, posterior, components, chosen).numpy()

        def density(m, i, gaussian, k):
            mean, log_variance = gaussian.mean[m, k].numpy(), gaussian.log_variance[m, k].numpy()
            return stats.norm(mean, np.exp(log_variance / 2)).pdf(z[m, i].numpy()).prod()

        for m, i in np.ndindex(N_MEMBERS, N_ROWS):
            prior = [density(m, i, components, k) for k in np.flatnonzero(chosen[m, i])]
            expected = 0.0
            if prior:
                own = density(m, i, posterior, i)
                expected = math.log(own) - math.log(math.fsum(prior) / len(prior))
            assert ours[m, i] == pytest.approx(expected, rel=1e-10, abs=1e-12)

    def test_cosine_similarity(self, rng):
        features, labels = _tensor(rng, 2, 3, 7), _tensor(rng, 2, 4, 7)
        ours = objective.cosine_similarity(features, labels)
        expected = torch.cosine_similarity(features[:, :, None], labels[:, None], dim=-1)
        torch.testing.assert_close(ours, expected)


class TestPrecision:
    def test_kl_to_mixture_of_float32_at_the_extremes(self, rng):
        low, high = LOG_VARIANCE_RANGE
        n, k, d = 24, 8, 64

        def made(rows):
            log_variance = rng.choice([low, high], (1, rows, d))
            log_variance[:, 0], log_variance[:, 1] = low, high
            mean = torch.from_numpy(rng.uniform(-30, 30, (1, rows, d))).float()
            return Gaussian(mean, torch.from_numpy(log_variance).float())

        posterior, components = made(n), made(k)
        # Some posteriors sit on a component: there the KL is a small difference of densities.
        for i in range(k):
            posterior.mean[:, i] = components.mean[:, i] + 0.01
            posterior.log_variance[:, i] = components.log_variance[:, i]
        epsilon = torch.from_numpy(rng.normal(size=(1, n, d))).float()
        z = posterior.mean + epsilon * (posterior.log_variance / 2).exp()
        chosen = torch.from_numpy(rng.random((1, n, k)) < 0.4)
        chosen[0, torch.arange(n), torch.arange(n) % k] = True

        def log_density(row, mean, log_variance):
            parts = zip(row.tolist(), mean.tolist(), log_variance.tolist(), strict=True)
            return -0.5 * math.fsum(
                (x - mu) ** 2 * math.exp(-s) + s + math.log(2 * math.pi) for x, mu, s in parts
            )

        ours = objective.kl_to_mixture(z, posterior, components, chosen)
        assert ours.dtype == torch.float32
        for i in range(n):
            own = log_density(z[0, i], posterior.mean[0, i], posterior.log_variance[0, i])
            logs = [
                log_density(z[0, i], components.mean[0, c], components.log_variance[0, c])
                for c in np.flatnonzero(chosen[0, i])
            ]
            prior = np.logaddexp.reduce(logs) - math.log(len(logs))
            # The row's own density is the sum of 64 squares in float32.
            assert ours[0, i].item() == pytest.approx(own - prior, rel=1e-5)


def _finite_gradient(term, *inputs):
    """Return a term and the gradients of its sum; nothing may be NaN, even in the backward pass."""
    inputs = [tensor.detach().clone().requires_grad_() for tensor in inputs]
    with torch.autograd.set_detect_anomaly(True):
        value = term(*inputs)
        assert torch.isfinite(value).all()
        gradients = torch.autograd.grad(value.sum(), inputs)
    assert all(torch.isfinite(gradient).all() for gradient in gradients)
    return value.detach(), gradients


class TestDegenerate:
    @every_label_term
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("n_labels", [1, 4])
    @pytest.mark.parametrize("labels", ["all", "none", "unknown", "none or unknown"])
    def test_rows_without_two_sides(self, term, dtype, n_labels, labels, rng):
        shape = (2, 3, n_labels)
        positive = torch.full(shape, labels == "all")
        known = torch.full(shape, labels in ("all", "none"))
        if labels == "none or unknown":
            known[..., 0] = True
        scores = _tensor(rng, *shape).to(dtype)
        value, (gradient,) = _finite_gradient(
            lambda s: LABEL_TERMS[term](s, positive, known), scores
        )
        zero = {
            "contrastive": labels != "all" or n_labels == 1,
            "cross_entropy": labels == "unknown",
            "ranking": True,
            "triplet": True,
        }[term]
        if zero:
            assert torch.equal(value, torch.zeros_like(value))
            assert torch.equal(gradient, torch.zeros_like(gradient))
        else:
            assert bool((value > 0).all())
            assert bool((gradient != 0).any())

    @every_label_term
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_extreme_logits(self, term, dtype, masks, rng):
        positive, known = masks
        right = torch.where(positive, 1e4, -1e4).to(dtype)
        signs = torch.from_numpy(rng.choice([-1.0, 1.0], positive.shape))
        logits = 1e4 * signs.to(dtype)
        logits[:, 3] = -right[:, 3]
        if term == "ranking":  # it takes probabilities
            value, _ = _finite_gradient(
                lambda s: objective.ranking(torch.sigmoid(s), positive, known), logits
            )
            assert value[:, 3].tolist() == pytest.approx([math.e] * N_MEMBERS, rel=1e-5)
            return
        value, (gradient,) = _finite_gradient(
            lambda s: LABEL_TERMS[term](s, positive, known), logits
        )
        assert bool((value[:, 3] >= 1e4).all())
        assert bool((gradient[:, 3] != 0).any())
        # With every label on its right side, the contrastive term still tells positives apart.
        good = LABEL_TERMS[term](right, positive, known)[:, 3]
        least = positive[:, 3].sum(-1).log() if term == "contrastive" else torch.zeros(N_MEMBERS)
        assert good.tolist() == pytest.approx(least.tolist(), abs=1e-3)

    @every_label_term
    @pytest.mark.parametrize("junk", [1e4, 1e30, -1e30, torch.inf, -torch.inf])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_values_of_unknown_labels_are_ignored(self, term, junk, dtype, scores, masks):
        known = masks[1]
        clean = _finite_gradient(lambda s: LABEL_TERMS[term](s, *masks), scores.to(dtype))
        soiled = scores.to(dtype).masked_fill(~known, junk)
        value, gradients = _finite_gradient(lambda s: LABEL_TERMS[term](s, *masks), soiled)
        assert torch.equal(value, clean[0])
        assert torch.equal(gradients[0], clean[1][0])
        assert bool((gradients[0][~known] == 0).all())

    def test_a_row_with_only_unknown_labels_has_no_prior(self, rng, masks):
        # Row 2 knows nothing, row 4 knows a negative: neither has positives, both have unknowns.
        posterior, components = _gaussian(rng, N_ROWS), _gaussian(rng, N_LABELS + 1)
        z, chosen = _tensor(rng, N_MEMBERS, N_ROWS, DIM), chosen_components(*masks)
        value, gradients = _finite_gradient(
            lambda z, m, s, c, t: objective.kl_to_mixture(
                z, Gaussian(m, s), Gaussian(c, t), chosen
            ),
            z,
            *posterior,
            *components,
        )
        assert torch.equal(value[:, [2, 4]], torch.zeros_like(value[:, [2, 4]]))
        for gradient in gradients[:3]:
            assert torch.equal(gradient[:, [2, 4]], torch.zeros_like(gradient[:, [2, 4]]))
            assert bool((gradient[:, [0, 1, 3]] != 0).all())

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("posterior_at", LOG_VARIANCE_RANGE)
    @pytest.mark.parametrize("prior_at", LOG_VARIANCE_RANGE)
    def test_extreme_variances(self, dtype, posterior_at, prior_at, rng):
        shape = (1, 3, 64)
        mean = torch.from_numpy(rng.uniform(-30, 30, shape)).to(dtype)
        prior_mean = torch.from_numpy(rng.uniform(-30, 30, shape)).to(dtype)
        spread = torch.full(shape, posterior_at, dtype=dtype)
        prior_spread = torch.full(shape, prior_at, dtype=dtype)
        epsilon = torch.from_numpy(rng.normal(size=shape)).to(dtype)
        chosen = torch.tensor([[1, 0, 0], [1, 1, 1], [0, 0, 0]]).bool()[None]

        def estimate(m, s, c, t):
            z = m + epsilon * torch.exp(0.5 * s)
            return objective.kl_to_mixture(z, Gaussian(m, s), Gaussian(c, t), chosen)

        def closed_form(m, s, c, t):
            return objective.kl_to_gaussian(Gaussian(m, s), Gaussian(c, t))

        for term in (estimate, closed_form):
            value, gradients = _finite_gradient(term, mean, spread, prior_mean, prior_spread)
            assert value.dtype == dtype
            assert bool((gradients[0] != 0).any())
            assert bool((gradients[2] != 0).any())

    def test_an_embedding_of_norm_0_has_a_finite_gradient(self, rng):
        features, labels = torch.zeros(1, 2, 4), _tensor(rng, 1, 3, 4).float()
        _finite_gradient(objective.cosine_similarity, features, labels)


class TestGradients:
    @every_label_term
    def test_terms_of_labels(self, term, scores, masks):
        scores.requires_grad_()
        assert torch.autograd.gradcheck(lambda s: LABEL_TERMS[term](s, *masks), [scores])

    def test_kl_to_mixture(self, rng, masks):
        posterior, components = _gaussian(rng, N_ROWS), _gaussian(rng, N_LABELS + 1)
        chosen = chosen_components(*masks)
        inputs = [_tensor(rng, N_MEMBERS, N_ROWS, DIM), *posterior, *components]
        assert torch.autograd.gradcheck(
            lambda z, m, s, c, t: objective.kl_to_mixture(
                z, Gaussian(m, s), Gaussian(c, t), chosen
            ),
            [tensor.requires_grad_() for tensor in inputs],
        )


class TestAppendix:
    """The derivations of appendix A, symbol by symbol."""

    TAU = 0.3
    POSITIVE = (0, 3, 4)

    @pytest.fixture
    def w(self, rng):
        return _tensor(rng, 6).requires_grad_()

    @pytest.fixture
    def v_labels(self, rng):
        labels = _tensor(rng, 7, 6)
        return labels / labels.norm(dim=-1, keepdim=True)

    def _loss(self, similarity):
        positive = torch.zeros(1, 1, len(similarity), dtype=torch.bool)
        positive[..., list(self.POSITIVE)] = True
        known = torch.ones_like(positive)
        return objective.contrastive(similarity[None, None] / self.TAU, positive, known).sum()

    def _share(self, v, v_labels, t):
        """Return exp(v·v_t/τ) / Σ_a exp(v·v_a/τ)."""
        exps = [math.exp(float(v @ label) / self.TAU) for label in v_labels]
        return exps[t] / math.fsum(exps)

    def _bracket(self, v, v_labels, project):
        """Return the bracket of both gradients; ``project`` maps v_t to its replacement."""
        total = torch.zeros_like(v)
        for t, label in enumerate(v_labels):
            share = self._share(v, v_labels, t)
            if t in self.POSITIVE:
                share -= 1 / len(self.POSITIVE)
            total = total + project(label) * share
        return total

    def test_gradient_with_respect_to_the_normalized_embedding(self, w, v_labels):
        v = (w / w.norm()).detach().requires_grad_()
        (ours,) = torch.autograd.grad(self._loss(v_labels @ v), v)
        derived = self._bracket(v.detach(), v_labels, lambda label: label) / self.TAU
        torch.testing.assert_close(ours, derived, rtol=1e-12, atol=1e-12)

    def test_gradient_with_respect_to_the_embedding(self, w, v_labels):
        similarity = objective.cosine_similarity(w[None, None], v_labels[None])[0, 0]
        (ours,) = torch.autograd.grad(self._loss(similarity), w)
        w = w.detach()
        v = w / w.norm()
        bracket = self._bracket(v, v_labels, lambda label: label - (v @ label) * v)
        torch.testing.assert_close(ours, bracket / (self.TAU * w.norm()), rtol=1e-12, atol=1e-12)

    def test_with_two_labels_the_term_is_a_soft_triplet(self, rng):
        """With τ = ½, Eq. 6 of unit vectors v, v₊ and v₋ is softplus(‖v − v₊‖² − ‖v − v₋‖²)."""
        vectors = _tensor(rng, 3, 50, 8)
        v, up, down = vectors / vectors.norm(dim=-1, keepdim=True)
        labels = torch.stack([up, down], dim=1)  # every triplet is a member with its own labels
        similarity = objective.cosine_similarity(v[:, None], labels)
        positive = torch.tensor([True, False]).expand(50, 1, 2)
        loss = objective.contrastive(similarity / 0.5, positive, torch.ones_like(positive))
        near, far = ((v - up) ** 2).sum(-1), ((v - down) ** 2).sum(-1)
        exact = torch.log1p(torch.exp(near - far))
        torch.testing.assert_close(loss[:, 0], exact, rtol=0, atol=1e-12)
