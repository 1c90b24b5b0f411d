"""Tables in four formats: marks, text that a format could take for its own, short rows."""

import csv
import io
import re
from xml.etree.ElementTree import fromstring

import pytest

from cgmvae.studies.tables import Cell, Table, marked, render

NASTY = r"a|b * _c_ <i>&amp; \ 50% #1 $x$ {y} ~ ^ `z` [l](u) " + '"q", 1\n2'
ONE_LINE = " ".join(NASTY.split())

TABLE = Table(
    "Title & more",
    ["method", "F1", "runs"],
    [["ours", Cell("0.7", "best"), "3"], [NASTY, Cell("0.6", "second")]],
    ["Made by `cgmvae bench main`."],
)


@pytest.mark.parametrize(
    ("values", "marks"),
    [
        ([0.12341, 0.12349, 0.1], ["best", "best", "second"]),
        ([float("nan"), 5], [None, "best"]),
        ([-3, -1, -2], [None, "best", "second"]),
        ([10, 9, 1], ["best", "second", None]),
        ([0.0001, -0.0001], ["best", "best"]),
        ([], []),
    ],
)
def test_marks_follow_from_what_is_printed(values, marks):
    assert [cell.mark for cell in marked(values)] == marks


def test_markdown():
    lines = render([TABLE], "md").splitlines()
    assert lines[0] == "### Title & more"
    assert lines[2:5] == ["| method | F1 | runs |", "|---|---|---|", "| ours | **0.7** | 3 |"]
    cells = re.split(r"(?<!\\)\|", lines[5])[1:-1]
    assert len(cells) == 3
    assert [cell.strip() for cell in cells[1:]] == ["*0.6*", ""]
    unescaped = re.sub(r"\\(\W|_)", r"\1", cells[0].strip())
    assert unescaped == ONE_LINE
    for mark in ("*", "<", "`", "["):
        assert f"\\{mark}" in cells[0]
    assert lines[-1] == "Made by `cgmvae bench main`."
    assert "bbs_2003_2009" in render([Table("bbs_2003_2009", ["a"], [])], "md")


def test_latex():
    text = render([TABLE], "tex")
    assert r"\textbf{0.7}" in text
    assert r"\underline{0.6}" in text
    assert r"\caption{Title \& more}" in text
    row = next(line for line in text.splitlines() if "underline" in line)
    assert row.endswith(r" &  \\")
    for escaped in (r"50\%", r"\#1", r"\$x\$", r"\{y\}", r"\textasciitilde{}", r"\_c\_", "$<$i$>$"):
        assert escaped in row
    assert len(re.findall(r"(?<!\\)&", row)) == 2
    assert text.count("{") - text.count(r"\{") == text.count("}") - text.count(r"\}")


def test_html():
    text = render([TABLE], "html")
    assert "<td><strong>0.7</strong></td>" in text
    assert "<td><em>0.6</em></td>" in text
    cells = [
        cell for cell in fromstring(text.partition("<p>")[0]).iter() if cell.tag in ("td", "th")
    ]
    texts = ["".join(cell.itertext()) for cell in cells]
    assert texts == ["method", "F1", "runs", "ours", "0.7", "3", ONE_LINE, "0.6", ""]


def test_what_backticks_set_off_in_a_note_is_set_off_in_every_format():
    table = Table("t", ["a"], [], ["Made by `a --b_c <d>` & `e`.", "A ` alone."])
    text = render([table], "html")
    assert "<p>Made by <code>a --b_c &lt;d&gt;</code> &amp; <code>e</code>.</p>" in text
    assert "<p>A ` alone.</p>" in text
    text = render([table], "tex")
    assert r"\par Made by \texttt{a --b\_c $<$d$>$} \& \texttt{e}." in text
    assert r"\par A \textasciigrave{} alone." in text


def test_csv():
    rows = list(csv.reader(io.StringIO(render([TABLE, TABLE], "csv"))))
    title = "Title & more"
    once = [
        ["table", "method", "F1", "runs"],
        [title, "ours", "0.7", "3"],
        [title, ONE_LINE, "0.6", ""],
    ]
    assert rows == [*once, [], *once]


def test_a_row_that_is_too_long_is_a_mistake():
    with pytest.raises(ValueError, match="3 cells"):
        Table("t", ["a", "b"], [["1", "2", "3"]])
