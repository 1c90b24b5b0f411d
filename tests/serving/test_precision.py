"""Python, files, memory-mapped rows, the server and ONNX give a row the same probabilities.

The columns are hard to round: Unix seconds whose steps float32 cannot represent, and numbers far
beyond the training values.
"""

import numpy as np
import onnxruntime
import pytest

import cgmvae
from cgmvae.data import MultiLabelDataset, read, streaming
from cgmvae.data.readers import table
from cgmvae.serving.onnx_export import export_onnx

from .conftest import SMALL

NAMES = ("seconds", "offset", "depth")


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    return np.column_stack(
        [
            1.7e9 + rng.integers(0, 60, 240),
            1e9 + rng.normal(size=240) / 10,
            rng.normal(size=240),
        ]
    )


@pytest.fixture(scope="module", params=["network", "linear"])
def model(rows, request):
    Y = (rows > np.median(rows, axis=0)).astype(int)
    linear = cgmvae.BinaryRelevance(random_state=0)
    network = cgmvae.CGMVAEClassifier(
        epochs=3, n_members=2, network=SMALL, embedding_dim=8, random_state=0
    )
    return (network if request.param == "network" else linear).fit(rows, Y)


@pytest.fixture(scope="module")
def data(rows):
    asked = np.vstack([rows[:60], [[1.7e9, 1e9, 1e30], [1.7e9, -1e30, 0]]])
    return MultiLabelDataset(asked, np.zeros((len(asked), 3), int), feature_names=NAMES)


def from_csv(model, data, folder, client):
    table.write_csv(data, folder / "a.csv")
    return model.predict_proba(read(folder / "a.csv", label_count=-3).X)


def from_mapped_rows(model, data, folder, client):
    table.write_csv(data, folder / "a.csv")
    options = {"labels": data.label_names}
    mapped = streaming.unpack(folder / "a.csv", folder / "mapped", **options)
    return model.predict_proba(mapped.X)


def from_server(model, data, folder, client):
    sent = {"rows": data.X.tolist()}
    found = client(model).post("/predict?probabilities=true", json=sent).json()["predictions"]
    return np.array([list(row["probabilities"].values()) for row in found])


def from_onnx(model, data, folder, client):
    export_onnx(model, folder / "a.onnx")
    session = onnxruntime.InferenceSession(folder / "a.onnx", providers=["CPUExecutionProvider"])
    return session.run(["probabilities"], {"features": data.X})[0]


@pytest.mark.parametrize("way", [from_csv, from_mapped_rows, from_server, from_onnx])
def test_probabilities_are_those_of_python(model, data, tmp_path, client, way):
    expected = model.predict_proba(data.X)
    assert np.isfinite(expected).all()
    assert np.ptp(expected[:60], axis=0).max() > 0.01
    np.testing.assert_allclose(way(model, data, tmp_path, client), expected, rtol=0, atol=1e-6)
