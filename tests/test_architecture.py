"""Imports point one way, a bare GPU machine can import the library, and files have names."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import cgmvae

ROOT = "cgmvae"

#: A package may import those further down; within a line, those further right.
LAYERS = (
    ("cli", "serving", "report"),
    (ROOT,),
    ("experiments",),
    ("search",),
    ("methods",),
    ("training", "model"),
    ("evaluation", "nn", "data"),
    ("errors",),
)
RANKS = {name: place for place, name in enumerate(sum(LAYERS, ()))}
STRANGERS = {frozenset(("training", "model"))}

#: What may be imported while a module is loaded; everything else where it is used.
THIRD_PARTY = {"torch", "numpy", "scipy", "sklearn", "joblib", "triton"}
FREE_OF_THAT = {"cli", "serving", "report"}

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


def tree_of(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_a_tree_that_keeps_the_rules(tmp_path):
    files = {
        "__init__.py": "from cgmvae.methods.cgmvae import CGMVAEClassifier\n__version__ = '1'",
        "__main__.py": "from cgmvae.cli.main import run",
        "errors.py": "class InputError(ValueError): pass",
        "data/dataset.py": "import numpy as np, json\nfrom cgmvae.errors import InputError",
        "data/formats/npz.py": "from ..dataset import Matrix\nfrom . import cells",
        "evaluation/metrics.py": "from cgmvae.data.dataset import Matrix",
        "nn/packed.py": "from __future__ import annotations\nimport torch.nn.functional as F",
        "model/network.py": "import torch\nfrom cgmvae.nn import packed",
        "training/loop.py": "from cgmvae.nn.batch import Batch",
        "methods/cgmvae.py": "from cgmvae.model import a\nfrom cgmvae.training import b\n"
        "from joblib import Parallel\nfrom sklearn.base import clone",
        "methods/onnx.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import onnx\n"
        "def export():\n    import onnx",
        "experiments/runner.py": "from cgmvae import __version__\nfrom cgmvae.search import space",
        "cli/main.py": "import typer\nfrom cgmvae import CGMVAEClassifier, read\n"
        "from cgmvae.report import page\nfrom cgmvae.serving import app",
    }
    assert violations(tree_of(tmp_path, files)) == []


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("data/a.py", "from cgmvae.evaluation.metrics import count", "imports evaluation"),
        ("data/a.py", "import cgmvae.nn.packed", "imports nn"),
        ("data/formats/a.py", "from ...evaluation import metrics", "imports evaluation"),
        ("data/a.py", "from .. import methods", "imports methods"),
        ("nn/a.py", "from cgmvae import model", "imports model"),
        ("nn/a.py", "from cgmvae import CGMVAEClassifier", "imports cgmvae"),
        ("nn/a.py", "import cgmvae", "imports cgmvae"),
        ("methods/a.py", "from cgmvae import read", "imports cgmvae"),
        ("model/a.py", "from cgmvae.training.loop import train", "imports training"),
        ("training/a.py", "from cgmvae.model.network import CGMVAENetwork", "imports model"),
        ("training/a.py", "def f():\n    from cgmvae.model import network", "imports model"),
        ("training/a.py", "if TYPE_CHECKING:\n    import cgmvae.methods", "imports methods"),
        ("methods/a.py", "from cgmvae.search import space", "imports search"),
        ("search/a.py", "from cgmvae.experiments import spec", "imports experiments"),
        ("experiments/a.py", "from cgmvae.report import page", "imports report"),
        ("experiments/a.py", "from cgmvae.cli.main import run", "imports cli"),
        ("report/a.py", "from cgmvae.cli import output", "imports cli"),
        ("__init__.py", "from cgmvae.cli.main import run", "imports cli"),
        ("errors.py", "from cgmvae.data import files", "imports data"),
        ("methods/a.py", "import cgmvae.newcomer.thing", "imports newcomer, which is in no layer"),
        ("newcomer/a.py", "", "newcomer is in no layer"),
        ("data/a.py", "import pandas as pd", "loads pandas"),
        (
            "data/a.py",
            "try:\n    import pyarrow.parquet\nexcept ImportError: pass",
            "loads pyarrow",
        ),
        ("methods/a.py", "class A:\n    from ray import tune", "loads ray"),
        ("experiments/a.py", "if True:\n    from rich import box", "loads rich"),
        ("__init__.py", "import typer", "loads typer"),
        ("data/utils.py", "", "a name that says nothing"),
        ("common/a.py", "", "a name that says nothing"),
        ("nn/misc/a.py", "", "a name that says nothing"),
        ("report/helpers.py", "", "a name that says nothing"),
    ],
)
def test_a_breach_is_found(tmp_path, name, text, expected):
    assert f"{name}: {expected}" in violations(tree_of(tmp_path, {name: text}))
