"""What the networks among the comparison methods do with settings that cannot be."""

import pytest

from cgmvae.errors import InputError
from cgmvae.methods import ASL, CGMVAEClassifier


@pytest.mark.parametrize(
    ("training", "message"),
    [
        ({"schedule": "linear"}, "schedule is 'linear'; choose one of .*cosine"),
        ({"optimizer": "sgd"}, "optimizer is 'sgd'; choose one of adamw, adam"),
        ({"precision": "fp8"}, "precision is 'fp8'"),
        ({"steps": 3}, "training does not fit TrainingConfig: .*'steps'"),
    ],
)
def test_a_plan_that_does_not_exist_is_refused(survey, training, message):
    with pytest.raises(InputError, match=message):
        ASL(training=training).fit(survey.X, survey.Y)


@pytest.mark.parametrize("method", [ASL, CGMVAEClassifier])
@pytest.mark.parametrize("name", ["dropout", "input_dropout"])
@pytest.mark.parametrize("value", [-0.1, 1.0, 1.5, float("nan")])
def test_a_dropout_that_is_no_probability_is_refused(survey, method, name, value):
    for model in (method(**{name: value}), method(members=[{}, {name: value}])):
        with pytest.raises(InputError, match=f"^{name} is {value}; it must be"):
            model.fit(survey.X, survey.Y)
