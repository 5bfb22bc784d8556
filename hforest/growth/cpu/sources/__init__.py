"""Candidate sources: what a split of a node may be, and the values of its samples."""
