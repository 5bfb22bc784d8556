"""Plots of trees, of importances and SHAP values of features, and of decisions in two dimensions.

Each function draws on given Matplotlib axes, or on those of a new figure, and returns them. docs/plot.md has
examples.

Requires Matplotlib 3.8 or newer: ``pip install -e '.[plot]'``. Write `import hforest.plot`; `import hforest`
does not import Matplotlib.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from ..core.counterparts import lookup as _lookup
from ..core.extras import missing as _missing

try:
    import matplotlib as _matplotlib  # noqa: F401
except ImportError as _error:
    raise _missing("hforest.plot", "Matplotlib 3.8 or newer", "plot") from _error

from .columns import shap_summary
from .images import importance, importance_image
from .planes import regions
from .trees import tree

__all__ = ["importance", "importance_image", "regions", "shap_summary", "tree"]

if not _TYPE_CHECKING:
    __getattr__, __dir__ = _lookup(__name__)
