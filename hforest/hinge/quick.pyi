from typing import Any

from numpy.typing import NDArray

def traverse(
    fern: bool, x: Any, thresholds: Any, features: Any, checked: bool
) -> tuple[NDArray, NDArray, NDArray] | None: ...
def forward(
    fern: bool, x: Any, thresholds: Any, features: Any, weights: Any, aggregate: Any, checked: bool
) -> NDArray | None: ...
