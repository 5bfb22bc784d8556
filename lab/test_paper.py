"""Scripts that reproduce the tables of Lay et al. 2018: rules of poker, the grid, interrupted runs."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from hforest import demo


def test_poker_hands_by_hand(script):
    hands = [
        ([(1, 1), (2, 3), (3, 5), (4, 7), (1, 9)], 0),
        ([(1, 1), (2, 1), (3, 5), (4, 7), (1, 9)], 1),
        ([(1, 1), (2, 1), (3, 5), (4, 5), (1, 9)], 2),
        ([(1, 4), (2, 4), (3, 4), (4, 5), (1, 9)], 3),
        ([(1, 1), (2, 2), (3, 3), (4, 4), (1, 5)], 4),
        ([(1, 10), (2, 11), (3, 12), (4, 13), (1, 1)], 4),  # the ace is high
        ([(1, 11), (2, 12), (3, 13), (4, 1), (1, 2)], 0),  # but not in the middle
        ([(3, 1), (3, 4), (3, 6), (3, 8), (3, 13)], 5),
        ([(1, 4), (2, 4), (3, 4), (4, 9), (1, 9)], 6),
        ([(1, 4), (2, 4), (3, 4), (4, 4), (1, 9)], 7),
        ([(2, 5), (2, 6), (2, 7), (2, 8), (2, 9)], 8),
        ([(2, 10), (2, 11), (2, 12), (2, 13), (2, 1)], 9),
    ]
    x = np.array([np.ravel(cards) for cards, _ in hands])
    assert script("table2").poker_hand(x).tolist() == [label for _, label in hands]


def test_poker_hands_of_the_training_file(script, data):
    file = data("poker_train_only")
    np.testing.assert_array_equal(script("table2").poker_hand(file["x"].astype(int)), file["y"])


def test_drawn_hands_are_hands(script):
    x = script("table2").hands(2000, np.random.default_rng(0))
    cards = x[:, 0::2] * 13 + x[:, 1::2]
    assert all(len(set(row)) == 5 for row in cards)
    assert (x[:, 0::2].min(), x[:, 0::2].max()) == (1, 4)
    assert (x[:, 1::2].min(), x[:, 1::2].max()) == (1, 13)
    share = np.bincount(script("table2").poker_hand(x), minlength=10) / 2000
    np.testing.assert_allclose(share[:2], [0.501, 0.423], atol=0.03)  # known odds


def run_script(module, monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["script", *arguments])
    module.main()
    return capsys.readouterr().out


def test_table2_skips_finished_runs(script, monkeypatch, capsys, data, tmp_path):
    data("iris")
    folder = Path(__file__).resolve().parents[2] / "shared" / "data"
    path = tmp_path / "table2.json"
    arguments = ["--data", str(folder), "--only", "iris-tree", "--steps", "60", "--json", str(path)]
    table2 = script("table2")
    run_script(table2, monkeypatch, capsys, *arguments, "--runs", "1")
    first = json.loads(path.read_text(encoding="utf-8"))["rows"]
    assert [r["run"] for r in first] == [0]
    text = run_script(table2, monkeypatch, capsys, *arguments, "--runs", "2")
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    assert rows[0] == first[0]
    assert [r["run"] for r in rows] == [0, 1, 2]  # iris has half as many again
    assert "| iris, tree | 10/5 | 2.13 ± 2.66 |" in text


def test_table2_runs_the_grid(script, monkeypatch, capsys, data, tmp_path):
    data("abalone")
    folder = Path(__file__).resolve().parents[2] / "shared" / "data"
    path, task = tmp_path / "grid.json", "abalone_regression-fern"
    arguments = ["--data", str(folder), "--only", task, "--steps", "3", "--grid", "--json", str(path)]
    table2 = script("table2")
    text = run_script(table2, monkeypatch, capsys, *arguments, "--runs", "1")
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    assert [tuple(r["size"]) for r in rows] == table2.sizes(task)
    assert (len(set(table2.sizes(task))), len(set(table2.GRID))) == (16, 20)
    least = min(rows, key=lambda r: r["valid"])
    n_trees, depth = least["size"]
    assert f"| abalone regression, fern | **{n_trees}/{depth}** | 1 | R² " in text
    assert text.count("**") == 2
    run_script(table2, monkeypatch, capsys, *arguments, "--runs", "1")
    assert json.loads(path.read_text(encoding="utf-8"))["rows"] == rows


def test_choices_of_the_authors_are_runs_of_their_own(script, monkeypatch, capsys, data, tmp_path):
    """Their folds have the second's samples in place of the third's: one run tests on what it learns from."""
    data("iris")
    folder = Path(__file__).resolve().parents[2] / "shared" / "data"
    table2 = script("table2")
    plain, theirs = ([table2.iris(folder, run, third) for run in range(3)] for third in (2, 1))
    for split in plain:
        x = np.concatenate([split.x, split.x_valid, split.x_test])
        assert len(np.unique(x, axis=0)) == len(np.unique(np.load(folder / "iris.npz")["x"], axis=0))
    same = [[name for name in ("x", "x_valid") if np.array_equal(getattr(a, name), a.x_test)] for a in theirs]
    assert same == [["x_valid"], [], ["x"]]
    assert np.array_equal(theirs[1].x, theirs[1].x_valid)
    path = tmp_path / "table2.json"
    arguments = [
        "--data",
        str(folder),
        "--only",
        "iris-fern",
        "--steps",
        "60",
        "--runs",
        "1",
        "--json",
        str(path),
    ]
    for more in ([], ["--as-authors", "once", "folds", "bias"], ["--as-authors", "folds"], ["--looks", "20"]):
        text = run_script(table2, monkeypatch, capsys, *arguments, *more)
        assert run_script(table2, monkeypatch, capsys, *arguments, *more) == text
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    assert [(r.get("as_authors"), r.get("looks")) for r in rows] == [
        (None, None), (["bias", "once", "folds"], None), (["folds"], None), (None, 20),
    ]  # fmt: skip
    assert "| iris, fern | `bias`, `once`, `folds` | 1 | " in text


def test_random_forests_of_table2(script, data):
    data("iris")
    data("abalone")
    folder = Path(__file__).resolve().parents[2] / "shared" / "data"
    row = script("table2").run("iris-forest", 0, 1, folder)
    assert row["error"] < 20
    assert row["valid"] < 20
    assert 30 < script("table2").run("abalone_regression-forest", 0, 1, folder)["error"] < 60


@pytest.mark.slow
def test_table3_continues_from_a_checkpoint(script, monkeypatch, tmp_path):
    table3 = script("table3")
    monkeypatch.setattr(table3, "CHECKPOINT_STEPS", 400)
    monkeypatch.setitem(table3.TASKS, "digits", {"data": "digits", "kind": "tree", "n_trees": 5, "depth": 4})
    digits = demo.load_digits()
    whole = table3.run("digits", 0, 800, digits, tmp_path)

    class Killed(Exception):
        pass

    save = demo.save_checkpoint

    def save_and_die(*args):
        save(*args)
        raise Killed

    monkeypatch.setattr(demo, "save_checkpoint", save_and_die)
    with pytest.raises(Killed):
        table3.run("digits", 0, 800, digits, tmp_path)
    monkeypatch.setattr(demo, "save_checkpoint", save)
    resumed = table3.run("digits", 0, 800, digits, tmp_path)
    for key in ("least", "at", "last", "steps"):
        assert resumed[key] == whole[key]
    assert not list(tmp_path.iterdir())
