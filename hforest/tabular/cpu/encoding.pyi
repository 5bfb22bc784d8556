from typing import final

from numpy.typing import NDArray

from ..encoding import Encoding
from ..scaling import Scaling

@final
class Encoder:
    def __init__(self, scaling: Scaling, encoding: Encoding | None) -> None: ...
    def encode(self, x: NDArray) -> tuple[NDArray, NDArray | None, bool]: ...
