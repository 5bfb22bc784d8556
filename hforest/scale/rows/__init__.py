"""Forests on rows that lie on several workers: each worker calls `hforest.growth.by_level` with its own."""
