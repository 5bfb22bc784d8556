"""The numbers that a step of Adam takes, checked: for the doors here and for rooms that fuse the step."""

from ..core import check

_LARGEST_BETA = 0.999999
_LARGEST_STEP = 2**62


def check_adam(
    step: int, lr: float, beta1: float, beta2: float, eps: float, first: int = 1
) -> tuple[int, tuple[float, float, float, float]]:
    """`step` (at least `first`), and (lr, beta1, beta2, eps); TypeError or ValueError."""
    step = check.integer("step", step, first, _LARGEST_STEP)
    return step, (
        check.number("lr", lr, 0.0),
        check.number("beta1", beta1, 0.0, _LARGEST_BETA),
        check.number("beta2", beta2, 0.0, _LARGEST_BETA),
        check.number("eps", eps, 0.0, open_low=True),
    )
