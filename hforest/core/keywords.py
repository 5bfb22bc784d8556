"""Keyword arguments that several functions share, and those that a caller binds by functools.partial."""

import inspect
from collections.abc import Callable
from difflib import get_close_matches
from functools import partial, wraps
from typing import Any, TypeVar

from . import check

_Function = TypeVar("_Function", bound=Callable[..., Any])

COUNTERPARTS = {
    # scikit-learn
    "n_estimators": "n_trees",
    "random_state": "rng",
    "verbose": "progress",
    "n_jobs": "hforest.set_num_threads",
    "oob_score": "hforest.tree.out_of_bag",
    "categorical_features": "hforest.samples(x, categorical=...)",
    # Arguments of x in other functions, and earlier names
    "categorical": "hforest.samples(x, categorical=...)",
    "max_bins": "hforest.samples(x, max_bins=...)",
    "windows": "hforest.samples(x, windows=...)",
    **dict.fromkeys(
        ("distribution", "projection", "shape", "patch_min", "patch_max", "density", "feature_combinations"),
        "projections with a distribution of hforest.project",
    ),
}
"""Counterpart of a keyword of another library, or of an earlier keyword."""

_PLACE = "**settings\n    The items of `hforest.growth.Settings`.\n"
"""The text of a docstring that `shared` replaces by the texts of the items."""


def shared(
    settings: Any, owner: Callable[..., Any] | None = None, **defaults: object
) -> Callable[[_Function], _Function]:
    """Returns a decorator of functions that take keyword arguments of a TypedDict.

    The decorated function has a flat signature: its `**` is replaced by the items of `settings`, with the
    defaults of the function `owner`, or those in `defaults`. It receives all of them. An unknown keyword is a
    TypeError that names the nearest one.
    """
    known = {} if owner is None else {p.name: p.default for p in inspect.signature(owner).parameters.values()}

    def decorate(function: _Function) -> _Function:
        """Returns a function with the settings as keyword arguments.

        Parameters
        ----------
        function : function
            Takes them as `**`.
        """
        own = [p for p in inspect.signature(function).parameters.values() if p.kind != p.VAR_KEYWORD]
        added = {
            name: inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default={**known, **defaults}[name], annotation=hint
            )
            for name, hint in settings.__annotations__.items()
            if name not in {p.name for p in own}
        }
        implied = {name: p.default for name, p in added.items()}
        names = [*(p.name for p in own), *added]

        @wraps(function)
        def call(*args: Any, **keywords: Any) -> Any:
            for name in keywords.keys() - names:
                raise _unknown(function.__name__, name, names)
            return function(*args, **{**implied, **keywords})

        if function.__doc__ and _PLACE in (text := inspect.cleandoc(function.__doc__)):
            items = inspect.cleandoc(settings.__doc__).partition("Attributes\n----------\n")[2]
            call.__doc__ = text.replace(_PLACE, items)
        call.__signature__ = inspect.signature(function).replace(parameters=[*own, *added.values()])  # type: ignore[attr-defined]
        return call  # type: ignore[return-value]

    return decorate


def _unknown(function: str, name: str, names: list[str]) -> TypeError:
    near = get_close_matches(name, names, 1, 0.7)
    remedy = COUNTERPARTS.get(name) or (near[0] if near else f"help({function}) for a list of them")
    return TypeError(f"{name}: expected an argument of {function}, got another name; use {remedy}")


_SET_BY_THE_CALL = ("n_trees", "first_tree", "progress", "rng")
"""Settings of a function that grows forests which its caller sets, not a functools.partial."""


def grower(name: str, value: Any, arguments: str) -> None:
    """Checks a function that grows forests, called with `arguments`, such as "x, y, rng=...".

    A functools.partial binds none of n_trees (if it is among the arguments), first_tree, progress and rng.
    """
    remedy = "pass hforest.grow, or functools.partial(hforest.grow, max_depth=8)"
    check.instance(name, value, Callable, "a function", remedy)
    keywords = value.keywords if isinstance(value, partial) else {}
    for setting in _SET_BY_THE_CALL:
        check.require(
            setting not in keywords or (setting == "n_trees" and "n_trees=" not in arguments), name,
            f"a function that leaves {setting} to its caller", f"a functools.partial that binds {setting}",
            "leave it out of the partial", TypeError,
        )  # fmt: skip
    check.called_with(name, value, arguments, remedy)
