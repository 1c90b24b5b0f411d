"""Model files: what a damaged, newer or strange one is answered with."""

import json
import os
import struct

import numpy as np
import pytest
from safetensors.numpy import load_file

import cgmvae
from cgmvae.data.serialization import read_tensors, write_tensors
from cgmvae.errors import InputError
from cgmvae.methods import BinaryRelevance, persistence


@pytest.fixture(params=["C-GMVAE", "binary relevance"])
def saved(request, fitted, survey, tmp_path):
    """Return a model and the file it was saved to."""
    model = fitted
    if request.param == "binary relevance":
        model = BinaryRelevance(threshold_rule="per-label", random_state=0)
        model.fit(survey.X, survey.Y)
    model.save(tmp_path / "model")
    return model, tmp_path / "model"


def rewrite(path, *, change=None, tensors=None):
    """Write a model file again with another description or other arrays."""
    arrays, description = read_tensors(path)
    if change is not None:
        change(description)
    write_tensors(path, arrays | (tensors or {}), description)


def test_the_safetensors_library_reads_it(saved):
    model, path = saved
    arrays = load_file(path)
    np.testing.assert_array_equal(arrays["shared.scale"], model.scaler_.scale_)
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    places = [entry["data_offsets"] for name, entry in header.items() if name != "__metadata__"]
    # The header is text, and what follows it is these arrays and nothing else.
    assert content[8 : 8 + length].isascii()
    assert max(end for _, end in places) == sum(array.nbytes for array in arrays.values())
    assert len(content) == 8 + length + sum(array.nbytes for array in arrays.values())


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


def test_a_file_that_does_not_know_its_origin(saved):
    _, path = saved
    rewrite(path, change=lambda description: description.pop("origin"))
    assert cgmvae.load(path).origin_ is None
    rewrite(path, change=lambda description: description.update(origin=[1]))
    with pytest.raises(InputError, match="origin is not a record"):
        cgmvae.load(path)


def test_a_file_of_a_newer_version(saved):
    _, path = saved

    def newer(description):
        description |= {"format": persistence.FORMAT_VERSION + 1, "library": "9.9"}

    rewrite(path, change=newer)
    with pytest.raises(InputError, match=r"newer version \(9\.9\)"):
        cgmvae.load(path)


@pytest.mark.parametrize("name", ["SomethingElse", "object", None, ["BinaryRelevance"], {}])
def test_an_unknown_class(saved, name):
    _, path = saved
    rewrite(path, change=lambda description: description.update({"class": name}))
    with pytest.raises(InputError, match="not known here"):
        cgmvae.load(path)


def test_what_is_no_model(saved, tmp_path):
    _, path = saved
    rewrite(path, change=lambda description: description.pop("kind"))
    with pytest.raises(InputError, match="not a model"):
        cgmvae.load(path)
    with pytest.raises(InputError):
        cgmvae.load(tmp_path / "nowhere")
    for content in (b"", b"\x80\x04K\x01.", b"{}" * 100):
        path.write_bytes(content)
        with pytest.raises(InputError):
            cgmvae.load(path)


def test_a_truncated_file(saved):
    _, path = saved
    content = path.read_bytes()
    for length in np.linspace(0, len(content) - 1, 25).astype(int):
        path.write_bytes(content[:length])
        with pytest.raises(InputError):
            cgmvae.load(path)


def test_arrays_that_are_missing_or_of_another_shape(saved):
    model, path = saved
    arrays, description = read_tensors(path)
    needed = [name for name in arrays if "history" not in name and "best_value" not in name]
    assert len(needed) >= 6
    for name in needed:
        array = arrays[name]
        longer = np.concatenate([array, array[:1]])
        higher = array[..., None].repeat(2, -1)
        for wrong in (longer, array[:-1], higher):
            write_tensors(path, arrays | {name: wrong}, description)
            with pytest.raises(InputError, match="damaged"):
                cgmvae.load(path)
        rest = {other: value for other, value in arrays.items() if other != name}
        write_tensors(path, rest, description)
        with pytest.raises(InputError, match="damaged"):
            cgmvae.load(path)
    write_tensors(path, arrays, description)
    assert cgmvae.load(path).label_names_ == tuple(model.label_names_)


ODD_VALUES = [None, 3, -1, 0.5, "owl", [], [1], {}, {"owl": []}, True]


def test_a_description_that_lies(saved):
    """Whatever a field holds, a load either works or says in one sentence why not."""
    _, path = saved
    arrays, description = read_tensors(path)
    text = json.dumps(description)
    places = [(key,) for key in description]
    for key in ("threshold", "fitted", "parameters"):
        places += [(key, inner) for inner in description[key]]
    for inner in description["fitted"].get("member_settings", [{}])[0]:
        places.append(("fitted", "member_settings", 0, inner))
    refused = []
    for place in places:
        for odd in ODD_VALUES:
            broken = json.loads(text)
            target = broken
            for key in place[:-1]:
                target = target[key]
            target[place[-1]] = odd
            write_tensors(path, arrays, broken)
            try:
                cgmvae.load(path)
            except InputError as error:
                refused.append(str(error))
    assert len(refused) > 4 * len(description)
    assert not [message for message in refused if "\n" in message]


def test_a_file_names_no_places_on_this_machine(saved, survey, tmp_path):
    model, path = saved
    _, description = read_tensors(path)
    stored = description["parameters"].keys()
    assert not stored & {"checkpoint", "device", "progress", "n_jobs", "estimator", "random_state"}
    for name in ("checkpoint", "device", "progress", "n_jobs", "estimator"):
        rewrite(path, change=lambda text, name=name: text["parameters"].update({name: "/x"}))
    loaded = cgmvae.load(path)
    np.testing.assert_array_equal(loaded.predict(survey.X), model.predict(survey.X))
    assert getattr(loaded, "checkpoint", None) is None


def test_saving_is_whole_or_not_at_all(saved, monkeypatch):
    model, path = saved
    before = path.read_bytes()

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(InputError, match="No space"):
        model.save(path)
    assert path.read_bytes() == before
    assert [each.name for each in path.parent.iterdir()] == ["model"]


def test_a_parameter_that_no_file_can_hold(tiny, survey, tmp_path):
    model = tiny().fit(survey.X, survey.Y).set_params(threshold_metric=object())
    with pytest.raises(InputError, match="cannot be kept"):
        model.save(tmp_path / "model")


def test_a_loaded_model_keeps_its_history(saved):
    model, path = saved
    loaded = cgmvae.load(path)
    if not hasattr(model, "history_"):
        pytest.skip("this method has none")
    assert loaded.history_.keys() == model.history_.keys()
    for name, series in model.history_.items():
        np.testing.assert_array_equal(loaded.history_[name], series)
    np.testing.assert_array_equal(loaded.best_epoch_, model.best_epoch_)
    np.testing.assert_array_equal(loaded.best_value_, model.best_value_)
    assert loaded.member_settings_ == model.member_settings_
    assert loaded.network_.config == model.network_.config
