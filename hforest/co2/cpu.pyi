from numpy.typing import NDArray

from ..growth.bins import Bins
from ..growth.trees import Batch, Learned
from .descent import Schedule
from .oc1 import Search
from .units import StandardizedWindows

COPIED: int
READS_WINDOWS: bool

def surrogate(
    w: NDArray,
    theta0: NDArray,
    theta1: NDArray,
    x: NDArray,
    labels: NDArray | None,
    targets: NDArray | None,
    weight: NDArray,
    out: NDArray,
) -> None: ...
def surrogate_grad(
    w: NDArray,
    theta0: NDArray,
    theta1: NDArray,
    x: NDArray,
    labels: NDArray | None,
    targets: NDArray | None,
    weight: NDArray,
    grad_w: NDArray,
    grad_theta0: NDArray,
    grad_theta1: NDArray,
) -> None: ...
def fit_stump(
    x: NDArray,
    labels: NDArray | None,
    targets: NDArray | None,
    weight: NDArray,
    schedule: Schedule,
    key: int,
    w: NDArray,
    theta0: NDArray,
    theta1: NDArray,
    history: NDArray,
) -> None: ...
def fit_oc1(
    x: NDArray,
    labels: NDArray | None,
    targets: NDArray | None,
    weight: NDArray,
    n_outputs: int,
    criterion: int,
    min_leaf: int,
    least_weight: float,
    restarts: int,
    jumps: int,
    key: int,
    w: NDArray,
) -> None: ...
def grow(
    x: NDArray | StandardizedWindows,
    bins: Bins | None,
    learned: Learned,
    max_features: int,
    schedule: Schedule,
    search: Search | None,
    batch: Batch,
) -> None: ...
