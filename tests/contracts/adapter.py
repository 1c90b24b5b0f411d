"""Adapters that let scikit-learn's generic checks run on the estimators.

The checks hand over one column ``y`` with any two classes; ours take a table of 0/1 labels. An
adapter turns the one into the other and predictions back, and predicts at the threshold 0.5 that
the checks suppose. All else is the method itself: the two are one object's state seen as two
classes.
"""

from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import assert_all_finite

from cgmvae.evaluation.thresholds import GlobalThreshold
from cgmvae.methods import METHODS, MultiLabelClassifier


class OneColumn:
    """Mixin before a ``method``: ``y`` may be one column or a table."""

    method: type[MultiLabelClassifier]

    def fit(self, X, y=None, sample_weight=None):
        classes = _two_classes(y)
        table = y if classes is None else _table(y, classes)
        self._method().fit(X, table, sample_weight=sample_weight)
        self.classes_ = np.array([0, 1]) if classes is None else classes
        self.one_column_ = classes is not None
        self.threshold_rule_ = GlobalThreshold(0.5)
        return self

    def predict(self, X):
        predicted = self._method().predict(X)
        if not self.one_column_:
            return predicted
        if len(self.classes_) == 1:
            assert predicted.all(), "the only class must be predicted"
        return self.classes_[predicted[:, 0] * (len(self.classes_) - 1)]

    def predict_proba(self, X):
        p = self._method().predict_proba(X)
        return np.hstack([1 - p, p]) if self.one_column_ else p

    def decision_function(self, X):
        decision = self._method().decision_function(X)
        return decision[:, 0] if self.one_column_ else decision

    def score(self, X, y, sample_weight=None):
        table = _table(y, self.classes_) if self.one_column_ else y
        return self._method().score(X, table, sample_weight)

    def _method(self) -> Any:
        """Return the method as a view of this object's state."""
        view = object.__new__(self.method)
        view.__dict__ = self.__dict__
        return view

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.single_output = True
        return tags


def _two_classes(y: Any) -> Any:
    """Return the classes of one column; None for a table, or for input that the method rejects."""
    values = np.asarray(y)
    if (
        values.ndim == 0
        or values.size == 0
        or values.shape not in ((len(values),), (len(values), 1))
    ):
        return None
    assert_all_finite(values, input_name="y")
    check_classification_targets(values)
    classes = np.unique(values)
    if len(classes) > 2:
        raise ValueError(
            "Only binary classification is supported. The type of the target is multiclass."
        )
    return classes


def _table(y: Any, classes: Any) -> Any:
    return (np.asarray(y).ravel() == classes[-1]).astype(int)[:, None]


def _adapt(method: type[MultiLabelClassifier]) -> type[MultiLabelClassifier]:
    body = {"method": method, "__module__": __name__}
    return type(f"OneColumn{method.__name__}", (OneColumn, method), body)


#: An adapter for each method, by the method's name.
ADAPTERS = {name: _adapt(method) for name, method in METHODS.items()}
globals().update({adapter.__name__: adapter for adapter in ADAPTERS.values()})  # for pickle
