"""What a run is (:class:`RunSpec`), and what a study is: the runs it needs, and its tables.

A run is one model on one split of one data set. Runs of neural methods that fit into one pack form
a job and are trained together. A :class:`Scope` says how much of a study is run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch

from cgmvae.data import catalog
from cgmvae.errors import InputError
from cgmvae.methods.neural import NeuralClassifier
from cgmvae.methods.registry import REGISTRY
from cgmvae.model.presets import PRESETS
from cgmvae.studies.peers import PEERS

if TYPE_CHECKING:
    from cgmvae.studies.results import Results
    from cgmvae.studies.tables import Table

#: Largest number of runs in a job, which are trained as one pack; on a CPU more would save nothing.
MAX_ON_CPU, MAX_ON_GPU = 16, 64

#: Seeds of splits and models are below this: NumPy takes no others.
_SEED_LIMIT = 2**32

#: How a study splits the rows of a data set.
SPLIT_KINDS = ("random", "official")

#: Methods whose results do not depend on their seed: they are run with one.
DETERMINISTIC = {
    "binary-relevance", "mlknn", *(name for name, peer in PEERS.items() if not peer.seeded)
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class RunSpec:
    """One model on one split of one data set; equal specs are the same run in every study."""

    data: str
    """Name in the catalog."""
    method: str
    """Name in the registry or in :data:`cgmvae.studies.peers.PEERS`."""
    split: int = 0
    """Seed of the split: by group where the data set has groups, otherwise random. Of an official
    split, the seed of the order of its training rows and of the validation rows drawn from them."""
    seed: int = 0
    """Seed of the model."""
    train_fraction: float = 1.0
    """Fraction of the training rows that is used."""
    hidden_labels: float = 0.0
    """Fraction of the training labels that is made unknown."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of the estimator in JSON types; the others keep their defaults."""
    official: bool = False
    """Whether the split is the publisher's."""
    tuning: str = ""
    """The search that adds its best settings, of :data:`cgmvae.studies.tuning.TUNINGS`; none if
    empty."""

    def __post_init__(self) -> None:
        # 1 and 1.0 are the same fraction, and must give the same key.
        for name in ("train_fraction", "hidden_labels"):
            object.__setattr__(self, name, float(getattr(self, name)))

    @property
    def key(self) -> str:
        """A short name, a hash of the fields."""
        text = json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def parameters(self, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the parameters of the estimator, and ``more``; JSON's lists are tuples again."""
        return {
            name: _with_tuples(value) for name, value in {**self.settings, **(more or {})}.items()
        }

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RunSpec) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


def _with_tuples(value: Any) -> Any:
    """Return settings whose lists, which are JSON's, are tuples again."""
    if isinstance(value, dict):
        return {name: _with_tuples(each) for name, each in value.items()}
    return tuple(map(_with_tuples, value)) if isinstance(value, list | tuple) else value


#: Runs that are trained together.
Job = tuple[RunSpec, ...]


def unique(specs: Iterable[RunSpec]) -> list[RunSpec]:
    """Return each run once, in the order of first appearance."""
    return list(dict.fromkeys(specs))


def is_network(method: str) -> bool:
    """Return whether runs of a method can be trained as one pack."""
    return method in REGISTRY and issubclass(REGISTRY[method].estimator, NeuralClassifier)


def make_jobs(specs: Iterable[RunSpec]) -> list[Job]:
    """Group runs into jobs.

    Runs of a neural method share a job if they have the same network, training plan, data set and
    fraction of the training rows; they may differ in split, seed, rates, weights of loss terms and
    hidden labels. Each run of another method is a job of its own, so that little is lost when one
    is interrupted. The largest number of runs in a job depends on whether there is a GPU.

    Examples
    --------
    >>> runs = [RunSpec("yeast", m, seed=s) for m in ("cgmvae", "mlknn") for s in (0, 1)]
    >>> [len(job) for job in make_jobs(runs)]
    [2, 1, 1]
    """
    largest = MAX_ON_GPU if torch.cuda.is_available() else MAX_ON_CPU
    groups: dict[RunSpec, list[RunSpec]] = {}
    for spec in unique(specs):
        shared = spec  # what all runs of the job have in common
        if spec.tuning:  # they share one search
            shared = replace(spec, split=0, seed=0)
        elif is_network(spec.method):
            free = cast(type[NeuralClassifier], REGISTRY[spec.method].estimator).member_parameters
            settings = {name: value for name, value in spec.settings.items() if name not in free}
            shared = replace(spec, split=0, seed=0, hidden_labels=0.0, settings=settings)
        groups.setdefault(shared, []).append(spec)
    return [
        tuple(group[start : start + largest])
        for group in groups.values()
        for start in range(0, len(group), largest)
    ]


def expected_work(job: Job) -> float:
    """Return a rough measure of how long a job takes, to start the longest ones first.

    Rows × labels; methods that only take so many labels compare all pairs of them.
    """
    first = job[0]
    size = catalog.find_entry(first.data).statistics
    pairs = size.labels if first.method in REGISTRY and REGISTRY[first.method].max_labels else 1
    return float(len(job) * size.samples * first.train_fraction * size.labels * pairs)


#: Fields of a scope that list what is chosen.
SELECTIONS = ("data", "methods", "splits", "seeds", "comparisons")


@dataclass(frozen=True)
class Scope:
    """How much of a study is run; a field that is None is left to the study.

    Names are checked, and duplicates removed.
    """

    quick: bool = False
    """A small version that takes minutes on two CPU cores."""
    data: tuple[str, ...] | None = None
    methods: tuple[str, ...] | None = None
    splits: tuple[int, ...] | None = None
    seeds: tuple[int, ...] | None = None
    split: str = "random"
    """``random`` (by group where there are groups), or ``official``: the publisher's split, on the
    data sets that have one."""
    comparisons: tuple[str, ...] | None = None
    """Of the ablation, names in :data:`cgmvae.studies.arms.COMPARISONS`."""
    tuning: str | None = None
    """The search of every network in studies that tune, of :data:`cgmvae.studies.tuning.TUNINGS`,
    in place of the study's own; a quick study then trains for as many epochs as a full one."""

    def __post_init__(self) -> None:
        if self.split not in SPLIT_KINDS:
            raise InputError(
                f"There is no split {self.split!r}; choose one of {', '.join(SPLIT_KINDS)}."
            )
        if self.data is not None:
            names = tuple(catalog.find_entry(name).name for name in self.data)
            object.__setattr__(self, "data", names)
            if without := [name for name in names if not self.has_split(name)]:
                raise InputError(
                    f"{without[0]!r} has no official split; leave it out, or split at random."
                )
        known = (*REGISTRY, *PEERS)
        for name in self.methods or ():
            if name not in known:
                raise InputError(f"There is no method {name!r}; choose one of {', '.join(known)}.")
        for seed in (*(self.splits or ()), *(self.seeds or ())):
            if not 0 <= seed < _SEED_LIMIT:
                raise InputError(f"{seed} is not a valid seed; use 0, 1, 2, and so on.")
        for name in SELECTIONS:
            given = getattr(self, name)
            if given is not None:
                object.__setattr__(self, name, tuple(dict.fromkeys(given)))

    @property
    def official(self) -> bool:
        """Whether runs are on the publishers' splits."""
        return self.split == "official"

    def has_split(self, data: str) -> bool:
        """Return whether a data set can be split as the scope says."""
        return not self.official or catalog.find_entry(data).official_split

    def chosen_methods(self, full: Sequence[str]) -> tuple[str, ...]:
        """Return the methods."""
        return self.methods or tuple(full)

    def chosen_splits(self, full: Sequence[int] = (0, 1, 2)) -> tuple[int, ...]:
        """Return the seeds of the splits."""
        return self.splits or tuple(full[:2] if self.quick else full)

    def chosen_seeds(self, full: Sequence[int] = (0, 1, 2)) -> tuple[int, ...]:
        """Return the seeds of the models."""
        return self.seeds or tuple(full[:1] if self.quick else full)

    def with_defaults(self, splits: Sequence[int], seeds: Sequence[int]) -> Scope:
        """Return the scope with a study's own splits and seeds in place of the usual ones."""
        return replace(self, splits=self.chosen_splits(splits), seeds=self.chosen_seeds(seeds))

    def seeds_of(self, method: str) -> tuple[int, ...]:
        """Return the seeds of a method's models; a deterministic one is run with the first."""
        return self.chosen_seeds()[:1] if method in DETERMINISTIC else self.chosen_seeds()

    def settings(self, method: str) -> dict[str, Any]:
        """Return the settings of a method: in a quick study, networks have one member."""
        return {"n_members": 1} if self.quick and is_network(method) else {}

    def runs(self, specs: Sequence[RunSpec]) -> list[RunSpec]:
        """Return each spec that can be run with every split and seed of the scope."""
        return [
            replace(spec, split=split, seed=seed, official=self.official)
            for spec in specs
            if is_available(spec.data) and why_unsupported(spec.data, spec.method) is None
            for split, seed in product(self.chosen_splits(), self.seeds_of(spec.method))
        ]


def data_choice(full: Sequence[str], *, quick: Sequence[str]) -> Callable[[Scope], tuple[str, ...]]:
    """Return a function that returns a study's data sets in a scope, available or not.

    With official splits, those without one are left out.
    """

    def choose(scope: Scope) -> tuple[str, ...]:
        own = quick if scope.quick else full
        return scope.data or tuple(filter(scope.has_split, own))

    return choose


class StudyFigure(NamedTuple):
    """The contents of a plot; :mod:`cgmvae.report` knows how to draw each kind."""

    name: str
    """Of the file, without suffix."""
    kind: str
    contents: Mapping[str, Any]


@dataclass(frozen=True)
class Study:
    """One study of the paper, or of ours."""

    name: str
    runs: Callable[[Scope], list[RunSpec]]
    tables: Callable[[Results], list[Table]]
    """Rows and tables of what was not run are left out."""
    figures: Callable[[Results], list[StudyFigure]] = field(default=lambda _: [])
    data: Callable[[Scope], Sequence[str]] = field(default=lambda _: ())
    """The data sets, available or not."""


#: The paper's nine data sets, in its order, and stand-ins for those that are not public.
PAPER_DATA = (
    "ebird", "mirflickr", "nus_vec", "yeast", "scene", "sider", "reuters", "bookmarks", "delicious",
)  # fmt: skip
STAND_INS: Mapping[str, str] = {
    "bbs_2003_2009": "ebird",
    "mirflickr_tags": "mirflickr",
    "reuters_tfidf": "reuters",
}


#: Data sets on which the paper's decoder has a third hidden layer (appendix B.1).
_DEEPER_DECODERS = ("reuters", "bookmarks")


def preset_settings(preset: str, data: str) -> dict[str, Any]:
    """Return the settings of a preset on a data set, as in a :class:`RunSpec`.

    Examples
    --------
    >>> preset_settings("paper", "reuters")
    {'preset': 'paper', 'decoder_hidden': (512, 512, 512)}
    >>> preset_settings("paper", "yeast")
    {'preset': 'paper'}
    """
    if preset == "paper" and paper_data(data) in _DEEPER_DECODERS:
        hidden = PRESETS[preset].network.decoder_hidden
        return {"preset": preset, "decoder_hidden": (*hidden, 512)}
    return {"preset": preset}


def paper_data(name: str) -> str:
    """Return the paper's data set that this one is, or stands in for."""
    return STAND_INS.get(name, name)


def paper_row(name: str) -> str:
    """Return the title of the row that has the paper's numbers for this data set."""
    return "— the paper" if paper_data(name) == name else f"— the paper on {paper_data(name)}"


def data_title(name: str) -> str:
    """Return the name of a data set, and of the one that it stands in for.

    Examples
    --------
    >>> data_title("yeast"), data_title("bbs_2003_2009")
    ('yeast', 'bbs_2003_2009 (in place of ebird)')
    """
    return f"{name} (in place of {STAND_INS[name]})" if name in STAND_INS else name


def method_title(method: str) -> str:
    """Return the usual name of a method of the registry or of scikit-learn."""
    return REGISTRY[method].title if method in REGISTRY else PEERS[method].title


def is_available(data: str) -> bool:
    """Return whether a data set can be read without downloading anything."""
    return catalog.locate(data) is not None


def why_unsupported(data: str, method: str) -> str | None:
    """Return why a method is not run on a data set, or None if it is."""
    size = catalog.find_entry(data).statistics
    if method in PEERS:
        return PEERS[method].why_left_out(size.samples * size.labels)
    limit = REGISTRY[method].max_labels if method in REGISTRY else None
    return None if limit is None or size.labels <= limit else f"takes at most {limit} labels"


def why_missing(data: str) -> str:
    """Return a short explanation of why a data set has no numbers."""
    entry = catalog.find_entry(data)
    return f"not available: put {entry.file} into the folder named by CGMVAE_DATA"
