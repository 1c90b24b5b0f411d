"""The training loop on a small C-GMVAE and on simple networks made for the tests."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from cgmvae.data import make_survey
from cgmvae.data.serialization import read_tensors, write_tensors
from cgmvae.errors import InputError
from cgmvae.model.network import CGMVAENetwork, NetworkConfig
from cgmvae.nn.packed import PackedLinear
from cgmvae.nn.rng import make_streams
from cgmvae.training.checkpoint import Checkpoint
from cgmvae.training.loop import TrainingResult, train
from cgmvae.training.optimizer import PackedAdam
from cgmvae.training.plan import Member, Planner, TrainingConfig, column
from cgmvae.training.rows import RowStore, TrainingRows

CPU = torch.device("cpu")
N_ROWS, N_FEATURES, N_LABELS = 90, 6, 5
N_TRAIN = 60
SMALL = NetworkConfig(
    embedding_dim=8,
    latent_dim=3,
    label_hidden=(6,),
    feature_hidden=(7,),
    decoder_hidden=(6,),
    reconstruction="gaussian",
)
PLAN = TrainingConfig(epochs=10, batch_size=16, clip=0.5, patience=2, kl_warmup=0.3)


def survey_rows(
    unknown_share: float = 0.1, changed: dict[int, float] | None = None
) -> TrainingRows:
    data, _ = make_survey(N_ROWS, N_FEATURES, N_LABELS, unknown_share=unknown_share, seed=3)
    features = np.array(data.X)
    for row, value in (changed or {}).items():
        features[row] = value
    return TrainingRows(
        RowStore(features, dtype=torch.float64, device=CPU),
        RowStore(data.Y, dtype=torch.bool, device=CPU),
        None if data.unknown is None else RowStore(data.unknown, dtype=torch.bool, device=CPU),
        None,
    )


def row_order(members: Sequence[Member], config: TrainingConfig) -> tuple[Tensor, Tensor]:
    """Return row numbers and weights of the first epoch, (n_members, n_steps, batch_size)."""
    epoch = Planner(members, config).epoch(0)
    return torch.from_numpy(epoch.order), torch.from_numpy(epoch.weight).double()


def plain_member(seed: int = 1, **changes) -> Member:
    member = Member(
        seed=seed,
        train_rows=np.arange(1, N_TRAIN),
        validation_rows=np.arange(N_TRAIN, N_ROWS),
        weights={"kl": 0.1, "contrastive": 0.3, "cross_entropy": 1.0},
        learning_rate=1e-2,
        weight_decay=0.01,
        dropout=0.3,
        input_dropout=0.1,
        settings={"temperature": 0.2},
    )
    return replace(member, **changes)


def eight_members(shared_validation: bool) -> list[Member]:
    """Return members that differ in every setting."""
    draw = np.random.default_rng(5)
    members = []
    for k, n_train in enumerate((60, 17, 33, 48, 16, 50, 9, 60)):
        n_held = 30 if shared_validation else (30, 12, 20, 30, 7, 15, 0, 25)[k]
        members.append(
            plain_member(
                seed=100 + k,
                train_rows=draw.choice(N_TRAIN, n_train, replace=False),
                validation_rows=N_TRAIN + np.arange(n_held),
                weights={
                    "kl": 0.05 * (k + 1),
                    "reconstruction": 0.1 * (k % 2),
                    "contrastive": 0.3 / (k + 1),
                    "cross_entropy": 1.0 + 0.1 * k,
                },
                learning_rate=(1e-2, 3e-2, 1e-3, 5e-2, 2e-2, 0.1, 3e-3, 1e-2)[k],
                weight_decay=(0.0, 0.1, 1e-3, 0.5, 0.01, 0.02, 0.0, 0.3)[k],
                dropout=0.3 if k < 4 else 0.1 * (k - 3),
                input_dropout=0.05 * k,
                settings={"temperature": 0.1 + 0.1 * k},
            )
        )
    return members


def build(members: Sequence[Member], cls: type[CGMVAENetwork] = CGMVAENetwork) -> CGMVAENetwork:
    return cls(
        SMALL,
        N_FEATURES,
        np.array([np.full(N_LABELS, -1.0 - member.seed / 1000) for member in members]),
        make_streams(column(members, "seed"), CPU),
        dropout=column(members, "dropout"),
        input_dropout=column(members, "input_dropout"),
        temperature=[member.settings["temperature"] for member in members],
        dtype=torch.float64,
    )


def weights_of(network: nn.Module) -> Tensor:
    """All parameters, a copy, (n_members, n_parameters)."""
    parts = [parameter.detach().reshape(len(parameter), -1) for parameter in network.parameters()]
    return torch.cat(parts, dim=1)


def run(
    members: Sequence[Member], plan: TrainingConfig = PLAN, rows: TrainingRows | None = None, **more
) -> tuple[Tensor, TrainingResult]:
    network = build(members)
    rows = survey_rows() if rows is None else rows
    result = train(network, members, rows, plan, device=CPU, **more)
    return weights_of(network), result


def epochs_run(result: TrainingResult) -> list[int]:
    """Epochs that each member took part in."""
    return (~np.isnan(result.history.arrays()["validation"])).sum(0).tolist()


class TestPackIndependence:
    """A member ends with the same weights in a pack as alone."""

    @pytest.mark.parametrize(
        ("shared_validation", "changes"),
        [
            (False, {}),
            (True, {"optimizer": "adam", "schedule": "warm-restarts", "restart_epochs": 3}),
        ],
        ids=["adamw, cosine", "adam, warm restarts"],
    )
    def test_alone_and_in_a_pack_of_eight(self, shared_validation, changes):
        members, plan = eight_members(shared_validation), replace(PLAN, **changes)
        together, result = run(members, plan)
        for k, member in enumerate(members):
            alone, own = run([member], plan)
            torch.testing.assert_close(alone[0], together[k], rtol=1e-9, atol=1e-12)
            assert own.best_epoch[0] == result.best_epoch[k]
            assert own.best_value[0] == pytest.approx(result.best_value[k], rel=1e-12)
            for name, series in own.history.arrays().items():
                np.testing.assert_allclose(
                    result.history.arrays()[name][: len(series), k], series[:, 0], rtol=1e-8
                )

    def test_a_member_without_validation_rows_keeps_its_last_epoch(self):
        members = [plain_member(1), plain_member(2, validation_rows=np.arange(0))]
        together, result = run(members, replace(PLAN, patience=None, epochs=4))
        alone, own = run(members[1:], replace(PLAN, patience=None, epochs=4))
        assert result.best_epoch[1] == own.best_epoch[0] == 4
        torch.testing.assert_close(alone[0], together[1], rtol=1e-9, atol=1e-12)

    def test_unused_rows_are_never_read(self):
        """Row 0 belongs to no member; padding must not read it."""
        members = [plain_member(1), plain_member(2, train_rows=np.arange(1, 20))]
        clean, _ = run(members)
        planted, _ = run(members, rows=survey_rows(changed={0: np.nan}))
        assert torch.equal(clean, planted)


class TestBestEpoch:
    def test_the_weights_of_the_best_epoch_are_kept(self):
        members = eight_members(shared_validation=False)[:4]
        network, seen = build(members), []
        result = train(
            network,
            members,
            survey_rows(),
            replace(PLAN, patience=None),
            device=CPU,
            progress=lambda *_: seen.append(weights_of(network)),
        )
        validation = result.history.arrays()["validation"]
        assert result.best_epoch.tolist() == (np.nanargmax(validation, 0) + 1).tolist()
        np.testing.assert_allclose(result.best_value, np.nanmax(validation, 0), rtol=0)
        for k, epoch in enumerate(result.best_epoch):
            assert torch.equal(weights_of(network)[k], seen[epoch - 1][k])
        assert bool((result.best_epoch < len(seen)).any())

    def test_patience_counts_epochs_since_the_best(self):
        _, result = run(eight_members(shared_validation=True))
        for best, ran in zip(result.best_epoch, epochs_run(result), strict=True):
            assert ran == min(best + PLAN.patience, PLAN.epochs)

    def test_members_that_have_stopped_leave_the_pack_until_the_end(self):
        members, sizes, best = eight_members(shared_validation=True), [], []

        class Counted(CGMVAENetwork):
            def terms(self, batch, streams):
                sizes.append(len(batch.weight))
                return super().terms(batch, streams)

        network = build(members, Counted)
        numbers = {name: buffer.clone() for name, buffer in network.named_buffers()}
        result = train(
            network,
            members,
            survey_rows(),
            PLAN,
            device=CPU,
            progress=lambda *told: best.append(told[2]),
        )
        assert sorted(set(sizes), reverse=True) == list(dict.fromkeys(sizes))
        assert sizes[0] == 8
        assert sizes[-1] < 8
        assert result.finished.tolist() == list(range(8))
        assert best == sorted(best)
        assert best[-1] == result.best_value.max()
        for name, buffer in network.named_buffers():
            assert torch.equal(buffer, numbers[name])
        for i in (0, 3, 5):
            alone, _ = run(members[i : i + 1])
            torch.testing.assert_close(alone[0], weights_of(network)[i], rtol=1e-9, atol=1e-12)

    def test_the_selection_metric_is_used(self):
        _, first = run([plain_member()], replace(PLAN, selection="hamming_accuracy", patience=None))
        _, second = run([plain_member()], replace(PLAN, selection="macro_f1", patience=None))
        assert first.best_value[0] != second.best_value[0]
        with pytest.raises(InputError, match="no metric"):
            run([plain_member()], replace(PLAN, selection="no such metric"))


class TestHistory:
    def test_history_of_terms_and_metric(self):
        members = eight_members(shared_validation=False)
        _, result = run(members)
        arrays = result.history.arrays()
        assert list(arrays) == [
            "kl",
            "reconstruction",
            "contrastive",
            "cross_entropy",
            "validation",
        ]
        ran = np.array(epochs_run(result))
        expected = np.arange(max(ran))[:, None] < ran
        for name, series in arrays.items():
            assert series.shape == (max(ran), len(members))
            known = np.isfinite(series)
            if name == "reconstruction":  # only as long as a member in the pack has a weight for it
                assert known[0].all()
                assert not (known & ~expected).any()
            else:
                assert np.array_equal(known, expected)

    def test_a_term_is_the_mean_over_the_steps(self):
        class Constant(Logistic):
            def terms(self, batch, streams):
                return {k: 0 * own + 2 for k, own in super().terms(batch, streams).items()}

        member = plain_member(weights={"cross_entropy": 1.0})
        assert len(row_order([member], PLAN)[0][0]) > 1
        result = train(Constant([member]), [member], survey_rows(), PLAN, device=CPU)
        np.testing.assert_allclose(result.history.arrays()["cross_entropy"], 2)

    def test_terms_without_weight_are_omitted(self):
        _, result = run([plain_member()])
        assert "reconstruction" not in result.history.arrays()


def test_every_epoch_visits_every_row_once_in_a_new_order():
    visits = []

    class Recording(Logistic):
        def terms(self, batch, streams):
            visits.append((batch.features[..., 0].clone(), batch.weight > 0))
            return super().terms(batch, streams)

    members = [
        plain_member(1, train_rows=np.arange(40), weights={"cross_entropy": 1.0}),
        plain_member(2, train_rows=np.arange(5, 25), weights={"cross_entropy": 1.0}),
    ]
    rows, plan = survey_rows(), TrainingConfig(epochs=3, batch_size=16)
    train(Recording(members), members, rows, plan, device=CPU)
    assert len(visits) == 3 * 3
    for k, member in enumerate(members):
        own = rows.features.gather(torch.as_tensor(member.train_rows))[:, 0]
        orders = []
        for epoch in range(3):
            steps = visits[3 * epoch : 3 * epoch + 3]
            seen = torch.cat([values[k][real[k]] for values, real in steps])
            assert torch.equal(seen.sort().values, own.sort().values)
            orders.append(seen)
        for first, second in ((own, orders[0]), (orders[0], orders[1]), (orders[1], orders[2])):
            assert not torch.equal(first, second)


class Separate(nn.Module):
    """Each term is a parameter of its own, so the gradient is the weight in effect."""

    NAMES = ("kl", "contrastive", "cross_entropy")

    def __init__(self, n_members: int) -> None:
        super().__init__()
        self.parts = nn.Parameter(torch.zeros(n_members, len(self.NAMES), dtype=torch.float64))

    def terms(self, batch, streams):
        ones = torch.ones_like(batch.weight)
        return {name: self.parts[:, i, None] * ones for i, name in enumerate(self.NAMES)}

    def forward(self, features):
        return torch.sigmoid(features[..., :N_LABELS])


class TestSchedulesInEffect:
    @staticmethod
    def record(monkeypatch, plan, members):
        """Return gradients and learning rates of all steps, (n_steps, n_members, ...)."""
        gradients, rates = [], []
        step = PackedAdam.step

        def spy_step(self, given, norms, learning_rate, active):
            gradients.append(torch.cat(given, dim=1))
            rates.append(learning_rate.clone())
            step(self, given, norms, learning_rate, active)

        monkeypatch.setattr(PackedAdam, "step", spy_step)
        train(Separate(len(members)), members, survey_rows(), plan, device=CPU)
        return torch.stack(gradients).numpy(), torch.stack(rates).numpy()

    members = (
        plain_member(weights={"kl": 0.5, "contrastive": 2.0, "cross_entropy": 3.0}),
        plain_member(weights={"kl": 0.1, "contrastive": 0.0, "cross_entropy": 1.0}),
    )
    full = np.array([[0.5, 2.0, 3.0], [0.1, 0.0, 1.0]])
    one_step = TrainingConfig(epochs=8, batch_size=64)

    def test_kl_warmup(self, monkeypatch):
        plan = replace(self.one_step, kl_warmup=0.5)
        gradients, _ = self.record(monkeypatch, plan, self.members)
        factor = np.minimum(1, np.arange(8) / 4)
        np.testing.assert_allclose(gradients[..., 0], factor[:, None] * self.full[:, 0], rtol=1e-12)
        np.testing.assert_allclose(gradients[..., 1:], np.tile(self.full[:, 1:], (8, 1, 1)))

    def test_first_stage_omits_cross_entropy(self, monkeypatch):
        plan = replace(self.one_step, first_stage=0.25)
        gradients, _ = self.record(monkeypatch, plan, self.members)
        first, second = self.full.copy(), self.full.copy()
        first[:, 2] = 0
        second[:, :2] = 0
        np.testing.assert_allclose(gradients[:2], np.stack([first] * 2), rtol=1e-12)
        np.testing.assert_allclose(gradients[2:], np.stack([second] * 6), rtol=1e-12)

    def test_the_second_stage_trains_the_classifier_only(self, monkeypatch):
        class Frozen(nn.Module):
            classifier = ("last",)

            def __init__(self):
                super().__init__()
                self.first = nn.Parameter(torch.ones(2, 3, 1, dtype=torch.float64))
                self.last = nn.Parameter(torch.ones(2, 3, dtype=torch.float64))
                self.seen = []

            def terms(self, batch, streams):
                self.seen.append([part.detach().clone() for part in (self.first, self.last)])
                value = ((self.first**2).sum((1, 2)) + (self.last**2).sum(1))[:, None]
                return dict.fromkeys(Separate.NAMES, value * torch.ones_like(batch.weight))

            def forward(self, features):
                return torch.sigmoid(features[..., :N_LABELS])

        network = Frozen()
        plan = replace(self.one_step, first_stage=0.5)
        members = [replace(member, weight_decay=0.1) for member in self.members]
        train(network, members, survey_rows(), plan, device=CPU)
        first, last = zip(*network.seen, strict=True)
        assert not torch.equal(first[3], first[4])
        assert all(torch.equal(first[4], each) for each in first[5:])
        assert not torch.equal(last[4], last[5])

    @pytest.mark.parametrize("schedule", ["constant", "cosine", "warm-restarts"])
    def test_learning_rates_of_members_with_different_numbers_of_steps(self, monkeypatch, schedule):
        plan = TrainingConfig(
            epochs=6,
            batch_size=10,
            schedule=schedule,
            warmup=0.0,
            restart_epochs=2,
            floor_learning_rate=1e-3,
        )
        members = [
            plain_member(learning_rate=0.1, train_rows=np.arange(40)),
            plain_member(learning_rate=0.02, train_rows=np.arange(15)),
            plain_member(learning_rate=1e-4, train_rows=np.arange(40)),
        ]
        _, rates = self.record(monkeypatch, plan, members)
        rates = rates.reshape(6, 4, 3)
        for k, n_steps in enumerate((4, 2, 4)):
            highest = members[k].learning_rate
            optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=highest)
            first = {"cosine": 6, "warm-restarts": 2}.get(schedule, 10**9)
            plain = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(
                optimizer, first, 2, eta_min=min(1e-3, highest)
            )
            for epoch in range(6):
                for step in range(n_steps):
                    within = 0.0 if schedule == "warm-restarts" else (step + 0.5) / n_steps
                    plain.step(epoch + within)
                    expected = plain.get_last_lr()[0]
                    assert rates[epoch, step, k] == pytest.approx(expected, rel=1e-12)


class Logistic(nn.Module):
    """One affine layer without anything random; what a row contributes can be counted."""

    def __init__(self, members: Sequence[Member]) -> None:
        super().__init__()
        streams = make_streams(column(members, "seed"), CPU)
        self.layer = PackedLinear(N_FEATURES, N_LABELS, streams, "layer", dtype=torch.float64)
        self.unused = nn.Parameter(torch.ones(len(members), 2, dtype=torch.float64))

    def terms(self, batch, streams):
        logits = self.layer(batch.features)
        losses = nn.functional.softplus(logits) - logits * batch.positive
        return {"cross_entropy": losses.sum(-1)}

    def forward(self, features):
        return torch.sigmoid(self.layer(features))


class TestSampleWeights:
    plan = TrainingConfig(epochs=5, batch_size=64)

    def fit(self, train_rows, weight=None, changed=None):
        rows = survey_rows(0.0, changed)
        if weight is not None:
            weight = torch.as_tensor(weight, dtype=torch.float64)
        member = plain_member(train_rows=np.asarray(train_rows), weights={"cross_entropy": 1.0})
        network = Logistic([member])
        result = train(network, [member], rows._replace(weight=weight), self.plan, device=CPU)
        return weights_of(network), result.history.arrays()["cross_entropy"]

    def assert_same(self, first, second):
        np.testing.assert_allclose(first[1], second[1], rtol=1e-12)
        torch.testing.assert_close(first[0], second[0], rtol=1e-8, atol=1e-12)

    def test_rows_of_zero_weight_have_no_influence(self):
        weight = np.ones(N_ROWS)
        weight[30:50] = 0
        expected = self.fit([*range(30), *range(50, 60)])
        self.assert_same(self.fit(range(60), weight), expected)
        self.assert_same(self.fit(range(60), weight, {35: 1e3, 49: -50.0}), expected)
        assert not np.allclose(self.fit(range(60))[1], expected[1])

    def test_a_row_of_weight_two_counts_twice(self):
        weight = np.ones(N_ROWS)
        weight[10:20] = 2
        self.assert_same(self.fit(range(30), weight), self.fit([*range(30), *range(10, 20)]))

    def test_only_proportions_matter(self):
        weight = np.linspace(0.5, 2, N_ROWS)
        self.assert_same(self.fit(range(30), weight), self.fit(range(30), weight * 1e-15))

    def test_a_step_without_weight_is_skipped(self):
        member = plain_member(train_rows=np.arange(30), weights={"cross_entropy": 1.0})
        rows = survey_rows(0.0)._replace(weight=torch.zeros(N_ROWS, dtype=torch.float64))
        network = Logistic([member])
        before = weights_of(network)
        train(network, [member], rows, self.plan, device=CPU)
        assert torch.equal(weights_of(network), before)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_rows": np.arange(0)}, "no rows to learn from"),
        ({"weights": {"kl": 0.0}}, "weight 0"),
    ],
)
def test_nothing_to_train_is_rejected(changes, message):
    with pytest.raises(InputError, match=message):
        run([plain_member(**changes)])


def test_progress_is_called_after_every_epoch():
    told = []
    _, result = run(
        [plain_member()], replace(PLAN, patience=None, epochs=3), progress=lambda *a: told.append(a)
    )
    assert [call[:2] for call in told] == [(1, 3), (2, 3), (3, 3)]
    assert told[-1][2] == result.best_value[0]


class Poisoned(CGMVAENetwork):
    """A network of which one term is not finite for one row of some members."""

    enabled = True
    victims = (1,)
    term = "contrastive"
    row_features: Tensor
    in_gradient = False

    def terms(self, batch, streams):
        terms = super().terms(batch, streams)
        hit = (batch.features == self.row_features).all(-1)
        hit[[k for k in range(len(hit)) if k not in self.victims]] = False
        if self.enabled and self.in_gradient:
            zero = (self.label_bias[:, :1] * 0) ** 2  # its root has an infinite slope
            terms[self.term] = terms[self.term] + torch.sqrt(torch.where(hit, zero, 1.0))
        elif self.enabled:
            terms[self.term] = torch.where(hit, torch.nan, terms[self.term])
        return terms


class TestFailures:
    plan = replace(PLAN, patience=None, epochs=5)
    members = tuple(plain_member(seed, train_rows=np.arange(1, 40)) for seed in (1, 2, 3))

    def poisoned(self, members=members, row=17, **changes) -> Poisoned:
        network = build(members, Poisoned)
        network.row_features = survey_rows().features.gather(torch.tensor(row))
        for name, value in changes.items():
            setattr(network, name, value)
        return network

    def fit(self, network, after=0, members=members):
        """Train with the failure enabled after some epochs; return the weights per epoch, too."""
        network.enabled, seen = after == 0, []

        def progress(epoch, *_):
            seen.append(weights_of(network))
            network.enabled = epoch >= after

        result = train(network, members, survey_rows(), self.plan, device=CPU, progress=progress)
        return result, seen

    @pytest.mark.parametrize("term", ["kl", "contrastive", "cross_entropy"])
    def test_a_failure_names_term_row_and_member(self, term):
        with pytest.warns(UserWarning, match=f"^Member 1 .*epoch 3: .*{term}.*row 17 ") as caught:
            self.fit(self.poisoned(term=term), after=2)
        assert len(caught) == 1

    def test_a_failure_does_not_name_a_term_without_weight(self):
        class Twice(Poisoned):
            def terms(self, batch, streams):
                terms = super().terms(batch, streams)
                bad = torch.where(torch.isnan(terms[self.term]), torch.nan, 0.0)
                return {**terms, "reconstruction": bad, "kl": terms["kl"] + bad}

        members = (replace(self.members[0], weights={"reconstruction": 1.0}), *self.members[1:])
        network = build(members, Twice)
        network.row_features = survey_rows().features.gather(torch.tensor(17))
        with pytest.warns(UserWarning, match="Member 1 .* the term 'kl' of row 17"):
            self.fit(network, members=members)

    def test_a_random_failure_is_reproduced(self):
        class Lottery(Logistic):
            def terms(self, batch, streams):
                terms = super().terms(batch, streams)
                unlucky = streams.uniform("unlucky", batch.weight.shape[1]) > 0.8
                return {"cross_entropy": terms["cross_entropy"].masked_fill(unlucky, torch.nan)}

        member = plain_member(1, weights={"cross_entropy": 1.0})
        order, weight = row_order([member], self.plan)
        streams = make_streams([member.seed], CPU)
        for step in range(order.shape[1]):
            streams.seek([1 + step])
            drawn = streams.uniform("unlucky", self.plan.batch_size) > 0.8
            unlucky = drawn & (weight[:, step] > 0)
            if bool(unlucky.any()):
                break
        row = int(order[:, step][unlucky][0])
        with pytest.raises(InputError, match=f"'cross_entropy' of row {row} "):
            train(Lottery([member]), [member], survey_rows(), self.plan, device=CPU)

    def test_a_failed_member_takes_no_further_step(self):
        network = self.poisoned()
        before = weights_of(network)
        first_row = row_order(self.members, self.plan)[0][1, 0, 0]
        network.row_features = survey_rows().features.gather(first_row)
        with pytest.warns(UserWarning, match=f"Member 1 .* row {int(first_row)} "):
            _, seen = self.fit(network)
        assert torch.equal(seen[0][1], before[1])
        assert not torch.equal(seen[0][0], before[0])

    def test_a_failure_in_the_gradient_alone(self):
        with pytest.warns(UserWarning, match="Member 1 stopped in epoch 2: its gradient"):
            self.fit(self.poisoned(in_gradient=True), after=1)

    def test_a_single_member_that_fails_keeps_its_best_epoch(self):
        members = self.members[:1]
        with pytest.warns(UserWarning, match="Member 0 stopped in epoch 3"):
            result, _ = self.fit(self.poisoned(members, victims=(0,)), after=2, members=members)
        assert result.best_epoch[0] in (1, 2)

    def test_a_failure_leaves_other_members_and_the_best_epoch_unchanged(self):
        clean = self.poisoned()
        expected, seen = self.fit(clean, after=99)
        network = self.poisoned()
        with pytest.warns(UserWarning, match="Member 1"):
            result, _ = self.fit(network, after=2)
        found = weights_of(network)
        for k in (0, 2):
            assert torch.equal(found[k], weights_of(clean)[k])
            assert result.best_epoch[k] == expected.best_epoch[k]
        best = int(np.argmax(expected.history.arrays()["validation"][:2, 1])) + 1
        assert result.best_epoch[1] == best
        assert torch.equal(found[1], seen[best - 1][1])
        for series in result.history.arrays().values():
            assert np.isfinite(series[:2, 1]).all()
            assert np.isnan(series[2:, 1]).all()
            assert np.isfinite(series[:, [0, 2]]).all()

    def test_a_member_that_fails_at_once_keeps_finite_weights(self):
        network = self.poisoned()
        with pytest.warns(UserWarning, match="Member 1 stopped in epoch 1"):
            result, _ = self.fit(network)
        assert result.best_epoch[1] == 0
        assert result.best_value[1] == -np.inf
        assert bool(torch.isfinite(weights_of(network)).all())

    def test_features_that_are_not_finite(self):
        rows = survey_rows(changed={50: np.inf})
        members = [plain_member(1, train_rows=np.arange(1, 40)), plain_member(2)]
        expected, _ = run(members, self.plan)
        with pytest.warns(UserWarning, match="Member 1 stopped in epoch 1: .*'kl' of row 50 "):
            found, _ = run(members, self.plan, rows)
        assert torch.equal(found[0], expected[0])

    def test_all_members_failed(self):
        with pytest.raises(InputError, match=r"^Member 0 .*epoch 1: .*'contrastive' of row 17 "):
            self.fit(self.poisoned(self.members[:1], victims=(0,)), members=self.members[:1])
        with pytest.raises(InputError, match=r"^Member 0 .*epoch 1: .*'contrastive' of row 17 "):
            self.fit(self.poisoned(victims=(0, 1, 2)))

    def test_an_epoch_with_nan_scores_is_never_the_best(self):
        """Steps of 1e200 leave finite weights but NaN scores."""
        members = [plain_member(1), plain_member(2, learning_rate=1e200)]
        plan = replace(self.plan, schedule="constant", batch_size=64)
        network = build(members)
        with pytest.warns(UserWarning, match="Member 1 stopped in epoch 2"):
            result = train(network, members, survey_rows(), plan, device=CPU)
        assert result.best_epoch[1] == 0
        features = survey_rows().features.gather(torch.arange(9)).expand(2, -1, -1)
        assert bool(torch.isfinite(network(features)).all())
        assert np.isnan(result.history.arrays()["validation"][0, 1])

    def test_an_epoch_that_ends_with_infinite_weights_is_never_the_best(self):
        """Its scores may be finite, since they need not depend on all weights."""
        members = [plain_member(k, learning_rate=rate) for k, rate in enumerate((1e-2, 1e308))]
        members = [replace(each, weights={"kl": 1e-3}) for each in members]
        plan = replace(self.plan, schedule="constant", warmup=0.0, batch_size=64, kl_warmup=0.0)
        network = Separate(2)
        network.parts.data[1] = -1e308  # one step makes it infinite, and is the first epoch
        with pytest.warns(UserWarning, match="Member 1 stopped in epoch"):
            result = train(network, members, survey_rows(), plan, device=CPU)
        assert result.best_epoch.tolist() == [1, 0]
        assert bool(torch.isfinite(weights_of(network)).all())

    def test_no_epoch_with_finite_scores(self):
        plan = replace(self.plan, schedule="constant", batch_size=64, epochs=1)
        with pytest.raises(InputError, match="lower the learning rate"):
            run([plain_member(2, learning_rate=1e200)], plan)


class Stop(Exception):
    pass


def stop_after(epoch: int):
    def progress(done: int, *_):
        if done == epoch:
            raise Stop

    return progress


def assert_same_run(first, second):
    assert torch.equal(first[0], second[0])
    assert np.array_equal(first[1].best_epoch, second[1].best_epoch)
    assert np.array_equal(first[1].best_value, second[1].best_value)
    series, others = first[1].history.arrays(), second[1].history.arrays()
    assert series.keys() == others.keys()
    for name in series:
        np.testing.assert_array_equal(series[name], others[name])


@pytest.fixture(scope="module")
def expected():
    """Return an uninterrupted run of members that stop in different epochs."""
    return run(eight_members(shared_validation=False))


class TestResuming:
    @pytest.mark.parametrize("stops", [(1,), (2, 5)])
    def test_a_resumed_run_ends_as_an_uninterrupted_one(self, tmp_path, expected, stops):
        members = eight_members(shared_validation=False)
        assert min(epochs_run(expected[1])) < max(epochs_run(expected[1]))
        checkpoint = Checkpoint(tmp_path / "state")
        for epoch in stops:
            with pytest.raises(Stop):
                run(members, checkpoint=checkpoint, progress=stop_after(epoch))
        epochs = []
        found = run(members, checkpoint=checkpoint, progress=lambda epoch, *_: epochs.append(epoch))
        assert_same_run(found, expected)
        assert epochs[0] == stops[-1] + 1

    def test_a_finished_run_is_not_repeated(self, tmp_path):
        members, checkpoint = [plain_member()], Checkpoint(tmp_path / "state")
        expected = run(members, checkpoint=checkpoint)
        assert_same_run(run(members, checkpoint=checkpoint, progress=pytest.fail), expected)

    @pytest.mark.parametrize("kind", [np.float64, np.int64])
    def test_numpy_scalars_are_accepted(self, tmp_path, kind):
        members = [plain_member(seed=np.int64(3), dropout=kind(0), weights={"kl": kind(1)})]
        checkpoint = Checkpoint(tmp_path / "state")
        with pytest.raises(Stop):
            run(members, checkpoint=checkpoint, progress=stop_after(1))
        assert_same_run(run(members, checkpoint=checkpoint), run(members))

    @pytest.fixture
    def checkpoint(self, tmp_path):
        """The state after one epoch of the plain member."""
        checkpoint = Checkpoint(tmp_path / "state")
        with pytest.raises(Stop):
            run([plain_member()], checkpoint=checkpoint, progress=stop_after(1))
        return checkpoint

    @pytest.mark.parametrize(
        "changes",
        [
            {"seed": 2},
            {"train_rows": np.arange(2, N_TRAIN + 1)},
        ],
        ids=lambda changes: next(iter(changes)),
    )
    def test_another_member_is_rejected(self, checkpoint, changes):
        before = checkpoint.path.read_bytes()
        with pytest.raises(InputError, match="other settings or rows"):
            run([plain_member(**changes)], checkpoint=checkpoint)
        assert checkpoint.path.read_bytes() == before

    @pytest.mark.parametrize(
        "changes",
        [{"epochs": 11}, {"clip": None}, {"optimizer": "adam"}],
        ids=lambda changes: next(iter(changes)),
    )
    def test_another_plan_is_rejected(self, checkpoint, changes):
        with pytest.raises(InputError, match="other settings or rows"):
            run([plain_member()], replace(PLAN, **changes), checkpoint=checkpoint)

    def test_other_data_are_rejected(self, checkpoint):
        rows = survey_rows()
        weight = torch.ones(N_ROWS, dtype=torch.float64)
        for other in (
            survey_rows(changed={5: 0.5}),
            survey_rows(unknown_share=0.2),
            rows._replace(unknown=None),
            rows._replace(weight=weight),
        ):
            with pytest.raises(InputError, match="other settings or rows"):
                run([plain_member()], rows=other, checkpoint=checkpoint)

    def test_missing_or_misshapen_arrays_are_rejected(self, checkpoint):
        state, fingerprint = read_tensors(checkpoint.path)
        names = [name for name in state if not name.startswith("history.")]
        assert len(names) >= 9
        for name in names:
            rest = {key: array for key, array in state.items() if key != name}
            for changed in ({}, {name: state[name][..., None]}, {name: state[name].astype("i1")}):
                write_tensors(checkpoint.path, rest | changed, fingerprint)
                with pytest.raises(InputError, match=f"a wrong '{name}'"):
                    run([plain_member()], checkpoint=checkpoint)
