"""Splits against their definition, a published stratifier, and what must hold for every seed."""

import json

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from iterstrat.ml_stratifiers import MultilabelStratifiedShuffleSplit

from cgmvae.data.dataset import TEST, TRAIN, VALIDATION, MultiLabelDataset
from cgmvae.data.splits import Split, holdout, make_split, spatial_blocks
from cgmvae.errors import InputError

KINDS = ("random", "group", "stratified", "official")


def a_survey(n_samples=200, n_labels=8, *, seed=0, sparse=False, **fields):
    """Return rows in groups of about five, some without labels, with an official split."""
    rng = np.random.default_rng(seed)
    Y = (rng.random((n_samples, n_labels)) < np.geomspace(0.5, 0.02, n_labels)).astype(np.uint8)
    fields = {
        "groups": rng.integers(0, n_samples // 5, n_samples),
        "official_split": rng.choice([TRAIN, TEST], n_samples, p=[0.7, 0.3]),
    } | fields
    X = np.zeros((n_samples, 1), dtype=np.float32)
    return MultiLabelDataset(X, sp.csr_array(Y) if sparse else Y, **fields)


def real_labels(data_folder, name):
    with np.load(data_folder / name / f"{name}.npz", allow_pickle=False) as file:
        return {key: file[key] for key in ("Y", "group", "official_split") if key in file.files}


def dataset_of(arrays):
    return MultiLabelDataset(
        np.zeros((len(arrays["Y"]), 1)),
        arrays["Y"],
        groups=arrays.get("group"),
        official_split=arrays.get("official_split"),
    )


def everything(split):
    return np.concatenate([split.train, split.validation, split.test])


def imbalance(Y, part, shares):
    """Mean distance, in rows, of the labels' counts in each part from their share."""
    counts = np.array([Y[part == p].sum(axis=0) for p in range(len(shares))])
    return np.abs(counts - np.outer(shares, Y.sum(axis=0))).mean()


class TestRandom:
    @pytest.mark.parametrize("seed", [0, 1])
    def test_is_the_measured_split(self, data_folder, seed):
        arrays = real_labels(data_folder, "ebird_june2019_8000")
        kept = np.flatnonzero(arrays["Y"].sum(1))
        n = len(kept)
        order = kept[np.random.RandomState(seed).permutation(n)]

        split = make_split(dataset_of(arrays), seed=seed, drop_empty=True)

        np.testing.assert_array_equal(split.train, order[: int(0.8 * n)])
        np.testing.assert_array_equal(split.validation, order[int(0.8 * n) : int(0.9 * n)])
        np.testing.assert_array_equal(split.test, order[int(0.9 * n) :])

    def test_the_second_cut_does_not_suffer_from_adding_floats(self):
        assert int((0.7 + 0.2) * 30) == 26
        data = MultiLabelDataset(np.zeros((30, 1)), np.ones((30, 1)))
        split = make_split(data, fractions=(0.7, 0.2, 0.1))
        assert [len(split.train), len(split.validation), len(split.test)] == [21, 6, 3]

    def test_an_unknown_label_does_not_keep_a_row(self):
        Y = np.ones((40, 2))
        unknown = np.zeros((40, 2), dtype=bool)
        unknown[:5] = True
        data = MultiLabelDataset(np.zeros((40, 1)), Y, unknown=unknown)
        assert set(everything(make_split(data, drop_empty=True))) == set(range(5, 40))


class TestGroup:
    @pytest.mark.parametrize("seed", [0, 1])
    def test_is_the_measured_split(self, data_folder, seed):
        arrays = real_labels(data_folder, "bbs_2003_2009")
        kept = np.flatnonzero(arrays["Y"].sum(1))
        group = arrays["group"][kept]
        names = np.unique(group)
        names = names[np.random.RandomState(seed).permutation(len(names))]
        cuts = int(0.8 * len(names)), int(0.9 * len(names))

        split = make_split(dataset_of(arrays), "group", seed=seed, drop_empty=True)

        for rows, chosen in zip(
            (split.train, split.validation, split.test), np.split(names, cuts), strict=True
        ):
            np.testing.assert_array_equal(np.sort(rows), kept[np.isin(group, chosen)])

    @pytest.mark.parametrize("seed", [0, 1, 2])
    def test_each_part_has_its_fraction_of_the_groups(self, seed):
        names = np.array([f"site {i:02}" for i in range(40)])
        data = a_survey(groups=names[np.arange(200) % 40])
        split = make_split(data, "group", seed=seed, fractions=(0.5, 0.2, 0.3))
        order = names[np.random.RandomState(seed).permutation(40)]
        for rows, expected in zip(
            (split.train, split.validation, split.test), np.split(order, [20, 28]), strict=True
        ):
            assert set(data.groups[rows]) == set(expected)

    def test_a_small_training_fraction_is_of_rows_from_many_groups(self):
        data = a_survey(1000, groups=np.arange(1000) // 5)
        whole = make_split(data, "group")
        small = make_split(data, "group", train_fraction=0.1)
        n_rows = len(small.train)
        assert len(set(data.groups[small.train])) > n_rows / 2
        assert n_rows == int(0.1 * len(whole.train))


class TestStratified:
    @pytest.mark.parametrize("name", ["yeast", "sider"])
    def test_is_about_as_good_as_the_published_package(self, data_folder, name):
        arrays = real_labels(data_folder, name)
        Y = arrays["Y"]
        ours, package, at_random = [], [], []
        for seed in range(3):
            shares = (0.8, 0.2)
            _, held = holdout(Y, 0.2, seed=seed)
            part = np.zeros(len(Y), dtype=int)
            part[held] = 1
            ours.append(imbalance(Y, part, shares))
            at_random.append(imbalance(Y, np.random.default_rng(seed).permutation(part), shares))
            peer = MultilabelStratifiedShuffleSplit(n_splits=1, test_size=0.2, random_state=seed)
            _, peer_held = next(peer.split(Y, Y))
            peer_part = np.zeros(len(Y), dtype=int)
            peer_part[peer_held] = 1
            package.append(imbalance(Y, peer_part, shares))
        assert np.mean(ours) < 0.5 * np.mean(at_random)
        assert np.mean(ours) < 1.5 * np.mean(package) + 0.2

    def test_one_label_set_a_class_is_split_exactly(self):
        """Rows without a label, the last column of the matrix, are spread, too."""
        Y = np.eye(4, 3, dtype=np.uint8)[np.repeat(np.arange(4), [100, 50, 20, 10])]
        split = make_split(MultiLabelDataset(np.zeros((180, 1)), Y), "stratified")
        np.testing.assert_array_equal(Y[split.train].sum(axis=0), [80, 40, 16])
        np.testing.assert_array_equal(Y[split.test].sum(axis=0), [10, 5, 2])
        assert (Y[split.test].sum(axis=1) == 0).sum() == 1

    @pytest.mark.parametrize("seed", range(5))
    def test_the_rarest_label_is_split_exactly(self, seed):
        """It comes first: later, the rows of frequent labels would have taken its places."""
        Y = np.random.default_rng(seed).random((200, 6)) < 0.4
        Y[:, 0] = np.arange(200) % 20 == 7
        split = make_split(MultiLabelDataset(np.zeros((200, 1)), Y), "stratified", seed=seed)
        assert [Y[rows, 0].sum() for rows in (split.train, split.validation, split.test)] == [
            8,
            1,
            1,
        ]

    @given(seed=st.integers(0, 1000), frequency=st.floats(0.01, 0.9), n_labels=st.integers(1, 30))
    @settings(max_examples=50, deadline=None)
    def test_the_sizes_are_those_of_the_random_split(self, seed, frequency, n_labels):
        Y = np.random.default_rng(seed).random((60, n_labels)) < frequency
        data = MultiLabelDataset(np.zeros((60, 1)), Y)
        split = make_split(data, "stratified", seed=seed)
        assert [len(split.train), len(split.validation), len(split.test)] == [48, 6, 6]

    def test_sparse_labels_give_the_same_split(self):
        dense, sparse = (a_survey(sparse=sparse) for sparse in (False, True))
        assert make_split(dense, "stratified", seed=4).equals(
            make_split(sparse, "stratified", seed=4)
        )


class TestOfficial:
    def test_the_publishers_test_rows_are_the_test_rows(self, data_folder):
        arrays = real_labels(data_folder, "delicious")
        labeled = arrays["Y"].any(axis=1)
        split = make_split(dataset_of(arrays), "official", drop_empty=True)
        publisher = arrays["official_split"]
        np.testing.assert_array_equal(split.test, np.flatnonzero((publisher == TEST) & labeled))
        n_train = ((publisher == TRAIN) & labeled).sum()
        assert len(split.train) + len(split.validation) == n_train
        assert abs(len(split.validation) - n_train / 9) <= 0.5

    @pytest.mark.parametrize(
        ("fractions", "n_validation"),
        [((0.8, 0.1, 0.1), 20), ((0.6, 0.2, 0.2), 45), ((0.5, 0.5, 0.0), 90), ((1.0, 0.0, 0.0), 0)],
    )
    def test_validation_rows_are_drawn_in_the_ratio_of_the_fractions(self, fractions, n_validation):
        codes = np.array([TEST] * 20 + [TRAIN] * 180)
        split = make_split(a_survey(official_split=codes), "official", fractions=fractions)
        assert len(split.validation) == n_validation
        assert set(split.test) == set(range(20))
        assert set(everything(split)) == set(range(200))

    def test_the_publishers_validation_rows_are_used(self):
        codes = np.array([TRAIN] * 10 + [VALIDATION] * 5 + [TEST] * 5)
        data = MultiLabelDataset(np.zeros((20, 1)), np.ones((20, 1)), official_split=codes)
        split = make_split(data, "official", seed=5)
        np.testing.assert_array_equal(split.validation, np.arange(10, 15))
        np.testing.assert_array_equal(split.test, np.arange(15, 20))
        assert set(split.train) == set(range(10))


class TestEveryKind:
    @pytest.mark.parametrize("kind", KINDS)
    @given(seed=st.integers(0, 2**32 - 1), data_seed=st.integers(0, 50), drop=st.booleans())
    @settings(max_examples=20, deadline=None)
    def test_the_parts_are_disjoint_and_cover_the_kept_rows(self, kind, seed, data_seed, drop):
        data = a_survey(seed=data_seed)
        split = make_split(data, kind, seed=seed, drop_empty=drop)
        kept = np.flatnonzero(data.Y.any(axis=1)) if drop else np.arange(data.n_samples)
        np.testing.assert_array_equal(np.sort(everything(split)), kept)
        if kind == "group":
            parts = (split.train, split.validation, split.test)
            groups = [group for rows in parts for group in set(data.groups[rows])]
            assert len(set(groups)) == len(groups)  # none is divided

    @pytest.mark.parametrize("kind", KINDS)
    @given(
        seed=st.integers(0, 1000),
        fractions=st.lists(st.floats(0.001, 1), min_size=2, max_size=2).map(sorted),
    )
    @settings(max_examples=20, deadline=None)
    def test_fewer_training_rows_are_among_the_more(self, kind, seed, fractions):
        data = a_survey()
        small, large = (
            make_split(data, kind, seed=seed, train_fraction=fraction) for fraction in fractions
        )
        n_train = len(make_split(data, kind, seed=seed).train)
        assert len(small.train) == max(1, int(fractions[0] * n_train))
        np.testing.assert_array_equal(small.train, large.train[: len(small.train)])
        np.testing.assert_array_equal(small.validation, large.validation)
        np.testing.assert_array_equal(small.test, large.test)

    @pytest.mark.parametrize("kind", KINDS)
    def test_a_seed_is_reproducible_and_another_differs(self, kind):
        data = a_survey()
        split = make_split(data, kind, seed=7)
        assert split.equals(make_split(data, kind, seed=7))
        assert not split.equals(make_split(data, kind, seed=8))
        assert set(split.train) != set(make_split(data, kind, seed=8).train)

    def test_a_split_is_saved_as_json(self, tmp_path):
        split = make_split(a_survey(), "group", seed=np.int64(3), train_fraction=0.5)
        split.save(tmp_path / "split.json")
        stored = json.loads((tmp_path / "split.json").read_text())
        assert Split(**stored).equals(split)
        assert (stored["kind"], stored["seed"], stored["train_fraction"]) == ("group", 3, 0.5)
        assert [path.name for path in tmp_path.iterdir()] == ["split.json"]


class TestParts:
    def test_are_the_rows(self):
        data = a_survey(sparse=True)
        split = make_split(data, "stratified")
        for part, rows in zip(
            split.parts(data), (split.train, split.validation, split.test), strict=True
        ):
            np.testing.assert_array_equal(part.Y.toarray(), data.Y.toarray()[rows])

    def test_an_empty_part_is_none(self):
        data = a_survey()
        assert make_split(data, fractions=(0.5, 0.0, 0.5)).parts(data)[1] is None

    def test_of_other_data_are_refused(self):
        split = make_split(a_survey(300))
        with pytest.raises(InputError, match="has 200 rows; use the data"):
            split.parts(a_survey(200))


class TestHoldout:
    @pytest.mark.parametrize("fraction", [0.1, 0.5])
    @pytest.mark.parametrize("form", [np.asarray, sp.csr_array, sp.csc_array])
    def test_the_parts_cover_the_rows_in_order(self, fraction, form):
        Y = a_survey().Y
        train, held = holdout(form(Y), fraction, seed=0)
        assert len(held) == round(fraction * len(Y))
        np.testing.assert_array_equal(np.sort(np.concatenate([train, held])), np.arange(len(Y)))
        assert (np.diff(train) > 0).all()
        assert (np.diff(held) > 0).all()

    def test_does_not_change_its_input(self):
        Y = sp.csr_array(a_survey().Y.astype(np.float32))
        Y.data[:10] = np.nan
        before = Y.copy()
        holdout(Y, 0.2, seed=0)
        np.testing.assert_array_equal(Y.toarray(), before.toarray())

    @pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
    def test_an_unknown_label_is_no_positive(self, form):
        Y = a_survey().Y.astype(np.float32)
        hidden = np.where(np.random.default_rng(0).random(Y.shape) < 0.3, np.nan, Y)
        for with_unknown, zeroed in zip(
            holdout(form(hidden), 0.2, seed=0),
            holdout(np.nan_to_num(hidden), 0.2, seed=0),
            strict=True,
        ):
            np.testing.assert_array_equal(with_unknown, zeroed)

    def test_no_group_is_divided(self):
        data = a_survey()
        train, held = holdout(data.Y, 0.2, seed=1, groups=data.groups)
        assert not set(data.groups[train]) & set(data.groups[held])
        n_groups = len(np.unique(data.groups))
        assert len(np.unique(data.groups[held])) == round(0.2 * n_groups)
        assert len(train) + len(held) == data.n_samples

    def test_always_leaves_a_row_on_both_sides(self):
        for fraction in (0.01, 0.99):
            train, held = holdout(np.ones((2, 1)), fraction, seed=0)
            assert (len(train), len(held)) == (1, 1)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"fraction": 0.0}, "between 0 and 1"),
            ({"Y": np.ones((1, 2))}, "at least two rows"),
            ({"Y": np.ones(4)}, "two dimensions"),
            ({"groups": np.zeros(4)}, "at least two groups"),
            ({"groups": np.zeros(3)}, "one value per row"),
            ({"groups": np.array([1, "a", None, 2], dtype=object)}, "all numbers or all text"),
            ({"seed": -1}, "integer"),
        ],
    )
    def test_bad_input(self, arguments, message):
        arguments = {"Y": np.ones((4, 2)), "fraction": 0.5, "seed": 0} | arguments
        with pytest.raises(InputError, match=message):
            holdout(arguments.pop("Y"), arguments.pop("fraction"), **arguments)


class TestBadInput:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"kind": "stratify"}, "random, group, stratified, official"),
            ({"fractions": (0.8, 0.1)}, "give three"),
            ({"fractions": (0.8, 0.1, 0.2)}, "add up to 1"),
            ({"fractions": (0.0, 0.5, 0.5)}, "some rows for training"),
            ({"fractions": (np.nan, 0.5, 0.5)}, "add up to 1"),
            ({"train_fraction": 0.0}, "train_fraction is 0.0"),
            ({"seed": -1}, "The seed is -1"),
        ],
    )
    def test_of_the_arguments(self, arguments, message):
        with pytest.raises(InputError, match=message):
            make_split(a_survey(), **arguments)

    @pytest.mark.parametrize("kind", ["random", "stratified"])
    def test_too_few_rows(self, kind):
        data = MultiLabelDataset(np.zeros((5, 1)), np.ones((5, 1)))
        with pytest.raises(InputError, match="leaves no validation rows"):
            make_split(data, kind)

    def test_no_labeled_rows(self):
        data = MultiLabelDataset(np.zeros((5, 1)), np.zeros((5, 2)))
        with pytest.raises(InputError, match="No row of 'data' has a positive label"):
            make_split(data, drop_empty=True)

    @pytest.mark.parametrize(
        ("kind", "fields", "message"),
        [
            ("group", {"groups": None}, "has no groups"),
            ("official", {"official_split": None}, "has no official split"),
            ("official", {"official_split": np.full(200, TRAIN)}, "leaves no test rows"),
        ],
    )
    def test_data_without_what_the_kind_needs(self, kind, fields, message):
        with pytest.raises(InputError, match=message):
            make_split(a_survey(**fields), kind)

    @pytest.mark.parametrize(
        ("parts", "message"),
        [
            (([0, 1], [1], [2]), "more than once"),
            (([], [1], [2]), "no training rows"),
            (([0], [-1], [2]), "row -1"),
            (([0.5], [1], [2]), "train rows must be"),
            (([0], [1], [[2], [3, 4]]), "test rows must be"),
            (([0], [1], [2**70]), "test rows must be"),
        ],
    )
    def test_of_the_parts(self, parts, message):
        with pytest.raises(InputError, match=message):
            Split(*parts, kind="random", seed=0, train_fraction=1.0)


class TestSpatialBlocks:
    def test_a_block_is_a_cell_of_the_grid(self, rng):
        places = rng.uniform(-7, 5, (300, 2))
        found = spatial_blocks(places, size=2.5)
        cells = [tuple((place - places.min(0)) // 2.5) for place in places]
        order = sorted(set(cells))
        assert found.tolist() == [order.index(cell) for cell in cells]

    @pytest.mark.parametrize("stretch", [1, 2, 4, 8])
    def test_the_chosen_blocks_are_enough_and_hardly_smaller_than_needed(self, rng, stretch):
        places = rng.random((500, 2)) * [1, stretch]
        blocks = spatial_blocks(places)
        widths = np.ptp(places, axis=0).max() * 0.75 ** np.arange(24)
        numbers = [len(np.unique(spatial_blocks(places, size=width))) for width in widths]
        assert len(np.unique(blocks)) == next(n for n in numbers if n >= 100)
        np.testing.assert_array_equal(spatial_blocks(places * 1000 + 5), blocks)

    @pytest.mark.parametrize("n", [0, 1, 2, 7])
    def test_few_places(self, rng, n):
        places = np.repeat(rng.random((n, 2)), 3, axis=0)
        blocks = spatial_blocks(places)
        assert len(np.unique(blocks)) >= n // 2
        np.testing.assert_array_equal(blocks, np.repeat(blocks[::3], 3))

    def test_a_split_by_block_tests_in_other_places(self, rng):
        places = rng.random((400, 2))
        data = a_survey(400, groups=spatial_blocks(places, size=0.1))
        split = make_split(data, "group", seed=0)
        cells = [{tuple(c) for c in (places[p] - places.min(0)) // 0.1} for p in
                 (split.train, split.test)]  # fmt: skip
        assert not cells[0] & cells[1]

    @pytest.mark.parametrize("places", [[1.0, 2.0], [[1.0, 2.0, 3.0]], [[np.nan, 1.0]]])
    def test_other_coordinates_are_rejected(self, places):
        with pytest.raises(InputError, match="two finite numbers"):
            spatial_blocks(places)

    def test_a_size_of_nothing_is_rejected(self):
        with pytest.raises(InputError, match="above 0"):
            spatial_blocks([[0, 1]], size=0)
