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

from .columns import columns, differences, numbers
from .encoding import Encoding
from .files import load, save
from .fitting import fit
from .kinds import Columns
from .levels import Levels
from .model import Boosted, Member, Model
from .reading import read
from .report import describe
from .scaling import Scaling
from .serving import Prepared, predict, prepare
from .steps import TrainingState, partial_fit
from .targets import Target, labels, target
from .training import Moments

__all__ = [
    "Boosted",
    "Columns",
    "Encoding",
    "Levels",
    "Member",
    "Model",
    "Moments",
    "Prepared",
    "Scaling",
    "Target",
    "TrainingState",
    "columns",
    "describe",
    "differences",
    "fit",
    "labels",
    "load",
    "numbers",
    "partial_fit",
    "predict",
    "prepare",
    "read",
    "save",
    "target",
]
