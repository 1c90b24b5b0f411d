"""Terms of many labels by blocks are those of the objective, and so are their gradients."""

import pytest
import torch

from cgmvae.model import label_losses, objective

M, B, L, E = 2, 7, 9, 5


@pytest.fixture
def given():
    """Return embeddings, labels, biases, masks and temperatures with every kind of row."""
    generator = torch.Generator().manual_seed(0)
    draw = lambda *shape: torch.randn(*shape, dtype=torch.float64, generator=generator)  # noqa: E731
    known = torch.rand(M, B, L, generator=generator) < 0.8
    positive = (torch.rand(M, B, L, generator=generator) < 0.4) & known
    positive[0, 0], known[0, 0] = False, True  # nothing applies
    positive[0, 1] = known[0, 1] = True  # everything applies
    positive[1, 2] = known[1, 2] = False  # nothing is known
    positive[1, 3] = False  # nothing is known to apply
    leaves = [draw(M, B, E), draw(M, L, E), draw(M, L)]
    temperature = torch.tensor([0.1, 0.7], dtype=torch.float64)
    return [leaf.requires_grad_() for leaf in leaves], positive, known, temperature


def reference(embedding, labels, bias, positive, known, temperature):
    inner = torch.bmm(embedding, labels.transpose(1, 2))
    cosine = objective.cosine_similarity(embedding, labels)
    return (
        objective.cross_entropy(inner + bias[:, None], positive, known),
        objective.contrastive(cosine / temperature[:, None, None], positive, known),
    )


@pytest.mark.parametrize("block", [1, 4, 9, 100])
def test_terms_and_gradients_are_those_of_the_objective(given, block, monkeypatch):
    leaves, positive, known, temperature = given
    monkeypatch.setattr(label_losses, "LABEL_BLOCK", block)
    expected = reference(*leaves, positive, known, temperature)
    found = label_losses.label_losses(*leaves, positive, known, temperature=temperature)
    upstream = [torch.randn_like(term) for term in expected]
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
    gradients = torch.autograd.grad(found, leaves, upstream)
    for a, b in zip(gradients, torch.autograd.grad(expected, leaves, upstream), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


def test_gradients_are_those_of_finite_differences(given):
    leaves, positive, known, temperature = given
    weight = torch.rand(M, L, dtype=torch.float64) + 0.5

    def terms(*leaves):
        return tuple(
            label_losses.label_losses(
                *leaves, positive, known, temperature=temperature, stands_for=weight
            )
        )

    assert torch.autograd.gradcheck(terms, leaves)


def test_a_label_may_stand_for_several(given):
    (embedding, labels, bias), positive, known, temperature = given
    positive[..., -1] = False
    twice = torch.cat([labels, labels[:, -1:]], 1), torch.cat([bias, bias[:, -1:]], 1)
    masks = [torch.cat([mask, mask[..., -1:]], -1) for mask in (positive, known)]
    expected = reference(embedding, *twice, *masks, temperature)
    weight = torch.ones(M, L)
    weight[:, -1] = 2
    found = label_losses.label_losses(
        embedding, labels, bias, positive, known, temperature=temperature, stands_for=weight
    )
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)


def test_embeddings_of_zeros_and_extreme_logits_stay_finite(given):
    (embedding, labels, bias), positive, known, temperature = given
    leaves = [embedding.detach() * 1e4, labels.detach() * 1e4, bias.detach()]
    leaves[0][0, 0], leaves[1][1, 2] = 0, 0
    leaves = [leaf.float().requires_grad_() for leaf in leaves]
    found = label_losses.label_losses(*leaves, positive, known, temperature=temperature.float())
    gradients = torch.autograd.grad(sum(term.sum() for term in found), leaves)
    assert all(torch.isfinite(part).all() for part in (*found, *gradients))
