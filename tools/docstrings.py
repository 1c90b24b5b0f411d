"""Docstrings as the reference shows them; an extension of griffe, which mkdocs.yml names.

In the sources a reference is ``:class:`~package.Name``` and parameters that share a sentence share
an entry. The page has no use for the first, and would give the second the type of the first name.
"""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

_ROLE = re.compile(r":\w+:`(~?)([\w.]+)`")
_SHARED = re.compile(
    r"^(?P<names>\w+(?:, \w+)+)(?P<type> : .*)?\n(?P<body>(?: .*\n|\n(?= ))+)", re.M
)


class Docstrings(Extension):
    """Rewrites every docstring before it is parsed."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        """Rewrite one."""
        if obj.docstring is not None:
            obj.docstring.value = with_own_entries(without_roles(obj.docstring.value))


def without_roles(text: str) -> str:
    """Turn references into the names that they show."""

    def shown(role: re.Match[str]) -> str:
        return f"``{role[2].rpartition('.')[2] if role[1] else role[2]}``"

    return _ROLE.sub(shown, text)


def with_own_entries(text: str) -> str:
    """Give each of the parameters that share an entry one of its own."""

    def entries(shared: re.Match[str]) -> str:
        names, type_ = shared["names"].split(", "), shared["type"] or ""
        return "".join(f"{name}{type_}\n{shared['body']}" for name in names)

    return _SHARED.sub(entries, text + "\n").rstrip()
