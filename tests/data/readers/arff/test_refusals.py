"""Every kind of bad header and bad row, refused with its line."""

import pytest

from cgmvae.data.readers import arff
from cgmvae.errors import InputError

HEADER = "@relation toy\n@attribute a numeric\n@attribute b real\n@attribute owl {0,1}\n"


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
def test_bad_rows_are_refused(tmp_path, rows, text, message):
    with pytest.raises(InputError, match=message) as caught:
        rows(text)
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
def test_bad_headers_are_refused(put, header, message):
    with pytest.raises(InputError, match=message):
        arff.read(put(header), label_count=1)


@pytest.mark.parametrize("kind", ["string", "DATE 'yyyy-MM-dd'", "relational"])
def test_attributes_that_are_not_numbers_are_refused(put, kind):
    text = f"@relation r\n@attribute a {kind}\n@attribute y {{0,1}}\n@data\nx,1\n"
    with pytest.raises(InputError, match=f"'a' of .* is of type {kind.split()[0].lower()}; drop"):
        arff.read(put(text), label_count=-1)


def test_a_label_of_words_is_refused(put):
    text = "@relation r\n@attribute a numeric\n@attribute y {red,green}\n@data\n1,red\n"
    with pytest.raises(
        InputError, match=r"label 'y' of .* has the values red, green; a label must"
    ):
        arff.read(put(text), label_count=-1)


@pytest.mark.parametrize("text", ["1,1,1\n0,0.5,1\n", "{0 1}\n{1 0.5}\n"])
def test_a_label_that_is_neither_0_nor_1_is_refused(rows, text):
    with pytest.raises(InputError, match=r"line 7: the label 'b' is 0.5, but a label must be 0, 1"):
        rows(text, label_count=2)


def test_a_name_of_a_category_that_is_taken_is_refused(put):
    text = (
        "@relation r\n@attribute a {x,y,z}\n@attribute 'a=x' numeric\n@attribute l {0,1}\n"
        "@data\nx,1,1\n"
    )
    with pytest.raises(InputError, match="'a=x' appears more than once"):
        arff.read(put(text), label_count=-1)
