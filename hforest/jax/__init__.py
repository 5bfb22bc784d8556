"""Hinge forests and neural decision forests in JAX: functions with gradients, on the CPU.

Requires JAX 0.5 or newer: ``pip install -e '.[jax]'``. Write `import hforest.jax`; `import hforest` does not
import JAX.

The functions take and return JAX arrays and work under `jax.jit`, `jax.grad`, `jax.vmap` and
`jax.checkpoint`, in float32 and float64. XLA calls the functions of `hforest.hinge` and `hforest.neural` on
its own buffers through its foreign function interface; the module `foreign` implements the handlers.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from ..core.counterparts import lookup as _lookup
from ..core.extras import missing as _missing

try:
    import jax as _jax
except ImportError as _error:
    raise _missing("hforest.jax", "JAX 0.5 or newer", "jax") from _error

try:
    import jax.ffi as _ffi
except ImportError as _error:
    raise _missing("hforest.jax", "JAX 0.5 or newer", "jax", got=_jax.__version__) from _error

from . import calls as _calls
from . import foreign as _foreign
from .functions import hinge_forest, neural_forest

_foreign.functions.update(_calls.FUNCTIONS)
_version = ".".join(map(str, _foreign.VERSION))
try:
    _ffi.register_ffi_target(_foreign.NAME, _foreign.capsule(), platform="cpu")
except Exception as _error:
    raise ImportError(
        f"hforest.jax: expected a JAX version that supports version {_version} of the foreign function "
        f"interface, got {_jax.__version__} ({_error}); install another version of jax and jaxlib"
    ) from _error

__all__ = ["hinge_forest", "neural_forest"]

if not _TYPE_CHECKING:
    __getattr__, __dir__ = _lookup(__name__)
