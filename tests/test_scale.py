"""Growing on several workers."""
