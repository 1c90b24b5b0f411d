"""Affine maps of sparse rows equal those of dense rows."""

import pytest
import torch

from cgmvae.nn.rng import GeneratorStreams
from cgmvae.nn.sparse import Scratch, SparseRows, sparse_affine


def made_rows(lengths, n_columns, seed=0):
    """Return rows with the given numbers of values, (n_members, n_rows)."""
    generator = torch.Generator().manual_seed(seed)
    flat = [n for member in lengths for n in member]
    columns = [torch.randperm(n_columns, generator=generator)[:n].sort().values for n in flat]
    values = torch.randn(sum(flat), dtype=torch.float64, generator=generator)
    bounds = torch.tensor([0, *flat]).cumsum(0)
    n_rows = len(lengths[0])
    starts = torch.stack([bounds[i * n_rows : (i + 1) * n_rows + 1] for i in range(len(lengths))])
    return SparseRows(values, torch.cat(columns), starts, n_columns)


def affine_of_dense(x, beside, weight, bias):
    return torch.baddbmm(bias[:, None], torch.cat([x.dense(), beside], dim=2), weight)


@pytest.mark.parametrize(
    "lengths",
    [
        [[3, 0, 5, 1]],
        [[3, 0, 5, 1], [0, 0, 2, 9]],
        [[0, 0], [0, 0]],
        [[9], [1], [4]],
    ],
)
@pytest.mark.parametrize("n_more", [0, 2])
def test_map_and_gradients_equal_those_of_dense_rows(lengths, n_more):
    x = made_rows(lengths, 9)
    n_members, n_rows, _ = x.shape
    shapes = (n_members, n_rows, n_more), (n_members, 9 + n_more, 4), (n_members, 4)
    leaves = [torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    expected, found = affine_of_dense(x, *leaves), sparse_affine(x, *leaves)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    upstream = torch.randn_like(expected)
    wanted = torch.autograd.grad(expected, leaves, upstream)
    for a, b in zip(torch.autograd.grad(found, leaves, upstream), wanted, strict=True):
        torch.testing.assert_close(a.to_dense(), b, rtol=1e-12, atol=1e-12)


def test_the_gradient_of_a_weight_has_only_the_rows_in_use():
    x = made_rows([[2, 0, 3], [1, 1, 0]], 1000)
    weight = torch.randn(2, 1002, 4, dtype=torch.float64, requires_grad=True)
    more, bias = (torch.ones(*shape, dtype=torch.float64) for shape in ((2, 3, 2), (2, 4)))
    out = sparse_affine(x, more, weight, bias)
    (found,) = torch.autograd.grad(out.sum(), weight)
    used = [x.columns[own[0] : own[-1]].unique().tolist() for own in x.starts]
    expected = [[i, row] for i, own in enumerate(used) for row in (*own, 1000, 1001)]
    assert found.indices().T.tolist() == expected


def test_two_gradients_of_a_step_do_not_share_memory():
    x, scratch = made_rows([[2, 0, 3]], 9), Scratch()
    weight = torch.randn(1, 9, 4, dtype=torch.float64, requires_grad=True)
    bias = torch.zeros(1, 4, dtype=torch.float64)
    for _ in range(2):  # in the second round the memory is used again
        scratch.release()
        rows = x.indexed(scratch)
        twice = sparse_affine(rows, None, weight, bias).sum()
        twice = twice + sparse_affine(rows.times(torch.full((1, 3), 2.0)), None, weight, bias).sum()
        (found,) = torch.autograd.grad(twice, weight)
        expected = 3 * x.dense().sum(1)[..., None].expand(-1, -1, 4)
        torch.testing.assert_close(found.to_dense(), expected)


def test_rows_are_multiplied_by_their_factors():
    x = made_rows([[2, 0, 3], [1, 1, 0]], 5)
    factors = torch.tensor([[2.0, 3.0, 0.0], [0.5, -1.0, 7.0]], dtype=torch.float64)
    torch.testing.assert_close(x.times(factors).dense(), x.dense() * factors[..., None])


def test_rows_are_repeated_for_several_members():
    x = made_rows([[2, 0, 3]], 5)
    torch.testing.assert_close(x.repeat(3).dense(), x.dense().expand(3, -1, -1))


def test_a_member_drops_the_same_values_alone_and_in_a_pack():
    both = made_rows([[5, 9, 0], [9, 9, 9]], 9)
    n_first = int(both.starts[0, -1])
    alone = SparseRows(both.values[:n_first], both.columns[:n_first], both.starts[:1], 9)
    rates = torch.tensor([0.4, 0.0], dtype=torch.float64)
    in_pack = both.dropout(GeneratorStreams([3, 4]), "features", rates)
    by_itself = alone.dropout(GeneratorStreams([3]), "features", rates[:1])
    assert torch.equal(in_pack.values[:n_first], by_itself.values)
    assert torch.equal(in_pack.values[n_first:], both.values[n_first:])
    kept = by_itself.values != 0
    assert 0 < int(kept.sum()) < n_first
    torch.testing.assert_close(by_itself.values[kept], alone.values[kept] / 0.6)
