"""Growing and training on several workers: processes of one machine, or of many.

No engine of its own: workers are started by, and bytes carried by, an executor of `concurrent.futures` or
what has its methods (Dask, mpi4py, loky), or by torch.distributed or MPI.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from ..core.habits import lookup as _lookup
from .hinge.chunks import own_trees
from .hinge.gradients import gather_gradients
from .hinge.shards import HingeShards, ShardGradients, ShardRoute
from .rows.by_rows import grow_by_rows, grow_on_engine
from .rows.communicators import Communicator, MpiComm, TorchComm
from .trees.by_trees import grow_by_trees

__all__ = [
    "Communicator",
    "HingeShards",
    "MpiComm",
    "ShardGradients",
    "ShardRoute",
    "TorchComm",
    "gather_gradients",
    "grow_by_rows",
    "grow_by_trees",
    "grow_on_engine",
    "own_trees",
]

if not _TYPE_CHECKING:
    __getattr__, __dir__ = _lookup(__name__)
