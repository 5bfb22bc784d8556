"""The main job: paper 1's network with a hinge forest inside, trained on real data by plain functions.

`network` is the network (p1 Fig. 2b), `files` its data sets and checkpoints; `python -m hforest` runs
both. Nothing here is privileged: it calls the rooms' doors as any user's training loop would.
"""

from .files import Data, load_checkpoint, load_data, load_digits, save_checkpoint
from .network import Config, error_rate, predict, start, step, train

__all__ = [
    "Config",
    "Data",
    "error_rate",
    "load_checkpoint",
    "load_data",
    "load_digits",
    "predict",
    "save_checkpoint",
    "start",
    "step",
    "train",
]
