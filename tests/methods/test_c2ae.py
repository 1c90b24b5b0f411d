"""C2AE against plain loops and against canonical correlation analysis."""

import numpy as np
import pytest
import torch
from scipy.linalg import subspace_angles
from scipy.special import expit

from cgmvae.methods.c2ae import C2AE, C2AEConfig, C2AENetwork, excess_covariance
from cgmvae.methods.neural import begin_fit, member_blocks
from cgmvae.nn.batch import Batch
from cgmvae.nn.rng import GeneratorStreams

N_LABELS, N_FEATURES, LATENT_DIM = 5, 4, 3
TERMS = ("distance", "constraint", "ranking", "calibration")


def make_network(n_members=2, n_labels=N_LABELS, layers=1, latent_dim=LATENT_DIM, seed=0):
    config = C2AEConfig(latent_dim, 7, layers, layers, layers)
    return C2AENetwork(
        config,
        N_FEATURES,
        np.zeros((n_members, n_labels)),
        GeneratorStreams(range(seed, seed + n_members)),
        dropout=[0.0] * n_members,
        input_dropout=[0.0] * n_members,
        dtype=torch.float64,
    )


def make_batch(rng, n_members=2, n_rows=9, n_labels=N_LABELS):
    """Return rows of which the first three have no known, no positive and no negative label."""
    shape = (n_members, n_rows, n_labels)
    positive, known = rng.random(shape) < 0.4, rng.random(shape) < 0.8
    known[:, 0] = False
    positive[:, 1], positive[:, 2] = False, True
    return Batch(
        torch.from_numpy(rng.normal(size=(n_members, n_rows, N_FEATURES))),
        torch.from_numpy(positive & known),
        torch.from_numpy(known),
        torch.from_numpy(rng.choice([0.0, 0.5, 1.0, 2.0], (n_members, n_rows))),
    )


def tiny(**changes):
    plan = {"n_members": 2, "epochs": 4, "batch_size": 32, "learning_rate": 1e-2}
    return C2AE(**(plan | {"hidden_dim": 16, "device": "cpu", "random_state": 0} | changes))


def layers_in_numpy(mlp, member, x):
    *hidden, last = mlp.layers
    for layer in hidden:
        x = x @ layer.weight[member].detach().numpy() + layer.bias[member].detach().numpy()
        x = np.where(x > 0, x, 0.01 * x)
    return x @ last.weight[member].detach().numpy() + last.bias[member].detach().numpy()


class TestTerms:
    def test_terms_equal_plain_loops(self, rng):
        network, batch = make_network(), make_batch(rng)
        terms = network.terms(batch, None)
        assert tuple(terms) == TERMS
        for member in range(2):
            features, positive, known, weight = (part[member].numpy() for part in batch)
            signs = np.where(known, np.where(positive, 1.0, -1.0), 0.0)
            feature_codes = layers_in_numpy(network.feature_encoder, member, features)
            label_codes = layers_in_numpy(network.label_encoder, member, signs)
            decoded = expit(layers_in_numpy(network.decoder, member, label_codes))
            weight = weight * known.any(1)
            expected = {
                "distance": plain_distance(feature_codes, label_codes, known),
                "constraint": plain_excess(feature_codes, weight)
                + plain_excess(label_codes, weight),
                "ranking": plain_ranking(decoded, positive, known),
                "calibration": plain_cross_entropy(decoded, positive, known),
            }
            for name, values in expected.items():
                found = terms[name][member].detach().numpy()
                assert found.shape == (9,)
                np.testing.assert_allclose(found, values, rtol=1e-9, err_msg=name)
            assert terms["ranking"][member, :3].tolist() == [0, 0, 0]
            assert (terms["ranking"][member, 3:] > 0).any()

    def test_predictions_decode_the_features(self, rng):
        network, batch = make_network(), make_batch(rng)
        codes = layers_in_numpy(network.feature_encoder, 1, batch.features[1].numpy())
        expected = expit(layers_in_numpy(network.decoder, 1, codes))
        found = network(batch.features)[1].detach().numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-9)

    def test_rows_count_by_their_weight(self, rng):
        """Rows of weight 0 or without known labels are ignored; weight 2 equals a repeated row."""
        network, batch = make_network(), make_batch(rng)
        weight = torch.tensor([1.0, 1.0, 2.0, 1.0, 0.0, 1.0, 0.0, 1.0, 1.0]).double()
        batch = batch._replace(weight=weight.expand(2, -1))
        rows = [1, 2, 2, 3, 5, 7, 8]
        repeated = Batch(*(part[:, rows] for part in batch[:3]), torch.ones(2, 7).double())
        features = batch.features.clone()
        features[:, [0, 4, 6]] = 1e3
        for name, term in network.terms(batch._replace(features=features), None).items():
            expected = network.terms(repeated, None)[name]
            torch.testing.assert_close(term[:, rows], expected, rtol=1e-9, atol=0, msg=name)

    @pytest.mark.parametrize("n_rows", [1, 2, 40])
    @pytest.mark.parametrize("scale", [0.0, 1.0, 1e6])
    def test_terms_and_gradients_stay_finite(self, rng, n_rows, scale):
        """In batches smaller than a code, without weight, with any features."""
        network = make_network().float()
        batch = make_batch(rng, n_rows=max(n_rows, 3))
        batch = Batch(*(part[:, -n_rows:] for part in batch))
        batch = batch._replace(features=batch.features.float() * scale, weight=batch.weight.float())
        batch.weight[0] = 0
        terms = network.terms(batch, GeneratorStreams([0, 1]))
        torch.stack([term.sum() for term in terms.values()]).sum().backward()
        for term in terms.values():
            assert torch.isfinite(term).all()
        assert all(torch.isfinite(p.grad).all() for p in network.parameters())

    def test_the_output_loss_trains_only_the_label_autoencoder(self, rng):
        network, batch = make_network(), make_batch(rng)
        terms = network.terms(batch, None)
        parts = (network.feature_encoder, network.label_encoder, network.decoder)
        reached = {
            "distance": (True, True, False),
            "constraint": (True, True, False),
            "ranking": (False, True, True),
            "calibration": (False, True, True),
        }
        for name, expected in reached.items():
            for part, is_reached in zip(parts, expected, strict=True):
                gradients = torch.autograd.grad(
                    terms[name].sum(), list(part.parameters()), retain_graph=True, allow_unused=True
                )
                # A code's mean is free: the covariance does not see the last bias.
                seen = gradients[:-1] if name == "constraint" else gradients
                for gradient in seen:
                    assert (gradient is not None and bool(gradient.any())) == is_reached


def plain_distance(feature_codes, label_codes, known):
    squares = [sum((a - b) ** 2) for a, b in zip(feature_codes, label_codes, strict=True)]
    return [square if any(row) else 0 for square, row in zip(squares, known, strict=True)]


def plain_excess(codes, weight):
    covariance = np.cov(codes.T, ddof=0, aweights=weight)
    return ((covariance - np.eye(len(covariance))) ** 2).sum()


def plain_ranking(scores, positive, known):
    losses = []
    for f, y, seen in zip(scores, positive, known, strict=True):
        above = [p for p in range(len(f)) if seen[p] and y[p]]
        below = [q for q in range(len(f)) if seen[q] and not y[q]]
        total = sum(np.exp(-(f[p] - f[q])) for p in above for q in below)
        losses.append(total / (len(above) * len(below)) if above and below else 0)
    return losses


def plain_cross_entropy(scores, positive, known):
    losses = []
    for f, y, seen in zip(scores, positive, known, strict=True):
        each = [-np.log(f[i] if y[i] else 1 - f[i]) for i in range(len(f)) if seen[i]]
        losses.append(sum(each))
    return losses


def correlated_views(rng, n_rows=400):
    """Return features and 6 labels, 4 of which depend on them more or less strongly."""
    features = rng.normal(size=(n_rows, N_FEATURES)) @ rng.normal(size=(N_FEATURES, N_FEATURES))
    signal = np.linalg.qr(rng.normal(size=(N_FEATURES, N_FEATURES)))[0]
    noise = rng.normal(size=(n_rows, N_FEATURES)) * [0.1, 0.5, 1.0, 3.0]
    whitened = features @ np.linalg.inv(np.linalg.cholesky(np.cov(features.T)).T)
    follow = whitened @ signal + noise > 0.2
    return features, np.hstack([follow, rng.random((n_rows, 2)) < 0.3])


def minimize(network, batch, constraint_weight):
    """Find the minimum of distance + λ · constraint, all rows at once, in float64."""
    parameters = [
        *network.feature_encoder.parameters(),
        *network.label_encoder.parameters(),
    ]
    optimizer = torch.optim.LBFGS(
        parameters,
        max_iter=2000,
        tolerance_grad=1e-10,
        tolerance_change=1e-14,
        line_search_fn="strong_wolfe",
    )

    def loss():
        optimizer.zero_grad()
        terms = network.terms(batch, None)
        total = (terms["distance"] + constraint_weight * terms["constraint"]).mean()
        total.backward()
        return total

    optimizer.step(loss)


def whiten(view):
    centered = view - view.mean(0)
    u, _, _ = np.linalg.svd(centered, full_matrices=False)
    return u


def codes_after_training(model, X, Y):
    """Train without validation rows, to the last epoch; return both codes and the labels."""
    train, held, seed = begin_fit(model, X, Y, hold_out=True)
    model._fit_rows(train, held.take(np.arange(0)), seed)
    positive = torch.from_numpy(train.labels).bool().expand(model.n_members, -1, -1)
    with torch.no_grad():
        (features,) = member_blocks(model.network_, train.features)
        feature_codes = model.network_.encode_features(features)
        label_codes = model.network_.encode_labels(positive, torch.ones_like(positive))
    return feature_codes, label_codes, positive


class TestCanonicalCorrelation:
    @pytest.mark.parametrize("constraint_weight", [0.5, 1.0, 50.0])
    def test_affine_encoders_find_the_canonical_directions(self, rng, constraint_weight):
        features, labels = correlated_views(rng)
        network = make_network(n_members=1, n_labels=6, layers=0, latent_dim=2)
        positive = torch.from_numpy(labels)[None]
        batch = Batch(
            torch.from_numpy(features)[None],
            positive,
            torch.ones_like(positive),
            torch.ones(1, len(features)).double(),
        )
        minimize(network, batch, constraint_weight)
        with torch.no_grad():
            found = [
                network.encode_features(batch.features)[0].numpy(),
                network.encode_labels(positive, batch.known)[0].numpy(),
            ]
        u, correlations, v = np.linalg.svd(whiten(features).T @ whiten(labels.astype(float)))
        assert correlations[0] > correlations[1] > correlations[2] + 0.05
        expected = whiten(features) @ u[:, :2], whiten(labels.astype(float)) @ v[:2].T
        for codes, directions in zip(found, expected, strict=True):
            assert np.abs(subspace_angles(codes - codes.mean(0), directions)).max() < 1e-3
            variances = np.linalg.eigvalsh(np.cov(codes.T, ddof=0))[::-1]
            shrunk = 1 - (1 - correlations[:2]) / (2 * constraint_weight)
            np.testing.assert_allclose(variances, shrunk, atol=1e-3)
        np.testing.assert_allclose(found[0].mean(0), found[1].mean(0), atol=1e-4)

    def test_a_batch_cannot_have_more_dimensions_than_rows(self, rng):
        codes = torch.from_numpy(rng.normal(size=(1, 3, 8)))
        assert excess_covariance(codes, torch.ones(1, 3).double()) >= 8 - 2
        assert excess_covariance(codes, torch.zeros(1, 3).double()) == 8


class TestLearning:
    def test_the_ranking_loss_orders_the_decoded_labels(self, survey):
        def ordered(ranking_weight):
            model = tiny(epochs=40, calibration_weight=0.0, ranking_weight=ranking_weight)
            _, label_codes, positive = codes_after_training(model, survey.X, survey.Y[:, :3])
            with torch.no_grad():
                scores = model.network_.decode(label_codes)
            gaps = scores[..., :, None] - scores[..., None, :]
            pairs = positive[..., :, None] & ~positive[..., None, :]
            return float((gaps[pairs] > 0).double().mean())

        assert ordered(10.0) > 0.9
        assert ordered(0.0) < 0.8

    def test_calibration_is_needed_for_a_single_label(self, rng):
        X = rng.normal(size=(200, 3))
        Y = (X[:, :1] > 0).astype(int)
        model = tiny(epochs=20, calibration_weight=0.1).fit(X, Y)
        assert ((model.predict_proba(X) > 0.5) == Y).mean() > 0.9
        model = tiny(epochs=20, calibration_weight=0.0).fit(X, Y)
        assert ((model.predict_proba(X) > 0.5) == Y).mean() < 0.7


class TestSizes:
    @pytest.mark.parametrize(
        ("n_labels", "batch_size", "expected"), [(1, 32, 1), (5, 32, 4), (5, 6, 3), (5, 1, 1)]
    )
    def test_code_size_by_labels_and_batch_size(self, survey, n_labels, batch_size, expected):
        model = tiny(epochs=1, batch_size=batch_size).fit(survey.X, survey.Y[:, :n_labels])
        assert model.network_.config.latent_dim == expected
