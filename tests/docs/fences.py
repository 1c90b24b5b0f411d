"""Fenced blocks of a page: which are code, what they are said to print, and whether they did.

A ``text`` block right after a block of code is its output. In it, ``...`` stands for anything, and
blanks count as one. What depends on the processor that a model was trained on may differ: a number
with a decimal point may be a little off, and another one be marked as the best with asterisks.
"""

import re
from dataclasses import dataclass
from itertools import pairwise
from textwrap import dedent

CODE = ("python", "bash")

_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)\n(?P<body>.*?)^(?P=indent)```$", re.M | re.S
)
_DECIMAL = re.compile(r"[-+]?\d+\.\d+")

#: How far a decimal number may be from the one shown, and what share of it.
_OFF, _SHARE_OFF = 0.1, 0.1


@dataclass(frozen=True)
class Block:
    """A block of code, and what the page says that it prints."""

    language: str
    code: str
    line: int
    shown: str | None


def code_blocks(text: str) -> list[Block]:
    """Return the blocks of a page that are to be run, in order."""
    blocks = []
    for fence, after in pairwise([*_FENCE.finditer(text), None]):
        if fence["language"] in CODE:
            follows = after is not None and not text[fence.end() : after.start()].strip()
            has_output = follows and after["language"] == "text"
            shown = dedent(after["body"]) if has_output else None
            line = text.count("\n", 0, fence.start()) + 2
            blocks.append(Block(fence["language"], dedent(fence["body"]), line, shown))
    return blocks


def agrees(shown: str, printed: str) -> bool:
    """Tell whether a block printed what its page shows."""
    shown, printed = (" ".join(text.replace("*", "").split()) for text in (shown, printed))
    pieces = [re.escape(piece.strip()) for piece in _DECIMAL.sub("\0", shown).split("...")]
    pattern = ".*?".join(pieces).replace(re.escape("\0"), f"({_DECIMAL.pattern})")
    found = re.fullmatch(pattern, printed)
    return found is not None and all(
        abs(float(here) - float(there)) <= max(_OFF, _SHARE_OFF * abs(float(there)))
        for here, there in zip(found.groups(), _DECIMAL.findall(shown), strict=True)
    )
