"""Growing and training on several workers, which are processes on one machine or on many.

The package has no engine of its own. Other libraries start workers and carry bytes: torch.distributed, MPI,
or an executor with the methods of `concurrent.futures` (Dask, mpi4py, loky).
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from ..core.counterparts import lookup as _lookup
from .hinge.chunks import own_trees
from .hinge.gradients import gather_gradients
from .hinge.shards import HingeShards, ShardGradients, ShardRoute
from .rows.by_rows import grow_by_rows, grow_on_engine
from .rows.communicators import Communicator, MpiComm, TorchComm
from .trees.by_trees import grow

__all__ = [
    "Communicator",
    "HingeShards",
    "MpiComm",
    "ShardGradients",
    "ShardRoute",
    "TorchComm",
    "gather_gradients",
    "grow",
    "grow_by_rows",
    "grow_on_engine",
    "own_trees",
]

if not _TYPE_CHECKING:
    __getattr__, __dir__ = _lookup(__name__)
