import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit

from cgmvae.errors import InputError
from cgmvae.report import LabelWordsDisplay

WORDS = {1: "owl", 2: "$wing$", 3: "keel", 4: "the", 5: "rare"}


class Reads:
    """Two labels: birds by words 1 and 2, boats by word 3; feature 0 is no word."""

    label_names_ = ("birds", "boats")

    def predict_proba(self, X):
        assert sp.issparse(X)
        first = 2 * X[:, [1]].toarray() + X[:, [2]].toarray() + 5 * X[:, [0]].toarray()
        return expit(np.hstack([first, 3 * X[:, [3]].toarray()]) - 1)


@pytest.fixture
def rows(rng):
    X = sp.csr_array((rng.random((200, 6)) < (0.5, 0.3, 0.3, 0.3, 0.9, 0.0)).astype(float))
    return X, (Reads().predict_proba(X) > 0.5).astype(int)


def test_the_fall_of_the_log_odds_is_what_a_word_adds(rows):
    display = LabelWordsDisplay.from_estimator(Reads(), *rows, words=WORDS)
    birds, boats = display.top("birds"), display.top("boats")
    assert [word for word, _ in birds] == ["owl", "$wing$"]
    assert [effect for _, effect in birds] == pytest.approx([2, 1], abs=1e-3)
    assert [word for word, _ in boats] == ["keel"]
    assert boats[0][1] == pytest.approx(3)


def test_the_commonest_labels_are_shown(rows):
    X, Y = rows
    display = LabelWordsDisplay.from_estimator(Reads(), X, Y, words=WORDS, max_labels=1)
    assert display.label_names == ["birds" if Y[:, 0].sum() >= Y[:, 1].sum() else "boats"]


def test_a_label_that_no_row_has_is_the_least_common(rows):
    X, Y = rows
    never = np.column_stack([Y[:, 0], np.zeros(len(Y), int)])
    display = LabelWordsDisplay.from_estimator(Reads(), X, never, words=WORDS, max_labels=1)
    assert display.label_names == ["birds"]
    with pytest.raises(InputError, match="no label 'boats'"):
        display.top("boats")


def test_names_are_written_as_they_are(rows):
    display = LabelWordsDisplay.from_estimator(Reads(), *rows, words=WORDS).plot()
    texts = [text.get_text() for text in display.ax_.texts]
    assert any("$wing$ 1.0" in text for text in texts)
    assert not any(text.get_parse_math() for text in display.ax_.texts)


def test_a_label_that_no_word_speaks_for(rows):
    display = LabelWordsDisplay.from_estimator(Reads(), *rows, words={4: "the", 5: "rare"})
    assert display.top("birds") == []
    assert {text.get_text() for text in display.plot().ax_.texts} == {"none"}
