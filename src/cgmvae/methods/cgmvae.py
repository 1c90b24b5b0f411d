"""C-GMVAE as a scikit-learn estimator."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from cgmvae.data.dataset import Features, Matrix
from cgmvae.data.mapped import MappedRows
from cgmvae.errors import InputError
from cgmvae.evaluation.calibration import Calibration, learn_calibration
from cgmvae.methods.communities import (
    label_set_arrays,
    learn_label_sets,
    restore_label_sets,
    with_known_labels,
)
from cgmvae.methods.diagnostics import cooccurrence, diagnose
from cgmvae.methods.inputs import Fit, Rows, check_whole, targets_of_rows
from cgmvae.methods.model_file import read_calibration
from cgmvae.methods.neural import NeuralClassifier, member_blocks, train_together
from cgmvae.methods.own_encoder import EncodedRows, own_encoder
from cgmvae.model.network import CGMVAENetwork, NetworkConfig
from cgmvae.model.objective import TERMS
from cgmvae.model.plan import (
    NUMBERS,
    DataProfile,
    Plan,
    configured,
    feature_plan,
    given_fields,
    grouped,
    preset_for,
)
from cgmvae.model.presets import Preset
from cgmvae.nn.rng import RandomStreams
from cgmvae.preparation.components import NumberOfComponents
from cgmvae.preparation.pipeline import FeaturePipeline, FeaturePlan
from cgmvae.training.device import find_device
from cgmvae.training.pack import LabelRows
from cgmvae.training.plan import Member, TrainingConfig, column

#: Power of the temperature of single members that the members of an ensemble are given: their mean
#: is less confident than they are. No row is out of fold for several members, so it was compared on
#: test rows (splits 0 to 2 of yeast, scene and sider): from .3 to .7 log-loss hardly changes, and
#: the smaller it is, the more rare labels reach a threshold that all labels share.
TEMPERATURE_SHARE = 0.3

#: Parameters of the estimator that are fields of a preset, its network or its training.
_NAMED = NUMBERS | {"epochs", "batch_size", "embedding_dim", "latent_dim"}


@dataclass(kw_only=True, eq=False, repr=False)
class CGMVAEClassifier(ClassNamePrefixFeaturesOutMixin, TransformerMixin, NeuralClassifier):
    """Contrastive Gaussian mixture variational autoencoder for multi-label classification.

    Every label has an embedding and a Gaussian in a latent space; a row's labels pick the mixture
    that its own encoding is held to, and inner products between the row's embedding and the
    labels' give the probabilities. Several members, trained together from different seeds, are
    averaged.

    Parameters
    ----------
    preset : {"tuned", "released", "paper"}
        Where all settings come from that are not given here; ``tuned`` depends on the data.
    epochs, batch_size, learning_rate, weight_decay, dropout, input_dropout : optional
        Training; None takes the preset's value.
    embedding_dim, latent_dim : int, optional
        E, length of label and feature embeddings, and d, dimensions of z.
    kl_weight, contrastive_weight, cross_entropy_weight, reconstruction_weight : float, optional
        Weights of the terms; KL is summed over latent dimensions, cross-entropy over labels and
        reconstruction over features. α of the paper is ``contrastive_weight``, β is
        ``cross_entropy_weight``.
    temperature : float, optional
        τ of the contrastive term.
    network : mapping or NetworkConfig, optional
        Any other field of :class:`~cgmvae.model.network.NetworkConfig`, such as
        ``{"decoder_hidden": (256,)}``.
    training : mapping or TrainingConfig, optional
        Any other field of :class:`~cgmvae.training.plan.TrainingConfig`, such as
        ``{"patience": 5, "clip": None}``, and weights of further terms of ``objective.TERMS``, such
        as ``{"ranking_weight": 0.1}``.
    calibrate : bool
        Whether ``fit`` corrects the probabilities by a temperature and a shift per label, learned
        out of fold; see :func:`~cgmvae.evaluation.learn_calibration`. It is done where that lowers
        the log-loss of rows held out, and where the network has label biases and embeddings of free
        norm, which the presets ``paper`` and ``released`` do not have; never if validation rows are
        given, or with a single member.
    conditional : bool
        Whether ``fit`` also learns which labels come together beyond what the features say, for
        ``predict_proba(X, known=…)``, ``sample_labels`` and ``label_correlation``; see
        :mod:`cgmvae.methods.conditioning`.
    encoder : nn.Module, callable or OwnEncoder, optional
        An encoder of one's own for images, text or anything else; see
        :class:`~cgmvae.methods.own_encoder.OwnEncoder`.
    encoding, principal_components
        How features are encoded, and how many principal components of them the network learns
        from; "auto" chooses by the data with the preset ``tuned``, and takes the scaled features
        with the others. See :class:`~cgmvae.methods.neural.NeuralClassifier`.
    n_members, n_folds, members, device, checkpoint, progress
        See :class:`~cgmvae.methods.neural.NeuralClassifier`.
    scaling, threshold_rule, threshold_metric, validation_fraction, random_state
        See :class:`~cgmvae.methods.base.MultiLabelClassifier`.

    Attributes
    ----------
    label_embeddings_ : array, (n_labels, n_members · E)
        Such that ``embed(X) @ label_embeddings_.T + label_bias_`` is the mean logit of the members.
    label_bias_ : array, (n_labels,)
        Mean bias of each label.
    calibration_ : Calibration or None
        The temperature and shifts that were found. The network applies them to the logits of all
        members, and so to all that is computed of these. ``oof_proba_`` is calibrated too, each
        fold by the others, whose scores come from members that were trained on it.
    label_factors_ : LabelFactors or None
        The factors that labels share beyond what the features say; None if label sets of rows held
        out are no more likely with them.
    label_pairs_ : LabelPairs or None
        Correlations of pairs of labels, of at most 1,000 labels.
    encoder_ : EncodedRows or None
        The fitted encoder of one's own.

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

    similarity_is: ClassVar[str | None] = "the cosine of the labels' embeddings"
    config_class: ClassVar = NetworkConfig
    member_parameters: ClassVar[frozenset[str]] = NeuralClassifier.member_parameters | {
        "kl_weight",
        "contrastive_weight",
        "cross_entropy_weight",
        "reconstruction_weight",
        "temperature",
    }

    preset: str = field(default="tuned", kw_only=False)
    epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    weight_decay: float | None = None
    dropout: float | None = None
    input_dropout: float | None = None
    embedding_dim: int | None = None
    latent_dim: int | None = None
    kl_weight: float | None = None
    contrastive_weight: float | None = None
    cross_entropy_weight: float | None = None
    reconstruction_weight: float | None = None
    temperature: float | None = None
    network: Mapping[str, Any] | NetworkConfig | None = None
    principal_components: NumberOfComponents = "auto"
    calibrate: bool = True
    conditional: bool = True
    encoder: Any = None

    network_: CGMVAENetwork = field(init=False)
    calibration_: Calibration | None = field(init=False)

    def settings(self, profile: DataProfile) -> Preset:
        """Return the preset for such data, with all that was given put in its place."""
        given = given_fields(self.network, NetworkConfig)
        given |= given_fields(self.training, TrainingConfig)
        named = ((name, getattr(self, name)) for name in sorted(_NAMED))
        given |= {name: value for name, value in named if value is not None}
        return configured(preset_for(self.preset, profile), given)

    def plan(self, profile: DataProfile) -> Plan:
        """Return what ``fit`` does with such data."""
        own = self.settings(profile)
        encoding, n_components = self.encoding, self.principal_components
        if self.preset != "tuned":  # the paper and the released code standardize features
            encoding = "standard" if encoding == "auto" else encoding
            n_components = None if n_components == "auto" else n_components
        given = own_encoder(self.encoder)
        return Plan(
            profile,
            feature_plan(profile, self.scaling, encoding, n_components),
            own.network,
            TrainingConfig(**{**own.training, **({} if given is None else given.training())}),
            {
                "weights": own.weights(),
                "learning_rate": own.learning_rate,
                "weight_decay": own.weight_decay,
                "dropout": own.dropout,
                "input_dropout": own.input_dropout,
                "settings": {"temperature": own.temperature},
            },
        )

    def as_parameters(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return settings by name as parameters, fields of ``network`` and ``training`` too."""
        found = grouped(settings, type(self).__dataclass_fields__.keys())
        for name, record in (("network", NetworkConfig), ("training", TrainingConfig)):
            if name in found:
                found[name] = given_fields(getattr(self, name), record) | found[name]
        return found

    def _network(
        self,
        members: Sequence[Member],
        label_log_odds: NDArray[np.float64],
        streams: RandomStreams,
    ) -> CGMVAENetwork:
        # A model that is loaded may have learned by a term of one's own, which is not needed now.
        used = dict.fromkeys(
            name
            for member in members
            for name, weight in member.weights.items()
            if weight and name in TERMS
        )
        copies = None
        if self.encoder_ is not None:
            copies = self.encoder_.copies(members, streams.device)
        n_features = self.pipeline_.n_columns
        if self.encoder_ is not None and copies is not None:
            n_features = self.encoder_.width
        network = CGMVAENetwork(
            self.plan_.network,
            n_features,
            label_log_odds,
            streams,
            dropout=column(members, "dropout"),
            input_dropout=column(members, "input_dropout"),
            temperature=[(member.settings or {})["temperature"] for member in members],
            terms=list(used),
        )
        network.row_encoder = copies
        return network

    def _show_labels(self, network: Any, labels: list[tuple[LabelRows, int]]) -> None:
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
        known : array, CSR array, DataFrame, list of dicts or sequence of label sets, optional
            What is known already: 1 or 0, NaN elsewhere, (n_samples, n_labels); a DataFrame may
            have the columns of some labels only, and label sets name those that are known to be
            present. Known labels are returned as they are known, and what the model has learned
            about the others from them is added.
        as_frame : bool
            Whether to return a pandas DataFrame with the label names and the index of X.
        """
        scores = super().predict_proba(X)
        if known is not None:
            scores = with_known_labels(self, scores, known)
        return self._framed(scores, X, as_frame=as_frame)

    def _learn_unseen(self, rows: Rows, scores: NDArray[np.floating]) -> NDArray[np.floating]:
        """Learn the calibration, and which labels come together."""
        self.calibration_ = None
        out_of_fold = (self.member_folds_ >= 0).all()
        if out_of_fold and self.calibrate and self.network_.can_be_calibrated:
            self.calibration_, scores = learn_calibration(
                rows.labels,
                scores,
                self.oof_folds_,
                unknown=rows.unknown,
                share=TEMPERATURE_SHARE,
            )
            self.oof_proba_ = scores
        # Deviation D16: the paper and the released code take the probabilities as they are.
        if (found := self.calibration_) is not None:
            self.network_.calibrate(found.temperature, torch.as_tensor(found.shifts))
        learn_label_sets(self, rows, scores, find_device(self.device))
        return scores

    # Rows that pass an encoder of the user's first.

    def encoder_state(self, member: int = 0) -> dict[str, Tensor]:
        """Return the state dict of the trained encoder of one member, a copy on the CPU."""
        if self.encoder_ is None:
            raise InputError("The model was not fitted with an encoder.")
        return self.encoder_.state(self.network_, member)

    def _holds_out(self) -> bool:
        given = own_encoder(self.encoder)
        return given is not None and given.shared and not given.is_frozen

    def _validated(self, X: Any, *, reset: bool) -> Features:
        if reset:
            given = own_encoder(self.encoder)
            self.encoder_ = None
            if given is not None:
                self.encoder_ = EncodedRows.learned(given, X, find_device(self.device))
        if self.encoder_ is None:
            return super()._validated(X, reset=reset)
        rows = self.encoder_.matrix(X)
        if self.encoder_.module is not None:
            return super()._validated(self.encoder_.encoded(rows), reset=reset)
        if reset:
            self.n_features_in_ = rows.shape[1]
            self.pipeline_, self.input_names_ = FeaturePipeline(), None
        return rows

    def _with_features(self, fit: Fit) -> Fit:
        rows = self.encoder_
        if rows is None or rows.module is not None:
            return super()._with_features(fit)
        # Each member's copy of the encoder gets the rows as they are.
        self.pipeline_.fit(np.zeros((1, fit.train.features.shape[1])), FeaturePlan("none"))
        n_rows, n_labels = fit.train.labels.shape
        self.plan_ = self.plan(DataProfile(int(n_rows), rows.width, int(n_labels), "dense"))
        if not rows.given.shared:
            return fit
        first = copy.copy(self)
        first.n_members, first.members, first.checkpoint = 1, None, None
        first.encoder_ = dataclasses.replace(rows)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        train_together([first], [fit._replace(seed=seed)])
        rows.share(first.encoder_state())
        self.n_features_in_ = rows.width
        return super()._with_features(
            fit.each(lambda own: own._replace(features=MappedRows(rows.encoded(own.features))))
        )

    def _compatible(self) -> Any:
        return self.encoder, None if self.encoder_ is None else self.encoder_.layout

    # In files.

    def _fitted_state(self) -> tuple[dict[str, NDArray[Any]], Any]:
        arrays, own = super()._fitted_state()
        arrays |= label_set_arrays(self)
        own["calibration"] = self.calibration_ and dataclasses.asdict(self.calibration_)
        if self.encoder_ is not None:
            arrays |= self.encoder_.arrays()
            own["encoder"] = self.encoder_.description()
        return arrays, own

    def _restore_fitted(self, arrays: dict[str, NDArray[Any]], description: Any) -> None:
        restore_label_sets(self, arrays)
        self.calibration_ = read_calibration(description, self.n_labels_)
        self.encoder_ = None
        given, stored = own_encoder(self.encoder), description.get("encoder")
        if given is not None:
            device = find_device(self.device)
            self.encoder_ = EncodedRows.restored(given, arrays, stored, device)
        super()._restore_fitted(arrays, description)

    # What the latent space and the embeddings say.

    def _feature_blocks(self, features: Matrix) -> Iterator[Tensor]:
        """Give the features of rows to all members a block at a time, (n_members, n_rows, D)."""
        yield from map(self.network_.represent, member_blocks(self.network_, features))

    def _probabilities(self, x: Tensor, z: Tensor) -> Tensor:
        """Return what the members say of rows with these z, (n_members, n_rows, n_labels)."""
        return self.network_.probabilities(self.network_.logits(self.network_.decode(x, z)))

    def transform(self, X: Any) -> NDArray[np.floating]:
        """Return the posterior means of all members, (n_samples, n_members · d)."""
        return self._members_side_by_side(X, lambda x: self.network_.encode(x).mean)

    def embed(self, X: Any) -> NDArray[np.floating]:
        """Return the feature embeddings w_x^f of all members, (n_samples, n_members · E)."""
        check_is_fitted(self)
        network = self.network_
        scale = (self._n_fitted**-0.5 / network.logit_temperature)[:, None, None]
        return self._members_side_by_side(
            X, lambda x: network.decode(x, network.encode(x).mean) * scale
        )

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
                    epsilon = torch.randn(spread.shape, generator=generator).to(posterior.mean)
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
        network, bias = self.network_, self.network_.logit_shift
        if network.label_bias is not None:
            bias = bias + network.label_bias.detach() / network.logit_temperature[:, None]
        return bias.mean(0).cpu().numpy()

    def label_similarity(self, *, normalize: bool = True) -> NDArray[np.floating]:
        """Return how alike the labels' embeddings are, (n_labels, n_labels).

        Mean over members of their cosines, or of their inner products with ``normalize=False``.
        Labels are alike if they respond alike to the features, whether or not they come together
        beyond that; see :meth:`label_correlation`.
        """
        check_is_fitted(self)
        return self._similarities(normalize=normalize).mean(0).cpu().numpy()

    def member_similarities(self) -> NDArray[np.floating]:
        """Return the label similarity of each member, (n_members, n_labels, n_labels)."""
        return self._similarities(normalize=True).cpu().numpy()

    def _similarities(self, *, normalize: bool) -> Tensor:
        embeddings = self.network_.label_embeddings().detach()
        if normalize:
            embeddings = torch.nn.functional.normalize(embeddings, dim=-1)
        return torch.bmm(embeddings, embeddings.transpose(1, 2))

    def label_prior(self, name: str) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
        """Return mean and variance of the label's Gaussian, (n_members · d,) each."""
        index = self.label_index(name)
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


def _side_by_side(members: Tensor) -> NDArray[np.floating]:
    """Turn (n_members, n, width) into (n, n_members · width)."""
    return members.transpose(0, 1).reshape(members.shape[1], -1).cpu().numpy()


def _seed_from(random_state: Any) -> int:
    return int(check_random_state(random_state).randint(2**31 - 1))
