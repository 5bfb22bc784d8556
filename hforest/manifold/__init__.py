"""Oblique and manifold forests (SPORF, MORF; Perry et al. 2019) and two-probe forests (Norouzi et al. 2015,
section 6.2).

Splits compare random sparse projections of a sample: signed sums of a few features, sums over a patch of an
image or signal, or differences of two features. A forest is a `hforest.tree.Forest`: apply and inspect it
with `hforest.tree`. Samples, labels, targets and weights are what `numpy.asarray` takes, of any real dtype
and layout. Wrong kinds and dtypes raise TypeError, wrong shapes and values ValueError, labels out of range
IndexError; the checks that read whole arrays can be skipped inside `hforest.unchecked()`.
"""

from .growing import grow

__all__ = ["grow"]
