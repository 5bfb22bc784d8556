"""The CPU backend of random hinge forests and ferns: Cython modules with OpenMP; `cpu.pyx` lists them."""

from .cpu import (
    adam_backward,
    adam_forward,
    backward,
    forward,
    leaf_counts,
    leaf_outputs,
    touched,
    traverse,
)

__all__ = [
    "adam_backward",
    "adam_forward",
    "backward",
    "forward",
    "leaf_counts",
    "leaf_outputs",
    "touched",
    "traverse",
]
