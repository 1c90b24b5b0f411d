"""What one run is: data, split, method, settings, seed; and what runs are trained together."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, cast

import torch

from cgmvae.methods import REGISTRY
from cgmvae.methods.packed import PackedClassifier

#: Runs of a job at most, which are trained as one pack: on a processor more would save nothing.
LARGEST_JOB, LARGEST_ON_ACCELERATOR = 16, 64


@dataclass(frozen=True, eq=False)
class RunSpec:
    """One model on one split of one data set; equal specs are the same run, whatever study asks."""

    data: str
    """A name of the catalog."""
    method: str
    """A name of the registry, or of :data:`cgmvae.studies.peers.PEERS`."""
    split: int = 0
    """Seed of the split: by group where the data has groups, else random."""
    seed: int = 0
    """Seed of the model."""
    train_fraction: float = 1.0
    """Share of the training rows that is used."""
    hidden_labels: float = 0.0
    """Share of the known labels of the training rows that is made unknown."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of the estimator, as JSON can hold them; its own defaults for the others."""

    def __post_init__(self) -> None:
        # 1 and 1.0 are the same share, and must give the same key.
        for name in ("train_fraction", "hidden_labels"):
            object.__setattr__(self, name, float(getattr(self, name)))

    def to_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> RunSpec:
        """Return the spec that :meth:`to_dict` described."""
        return cls(**record)

    @property
    def key(self) -> str:
        """A short name that follows from the fields alone.

        Examples
        --------
        >>> RunSpec("yeast", "cgmvae").key == RunSpec("yeast", "cgmvae", settings={}).key
        True
        """
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RunSpec) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


def unique(specs: Iterable[RunSpec]) -> list[RunSpec]:
    """Return each run once, in the order in which they come."""
    return list(dict.fromkeys(specs))


def is_network(method: str) -> bool:
    """Tell whether runs of a method can be trained as one pack.

    Examples
    --------
    >>> is_network("cgmvae"), is_network("mlknn"), is_network("random-forest")
    (True, False, False)
    """
    return method in REGISTRY and issubclass(REGISTRY[method].estimator, PackedClassifier)


def make_jobs(specs: Iterable[RunSpec], *, largest: int | None = None) -> list[tuple[RunSpec, ...]]:
    """Return the runs that are made together: networks that fit into one pack.

    They are of one method, with the same network, training plan, data and share of the rows; they
    may differ in split, seed, rates, weights of terms and hidden labels. Other methods gain nothing
    from company; each of their runs is a job, so that little is lost when one is stopped.

    Parameters
    ----------
    specs : iterable of RunSpec
    largest : int, optional
        Runs of a job at most; by default it depends on whether there is an accelerator.

    Examples
    --------
    >>> runs = [RunSpec("yeast", m, seed=s) for m in ("cgmvae", "mlknn") for s in (0, 1)]
    >>> [len(job) for job in make_jobs(runs)]
    [2, 1, 1]
    """
    if largest is None:
        on_card = torch.cuda.is_available()
        largest = LARGEST_ON_ACCELERATOR if on_card else LARGEST_JOB
    alike: dict[str, list[RunSpec]] = {}
    for spec in unique(specs):
        alike.setdefault(_pack_of(spec).key, []).append(spec)
    return [
        tuple(group[start : start + largest])
        for group in alike.values()
        for start in range(0, len(group), largest)
    ]


def _pack_of(spec: RunSpec) -> RunSpec:
    """Return what all runs of a pack have in common."""
    if not is_network(spec.method):
        return spec
    estimator = cast(type[PackedClassifier], REGISTRY[spec.method].estimator)
    free = estimator.member_parameters
    settings = {name: value for name, value in spec.settings.items() if name not in free}
    return replace(spec, split=0, seed=0, hidden_labels=0.0, settings=settings)
