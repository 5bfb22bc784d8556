"""Models of treelite as forests, and forests as models of treelite.

treelite reads models of XGBoost, LightGBM, scikit-learn and cuML. `from_treelite` converts such a model to an
`Ensemble`: a `hforest.tree.Forest`, with the scales, offsets and function that convert its means to the
model's predictions. `predict` and `predict_margin` apply it. `to_treelite` converts an axis-aligned forest to
a treelite model.

Requires treelite 4.4 or newer: ``pip install -e '.[treelite]'``. Write `import hforest.treelite`;
`import hforest` does not import treelite.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from ..core.counterparts import lookup as _lookup
from ..core.extras import is_older as _is_older
from ..core.extras import missing as _missing

try:
    import treelite as _treelite
except ImportError as _error:
    raise _missing("hforest.treelite", "treelite 4.4 or newer", "treelite") from _error

if _is_older(_treelite.__version__, 4, 4):
    raise _missing("hforest.treelite", "treelite 4.4 or newer", "treelite", got=_treelite.__version__)

from .ensemble import Ensemble, predict, predict_margin
from .exporting import to_treelite
from .importing import from_treelite

__all__ = ["Ensemble", "from_treelite", "predict", "predict_margin", "to_treelite"]

Ensemble.__module__ = __name__

if not _TYPE_CHECKING:
    __getattr__, __dir__ = _lookup(__name__)
