"""Models of treelite as forests, and forests as models of treelite.

treelite reads models of XGBoost, LightGBM, scikit-learn and cuML. `from_treelite` makes an `Ensemble` of such
a model: a `hforest.tree.Forest` and what turns its means into the model's predictions; `predict` and
`predict_margin` apply it. `to_treelite` makes a model of an axis-aligned forest.

Needs treelite 4: ``pip install "hforest[treelite]"``. Import it by its name, `import hforest.treelite`;
`import hforest` does not import treelite.
"""

try:
    import treelite as _treelite
except ImportError as _error:
    raise ImportError(
        "hforest.treelite: expected treelite 4 or newer, got none; install it with "
        'pip install "hforest[treelite]"'
    ) from _error

if not hasattr(_treelite.Model, "get_header_accessor"):
    raise ImportError(
        f"hforest.treelite: expected treelite 4 or newer, got {_treelite.__version__}; "
        'upgrade it with pip install --upgrade "hforest[treelite]"'
    )

from .ensemble import Ensemble, predict, predict_margin
from .exporting import to_treelite
from .importing import from_treelite

__all__ = ["Ensemble", "from_treelite", "predict", "predict_margin", "to_treelite"]

Ensemble.__module__ = __name__
