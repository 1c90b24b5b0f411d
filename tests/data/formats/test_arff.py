"""ARFF: both dialects, both kinds of rows, the real files, and every kind of bad input."""

import bz2
import gzip
import math

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cgmvae.data.dataset import MultiLabelDataset
from cgmvae.data.formats import arff, arff_rows
from cgmvae.data.formats.conventions import DENSE_LABELS_LIMIT
from cgmvae.errors import InputError

HEADER = "@relation toy\n@attribute a numeric\n@attribute b real\n@attribute owl {0,1}\n"
XML = '<labels xmlns="http://mulan.sourceforge.net/labels">{}</labels>'

TEXT = st.text(
    st.one_of(
        st.sampled_from(" ,'\"\\{}%?@\t\n\r=-éλ漢\x85\xa0\u2028😀"),
        st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff"),
    ),
    max_size=6,
)


def put(folder, text, *, labels=None, name="toy.arff"):
    (folder / name).write_text(text, encoding="utf-8", newline="")
    if labels is not None:
        names = "".join(f'<label name="{label}"/>' for label in labels)
        (folder / "toy.xml").write_text(XML.format(names), encoding="utf-8")
    return folder / name


def rows(folder, text, **options):
    return arff.read(put(folder, f"{HEADER}@data\n{text}", labels=["owl"]), **options)


def dense(matrix):
    return matrix.toarray() if sp.issparse(matrix) else matrix


def plain_parse(path):
    """Read names and cells of a simple ARFF file, one line and one cell at a time."""
    names, table, in_data = [], [], False
    for line in gzip.decompress(path.read_bytes()).decode().split("\n"):
        line = line.strip()
        if line.lower().startswith("@attribute"):
            names.append(line.split()[1])
        elif line.lower() == "@data":
            in_data = True
        elif in_data and line.startswith("{"):
            row = [0.0] * len(names)
            for cell in filter(None, line.strip("{}").split(",")):
                column, value = cell.split()
                row[int(column)] = float(value)
            table.append(row)
        elif in_data and line:
            table.append([float(cell) for cell in line.split(",")])
    return names, np.array(table)


# --- the real files ------------------------------------------------------------------------------


def test_mulan_yeast_equals_a_plain_loop(data_folder):
    path = data_folder / "raw" / "yeast.arff.gz"
    data = arff.read(path)
    names, table = plain_parse(path)
    assert data.feature_names == tuple(names[:103])
    assert data.label_names == tuple(f"Class{i}" for i in range(1, 15))
    np.testing.assert_array_equal(data.X, table[:, :103].astype(np.float32))
    np.testing.assert_array_equal(data.Y, table[:, 103:])
    assert (data.X.dtype, data.Y.dtype, data.name) == (np.float32, np.uint8, "yeast")
    assert data.official_split is None
    assert data.unknown is None


def test_meka_yeast_equals_a_plain_loop_and_the_archive(data_folder):
    path = data_folder / "raw" / "meka-Yeast.arff.gz"
    data = arff.read(path)
    names, table = plain_parse(path)
    assert data.label_names == tuple(names[:14])
    np.testing.assert_array_equal(data.X, table[:, 14:].astype(np.float32))
    np.testing.assert_array_equal(data.Y, table[:, :14])
    with np.load(data_folder / "yeast" / "yeast.npz") as archive:
        np.testing.assert_array_equal(data.X, archive["X"])
        np.testing.assert_array_equal(data.Y, archive["Y"])
        np.testing.assert_array_equal(data.official_split, archive["official_split"])
        assert data.feature_names == tuple(archive["feature_names"])


def test_delicious_equals_a_plain_loop_and_the_archive(data_folder):
    parts = [data_folder / "raw" / f"delicious-{part}.arff.gz" for part in ("train", "test")]
    data = [arff.read(path) for path in parts]
    assert all(type(part.X) is type(part.Y) is sp.csr_array for part in data)
    X, Y = (sp.vstack([getattr(part, field) for part in data]).toarray() for field in "XY")
    table = np.vstack([plain_parse(path)[1] for path in parts])
    np.testing.assert_array_equal(X, table[:, :500])
    np.testing.assert_array_equal(Y, table[:, 500:])
    with np.load(data_folder / "delicious" / "delicious.npz") as archive:
        csr = (archive["X_data"], archive["X_indices"], archive["X_indptr"])
        np.testing.assert_array_equal(X, sp.csr_array(csr, shape=archive["X_shape"]).toarray())
        np.testing.assert_array_equal(Y, archive["Y"])
        assert data[0].label_names == data[1].label_names == tuple(archive["label_names"])
        assert data[0].feature_names == tuple(archive["feature_names"])


# --- which attributes are labels -----------------------------------------------------------------


def test_labels_stand_in_the_order_of_the_columns_not_of_the_xml(tmp_path):
    text = (
        "@relation r\n@attribute x {0,1}\n@attribute f numeric\n@attribute y {0,1}\n@data\n1,5,0\n"
    )
    data = arff.read(put(tmp_path, text, labels=["y", "x"]))
    assert data.label_names == ("x", "y")
    assert data.Y.tolist() == [[1, 0]]
    assert data.X.tolist() == [[5.0]]


def test_many_columns_keep_their_order(tmp_path):
    head = "".join(f"@attribute x{i} {{0,1}}\n" for i in range(9))
    path = put(tmp_path, f"@relation r\n{head}@data\n{'0,' * 8}1\n", labels=["x8", "x1"])
    assert arff.read(path).label_names == ("x1", "x8")
    assert arff.read(path).Y.tolist() == [[0, 1]]


@pytest.mark.parametrize("name", ["toy-train.arff", "toy-test.arff", "toy-TEST.arff"])
def test_the_xml_of_a_part_is_found(tmp_path, name):
    path = put(tmp_path, f"{HEADER}@data\n1,2,1\n", labels=["owl"], name=name)
    assert arff.read(path).label_names == ("owl",)


def test_the_xml_of_the_part_itself_comes_first(tmp_path):
    path = put(tmp_path, f"{HEADER}@data\n1,1,1\n", labels=["owl"], name="toy-train.arff")
    (tmp_path / "toy-train.xml").write_text(XML.format('<label name="b"/>'))
    assert arff.read(path).label_names == ("b",)


def test_nested_labels_are_flattened(tmp_path):
    text = (
        "@relation r\n@attribute f numeric\n@attribute p {0,1}\n@attribute c {0,1}\n@data\n1,1,0\n"
    )
    path = put(tmp_path, text)
    xml = tmp_path / "tree.xml"
    xml.write_text(XML.format('<label name="p"><label name="c"></label></label>'))
    assert arff.read(path, xml=xml).label_names == ("p", "c")


@pytest.mark.parametrize(
    ("option", "expected"), [("-C 1", ("a",)), ("-c 2", ("a", "b")), ("-C -2", ("b", "owl"))]
)
def test_meka_counts_labels_from_either_end(tmp_path, option, expected):
    text = HEADER.replace("toy", f"'toy: {option}'") + "@data\n1,1,1\n"
    assert arff.read(put(tmp_path, text)).label_names == expected


def test_meka_split_number(tmp_path):
    text = HEADER.replace("toy", "'toy: -C -1 -split-number 2'") + "@data\n" + "1,1,1\n" * 3
    assert arff.read(put(tmp_path, text)).official_split.tolist() == [0, 0, 1]


@pytest.mark.parametrize("number", [0, 4])
def test_a_split_number_that_does_not_fit_is_refused(tmp_path, number):
    text = HEADER.replace("toy", f"'toy: -C -1 -split-number {number}'") + "@data\n" + "1,1,1\n" * 3
    with pytest.raises(InputError, match=rf"-split-number {number} but has 3 rows"):
        arff.read(put(tmp_path, text))


@pytest.mark.parametrize(
    ("options", "expected"),
    [({"labels": ["owl", "a"]}, ("a", "owl")), ({"label_count": -1}, ("owl",)), ({}, ("b",))],
)
def test_options_come_before_the_relation_and_that_before_the_xml(tmp_path, options, expected):
    text = HEADER.replace("toy", "'toy: -C 2'") + "@data\n1,1,1\n"
    path = put(tmp_path, text, labels=["owl"])
    xml = tmp_path / "other.xml"
    xml.write_text(XML.format('<label name="b"/>'))
    assert arff.read(path, **(options or {"xml": xml})).label_names == expected
    assert arff.read(path).label_names == ("a", "b")


def test_two_options_for_the_labels_are_refused(tmp_path):
    with pytest.raises(InputError, match="only one of labels, label_count and xml"):
        rows(tmp_path, "1,2,1\n", labels=["owl"], label_count=-1)


def test_a_file_without_label_information_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"give xml .* label_count .* or labels"):
        arff.read(put(tmp_path, f"{HEADER}@data\n1,2,1\n"))


@pytest.mark.parametrize("count", [0, 4, -4])
def test_a_label_count_that_does_not_fit_is_refused(tmp_path, count):
    with pytest.raises(InputError, match=f"label count of {count} does not fit the 3 attributes"):
        arff.read(put(tmp_path, f"{HEADER}@data\n1,2,1\n"), label_count=count)


def test_a_label_that_is_not_an_attribute_is_refused(tmp_path):
    path = put(tmp_path, f"{HEADER}@data\n1,2,1\n", labels=["owl", "hawk"])
    with pytest.raises(InputError, match=r"'hawk' \(from .*toy.xml\) is not an attribute"):
        arff.read(path)
    with pytest.raises(InputError, match=r"'emu' \(from labels\) is not an attribute"):
        arff.read(path, labels=["emu"])


@pytest.mark.parametrize(
    ("xml", "message"),
    [
        ("<labels><label name='owl'></labels>", "not well-formed XML"),
        ("<?xml version='1.0' encoding='big5'?><labels/>", "not well-formed XML"),
        ("<?xml version='1.0' encoding='none-such'?><labels/>", "not well-formed XML"),
        ("<labels/>", "has no <label"),
        ("<labels><label/></labels>", "one without a name"),
        ('<!DOCTYPE labels [<!ENTITY o "owl">]><labels><label name="&o;"/></labels>', "DOCTYPE"),
        ('<!DOCTYPE labels SYSTEM "a.dtd"><labels><label name="owl"/></labels>', "DOCTYPE"),
    ],
)
def test_bad_xml_is_refused(tmp_path, xml, message):
    path = put(tmp_path, f"{HEADER}@data\n1,2,1\n")
    (tmp_path / "toy.xml").write_text(xml)
    with pytest.raises(InputError, match=message) as caught:
        arff.read(path)
    assert "toy.xml" in str(caught.value)


# --- what the text may look like -----------------------------------------------------------------


def test_comments_blank_lines_cases_tabs_and_trailing_commas(tmp_path):
    text = (
        "\ufeff% a comment\r\n\r\n@RELATION\t'my data'\r\n"
        "  @Attribute 'first \\'one\\'' NUMERIC % trailing\r\n"
        '@ATTRIBUTE\t"two, \\"quoted\\""\tinteger [0, 9]\r\n'
        "@attribute owl{ 0 , 1 }\r\n@Data % now\r\n% between\r\n\r\n"
        "1,\t2 , 1,\r\n3\t4 0 % spaces divide too\r\n { 0 5 , 2 1 , }\r\n"
    )
    data = arff.read(put(tmp_path, text), label_count=-1)
    assert data.feature_names == ("first 'one'", 'two, "quoted"')
    assert dense(data.X).tolist() == [[1, 2], [3, 4], [5, 0]]
    assert dense(data.Y).tolist() == [[1], [0], [1]]


def test_a_quote_or_backslash_within_a_word_is_plain(tmp_path):
    text = "@relation r\n@attribute m\\'usica numeric\n@attribute y {0,1}\n@data\n1,1\n"
    assert arff.read(put(tmp_path, text), label_count=-1).feature_names == ("m\\'usica",)


def test_mixed_rows_become_csr_with_few_labels_dense(tmp_path):
    data = rows(tmp_path, "1,0,1\n{1 2.5}\n{}\n0,0,0\n{0 3,2 1}\n")
    assert isinstance(data.X, sp.csr_array)
    assert data.X.dtype == np.float32
    assert isinstance(data.Y, np.ndarray)
    assert data.X.toarray().tolist() == [[1, 0], [0, 2.5], [0, 0], [0, 0], [3, 0]]
    assert data.X.nnz == 3
    assert data.Y.ravel().tolist() == [1, 0, 0, 0, 1]


def test_dense_rows_become_an_array(tmp_path):
    data = rows(tmp_path, "1,-2.5e-3,1\n.5,+3.,0\n")
    assert isinstance(data.X, np.ndarray)
    assert data.X.dtype == np.float32
    np.testing.assert_array_equal(data.X, np.array([[1, -2.5e-3], [0.5, 3]], dtype=np.float32))


@pytest.mark.parametrize("extra", [0, 1])
def test_labels_of_a_sparse_file_are_csr_beyond_the_limit(tmp_path, extra):
    n = DENSE_LABELS_LIMIT + extra
    head = "".join(f"@attribute y{i} {{0,1}}\n" for i in range(n))
    path = put(tmp_path, f"@relation r\n@attribute f numeric\n{head}@data\n{{0 1,{n} 1}}\n{{}}\n")
    Y = arff.read(path, label_count=-n).Y
    assert sp.issparse(Y) == bool(extra)
    assert np.argwhere(dense(Y)).tolist() == [[0, n - 1]]


@pytest.mark.parametrize("seven", ["7", "'7'"])
@pytest.mark.parametrize("text", ["?,7,?\n1,?,1\n", "{0 ?,1 7,2 ?}\n{0 1,1 ?,2 1}\n"])
def test_question_marks_are_missing_features_and_unknown_labels(tmp_path, text, seven):
    data = rows(tmp_path, text.replace("7", seven))
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


def test_nominal_features_in_dense_rows(tmp_path):
    text = "1.50,no,'light blue',t,TRUE\n0,Yes,red,f,FALSE\n?,?,?,?,?\n3,no,green,t,TRUE\n"
    data = arff.read(put(tmp_path, NOMINAL + text), label_count=-1)
    assert data.feature_names == NOMINAL_NAMES
    expected = [[1.5, 0, 0, 1, 0, 1], [0, 1, 1, 0, 0, 0], [math.nan] * 6, [3, 0, 0, 0, 1, 1]]
    np.testing.assert_array_equal(data.X, expected)
    assert data.Y.ravel().tolist() == [1, 0, 0, 1]
    assert data.unknown.ravel().tolist() == [False, False, True, False]


def test_a_sparse_row_leaves_out_the_first_nominal_value(tmp_path):
    text = "{}\n{0 1.5,1 no,2 green,3 t,4 TRUE}\n{0 0,2 ?}\n"
    data = arff.read(put(tmp_path, NOMINAL + text), label_count=-1)
    nan = math.nan
    expected = [[3, 1, 1, 0, 0, 0], [1.5, 0, 0, 0, 1, 1], [0, 1, nan, nan, nan, 0]]
    np.testing.assert_array_equal(data.X.toarray(), expected)
    assert data.Y.ravel().tolist() == [0, 1, 0]


def test_a_first_value_that_is_not_zero_on_the_fast_way(tmp_path):
    text = "@relation r\n@attribute a {1,0}\n@attribute b numeric\n@attribute y {1,0}\n@data\n"
    data = arff.read(put(tmp_path, text + "{}\n{0 0,1 4}\n{2 0}\n{0 ?}\n"), label_count=-1)
    np.testing.assert_array_equal(data.X.toarray(), [[1, 0], [0, 4], [1, 0], [math.nan, 0]])
    assert data.Y.ravel().tolist() == [1, 1, 0, 1]


def test_plain_rows_never_take_the_slow_way(tmp_path, monkeypatch):
    def fail(*_):
        raise AssertionError("read token by token")

    monkeypatch.setattr(arff_rows, "_dense_row", fail)
    monkeypatch.setattr(arff_rows, "_sparse_row", fail)
    data = rows(tmp_path, "{1 2,2 1}\n{0 3}\n{}\n4,?,0\n5 6\t1\n")
    np.testing.assert_array_equal(data.X.toarray(), [[0, 2], [3, 0], [0, 0], [4, math.nan], [5, 6]])


@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_the_line_of_a_mistake_is_counted_through_the_batches(tmp_path, monkeypatch, batch):
    monkeypatch.setattr(arff_rows, "_BATCH", batch)
    with pytest.raises(InputError, match="line 10: the row has 2 values"):
        rows(tmp_path, "1,2,1\n\n{0 1}\n% note\n1,2\n")


CELL = st.one_of(st.none(), st.floats(width=32, allow_nan=False, allow_infinity=False))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(
    table=st.lists(st.tuples(CELL, CELL, st.sampled_from([None, 0, 1])), min_size=1, max_size=8),
    is_sparse=st.lists(st.booleans(), min_size=8, max_size=8),
    batch=st.integers(1, 200),
)
def test_both_ways_of_reading_rows_agree(tmp_path, table, is_sparse, batch):
    lines = []
    for row, sparse in zip(table, is_sparse, strict=False):
        cells = ["?" if cell is None else repr(cell) for cell in row]
        written = [f"{i} {cell}" for i, cell in enumerate(cells) if cell not in ("0.0", "0")]
        lines.append("{" + ",".join(written) + "}" if sparse else ",".join(cells))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arff_rows, "_BATCH", batch)
        fast = rows(tmp_path, "\n".join(lines))
        slow = rows(tmp_path, "".join(f"{line} % look closer\n" for line in lines))
    expected = np.array([[math.nan if c is None else c for c in row] for row in table])
    for data in (fast, slow):
        np.testing.assert_array_equal(dense(data.X), expected[:, :2].astype(np.float32))
        np.testing.assert_array_equal(dense(data.targets()), expected[:, 2:])
        assert sp.issparse(data.X) == any(is_sparse[: len(table)])


# --- writing -------------------------------------------------------------------------------------


@st.composite
def datasets(draw):
    n, n_features, n_labels = (
        draw(st.integers(1, 5)),
        draw(st.integers(1, 4)),
        draw(st.integers(1, 3)),
    )
    names = draw(
        st.lists(TEXT, min_size=n_features + n_labels, max_size=n_features + n_labels, unique=True)
    )
    floats = st.floats(width=32, allow_infinity=False)
    X = draw(hnp.arrays(np.float32, (n, n_features), elements=floats, fill=st.just(0)))
    Y = draw(hnp.arrays(np.uint8, (n, n_labels), elements=st.integers(0, 1)))
    unknown = draw(hnp.arrays(bool, (n, n_labels)))
    if draw(st.booleans()):
        X = sp.csr_array(X)
    if draw(st.booleans()):
        Y = sp.csr_array(Y)
    return MultiLabelDataset(
        X, Y, names[n_features:], names[:n_features], unknown=unknown, name=draw(TEXT) + " -C 1"
    )


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(data=datasets())
def test_writing_and_reading_give_the_same(tmp_path, data):
    arff.write(data, tmp_path / "toy.arff")
    back = arff.read(tmp_path / "toy.arff")
    assert back.label_names == data.label_names
    assert back.feature_names == data.feature_names
    assert sp.issparse(back.X) == sp.issparse(data.X)
    np.testing.assert_array_equal(dense(back.X), dense(data.X))
    np.testing.assert_array_equal(dense(back.targets()), dense(data.targets()))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["toy.arff", "toy.xml"]


def test_the_written_text(tmp_path):
    data = MultiLabelDataset(
        [[0.1, np.nan], [2, 0]], [[1, 0], [0, 1]], ["o'wl", "hawk"], ["a b", "c"], name="birds"
    )
    data = MultiLabelDataset(
        data.X.astype(np.float32), data.Y, data.label_names, data.feature_names
    )
    arff.write(data, tmp_path / "toy.arff")
    head = (
        "@relation data\n\n@attribute 'a b' numeric\n@attribute c numeric\n"
        "@attribute 'o\\'wl' {0,1}\n@attribute hawk {0,1}\n\n@data\n"
    )
    assert (tmp_path / "toy.arff").read_text() == f"{head}0.1,?,1,0\n2.0,0.0,0,1\n"
    assert '<label name="o\'wl"></label>' in (tmp_path / "toy.xml").read_text()
    sparse = MultiLabelDataset(
        sp.csr_array(data.X), data.Y, data.label_names, data.feature_names, [[0, 0], [1, 0]]
    )
    arff.write(sparse, tmp_path / "toy.arff")
    assert (tmp_path / "toy.arff").read_text() == head + "{0 0.1,1 ?,2 1}\n{0 2.0,2 ?,3 1}\n"


def test_stored_zeros_and_unsorted_cells_are_written_in_order_without_zeros(tmp_path):
    X = sp.csr_array(
        (np.array([3.0, 0.0, 2.0]), np.array([2, 1, 0]), np.array([0, 3])), shape=(1, 3)
    )
    arff.write(MultiLabelDataset(X, [[1]]), tmp_path / "toy.arff")
    assert (tmp_path / "toy.arff").read_text().endswith("@data\n{0 2.0,2 3.0,3 1}\n")
    assert X.indices.tolist() == [2, 1, 0]


@pytest.mark.parametrize(("suffix", "unpack"), [(".gz", gzip.decompress), (".bz2", bz2.decompress)])
def test_a_compressed_file_is_written_compressed(tmp_path, suffix, unpack):
    path = tmp_path / f"toy.arff{suffix}"
    arff.write(MultiLabelDataset([[1.5]], [[1]]), path)
    assert unpack(path.read_bytes()).startswith(b"@relation data\n")
    assert (tmp_path / "toy.xml").exists()
    assert arff.read(path).X.tolist() == [[1.5]]


def test_the_written_batches_join(tmp_path, rng, monkeypatch):
    monkeypatch.setattr(arff, "_BATCH", 3)
    data = MultiLabelDataset(rng.normal(size=(8, 2)).astype(np.float32), rng.integers(0, 2, (8, 2)))
    arff.write(data, tmp_path / "toy.arff")
    np.testing.assert_array_equal(arff.read(tmp_path / "toy.arff").X, data.X)


def test_a_failed_write_leaves_everything_as_it_was(tmp_path, monkeypatch):
    path = put(tmp_path, "before", labels=["before"])
    old = (tmp_path / "toy.xml").read_bytes()

    def fail(*_):
        raise RuntimeError("disk")

    monkeypatch.setattr(arff, "_row_texts", fail)
    with pytest.raises(RuntimeError, match="disk"):
        arff.write(MultiLabelDataset([[1.0]], [[1]]), path)
    assert path.read_text() == "before"
    assert (tmp_path / "toy.xml").read_bytes() == old
    assert sorted(p.name for p in tmp_path.iterdir()) == ["toy.arff", "toy.xml"]


@pytest.mark.parametrize("name", ["a\x00b", "a\ud800b", "a\x1bb"])
def test_a_name_that_cannot_be_written_is_refused(tmp_path, name):
    with pytest.raises(InputError, match="holds a character that XML cannot"):
        arff.write(MultiLabelDataset([[1.0]], [[1]], label_names=[name]), tmp_path / "toy.arff")
    assert not list(tmp_path.iterdir())


def test_a_name_of_a_feature_and_a_label_is_refused(tmp_path):
    data = MultiLabelDataset([[1.0]], [[1]], label_names=["x"], feature_names=["x"])
    with pytest.raises(InputError, match="'x' names a feature and a label"):
        arff.write(data, tmp_path / "toy.arff")


# --- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,2\n", r"line 6: the row has 2 values for 3 attributes"),
        ("1,2,1\n1,2,1\n1,", r"line 8: the row has 1 values for 3 attributes"),
        ("1,2,1\n1,2\n1,2,1,1\n", r"line 7: the row has 2 values"),
        ("1,2,1,0\n", r"line 6: the row has 4 values"),
        ("1,,2,1\n", r"line 6: a value is empty"),
        (",1,2,1\n", r"line 6: a value is empty"),
        ("1,2, ,\n", r"line 6: a value is empty"),
        ("{0 1,2", r"line 6: the sparse row has no closing brace"),
        ("{0 1,3 1}\n", r"line 6: the index 3 is out of range: there are 3 attributes"),
        ("{0 1,0 2}\n", r"line 6: the index 0 is repeated"),
        ("\n% x\n{1 1,0 2}\n", r"line 8: the index 0 follows 1; indices must increase"),
        ("{0 1 2}\n", r"line 6: a sparse row is \{index value"),
        ("{0}\n", r"line 6: a sparse row is \{index value"),
        ("{-1 2}\n", r"line 6: a sparse row is \{index value"),
        ("{0 1,,2 1}\n", r"line 6: a sparse row is \{index value"),
        ("{'0' 1}\n", r"line 6: a sparse row is \{index value"),
        ("{99999999999999999999 1}\n", r"line 6: a sparse row is \{index value"),
        ("1,2,2\n", r"line 6: '2' is not a value of 'owl' \(0, 1\)"),
        ("1,2,nan\n", r"line 6: 'nan' is not a value of 'owl'"),
        ("1,2,'?'\n", r"line 6: '\?' is not a value of 'owl'"),
        ("{2 7}\n", r"line 6: '7' is not a value of 'owl'"),
        ("x,2,1\n", r"line 6: 'x' in 'a' is not a number"),
        ("1_0,2,1\n", r"line 6: '1_0' in 'a' is not a number"),
        ("nan,2,1\n", r"line 6: 'nan' in 'a' is not a number .* write \?"),
        ("-?,2,1\n", r"line 6: '-\?' in 'a' is not a number"),
        ("1e,2,1\n", r"line 6: '1e' in 'a' is not a number"),
        ("1e39,2,1\n", r"line 6: '1e39' in 'a' is not a number that fits 32 bits"),
        ("{0 1e39}\n", r"line 6: '1e39' in 'a' is not a number that fits 32 bits"),
        ("{0 inf}\n", r"line 6: 'inf' in 'a' is not a number"),
        ("1,2,'1\n", r"line 6: a quote is opened and not closed"),
        ("1,2,1,{0.5}\n", r"line 6: the row has an instance weight .* not supported"),
        ("{0 1}, {0.5}\n", r"line 6: the row has an instance weight .* not supported"),
        ("", "has no rows after @data"),
        ("% only this\n", "has no rows after @data"),
    ],
)
def test_bad_rows_are_refused(tmp_path, text, message):
    with pytest.raises(InputError, match=message) as caught:
        rows(tmp_path, text)
    assert str(tmp_path / "toy.arff") in str(caught.value)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (HEADER, "ends before @data"),
        ("@relation r\n@data\n", "line 2: @data comes before any @attribute"),
        (f"{HEADER}@attribute a numeric\n", "line 5: the attribute 'a' is declared twice"),
        ("1,2,3\n", "line 1: expected @relation, @attribute or @data"),
        ("@attribute 'a numeric\n", "line 1: a quote is opened and not closed"),
        ("@attribute a\n", "line 1: @attribute needs a name and a type"),
        ("@attribute {0,1}\n", "line 1: @attribute needs a name and a type"),
        ("@attribute a complex\n", "line 1: the attribute 'a' has the unknown type 'complex'"),
        ("@attribute a numeric {2}\n", "line 1: '{' after the type"),
        ("@attribute a {0,1\n", "line 1: the values of 'a' have no closing brace"),
        ("@attribute a {0,1} {2}\n", "line 1: text after the values of 'a'"),
        ("@attribute a {}\n", "line 1: 'a' lists no values"),
        ("@attribute a {0,1,0}\n", "line 1: 'a' lists no values, or one of them twice"),
    ],
)
def test_bad_headers_are_refused(tmp_path, header, message):
    with pytest.raises(InputError, match=message):
        arff.read(put(tmp_path, header), label_count=1)


@pytest.mark.parametrize("kind", ["string", "DATE 'yyyy-MM-dd'", "relational"])
def test_attributes_that_are_not_numbers_are_refused(tmp_path, kind):
    text = f"@relation r\n@attribute a {kind}\n@attribute y {{0,1}}\n@data\nx,1\n"
    with pytest.raises(InputError, match=f"'a' of .* is of type {kind.split()[0].lower()}; drop"):
        arff.read(put(tmp_path, text), label_count=-1)


def test_a_label_of_words_is_refused(tmp_path):
    text = "@relation r\n@attribute a numeric\n@attribute y {red,green}\n@data\n1,red\n"
    with pytest.raises(
        InputError, match=r"label 'y' of .* has the values red, green; a label must"
    ):
        arff.read(put(tmp_path, text), label_count=-1)


@pytest.mark.parametrize("text", ["1,1,1\n0,0.5,1\n", "{0 1}\n{1 0.5}\n"])
def test_a_label_that_is_neither_0_nor_1_is_refused(tmp_path, text):
    with pytest.raises(InputError, match=r"line 7: the label 'b' is 0.5, but a label must be 0, 1"):
        rows(tmp_path, text, label_count=2)


def test_a_name_of_a_category_that_is_taken_is_refused(tmp_path):
    text = (
        "@relation r\n@attribute a {x,y,z}\n@attribute 'a=x' numeric\n@attribute l {0,1}\n"
        "@data\nx,1,1\n"
    )
    with pytest.raises(InputError, match="'a=x' appears more than once"):
        arff.read(put(tmp_path, text), label_count=-1)
