"""Every method where rows are few: the model as ever, its threshold from all rows, out of fold."""

import numpy as np
import pytest
from quick_estimators import base_behavior, quick

from cgmvae.evaluation import learn_rule
from cgmvae.methods.few_rows import FewRowsWarning, score_out_of_fold


@base_behavior
def test_the_threshold_is_learnt_out_of_fold(name, fitted, survey, rows_are_few, tmp_path):
    model = quick(name)
    if "checkpoint" in model.get_params():
        model.set_params(checkpoint=tmp_path / "state", progress=lambda *_: None)
    with pytest.warns(FewRowsWarning):
        model.fit(survey.X, survey.Y)
    np.testing.assert_array_equal(model.predict_proba(survey.X), fitted.predict_proba(survey.X))
    train, validation, seed = quick(name)._prepare(survey.X, survey.Y, None, None, None)
    rows, scores = score_out_of_fold(model, train, validation, seed)
    assert scores.shape == survey.Y.shape
    assert model.threshold_rule_ == learn_rule(rows.labels, scores)
    np.testing.assert_array_equal(model.predict_proba(survey.X), fitted.predict_proba(survey.X))
