"""What rows without labels add, with 5, 10 and 20% of the training rows labeled.

Every ingredient is switched on by itself, then all together; peers that learn from such rows get
the same ones. All runs are cross-validated on the labeled rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from cgmvae.studies.ablation import (
    Variant,
    difference_table,
    score_table,
    variant_rows,
    variant_runs,
)
from cgmvae.studies.peers import PEERS, SEMI_SUPERVISED
from cgmvae.studies.results import Results
from cgmvae.studies.spec import RunSpec, Scope, Study, data_choice, is_network
from cgmvae.studies.tables import Table

#: Yeast, scene, delicious, bird counts by route, tags of pictures and news.
DATA = ("yeast", "scene", "delicious", "bbs_2003_2009", "mirflickr_tags", "reuters_tfidf")
_data = data_choice(DATA, quick=("yeast",))
FRACTIONS = (0.05, 0.1, 0.2)
SPLITS, SEEDS = (0, 1, 2, 3, 4), (0,)

#: Epochs of the preset, which :data:`LONGER` multiplies.
_EPOCHS = 30

#: Members, and so folds, of a quick study.
_QUICK_MEMBERS = 4

#: Metrics whose differences are shown; the aim is stated for the first.
METRICS = ("macro_f1", "micro_f1", "example_f1")


@dataclass(frozen=True)
class Labeled(Variant):
    """A variant with labels in a fraction of the training rows."""

    labeled_fraction: float = 0.1
    unlabelled: bool = True

    def spec(self, scope: Scope, data: str) -> RunSpec:
        """Return the run of this variant, for any split and seed."""
        spec = super().spec(scope, data)
        if scope.quick and is_network(self.method):  # a single member would leave out most folds
            spec = replace(spec, settings={**spec.settings, "n_members": _QUICK_MEMBERS})
        return replace(spec, labeled_fraction=self.labeled_fraction, unlabelled=self.unlabelled)


SUPERVISED = Labeled("supervised", unlabelled=False)
#: An epoch of all rows has more steps than one of the labeled rows; these are as many in all.
LONGER = Labeled("supervised, as many steps", unlabelled=False)
CONSISTENCY = {"consistency_weight": 1.0, "consistency_warmup": 0.5}
PRIOR = {"unlabelled_prior": "predicted"}
RECONSTRUCTION = {"reconstruction": "gaussian", "reconstruction_weight": 0.01}
#: The Π-model's consistency, FixMatch's confident pseudo-labels, pseudo-labels of a first fit that
#: is sure enough of each label, the mixture prior with predicted weights, Eq. 5, and all but
#: pseudo-labels, which exclude the first.
INGREDIENTS = (
    Labeled("consistency", {"settings": CONSISTENCY}),
    Labeled("pseudo-labels", {"settings": {**CONSISTENCY, "confidence": 0.9}}),
    Labeled("pseudo-labels, limits per label", {"pseudo_labels": 0.9}),
    Labeled("predicted prior", {"settings": PRIOR}),
    Labeled("reconstruction", {"settings": RECONSTRUCTION}),
    Labeled("all", {"settings": {**CONSISTENCY, **PRIOR, **RECONSTRUCTION}}),
)
OTHERS = tuple(Labeled(PEERS[name].title, method=name) for name in SEMI_SUPERVISED)
VARIANTS = (SUPERVISED, LONGER, *INGREDIENTS, *OTHERS)


def variants(scope: Scope, fraction: float) -> list[Labeled]:
    """Return the variants of the scope's methods with labels in a fraction of the rows."""
    methods = scope.chosen_methods(("cgmvae", *SEMI_SUPERVISED))
    # To the end: the preset would stop a model that does not improve.
    longer = {"epochs": round(_EPOCHS / fraction), "settings": {"patience": None}}
    return [
        replace(
            each, labeled_fraction=fraction, settings=longer if each is LONGER else each.settings
        )
        for each in VARIANTS
        if each.method in methods
    ]


def _fractions(scope: Scope) -> tuple[float, ...]:
    return (0.1,) if scope.quick else FRACTIONS


def runs(scope: Scope) -> list[RunSpec]:
    """Return every variant with every fraction, with five splits and one seed."""
    wanted = [each for fraction in _fractions(scope) for each in variants(scope, fraction)]
    return variant_runs(scope.with_defaults(SPLITS, SEEDS), _data(scope), wanted)


def tables(results: Results) -> list[Table]:
    """Return the scores by fraction, and the differences from the supervised model."""
    results = Results(results.scope.with_defaults(SPLITS, SEEDS), results.store)
    found = []
    for fraction in _fractions(results.scope):
        own = variants(results.scope, fraction)
        rows = variant_rows(results, _data(results.scope), own, protocol="validation", reported={})
        share = f"{fraction:.0%} of the rows labeled"
        found.append(score_table(share, "validation", rows))
        found.append(
            difference_table(
                results,
                _data(results.scope),
                [(each, own[0]) for each in own[1:] if own[0].title == SUPERVISED.title],
                title=f"What rows without labels add, {share}",
                metrics=METRICS,
            )
        )
    return found


STUDY = Study(
    "unlabelled", "Rows without labels, with 5, 10 and 20% of the rows labeled", runs, tables
)
