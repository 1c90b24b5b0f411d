"""A page about the interface, made from its description; without scripts, it asks for nothing."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem }
h2 { margin-top: 2.5rem; border-top: 1px solid #8888; padding-top: 1rem; overflow-wrap: anywhere }
code, pre { font-family: ui-monospace, monospace; font-size: .9em }
pre { background: #8881; padding: .8rem; overflow: auto; max-height: 24rem }
table { border-collapse: collapse } td { padding: .2rem 1.2rem .2rem 0; vertical-align: top }
:root { color-scheme: light dark }
"""

_CHECKSUM = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

#: The page may show its own style, and nothing else.
POLICY = f"default-src 'none'; style-src 'sha256-{_CHECKSUM}'; base-uri 'none'; form-action 'none'"


def render(description: Mapping[str, Any]) -> str:
    """Return the page.

    Parameters
    ----------
    description : mapping
        As OpenAPI describes an interface.
    """
    info = description["info"]
    title = escape(f"{info['title']} {info['version']}")
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{title}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{title}</h1><p>{escape(info['description'])} The description for programs is at ",
        '<a href="openapi.json"><code>/openapi.json</code></a>; errors are JSON of one sentence: ',
        '<code>{"error": "…"}</code>.</p>',
    ]
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            parts += _operation(f"{method.upper()} {path}", operation)
    return "".join([*parts, "</body></html>"])


def _operation(title: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"<h2><code>{escape(title)}</code></h2><p>{escape(operation['description'])}</p>"
    yield from _table(
        "Parameters",
        {each["name"]: each.get("description", "") for each in operation.get("parameters", ())},
    )
    for kind, body in operation.get("requestBody", {}).get("content", {}).items():
        schema = json.dumps(body["schema"], indent=2)
        yield f"<h3>Body, <code>{escape(kind)}</code></h3><pre>{escape(schema)}</pre>"
    answers = {status: each["description"] for status, each in operation["responses"].items()}
    yield from _table("Answers", answers)


def _table(title: str, rows: Mapping[str, str]) -> Iterator[str]:
    if rows:
        yield f"<h3>{title}</h3><table>"
        for name, text in rows.items():
            yield f"<tr><td><code>{escape(name)}</code></td><td>{escape(text)}</td></tr>"
        yield "</table>"
