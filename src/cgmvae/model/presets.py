"""Named settings: the paper's text, the authors' released code, and what measures best.

A preset says everything about a training but the data; :mod:`cgmvae.model.plan` fits it to them.
The estimator's own parameters override it field by field.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from cgmvae.model.network import NetworkConfig


@dataclass(frozen=True)
class Preset:
    """Network, objective and training of one named setting."""

    network: NetworkConfig
    """Sizes and switches of the network."""
    kl_weight: float
    """Of the KL, summed over latent dimensions."""
    reconstruction_weight: float
    """Of −log p(x|z), summed over features."""
    contrastive_weight: float
    """α of Eq. 8."""
    cross_entropy_weight: float
    """β of Eq. 8, of the sum over labels."""
    temperature: float
    """τ of the contrastive term."""
    dropout: float
    """Probability of dropping a hidden unit."""
    input_dropout: float
    """Probability of dropping a feature."""
    learning_rate: float
    """At its highest."""
    weight_decay: float
    """Decoupled with AdamW, as an L2 term with Adam; see ``TrainingConfig.decay_all``."""
    training: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """What ``TrainingConfig`` takes: epochs, batch size, optimizer, schedule, selection."""
    further_weights: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """Weights of further terms of ``objective.TERMS``, by name of the term."""

    def weights(self) -> dict[str, float]:
        """Return the weights of the terms by name."""
        return {
            "kl": self.kl_weight,
            "reconstruction": self.reconstruction_weight,
            "contrastive": self.contrastive_weight,
            "cross_entropy": self.cross_entropy_weight,
            **self.further_weights,
        }


PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        # The equations as printed. The paper gives no temperature: 0.1 is the value of the
        # supervised contrastive paper that it follows. The network is that of appendix B.1.
        "paper": Preset(
            network=NetworkConfig(
                embedding_dim=2048,
                layer_norm=False,
                label_bias=False,
                decoder_input="z",
                reconstruction="gaussian",
            ),
            kl_weight=1.0,
            reconstruction_weight=1.0,
            contrastive_weight=1.0,
            cross_entropy_weight=0.5,
            temperature=0.1,
            dropout=0.3,
            input_dropout=0.0,
            learning_rate=7e-4,
            weight_decay=0.0,
            training={
                "epochs": 100,
                "optimizer": "adam",
                "schedule": "constant",
                "clip": None,
            },
        ),
        # What the authors' released code computes, and how its script trains;
        # tests/model/test_released.py compares them number by number.
        "released": Preset(
            network=NetworkConfig(
                embedding_dim=2048,
                decoder_hidden=(512,),
                layer_norm=False,
                label_bias=False,
                label_relu=True,
                embedding_activation="leaky_relu",
                unit_norm=True,
                decoder_dropout=False,
                normalize_labels=False,
                n_draws=2,
                own_kl_draw=True,
                label_branch=True,
            ),
            kl_weight=6.0,
            reconstruction_weight=0.0,
            contrastive_weight=1.0,
            cross_entropy_weight=0.5,
            temperature=1.0,
            dropout=0.5,
            input_dropout=0.0,
            learning_rate=2e-3,
            weight_decay=1e-5,
            training={
                "epochs": 90,
                "optimizer": "adam",
                "schedule": "warm-restarts",
                "restart_epochs": 50,
                "restart_factor": 2,
                "floor_learning_rate": 2e-4,
                "decay_all": True,
                "clip": None,
                "selection": "macro_f1",
            },
        ),
        # What measured best out of fold, with mixture prior, KL and contrastive switched on; see
        # ``plan.preset_for`` for what depends on the data.
        # Deviation D4: the decoder sees x too, but not of all rows (``skip_dropout``).
        # Deviation D8: label embeddings start short, so that what they learn outweighs the start.
        # Deviation D5: logits have a bias, embeddings a free norm, hidden layers are normalized.
        "tuned": Preset(
            network=NetworkConfig(
                embedding_dim=128,
                latent_dim=32,
                label_hidden=(256,),
                feature_hidden=(64,),
                decoder_hidden=(192, 192),
                skip_dropout=0.1,
                label_scale=0.3,
            ),
            # Deviation D6: the paper weighs the KL 1, the contrastive term 1, cross-entropy .5.
            kl_weight=1 / 256,
            reconstruction_weight=0.0,
            contrastive_weight=0.3,
            cross_entropy_weight=1.0,
            # Deviation D7: the paper gives no temperature.
            temperature=0.2,
            dropout=0.2,
            input_dropout=0.1,
            learning_rate=4e-3,
            weight_decay=0.01,
            training={
                "epochs": 30,
                "patience": 10,
                # Deviation D21: the paper says Adam, and no schedule.
                "optimizer": "adamw",
                "schedule": "cosine",
                "warmup": 0.05,
            },
        ),
    }
)
