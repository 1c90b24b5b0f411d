"""What the comparison methods that are networks have in common: settings as plain parameters.

C-GMVAE takes its settings from presets; these methods have one parameter for each. A method adds
its own parameters, the weights of its terms and its network.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import nn

from cgmvae.errors import InputError
from cgmvae.methods.inputs import Rows, check_choices
from cgmvae.methods.packed import PackedClassifier
from cgmvae.nn.noise import Noise
from cgmvae.training.members import Member, column
from cgmvae.training.plan import TrainingConfig


@dataclass(kw_only=True, eq=False, repr=False)
class NeuralClassifier(PackedClassifier):
    """Base of the comparison methods that are networks.

    Parameters
    ----------
    epochs : int
        Passes over the training rows; the best one on validation rows is kept.
    batch_size : int
        Rows a step.
    learning_rate, weight_decay : float
        Of AdamW; the rate rises and falls as ``training`` says (cosine by default).
    dropout, input_dropout : float
        Probability of dropping a hidden unit, and a feature.
    training : mapping, optional
        Any further field of ``TrainingConfig`` by name, such as ``{"patience": 10}``.
    """

    network_class: ClassVar[type[nn.Module]]
    """Made from a config, the number of features, the label log-odds, noise, and each member's
    ``dropout``, ``input_dropout`` and own settings."""

    epochs: int = 40
    batch_size: int = 128
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    dropout: float = 0.2
    input_dropout: float = 0.0
    training: Mapping[str, Any] | None = None

    @abstractmethod
    def _config(self) -> Any:
        """Return the sizes and switches of the network; members of one pack share them."""

    @abstractmethod
    def _weights(self) -> Mapping[str, float]:
        """Return the weight of each term of the objective."""

    def _network_settings(self) -> Mapping[str, Any]:
        """Return further numbers that the network takes for each member."""
        return {}

    def _training_config(self, train: Rows) -> TrainingConfig:
        check_choices(TrainingConfig, self.training or {})
        try:
            return TrainingConfig(
                epochs=self.epochs, batch_size=self.batch_size, **(self.training or {})
            )
        except TypeError as error:
            raise InputError(f"training does not fit TrainingConfig: {error}.") from error

    def _member_settings(self, train: Rows) -> Mapping[str, Any]:
        return {
            "weights": dict(self._weights()),
            "learning_rate": self.learning_rate,
            "weight_decay": self.weight_decay,
            "dropout": self.dropout,
            "input_dropout": self.input_dropout,
            "settings": dict(self._network_settings()),
        }

    def _shape(self) -> Any:
        return *super()._shape(), self._config()

    def _build_network(
        self, members: list[Member], label_log_odds: NDArray[np.float64], noise: Noise
    ) -> nn.Module:
        return self._network(self._config(), members, label_log_odds, noise)

    def _network(
        self,
        config: Any,
        members: list[Member],
        label_log_odds: NDArray[np.float64],
        noise: Noise,
    ) -> nn.Module:
        own = [dict(member.settings or {}) for member in members]
        return self.network_class(
            config,
            self.n_inputs_,
            label_log_odds,
            noise,
            dropout=column(members, "dropout"),
            input_dropout=column(members, "input_dropout"),
            **{name: [each[name] for each in own] for name in own[0]},
        )
