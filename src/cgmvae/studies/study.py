"""What a study is: the runs that it needs, and the tables that follow from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, NamedTuple

from cgmvae.data import catalog
from cgmvae.errors import InputError
from cgmvae.methods import REGISTRY
from cgmvae.studies.peers import PEERS
from cgmvae.studies.results import Results
from cgmvae.studies.spec import RunSpec, is_network
from cgmvae.studies.tables import Table

#: Seeds of splits and models are below this: NumPy takes no others.
_SEED_LIMIT = 2**32

#: The paper's nine data sets, in its order, and what stands in for those that nobody can have here.
PAPER_DATA = (
    "ebird", "mirflickr", "nus_vec", "yeast", "scene", "sider", "reuters", "bookmarks", "delicious",
)  # fmt: skip
STAND_INS: Mapping[str, str] = {
    "bbs_2003_2009": "ebird",
    "mirflickr_tags": "mirflickr",
    "reuters_tfidf": "reuters",
}


def paper_data(name: str) -> str:
    """Return the data set of the paper that this one is, or stands in for."""
    return STAND_INS.get(name, name)


def paper_row(name: str) -> str:
    """Return what a row of the paper's numbers is called beside ours of this data set."""
    return "— the paper" if paper_data(name) == name else f"— the paper on {paper_data(name)}"


def data_title(name: str) -> str:
    """Return a data set's name, with that of the one that it stands in for.

    Examples
    --------
    >>> data_title("yeast"), data_title("bbs_2003_2009")
    ('yeast', 'bbs_2003_2009 (in place of ebird)')
    """
    return f"{name} (in place of {STAND_INS[name]})" if name in STAND_INS else name


@dataclass(frozen=True)
class Scope:
    """How much of a study is run; what is None is the study's own choice.

    Names are checked, and names and numbers that come twice are taken once.
    """

    quick: bool = False
    """A small version that ends in minutes on two processor cores."""
    data: tuple[str, ...] | None = None
    methods: tuple[str, ...] | None = None
    splits: tuple[int, ...] | None = None
    seeds: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        checks: dict[str, Callable[[Any], Any]] = {
            "data": lambda given: catalog.find_entry(given).name,
            "methods": _known_method,
            "splits": _usable_seed,
            "seeds": _usable_seed,
        }
        for name, check in checks.items():
            given = getattr(self, name)
            if given is not None:
                object.__setattr__(self, name, tuple(dict.fromkeys(map(check, given))))

    def chosen_data(self, full: Sequence[str], quick: Sequence[str]) -> tuple[str, ...]:
        """Return the data sets, here or not."""
        return self.data or tuple(quick if self.quick else full)

    def chosen_methods(self, full: Sequence[str]) -> tuple[str, ...]:
        """Return the methods."""
        return self.methods or tuple(full)

    def chosen_splits(self, full: Sequence[int] = (0, 1, 2)) -> tuple[int, ...]:
        """Return the seeds of the splits."""
        return self.splits or ((0, 1) if self.quick else tuple(full))

    def chosen_seeds(self, full: Sequence[int] = (0, 1, 2)) -> tuple[int, ...]:
        """Return the seeds of the models."""
        return self.seeds or ((0,) if self.quick else tuple(full))

    def settings(self, method: str) -> dict[str, Any]:
        """Return the settings that all runs of a method share: a quick network is one member."""
        return {"n_members": 1} if self.quick and is_network(method) else {}

    def runs(self, specs: Sequence[RunSpec]) -> list[RunSpec]:
        """Return each spec with every split and seed of the scope, where it can be run."""
        return [
            replace(spec, split=split, seed=seed)
            for spec in specs
            if is_here(spec.data) and refusal(spec.data, spec.method) is None
            for split, seed in product(self.chosen_splits(), self.chosen_seeds())
        ]


def _known_method(name: str) -> str:
    known = (*REGISTRY, *PEERS)
    if name not in known:
        raise InputError(f"There is no method {name!r}; choose one of {', '.join(known)}.")
    return name


def _usable_seed(seed: int) -> int:
    if not 0 <= seed < _SEED_LIMIT:
        raise InputError(f"{seed} cannot seed a split or a model; take 0, 1, 2, and so on.")
    return seed


class StudyFigure(NamedTuple):
    """What a plot shows; :mod:`cgmvae.report` knows how each kind is drawn."""

    name: str
    """Of the file, without suffix."""
    kind: str
    contents: Mapping[str, Any]


@dataclass(frozen=True)
class Study:
    """One study of the paper, or of ours."""

    name: str
    title: str
    """One line for a list."""
    runs: Callable[[Scope], list[RunSpec]]
    tables: Callable[[Scope, Results], list[Table]]
    figures: Callable[[Scope, Results], list[StudyFigure]] = field(default=lambda *_: [])


def method_title(method: str) -> str:
    """Return what people call a method of the registry, or one that is used instead.

    Examples
    --------
    >>> method_title("cgmvae"), method_title("mlp")
    ('C-GMVAE', 'multi-layer perceptron')
    """
    return REGISTRY[method].title if method in REGISTRY else PEERS[method].title


def is_here(data: str) -> bool:
    """Tell whether a data set can be read without fetching anything."""
    return catalog.locate(data) is not None


def refusal(data: str, method: str) -> str | None:
    """Say why a method does not take a data set, or nothing where it does."""
    limit = REGISTRY[method].max_labels if method in REGISTRY else None
    if limit is None or catalog.find_entry(data).statistics.labels <= limit:
        return None
    return f"takes at most {limit} labels"


def why_missing(data: str) -> str:
    """Say in a few words why a data set has no numbers."""
    entry = catalog.find_entry(data)
    return f"not here: put {entry.file} into the folder that CGMVAE_DATA names"
