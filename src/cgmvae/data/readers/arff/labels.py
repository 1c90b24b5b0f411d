"""Which attributes of an ARFF file are labels: by Mulan's XML, MEKA's ``-C``, or the caller."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from xml.parsers import expat
from xml.sax.saxutils import quoteattr

from cgmvae.data.files import data_name, open_binary
from cgmvae.data.readers.arff.header import Header
from cgmvae.errors import InputError

_NAMESPACE = "http://mulan.sourceforge.net/labels"
_PART_OF_SPLIT = re.compile(r"-(train|test)$", re.IGNORECASE)


class _HasDoctype(Exception):
    """The XML declares a document type, through which entities could be brought in."""


def label_columns(
    header: Header,
    path: Path,
    *,
    labels: Sequence[str] | None = None,
    label_count: int | None = None,
    xml: str | os.PathLike[str] | None = None,
) -> list[int]:
    """Return the places of the labels among the attributes, in increasing order.

    At most one of the three options may be given; it comes before ``-C`` in the relation's name,
    and that before an XML file beside the ARFF file.
    """
    if sum(option is not None for option in (labels, label_count, xml)) > 1:
        raise InputError("Give only one of labels, label_count and xml: each names the labels.")
    if labels is not None:
        names = [labels] if isinstance(labels, str) else labels
        return _places(names, header, "labels", path)
    if xml is None and label_count is None:
        label_count = header.option("c")
    if label_count is not None:
        return _counted(label_count, len(header.attributes), path)
    xml = _xml_beside(path) if xml is None else Path(xml)
    if xml is None:
        raise InputError(
            f"{path} does not say which attributes are labels: give xml (Mulan's file of label "
            "names), label_count (n first attributes, or -n last ones) or labels (their names)."
        )
    return _places(read_label_names(xml), header, str(xml), path)


def xml_path(path: Path) -> Path:
    """Return where the XML of an ARFF file belongs: ``a/yeast.arff.gz`` gives ``a/yeast.xml``.

    A path that is that place itself is refused, in any case of its letters, since a file system
    may not tell them apart.
    """
    xml = path.with_name(f"{data_name(path)}.xml")
    if xml.name.lower() == path.name.lower():
        raise InputError(
            f"{path} is where the label names beside an ARFF file go; "
            f"name the file {path.with_suffix('.arff').name}."
        )
    return xml


def read_label_names(path: Path) -> list[str]:
    """Return the names of all ``<label>`` elements, nested ones too, in their order."""
    names: list[str | None] = []

    def start(tag: str, attributes: dict[str, str]) -> None:
        if tag.rpartition("}")[2] == "label":
            names.append(attributes.get("name"))

    def refuse(*_: object) -> None:
        raise _HasDoctype

    parser = expat.ParserCreate(namespace_separator="}")
    parser.StartElementHandler = start
    parser.StartDoctypeDeclHandler = refuse
    with open_binary(path) as file:
        text = file.read()
    try:
        parser.Parse(text, True)
    except _HasDoctype:
        raise InputError(f"{path} holds a DOCTYPE, which is not accepted; remove it.") from None
    except (expat.ExpatError, LookupError, ValueError) as error:
        raise InputError(f"{path} is not well-formed XML ({error}); correct it.") from error
    known = [name for name in names if name is not None]
    if not known or len(known) != len(names):
        raise InputError(f'{path} has no <label name="…">, or one without a name; correct it.')
    return known


def write_label_names(names: Iterable[str], path: Path) -> None:
    """Write label names as Mulan's XML."""
    lines = [f"<label name={quoteattr(name)}></label>\n" for name in names]
    head = f'<?xml version="1.0" encoding="utf-8"?>\n<labels xmlns="{_NAMESPACE}">\n'
    path.write_text(f"{head}{''.join(lines)}</labels>\n", encoding="utf-8", newline="\n")


def _places(names: Iterable[str], header: Header, source: str, path: Path) -> list[int]:
    place = {name: column for column, name in enumerate(header.names)}
    chosen = set()
    for name in names:
        if name not in place:
            raise InputError(
                f"The label {name!r} (from {source}) is not an attribute of {path}; "
                "check that the names and the file belong together."
            )
        chosen.add(place[name])
    return sorted(chosen)


def _counted(count: int, n_attributes: int, path: Path) -> list[int]:
    if count == 0 or abs(count) > n_attributes:
        raise InputError(
            f"A label count of {count} does not fit the {n_attributes:,} attributes of {path}; "
            "give label_count: n for the first n attributes, -n for the last n."
        )
    return list(range(n_attributes)[:count] if count > 0 else range(n_attributes)[count:])


def _xml_beside(path: Path) -> Path | None:
    stem = data_name(path)
    for candidate in (stem, _PART_OF_SPLIT.sub("", stem)):
        xml = path.with_name(f"{candidate}.xml")
        if xml.is_file():
            return xml
    return None
