"""The main job: paper 1's network with a hinge forest inside, trained on real data by plain functions.

`network` is the network (p1 Fig. 2b, 2c), `files` its data sets and checkpoints; `python -m hforest` runs
both. `select` finds the columns that matter before it. Nothing here is privileged: it calls the rooms'
doors as any user's training loop would.
"""

from .files import Data, load_checkpoint, load_data, load_digits, save_checkpoint
from .network import Config, error_rate, predict, start, step, train
from .select import select_features, split_gains

__all__ = [
    "Config",
    "Data",
    "error_rate",
    "load_checkpoint",
    "load_data",
    "load_digits",
    "predict",
    "save_checkpoint",
    "select_features",
    "split_gains",
    "start",
    "step",
    "train",
]
