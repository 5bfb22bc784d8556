"""Growing and training on several workers: processes of one machine, or of many.

No engine of its own: workers are started by, and bytes carried by, an executor of `concurrent.futures` or
what has its methods (Dask, mpi4py, loky).
"""

from .by_trees import grow_by_trees

__all__ = ["grow_by_trees"]
