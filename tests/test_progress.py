"""Protocol of progress: kinds of arguments, bars with and without tqdm, stopping."""

import builtins
import sys

import numpy as np
import pytest

import hforest
from hforest import cascade, co2, demo, neural, tabular, tree
from hforest.core import progress
from hforest.core.progress import reporting


def work(argument, total=5, unit="tree"):
    """Returns the number of units that a loop over `total` finishes."""
    done = 0
    with reporting(argument, total, unit) as report:
        for i in range(total):
            done = i + 1
            if not report(done):
                break
    return done


@pytest.fixture
def no_tqdm(monkeypatch):
    """Runs a test as if tqdm were not installed."""
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "tqdm":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.delitem(sys.modules, "tqdm", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)


@pytest.mark.parametrize("argument", [None, False, np.False_])
def test_nothing_is_shown(argument, capsys):
    assert work(argument) == 5
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("argument", [True, np.True_])
def test_a_bar_is_shown(argument, capsys):
    pytest.importorskip("tqdm")
    assert work(argument, unit="round") == 5
    out, err = capsys.readouterr()
    assert out == ""
    assert "5/5" in err
    assert "round" in err


def test_a_bar_of_work_that_goes_on(capsys):
    pytest.importorskip("tqdm")
    with reporting(True, 9, "step") as report:
        assert report(7)
        assert report(9)
    assert "9/9" in capsys.readouterr().err


def test_a_bar_without_tqdm(no_tqdm, monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now[0])
    with reporting(True, 5, "tree") as report:
        for done, time in ((1, 0.1), (2, 1.2), (3, 1.3), (4, 2.1), (5, 2.2)):
            now[0] = time
            assert report(done) is True
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == ["tree 2 of 5", "tree 5 of 5"]  # at most one per second, and the last


def test_a_bar_of_work_that_stops_early_is_full(capsys):
    pytest.importorskip("tqdm")
    with reporting(True, 9, "step") as report:
        report(4)
    last = capsys.readouterr().err.rpartition("\r")[2]
    assert "4/4" in last
    assert "100%" in last


@pytest.mark.parametrize("reached", [0, 4])
def test_a_bar_of_work_that_fails_stays_where_it_was(reached, capsys):
    pytest.importorskip("tqdm")
    with pytest.raises(KeyboardInterrupt), reporting(True, 9, "step") as report:
        report(reached)
        raise KeyboardInterrupt
    assert f"{reached}/9" in capsys.readouterr().err.rpartition("\r")[2]


def test_work_without_tqdm_that_stops_early_writes_what_it_reached(no_tqdm, monkeypatch, capsys):
    monkeypatch.setattr(progress.time, "perf_counter", lambda: 0.0)
    with reporting(True, 9, "step") as report:
        report(4)
    assert capsys.readouterr().err.splitlines() == ["step 4 of 9"]


def test_bars_of_fits_that_stop_early_are_full(capsys, monkeypatch):
    """Noise: the held-out loss of members and of boosted trees rises soon."""
    pytest.importorskip("tqdm")
    monkeypatch.setattr(tabular.recipe, "JUDGE_EVERY", 5)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(300, 3)), rng.integers(0, 2, 300)
    tabular.fit(x, y, n_members=1, n_trees=5, depth=2, steps=4000, rng=0, progress=True)
    last = capsys.readouterr().err.rpartition("\r")[2]
    done, _, total = last.partition("| ")[2].partition(" ")[0].partition("/")
    assert done == total
    assert 0 < int(done) < 4000
    assert "100%" in last


@pytest.mark.parametrize("answer", [None, True, np.True_, 0, 1, "", [], np.int64(0)])
def test_a_function_is_called_after_every_unit(answer):
    seen = []

    def function(done, total):
        seen.append((done, total))
        return answer

    assert work(function, 4) == 4
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


@pytest.mark.parametrize("answer", [False, np.False_, np.bool_(0)])
def test_false_stops(answer):
    seen = []

    def function(done, total):
        seen.append(done)
        return answer if done == 2 else None

    assert work(function) == 2
    assert seen == [1, 2]


def test_objects_that_can_be_called():
    class Counter:
        n = 0

        def __call__(self, done, total):
            self.n += 1

        def __bool__(self):
            return False  # the truth value of an object does not matter

    counter = Counter()
    assert work(counter) == 5
    assert counter.n == 5


@pytest.mark.parametrize("argument", [1, 0, "yes", [], 1.5, np.int64(1), object()])
def test_what_cannot_be_called_is_refused_before_the_work(argument):
    message = r"^progress: expected None, True or a function, got \w+; pass True for a bar"
    with pytest.raises(TypeError, match=message):
        work(argument)


@pytest.mark.parametrize("argument", [True, lambda done, total: None])
def test_errors_of_the_work_come_through(argument):
    with pytest.raises(ZeroDivisionError), reporting(argument, 3, "tree"):
        _ = 1 / 0


def test_errors_of_the_function_come_through():
    with pytest.raises(ZeroDivisionError):
        work(lambda done, total: 1 / 0)


def test_no_work():
    assert work(lambda done, total: False, 0) == 0
    assert work(True, 0) == 0


@pytest.mark.parametrize(
    ("argument", "fault"),
    [
        (3, "None, True or a function, got int"),
        ("bar", "None, True or a function, got str"),
        (np.array([True, False]), "None, True or a function, got ndarray"),
        (lambda: None, "accepts .done, total., got one that does not .too many positional"),
        (lambda done, total, unit: None, "accepts .done, total., got one that does not .missing"),
    ],
)
def test_what_cannot_be_called_is_refused_before_any_work(argument, fault):
    x, y = np.zeros((4, 2)), np.array([0, 1, 0, 1])
    calls = (
        lambda: work(argument),
        lambda: hforest.grow(x, y, 1, progress=argument),
        lambda: co2.search(x, y, 1, progress=argument),
        lambda: cascade.grow(x, y, n_folds=2, progress=argument),
        lambda: tabular.fit(x, y, progress=argument),
        lambda: neural.fit(neural.linear_init(1, 1, 2, 2), x, y, progress=argument),
        lambda: tree.permutation_importance(hforest.grow(x, y, 1), x, y, progress=argument),
        lambda: tree.shap_values(hforest.grow(x, y, 1), x, cover=x, progress=argument),
    )
    for call in calls:
        with pytest.raises(TypeError, match=f"^progress: expected (a function that )?{fault}.*; pass "):
            call()


def test_functions_without_a_signature_raise_what_they_raise():
    with pytest.raises(TypeError, match="^int"):
        work(int)


def test_checkpoints_are_functions_of_one_argument():
    x, y, bad = np.zeros((4, 2)), np.array([0, 1, 0, 1]), lambda: None
    config = demo.Config(n_trees=1, depth=1, n_features=2)
    calls = (
        lambda: co2.search(x, y, 1, checkpoint=bad),
        lambda: cascade.grow(x, y, n_folds=2, checkpoint=bad),
        lambda: neural.fit(neural.linear_init(1, 1, 2, 2), x, y, checkpoint=bad),
        lambda: demo.train(config, demo.start(config, 2, 2), x, y, x, y, checkpoint=bad),
    )
    for call in calls:
        with pytest.raises(TypeError, match="^checkpoint: expected a function that accepts .*; pass "):
            call()
