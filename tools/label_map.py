"""Draw the map of a data set's labels; the picture of the README is one.

Usage::

    python tools/label_map.py mirflickr_tags --members 2 --epochs 10 --out docs/images/label_map.png
"""

from __future__ import annotations

import argparse

from matplotlib.figure import Figure

from cgmvae import CGMVAEClassifier, load_dataset, make_split
from cgmvae.report import LabelMapDisplay


def main() -> None:
    """Train on the training rows, and draw."""
    arguments = parsed_arguments()
    data = load_dataset(arguments.data)
    train = data.rows(make_split(data, seed=0).train)
    model = CGMVAEClassifier(
        n_members=arguments.members, epochs=arguments.epochs, random_state=0
    ).fit(train.X, train)
    figure = Figure(figsize=(8, 5.5), layout="constrained")
    LabelMapDisplay.from_estimator(model, train).plot(figure.subplots())
    figure.savefig(arguments.out, dpi=120)
    print(f"Wrote {arguments.out}: {data.n_labels:,} labels of {data.name}.")


def parsed_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="Draw the map of a data set's labels.")
    parser.add_argument("data", help="a data set of 'cgmvae data list'")
    parser.add_argument("--members", type=int, default=4)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--out", required=True)
    return parser.parse_args()


if __name__ == "__main__":
    main()
