"""Forests as scikit-learn estimators.

Each estimator calls one public function of hforest, and its predictions are those of that function's model.
Estimators accept arrays, pandas and polars DataFrames, and labels of any type, and pass scikit-learn's
estimator checks. docs/sklearn.md lists them, with the name of each parameter in hforest. As in scikit-learn,
estimators have `n_features_in_` and, for a DataFrame, `feature_names_in_`; classifiers have `classes_`, the
labels in ascending order, and `n_classes_`, regressors `n_outputs_`.

Requires scikit-learn 1.6 or newer: ``pip install -e '.[sklearn]'``. Write `import hforest.sklearn`; `import
hforest` does not import scikit-learn.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from ..core.counterparts import lookup as _lookup
from ..core.extras import missing as _missing
from ..core.keywords import answered as _answered

try:
    import sklearn as _sklearn
    from sklearn.utils import validation as _validation
except ImportError as _error:
    raise _missing("hforest.sklearn", "scikit-learn 1.6 or newer", "sklearn") from _error

if not hasattr(_validation, "validate_data"):
    raise _missing("hforest.sklearn", "scikit-learn 1.6 or newer", "sklearn", got=_sklearn.__version__)

from .alternating import AlternatingForestClassifier
from .cascade import CascadeForestClassifier
from .classic import (
    CompletelyRandomForestClassifier,
    CompletelyRandomForestRegressor,
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from .co2 import CO2ForestClassifier, CO2ForestRegressor
from .hinge import HingeForestClassifier, HingeForestRegressor
from .honest import HonestForestClassifier, HonestForestRegressor
from .network import HingeNetworkClassifier, HingeNetworkRegressor
from .neural import NeuralForestClassifier
from .oblique import (
    ManifoldForestClassifier,
    ManifoldForestRegressor,
    ObliqueForestClassifier,
    ObliqueForestRegressor,
)

__all__ = [
    "AlternatingForestClassifier",
    "CO2ForestClassifier",
    "CO2ForestRegressor",
    "CascadeForestClassifier",
    "CompletelyRandomForestClassifier",
    "CompletelyRandomForestRegressor",
    "ExtraTreesClassifier",
    "ExtraTreesRegressor",
    "HingeForestClassifier",
    "HingeForestRegressor",
    "HingeNetworkClassifier",
    "HingeNetworkRegressor",
    "HonestForestClassifier",
    "HonestForestRegressor",
    "ManifoldForestClassifier",
    "ManifoldForestRegressor",
    "NeuralForestClassifier",
    "ObliqueForestClassifier",
    "ObliqueForestRegressor",
    "RandomForestClassifier",
    "RandomForestRegressor",
]

_SAID = {
    "progress": "functions of hforest, which take progress",
    "splitter": "ExtraTreesClassifier or ExtraTreesRegressor for random thresholds",
}
"""Answers about keywords of hforest's functions that estimators lack."""
for _name in __all__:
    _class = globals()[_name]
    # Known by their public names, in `help` and in pickles, whatever file holds them.
    _class.__module__ = __name__
    _class.__init__ = _answered(
        _class.__init__, {**_SAID, **{theirs: ours for ours, theirs in _class._names.items()}}
    )
del _class, _name

if not _TYPE_CHECKING:
    __getattr__, __dir__ = _lookup(__name__)
