"""The list of methods."""

import json

from cgmvae.methods import REGISTRY


def test_every_method_is_listed_with_its_limit(succeeds):
    listed = json.loads(succeeds("methods", "--json"))
    assert [row["name"] for row in listed] == list(REGISTRY)
    assert [row["max_labels"] for row in listed] == [m.max_labels for m in REGISTRY.values()]
    printed = succeeds("methods")
    assert all(method.paper in printed for method in REGISTRY.values())
