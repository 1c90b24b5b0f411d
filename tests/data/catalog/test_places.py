"""Names and places: which data set is meant, and where its files are looked for."""

from pathlib import Path

import numpy as np
import pytest

from cgmvae.data import catalog, readers
from cgmvae.data.catalog import availability, entries, load_dataset, locate
from cgmvae.data.dataset import MultiLabelDataset
from cgmvae.errors import InputError

#: What nobody can download; test_facts knows which ones these are.
BY_HAND = [name for name, entry in entries().items() if not entry.sha256]


@pytest.mark.parametrize("name", ["yeast", "Yeast", " YEAST "])
def test_case_does_not_matter(name):
    assert load_dataset(name).name == "yeast"


@pytest.mark.parametrize("name", ["nus-vec", "NUS_VEC", "nus vec"])
def test_hyphens_and_underscores_are_alike(name):
    assert catalog.find_entry(name).name == "nus_vec"


@pytest.mark.parametrize("function", [load_dataset, locate, availability])
def test_unknown_name_gets_close_ones(function):
    with pytest.raises(InputError, match="no data set 'yeats' in the catalog; did you mean yeast"):
        function("yeats")


def test_unknown_name_without_close_ones_gets_them_all():
    with pytest.raises(InputError, match="choose one of ebird, mirflickr"):
        load_dataset("qqqq")


@pytest.mark.parametrize("name", BY_HAND)
def test_nothing_reachable_says_what_to_put_where(folders, name):
    entry = entries()[name]
    with pytest.raises(InputError) as error:
        load_dataset(name)
    message = str(error.value)
    assert f"put {entry.file} " in message
    assert "'cgmvae data list --json' tells how it is made" in message
    assert f"CGMVAE_DATA names ({folders[0]})" in message
    assert str(folders[1]) in message
    assert message.endswith(".")
    assert message.count(". ") == 0
    assert "\n" not in message


def test_download_can_be_forbidden(folders, monkeypatch):
    monkeypatch.delenv("CGMVAE_DATA")
    with pytest.raises(
        InputError, match=r"'scene' is not here; put scene/scene.npz, or .*not set now"
    ):
        load_dataset("scene", download=False)
    assert list(folders[1].iterdir()) == []


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"CGMVAE_CACHE": "/a"}, Path("/a")),
        ({"XDG_CACHE_HOME": "/b"}, Path("/b/cgmvae")),
        ({"CGMVAE_CACHE": "/a", "XDG_CACHE_HOME": "/b"}, Path("/a")),
        ({"HOME": "/c"}, Path("/c/.cache/cgmvae")),
        ({"HOME": "/c", "XDG_CACHE_HOME": "", "CGMVAE_CACHE": ""}, Path("/c/.cache/cgmvae")),
    ],
)
def test_cache_folder(monkeypatch, variables, expected):
    for variable in ("CGMVAE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    assert catalog.cache_folder() == expected


@pytest.fixture
def put_tiny(tiny):
    """Write the small data set, its features shifted so that copies can be told apart."""

    def put(folder, shift):
        (folder / "tiny").mkdir(exist_ok=True)
        path = folder / "tiny" / "tiny.npz"
        readers.write(MultiLabelDataset(tiny.X + shift, tiny.Y), path)
        return path

    return put


def test_places_are_searched_in_order(folders, tiny_entry, put_tiny):
    tiny_entry()
    assert (locate("tiny"), availability("tiny")) == (None, "by hand")
    cached = put_tiny(folders[1], 2)
    assert (locate("tiny"), availability("tiny")) == (cached, "cached")
    assert load_dataset("tiny").X[0, 0] == 2.5
    here = put_tiny(folders[0], 1)
    assert (locate("tiny"), availability("tiny")) == (here, "here")
    assert load_dataset("tiny").X[0, 0] == 1.5


def test_embedded_comes_first(folders):
    (folders[0] / "yeast").mkdir()
    (folders[0] / "yeast" / "yeast.npz").write_bytes(b"something else")
    assert availability("yeast") == "embedded"
    assert locate("yeast").parent.name == "embedded"
    assert load_dataset("yeast").n_samples == 2417


def test_what_can_be_downloaded_says_so(folders):
    assert {name for name in entries() if availability(name) == "to download"} == {
        "scene",
        "delicious",
        "imdb",
    }


def test_released_matrix_with_its_options(folders, tiny_entry, tiny):
    tiny_entry(
        file="tiny/tiny_data.npy",
        options=(("n_labels", 2), ("meta_offset", 1)),
    )
    (folders[0] / "tiny").mkdir()
    np.save(folders[0] / "tiny" / "tiny_data.npy", np.hstack([[[7], [8], [9]], tiny.Y, tiny.X]))
    dataset = load_dataset("tiny")
    assert np.array_equal(dataset.X, tiny.X)
    assert np.array_equal(dataset.Y, tiny.Y)
    assert dataset.name == "tiny"


def test_arff_by_hand_with_its_xml(folders, tiny_entry, tiny):
    tiny_entry(file="tiny/tiny.arff")
    (folders[0] / "tiny").mkdir()
    readers.write(tiny, folders[0] / "tiny" / "tiny.arff")
    assert (folders[0] / "tiny" / "tiny.xml").is_file()
    assert np.array_equal(load_dataset("tiny").Y, tiny.Y)


def test_own_archive_stands_in_for_the_publishers_file(folders, tiny_entry, put_tiny, tiny):
    tiny_entry(file="tiny/tiny.arff")
    assert locate("tiny") is None
    path = put_tiny(folders[0], 0)
    assert locate("tiny") == path
    assert np.array_equal(load_dataset("tiny").X, tiny.X)
