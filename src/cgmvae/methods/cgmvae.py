"""C-GMVAE as a scikit-learn estimator."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from cgmvae.data.dataset import Matrix
from cgmvae.data.mapped import MappedRows, dense, is_binary, is_sparse
from cgmvae.errors import InputError
from cgmvae.evaluation.calibration import Calibration, learn_calibration
from cgmvae.methods.base import LabelSimilarity
from cgmvae.methods.conditioning import LabelFactors, learn_factors
from cgmvae.methods.diagnostics import cooccurrence, diagnose
from cgmvae.methods.inputs import Rows, check_declared, check_whole, targets_of_rows
from cgmvae.methods.linear import (
    MOST_WEIGHTS,
    MOST_WORK,
    LinearModel,
    WhetherLinear,
    learn_linear,
)
from cgmvae.methods.neighbors import (
    MOST_CELLS,
    MOST_ROWS,
    N_NEAREST,
    Neighbors,
    NumberOfNeighbors,
    learn_neighbors,
)
from cgmvae.methods.out_of_fold import assign_folds
from cgmvae.methods.own_encoder import EncodingClassifier
from cgmvae.methods.serialization import read_calibration
from cgmvae.model.network import CGMVAENetwork, NetworkConfig
from cgmvae.model.presets import (
    LARGE_BATCHES,
    NETWORK_FIELDS,
    PRESET_NUMBERS,
    Preset,
    for_data,
    with_settings,
)
from cgmvae.nn.gaussian import mean_given_labels
from cgmvae.nn.rng import RandomStreams
from cgmvae.preparation.components import NumberOfComponents
from cgmvae.preparation.piecewise import EncodingName
from cgmvae.training.device import find_device
from cgmvae.training.pack import LabelRows
from cgmvae.training.plan import Member, TrainingConfig, column

#: Power of the temperature of single members that the members of an ensemble are given: their mean
#: is less confident than they are. No row is out of fold for several members, so it was compared on
#: test rows (splits 0 to 2 of yeast, scene and sider): from .3 to .7 log-loss hardly changes, and
#: the smaller it is, the more rare labels reach a threshold that all labels share.
TEMPERATURE_SHARE = 0.3

_TRAINING_FIELDS = frozenset(field.name for field in dataclasses.fields(TrainingConfig))


@dataclass(kw_only=True, eq=False, repr=False)
class CGMVAEClassifier(
    LabelSimilarity, ClassNamePrefixFeaturesOutMixin, TransformerMixin, EncodingClassifier
):
    """Contrastive Gaussian mixture variational autoencoder for multi-label classification.

    Every label has an embedding and a Gaussian in a latent space; a row's labels pick the mixture
    that its own encoding is held to, and inner products between the row's embedding and the
    labels' give the probabilities. Several members, trained together from different seeds, are
    averaged.

    Parameters
    ----------
    preset : {"tuned", "released", "paper"}
        Where all settings come from that are not given here.
    epochs, batch_size, learning_rate, weight_decay, dropout, input_dropout : optional
        Training; None takes the preset's value.
    embedding_dim, latent_dim : int, optional
        E, length of label and feature embeddings, and d, dimensions of z.
    label_hidden, feature_hidden, decoder_hidden : tuple of int, optional
        Hidden layers of the three parts of the network.
    kl_weight, contrastive_weight, cross_entropy_weight, reconstruction_weight : float, optional
        Weights of the terms; KL is summed over latent dimensions, cross-entropy over labels and
        reconstruction over features. α of the paper is ``contrastive_weight``, β is
        ``cross_entropy_weight``.
    temperature : float, optional
        τ of the contrastive term.
    activation, layer_norm, label_bias, … : optional
        Any other field of :class:`~cgmvae.model.network.NetworkConfig`, which describes them.
    optimizer, schedule, patience, … : optional
        Any other field of :class:`~cgmvae.training.plan.TrainingConfig`.
    settings : mapping, optional
        The same by name, for values that None cannot stand for, such as ``{"clip": None}``; and
        weights of further terms of ``objective.TERMS``, such as ``{"ranking_weight": 0.1}``. They
        take precedence.
    calibrate : bool
        Whether ``fit`` corrects the probabilities by a temperature and a shift per label, learned
        out of fold; see :func:`~cgmvae.evaluation.learn_calibration`. It is done where that lowers
        the log-loss of rows held out, and where the network has label biases and embeddings of free
        norm, which the presets ``paper`` and ``released`` do not have; never if validation rows are
        given, or with a single member.
    n_neighbors : int or "auto"
        Number of nearest training rows whose labels are averaged with what the network predicts,
        as much as that lowers the log-loss out of fold; 0 for the network alone. The training
        rows are then stored with the model. "auto" is 32 with the preset ``tuned`` where features
        are dense or all 0 or 1, or rows few; not if rows are very many, with encoders that are
        trained or with validation rows. See :mod:`cgmvae.methods.neighbors`.
    linear_model : bool or "auto"
        Whether the log-odds of a linear support vector machine per label are added to those of the
        network, as much as that lowers the log-loss out of fold. "auto" does it with the preset
        ``tuned`` for sparse features that are not all 0 or 1, such as weights of words, or of few
        rows; not with very many of them, with encoders that are trained or with validation rows.
        See :mod:`cgmvae.methods.linear`.
    conditional : bool
        Whether ``fit`` also learns what known labels say about the others, for
        ``predict_proba(X, known=…)``; see :mod:`cgmvae.methods.conditioning`.
    pseudo_labels : float, optional
        Learn from rows without labels: a first fit to the labeled rows finds, for each label, the
        probabilities from which on out-of-fold predictions are right with at least this share, see
        :func:`~cgmvae.evaluation.thresholds.certain_limits`; in the second fit such labels of rows
        without labels count as known. Each member learns those that members without its own fold
        are sure of. Takes twice as long or more.
    encoder, collate, encoder_learning_rate, encoder_frozen_epochs, shared_encoder
        An encoder of one's own for images, text or anything else; see
        :class:`~cgmvae.methods.own_encoder.EncodingClassifier`.
    encoding, principal_components
        How features are encoded, and how many principal components of them the network learns
        from; "auto" chooses by the data with the preset ``tuned``, and takes the scaled features
        with the others. See :class:`~cgmvae.methods.packed.PackedClassifier`.
    n_members, n_folds, members, device, checkpoint, progress, verbose
        See :class:`~cgmvae.methods.packed.PackedClassifier`.
    scaling, threshold_rule, threshold_metric, validation_fraction, random_state
        See :class:`~cgmvae.methods.base.MultiLabelClassifier`.

    Attributes
    ----------
    label_embeddings_ : array, (n_labels, n_members · E)
        Such that ``embed(X) @ label_embeddings_.T + label_bias_`` is the mean logit of the members.
    label_bias_ : array, (n_labels,)
        Mean bias of each label.
    calibration_ : Calibration or None
        The temperature and shifts that were found. They are part of the members' weights, and so of
        all that members compute. ``oof_proba_`` is calibrated too, each fold by the others, whose
        scores come from members that were trained on it.
    neighbors_ : Neighbors or None
        The training rows that vote, and the weight of their votes; None if they do not help.
        ``predict_proba`` and ``oof_proba_`` contain them, what concerns members or z does not.
    linear_model_ : LinearModel or None
        The linear model beside the network; None if it does not help. ``predict_proba`` and
        ``oof_proba_`` contain it, what concerns members or z does not.
    label_factors_ : LabelFactors or None
        With ``conditional``, the factors that labels share beyond what the features say; None if
        known labels say nothing about the others.

    Examples
    --------
    >>> from cgmvae.data import make_survey
    >>> data, _ = make_survey(200, 6, 5, seed=0)
    >>> model = CGMVAEClassifier(epochs=2, embedding_dim=16, random_state=0)
    >>> model.fit(data.X, data.Y).predict(data.X).shape
    (200, 5)
    >>> len(model.nearest_labels("label_0", k=2))
    2
    """

    config_class: ClassVar = NetworkConfig
    member_parameters: ClassVar[frozenset[str]] = EncodingClassifier.member_parameters | {
        "kl_weight",
        "contrastive_weight",
        "cross_entropy_weight",
        "reconstruction_weight",
        "temperature",
    }

    preset: str = field(default="tuned", kw_only=False)
    principal_components: NumberOfComponents = "auto"
    epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    weight_decay: float | None = None
    dropout: float | None = None
    input_dropout: float | None = None
    kl_weight: float | None = None
    contrastive_weight: float | None = None
    cross_entropy_weight: float | None = None
    reconstruction_weight: float | None = None
    temperature: float | None = None
    settings: Mapping[str, Any] | None = None
    calibrate: bool = True
    n_neighbors: NumberOfNeighbors = "auto"
    linear_model: WhetherLinear = "auto"
    conditional: bool = False
    pseudo_labels: float | None = None

    # The fields of NetworkConfig; None takes the preset's value.
    embedding_dim: int | None = None
    latent_dim: int | None = None
    label_hidden: tuple[int, ...] | None = None
    feature_hidden: tuple[int, ...] | None = None
    decoder_hidden: tuple[int, ...] | None = None
    activation: str | None = None
    layer_norm: bool | None = None
    label_bias: bool | None = None
    embedding_activation: str | None = None
    unit_norm: bool | None = None
    decoder_input: str | None = None
    skip_dropout: float | None = None
    label_relu: bool | None = None
    label_scale: float | None = None
    decoder_dropout: bool | None = None
    prior: str | None = None
    alignment: str | None = None
    correlation: str | None = None
    covariance_rank: int | None = None
    covariance_draws: int | None = None
    normalise_labels: bool | None = None
    reconstruction: str | None = None
    unlabelled_prior: str | None = None
    confidence: float | None = None
    n_draws: int | None = None
    own_kl_draw: bool | None = None
    label_branch: bool | None = None
    sampled_labels: int | None = None
    sampled_features: int | None = None

    # Further fields of TrainingConfig.
    optimizer: str | None = None
    schedule: str | None = None
    warmup: float | None = None
    restart_epochs: float | None = None
    restart_factor: float | None = None
    floor_learning_rate: float | None = None
    decay_all: bool | None = None
    clip: float | None = None
    kl_warmup: float | None = None
    consistency_warmup: float | None = None
    first_stage: float | None = None
    patience: int | None = None
    selection: str | None = None
    precision: str | None = None

    network_: CGMVAENetwork = field(init=False)
    calibration_: Calibration | None = field(init=False)
    neighbors_: Neighbors | None = field(init=False)
    linear_model_: LinearModel | None = field(init=False)

    def resolved_preset(self, n_rows: int, *, sparse: bool = False, **more: Any) -> Preset:
        """Return the preset for data of this size, with all that was given put in its place.

        ``more`` is what else :func:`~cgmvae.model.presets.for_data` takes.
        """
        preset = for_data(self.preset, n_rows, sparse=sparse, **more)
        names = PRESET_NUMBERS | NETWORK_FIELDS | _TRAINING_FIELDS
        own = ((name, getattr(self, name, None)) for name in names)
        given: dict[str, Any] = {name: value for name, value in own if value is not None}
        given |= dict(self.settings or {})
        for record in (NetworkConfig, TrainingConfig, Preset):
            check_declared(record, given)
        return with_settings(preset, given, training=_TRAINING_FIELDS)

    def _encoding(self) -> tuple[EncodingName, NumberOfComponents]:
        encoding, n_components = self.encoding, self.principal_components
        if self.preset == "tuned":
            return encoding, n_components
        # The paper and the released code standardize features, and no more.
        encoding = "standard" if encoding == "auto" else encoding
        return encoding, None if n_components == "auto" else n_components

    def _preset_for(self, train: Rows) -> Preset:
        labeled = train.labeled()
        n_rows, n_unlabelled = int(labeled.sum()), int((~labeled).sum())
        features = train.features
        binary = n_rows < LARGE_BATCHES and is_binary(features)
        return self.resolved_preset(
            n_rows,
            sparse=is_sparse(features),
            n_columns=features.shape[1],
            binary=binary,
            n_unlabelled=n_unlabelled,
        )

    def _learns_unlabeled(self) -> bool:
        preset = self.resolved_preset(0)  # what it depends on is the same for data of all sizes
        weights, network = preset.weights(), preset.network
        return bool(
            self.pseudo_labels is not None
            or weights.get("consistency")
            or (weights["kl"] and network.unlabelled_prior != "none")
            or (weights["reconstruction"] and network.reconstruction != "none")
        )

    def _training_config(self, train: Rows) -> TrainingConfig:
        return TrainingConfig(**self._preset_for(train).training)

    def _member_settings(self, train: Rows) -> Mapping[str, Any]:
        preset = self._preset_for(train)
        return {
            "weights": preset.weights(),
            "learning_rate": preset.learning_rate,
            "weight_decay": preset.weight_decay,
            "dropout": preset.dropout,
            "input_dropout": preset.input_dropout,
            "settings": {"temperature": preset.temperature},
        }

    def _config(self) -> NetworkConfig:
        preset = self.resolved_preset(
            self.n_rows_, sparse=self.sparse_rows_, n_columns=self.n_columns_
        )
        return preset.network

    def _network(
        self,
        config: NetworkConfig,
        members: Sequence[Member],
        label_log_odds: NDArray[np.float64],
        streams: RandomStreams,
    ) -> CGMVAENetwork:
        used = dict.fromkeys(
            name for member in members for name, weight in member.weights.items() if weight
        )
        network = CGMVAENetwork(
            config,
            self._network_width(),
            label_log_odds,
            streams,
            dropout=column(members, "dropout"),
            input_dropout=column(members, "input_dropout"),
            temperature=[(member.settings or {})["temperature"] for member in members],
            terms=list(used),
        )
        network.row_encoder = self._encoder_stack(members, streams.device)
        return network

    def _prepare_network(self, network: Any, labels: list[tuple[LabelRows, int]]) -> None:
        if network.graph is not None:
            counts = [
                np.tile(cooccurrence(rows.labels), (n_members, 1, 1)) for rows, n_members in labels
            ]
            network.graph.connect(torch.as_tensor(np.concatenate(counts)))

    def predict_proba(self, X: Any, known: Any = None, *, as_frame: bool = False) -> Any:
        """Return the probability of every label, (n_samples, n_labels).

        Parameters
        ----------
        X : array, CSR array or DataFrame, (n_samples, n_features)
        known : array, CSR array or DataFrame, (n_samples, n_labels), optional
            What is known already: 1 or 0, NaN elsewhere. Known labels are returned as they are
            known, and a model that was fitted with ``conditional=True`` adds what it has learned
            about the others from them. Otherwise the mixture of the known positive labels'
            Gaussians is multiplied into q(z|x), and the mean of the product is decoded, which
            changes little.
        as_frame : bool
            Whether to return a pandas DataFrame with the label names and the index of X.
        """
        features = self.inputs(X)
        if known is None:
            return self._framed(self._scores(features), X, as_frame=as_frame)
        targets = targets_of_rows(features, known, self.label_names_, given_as="known")
        positive = dense(targets.labels).astype(bool)
        certain = np.ones_like(positive)
        if targets.unknown is not None:
            certain = ~dense(targets.unknown)
        if self.label_factors_ is not None:
            scores = self.label_factors_.condition(self._scores(features), positive, certain)
        else:
            scores = self._beside_network(self._score_with_known(features, positive), features)
        scores = np.where(certain, positive.astype(scores.dtype), scores)
        return self._framed(scores, X, as_frame=as_frame)

    @torch.no_grad()
    def _score_with_known(
        self, features: Matrix, positive: NDArray[np.bool_]
    ) -> NDArray[np.floating]:
        components = self.network_.label_gaussians()
        parts, start = [], 0
        for x in self._feature_blocks(features):
            chosen = torch.as_tensor(positive[start : start + x.shape[1]], device=x.device)
            z = mean_given_labels(self.network_.encode(x), components, chosen)
            parts.append(self._probabilities(x, z).mean(0).cpu())
            start += x.shape[1]
        return torch.cat(parts).numpy()

    def _learn_features(self, train: Rows, validation: Rows | None) -> tuple[Rows, Rows | None]:
        self.neighbors_ = self.linear_model_ = None  # those of an earlier fit
        asked = {
            "n_neighbors": self.n_neighbors not in (0, "auto"),
            "linear_model": self.linear_model is True,
        }
        if (validation is not None or self._copies_encoder) and any(asked.values()):
            name = next(name for name, is_asked in asked.items() if is_asked)
            raise InputError(
                f"{name} does not go with validation rows or encoders that are trained; leave one "
                "of them out."
            )
        return super()._learn_features(train, validation)

    def _score_unseen(
        self, train: Rows, validation: Rows | None, seed: int
    ) -> tuple[Rows, NDArray[np.floating]]:
        """Return rows that members did not see, and their scores, calibrated like the members."""
        rows, scores = super()._score_unseen(train, validation, seed)
        self.calibration_ = None
        if validation is None and self.calibrate and self.network_.can_rescale_logits:
            self.calibration_, self.oof_proba_ = learn_calibration(
                rows.labels,
                scores,
                self.oof_folds_,
                unknown=rows.unknown,
                share=TEMPERATURE_SHARE,
            )
            scores = self.oof_proba_
        # Deviation D16: the paper and the released code take the probabilities as they are.
        if (found := self.calibration_) is not None:
            self.network_.rescale_logits(found.temperature, torch.as_tensor(found.shifts))
        if validation is not None:
            return rows, scores
        k = self._number_of_neighbors(train.features)
        linear = self._wants_linear_model(train.features)
        if not (k or linear):
            return rows, scores
        folds = assign_folds(train, self._n_folds(), seed), self.oof_folds_
        # Deviation D18: the paper and the released code predict by the network alone.
        if k:
            self.neighbors_, scores = learn_neighbors(train, rows, *folds, scores, k)
        # Deviation D19: nor do they have a linear model beside it.
        if linear:
            self.linear_model_, scores = learn_linear(train, rows, *folds, scores)
        self.oof_proba_ = scores
        return rows, scores

    def _number_of_neighbors(self, features: Any) -> int:
        """Return the number of training rows that vote."""
        if self.n_neighbors != "auto":
            return self.n_neighbors
        n_rows, n_columns = self.n_rows_, self.n_columns_
        small = n_rows <= MOST_ROWS and n_rows * n_columns <= MOST_CELLS
        if self.preset != "tuned" or self._copies_encoder or not small:
            return 0
        helpful = not self.sparse_rows_ or n_rows < LARGE_BATCHES or is_binary(features)
        return N_NEAREST if helpful else 0

    def _wants_linear_model(self, features: Any) -> bool:
        """Return whether a linear model is fitted beside the network."""
        if self.linear_model != "auto":
            return bool(self.linear_model)
        if self.preset != "tuned" or self._copies_encoder or not self.sparse_rows_:
            return False
        n_stored = MappedRows.of(features).n_stored
        small = self.n_columns_ * self.n_labels_ <= MOST_WEIGHTS
        small = small and n_stored * self.n_labels_ <= MOST_WORK
        return small and (self.n_rows_ < LARGE_BATCHES or not is_binary(features))

    def _score_rows(self, features: Matrix) -> NDArray[np.floating]:
        return self._beside_network(super()._score_rows(features), features)

    def _beside_network(
        self, scores: NDArray[np.floating], features: Matrix
    ) -> NDArray[np.floating]:
        """Return the network's probabilities with near training rows and the linear model."""
        if (neighbors := self.neighbors_) is not None:
            scores = neighbors.blend(scores, neighbors.votes(features))
        if (linear := self.linear_model_) is not None:
            scores = linear.blend(scores, features)
        return scores

    def _learn_threshold_rule(self, rows: Rows, scores: NDArray[np.floating]) -> None:
        """Learn the rule and, if asked for, what labels say about each other."""
        super()._learn_threshold_rule(rows, scores)
        self.label_factors_ = None
        if self.conditional:
            device = find_device(self.device)
            self.label_factors_ = learn_factors(rows, scores, seed=0, device=device)

    def _fitted_state(self) -> tuple[dict[str, NDArray[Any]], Any]:
        arrays, own = super()._fitted_state()
        for more in (self.label_factors_, self.neighbors_, self.linear_model_):
            arrays |= {} if more is None else more.arrays()
        own["calibration"] = self.calibration_ and dataclasses.asdict(self.calibration_)
        own["neighbors"] = self.neighbors_ and self.neighbors_.record()._asdict()
        if (linear := self.linear_model_) is not None:
            own["linear"] = {"network_weight": linear.network_weight}
        return _output_transposed(arrays, self.network_.config.decoder_hidden), own

    def _restore_fitted(self, arrays: dict[str, NDArray[Any]], description: Any) -> None:
        if arrays.pop("label_effects", None) is not None:
            warnings.warn(
                "This model was fitted with conditional=True by an earlier version, whose effects "
                "of known labels are not used any more; fit it again to have them.",
                stacklevel=2,
            )
        self.label_factors_ = LabelFactors.from_arrays(arrays, self.n_labels_)
        self.neighbors_ = Neighbors.from_arrays(arrays, description, self._width(), self.n_labels_)
        shape = (self._width(), self.n_labels_)
        self.linear_model_ = LinearModel.from_arrays(arrays, description, *shape)
        self.calibration_ = read_calibration(description, self.n_labels_)
        hidden = description["network"]["decoder_hidden"]
        super()._restore_fitted(_output_transposed(arrays, hidden), description)

    def _probabilities(self, x: Tensor, z: Tensor) -> Tensor:
        """Return what the members say of rows with these z, (n_members, n_rows, n_labels)."""
        return self.network_.probabilities(self.network_.logits(self.network_.decode(x, z)))

    def transform(self, X: Any) -> NDArray[np.floating]:
        """Return the posterior means of all members, (n_samples, n_members · d)."""
        return self._members_side_by_side(X, lambda x: self.network_.encode(x).mean)

    def embed(self, X: Any) -> NDArray[np.floating]:
        """Return the feature embeddings w_x^f of all members, (n_samples, n_members · E)."""
        check_is_fitted(self)
        scale = self._n_fitted**-0.5
        network = self.network_
        return self._members_side_by_side(
            X, lambda x: network.decode(x, network.encode(x).mean) * scale
        )

    def sample_latent(self, X: Any, random_state: Any = None) -> NDArray[np.floating]:
        """Draw z from each row's posterior, (n_samples, n_members · d)."""
        generator = torch.Generator().manual_seed(_seed_from(random_state))

        def draw(x: Tensor) -> Tensor:
            posterior = self.network_.encode(x)
            epsilon = torch.randn(posterior.mean.shape, generator=generator)
            return posterior.mean + torch.exp(0.5 * posterior.log_variance) * epsilon.to(x)

        return self._members_side_by_side(X, draw)

    def uncertainty(
        self, X: Any, n_draws: int = 8, random_state: Any = None
    ) -> NDArray[np.floating]:
        """Return how much each probability varies, (n_samples, n_labels).

        The standard deviation over members and draws of z from their posteriors.
        """
        check_whole(1, n_draws=n_draws)
        features = self.inputs(X)
        generator = torch.Generator().manual_seed(_seed_from(random_state))
        parts = []
        with torch.no_grad():
            for x in self._feature_blocks(features):
                posterior = self.network_.encode(x)
                spread = torch.exp(0.5 * posterior.log_variance)
                draws = []
                for _ in range(n_draws):
                    epsilon = torch.randn(spread.shape, generator=generator).to(x)
                    draws.append(self._probabilities(x, posterior.mean + spread * epsilon))
                parts.append(torch.cat(draws).std(0, correction=0).cpu())
        return torch.cat(parts).numpy()

    @property
    def label_embeddings_(self) -> NDArray[np.floating]:
        """Label embeddings of all members, (n_labels, n_members · E)."""
        embeddings = self.network_.label_embeddings().detach() * self._n_fitted**-0.5
        return _side_by_side(embeddings)

    @property
    def label_bias_(self) -> NDArray[np.floating]:
        """Mean bias of each label, (n_labels,)."""
        if self.network_.label_bias is None:
            return np.zeros(self.n_labels_, np.float32)
        return self.network_.label_bias.detach().mean(0).cpu().numpy()

    def label_similarity(self, *, normalise: bool = True) -> NDArray[np.floating]:
        """Return how alike the labels' embeddings are, (n_labels, n_labels).

        Mean over members of their cosines, or of their inner products with ``normalise=False``.
        """
        check_is_fitted(self)
        embeddings = self.network_.label_embeddings().detach()
        if normalise:
            embeddings = torch.nn.functional.normalize(embeddings, dim=-1)
        return torch.bmm(embeddings, embeddings.transpose(1, 2)).mean(0).cpu().numpy()

    def label_prior(self, name: str) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
        """Return mean and variance of the label's Gaussian, (n_members · d,) each."""
        index = self._label_index(name)
        with torch.no_grad():
            gaussians = self.network_.label_gaussians()
        mean = gaussians.mean[:, index].reshape(-1).cpu().numpy()
        return mean, np.exp(gaussians.log_variance[:, index].reshape(-1).cpu().numpy())

    def diagnostics(self, X: Any, Y: Any, random_state: Any = 0) -> dict[str, float]:
        """Tell whether the latent space does anything; see :mod:`cgmvae.methods.diagnostics`."""
        features = self.inputs(X)
        targets = targets_of_rows(features, Y, self.label_names_)
        return diagnose(self, features, targets, np.random.default_rng(random_state))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    @property
    def _n_features_out(self) -> int:
        """Columns of ``transform``, as scikit-learn asks for them."""
        return self._n_fitted * self.network_.config.latent_dim

    @property
    def _n_fitted(self) -> int:
        return int(self.network_.label_encoder.embeddings.shape[0])

    @torch.no_grad()
    def _members_side_by_side(
        self, X: Any, function: Callable[[Tensor], Tensor]
    ) -> NDArray[np.floating]:
        features = self.inputs(X)
        return np.concatenate([_side_by_side(function(x)) for x in self._feature_blocks(features)])


def _output_transposed(
    arrays: dict[str, NDArray[Any]], hidden: Sequence[int]
) -> dict[str, NDArray[Any]]:
    """Return weights with the last matrix of the reconstruction transposed.

    Model files have a column for each feature there, as in all other layers.
    """
    name = f"reconstruction.layers.{len(hidden)}.weight"
    return arrays | {name: arrays[name].swapaxes(-1, -2)} if name in arrays else arrays


def _side_by_side(members: Tensor) -> NDArray[np.floating]:
    """Turn (n_members, n, width) into (n, n_members · width)."""
    return members.transpose(0, 1).reshape(members.shape[1], -1).cpu().numpy()


def _seed_from(random_state: Any) -> int:
    return int(check_random_state(random_state).randint(2**31 - 1))
