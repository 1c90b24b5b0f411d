"""Which library is faster at the products of a batch with a processor's weights.

    python benchmarks/products.py

For the shapes of the default network at E = 2048, the time of oneDNN's product, as
``cgmvae.nn.products`` takes it, over that of torch's own, taken in turn: below 1 oneDNN is faster.
"""

from __future__ import annotations

import torch
from epoch import ratio

from cgmvae.nn import products

#: Rows, and columns that come in and go out.
SHAPES = (
    (128, 103, 256),
    (128, 256, 512),
    (128, 512, 256),
    (128, 167, 512),
    (128, 512, 512),
    (128, 512, 2048),
    (14, 2048, 512),
    (14, 512, 256),
)


def main(repeats: int = 200) -> None:
    """Print the ratios of all shapes, median and quartiles."""
    print(f"threads: {torch.get_num_threads()}, torch {torch.__version__}")
    products._HAS_ONEDNN, products._LARGE = True, 0  # whatever the processor and the shape
    for shape in SHAPES:
        there, back = ratios(*shape, repeats)
        n_rows, n_in, n_out = shape
        print(f"{n_rows} rows, {n_in} → {n_out}: with its bias {there}, transposed {back}")


def ratios(n_rows: int, n_in: int, n_out: int, repeats: int) -> tuple[str, str]:
    """Return the ratios of the product with the weights and its bias, and with their transpose."""
    x, d_out = torch.randn(1, n_rows, n_in), torch.randn(1, n_rows, n_out)
    weight, bias = torch.randn(1, n_in, n_out), torch.randn(1, n_out)
    return (
        ratio(
            lambda: products.affine(x, weight, bias),
            lambda: torch.baddbmm(bias[:, None], x, weight),
            repeats,
        ),
        ratio(
            lambda: products.times_transposed(d_out, weight),
            lambda: torch.bmm(d_out, weight.mT),
            repeats,
        ),
    )


if __name__ == "__main__":
    main()
