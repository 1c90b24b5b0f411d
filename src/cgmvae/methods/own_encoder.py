"""An encoder of the user's as a component of C-GMVAE: for images, token ids, anything.

A frozen encoder is a preparation: its output is scaled and learned from like any features. One that
is trained is copied for every member, and the copies are trained in the pack like the rest of the
network, each without its member's fold. A shared one is trained with a first member, and frozen
for all; it has seen all rows but those that are held out for validation, so that all members hold
out these, not folds of their own.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cgmvae.data.mapped import MappedRows
from cgmvae.declared import as_declared, check_declared
from cgmvae.errors import InputError
from cgmvae.methods.model_file import EncoderMismatch, with_prefix
from cgmvae.nn.encoder import ONLY, EncoderStack, RowLayout, StandardizedEncoder, as_tensors, encode
from cgmvae.training.plan import Member

#: Bytes of rows that a frozen encoder gets at a time.
_BATCH_BYTES = 2**24

#: Beginning of the names of its weights.
_OWN = "encoder."


@dataclass(frozen=True, eq=False)
class OwnEncoder:
    """An encoder, and how it is trained.

    Parameters
    ----------
    module : nn.Module or callable
        Maps a batch of rows to features, (n_rows, width), which are then standardized. Rows are a
        tensor or an array of any shape, (n_rows, …), or a mapping of several, which are the
        encoder's arguments by name. A function that returns a new module makes one per member,
        with initial weights of its own.
    collate : callable, optional
        Makes such a tensor or mapping of a list of rows; X may then be a sequence of anything.
        Rows must get the same shape in every batch.
    learning_rate : float, optional
        By default that of the network; 0 for a frozen encoder, whose output is scaled and encoded
        as any features are.
    frozen_epochs : int
        First epochs in which the encoder is not trained; statistics of batch normalization go on.
    shared : bool
        Whether the encoder is trained once, with a first member, and then shared by all. Otherwise
        each member trains a copy.

    Examples
    --------
    >>> OwnEncoder(nn.Flatten(), learning_rate=0).is_frozen
    True
    """

    module: Any
    collate: Callable[[Sequence[Any]], Any] | None = None
    learning_rate: float | None = None
    frozen_epochs: int = 0
    shared: bool = False

    @property
    def is_frozen(self) -> bool:
        """Whether it stays as it is."""
        return self.learning_rate == 0

    def training(self) -> dict[str, Any]:
        """Return what the training plan takes of it."""
        if self.is_frozen:
            return {}
        return {
            "encoder_learning_rate": self.learning_rate,
            "encoder_frozen_epochs": self.frozen_epochs,
        }

    def new(self, seed: int) -> nn.Module:
        """Return a copy of the module, or a new one with initial weights of this seed."""
        made = self.module
        if not isinstance(made, nn.Module) and callable(made):
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(seed)
                made = made()
        if not isinstance(made, nn.Module):
            raise InputError(
                f"encoder is {self.module!r}; it must be a torch module, or a function that "
                "returns one."
            )
        return made if made is not self.module else copy.deepcopy(made)


def own_encoder(encoder: Any) -> OwnEncoder | None:
    """Return the encoder that was given, alone or with how it is trained; None if there is none."""
    if encoder is None:
        return None
    given = encoder if isinstance(encoder, OwnEncoder) else OwnEncoder(encoder)
    check_declared(OwnEncoder, vars(given))
    return given


@dataclass
class EncodedRows:
    """A fitted encoder: rows of any shape become columns of a matrix, and then features."""

    given: OwnEncoder
    layout: RowLayout
    """Shapes and types of the rows."""
    width: int
    """Number of features that it returns."""
    device: torch.device
    module: nn.Module | None = None
    """The encoder that all members share; None if each has a copy in ``network_.row_encoder``."""

    @classmethod
    def learned(cls, given: OwnEncoder, X: Any, device: torch.device) -> EncodedRows:
        """Return the encoder for rows like these; it is not trained."""
        n_rows, read = _reader(given, X)
        first, module = read(np.arange(min(1, n_rows))), given.new(0)
        rows = cls(given, RowLayout.of(first), 0, device, module)
        rows.width = rows.encoded(rows.matrix(X)[:1]).shape[1]
        rows.module = module if given.is_frozen else None
        return rows

    def matrix(self, X: Any) -> MappedRows:
        """Return rows as columns of a matrix, made when they are read."""
        n_rows, read = _reader(self.given, X)

        def columns(block: NDArray[np.int64]) -> NDArray[np.float32]:
            if len(block) == 0:
                return np.zeros((0, self.layout.width), np.float32)
            return self.layout.flat(read(block[:, 0]))

        return MappedRows(np.arange(n_rows)[:, None]).then(columns)

    @torch.no_grad()
    def encoded(self, rows: Any) -> NDArray[np.float32]:
        """Return what the shared encoder makes of rows as columns, (n_rows, width)."""
        assert self.module is not None
        self.module.to(self.device).eval()
        return np.concatenate(
            [
                encode(self.module, self.layout.rows(torch.as_tensor(block).to(self.device)))
                .cpu()
                .numpy()
                for _, block in MappedRows.of(rows).blocks(_BATCH_BYTES)
            ]
        )

    def copies(self, members: Sequence[Member], device: torch.device | str) -> EncoderStack | None:
        """Return a copy for each of these members; None if they share one."""
        if self.module is not None:
            return None
        each = [StandardizedEncoder(self.given.new(own.seed), self.width) for own in members]
        return EncoderStack(each, self.layout).to(device)

    def share(self, state: dict[str, Tensor]) -> None:
        """Let all members share the encoder with these weights."""
        self.module = self.given.new(0)
        self.module.load_state_dict(state)

    def state(self, network: Any, member: int) -> dict[str, Tensor]:
        """Return the state dict of one member's encoder, a copy on the CPU."""
        if self.module is not None:
            state = copy.deepcopy(self.module.state_dict())
        else:
            state = with_prefix(network.row_encoder.state_of(member), _OWN)
        return {name: tensor.cpu() for name, tensor in state.items()}

    # In model files.

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the weights of a shared encoder, as arrays by name."""
        if self.module is None:
            return {}
        return {f"{_OWN}{name}": each.numpy() for name, each in self.state(None, 0).items()}

    def description(self) -> dict[str, Any]:
        """Return everything else, as JSON values."""
        shared = self.module is not None
        return {"layout": dataclasses.asdict(self.layout), "width": self.width, "shared": shared}

    @classmethod
    def restored(
        cls,
        given: OwnEncoder,
        arrays: Mapping[str, NDArray[Any]],
        stored: Mapping[str, Any],
        device: torch.device,
    ) -> EncodedRows:
        """Rebuild it with the weights of a file; raise if the encoder has others."""
        layout = RowLayout(**as_declared(RowLayout, stored["layout"]))
        rows = cls(given, layout, int(stored["width"]), device)
        prefix = _OWN if stored["shared"] else f"row_encoder.module.{_OWN}"
        weights = with_prefix(arrays, prefix)
        own = {name: list(tensor.shape) for name, tensor in given.new(0).state_dict().items()}
        n_leading = 0 if stored["shared"] else 1
        if own != {name: list(array.shape[n_leading:]) for name, array in weights.items()}:
            raise EncoderMismatch
        if stored["shared"]:
            rows.share({name: torch.from_numpy(array) for name, array in weights.items()})
        return rows


def _reader(given: OwnEncoder, X: Any) -> tuple[int, Callable[[NDArray[np.int64]], Any]]:
    """Return the number of rows, and a function that reads some of them as the encoder's input."""
    if hasattr(X, "iloc"):
        X = X.to_numpy()
    if given.collate is None:
        # Arrays stay as they are: they may be on disk.
        X = X if hasattr(X, "shape") else as_tensors(X)
        X = X.get(ONLY, X) if isinstance(X, dict) else X
    n_rows = len(next(iter(X.values())) if isinstance(X, dict) else X)

    def read(numbers: NDArray[np.int64]) -> Any:
        if given.collate is not None:
            return given.collate([X[i] for i in numbers.tolist()])
        if isinstance(X, dict):
            return {name: part[numbers] for name, part in X.items()}
        return X[numbers]

    return n_rows, read
