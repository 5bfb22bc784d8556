from typing import final

from numpy.typing import NDArray

@final
class Products:
    def __init__(self, kernel: NDArray) -> None: ...
    def inputs(self, numbers: NDArray, columns: NDArray | None) -> tuple[NDArray, bool]: ...
