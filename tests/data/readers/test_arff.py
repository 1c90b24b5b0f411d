"""ARFF files: what their text may look like, and which attributes are labels."""

import gzip
import math

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cgmvae.data import read
from cgmvae.data.mapped import dense
from cgmvae.data.readers import arff
from cgmvae.data.readers.conventions import DENSE_LABELS_LIMIT
from cgmvae.errors import InputError

from .conftest import assert_same, datasets

HEADER = "@relation toy\n@attribute a numeric\n@attribute b real\n@attribute owl {0,1}\n"
#: The first line of a file.
R = "@relation r\n"
XML = '<labels xmlns="http://mulan.sourceforge.net/labels">{}</labels>'


@pytest.fixture
def put(tmp_path):
    """Return a function that writes an ARFF file and, beside it, an XML file of labels."""

    def put(text, *, labels=None, name="toy.arff"):
        (tmp_path / name).write_text(text, encoding="utf-8", newline="")
        if labels is not None:
            names = "".join(f'<label name="{label}"/>' for label in labels)
            (tmp_path / "toy.xml").write_text(XML.format(names), encoding="utf-8")
        return tmp_path / name

    return put


@pytest.fixture
def rows(put):
    """Return a function that reads rows of the features a and b and the label owl."""

    def rows(text, **options):
        return read(put(f"{HEADER}@data\n{text}", labels=["owl"]), **options)

    return rows


class TestRows:
    def test_comments_blank_lines_cases_and_tabs(self, put):
        text = (
            "\ufeff% a comment\r\n\r\n@RELATION\t'my data'\r\n"
            "  @Attribute 'first one' NUMERIC\r\n@ATTRIBUTE\t\"two, quoted\"\tinteger\r\n"
            "@attribute owl { 0 , 1 }\r\n@Data\r\n% between\r\n\r\n1,\t2 , 1\r\n3,4,0\r\n"
        )
        data = read(put(text), label_count=-1)
        assert data.feature_names == ("first one", "two, quoted")
        assert data.X.tolist() == [[1, 2], [3, 4]]
        assert data.Y.tolist() == [[1], [0]]

    def test_a_quote_or_backslash_within_a_word_is_plain(self, put):
        text = "@relation r\n@attribute m\\'usica numeric\n@attribute y {0,1}\n@data\n1,1\n"
        assert read(put(text), label_count=-1).feature_names == ("m\\'usica",)

    def test_sparse_rows_become_csr_with_few_labels_dense(self, rows):
        data = rows("{0 1,2 1}\n{1 2.5}\n{}\n{0 0}\n{0 3,2 1}\n")
        assert isinstance(data.X, sp.csr_array)
        assert data.X.dtype == np.float64
        assert isinstance(data.Y, np.ndarray)
        assert data.X.toarray().tolist() == [[1, 0], [0, 2.5], [0, 0], [0, 0], [3, 0]]
        assert data.Y.ravel().tolist() == [1, 0, 0, 0, 1]

    @pytest.mark.parametrize("extra", [0, 1])
    def test_labels_of_a_sparse_file_are_csr_beyond_the_limit(self, put, extra):
        n = DENSE_LABELS_LIMIT + extra
        head = "".join(f"@attribute y{i} {{0,1}}\n" for i in range(n))
        path = put(f"@relation r\n@attribute f numeric\n{head}@data\n{{0 1,{n} 1}}\n{{}}\n")
        Y = read(path, label_count=-n).Y
        assert sp.issparse(Y) == bool(extra)
        assert np.argwhere(dense(Y)).tolist() == [[0, n - 1]]

    @pytest.mark.parametrize("seven", ["7", "'7'"])
    @pytest.mark.parametrize("text", ["?,7,?\n1,?,1\n", "{0 ?,1 7,2 ?}\n{0 1,1 ?,2 1}\n"])
    def test_question_marks_are_missing_features_and_unknown_labels(self, rows, text, seven):
        data = rows(text.replace("7", seven))
        np.testing.assert_array_equal(dense(data.X), [[math.nan, 7], [1, math.nan]])
        assert dense(data.unknown).tolist() == [[True], [False]]
        assert dense(data.Y).tolist() == [[0], [1]]

    NOMINAL = (
        "@relation r\n@attribute n {3,1.5,0}\n@attribute flag {Yes,no}\n"
        "@attribute color {red,'light blue',green}\n@attribute t {f,t}\n"
        "@attribute y {FALSE,TRUE}\n@data\n"
    )

    def test_nominal_features_in_dense_rows(self, put):
        text = "1.5,no,'light blue',t,TRUE\n0,Yes,red,f,FALSE\n?,?,?,?,?\n3,no,green,t,TRUE\n"
        data = read(put(self.NOMINAL + text), label_count=-1)
        colors = ("color=red", "color=light blue", "color=green")
        assert data.feature_names == ("n", "flag", *colors, "t")
        expected = [[1.5, 0, 0, 1, 0, 1], [0, 1, 1, 0, 0, 0], [math.nan] * 6, [3, 0, 0, 0, 1, 1]]
        np.testing.assert_array_equal(data.X, expected)
        assert data.Y.ravel().tolist() == [1, 0, 0, 1]
        assert data.unknown.ravel().tolist() == [False, False, True, False]

    def test_a_sparse_row_leaves_out_the_first_nominal_value(self, put):
        text = "{}\n{0 1.5,1 no,2 green,3 t,4 TRUE}\n{0 0,2 ?}\n"
        data = read(put(self.NOMINAL + text), label_count=-1)
        nan = math.nan
        expected = [[3, 1, 1, 0, 0, 0], [1.5, 0, 0, 0, 1, 1], [0, 1, nan, nan, nan, 0]]
        np.testing.assert_array_equal(data.X.toarray(), expected)
        assert data.Y.ravel().tolist() == [0, 1, 0]

    @pytest.mark.parametrize("cells", [1, 1000])
    def test_the_line_of_a_mistake_is_counted_through_the_batches(self, rows, monkeypatch, cells):
        monkeypatch.setattr(arff, "_BATCH_CELLS", cells)
        with pytest.raises(InputError, match=r"line 10: Bad @DATA instance format"):
            rows("1,2,1\n\n1,2,0\n% note\n1,2\n")

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("1,2\n", "line 6: Bad @DATA instance format"),
            ("{0 1,2", "line 6: "),
            ("{0 1,3 1}\n", "line 6: "),
            ("{9 ?}\n", "line 6: the index 9 is beyond the last"),
            (f"{{{10**30} ?}}\n", "line 6: the index 10{30} is beyond the last"),
            ("{-1 2}\n", "line 6: "),
            ("{0 1, 1 2, 0 2}\n", "line 6: an index is repeated"),
            ("{99999999999999999999 1}\n", "line 6: "),
            ("1,2,2\n", "line 6: Data value 2 not found in nominal declaration"),
            ("{}\n{2 7}\n", "line 7: Data value 7 not found in nominal declaration"),
            ("x,2,1\n", "line 6: .*numerical value"),
            ("1,2,'1\n", "line 6: "),
            ("1e39,2,1\n", "value 1e.39, which does not fit 32 bits"),
            ("", "has no rows after @data"),
        ],
    )
    def test_bad_rows_are_rejected(self, rows, text, message):
        with pytest.raises(InputError, match=message):
            rows(text)

    @pytest.mark.parametrize(
        ("header", "message"),
        [
            (HEADER, "ends before @data"),
            (f"{R}@attribute a DATE 'yyyy'\n@data\n", "line 2: Bad @ATTRIBUTE type"),
            (f"{R}@attribute a string\n@data\nx\n", "'a' is of type string; drop"),
            (f"{R}@attribute y {{red,green}}\n@data\nred\n", "label 'y' of .* has the values red"),
            (f"{R}@data\n", "line 2: Invalid layout"),
            (f"{HEADER}@attribute a numeric\n", "line 5: Bad @ATTRIBUTE name a"),
            ("1,2,3\n", "ends before @data"),
            (f"{R}@attribute {{0,1}}\n", "line 2: Bad @ATTRIBUTE format"),
        ],
    )
    def test_bad_headers_are_rejected(self, put, header, message):
        with pytest.raises(InputError, match=message):
            read(put(header), label_count=1)

    @pytest.mark.parametrize("text", ["1,1,1\n0,0.5,1\n", "{0 1}\n{1 0.5}\n"])
    def test_a_label_that_is_neither_0_nor_1_is_rejected(self, rows, text):
        with pytest.raises(InputError, match=r"labels must be 0, 1 or unknown, but one is 0.5"):
            rows(text, label_count=2)


class TestLabels:
    def test_labels_are_in_the_order_of_the_columns_not_of_the_xml(self, put):
        head = "".join(f"@attribute x{i} {{0,1}}\n" for i in range(9))
        path = put(f"@relation r\n{head}@data\n{'0,' * 8}1\n", labels=["x8", "x1"])
        assert read(path).label_names == ("x1", "x8")
        assert read(path).Y.tolist() == [[0, 1]]

    def test_the_xml_of_a_part_is_found_and_its_own_comes_first(self, tmp_path, put):
        path = put(f"{HEADER}@data\n1,1,1\n", labels=["owl"], name="toy-TRAIN.arff")
        assert read(path).label_names == ("owl",)
        (tmp_path / "toy-TRAIN.xml").write_text(XML.format('<label name="b"/>'))
        assert read(path).label_names == ("b",)

    def test_nested_labels_are_flattened(self, tmp_path, put):
        xml = tmp_path / "tree.xml"
        xml.write_text(XML.format('<label name="b"><label name="owl"></label></label>'))
        assert read(put(f"{HEADER}@data\n1,1,0\n"), xml=xml).label_names == ("b", "owl")

    @pytest.mark.parametrize(
        ("option", "expected"), [("-C 1", ("a",)), ("-c 2", ("a", "b")), ("-C -2", ("b", "owl"))]
    )
    def test_meka_counts_labels_from_either_end(self, put, option, expected):
        text = HEADER.replace("toy", f"'toy: {option}'") + "@data\n1,1,1\n"
        assert read(put(text)).label_names == expected

    @pytest.mark.parametrize(("number", "fits"), [(2, True), (0, False), (4, False)])
    def test_meka_split_number(self, put, number, fits):
        relation = f"'toy: -C -1 -split-number {number}'"
        path = put(HEADER.replace("toy", relation) + "@data\n" + "1,1,1\n" * 3)
        if fits:
            assert read(path).official_split.tolist() == [0, 0, 1]
        else:
            with pytest.raises(InputError, match=rf"-split-number {number} but has 3 rows"):
                read(path)

    @pytest.mark.parametrize(
        ("options", "expected"),
        [({"labels": ["owl", "a"]}, ("a", "owl")), ({"label_count": -1}, ("owl",)), ({}, ("b",))],
    )
    def test_options_precede_the_relation_and_that_the_xml(self, tmp_path, put, options, expected):
        path = put(HEADER.replace("toy", "'toy: -C 2'") + "@data\n1,1,1\n", labels=["owl"])
        xml = tmp_path / "other.xml"
        xml.write_text(XML.format('<label name="b"/>'))
        assert read(path, **(options or {"xml": xml})).label_names == expected
        assert read(path).label_names == ("a", "b")

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"labels": ["owl"], "label_count": -1}, "only one of labels, label_count and xml"),
            ({}, r"give xml .* label_count .* or labels"),
            ({"label_count": 0}, "label count of 0 does not fit the 3 attributes"),
            ({"label_count": -4}, "label count of -4 does not fit the 3 attributes"),
            ({"labels": ["emu"]}, r"'emu' \(from labels\) is not an attribute"),
        ],
    )
    def test_options_that_do_not_say_which_are_labels(self, put, options, message):
        with pytest.raises(InputError, match=message):
            read(put(f"{HEADER}@data\n1,2,1\n"), **options)

    @pytest.mark.parametrize(
        ("xml", "message"),
        [
            ("<labels><label name='hawk'/></labels>", r"'hawk' \(from .*toy.xml\) is not an attr"),
            ("<labels><label name='owl'></labels>", "not well-formed XML"),
            ("<?xml version='1.0' encoding='none-such'?><labels/>", "not well-formed XML"),
            ("<labels/>", "has no <label"),
            ("<labels><label/></labels>", "one without a name"),
            ('<!DOCTYPE l [<!ENTITY o "owl">]><labels><label name="&o;"/></labels>', "DOCTYPE"),
        ],
    )
    def test_bad_xml_is_rejected(self, tmp_path, put, xml, message):
        path = put(f"{HEADER}@data\n1,2,1\n")
        (tmp_path / "toy.xml").write_text(xml)
        with pytest.raises(InputError, match=message) as caught:
            read(path)
        assert "toy.xml" in str(caught.value)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(data=datasets(st.text("abé λ-_=.", min_size=1, max_size=6)), cells=st.integers(1, 100))
def test_what_liac_arff_writes_is_read(tmp_path, write_arff, data, cells):
    write_arff(data, tmp_path / "toy.arff")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arff, "_BATCH_CELLS", cells)
        back = read(tmp_path / "toy.arff", label_count=-data.n_labels)
    assert_same(back, data)
    assert sp.issparse(back.X) == sp.issparse(data.X)


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


class TestRealFiles:
    def test_mulan_yeast_equals_a_plain_loop(self, data_folder):
        path = data_folder / "raw" / "yeast.arff.gz"
        data = read(path)
        names, table = plain_parse(path)
        assert data.feature_names == tuple(names[:103])
        assert data.label_names == tuple(f"Class{i}" for i in range(1, 15))
        np.testing.assert_array_equal(data.X, table[:, :103])
        np.testing.assert_array_equal(data.Y, table[:, 103:])
        assert (data.X.dtype, data.Y.dtype, data.name) == (np.float64, np.uint8, "yeast")
        assert (data.official_split, data.unknown) == (None, None)

    def test_meka_yeast_equals_the_archive(self, data_folder):
        data = read(data_folder / "raw" / "meka-Yeast.arff.gz")
        with np.load(data_folder / "yeast" / "yeast.npz") as archive:
            np.testing.assert_array_equal(data.X.astype(np.float32), archive["X"])
            np.testing.assert_array_equal(data.Y, archive["Y"])
            np.testing.assert_array_equal(data.official_split, archive["official_split"])
            assert data.feature_names == tuple(archive["feature_names"])

    def test_delicious_equals_a_plain_loop(self, data_folder):
        path = data_folder / "raw" / "delicious-test.arff.gz"
        data = read(path)
        assert type(data.X) is type(data.Y) is sp.csr_array
        names, table = plain_parse(path)
        np.testing.assert_array_equal(data.X.toarray(), table[:, :500])
        np.testing.assert_array_equal(data.Y.toarray(), table[:, 500:])
        assert data.label_names == tuple(names[500:])
