"""Estimators whose rows pass an encoder of the user's: images, token ids, anything.

A frozen encoder is a preparation: its output is scaled and learned from like any features. One that
is trained is copied for every member, and the copies are trained in the pack like the rest of the
network, each without its member's fold. A shared one is trained with a first member, and frozen
for all; it has seen all rows but those that are held out for validation, so that all members hold
out these, not folds of their own.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from torch import Tensor, nn

from cgmvae.data.dataset import Features, Matrix
from cgmvae.data.mapped import MappedRows
from cgmvae.errors import InputError
from cgmvae.methods.inputs import Rows, check_whole
from cgmvae.methods.packed import PackedClassifier
from cgmvae.methods.serialization import EncoderMismatch, as_declared, with_prefix
from cgmvae.nn.encoder import ONLY, EncoderStack, RowLayout, StandardizedEncoder, as_tensors, encode
from cgmvae.preparation.components import PrincipalComponents
from cgmvae.preparation.piecewise import PiecewiseLinear
from cgmvae.preparation.scaling import FeatureScaler
from cgmvae.training.device import find_device
from cgmvae.training.plan import Member

#: Bytes of rows that a frozen encoder gets at a time.
_BATCH_BYTES = 2**24

#: Beginning of the names of its weights.
_OWN = "encoder."


@dataclass(kw_only=True, eq=False, repr=False)
class EncodingClassifier(PackedClassifier):
    """Base of the networks that take an encoder.

    Parameters
    ----------
    encoder : nn.Module or callable, optional
        Maps a batch of rows to features, (n_rows, width), which are then standardized. Rows are a
        tensor or an array of any shape, (n_rows, …), or a mapping of several, which are the
        encoder's arguments by name. A function that returns a new module makes one per member,
        with initial weights of its own.
    collate : callable, optional
        Makes such a tensor or mapping of a list of rows; X may then be a sequence of anything.
        Rows must get the same shape in every batch.
    encoder_learning_rate : float, optional
        By default that of the network; 0 for a frozen encoder, whose output is scaled and encoded
        as any features are.
    encoder_frozen_epochs : int, optional
        First epochs in which the encoder is not trained; statistics of batch normalization go on.
    shared_encoder : bool
        Whether the encoder is trained once, with a first member, and then shared by all. Otherwise
        each member trains a copy.

    Attributes
    ----------
    row_layout_ : RowLayout or None
        Shapes and types of the rows; None without an encoder.
    encoder_ : nn.Module or None
        The encoder that all members share; None if each has a copy in ``network_.row_encoder``.
    encoder_width_ : int
        Number of features that it returns.
    """

    encoder: Any = None
    collate: Callable[[Sequence[Any]], Any] | None = None
    encoder_learning_rate: float | None = None
    encoder_frozen_epochs: int | None = None
    shared_encoder: bool = False

    # Not fields: they are set by ``fit``.
    row_layout_ = cast("RowLayout | None", None)
    encoder_ = cast("nn.Module | None", None)
    encoder_width_ = 0

    def encoder_state(self, member: int = 0) -> dict[str, Tensor]:
        """Return the state dict of the trained encoder of one member, a copy on the CPU."""
        if self.row_layout_ is None:
            raise InputError("The model was not fitted with an encoder.")
        if self.encoder_ is not None:
            state = copy.deepcopy(self.encoder_.state_dict())
        else:
            state = with_prefix(self.network_.row_encoder.state_of(member), _OWN)
        return {name: tensor.cpu() for name, tensor in state.items()}

    @property
    def _copies_encoder(self) -> bool:
        """Whether members have encoders of their own."""
        return self.row_layout_ is not None and self.encoder_ is None

    def _network_width(self) -> int:
        """Return the number of features that the network sees."""
        return self.encoder_width_ if self._copies_encoder else self.n_columns_

    def _encoder_stack(
        self, members: Sequence[Member], device: torch.device | str
    ) -> EncoderStack | None:
        """Return the encoders of these members; None if they have none of their own."""
        if not self._copies_encoder:
            return None
        assert self.row_layout_ is not None
        encoders = [
            StandardizedEncoder(self._new_encoder(member.seed), self.encoder_width_)
            for member in members
        ]
        return EncoderStack(encoders, self.row_layout_).to(device)

    def _new_encoder(self, seed: int) -> nn.Module:
        """Return a copy of the encoder, or a new one with initial weights of this seed."""
        encoder = self.encoder
        if not isinstance(encoder, nn.Module) and callable(encoder):
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(seed)
                encoder = encoder()
        if not isinstance(encoder, nn.Module):
            raise InputError(
                f"encoder is {self.encoder!r}; it must be a torch module, or a function that "
                "returns one."
            )
        return encoder if encoder is not self.encoder else copy.deepcopy(encoder)

    # From rows of any shape to the matrix that all methods take.

    def _needs_validation(self) -> bool:
        return self.encoder is not None and self.shared_encoder and not self._is_frozen()

    def _is_frozen(self) -> bool:
        return self.encoder_learning_rate == 0

    def _validated(self, X: Any, *, reset: bool) -> Features:
        if reset:
            self.row_layout_ = self.encoder_ = None
        if self.encoder is None:
            return super()._validated(X, reset=reset)
        rows = self._matrix_of(X, reset=reset)
        if reset:
            check_whole(0, encoder_frozen_epochs=self.encoder_frozen_epochs or 0)
            self.preparation_ = None
            self.n_features_in_ = rows.shape[1]
            first = self._new_encoder(0)
            self.encoder_width_ = self._encoded(rows[:1], first).shape[1]
            self.encoder_ = first if self._is_frozen() else None
        if self.encoder_ is None:
            return rows
        return super()._validated(self._encoded(rows, self.encoder_), reset=reset)

    def _matrix_of(self, X: Any, *, reset: bool) -> MappedRows:
        """Return rows as columns of a matrix, made when they are read."""
        if hasattr(X, "iloc"):
            X = X.to_numpy()
        if self.collate is None:
            # Arrays stay as they are: they may be on disk.
            X = X if hasattr(X, "shape") else as_tensors(X)
            X = X.get(ONLY, X) if isinstance(X, dict) else X
        n_rows = len(next(iter(X.values())) if isinstance(X, dict) else X)

        def read(numbers: NDArray[np.int64]) -> Any:
            if self.collate is not None:
                return self.collate([X[i] for i in numbers.tolist()])
            if isinstance(X, dict):
                return {name: part[numbers] for name, part in X.items()}
            return X[numbers]

        if reset:
            self.row_layout_ = RowLayout.of(read(np.arange(1)))
        layout = cast(RowLayout, self.row_layout_)

        def matrix(block: NDArray[np.int64]) -> NDArray[np.float32]:
            if len(block) == 0:
                return np.zeros((0, layout.width), np.float32)
            return layout.flat(read(block[:, 0]))

        return MappedRows(np.arange(n_rows)[:, None]).then(matrix)

    @torch.no_grad()
    def _encoded(self, rows: Any, encoder: nn.Module) -> NDArray[np.float32]:
        """Return what an encoder makes of rows, (n_rows, width)."""
        layout, device = cast(RowLayout, self.row_layout_), find_device(self.device)
        encoder.to(device).eval()
        return np.concatenate(
            [
                encode(encoder, layout.rows(torch.as_tensor(block).to(device))).cpu().numpy()
                for _, block in MappedRows.of(rows).blocks(_BATCH_BYTES)
            ]
        )

    def _learn_features(self, train: Rows, validation: Rows | None) -> tuple[Rows, Rows | None]:
        if not self._copies_encoder:
            return super()._learn_features(train, validation)
        # The encoder gets the rows as they are.
        nothing = np.zeros((1, train.features.shape[1]))
        self.n_inputs_ = self.n_columns_ = nothing.shape[1]
        self.n_rows_, self.sparse_rows_ = int(train.labeled().sum()), False
        self.scaler_ = FeatureScaler("none").fit(nothing)
        self.encoding_ = PiecewiseLinear("standard").fit(nothing)
        self.components_ = PrincipalComponents()
        if not self.shared_encoder:
            return train, validation
        first = copy.copy(self)
        first.n_members, first.members, first.checkpoint = 1, None, None
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        first._fit_rows(train, validation, seed)
        shared = self._new_encoder(0)
        shared.load_state_dict(first.encoder_state())
        self.encoder_, self.n_features_in_ = shared, self.encoder_width_
        train, held = (
            rows._replace(features=MappedRows.of(self._encoded(rows.features, shared)))
            for rows in (train, cast(Rows, validation))
        )
        return super()._learn_features(train, held)

    def _feature_blocks(self, features: Matrix) -> Iterator[Tensor]:
        """Give the features of rows to all members a block at a time, (n_members, n_rows, D)."""
        yield from map(self.network_.represent, self._blocks(features))

    # Together with others, and in files.

    def _shape(self) -> Any:
        return *super()._shape(), self.encoder, self.row_layout_

    def _fitted_state(self) -> tuple[dict[str, NDArray[Any]], Any]:
        arrays, own = super()._fitted_state()
        if self.row_layout_ is None:
            return arrays, own
        if self.encoder_ is not None:
            state = self.encoder_state()
            arrays |= {f"{_OWN}{name}": tensor.numpy() for name, tensor in state.items()}
        layout = dataclasses.asdict(self.row_layout_)
        shared = self.encoder_ is not None
        return arrays, own | {
            "encoder": {"layout": layout, "width": self.encoder_width_, "shared": shared}
        }

    def _rounded(self) -> Any:
        # What rounding a shared encoder does is not measured: the sample is what it returned.
        return None if self.encoder_ is not None else super()._rounded()

    def _restore_fitted(self, arrays: dict[str, NDArray[Any]], description: Any) -> None:
        stored = description.get("encoder")
        if stored is not None:
            self.row_layout_ = RowLayout(**as_declared(RowLayout, stored["layout"]))
            self.encoder_width_ = int(stored["width"])
            new = self._new_encoder(0)
            prefix = _OWN if stored["shared"] else f"row_encoder.module.{_OWN}"
            state = with_prefix(arrays, prefix)
            own = {name: list(tensor.shape) for name, tensor in new.state_dict().items()}
            n_leading = 0 if stored["shared"] else 1
            if own != {name: list(array.shape[n_leading:]) for name, array in state.items()}:
                raise EncoderMismatch
            if stored["shared"]:
                weights = {name: torch.from_numpy(array) for name, array in state.items()}
                new.load_state_dict(weights)
                self.encoder_ = new.to(find_device(self.device)).eval()
        super()._restore_fitted(arrays, description)
