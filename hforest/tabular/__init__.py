"""Models of tables: grown forests, hinge trees that start from them and are trained further, boosted trees.

`fit` returns a model from raw columns. It scales columns, encodes missing values and categories as numbers,
and grows trees on the columns and on sparse random inner products. Hinge trees start from trees boosted on
its residuals. Adam then trains thresholds, leaf weights and inner products together, with early stopping on
held-out rows, which also choose boosted trees for the prediction. A `Model` is a tuple of arrays: `save` and
`load` store it in one file, `predict` applies it. The package uses only public functions of other
subpackages.

Samples, labels and targets are array-likes. Models are fitted and applied on the CPU; CuPy arrays raise
TypeError.
"""

from .c_source import to_c
from .columns import columns, differences, numbers
from .describing import describe
from .encoding import Encoding
from .evaluation.importances import Importance, importance
from .evaluation.reporting import Report, report
from .evaluation.shap import shap_values
from .files import load, save
from .fitting import fit
from .intervals import predict_interval
from .kinds import Columns
from .levels import Levels
from .model import Boosted, Member, Model
from .reading import read
from .scaling import Scaling
from .serving import Prepared, predict, prepare
from .steps import TrainingState, partial_fit
from .targets import Target, labels, target
from .training import Moments

__all__ = [
    "Boosted",
    "Columns",
    "Encoding",
    "Importance",
    "Levels",
    "Member",
    "Model",
    "Moments",
    "Prepared",
    "Report",
    "Scaling",
    "Target",
    "TrainingState",
    "columns",
    "describe",
    "differences",
    "fit",
    "importance",
    "labels",
    "load",
    "numbers",
    "partial_fit",
    "predict",
    "predict_interval",
    "prepare",
    "read",
    "report",
    "save",
    "shap_values",
    "target",
    "to_c",
]
