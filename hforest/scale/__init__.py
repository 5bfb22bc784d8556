"""Growing and training on several workers: processes of one machine, or of many.

No engine of its own: workers are started by, and bytes carried by, an executor of `concurrent.futures` or
what has its methods (Dask, mpi4py, loky), or by torch.distributed or MPI.
"""

from .by_rows import grow_by_rows
from .by_trees import grow_by_trees
from .communicators import Communicator, MpiComm, TorchComm

__all__ = ["Communicator", "MpiComm", "TorchComm", "grow_by_rows", "grow_by_trees"]
