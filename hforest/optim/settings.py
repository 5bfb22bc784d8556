"""The settings of a step of Adam, checked, for the functions here and for subpackages that fuse the step."""

from ..core import check

_MAX_BETA = 0.999999
_MAX_STEP = 2**62


def check_adam(
    step: int, lr: float, beta1: float, beta2: float, eps: float, first: int = 1
) -> tuple[int, tuple[float, float, float, float]]:
    """`step` (at least `first`), and (lr, beta1, beta2, eps); TypeError or ValueError."""
    step = check.integer("step", step, first, _MAX_STEP)
    return step, (
        check.number("lr", lr, 0.0),
        check.number("beta1", beta1, 0.0, _MAX_BETA),
        check.number("beta2", beta2, 0.0, _MAX_BETA),
        check.number("eps", eps, 0.0, open_low=True),
    )
