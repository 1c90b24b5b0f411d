"""Affine maps of sparse rows equal those of dense rows."""

import pytest
import torch

from cgmvae.nn.batch import BatchShard
from cgmvae.nn.rng import GeneratorStreams
from cgmvae.nn.sparse import Scratch, SparseRows, chosen_outputs, sparse_affine


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


@pytest.mark.parametrize("chosen", [[[0, 2, 5]], [[1], [0, 3, 4, 5]], [[], [2]], [[], []]])
def test_chosen_outputs_and_gradients_equal_those_of_all(chosen):
    rows = [torch.tensor(own, dtype=torch.int64) for own in chosen]
    shapes = (len(rows), 4, 3), (len(rows), 6, 3), (len(rows), 6)
    leaves = [torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    found, (x, weight, bias) = chosen_outputs(*leaves, rows), leaves
    whole = torch.bmm(x, weight.mT) + bias[:, None]
    expected = torch.zeros_like(found)
    for i, own in enumerate(chosen):
        expected[i, :, : len(own)] = whole[i, :, own]
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    upstream = torch.randn_like(expected)
    gradients = torch.autograd.grad(found, leaves, upstream)
    wanted = torch.autograd.grad(expected, leaves, upstream)
    for a, b in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(a.to_dense(), b, rtol=1e-12, atol=1e-12)
    used = [[i, row] for i, own in enumerate(chosen) for row in own]
    assert gradients[1].indices().T.tolist() == used


def test_dense_rows_of_some_columns():
    x = made_rows([[2, 0, 3], [1, 1, 0]], 20)
    chosen = [x.used_columns()[0], torch.arange(20)]
    found, whole = x.dense(chosen), x.dense()
    assert torch.equal(found[1], whole[1])
    assert torch.equal(found[0, :, : len(chosen[0])], whole[0][:, chosen[0]])
    assert not found[0, :, len(chosen[0]) :].any()


def test_a_shard_knows_the_columns_of_the_whole_batch():
    x = made_rows([[2, 0, 3], [1, 1, 0]], 20)
    for found, own in zip(x.take(BatchShard(1, 2, 3)).used_columns(), x.dense(), strict=True):
        assert found.tolist() == own.any(0).nonzero().squeeze(1).tolist()


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
    in_pack = both.dropout(GeneratorStreams([3, 4]), rates)
    by_itself = alone.dropout(GeneratorStreams([3]), rates[:1])
    assert torch.equal(in_pack.values[:n_first], by_itself.values)
    assert torch.equal(in_pack.values[n_first:], both.values[n_first:])
    kept = by_itself.values != 0
    assert 0 < int(kept.sum()) < n_first
    torch.testing.assert_close(by_itself.values[kept], alone.values[kept] / 0.6)
