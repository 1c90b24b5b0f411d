"""scikit-learn's own checks, through an adapter.

Two methods run all of them; the others, whose input and parameters are handled by the same base
class, those that depend on a method's own fit and that the contract tests do not have.
"""

import numpy as np
import pytest
from adapter import ADAPTERS
from quick_estimators import LEARNING, NAMES, REPRESENTATIVES, quick_parameters
from sklearn.inspection import partial_dependence, permutation_importance
from sklearn.model_selection import KFold, cross_val_score
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

from cgmvae.data import make_survey
from cgmvae.methods import BinaryRelevance
from cgmvae.methods.neural import NeuralClassifier

#: Checks that no method passes, and why.
EXPECTED = {
    "check_sample_weight_equivalence_on_dense_data": (
        "Validation rows are held out row by row, so a repeated row is not a weighted one; see "
        "test_a_row_of_zero_weight_has_no_influence."
    ),
    "check_sample_weight_equivalence_on_sparse_data": "As on dense data.",
}

#: Checks that networks do not pass, and why.
EXPECTED_OF_NETWORKS = {
    "check_methods_subset_invariance": (
        "A float32 matrix product of other size rounds differently, beyond the 1e-7 of the check; "
        "see test_a_row_is_predicted_alike_wherever_it_is."
    ),
}


def expected_failures(estimator):
    return EXPECTED | (EXPECTED_OF_NETWORKS if isinstance(estimator, NeuralClassifier) else {})


#: Checks of what a method does in its own fit and prediction.
OWN_CHECKS = {
    "check_classifiers_one_label",
    "check_dict_unchanged",
    "check_estimators_dtypes",
    "check_estimators_overwrite_params",
    "check_fit2d_1feature",
    "check_fit2d_1sample",
    "check_parameters_default_constructible",
}


def adapted(name):
    parameters = quick_parameters(ADAPTERS[name], name, **LEARNING.get(name, {}))
    return ADAPTERS[name](**parameters)


def name_of(check):
    return getattr(check, "func", check).__name__


@parametrize_with_checks(
    [adapted(name) for name in REPRESENTATIVES], expected_failed_checks=expected_failures
)
def test_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.parametrize("method", [name for name in NAMES if name not in REPRESENTATIVES])
@pytest.mark.parametrize("check_name", sorted(OWN_CHECKS))
def test_checks_that_depend_on_the_method(method, check_name):
    checks = estimator_checks_generator(adapted(method))
    chosen = [each for each in checks if name_of(each[1]) == check_name]
    assert chosen, f"scikit-learn has no check {check_name}"
    for estimator, check in chosen:
        check(estimator)


def test_unknown_labels_in_cross_validation():
    data, _ = make_survey(240, 6, 5, seed=0)
    Y = np.where(np.random.default_rng(0).random(data.Y.shape) < 0.2, np.nan, data.Y)
    scores = cross_val_score(BinaryRelevance(random_state=0), data.X, Y, cv=KFold(3))
    assert scores.min() > 0.7
    masked = np.ma.masked_invalid(Y)
    same = cross_val_score(BinaryRelevance(random_state=0), data.X, masked, cv=KFold(3))
    np.testing.assert_array_equal(same, scores)


@pytest.mark.parametrize("n_labels", [1, 2, 4])
def test_partial_dependence_and_permutation_importance(n_labels):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(250, 3))
    Y = (X[:, [1]] + 0.3 * rng.normal(size=(250, n_labels)) > 0).astype(int)
    model = BinaryRelevance(random_state=0).fit(X, Y)
    found = partial_dependence(model, X, [1], grid_resolution=5)
    (grid,) = found["grid_values"]
    for place, value in enumerate(grid):
        moved = X.copy()
        moved[:, 1] = value
        expected = model.predict_proba(moved).mean(0)
        np.testing.assert_allclose(found["average"][:, place], expected)
    importance = permutation_importance(model, X, Y, n_repeats=3, random_state=0).importances_mean
    assert importance.argmax() == 1
    assert importance[1] > 0.1
