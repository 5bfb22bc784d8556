"""The network of Lay et al. 2018 with a hinge forest, trained on real data.

`start`, `step`, `train`, `predict` and `error_rate` are the network (Fig. 2a to 2c), `load_data`, `hold_out`
and `save_checkpoint` handle data sets and model files. `python -m hforest` runs them. They call only public
functions of other subpackages, as a user's training loop would.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from ..core.counterparts import lookup as _lookup
from .files import Checkpoint, Data, hold_out, load_checkpoint, load_data, load_digits, save_checkpoint
from .model import Config, start
from .network import error_rate, predict, step, train

__all__ = [
    "Checkpoint",
    "Config",
    "Data",
    "error_rate",
    "hold_out",
    "load_checkpoint",
    "load_data",
    "load_digits",
    "predict",
    "save_checkpoint",
    "start",
    "step",
    "train",
]

if not _TYPE_CHECKING:
    __getattr__, __dir__ = _lookup(__name__)
