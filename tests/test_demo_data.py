"""Data sets of the main job: samples of any dtype, labels of any type, and files that are refused."""

import numpy as np
import pytest
from conftest import SMALL

from hforest import demo
from hforest.__main__ import main


def test_own_data(tmp_path, capsys):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 255, (200, 4, 4), np.uint8)
    y = (x.reshape(200, -1)[:, 0] > 127).astype(np.uint8)
    path = tmp_path / "own.npz"
    np.savez(path, x=x, y=y)
    assert main([*SMALL, "--data", str(path), "--train", "150", "--kind", "tree"]) == 0
    assert "150 training and 50 test samples, 16 inputs, 2 classes" in capsys.readouterr().out


ONES, LABELS = np.ones((9, 2)), np.ones(9, int)
FIVE = ["--train", "5"]


def parts(y_train, y_test, x_test=ONES):
    return {"x_train": ONES, "y_train": y_train, "x_test": x_test, "y_test": y_test}


@pytest.mark.parametrize(
    ("content", "options", "words"),
    [
        ({"x": ONES, "y": LABELS}, [], "--train N"),
        ({"x": ONES, "y": LABELS}, ["--train", "9"], "0 < n_train < 9"),
        ({"x": ONES, "y": LABELS}, ["--train", "0"], "0 < n_train < 9"),
        ({"x": ONES, "y": LABELS[:8]}, FIVE, "data.npz, y: expected shape (n_samples,) = (9,), got (8,)"),
        ({"x": ONES[:, 0], "y": LABELS}, FIVE, "data.npz, x: expected shape (n_samples, ...)"),
        ({"x": ONES, "y": LABELS / 2}, FIVE, "labels that are whole numbers, got 0.5"),
        ({"x": ONES, "y": LABELS * np.nan}, FIVE, "labels that are whole numbers, got nan"),
        ({"x": ONES, "y": LABELS.astype(complex)}, FIVE, "or text, got complex128"),
        ({"x": ONES, "y": np.array([*"aaaaaabca"])}, FIVE, "got 'b', 'c' only in y_test"),
        ({"x": ONES, "y": np.arange(9)}, ["--train", "2"], "got 2, 3, 4, 5, 6, ... only in y_test"),
        ({"x": ONES * np.nan, "y": LABELS}, FIVE, "x: expected finite numbers, got nan at index (0, 0)"),
        ({"x": ONES * 1e39, "y": LABELS}, FIVE, "in the range of float32, got larger"),
        ({"x": np.full((9, 2), "a"), "y": LABELS}, FIVE, "array of real numbers"),
        (parts(np.ones(9), np.full(9, "1")), [], "one kind in y_train and y_test, got float64 and <U1"),
        (parts(LABELS.astype(np.uint64), LABELS), [], "got uint64 and int64"),
        (parts(np.ones(9), np.ones(9), np.ones((9, 3))), [], "got 3 and 2"),
        ({"images": np.ones(3)}, [], "got images"),
        (None, [], "no such file"),
    ],
)
def test_bad_data(tmp_path, capsys, content, options, words):
    path = tmp_path / "data.npz"
    if content is not None:
        np.savez(path, **content)
    assert main([*SMALL, "--kind", "tree", "--data", str(path), *options]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    "classes",
    [
        np.array(["ant", "bee", "cat"]),
        np.array([b"ant", b"bee", b"cat"]),
        np.array([-5, 0, 700], np.int16),
        np.array([3, 2**40, 2**63], np.uint64),
        np.array([-1.0, 2.0, 9.0], np.float16),
        np.array([1, 2, 3], ">i4"),
        np.array([False, True]),
        np.array([7]),
    ],
    ids=lambda classes: f"{classes.dtype.str}x{len(classes)}",
)
def test_labels_of_any_kind(tmp_path, capsys, classes):
    rng = np.random.default_rng(0)
    code = rng.permutation(np.arange(120) % len(classes))
    x = np.eye(len(classes))[code] + rng.normal(scale=0.1, size=(120, len(classes)))
    path, model = tmp_path / "data.npz", tmp_path / "model.npz"
    np.savez(path, x=np.asfortranarray(x), y=classes[code])
    data = demo.load_data(path, n_train=90)
    assert data.y_train.tolist() == code[:90].tolist()
    assert data.y_test.tolist() == code[90:].tolist()
    assert data.classes.dtype == classes.dtype.newbyteorder("=")
    assert data.classes.tolist() == classes.tolist()
    assert data.n_classes == len(classes)
    assert data.x_train.flags.c_contiguous
    run = [*SMALL, "--steps", "400", "--kind", "tree"]
    options = [*run, "--data", str(path), "--train", "90", "--save", str(model)]
    assert main(options) == 0
    saved = demo.load_checkpoint(model)
    assert saved.classes.tolist() == classes.tolist()
    scores = demo.predict(saved.config, saved.state, data.x_test)
    assert (saved.classes[scores.argmax(axis=1)] == classes[code[90:]]).mean() > 0.9
    assert main([*options, "--resume"]) == 0
    assert "already complete, 400 steps are done" in capsys.readouterr().out


def test_labels_of_two_files_parts_may_have_two_integer_dtypes(tmp_path):
    path = tmp_path / "data.npz"
    x, y = np.ones((4, 2)), np.array([5, 3, 5, 9])
    np.savez(path, x_train=x, y_train=y.astype(np.uint8), x_test=x, y_test=y[::-1].astype(np.int32))
    data = demo.load_data(path)
    assert data.y_train.tolist() == [1, 0, 1, 2]
    assert data.y_test.tolist() == [2, 1, 0, 1]
    assert data.classes.tolist() == [3, 5, 9]


@pytest.mark.parametrize(
    "dtype", [np.bool_, np.uint8, np.int64, np.float16, np.float64, np.longdouble, ">f4"]
)
def test_samples_of_any_dtype(tmp_path, dtype):
    x = np.arange(24).reshape(4, 2, 3).astype(dtype)
    np.savez(tmp_path / "data.npz", x=x.transpose(0, 2, 1), y=np.arange(4) % 2)
    data = demo.load_data(tmp_path / "data.npz", n_train=3)
    assert data.x_train.dtype == np.float32
    assert np.array_equal(data.x_train, x.transpose(0, 2, 1).reshape(4, 6)[:3].astype(np.float32))
