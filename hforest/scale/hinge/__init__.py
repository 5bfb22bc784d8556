"""Hinge forests over workers: trees on several workers, or gradients of parts of a batch."""
