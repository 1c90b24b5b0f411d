"""The made-up survey against the probit model that it states."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import ndtr
from scipy.stats import multivariate_normal

from cgmvae.data import synthetic
from cgmvae.data.mapped import dense
from cgmvae.data.synthetic import MAX_FREQUENCY, SHARED_NICHE, make_survey
from cgmvae.errors import InputError

#: Standard errors that a sampled share may be from its expectation. A true share is beyond this
#: once in 150,000 times; the tests look at a few hundred, with fixed seeds.
Z_BOUND = 4.5


#: Rows of the survey whose pairs of labels are compared with the model.
N_PAIRED = 100_000


@pytest.fixture(scope="module")
def survey():
    return make_survey(N_PAIRED, 30, 12, n_groups=3, cardinality=4.0, frequency_decay=0.5, seed=3)


def z_scores(counts, expected, n):
    return (counts / n - expected) / np.sqrt(expected * (1 - expected) / n)


class TestFrequencies:
    @pytest.mark.parametrize(("decay", "cardinality"), [(1.0, 3.0), (0.0, 12.0), (2.0, 2.0)])
    def test_are_met(self, decay, cardinality):
        n = 20_000
        data, truth = make_survey(
            n, frequency_decay=decay, cardinality=cardinality, feature_strength=0.4
        )
        assert truth.frequencies.sum() == pytest.approx(cardinality)
        assert np.abs(z_scores(data.Y.sum(axis=0), truth.frequencies, n)).max() < Z_BOUND

    def test_follow_the_power_law(self):
        _, truth = make_survey(10, frequency_decay=1.5, cardinality=1.2)
        ranked = np.sort(truth.frequencies)[::-1]
        np.testing.assert_allclose(ranked / ranked[0], np.arange(1, 31) ** -1.5)
        assert (np.diff(truth.frequencies) > 0).any()  # ranks are shuffled, groups are not
        assert truth.label_groups[:7].tolist() == [0, 1, 2, 3, 4, 0, 1]

    def test_are_capped(self):
        _, truth = make_survey(10, frequency_decay=1.0, cardinality=20.0)
        ranked = np.sort(truth.frequencies)[::-1]
        assert ranked[0] == pytest.approx(MAX_FREQUENCY)
        free = ranked < MAX_FREQUENCY - 1e-9
        np.testing.assert_allclose(np.diff(np.log(ranked * np.arange(1, 31))[free]), 0, atol=1e-9)
        assert ranked.sum() == pytest.approx(20.0)
        _, truth = make_survey(10, cardinality=MAX_FREQUENCY * 30)
        np.testing.assert_allclose(truth.frequencies, MAX_FREQUENCY)


class TestCorrelation:
    def test_every_pair_meets_the_orthant_probability_of_its_latent_correlation(self, survey):
        data, truth = survey
        correlation = truth.latent_correlation()
        together = data.Y.T.astype(np.int64) @ data.Y
        for first in range(12):
            for second in range(first):
                rho = correlation[first, second]
                expected = multivariate_normal([0, 0], [[1, rho], [rho, 1]]).cdf(
                    -truth.thresholds[[first, second]]
                )
                assert abs(z_scores(together[first, second], expected, N_PAIRED)) < Z_BOUND

    def test_labels_of_a_group_are_alike_and_others_are_not(self, survey):
        _, truth = survey
        correlation = truth.latent_correlation()
        same = truth.label_groups[:, None] == truth.label_groups
        off_diagonal = ~np.eye(12, dtype=bool)
        # feature_strength * (shared part -+ own part) + group_strength
        lowest = 0.5 * (2 * SHARED_NICHE - 1) + 0.3
        assert correlation[same & off_diagonal].min() >= lowest - 1e-9
        assert correlation[same & off_diagonal].max() < 0.8 + 1e-9
        assert abs(correlation[~same].mean()) < 0.15
        assert correlation[same & off_diagonal].min() > np.abs(correlation[~same]).max()
        few = truth.latent_correlation([7, 2, 11])
        np.testing.assert_allclose(few, correlation[np.ix_([7, 2, 11], [7, 2, 11])])

    def test_features_predict_as_strongly_as_stated(self, survey):
        data, truth = survey
        signal = dense(data.X @ truth.niches().T)
        np.testing.assert_allclose(signal.std(axis=0), 1, atol=0.02)
        # Given x, the label is a probit: compare frequencies where the signal is high and low.
        for label in range(12):
            high = signal[:, label] > 1
            chance = ndtr(
                (np.sqrt(0.5) * signal[high, label] - truth.thresholds[label]) / np.sqrt(0.5)
            )
            spread = np.sqrt((chance * (1 - chance)).sum())
            assert abs(data.Y[high, label].sum() - chance.sum()) < Z_BOUND * spread

    def test_without_features_and_groups_labels_are_independent(self):
        _, truth = make_survey(10, feature_strength=0.0, group_strength=0.0)
        np.testing.assert_array_equal(truth.latent_correlation(), np.eye(30))

    def test_without_noise_the_group_decides(self):
        data, truth = make_survey(
            500, 5, 6, n_groups=2, feature_strength=0.0, group_strength=1.0, cardinality=2.0
        )
        for group in (0, 1):
            members = np.flatnonzero(truth.label_groups == group)
            ranked = members[np.argsort(-truth.frequencies[members])]
            assert (np.diff(data.Y[:, ranked].astype(int), axis=1) <= 0).all()


class TestTruth:
    @pytest.mark.parametrize("n_features", [1, 2, 20, 300])
    @pytest.mark.parametrize("density", [1.0, 0.1])
    def test_niches_have_length_one(self, n_features, density):
        _, truth = make_survey(10, n_features, feature_density=density)
        niches = truth.niches()
        assert niches.shape == (30, n_features)
        np.testing.assert_allclose((niches.toarray() ** 2).sum(axis=1), 1)
        np.testing.assert_allclose(truth.niches([4, 1]).toarray(), niches.toarray()[[4, 1]])

    @pytest.mark.parametrize("density", [1.0, 0.1])
    def test_a_group_uses_few_features(self, density):
        _, truth = make_survey(10, 1000, feature_density=density)
        used = np.unique(truth.niches([0, 5, 10]).nonzero()[1])
        assert len(used) == synthetic.NICHE_FEATURES / density


class TestSeeds:
    @pytest.mark.parametrize("density", [1.0, 0.2])
    def test_reproduce(self, density):
        (first, _), (again, _), (other, _) = (
            make_survey(200, feature_density=density, unknown_share=0.1, seed=seed)
            for seed in (5, 5, 6)
        )
        np.testing.assert_array_equal(dense(first.X), dense(again.X))
        np.testing.assert_array_equal(first.targets(), again.targets())
        assert (first.Y != other.Y).any()
        assert (dense(first.X) != dense(other.X)).any()

    def test_hiding_labels_does_not_change_them(self):
        whole, _ = make_survey(300)
        hidden, truth = make_survey(300, unknown_share=0.4)
        np.testing.assert_array_equal(whole.Y, truth.labels)
        np.testing.assert_array_equal(hidden.Y, np.where(hidden.unknown, 0, whole.Y))

    def test_sparse_and_dense_labels_are_the_same(self):
        as_dense, _ = make_survey(300, unknown_share=0.2, sparse_labels=False)
        as_sparse, truth = make_survey(300, unknown_share=0.2, sparse_labels=True)
        assert sp.issparse(as_sparse.Y)
        assert sp.issparse(as_sparse.unknown)
        assert sp.issparse(truth.labels)
        np.testing.assert_array_equal(as_sparse.Y.toarray(), as_dense.Y)
        np.testing.assert_array_equal(as_sparse.unknown.toarray(), as_dense.unknown)


class TestShares:
    @pytest.mark.parametrize("share", [0.01, 0.3, 0.9])
    def test_unknown_share_is_met(self, share):
        data, _ = make_survey(2000, unknown_share=share)
        assert abs(z_scores(data.unknown.sum(), share, data.unknown.size)) < Z_BOUND
        per_label = z_scores(data.unknown.sum(axis=0), share, 2000)
        assert np.abs(per_label).max() < Z_BOUND

    @pytest.mark.parametrize("density", [0.001, 0.05, 0.7])
    def test_feature_density_is_met(self, density):
        data, _ = make_survey(1000, 500, feature_density=density)
        assert isinstance(data.X, sp.csr_array)
        assert data.X.dtype == np.float32
        assert data.X.has_canonical_format
        assert abs(z_scores(data.X.nnz, density, 500_000)) < Z_BOUND
        assert data.X.multiply(data.X).mean() == pytest.approx(
            1, abs=0.2 if density < 0.01 else 0.03
        )

    def test_a_density_that_leaves_nothing(self):
        data, _ = make_survey(20, 5, feature_density=1e-18)
        assert data.X.nnz == 0

    def test_frequencies_are_nearly_met_with_sparse_features(self):
        data, truth = make_survey(
            20_000, 2000, 50, feature_density=0.01, cardinality=4.0, frequency_decay=0.5
        )
        np.testing.assert_allclose(data.Y.mean(axis=0), truth.frequencies, rtol=0.15)


class TestSize:
    def test_large_and_mostly_zero_labels_become_sparse(self, monkeypatch):
        monkeypatch.setattr(synthetic, "SPARSE_CELLS", 10_000)
        assert sp.issparse(make_survey(200, n_labels=100, cardinality=3.0)[0].Y)
        assert not sp.issparse(make_survey(200, n_labels=100, cardinality=30.0)[0].Y)
        assert not sp.issparse(make_survey(50, n_labels=100, cardinality=3.0)[0].Y)

    def test_many_blocks_meet_the_frequencies_too(self, monkeypatch):
        n = 5000
        monkeypatch.setattr(synthetic, "_BLOCK_CELLS", 3 * n)
        data, truth = make_survey(n, n_labels=40, n_groups=3, seed=1)
        assert np.abs(z_scores(data.Y.sum(axis=0), truth.frequencies, n)).max() < Z_BOUND

    def test_the_smallest_survey(self):
        data, truth = make_survey(1, 1, 1, n_groups=1, cardinality=0.5)
        assert (data.X.shape, data.Y.shape) == ((1, 1), (1, 1))
        np.testing.assert_array_equal(truth.latent_correlation(), [[1.0]])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_samples": 0}, "n_samples is 0"),
        ({"n_features": 2.5}, "n_features is 2.5"),
        ({"n_groups": 31}, "at most 30, the number of labels"),
        ({"cardinality": 0.0}, "cardinality is 0.0"),
        ({"cardinality": 29.0}, "at most 28.5"),
        ({"cardinality": np.nan}, "cardinality is nan"),
        ({"frequency_decay": -1.0}, "frequency_decay is -1.0"),
        ({"feature_strength": 0.8, "group_strength": 0.3}, "sum not above 1"),
        ({"feature_strength": -0.1}, "neither may be below 0"),
        ({"feature_density": 0.0}, "feature_density is 0.0"),
        ({"unknown_share": 1.0}, "unknown_share is 1.0"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_bad_input(change, message):
    with pytest.raises(InputError, match=message):
        make_survey(**change)
