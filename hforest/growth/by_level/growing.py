"""State machine that grows trees level by level, from sums of integers over the parts of the samples.

    start                    roots of a batch of trees, each part with its own rows
    level: small nodes       gathered in one place each, finished there by the engine of hforest.growth
           other nodes       regression: extremes of targets, and sums that make units where nodes need them;
                             histograms of the sampled features, summed over parts; best splits
    advance                  each part divides its rows

Sums of integers are exact, so all state machines find equal splits, however rows are divided into parts.
"""

from functools import partial

from ...core.aliases import Progress
from ...core.progress import reporting
from ...tree import Forest
from ...tree.forest import marked
from ..trees import GrownTree, as_forest, joined
from . import parts
from .batches import BatchOfTrees
from .engine import Engine
from .planning import plan
from .projected_trees import ProjectedTrees
from .settings import Checked


def grow(engine: Engine, samples: object, settings: Checked, progress: Progress = None) -> Forest:
    """Returns the forest of `hforest.scale.grow_on_engine`.

    Parameters
    ----------
    engine : Engine
        If several state machines run in parallel, as on the workers of `hforest.scale.grow_by_rows`, each has
        its own engine; all engines return equal sums.
    samples : object
        A handle of the engine. The value of each part is a tuple (x, y, sample_weight), or (x, y,
        sample_weight, counts) with in-bag counts; sample_weight and counts may be None.
    settings : Checked
        Result of `check_settings`, the same in all state machines.
    progress : callable or bool, optional
        If it returns False in one state machine, all stop.
    """
    batch = BatchOfTrees if settings.projections is None else ProjectedTrees
    trees: list[GrownTree] = []
    with reporting(progress, settings.n_trees, "tree") as report:
        planned, data = plan(engine, engine.map(parts.raw_part, (samples,)), settings)
        for at in range(0, settings.n_trees, planned.n_batch):
            n_trees = min(planned.n_batch, settings.n_trees - at)
            draw = parts.Draw(settings.seed, settings.first_tree + at, at, n_trees, settings.bootstrap, None)
            trees += batch(engine, data, planned, draw).grow()
            if not engine.agree(partial(report, len(trees))):
                break
    forest = as_forest(joined(trees, planned.edges.dtype), len(planned.edges.n_bins), planned.class_start)
    return marked(forest, engine.n_tasks == 1)  # other workers have sent subtrees
