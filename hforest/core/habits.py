"""Errors about wrong attributes, which name the counterpart of a name of another library."""

import sys
from collections.abc import Callable
from typing import Any

__all__ = ["lookup", "no_attribute"]

BY_THEIR_OWN_NAME = ("dask", "demo", "jax", "onnx", "plot", "scale", "sklearn", "torch", "treelite")
"""Subpackages that ``import hforest`` does not import."""


def _homes(name: str) -> list[str]:
    """Returns the imported public subpackages that have a name."""
    packages = [f"hforest.{module}" for module in (*sys.modules["hforest"].__all__, *BY_THEIR_OWN_NAME)]
    return [f"{p}.{name}" for p in packages if name in getattr(sys.modules.get(p), "__all__", ())]


def no_attribute(owner: str, name: str, obj: object) -> AttributeError:
    """Returns the error about an attribute that `owner` lacks, with its counterpart if there is one."""
    from .counterparts import NAMES

    homes = [] if name.startswith("_") else _homes(name)
    if owner == "hforest" and name in BY_THEIR_OWN_NAME:
        remedy = f"write import hforest.{name}"
    elif name in NAMES:
        remedy = f"use {NAMES[name]}"
    elif homes:
        here = [home for home in homes if owner.startswith(home.rpartition(".")[0])]
        remedy = f"write {' or '.join(here or homes)}"
    else:
        remedy = "call dir() for a list of them"
    return AttributeError(f"{owner}: expected one of its names, got {name!r}; {remedy}", name=name, obj=obj)


def lookup(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns `__getattr__` and `__dir__` of a public package: the error above, and only public names."""
    module = sys.modules[package]

    def get(name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=module)
        raise no_attribute(package, name, module)

    return get, lambda: sorted(module.__all__)
