"""Models to serve, in-process clients, and a real server on the loopback interface."""

import copy
import threading
import time
from contextlib import contextmanager
from dataclasses import replace

import httpx
import numpy as np
import pandas as pd
import pytest
from starlette.testclient import TestClient

import cgmvae
from cgmvae.data import make_survey
from cgmvae.data.columns import as_columns
from cgmvae.serving import server
from cgmvae.serving.app import make_app
from cgmvae.serving.config import ServingConfig

LABELS = ("a/b", "50% ?x=1&y", "..", "日本 😀", '<script>alert("x")</script>\n')
FEATURES = ("height (m)", "%sand", "α", "f,e", "line\nbreak", "rows")

SMALL = {"feature_hidden": (8,), "label_hidden": (8,), "decoder_hidden": (8,), "latent_dim": 4}


@pytest.fixture(scope="session")
def sites():
    """Return 250 rows whose column and label names are difficult in HTTP and HTML."""
    survey, _ = make_survey(250, len(FEATURES), len(LABELS), seed=0)
    return replace(survey, label_names=LABELS, feature_names=FEATURES)


@pytest.fixture(scope="session")
def network(sites):
    """Return a small C-GMVAE without column names."""
    model = cgmvae.CGMVAEClassifier(
        epochs=2, embedding_dim=8, n_members=2, network=SMALL, random_state=0
    )
    return model.fit(sites.X, pd.DataFrame(sites.Y, columns=LABELS))


@pytest.fixture(scope="session")
def plain(sites):
    """Return a model of another method without column names."""
    model = cgmvae.BinaryRelevance(random_state=0)
    return model.fit(sites.X, pd.DataFrame(sites.Y, columns=LABELS))


@pytest.fixture(scope="session")
def blend(sites):
    """Return a small blend without column names."""
    network = cgmvae.CGMVAEClassifier(epochs=2, embedding_dim=8, n_members=4, network=SMALL)
    model = cgmvae.BlendClassifier(auto_network=network, random_state=0)
    return model.fit(sites.X, pd.DataFrame(sites.Y, columns=LABELS))


@pytest.fixture
def named(network):
    """Return the network with column names."""
    return with_names(network)


def with_names(model):
    named = copy.copy(model)
    named.input_names_ = FEATURES
    return named


@pytest.fixture(scope="session")
def mixed_table():
    """Return one column of each type, by name."""
    rng = np.random.default_rng(0)
    words = ["owl", "hawk", "tree", "lake", "river", "stone"]
    return {
        "depth": rng.normal(size=250).astype(np.float32).tolist(),
        "habitat": rng.choice(["wetland", "forest", "field"], 250).tolist(),
        "day": [f"2024-{1 + i % 12:02d}-{1 + i % 28:02d}" for i in range(250)],
        "notes": [" ".join(rng.choice(words, 6)) for _ in range(250)],
    }


@pytest.fixture(scope="session")
def mixed(mixed_table):
    """Return a model of numbers, categories, dates and text."""
    wet = [habitat == "wetland" for habitat in mixed_table["habitat"]]
    owls = ["owl" in notes for notes in mixed_table["notes"]]
    model = cgmvae.BinaryRelevance(random_state=0)
    return model.fit(as_columns(mixed_table), np.column_stack([wet, owls]).astype(int))


@pytest.fixture
def client():
    """Return a function that makes an in-process client of a model."""
    return lambda model, **limits: TestClient(make_app(model, ServingConfig(**limits)))


@pytest.fixture
def running():
    """Serve a model on the loopback interface in a context; yield a client and the server."""

    @contextmanager
    def serve(model, listening=None, **limits):
        config = ServingConfig(**limits)
        listening = listening or server.bind("127.0.0.1", 0)
        running = server.Server(make_app(model, config), config)
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            with httpx.Client(base_url=server.address(listening), timeout=60) as client:
                while not running.started:
                    time.sleep(0.01)
                yield client, running
        finally:
            running.should_exit = True
            thread.join()

    return serve


class Gated:
    """Makes calls of a model wait until a gate is open, and records their numbers of rows."""

    def __init__(self, model):
        self.open, self.entered, self.sizes = threading.Event(), threading.Event(), []
        self.model = with_names(model)
        self.model.predict_proba = self._scored
        self._model = model

    def _scored(self, X):
        self.sizes.append(len(X))
        self.entered.set()
        assert self.open.wait(60)
        return self._model.predict_proba(X)


@pytest.fixture
def gated(network):
    """Return the network behind a closed gate, which is opened at the end of the test."""
    gate = Gated(network)
    yield gate
    gate.open.set()
