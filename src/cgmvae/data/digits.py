"""Images with several labels: handwritten digits that share a canvas."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: Side of a canvas, and of each of its four cells; a digit has 8 × 8 pixels and moves in its cell.
CANVAS, CELL, DIGIT = 20, 10, 8

#: Every so many images of scikit-learn's 1,797 are for testing.
_TEST_EVERY = 4


def make_digits(
    n_samples: int, *, test: bool = False, seed: int = 0
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Put two to four of scikit-learn's handwritten digits on each canvas.

    Parameters
    ----------
    n_samples : int
        Number of canvases.
    test : bool
        Whether they are made of other images than those of training.
    seed : int
        Seed of digits and positions.

    Returns
    -------
    images : array, (n_samples, 1, 20, 20)
        Between 0 and 1.
    labels : array, (n_samples, 10)
        1 for each digit that is on the canvas.

    Examples
    --------
    >>> images, labels = make_digits(3)
    >>> images.shape, labels.shape
    ((3, 1, 20, 20), (3, 10))
    """
    from sklearn.datasets import load_digits

    source = load_digits()
    usable = np.flatnonzero((np.arange(len(source.target)) % _TEST_EVERY == 0) == test)
    rng = np.random.default_rng([seed, test])
    images = np.zeros((n_samples, 1, CANVAS, CANVAS), np.float32)
    labels = np.zeros((n_samples, 10), np.int64)
    for image, row in zip(images, labels, strict=True):
        for cell in rng.permutation(4)[: rng.integers(2, 5)]:
            chosen = rng.choice(usable)
            top, left = CELL * np.array(divmod(cell, 2)) + rng.integers(CELL - DIGIT + 1, size=2)
            image[0, top : top + DIGIT, left : left + DIGIT] = source.images[chosen] / 16
            row[source.target[chosen]] = 1
    return images, labels
