"""The CPU backend of neural decision forests: Cython modules with OpenMP.

cpu.pyx    the functions that `hforest.neural` calls
exact.pyx  sums that do not depend on the number of threads
"""

from .cpu import (
    backward,
    forward,
    loss_backward,
    route,
    update_leaves,
)

__all__ = [
    "backward",
    "forward",
    "loss_backward",
    "route",
    "update_leaves",
]
