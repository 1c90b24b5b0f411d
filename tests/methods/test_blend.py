"""The blend: which experts are fitted on what, how they are combined, and what is stored."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit, logit
from sklearn.base import BaseEstimator
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier

import cgmvae
from cgmvae.data import make_survey
from cgmvae.data.serialization import read_tensors, write_tensors
from cgmvae.errors import InputError
from cgmvae.methods import (
    BinaryRelevance,
    BlendClassifier,
    CGMVAEClassifier,
    MixedForest,
    MLkNN,
    NearestVotes,
    combination,
)
from cgmvae.methods.blend import _probabilities, default_experts
from cgmvae.methods.inputs import Rows
from cgmvae.methods.predictor import PreparedFeatures

WIDTHS = dict.fromkeys(("feature_hidden", "label_hidden", "decoder_hidden"), (8,))


def network(**changes):
    own = {"epochs": 2, "embedding_dim": 8, "n_members": 4, "device": "cpu", "network": WIDTHS}
    return CGMVAEClassifier(**own | changes)


def trees():
    return MixedForest(n_trees=20)


@pytest.fixture(scope="module")
def data():
    return make_survey(260, 6, 5, seed=2)[0]


@pytest.fixture(scope="module")
def fitted(data):
    experts = [("network", network()), ("trees", trees()), ("votes", NearestVotes())]
    return BlendClassifier(experts, random_state=0).fit(data.X, data.Y)


class TestBlending:
    def test_probabilities_are_the_weighted_sum_of_log_odds(self, fitted, data):
        odds = fitted.combination_.shifts.copy()
        scaled = fitted.inputs(data.X)
        for model, weight in zip(fitted.models_.values(), fitted.combination_.weights, strict=True):
            odds = odds + weight * logit(model.predict_proba(scaled).astype(float))
        np.testing.assert_allclose(fitted.predict_proba(data.X), expit(odds), atol=1e-6)

    def test_equal_preparation_is_done_once(self, tmp_path, monkeypatch):
        monkeypatch.setattr(combination, "MIN_GAIN", -np.inf)  # no expert is dropped
        data = make_survey(200, 20, 5, seed=4)[0]
        experts = [("network", network()), ("votes", NearestVotes()), ("trees", trees())]
        experts.append(("fewer", NearestVotes(principal_components=3)))
        model = BlendClassifier(experts, random_state=0).fit(data.X, data.Y)
        model.save(tmp_path / "model.cgmvae")
        applied = []
        original = PreparedFeatures.forward
        monkeypatch.setattr(
            PreparedFeatures,
            "forward",
            lambda self, rows: (applied.append(len(self.mean)), original(self, rows))[1],
        )
        for each in (model, cgmvae.load(tmp_path / "model.cgmvae")):
            columns = {name: own.pipeline_.n_columns for name, own in each.models_.items()}
            assert columns["network"] == columns["votes"] == 64
            found = each.models_
            assert list(found) == [name for name, _ in experts]
            assert found["network"].pipeline_ is found["votes"].pipeline_
            assert len({id(own.pipeline_) for own in found.values()}) == len(found) - 1
            scaled, applied[:] = each.inputs(data.X), []
            alone = [own.predict_proba(scaled) for own in found.values()]
            n_alone, applied[:] = len(applied), []
            expected = each.combination_.apply(alone)
            np.testing.assert_allclose(each.predict_proba(data.X), expected, atol=1e-6)
            assert len(applied) == n_alone - 1

    def test_every_expert_is_listed_with_its_weight(self, fitted):
        assert [expert.name for expert in fitted.experts_] == ["network", "trees", "votes"]
        kinds = [expert.kind for expert in fitted.experts_]
        assert kinds == ["C-GMVAE", "mixed forest", "votes of near rows"]
        used = {name: weight for name, weight in fitted.weights_.items() if name in fitted.models_}
        assert list(used.values()) == fitted.combination_.weights.tolist()
        assert all(0 < expert.score < 1 for expert in fitted.experts_)

    def test_an_expert_that_does_not_help_is_dropped_and_not_stored(self, data, tmp_path):
        noise = DummyClassifier(strategy="stratified", random_state=0)
        model = BlendClassifier([("trees", trees()), ("noise", noise)], random_state=0)
        model.fit(data.X, data.Y)
        assert list(model.models_) == ["trees"]
        assert model.weights_["noise"] == 0
        model.save(tmp_path / "m")
        loaded = cgmvae.load(tmp_path / "m")
        assert loaded.experts_ == model.experts_
        np.testing.assert_array_equal(loaded.predict_proba(data.X), model.predict_proba(data.X))

    def test_rows_are_those_that_all_experts_score(self, data):
        """A single member leaves out one fold of ten, and scores it."""
        experts = [("network", network(n_members=1)), ("trees", trees())]
        model = BlendClassifier(experts, random_state=0).fit(data.X, data.Y)
        assert len(model.oof_rows_) == 26
        np.testing.assert_array_equal(model.oof_rows_, model.models_["network"].oof_rows_)

    def test_labels_of_a_row_do_not_enter_its_own_score(self, rng):
        """Labels are random, so that only their own rows could tell them."""
        X, Y = rng.normal(size=(200, 4)), (rng.random((200, 3)) < 0.5).astype(int)
        experts = [("trees", trees()), ("knn", MLkNN()), ("forest", RandomForestClassifier(20))]
        model = BlendClassifier(experts, random_state=0).fit(X, Y)
        assert all(expert.score < 0.62 for expert in model.experts_)
        assert (((model.oof_proba_ > 0.5) == Y).mean()) < 0.6

    def test_validation_rows_choose_weights_and_thresholds(self, data):
        held = data.X[200:], data.Y[200:]
        experts = [("trees", trees()), ("good", Constant(data.Y[200:].mean(0)))]
        model = BlendClassifier(experts, random_state=0)
        model.fit(data.X[:200], data.Y[:200], validation_data=held)
        assert not hasattr(model, "oof_proba_")
        other = BlendClassifier(experts, random_state=0)
        other.fit(data.X[:200], data.Y[:200], validation_data=(held[0], 1 - held[1]))
        assert np.abs(model.predict_proba(data.X) - other.predict_proba(data.X)).max() > 0.1


class Constant(BaseEstimator):
    """Gives every row the same probabilities."""

    def __init__(self, probabilities):
        self.probabilities = probabilities

    def fit(self, X, Y):
        return self

    def predict_proba(self, X):
        return np.tile(self.probabilities, (X.shape[0], 1))


FOREIGN = {
    "a table": OneVsRestClassifier(LogisticRegression()),
    "one table per label": RandomForestClassifier(20, random_state=0),
    "one model per label": MultiOutputClassifier(LogisticRegression()),
    "decisions": RidgeClassifier(),
}


class TestForeignExperts:
    @pytest.mark.parametrize("form", FOREIGN)
    @pytest.mark.parametrize("sparse", [False, True])
    def test_estimators_of_scikit_learn_are_blended(self, data, form, sparse):
        X = sp.csr_array(data.X) if sparse else data.X
        experts = [("trees", trees()), ("other", FOREIGN[form])]
        model = BlendClassifier(experts, random_state=0).fit(X, data.Y)
        (own,) = (expert for expert in model.experts_ if expert.name == "other")
        assert own.kind == type(FOREIGN[form]).__name__
        assert own.score > 0.7
        assert model.predict_proba(X).shape == data.Y.shape

    @pytest.mark.parametrize("form", FOREIGN)
    def test_their_probabilities(self, data, form):
        """Of a label that is always there, classifiers know one class."""
        Y = data.Y.astype(int)
        Y[:, 1] = form != "one model per label"  # which does not take a single class
        Y[:3, 1] = form == "one model per label"
        model = FOREIGN[form].fit(data.X, Y)
        p = _probabilities(model, data.X, 5)
        assert p.shape == Y.shape
        if hasattr(model, "predict_proba"):
            assert ((p > 0.5) == model.predict(data.X)).mean() > 0.99
        else:
            np.testing.assert_allclose(p, expit(model.decision_function(data.X)))

    def test_one_label(self, data):
        for kind in (LogisticRegression(), RidgeClassifier(), RandomForestClassifier(5)):
            model = kind.fit(data.X, data.Y[:, 0])
            p = _probabilities(model, data.X, 1)
            assert p.shape == (260, 1)
            assert ((p[:, 0] > 0.5) == model.predict(data.X)).mean() > 0.9

    def test_a_blend_with_one_is_not_saved(self, data, tmp_path):
        experts = [("forest", RandomForestClassifier(20))]
        model = BlendClassifier(experts, random_state=0).fit(data.X, data.Y)
        with pytest.raises(InputError, match="'forest' is a RandomForestClassifier, which cannot"):
            model.save(tmp_path / "m")

    def test_unknown_labels_and_weights_are_refused_by_name(self, data):
        Y = np.where(np.arange(5) == np.arange(260)[:, None] % 9, np.nan, data.Y)
        experts = [("forest", RandomForestClassifier(5))]
        with pytest.raises(InputError, match="BinaryRelevance"):
            BlendClassifier(experts).fit(data.X, Y)
        model = BlendClassifier([("constant", Constant(np.full(5, 0.3)))])
        with pytest.raises(InputError, match="Constant does not take sample weights"):
            model.fit(data.X, data.Y, sample_weight=np.ones(260))

    def test_what_gives_no_probabilities_is_refused(self, data):
        class Nothing(Constant):
            predict_proba = property()

        with pytest.raises(InputError, match="neither predict_proba nor decision_function"):
            BlendClassifier([("nothing", Nothing(0))]).fit(data.X, data.Y)
        with pytest.raises(InputError, match="wrap it in OneVsRestClassifier"):
            BlendClassifier([("few", Constant(np.zeros(3)))]).fit(data.X, data.Y)


class TestChoiceOfExperts:
    @pytest.mark.parametrize(
        ("sparse", "limit", "expected"),
        [
            (False, 100, ["cgmvae", "trees", "votes"]),
            (False, 99, ["cgmvae", "trees"]),
            (True, 100, ["cgmvae", "trees", "linear", "votes"]),
        ],
    )
    def test_auto(self, rng, monkeypatch, sparse, limit, expected):
        monkeypatch.setattr("cgmvae.methods.blend.MAX_ROWS", limit)
        X = rng.normal(size=(100, 3))
        rows = Rows(sp.csr_array(X) if sparse else X, np.zeros((100, 2)))
        experts = default_experts(rows, network())
        assert [name for name, _ in experts] == expected

    def test_the_network_of_auto_can_be_given(self, data, tmp_path):
        given = network(preset="released", network=None, latent_dim=3)
        model = BlendClassifier(auto_network=given, random_state=0).fit(data.X, data.Y)
        assert list(model.weights_) == ["cgmvae", "trees", "votes"]
        own = model.cgmvae_
        assert own is not given
        assert (own.preset, own.network_.config.latent_dim, own.scaling) == ("released", 3, "none")
        assert model.get_params()["auto_network__latent_dim"] == 3
        model.save(tmp_path / "m")
        loaded = cgmvae.load(tmp_path / "m")
        assert loaded.auto_network.preset == "released"
        assert loaded.auto_network.latent_dim == 3
        with pytest.raises(InputError, match="put it into the list"):
            BlendClassifier([("trees", trees())], auto_network=given).fit(data.X, data.Y)
        with pytest.raises(InputError, match="is MixedForest; give a CGMVAEClassifier"):
            BlendClassifier(auto_network=trees()).fit(data.X, data.Y)

    def test_without_training_rows(self, data):
        quick = {"auto_network": network(), "keep_training_rows": False}
        model = BlendClassifier(**quick, random_state=0).fit(data.X, data.Y)
        assert list(model.models_) == ["cgmvae"]
        sparse = sp.csr_array(np.where(data.X > 0, data.X, 0))
        model = BlendClassifier(**quick, random_state=0).fit(sparse, data.Y)
        assert list(model.weights_) == ["cgmvae", "linear"]
        experts = [("votes", NearestVotes()), ("forest", RandomForestClassifier(5))]
        experts.append(("logistic", BinaryRelevance()))
        with pytest.raises(InputError, match="'votes', 'forest' may store"):
            BlendClassifier(experts, keep_training_rows=False).fit(data.X, data.Y)

    def test_parameters_of_experts_have_names(self):
        model = BlendClassifier([("trees", trees()), ("votes", NearestVotes())])
        model.set_params(trees__n_trees=7, votes=NearestVotes(n_neighbors=5))
        assert model.experts[0][1].n_trees == 7
        assert model.get_params()["votes__n_neighbors"] == 5

    @pytest.mark.parametrize(
        ("experts", "message"),
        [
            ([], "give at least one"),
            ("all", 'must be "auto" or a list'),
            ([("a", trees()), ("a", trees())], "not unique"),
        ],
    )
    def test_wrong_experts_are_refused(self, data, experts, message):
        with pytest.raises(ValueError, match=message):
            BlendClassifier(experts).fit(data.X, data.Y)

    def test_the_experts_that_were_given_are_not_changed(self, data):
        given = trees()
        BlendClassifier([("trees", given)], random_state=0).fit(data.X, data.Y)
        assert given.random_state is None
        assert not hasattr(given, "forest_")


class TestNetwork:
    def test_similarity_and_uncertainty_are_those_of_the_network(self, fitted, data):
        own = fitted.models_["network"]
        assert fitted.cgmvae_ is own
        np.testing.assert_array_equal(fitted.label_similarity(), own.label_similarity())
        found = fitted.uncertainty(data.X, random_state=0)
        expected = own.uncertainty(fitted.inputs(data.X), random_state=0)
        np.testing.assert_array_equal(found, expected)
        assert len(fitted.nearest_labels("label_0", 2)) == 2

    def test_known_labels_may_be_names(self, data):
        model = BlendClassifier([("network", network()), ("trees", trees())], random_state=0)
        model.fit(data.X, data)
        known = np.where(data.Y[:, :1] == 1, 1.0, np.nan) * np.eye(1, data.Y.shape[1])
        known[:, 1:] = np.nan
        named = [[data.label_names[0]] if row[0] else [] for row in data.Y]
        found, expected = (model.predict_proba(data.X, each) for each in (named, known))
        np.testing.assert_array_equal(found, expected)
        assert (found[data.Y[:, 0] == 1, 0] == 1).all()

    def test_it_is_never_dropped(self, data):
        experts = [("network", network(epochs=1)), ("logistic", BinaryRelevance())]
        model = BlendClassifier(experts, random_state=0).fit(data.X, data.Y)
        assert "network" in model.models_

    def test_without_one_there_is_no_similarity(self, data):
        model = BlendClassifier([("trees", trees())]).fit(data.X, data.Y)
        assert "trees" in model._repr_html_()
        assert model.cgmvae_ is None
        with pytest.raises(InputError, match="None of the experts is C-GMVAE"):
            model.label_similarity()


@pytest.fixture(scope="module")
def twins():
    """Return a blend of labels of which two are the same, whatever the features say."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    Y = (rng.random((400, 3)) < 0.5).astype(float)
    Y[:, 1] = Y[:, 0]
    experts = [("network", network()), ("trees", trees())]
    return BlendClassifier(experts, random_state=0).fit(X, Y), X, Y


class TestLabelSets:
    def test_known_labels_move_the_blended_probabilities(self, twins):
        model, X, Y = twins
        blended, known = model.predict_proba(X), np.full(Y.shape, np.nan)
        np.testing.assert_array_equal(model.predict_proba(X, known), blended)
        known[:, 0] = Y[:, 0]
        p = model.predict_proba(X, known)
        np.testing.assert_array_equal(p[:, 0], Y[:, 0])
        assert np.abs(p[:, 1] - Y[:, 1]).mean() < 0.2
        assert np.abs(p[:, 2] - blended[:, 2]).mean() < 0.1

    def test_its_experts_of_auto_learn_none_of_their_own(self, data):
        assert not BlendClassifier()._unfitted_network().conditional

    def test_label_sets_of_a_loaded_blend(self, twins, tmp_path):
        model, X, _ = twins
        model.save(tmp_path / "m")
        loaded = cgmvae.load(tmp_path / "m")
        found, expected = (m.sample_labels(X, 5, random_state=0) for m in (loaded, model))
        np.testing.assert_array_equal(found, expected)
        for kind in ("observed", "residual", "response"):
            np.testing.assert_array_equal(
                loaded.label_correlation(kind), model.label_correlation(kind)
            )


class TestFiles:
    def test_a_loaded_blend_knows_all_that_the_blend_knew(self, fitted, data, tmp_path):
        fitted.save(tmp_path / "m")
        loaded = cgmvae.load(tmp_path / "m")
        np.testing.assert_array_equal(loaded.predict_proba(data.X), fitted.predict_proba(data.X))
        assert loaded.experts_ == fitted.experts_
        assert [name for name, _ in loaded.experts] == ["network", "trees", "votes"]
        np.testing.assert_array_equal(loaded.label_similarity(), fitted.label_similarity())

    @pytest.mark.parametrize(
        ("name", "change"),
        [
            ("weights", lambda a: a[1:]),
            ("weights", lambda a: a * np.nan),
            ("shifts", lambda a: a[1:]),
            ("experts.1.fitted.leaves.rows", lambda a: a + 99),
            ("experts.1.fitted.forest.threshold", lambda a: a * np.inf),
        ],
    )
    def test_damaged_files_are_refused(self, fitted, tmp_path, name, change):
        fitted.save(tmp_path / "m")
        tensors, description = read_tensors(tmp_path / "m")
        with np.errstate(invalid="ignore"):
            tensors[f"fitted.{name}"] = change(tensors[f"fitted.{name}"])
        write_tensors(tmp_path / "m", tensors, description)
        with pytest.raises(InputError, match="is damaged"):
            cgmvae.load(tmp_path / "m")
