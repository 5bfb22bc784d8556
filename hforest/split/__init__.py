"""Scores of splits: the impurity of nodes, and the best split of a node among candidates.

A candidate is one number for each of a node's samples: a feature, or any projection. The values of a
candidate are sorted and every threshold between two neighbours of different value is scored (the blog *Don't
Get Lost in the Forest*, step 2), without subsampling; `max_bins` restricts thresholds to those between at
most 256 bins.

Arrays are what `numpy.asarray` takes.
"""

from .scores import Split, best_split, impurity

__all__ = ["Split", "best_split", "impurity"]
