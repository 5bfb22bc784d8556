"""Forests on Dask arrays and DataFrames, whose partitions stay where they are.

Requires Dask with its distributed scheduler: ``pip install -e '.[dask]'``. Write `import hforest.dask`;
`import hforest` does not import Dask.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from ..core.counterparts import lookup as _lookup
from ..core.extras import missing as _missing

try:
    import dask as _dask  # noqa: F401
    import distributed as _distributed  # noqa: F401
except ImportError as _error:
    raise _missing("hforest.dask", "Dask 2024.8 or newer with distributed", "dask") from _error

from .growing import grow

__all__ = ["grow"]

if not _TYPE_CHECKING:
    __getattr__, __dir__ = _lookup(__name__)
