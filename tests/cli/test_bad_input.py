"""Bad input through the real command: one line that names the fault, exit code 2, no file changed.

Each case below makes its files in an empty folder and gives what to write after
``cgmvae data describe``, with words that the answer must hold.
"""

import bz2
import errno
import gzip
import os
import re
import struct
import zipfile
from functools import partial

import numpy as np
import pytest

HEADER = "@relation toy\n@attribute a numeric\n@attribute owl {0,1}\n"
X, Y = np.ones((3, 2), np.float32), np.eye(3, 2, dtype=np.uint8)

CASES = {}


def case(*words):
    def register(make):
        CASES[make.__name__] = (make, words)
        return make

    return register


def arff(folder, rows, header=HEADER, labels=("--label", "owl")):
    (folder / "toy.arff").write_text(f"{header}@data\n{rows}")
    return ("toy.arff", *labels)


def npz(folder, **arrays):
    np.savez(folder / "toy.npz", **{"X": X, "Y": Y, **arrays})
    return ("toy.npz",)


def table(folder, text, *options):
    (folder / "toy.csv").write_text(text)
    return ("toy.csv", *options)


def svm(folder, text, *options):
    (folder / "toy.svm").write_text(text)
    return ("toy.svm", *options)


# --- Files that are not there, or not files ---


@case("birds.arff", "does not exist")
def missing_file(folder):
    return ("birds.arff",)


@case("no/birds.npz", "does not exist")
def missing_folder(folder):
    return ("no/birds.npz",)


@case("toy.npz/birds.npz", "toy.npz")
def file_as_folder(folder):
    return (f"{npz(folder)[0]}/birds.npz",)


@case("birds", "is a folder")
def folder_by_word(folder):
    (folder / "birds").mkdir()
    return ("birds",)


@case("birds", "is a folder")
def folder_by_path(folder):
    (folder / "birds").mkdir()
    return (f".{os.sep}birds",)


@case("birds.npz", "is a folder")
def folder_with_suffix(folder):
    (folder / "birds.npz").mkdir()
    return ("birds.npz",)


@case("cannot be read", "too long")
def too_long_name(folder):
    return ("a" * 300,)


@case("birds.xlsx", "format", "arff, npz, svmlight, csv, parquet")
def unknown_suffix(folder):
    (folder / "birds.xlsx").write_bytes(b"PK")
    return ("birds.xlsx",)


@case("no format 'excel'", "arff, npz")
def unknown_format(folder):
    return (*npz(folder), "--format", "excel")


@case("no data set 'yaest'", "did you mean yeast")
def unknown_name(folder):
    return ("yaest",)


@case("is a folder")
def empty_name(folder):
    return ("",)


@case("'ebird' is not on this machine", "ebird", "CGMVAE_DATA")
def known_name_without_file(folder):
    return ("ebird",)


# --- Files that are damaged or lie ---


def empty(folder, suffix):
    (folder / f"birds{suffix}").touch()
    return (f"birds{suffix}",)


for _suffix in (".arff", ".arff.gz", ".npz", ".svm", ".csv", ".parquet", ".npy"):
    CASES[f"empty{_suffix}"] = (partial(empty, suffix=_suffix), [f"birds{_suffix} is empty"])


@case("toy.arff, line 6", "must have 2 values")
def truncated_arff_row(folder):
    return arff(folder, "1,0\n2")


@case("toy.arff", "must have 2 values")
def truncated_sparse_row(folder):
    return arff(folder, "{0 1,1 1}\n{0 1,")


@case("toy.arff", "@data")
def truncated_arff_header(folder):
    (folder / "toy.arff").write_text(HEADER)
    return ("toy.arff", "--label", "owl")


@case("toy.arff", "no rows")
def arff_without_rows(folder):
    return arff(folder, "")


@case("toy.arff.gz is damaged", "ended before")
def truncated_gzip(folder):
    rows = "".join(f"{i},1\n" for i in range(5000))
    packed = gzip.compress(f"{HEADER}@data\n{rows}".encode())
    (folder / "toy.arff.gz").write_bytes(packed[: len(packed) // 2])
    return ("toy.arff.gz", "--label", "owl")


@case("toy.csv.bz2 is damaged")
def not_bzip2(folder):
    (folder / "toy.csv.bz2").write_bytes(b"x,owl\n1,0\n")
    return ("toy.csv.bz2", "--label", "owl")


@case("toy.npz", "damaged or incomplete archive")
def truncated_npz(folder):
    path = folder / npz(folder)[0]
    path.write_bytes(path.read_bytes()[:-40])
    return ("toy.npz",)


@case("toy.parquet", "not a readable Parquet file")
def not_parquet(folder):
    (folder / "toy.parquet").write_bytes(b"PAR1 and no more")
    return ("toy.parquet", "--label", "owl")


@case("toy.svm.gz is damaged")
def gzip_that_lies(folder):
    packed = bytearray(gzip.compress(b"0 1:1\n#" + bytes(2**20), 1))
    packed[-4:] = struct.pack("<I", 100)
    (folder / "toy.svm.gz").write_bytes(packed)
    return ("toy.svm.gz",)


@case("'X'", "states 72 bytes and holds 24")
def npz_that_lies(folder):
    np.save(folder / "X.npy", X)
    content = (folder / "X.npy").read_bytes().replace(b"(3, 2)", b"(9, 2)")
    npz(folder)
    with zipfile.ZipFile(folder / "toy.npz") as archive:
        labels = archive.read("Y.npy")
    with zipfile.ZipFile(folder / "toy.npz", "w") as archive:
        archive.writestr("X.npy", content)
        archive.writestr("Y.npy", labels)
    return ("toy.npz",)


@case("Python objects", "never loaded")
def npz_of_objects(folder):
    return npz(folder, X=np.array([[{}]], dtype=object))


@case("toy.npz has no array 'Y'")
def npz_without_labels(folder):
    np.savez(folder / "toy.npz", X=X)
    return ("toy.npz",)


def not_utf8(folder, name, content, *options):
    (folder / name).write_bytes(content.encode("latin-1"))
    return (name, *options)


for _arguments in (
    ("toy.arff", f"{HEADER}@attribute café numeric\n@data\n1,0,1\n", "--label", "owl"),
    ("toy.csv", "café,owl\n1,0\n", "--label", "owl"),
):
    CASES[f"not_utf8_{_arguments[0]}"] = (
        lambda folder, arguments=_arguments: not_utf8(folder, *arguments),
        [_arguments[0], "not UTF-8", "0xe9"],
    )


# --- Tables that do not fit ---


@case("label count of 99", "2 attributes")
def too_many_labels_in_arff(folder):
    return arff(folder, "1,0\n", labels=("--label-count", "99"))


@case("label count of 99", "2 attributes")
def too_many_labels_in_relation(folder):
    header = HEADER.replace("toy", "'toy: -C 99'")
    return arff(folder, "1,0\n", header=header, labels=())


@case("99", "2 columns")
def too_many_labels_in_table(folder):
    return table(folder, "x,owl\n1,0\n", "--label-count", "99")


@case("99 labels", "5 columns", "toy.npy")
def too_many_labels_in_matrix(folder):
    np.save(folder / "toy.npy", np.zeros((3, 5)))
    return ("toy.npy", "--n-labels", "99")


@case("label 7", "out of range for 2 labels")
def too_few_labels_in_svmlight(folder):
    return svm(folder, "1,7 1:1\n", "--n-labels", "2")


@case("3 label names for 2 label columns")
def wrong_number_of_names(folder):
    return npz(folder, label_names=np.array(["a", "b", "c"]))


@case("features have 3 rows and the labels 2")
def mismatched_rows(folder):
    return npz(folder, Y=Y[:2])


@case("'groups'", "one value per row (3 rows)")
def mismatched_groups(folder):
    return npz(folder, group=np.arange(2))


@case("Row 3", "3 cells", "header 2")
def ragged_table(folder):
    return table(folder, "x,owl\n1,0\n1,0,5\n", "--label", "owl")


@case("'owl' names more than one column")
def repeated_column(folder):
    return table(folder, "x,owl,owl\n1,0,1\n", "--label", "owl")


@case("'a'", "toy.arff", "line 4")
def repeated_attribute(folder):
    return arff(folder, "1,0,1\n", header=HEADER + "@attribute a numeric\n")


@case("label name 'owl' appears more than once")
def repeated_label(folder):
    return npz(folder, label_names=np.array(["owl", "owl"]))


# --- Cells that are no labels or no features ---


@case("0, 1 or unknown", "one is 2")
def count_in_npz(folder):
    return npz(folder, Y=Y * 2)


@case("0, 1 or unknown", "-1")
def minus_one_in_npz(folder):
    return npz(folder, Y=Y.astype(np.int8) - 1)


@case("toy.arff, line 6", "'owl'", "is 3")
def count_in_arff(folder):
    return arff(folder, "1,0\n1,3\n", header=HEADER.replace("{0,1}", "numeric"))


@case("2 is not a value of 'owl'")
def undeclared_value_in_arff(folder):
    return arff(folder, "1,2\n")


@case("label column 'owl' holds 3", "give --counts presence to")
def count_in_table(folder):
    return table(folder, "x,owl\n1,3\n", "--label", "owl")


@case("label column 'owl' holds 'maybe'")
def word_in_table(folder):
    return table(folder, "x,owl\n1,maybe\n", "--label", "owl")


@case("label column 'owl' has blank cells", "--blank-labels absent or --blank-labels unknown")
def blank_in_table(folder):
    return table(folder, "x,owl\n1,\n", "--label", "owl")


@case("label column 'seen' has blank cells", "--blank-labels absent or --blank-labels unknown")
def blank_label_set(folder):
    return table(folder, "x,seen\n1,owl\n2,\n", "--label-sets", "seen")


@case("A column has no name", "--drop '')")
def column_without_a_name(folder):
    return table(folder, "x,,owl\n1,2,0\n", "--label", "owl")


@case("Label column 1", "holds 4 in row 2")
def count_in_matrix(folder):
    np.save(folder / "toy.npy", np.array([[0, 1, 5], [1, 0, 5], [1, 4, 5]]))
    return ("toy.npy", "--n-labels", "2")


@case("could not convert string to float")
def word_in_svmlight(folder):
    return svm(folder, "owl 1:1\n")


@case("1 infinite values")
def infinity_in_npz(folder):
    return npz(folder, X=np.array([[1, 2], [np.inf, 0], [0, 0]]))


@case("'a'", "line 5", "does not fit 32 bits")
def infinity_in_arff(folder):
    return arff(folder, "1e999,0\n")


@case("feature column 'x'", "infinite")
def infinity_in_table(folder):
    return table(folder, "x,owl\ninf,0\n", "--label", "owl")


@case("does not fit 32 bits")
def infinity_in_svmlight(folder):
    return svm(folder, "0 1:1e99\n")


@case("infinite values")
def infinity_in_matrix(folder):
    np.save(folder / "toy.npy", np.array([[0, 1, np.inf]]))
    return ("toy.npy", "--n-labels", "2")


@case("The column 'x' has a different value", "such as 'id0'", "--drop", "--category", "--text")
def names_as_feature(folder):
    rows = "".join(f"id{i},0\n" for i in range(9))
    return table(folder, f"x,owl\n{rows}", "--label", "owl")


@case("'x' holds numbers, but also 'deep'", "--drop", "--category")
def word_among_numbers(folder):
    rows = "".join(f"{i},0\n" for i in range(90))
    return table(folder, f"x,owl\n{rows}deep,1\n", "--label", "owl")


@case("'03/04/2024' in the column 'x' may begin with the day or the month", "2024-05-31")
def unclear_date(folder):
    return table(folder, "x,owl\n03/04/2024,0\n", "--label", "owl")


@case("'x' must hold dates, but 'soon' is not")
def word_as_date(folder):
    return table(folder, "x,owl\n2024-05-31,0\nsoon,1\n", "--label", "owl", "--date", "x")


@case("'owl' is given twice among the labels, groups, dropped columns and types")
def label_as_text(folder):
    return table(folder, "x,owl\n1,0\n", "--label", "owl", "--text", "owl")


@case("--category does not apply to npz files")
def category_for_npz(folder):
    return (*npz(folder), "--category", "x")


# --- Options that do not apply, or are missing ---


@case("--label-count does not apply to npz files")
def label_count_for_npz(folder):
    return (*npz(folder), "--label-count", "1")


@case("--label does not apply to svmlight files")
def label_for_svmlight(folder):
    return (*svm(folder, "0 1:1\n"), "--label", "owl")


@case("--counts does not apply to arff files")
def counts_for_arff(folder):
    return (*arff(folder, "1,0\n"), "--counts", "presence")


@case("--xml does not apply to csv files")
def xml_for_table(folder):
    return table(folder, "x,owl\n1,0\n", "--xml", "toy.xml")


@case("yeast is a data set of the catalog", "no reading options")
def option_for_catalog(folder):
    return ("yeast", "--label-count", "1")


@case("yeast is a data set of the catalog", "no reading options")
def format_for_catalog(folder):
    return ("yeast", "--format", "npz")


@case("--n-labels is needed for released files")
def matrix_without_option(folder):
    np.save(folder / "toy.npy", np.zeros((3, 5)))
    return ("toy.npy",)


@case("Name the label columns", "none was given")
def table_without_labels(folder):
    return table(folder, "x,owl\n1,0\n")


@case("which attributes are labels")
def arff_without_labels(folder):
    return arff(folder, "1,0\n", labels=())


@case("no column 'own'", "did you mean 'owl'")
def misspelt_column(folder):
    return table(folder, "x,owl\n1,0\n", "--label", "own")


@case("no array 'site'")
def unknown_groups(folder):
    return (*npz(folder), "--groups", "site")


@case("'sometimes'", "'absent' or 'unknown'")
def unknown_choice(folder):
    return table(folder, "x,owl\n1,0\n", "--label", "owl", "--blank-labels", "sometimes")


@case("toy.xml does not exist")
def missing_xml(folder):
    return arff(folder, "1,0\n", labels=("--xml", "toy.xml"))


# --- The tests ----------------------------------------------------------------------------------


def contents(folder):
    """Everything below a folder: names, and the bytes of files."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


def assert_names(sentence, words):
    assert re.search(r"[.?]$", sentence), sentence
    for word in words:
        assert word in sentence


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", CASES)
def test_bad_input(refused, folder, name):
    make, words = CASES[name]
    arguments = make(folder)
    (folder / "old.npz").write_bytes(b"as it was")
    before = contents(folder)
    assert_names(refused("data", "describe", *arguments), words)
    assert_names(refused("data", "describe", "--json", *arguments), words)
    for target in ("old.npz", "new.npz", "new.arff"):
        source, *options = arguments
        assert_names(refused("data", "convert", source, target, *options), words)
    assert contents(folder) == before


@pytest.mark.parametrize("name", ["missing_file", "truncated_gzip"])
def test_bad_input_in_a_process_of_its_own(script_refused, folder, name):
    make, words = CASES[name]
    arguments = make(folder)
    before = contents(folder)
    source, *options = arguments
    assert_names(script_refused("data", "convert", source, "new.npz", *options), words)
    assert contents(folder) == before


def test_packed_files_beyond_the_limit(refused, folder, monkeypatch):
    monkeypatch.setattr("cgmvae.data.files.UNPACKED_LIMIT", 2**20)
    (folder / "toy.svm.bz2").write_bytes(bz2.compress(b"0 1:1\n#" + bytes(3 * 2**20)))
    sentence = refused("data", "describe", "toy.svm.bz2")
    assert_names(sentence, ["toy.svm.bz2 unpacks to more than"])


BAD_TARGETS = {
    "new.xlsx": "format of new.xlsx is not clear",
    "new": "format of new is not clear",
    "new.npy": "'released' can only be read",
    "no/new.npz": "folder no does not exist",
    "there.npz": "there.npz is a folder",
    "new.npz.gz": "compressed already",
    "new.svm": "svmlight cannot hold unknown labels",
    "new.csv": "'both' would be given to two columns",
    "new.parquet": "'both' would be given to two columns",
    "new.arff": "'both' names a feature and a label",
}


@pytest.mark.parametrize("target", BAD_TARGETS)
def test_bad_target(refused, folder, target):
    names = np.array(["both", "other"])
    npz(folder, Y=Y + 254 * np.eye(3, 2, dtype=np.uint8), feature_names=names, label_names=names)
    (folder / "there.npz").mkdir()
    before = contents(folder)
    assert BAD_TARGETS[target] in refused("data", "convert", "toy.npz", target)
    assert contents(folder) == before


def test_unknown_target_format(refused, folder):
    npz(folder)
    before = contents(folder)
    sentence = refused("data", "convert", "toy.npz", "new.npz", "--target-format", "excel")
    assert "no format 'excel'" in sentence
    assert contents(folder) == before


@pytest.mark.parametrize("suffix", [".npz", ".arff", ".svm.gz", ".csv", ".parquet"])
@pytest.mark.parametrize("exists", [True, False])
def test_a_full_disk_leaves_everything_as_it_was(refused, folder, monkeypatch, suffix, exists):
    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    npz(folder)
    if exists:
        (folder / f"new{suffix}").write_bytes(b"as it was")
        (folder / "new.xml").write_bytes(b"as it was")
    before = contents(folder)
    monkeypatch.setattr(os, "fsync", full)
    sentence = refused("data", "convert", "toy.npz", f"new{suffix}")
    assert "No space left on device" in sentence
    assert contents(folder) == before
