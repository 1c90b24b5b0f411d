"""Small ARFF files to read."""

import pytest

from cgmvae.data.readers import arff

HEADER = "@relation toy\n@attribute a numeric\n@attribute b real\n@attribute owl {0,1}\n"
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
        return arff.read(put(f"{HEADER}@data\n{text}", labels=["owl"]), **options)

    return rows
