from ..core.aliases import FloatArray, IntArray
from .shared import Aggregate, Route

def traverse(
    fern: bool, x: FloatArray, thresholds: FloatArray, features: IntArray, checked: bool
) -> Route | None: ...
def forward(
    fern: bool,
    x: FloatArray,
    thresholds: FloatArray,
    features: IntArray,
    weights: FloatArray,
    aggregate: Aggregate,
    checked: bool,
) -> FloatArray | None: ...
