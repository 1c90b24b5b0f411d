"""C-GMVAE as a module: the estimator's member without its axis, inside torch's own tools."""

import copy
import dataclasses

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import cgmvae.torch
from cgmvae import CGMVAEClassifier, make_survey
from cgmvae.errors import InputError
from cgmvae.model.presets import PRESETS
from cgmvae.nn.batch import Batch
from cgmvae.nn.rng import GeneratorStreams
from cgmvae.torch import CGMVAE

N_FEATURES, N_LABELS, SEEDS = 6, 5, (3, 11)
SIZES = {
    "embedding_dim": 8,
    "latent_dim": 3,
    "label_hidden": (7,),
    "feature_hidden": (9,),
    "decoder_hidden": (6,),
}


@pytest.fixture
def batch():
    """Return features and labels, of which some are unknown."""
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(20, N_FEATURES, generator=generator)
    labels = torch.rand(20, N_LABELS, generator=generator).round()
    labels[0], labels[1, 2] = 0.0, torch.nan
    return features, labels


@pytest.fixture(scope="module")
def fitted():
    data, _ = make_survey(200, N_FEATURES, N_LABELS, seed=0)
    plain = {"scaling": "none", "encoding": "standard"}
    model = CGMVAEClassifier(n_members=2, epochs=1, random_state=0, network=SIZES, **plain)
    return model.fit(data.X, data), data


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("training", [True, False])
def test_terms_and_gradients_are_those_of_a_member(preset, training, batch, monkeypatch):
    """Compare with the second of two members, which draw from the same streams."""
    module = CGMVAE(N_FEATURES, N_LABELS, preset=preset, **SIZES).double().train(training)
    config, settings = module.preset.network, module.preset
    network = cgmvae.torch.CGMVAENetwork(
        config,
        N_FEATURES,
        np.zeros((2, N_LABELS)),
        GeneratorStreams(SEEDS),
        dropout=[settings.dropout] * 2,
        input_dropout=[settings.input_dropout] * 2,
        temperature=[settings.temperature] * 2,
        terms=list(module.weights),
        dtype=torch.float64,
    )
    module.network.load_state_dict({n: each[1] for n, each in network.state_dict().items()})
    # The same numbers to draw; on both sides they start anew.
    monkeypatch.setattr(cgmvae.torch, "TorchStreams", lambda device: GeneratorStreams(SEEDS[1:]))
    features, labels = batch[0].double(), batch[1]
    loss = module.loss(features, labels)
    loss.total.backward()
    known = ~labels.isnan()
    packed = [each.expand(2, -1, -1) for each in (features, (labels > 0) & known, known)]
    streams = GeneratorStreams(SEEDS) if training else None
    terms = network.terms(Batch(*packed, torch.ones(2, 20)), streams)
    total = sum(module.weights[name] * term.mean(1) for name, term in terms.items())
    total.sum().backward()
    for name, term in terms.items():
        torch.testing.assert_close(loss.terms[name], term[1].mean(), rtol=0, atol=1e-6)
    torch.testing.assert_close(loss.total, total[1], rtol=0, atol=1e-6)
    own = dict(module.network.named_parameters())
    for name, parameter in network.named_parameters():
        torch.testing.assert_close(own[name].grad, parameter.grad[1], rtol=0, atol=1e-6)


def test_no_tensor_of_the_module_has_a_member_axis(batch):
    module = CGMVAE(N_FEATURES, N_LABELS, correlation="graph", **SIZES)
    assert module.network.label_encoder.embeddings.shape == (N_LABELS, 8)
    assert {each.dim() for name, each in module.state_dict().items() if "bias" in name} == {1}
    assert module.state_dict()["network.graph.edges"].shape == (N_LABELS, N_LABELS)
    assert module(batch[0]).shape == module.predict_proba(batch[0]).shape == (20, N_LABELS)
    assert [part.shape for part in module.encode(batch[0])] == [(20, 3)] * 2
    assert [part.shape for part in module.label_gaussians()] == [(N_LABELS + 1, 3)] * 2
    assert module.label_embeddings().shape == (N_LABELS, 8)


def test_training_mode_draws_and_evaluation_mode_does_not(batch):
    module = CGMVAE(N_FEATURES, N_LABELS, **SIZES)
    assert not torch.equal(module(batch[0]), module(batch[0]))
    torch.manual_seed(1)
    first = module.loss(*batch).total
    torch.manual_seed(1)
    assert torch.equal(module.loss(*batch).total, first)
    module.eval()
    assert torch.equal(module(batch[0]), module(batch[0]))
    torch.testing.assert_close(module.predict_proba(batch[0]), module(batch[0]).sigmoid())


def test_a_mask_says_the_same_as_nan(batch):
    module = CGMVAE(N_FEATURES, N_LABELS, **SIZES).eval()
    features, labels = batch
    masked = module.loss(features, labels.nan_to_num(1.0), ~labels.isnan())
    assert torch.equal(masked.total, module.loss(features, labels).total)
    assert not torch.equal(masked.total, module.loss(features, labels.nan_to_num(1.0)).total)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated")  # torch's own doing
def test_compiles_without_a_graph_break(batch):
    module = CGMVAE(N_FEATURES, N_LABELS, **SIZES)
    compiled = torch.compile(module, backend="eager", fullgraph=True)
    torch.manual_seed(0)
    expected = module.loss(*batch)
    torch.manual_seed(0)
    torch.testing.assert_close(compiled(*batch), expected)


def test_trains_under_autocast(batch):
    module = CGMVAE(N_FEATURES, N_LABELS, **SIZES).eval()
    exact = module.loss(*batch).total
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = module.loss(*batch).total
    assert rounded != exact  # products were rounded
    rounded.backward()
    torch.testing.assert_close(rounded, exact, rtol=0.05, atol=0.05)
    assert all(each.grad.isfinite().all() for each in module.parameters())


def test_every_parameter_gets_its_gradient_through_a_wrapper(batch, tmp_path):
    """DistributedDataParallel raises in the second step if one has none."""
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        module = CGMVAE(N_FEATURES, N_LABELS, **SIZES)
        wrapped = DistributedDataParallel(nn.Sequential(module)[0])
        for _ in range(2):
            wrapped(*batch).total.backward()
        assert all(each.grad.abs().sum() > 0 for each in module.parameters())
    finally:
        torch.distributed.destroy_process_group()


def test_a_replica_without_parameters_of_its_own_computes_the_same(batch):
    """Build a replica as ``nn.DataParallel`` does on every GPU."""
    module = CGMVAE(N_FEATURES, N_LABELS, **SIZES).eval()
    replicas = {part: part._replicate_for_data_parallel() for part in module.modules()}
    for part, replica in replicas.items():
        for name, child in part._modules.items():
            replica._modules[name] = replicas.get(child)
        for name, parameter in part._parameters.items():
            if parameter is not None:
                setattr(replica, name, parameter * 1)
    assert list(replicas[module].parameters()) == []
    torch.testing.assert_close(replicas[module](*batch), module(*batch))


def test_weights_travel_by_state_dict_and_copy(batch):
    module = CGMVAE(N_FEATURES, N_LABELS, **SIZES).eval()
    other = CGMVAE(N_FEATURES, N_LABELS, **SIZES).eval()
    assert not torch.equal(other(batch[0]), module(batch[0]))
    other.load_state_dict(module.state_dict())
    assert torch.equal(other(batch[0]), module(batch[0]))
    assert torch.equal(copy.deepcopy(module)(batch[0]), module(batch[0]))


def test_weights_travel_to_and_from_the_estimator(fitted):
    model, data = copy.deepcopy(fitted[0]), fitted[1]
    model.network_.calibrate(1.5, torch.linspace(-1, 1, N_LABELS))
    features = torch.as_tensor(data.X, dtype=torch.float32)
    modules = [CGMVAE.from_classifier(model, member).eval() for member in range(2)]
    mean = torch.stack([module.predict_proba(features) for module in modules]).mean(0)
    np.testing.assert_allclose(mean, model.predict_proba(data.X), atol=1e-6)
    assert modules[0].weights.keys() == {"kl", "contrastive", "cross_entropy"}
    modules[1].to_classifier(model, 0)
    np.testing.assert_allclose(
        modules[1].predict_proba(features), model.predict_proba(data.X), atol=1e-6
    )
    with pytest.raises(InputError, match="other sizes"):
        CGMVAE(N_FEATURES, N_LABELS, **(SIZES | {"latent_dim": 4})).to_classifier(model)


def test_biases_start_at_the_frequencies():
    module = CGMVAE(N_FEATURES, 2, label_frequency=[0.2, 0.0], **SIZES)
    np.testing.assert_allclose(module.network.label_bias.sigmoid().tolist(), [0.2, 1e-4], rtol=1e-5)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_setting_of_the_network_can_be_given(preset):
    config = PRESETS[preset].network
    given = dataclasses.asdict(config) | {"ranking_weight": 0.2, "temperature": 0.7}
    module = CGMVAE(3, 2, **given)
    assert module.preset.network == config
    assert module.weights["ranking"] == 0.2
    assert float(module.network.temperature) == pytest.approx(0.7)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: CGMVAE(0, 2), "n_features is 0"),
        (lambda: CGMVAE(3, 2, preset="best"), "no preset 'best'"),
        (lambda: CGMVAE(3, 2, epochs=5), "epochs is of a training"),
        (lambda: CGMVAE(3, 2, prior="flat"), "prior is 'flat'"),
        (lambda: CGMVAE(3, 2, label_frequency=[0.5]), "must be 2 numbers"),
        (lambda: CGMVAE(3, 2)(torch.zeros(4, 5)), r"shape \(n_rows, 3\), not \(4, 5\)"),
        (lambda: CGMVAE(3, 2).loss(torch.zeros(4, 3), torch.zeros(4)), r"the shape \(4, 2\)"),
    ],
)
def test_bad_input_is_rejected_in_one_sentence(call, message):
    with pytest.raises(InputError, match=message):
        call()
