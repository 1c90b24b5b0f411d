"""Bad data through the real command: one line that names the fault, exit code 2, no file changed.

What each reader rejects is tested with the reader. The cases here are the different ways to reach
the user: paths, names, options, damaged files, and messages that the command line completes.
"""

import gzip

import numpy as np
import pytest

from .conftest import contents

X, Y = np.ones((3, 2), np.float32), np.eye(3, 2, dtype=np.uint8)
CSV = "x,owl\n1,0\n2,1\n"

#: A source and its options, and what the message must contain.
CASES = {
    # Files that are missing, or are no files
    "missing file": (["birds.arff"], ["birds.arff", "does not exist"]),
    "file as folder": (["toy.npz/birds.npz"], ["toy.npz"]),
    "folder by name": (["birds"], ["birds", "is a folder"]),
    "empty name": ([""], ["is a folder"]),
    "long name": (["a" * 300], ["cannot be read", "too long"]),
    "unknown suffix": (["birds.ods"], ["birds.ods", "arff, npz, svmlight, csv", "(--format)"]),
    "unknown name": (["yaest"], ["no data set 'yaest'", "did you mean yeast"]),
    "data set not here": (["ebird"], ["'ebird'", "CGMVAE_DATA"]),
    # Damaged and hostile files
    "empty": (["empty.csv", "--label", "owl"], ["empty.csv is empty"]),
    "cut gzip": (["cut.arff.gz", "--label", "owl"], ["cut.arff.gz is damaged"]),
    "objects": (["objects.npz"], ["Python objects"]),
    "not UTF-8": (["latin.csv", "--label", "owl"], ["latin.csv", "not UTF-8", "--encoding cp1252"]),
    # Contents that need another option
    "counts": (["counts.csv", "--label", "owl"], ["'owl' holds 3", "--counts presence"]),
    "blank label": (["blank.csv", "--label", "owl"], ["'owl' has blank", "--blank-labels"]),
    "identifiers": (["ids.csv", "--label", "owl"], ["'x'", "'id0'", "--id x"]),
    # Options that are wrong, missing, or of another format
    "misspelt column": (["toy.csv", "--label", "own"], ["no column 'own'", "'owl'"]),
    "two ways to labels": (
        ["toy.csv", "--label", "owl", "--label-prefix", "o"],
        ["exactly one of --label, --label-prefix, --label-count, --label-sets, --long; 2 of them"],
    ),
    "comma": (["tags.csv", "--label-sets", "t"], ["give --separator ',', or --separator ';' if"]),
    "missing option": (["toy.npy"], ["--n-labels is required for released files"]),
    "option of others": (["toy.npz", "--label", "owl"], ["--label does not apply to npz files"]),
    "option for catalog": (["yeast", "--label-count", "1"], ["yeast", "no reading options"]),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("toy.npz", X=X, Y=Y)
    return tmp_path


@pytest.fixture
def bad_files(folder):
    arff = "@relation toy\n@attribute a numeric\n@attribute owl {0,1}\n@data\n" + "1,0\n" * 5000
    packed = gzip.compress(arff.encode())
    texts = {
        "toy.arff": arff,
        "toy.csv": CSV,
        "empty.csv": "",
        "counts.csv": "x,owl\n1,3\n",
        "tags.csv": "x,t\n" + '1,"owl, jay"\n2,owl\n' * 5,
        "blank.csv": "x,owl\n1,\n",
        "ids.csv": "x,owl\n" + "".join(f"id{i},0\n" for i in range(9)),
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    (folder / "birds").mkdir()
    (folder / "birds.ods").write_bytes(b"PK")
    (folder / "cut.arff.gz").write_bytes(packed[: len(packed) // 2])
    (folder / "latin.csv").write_bytes("café,owl\n1,0\n".encode("latin-1"))
    np.savez("objects.npz", X=np.array([[{}]], dtype=object), Y=Y)
    np.save("toy.npy", np.zeros((3, 5)))
    return folder


def test_a_table_whose_labels_nobody_named(refused, bad_files):
    sentence = refused("data", "convert", "toy.csv", "new.npz")
    assert sentence.endswith("its last column holds only 0 and 1: give --label-count -1.")
    (bad_files / "toy.csv").write_text("x,owl\n1,a\n2,a\n")
    sentence = refused("data", "convert", "toy.csv", "new.npz")
    assert sentence.endswith("(--label, --label-prefix, --label-count, --label-sets or --long).")


def test_bad_input(refused, bad_files):
    (bad_files / "old.npz").write_bytes(b"unchanged")
    before = contents(bad_files)
    for name, ((source, *options), words) in CASES.items():
        sentence = refused("data", "convert", source, "old.npz", "--overwrite", *options)
        assert sentence.endswith((".", "?")), name
        assert [word for word in words if word not in sentence] == [], f"{name}: {sentence}"
    assert contents(bad_files) == before


BAD_TARGETS = {
    "new.ods": "format of new.ods is not clear",
    "new.npy": "can only be read",
    "no/new.npz": "folder no does not exist",
    "there.npz": "there.npz is a folder",
    "new.svm": "svmlight cannot hold unknown labels",
    "new.csv": "'both'",
}


def test_bad_targets(refused, folder):
    names = np.array(["both", "other"])
    labels = Y + 254 * np.eye(3, 2, dtype=np.uint8)  # 255 is unknown
    np.savez("toy.npz", X=X, Y=labels, feature_names=names, label_names=names)
    (folder / "there.npz").mkdir()
    before = contents(folder)
    for target, words in BAD_TARGETS.items():
        assert words in refused("data", "convert", "toy.npz", target), target
    sentence = refused("data", "convert", "toy.npz", "new.npz", "--target-format", "excel")
    assert "no format 'excel'" in sentence
    assert contents(folder) == before
