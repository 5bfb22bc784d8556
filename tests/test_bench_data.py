"""bench/data.py on small files in the formats of the publishers, and on the data sets if present."""

import bz2
import gzip
import itertools
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import DATA

shared = pytest.mark.skipif(not (DATA / "letter.npz").is_file(), reason="data sets are not in ../shared/data")
X, Y = ["x"], ["y"]
SPLIT = ["x_train", "y_train", "x_test", "y_test"]


@pytest.fixture
def data(script):
    return script("data")


# set: texts of the files, arrays, the first array's dtype
FORMS = {
    "letter": (["T,2,8\nI,5,12\n"], {"x": [[2, 8], [5, 12]], "y": [19, 8]}, "uint8"),
    "usps": (
        ["6.0000 -1.0000 0.1480 \n5 0.5 1\n", "9 -0.631 0\n"],
        {"x_train": [[-1, 0.148], [0.5, 1]], "y_train": [6, 5], "x_test": [[-0.631, 0]], "y_test": [9]},
        "float32",
    ),
    "abalone": (["M,0.455,15\nI,0.33,7\n\n"], {"x": [[0, 0.455], [2, 0.33]], "y": [15, 7]}, "float32"),
    "madelon": (
        ["485 477 \n483 458 \n", "-1\n1\n", "483 454 \n", "1\n"],
        {"x_train": [[485, 477], [483, 458]], "y_train": [0, 1], "x_test": [[483, 454]], "y_test": [1]},
        "int16",
    ),
    "poker_train_only": (["1,10,9\n2,11,0\n"], {"x": [[1, 10], [2, 11]], "y": [9, 0]}, "uint8"),
    "iris": (
        ["5.1,3.5,Iris-setosa\n7.0,3.2,Iris-virginica\n\n"],
        {"x": [[5.1, 3.5], [7, 3.2]], "y": [0, 2]},
        "float32",
    ),
    "yeast": (
        ["ADT1_YEAST  0.58  0.61  MIT\nERP5_YEAST  0.43  0.67  ERL\n"],
        {"x": [[0.58, 0.61], [0.43, 0.67]], "y": [2, 9]},
        "float32",
    ),
    "optdigits": (
        ["0,1,6,0\n0,0,10,7\n", "3,4,1\n"],
        {"x_train": [[0, 1, 6], [0, 0, 10]], "y_train": [0, 7], "x_test": [[3, 4]], "y_test": [1]},
        "uint8",
    ),
    "isolet": (
        ["-0.4394, -0.0930, 1.\n", "1.0000, 0.5, 26.\n"],
        {"x_train": [[-0.4394, -0.093]], "y_train": [0], "x_test": [[1, 0.5]], "y_test": [25]},
        "float32",
    ),
    "shuttle": (
        ["50 21 -77 2\n", "55 0 81 7\n"],
        {"x_train": [[50, 21, -77]], "y_train": [1], "x_test": [[55, 0, 81]], "y_test": [6]},
        "int16",
    ),
    "satimage": (
        ["92 115 120 3\n84 102 106 7 \n", "80 102 102 1\n"],
        {"x_train": [[92, 115, 120], [84, 102, 106]], "y_train": [2, 5], "x_test": [[80, 102, 102]], "y_test": [0]},
        "uint8",
    ),
    "pendigits": (
        [" 47,100, 27, 8\n  0, 89, 27, 2\n", " 88, 92,  2, 9\n"],
        {"x_train": [[47, 100, 27], [0, 89, 27]], "y_train": [8, 2], "x_test": [[88, 92, 2]], "y_test": [9]},
        "uint8",
    ),
    "covertype": (["2596,51,0,1,5\n7300,-56,1,0,1\n"], {"x": [[2596, 51, 0, 1], [7300, -56, 1, 0]], "y": [4, 0]}, "int16"),
    "nursery": (
        ["usual,proper,complete,1,convenient,convenient,nonprob,recommended,recommend\n"
         "great_pret,very_crit,foster,more,critical,inconv,problematic,not_recom,not_recom\n"],
        {"x": [[0] * 8, [2, 4, 3, 3, 2, 1, 2, 2]], "y": [1, 0]},
        "uint8",
    ),
    "tabular/dna": (["a\ttarget\tb c\n1\t3\t2\n4\t1\t5.0\n"], {"x": [[1, 2], [4, 5]], "y": [1, 0], "names": ["a", "b c"]}, "int16"),
    "tabular/pol": (["a\ttarget\n1\t3.5\n40000\t1\n"], {"x": [[1], [40000]], "y": [3.5, 1], "names": ["a"]}, "float32"),
}  # fmt: skip


def made(data, name, texts, folder, pack=None):
    for file, content in zip(data.SOURCES[name].files, texts, strict=True):
        raw = content.encode() if isinstance(content, str) else content
        ending, packed = pack or ("", bytes)
        (folder / f"{file}{ending}").write_bytes(packed(raw))
    return data.SOURCES[name].make(*(folder / file for file in data.SOURCES[name].files))


@pytest.mark.parametrize(
    "pack", [None, (".gz", gzip.compress), (".bz2", bz2.compress)], ids=["", "gz", "bz2"]
)
@pytest.mark.parametrize("name", FORMS)
def test_text_files(data, name, pack, tmp_path):
    texts, expected, dtype = FORMS[name]
    arrays = made(data, name, texts, tmp_path, pack)
    assert arrays.keys() == expected.keys()
    for key, a in arrays.items():
        assert np.array_equal(a, np.array(expected[key], a.dtype)), key
    assert {str(a.dtype) for key, a in arrays.items() if key.startswith("x")} == {dtype}


def test_adult(data, tmp_path):
    row = "39, State-gov, 77516, Bachelors, 13, Never-married, ?, Husband, Other, Male, 2174, 0, 40, Hong"
    arrays = made(data, "adult", [f"{row}, <=50K\n\n", f"|1x3 Cross validator\n{row}, >50K.\n"], tmp_path)
    expected = [39, 5, 77516, 0, 13, 2, -1, 2, 3, 1, 2174, 0, 40, 39]
    assert arrays["x_train"].tolist() == arrays["x_test"].tolist() == [expected]
    assert (arrays["y_train"].tolist(), arrays["y_test"].tolist()) == ([0], [1])
    assert arrays["n_levels"].tolist() == [8, 16, 7, 14, 6, 5, 2, 41]


def test_connect4(data, tmp_path):
    arrays = made(data, "connect4", ["x,o," + "b," * 40 + "draw\n"], tmp_path)
    assert arrays["x"][0, :9].tolist() == [1, 0, 0, 0, 0, 1, 0, 1, 0]
    assert (arrays["x"].shape, arrays["y"].tolist()) == ((1, 126), [1])


@pytest.mark.parametrize(
    ("name", "n_features", "labels"),
    [("ijcnn1", 22, "-1 +1"), ("protein", 357, "0 1"), ("sensit", 100, "1 2.0")],
)
def test_index_and_value(data, tmp_path, name, n_features, labels):
    low, high = labels.split()
    texts = [f"{low} 2:0.5 {n_features}: -.25 \n{high} 1:0.25\n", f"{high} 3:1\n"]
    arrays = made(data, name, texts, tmp_path)
    expected = np.zeros((2, n_features), np.float32)
    expected[0, [1, -1]], expected[1, 0] = (0.5, -0.25), 0.25
    assert np.array_equal(arrays["x_train"], expected)
    assert (arrays["y_train"].tolist(), arrays["y_test"].tolist()) == ([0, 1], [1])
    assert arrays["x_test"].shape == (1, n_features)


@pytest.mark.parametrize(
    ("name", "n_features", "first"), [("satimage", 36, 1), ("pendigits", 16, 0), ("covertype", 54, 1)]
)
def test_files_of_libsvm_where_the_publishers_are_missing(
    data, tmp_path, monkeypatch, capsys, name, n_features, first
):
    own, other = data.recipes(name)
    for number, file in enumerate(other.files):
        text = f"{first} 2:0.5 {n_features}:-.25\n{first + 1 + number} 1:0.25\n"
        (tmp_path / f"{file}.bz2").write_bytes(bz2.compress(text.encode()))
    monkeypatch.setattr(sys, "argv", ["data", "--from", str(tmp_path), "--to", str(tmp_path), "--only", name])
    assert data.main() == 0
    assert f"{name}: written" in capsys.readouterr().out
    with np.load(tmp_path / f"{name}.npz") as found:
        ends = ("_train", "_test") if len(own.files) == 2 else ("",)
        for number, end in enumerate(ends):
            assert found[f"x{end}"][0, [1, n_features - 1]].tolist() == [0.5, -0.25]
            assert found[f"x{end}"].shape == (2, n_features)
            assert found[f"y{end}"].tolist() == [0, 1 + number]
    for file in own.files:
        assert file not in [a.name for a in tmp_path.iterdir()]


def test_mnist(data, tmp_path):
    images = struct.pack(">4i", 0x803, 2, 2, 3) + bytes(range(12))
    labels = struct.pack(">2i", 0x801, 2) + bytes([7, 1])
    arrays = made(data, "mnist", [images, labels] * 2, tmp_path, (".gz", gzip.compress))
    assert arrays["x_test"].tolist() == [list(range(6)), list(range(6, 12))]
    assert arrays["y_train"].tolist() == [7, 1]
    with pytest.raises(ValueError, match="expected bytes"):
        made(data, "mnist", [struct.pack(">2i", 0xD01, 0)] * 4, tmp_path)


def test_g50c(data, tmp_path):
    from scipy.io import savemat

    savemat(
        tmp_path / "g50c.mat",
        {"X": [[0.1, 2.0], [3.0, 4.0]], "y": [[1], [-1]], "idxLabs": [[2]], "idxUnls": [[1]]},
    )
    arrays = data.SOURCES["g50c"].make(tmp_path / "g50c.mat")
    assert arrays["x"].tolist() == [[0.1, 2.0], [3.0, 4.0]]
    assert [arrays[key].tolist() for key in ("y", "train_idx", "test_idx")] == [[1, 0], [[1]], [[0]]]


def test_camvid(data, tmp_path):
    pyplot = pytest.importorskip("matplotlib.image")
    folders = [tmp_path / name for name in data.SOURCES["camvid"].files]
    image, labels = np.zeros((3, 6, 3), np.uint8), np.full((3, 6), 11, np.uint8)
    image[:, 3:], labels[:2, :3] = 90, 4
    image[0, 0] = 9, 90, 0
    for folder in folders:
        folder.mkdir()
        a = np.stack([labels] * 3, axis=-1) if folder.name.endswith("annot") else image
        pyplot.imsave(folder / "b.png", a)
    arrays = data.SOURCES["camvid"].make(*folders)
    assert arrays["x_val"].tolist() == [[[[1, 10, 0], [90, 90, 90]]]]
    assert arrays["y_test"].tolist() == [[[4, 11]]]


def run(data, monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["data.py", *map(str, words)])
    return data.main()


def test_sets_are_written_compared_and_left_out(data, monkeypatch, tmp_path, capsys):
    source, target = tmp_path / "files", tmp_path / "npz"
    source.mkdir()
    arrays = made(data, "iris", FORMS["iris"][0], source)
    made(data, "tabular/dna", FORMS["tabular/dna"][0], source)
    monkeypatch.setattr(data, "SHA256", {"iris": data.checksum(arrays)})
    only = ("--only", "iris", "letter", "tabular/dna")
    assert run(data, monkeypatch, "--from", source, "--to", target, *only) == 0
    said = capsys.readouterr().out
    assert "letter: left out, as letter-recognition.data is not in" in said
    with np.load(target / "iris.npz") as file:
        assert data.checksum(dict(file)) == data.checksum(arrays)
    assert (target / "tabular" / "dna.npz").is_file()
    monkeypatch.setattr(data, "SHA256", {"iris": "0"})
    assert run(data, monkeypatch, "--from", source, "--to", target, *only) == 1
    assert "iris: its sha256 is another" in capsys.readouterr().out


def test_the_list_names_files_and_checksums(data, script, monkeypatch, capsys):
    assert run(data, monkeypatch, "--list") == 0
    listed = capsys.readouterr().out.splitlines()
    assert sum(": " in line for line in listed) == len(data.SOURCES) == 55
    assert sum("sha256" in line for line in listed) == 49
    assert "letter: letter-recognition.data" in listed
    assert data.SHA256.keys() == data.SOURCES.keys() - {"camvid", *script("co2_table1").NOT_HERE}


def test_every_file_that_a_script_reads_is_made(data, script):
    tables = script("tabular_data")
    named = {Path(name).name for name in data.SOURCES}
    assert {*tables.CHOOSE, *tables.JUDGE, *tables.PUBLIC} <= named
    assert {*script("co2_data").CODING, "g50c", "iris", "mnist", "camvid"} <= named


# ------------------------------------------------------------------------------- the data sets themselves


@shared
@pytest.mark.parametrize(
    "name", ["letter", "iris", "adult", "g50c", "abalone", "connect4", "nursery", "yeast"]
)
def test_checksums_are_those_of_the_arrays(data, name):
    with np.load(DATA / f"{name}.npz") as file:
        assert data.checksum(dict(file)) == data.SHA256[name]


@shared
def test_adult_of_its_files(data, tmp_path):
    """The publisher's text yields every value of the arrays."""
    for part, name in (("train", "adult.data"), ("test", "adult.test")):
        (tmp_path / f"{name}.gz").write_bytes((DATA / "csv" / f"adult-{part}.csv.gz").read_bytes())
    arrays = data.SOURCES["adult"].make(tmp_path / "adult.data", tmp_path / "adult.test")
    assert data.checksum(arrays) == data.SHA256["adult"]


@shared
def test_nursery_is_every_combination_in_order(data, tmp_path):
    """The publisher's file holds all combinations in the order of its description."""
    with np.load(DATA / "nursery.npz") as file:
        y = file["y"]
    classes = ("not_recom", "recommend", "very_recom", "priority", "spec_prior")
    rows = itertools.product(*(order.split() for order in data.NURSERY))
    text = "\n".join(",".join([*row, classes[label]]) for row, label in zip(rows, y, strict=True))
    assert data.checksum(made(data, "nursery", [text], tmp_path)) == data.SHA256["nursery"]


@shared
def test_mnist_of_its_files(data, tmp_path):
    with np.load(DATA / "mnist.npz") as file:
        arrays = dict(file)
    raw = []
    for part in ("train", "test"):
        x, y = arrays[f"x_{part}"], arrays[f"y_{part}"]
        raw += [
            struct.pack(">4i", 0x803, len(x), 28, 28) + x.tobytes(),
            struct.pack(">2i", 0x801, len(y)) + y.tobytes(),
        ]
    assert data.checksum(made(data, "mnist", raw, tmp_path)) == data.SHA256["mnist"]


@shared
@pytest.mark.parametrize(
    "name", ["letter", "usps", "abalone", "iris", "yeast", "isolet", "shuttle", "optdigits"]
)
def test_first_rows_as_text_give_the_same_values(data, name, tmp_path):
    """Values and classes of the arrays equal those in the format of the publisher."""
    n = 40
    with np.load(DATA / f"{name}.npz") as file:
        arrays = {key: file[key][:n] for key in file}
    letters = data.LETTERS
    label = {
        "letter": letters.__getitem__, "iris": data.IRIS.__getitem__, "yeast": data.YEAST.__getitem__,
        "isolet": lambda y: f"{y + 1}.", "shuttle": lambda y: str(y + 1),
    }.get(name, str)  # fmt: skip
    separator = {"usps": " ", "yeast": "  ", "shuttle": " "}.get(name, ",")
    texts = []
    for end in ("_train", "_test") if "x_train" in arrays else ("",):
        rows = [[str(v) for v in row] for row in arrays[f"x{end}"]]
        labels = [label(int(y)) for y in arrays[f"y{end}"]]
        for row, y in zip(rows, labels, strict=True):
            if name == "abalone":
                row[0] = "MFI"[int(float(row[0]))]
            row.insert(0 if name in ("letter", "usps") else len(row), y)
            if name == "yeast":
                row.insert(0, "AAA_YEAST")
        texts.append("\n".join(separator.join(row) for row in rows) + "\n")
    again = made(data, name, texts, tmp_path)
    assert data.checksum(again) == data.checksum(arrays)
