"""Forests on rows divided among workers, each of which calls `hforest.growth.by_level` on its rows."""
