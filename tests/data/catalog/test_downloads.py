"""Downloads: fetched once, joined, checked, and explained where they fail."""

import shutil
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from cgmvae.data import catalog, readers
from cgmvae.data.catalog import availability, load_dataset, locate
from cgmvae.data.dataset import MultiLabelDataset
from cgmvae.errors import InputError


@pytest.fixture
def served(tmp_path, tiny_entry, tiny):
    """Serve the small data set as Mulan would, and put it into the catalog."""
    folder = tmp_path / "served"
    folder.mkdir()
    for part, rows in {"train": [0, 1], "test": [2]}.items():
        readers.write(tiny.rows(rows), folder / f"tiny-{part}.arff")
        (folder / f"tiny-{part}.xml").rename(folder / "names.xml")

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *args):
            """Keep the output of the tests clean."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=folder))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    roles = {"tiny-train.arff": "train", "tiny-test.arff": "test", "names.xml": "labels"}
    address = f"http://127.0.0.1:{server.server_port}"
    tiny_entry(
        downloads=tuple(catalog.Original(f"{address}/{file}", role) for file, role in roles.items())
    )
    yield folder
    server.shutdown()
    thread.join()
    server.server_close()


def test_train_and_test_files_are_downloaded_and_joined(served, folders, tiny):
    assert availability("tiny") == "to download"
    seen = []
    dataset = load_dataset("tiny", progress=lambda done, total: seen.append((done, total)))
    assert np.array_equal(dataset.X, tiny.X)
    assert np.array_equal(dataset.Y, tiny.Y)
    assert dataset.label_names == tiny.label_names
    assert dataset.official_split.tolist() == [0, 0, 1]
    assert dataset.name == "tiny"
    assert len(seen) == 3
    assert all(done == total for done, total in seen)
    assert availability("tiny") == "cached"
    assert locate("tiny") == folders[1] / "tiny" / "tiny-train.arff"


def test_second_time_reads_the_cache(served, folders):
    load_dataset("tiny")
    for path in served.iterdir():
        path.unlink()
    assert load_dataset("tiny").n_samples == 3
    assert load_dataset("tiny", download=False).n_samples == 3


def test_originals_in_the_data_folder_are_used(served, folders, tiny):
    shutil.copytree(served, folders[0] / "tiny")
    assert availability("tiny") == "here"
    assert np.array_equal(load_dataset("tiny", download=False).X, tiny.X)
    assert list(folders[1].iterdir()) == []


def test_cached_original_that_was_changed_is_warned_of(served, folders):
    load_dataset("tiny")
    path = folders[1] / "tiny" / "tiny-test.arff"
    path.write_text(path.read_text(encoding="utf-8") + "\n% changed\n", encoding="utf-8")
    with pytest.warns(UserWarning, match="tiny-test.arff is not the file"):
        load_dataset("tiny")


def test_failed_download_says_what_to_put_where_and_resumes(served, folders):
    missing = served / "tiny-test.arff"
    content = missing.read_bytes()
    missing.unlink()
    with pytest.raises(InputError, match="404") as error:
        load_dataset("tiny")
    assert "put tiny/tiny.npz, or tiny/tiny-train.arff and tiny/tiny-test.arff and" in str(
        error.value
    )
    assert str(error.value).count(". ") == 0
    kept = {path.name for path in (folders[1] / "tiny").iterdir()}
    assert kept == {"tiny-train.arff", "SHA256SUMS"}
    missing.write_bytes(content)
    (served / "tiny-train.arff").unlink()
    assert load_dataset("tiny").n_samples == 3


def test_cache_that_cannot_be_made_is_one_sentence(served, folders, monkeypatch):
    blocked = folders[1] / "file"
    blocked.write_text("", encoding="utf-8")
    monkeypatch.setenv("CGMVAE_CACHE", str(blocked))
    with pytest.raises(InputError, match="cannot be stored"):
        load_dataset("tiny")


def test_parts_with_other_columns_are_refused(served, folders, tiny):
    renamed = MultiLabelDataset(
        tiny.X[2:], tiny.Y[2:], feature_names=["a", "c"], label_names=tiny.label_names
    )
    readers.write(renamed, served / "tiny-test.arff")
    with pytest.raises(InputError, match="different columns"):
        load_dataset("tiny")


def test_unknown_labels_of_one_part_are_kept(served, folders, tiny):
    part = MultiLabelDataset(
        tiny.X[2:],
        tiny.Y[2:],
        feature_names=tiny.feature_names,
        label_names=tiny.label_names,
        unknown=[[True, False]],
    )
    readers.write(part, served / "tiny-test.arff")
    dataset = load_dataset("tiny")
    assert dataset.unknown.tolist() == [[False, False], [False, False], [True, False]]
    assert dataset.Y.tolist() == tiny.Y.tolist()
