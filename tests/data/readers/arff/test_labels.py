"""Which attributes of an ARFF file are labels."""

import pytest

from cgmvae.data.readers import arff
from cgmvae.errors import InputError

HEADER = "@relation toy\n@attribute a numeric\n@attribute b real\n@attribute owl {0,1}\n"
XML = '<labels xmlns="http://mulan.sourceforge.net/labels">{}</labels>'


def test_labels_stand_in_the_order_of_the_columns_not_of_the_xml(put):
    text = (
        "@relation r\n@attribute x {0,1}\n@attribute f numeric\n@attribute y {0,1}\n@data\n1,5,0\n"
    )
    data = arff.read(put(text, labels=["y", "x"]))
    assert data.label_names == ("x", "y")
    assert data.Y.tolist() == [[1, 0]]
    assert data.X.tolist() == [[5.0]]


def test_many_columns_keep_their_order(put):
    head = "".join(f"@attribute x{i} {{0,1}}\n" for i in range(9))
    path = put(f"@relation r\n{head}@data\n{'0,' * 8}1\n", labels=["x8", "x1"])
    assert arff.read(path).label_names == ("x1", "x8")
    assert arff.read(path).Y.tolist() == [[0, 1]]


@pytest.mark.parametrize("name", ["toy-train.arff", "toy-test.arff", "toy-TEST.arff"])
def test_the_xml_of_a_part_is_found(put, name):
    path = put(f"{HEADER}@data\n1,2,1\n", labels=["owl"], name=name)
    assert arff.read(path).label_names == ("owl",)


def test_the_xml_of_the_part_itself_comes_first(tmp_path, put):
    path = put(f"{HEADER}@data\n1,1,1\n", labels=["owl"], name="toy-train.arff")
    (tmp_path / "toy-train.xml").write_text(XML.format('<label name="b"/>'))
    assert arff.read(path).label_names == ("b",)


def test_nested_labels_are_flattened(tmp_path, put):
    text = (
        "@relation r\n@attribute f numeric\n@attribute p {0,1}\n@attribute c {0,1}\n@data\n1,1,0\n"
    )
    path = put(text)
    xml = tmp_path / "tree.xml"
    xml.write_text(XML.format('<label name="p"><label name="c"></label></label>'))
    assert arff.read(path, xml=xml).label_names == ("p", "c")


@pytest.mark.parametrize(
    ("option", "expected"), [("-C 1", ("a",)), ("-c 2", ("a", "b")), ("-C -2", ("b", "owl"))]
)
def test_meka_counts_labels_from_either_end(put, option, expected):
    text = HEADER.replace("toy", f"'toy: {option}'") + "@data\n1,1,1\n"
    assert arff.read(put(text)).label_names == expected


def test_meka_split_number(put):
    text = HEADER.replace("toy", "'toy: -C -1 -split-number 2'") + "@data\n" + "1,1,1\n" * 3
    assert arff.read(put(text)).official_split.tolist() == [0, 0, 1]


@pytest.mark.parametrize("number", [0, 4])
def test_a_split_number_that_does_not_fit_is_refused(put, number):
    text = HEADER.replace("toy", f"'toy: -C -1 -split-number {number}'") + "@data\n" + "1,1,1\n" * 3
    with pytest.raises(InputError, match=rf"-split-number {number} but has 3 rows"):
        arff.read(put(text))


@pytest.mark.parametrize(
    ("options", "expected"),
    [({"labels": ["owl", "a"]}, ("a", "owl")), ({"label_count": -1}, ("owl",)), ({}, ("b",))],
)
def test_options_come_before_the_relation_and_that_before_the_xml(tmp_path, put, options, expected):
    text = HEADER.replace("toy", "'toy: -C 2'") + "@data\n1,1,1\n"
    path = put(text, labels=["owl"])
    xml = tmp_path / "other.xml"
    xml.write_text(XML.format('<label name="b"/>'))
    assert arff.read(path, **(options or {"xml": xml})).label_names == expected
    assert arff.read(path).label_names == ("a", "b")


def test_two_options_for_the_labels_are_refused(rows):
    with pytest.raises(InputError, match="only one of labels, label_count and xml"):
        rows("1,2,1\n", labels=["owl"], label_count=-1)


def test_a_file_without_label_information_is_refused(put):
    with pytest.raises(InputError, match=r"give xml .* label_count .* or labels"):
        arff.read(put(f"{HEADER}@data\n1,2,1\n"))


@pytest.mark.parametrize("count", [0, 4, -4])
def test_a_label_count_that_does_not_fit_is_refused(put, count):
    with pytest.raises(InputError, match=f"label count of {count} does not fit the 3 attributes"):
        arff.read(put(f"{HEADER}@data\n1,2,1\n"), label_count=count)


def test_a_label_that_is_not_an_attribute_is_refused(put):
    path = put(f"{HEADER}@data\n1,2,1\n", labels=["owl", "hawk"])
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
def test_bad_xml_is_refused(tmp_path, put, xml, message):
    path = put(f"{HEADER}@data\n1,2,1\n")
    (tmp_path / "toy.xml").write_text(xml)
    with pytest.raises(InputError, match=message) as caught:
        arff.read(path)
    assert "toy.xml" in str(caught.value)
