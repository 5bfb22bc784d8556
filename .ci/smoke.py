"""Checks an installed release without a compiler and a checkout; the argument is the expected version."""

import importlib
import pkgutil
import shutil
import sys
from importlib.metadata import version
from pathlib import Path

import hforest
from hforest import demo, hinge, tabular, tree
from hforest.__main__ import main

assert not any(map(shutil.which, ("cc", "gcc", "clang")))
home = Path(hforest.__file__).parent
assert "site-packages" in home.parts
assert version("hforest") == hforest.__version__ == sys.argv[1]
assert hforest.show_config("dicts")["openmp"]
assert (home / "py.typed").exists()
# Imports every module that needs no optional library.
for module in pkgutil.walk_packages(hforest.__path__, "hforest.", onerror=lambda _: None):
    package = module.name.split(".")[1]
    if package not in hforest.core.counterparts.BY_THEIR_OWN_NAME and "main" not in module.name:
        importlib.import_module(module.name)

digits = demo.load_digits()
forest = hforest.grow(digits.x_train, digits.y_train, n_trees=50, rng=0)
tree.save("forest.npz", forest)
p = tree.predict(tree.load("forest.npz"), digits.x_test)
assert (p.argmax(axis=1) == digits.y_test).mean() > 0.95
with hforest.using("reference"):
    assert (tree.apply(forest, digits.x_test[:20]) == tree.apply(forest, digits.x_test)[:20]).all()
model = tabular.fit(digits.x_train[::8], digits.y_train[::8], n_members=1, n_trees=5, steps=20, rng=0)
tabular.save("model.npz", model)
assert tabular.predict(tabular.load("model.npz"), digits.x_test).shape == (len(digits.x_test), 10)
x, (thresholds, features, weights) = digits.x_test, hinge.init(5, 4, 64, outputs=10, rng=0)
assert hinge.forward(x, thresholds, features, weights, aggregate="sum").shape == (len(x), 10)
assert main(["verify"]) == 0
print(f"hforest {hforest.__version__} works in {home}")
