"""A griffe extension, enabled in mkdocs.yml, that adapts docstrings for the API reference.

Cross-references such as ``:class:`~package.Name``` become plain names, and parameters that share
an entry get one entry each; otherwise only the first would get the type.
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
        """Rewrite the docstring of an object."""
        if obj.docstring is not None:
            obj.docstring.value = with_own_entries(without_roles(obj.docstring.value))


def without_roles(text: str) -> str:
    """Replace cross-references by the names that they display."""

    def shown(role: re.Match[str]) -> str:
        return f"``{role[2].rpartition('.')[2] if role[1] else role[2]}``"

    return _ROLE.sub(shown, text)


def with_own_entries(text: str) -> str:
    """Split entries that several parameters share into one entry each."""

    def entries(shared: re.Match[str]) -> str:
        names, type_ = shared["names"].split(", "), shared["type"] or ""
        return "".join(f"{name}{type_}\n{shared['body']}" for name in names)

    return _SHARED.sub(entries, text + "\n").rstrip()
