"""Calls in one process with PyTorch and scikit-learn, whose wheels contain their own OpenMP runtimes."""

import subprocess
import sys

import pytest

from hforest.core import machine

pytest.importorskip("torch", reason="needs PyTorch: pip install torch")
pytest.importorskip("sklearn", reason="needs scikit-learn")
pytest.importorskip("threadpoolctl", reason="needs threadpoolctl")

CODE = """
import hashlib

{imports}
import numpy as np
import threadpoolctl

import hforest
from hforest import demo, hinge

digits = demo.load_digits()
x, y = digits.x_train[:800], digits.y_train[:800]


def others():
    if {beside}:
        torch.ones(300, 300) @ torch.ones(300, 300)
        sklearn.ensemble.HistGradientBoostingClassifier(max_iter=2).fit(x, y)
        sklearn.ensemble.RandomForestClassifier(4, n_jobs=2).fit(x, y)


def digest():
    found = hashlib.sha256()
    forest = hforest.grow(x, y, n_trees=10, rng=0)
    t, f, w = hinge.init(n_trees=20, depth=5, n_features=64, outputs=10, rng=0)
    for _ in range(3):
        others()
        out, route = hinge.forward_with_route(x, t, f, w, aggregate="mean")
        grad = out - np.eye(10, dtype=np.float32)[y]
        grads = hinge.backward(grad, route, x, t, f, w, aggregate="mean")
        t -= np.float32(0.01) * grads.thresholds
        w -= np.float32(0.01) * grads.weights
    for array in (*forest, t, w):
        if isinstance(array, np.ndarray):
            found.update(array.tobytes())
    return found.hexdigest()


others()  # the first operation of PyTorch sets the number of threads of the runtime that it shares with hforest
hforest.set_num_threads({threads})
found = {{digest(), digest()}}
with threadpoolctl.threadpool_limits(limits=1, user_api="openmp"):
    assert hforest.get_num_threads() == 1
    found.add(digest())
assert hforest.get_num_threads() == {threads}
print(*found)
"""


def digests(imports, beside=True):
    code = CODE.format(imports="\n".join(imports), beside=beside, threads=3 if machine.openmp() else 1)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.slow
def test_results_are_those_without_other_runtimes():
    alone = digests([], beside=False)
    assert len(alone) == 1
    torch, sklearn, own = "import torch", "import sklearn.ensemble", "import hforest.hinge"
    for order in ([own, torch, sklearn], [torch, sklearn, own], [sklearn, own, torch]):
        assert digests(order) == alone, order
