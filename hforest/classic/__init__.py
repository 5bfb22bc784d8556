"""Random forests (Breiman 2001), extra trees (Geurts, Ernst and Wehenkel 2006) and completely random forests
(Zhou and Feng 2017), for classes and targets.

A forest is a `hforest.tree.Forest`: apply and inspect it with `hforest.tree`. Samples, labels, targets and
weights are what `numpy.asarray` takes, of any real dtype and layout. Wrong kinds and dtypes raise TypeError,
wrong shapes and values ValueError, labels out of range IndexError; the checks that read whole arrays can be
skipped inside `hforest.unchecked()`.
"""

from .growing import grow, grow_extra, grow_random

__all__ = ["grow", "grow_extra", "grow_random"]
