"""Errors about wrong attributes, which name the counterpart of a name of another library."""

import sys
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

__all__ = ["lookup", "no_attribute", "no_field"]

BY_THEIR_OWN_NAME = ("dask", "demo", "jax", "onnx", "plot", "scale", "sklearn", "torch", "treelite")
"""Subpackages that ``import hforest`` does not import."""


def _homes(name: str) -> list[str]:
    """Returns the imported public subpackages that have a name."""
    packages = [f"hforest.{module}" for module in (*sys.modules["hforest"].__all__, *BY_THEIR_OWN_NAME)]
    return [f"{p}.{name}" for p in packages if name in getattr(sys.modules.get(p), "__all__", ())]


def _similar(owner: str, names: list[str], name: str) -> str | None:
    """Returns the name of an owner, or of one of its members, that is most like a name; None if none is."""
    return next((f"{owner}{other}" for other in get_close_matches(name, names, 1, 0.7)), None)


def no_attribute(owner: str, name: str, obj: object) -> AttributeError:
    """Returns the error about an attribute that `owner` lacks, with its counterpart if there is one.

    `owner` is a public subpackage, or a class of one, and `obj` this subpackage or an instance of the class.
    """
    from .counterparts import NAMES, OF_PACKAGE

    home = next(iter(owner.split(".")[1:]), "")
    names = {**NAMES, **OF_PACKAGE.get(home, {})}
    homes = _homes(name)
    if isinstance(obj, tuple):
        similar = _similar("", [field for field in dir(obj) if not field.startswith("_")], name)
    else:
        similar = _similar(f"{owner}.", getattr(obj, "__all__", []), name)
    if owner == "hforest" and name in BY_THEIR_OWN_NAME:
        remedy = f"write import hforest.{name}"
    elif name in names:
        remedy = f"use {names[name]}"
    elif homes:
        here = [path for path in homes if owner.startswith(path.rpartition(".")[0])]
        remedy = f"write {' or '.join(here or homes)}"
    elif similar:
        remedy = f"write {similar}"
    else:
        remedy = "call dir() for a list of them"
    return AttributeError(f"{owner}: expected one of its names, got {name!r}; {remedy}", name=name, obj=obj)


def no_field(record: tuple, name: str) -> Any:
    """Raises the error above, as the `__getattr__` of named tuples."""
    owner = f"{type(record).__module__}.{type(record).__name__}"
    if name.startswith("_"):
        raise AttributeError(f"{owner!r} object has no attribute {name!r}", name=name, obj=record)
    raise no_attribute(owner, name, record)


def lookup(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns `__getattr__` and `__dir__` of a public package: the error above, and only public names."""
    module = sys.modules[package]

    def get(name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=module)
        raise no_attribute(package, name, module)

    return get, lambda: sorted(module.__all__)
