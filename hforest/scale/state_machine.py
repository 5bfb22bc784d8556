"""The state machine that grows trees on rows of several workers: level by level, from sums of integers.

    start                    roots of a batch of trees, each worker with its own rows
    level: small nodes       gathered on one worker each, finished there by the engine of hforest.growth
           other nodes       histograms of the sampled features, summed over workers; best splits
    advance                  each worker divides its rows

Sums of integers are exact, so all workers find the same splits, however rows are divided among them.
"""

from functools import partial
from typing import Any

import numpy as np

from ..core.progress import Report
from ..growth.trees import Trees
from ..growth.trees import joined as join_arrays
from ..tree import Forest, check
from .batches import BatchOfTrees
from .engine import Engine, Handle
from .parts import Draw, Settings
from .planning import plan
from .projected_trees import ProjectedTrees


def grow(engine: Engine, given: Handle, settings: Settings, seed: int, report: Report) -> Forest:
    """Returns the forest that grows on all rows."""
    known, data = plan(engine, given, settings, seed)
    projected = settings.distribution is not None
    batch = ProjectedTrees if projected else BatchOfTrees
    trees: list[tuple[Any, ...]] = []
    for at in range(0, settings.n_trees, known.n_batch):
        n_trees = min(known.n_batch, settings.n_trees - at)
        draw = Draw(seed, settings.first_tree + at, at, n_trees, settings.bootstrap, None)
        trees += batch(engine, data, known, draw).grow()
        if not engine.agree(partial(report, len(trees))):
            break
    dtype = known.edges.dtype
    arrays = join_arrays(trees, known.n_outputs, dtype, projected)
    n = len(Trees._fields)
    indptr, indices, data_of = arrays[n:] if projected else (np.zeros(0, t) for t in ("i8", "i4", dtype))
    forest = Forest(
        n_features=np.array(len(known.edges.n_bins), np.int64),
        **Trees(*arrays[:n])._asdict(),
        indptr=indptr,
        indices=indices,
        data=data_of,
    )
    return check(forest) if engine.n_tasks > 1 else forest  # subtrees came from others
