"""The plan: its laws have no steps, and values decide whether features are sparse."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp

from cgmvae.methods import BlendClassifier, CGMVAEClassifier
from cgmvae.model.plan import DataProfile, feature_plan, n_trees, preset_for

KINDS = ("dense", "sparse", "binary")


def numbers(n_rows, n_columns, kind):
    """Return whole numbers of a plan, its other numbers, and width of the input and steps."""
    profile = DataProfile(n_rows, n_columns, 10, kind)
    preset, features = preset_for("tuned", profile), feature_plan(profile, "auto", "auto", "auto")
    network, training = preset.network, preset.training
    whole = (
        network.embedding_dim,
        network.latent_dim,
        *network.feature_hidden,
        *network.decoder_hidden,
        training["epochs"],
        training["patience"],
        training["batch_size"],
        features.n_bins,
        features.n_components or 0,
    )
    real = (
        preset.learning_rate,
        preset.dropout,
        preset.input_dropout,
        preset.temperature,
        *preset.weights().values(),
        network.label_scale,
    )
    bins = features.n_bins if features.n_bins > 1 else 0
    width = min(n_columns * (1 + bins), features.n_components or n_columns)
    steps = training["epochs"] * n_rows / training["batch_size"]
    return whole, real, (width, steps)


def assert_no_jump(profiles):
    """Neighbors differ by rounding to whole numbers, or by hardly anything."""
    for (here, old), (there, new) in itertools.pairwise(
        (each, numbers(*each)) for each in profiles
    ):
        places = (here, there)
        assert np.abs(np.subtract(old[0], new[0])).max() <= 1, places
        np.testing.assert_allclose(old[1], new[1], rtol=0.005, atol=2e-4, err_msg=str(places))
        # A bin more, an epoch less: at most one part in eight, and in fifteen.
        (old_width, old_steps), (new_width, new_steps) = old[2], new[2]
        assert max(old_width, new_width) <= 1.125 * min(old_width, new_width), places
        assert max(old_steps, new_steps) <= 1.07 * min(old_steps, new_steps), places


def counts(first, last):
    """Return rising numbers from the first to the last, each 1 or 1/3000 more."""
    found = [first]
    while found[-1] < last:
        found.append(found[-1] + max(1, found[-1] // 3000))
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_more_changes_the_plan_by_rounding_at_most(kind):
    assert_no_jump((n_rows, 20, kind) for n_rows in counts(100, 30_000))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_rows", [100, 3_000])
def test_a_column_more_changes_the_plan_by_rounding_at_most(kind, n_rows):
    assert_no_jump((n_rows, n_columns, kind) for n_columns in counts(10, 5_000))


def test_trees_fall_with_the_rows_without_a_jump():
    found = [n_trees(DataProfile(n_rows, 20, 10, "dense")) for n_rows in counts(100, 30_000)]
    assert (found[0], found[-1]) == (400, 100)
    assert all(0 <= old - new <= 1 for old, new in itertools.pairwise(found))


@pytest.mark.parametrize("kind", KINDS)
def test_more_rows_are_passed_over_less_often(kind):
    rows = (100, 300, 1000, 3000, 9000, 27_000, 81_000)
    plans = [CGMVAEClassifier().plan(DataProfile(n_rows, 100, 10, kind)) for n_rows in rows]
    epochs = [plan.training.epochs for plan in plans]
    assert epochs == sorted(epochs, reverse=True)


def plan(n_rows, kind="dense", n_columns=20):
    return CGMVAEClassifier().plan(DataProfile(n_rows, n_columns, 10, kind))


def test_halfway_sizes_and_weights_are_geometric_means():
    """The logarithm of the rows is halfway at the geometric mean of where a law begins and ends."""
    network = plan(5_000).network
    sizes = (network.embedding_dim, network.latent_dim, *network.decoder_hidden)
    assert sizes == (round((128 * 256) ** 0.5), round((32 * 64) ** 0.5), 272, 272)
    member = plan(round((1_000 * 2_500) ** 0.5)).member
    assert member["weights"]["contrastive"] == pytest.approx(0.3**0.5, abs=1e-3)
    assert member["settings"]["temperature"] == pytest.approx((0.2 * 0.4) ** 0.5, abs=1e-3)
    halfway = plan(round((2_500 * 5_000) ** 0.5))
    assert halfway.features.n_bins == round((8 * 16) ** 0.5)
    assert halfway.member["dropout"] == pytest.approx(0.15, abs=1e-3)
    assert halfway.member["input_dropout"] == pytest.approx(0.05, abs=1e-3)
    bits = plan(2_449, "binary").member
    assert (bits["dropout"], bits["input_dropout"]) == pytest.approx((0.3, 0.3), abs=1e-3)


def test_epochs_patience_batch_and_rate():
    def found(n_rows, kind="dense", n_labels=20):
        own = CGMVAEClassifier().plan(DataProfile(n_rows, 100, n_labels, kind))
        training = own.training
        sizes = (training.epochs, training.patience, training.batch_size)
        return *sizes, round(own.member["learning_rate"], 5)

    assert found(200) == (240, 24, 128, 0.004)
    assert found(1_200) == (50, 6, 150, 0.00469)
    assert found(9_000) == (50, 6, 256, 0.008)
    assert found(200, "sparse") == (240, 24, 128, 0.002)
    assert found(1_500, "sparse") == (40, 6, 188, 0.00294)
    assert found(2_400, "sparse") == (25, 5, 300, 0.004)
    assert found(9_000, "sparse") == (20, 4, 512, 0.004)
    assert found(9_000, "sparse", n_labels=1_000) == (30, 6, 256, 0.004)
    assert found(9_000, n_labels=1_000) == found(9_000)
    assert found(45_000, "sparse") == (10, 4, 512, 0.004)


def test_wide_tables_have_fewer_bins_and_sparse_ones_no_components():
    assert [plan(9_000, n_columns=n).features.n_bins for n in (20, 400, 5_000)] == [16, 10, 0]
    assert plan(9_000).features.n_components == 512
    assert plan(9_000, "sparse").features.n_components is None


class TestStorage:
    @staticmethod
    def rows(n_columns=300, share=0.1, lowest=1):
        rng = np.random.default_rng(0)
        shape = (120, n_columns)
        X = (rng.random(shape) < share) * rng.integers(lowest, 4, shape).astype(float)
        return X, (X[:, :4] + rng.random((120, 4)) > 0.9).astype(int)

    @pytest.mark.parametrize("method", [CGMVAEClassifier, BlendClassifier])
    def test_an_array_and_its_sparse_form_give_the_same_model(self, method, tmp_path):
        X, Y = self.rows()
        options = {"random_state": 0}
        small = {"n_members": 2, "epochs": 2}
        if method is CGMVAEClassifier:
            options |= small
        else:
            options["auto_network"] = CGMVAEClassifier(**small)
        models = [method(**options).fit(own, Y) for own in (X, sp.csr_array(X))]
        assert models[0].plan_ == models[1].plan_
        files = [tmp_path / name for name in ("dense.cgmvae", "sparse.cgmvae")]
        for model, file in zip(models, files, strict=True):
            model.save(file)
        expected = models[1].predict_proba(sp.csr_array(X))
        np.testing.assert_allclose(models[0].predict_proba(X), expected, atol=1e-6)
        assert files[0].read_bytes() == files[1].read_bytes()

    @pytest.mark.parametrize(
        "changed", [{"n_columns": 255}, {"share": 0.3}, {"lowest": -3}], ids=str
    )
    def test_other_arrays_are_dense(self, changed):
        X, Y = self.rows(**changed)
        model = CGMVAEClassifier(n_members=1, epochs=1, random_state=0).fit(X, Y)
        assert model.plan_.profile.features == "dense"
