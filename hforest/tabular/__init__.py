"""One recipe for ordinary tables: hinge forests that start as grown forests and go on learning.

`fit` does everything from raw columns to a model: columns are put to a common unit, numbers take the place of
missing values and categories, trees are grown on them
and on sparse random inner products, hinge trees start as the grown trees, and thresholds, leaf weights and
inner products are trained together by Adam, with early stopping on held-out rows. A `Model` is a tuple of
arrays: `save` and `load` keep it in one file, `predict` applies it. Everything is built from public functions
of other subpackages.

Samples, labels and targets are what `numpy.asarray` takes. Models are fitted and applied on the CPU; CuPy
arrays raise TypeError. Wrong kinds and dtypes raise TypeError, wrong shapes and values ValueError, labels
out of range IndexError.
"""

from .columns import Columns, columns, describe, numbers
from .encoding import Encoding
from .files import load, save
from .fitting import fit
from .levels import Levels
from .model import Member, Model, predict
from .scaling import Scaling
from .steps import TrainingState, partial_fit
from .training import Moments

__all__ = [
    "Columns",
    "Encoding",
    "Levels",
    "Member",
    "Model",
    "Moments",
    "Scaling",
    "TrainingState",
    "columns",
    "describe",
    "fit",
    "load",
    "numbers",
    "partial_fit",
    "predict",
    "save",
]
