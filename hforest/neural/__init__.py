"""Neural decision forests: complete trees whose vertices send each sample both ways, with probabilities.

Y. Zhang, *Ensemble Tree Model with Deep Architecture*, 2017, section 2, notes on P. Kontschieder,
M. Fiterau, A. Criminisi, S. Rota Bulò, *Deep Neural Decision Forests*, 2015.

The caller computes decision functions f, by a linear layer or any network. This subpackage routes samples by
them and returns the gradient of a loss with respect to them. The leaves hold class probabilities, which a
closed-form update fits.

=========  =========================================  ===============  =====================================
`f`        (n_samples, n_trees, 2**depth - 1)         float32/float64  f_n(x), in natural-log odds
           or (n_samples, n_functions), with `index`
`index`    (n_trees, 2**depth - 1)                    int32            decision function of each vertex
`leaves`   (n_trees, 2**depth, n_classes)             as f             pi, rows that sum to 1
=========  =========================================  ===============  =====================================

Vertices are in heap order (root 0, children 2v + 1 and 2v + 2), leaves from left to right. As in the paper a
sample goes *left* with probability d = sigmoid(f). In `hforest.hinge` a positive decision goes right.

`route`, `forward`, `loss_backward`, `backward` and `update_leaves` take C-contiguous NumPy or CuPy arrays of
one float dtype and return arrays of the same kind; labels may be of any integer dtype. `fit`, `decisions` and
`predict` convert samples to the dtype of the model.
"""

from .gradients import backward, loss_backward
from .grown import from_forest
from .leaves import uniform_leaves, update_leaves
from .linear import Linear, decisions, linear_init, predict, to_hard
from .online import OnlineState, partial_fit
from .routing import forward, route
from .training import fit

__all__ = [
    "Linear",
    "OnlineState",
    "backward",
    "decisions",
    "fit",
    "forward",
    "from_forest",
    "linear_init",
    "loss_backward",
    "partial_fit",
    "predict",
    "route",
    "to_hard",
    "uniform_leaves",
    "update_leaves",
]
