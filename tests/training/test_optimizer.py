import numpy as np
import pytest
import torch
from torch import Tensor, nn

from cgmvae.model.network import CGMVAENetwork, NetworkConfig
from cgmvae.nn.batch import Batch
from cgmvae.nn.rng import make_streams
from cgmvae.training import optimizer
from cgmvae.training.optimizer import FlatParameters, PackedAdam, RowGradient, gradient_norms

N_MEMBERS = 3
RATES = torch.tensor([1e-2, 3e-3, 0.1], dtype=torch.float64)
DECAYS = [0.0, 0.1, 0.7]


class Layers(nn.Module):
    """Parameters of every form that a packed network has, in an order that is not the flat one."""

    def __init__(self, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(1)

        def parameter(*shape: int) -> nn.Parameter:
            values = torch.randn(N_MEMBERS, *shape, generator=draw, dtype=torch.float64)
            return nn.Parameter(values.to(dtype))

        self.bias, self.weight, self.gain = parameter(4), parameter(3, 4), parameter(5)
        self.embeddings, self.scalar = parameter(2, 3), parameter()

    def loss(self) -> Tensor:
        hidden = torch.tanh(torch.baddbmm(self.bias[:, None], self.embeddings, self.weight))
        own = hidden.square().sum((1, 2)) * self.scalar
        return (own * torch.arange(1.0, N_MEMBERS + 1)).sum()


def gradients(n_steps: int, width: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Random gradients, some tiny, some large, (n_steps, n_members, width)."""
    draw = torch.Generator().manual_seed(2)
    values = torch.randn(n_steps, N_MEMBERS, width, generator=draw, dtype=torch.float64)
    return (values * 10.0 ** torch.linspace(-6, 2, width, dtype=torch.float64)).to(dtype)


def run(adam: PackedAdam, steps: Tensor, active: Tensor | None = None) -> None:
    for i, gradient in enumerate(steps):
        on = torch.ones(N_MEMBERS, dtype=torch.bool) if active is None else active[i]
        take(adam, gradient, RATES / (i + 1), on)


def take(adam: PackedAdam, gradient: Tensor, rates: Tensor, active: Tensor) -> None:
    """Take one step with a flat gradient."""
    parts = adam.flat.parts(gradient.clone())
    adam.step(parts, gradient_norms(parts), rates, active)


class TestFlatParameters:
    def test_matrices_come_first_in_their_own_order(self):
        flat = FlatParameters(Layers())
        assert flat.names == ["weight", "embeddings", "bias", "gain", "scalar"]
        assert flat.n_decayed == 3 * 4 + 2 * 3
        assert flat.values.shape == (N_MEMBERS, 12 + 6 + 4 + 5 + 1)

    def test_parameters_stay_views(self):
        module = Layers()
        flat = FlatParameters(module)
        flat.values.copy_(torch.arange(flat.values.numel()).view_as(flat.values))
        assert module.weight[1].flatten().tolist() == flat.values[1, :12].tolist()
        with torch.no_grad():
            module.scalar[2] = -1.0
        assert flat.values[2, -1] == -1.0
        module.load_state_dict(Layers().state_dict())
        assert torch.equal(flat.values, FlatParameters(Layers()).values)

    def test_weight_decay_excludes_biases_and_normalization(self):
        config = NetworkConfig(
            embedding_dim=3,
            latent_dim=2,
            label_hidden=(4,),
            feature_hidden=(4,),
            decoder_hidden=(4,),
        )
        network = CGMVAENetwork(
            config,
            5,
            torch.zeros(2, 6).numpy(),
            make_streams([1, 2], "cpu"),
            dropout=[0.0] * 2,
            input_dropout=[0.0] * 2,
            temperature=[1.0] * 2,
        )
        flat = FlatParameters(network)
        sizes = [parameter[0].numel() for parameter in flat.parameters]
        decayed = {n for i, n in enumerate(flat.names) if sum(sizes[:i]) < flat.n_decayed}
        spared = set(flat.names) - decayed
        assert {n for n in flat.names if n.endswith((".bias", ".gain", ".shift"))} < spared
        assert "label_bias" in spared
        assert {n for n in flat.names if n.endswith(".weight")} < decayed
        assert "label_encoder.embeddings" in decayed


def test_gradient_norms_are_over_all_parameters():
    flat = FlatParameters(Layers())
    gradient = gradients(1, flat.values.shape[1])[0]
    torch.testing.assert_close(gradient_norms(flat.parts(gradient)), gradient.norm(dim=1))
    gradient[1, -1] = torch.nan
    assert torch.isfinite(gradient_norms(flat.parts(gradient))).tolist() == [True, False, True]


class TestPackedAdam:
    def torch_members(self, kind: str, decays=DECAYS, decay_all=False):
        """One torch optimizer per member, with matrices and the rest in groups of their own."""
        flat = FlatParameters(Layers())
        members = []
        for i, decay in enumerate(decays):
            matrices = nn.Parameter(flat.values[i, : flat.n_decayed].clone())
            others = nn.Parameter(flat.values[i, flat.n_decayed :].clone())
            groups = [
                {"params": [matrices], "weight_decay": decay},
                {"params": [others], "weight_decay": decay if decay_all else 0.0},
            ]
            cls = torch.optim.AdamW if kind == "adamw" else torch.optim.Adam
            members.append((cls(groups, lr=1.0), matrices, others))
        return members

    @pytest.mark.parametrize("decay_all", [False, True])
    @pytest.mark.parametrize("kind", ["adamw", "adam"])
    def test_each_step_equals_torch(self, kind, decay_all):
        flat = FlatParameters(Layers())
        adam = PackedAdam(flat, DECAYS, kind=kind, decay_all=decay_all)
        members = self.torch_members(kind, decay_all=decay_all)
        draw = torch.Generator().manual_seed(3)
        steps = gradients(25, flat.values.shape[1])
        for i, gradient in enumerate(steps):
            active = torch.rand(N_MEMBERS, generator=draw) < 0.7
            take(adam, gradient, RATES / (i + 1), active)
            for k, (own, matrices, others) in enumerate(members):
                if not active[k]:
                    continue
                matrices.grad = gradient[k, : flat.n_decayed].clone()
                others.grad = gradient[k, flat.n_decayed :].clone()
                for group in own.param_groups:
                    group["lr"] = float(RATES[k] / (i + 1))
                own.step()
            expected = torch.stack([torch.cat([m.detach(), o.detach()]) for _, m, o in members])
            torch.testing.assert_close(flat.values, expected, rtol=1e-12, atol=1e-14)
        assert len(set(adam.n_steps[:, 0].tolist())) > 1

    @pytest.mark.parametrize("clip", [1e-3, 30.0, 1e6])
    def test_clipping_equals_torch(self, clip):
        flat = FlatParameters(Layers())
        adam = PackedAdam(flat, [0.0] * N_MEMBERS, clip=clip)
        gradient = gradients(1, flat.values.shape[1])[0]
        gradient[1] *= 0.01
        run(adam, gradient[None])
        for k in range(N_MEMBERS):
            own = nn.Parameter(torch.zeros(flat.values.shape[1], dtype=torch.float64))
            own.grad = gradient[k].clone()
            torch.nn.utils.clip_grad_norm_([own], clip)
            # After the first step the first moment is a tenth of the gradient.
            torch.testing.assert_close(adam.mean[k] * 10, own.grad, rtol=2e-6, atol=0)
        norms = (adam.mean * 10).norm(dim=1)
        expected = gradient.norm(dim=1).clamp(max=clip)
        torch.testing.assert_close(norms, expected, rtol=1e-12, atol=0)

    def test_the_row_encoder_has_learning_rates_of_its_own(self):
        module = Layers()
        module.row_encoder = Layers()
        start, factors = FlatParameters(module).values.clone(), torch.tensor([0.0, 0.5, 1.0])
        gradient = gradients(1, start.shape[1])[0]
        found = []
        for rates, factor in ((RATES, factors), (RATES, 1.0), (RATES * factors, 1.0)):
            flat = FlatParameters(module)
            flat.set(start)
            adam = PackedAdam(flat, DECAYS)
            adam.encoder_factor.copy_(torch.as_tensor(factor))
            take(adam, gradient, rates, torch.ones(N_MEMBERS, dtype=torch.bool))
            found.append(flat.values)
        own = flat.mask({name for name in flat.names if name.startswith("row_encoder.")})
        assert own.sum() == start.shape[1] / 2
        assert torch.equal(found[0], torch.where(own, found[2], found[1]))
        assert not torch.equal(found[0], found[1])

    @pytest.mark.parametrize("kind", ["adamw", "adam"])
    @pytest.mark.parametrize("bad", [0.5, torch.nan, torch.inf])
    def test_inactive_members_are_unchanged(self, kind, bad):
        flat = FlatParameters(Layers())
        adam = PackedAdam(flat, DECAYS, kind=kind, clip=1.0)
        run(adam, gradients(3, flat.values.shape[1]))
        state = (flat.values, adam.mean, adam.square, adam.n_steps)
        before = [tensor.clone() for tensor in state]
        steps = gradients(4, flat.values.shape[1])
        steps[:, 1] = bad
        run(adam, steps, torch.tensor([True, False, True]).expand(4, -1))
        for old, new in zip(before, state, strict=True):
            assert torch.equal(old[1], new[1])
            assert not torch.equal(old[0], new[0])
            assert bool(torch.isfinite(new).all())

    @pytest.mark.parametrize("block", [1, 8, 1000])
    def test_rows_of_a_matrix_are_updated_as_the_whole_matrix_is(self, block, monkeypatch):
        monkeypatch.setattr(optimizer, "_BLOCK", block)
        of_rows, of_all = (PackedAdam(FlatParameters(Layers()), DECAYS, clip=1.0) for _ in "ab")
        active = torch.tensor([True, True, False])
        for used in ([0], [0, 2], [1]):
            gradient = gradients(1, of_all.flat.values.shape[1])[0]
            dense, by_row = (
                of_all.flat.parts(gradient.clone()),
                of_rows.flat.parts(gradient.clone()),
            )
            matrix = torch.zeros(N_MEMBERS, 3, 4, dtype=torch.float64)  # the first part, "weight"
            matrix[:, used] = dense[0].view(matrix.shape)[:, used]
            dense[0] = matrix.flatten(1)
            by_row[0] = RowGradient.of(matrix.to_sparse(2))
            norms = gradient_norms(by_row)
            torch.testing.assert_close(norms, gradient_norms(dense))
            of_rows.step(by_row, norms, RATES, active)
            of_all.step(dense, norms, RATES, active)
            for found, expected in zip(of_rows.state(), of_all.state(), strict=True):
                assert torch.equal(found, expected)
            assert torch.equal(of_rows.flat.values, of_all.flat.values)


N_ROWS, N_FEATURES, N_LABELS = 9, 5, 4


def _network(n_members: int, **config) -> CGMVAENetwork:
    return CGMVAENetwork(
        NetworkConfig(
            embedding_dim=6,
            latent_dim=3,
            label_hidden=(7,),
            feature_hidden=(7, 8),
            decoder_hidden=(7,),
            **config,
        ),
        N_FEATURES,
        np.zeros((n_members, N_LABELS)),
        make_streams(range(n_members), "cpu"),
        dropout=[0.3] * n_members,
        input_dropout=[0.1] * n_members,
        temperature=[0.5] * n_members,
        dtype=torch.float64,
    )


def _loss(network: CGMVAENetwork, n_members: int, step: int) -> Tensor:
    draw = torch.Generator().manual_seed(step)
    positive = torch.rand(n_members, N_ROWS, N_LABELS, generator=draw) < 0.4
    batch = Batch(
        torch.randn(n_members, N_ROWS, N_FEATURES, generator=draw, dtype=torch.float64),
        positive,
        torch.ones_like(positive),
        torch.ones(n_members, N_ROWS, dtype=torch.float64),
    )
    streams = make_streams(range(n_members), "cpu")
    streams.seek([step] * n_members)
    return sum((term.sum() for term in network.terms(batch, streams).values()), torch.zeros(()))


@pytest.mark.parametrize("n_members", [1, 3])
@pytest.mark.parametrize(
    "config",
    [
        {},
        # Networks that are used more than once in a step: the decoder here, the label encoder next.
        {"n_draws": 2, "label_branch": True},
        {"prior": "label-sum", "label_branch": True, "reconstruction": "gaussian"},
        {"correlation": "graph", "layer_norm": False},
    ],
)
def test_gradients_equal_autograd(n_members, config):
    network, plain = _network(n_members, **config), _network(n_members, **config)
    flat = FlatParameters(network)
    for step in (1, 2):
        found = torch.cat(flat.gradients(_loss(network, n_members, step)), dim=1)
        named = dict(plain.named_parameters())
        gradients = torch.autograd.grad(
            _loss(plain, n_members, step), [named[name] for name in flat.names]
        )
        expected = torch.cat([gradient.reshape(n_members, -1) for gradient in gradients], dim=1)
        torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-12)
