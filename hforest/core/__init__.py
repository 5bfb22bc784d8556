"""Shared by all subpackages: validation, dispatch, launches, threads, random numbers; nothing about trees."""

import importlib.util
from pathlib import Path

# Without this check, an import without compiled modules would only name a missing module.
if importlib.util.find_spec("hforest.core.machine") is None:
    raise ImportError(
        f"hforest: expected compiled extension modules in {Path(__file__).parent}, got only the sources; run "
        f"'pip install -e .' in {Path(__file__).parents[2]} (it needs a C compiler), or import an installed "
        "hforest from another folder"
    )
