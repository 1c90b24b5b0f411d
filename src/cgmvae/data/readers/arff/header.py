"""The header of an ARFF file: tokens, attributes, and what MEKA writes into the relation's name.

:mod:`cgmvae.data.readers.arff` reads it first, :mod:`cgmvae.data.readers.arff.labels` chooses
the labels from it, and :mod:`cgmvae.data.readers.arff.rows` reads the rows that it describes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from cgmvae.data.readers.conventions import is_number
from cgmvae.errors import InputError

#: What Weka takes for white space; other Unicode spaces belong to words.
BLANKS = "".join(map(chr, range(33)))

_TOKEN = re.compile(
    r"""
      (?P<blank>   [\x00-\x20]+ )
    | (?P<comment> % .* )
    | (?P<quoted>  '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" )
    | (?P<mark>    [{},] )
    | (?P<word>    [^\x00-\x20,{}%'"][^\x00-\x20,{}%]* )
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}
_BARE = re.compile(r"[\w.][\w.-]*")
_OPTION = re.compile(r"(?<!\S)-(c|split-number)\s+([-+]?[0-9]{1,9})(?!\S)", re.IGNORECASE)

_NUMERIC_TYPES = {"numeric", "real", "integer"}
_OTHER_TYPES = {"string", "date", "relational"}
_TRUTHS = ({"yes", "no"}, {"true", "false"}, {"y", "n"}, {"t", "f"})
_TRUE = {"yes", "true", "y", "t"}


class Token(NamedTuple):
    """A piece of a line: ``kind`` is word, quoted or mark (a brace or a comma)."""

    kind: str
    text: str


@dataclass(frozen=True)
class Attribute:
    """One declared column."""

    name: str
    kind: str
    """numeric, nominal, string, date or relational."""
    values: tuple[str, ...] = ()
    """The values of a nominal attribute, in the order of their declaration."""

    @cached_property
    def is_numeric(self) -> bool:
        """Whether every value is a number, by declaration or because the nominal values are."""
        return self.kind == "numeric" or (bool(self.values) and all(map(is_number, self.values)))

    @cached_property
    def is_truth(self) -> bool:
        """Whether the two nominal values are yes and no, or their like."""
        return len(self.values) == 2 and {value.lower() for value in self.values} in _TRUTHS

    @property
    def is_category(self) -> bool:
        """Whether the values have no number of their own and become one column each."""
        return self.kind == "nominal" and not self.is_numeric and not self.is_truth

    @cached_property
    def codes(self) -> dict[str, float]:
        """The number of each nominal value; a category's number is its place."""
        if self.is_numeric:
            return {value: float(value) for value in self.values}
        if self.is_truth:
            return {value: float(value.lower() in _TRUE) for value in self.values}
        return {value: float(place) for place, value in enumerate(self.values)}

    @property
    def omitted(self) -> float:
        """What a sparse row means by leaving the attribute out: 0, or the first nominal value."""
        return self.codes[self.values[0]] if self.values else 0.0


@dataclass(frozen=True)
class Header:
    """Everything before the rows."""

    relation: str
    attributes: tuple[Attribute, ...]
    n_lines: int
    """Lines up to and including ``@data``."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the attributes, in their order."""
        return tuple(attribute.name for attribute in self.attributes)

    def option(self, name: str) -> int | None:
        """Return MEKA's option ``c`` or ``split-number`` of the relation, None where absent."""
        found = {option.lower(): int(value) for option, value in _OPTION.findall(self.relation)}
        return found.get(name)


def error_at(path: object, line: int, message: str) -> InputError:
    """Return the error that names the file and the line."""
    return InputError(f"{path}, line {line:,}: {message}")


def tokens(line: str, path: object, number: int) -> list[Token]:
    r"""Divide a line into words, quoted texts (unquoted here), braces and commas.

    A quote opens a text only where a token begins, so that ``m\'usica`` is a plain word.
    """
    found, end = [], 0
    while end < len(line):
        match = _TOKEN.match(line, end)
        if match is None:
            raise error_at(path, number, "a quote is opened and not closed; close it.")
        end, kind, text = match.end(), str(match.lastgroup), match.group()
        if kind == "quoted":
            text = _ESCAPE.sub(lambda escape: _ESCAPED.get(escape[1], escape[1]), text[1:-1])
        if kind not in ("blank", "comment"):
            found.append(Token(kind, text))
    return found


def quoted(name: str) -> str:
    """Write a name so that :func:`tokens` reads it back as it is."""
    if _BARE.fullmatch(name):
        return name
    for plain, escaped in (
        ("\\", "\\\\"),
        ("'", "\\'"),
        *((v, f"\\{k}") for k, v in _ESCAPED.items()),
    ):
        name = name.replace(plain, escaped)
    return f"'{name}'"


def without_options(relation: str) -> str:
    """Return a relation's name without what MEKA would take for its options."""
    return _OPTION.sub("", relation)


def read_header(lines: Iterable[str], path: object) -> Header:
    """Read the lines of a text up to and including ``@data``.

    Parameters
    ----------
    lines : iterable of str
        The text of the file from its first line; what follows ``@data`` is left unread.
    path : path
        The file's name for messages.
    """
    relation, attributes = "", dict[str, Attribute]()
    for number, line in enumerate(lines, start=1):
        parts = tokens(line.strip(BLANKS), path, number)
        keyword = parts[0].text.lower() if parts and parts[0].kind == "word" else ""
        if keyword == "@data":
            if not attributes:
                raise error_at(path, number, "@data comes before any @attribute; declare them.")
            return Header(relation, tuple(attributes.values()), number)
        if keyword == "@relation":
            relation = " ".join(part.text for part in parts[1:])
        elif keyword == "@attribute":
            attribute = _attribute(parts[1:], path, number)
            if attribute.name in attributes:
                raise error_at(
                    path, number, f"the attribute {attribute.name!r} is declared twice; rename one."
                )
            attributes[attribute.name] = attribute
        elif parts:
            raise error_at(path, number, "expected @relation, @attribute or @data; correct it.")
    raise InputError(f"{path} ends before @data; it is cut short or not ARFF: fetch it again.")


def _attribute(parts: Sequence[Token], path: object, number: int) -> Attribute:
    if len(parts) < 2 or parts[0].kind == "mark":
        raise error_at(path, number, "@attribute needs a name and a type; complete it.")
    name, kind, rest = parts[0].text, parts[1].text.lower(), parts[2:]
    if parts[1] == Token("mark", "{"):
        return Attribute(name, "nominal", _nominal_values(name, rest, path, number))
    if kind in _OTHER_TYPES:
        return Attribute(name, kind)
    if kind not in _NUMERIC_TYPES:
        raise error_at(
            path,
            number,
            f"the attribute {name!r} has the unknown type {parts[1].text!r}; "
            "use numeric or a list of values in braces.",
        )
    if rest and not rest[0].text.startswith("["):  # numeric [0, 1]: an old way to state a range
        raise error_at(path, number, f"{rest[0].text!r} after the type is not ARFF; remove it.")
    return Attribute(name, "numeric")


def _nominal_values(
    name: str, parts: Sequence[Token], path: object, number: int
) -> tuple[str, ...]:
    if Token("mark", "}") not in parts:
        raise error_at(path, number, f"the values of {name!r} have no closing brace; close it.")
    if parts[-1] != Token("mark", "}") or Token("mark", "{") in parts:
        raise error_at(path, number, f"text after the values of {name!r} is not ARFF; remove it.")
    values = tuple(part.text for part in parts if part.kind != "mark")
    if not values or len(set(values)) != len(values):
        raise error_at(path, number, f"{name!r} lists no values, or one of them twice; correct it.")
    return values
