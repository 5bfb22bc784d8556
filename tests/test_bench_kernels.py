"""bench/kernels.py and bench/co2.py: every variant returns hforest's result, and a different result ends the bench.

A bench names every compiled function.
"""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

NAMES = [
    "project", "project, kernels", "conv2d", "conv2d_backward", "normalize", "normalize_backward", "normalize_update",
    "squared_loss",
    "softmax_loss", "adagrad", "adam", "adagrad_rows", "adam_rows", "adam_rows 1M", "adam_catch_up", "impurity", "route",
    "leaf_counts", "first_nonfinite", "first_outside", "poisson_counts", "scan", "confusion",
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
    monkeypatch.setattr(kernels, "ceilings", lambda clock: {"copy_bytes": 1e10})
    words = ["kernels.py", "--scale", "0.01", "--repeats", "1", "--only", "adam", "softmax_loss", "--json"]
    monkeypatch.setattr(sys, "argv", [*words, str(tmp_path / "record.json")])
    assert kernels.main() == 0
    printed = capsys.readouterr().out
    for rung in ("hforest", "numpy", "plain"):
        assert sum(rung in line for line in printed.splitlines()[3:]) == 2
    assert '"floor"' in (tmp_path / "record.json").read_text()


def test_a_wrong_rung_ends_the_bench(script, monkeypatch):
    kernels = script("kernels")
    calls, arrays = kernels.adagrad(0.01)
    calls["numpy"] = lambda: tuple(np.zeros_like(a) for a in calls["hforest"]())
    monkeypatch.setitem(kernels.JOBS, "adagrad", lambda scale: (calls, arrays))
    options = type("Options", (), {"scale": 0.01, "repeats": 1, "clock": "processor"})
    with pytest.raises(AssertionError):
        kernels.run("adagrad", options, 1e10)


def test_the_bench_of_co2_times_every_kernel(script, monkeypatch, capsys, tmp_path):
    bench = script("co2")
    monkeypatch.setattr(bench, "ceilings", lambda: {"copy_bytes": 1e10})
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


ROOT = Path(__file__).parents[1]
CALLED_BY = {
    "core.first_named_outside": "hinge.backward_sparse",
    "core.cos_of_turns": "stats.split_test", "core.exp": "tabular.predict", "core.log": "tabular.fit",
    "core.log1p": "stats.split_test",
    "core.apart": "hforest.unchecked", "core.fits": "hforest.unchecked", "core.is_cupy": "hforest.unchecked", "core.owned": "hforest.unchecked", "core.words": "scale.grow_by_rows",
    "growth.best_splits": "scale.grow_by_rows",
    "growth.columns_read": "hforest.grow", "growth.draw_projections": "scale.grow_by_rows",
    "growth.encode": "growth.samples", "growth.find_bins": "scale.grow_by_rows", "growth.grow": "hforest.grow",
    "growth.grow_projected": "hforest.grow", "growth.histograms": "scale.grow_by_rows",
    "growth.in_units": "scale.grow_by_rows", "growth.joined": "hforest.grow",
    "growth.leaf_totals": "scale.grow_by_rows", "growth.partitioned": "scale.grow_by_rows",
    "growth.prepare_columns": "hforest.grow", "growth.prepare_projections": "hforest.grow",
    "growth.sampled_features": "scale.grow_by_rows", "growth.stored_rows": "hforest.grow",
    "hinge.touched": "hinge.backward_sparse",
    "jax.capsule": "jax.hinge_forest", "project.project_some": "project.project", "split.splits": "split.best_split",
    "tabular.encode": "tabular.predict", "tabular.inputs": "tabular.predict", "tabular.mix": "tabular.predict",
    "tree.count_neighbors": "tree.proximity", "tree.faults": "tree.check", "tree.group": "tree.leaf_targets",
    "tree.has_layout": "tree.prepare", "tree.is_for": "tree.prepare", "tree.neighbors": "tree.proximity",
    "tree.quick": "tree.prepare", "tree.shap_interventional": "tree.shap_values",
    "tree.shap_path_dependent": "tree.shap_values", "tree.write": "tree.prepare",
}  # fmt: skip
"""Public functions that call compiled functions of another name."""
SETTINGS = {
    "compiler", "cpu_features", "end_threads", "get_num_threads", "openmp", "read_only", "serial_us", "set_main_thread",
    "set_num_threads", "set_simd", "simd", "simd_paths",
}  # fmt: skip
"""Functions of `core.machine` that read or write a setting, whose time does not matter."""


def compiled_functions():
    """Returns the public functions and methods of compiled modules, each by its subpackage and name."""
    names = set()
    for path in (ROOT / "hforest").rglob("*.pyx"):
        package = path.relative_to(ROOT / "hforest").parts[0]
        names |= {
            f"{package}.{name}" for name in re.findall(r"^(?: {4})?def ([a-z]\w*)\(", path.read_text(), re.M)
        }
    return names - {f"core.{name}" for name in SETTINGS}


def named_by_benches():
    """Returns all names of the form a.b in benches that time calls."""
    others = ("bits", "data", "digests", "gpu", "interrupts")
    texts = [path.read_text() for path in (ROOT / "bench").glob("*.py") if not path.stem.startswith(others)]
    return {
        name.replace("machine.", "core.")
        for text in texts
        for name in re.findall(r"\b(?=([a-z0-9]+\.\w+))", text)
    }


def test_a_bench_names_every_compiled_function():
    functions, named = compiled_functions(), named_by_benches()
    assert len(functions) > 60
    assert sorted(set(CALLED_BY) - functions) == []
    assert sorted(name for name in functions if CALLED_BY.get(name, name) not in named) == []


@pytest.mark.parametrize("package", ["layers", "optim", "project", "split"])
def test_a_bench_names_every_function_on_arrays(package):
    import hforest

    module, named = getattr(hforest, package), named_by_benches()
    functions = [name for name in module.__all__ if callable(getattr(module, name)) and name[0].islower()]
    assert [name for name in functions if f"{package}.{name}" not in named] == []
