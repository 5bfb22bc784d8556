"""Keyword arguments that several functions share, and those that a caller binds by functools.partial."""

import inspect
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from functools import partial, wraps
from typing import Any, TypeVar

from . import check

__all__ = ["answered", "grower", "shared"]

_Function = TypeVar("_Function", bound=Callable[..., Any])

COUNTERPARTS = {
    # scikit-learn, XGBoost, LightGBM, ydf
    **dict.fromkeys(("n_estimators", "num_trees", "num_boost_round"), "n_trees"),
    **dict.fromkeys(("random_state", "random_seed", "seed"), "rng"),
    "verbose": "progress",
    **dict.fromkeys(
        ("n_jobs", "n_threads", "num_threads", "nthread", "thread_count"), "hforest.set_num_threads"
    ),
    "objective": "task",
    "num_leaves": "max_leaf_nodes",
    **dict.fromkeys(("colsample_bynode", "feature_fraction_bynode", "mtry"), "max_features"),
    **dict.fromkeys(("min_child_samples", "min_data_in_leaf"), "min_samples_leaf"),
    **dict.fromkeys(("gamma", "min_split_gain"), "min_impurity_decrease"),
    "warm_start": "first_tree, then hforest.tree.join",
    **dict.fromkeys(("monotone_constraints", "monotonic_constraints"), "monotonic_cst"),
    "oob_score": "hforest.tree.out_of_bag",
    **dict.fromkeys(
        ("categorical_features", "cat_features", "categorical_feature"),
        "hforest.samples(x, categorical=...)",
    ),
    **dict.fromkeys(("max_bin", "n_bins", "border_count"), "hforest.samples(x, max_bins=...)"),
    # Arguments of x in other functions, and earlier names
    "categorical": "hforest.samples(x, categorical=...)",
    "max_bins": "hforest.samples(x, max_bins=...)",
    "windows": "hforest.samples(x, windows=...)",
    **dict.fromkeys(
        ("distribution", "projection", "shape", "patch_min", "patch_max", "density", "feature_combinations"),
        "projections with a distribution of hforest.project",
    ),
}
"""Counterpart, in `hforest.grow`, of a keyword of another library, or of an earlier keyword."""
OTHER_COUNTERPARTS = {
    **dict.fromkeys(("categorical_features", "cat_features", "categorical_feature"), "categorical"),
    "eval_set": "validation",
    **dict.fromkeys(("learning_rate", "eta"), "lr"),
    **dict.fromkeys(("n_epochs", "num_epochs"), "epochs"),
    **dict.fromkeys(("max_bin", "n_bins", "border_count"), "max_bins"),
    **dict.fromkeys(("in_channels", "in_features", "input_dim"), "n_features"),
    **dict.fromkeys(("out_features", "out_channels", "n_outputs"), "outputs"),
    "max_layers": "max_levels",
    "groups": "feature_groups",
    **dict.fromkeys(("n_tolerant_rounds", "early_stopping_rounds"), "patience"),
}
"""Counterparts in functions that have an argument of this name."""

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
            _check(function.__name__, keywords, names)
            return function(*args, **{**implied, **keywords})

        if function.__doc__ and _PLACE in (text := inspect.cleandoc(function.__doc__)):
            items = inspect.cleandoc(settings.__doc__).partition("Attributes\n----------\n")[2]
            call.__doc__ = text.replace(_PLACE, items)
        call.__signature__ = inspect.signature(function).replace(parameters=[*own, *added.values()])  # type: ignore[attr-defined]
        return call  # type: ignore[return-value]

    return decorate


def answered(function: _Function, names: Mapping[str, str] | None = None) -> _Function:
    """Returns a function, or `__init__` of a class, that answers an unknown keyword with the right one, and a
    call that lacks an argument with all arguments that it needs.

    names: names of the function for hforest's names.
    """
    parameters = inspect.signature(function).parameters
    known = list(parameters)
    needed = [
        name
        for name, p in parameters.items()
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]

    @wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        owner = type(args[0]).__name__ if function.__name__ == "__init__" and args else function.__name__
        if not keywords.keys() <= set(known):
            _check(owner, keywords, known, names or {})
        lacking = [name for name in needed[len(args) :] if name not in keywords]
        if lacking:
            form = ", ".join(name for name in needed if name != "self")
            raise TypeError(f"{lacking[0]}: expected a value, got none; call {owner}({form})")
        return function(*args, **keywords)

    return call  # type: ignore[return-value]


def _check(
    function: str, keywords: Collection[str], known: list[str], names: Mapping[str, str] | None = None
) -> None:
    """Raises TypeError if one of the keywords is not known; see `answered`."""
    for name in [name for name in keywords if name not in known]:
        remedies = (name, OTHER_COUNTERPARTS.get(name, ""), COUNTERPARTS.get(name, ""))
        candidates = [(names or {}).get(remedy, remedy) for remedy in remedies if remedy]
        # One of the function's arguments, or a function or a setting that it does not have.
        fits = [remedy for remedy in candidates if remedy in known or not remedy.isidentifier()]
        near = get_close_matches(name, known, 1, 0.7)
        remedy = (*fits, *near, f"help({function}) for a list of them")[0]
        raise TypeError(f"{name}: expected an argument of {function}, got another name; use {remedy}")


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
