"""Products of whichever library against those of doubles, wherever their factors lie in memory."""

import pytest
import torch

from cgmvae.nn import products
from cgmvae.nn.products import affine, times_transposed

N_ROWS, N_IN, N_OUT = 5, 7, 9

every_number = pytest.mark.parametrize("n_members", [1, 3])
every_precision = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])

#: Views of so many rows and columns: as they come, of a wider tensor, of a transpose, of one row.
LAYOUTS = {
    "dense": lambda draw, n, m: draw(n, m),
    "columns of a wider one": lambda draw, n, m: draw(n, m + 3)[..., 3:],
    "rows of a longer one": lambda draw, n, m: draw(n + 3, m)[:, :n],
    "transposed": lambda draw, n, m: draw(m, n).mT,
    "one row": lambda draw, n, m: draw(1, m).expand(-1, n, -1),
    "one number": lambda draw, n, m: draw(1, 1).expand(-1, n, m),
}
every_layout = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)


@pytest.fixture(params=[True, False], ids=["oneDNN", "MKL"], autouse=True)
def library(request, monkeypatch):
    """Take one library, whatever the processor and the size."""
    if request.param and not torch.backends.mkldnn.is_available():
        pytest.skip("torch came without oneDNN")
    monkeypatch.setattr(products, "_HAS_ONEDNN", request.param)
    monkeypatch.setattr(products, "_LARGE", 0)


def _draw(n_members, dtype):
    generator = torch.Generator().manual_seed(n_members)
    return lambda *shape: torch.randn(n_members, *shape, generator=generator, dtype=dtype)


def _assert_close(found, expected, dtype):
    assert found.dtype == dtype
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)


@every_layout
@every_precision
@every_number
def test_rows_of_any_layout(n_members, dtype, layout):
    draw = _draw(n_members, dtype)
    rows, weight, bias = layout(draw, N_ROWS, N_IN), draw(N_IN, N_OUT), draw(N_OUT)
    expected = rows.double() @ weight.double() + bias.double()[:, None]
    _assert_close(affine(rows, weight, bias), expected, dtype)
    rows = layout(draw, N_ROWS, N_OUT)
    expected = rows.double() @ weight.double().mT
    _assert_close(times_transposed(rows, weight), expected, dtype)


@every_layout
@every_precision
@every_number
def test_weights_of_any_layout(n_members, dtype, layout):
    draw = _draw(n_members, dtype)
    weight, bias = layout(draw, N_IN, N_OUT), draw(N_OUT + 2)[:, 2:]
    rows = draw(N_ROWS, N_IN)
    expected = rows.double() @ weight.double() + bias.double()[:, None]
    _assert_close(affine(rows, weight, bias), expected, dtype)
    rows = draw(N_ROWS, N_OUT)
    expected = rows.double() @ weight.double().mT
    _assert_close(times_transposed(rows, weight), expected, dtype)


@every_precision
@every_number
@pytest.mark.parametrize(("n_rows", "n_in", "n_out"), [(0, 7, 9), (1, 1, 1), (1, 7, 1), (5, 1, 9)])
def test_small_products(n_members, dtype, n_rows, n_in, n_out):
    draw = _draw(n_members, dtype)
    rows, weight, bias = draw(n_rows, n_in), draw(n_in, n_out), draw(n_out)
    expected = rows.double() @ weight.double() + bias.double()[:, None]
    _assert_close(affine(rows, weight, bias), expected, dtype)
    back = draw(n_rows, n_out)
    _assert_close(times_transposed(back, weight), back.double() @ weight.double().mT, dtype)


@every_precision
@every_number
def test_results_are_new_and_factors_stay(n_members, dtype):
    draw = _draw(n_members, dtype)
    given = rows, weight, bias = draw(N_ROWS, N_IN), draw(N_IN, N_OUT), draw(N_OUT)
    before = [part.clone() for part in given]
    first = affine(rows, weight, bias)
    times_transposed(first.mul_(2), weight).add_(1)
    assert all(map(torch.equal, given, before))


@every_number
def test_a_row_that_is_not_finite_spoils_no_other(n_members):
    draw = _draw(n_members, torch.float32)
    rows, weight, bias = draw(N_ROWS, N_IN), draw(N_IN, N_OUT), draw(N_OUT)
    clean = affine(rows, weight, bias)
    rows[:, 2] = torch.nan
    found = affine(rows, weight, bias)
    others = [0, 1, 3, 4]
    assert bool(found[:, 2].isnan().all())
    assert torch.equal(found[:, others], clean[:, others])
