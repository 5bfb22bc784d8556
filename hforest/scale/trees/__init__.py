"""Ranges of trees on the workers of an executor; each worker has all samples."""
