"""Densities of Gaussians and mixtures against scipy, torch.distributions and plain loops."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import distributions

from cgmvae.nn.gaussian import (
    LOG_VARIANCE_RANGE,
    Gaussian,
    log_density,
    mixture_log_density,
    pairwise_log_density,
)
from cgmvae.nn.rng import GeneratorStreams

N_MEMBERS, N_ROWS, N_COMPONENTS, DIM = 2, 4, 3, 5


def _gaussian(rng, n, dim=DIM, n_members=N_MEMBERS):
    mean = torch.from_numpy(rng.normal(size=(n_members, n, dim)))
    return Gaussian(mean, torch.from_numpy(rng.uniform(-2, 2, mean.shape)))


def _extreme(rng, n_rows=40, n_components=30, dim=64):
    """Float32 components with log-variances at the bounds, and rows near and far from them."""
    bounds = np.array([*LOG_VARIANCE_RANGE, 0.0])
    mean = rng.uniform(-30, 30, (1, n_components, dim))
    # Whole components at either bound, and components with both bounds among their dimensions.
    log_variance = rng.choice(bounds, (1, n_components, dim))
    log_variance[:, :5], log_variance[:, 5:10] = bounds[0], bounds[1]
    owner = np.arange(n_rows) % n_components
    z = mean[:, owner] + rng.normal(size=(1, n_rows, dim)) * np.exp(log_variance[:, owner] / 2)
    z[:, n_rows // 2 :] = rng.uniform(-30, 30, z[:, n_rows // 2 :].shape)
    made = [torch.from_numpy(a).float() for a in (z, mean, log_variance)]
    return made[0], Gaussian(made[1], made[2])


def _loop_log_density(z, mean, log_variance):
    """One row under one Gaussian, with exactly rounded sums."""
    terms = []
    for value, mu, s in zip(z, mean, log_variance, strict=True):
        terms += [(value - mu) ** 2 * math.exp(-s), s, math.log(2 * math.pi)]
    return -0.5 * math.fsum(terms)


def _loop_pairwise(z, components):
    out = np.empty((*z.shape[:2], components.mean.shape[1]))
    rows, means, spreads = z.tolist(), components.mean.tolist(), components.log_variance.tolist()
    for m, i, c in np.ndindex(out.shape):
        out[m, i, c] = _loop_log_density(rows[m][i], means[m][c], spreads[m][c])
    return out


def _loop_mixture(pairwise, chosen):
    out = np.zeros(chosen.shape[:2])
    for m, i in np.ndindex(out.shape):
        logs = [pairwise[m, i, c] for c in range(chosen.shape[2]) if chosen[m, i, c]]
        if logs:
            top = max(logs)
            total = math.fsum(math.exp(value - top) for value in logs)
            out[m, i] = top + math.log(total) - math.log(len(logs))
    return out


@pytest.fixture
def z(rng):
    return torch.from_numpy(rng.normal(size=(N_MEMBERS, N_ROWS, DIM)))


@pytest.fixture
def components(rng):
    return _gaussian(rng, N_COMPONENTS)


class TestOracle:
    def test_log_density(self, rng, z):
        gaussian = _gaussian(rng, N_ROWS)
        ours = log_density(z, gaussian).numpy()
        for m, i in np.ndindex(N_MEMBERS, N_ROWS):
            mean, log_variance = gaussian.mean[m, i].numpy(), gaussian.log_variance[m, i].numpy()
            loop = _loop_log_density(z[m, i].tolist(), mean.tolist(), log_variance.tolist())
            scipys = stats.multivariate_normal(mean, np.diag(np.exp(log_variance))).logpdf(z[m, i])
            assert ours[m, i] == pytest.approx(loop, rel=1e-12)
            assert ours[m, i] == pytest.approx(scipys, rel=1e-10)

    def test_pairwise_log_density(self, z, components):
        ours = pairwise_log_density(z, components)
        assert ours.shape == (N_MEMBERS, N_ROWS, N_COMPONENTS)
        np.testing.assert_allclose(ours.numpy(), _loop_pairwise(z, components), rtol=1e-12)

    def test_mixture_log_density(self, z, components):
        chosen = torch.tensor([[0, 0, 0], [1, 0, 0], [0, 1, 1], [1, 1, 1]]).bool()
        chosen = torch.stack([chosen, chosen.flip(0)])
        ours = mixture_log_density(z, components, chosen)
        loop = _loop_mixture(_loop_pairwise(z, components), chosen.numpy())
        np.testing.assert_allclose(ours.numpy(), loop, rtol=1e-12, atol=0)
        normal = distributions.Normal(components.mean[0], components.log_variance[0].exp().sqrt())
        mixture = distributions.MixtureSameFamily(
            distributions.Categorical(torch.ones(N_COMPONENTS, dtype=torch.float64)),
            distributions.Independent(normal, 1),
        )
        torch.testing.assert_close(ours[0, 3], mixture.log_prob(z[0, 3]), rtol=1e-11, atol=1e-11)


class TestPrecision:
    """Float32 inputs at both ends of the variances, where cancellation is worst."""

    def test_pairwise_density(self, rng):
        z, components = _extreme(rng)
        ours = pairwise_log_density(z, components)
        assert ours.dtype == torch.float64
        np.testing.assert_allclose(ours.numpy(), _loop_pairwise(z, components), rtol=1e-8)

    def test_mixture_density(self, rng):
        z, components = _extreme(rng)
        chosen = torch.from_numpy(rng.random((1, 40, 30)) < 0.3)
        chosen[0, torch.arange(20), torch.arange(20)] = True  # rows by the component they are near
        ours = mixture_log_density(z, components, chosen)
        assert ours.dtype == torch.float64
        loop = _loop_mixture(_loop_pairwise(z, components), chosen.numpy())
        assert np.abs(loop).min() < 300  # some are small differences of numbers of size 1e8
        np.testing.assert_allclose(ours.numpy(), loop, rtol=1e-6)

    def test_gradients_are_finite(self, rng):
        z, components = _extreme(rng)
        inputs = [z, *components]
        for tensor in inputs:
            tensor.requires_grad_()
        chosen = torch.from_numpy(rng.random((1, 40, 30)) < 0.3)
        mixture_log_density(z, Gaussian(*inputs[1:]), chosen).sum().backward()
        assert all(torch.isfinite(tensor.grad).all() for tensor in inputs)


class TestDegenerate:
    def test_a_row_without_components_has_no_density_and_no_gradient(self, z, components):
        inputs = [tensor.requires_grad_() for tensor in (z, *components)]
        chosen = torch.zeros(N_MEMBERS, N_ROWS, N_COMPONENTS, dtype=torch.bool)
        chosen[:, 0, 1] = True
        with torch.autograd.set_detect_anomaly(True):  # no NaN on the way back either
            out = mixture_log_density(z, components, chosen)
            out.sum().backward()
        assert torch.equal(out[:, 1:], torch.zeros_like(out[:, 1:]))
        assert bool((out[:, 0] != 0).all())
        assert torch.equal(z.grad[:, 1:], torch.zeros_like(z.grad[:, 1:]))
        assert bool((z.grad[:, 0] != 0).all())
        for tensor in inputs[1:]:
            assert torch.equal(tensor.grad[:, [0, 2]], torch.zeros_like(tensor.grad[:, [0, 2]]))
            assert bool((tensor.grad[:, 1] != 0).all())


class TestGradients:
    def test_mixture(self, z, components):
        inputs = [tensor.requires_grad_() for tensor in (z, *components)]
        chosen = torch.tensor([[0, 0, 0], [1, 0, 0], [0, 1, 1], [1, 1, 1]]).bool()
        chosen = chosen.expand(N_MEMBERS, -1, -1)
        assert torch.autograd.gradcheck(
            lambda z, m, s: mixture_log_density(z, Gaussian(m, s), chosen), inputs
        )


class TestGaussian:
    def test_output_is_means_and_clamped_log_variances(self):
        output = torch.tensor([[[1.0, -50.0, 9.0, -9.0], [2.0, 3.0, 0.5, -8.0]]])
        gaussian = Gaussian.from_output(output)
        assert gaussian.mean.tolist() == [[[1.0, -50.0], [2.0, 3.0]]]
        assert gaussian.log_variance.tolist() == [[[8.0, -8.0], [0.5, -8.0]]]

    def test_only_log_variances_within_their_bounds_learn(self):
        low, high = LOG_VARIANCE_RANGE
        output = torch.tensor([[[0.0] * 5, [low - 1, low + 1e-3, 0.0, high - 1e-3, high + 1]]])
        output = output.flatten(1)[:, None].requires_grad_()
        mean, log_variance = Gaussian.from_output(output)
        (gradient,) = torch.autograd.grad((2 * mean + 3 * log_variance).sum(), output)
        assert gradient.flatten().tolist() == [2.0] * 5 + [0.0, 3.0, 3.0, 3.0, 0.0]

    def test_without_streams_a_sample_is_the_mean(self, components):
        assert components.sample(None) is components.mean

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_a_sample_is_scaled_noise(self, components, dtype):
        gaussian = Gaussian(*(part.to(dtype) for part in components))
        epsilon = GeneratorStreams([1, 2]).normal("own", N_COMPONENTS, DIM, dtype=dtype)
        expected = gaussian.mean + epsilon * gaussian.log_variance.exp().sqrt()
        sample = gaussian.sample(GeneratorStreams([1, 2]), "own")
        assert sample.dtype == dtype
        torch.testing.assert_close(sample, expected)
