"""``cgmvae methods``: what can be fitted."""

from __future__ import annotations

from cgmvae.cli.output import JsonOption, print_json, print_table


def methods(json: JsonOption = False) -> None:
    """List the methods, where they were published, and their limits."""
    from cgmvae.methods import REGISTRY

    rows = [
        {"name": name, "title": m.title, "paper": m.paper, "max_labels": m.max_labels}
        for name, m in REGISTRY.items()
    ]
    if json:
        print_json(rows)
        return
    table = [[r["name"], r["title"], r["paper"], str(r["max_labels"] or "any")] for r in rows]
    print_table("Methods for 'cgmvae fit --method'", ["name", "method", "paper", "labels"], table)
