"""Selection of tests: without nightly tests every pair of values of two axes; with --for the files of one folder."""

import ast
import itertools
import re
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import (
    ROOT,
    assert_same_bits,
    covering,
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_ignore_collect,
    same_bits,
)

AXES = [(2, 2, 2), (9, 2, 3), (4, 5, 2, 3), (2,) * 7]


def lost(rows, kept):
    """Returns the pairs of values of two columns that occur in rows, but not in the selected rows."""
    pairs = [
        {((i, row[i]), (j, row[j])) for row in some for i in range(len(row)) for j in range(i)}
        for some in (rows, kept)
    ]
    return pairs[0] - pairs[1]


@pytest.mark.parametrize("sizes", AXES)
@pytest.mark.parametrize("step", [1, 3])  # with 3 columns, only some combinations
def test_every_pair_is_covered(sizes, step):
    rows = list(itertools.product(*map(range, sizes)))[::step]
    kept = covering(rows)
    assert kept == sorted(set(kept))
    assert kept == covering(rows)
    assert not lost(rows, [rows[i] for i in kept])
    assert step > 1 or len(kept) < len(rows)
    # A pair that no selected row has is reported.
    (i, a), (j, b) = min(lost(rows, []))
    assert lost(rows, [rows[k] for k in kept if (rows[k][i], rows[k][j]) != (a, b)])


def test_few_rows():
    assert covering([(1, 2, 3)]) == [0]
    assert covering([]) == []


class Item:
    """A test as pytest collects it, of the function test_it below."""

    def __init__(self, *values, slow=False):
        self.nodeid = f"test_it{list(values)}"
        params = dict(zip(("fixture", "a", "b", "c"), values, strict=True))
        self.callspec = SimpleNamespace(params=params, id="-".join(map(str, values)))
        self.marks = ["slow"] * slow

    def get_closest_marker(self, name):
        return name if name in self.marks else None

    def iter_markers(self, name):
        yield from (pytest.mark.parametrize(names, []).mark for names in ("a, b", ("c",)))

    def add_marker(self, name):
        self.marks.append(name)


def collected(items, expression=""):
    """Returns the number of items that are left out."""
    n_out = []
    hook = SimpleNamespace(pytest_deselected=lambda items: n_out.append(len(items)))
    pytest_collection_modifyitems(SimpleNamespace(getoption={"markexpr": expression}.get, hook=hook), items)
    return sum(n_out)


def test_nightly_tests_run_where_the_mark_is_named():
    expressions = {
        "": 1,
        "slow": 1,
        "kernels": 1,
        "kernels and not slow": 1,
        "nightly": 0,
        "slow and not nightly": 0,
    }
    for expression, n in expressions.items():
        items = [Item("p", 0, 0, "x"), Item("p", 0, 1, "x")]
        items[1].add_marker("nightly")
        assert collected(items, expression) == n
        assert len(items) == 2 - n


def test_slow_tests_on_the_host_are_nightly_for_float64():
    items = [Item(a, b, 0, 0, slow=True) for a in ("cpu", "host") for b in ("float32", "float64")]
    items += [Item("host", "float64", 0, 0)]
    assert collected(items, "nightly") == 0
    assert ["nightly" in item.marks for item in items] == [False, False, False, True, False]
    assert collected(items) == 1
    assert len(items) == 4


def test_what_is_skipped_without_a_library_is_marked():
    """`-m libraries` runs it. Files without the mark have their own step; tqdm and threadpoolctl are always
    installed."""
    for path in (ROOT / "tests").glob("test_*.py"):
        text = path.read_text(encoding="utf-8")
        for node in ast.parse(text).body if "mark.libraries" in text else ():
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                code = ast.unparse(node)
                needs = re.search(r"importorskip\('(?!tqdm|threadpoolctl)", code)
                assert not needs or "mark.libraries" in code, f"{path.name}: {node.name}"


def test_every_pair_is_not_nightly():
    """Three axes: a fixture, (a, b) together, and c. Tests with the mark slow keep it alone."""
    together = [(0, 0), (0, 1), (1, 0), (1, 1)]
    items = [
        Item(fixture, a, b, c, slow=(a, b) == (1, 1))
        for fixture, (a, b), c in itertools.product("pq", together, "xyz")
    ]
    collected(items, "nightly")
    assert {tuple(item.marks) for item in items} == {(), ("slow",), ("nightly",)}
    rows = [tuple(item.callspec.params.values()) for item in items if not item.marks]
    assert len(rows) == 9
    assert not lost(
        [(f, ab, c) for f in "pq" for ab in together[:3] for c in "xyz"],
        [(f, (a, b), c) for f, a, b, c in rows],
    )
    two = [Item("p", a, b, c) for (a, b), c in itertools.product(together, "xyz")]
    collected(two)
    assert not any(item.marks for item in two)


def test_files_of_a_folder():
    def run(folder):
        config = SimpleNamespace(getoption={"folder": folder}.get)
        names = ("onnx", "split", "overlap", "hinge_paths", "training", "architecture", "docs")
        files = [*(ROOT / "tests" / f"test_{name}.py" for name in names), ROOT / "tests"]
        return {path.name for path in files if not pytest_ignore_collect(path, config)}

    of_code = {"test_architecture.py", "test_docs.py", "tests"}
    assert run("hforest/onnx") == {"test_onnx.py"} | of_code
    assert run("hforest/split/") == {"test_split.py", "test_overlap.py"} | of_code
    assert run("hinge") == {"test_hinge_paths.py", "test_training.py", "test_overlap.py"} | of_code
    assert len(run(None)) == 8
    config = SimpleNamespace(getoption={"folder": "hinges"}.get)
    with pytest.raises(pytest.UsageError, match=r"^--for: expected a folder of hforest, .*, got hinges; "):
        pytest_configure(config)


@pytest.mark.parametrize(
    "other",
    [
        {"a": (np.zeros(2), [1])},
        {"a": (np.zeros(2), [1], None), "b": 0},
        {"a": (-np.zeros(2), [1], None)},
        {"a": (np.zeros(2, np.float32), [1], None)},
        {"a": (np.zeros((1, 2)), [1], None)},
        {"a": (np.zeros(2), [2], None)},
        {"a": (np.zeros(2), [1], "None")},
    ],
)
def test_results_that_are_not_bit_identical(other):
    result = {"a": (np.zeros(2), [1], None)}
    assert same_bits(result, result)
    assert_same_bits(result, result)
    assert not same_bits(result, other)
    with pytest.raises(AssertionError):
        assert_same_bits(result, other)
