"""`python -m hforest --data FILE.npz` and `python -m hforest predict`: the recipe for tables on the command line."""

import json
import os
import re
import signal
import sys

import numpy as np
import pytest

import hforest
from hforest import _tables, demo, tabular
from hforest.__main__ import main, parse

SMALL = ["--n-trees", "10", "--set", "depth=4", "--set", "n_features=20", "--steps", "100"]


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 4)) * [1e-9, 1.0, 100.0, 1e9]
    y = (x[:, 0] / 1e-9 + x[:, 1] > 0).astype(int)
    path = tmp_path / "table.npz"
    np.savez(path, x=x, y=y)
    return path, x, y


def lines(capsys):
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("labels", [["ham", "spam"], [-1, 5], [False, True], [1.0, 2.0]])
def test_a_model_gives_labels_and_probabilities(table, labels, tmp_path, capsys):
    path, x, y = table
    labels = np.array(labels)
    np.savez(path, x=x, y=labels[y])
    model, out = str(tmp_path / "model.npz"), str(tmp_path / "out.npz")
    assert main(["--data", str(path), *SMALL, "--save", model]) == 0
    printed = capsys.readouterr().out
    assert (
        "240 training rows and 60 held-out rows that neither training nor selection used, 4 columns, 2 classes\n"
        in printed
    )
    interval = r"\(95 %: (\S+) to (\S+) %\)"
    found = re.search(
        rf"held-out rows that neither training nor selection used: error (\S+) % {interval}\n", printed
    )
    assert float(re.search(r"log loss (\S+), AUC", printed)[1]) < 0.6
    assert float(re.search(r"AUC (\S+); the constant", printed)[1]) > 0.9
    assert f"{model}: the model is fitted to all 300 rows" in printed
    low, high = float(found[2]), float(found[3])
    assert 0 <= low < float(found[1]) < 15 < high + 15

    assert main(["predict", model, str(path), "--out", out]) == 0
    errors = capsys.readouterr().err
    assert float(re.match(rf"error (\S+) % {interval}\n", errors)[1]) < 15
    assert "about 100 % of the rows are rows of training, whose error is too low" in errors
    with np.load(out) as result:
        assert result["labels"].dtype == labels.dtype
        assert (result["labels"] == labels[y]).mean() > 0.85
        p = result["probabilities"]
    assert (tabular.predict(tabular.load(model), x) == p).all()

    assert main(["predict", model, str(path)]) == 0
    header, *rows = lines(capsys)
    assert header.split("\t") == [
        "predicted label",
        *(f"probability of {label}" for label in labels.tolist()),
    ]
    assert len(rows) == 300
    label, *shares = rows[0].split("\t")
    assert label == str(labels[p[0].argmax()])
    np.testing.assert_allclose([float(share) for share in shares], p[0], atol=1e-6)


def test_held_out_rows_choose_nothing(table, monkeypatch, capsys):
    path, x, _ = table
    given = {}

    def fit(x, y, **settings):
        given.update(x=x, y=y, settings=settings)
        return original(x, y, **settings)

    original = tabular.fit
    monkeypatch.setattr(tabular, "fit", fit)
    assert main(["--data", str(path), *SMALL]) == 0
    assert "validation" not in given["settings"]
    seen = {row.tobytes() for row in given["x"]}
    assert len(seen) == 240
    found = _tables._of_archive(parse(["--data", str(path)]))
    assert not seen & {row.tobytes() for row in found.x_test}
    assert {row.tobytes() for row in x} == seen | {row.tobytes() for row in found.x_test}


def test_targets_are_predicted(table, tmp_path, capsys):
    path, x, _ = table
    y = x[:, 1] + 0.5
    np.savez(path, x=x, y=y)
    model = str(tmp_path / "model.npz")
    assert main(["--data", str(path), *SMALL, "--train", "200", "--save", model]) == 0
    printed = capsys.readouterr().out
    assert "200 training rows and 100 rows after --train, 4 columns, regression" in printed
    found = re.search(r"mean squared error (\S+) \(95 %: (\S+) to (\S+)\), (\S+) % of the variance", printed)
    assert float(re.search(r"R2 (\S+), mean absolute error \S+; the mean of", printed)[1]) > 0.8
    assert float(found[2]) < float(found[1]) < float(found[3])
    assert float(found[4]) < 20
    assert main(["predict", model, str(path)]) == 0
    captured = capsys.readouterr()
    header, *rows = captured.out.splitlines()
    assert header == "predicted target"
    p = np.array([float(line) for line in rows])
    assert ((p - y) ** 2).mean() < 0.2 * y.var()
    assert captured.err.startswith("mean squared error ")
    assert main(["predict", model, str(path), "--out", str(tmp_path / "o.npz")]) == 0
    with np.load(tmp_path / "o.npz") as result:
        np.testing.assert_allclose(result["targets"], p, rtol=1e-6)


def test_whole_numbers_are_targets_where_the_task_says_so(table, tmp_path, capsys):
    path, _, _ = table
    assert main(["--data", str(path), *SMALL, "--task", "regression"]) == 0
    assert "regression" in lines(capsys)[1]


def test_official_parts_and_unknown_labels(table, tmp_path, capsys):
    path, x, y = table
    np.savez(path, x_train=x[:200], y_train=y[:200], x_test=x[200:], y_test=np.full(100, 9))
    assert main(["--data", str(path), *SMALL]) == 0
    assert "test rows: error 100.00 % (95 %: 96.30 to 100.00 %)\n" in capsys.readouterr().out


def test_a_line_says_that_training_has_ended(table, capsys):
    path, _, _ = table
    assert main(["--data", str(path), *SMALL]) == 0
    out, err = capsys.readouterr()
    assert not err
    first, *others = out.splitlines()
    assert first == f"hforest {hforest.__version__} fits the recipe for tables, 3 members, to {path}"
    assert [re.sub(r"step \d+", "step N", line) for line in others if ": step" in line] == [
        "training rows: step N of 1200"
    ]


def test_a_file_of_another_kind_is_told_what_is_read(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, kind in (("churn.dat", "table"), ("churn.csv", "tree")):
        (tmp_path / name).write_text("a,b\n1,2\n")
        assert main(["--data", name, "--kind", kind]) == 2
        error = capsys.readouterr().err
        assert error.startswith(
            f"error: {name}: expected an .npz archive with arrays x and y, or a table whose"
        )


def test_an_archive_of_objects_is_told_how_to_become_one_of_numbers(table, tmp_path, capsys, monkeypatch):
    path, x, y = table
    monkeypatch.chdir(tmp_path)
    np.savez(path, x=x.astype(object), y=np.array(["a", "b"], object)[y])
    assert main(["--data", str(path)]) == 2
    error = capsys.readouterr().err
    assert "got Python objects in the array 'x', which are not loaded; if you trust the file" in error
    assert "damaged" not in error
    exec("\n".join(line.strip() for line in error.splitlines()[1:]), {"numpy": np})
    assert main(["--data", "new.npz", *SMALL]) == 0
    with np.load("new.npz") as file:
        assert (file["x"] == x).all()


def test_a_network_is_applied_too(tmp_path, capsys):
    path, data = tmp_path / "m.npz", demo.load_digits()
    small = [
        "--kind",
        "tree",
        "--n-trees",
        "5",
        "--set",
        "depth=4",
        "--set",
        "n_features=10",
        "--steps",
        "300",
    ]
    assert main([*small, "--save", str(path)]) == 0
    np.savez(tmp_path / "d.npz", x_test=data.x_test, y_test=data.y_test)
    assert main(["predict", str(path), str(tmp_path / "d.npz"), "--out", str(tmp_path / "o.npz")]) == 0
    assert float(re.search(r"error (\S+) %", capsys.readouterr().err)[1]) < 40
    with np.load(tmp_path / "o.npz") as result:
        np.testing.assert_allclose(result["probabilities"].sum(axis=1), 1)


def test_an_interrupt_keeps_the_model(table, tmp_path, monkeypatch, capsys):
    path, x, _ = table
    original = _tables._Progress.__call__

    def interrupt(self, done, total):
        if done >= 50 and not self.stopped:
            os.kill(os.getpid(), signal.SIGINT)
        return original(self, done, total)

    monkeypatch.setattr(_tables._Progress, "__call__", interrupt)
    before = signal.getsignal(signal.SIGINT)
    model = tmp_path / "model.npz"
    assert main(["--data", str(path), *SMALL, "--save", str(model)]) == 130
    assert signal.getsignal(signal.SIGINT) is before
    assert lines(capsys)[-1].startswith("interrupted; ")
    assert tabular.predict(tabular.load(model), x).shape == (300, 2)


@pytest.mark.parametrize(
    ("content", "options", "words"),
    [
        ({"x": np.zeros((4, 2))}, [], "expected arrays x and y"),
        ({"x": np.zeros((4, 2)), "y": np.zeros(3, int)}, [], "y: expected shape"),
        ({"x": np.zeros(4), "y": np.zeros(4, int)}, [], "x: expected shape"),
        ({"x": np.full((4, 2), np.nan), "y": np.zeros(4, int)}, [], "x: expected finite"),
        ({"x": np.zeros((4, 2)), "y": np.zeros(4, complex)}, [], "y: expected real numbers"),
        ({"x": np.zeros((4, 2)), "y": np.full(4, np.inf)}, [], "y: expected finite"),
        ({"x": np.zeros((4, 2)), "y": np.full(4, 0.5)}, ["--task", "classification"], "pass --task regression"),
        ({"x": np.zeros((4, 2)), "y": np.array(list("abab"))}, ["--task", "regression"], "y: expected"),
        ({"x": np.zeros((4, 2)), "y": np.zeros(4, int)}, ["--train", "9"], "--train: expected 1 to 3, got 9"),
        ({"x": np.zeros((1, 2)), "y": np.zeros(1, int)}, [], "expected at least 2 samples"),
        ({"x": np.zeros((4, 2)), "y": np.zeros(4, int)}, ["--steps", "-1"], "steps: expected"),
    ],
)  # fmt: skip
def test_bad_tables_are_refused(content, options, words, tmp_path, capsys):
    path = tmp_path / "t.npz"
    np.savez(path, **content)
    assert main(["--data", str(path), *options]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert words in error


@pytest.mark.parametrize(
    "options",
    [
        ["--resume", "--save", "m.npz"],
        ["--plot", "p.png"],
        ["--device", "cuda"],
    ],
)
def test_options_of_networks_are_refused(options, table, capsys):
    with pytest.raises(SystemExit):
        main(["--data", str(table[0]), *options])
    assert "--kind tree or fern" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["--kind", "table"])
    with pytest.raises(SystemExit):
        main(["--kind", "tree", "--task", "regression"])
    with pytest.raises(SystemExit):
        main(["--kind", "tree", "--target", "a"])
    assert main(["--data", str(table[0]), "--set", "n_kernels=3"]) == 2
    assert (
        "--set: expected settings of depth, n_features, lr, batch_size, got 'n_kernels'"
        in capsys.readouterr().err
    )


def test_files_are_not_replaced_by_mistake(table, tmp_path, capsys):
    path, x, _ = table
    before = path.read_bytes()
    other = tmp_path / "other.npz"
    np.savez(other, a=x)
    for save in (path, other, tmp_path):
        assert main(["--data", str(path), *SMALL, "--save", str(save)]) == 2
        assert "--save: expected" in capsys.readouterr().err
    model = str(tmp_path / "m.npz")
    assert main(["--data", str(path), *SMALL, "--save", model]) == 0
    assert main(["--data", str(path), *SMALL, "--save", model]) == 0
    for out in (path, model):
        assert main(["predict", model, str(path), "--out", str(out)]) == 2
    assert path.read_bytes() == before


def test_predictions_replace_only_predictions(table, tmp_path, capsys):
    path, x, y = table
    model, out = str(tmp_path / "m.npz"), tmp_path / "out.npz"
    tabular.save(model, tabular.fit(x, y, n_trees=3, depth=2, n_projections=2, steps=0, rng=0))
    (tmp_path / "other.npz").write_bytes((tmp_path / "m.npz").read_bytes())
    np.savez(tmp_path / "mine.npz", labels=y, probabilities=x)
    (tmp_path / "thesis.npz").write_text("all of it")
    for name in ("other.npz", "mine.npz", "thesis.npz"):
        before = (tmp_path / name).read_bytes()
        assert main(["predict", model, str(path), "--out", str(tmp_path / name)]) == 2
        assert "--out: expected a new file or predictions written by hforest, got" in capsys.readouterr().err
        assert (tmp_path / name).read_bytes() == before
    assert main(["predict", model, str(path), "--out", str(out)]) == 0
    np.savez(path, x=x[:7])
    assert main(["predict", model, str(path), "--out", str(out)]) == 0
    with np.load(out) as found:
        assert len(found["labels"]) == 7
    assert main(["predict", model, str(path), "--out", str(tmp_path / "mine.npz"), "--force"]) == 0
    assert np.load(tmp_path / "mine.npz")["labels"].shape == (7,)
    assert main(["predict", model, str(path), "--out", str(tmp_path / "out.txt")]) == 2
    assert "--out: expected a file that ends in .csv, .parquet, .npz, got " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("model", "data", "words"),
    [
        ("missing.npz", "table.npz", "no such file"),
        ("table.npz", "table.npz", "expected a model"),
        ("model.npz", "missing.npz", "no such file"),
        ("model.npz", "narrow.npz", "x: expected the 4 columns"),
        ("model.npz", "empty.npz", "expected an array x or x_test"),
        ("few.npz", "table.npz", "model.classes: expected the labels of 2 classes"),
    ],
)
def test_bad_predictions_are_refused(model, data, words, table, tmp_path, capsys):
    _, x, y = table
    fitted = tabular.fit(x, y, n_trees=3, depth=2, n_projections=2, steps=0, rng=0)
    tabular.save(tmp_path / "model.npz", fitted)
    _tables.write(str(tmp_path / "few.npz"), fitted._replace(classes=np.arange(3)))
    np.savez(tmp_path / "narrow.npz", x=x[:, :2])
    np.savez(tmp_path / "empty.npz", a=x)
    assert main(["predict", str(tmp_path / model), str(tmp_path / data)]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.libraries
def test_the_ablation_script_makes_a_row_a_table(script, tmp_path, monkeypatch, capsys):
    pytest.importorskip("sklearn")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(90, 3))
    np.savez(tmp_path / "a.npz", x=x, y=(x[:, 0] > 0).astype(int))
    np.savez(tmp_path / "abalone.npz", x_train=x, y_train=np.arange(90))
    module, record = script("tabular_ablation"), tmp_path / "r.json"
    options = ["--tables", "a", "abalone", "--parts", "start", "forest", "--held-out", "--json", str(record)]
    monkeypatch.setattr(sys, "argv", ["tabular_ablation", "--data", str(tmp_path), *options])
    before = hforest.get_num_threads()
    try:
        module.main()
    finally:
        hforest.set_num_threads(before)
    rows = json.loads(record.read_text(encoding="utf-8"))["rows"]
    assert [row["table"] for row in rows] == ["a", "abalone"]
    assert all(
        0 <= row[part]["error"][0] < 1000 for row in rows for part in ("random forest", "start", "forest")
    )
    assert "all, seconds" in capsys.readouterr().out
    assert module.ratio(rows, "random forest", "error") == 1.0
    kept = module.recipe.GROUPS
    with module.constants({"GROUPS": {}}):
        assert module.recipe.GROUPS == {}
    assert module.recipe.GROUPS is kept
