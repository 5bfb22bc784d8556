"""The main job: `python -m hforest`, its files, its checkpoints."""

import dataclasses
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from conftest import SMALL, assert_same_bits, check_changed

import hforest
from hforest import _networks, demo
from hforest.__main__ import main
from hforest._networks import DIGITS
from hforest.demo import network

DATA = ["--set", *(f"{name}={DIGITS[name]}" for name in ("lr", "lr_half_life"))]
"""The same error rates with --data as without."""


def arrays(path):
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


def in_head(**fields):
    """Returns a function that changes fields of the head of a checkpoint."""
    return lambda head: np.array(json.dumps(json.loads(str(head)) | fields))


def assert_same_files(a, b):
    assert_same_bits(arrays(a), arrays(b))


def test_digits_are_real():
    data = demo.load_digits()
    assert data.x_train.shape == (3823, 64)
    assert data.x_test.shape == (1797, 64)
    assert data.x_train.dtype == np.float32
    assert data.y_train.dtype == np.int32
    assert np.bincount(data.y_test).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert data.x_train.min() == 0
    assert data.x_train.max() == 16


@pytest.mark.parametrize("kind", ["tree", "fern"])
@pytest.mark.parametrize("optimizer", ["adam", "adagrad"])
def test_it_learns(kind, optimizer):
    data = demo.load_digits()
    lr = {"adam": 0.005, "adagrad": 0.05}[optimizer]
    config = demo.Config(
        kind=kind, n_trees=40, depth=6, optimizer=optimizer, lr=lr, steps=900, eval_every=300
    )
    state = demo.start(config, 64, 10)
    before = demo.error_rate(config, state, data.x_test, data.y_test)
    seen = []
    history = demo.train(config, state, *data[:4], progress=lambda done, total: seen.append((done, total)))
    assert before > 0.7
    assert history["error"][-1] < 0.08
    assert history["loss"][-1] < history["loss"][0] / 3
    assert seen == [(done, 900) for done in range(1, 901)]
    assert history["step"].tolist() == [300, 600, 900]


@pytest.mark.parametrize("kind", ["tree", "fern"])
@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize("n_features", [0, 20])
def test_scalar_leaves_learn(kind, task, n_features):
    """Lay et al. 2018, Fig. 2a."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, 4))
    y = x[:, 0] ** 2 if task == "regression" else (x[:, 0] * x[:, 1] > 0).astype(int)
    more = {"optimizer": "adagrad", "lr": 0.05, "steps": 800, "eval_every": 200, "leaves": "scalar"}
    config = demo.Config(kind, 30, 4, n_features, task=task, **more)
    state = demo.start(config, 4, 1 if task == "regression" else 2)
    assert state["weights"].shape == (30, 16)
    assert state["mixing"].shape == (30, 1 if task == "regression" else 2)
    history = demo.train(config, state, x[:400], y[:400], x[400:], y[400:])
    assert history["error"].min() < 0.2
    assert demo.error_rate(config, state, x[400:], y[400:]) == history["error"][-1]


@pytest.mark.parametrize("bias", [False, True])
def test_scalar_leaves_take_the_steps_of_dense_gradients(bias):
    """A step of AdaGrad on every parameter of Fig. 2a, by the chain rule on dense arrays."""
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(20, 3)), rng.normal(size=(20, 2))
    config = demo.Config(
        "tree", 5, 3, 6, optimizer="adagrad", lr=0.1, leaves="scalar", task="regression", batch_size=20,
        output_bias=bias,
    )  # fmt: skip
    state = demo.start(config, 3, 2, dtype=np.float64)
    old = {name: np.copy(a) for name, a in state.items()}
    loss = demo.step(config, state, x, y)

    def loss_of(**changed):
        a = old | changed
        z = (x @ a["kernel"] - a["mean"]) / np.sqrt(a["var"] + 1e-7)
        outputs = hforest.hinge.forward(z, a["thresholds"], a["features"], a["weights"]) @ a["mixing"]
        outputs += a["bias"] if bias else 0.0
        return 0.5 * ((outputs - y) ** 2).sum(axis=1).mean()

    assert loss == pytest.approx(loss_of())
    assert ("bias" in state) == bias
    for name in ("kernel", "thresholds", "weights", "mixing", *["bias"] * bias):
        moved = state[name] - old[name]  # the first step of AdaGrad is lr sgn(g)
        assert set(np.unique(moved.round(12))) <= {-0.1, 0.0, 0.1}
        for at in np.argwhere(moved != 0)[:5]:
            step = np.zeros_like(old[name])
            step[tuple(at)] = 1e-6
            slope = (loss_of(**{name: old[name] + step}) - loss_of(**{name: old[name] - step})) / 2e-6
            assert np.sign(slope) == -np.sign(moved[tuple(at)])


def test_one_shuffle_orders_all_batches(monkeypatch):
    """Batches run through one order of 7 samples without end; one of 9 has samples twice."""
    config = demo.Config("tree", 2, 2, 3, batch_size=3, steps=6, eval_every=6, shuffle="once", seed=4)
    read = []
    data = np.arange(14.0).reshape(7, 2), np.arange(7) % 2
    monkeypatch.setattr(
        network, "_steps", lambda config, state, name, batches: read.extend(batches) or iter([])
    )
    demo.train(config, demo.start(config, 2, 2), *data, *data)
    order = np.random.default_rng([4, 1, 0]).permutation(7)
    assert [len(x) for x, _ in read] == [3] * 6
    assert np.concatenate([x[:, 0] for x, _ in read]).tolist() == (2.0 * np.resize(order, 18)).tolist()
    read.clear()
    config = dataclasses.replace(config, batch_size=9, steps=1)
    demo.train(config, demo.start(config, 2, 2), *data, *data)
    assert len(read[0][0]) == 9


def test_a_bias_is_in_predictions_and_in_a_checkpoint(tmp_path):
    data = demo.load_digits()
    config = demo.Config("fern", 3, 2, 4, optimizer="adagrad", leaves="scalar", steps=2, output_bias=True)
    state = demo.start(config, 64, 10)
    before = demo.predict(config, state, data.x_test[:5])
    state["bias"][3] = 7
    np.testing.assert_allclose(
        demo.predict(config, state, data.x_test[:5]) - before, 7 * np.eye(10)[[3] * 5], atol=1e-5
    )
    demo.save_checkpoint(tmp_path / "c.npz", config, state, data)
    loaded = demo.load_checkpoint(tmp_path / "c.npz")
    assert loaded.config == config
    np.testing.assert_array_equal(loaded.state["bias"], state["bias"])
    with pytest.raises(ValueError, match="output_bias: expected False with leaves='vector', got True; "):
        demo.Config(output_bias=True)
    with pytest.raises(ValueError, match="shuffle: expected "):
        demo.Config(shuffle="never")


def test_scalar_leaves_need_adagrad_and_classes_a_checkpoint(tmp_path):
    with pytest.raises(ValueError, match="leaves: expected 'vector' with optimizer='adam'"):
        demo.Config(leaves="scalar")
    data = demo.load_digits()
    config = demo.Config("fern", 3, 2, 4, optimizer="adagrad", leaves="scalar", steps=2)
    state = demo.start(config, 64, 10)
    demo.save_checkpoint(tmp_path / "c.npz", config, state, data)
    loaded = demo.load_checkpoint(tmp_path / "c.npz")
    assert loaded.config == config
    np.testing.assert_array_equal(loaded.state["mixing"], state["mixing"])
    config = demo.Config(n_trees=3, depth=2, task="regression")
    with pytest.raises(ValueError, match="config: expected a network for classification"):
        demo.save_checkpoint(tmp_path / "r.npz", config, demo.start(config, 64, 10), data)
    with pytest.raises(ValueError, match="y: expected 10 targets per sample, got 1"):
        demo.step(config, demo.start(config, 64, 10), data.x_train[:3], np.zeros(3))


def test_rows_equal_dense_steps():
    """The row-sparse training step against the same network with dense gradients and dense Adam."""
    from hforest import hinge, layers, optim

    data = demo.load_digits()
    config = demo.Config(n_trees=8, depth=4, n_features=10, steps=50, batch_size=20)
    rows, dense = (demo.start(config, 64, 10, dtype=np.float64) for _ in range(2))
    moments = {
        name: [np.zeros_like(dense[name]) for _ in range(2)] for name in ("kernel", "thresholds", "weights")
    }
    for i in range(50):
        x, y = data.x_train[i * 20 : i * 20 + 20].astype(np.float64), data.y_train[i * 20 : i * 20 + 20]
        loss = demo.step(config, rows, x, y)
        inner = x @ dense["kernel"]
        z = layers.normalize(inner, dense["mean"], dense["var"])
        t, f, w = dense["thresholds"], dense["features"], dense["weights"]
        scores, route = hinge.forward_with_route(z, t, f, w, aggregate="sum")
        want, g = layers.softmax_loss(scores, y)
        grad_z, grad_t, _, grad_w = hinge.backward(g, route, z, t, f, w, aggregate="sum")
        grads = {
            "kernel": x.T @ layers.normalize_backward(grad_z, dense["var"]), "thresholds": grad_t, "weights": grad_w
        }  # fmt: skip
        layers.normalize_update(inner, dense["mean"], dense["var"], i)
        for name, grad in grads.items():
            optim.adam(dense[name], grad, *moments[name], i + 1, config.lr)
        assert loss == pytest.approx(want, rel=1e-9)
    demo.predict(config, rows, x)  # brings every row up to date
    for name in moments:
        np.testing.assert_allclose(rows[name], dense[name], rtol=1e-8, atol=1e-10)


def test_command(tmp_path, capsys):
    model, picture = tmp_path / "model.npz", tmp_path / "loss.png"
    assert main([*SMALL, "--save", str(model), "--plot", str(picture)]) == 0
    out = capsys.readouterr().out
    for name in ("random hinge forest", "random hinge ferns"):
        assert re.search(rf"^{name} +\d\.\d{{4}} +[\d.]+ % +60 +[\d.]+$", out, re.M)
    assert "least" not in out
    assert not model.exists()
    for kind in ("tree", "fern"):
        config, state, _, classes = demo.load_checkpoint(tmp_path / f"model.{kind}.npz")
        assert classes.tolist() == list(range(10))
        assert config.kind == kind
        assert state["step"] == 60
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        assert "Matplotlib is not installed" in out
    else:
        assert picture.stat().st_size > 1000


def test_exits_0_without_any_option_that_installs_something():
    done = subprocess.run([sys.executable, "-m", "hforest", *SMALL], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "optical digits" in done.stdout


@pytest.mark.parametrize("kind", ["tree", "fern"])
@pytest.mark.parametrize("optimizer", ["adam", "adagrad"])
def test_interrupted_run_goes_on_to_the_same_bits(tmp_path, monkeypatch, capsys, kind, optimizer):
    options = [*SMALL, "--kind", kind, "--set", f"optimizer={optimizer}", "--set", "checkpoint_seconds=0"]
    whole, broken = str(tmp_path / "whole.npz"), str(tmp_path / "broken.npz")
    assert main([*options, "--save", whole]) == 0
    real = demo.network.model.learning_rate

    def interrupted(config, step):
        if step == 48:
            raise KeyboardInterrupt
        return real(config, step)

    monkeypatch.setattr(demo.network.model, "learning_rate", interrupted)
    assert main([*options, "--save", broken]) == 130
    assert "--resume" in capsys.readouterr().out
    monkeypatch.undo()
    assert demo.load_checkpoint(broken).state["step"] == 40
    assert main([*options, "--save", broken, "--resume"]) == 0
    assert "going on from step 40" in capsys.readouterr().out
    assert_same_files(whole, broken)


@pytest.mark.slow
def test_killed_run_goes_on_to_the_same_bits(tmp_path):
    options = [*SMALL, "--steps", "1000", "--kind", "tree", "--set", "checkpoint_seconds=0"]
    command = [sys.executable, "-m", "hforest", *options]
    path = tmp_path / "model.npz"
    with subprocess.Popen(
        [*command, "--save", str(path)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as run:
        deadline = time.monotonic() + 60
        while not path.exists() and time.monotonic() < deadline and run.poll() is None:
            time.sleep(0.005)
        os.kill(run.pid, signal.SIGKILL)
    assert run.returncode == -signal.SIGKILL, "the run ended before it could be killed"
    assert demo.load_checkpoint(path).state["step"] < 1000
    subprocess.run([*command, "--save", str(path), "--resume"], check=True, capture_output=True)
    subprocess.run([*command, "--save", str(tmp_path / "whole.npz")], check=True, capture_output=True)
    assert_same_files(path, tmp_path / "whole.npz")


@pytest.fixture
def checkpoint(tmp_path):
    path = tmp_path / "model.npz"
    assert main([*SMALL, "--kind", "tree", "--save", str(path)]) == 0
    return path


def test_resume_refuses_other_options_and_data(checkpoint, tmp_path, capsys):
    base = [*SMALL, "--kind", "tree", "--save", str(checkpoint), "--resume"]
    assert main([*base, "--set", "lr=0.5"]) == 2
    assert f"lr {DIGITS['lr']} (now 0.5)" in capsys.readouterr().err
    digits = demo.load_digits()
    other = digits._asdict()
    del other["classes"]
    np.savez(tmp_path / "other.npz", **{**other, "y_train": np.roll(other["y_train"], 1)})
    assert main([*base, *DATA, "--data", str(tmp_path / "other.npz")]) == 2
    assert "expected a run on the same data" in capsys.readouterr().err
    for classes, words in (
        (np.array(list("abcdefghij")), "got a run on 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 (now 'a', 'b',"),
        (np.arange(10) + 1, "(now 1, 2,"),
        (np.arange(10.0), "(now 0.0, 1.0,"),
    ):
        labels = {name: classes[other[name]] for name in ("y_train", "y_test")}
        np.savez(tmp_path / "other.npz", **{**other, **labels})
        assert main([*base, *DATA, "--data", str(tmp_path / "other.npz")]) == 2
        error = capsys.readouterr().err
        assert "expected a run on the same classes" in error
        assert words in error


def test_resume_goes_further(checkpoint, capsys):
    assert main([*SMALL, "--steps", "80", "--kind", "tree", "--save", str(checkpoint), "--resume"]) == 0
    assert demo.load_checkpoint(checkpoint).state["step"] == 80
    np.testing.assert_array_equal(arrays(checkpoint)["history_step"], [20, 40, 60, 80])


def test_resume_without_a_file_starts(tmp_path, capsys):
    path = tmp_path / "new.npz"
    assert main([*SMALL, "--kind", "fern", "--save", str(path), "--resume"]) == 0
    assert "no checkpoint yet" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--n-trees", "0"], "error: n_trees: expected at least 1"),
        (["--set", "leaves=scalar"], "error: --set: expected settings of n_trees, "),
        (["--set", "n_features=-1"], "error: n_features: expected at least 0"),
        (["--set", "n_kernels=-1"], "error: n_kernels: expected at least 0"),
        (["--set", "depth=40"], "depth: expected 1 to 30, got 40"),
        (["--set", "lr=nan"], "lr: expected a finite number"),
        (["--set", "batch_size=0"], "error: batch_size: expected at least 1"),
        (["--set", "batch_size=x"], "batch_size: expected"),
        (["--seed", "-1"], "seed"),
        (["--set", "held_out=3823"], "error: --set held_out: expected 0 to 3822, got 3823; "),
        (["--set", "lr_half_life=-1"], "error: lr_half_life: expected at least 0, got -1; "),
    ],
)
def test_bad_options(capsys, options, words):
    assert main([*SMALL, *options]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("leaves", ["vector", "scalar"])
def test_predict_names_the_array_that_diverged(leaves):
    config = demo.Config("tree", 2, 2, 3, optimizer="adagrad", leaves=leaves)
    state = demo.start(config, 4, 2)
    for name in {"kernel", "thresholds", "weights", "mixing"} & state.keys():
        bad = state[name].copy()
        bad.reshape(-1)[0] = np.inf
        with pytest.raises(ValueError, match=rf"^state\['{name}'\]: expected finite numbers, got inf"):
            demo.predict(config, state | {name: bad}, np.ones((3, 4)))


def test_resume_needs_a_file(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--resume"])
    assert caught.value.code == 2
    assert "--resume needs --save" in capsys.readouterr().err


def test_missing_gpu_is_reported():
    try:
        import cupy

        cupy.cuda.runtime.getDeviceCount()
    except ImportError:
        words = "needs CuPy"
    except Exception:
        words = "needs a working GPU"
    else:
        pytest.skip("there is a GPU")
    with pytest.raises(SystemExit, match=words):
        main([*SMALL, "--device", "cuda"])


@pytest.mark.slow
def test_real_letters(data):
    """A short run on UCI letter: far fewer errors than the 96 % of a guess."""
    letter = data("letter")
    x, y = letter["x"].astype(np.float32), letter["y"].astype(np.int32)
    config = demo.Config(n_trees=50, depth=8, steps=1500, eval_every=1500)
    state = demo.start(config, 16, 26)
    history = demo.train(config, state, x[:16000], y[:16000], x[16000:], y[16000:])
    assert history["error"][-1] < 0.2


def test_convolutions_learn_and_come_back(tmp_path):
    data = demo.load_digits()
    config = demo.Config(n_trees=20, depth=5, n_kernels=6, steps=150, eval_every=75)
    state = demo.start(config, 64, data.n_classes)
    assert state["kernel"].shape == (6, 5, 5)
    assert state["mean"].shape == (6 * 2 * 2,)
    path = tmp_path / "model.npz"

    def save_half_way(state):
        if state["step"] == 75:
            demo.save_checkpoint(path, config, state, data)

    history = demo.train(config, state, *data[:4], checkpoint=save_half_way)
    assert history["error"][-1] < 0.5
    saved, half, *_ = demo.load_checkpoint(path)
    assert saved == config
    demo.train(config, half, *data[:4])
    assert_same_bits(half, state)


def test_convolutions_need_square_images():
    with pytest.raises(ValueError, match=r"^n_kernels: .*63 columns; pass n_kernels=0"):
        demo.start(demo.Config(n_kernels=3), 63, 2)
    with pytest.raises(ValueError, match=r"^n_kernels: expected 0 or square"):
        demo.start(demo.Config(n_kernels=3), 16, 2)


# --------------------------------------------------------------------------------------- progress, leniency


def small_run(**changes):
    """Digits, a small configuration and its first state."""
    config = demo.Config(
        **({"n_trees": 4, "depth": 3, "n_features": 8, "steps": 40, "eval_every": 20} | changes)
    )
    return demo.load_digits(), config, demo.start(config, 64, 10)


@pytest.mark.parametrize("optimizer", ["adam", "adagrad"])
@pytest.mark.parametrize("stop", [1, 13, 20, 33, 40])
def test_a_stopped_run_goes_on_to_the_same_bits(tmp_path, stop, optimizer):
    data, config, whole = small_run(optimizer=optimizer)
    want = demo.train(config, whole, *data[:4])
    _, _, state = small_run(optimizer=optimizer)
    history = demo.train(config, state, *data[:4], progress=lambda done, total: done < stop)
    assert state["step"] == stop
    assert history["step"].tolist() == [step for step in (20, 40) if step <= stop]
    # Through a file, as another process would.
    demo.save_checkpoint(tmp_path / "model.npz", config, state, data)
    _, state, *_ = demo.load_checkpoint(tmp_path / "model.npz")
    got = demo.train(config, state, *data[:4])
    assert_same_bits(state, whole)
    assert_same_bits(got, want)


def test_checkpoint_sees_the_history_and_comes_before_progress():
    data, config, state = small_run(steps=50)
    calls = []

    def checkpoint(seen):
        assert seen is state
        histories = [seen[f"history_{name}"] for name in ("step", "loss", "error")]
        calls.append((seen["step"], histories[0].tolist(), *map(len, histories[1:])))

    def progress(done, total):
        assert total == 50
        assert state["step"] == done
        if done % 20 == 0 or done == 50:
            assert calls[-1][0] == done

    demo.train(config, state, *data[:4], checkpoint=checkpoint, progress=progress)
    assert calls == [(20, [20], 1, 1), (40, [20, 40], 2, 2), (50, [20, 40, 50], 3, 3)]


@pytest.mark.parametrize("name", ["checkpoint", "progress"])
def test_callbacks_are_checked_before_the_work(name):
    data, config, state = small_run()
    with pytest.raises(TypeError, match=rf"^{name}: expected None.*, got int; pass"):
        demo.train(config, state, *data[:4], **{name: 1})
    assert state["step"] == 0


def test_lines_where_there_is_no_terminal(capsys):
    for more, words in (([], "held-out"), (["--set", "held_out=0"], "test")):
        assert main([*SMALL, *more, "--kind", "tree"]) == 0
        out, err = capsys.readouterr()
        assert not err
        lines = [line for line in out.splitlines() if ": step" in line]
        assert len(lines) == 3
        for line, step in zip(lines, (20, 40, 60), strict=True):
            shown = rf"random hinge forest: step {step} of 60, loss \d\.\d{{4}}, {words} error [\d.]+ %"
            assert re.fullmatch(shown, line)


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self):
        return True


@pytest.mark.parametrize("library", [True, False])
def test_a_bar_on_a_terminal(monkeypatch, capsys, library):
    if library:
        pytest.importorskip("tqdm")
    else:
        monkeypatch.setitem(sys.modules, "tqdm", None)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert main([*SMALL, "--kind", "tree"]) == 0
    last = terminal.getvalue().rstrip().rpartition("\r")[2]
    assert last.startswith("random hinge forest")
    assert re.search(r"60(/| of )60.*loss \d\.\d{4}, held-out error [\d.]+ %", last)
    assert ": step" not in capsys.readouterr().out


def test_the_first_line_comes_before_the_data(monkeypatch, capsys):
    def load_digits():
        raise ValueError(capsys.readouterr().out)

    monkeypatch.setattr(demo, "load_digits", load_digits)
    assert main(SMALL) == 2
    begin = rf"error: hforest {re.escape(hforest.__version__)} trains on optical digits, 8x8 \(UCI\): "
    assert re.match(begin + r"random hinge forest, random hinge ferns; each 6 of", capsys.readouterr().err)


def test_the_test_rows_are_read_once(monkeypatch, capsys):
    data, given = demo.load_digits(), []

    def train(config, state, *arrays, **settings):
        given.append([row.tobytes() for x in arrays[::2] for row in x])
        return original[0](config, state, *arrays, **settings)

    def error_rate(config, state, x, y):
        assert state["step"] == 60
        given.append(x)
        return original[1](config, state, x, y)

    original = demo.train, demo.error_rate
    monkeypatch.setattr(demo, "train", train)
    monkeypatch.setattr(demo, "error_rate", error_rate)
    assert main([*SMALL, "--kind", "fern"]) == 0
    learned, tested = given
    assert sorted(learned) == sorted(row.tobytes() for row in data.x_train)
    assert np.array_equal(tested, data.x_test)


def test_rows_are_held_out():
    data = demo.load_digits()
    parts = demo.hold_out(data, 382, rng=0)
    assert [len(a) for a in parts[:4]] == [3441, 3441, 382, 382]
    assert parts.classes is data.classes
    for x, y in (parts[:2], parts[2:4]):
        assert x.dtype == np.float32
        assert set(zip(map(bytes, x), y.tolist(), strict=True)) <= set(
            zip(map(bytes, data.x_train), data.y_train.tolist(), strict=True)
        )
    assert parts.fingerprint == demo.hold_out(data, 382, rng=0).fingerprint
    assert parts.fingerprint != demo.hold_out(data, 382, rng=1).fingerprint
    for n in (0, 3823):
        with pytest.raises(ValueError, match=f"^n_rows: expected 1 to 3822, got {n}; "):
            demo.hold_out(data, n)
    with pytest.raises(TypeError, match="^data: expected a Data, got list; call"):
        demo.hold_out([], 1)


def test_an_error_of_a_callback_is_as_it_was_raised():
    def checkpoint(state):
        raise ValueError("mean: named as an array of the state is")

    data, config, state = small_run()
    with pytest.raises(ValueError, match="^mean: named as"):
        demo.train(config, state, *data[:4], checkpoint=checkpoint)


@pytest.mark.parametrize("optimizer", ["adam", "adagrad"])
def test_the_learning_rate_halves(monkeypatch, optimizer):
    used = []
    for name in ("adam", "adagrad"):
        monkeypatch.setattr(demo.network.optim, name, lambda *a: used.append(a[-1]))
    data, config, state = small_run(optimizer=optimizer, lr=0.5, lr_half_life=2, steps=30)
    demo.train(config, state, *data[:4])
    assert used == pytest.approx([0.5 * 0.5 ** min(10, step / 2) for step in range(1, 31)])
    with pytest.raises(ValueError, match="^lr_half_life: expected at least 0, got -1; "):
        demo.Config(lr_half_life=-1)


@pytest.mark.parametrize("kind", ["tree", "fern"])
def test_a_checkpoint_without_a_half_life_goes_on_as_before(tmp_path, kind):
    """Files of earlier versions have a constant rate and all training rows."""
    data, config, whole = small_run(kind=kind)
    demo.train(config, whole, *data[:4])
    _, _, state = small_run(kind=kind)
    demo.train(config, state, *data[:4], progress=lambda done, total: done < 20)
    path = tmp_path / "model.npz"
    demo.save_checkpoint(path, config, state, data)
    good = arrays(path)
    head = json.loads(str(good["head"]))
    del head["config"]["lr_half_life"]
    np.savez(path, **{**good, "head": np.array(json.dumps(head))})
    assert demo.load_checkpoint(path).config == config
    sizes = [
        "--n-trees",
        "4",
        "--set",
        "depth=3",
        "--set",
        "n_features=8",
        "--steps",
        "40",
        "--set",
        "eval_every=20",
    ]
    rates = ["--set", "lr=0.005", "--set", "lr_half_life=0", "--set", "held_out=0"]
    assert main([*sizes, *rates, "--kind", kind, "--save", str(path), "--resume", "--no-plot"]) == 0
    assert_same_bits(demo.load_checkpoint(path).state, whole)


@pytest.mark.libraries
def test_the_picture_replaces_no_file_of_others(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    options, picture = [option for option in SMALL if option != "--no-plot"], tmp_path / _networks.PICTURE
    for _ in range(2):
        assert main([*options, "--kind", "tree"]) == 0
        assert "hforest.png: loss and held-out error over the steps" in capsys.readouterr().out
        assert picture.read_bytes()[:4] == b"\x89PNG"
    picture.write_bytes(b"\x89PNG, a photo")
    assert main([*options, "--kind", "tree"]) == 0
    assert "no picture was drawn: hforest.png: expected a new file or a picture" in capsys.readouterr().out
    assert picture.read_bytes() == b"\x89PNG, a photo"
    picture.unlink()
    picture.mkdir()
    assert main([*options, "--kind", "tree"]) == 0
    assert "no picture was drawn: " in capsys.readouterr().out
    assert main([*SMALL, "--kind", "tree"]) == 0
    assert "picture" not in capsys.readouterr().out


@pytest.mark.libraries
@pytest.mark.parametrize("kind", ["png", "pdf", "svg", "eps", "jpg"])
def test_a_picture_of_a_path_replaces_no_file_of_others(kind, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    options, picture = [option for option in SMALL if option != "--no-plot"], tmp_path / f"loss.{kind}"
    options += ["--kind", "tree", "--plot", str(picture)]
    picture.write_bytes(b"of others: hforest")
    assert main(options) == 2
    assert "--plot: expected a new file or a picture written by hforest" in capsys.readouterr().err
    assert picture.read_bytes() == b"of others: hforest"
    picture.unlink()
    assert main(options) == 0
    assert main(options) == (0 if kind != "jpg" else 2)  # which does not name its program


def test_no_picture_without_matplotlib(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    options = [option for option in SMALL if option != "--no-plot"]
    assert main([*options, "--kind", "tree"]) == 0
    assert "hforest.png: not drawn, since Matplotlib is not installed" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def test_the_last_lines_can_be_pasted(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([*SMALL, "--kind", "tree"]) == 0
    table, predict, page = (line.partition(" -m ")[2] for line in capsys.readouterr().out.splitlines()[-3:])
    assert main([*shlex.split(table)[1:], "--steps", "10", "--n-trees", "5"]) == 0
    assert main(shlex.split(predict)[1:]) == 0
    assert "out.npz: labels, probabilities of 1797 rows written" in capsys.readouterr().out
    assert page == "pydoc hforest.demo"


def test_help_and_version(capsys):
    for option, words in (
        ("--help", ["python -m hforest predict model.npz", "--data people.csv", "predict --help"]),
        ("--version", [f"hforest {hforest.__version__}\n"]),
    ):
        with pytest.raises(SystemExit) as caught:
            main([option])
        assert caught.value.code == 0
        out = capsys.readouterr().out
        assert all(word in out for word in words)


def test_bar(capsys):
    data, config, state = small_run(steps=3)
    demo.train(config, state, *data[:4], progress=True)
    assert "3/3" in capsys.readouterr().err


def test_rows_of_any_dtype_and_layout():
    data, config, want = small_run()
    demo.train(config, want, *data[:4])
    x, y, x_test, y_test, _ = data
    others = x_test[::-1][::-1], y_test.astype(">i2")
    for dtype, labels in (
        (np.uint8, y.astype(np.int64)), (np.float16, y.astype(np.uint8)), (np.float64, y), (">i4", y.tolist())
    ):  # fmt: skip
        _, _, state = small_run()
        demo.train(config, state, np.asfortranarray(x.astype(dtype)), labels, *others)
        assert_same_bits(state, want)
    scores = demo.predict(config, want, x_test)
    assert scores.dtype == np.float32
    assert np.array_equal(demo.predict(config, want, x_test.astype(np.float64)), scores)
    assert np.array_equal(demo.predict(config, want, x_test.tolist()), scores)
    assert np.array_equal(demo.predict(config, want, x_test[:0]), scores[:0])
    assert demo.error_rate(config, want, x_test, y_test.tolist()) == (scores.argmax(axis=1) != y_test).mean()


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"x_train": np.zeros((20, 5))}, ValueError, "^x_train: expected the 64 columns .*, got 5 columns; "),
        (
            {"x_test": np.zeros(64)},
            ValueError,
            "^x_test: expected shape .*; pass \\[x_test\\] for one sample",
        ),
        ({"x_test": np.zeros((0, 64))}, ValueError, "^x_test: expected at least 1 sample, got 0"),
        ({"x_train": np.full((3823, 64), np.nan)}, ValueError, "^x_train: expected finite numbers"),
        (
            {"y_train": np.full(3823, 10)},
            IndexError,
            "^y_train: expected 0 <= label < n_classes = 10, got 10",
        ),
        ({"y_test": np.full(1797, -1)}, IndexError, "^y_test: expected labels of at least 0, got -1"),
        (
            {"y_train": np.full(3823, "a")},
            TypeError,
            "^y_train: .*numpy.unique\\(y_train, return_inverse=True\\)\\[1\\]",
        ),
        ({"y_train": np.zeros(3823)}, TypeError, "^y_train: expected labels of an integer or bool dtype"),
    ],
)
def test_bad_arrays_are_named(changes, error, words):
    data, config, state = small_run()
    call = {name: a for name, a in data._asdict().items() if name != "classes"} | changes
    with pytest.raises(error, match=words):
        demo.train(config, state, **call)
    assert state["step"] == 0


def test_old_formats_are_refused(checkpoint):
    words = "format 2, got format 1; start again without --resume, or resume with the version"
    check_changed(checkpoint, demo.load_checkpoint, {"head": in_head(format=1)}, words)


# ------------------------------------------------------------------------------------------- arguments of wrong kinds

CONFIG = demo.Config(n_trees=2, depth=2, n_features=3, steps=1)
X, Y = np.zeros((4, 5)), np.array([0, 1, 0, 1])


def _uses(config, state):
    return (
        lambda: demo.step(config, state, X, Y),
        lambda: demo.predict(config, state, X),
        lambda: demo.error_rate(config, state, X, Y),
        lambda: demo.train(config, state, X, Y, X, Y),
    )


@pytest.mark.parametrize("optimizer", ["adam", "adagrad"])
@pytest.mark.parametrize("kind", ["tree", "fern"])
@pytest.mark.parametrize("value", [None, "a", [1.0], 3, np.zeros(7), np.zeros((2, 3), complex), object()])
def test_states_with_an_array_of_a_wrong_kind(optimizer, kind, value, tmp_path):
    config = demo.Config(kind, 2, 2, 3, optimizer=optimizer)
    for name in demo.start(config, 5, 2):
        if name == "step" and isinstance(value, int):
            continue
        state = demo.start(config, 5, 2) | {name: value}
        save = lambda s=state: demo.save_checkpoint(tmp_path / "a.npz", config, s, demo.load_digits())  # noqa: E731
        for call in (*_uses(config, state), save):
            with pytest.raises((TypeError, ValueError), match=rf"^state\['{name}'\]: expected .*, got .*; "):
                call()
        del state[name]
        for call in _uses(config, state):
            with pytest.raises(
                ValueError, match=f"^state: expected all arrays .*, got none called '{name}'; "
            ):
                call()


@pytest.mark.parametrize("value", [None, 3, "a", [], object()])
def test_models_of_wrong_kinds(value, tmp_path):
    for call in _uses(CONFIG, value):
        with pytest.raises(TypeError, match="^state: expected a dict, got .*; call"):
            call()
    state = demo.start(CONFIG, 5, 2)
    start = lambda: demo.start(value, 5, 2)  # noqa: E731
    for call in (
        *_uses(value, state),
        start,
        lambda: demo.save_checkpoint(tmp_path / "a", value, state, None),
    ):
        with pytest.raises(TypeError, match="^config: expected a Config, got .*; pass"):
            call()
    with pytest.raises(TypeError, match="^data: expected a Data, got .*; call"):
        demo.save_checkpoint(tmp_path / "a", CONFIG, state, value)
    for call in (demo.load_data, demo.load_checkpoint):
        if not isinstance(value, str):
            with pytest.raises(TypeError, match="^path: expected a path, got .*; pass"):
                call(value)


def test_arrays_of_a_state_that_overlap():
    state = demo.start(CONFIG, 5, 2)
    state["kernel_m"] = state["kernel_v"]
    with pytest.raises(
        ValueError, match=r"^state\['kernel_m'\]: .* overlaps state\['kernel_v'\]; pass a copy"
    ):
        demo.step(CONFIG, state, X, Y)


def test_settings_of_numpy_kinds_are_saved(tmp_path):
    config = demo.Config(n_trees=np.int64(2), depth=np.uint8(2), n_features=np.array(3), lr=np.float32(0.5))
    assert config == demo.Config(n_trees=2, depth=2, n_features=3, lr=0.5)
    data = demo.load_digits()
    demo.save_checkpoint(
        tmp_path / "a.npz", config, demo.start(config, data.x_train.shape[1], data.n_classes), data
    )
    assert demo.load_checkpoint(tmp_path / "a.npz").config == config


def test_sizes_of_a_start():
    for name in ("n_inputs", "n_classes"):
        for value in (2**70, 10**400, 0, None, 1.5):
            with pytest.raises((TypeError, ValueError), match=f"^{name}: expected .*, got .*; "):
                demo.start(CONFIG, **({"n_inputs": 5, "n_classes": 2} | {name: value}))


def _bytes(state):
    return {name: np.asarray(a).tobytes() for name, a in state.items()}


WRONG = {
    "frozen": lambda a: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape),
    "backwards": lambda a: a[::-1],
    "masked": np.ma.array,
    "NaN": lambda a: np.full_like(a, np.nan),
    "infinity": lambda a: np.full_like(a, np.inf),
    "below 0": lambda a: a - a.dtype.type(7),
}
READ = {
    "infinity": ("mean", "var"),
    "NaN": ("kernel", "thresholds", "weights", "mean", "var"),
    "below 0": ("features", "var"),
}
"""The arrays whose values affect a step."""


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("change", WRONG)
@pytest.mark.parametrize("optimizer", ["adam", "adagrad"])
@pytest.mark.parametrize("kind", ["tree", "fern"])
def test_an_error_leaves_the_state_as_it_was(kind, optimizer, change):
    config = demo.Config(kind, 2, 2, 3, optimizer=optimizer, steps=1)
    start = lambda: demo.start(config, 5, 2, dtype=np.float64)  # noqa: E731
    for name in READ.get(change, start().keys() - {"step"}):
        if (name, change) == ("features", "frozen"):
            continue
        state = start()
        state[name] = WRONG[change](state[name])
        before = _bytes(state)
        for call in (demo.step, demo.train):
            with pytest.raises(
                (TypeError, ValueError, IndexError),
                match=rf"^(state\['{name}'\]|x|x_train|scores): expected .*, got .*; ",
            ):
                call(config, state, X, Y, *(() if call is demo.step else (X, Y)))
            assert _bytes(state) == before, (name, change)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("optimizer", ["adam", "adagrad"])
@pytest.mark.parametrize("big", [1e300, 1.7e308])
def test_samples_near_the_largest_number(optimizer, big):
    config = demo.Config("tree", 2, 2, 3, optimizer=optimizer, steps=1)
    for sample in (np.full((4, 5), big), np.full((4, 5), 1e155)):
        state = demo.start(config, 5, 2, dtype=np.float64)
        demo.predict(config, state, sample / 1e160)
        before = _bytes(state)
        if sample[0, 0] == 1.7e308:
            for call in (demo.step, demo.predict):
                with pytest.raises(
                    ValueError, match="^x: expected samples whose learned features are finite, got"
                ):
                    call(config, state, sample, *((Y,) if call is demo.step else ()))
                assert _bytes(state) == before
        else:
            assert demo.step(config, state, sample, Y) >= 0


@pytest.mark.parametrize("optimizer", ["adam", "adagrad"])
def test_states_that_overlap_the_samples(optimizer):
    config = demo.Config("tree", 2, 2, 3, optimizer=optimizer, steps=1)
    for dtype in (np.float64, np.float32):
        state = demo.start(config, 5, 2, dtype=np.float64)
        buffer = np.zeros(state["weights"].size + 100, np.float64)
        state["weights"] = buffer[: state["weights"].size].reshape(state["weights"].shape)
        x = buffer.view(dtype)[:20].reshape(4, 5)
        y = buffer.view(np.int64)[:4]
        calls = [("step", (x, Y), "x"), ("step", (X, y), "y"), ("train", (X, Y, x, Y), "x_test")]
        if optimizer == "adam":
            calls += [("predict", (x,), "x"), ("error_rate", (X, y), "y")]
        else:
            demo.predict(config, state, x)
        for name, given, argument in calls:
            with pytest.raises(
                ValueError, match=rf"^state\['weights'\]: .* overlaps {argument}; pass a copy"
            ):
                getattr(demo, name)(config, state, *given)


@pytest.mark.parametrize("name", ["step", "loss", "error", "pending"])
def test_histories_of_wrong_kinds(name):
    for value in (3, "word", object(), np.zeros((2, 2)), [1, "a"], {}):
        state = demo.start(CONFIG, 5, 2) | {f"history_{name}": value}
        before = _bytes(demo.start(CONFIG, 5, 2))
        with pytest.raises(
            TypeError, match=rf"^state\['history_{name}'\]: expected a 1-D array, got .*; pass"
        ):
            demo.train(CONFIG, state, X, Y, X, Y)
        assert {n: a for n, a in _bytes(state).items() if n in before} == before


@pytest.mark.parametrize(
    ("optimizer", "moment"), [("adam", "kernel_m"), ("adam", "kernel_v"), ("adagrad", "kernel_h")]
)
@pytest.mark.parametrize("value", [np.nan, np.inf, -1.0])
def test_moments_that_no_optimiser_makes_are_refused(optimizer, moment, value):
    config = demo.Config(
        kind="tree", n_trees=2, depth=2, n_features=3, n_kernels=0, optimizer=optimizer, steps=2
    )
    state = demo.start(config, 4, 2)
    state[moment][0, 0] = value
    x, y = np.random.default_rng(0).normal(size=(6, 4)), np.array([0, 1] * 3)
    if moment.endswith("_m") and value == -1:
        demo.step(config, state, x, y)
        return
    before = _bytes(state)
    for call in (lambda: demo.step(config, state, x, y), lambda: demo.train(config, state, x, y, x, y)):
        with pytest.raises(ValueError, match=rf"^state\['{moment}'\]: expected .*, got .*; "):
            call()
        assert _bytes(state) == before


def test_weights_that_are_not_finite_are_named():
    config = demo.Config(n_trees=2, depth=2, n_features=3, batch_size=2)
    state = demo.start(config, n_inputs=2, n_classes=2)
    state["weights"][:] = np.nan
    with pytest.raises(ValueError, match=r"state\['weights'\]: expected leaf weights whose sums are finite"):
        demo.step(config, state, np.array([[0.1, -0.1], [0.6, 0.1]]), np.array([0, 1]))
