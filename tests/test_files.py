"""Files of arrays: written completely or not at all; damage raises one kind of error in all loaders."""

import errno
import io
import os
import re
import signal
import stat
import subprocess
import sys
import threading
import time
import tracemalloc
import warnings
import zipfile
from functools import partial

import numpy as np
import pytest
from conftest import FOUR_PARTS, check_changed, check_damage, refused

import hforest
from hforest import _tables, cascade, demo, tabular, tree
from hforest.__main__ import main, parse
from hforest.core import files

posix = pytest.mark.skipif(os.name == "nt", reason="signals, named pipes, links and shells of POSIX")
ARRAYS = {"a": np.arange(12.0).reshape(3, 4), "b": np.array("word"), "c": np.zeros((0, 3), np.int32)}


def names(folder):
    return sorted(path.name for path in folder.iterdir())


# -------------------------------------------------------------------------------------------- writing


@pytest.fixture(params=[False, True], ids=["open", "closed"])
def each_way(request, monkeypatch):
    """Runs a test with files renamed while open, and closed before as on Windows."""
    monkeypatch.setattr(files, "CLOSES_FIRST", request.param or files.CLOSES_FIRST)


@pytest.mark.usefixtures("each_way")
def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "a.npz"
    arrays = {**ARRAYS, "f": np.asfortranarray(np.ones((3, 5), ">f4")), "t": np.array([b"x", b"yz"])}
    files.write_npz(path, arrays)
    got = files.read_npz(path, "a file")
    assert got.keys() == arrays.keys()
    for name, a in arrays.items():
        assert got[name].dtype == a.dtype
        np.testing.assert_array_equal(got[name], a)
    assert files.read_npz(path, "a file", ["b", "other"]).keys() == {"b"}
    assert names(tmp_path) == ["a.npz"]
    np.savez_compressed(path, **arrays)
    assert files.read_npz(path, "a file")["a"].tolist() == ARRAYS["a"].tolist()


@posix
def test_file_and_folder_are_forced_to_the_disk(tmp_path, monkeypatch):
    """Both the checkpoints' and the cascades' writer."""
    forced = []
    real, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda d: (forced.append(stat.S_IFMT(os.fstat(d).st_mode)), real(d)))
    monkeypatch.setattr(os, "replace", lambda a, b: (forced.append("renamed"), replace(a, b)))
    for save in writers(tmp_path / "a.npz"):
        forced.clear()
        save()
        assert forced == [stat.S_IFREG, "renamed", stat.S_IFDIR]


@pytest.fixture(scope="module")
def grown():
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    x = rng.normal(size=(60, 5)).astype(np.float32)
    level = [partial(hforest.grow, n_trees=3, max_depth=2)] * 2
    return cascade.grow((x, x[:, :2].copy()), y, level, max_levels=2, patience=2, rng=0, n_folds=2)


def run_state():
    config = demo.Config(n_trees=2, depth=2, n_features=3, steps=4, eval_every=2)
    data = demo.load_digits()
    data = data._replace(x_train=data.x_train[:60], y_train=data.y_train[:60])
    state = demo.start(config, 64, 10)
    demo.train(config, state, *data[:4])
    return config, state, data


def writers(path):
    """A save of each kind of file."""
    config, state, data = run_state()
    x, y = np.arange(20.0).reshape(-1, 1), np.arange(20) % 2
    small = cascade.grow(x, y, [partial(hforest.grow, n_trees=2)], max_levels=1, rng=0)
    return [
        lambda: demo.save_checkpoint(path, config, state, data),
        lambda: cascade.save(path, small),
        lambda: tree.save(path, small.levels[0][0]),
        lambda: files.write_npz(path, ARRAYS),
    ]


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("error", [OSError("no space"), KeyboardInterrupt(), MemoryError()])
def test_an_exception_leaves_the_old_file_and_no_part(tmp_path, monkeypatch, error):
    path = tmp_path / "a.npz"
    saves = writers(path)
    path.write_bytes(b"old")

    def full(stream, **arrays):
        stream.write(b"half")
        raise error

    monkeypatch.setattr(np, "savez", full)
    for save in saves:
        with pytest.raises(type(error)):
            save()
        assert path.read_bytes() == b"old"
        assert names(tmp_path) == ["a.npz"]


def test_an_interrupt_inside_of_zipfile_is_raised(tmp_path, monkeypatch):
    """If a member is open, zipfile closes with another error."""

    def interrupted(stream, **arrays):
        try:
            raise KeyboardInterrupt
        finally:
            raise ValueError("Can't close the ZIP file while there is an open writing handle on it")

    monkeypatch.setattr(np, "savez", interrupted)
    with pytest.raises(KeyboardInterrupt):
        files.write_npz(tmp_path / "a.npz", ARRAYS)
    assert names(tmp_path) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # of JAX, where another test has imported it
def test_a_child_of_a_process_that_saves_can_save_to_the_same_path(tmp_path):
    path = tmp_path / "a.npz"
    with files.replacing(path) as stream:
        stream.write(b"of the parent")
        child = os.fork()
        if child == 0:
            signal.alarm(20)  # ends a child that hangs
            files.write_npz(path, ARRAYS)
            os._exit(0)
        time.sleep(0.3)  # until the child waits for the lock
    assert os.waitpid(child, 0)[1] == 0
    assert files.read_npz(path, "a file").keys() == ARRAYS.keys()
    assert names(tmp_path) == ["a.npz"]


@posix
@pytest.mark.slow
def test_the_part_of_a_killed_save_is_replaced(tmp_path):
    path = tmp_path / "a.npz"
    code = (
        "import os, sys, numpy as np; from hforest.core import files\n"
        "def die(stream, **arrays):\n"
        "    stream.write(b'half'); stream.flush(); os.kill(os.getpid(), 9)\n"
        "np.savez = die; files.write_npz(sys.argv[1], {'a': np.ones(3)})"
    )
    for save in writers(path):
        killed = subprocess.run([sys.executable, "-c", code, path], capture_output=True)
        assert killed.returncode == -signal.SIGKILL
        assert "a.npz" + files.PART in names(tmp_path)
        save()
        assert names(tmp_path) == ["a.npz"]
        files.read_npz(path, "a file")


@pytest.mark.usefixtures("each_way")
@posix
def test_saves_at_once_do_not_mix(tmp_path):
    path = tmp_path / "a.npz"

    def save(k):
        for _ in range(10):
            files.write_npz(path, {"a": np.full(10_000 + k, k)})

    threads = [threading.Thread(target=save, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        if path.exists():
            a = files.read_npz(path, "a file")["a"]
            assert set(a.tolist()) == {len(a) - 10_000}
    for thread in threads:
        thread.join()
    assert names(tmp_path) == ["a.npz"]


def test_a_file_is_closed_before_it_is_renamed_where_it_must_be(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "CLOSES_FIRST", True)
    replace, closed = os.replace, []
    monkeypatch.setattr(os, "replace", lambda a, b: (closed.append(stream.closed), replace(a, b)))
    with files.replacing(tmp_path / "a") as stream:
        stream.write(b"new")
    assert closed == [True]
    assert (tmp_path / "a").read_bytes() == b"new"
    files.check_writable(tmp_path / "a")
    assert names(tmp_path) == ["a"]


@posix
def test_links_are_followed(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "link.npz").symlink_to(tmp_path / "there" / "a.npz")
    files.write_npz(tmp_path / "link.npz", ARRAYS)
    assert (tmp_path / "link.npz").is_symlink()
    assert names(tmp_path / "there") == ["a.npz"]


def not_files(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    return [
        (tmp_path / "pipe", OSError, "got a named pipe"),
        ("/dev/null", OSError, "got a device"),
        (tmp_path, IsADirectoryError, "got a folder"),
        (tmp_path / "no" / "a.npz", FileNotFoundError, "create it"),
        (f"{tmp_path}/new/", IsADirectoryError, "add a file name"),
        (__file__ + "/a.npz", NotADirectoryError, "a path through a file"),
    ]


@posix
def test_only_files_are_written(tmp_path, grown):
    config, state, data = run_state()
    for path, error, words in not_files(tmp_path):
        for save in (
            lambda path=path: files.check_writable(path),
            lambda path=path: files.write_npz(path, ARRAYS),
            lambda path=path: cascade.save(path, grown),
            lambda path=path: demo.save_checkpoint(path, config, state, data),
        ):
            with refused(error, words):
                save()
    assert stat.S_ISFIFO(os.stat(tmp_path / "pipe").st_mode)
    assert names(tmp_path) == ["pipe"]
    with pytest.raises(OSError, match="expected a file that can be written, got an error"):
        files.check_writable(tmp_path / ("a" * 250))


def test_objects_are_not_written(tmp_path):
    with pytest.raises(TypeError, match="^a: expected an array of numbers or text, got dtype object; "):
        files.write_npz(tmp_path / "a.npz", {"a": np.array([object()])})
    assert not names(tmp_path)


# -------------------------------------------------------------------------------------------- reading


def npy(header, data=b""):
    text = header.encode()
    text += b" " * (53 - len(text) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


def archive(members, compression=zipfile.ZIP_STORED):
    stream = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(stream, "w", compression) as file:
        warnings.simplefilter("ignore")  # of two members of one name
        for name, content in members:
            file.writestr(name, content)
    return stream.getvalue()


HEADER = "{'descr': '<f8', 'fortran_order': False, 'shape': %s, }"
GOOD = npy(HEADER % "(1,)", bytes(8))


def pickled():
    stream = io.BytesIO()
    np.save(stream, np.array([{}]))
    return stream.getvalue()


def stored_as(method):
    content = bytearray(archive([("a.npy", GOOD)]))
    for signature, at in ((b"PK\3\4", 8), (b"PK\1\2", 10)):
        content[content.index(signature) + at] = method
    return bytes(content)


def encrypted():
    content = bytearray(archive([("a.npy", GOOD)]))
    for signature, at in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        content[content.index(signature) + at] |= 1
    return bytes(content)


def hidden_members():
    # The comment of the first member contains the entries of the others.
    content = bytearray(archive([(f"{name}.npy", GOOD) for name in "abc"]))
    content[content.index(b"PK\1\2") + 33] = 0x7F
    return bytes(content)


BAD = {
    "empty": b"",
    "text": b"not a model" * 100,
    "end alone": b"PK\5\6",
    "pickle": archive([("a.npy", pickled())]),
    "unknown compression": stored_as(99),
    "bzip2": archive([("a.npy", GOOD)], zipfile.ZIP_BZIP2),
    "encrypted": encrypted(),
    "hidden members": hidden_members(),
    "bytes after the end": archive([("a.npy", GOOD)]) + b"more",
    "no array": archive([("a.npy", b"no array")]),
    "a text beside": archive([("a.npy", GOOD), ("readme.txt", b"hello")]),
    "two of one name": archive([("a.npy", GOOD), ("a.npy", GOOD)]),
    "absurd shape": archive([("a.npy", npy(HEADER % "(10**6, 10**9)".replace("10**", "1" + "0" * 8), b"x"))]),
    "more than int64": archive([("a.npy", npy(HEADER % f"({2**70},)", b"x"))]),
    "negative": archive([("a.npy", npy(HEADER % "(-1, -1)", bytes(8)))]),
    "shape of no int": archive([("a.npy", npy(HEADER % "('a',)", bytes(8)))]),
    "shape of one": archive([("a.npy", npy(HEADER % "1", bytes(8)))]),
    "unhashable": archive([("a.npy", npy("{[]: 1}", bytes(8)))]),
    "no python": archive([("a.npy", npy("{'descr': (((", bytes(8)))]),
    "too short": archive([("a.npy", npy(HEADER % "(2,)", bytes(8)))]),
    "too long": archive([("a.npy", npy(HEADER % "(2,)", bytes(24)))]),
    "absurd, compressed": archive(
        [("a.npy", npy(HEADER % f"({10**12},)", bytes(8)))], zipfile.ZIP_DEFLATED
    ),
}  # fmt: skip


@pytest.mark.parametrize("content", BAD.values(), ids=BAD)
def test_damage_of_every_kind_is_one_error(tmp_path, content):
    path = tmp_path / "bad.npz"
    path.write_bytes(content)
    with refused(ValueError, r"bad\.npz: expected .*, got (an unreadable file|Python objects)"):
        files.read_npz(path, "arrays")
    # These read only arrays of their fields.
    for load in (demo.load_checkpoint, demo.load_data, cascade.load, tabular.load, tree.load):
        with refused(ValueError, r"bad\.npz: expected "):
            load(path)


# ---------------------------------------------------------------------------------------- memory


def _forest_file(path):
    rng = np.random.default_rng(0)
    tree.save(
        path, hforest.grow(rng.random((2000, 8)), rng.integers(0, 40, 2000), 20, min_samples_leaf=2, rng=0)
    )
    return tree.load


def _cascade_file(path):
    rng = np.random.default_rng(0)
    level = [partial(hforest.grow, n_trees=6, min_samples_leaf=2)] * 2
    y = rng.integers(0, 20, 1500)
    cascade.save(
        path, cascade.grow(rng.random((1500, 6)), y, level, max_levels=2, patience=2, rng=0, n_folds=2)
    )
    return cascade.load


def _scanner_file(path):
    rng = np.random.default_rng(0)
    forests = [partial(hforest.grow, n_trees=4, min_samples_leaf=2)] * 2
    y = rng.integers(0, 20, 200)
    scanner, _ = cascade.grow_scanner(rng.random((200, 36)), y, (6, 6), (3, 3), forests, rng=0)
    cascade.save(path, scanner)
    return cascade.load


def _table_model(path):
    x = np.random.default_rng(0).random((300, 5))
    model = tabular.fit(x, np.arange(300) % 12, n_trees=100, depth=8, n_projections=200, steps=0, rng=0)
    tabular.save(path, model)
    return tabular.load


def _checkpoint(path):
    config, data = demo.Config(n_trees=60, depth=10, n_features=50), demo.load_digits()
    demo.save_checkpoint(path, config, demo.start(config, 64, 10), data)
    return demo.load_checkpoint


def _data(path, **labels):
    rng = np.random.default_rng(0)
    y = labels["y"] if labels else rng.integers(0, 9, 40_000)
    np.savez(path, x_train=rng.random((40_000, 20)), y_train=y, x_test=rng.random((100, 20)), y_test=y[:100])
    return demo.load_data


def _text_data(path):
    return _data(path, y=np.random.default_rng(0).choice(["ham", "spam", "s" * 60], 40_000))


def _table_data(path):
    _data(path)
    return lambda path: _tables._of_archive(parse(["--data", str(path)]))


@pytest.mark.slow
@pytest.mark.parametrize(
    "write",
    [
        _forest_file, _cascade_file, _scanner_file, _table_model, _checkpoint, _data, _text_data, _table_data,
    ],
    ids=lambda write: write.__name__,
)  # fmt: skip
def test_loading_takes_three_times_the_fields_at_most(tmp_path, write):
    """Members that are not fields are not read: 128 MB of zeros are 130 KB in a compressed file."""
    path = tmp_path / "file.npz"
    load = write(path)
    fields = files.read_npz(path, "a file")
    n_bytes = sum(a.nbytes for a in fields.values())
    load(path)  # modules that are imported once
    other = {"other": np.zeros(1 << 24), "levels/9/9/value": np.zeros(1 << 20), "x_other": np.zeros(1 << 20)}
    np.savez_compressed(path, **fields, **other)
    assert n_bytes > 1_500_000
    tracemalloc.start()
    try:
        loaded = load(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    del loaded
    print(f"{write.__name__}: fields of {n_bytes} bytes, {peak / n_bytes:.2f} times as many at the peak")
    assert peak < 3 * n_bytes + 500_000


@pytest.mark.parametrize("write", [_forest_file, _cascade_file, _scanner_file, _table_model, _checkpoint])
def test_numbers_that_are_large_arrays_are_refused_unread(tmp_path, write):
    """The header has their number."""
    path = tmp_path / "file.npz"
    load = write(path)
    fields = files.read_npz(path, "a file")
    words = {
        "head", "step", "forest_format", "tabular_format", "task", "n_members", "n_levels", "n_forests", "n_features",
        "members/0/share", "members/0/forest/n_features",
    } & fields.keys()  # fmt: skip
    assert words
    for name in words:
        dtype = fields[name].dtype
        np.savez_compressed(path, **fields | {name: np.zeros((1 << 24) // dtype.itemsize, dtype)})
        tracemalloc.start()
        try:
            with pytest.raises(ValueError, match=rf"file\.npz: expected .*{name} is an array of shape"):
                load(path)
            assert tracemalloc.get_traced_memory()[1] < sum(a.nbytes for a in fields.values()) + 4_000_000
        finally:
            tracemalloc.stop()


@posix
def test_what_is_not_there_or_no_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for load in (demo.load_checkpoint, demo.load_data, cascade.load):
        with pytest.raises(FileNotFoundError, match=r"none\.npz: expected .*, got no such file; check"):
            load(tmp_path / "none.npz")
        for path, words in (
            (tmp_path, "a folder"),
            (tmp_path / "pipe", "a named pipe"),
            ("/dev/zero", "a device"),
        ):
            with pytest.raises(ValueError, match=words):
                load(path)


@pytest.mark.parametrize("n_places", [60, pytest.param(300, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["cascade", "checkpoint", "data", "compressed data"])
def test_each_damaged_file_is_read_right_or_refused(tmp_path, grown, kind, n_places):
    path = tmp_path / "file.npz"
    load = {"cascade": cascade.load, "checkpoint": demo.load_checkpoint}.get(kind, demo.load_data)
    if kind == "cascade":
        cascade.save(path, grown)
    elif kind == "checkpoint":
        demo.save_checkpoint(path, *run_state())
    else:
        save = np.savez_compressed if kind == "compressed data" else np.savez
        x, y = np.arange(40.0).reshape(20, 2), np.arange(20) % 2
        save(path, x_train=x, y_train=y, x_test=x, y_test=y)
    check_damage(path, load, n_places)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"n_forests": None}, "without the array 'n_forests'"),
        ({"n_folds": 4}, "has 6 trees and n_folds is 4"),
        ({"n_folds": 1}, "n_folds is 1"),
        ({"n_folds": 0}, "n_folds is 0"),
        ({"n_folds": [2, 2]}, "n_folds is an array"),
        ({"n_classes": 4}, "not 4"),
        ({"n_classes": 3.5}, "n_classes is 3.5"),
        ({"n_features": [5, 3]}, "not 9"),
        ({"n_features": [5]}, "not 11"),
        ({"n_features": []}, "n_features is an array"),
        ({"n_features": [5, -2]}, "n_features is an array"),
        ({"scores": [0.5]}, "scores are"),
        ({"scores": [0.5, np.nan]}, "scores are"),
        ({"scores": [0.5, 7]}, "scores are"),
        ({"scores": ["a", "b"]}, "could not convert"),
        ({"scores": 0.5}, "0-d"),
        ({"seed": -1}, "seed is -1"),
        ({"class_vectors": "other"}, "class_vectors is 'other'"),
        ({"class_vectors": "out_of_bag"}, "n_folds is 2"),
        ({"n_forests": 1}, "not 5"),
        ({"n_forests": 3}, "without the array 'levels/0/2/n_features'"),
        ({"n_forests": -1}, "n_forests is -1"),
        ({"n_levels": 1}, "scores are"),
        ({"n_levels": 0}, "n_levels is 0"),
        ({"n_levels": 10**9}, "without the array 'levels/2/0"),
        (lambda arrays: {n: a.astype(np.float64) for n, a in arrays.items() if n.startswith("levels/1") and a.dtype == np.float32}, "dtype of levels/1/0 is float64, not float32"),
        ({"levels/0/0/value": [["a"]]}, "forest.value"),
        ({"levels/0/0/left": [10**6]}, "forest.left"),
    ],
)  # fmt: skip
def test_cascades_whose_fields_contradict_are_refused(tmp_path, grown, change, words):
    path = tmp_path / "c.npz"
    cascade.save(path, grown)
    check_changed(path, cascade.load, change, re.escape(words))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"window": [3, 3]}, "n_features of forests/0 is 6, not 9"),
        ({"window": [5, 3]}, "window"),
        ({"stride": [0, 1]}, "stride"),
        ({"stride": [1]}, "stride"),
        ({"shape": 4}, "shape"),
        ({"n_forests": 0}, "n_forests is 0"),
    ],
)
def test_scanners_whose_fields_contradict_are_refused(tmp_path, change, words):
    path = tmp_path / "s.npz"
    x, y = np.random.default_rng(0).normal(size=(12, 16)), np.arange(12) % 2
    scanner, _ = cascade.grow_scanner(
        x, y, (4, 4), (2, 3), [partial(hforest.grow, n_trees=2)], n_folds=2, rng=0
    )
    cascade.save(path, scanner)
    check_changed(path, cascade.load, change, re.escape(words))


def test_nothing_is_saved_of_nothing(tmp_path, grown):
    for empty in (grown._replace(levels=(), scores=()), cascade.Scanner((4,), (2,), (1,), ())):
        with pytest.raises(ValueError, match=r"^grown\.\w+: expected .*, got none; "):
            cascade.save(tmp_path / "c.npz", empty)
    assert not names(tmp_path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"step": -3}, "step"),
        ({"step": 2.5}, "step"),
        ({"weights_last": lambda a: np.full_like(a, 99)}, "weights_last"),
        ({"weights_last": lambda a: a.astype(np.int32)}, "expected a checkpoint written by hforest"),
        ({"features": lambda a: a + np.int32(100)}, "expected a checkpoint written by hforest"),
        ({"weights": lambda a: a[:, :3]}, "expected a checkpoint written by hforest"),
        ({"thresholds": lambda a: a.astype(np.float64)}, "expected a checkpoint written by hforest"),
        ({"step": [1, 2]}, "expected a checkpoint written by hforest"),
        ({"classes": lambda a: a[:9]}, "expected a checkpoint written by hforest"),
        ({"kernel": np.array([object()])}, "expected a checkpoint written by hforest"),
        ({"mean": None}, "mean"),
        ({"classes": None}, "classes"),
        ({"head": "{}"}, "expected a checkpoint written by hforest"),
        ({"head": "no json"}, "expected a checkpoint written by hforest"),
        ({"history_loss": [1.0]}, "histories"),
        ({"history_step": [[2, 4]]}, "histories"),
        ({"head": "[" * 100_000}, "checkpoint"),
        ({"head": "[]"}, "checkpoint"),
    ],
)
def test_checkpoints_whose_fields_contradict_are_refused(tmp_path, change, words):
    path = tmp_path / "m.npz"
    demo.save_checkpoint(path, *run_state())
    check_changed(path, demo.load_checkpoint, change, re.escape(words))


# ------------------------------------------------------------------------------------- the main job

SMALL = [
    "--n-trees",
    "4",
    "--set",
    "depth=3",
    "--set",
    "n_features=8",
    "--steps",
    "20",
    "--set",
    "eval_every=10",
]
SMALL += ["--no-plot"]


@pytest.fixture
def no_work(monkeypatch):
    def called(*args, **kwargs):
        raise AssertionError("work was begun")

    for name in ("train", "load_digits", "load_data"):
        monkeypatch.setattr(demo, name, called)


@posix
def test_outputs_that_are_no_files_are_refused_before_any_work(tmp_path, capsys, no_work):
    for path, _, _ in not_files(tmp_path):
        for option in ("--save", "--plot"):
            assert main([*SMALL, "--kind", "tree", option, str(path)]) == 2
            assert FOUR_PARTS.match(capsys.readouterr().err)
    for option in ("--save", "--plot"):
        assert main([*SMALL, option, str(tmp_path / "no" / "a.png")]) == 2
        assert "create it" in capsys.readouterr().err
        assert main([*SMALL, option, ""]) == 2
        assert "add a file name" in capsys.readouterr().err
    assert names(tmp_path) == ["pipe"]


@pytest.mark.libraries
def test_a_picture_of_an_unknown_kind_is_refused_before_any_work(tmp_path, capsys, no_work):
    pytest.importorskip("matplotlib")
    assert main([*SMALL, "--plot", str(tmp_path / "loss.npz")]) == 2
    assert "--plot: expected a picture that ends in ." in capsys.readouterr().err


@pytest.mark.parametrize("kind", [["--kind", "fern"], []])
def test_save_replaces_nothing_but_checkpoints(tmp_path, capsys, no_work, kind):
    path = tmp_path / "d.npz"
    taken = path if kind else tmp_path / "d.fern.npz"
    for content in (b"", b"a letter", archive([("x.npy", GOOD)]), archive([("head.npy", GOOD)])):
        taken.write_bytes(content)
        assert main([*SMALL, *kind, "--save", str(path)]) == 2
        assert "--save: expected a new file or a checkpoint written by hforest" in capsys.readouterr().err
        assert taken.read_bytes() == content
    assert names(tmp_path) == [taken.name]


@posix
def test_save_does_not_replace_the_data(tmp_path, capsys):
    path, link = tmp_path / "d.npz", tmp_path / "link.npz"
    link.symlink_to(path)
    np.savez(path, x=np.eye(4), y=np.arange(4) % 2)
    before = path.read_bytes()
    os.link(path, tmp_path / "hard.npz")
    for save in (path, link, tmp_path / "hard.npz"):
        for resume in ([], ["--resume"]):
            options = ["--data", str(path), "--train", "2", "--kind", "tree", *resume]
            assert main([*SMALL, *options, "--save", str(save)]) == 2
            assert "--save: expected a different file from --data" in capsys.readouterr().err
    assert main([*SMALL, "--data", str(path), "--train", "2", "--kind", "tree", "--plot", str(path)]) == 2
    capsys.readouterr()
    picture = str(tmp_path / "m.png")
    assert main([*SMALL, "--kind", "tree", "--save", picture, "--plot", picture]) == 2
    assert "--plot: expected a different file from --save" in capsys.readouterr().err
    assert path.read_bytes() == before


def test_save_replaces_checkpoints(tmp_path):
    path = str(tmp_path / "m.npz")
    for steps in ("10", "20"):
        assert main([*SMALL, "--kind", "tree", "--steps", steps, "--save", path]) == 0
        assert demo.load_checkpoint(path).state["step"] == int(steps)


def test_a_bad_checkpoint_of_the_second_kind_is_noticed_before_the_first_is_trained(tmp_path, capsys):
    (tmp_path / "m.fern.npz").write_bytes(b"damaged")
    assert main([*SMALL, "--save", str(tmp_path / "m.npz"), "--resume"]) == 2
    assert "m.fern.npz: expected a checkpoint" in capsys.readouterr().err
    assert names(tmp_path) == ["m.fern.npz"]
    assert (tmp_path / "m.fern.npz").read_bytes() == b"damaged"


def test_resume_of_a_run_that_is_complete(tmp_path, capsys):
    path = tmp_path / "m.npz"
    options = [*SMALL, "--kind", "tree", "--save", str(path)]
    assert main(options) == 0
    before = path.read_bytes()
    capsys.readouterr()
    for steps in ("5", "20"):
        assert main([*options, "--resume", "--steps", steps]) == 0
        out = capsys.readouterr().out
        assert "m.npz: already complete, 20 steps are done; a larger --steps goes on" in out
        assert re.search(r"random hinge forest +\d\.\d+ +[\d.]+ % +20 ", out)
        assert ": step" not in out
        assert path.read_bytes() == before


@pytest.mark.parametrize("seconds", ["nan", "-1", "-inf", "soon"])
def test_bad_checkpoint_seconds(capsys, seconds):
    assert main([*SMALL, "--set", f"checkpoint_seconds={seconds}"]) == 2
    assert "--set checkpoint_seconds: expected" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["n_trees", "depth", "n_features", "n_kernels"])
def test_absurd_sizes(capsys, option):
    size = ["--n-trees", str(10**20)] if option == "n_trees" else ["--set", f"{option}={10**20}"]
    assert main([*SMALL, *size]) == 2
    assert "expected at most 2147483647, got 1000" in capsys.readouterr().err


@pytest.mark.parametrize("lr", ["1e20", "1e30", "1e39", "1e300"])
@pytest.mark.parametrize(
    "more", [["--kind", "tree"], ["--kind", "fern"], ["--kind", "tree", "--set", "optimizer=adagrad"]]
)
def test_a_diverged_run_names_the_learning_rate(capsys, lr, more):
    assert main([*SMALL, *more, "--set", f"lr={lr}"]) == 2
    error = capsys.readouterr().err
    assert re.search(r"error: --set lr: expected .*, got 1e\+\d+.*; lower the learning rate\n$", error), error
    assert "impute" not in error


def test_samples_that_overflow_are_named(tmp_path, capsys):
    path = tmp_path / "d.npz"
    np.savez(path, x=np.full((60, 4), 3e38), y=np.arange(60) % 2)
    assert main([*SMALL, "--data", str(path), "--train", "40", "--kind", "tree"]) == 2
    assert re.search(
        r"d\.npz: expected samples .*, got numbers that overflow.*; scale", capsys.readouterr().err
    )


def test_more_classes_than_a_forest_takes(tmp_path):
    n = 2**20 + 1
    np.savez(tmp_path / "d.npz", x=np.zeros((n + 1, 1), np.float32), y=np.arange(n + 1) % n)
    with pytest.raises(ValueError, match=r"at most 1048576 classes, got 1048577; .*regression"):
        demo.load_data(tmp_path / "d.npz", n_train=n)


BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
"""Output to a file or a pipe is written when a buffer is full, or at the end."""


@pytest.mark.parametrize("options", [SMALL, ["--help"]])
@pytest.mark.parametrize("both", [False, True])
@posix
def test_a_broken_pipe_ends_quietly(options, both):
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "hforest", *options],
            stdout=write,
            stderr=write if both else subprocess.PIPE,
            check=False,
            env=BUFFERED,
        )
    finally:
        os.close(write)
    assert done.returncode == 128 + signal.SIGPIPE
    if not both:
        assert b"error" not in done.stderr
        assert b"Error" not in done.stderr


@pytest.mark.parametrize("options", [SMALL, ["--help"]])
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a disk that is always full, of Linux")
def test_a_full_disk_is_an_error(options):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "hforest", *options], stdout=full, stderr=subprocess.PIPE, env=BUFFERED
        )
    assert done.returncode == 2
    assert done.stderr.decode().splitlines() == [f"error: {OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))}"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a disk that is always full, of Linux")
def test_output_that_is_left_after_a_full_disk_goes_nowhere(monkeypatch, capsys):
    with open("/dev/full", "w") as full:  # and closing it raises nothing
        monkeypatch.setattr(sys, "stdout", full)
        assert main(SMALL) == 2
    assert capsys.readouterr().err.startswith("error: [Errno")


@posix
@pytest.mark.slow
def test_closed_streams(tmp_path):
    """No file gets the descriptor of a stream that the caller closed, and the exit status is unchanged."""
    command = f'"{sys.executable}" -m hforest {" ".join(SMALL)} --kind tree'
    for more, closed, status in (
        (f"--save {tmp_path}/m.npz", "<&- >&- 2>&-", 0),
        ("", "2>&-", 0),
        ("--lr nan", "2>&-", 2),
    ):
        done = subprocess.run(f"{command} {more} {closed}", shell=True, capture_output=True)
        assert done.returncode == status
    assert demo.load_checkpoint(tmp_path / "m.npz").state["step"] == 20
