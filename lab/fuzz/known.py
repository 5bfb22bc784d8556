"""Findings that are not yet mended. They are counted and printed, and fail nothing. Empty is right."""

from fnmatch import fnmatchcase

KNOWN: list[tuple[str, str, str, str]] = []
"""Function, kind, argument and beginning of the finding, as patterns of fnmatch."""


def is_known(key: tuple[str, str, str, str]) -> bool:
    """Whether a finding with this key (see `oracle.Finding`) is listed."""
    return any(all(map(fnmatchcase, key, pattern)) for pattern in KNOWN)
