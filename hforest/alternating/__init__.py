"""Alternating decision forests: trees grow together, and a loss of the forest weights the samples of each level.

S. Schulter, P. Wohlhart, C. Leistner, A. Saffari, P. M. Roth and H. Bischof, *Alternating Decision Forests*,
CVPR 2013. Between two levels each sample gets the slope of a convex loss at the margin that the forest has
there. `grow` is the function of this package.
"""

from .growing import grow
from .losses import Loss
from .settings import Settings

__all__ = ["Loss", "Settings", "grow"]
