from collections.abc import Callable
from typing import Any

NAME: str
VERSION: tuple[int, int]
functions: dict[str, Callable[..., Any]]

def capsule() -> Any: ...
