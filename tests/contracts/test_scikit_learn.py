"""scikit-learn's own checks over every method, through an adapter."""

from adapter import ADAPTERS
from quick_estimators import NAMES, quick_parameters
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

from cgmvae.methods.packed import PackedClassifier

#: Checks that no method passes, and why.
EXPECTED = {
    "check_sample_weight_equivalence_on_dense_data": (
        "Validation rows are held out row by row, so a repeated row is not a weighted one; see "
        "test_a_row_without_weight_is_not_there and test_a_whole_weight_is_a_repeated_row."
    ),
    "check_sample_weight_equivalence_on_sparse_data": "As on dense data.",
}

#: Checks that networks do not pass on every machine, and why.
EXPECTED_OF_NETWORKS = {
    "check_methods_subset_invariance": (
        "A float32 matrix product of other size rounds differently, beyond the 1e-7 of the check; "
        "see test_rows_are_predicted_independently."
    ),
    "check_methods_sample_order_invariance": "As with subsets.",
}


def expected_failures(estimator):
    return EXPECTED | (EXPECTED_OF_NETWORKS if isinstance(estimator, PackedClassifier) else {})


def adapted(name):
    return ADAPTERS[name](**quick_parameters(ADAPTERS[name], name))


@parametrize_with_checks(
    [adapted(name) for name in NAMES], expected_failed_checks=expected_failures
)
def test_scikit_learn(estimator, check):
    check(estimator)


def test_what_is_expected_to_fail_is_a_check(name):
    estimator = adapted(name)
    checks = {
        getattr(check, "func", check).__name__ for _, check in estimator_checks_generator(estimator)
    }
    assert expected_failures(estimator).keys() <= checks
