"""Reference implementations of public functions that have another name there.

Both sides are names without ``hforest.``; the build fails where one does not exist. Functions whose reference
has their own name, in their own subpackage, are not listed. An empty list: none.
"""

TESTED_AGAINST = {
    "hinge.leaf_rows": ["hinge.touched"],
    "hinge.forward_with_route": ["hinge.forward"],
    "hinge.backward_sparse": ["hinge.backward"],
    "neural.from_forest": ["neural.predict"],
    "neural.predict": [],  # the reference of that name is of a grown forest with soft decisions
    "split.best_split": ["split.class_splits", "split.target_splits"],
    "tree.check": ["tree.faults"],
    "tree.vote_shares": ["tree.predict"],
    "tree.leaf_targets": ["tree.group"],
    "tree.proximity": ["tree.count_neighbors", "tree.neighbors"],
    "classic.grow": ["growth.grow"],
    "classic.grow_extra": ["growth.grow"],
    "classic.grow_random": ["growth.grow"],
    "manifold.grow": ["growth.grow_projected"],
}
