"""State machine that grows trees level by level, from sums of integers over the parts of the samples.

    start                    roots of a batch of trees, each part with its own rows
    level: small nodes       gathered in one place each, finished there by the engine of hforest.growth
           other nodes       histograms of the sampled features, summed over parts; best splits
    advance                  each part divides its rows

Sums of integers are exact, so all state machines find equal splits, however rows are divided into parts.
"""

from functools import partial
from typing import Any

import numpy as np

from ...core.aliases import Progress
from ...core.progress import reporting
from ..trees import Projected, Trees, joined
from . import parts
from .batches import BatchOfTrees
from .engine import Engine
from .planning import plan
from .projected_trees import ProjectedTrees
from .settings import Settings


def grow(
    engine: Engine, samples: object, settings: Settings, *, progress: Progress = None
) -> tuple[int, Projected]:
    """Returns the number of features of samples in several parts, and trees that are grown on all of them.

    Parameters
    ----------
    engine : Engine
        Calls functions of parts. If several state machines run in parallel, as on the workers of
        `hforest.scale.grow_by_rows`, each has its own engine; all engines return equal sums.
    samples : object
        A handle of the engine. The value of each part is a tuple (x, y, sample_weight), or (x, y,
        sample_weight, counts) with in-bag counts; sample_weight and counts may be None.
    settings : Settings
        Result of `check_settings`, the same in all state machines.
    progress : callable or bool, optional
        Called as progress(done, n_trees) after every few trees. If it returns False, growth stops and the
        trees so far are returned. True shows a bar. If it returns False in one state machine, all stop.

    Returns
    -------
    n_features : int
        Number of columns of x.
    trees : Projected
        Arrays of a `hforest.tree.Forest`, without entries for nodes that compare features. They are
        bit-identical for every division of the samples into parts.

    Raises
    ------
    TypeError, ValueError, IndexError, MemoryError
        Data of a part have a wrong kind, shape or value, or do not fit those of other parts; not enough
        memory.
    """
    projected = settings.distribution is not None
    batch = ProjectedTrees if projected else BatchOfTrees
    trees: list[tuple[Any, ...]] = []
    with reporting(progress, settings.n_trees, "tree") as report:
        planned, data = plan(engine, engine.map(parts.raw_part, (samples,)), settings)
        for at in range(0, settings.n_trees, planned.n_batch):
            n_trees = min(planned.n_batch, settings.n_trees - at)
            draw = parts.Draw(settings.seed, settings.first_tree + at, at, n_trees, settings.bootstrap, None)
            trees += batch(engine, data, planned, draw).grow()
            if not engine.agree(partial(report, len(trees))):
                break
    dtype = planned.edges.dtype
    arrays = joined(trees, planned.n_outputs, dtype, projected)
    n = len(Trees._fields)
    entries = arrays[n:] if projected else (np.zeros(0, t) for t in ("i8", "i4", dtype))
    return len(planned.edges.n_bins), Projected(Trees(*arrays[:n]), *entries)
