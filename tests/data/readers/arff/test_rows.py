"""What the text of an ARFF file may look like, and the numbers that it gives."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cgmvae.data.mapped import dense
from cgmvae.data.readers import arff
from cgmvae.data.readers.arff import rows as arff_rows
from cgmvae.data.readers.conventions import DENSE_LABELS_LIMIT
from cgmvae.errors import InputError


def test_comments_blank_lines_cases_tabs_and_trailing_commas(put):
    text = (
        "\ufeff% a comment\r\n\r\n@RELATION\t'my data'\r\n"
        "  @Attribute 'first \\'one\\'' NUMERIC % trailing\r\n"
        '@ATTRIBUTE\t"two, \\"quoted\\""\tinteger [0, 9]\r\n'
        "@attribute owl{ 0 , 1 }\r\n@Data % now\r\n% between\r\n\r\n"
        "1,\t2 , 1,\r\n3\t4 0 % spaces divide too\r\n { 0 5 , 2 1 , }\r\n"
    )
    data = arff.read(put(text), label_count=-1)
    assert data.feature_names == ("first 'one'", 'two, "quoted"')
    assert dense(data.X).tolist() == [[1, 2], [3, 4], [5, 0]]
    assert dense(data.Y).tolist() == [[1], [0], [1]]


def test_a_quote_or_backslash_within_a_word_is_plain(put):
    text = "@relation r\n@attribute m\\'usica numeric\n@attribute y {0,1}\n@data\n1,1\n"
    assert arff.read(put(text), label_count=-1).feature_names == ("m\\'usica",)


def test_mixed_rows_become_csr_with_few_labels_dense(rows):
    data = rows("1,0,1\n{1 2.5}\n{}\n0,0,0\n{0 3,2 1}\n")
    assert isinstance(data.X, sp.csr_array)
    assert data.X.dtype == np.float32
    assert isinstance(data.Y, np.ndarray)
    assert data.X.toarray().tolist() == [[1, 0], [0, 2.5], [0, 0], [0, 0], [3, 0]]
    assert data.X.nnz == 3
    assert data.Y.ravel().tolist() == [1, 0, 0, 0, 1]


def test_dense_rows_become_an_array(rows):
    data = rows("1,-2.5e-3,1\n.5,+3.,0\n")
    assert isinstance(data.X, np.ndarray)
    assert data.X.dtype == np.float32
    np.testing.assert_array_equal(data.X, np.array([[1, -2.5e-3], [0.5, 3]], dtype=np.float32))


@pytest.mark.parametrize("extra", [0, 1])
def test_labels_of_a_sparse_file_are_csr_beyond_the_limit(put, extra):
    n = DENSE_LABELS_LIMIT + extra
    head = "".join(f"@attribute y{i} {{0,1}}\n" for i in range(n))
    path = put(f"@relation r\n@attribute f numeric\n{head}@data\n{{0 1,{n} 1}}\n{{}}\n")
    Y = arff.read(path, label_count=-n).Y
    assert sp.issparse(Y) == bool(extra)
    assert np.argwhere(dense(Y)).tolist() == [[0, n - 1]]


@pytest.mark.parametrize("seven", ["7", "'7'"])
@pytest.mark.parametrize("text", ["?,7,?\n1,?,1\n", "{0 ?,1 7,2 ?}\n{0 1,1 ?,2 1}\n"])
def test_question_marks_are_missing_features_and_unknown_labels(rows, text, seven):
    data = rows(text.replace("7", seven))
    np.testing.assert_array_equal(dense(data.X), [[math.nan, 7], [1, math.nan]])
    assert dense(data.unknown).tolist() == [[True], [False]]
    assert dense(data.Y).tolist() == [[0], [1]]


NOMINAL = """@relation r
@attribute n {3,1.5,0}
@attribute flag {Yes,no}
@attribute colour {red,'light blue',green}
@attribute t {f,t}
@attribute y {FALSE,TRUE}
@data
"""
NOMINAL_NAMES = ("n", "flag", "colour=red", "colour=light blue", "colour=green", "t")


def test_nominal_features_in_dense_rows(put):
    text = "1.50,no,'light blue',t,TRUE\n0,Yes,red,f,FALSE\n?,?,?,?,?\n3,no,green,t,TRUE\n"
    data = arff.read(put(NOMINAL + text), label_count=-1)
    assert data.feature_names == NOMINAL_NAMES
    expected = [[1.5, 0, 0, 1, 0, 1], [0, 1, 1, 0, 0, 0], [math.nan] * 6, [3, 0, 0, 0, 1, 1]]
    np.testing.assert_array_equal(data.X, expected)
    assert data.Y.ravel().tolist() == [1, 0, 0, 1]
    assert data.unknown.ravel().tolist() == [False, False, True, False]


def test_a_sparse_row_leaves_out_the_first_nominal_value(put):
    text = "{}\n{0 1.5,1 no,2 green,3 t,4 TRUE}\n{0 0,2 ?}\n"
    data = arff.read(put(NOMINAL + text), label_count=-1)
    nan = math.nan
    expected = [[3, 1, 1, 0, 0, 0], [1.5, 0, 0, 0, 1, 1], [0, 1, nan, nan, nan, 0]]
    np.testing.assert_array_equal(data.X.toarray(), expected)
    assert data.Y.ravel().tolist() == [0, 1, 0]


def test_a_first_value_that_is_not_zero_on_the_fast_way(put):
    text = "@relation r\n@attribute a {1,0}\n@attribute b numeric\n@attribute y {1,0}\n@data\n"
    data = arff.read(put(text + "{}\n{0 0,1 4}\n{2 0}\n{0 ?}\n"), label_count=-1)
    np.testing.assert_array_equal(data.X.toarray(), [[1, 0], [0, 4], [1, 0], [math.nan, 0]])
    assert data.Y.ravel().tolist() == [1, 1, 0, 1]


def test_plain_rows_never_take_the_slow_way(rows, monkeypatch):
    def fail(*_):
        raise AssertionError("read token by token")

    monkeypatch.setattr(arff_rows, "_dense_row", fail)
    monkeypatch.setattr(arff_rows, "_sparse_row", fail)
    data = rows("{1 2,2 1}\n{0 3}\n{}\n4,?,0\n5 6\t1\n")
    np.testing.assert_array_equal(data.X.toarray(), [[0, 2], [3, 0], [0, 0], [4, math.nan], [5, 6]])


@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_the_line_of_a_mistake_is_counted_through_the_batches(rows, monkeypatch, batch):
    monkeypatch.setattr(arff_rows, "_BATCH", batch)
    with pytest.raises(InputError, match="line 10: the row has 2 values"):
        rows("1,2,1\n\n{0 1}\n% note\n1,2\n")


CELL = st.one_of(st.none(), st.floats(width=32, allow_nan=False, allow_infinity=False))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(
    table=st.lists(st.tuples(CELL, CELL, st.sampled_from([None, 0, 1])), min_size=1, max_size=8),
    is_sparse=st.lists(st.booleans(), min_size=8, max_size=8),
    batch=st.integers(1, 200),
)
def test_both_ways_of_reading_rows_agree(rows, table, is_sparse, batch):
    lines = []
    for row, sparse in zip(table, is_sparse, strict=False):
        cells = ["?" if cell is None else repr(cell) for cell in row]
        written = [f"{i} {cell}" for i, cell in enumerate(cells) if cell not in ("0.0", "0")]
        lines.append("{" + ",".join(written) + "}" if sparse else ",".join(cells))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arff_rows, "_BATCH", batch)
        fast = rows("\n".join(lines))
        slow = rows("".join(f"{line} % look closer\n" for line in lines))
    expected = np.array([[math.nan if c is None else c for c in row] for row in table])
    for data in (fast, slow):
        np.testing.assert_array_equal(dense(data.X), expected[:, :2].astype(np.float32))
        np.testing.assert_array_equal(dense(data.targets()), expected[:, 2:])
        assert sp.issparse(data.X) == any(is_sparse[: len(table)])
