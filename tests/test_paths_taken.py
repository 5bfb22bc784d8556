"""A public call runs each scorer and each vector body on its path, and on no other path."""

import importlib
import pkgutil
import re

import paths
import pytest

from hforest.core import machine

if machine._bodies_taken() is None:
    pytest.skip(
        "bodies are counted in bounds-checked builds alone (HFOREST_DEBUG=1)", allow_module_level=True
    )

pytestmark = pytest.mark.kernels

VECTORS = re.compile(r"_(vector|avx2|avx512|v\d\d)$|transpose$")
MODULES = [importlib.import_module(f"paths.{module.name}") for module in pkgutil.iter_modules(paths.__path__)]


@pytest.mark.parametrize("path", paths.PATHS)
@pytest.mark.parametrize("row", [row for module in MODULES for row in module.rows()], ids=lambda row: row.id)
def test_bodies_are_taken(simd, row, path):
    if path not in machine.simd_paths():
        pytest.skip(f"this build and processor have no {path} path")
    simd(path)
    before = machine._bodies_taken()
    row.call()
    taken = {name for name, count in machine._bodies_taken().items() if count > before.get(name, 0)}
    assert taken == row.bodies(path)
    assert path != "plain" or not [name for name in taken if VECTORS.search(name)]
