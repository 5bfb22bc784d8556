"""Compiled stages of a prediction of a model of a table.

encoding.pyx   columns of a table as inputs of the trees (scaling.py, encoding.py, levels.py)
products.pyx   inner products
mixing.pyx     the parts of a prediction as one (model.py)

A thread owns rows, and results do not depend on the other rows of a call. The Python files have the same
steps in NumPy, for training.
"""

from .encoding import Encoder
from .mixing import Mixture
from .products import Products

__all__ = ["Encoder", "Mixture", "Products"]
