"""Imports point one way, a bare GPU machine can import the library, and files have names."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import cgmvae

ROOT = "cgmvae"

#: A package may import those further down; within a line, those further right.
LAYERS = (
    ("cli", "serving", "report", "hub"),
    (ROOT,),
    ("studies",),
    ("search",),
    ("torch", "methods"),
    ("training", "model"),
    ("preparation",),
    ("evaluation", "nn", "data"),
    ("errors",),
)
RANKS = {name: place for place, name in enumerate(sum(LAYERS, ()))}
STRANGERS = {frozenset(("training", "model"))}

#: What may be imported while a module is loaded; everything else where it is used.
THIRD_PARTY = {
    "torch", "numpy", "scipy", "sklearn", "joblib", "threadpoolctl", "triton", "safetensors",
    "filelock",
}  # fmt: skip
FREE_OF_THAT = {"cli", "serving", "report", "hub"}

NO_NAMES = {"utils", "common", "misc", "helpers"}


def test_imports_point_one_way_and_names_say_something():
    assert violations(Path(cgmvae.__file__).parent) == []


def violations(package: Path) -> list[str]:
    """Return every breach of the rules in the modules of a package, as 'file: what'."""
    found = []
    for path in sorted(package.rglob("*.py")):
        place = path.relative_to(package)
        found += [f"{place}: {each}" for each in _of_module(path, place)]
    return found


def _of_module(path: Path, place: Path) -> Iterator[str]:
    own = _layer(place)
    if {*place.parent.parts, place.stem} & NO_NAMES:
        yield "a name that says nothing"
    if own not in RANKS:
        yield f"{own} is in no layer"
        return
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for target in sorted(_targets(tree, place)):
        if target not in RANKS:
            yield f"imports {target}, which is in no layer"
        elif RANKS[target] < RANKS[own] or frozenset((own, target)) in STRANGERS:
            yield f"imports {target}"
    if own not in FREE_OF_THAT:
        for name in sorted(_loaded(tree) - THIRD_PARTY - sys.stdlib_module_names - {ROOT}):
            yield f"loads {name}"


def _layer(place: Path) -> str:
    """Return the layer of a file: its first folder, its own name, or the package itself."""
    if len(place.parts) > 1:
        return place.parts[0]
    return {"__init__": ROOT, "__main__": "cli"}.get(place.stem, place.stem)


def _targets(tree: ast.AST, place: Path) -> set[str]:
    """Return the layers that a module imports from, wherever in its code."""
    targets = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = (node.module or "").split(".") if node.module else []
            if node.level:
                here = (ROOT, *place.parent.parts)
                base = [*here[: len(here) - node.level + 1], *base]
            names = [[*base, alias.name] for alias in node.names]
        else:
            continue
        for parts in names:
            if parts[0] != ROOT or parts[1:] == ["__version__"]:
                continue
            # What is no layer is a public name of the package itself, such as an estimator.
            inner = len(parts) > 2 or parts[-1] in RANKS
            targets.add(parts[1] if inner and len(parts) > 1 else ROOT)
    return targets


def _loaded(tree: ast.Module) -> set[str]:
    """Return the first names of absolute imports that run when the module is loaded."""
    names, waiting = set(), list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.add(str(node.module).split(".")[0])
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting += node.orelse
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)
    return names
