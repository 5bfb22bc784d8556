"""The command that installs an extra of the package, and the error about a missing library."""

__all__ = ["command", "is_older", "missing"]


def command(*extras: str) -> str:
    """Returns the command that installs one of these extras; there is no package on an index yet."""
    places = " or ".join(f"'.[{extra}]'" for extra in extras)
    return f"pip install -e {places} in the checkout of hforest"


def is_older(version: str, *least: int) -> bool:
    """Returns whether a version such as "2.13.0+cpu" is older than one such as (2, 7)."""
    return tuple(map(int, version.split(".")[: len(least)])) < least


def missing(name: str, library: str, *extras: str, got: str = "none") -> ImportError:
    """Returns the error of `name` about a missing library, with the extras that install it."""
    return ImportError(f"{name}: expected {library}, got {got}; install it with {command(*extras)}")
