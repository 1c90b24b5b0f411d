"""The network: what each switch of its config does, against plain recomputation."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
import torch
from torch import distributions
from torch.nn.functional import normalize

from cgmvae.model import objective
from cgmvae.model.network import CGMVAENetwork, NetworkConfig
from cgmvae.nn.batch import Batch
from cgmvae.nn.gaussian import Gaussian
from cgmvae.nn.rng import CounterStreams, GeneratorStreams

#: The terms of the paper.
TERMS = ("kl", "reconstruction", "contrastive", "cross_entropy")

SEEDS = (2, 7, 1)
N_FEATURES, N_LABELS = 7, 5
SMALL = NetworkConfig(
    embedding_dim=10,
    latent_dim=3,
    label_hidden=(8, 6),
    feature_hidden=(9, 5, 11),
    decoder_hidden=(12, 4),
    reconstruction="gaussian",
)
LOG_ODDS = np.random.default_rng(5).normal(size=(len(SEEDS), N_LABELS))

#: Rows of the batch, by what is special about them.
EMPTY, MAYBE, NOTHING_KNOWN, ALL, PARTLY = 1, 2, 3, 4, 5


def _network(seeds=SEEDS, *, kind=GeneratorStreams, terms=TERMS, log_odds=None, **changes):
    members = {
        "dropout": changes.pop("dropout", (0.3, 0.0, 0.5)),
        "input_dropout": changes.pop("input_dropout", (0.1, 0.0, 0.2)),
        "temperature": changes.pop("temperature", (0.1, 0.5, 1.0)),
    }
    return CGMVAENetwork(
        dataclasses.replace(SMALL, **changes),
        N_FEATURES,
        LOG_ODDS if log_odds is None else log_odds,
        kind(seeds),
        terms=terms,
        dtype=torch.float64,
        **members,
    )


def _quiet(**changes):
    """Build a network without any dropout."""
    return _network(dropout=(0.0,) * 3, input_dropout=(0.0,) * 3, **changes)


@pytest.fixture
def batch(rng):
    shape = (len(SEEDS), 6, N_LABELS)
    known = torch.ones(shape, dtype=torch.bool)
    positive = torch.from_numpy(rng.random(shape) < 0.4)
    positive[:, 0, :2], positive[:, 0, 2] = True, False
    positive[:, EMPTY] = False
    positive[:, MAYBE], known[:, MAYBE, 2:] = False, False
    positive[:, NOTHING_KNOWN], known[:, NOTHING_KNOWN] = False, False
    positive[:, ALL] = True
    positive[:, PARTLY], positive[:, PARTLY, 1], known[:, PARTLY, 3:] = False, True, False
    features = torch.from_numpy(rng.random((*shape[:2], N_FEATURES)))
    return Batch(features, positive, known, torch.ones(shape[:2], dtype=torch.float64))


class _Spy:
    """Records inputs and outputs of a network's decoder."""

    def __init__(self, network, monkeypatch):
        self.z, self.features, self.embeddings = [], [], []
        decode = network.decode

        def watched(features, z, streams=None):
            embedding = decode(features, z, streams)
            self.z.append(z)
            self.features.append(features)
            self.embeddings.append(embedding)
            return embedding

        monkeypatch.setattr(network, "decode", watched)


class TestSizes:
    def test_every_size_of_the_config_is_used(self):
        network = _network(layer_norm=False)
        shapes = {name: tuple(p.shape[1:]) for name, p in network.named_parameters()}

        def widths(*sizes):
            return [shape for pair in itertools.pairwise(sizes) for shape in (pair, (pair[1],))]

        def of(prefix):
            return [shape for name, shape in shapes.items() if name.startswith(f"{prefix}.layers.")]

        assert shapes["label_encoder.embeddings"] == (N_LABELS, 10)
        assert shapes["label_encoder.background"] == (6,)
        assert shapes["label_bias"] == (N_LABELS,)
        assert of("label_encoder.network") == widths(10, 8, 6, 6)
        assert of("feature_encoder.network") == widths(7, 9, 5, 11, 6)
        assert of("decoder.network") == widths(7 + 3, 12, 4, 10)
        assert of("reconstruction") == widths(3, 12, 4, 7)
        assert len(shapes) == 3 + 2 * (3 + 4 + 3 + 3)
        assert all(p.shape[0] == len(SEEDS) for p in network.parameters())

    def test_the_reconstruction_head_exists_only_if_trained(self):
        assert _network().reconstruction is not None
        assert _network(reconstruction="none").reconstruction is None
        assert _network(terms=("kl", "cross_entropy")).reconstruction is None

    @pytest.mark.parametrize("kind", [GeneratorStreams, CounterStreams])
    @pytest.mark.parametrize("scale", [1.0, 0.3])
    def test_initial_norm_of_label_embeddings(self, kind, scale):
        network = _network(kind=kind, embedding_dim=4000, label_scale=scale)
        norms = network.label_encoder.embeddings.detach().norm(dim=-1)
        assert norms.flatten().tolist() == pytest.approx([scale] * 15, rel=0.06)
        assert len(torch.unique(norms)) == 15
        assert NetworkConfig().label_scale == 1


class TestLogits:
    def test_logits_are_inner_products_and_a_bias(self, rng):
        network = _network()
        embedding = torch.from_numpy(rng.normal(size=(3, 4, 10)))
        ours = network.logits(embedding).detach()
        labels, bias = network.label_encoder.embeddings.detach(), network.label_bias.detach()
        for m, i, k in np.ndindex(3, 4, N_LABELS):
            products = [float(embedding[m, i, e] * labels[m, k, e]) for e in range(10)]
            expected = math.fsum(products) + float(bias[m, k])
            assert ours[m, i, k].item() == pytest.approx(expected, rel=1e-12)

    def test_the_bias_starts_at_the_log_odds_of_each_member(self):
        network = _network()
        np.testing.assert_array_equal(network.label_bias.detach().numpy(), LOG_ODDS)
        # A parameter of its own: training must not write into the caller's array.
        with torch.no_grad():
            network.label_bias.add_(1)
        assert LOG_ODDS[0, 0] == np.random.default_rng(5).normal()

    @pytest.mark.parametrize("decoder_input", ["z", "xz"])
    def test_probabilities_use_the_posterior_mean(self, batch, decoder_input):
        network = _network(decoder_input=decoder_input)
        mean = network.feature_encoder(batch.features, None, network.dropout).mean
        inputs = mean if decoder_input == "z" else torch.cat([batch.features, mean], dim=-1)
        embedding = network.decoder(inputs, None, network.dropout)
        expected = torch.sigmoid(network.logits(embedding))
        ours = network(batch.features)
        torch.testing.assert_close(ours, expected)
        assert torch.equal(ours, network(batch.features))

    @pytest.mark.parametrize("unit_norm", [True, False])
    def test_unit_norm(self, batch, unit_norm):
        network = _network(unit_norm=unit_norm)
        z = network.encode(batch.features).mean
        norms = network.decode(batch.features, z).norm(dim=-1)
        assert torch.allclose(norms, torch.ones_like(norms)) == unit_norm
        if unit_norm:
            largest = network.label_encoder.embeddings.norm(dim=-1)[:, None]
            inner = network.logits(network.decode(batch.features, z)) - network.label_bias[:, None]
            assert bool((inner.abs() <= largest + 1e-12).all())


class TestDecoder:
    @pytest.mark.parametrize("drops", [True, False])
    def test_decoder_dropout(self, rng, batch, drops):
        network = _network(decoder_dropout=drops)
        z = torch.from_numpy(rng.normal(size=(3, 6, 3)))
        still, noisy = (
            network.decode(batch.features, z, streams)
            for streams in (None, GeneratorStreams(SEEDS))
        )
        torch.testing.assert_close(still[1], noisy[1])  # member 1 has no dropout
        assert torch.allclose(still, noisy) != drops

    def test_skip_dropout_hides_the_features_of_whole_rows(self, rng, batch):
        network = _quiet(skip_dropout=0.2)
        z = torch.from_numpy(rng.normal(size=(3, 6, 3)))
        shown, hidden = (
            network.decode(features, z)
            for features in (batch.features, torch.zeros_like(batch.features))
        )
        streams = GeneratorStreams(SEEDS)
        n_hidden = 0
        for step in range(40):
            streams.seek([step] * len(SEEDS))
            drawn = network.decode(batch.features, z, streams)
            is_hidden = torch.isclose(drawn, hidden).all(-1)
            assert bool((is_hidden | torch.isclose(drawn, shown).all(-1)).all())
            n_hidden += int(is_hidden.sum())
        assert 90 < n_hidden < 200  # of 720
        assert not torch.isclose(shown, hidden).all(-1).any()


class TestDropout:
    def test_each_member_has_its_own_rates(self, batch):
        network = _network()
        still, noisy = (network.terms(batch, streams) for streams in (None, CounterStreams(SEEDS)))
        assert not torch.allclose(still["cross_entropy"], noisy["cross_entropy"])
        rates = {"dropout": (0.0, 0.0, 0.9), "input_dropout": (0.0, 0.9, 0.0)}
        network = _network(**rates)
        first = [
            network.encode(batch.features, streams).mean
            for streams in (None, GeneratorStreams(SEEDS))
        ]
        assert [torch.allclose(a, b) for a, b in zip(*first, strict=True)] == [True, True, False]

    def test_input_dropout_applies_to_encoder_and_decoder(self, batch, monkeypatch):
        network = _network(dropout=(0.0,) * 3, input_dropout=(0.0, 0.5, 0.9))
        spy = _Spy(network, monkeypatch)
        terms = network.terms(batch, GeneratorStreams(SEEDS))
        seen = spy.features[0]
        assert torch.equal(seen[0], batch.features[0])
        lost = (seen == 0).double().mean((1, 2))
        assert 0.3 < lost[1] < 0.7 < lost[2]
        kept = seen[1] != 0
        torch.testing.assert_close(seen[1][kept], 2 * batch.features[1][kept])
        # What is rebuilt are the features as they were.
        predicted = network.reconstruction(spy.z[0], None, network.dropout)
        expected = 0.5 * ((batch.features - predicted) ** 2).sum(-1)
        torch.testing.assert_close(terms["reconstruction"], expected)

    def test_rates_and_temperatures_are_not_part_of_the_weights(self):
        names = set(_network().state_dict())
        assert not names & {"dropout", "input_dropout", "temperature"}

    def test_without_streams_terms_are_deterministic(self, batch):
        for alignment in ("contrastive", "triplet", "ranking"):
            network = _network(alignment=alignment, label_branch=True, n_draws=2)
            state = torch.random.get_rng_state()
            first, second = network.terms(batch, None), network.terms(batch, None)
            assert all(torch.equal(first[name], second[name]) for name in first)
            assert torch.equal(state, torch.random.get_rng_state())


class TestPrior:
    def _kl_of_row(self, posterior, z, gaussians):
        """Eq. 4 for one row, by torch.distributions."""

        def log_density(mean, log_variance):
            return distributions.Normal(mean, (log_variance / 2).exp()).log_prob(z).sum()

        logs = torch.stack([log_density(*gaussian) for gaussian in gaussians])
        return log_density(*posterior) - (torch.logsumexp(logs, 0) - math.log(len(logs)))

    def test_mixture(self, batch, monkeypatch):
        network = _quiet(prior="mixture", n_draws=2)
        spy = _Spy(network, monkeypatch)
        ours = network.terms(batch, GeneratorStreams(SEEDS))["kl"]
        posterior, labels = network.encode(batch.features), network.label_gaussians()
        assert not torch.allclose(spy.z[0], posterior.mean)
        for m, i in np.ndindex(3, 6):
            chosen = np.flatnonzero(batch.positive[m, i]).tolist()
            if i == EMPTY:
                chosen = [N_LABELS]
            if not chosen:
                assert ours[m, i] == 0
                continue
            expected = self._kl_of_row(
                [part[m, i] for part in posterior],
                spy.z[0][m, i],
                [[part[m, k] for part in labels] for k in chosen],
            )
            assert ours[m, i].item() == pytest.approx(expected.item(), rel=1e-10)
        assert bool((ours[:, [MAYBE, NOTHING_KNOWN]] == 0).all())

    def test_standard(self, batch):
        network = _network(prior="standard")
        ours = network.terms(batch, None)["kl"]
        posterior = network.encode(batch.features)
        normal = distributions.Normal(posterior.mean, (posterior.log_variance / 2).exp())
        expected = distributions.kl_divergence(normal, distributions.Normal(0.0, 1.0)).sum(-1)
        torch.testing.assert_close(ours, expected)

    def test_label_sum(self, batch):
        network = _network(prior="label-sum")
        ours = network.terms(batch, None)["kl"]
        posterior = network.encode(batch.features)
        for m, i in np.ndindex(3, 6):
            if i in (MAYBE, NOTHING_KNOWN):
                assert ours[m, i] == 0
                continue
            summed = torch.zeros(3, 1, 10, dtype=torch.float64)
            for k in np.flatnonzero(batch.positive[m, i]):
                summed[m, 0] += network.label_encoder.embeddings[m, k].detach()
            prior = Gaussian.from_output(
                network.label_encoder.network(summed, None, network.dropout)
            )
            normals = [
                distributions.Normal(mean, (log_variance / 2).exp())
                for mean, log_variance in (
                    [part[m, i] for part in posterior],
                    [part[m, 0] for part in prior],
                )
            ]
            expected = distributions.kl_divergence(*normals).sum()
            assert ours[m, i].item() == pytest.approx(expected.item(), rel=1e-10)

    def test_label_gaussians_end_with_the_background(self):
        network = _network()
        labels = network.label_gaussians()
        assert labels.mean.shape == labels.log_variance.shape == (3, N_LABELS + 1, 3)
        # It starts as the standard normal.
        for part in labels:
            assert torch.equal(part[:, -1], torch.zeros_like(part[:, -1]))
        with torch.no_grad():
            network.label_encoder.background.copy_(torch.arange(6.0))
        labels = network.label_gaussians()
        assert labels.mean[0, -1].tolist() == [0, 1, 2]
        assert labels.log_variance[0, -1].tolist() == [3, 4, 5]


class TestAlignment:
    def _embedding(self, network, batch):
        return network.decode(batch.features, network.encode(batch.features).mean)

    @pytest.mark.parametrize("unit_norm", [True, False])
    @pytest.mark.parametrize("normalize_labels", [True, False])
    def test_contrastive(self, batch, unit_norm, normalize_labels):
        network = _network(unit_norm=unit_norm, normalize_labels=normalize_labels)
        ours = network.terms(batch, None)["contrastive"]
        embedding, labels = self._embedding(network, batch), network.label_encoder.embeddings
        if normalize_labels:
            embedding, labels = normalize(embedding, dim=-1), normalize(labels, dim=-1)
        for m, i in np.ndindex(3, 6):
            similarity = (labels[m] @ embedding[m, i]).tolist()
            exps = [math.exp(s / (0.1, 0.5, 1.0)[m]) for s in similarity]
            total = math.fsum(e for e, k in zip(exps, batch.known[m, i], strict=True) if k)
            yes = np.flatnonzero(batch.positive[m, i])
            expected = sum(-math.log(exps[k] / total) for k in yes) / len(yes) if len(yes) else 0
            assert ours[m, i].item() == pytest.approx(expected, rel=1e-10)
        assert bool((ours[:, [EMPTY, MAYBE, NOTHING_KNOWN]] == 0).all())

    def test_the_bias_is_not_part_of_the_similarity(self, batch):
        plain, shifted = _network(), _network(log_odds=LOG_ODDS + 3)
        terms = [network.terms(batch, None) for network in (plain, shifted)]
        assert torch.equal(terms[0]["contrastive"], terms[1]["contrastive"])
        assert not torch.equal(terms[0]["cross_entropy"], terms[1]["cross_entropy"])

    def test_triplet(self, batch):
        network = _quiet(alignment="triplet", temperature=(1.0, 2.0, 3.0))
        embedding = self._embedding(network, batch)
        similarity = objective.cosine_similarity(embedding, network.label_encoder.embeddings)
        negative = batch.known & ~batch.positive
        # Without streams, the first label of each kind.
        up = similarity.gather(-1, batch.positive.int().argmax(-1, keepdim=True))
        down = similarity.gather(-1, negative.int().argmax(-1, keepdim=True))
        both = batch.positive.any(-1) & negative.any(-1)
        expected = (1 + 2 * (down - up)).squeeze(-1).clamp(min=0) * both
        torch.testing.assert_close(network.terms(batch, None)["contrastive"], expected)
        # With streams, every pair in turn, by each member's own draws.
        streams, drawn = GeneratorStreams(SEEDS), []
        for step in range(8):
            streams.seek([step] * len(SEEDS))
            drawn.append(network.terms(batch, streams)["contrastive"])
        seen = torch.stack(drawn)
        assert bool((seen[:, :, 0].std(0) > 0).all())
        assert bool((seen[:, :, [EMPTY, MAYBE, NOTHING_KNOWN, ALL]] == 0).all())

    def test_ranking(self, batch):
        network = _network(alignment="ranking")
        ours = network.terms(batch, None)["contrastive"]
        scores = network(batch.features).tolist()
        for m, i in np.ndindex(3, 6):
            yes = np.flatnonzero(batch.positive[m, i])
            no = np.flatnonzero(batch.known[m, i] & ~batch.positive[m, i])
            pairs = [math.exp(scores[m][i][n] - scores[m][i][p]) for p in yes for n in no]
            expected = sum(pairs) / len(pairs) if pairs else 0
            assert ours[m, i].item() == pytest.approx(expected, rel=1e-10)


class TestBranches:
    def _mean_of_positives(self, network, batch):
        means = network.label_gaussians().mean
        rows = []
        for m, i in np.ndindex(3, 6):
            yes = np.flatnonzero(batch.positive[m, i])
            rows.append(means[m, yes].mean(0) if len(yes) else means[m, -1])
        return torch.stack(rows).reshape(3, 6, -1)

    @pytest.mark.parametrize("n_draws", [1, 2, 3])
    @pytest.mark.parametrize("label_branch", [True, False])
    @pytest.mark.parametrize("prior", ["mixture", "standard"])
    def test_cross_entropy_sums_over_draws_and_the_label_branch(
        self, batch, monkeypatch, n_draws, label_branch, prior
    ):
        network = _quiet(n_draws=n_draws, label_branch=label_branch, prior=prior)
        spy = _Spy(network, monkeypatch)
        terms = network.terms(batch, GeneratorStreams(SEEDS))
        posterior = network.encode(batch.features)
        assert len(spy.z) == n_draws + label_branch
        for z in spy.z[:n_draws]:
            sigmas = (z - posterior.mean) / (posterior.log_variance / 2).exp()
            assert 0.5 < sigmas.std().item() < 1.5
        assert len({z.sum().item() for z in spy.z}) == len(spy.z)
        if label_branch:
            torch.testing.assert_close(spy.z[-1], self._mean_of_positives(network, batch))
        expected = sum(
            objective.cross_entropy(network.logits(e), batch.positive, batch.known)
            for e in spy.embeddings
        )
        torch.testing.assert_close(terms["cross_entropy"], expected)

        aligned = [spy.embeddings[0]] + ([spy.embeddings[-1]] if label_branch else [])
        labels = network.label_encoder.embeddings
        expected = sum(
            objective.contrastive(
                objective.cosine_similarity(e, labels) / network.temperature[:, None, None],
                batch.positive,
                batch.known,
            )
            for e in aligned
        ) / len(aligned)
        torch.testing.assert_close(terms["contrastive"], expected)


class TestTerms:
    def test_a_row_without_known_labels_trains_only_the_reconstruction(self, batch):
        network = _network()
        terms = network.terms(batch, GeneratorStreams(SEEDS))
        for name in ("kl", "contrastive", "cross_entropy"):
            unknown = terms[name][:, NOTHING_KNOWN]
            assert torch.equal(unknown, torch.zeros_like(unknown))
            gradients = torch.autograd.grad(
                unknown.sum(), list(network.parameters()), retain_graph=True, allow_unused=True
            )
            for gradient in gradients:
                assert gradient is None or torch.equal(gradient, torch.zeros_like(gradient))
        assert bool((terms["reconstruction"][:, NOTHING_KNOWN] > 0).all())

    @pytest.mark.parametrize("reconstruction", ["gaussian", "bernoulli"])
    def test_reconstruction(self, batch, reconstruction):
        network = _network(reconstruction=reconstruction)
        ours = network.terms(batch, None)["reconstruction"]
        z = network.encode(batch.features).mean
        predicted = network.reconstruction(z, None, network.dropout)
        if reconstruction == "gaussian":
            expected = 0.5 * ((batch.features - predicted) ** 2).sum(-1)
        else:
            p = torch.sigmoid(predicted)
            x = batch.features
            expected = -(x * torch.log(p) + (1 - x) * torch.log(1 - p)).sum(-1)
        torch.testing.assert_close(ours, expected)


SWITCHES = [
    {},
    {"prior": "standard"},
    {"prior": "label-sum", "alignment": "ranking"},
    {"alignment": "triplet", "skip_dropout": 0.3},
    {"label_branch": True, "n_draws": 2, "unit_norm": True, "normalize_labels": False},
    {"decoder_input": "z", "layer_norm": False, "reconstruction": "bernoulli"},
]


class TestInvariance:
    @pytest.mark.parametrize("changes", SWITCHES)
    @pytest.mark.parametrize("kind", [GeneratorStreams, CounterStreams])
    def test_initial_weights_and_terms_do_not_depend_on_the_pack(self, batch, changes, kind):
        network, streams = _network(kind=kind, **changes), kind(SEEDS)
        streams.seek([3, 8, 5])
        terms = network.terms(batch, streams)
        for i, (seed, step) in enumerate(zip(SEEDS, (3, 8, 5), strict=True)):
            own = {
                "dropout": network.dropout[i : i + 1],
                "input_dropout": network.input_dropout[i : i + 1],
                "temperature": network.temperature[i : i + 1],
                "log_odds": LOG_ODDS[i : i + 1],
            }
            alone = _network([seed], kind=kind, **own, **changes)
            pairs = zip(network.parameters(), alone.parameters(), strict=True)
            assert all(torch.equal(ours[i : i + 1], its) for ours, its in pairs)
            its_noise = kind([seed])
            its_noise.seek([step])
            its = alone.terms(Batch(*(part[i : i + 1] for part in batch)), its_noise)
            for name in terms:
                torch.testing.assert_close(
                    terms[name][i : i + 1], its[name], rtol=1e-11, atol=1e-12
                )

    @pytest.mark.parametrize("changes", SWITCHES)
    def test_an_unknown_label_affects_no_term(self, batch, changes):
        known = batch.known.clone()
        known[..., 2] = False
        batch = batch._replace(known=known, positive=batch.positive & known)
        network = _network(**changes)
        before = network.terms(batch, CounterStreams(SEEDS))
        with torch.no_grad():
            network.label_encoder.embeddings[:, 2].mul_(1e6).add_(1)
            network.label_bias[:, 2] = 1e6
        after = network.terms(batch, CounterStreams(SEEDS))
        for name in before:
            torch.testing.assert_close(after[name], before[name], rtol=1e-12, atol=1e-12)


class TestDegenerate:
    @pytest.mark.parametrize("changes", SWITCHES)
    @pytest.mark.parametrize("features", ["constant", "zero", "huge", "usual"])
    @pytest.mark.parametrize("scale", [1.0, 1e4])
    def test_losses_and_gradients_stay_finite(self, batch, changes, features, scale):
        made = {
            "constant": torch.ones_like(batch.features),
            "zero": torch.zeros_like(batch.features),
            "huge": 1e4 * batch.features,
            "usual": batch.features,
        }[features]
        network = _network(**changes).float()
        with torch.no_grad():  # logits of this size, and log-variances beyond both bounds
            network.label_encoder.embeddings.mul_(scale)
        parts = batch._replace(features=made.float(), weight=batch.weight.float())
        total = torch.stack(list(network.terms(parts, CounterStreams(SEEDS)).values())).sum(0)
        assert torch.isfinite(total).all()
        assert total.dtype == torch.float32
        total.sum().backward()
        for parameter in network.parameters():
            assert parameter.grad is None or torch.isfinite(parameter.grad).all()

    @pytest.mark.parametrize("changes", SWITCHES)
    @pytest.mark.parametrize("is_positive", [True, False])
    def test_one_label(self, batch, changes, is_positive):
        network = _network(log_odds=LOG_ODDS[:, :1], **changes)
        shape = (*batch.weight.shape, 1)
        positive, known = torch.full(shape, is_positive), torch.ones(shape, dtype=torch.bool)
        terms = network.terms(batch._replace(positive=positive, known=known), CounterStreams(SEEDS))
        assert network(batch.features).shape == shape
        aligned = terms["contrastive"]
        torch.testing.assert_close(aligned, torch.zeros_like(aligned), rtol=0, atol=1e-12)
        torch.stack(list(terms.values())).sum().backward()
        for parameter in network.parameters():
            assert parameter.grad is None or torch.isfinite(parameter.grad).all()


class TestDraws:
    """A part that is left out does not change the draws of the others, nor their first weights."""

    @pytest.mark.parametrize("kind", [GeneratorStreams, CounterStreams])
    @pytest.mark.parametrize("left_out", ["kl", "reconstruction", "contrastive"])
    def test_the_other_terms_do_not_change(self, batch, kind, left_out):
        results = []
        for terms in (TERMS, tuple(term for term in TERMS if term != left_out)):
            network, streams = _network(kind=kind, terms=terms), kind(SEEDS)
            streams.seek([4, 5, 6])
            results.append(network.terms(batch, streams))
        assert set(results[0]) == {*results[1], left_out}
        for name, term in results[1].items():
            assert torch.equal(term, results[0][name]), name

    @pytest.mark.parametrize(
        "changes",
        [
            {"correlation": "covariance"},
            {"correlation": "graph"},
            {"reconstruction": "none"},
            {"n_draws": 3, "own_kl_draw": True, "label_branch": True},
        ],
    )
    def test_other_parts_do_not_change(self, batch, changes):
        plain, other = _network(), _network(**changes)
        own = dict(plain.named_parameters())
        for name, weight in other.named_parameters():
            if name in own and name != "label_bias":
                assert torch.equal(weight, own[name]), name
        first, second = (each.outputs(batch, GeneratorStreams(SEEDS)) for each in (plain, other))
        assert torch.equal(first.posterior.mean, second.posterior.mean)
        assert torch.equal(first.prior.mean, second.prior.mean)
        assert torch.equal(first.views[0].embedding, second.views[0].embedding)

    @pytest.mark.parametrize("prior", ["mixture", "standard", "label-sum"])
    def test_every_draw_has_its_own_name(self, batch, prior):
        changes = {"prior": prior, "label_branch": True, "n_draws": 2, "own_kl_draw": True}
        network = _network(skip_dropout=0.3, alignment="triplet", label_relu=True, **changes)
        network.terms(batch, GeneratorStreams(SEEDS))  # would raise
