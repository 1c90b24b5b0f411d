"""A small fitted model, names that look like markup, and checks of drawn figures."""

import itertools

import numpy as np
import pytest

from cgmvae.data import make_survey
from cgmvae.methods import CGMVAEClassifier

SIZES = {"feature_hidden": (16,), "label_hidden": (16,), "decoder_hidden": (16,), "latent_dim": 4}

#: Names that matplotlib or a browser would interpret as markup.
ODD_NAMES = ("<b>x</b>", "$a$", "a_b", "two\nlines", "R&D")


@pytest.fixture(scope="session")
def fitted():
    """Return a fitted C-GMVAE with two members and its data; tests must not change them."""
    data, _ = make_survey(120, 6, 5, seed=0)
    model = CGMVAEClassifier(
        n_members=2,
        epochs=4,
        batch_size=32,
        learning_rate=1e-2,
        embedding_dim=16,
        network=SIZES,
        device="cpu",
        random_state=0,
    )
    return model.fit(data.X, data), data


@pytest.fixture
def odd_names():
    return ODD_NAMES


@pytest.fixture
def texts_apart():
    """Return a function that checks that texts neither overlap nor leave the figure."""

    def check(figure, texts) -> bool:
        figure.draw_without_rendering()
        boxes = [text.get_window_extent() for text in texts if text.get_text()]
        whole = figure.bbox
        inside = all(
            box.x0 >= whole.x0 - 1
            and box.x1 <= whole.x1 + 1
            and box.y0 >= whole.y0 - 1
            and box.y1 <= whole.y1 + 1
            for box in boxes
        )
        return inside and not any(
            a.x0 < b.x1 - 0.5 and b.x0 < a.x1 - 0.5 and a.y0 < b.y1 - 0.5 and b.y0 < a.y1 - 0.5
            for a, b in itertools.combinations(boxes, 2)
        )

    return check


@pytest.fixture
def points_of():
    """Return a function that returns all scatter points of axes, (n, 2)."""

    def points(ax):
        return np.concatenate([part.get_offsets() for part in ax.collections])

    return points
