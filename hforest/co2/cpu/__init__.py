"""The CPU backend of CO2 forests: Cython modules with OpenMP.

cpu.pyx                           the functions that `hforest.co2` calls
stump_fit.pyx                     descent of the surrogate of a node
oc1_search.pyx, hyperplanes.pyx   the hyperplane of a node, by OC1 or by the surrogate
tree_fit.pyx                      descent of the bound of a whole tree
"""

from .cpu import (
    READS_WINDOWS,
    fit_oc1,
    fit_stump,
    grow,
    refine,
    surrogate,
    surrogate_grad,
)

__all__ = [
    "READS_WINDOWS",
    "fit_oc1",
    "fit_stump",
    "grow",
    "refine",
    "surrogate",
    "surrogate_grad",
]
