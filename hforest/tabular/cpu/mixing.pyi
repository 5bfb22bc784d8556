from collections.abc import Iterable, Sequence
from typing import final

from numpy.typing import NDArray

from ..model import Model

@final
class Mixture:
    def __init__(self, model: Model, smoothing: float, least: float) -> None: ...
    def mix(self, parts: Iterable[Sequence[NDArray | None]], numbers: NDArray, y: NDArray) -> None: ...
