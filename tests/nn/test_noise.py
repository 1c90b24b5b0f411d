"""Random streams: a member's own, whatever its company, and as random as they claim."""

import itertools

import numpy as np
import pytest
import torch
from scipy import stats

from cgmvae.nn.noise import CounterNoise, GeneratorNoise, make_noise, stream_seed

SEEDS = (3, 1, 4, 15, 9, 2, 6, 5)

both_kinds = pytest.mark.parametrize("kind", [GeneratorNoise, CounterNoise])


def _everything(noise):
    """One of each kind of draw, with sizes that do not divide into whole words."""
    rates = torch.full((noise.n_members,), 0.4)
    return [
        noise.half_words(3, 5),
        noise.uniform(7),
        noise.normal(5, 3),
        noise.dropout(torch.ones(noise.n_members, 4, 9), rates),
        noise.uniform(3, 3, dtype=torch.float64),
        noise.normal(1, 11, dtype=torch.float64),
        noise.normal(6, 40),
    ]


def _correlation_bound(n):
    """Return what the correlation of n independent pairs passes once in two million times."""
    return 5 / np.sqrt(n)


def _correlation(a, b):
    return abs(np.corrcoef(np.ravel(a), np.ravel(b))[0, 1])


class TestStreams:
    @both_kinds
    def test_company_does_not_change_what_a_member_draws(self, kind):
        steps = [7, 0, 3, 3, 12, 1, 5, 100]
        pack = kind(SEEDS)
        fresh = _everything(pack)
        pack.seek(steps)
        sought = _everything(pack)
        for i, (seed, step) in enumerate(zip(SEEDS, steps, strict=True)):
            alone = kind([seed])
            for ours, its in zip(fresh, _everything(alone), strict=True):
                assert torch.equal(ours[i : i + 1], its)
            alone.seek([step])
            for ours, its in zip(sought, _everything(alone), strict=True):
                assert torch.equal(ours[i : i + 1], its)

    @both_kinds
    def test_seek_forgets_what_was_drawn_before(self, kind):
        noise = kind(SEEDS[:2])
        noise.seek([4, 9])
        first = _everything(noise)
        noise.seek([5, 5])
        _everything(noise)
        noise.seek([4, 9])
        for a, b in zip(first, _everything(noise), strict=True):
            assert torch.equal(a, b)

    @both_kinds
    def test_a_new_noise_stands_at_step_0(self, kind):
        noise, sought = kind(SEEDS[:2]), kind(SEEDS[:2])
        sought.seek([0, 0])
        assert torch.equal(noise.half_words(8), sought.half_words(8))

    @both_kinds
    def test_members_steps_and_draws_have_streams_of_their_own(self, kind):
        streams = []
        noise = kind(range(12))
        for step in (*range(20), 2**20, 2**20 + 1):
            noise.seek([step] * 12)
            streams += [noise.half_words(32), noise.half_words(32)]
        words = torch.cat(streams).numpy()
        assert len(np.unique(words, axis=0)) == len(words)
        # Nor does any value of a stream say anything about the same place in another.
        assert np.mean(words[:-1] == words[1:]) < 1e-3

    @both_kinds
    def test_shapes_and_types(self, kind):
        noise = kind(SEEDS[:3])
        assert noise.n_members == 3
        assert noise.half_words(5, 3).shape == (3, 5, 3)
        assert noise.half_words(5).dtype == torch.int16
        for draw in (noise.uniform, noise.normal):
            assert draw(2, 5).shape == (3, 2, 5)
            assert draw(2, 5).dtype == torch.float32
            assert draw(1, dtype=torch.float64).dtype == torch.float64
            assert draw(0, 4).shape == (3, 0, 4)
        assert noise.half_words(0).shape == (3, 0)

    @both_kinds
    def test_one_step_a_member_is_asked_for(self, kind):
        with pytest.raises((ValueError, RuntimeError)):
            kind(SEEDS[:3]).seek([1, 2])

    def test_the_processor_has_generators_and_others_a_counter(self):
        assert isinstance(make_noise([1, 2], "cpu"), GeneratorNoise)
        noise = make_noise([1, 2], "meta")
        assert isinstance(noise, CounterNoise)
        assert noise.uniform(3).device.type == "meta"

    def test_stream_seeds_differ_by_seed_and_purpose(self):
        made = [stream_seed(seed, f"order {e}") for seed in range(40) for e in range(40)]
        made += [stream_seed(seed, "noise") for seed in (*range(40), 2**32, 2**40)]
        assert all(0 <= seed < 2**63 for seed in made)
        # torch's generator on the processor looks at the low 32 bits alone.
        assert len({seed % 2**32 for seed in made}) == len(made)
        assert stream_seed(5, "noise") == stream_seed(5, "noise")


class TestDropout:
    @both_kinds
    def test_each_member_meets_its_own_rate(self, kind):
        rates = torch.tensor([0.0, 0.1, 0.3, 0.5, 0.9, 0.999])
        n = 300 * 200
        out = kind(SEEDS[:6]).dropout(torch.ones(6, 300, 200), rates)
        for rate, member in zip(rates.tolist(), out, strict=True):
            dropped = int((member == 0).sum())
            low, high = stats.binom.interval(1 - 1e-6, n, rate)
            assert low <= dropped <= high
            kept = member[member != 0]
            assert torch.equal(kept, torch.full_like(kept, 1 / (1 - rate)))

    def test_more_rows_in_one_layer_change_nothing_in_the_next(self):
        """A member may be padded by the others of its pack."""
        rates = torch.tensor([0.3, 0.6])
        found = []
        for n_rows in (3, 5):
            noise = GeneratorNoise(SEEDS[:2])
            masks = [noise.mask(n_rows, width, rate=rates, dtype=torch.float64) for width in (5, 8)]
            found.append([mask[:, :3] for mask in masks])
        for few, many in zip(*found, strict=True):
            assert torch.equal(few, many)

    @both_kinds
    def test_what_is_left_is_right_in_expectation(self, kind, rng):
        x = torch.from_numpy(rng.normal(size=(2, 4, 5)))
        rates = torch.tensor([0.3, 0.6], dtype=torch.float64)
        noise, n = kind(SEEDS[:2]), 4000
        total = sum(noise.dropout(x, rates) for _ in range(n)) / n
        spread = x.abs() * torch.sqrt(rates / (1 - rates))[:, None, None] / n**0.5
        assert bool(((total - x).abs() < 5 * spread).all())

    @both_kinds
    def test_no_rate_keeps_everything_exactly(self, kind, rng):
        x = torch.from_numpy(rng.normal(size=(3, 40, 30)))
        noise = kind(SEEDS[:3])
        assert torch.equal(noise.dropout(x, torch.zeros(3)), x)
        rates = torch.tensor([0.5, 0.0, 0.5])
        assert torch.equal(noise.dropout(x, rates)[1], x[1])

    @both_kinds
    def test_entries_drop_on_their_own(self, kind):
        out = kind([11]).dropout(torch.ones(1, 400, 300), torch.tensor([0.5]))[0].numpy()
        bound = _correlation_bound(399 * 299)
        for down, right in [(0, 1), (1, 0), (1, 1), (0, 2)]:
            assert _correlation(out[: 400 - down, : 300 - right], out[down:, right:]) < bound

    def test_gradient_flows_through_what_is_kept(self, rng):
        x = torch.from_numpy(rng.normal(size=(2, 3, 4))).requires_grad_()
        out = GeneratorNoise([1, 2]).dropout(x, torch.tensor([0.5, 0.5]))
        out.sum().backward()
        assert torch.equal(x.grad, (out.detach() != 0) * 2.0)


class TestDistributions:
    N = 100_000

    @both_kinds
    def test_half_words_have_all_bit_patterns(self, kind):
        words = kind([21]).half_words(400, 500).numpy().ravel().astype(np.int64)
        assert words.min() < -32_600
        assert words.max() > 32_600
        levels = np.bincount((words + 2**15) // 256, minlength=256)
        assert stats.chisquare(levels).pvalue > 1e-3
        low = np.bincount(words % 256, minlength=256)
        assert stats.chisquare(low).pvalue > 1e-3
        # Neighbours are halves or quarters of one wide word: every lag must be free.
        for lag in (1, 2, 3, 4):
            assert _correlation(words[:-lag], words[lag:]) < _correlation_bound(200_000)

    @both_kinds
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_uniform_is_uniform(self, kind, dtype):
        u = kind([22]).uniform(self.N, dtype=dtype)[0].numpy()
        assert u.min() >= 0
        assert u.max() < 1
        assert stats.kstest(u, "uniform").pvalue > 1e-3

    @both_kinds
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_normal_is_normal(self, kind, dtype):
        z = kind([23]).normal(self.N + 1, dtype=dtype)[0].numpy()
        assert np.isfinite(z).all()
        assert stats.kstest(z, "norm").pvalue > 1e-3
        assert stats.kstest(z[: self.N // 2], "norm").pvalue > 1e-3
        assert stats.kstest(z[self.N // 2 :], "norm").pvalue > 1e-3
        # Tails too: one in 16 million lies beyond 5.4, the counter's limit is 5.77.
        assert np.abs(z).max() > 3.9

    @both_kinds
    @pytest.mark.parametrize("draw", ["uniform", "normal"])
    def test_streams_do_not_know_each_other(self, kind, draw):
        # Seeds and steps side by side are what a weak hash would betray.
        noise, n = kind([0, 1, 2, 3]), 20_000
        rows = []
        for step in (0, 1, 2):
            noise.seek([step] * 4)
            rows += [*getattr(noise, draw)(n).numpy(), *getattr(noise, draw)(n).numpy()]
        bound = _correlation_bound(n)
        for a, b in itertools.combinations(rows, 2):
            assert _correlation(a, b) < bound
            assert _correlation(a[:-1], b[1:]) < bound

    @both_kinds
    @pytest.mark.parametrize("draw", ["uniform", "normal"])
    def test_neighbouring_positions_do_not_know_each_other(self, kind, draw):
        values = getattr(kind([24]), draw)(self.N)[0].numpy()
        half = self.N // 2  # where the counter's sines follow its cosines
        for lag in (1, 2, 3, 4, 8, 64, 256, 1024, half):
            a, b = values[:-lag], values[lag:]
            bound = _correlation_bound(len(a))
            assert _correlation(a, b) < bound
            assert _correlation(a**2, b**2) < bound

    @both_kinds
    def test_the_first_numbers_of_members_are_uniform_too(self, kind):
        noise = kind(range(2000))
        noise.seek([1] * 2000)
        assert stats.kstest(noise.uniform(1)[:, 0].numpy(), "uniform").pvalue > 1e-3


class _CounterReference:
    """The counter's hash in numpy's unsigned arithmetic, where wrapping is defined."""

    STRIDE = np.uint32(0x9E3779B9)

    def __init__(self, seed, step):
        key = np.array([stream_seed(seed, "noise") % 2**32], np.uint32)
        self.key = self.mixed(key ^ self.mixed(np.array([step], np.uint32) * self.STRIDE))

    @staticmethod
    def mixed(x):
        x = (x ^ (x >> np.uint32(16))) * np.uint32(0x21F0AAAD)
        x = (x ^ (x >> np.uint32(15))) * np.uint32(0x735A2D97)
        return x ^ (x >> np.uint32(15))

    def words(self, draw, n):
        keys = self.mixed(self.key + np.array([draw], np.uint32) * self.STRIDE)
        return self.mixed(self.mixed(np.arange(n, dtype=np.uint32) ^ keys) + keys)


class TestCounter:
    @pytest.mark.parametrize("step", [0, 1, 77_777, 2**31 - 1])
    def test_signed_overflow_gives_the_numbers_of_unsigned_arithmetic(self, step):
        noise = CounterNoise(SEEDS)
        noise.seek([step] * len(SEEDS))
        for draw in range(1, 41):
            ours = noise.half_words(2 * 97).numpy().view(np.uint32)
            for row, seed in zip(ours, SEEDS, strict=True):
                assert np.array_equal(row, _CounterReference(seed, step).words(draw, 97))

    def test_uniform_is_the_upper_24_bits(self):
        noise = CounterNoise(SEEDS)
        noise.seek(range(8))
        ours = noise.uniform(501, dtype=torch.float64).numpy()
        for i, seed in enumerate(SEEDS):
            words = _CounterReference(seed, i).words(1, 501)
            assert np.array_equal(ours[i], (words >> np.uint32(8)) / 2**24)

    def test_normal_is_box_and_muller(self):
        noise = CounterNoise([8])
        u = _CounterReference(8, 0).words(1, 10) >> np.uint32(8)
        first, second = u.reshape(2, 5) / 2**24
        radius = np.sqrt(-2 * np.log(1 - first))
        expected = np.concatenate(
            [radius * np.cos(2 * np.pi * second), radius * np.sin(2 * np.pi * second)]
        )
        np.testing.assert_allclose(
            noise.normal(9, dtype=torch.float64)[0].numpy(), expected[:9], rtol=1e-12
        )

    @pytest.mark.gpu
    def test_the_accelerator_draws_the_same_bits(self):
        if not torch.cuda.is_available():
            pytest.skip("no accelerator")
        here, there = CounterNoise(SEEDS), CounterNoise(SEEDS, "cuda")
        for noise in (here, there):
            noise.seek([2**31 - 1, *range(7)])
        for _ in range(40):
            assert torch.equal(here.half_words(33, 31), there.half_words(33, 31).cpu())
        assert torch.equal(here.uniform(1001), there.uniform(1001).cpu())
