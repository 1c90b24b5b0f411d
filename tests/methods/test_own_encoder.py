"""C-GMVAE with an encoder of one's own: rows of any shape, copies, sharing, freezing, files."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

import cgmvae
from cgmvae import OwnEncoder
from cgmvae.errors import InputError
from cgmvae.methods import fit_together

N_ROWS = 240


class Net(nn.Module):
    """A tiny image encoder with batch normalization and dropout."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.2)
        self.out = nn.Linear(4, 5)

    def forward(self, images):
        return self.out(self.drop(torch.relu(self.norm(self.conv(images))).amax((2, 3))))


@pytest.fixture(scope="module")
def images():
    """Return images whose labels are the presence of a horizontal and of a vertical line."""
    rng = np.random.default_rng(0)
    X, Y = 0.1 * rng.random((N_ROWS, 1, 6, 6), np.float32), rng.integers(2, size=(N_ROWS, 2))
    for image, (across, down) in zip(X, Y, strict=True):
        image[0, rng.integers(6)] += across
        image[0, :, rng.integers(6)] += down
    return X, Y


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Net()


@pytest.fixture
def own(tiny):
    """Return a function that creates a tiny C-GMVAE with an encoder."""

    def make(encoder, **changes):
        return tiny(encoder=encoder, **({"epochs": 2} | changes))

    return make


def weights(model, member=0):
    return model.encoder_state(member)


def differs(state, net):
    """Return the names of the tensors of a state that are not those of the module."""
    return {name for name, each in net.state_dict().items() if not torch.equal(each, state[name])}


def test_end_to_end_training_learns_what_a_frozen_encoder_cannot_tell(own, net, images):
    X, Y = images
    trained = own(net, epochs=12).fit(X[:180], Y[:180])
    frozen = own(OwnEncoder(net, learning_rate=0.0), epochs=12).fit(X[:180], Y[:180])
    assert trained.score(X[180:], Y[180:]) > frozen.score(X[180:], Y[180:])
    assert trained.score(X[180:], Y[180:]) > 0.85


def test_copies_differ_and_the_given_module_stays_as_it_was(own, net, images):
    before = copy.deepcopy(net.state_dict())
    model = own(net).fit(*images)
    assert not differs(before, net)
    assert {"conv.weight", "norm.weight", "norm.running_mean"} <= differs(weights(model), net)
    assert not torch.equal(weights(model, 0)["conv.weight"], weights(model, 1)["conv.weight"])


def test_out_of_fold_scores_come_from_encoders_that_did_not_see_the_row(own, net, images):
    """The labels of a fold change the scores of the other fold only."""
    X, Y = images
    groups = np.arange(N_ROWS) % 2
    other = np.where(groups[:, None] == 0, 1 - Y, Y)
    models = [
        own(net, epochs=1, n_folds=2, calibrate=False).fit(X, labels, groups=groups)
        for labels in (Y, other)
    ]
    same = np.isclose(models[0].oof_proba_, models[1].oof_proba_, atol=1e-6).all(1)
    assert np.array_equal(same, groups == 0)


def test_a_member_does_not_depend_on_the_others(own, images):
    X, Y = images
    split = {"validation_data": (X[:50], Y[:50])}
    pair = own(Net, members=[{}, {"dropout": 0.5}]).fit(X[50:], Y[50:], **split)
    other = own(Net, members=[{}, {"dropout": 0.1}]).fit(X[50:], Y[50:], **split)
    for name, each in weights(pair).items():
        torch.testing.assert_close(each, weights(other)[name])


def test_a_function_gives_each_member_initial_weights_of_its_own(own, images):
    model = own(OwnEncoder(Net, frozen_epochs=2)).fit(*images)
    assert not torch.equal(weights(model, 0)["conv.weight"], weights(model, 1)["conv.weight"])


def test_the_first_epochs_leave_the_encoder_alone(own, net, images):
    statistics = {f"norm.{name}" for name in ("running_mean", "running_var", "num_batches_tracked")}
    model = own(OwnEncoder(net, frozen_epochs=3), epochs=6).fit(*images)
    assert model.best_epoch_.max() > 3
    for member, epoch in enumerate(model.best_epoch_):
        assert (differs(weights(model, member), net) > statistics) == (epoch > 3)


def test_the_learning_rate_of_the_encoder_is_its_own(own, net, images):
    def distance(rate):
        plan = {"epochs": 1, "schedule": "constant", "weight_decay": 0.0}
        model = own(OwnEncoder(net, learning_rate=rate), **plan).fit(*images)
        return max(
            float((weights(model)[name] - each.detach()).abs().max())
            for name, each in net.named_parameters()
        )

    n_steps = 7  # of 32 rows, of which Adam's first moves a weight by the rate
    assert 1e-5 <= distance(1e-5) <= 1.1 * n_steps * 1e-5
    assert distance(1e-2) > 1e-3


def test_weights_that_the_encoder_does_not_train_stay(own, net, images):
    net.conv.requires_grad_(False)
    changed = differs(weights(own(net).fit(*images)), net)
    assert "out.weight" in changed
    assert not {"conv.weight", "conv.bias"} & changed


def test_tied_weights_stay_tied(own, images):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(36, 36, bias=False), nn.Linear(36, 36, bias=False)
            self.second.weight = self.first.weight

        def forward(self, images):
            return self.second(torch.relu(self.first(images.flatten(1))))

    state = weights(own(Tied(), n_members=1, epochs=1).fit(*images))
    assert torch.equal(state["first.weight"], state["second.weight"])


def test_a_shared_encoder_is_trained_once_and_on_no_held_out_row(own, net, images):
    X, Y = images
    model = own(OwnEncoder(net, shared=True), n_members=3).fit(X, Y)
    assert model.network_.row_encoder is None
    assert "conv.weight" in differs(weights(model), net)
    assert (model.member_folds_ == -1).all()
    assert not hasattr(model, "oof_proba_")
    assert model.predict_proba(X).shape == Y.shape


def test_a_frozen_encoder_is_a_preparation(own, tiny, net, images):
    X, Y = images
    with torch.no_grad():
        features = net.eval()(torch.as_tensor(X)).numpy()
    model = own(OwnEncoder(net, learning_rate=0.0)).fit(X, Y)
    plain = tiny(epochs=2).fit(features, Y)
    np.testing.assert_allclose(model.predict_proba(X), plain.predict_proba(features), atol=1e-5)
    assert not differs(weights(model), net)


class Tokens(nn.Module):
    """A recurrent encoder of token ids with a mask, for arguments by name."""

    def __init__(self):
        super().__init__()
        self.embedding, self.gru = nn.Embedding(9, 4), nn.GRU(4, 5, batch_first=True)

    def forward(self, ids, mask):
        states, _ = self.gru(self.embedding(ids))
        return (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)


def pad(texts):
    ids = torch.zeros(len(texts), 4, dtype=torch.int64)
    for row, text in zip(ids, texts, strict=True):
        row[: len(text)] = torch.tensor([int(letter) for letter in text[:4]])
    return {"ids": ids, "mask": (ids > 0).float()}


@pytest.mark.parametrize("frozen", [False, True])
def test_collated_rows_and_a_mapping_of_tensors_give_the_same(own, frozen):
    rng = np.random.default_rng(1)
    texts = ["".join(map(str, rng.integers(1, 9, size=rng.integers(1, 5)))) for _ in range(200)]
    Y = np.array([["1" in text, "2" in text] for text in texts], int)
    rate = 0.0 if frozen else None
    torch.manual_seed(0)
    encoder = Tokens()
    collated = own(OwnEncoder(encoder, pad, rate), epochs=1).fit(texts, Y)
    direct = own(OwnEncoder(encoder, learning_rate=rate), epochs=1).fit(pad(texts), Y)
    np.testing.assert_allclose(
        collated.predict_proba(texts), direct.predict_proba(pad(texts)), atol=1e-6
    )


@pytest.mark.parametrize("changes", [{}, {"learning_rate": 0.0}, {"shared": True}])
def test_a_saved_model_is_rebuilt_with_the_encoder_that_is_given(
    own, net, images, changes, tmp_path
):
    X, Y = images
    model = own(OwnEncoder(net, **changes), epochs=1).fit(X, Y)
    model.save(tmp_path / "model")
    same = cgmvae.load(tmp_path / "model", encoder=Net)
    np.testing.assert_allclose(same.predict_proba(X), model.predict_proba(X), atol=1e-6)
    assert same.transform(X).shape == model.transform(X).shape
    with pytest.raises(InputError, match="pass encoder="):
        cgmvae.load(tmp_path / "model")
    with pytest.raises(InputError, match="other names or shapes"):
        cgmvae.load(tmp_path / "model", encoder=nn.Linear(2, 3))


def test_everything_that_shows_the_latent_space_passes_the_encoder(own, net, images):
    X, Y = images
    model = own(net, epochs=1).fit(X, Y)
    assert model.embed(X).shape == (N_ROWS, 2 * 16)
    assert model.uncertainty(X[:5], n_draws=2).shape == (5, 2)
    known = np.full(Y.shape, np.nan)
    known[0, 0] = 1
    assert model.predict_proba(X, known)[0, 0] == 1
    assert model.diagnostics(X, Y)["kl_nats"] > 0


def test_models_with_other_encoders_are_not_fitted_together(own, net, images):
    models = [own(net), own(copy.deepcopy(net))]
    with pytest.raises(InputError, match="with the same network"):
        fit_together(models, [(*images, None)] * 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X: {"encoder": "resnet"}, "encoder is 'resnet'; it must be a torch module"),
        (lambda X: {"encoder": nn.Conv2d(1, 2, 3)}, r"returns \(1, 2, 4, 4\) for a batch"),
        (lambda X: {"X": np.full_like(X, np.nan)}, "NaN or infinite"),
        (lambda X: {"X": ["a", "b"]}, "give a collate function"),
        (lambda X: {"encoder": OwnEncoder(Net, frozen_epochs=-1)}, "frozen_epochs is -1"),
    ],
)
def test_bad_input_is_rejected_in_one_sentence(own, net, images, change, message):
    changes = {"encoder": net, "X": images[0]} | change(images[0])
    X = changes.pop("X")
    with pytest.raises(InputError, match=message):
        own(**changes).fit(X, images[1][: len(X)])


def test_rows_of_another_shape_are_rejected(own, net, images):
    model = own(net, epochs=1).fit(*images)
    with pytest.raises(InputError, match=r"shape \(1, 7, 6\) float32, others \(1, 6, 6\)"):
        model.predict(np.zeros((2, 1, 7, 6), np.float32))
