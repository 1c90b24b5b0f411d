"""Random streams: independent of the other members, and with the right distributions."""

import itertools

import numpy as np
import pytest
import torch
from scipy import stats

from cgmvae.nn.rng import CounterStreams, GeneratorStreams, make_streams, stream_seed

SEEDS = (3, 1, 4, 15, 9, 2, 6, 5)

both_kinds = pytest.mark.parametrize("kind", [GeneratorStreams, CounterStreams])


def _everything(streams):
    """One of each kind of draw, with sizes that do not divide into whole words."""
    rates = torch.full((streams.n_members,), 0.4)
    return [
        streams.half_words("words", 3, 5),
        streams.uniform("u", 7),
        streams.normal("z", 5, 3),
        streams.dropout("layer.0", torch.ones(streams.n_members, 4, 9), rates),
        streams.uniform("u.double", 3, 3, dtype=torch.float64),
        streams.normal("z.double", 1, 11, dtype=torch.float64),
        streams.within("branch").normal("z", 6, 40),
    ]


def _correlation_bound(n):
    """Return the bound that the correlation of n independent pairs exceeds once in two million."""
    return 5 / np.sqrt(n)


def _correlation(a, b):
    return abs(np.corrcoef(np.ravel(a), np.ravel(b))[0, 1])


class TestStreams:
    @both_kinds
    def test_draws_of_a_member_do_not_depend_on_the_pack(self, kind):
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
    def test_seek_resets_the_stream(self, kind):
        streams = kind(SEEDS[:2])
        streams.seek([4, 9])
        first = _everything(streams)
        streams.seek([5, 5])
        _everything(streams)
        streams.seek([4, 9])
        for a, b in zip(first, _everything(streams), strict=True):
            assert torch.equal(a, b)

    @both_kinds
    def test_a_draw_does_not_depend_on_the_others(self, kind):
        all_of_them = kind(SEEDS)
        found = {name: all_of_them.normal(name, 9) for name in ("a", "b", "c")}
        inner = all_of_them.within("part").normal("a", 9)
        innermost = all_of_them.within("part").within("part").normal("a", 9)
        some = kind(SEEDS)
        assert torch.equal(some.within("part").normal("a", 9), inner)
        assert torch.equal(some.normal("c", 9), found["c"])
        assert torch.equal(some.normal("a", 9), found["a"])
        assert not torch.isclose(inner, found["a"]).any()
        assert not torch.isclose(innermost, inner).any()
        assert not torch.isclose(found["a"], found["c"]).any()

    @both_kinds
    def test_a_name_can_be_drawn_once_in_a_step(self, kind):
        streams = kind(SEEDS)
        streams.uniform("a", 2)
        with pytest.raises(ValueError, match="'a' is drawn twice in a step"):
            streams.normal("a", 2)
        streams.within("part").uniform("a", 2)
        with pytest.raises(ValueError, match="'part/a' is drawn twice in a step"):
            streams.within("part").uniform("a", 2)
        streams.seek([1] * len(SEEDS))
        streams.uniform("a", 2)

    def test_cpu_uses_generators_and_other_devices_a_counter(self):
        assert isinstance(make_streams([1, 2], "cpu"), GeneratorStreams)
        streams = make_streams([1, 2], "meta")
        assert isinstance(streams, CounterStreams)
        assert streams.uniform("u", 3).device.type == "meta"

    def test_stream_seeds_differ_by_seed_and_purpose(self):
        made = [stream_seed(seed, f"order {e}") for seed in range(40) for e in range(40)]
        made += [stream_seed(seed, "streams") for seed in (*range(40), 2**32, 2**40)]
        assert all(0 <= seed < 2**63 for seed in made)
        # torch's CPU generator uses only the low 32 bits.
        assert len({seed % 2**32 for seed in made}) == len(made)
        assert stream_seed(5, "streams") == stream_seed(5, "streams")


class TestDropout:
    @both_kinds
    def test_each_member_has_its_own_rate(self, kind):
        rates = torch.tensor([0.0, 0.1, 0.3, 0.5, 0.9, 0.999])
        n = 300 * 200
        out = kind(SEEDS[:6]).dropout("layer", torch.ones(6, 300, 200), rates)
        for rate, member in zip(rates.tolist(), out, strict=True):
            dropped = int((member == 0).sum())
            low, high = stats.binom.interval(1 - 1e-6, n, rate)
            assert low <= dropped <= high
            kept = member[member != 0]
            assert torch.equal(kept, torch.full_like(kept, 1 / (1 - rate)))

    def test_padding_rows_does_not_change_the_first(self):
        """A member may be padded by the others of its pack."""
        rates = torch.tensor([0.3, 0.6])
        few, many = (
            GeneratorStreams(SEEDS[:2]).mask("layer", n_rows, 5, rate=rates, dtype=torch.float64)
            for n_rows in (3, 5)
        )
        assert torch.equal(few, many[:, :3])


class TestDistributions:
    N = 100_000

    @both_kinds
    def test_half_words_have_all_bit_patterns(self, kind):
        words = kind([21]).half_words("words", 400, 500).numpy().ravel().astype(np.int64)
        assert words.min() < -32_600
        assert words.max() > 32_600
        levels = np.bincount((words + 2**15) // 256, minlength=256)
        assert stats.chisquare(levels).pvalue > 1e-3
        low = np.bincount(words % 256, minlength=256)
        assert stats.chisquare(low).pvalue > 1e-3
        # Neighbors are halves or quarters of one wide word: every lag must be free.
        for lag in (1, 2, 3, 4):
            assert _correlation(words[:-lag], words[lag:]) < _correlation_bound(200_000)

    @both_kinds
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_uniform_is_uniform(self, kind, dtype):
        u = kind([22]).uniform("u", self.N, dtype=dtype)[0].numpy()
        assert u.min() >= 0
        assert u.max() < 1
        assert stats.kstest(u, "uniform").pvalue > 1e-3

    @both_kinds
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_normal_is_normal(self, kind, dtype):
        z = kind([23]).normal("z", self.N + 1, dtype=dtype)[0].numpy()
        assert np.isfinite(z).all()
        assert stats.kstest(z, "norm").pvalue > 1e-3
        assert stats.kstest(z[: self.N // 2], "norm").pvalue > 1e-3
        assert stats.kstest(z[self.N // 2 :], "norm").pvalue > 1e-3
        # Tails too: one in 16 million lies beyond 5.4, the counter's limit is 5.77.
        assert np.abs(z).max() > 3.9

    @both_kinds
    @pytest.mark.parametrize("draw", ["uniform", "normal"])
    def test_streams_are_independent(self, kind, draw):
        # Seeds, steps and names side by side are what a weak hash would betray.
        streams, n = kind([0, 1, 2, 3]), 20_000
        rows = []
        for step in (0, 1, 2):
            streams.seek([step] * 4)
            for name in ("decoder.0", "decoder.1"):
                rows += [*getattr(streams, draw)(name, n).numpy()]
        bound = _correlation_bound(n)
        for a, b in itertools.combinations(rows, 2):
            assert _correlation(a, b) < bound
            assert _correlation(a[:-1], b[1:]) < bound

    @both_kinds
    @pytest.mark.parametrize("draw", ["uniform", "normal"])
    def test_neighboring_positions_are_independent(self, kind, draw):
        values = getattr(kind([24]), draw)("x", self.N)[0].numpy()
        half = self.N // 2  # where the counter's sines follow its cosines
        for lag in (1, 2, 3, 4, 8, 64, 256, 1024, half):
            a, b = values[:-lag], values[lag:]
            bound = _correlation_bound(len(a))
            assert _correlation(a, b) < bound
            assert _correlation(a**2, b**2) < bound

    @both_kinds
    def test_the_first_numbers_of_members_are_uniform_too(self, kind):
        streams = kind(range(2000))
        streams.seek([1] * 2000)
        assert stats.kstest(streams.uniform("u", 1)[:, 0].numpy(), "uniform").pvalue > 1e-3


class _CounterReference:
    """The counter's hash in numpy's unsigned arithmetic, where wrapping is defined."""

    STRIDE = np.uint32(0x9E3779B9)

    def __init__(self, seed, step):
        key = np.array([stream_seed(seed, "streams") % 2**32], np.uint32)
        self.key = self.mixed(key ^ self.mixed(np.array([step], np.uint32) * self.STRIDE))

    @staticmethod
    def mixed(x):
        x = (x ^ (x >> np.uint32(16))) * np.uint32(0x21F0AAAD)
        x = (x ^ (x >> np.uint32(15))) * np.uint32(0x735A2D97)
        return x ^ (x >> np.uint32(15))

    def words(self, name, n):
        keys = self.mixed(self.key + np.random.SeedSequence([*name.encode()]).generate_state(1))
        return self.mixed(self.mixed(np.arange(n, dtype=np.uint32) ^ keys) + keys)


class TestCounter:
    @pytest.mark.parametrize("step", [0, 1, 77_777, 2**31 - 1])
    def test_signed_overflow_gives_the_numbers_of_unsigned_arithmetic(self, step):
        streams = CounterStreams(SEEDS)
        streams.seek([step] * len(SEEDS))
        for name in (f"layer.{i}" for i in range(40)):
            ours = streams.half_words(name, 2 * 97).numpy().view(np.uint32)
            for row, seed in zip(ours, SEEDS, strict=True):
                assert np.array_equal(row, _CounterReference(seed, step).words(name, 97))

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_uniform_is_the_upper_24_bits(self, dtype):
        streams = CounterStreams(SEEDS)
        streams.seek(range(8))
        ours = streams.uniform("u", 501, dtype=dtype).numpy()
        for i, seed in enumerate(SEEDS):
            words = _CounterReference(seed, i).words("u", 501)
            assert np.array_equal(ours[i], (words >> np.uint32(8)) / 2**24)

    @pytest.mark.parametrize(
        ("dtype", "tolerance"), [(torch.float32, 2e-5), (torch.float64, 1e-12)]
    )
    def test_normal_is_box_and_muller(self, dtype, tolerance):
        streams = CounterStreams([8])
        u = _CounterReference(8, 0).words("z", 10) >> np.uint32(8)
        first, second = u.reshape(2, 5) / 2**24
        radius = np.sqrt(-2 * np.log(1 - first))
        expected = np.concatenate(
            [radius * np.cos(2 * np.pi * second), radius * np.sin(2 * np.pi * second)]
        )
        np.testing.assert_allclose(
            streams.normal("z", 9, dtype=dtype)[0].numpy(), expected[:9], rtol=tolerance
        )
