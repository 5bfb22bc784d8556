"""Public functions, found by introspection: a new function is fuzzed without being listed."""

import dataclasses
import importlib
import inspect
import os
import pkgutil
from collections.abc import Callable
from typing import Any, NamedTuple

import hforest

SANITIZED = "libasan" in os.environ.get("LD_PRELOAD", "")
"""Whether AddressSanitizer watches, which knows neither fibers nor forks beside threads."""


class Target(NamedTuple):
    """A public function."""

    name: str
    """Such as "hinge.forward"; functions of hforest itself have no package before the dot."""
    function: Callable[..., Any]
    parameters: dict[str, inspect.Parameter]

    @property
    def package(self) -> str:
        return self.name.rpartition(".")[0]

    @property
    def full(self) -> str:
        """The name with its package: of the library, or of stories of the fuzzer."""
        return f"{'lab.fuzz' if self.package == 'stories' else 'hforest'}.{self.name}"

    @property
    def last(self) -> str:
        return self.name.rpartition(".")[2]

    def annotation(self, name: str) -> str:
        return str(self.parameters[name].annotation)

    def lenient(self, name: str) -> bool:
        """Whether an argument takes what numpy.asarray takes."""
        return "ArrayLike" in self.annotation(name)


# Of optional libraries: they take those libraries' own kinds and have tests of their own.
INTEGRATIONS = {"dask", "jax", "onnx", "plot", "sklearn", "torch", "treelite"}


OF_OTHERS = {"scale.grow_on_engine"}
"""Functions whose checks are those of scale.grow_by_rows."""


def _packages() -> list[str]:
    left_out = {"core"} | INTEGRATIONS
    names = [m.name for m in pkgutil.iter_modules(hforest.__path__) if m.ispkg and m.name not in left_out]
    return [*names, ""]


def _bins(**arguments: Any) -> Any:
    """Returns the bins of samples, which results are compared by."""
    return hforest.samples(**arguments).bins()


def _callables(package: Any) -> list[str]:
    # Of classes those that check their arguments: NamedTuples hold what they are given.
    found = [name for name in package.__all__ if not inspect.ismodule(getattr(package, name))]
    return [
        name
        for name in found
        if inspect.isfunction(getattr(package, name)) or dataclasses.is_dataclass(getattr(package, name))
    ]


def find() -> dict[str, Target]:
    """Returns every public function by its name; a function of two packages once."""
    targets: dict[str, Target] = {}
    seen = set()
    for package in _packages():
        module = importlib.import_module(f"hforest.{package}".rstrip("."))
        for name in _callables(module):
            function = getattr(module, name)
            if id(function) not in seen:
                seen.add(id(function))
                full = f"{package}.{name}".lstrip(".")
                if full in OF_OTHERS:
                    continue
                parameters = dict(inspect.signature(function).parameters)
                targets[full] = Target(full, _bins if full == "growth.samples" else function, parameters)
    return targets


TARGETS = find()
