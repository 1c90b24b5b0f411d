"""The catalog: its entries, where data sets are found, downloads, and the real files."""

import gzip
import hashlib
import re
import runpy
import shutil
import sys
import threading
from dataclasses import asdict, replace
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from cgmvae.data import catalog, readers
from cgmvae.data.catalog import (
    availability,
    checksum_of,
    entries,
    fetch,
    find_entry,
    load_dataset,
    locate,
)
from cgmvae.data.dataset import MultiLabelDataset
from cgmvae.errors import InputError

#: Data sets that must be made by hand, and those of which there are only the publisher's files;
#: all others are one file with a known checksum.
BY_HAND = ["ebird", "nus_vec"]
ONLY_DOWNLOADS = ["mirflickr", "bookmarks"]
HERE = [name for name in entries() if name not in (*BY_HAND, *ONLY_DOWNLOADS)]
LARGE = ("bbs_2003_2009", "delicious", "imdb")


def test_the_fifteen_data_sets_are_there_the_papers_first():
    in_paper = [entry.paper is not None for entry in entries().values()]
    assert in_paper == [True] * 9 + [False] * 6


@pytest.mark.parametrize("entry", entries().values(), ids=lambda entry: entry.name)
def test_every_entry_is_complete_and_downloads_files_at_a_commit(entry):
    assert re.fullmatch("[a-z0-9_]+", entry.name)
    for text in (entry.title, entry.domain, entry.license, entry.source):
        assert text
        assert "\n" not in text
    assert "https://" in entry.source
    assert entry.file.count("/") == 1
    assert re.fullmatch("([0-9a-f]{64})?", entry.sha256)
    assert (entry.sha256 == "") == (entry.name not in HERE)
    assert entry.downloads or entry.recipe
    statistics = entry.statistics
    assert min(statistics.samples, statistics.features, statistics.labels) > 0
    assert isinstance(statistics.cardinality, Decimal)
    roles = sorted(original.role for original in entry.downloads)
    assert roles in (
        [],
        ["data"],
        ["data", "labels"],
        ["data", "index", "index", "index"],
        ["labels", "test", "train"],
    )
    assert bool(roles) or entry.name not in ONLY_DOWNLOADS
    for original in entry.downloads:
        assert re.fullmatch(
            r"https://raw\.githubusercontent\.com/[^/]+/[^/]+/[0-9a-f]{40}/\S+", original.address
        )
        commit = original.address.split("/")[5]
        assert commit in entry.source
        assert original.file_name.endswith((".arff", ".arff.bz2", ".xml", ".npy"))
        assert re.fullmatch("[0-9a-f]{40}|[0-9a-f]{64}", original.checksum)


def test_catalog_agrees_with_the_paper_where_it_must():
    for entry in entries().values():
        if entry.paper is None:
            continue
        if entry.name != "mirflickr":  # 419 of its rows are in no index file
            assert entry.statistics.samples == entry.paper.samples
        if entry.name != "nus_vec":  # the paper prints 85, the released data has 81
            assert entry.statistics.labels == entry.paper.labels
        difference = entry.statistics.cardinality - entry.paper.mean_labels_per_sample
        assert abs(difference) < Decimal("0.05")


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Return an empty data folder and an empty cache that the catalog looks into."""
    folders = tmp_path / "data", tmp_path / "cache"
    for variable, folder in zip(("CGMVAE_DATA", "CGMVAE_CACHE"), folders, strict=True):
        folder.mkdir()
        monkeypatch.setenv(variable, str(folder))
    return folders


@pytest.fixture
def real(data_folder, folders, monkeypatch):
    """Return the folder of real data, with an empty cache."""
    monkeypatch.setenv("CGMVAE_DATA", str(data_folder))
    return data_folder


@pytest.fixture
def tiny():
    """Return a data set of three rows."""
    return MultiLabelDataset(
        np.float32([[0.5, 1], [2, 0], [0, 3]]),
        [[1, 0], [1, 1], [0, 1]],
        feature_names=["a", "b"],
        label_names=["owl", "hawk"],
    )


@pytest.fixture
def tiny_entry(monkeypatch):
    """Replace the entries of the catalog by a small data set."""

    def put(**fields):
        entry = catalog.CatalogEntry(
            name="tiny",
            title="Three rows",
            domain="tests",
            source="https://example.org",
            license="none",
            file=fields.pop("file", "tiny/tiny.npz"),
            statistics=catalog.ExpectedStatistics(3, 2, 2, Decimal("1.33")),
            **fields,
        )
        monkeypatch.setattr(catalog, "entries", lambda: {"tiny": entry})
        return entry

    return put


def test_names_of_data_sets():
    for name in ("nus-vec", "NUS_VEC", " nus vec "):
        assert find_entry(name).name == "nus_vec"
    with pytest.raises(InputError, match="no data set 'yeats' in the catalog; did you mean yeast"):
        find_entry("yeats")
    with pytest.raises(InputError, match="choose one of ebird, mirflickr"):
        find_entry("qqqq")


def test_a_data_set_that_is_nowhere_says_what_to_put_where(folders):
    entry = entries()["ebird"]
    with pytest.raises(InputError) as error:
        load_dataset("ebird")
    message = str(error.value)
    assert f"put {entry.file} " in message
    assert "'cgmvae data list --json' shows its recipe" in message
    assert f"the folder CGMVAE_DATA ({folders[0]})" in message
    assert str(folders[1]) in message
    assert message.endswith(".")
    assert message.count(". ") == 0
    assert "\n" not in message


def test_download_can_be_forbidden(folders, monkeypatch):
    monkeypatch.delenv("CGMVAE_DATA")
    with pytest.raises(
        InputError, match=r"'scene' is not on this machine; put scene/scene.npz, or .*not set"
    ):
        load_dataset("scene", download=False)
    assert list(folders[1].iterdir()) == []


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"XDG_CACHE_HOME": "/b"}, Path("/b/cgmvae")),
        ({"CGMVAE_CACHE": "/a", "XDG_CACHE_HOME": "/b"}, Path("/a")),
        ({"HOME": "/c", "XDG_CACHE_HOME": "", "CGMVAE_CACHE": ""}, Path("/c/.cache/cgmvae")),
    ],
)
@pytest.mark.skipif(sys.platform != "linux", reason="the folders of Linux")
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


def test_folders_are_searched_in_order(folders, tiny_entry, put_tiny):
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


def test_own_archive_stands_in_for_the_publishers_file(folders, tiny_entry, put_tiny, tiny):
    tiny_entry(file="tiny/tiny.arff")
    assert locate("tiny") is None
    path = put_tiny(folders[0], 0)
    assert locate("tiny") == path
    assert np.array_equal(load_dataset("tiny").X, tiny.X)


BODY = bytes(range(256)) * 4096
SHA256 = hashlib.sha256(BODY).hexdigest()


class Handler(BaseHTTPRequestHandler):
    """Answer each path in its own way."""

    def do_GET(self):
        body = self.server.bodies.get(self.path)
        file = self.server.folder / self.path[1:] if self.server.folder else None
        if file and file.is_file():
            body = file.read_bytes()
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/file")
            self.end_headers()
        elif body is None:
            self.send_error(404)
        else:
            self.send_response(200)
            if self.path != "/unstated":
                n_bytes = len(body) + (self.path == "/cut")
                self.send_header("Content-Length", str(n_bytes))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, *args):
        """Keep the output of the tests clean."""


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.bodies = dict.fromkeys(("/file", "/cut", "/unstated"), BODY)
        server.folder = None
        server.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("path", "stated"), [("/file", len(BODY)), ("/unstated", None)])
def test_fetches_the_bytes_and_reports_progress(server, tmp_path, path, stated):
    seen = []
    target = tmp_path / "file"
    result = fetch(
        server.address + path,
        target,
        checksum=SHA256,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert result == target
    assert target.read_bytes() == BODY
    done = [done for done, _ in seen]
    assert done == sorted(set(done))
    assert done[-1] == len(BODY)
    assert {total for _, total in seen} == {stated}


def test_redirects_are_followed(server, tmp_path):
    fetch(f"{server.address}/moved", tmp_path / "file", checksum=SHA256.upper())
    assert (tmp_path / "file").read_bytes() == BODY


def test_a_git_blob_id_is_a_checksum_too(server, tmp_path):
    path = tmp_path / "known"
    path.write_bytes(b"what is up, doc?")  # the example of git's own documentation
    blob = "bd9dbf5aae1a3862dd1526723246b20206e5fc37"
    assert checksum_of(path, n_digits=40) == blob
    server.bodies["/known"] = path.read_bytes()
    fetch(f"{server.address}/known", tmp_path / "file", checksum=blob)
    with pytest.raises(InputError, match="checksum bd9dbf5aae1a… where 000000000000…"):
        fetch(f"{server.address}/known", tmp_path / "file", checksum="0" * 40)


def test_another_file_than_expected_changes_nothing(server, tmp_path):
    target = tmp_path / "file"
    fetch(f"{server.address}/file", target, checksum=SHA256)
    server.bodies["/file"] = BODY[:-1] + b"!"
    with pytest.raises(InputError, match=f"where {SHA256[:12]}… was expected"):
        fetch(f"{server.address}/file", target, checksum=SHA256)
    assert target.read_bytes() == BODY
    assert list(tmp_path.iterdir()) == [target]


def test_an_interrupted_download_leaves_nothing(server, tmp_path):
    with pytest.raises(InputError, match="IncompleteRead"):
        fetch(f"{server.address}/cut", tmp_path / "file", checksum=SHA256)
    assert list(tmp_path.iterdir()) == []


def test_missing_page_is_one_sentence(server, tmp_path):
    with pytest.raises(InputError, match=r"downloaded \(404 Client Error: Not Found .*\); check"):
        fetch(f"{server.address}/nothing", tmp_path / "file", checksum=SHA256)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ["/file", "/unstated"])
def test_too_large_is_rejected(server, tmp_path, monkeypatch, path):
    monkeypatch.setattr(catalog, "DOWNLOAD_LIMIT", 1000)
    with pytest.raises(InputError, match="larger than 1,000 bytes"):
        fetch(server.address + path, tmp_path / "file", checksum=SHA256)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("address", ["ftp://host/file", "file:///etc/hostname", "/etc/hostname"])
def test_other_schemes_are_rejected(tmp_path, address):
    with pytest.raises(InputError, match="must begin with https: or http:"):
        fetch(address, tmp_path / "file", checksum=SHA256)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def serve(tmp_path, server, tiny_entry, tiny, write_arff):
    """Return a function that serves the small data set in the form of Mulan, in the catalog too."""
    roles = {"tiny-train.arff": "train", "tiny-test.arff": "test", "names.xml": "labels"}

    def put(test=None):
        folder = tmp_path / "served"
        folder.mkdir()
        for part, data in {"train": tiny.rows([0, 1]), "test": test or tiny.rows([2])}.items():
            write_arff(data, folder / f"tiny-{part}.arff")
        labels = "".join(f'<label name="{name}"/>' for name in tiny.label_names)
        (folder / "names.xml").write_text(f"<labels>{labels}</labels>")
        server.folder = folder
        tiny_entry(
            downloads=tuple(
                catalog.Original(f"{server.address}/{file}", role, checksum_of(folder / file))
                for file, role in roles.items()
            )
        )
        return folder

    return put


@pytest.fixture
def served(serve):
    return serve()


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


def test_a_matrix_is_downloaded_with_its_index_files(server, folders, tmp_path, tiny_entry, tiny):
    server.folder = tmp_path
    np.save(tmp_path / "tiny_data.npy", np.column_stack([tiny.Y, tiny.X]))
    np.save(tmp_path / "tiny_train_idx.npy", [2, 0])
    np.save(tmp_path / "tiny_test_idx.npy", [1])
    roles = {"data": "data", "train_idx": "index", "test_idx": "index"}
    paths = {tmp_path / f"tiny_{part}.npy": role for part, role in roles.items()}
    tiny_entry(
        file="tiny/tiny_data.npy",
        options=(("n_labels", 2),),
        downloads=tuple(
            catalog.Original(f"{server.address}/{path.name}", role, checksum_of(path, n_digits=40))
            for path, role in paths.items()
        ),
    )
    (folders[1] / "tiny").mkdir()
    shutil.copy(tmp_path / "tiny_data.npy", folders[1] / "tiny")
    assert locate("tiny") is None  # the matrix alone is not the data set
    assert [path.name for path in catalog.download("tiny")] == [path.name for path in paths]
    dataset = load_dataset("tiny", download=False)
    assert dataset.official_split.tolist() == [0, 1, 0]
    assert np.array_equal(dataset.X, tiny.X)


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


def test_failed_download_says_what_to_put_where(served, folders):
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
    assert kept == {"tiny-train.arff"}
    missing.write_bytes(content)
    (served / "tiny-train.arff").unlink()
    assert load_dataset("tiny").n_samples == 3


def test_cache_that_cannot_be_created_is_one_sentence(served, folders, monkeypatch):
    blocked = folders[1] / "file"
    blocked.write_text("", encoding="utf-8")
    monkeypatch.setenv("CGMVAE_CACHE", str(blocked))
    with pytest.raises(InputError, match="cannot be stored"):
        load_dataset("tiny")


def test_parts_with_other_columns_are_rejected(serve, folders, tiny):
    serve(test=replace(tiny.rows([2]), feature_names=["a", "c"]))
    with pytest.raises(InputError, match="different columns"):
        load_dataset("tiny")


def test_unknown_labels_of_one_part_are_kept(serve, folders, tiny):
    serve(test=replace(tiny.rows([2]), unknown=[[True, False]]))
    dataset = load_dataset("tiny")
    assert dataset.unknown.tolist() == [[False, False], [False, False], [True, False]]
    assert dataset.Y.tolist() == tiny.Y.tolist()


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


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in LARGE else ()) for name in HERE]
)
def test_statistics_agree_with_the_publishers(real, name):
    dataset = load_dataset(name, download=False)  # which compares them with the catalog
    assert dataset.name == name
    found = asdict(dataset.describe())
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
    assert find_entry(name).official_split == (dataset.official_split is not None)
    if "train=" in stated.get("official_split", ""):
        counts = np.bincount(dataset.official_split).tolist()
        assert stated["official_split"] == f"train={counts[0]}, test={counts[1]}"


@pytest.mark.parametrize(
    ("name", "key"), [("bbs_2003_2009", "group"), ("ebird_june2019_8000", "cell_index")]
)
def test_groups_are_read(real, name, key):
    with np.load(real / entries()[name].file) as arrays:
        assert np.array_equal(load_dataset(name, download=False).groups, arrays[key])


def test_changed_feature_is_warned_of(data_folder, folders):
    with np.load(data_folder / entries()["scene"].file) as arrays:
        X = arrays["X"].copy()
    X[0, 0] += 1
    put_copy(data_folder, folders[0], "scene", X=X)
    with pytest.warns(UserWarning, match="results may not be comparable") as caught:
        dataset = load_dataset("scene", download=False)
    assert dataset.X[0, 0] == X[0, 0]
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_changed_labels_and_a_missing_row_are_rejected(data_folder, folders):
    with np.load(data_folder / entries()["scene"].file) as arrays:
        fewer = {key: arrays[key][:-1] for key in ("X", "Y", "official_split")}
    fewer["Y"][0] = 1
    put_copy(data_folder, folders[0], "scene", **fewer)
    with (
        pytest.warns(UserWarning, match="checksum differs"),
        pytest.raises(InputError, match="2,406 samples where the catalog says 2,407") as error,
    ):
        load_dataset("scene", download=False)
    assert "labels per row where the catalog says 1.073951" in str(error.value)
    assert "features where" not in str(error.value)
    assert str(error.value).count(". ") == 0


@pytest.mark.slow
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


def test_embedded_yeast_equals_the_archive(data_folder):
    package = resources.files("cgmvae.data") / "embedded" / "yeast.npz"
    with (
        np.load(data_folder / "yeast" / "yeast.npz") as arrays,
        np.load(Path(str(package))) as embedded,
    ):
        assert sorted(embedded.files) == sorted(arrays.files)
        assert all(np.array_equal(embedded[key], arrays[key]) for key in arrays.files)


def test_embedded_yeast_has_mulans_split_and_names():
    yeast = load_dataset("yeast")
    assert yeast.official_split.tolist() == [0] * 1500 + [1] * 917
    assert yeast.label_names == tuple(f"Class{i}" for i in range(1, 15))
    assert yeast.feature_names == tuple(f"Att{i}" for i in range(1, 104))
    assert yeast.name == "yeast"


def test_tool_makes_the_embedded_file_again(tmp_path, monkeypatch, capsys):
    """From a table in another order, with the embedded file itself giving the order."""
    tool = Path(__file__).parents[2] / "tools" / "embed_yeast.py"
    embedded = Path(str(resources.files("cgmvae.data") / "embedded" / "yeast.npz"))
    yeast = load_dataset("yeast")
    table, output = tmp_path / "yeast.csv.gz", tmp_path / "yeast.npz"
    order = np.random.default_rng(0).permutation(yeast.n_samples)
    readers.write(yeast.rows(order), table)
    arguments = ["--order-from", embedded, "--table", table, "--output", output]
    monkeypatch.setattr(sys, "argv", [str(tool), *map(str, arguments)])
    runpy.run_path(str(tool), run_name="__main__")
    assert "2,417 rows" in capsys.readouterr().out
    made = readers.read(output)
    assert np.array_equal(made.X, yeast.X)
    assert np.array_equal(made.Y, yeast.Y)
    assert np.array_equal(made.official_split, yeast.official_split)
