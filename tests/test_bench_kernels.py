"""bench/kernels.py and bench/co2.py: every variant returns hforest's result, and a different result ends the bench."""

import json
import sys

import numpy as np
import pytest

NAMES = [
    "project", "conv2d", "conv2d_backward", "normalize", "normalize_backward", "softmax_loss", "adagrad",
    "adam", "adagrad_rows", "adam_rows", "adam_rows 1M", "poisson_counts", "scan", "confusion",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_rungs_agree(name, script):
    kernels = script("kernels")
    calls, arrays = kernels.JOBS[name](0.05)
    assert len(calls) == 2
    assert sum(a if isinstance(a, float) else a.nbytes for a in arrays) > 0
    ours, theirs = (call() for call in calls.values())
    kernels.same(ours, theirs)
    wrong = (1.01 * theirs[0], *theirs[1:]) if isinstance(theirs, tuple) else 1.01 * theirs
    with pytest.raises(AssertionError):
        kernels.same(ours, wrong)


@pytest.mark.parametrize("name", ["adagrad_rows", "adam_rows 1M"])
def test_rungs_of_rows_agree_after_missed_steps(name, script):
    kernels = script("kernels")
    calls, _ = kernels.JOBS[name](0.005)
    for _ in range(20):
        kernels.same(calls["hforest"](), calls["dense"]())


def test_the_bench_prints_every_rung(script, monkeypatch, capsys, tmp_path):
    kernels = script("kernels")
    assert list(kernels.JOBS) == NAMES
    monkeypatch.setattr(kernels, "ceilings", lambda: {"copy_bytes": 1e10})
    words = ["kernels.py", "--scale", "0.01", "--repeats", "1", "--only", "adam", "softmax_loss", "--json"]
    monkeypatch.setattr(sys, "argv", [*words, str(tmp_path / "record.json")])
    assert kernels.main() == 0
    printed = capsys.readouterr().out
    for rung in ("hforest", "numpy", "plain"):
        assert sum(rung in line for line in printed.splitlines()[2:]) == 2
    assert '"floor"' in (tmp_path / "record.json").read_text()


def test_a_wrong_rung_ends_the_bench(script, monkeypatch):
    kernels = script("kernels")
    calls, arrays = kernels.adagrad(0.01)
    calls["numpy"] = lambda: tuple(np.zeros_like(a) for a in calls["hforest"]())
    monkeypatch.setitem(kernels.JOBS, "adagrad", lambda scale: (calls, arrays))
    options = type("Options", (), {"scale": 0.01, "repeats": 1})
    with pytest.raises(AssertionError):
        kernels.run("adagrad", options, 1e10)


def test_the_bench_of_co2_times_every_kernel(script, monkeypatch, capsys, tmp_path):
    bench = script("co2")
    monkeypatch.setattr(bench, "ceilings", lambda clock: {"copy_bytes": 1e10})
    words = ["co2.py", "--shapes", "300,5,3", "--repeats", "1", "--json", str(tmp_path / "record.json")]
    monkeypatch.setattr(sys, "argv", words)
    assert bench.main() == 0
    printed = [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]]
    assert printed == [*bench.KERNELS]
    rows = {row["job"]: row for row in json.loads((tmp_path / "record.json").read_text())["rows"]}
    assert {name for name, row in rows.items() if row.get("two_threads", 0) > 0} == {
        "surrogate", "surrogate_grad", "fit_stump", "fit_oc1", "refine",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["surrogate", "surrogate_grad", "step", "fit_stump", "fit_oc1", "refine"])
def test_a_wrong_peer_ends_the_bench_of_co2(name, script, monkeypatch):
    bench = script("co2")
    monkeypatch.setattr(bench.Numpy, "surrogate", lambda self: 0.0)
    monkeypatch.setattr(bench, "numpy_bound", lambda x, y, w, theta: (0.0, 0 * w, *(0 * theta)))
    monkeypatch.setattr(bench.co2, "fit_oc1", lambda x, y, w, **_: w + np.random.default_rng().random())
    monkeypatch.setattr(bench, "LOSS", (lambda theta, y: theta[y], bench.LOSS[1]))
    with pytest.raises(AssertionError):
        bench.KERNELS[name]((300, 5, 3), 1)
