"""What a fit decides from the data, once: a profile of the data, and the plan made for it.

Every rule that depends on data is here. A :class:`Plan` is a value: ``fit`` computes it before
anything is learned, the model file stores it, and ``cgmvae describe`` prints it. A rule is a law of
the profile that rises or falls without steps, so that a row more or a column less changes a plan by
rounding at most. ``docs/results/defaults.md`` has the table of all laws and how they were chosen.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cgmvae.data.dataset import Matrix
from cgmvae.data.mapped import is_binary, is_sparse
from cgmvae.declared import check_declared, declared_types, requirement
from cgmvae.errors import InputError
from cgmvae.model.network import NetworkConfig
from cgmvae.model.objective import TERMS
from cgmvae.model.presets import PRESETS, Preset
from cgmvae.preparation.components import NumberOfComponents
from cgmvae.preparation.piecewise import EncodingName
from cgmvae.preparation.pipeline import FeaturePlan
from cgmvae.preparation.scaling import ScalingName
from cgmvae.training.plan import TrainingConfig

#: Kinds of features: numbers; mostly zeros, such as weights of words; mostly 0 and otherwise 1.
FeatureKind = Literal["dense", "sparse", "binary"]


#: Features are sparse, whatever they are stored as, if there are at least so many, none of their
#: values is below 0, and more than this share of these is 0.
WIDE, MOSTLY = 256, 0.8


def stored_by_values(features: NDArray[np.floating]) -> Matrix:
    """Return an array as CSR if its features are sparse, otherwise as it is.

    Examples
    --------
    >>> stored_by_values(np.eye(300)).format
    'csr'
    >>> stored_by_values(np.eye(200)).shape
    (200, 200)
    """
    if features.shape[1] < WIDE or not (features >= 0).all():
        return features
    is_mostly_zero = np.count_nonzero(features) < (1 - MOSTLY) * features.size
    return sp.csr_array(features) if is_mostly_zero else features


@dataclass(frozen=True)
class DataProfile:
    """What is known of the data when a fit is planned.

    Examples
    --------
    >>> import numpy as np
    >>> DataProfile.of(np.zeros((100, 5)), np.zeros((100, 3)))
    DataProfile(n_rows=100, n_columns=5, n_labels=3, features='dense')
    """

    n_rows: int
    """Training rows with labels."""
    n_columns: int
    """Features before they are scaled."""
    n_labels: int
    features: FeatureKind

    @classmethod
    def of(cls, features: Matrix, labels: Matrix) -> DataProfile:
        """Return the profile of training rows."""
        kind: FeatureKind = "dense"
        if is_sparse(features):
            kind = "binary" if is_binary(features) else "sparse"
        (n_rows, n_columns), n_labels = features.shape, labels.shape[1]
        return cls(int(n_rows), int(n_columns), int(n_labels), kind)

    @property
    def is_sparse(self) -> bool:
        """Whether most features are 0."""
        return self.features != "dense"


@dataclass(frozen=True)
class Plan:
    """What a fit does with the data; ``network`` and what follows are None without a network."""

    profile: DataProfile
    """The data that it was made for."""
    features: FeaturePlan = field(default_factory=FeaturePlan)
    """How features are prepared."""
    network: Any = None
    """Sizes and switches of the network, such as a ``NetworkConfig``."""
    training: TrainingConfig | None = None
    """What all members share."""
    member: Mapping[str, Any] | None = None
    """Rates, dropouts and weights of the terms, of members that do not have their own."""


#: Where the laws of the number of rows begin and end: from few rows to many.
FEW_ROWS, MANY_ROWS = 2_500, 5_000

#: Rows between which the network grows, with dense features, and its largest sizes: E, d and each
#: hidden layer of the decoder. The smallest are those of the preset.
GROWTH = (2_500, 10_000)
LARGEST_EMBEDDING, LARGEST_LATENT, LARGEST_DECODER = 256, 64, 384

#: Hidden layers of feature encoder and decoder with sparse features: a unit more is a weight more
#: for every word.
SPARSE_ENCODER, SPARSE_DECODER = 64, 192

#: Epochs with few rows are so many that a member sees this many rows, up to the largest number.
#: With more rows there are at least ``MIN_EPOCHS`` with dense features; with sparse ones, which are
#: learned within a few epochs, ``SPARSE_EPOCHS`` with few labels and with many, and fewer where a
#: member sees so many rows.
ROWS_SEEN, MAX_EPOCHS, MIN_EPOCHS = 60_000, 240, 50
SPARSE_EPOCHS, SPARSE_ROWS_SEEN, MIN_SPARSE_EPOCHS = (20, 30), 450_000, 5

#: From few labels to many.
FEW_LABELS, MANY_LABELS = 100, 1_000

#: A member stops after this share of the epochs without improvement, and after no fewer than this;
#: with few epochs, of sparse features, after a larger share and no fewer than the last.
PATIENCE, MIN_PATIENCE = 1 / 10, 6
SPARSE_PATIENCE, MIN_SPARSE_PATIENCE = 1 / 5, 4

#: Trees are so many that they grow on this many rows in total, within these bounds: a row is scored
#: out of bag by a third of them, and where these are few, a forest seems worth less than it is.
ROWS_GROWN, MIN_TREES, MAX_TREES = 300_000, 100, 400

#: Whether the thresholds of a tree are drawn at random, or are those that separate labels best.
SplitName: TypeAlias = Literal["random", "best"]

#: Share of the features that are tried for a random split, unless they are sparse and wide; for any
#: other split it is the square root of their number.
TRIED_SHARE = 0.3

#: Rows per step: this share of the rows, within these bounds; with sparse features and few labels
#: up to the last. The rate is in proportion to the rows per step, up to the third.
BATCH_SHARE, MIN_BATCH, MAX_BATCH, MAX_SPARSE_BATCH = 1 / 8, 128, 256, 512

#: Rows between which the contrastive term comes to count as much as cross-entropy, with dense
#: features, its largest weight and temperature.
CONTRAST = (1_000, 2_500)
LARGEST_CONTRAST, LARGEST_TEMPERATURE = 1.0, 0.4

#: With many rows hidden units are dropped with this probability, and dense features with the other.
MIN_DROPOUT, MIN_INPUT_DROPOUT = 0.1, 0.0

#: Few rows of features that are all 0 or 1 are learned by heart within a few epochs: this is the
#: probability of dropping a hidden unit and a feature there, and the rows between which it falls.
BINARY_DROPOUT, BINARY_ROWS = 0.5, (1_000, 6_000)

#: Piecewise-linear bins of a dense feature with few and with many rows, and the most columns that
#: they may become: wider tables have fewer bins, the widest none.
BINS, MAX_COLUMNS = (8, 16), 4_096

#: Principal components with few and with many rows, if there are more columns than that.
COMPONENTS = (64, 512)


def rise(n: int, first: int, last: int) -> float:
    """Return how far n is on its way from ``first`` to ``last``, from 0 to 1, in logarithms.

    Examples
    --------
    >>> rise(100, 1000, 4000), round(rise(2000, 1000, 4000), 3), rise(9000, 1000, 4000)
    (0.0, 0.5, 1.0)
    """
    return min(1.0, max(0.0, math.log(max(n, 1) / first) / math.log(last / first)))


def between(low: float, high: float, share: float) -> float:
    """Return the number at a share of the way from low to high, in equal ratios.

    Examples
    --------
    >>> round(between(64, 256, 0.5), 3)
    128.0
    """
    return low * (high / low) ** share


def n_epochs(data: DataProfile) -> int:
    """Return the number of epochs that a member may have; most stop earlier."""
    n_rows = max(1, data.n_rows)
    least: float = MIN_EPOCHS
    if data.is_sparse:
        most = between(*SPARSE_EPOCHS, rise(data.n_labels, FEW_LABELS, MANY_LABELS))
        least = min(most, max(MIN_SPARSE_EPOCHS, SPARSE_ROWS_SEEN / n_rows))
    return round(min(MAX_EPOCHS, max(least, ROWS_SEEN / n_rows)))


def patience(data: DataProfile) -> int:
    """Return the number of epochs without improvement after which a member stops."""
    epochs, least = n_epochs(data), float(MIN_PATIENCE)
    if data.is_sparse:
        least = min(least, max(MIN_SPARSE_PATIENCE, SPARSE_PATIENCE * epochs))
    return round(max(least, PATIENCE * epochs))


def n_trees(data: DataProfile) -> int:
    """Return the number of trees of a forest: the fewer rows, the less a tree costs."""
    return round(min(MAX_TREES, max(MIN_TREES, ROWS_GROWN / max(1, data.n_rows))))


def splits_tried(data: DataProfile) -> dict[SplitName, int]:
    """Return how many features are tried for a split of each kind."""
    root = max(1, int(data.n_columns**0.5))
    if data.is_sparse and data.n_columns >= WIDE:
        return {"random": root, "best": root}
    return {"random": max(1, int(data.n_columns * TRIED_SHARE)), "best": root}


def n_bins(data: DataProfile) -> int:
    """Return the number of piecewise-linear bins of a continuous feature."""
    return round(between(*BINS, rise(data.n_rows, FEW_ROWS, MANY_ROWS)))


def n_components(data: DataProfile) -> int:
    """Return the number of principal components that wider rows are replaced by."""
    return round(between(*COMPONENTS, rise(data.n_rows, FEW_ROWS, MANY_ROWS)))


def feature_plan(
    data: DataProfile,
    scaling: ScalingName,
    encoding: EncodingName,
    components: NumberOfComponents,
) -> FeaturePlan:
    """Return how features of such data are prepared, with what was left to the data decided."""
    bins = 0 if data.is_sparse or encoding == "standard" else n_bins(data)
    if encoding == "auto":
        bins = min(bins, MAX_COLUMNS // max(1, data.n_columns))
    if components == "auto":
        components = None if data.is_sparse else n_components(data)
    return FeaturePlan(scaling, bins, components)


def preset_for(name: str, data: DataProfile) -> Preset:
    """Return a preset for these data.

    Of ``tuned``, these depend on the rows and on the kind of features; the others are the same for
    all data. An arrow is a number that rises or falls with the logarithm of the rows.

    ====================  ========================================  ============================
    What                  Dense features                            Sparse features
    ====================  ========================================  ============================
    epochs                60,000 / rows, from 50 to 240             60,000 / rows, at least 20
                                                                    → 30 (100 → 1,000 labels),
                                                                    at most 240; with very many
                                                                    rows 450,000 / rows, at
                                                                    least 5
    patience              a tenth of the epochs, at least 6         the same; a fifth of less
                                                                    than 30 epochs, at least 4
    batch                 rows / 8, from 128 to 256                 rows / 8, from 128 to 512
    rate                  .004 for 128 rows, in proportion          .002, in proportion up to
                                                                    256
    E, d                  128, 32 → 256, 64 (2,500 → 10,000 rows)   256, 64
    hidden layers         encoder 64, decoder 192 → 384 twice       encoder 64, decoder 192
    label embeddings      start at norm .3                          start at norm 1
    contrastive weight    .3 → 1 (1,000 → 2,500 rows)               .3
    temperature           .2 → .4 (the same)                        .2
    dropout               .2 → .1 (2,500 → 5,000 rows)              the same; of features that are
                                                                    all 0 or 1 .5 → .1 (1,000 →
                                                                    6,000 rows)
    input dropout         .1 → 0 (2,500 → 5,000 rows)               .1; all 0 or 1: as dropout
    ====================  ========================================  ============================
    """
    if name not in PRESETS:
        raise InputError(f"There is no preset {name!r}; choose one of {', '.join(PRESETS)}.")
    preset = PRESETS[name]
    # Deviation D9: the paper searches a grid for every data set.
    if name != "tuned":
        return preset
    n_rows, network = data.n_rows, preset.network
    epochs = n_epochs(data)
    largest: float = MAX_BATCH
    if data.is_sparse:
        many_labels = rise(data.n_labels, FEW_LABELS, MANY_LABELS)
        largest = between(MAX_SPARSE_BATCH, MAX_BATCH, many_labels)
    batch_size = round(min(largest, max(MIN_BATCH, BATCH_SHARE * n_rows)))
    rate = preset.learning_rate * min(batch_size, MAX_BATCH) / MIN_BATCH
    many = rise(n_rows, FEW_ROWS, MANY_ROWS)
    dropout = preset.dropout + many * (MIN_DROPOUT - preset.dropout)
    input_dropout = preset.input_dropout
    if data.is_sparse:
        rate /= 2
        network = replace(
            network,
            embedding_dim=LARGEST_EMBEDDING,
            latent_dim=LARGEST_LATENT,
            feature_hidden=(SPARSE_ENCODER,),
            decoder_hidden=(SPARSE_DECODER,),
            label_scale=1.0,
        )
    else:
        size, contrast = rise(n_rows, *GROWTH), rise(n_rows, *CONTRAST)
        hidden = tuple(
            round(between(width, LARGEST_DECODER, size)) for width in network.decoder_hidden
        )
        network = replace(
            network,
            embedding_dim=round(between(network.embedding_dim, LARGEST_EMBEDDING, size)),
            latent_dim=round(between(network.latent_dim, LARGEST_LATENT, size)),
            decoder_hidden=hidden,
        )
        preset = replace(
            preset,
            contrastive_weight=between(preset.contrastive_weight, LARGEST_CONTRAST, contrast),
            temperature=between(preset.temperature, LARGEST_TEMPERATURE, contrast),
        )
        input_dropout += many * (MIN_INPUT_DROPOUT - input_dropout)
    if data.features == "binary":
        known = rise(n_rows, *BINARY_ROWS)
        dropout = input_dropout = BINARY_DROPOUT + known * (MIN_DROPOUT - BINARY_DROPOUT)
    training = dict(preset.training) | {
        "epochs": epochs,
        "patience": patience(data),
        "batch_size": batch_size,
    }
    return replace(
        preset,
        network=network,
        learning_rate=rate,
        dropout=dropout,
        input_dropout=input_dropout,
        training=training,
    )


#: Numbers of a preset that are its own: rates, dropouts, weights and a temperature.
NUMBERS = frozenset(each.name for each in fields(Preset)) - {
    "network",
    "training",
    "further_weights",
}


def weighed_term(name: str) -> str | None:
    """Return the further term that a setting such as ``ranking_weight`` weighs; None if none."""
    term = name.removesuffix("_weight")
    return term if name not in NUMBERS and term != name and term in TERMS else None


def given_fields(values: Any, record: type) -> dict[str, Any]:
    """Return the fields of a record that were given, as a mapping or as the record itself.

    Weights of further terms may be given with those of ``TrainingConfig``.
    """
    if isinstance(values, record):
        return {each.name: getattr(values, each.name) for each in fields(record)}
    if not isinstance(values, Mapping | None):
        raise InputError(f"{values!r} is neither a mapping nor a {record.__name__}; give one.")
    given = dict(values or {})
    names = set(declared_types(record))
    if record is TrainingConfig:
        names |= {name for name in given if weighed_term(name)}
    if unknown := sorted(set(given) - names):
        raise InputError(f"There is no setting {unknown[0]!r} in {record.__name__}.")
    return given


def configured(preset: Preset, given: Mapping[str, Any]) -> Preset:
    """Return a preset with settings put in its place.

    Parameters
    ----------
    preset : Preset
    given : mapping of str to anything
        Fields of ``Preset``, ``NetworkConfig`` and ``TrainingConfig`` by name, and
        ``<term>_weight`` for any further term of ``objective.TERMS``.
    """
    parts: dict[str, dict[str, Any]] = {
        "own": {},
        "network": {},
        "training": dict(preset.training),
        "further_weights": dict(preset.further_weights),
    }
    for name, value in given.items():
        if name in NUMBERS:
            parts["own"][name] = value
        elif name in declared_types(NetworkConfig):
            parts["network"][name] = value
        elif name in declared_types(TrainingConfig):
            parts["training"][name] = value
        elif (term := weighed_term(name)) is not None:
            if wanted := requirement(name, value, float):
                raise InputError(f"{name} is {value!r}; {wanted}.")
            parts["further_weights"][term] = value
        else:
            raise InputError(f"There is no setting {name!r}; see NetworkConfig.")
    for record in (Preset, NetworkConfig, TrainingConfig):
        check_declared(record, given)
    network = replace(preset.network, **parts.pop("network"))
    own = parts.pop("own") | parts
    return replace(preset, network=network, **own)


def grouped(settings: Mapping[str, Any], named: Collection[str]) -> dict[str, Any]:
    """Return settings by name as parameters of an estimator.

    Those that are no parameters of their own, ``named``, go into ``network`` and ``training``;
    weights of further terms into ``training``.

    Examples
    --------
    >>> grouped({"dropout": 0.1, "layer_norm": False, "patience": 5}, named={"dropout"})
    {'dropout': 0.1, 'network': {'layer_norm': False}, 'training': {'patience': 5}}
    """
    found, network, training = {}, {}, {}
    for name, value in settings.items():
        if name in named:
            found[name] = value
        elif name in declared_types(NetworkConfig):
            network[name] = value
        elif name in declared_types(TrainingConfig) or weighed_term(name) is not None:
            training[name] = value
        else:
            found[name] = value
    parts = {"network": network, "training": training}
    return found | {name: values for name, values in parts.items() if values}
