"""C2AE: a canonical-correlated autoencoder (Yeh, Wu, Ko, Wang 2017).

Features and labels are encoded to one space by F_x and F_e; F_d decodes labels from it. Deep
canonical correlation analysis ties the two codes: ‖F_x(x) − F_e(y)‖² is made small while both
codes are held to the covariance I, here by the penalty λ (‖C_x − I‖² + ‖C_e − I‖²). The output
loss, α times the mean over pairs of a positive and a negative label of exp(−(f_p − f_q)), trains
the label autoencoder f = F_d(F_e(y)) and nothing else: F_x learns from the codes alone, and
F_d(F_x(x)) is what predicts.

Where the paper is silent or this differs:

- C_x and C_e are centred means over the rows of one batch, where the paper writes plain sums of
  products: those let a constant code pass for a direction, and tie λ to the batch size. With affine
  encoders and the constraint met exactly this is CCA; with the penalty, a direction of correlation
  ρ gets the variance 1 − (1 − ρ) / 2λ, and none where that is negative. At λ = 1/2, which is the
  released code's value and the best of those tried, the variance is ρ itself.
- f is the sigmoid of the decoder's output, as in the released code, which also bounds the
  exponentials. Pairs say little about the level of f, nothing in rows without a pair, and with a
  single label there is none; with many rare labels nearly all scores end up high. So a small
  cross-entropy of the same f, the term ``calibration``, is trained beside it.
- Labels enter F_e as +1 and −1, unknown ones as 0; pairs and calibration use known labels only,
  and a row that knows no label counts nowhere.
- The biases of F_d's output start at the log-odds of the labels' frequencies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from cgmvae.methods.c2ae_network import C2AEConfig, C2AENetwork
from cgmvae.methods.packed import NeuralClassifier
from cgmvae.methods.parameters import check_whole

#: Dimensions of a code for each label where none are given, as in the released code.
_DIMENSIONS_A_LABEL = 0.8

_LAYERS = ("feature_layers", "label_layers", "decoder_layers")


@dataclass(kw_only=True, eq=False, repr=False)
class C2AE(NeuralClassifier):
    """Canonical-correlated autoencoder: features and labels meet in a space of uncorrelated codes.

    Parameters
    ----------
    latent_dim : int, optional
        K, dimensions of a code; 0.8 of the number of labels by default, but no more than half a
        batch, whose covariance could not come near I otherwise.
    hidden_dim : int
        Units of every hidden layer.
    feature_layers, label_layers, decoder_layers : int
        Hidden layers of F_x, F_e and F_d; 0 makes an affine map.
    constraint_weight : float
        λ, of the squared distance of both codes' covariances from I. Below 1/2, directions whose
        correlation is less than 1 − 2λ vanish.
    ranking_weight : float
        α, of the ranking loss of the label autoencoder.
    calibration_weight : float
        Of its cross-entropy, summed over known labels; with 0 a single label is not learnt.
    epochs, batch_size, learning_rate, weight_decay, dropout, input_dropout, training
        See :class:`~cgmvae.methods.neural.NeuralClassifier`.
    n_members, device, checkpoint, progress
        See :class:`~cgmvae.methods.packed.PackedClassifier`.
    scaling, threshold_rule, threshold_metric, validation_fraction, random_state
        See :class:`~cgmvae.methods.base.MultiLabelClassifier`.

    Attributes
    ----------
    network_ : C2AENetwork
        All members.

    Examples
    --------
    >>> from cgmvae.data import make_survey
    >>> data, _ = make_survey(200, 6, 5, seed=0)
    >>> model = C2AE(epochs=2, hidden_dim=16, random_state=0).fit(data.X, data.Y)
    >>> model.predict_proba(data.X).shape
    (200, 5)
    >>> model.network_.config.latent_dim
    4
    """

    config_class: ClassVar = C2AEConfig
    network_class: ClassVar = C2AENetwork
    whole_batches: ClassVar = True  # the constraint is on the codes of a batch

    latent_dim: int | None = None
    hidden_dim: int = 512
    feature_layers: int = 2
    label_layers: int = 1
    decoder_layers: int = 1
    constraint_weight: float = 0.5
    ranking_weight: float = 3.0
    calibration_weight: float = 0.1
    epochs: int = 30
    dropout: float = 0.3
    input_dropout: float = 0.1
    network_: C2AENetwork = field(init=False)

    def _weights(self) -> Mapping[str, float]:
        return {
            "distance": 1.0,
            "constraint": self.constraint_weight,
            "ranking": self.ranking_weight,
            "calibration": self.calibration_weight,
        }

    def _config(self) -> C2AEConfig:
        latent_dim = self.latent_dim
        if latent_dim is None:
            wanted = min(round(_DIMENSIONS_A_LABEL * self.n_labels_), self.batch_size // 2)
            latent_dim = max(1, wanted)
        layers = {name: getattr(self, name) for name in _LAYERS}
        check_whole(1, latent_dim=latent_dim, hidden_dim=self.hidden_dim)
        check_whole(0, **layers)
        return C2AEConfig(latent_dim, self.hidden_dim, **layers)
