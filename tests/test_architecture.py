"""Imports point one way, a bare GPU machine can import the library, and files have names."""

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import fields
from inspect import isfunction
from pathlib import Path

import pytest

import cgmvae
from cgmvae.methods import METHODS
from cgmvae.methods.base import MultiLabelClassifier

ROOT = "cgmvae"

#: A package may import those further down; within a line, those further right.
LAYERS = (
    ("cli", "serving", "report", "hub"),
    (ROOT,),
    ("studies",),
    ("search",),
    ("torch", "methods"),
    ("model",),
    ("training",),
    ("preparation",),
    ("evaluation", "nn", "data"),
    ("declared",),
    ("errors",),
)
RANKS = {name: place for place, name in enumerate(sum(LAYERS, ()))}

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
        elif RANKS[target] < RANKS[own]:
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


def test_a_fit_takes_the_steps_of_the_walk_in_their_order():
    """The first calls of the functions that the page names come in the order of the page."""
    page = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")
    walk = page.split("## The walk of a row")[1].split("\n## ")[0]
    steps = re.findall(r"^\d+\. `([\w/]+\.py)`, `([\w.]+)`:", walk, re.M)
    assert 20 <= len(steps) <= 25
    called = []
    package = Path(cgmvae.__file__).parent

    def watch(frame, event, _):
        file = Path(frame.f_code.co_filename)
        if event == "call" and file.is_relative_to(package):
            step = (file.relative_to(package).as_posix(), frame.f_code.co_qualname)
            if step in wanted:
                called.append(step)

    wanted = set(steps)
    data, _ = cgmvae.make_survey(300, 6, 5, seed=0)
    model = cgmvae.CGMVAEClassifier(n_members=4, epochs=1, embedding_dim=8, random_state=0)
    sys.setprofile(watch)
    try:
        model.fit(data.X, data.Y).predict_proba(data.X)
    finally:
        sys.setprofile(None)
    assert list(dict.fromkeys(called)) == steps
    # The data are looked at once, and nothing is planned again.
    decided = [("model/plan.py", "DataProfile.of"), ("model/plan.py", "preset_for")]
    assert [called.count(step) for step in decided] == [1, 1]


#: Methods that any class may define: scikit-learn's, and what an estimator says of itself.
HOOKS = {
    "fit", "predict_proba", "plan", "label_similarity", "_fitted_state", "_restore_fitted",
    "_fit_rows", "_score_rows", "__sklearn_tags__",
}  # fmt: skip


@pytest.mark.parametrize("name", METHODS)
def test_classes_are_flat(name):
    """Few classes of our own, and each method in one or two of them."""
    own = [each for each in METHODS[name].__mro__ if each.__module__.startswith("cgmvae")]
    assert len(own) <= 3
    assert issubclass(own[-1], MultiLabelClassifier)
    defined = [key for each in own for key, value in vars(each).items() if isfunction(value)]
    made = {"__init__", "__eq__", "__repr__", "__replace__"}
    assert not {key for key in defined if defined.count(key) > 2} - HOOKS - made


def test_the_model_has_few_parameters():
    assert sum(field.init for field in fields(cgmvae.CGMVAEClassifier)) <= 32
