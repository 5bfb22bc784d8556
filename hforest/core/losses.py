"""Losses of a caller: pairs of functions."""

from typing import Any

from . import check


def pair_of_functions(name: str, value: object, arguments: str, others: str = "") -> tuple[Any, Any]:
    """Returns a tuple of two functions of `arguments`, value and gradient; `others` names other values."""
    pair: tuple[Any, ...] = value if isinstance(value, tuple) else ()
    remedy = f"pass two functions (value, gradient) of ({arguments})"
    check.require(
        len(pair) == 2 and all(map(callable, pair)), name, f"{others}a tuple of two functions", repr(value),
        remedy, ValueError if isinstance(value, str) else TypeError,
    )  # fmt: skip
    for k, function in enumerate(pair):
        check.called_with(f"{name}[{k}]", function, arguments, f"pass a function of ({arguments})")
    return pair[0], pair[1]
