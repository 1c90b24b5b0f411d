"""The real files: their statistics, against the publishers and plain loops, and changed copies."""

import gzip
import re
import shutil
import warnings
from collections import Counter

import numpy as np
import pytest

from cgmvae.data import readers
from cgmvae.data.catalog import entries, load_dataset
from cgmvae.errors import InputError

#: What the folder of real data holds; what is put there by hand has no known checksum.
HERE = [name for name, entry in entries().items() if entry.sha256]

#: Rows of the tables in SOURCE.md that a statistic of ours must agree with.
SOURCE_ROWS = {
    "samples": "samples",
    "features": "features",
    "labels": "labels",
    "cardinality": "mean_labels_per_sample",
    "density": "density",
    "label_density": "density",
    "missing": "unknown_share",
    "max_labels": "max_labels_per_sample",
    "rows_without_label": "rows_without_labels",
    "rows_without_labels": "rows_without_labels",
    "labels_without_positive": "labels_without_rows",
    "labels_never_positive": "labels_without_rows",
    "X_nonzero_fraction": "feature_density",
    "feature_density": "feature_density",
    "distinct_labelsets": "distinct_label_sets",
}


def put_copy(data_folder, folder, name, **changed):
    """Copy a real archive into a folder, with some arrays changed."""
    file = entries()[name].file
    target = folder / file
    target.parent.mkdir(parents=True, exist_ok=True)
    with np.load(data_folder / file) as arrays:
        np.savez(target, **{**arrays, **changed})
    return target


def source_table(folder, name):
    text = (folder / entries()[name].file).parent.joinpath("SOURCE.md").read_text(encoding="utf-8")
    return dict(re.findall(r"^\| (\w+) \| (.+?) \|$", text, flags=re.MULTILINE))


@pytest.mark.parametrize("name", HERE)
def test_statistics_agree_with_the_publishers_table(real, name):
    dataset = load_dataset(name, download=False)
    found = dataset.describe().to_dict()
    stated = source_table(real, name)
    if name == "reuters_tfidf":  # the table is that of the other features; the labels are the same
        stated = {row: stated[row] for row in ("samples", "labels", "cardinality", "max_labels")}
    compared = 0
    for row, field in SOURCE_ROWS.items():
        if row in stated:
            digits = len(stated[row].partition(".")[2])
            assert round(found[field], digits) == pytest.approx(float(stated[row])), row
            compared += 1
    assert compared == (4 if name == "reuters_tfidf" else 10)
    if "train=" in stated.get("official_split", ""):
        counts = np.bincount(dataset.official_split).tolist()
        assert stated["official_split"] == f"train={counts[0]}, test={counts[1]}"


def raw_labels(folder, name):
    """Return known positive labels as lists of column numbers, and the number of unknown cells."""
    with np.load(folder / entries()[name].file) as arrays:
        Y = arrays["Y"]
        X_shape = arrays["X"].shape if "X" in arrays else tuple(arrays["X_shape"])
        values = arrays["X"] if "X" in arrays else arrays["X_data"]
    rows = [[] for _ in range(len(Y))]
    for row, column in zip(*(places.tolist() for places in np.nonzero(Y == 1)), strict=True):
        rows[row].append(column)
    return rows, Y.shape, int((Y == 255).sum()), X_shape, int((values != 0).sum())


@pytest.mark.parametrize("name", HERE)
def test_statistics_agree_with_plain_loops_over_the_arrays(real, name):
    dataset = load_dataset(name, download=False)
    found = dataset.describe()
    rows, (n, n_labels), n_unknown, (_, n_features), n_nonzero = raw_labels(real, name)
    sizes = sorted(len(row) for row in rows)
    per_label = Counter(label for row in rows for label in row)
    assert (found.samples, found.labels, found.features) == (n, n_labels, n_features)
    assert found.mean_labels_per_sample == pytest.approx(sum(sizes) / n)
    assert found.median_labels_per_sample == (sizes[(n - 1) // 2] + sizes[n // 2]) / 2
    assert found.max_labels_per_sample == sizes[-1]
    assert found.mean_samples_per_label == pytest.approx(sum(sizes) / n_labels)
    assert found.density == pytest.approx(sum(sizes) / (n * n_labels - n_unknown))
    assert found.rows_without_labels == sum(size == 0 for size in sizes)
    assert found.labels_without_rows == n_labels - len(per_label)
    assert found.unknown_share == pytest.approx(n_unknown / (n * n_labels))
    assert found.feature_density == pytest.approx(n_nonzero / (n * n_features))
    largest = max(per_label.values())
    ratios = [largest / count for count in per_label.values()]
    assert found.imbalance_ratio == pytest.approx(sum(ratios) / len(ratios))
    assert found.distinct_label_sets == len({tuple(row) for row in rows})
    assert found.missing_share == 0


@pytest.mark.parametrize("name", HERE)
def test_the_data_has_the_statistics_of_the_catalog_and_its_name(real, name):
    dataset = load_dataset(name, download=False)
    assert dataset.name == name
    expected = entries()[name].statistics
    assert (dataset.n_samples, dataset.n_features, dataset.n_labels) == (
        expected.samples,
        expected.features,
        expected.labels,
    )
    assert round(dataset.describe().mean_labels_per_sample, 6) == float(expected.cardinality)


@pytest.mark.parametrize(
    ("name", "key"), [("bbs_2003_2009", "group"), ("ebird_june2019_8000", "cell_index")]
)
def test_groups_are_read(real, name, key):
    with np.load(real / entries()[name].file) as arrays:
        assert np.array_equal(load_dataset(name, download=False).groups, arrays[key])


def test_every_archive_of_the_folder_is_in_the_catalog(data_folder):
    found = {str(path.relative_to(data_folder)) for path in data_folder.glob("*/*.npz")}
    assert found == {entries()[name].file for name in HERE}


def test_changed_label_is_refused(data_folder, folders):
    with np.load(data_folder / entries()["scene"].file) as arrays:
        Y = arrays["Y"].copy()
    Y[0, 0] = 1 - Y[0, 0]
    put_copy(data_folder, folders[0], "scene", Y=Y)
    with (
        pytest.warns(UserWarning, match="checksum differs"),
        pytest.raises(InputError, match=r"labels a row where the catalog says 1\.073951"),
    ):
        load_dataset("scene", download=False)


def test_changed_feature_is_warned_of(data_folder, folders):
    with np.load(data_folder / entries()["scene"].file) as arrays:
        X = arrays["X"].copy()
    X[0, 0] += 1
    put_copy(data_folder, folders[0], "scene", X=X)
    with pytest.warns(UserWarning, match="results may not compare") as caught:
        dataset = load_dataset("scene", download=False)
    assert dataset.X[0, 0] == X[0, 0]
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_missing_row_is_refused_with_all_that_differs(data_folder, folders):
    with np.load(data_folder / entries()["scene"].file) as arrays:
        fewer = {key: arrays[key][:-1] for key in ("X", "Y", "official_split")}
    put_copy(data_folder, folders[0], "scene", **fewer)
    with (
        pytest.warns(UserWarning, match="checksum differs"),
        pytest.raises(InputError, match="2,406 samples where the catalog says 2,407") as error,
    ):
        load_dataset("scene", download=False)
    assert "features where" not in str(error.value)
    assert str(error.value).count(". ") == 0


def test_originals_of_mulan_give_the_archive(data_folder, folders):
    target = folders[0] / "delicious"
    target.mkdir()
    for part in ("train", "test"):
        packed = data_folder / "raw" / f"delicious-{part}.arff.gz"
        with gzip.open(packed) as source, (target / packed.stem).open("wb") as file:
            shutil.copyfileobj(source, file)
    shutil.copy(data_folder / "raw" / "delicious.xml", target)
    dataset = load_dataset("delicious", download=False)
    known = readers.read(data_folder / "delicious" / "delicious.npz")
    assert dataset.name == "delicious"
    assert (dataset.X != known.X).nnz == 0
    Y = dataset.Y if isinstance(dataset.Y, np.ndarray) else dataset.Y.toarray()
    columns = [dataset.label_names.index(name) for name in known.label_names]
    assert np.array_equal(Y[:, columns], known.Y)
    assert dataset.feature_names == known.feature_names
    assert np.array_equal(dataset.official_split, known.official_split)


def test_no_warning_where_all_is_as_known(real):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_dataset("sider", download=False)
