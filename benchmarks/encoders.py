"""C-GMVAE on an encoder of one's own: trained with it, frozen, and beside plain cross-entropy.

    python benchmarks/encoders.py --out docs/results/encoders.json

On canvases with two to four handwritten digits, a small convolutional network is trained with
C-GMVAE, or left at its random initial weights, or trained with a linear layer and cross-entropy for
as many epochs. On Reuters, a frozen layer of random features stands for an encoder of text; the
words themselves are beside it. Thresholds are chosen on rows that were held out of the training
rows; micro-F1 is that of test rows.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from measurement import (
    TINY_NETWORK,
    TINY_ROWS,
    Results,
    add_out,
    make_parser,
    print_header,
    print_row,
)
from torch import nn

from cgmvae import CGMVAEClassifier, load_dataset, make_split
from cgmvae.data.synthetic import make_digits
from cgmvae.evaluation import learn_rule, micro_f1

N_TRAIN, N_TEST = 2000, 1000
EPOCHS, BATCH, RATE, WIDTH = 20, 64, 3e-3, 64
SEEDS = (0, 1, 2)
N_RANDOM = 1000


def convolutions() -> nn.Module:
    """Return the encoder of the digits."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, WIDTH, 4),
        nn.ReLU(),
        nn.AdaptiveMaxPool2d(1),
        nn.Flatten(),
    )


def digits(seed: int, *, quick: bool) -> tuple[Any, Any, Any, Any]:
    """Return images and labels to train on, and to test on."""
    n_train, n_test = (TINY_ROWS, TINY_ROWS) if quick else (N_TRAIN, N_TEST)
    return *make_digits(n_train, seed=seed), *make_digits(n_test, test=True, seed=seed)


def with_cgmvae(seed: int, *, quick: bool, **encoder: Any) -> float:
    """Return micro-F1 of one member with the encoder."""
    X, Y, X_test, Y_test = digits(seed, quick=quick)
    model = CGMVAEClassifier(
        encoder=convolutions,
        n_members=1,
        epochs=1 if quick else EPOCHS,
        batch_size=BATCH,
        learning_rate=RATE,
        random_state=seed,
        **encoder,
    )
    return model.fit(X, Y).score(X_test, Y_test)


def with_cross_entropy(seed: int, *, quick: bool) -> float:
    """Return micro-F1 of the encoder with a linear layer, trained with cross-entropy."""
    X, Y, X_test, Y_test = digits(seed, quick=quick)
    images, labels = torch.as_tensor(X), torch.as_tensor(Y, dtype=torch.float32)
    n_train, epochs = int(0.9 * len(X)), 1 if quick else EPOCHS
    torch.manual_seed(seed)
    network = nn.Sequential(convolutions(), nn.BatchNorm1d(WIDTH), nn.Linear(WIDTH, Y.shape[1]))
    optimizer = torch.optim.AdamW(network.parameters(), lr=RATE)
    n_steps = epochs * -(-n_train // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=n_steps)
    for _ in range(epochs):
        for rows in torch.randperm(n_train).split(BATCH):
            logits = network(images[rows])
            loss = nn.functional.binary_cross_entropy_with_logits(logits, labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    network.eval()
    with torch.no_grad():
        held = network(images[n_train:]).sigmoid().numpy()
        unseen = network(torch.as_tensor(X_test)).sigmoid().numpy()
    return float(micro_f1(Y_test, learn_rule(Y[n_train:], held).apply(unseen)))


def reuters(seed: int, *, quick: bool, encoded: bool) -> float:
    """Return micro-F1 on Reuters, from random features of the words or from the words."""
    data = load_dataset("yeast" if quick else "reuters_tfidf")  # the first is embedded
    X, split = sp.csr_array(data.X), make_split(data, seed=seed)
    rows = [np.concatenate([split.train, split.validation]), split.test]
    rows = [each[:TINY_ROWS] for each in rows] if quick else rows
    changes: dict[str, Any] = {"epochs": 1, **TINY_NETWORK} if quick else {}
    if encoded:
        torch.manual_seed(seed)
        encoder = nn.Sequential(nn.Linear(X.shape[1], N_RANDOM), nn.ReLU())

        def collate(numbers: Sequence[int]) -> torch.Tensor:
            return torch.as_tensor(X[numbers].toarray(), dtype=torch.float32)

        changes |= {"encoder": encoder, "collate": collate, "encoder_learning_rate": 0.0}
    train, test = rows if encoded else (X[each] for each in rows)
    model = CGMVAEClassifier(n_members=2, encoding="standard", random_state=seed, **changes)
    return model.fit(train, data.Y[rows[0]]).score(test, data.Y[rows[1]])


WORK: dict[tuple[str, str], Callable[..., float]] = {
    ("digits", "C-GMVAE, trained encoder"): with_cgmvae,
    ("digits", "C-GMVAE, frozen encoder"): partial(with_cgmvae, encoder_learning_rate=0.0),
    ("digits", "cross-entropy, trained encoder"): with_cross_entropy,
    ("reuters", "C-GMVAE, frozen random features"): partial(reuters, encoded=True),
    ("reuters", "C-GMVAE, words"): partial(reuters, encoded=False),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is missing and print the table."""
    parser = make_parser(__doc__)
    add_out(parser)
    options = parser.parse_args(argv)
    results = Results(options.out)
    seeds = SEEDS[:1] if options.quick else SEEDS
    for (data, name), work in WORK.items():
        for seed in seeds if data == "digits" else seeds[:1]:
            results.compute((data, name, str(seed)), partial(work, seed, quick=options.quick))
    print()
    print_header("data", "model", "micro-F1", "each seed")
    for data, name in WORK:
        values = list(results.values[data][name].values())
        print_row(data, name, f"{np.mean(values):.3f}", ", ".join(f"{v:.3f}" for v in values))
    return 0


if __name__ == "__main__":
    sys.exit(main())
