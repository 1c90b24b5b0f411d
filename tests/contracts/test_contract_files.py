"""Model files of every method: exact round trips, and safe handling of untrusted files."""

import contextlib
import copy
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from quick_estimators import NAMES, fitted_on, quick, rows_of

import cgmvae
from cgmvae.data import make_survey
from cgmvae.data.serialization import read_tensors, write_tensors
from cgmvae.errors import InputError
from cgmvae.methods.model_file import kept_rows, model_state
from cgmvae.methods.registry import REGISTRY, method_name

#: What a load may take beyond the model, where a description asks for a thousand times as much.
SPARE_MEMORY = 200 * 2**20


class Files(dict):
    """Arrays and descriptions by name, which hypothesis need not print."""

    def __repr__(self):
        return f"<{len(self)} model files>"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Return a file of each method: of dense rows, and of sparse ones with unknown labels."""
    folder = tmp_path_factory.mktemp("models")
    for name in NAMES:
        fitted_on(name, "survey").save(folder / name)
        fitted_on(name, "sparse").save(folder / f"{name} sparse")
    return Files({path.name: read_tensors(path) for path in folder.iterdir()})


def test_sparse_rows_unknown_labels_and_origin_are_restored(name, tmp_path):
    X, _ = rows_of("sparse")
    model = copy.copy(fitted_on(name, "sparse"))
    model.origin_ = {"data": {"source": "birds.csv", "rows": 120}, "split": None}
    model.save(tmp_path / "model")
    loaded = cgmvae.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    assert loaded.label_sets(X) == model.label_sets(X)
    assert loaded.origin_ == model.origin_


def test_a_file_has_arrays_of_the_training_rows_only_where_the_registry_says_so(name):
    """The number of rows is a prime that no size of a network has; CSR arrays have one end more."""
    data, _ = make_survey(113, 6, 5, seed=0)
    model = quick(name).fit(data.X, data.Y)
    n_rows = kept_rows(model)
    n_learned = model.plan_.profile.n_rows
    arrays, _ = model_state(model)
    of_rows = [key for key, array in arrays.items() if {n_learned, n_learned + 1} & {*array.shape}]
    assert bool(of_rows) == (n_rows > 0) or name == "HARAM", of_rows  # its boxes are groups of rows
    assert n_rows in (0, n_learned)
    if not REGISTRY[method_name(model)].keeps_rows:
        assert n_rows == 0


def load_and_predict(path: Path) -> None:
    """Load a model, and predict with it where it can be loaded; raise nothing but InputError."""
    refusal = ""
    try:
        model = cgmvae.load(path)
    except InputError as error:
        refusal = str(error).replace(str(path), "")
    assert refusal.isprintable()
    assert len(refusal) < 400
    if refusal:
        return
    rows = np.zeros((3, 6), np.float32)
    with np.errstate(all="ignore"), contextlib.suppress(InputError):
        assert model.predict(rows).shape == (3, 5)
        assert model.predict(sp.csr_array(rows)).shape == (3, 5)


def places(value, before=()):
    """Return the path to each value inside a description, as keys and indices."""
    inside = value.items() if isinstance(value, dict) else enumerate(value[:3])
    found = []
    for key, inner in inside:
        found.append((*before, key))
        found += places(inner, (*before, key)) if isinstance(inner, dict | list) else []
    return found


ODD = st.sampled_from(
    [
        *(None, True, 0, 3, -1, 0.5, 2**31, 2**70, float("nan"), float("inf")),
        *("owl", "\x1b[31m\n" * 99, [], [1], [[]] * 3, {}, {"owl": []}),
    ]
)


@settings(max_examples=50)
@given(data=st.data())
def test_an_inconsistent_description_is_rejected(files, tmp_path_factory, data):
    arrays, description = files[data.draw(st.sampled_from(sorted(files)))]
    description = json.loads(json.dumps(description))
    *before, last = data.draw(st.sampled_from(places(description)))
    target = description
    for key in before:
        target = target[key]
    if data.draw(st.booleans()):
        target[last] = data.draw(ODD)
    else:
        del target[last]
    path = tmp_path_factory.mktemp("lies") / "model"
    write_tensors(path, arrays, description)
    load_and_predict(path)


CHANGES = {
    "shorter": lambda array, odd, place: array[:-1],
    "longer": lambda array, odd, place: np.concatenate([array, array[:1]]),
    "higher": lambda array, odd, place: array[..., None],
    "empty": lambda array, odd, place: array[:0],
    "f2": lambda array, odd, place: array.astype("f2"),
    "i1": lambda array, odd, place: array.astype("i1"),
    "f8": lambda array, odd, place: array.astype("f8"),
    "number": lambda array, odd, place: np.where(
        np.arange(array.size).reshape(array.shape) == int(place * array.size),
        np.array(odd).astype(array.dtype),
        array,
    ),
}


@settings(max_examples=50)
@given(
    share=st.floats(0, 1, exclude_max=True),
    place=st.floats(0, 1, exclude_max=True),
    how=st.sampled_from([*CHANGES, "number", "number"]),
    odd=st.sampled_from([-1, 7, 2**31, 2**40, -(2**62), np.nan, np.inf]),
    which=st.integers(0, 2 * len(NAMES) - 1),
)
def test_inconsistent_arrays_are_rejected(files, tmp_path_factory, share, place, how, odd, which):
    """An index outside an array would crash the process instead of raising."""
    arrays, description = files[sorted(files)[which]]
    name = sorted(arrays)[int(share * len(arrays))]
    with np.errstate(all="ignore"):
        changed = CHANGES[how](arrays[name], odd, place)
    path = tmp_path_factory.mktemp("lies") / "model"
    write_tensors(path, arrays | {name: changed}, description)
    load_and_predict(path)


def peak_memory() -> int:
    """Return the most memory that the process has held since the last call, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    held = next(line for line in lines if line.startswith("VmHWM"))
    Path("/proc/self/clear_refs").write_text("5")
    return int(held.split()[1]) * 1024


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_huge_network_is_never_built(name, files, tmp_path):
    """Each size of the network is made huge: weights of gigabytes, or a million layers."""
    arrays, description = files[name]
    network = description["fitted"].get("network", {})
    sizes = [key for key, value in network.items() if type(value) is int]
    if not sizes:
        pytest.skip("this method has no network")
    refused = []
    peak_memory()
    before = peak_memory()
    for size in sizes:
        for huge in (30_000, 2**16, 10**6, 2**40):
            lie = description | {"fitted": description["fitted"] | {"network": {**network}}}
            lie["fitted"]["network"][size] = huge
            write_tensors(tmp_path / "model", arrays, lie)
            try:
                cgmvae.load(tmp_path / "model")
            except InputError as error:
                refused.append(str(error))
    assert len(refused) >= 2 * len(sizes)
    assert peak_memory() < before + SPARE_MEMORY


def test_more_members_than_weights_are_rejected(name, files, tmp_path):
    arrays, description = files[name]
    if "fitted.best_epoch" not in arrays:
        pytest.skip("this method has no members")
    fitted = description["fitted"]
    many = fitted | {"member_settings": fitted["member_settings"][:1] * 2_000}
    write_tensors(tmp_path / "model", arrays, description | {"fitted": many})
    with pytest.raises(InputError, match="damaged"):
        cgmvae.load(tmp_path / "model")
