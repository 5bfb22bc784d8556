"""Alternating decision forests: trees grow together, and a loss of the forest weights samples at each level.

S. Schulter, P. Wohlhart, C. Leistner, A. Saffari, P. M. Roth and H. Bischof, *Alternating Decision Forests*,
CVPR 2013. Between two levels the weight of a sample is the slope of a convex loss at its margin in the
forest so far. `grow` is the function of this package.
"""

from .growing import grow
from .settings import Settings

__all__ = ["Settings", "grow"]
