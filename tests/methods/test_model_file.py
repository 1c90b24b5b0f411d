"""Model files: round trips, and clear errors for damaged, newer or unknown files."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from safetensors.numpy import load_file

import cgmvae
from cgmvae.data import make_survey
from cgmvae.data.columns import as_columns
from cgmvae.data.serialization import read_tensors, write_tensors
from cgmvae.declared import as_declared
from cgmvae.errors import InputError
from cgmvae.evaluation.thresholds import GlobalThreshold
from cgmvae.methods import BinaryRelevance, model_file
from cgmvae.methods.model_file import plain
from cgmvae.methods.out_of_fold import FewRowsWarning
from cgmvae.preparation import FeaturePreparation
from cgmvae.preparation.pipeline import describe_columns, restore_columns


@pytest.fixture(params=["C-GMVAE", "binary relevance"])
def saved(request, fitted, survey, tmp_path):
    """Return a model and the file it was saved to."""
    model = fitted
    if request.param == "binary relevance":
        model = BinaryRelevance(threshold_rule="per-label", random_state=0)
        model.fit(survey.X, survey.Y)
    model.save(tmp_path / "model")
    return model, tmp_path / "model"


def rewrite(path, change):
    """Write a model file again with a changed description."""
    arrays, description = read_tensors(path)
    change(description)
    write_tensors(path, arrays, description)


def test_the_safetensors_library_reads_a_model(saved):
    model, path = saved
    arrays = load_file(path)
    np.testing.assert_array_equal(arrays["shared.scale"], model.pipeline_.scaler.scale_)
    assert any(name.startswith("fitted.") for name in arrays)


def test_the_origin_is_kept_until_the_next_fit(saved, survey):
    model, path = saved
    assert cgmvae.load(path).origin_ is None
    model.origin_ = {"data": {"source": "birds.csv"}, "split": None, "seconds": 1.5}
    model.save(path)
    kept, model.origin_ = model.origin_, None
    loaded = cgmvae.load(path)
    assert loaded.origin_ == kept
    if isinstance(loaded, BinaryRelevance):
        assert loaded.fit(survey.X, survey.Y).origin_ is None


def test_an_origin_is_an_object(saved):
    _, path = saved
    rewrite(path, lambda description: description.update(origin=[1]))
    with pytest.raises(InputError, match="origin is not a JSON object"):
        cgmvae.load(path)


def test_a_file_of_a_newer_version(saved):
    _, path = saved
    newer = {"format": model_file.FORMAT_VERSION + 1, "library": "9.9"}
    rewrite(path, lambda description: description.update(newer))
    with pytest.raises(InputError, match=r"newer version of cgmvae \(9\.9\)"):
        cgmvae.load(path)


@pytest.mark.parametrize("name", ["SomethingElse", None, ["BinaryRelevance"]])
def test_an_unknown_class(saved, name):
    _, path = saved
    rewrite(path, lambda description: description.update({"class": name}))
    with pytest.raises(InputError, match="is unknown to this version"):
        cgmvae.load(path)


def test_a_file_that_is_not_a_model(saved, tmp_path):
    _, path = saved
    content = path.read_bytes()
    rewrite(path, lambda description: description.pop("kind"))
    with pytest.raises(InputError, match="not a model"):
        cgmvae.load(path)
    with pytest.raises(InputError):
        cgmvae.load(tmp_path / "nowhere")
    for wrong in (b"", b"\x80\x04K\x01.", b"{}" * 100, content[:7], content[:100], content[:-1]):
        path.write_bytes(wrong)
        with pytest.raises(InputError):
            cgmvae.load(path)


def test_missing_arrays_and_wrong_shapes(saved):
    model, path = saved
    arrays, description = read_tensors(path)
    needed = [name for name in arrays if "history" not in name and "best_value" not in name]
    assert len(needed) >= 6
    for name in needed:
        array = arrays[name]
        rest = {other: value for other, value in arrays.items() if other != name}
        higher = array[..., None].repeat(2, -1)
        for wrong in ({name: array[:-1]}, {name: higher}, {}):
            write_tensors(path, rest | wrong, description)
            with pytest.raises(InputError, match="damaged"):
                cgmvae.load(path)
    write_tensors(path, arrays, description)
    assert cgmvae.load(path).label_names_ == tuple(model.label_names_)


def test_contents_that_cannot_be_right(saved):
    _, path = saved
    arrays, description = read_tensors(path)
    names = description["label_names"]
    wrong = [
        ({}, {"label_names": [names[0], *names[:-1]]}, "two labels have the same name"),
        ({"shared.scale": arrays["shared.scale"] * np.inf}, {}, "scaling is not finite"),
    ]
    weights = next(name for name in arrays if name.startswith("fitted."))
    wrong.append(({weights: arrays[weights] * np.nan}, {}, "contains NaN or infinity"))
    for threshold in (5.0, -0.1, float("nan")):
        rule = {"rule": "global", "threshold": threshold}
        wrong.append(({}, {"threshold": rule}, "thresholds are not between 0 and 1"))
        own = {"shared.thresholds": np.full(len(names), threshold)}
        wrong.append((own, {"threshold": {"rule": "per-label"}}, "thresholds are not between"))
    for some, others, message in wrong:
        write_tensors(path, arrays | some, description | others)
        with pytest.raises(InputError, match=f"is damaged .*{message}"):
            cgmvae.load(path)


def test_a_threshold_that_no_file_can_hold(saved):
    model, path = saved
    learned, model.threshold_rule_ = model.threshold_rule_, GlobalThreshold(1.5)
    try:
        with pytest.raises(InputError, match="cannot be saved: its thresholds are not between"):
            model.save(path)
    finally:
        model.threshold_rule_ = learned


@pytest.mark.parametrize("number", range(1, model_file.FORMAT_VERSION + 1))
def test_files_of_every_format_stay_readable(number):
    model = cgmvae.load(Path(__file__).parent / "stored_models" / f"format_{number}.cgmvae")
    for part in (model.calibration_, model.pipeline_.columns, model.plan_.network):
        assert part is not None
    found = model.predict_proba(model.origin_["X"])
    np.testing.assert_allclose(found, model.origin_["probabilities"], rtol=0, atol=1e-5)


def test_a_file_contains_nothing_about_the_machine(saved, survey):
    model, path = saved
    _, description = read_tensors(path)
    excluded = {"checkpoint", "device", "progress", "n_jobs", "estimator", "random_state"}
    assert not description["parameters"].keys() & excluded
    rewrite(path, lambda text: text["parameters"].update(dict.fromkeys(excluded, "/x")))
    loaded = cgmvae.load(path)
    np.testing.assert_array_equal(loaded.predict(survey.X), model.predict(survey.X))
    assert getattr(loaded, "checkpoint", None) is None


def test_saving_is_atomic(saved, monkeypatch):
    model, path = saved
    before = path.read_bytes()

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(InputError, match="No space"):
        model.save(path)
    assert path.read_bytes() == before
    assert [each.name for each in path.parent.iterdir()] == ["model"]


def test_a_parameter_that_json_cannot_represent(survey, tmp_path):
    model = BinaryRelevance().fit(survey.X, survey.Y).set_params(threshold_metric=object())
    with pytest.raises(InputError, match="cannot be stored in a model file"):
        model.save(tmp_path / "model")


def test_a_loaded_model_keeps_its_history(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    loaded = cgmvae.load(tmp_path / "model")
    assert loaded.history_.keys() == fitted.history_.keys()
    for name, series in fitted.history_.items():
        np.testing.assert_array_equal(loaded.history_[name], series)
    np.testing.assert_array_equal(loaded.best_epoch_, fitted.best_epoch_)
    np.testing.assert_array_equal(loaded.best_value_, fitted.best_value_)
    assert loaded.member_settings_ == fitted.member_settings_
    assert loaded.network_.config == fitted.network_.config


@dataclass
class Record:
    whole: int = 1
    number: float = 1.0
    switch: bool = False
    name: str = ""
    choice: Literal["a", "b"] = "a"
    maybe: int | None = None
    sizes: tuple[int, ...] = ()
    perhaps: tuple[int, ...] | None = None
    pairs: Any = None
    settings: Mapping[str, Any] | None = None
    members: Sequence[Mapping[str, float]] | None = None
    made_: int = field(default=0, init=False)


GOOD = {
    "whole": [2, np.int64(2)],
    "number": [0, 0.5, float("inf")],
    "switch": [True, np.bool_(False)],
    "name": ["", "owl"],
    "choice": ["b"],
    "maybe": [None, 3],
    "sizes": [(), (1, 2)],
    "perhaps": [None, (3,)],
    "pairs": [None, [("a", 1)], {"a": (1, (2,))}, "owl"],
    "settings": [None, {"hidden": (1, 2), "inner": {"deep": ((1,),)}}],
    "members": [None, [], [{"dropout": 0.1}]],
}
BAD = {
    "whole": [None, 2.0, True, 0.5, "1", [1], float("nan"), float("inf")],
    "number": [None, "1", {}],
    "switch": [None, 0, 2, "yes"],
    "name": [None, 3],
    "choice": ["c", None, ["a"]],
    "maybe": ["", 0.5],
    "sizes": [None, 3, ["a"], "ab", [[1]]],
    "perhaps": [3, ["a"]],
    "settings": [[], "owl"],
    "members": [{}, [3], [{"dropout": "owl"}]],
    "made_": [1],
    "other": [1],
    "__class__": ["owl"],
}


class TestDeclaredTypes:
    @pytest.mark.parametrize("name", GOOD)
    def test_declared_values_survive_json(self, name):
        for value in GOOD[name]:
            assert as_declared(Record, {name: plain(value)}) == {name: value}

    @pytest.mark.parametrize("name", BAD)
    def test_undeclared_values_are_rejected(self, name):
        for value in BAD[name]:
            with pytest.raises(ValueError, match="parameter"):
                as_declared(Record, {name: value})

    def test_numpy_scalars_become_python_numbers(self):
        made = plain({"a": np.float32(0.5), 3: (np.int64(2), np.bool_(True)), "c": np.eye(2)})
        assert made == {"a": 0.5, "3": [2, True], "c": [[1.0, 0.0], [0.0, 1.0]]}

    @pytest.mark.parametrize("values", [None, [], "owl"])
    def test_values_must_be_an_object(self, values):
        with pytest.raises(ValueError, match="not a JSON object"):
            as_declared(Record, values)


class TestPreparation:
    @pytest.fixture
    def sites(self):
        return as_columns(
            {
                "depth": [0.5, None, 2.0, 3.0],
                "habitat": ["fen", "bog", "fen", "bog"],
                "day": np.array(["2024-01-01", "2024-05-31", "NaT", "2023-02-01"], "M8[s]"),
                "notes": np.array(["an owl", "a barn owl", "nothing", None], dtype=object),
            },
            {"depth": "number", "habitat": "category", "day": "date", "notes": "text"},
        )

    @pytest.fixture
    def state(self, sites):
        preparation = FeaturePreparation(sites.by_name()).fit(sites)
        return json.loads(json.dumps(describe_columns(preparation)))

    @pytest.mark.parametrize(
        ("column", "field", "value"),
        [
            (0, "gaps", "yes"),
            (1, "categories", ["bog", "bog"]),
            (1, "categories", "bog"),
            (1, "color", 1),
            (2, "parts", ["week"]),
            (2, "parts", []),
            (3, "counts", [1]),
            (3, "n_texts", 0),
        ],
    )
    def test_inconsistent_values_are_rejected(self, state, column, field, value):
        state[column]["learned"][field] = value
        with pytest.raises(ValueError, match=r"\w"):
            restore_columns(state)

    def test_duplicate_names_are_rejected(self, state):
        with pytest.raises(ValueError, match="same name"):
            restore_columns([*state, state[0]])


def test_what_fit_warned_of_is_kept_and_still_shown(tmp_path, rows_are_few):
    data, _ = make_survey(60, 4, 3, n_groups=1, cardinality=1.2, seed=0)
    with pytest.warns(FewRowsWarning, match="Only 60 training rows"):
        model = cgmvae.BinaryRelevance(random_state=0).fit(data.X, data)
    (text,) = model.fit_warnings_
    assert text.startswith("Only 60 training rows")
    model.save(tmp_path / "few.cgmvae")
    assert cgmvae.load(tmp_path / "few.cgmvae").fit_warnings_ == [text]
    again = model.fit(np.tile(data.X, (5, 1)), np.tile(data.Y, (5, 1)))
    assert again.fit_warnings_ == []


@pytest.mark.parametrize(
    ("estimator", "out_of_fold", "n_rows"),
    [
        (cgmvae.BinaryRelevance(random_state=0), False, 30),
        (cgmvae.CGMVAEClassifier(n_members=4, epochs=2, random_state=0), True, 300),
    ],
)
def test_threshold_curves_are_stored(estimator, out_of_fold, n_rows, tmp_path):
    data, _ = make_survey(300, 4, 3, n_groups=1, cardinality=1.2, seed=0)
    model = estimator.fit(data.X, data.Y)
    model.save(tmp_path / "model.cgmvae")
    curve = cgmvae.load(tmp_path / "model.cgmvae").threshold_curve_
    assert (curve.out_of_fold, curve.n_rows) == (out_of_fold, n_rows)
    assert list(curve.values) == list(model.threshold_curve_.values)
    for name, values in model.threshold_curve_.values.items():
        np.testing.assert_array_equal(curve.values[name], values)


def test_a_method_outside_of_the_registry_is_not_saved(survey, tmp_path):
    """No file could say where its class is, not even under the name of another method."""

    class Own(BinaryRelevance):
        pass

    for name in ("Own", "BinaryRelevance"):
        Own.__name__ = name
        with pytest.raises(InputError, match=f"{name} is not in the registry of methods"):
            Own(random_state=0).fit(survey.X, survey.Y).save(tmp_path / "model")
    assert not list(tmp_path.iterdir())
