"""Shared by all subpackages: validation, dispatch, launches, threads, random numbers; nothing about trees."""

import importlib.util
import os
from pathlib import Path

# Without this check, an import without compiled modules would only name a missing module.
if importlib.util.find_spec("hforest.core.machine") is None:
    raise ImportError(
        f"hforest: expected compiled extension modules in {Path(__file__).parent}, got only the sources; run "
        f"'pip install -e .' in {Path(__file__).parents[2]} (it needs a C compiler), or import an installed "
        "hforest from another folder"
    )

# By default waiting threads of libgomp spin for some milliseconds, which takes processors from other work.
# libgomp reads the number of rounds when it is loaded, with the first compiled module.
_SPINS = "GOMP_SPINCOUNT"
if _SPINS not in os.environ and "OMP_WAIT_POLICY" not in os.environ:
    os.environ[_SPINS] = "1000"
    try:
        importlib.import_module("hforest.core.machine")
    finally:
        del os.environ[_SPINS]
