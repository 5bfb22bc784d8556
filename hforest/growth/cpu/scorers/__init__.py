"""Scorers: the best split of a candidate. Where several apply, they give the same split (table.pxd)."""
