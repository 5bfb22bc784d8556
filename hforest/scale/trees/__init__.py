"""Ranges of trees over the workers of an executor: each worker has all samples."""
