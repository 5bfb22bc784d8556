"""CO2 forests (Norouzi et al. 2015): oblique splits by continuous optimisation of a bound on the loss.

A split sends a sample right where ``w.x >= 0``, x with a constant -1 appended; w is fitted by the
convex-concave procedure to the surrogate of eq. 10, from the best of some random univariate splits. `grow`
and `search` standardise features by default. For the other functions scale them to [0, 1] or to zero mean and
unit deviation, for the learning rate and the bound on w have no units. A forest is a `hforest.tree.Forest`.

`grow` and `search` convert samples of any layout and real dtype. `surrogate`, `surrogate_grad`, `fit_stump`
and `fit_oc1` take C-contiguous samples and weights w of one float dtype; labels, targets and sample weights
of any dtype.
"""

from .bound import SplitGradient, surrogate, surrogate_grad
from .forest import grow
from .oc1 import fit_oc1
from .refining import refine
from .stump import Stump, StumpSettings, fit_stump
from .trials import Trials, search

__all__ = [
    "SplitGradient",
    "Stump",
    "StumpSettings",
    "Trials",
    "fit_oc1",
    "fit_stump",
    "grow",
    "refine",
    "search",
    "surrogate",
    "surrogate_grad",
]
