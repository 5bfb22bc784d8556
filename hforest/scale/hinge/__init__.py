"""Hinge forests on several workers, which hold parts of the trees or parts of a batch."""
