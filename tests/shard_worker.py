"""A worker that trains a hinge forest, started by torchrun's environment variables; see test_scale_hinge.py.

shard_worker.py torch|mpi CASE     prints a hash of the forest and its state, or the error and how long it took
"""

import hashlib
import os
import sys
import time

import numpy as np
import row_worker

from hforest import hinge, layers, scale

N_STEPS = 12


def forest(kind, dtype=np.float32, n_trees=21, depth=4, n_features=5, outputs=(3,), margin="column"):
    """Returns a forest with leaf weights that are not 0."""
    rng = np.random.default_rng(0)
    t, f, w = hinge.init(n_trees, depth, n_features, outputs, kind=kind, margin=margin, dtype=dtype, rng=rng)
    w[...] = rng.normal(size=w.shape)
    return hinge.Parameters(t, f, w)


def batch(step, dtype=np.float32, n_features=5, n_classes=3):
    """Returns the samples and labels of a step."""
    rng = np.random.default_rng([1, step])
    x = rng.normal(size=(16, n_features)).astype(dtype)
    return x, (x[:, :n_classes].argmax(axis=1)).astype(np.int32)


def train(shards, n_steps=N_STEPS, dtype=np.float32, lr=lambda step: 0.01):
    """Takes steps; returns all outputs and gradients with respect to the input."""
    found = []
    for step in range(shards.steps, n_steps):
        x, labels = batch(step, dtype)
        y, route = shards.forward(x)
        _, grad_y = layers.softmax_loss(y, labels)
        gradients = shards.backward(grad_y, route)
        found += [y, gradients.x]
        shards.step(gradients, lr(step))
    return found


def digest(*arrays):
    found = hashlib.sha256()
    for a in (a for a in arrays if a is not None):  # with columns, a state has no moments of features
        found.update(f"{a.dtype} {a.shape}".encode() + np.ascontiguousarray(a).tobytes())
    return found.hexdigest()


def main(kind, case):
    comm = row_worker.communicator(kind)
    began = time.monotonic()
    try:
        members = "fern" if case == "fern" else "tree"
        shards = scale.HingeShards(comm, members, *forest(members))
        if comm.rank == 1 and case == "killed":
            # This worker ends in the middle of a step.
            shards.forward(batch(0)[0])
            os._exit(7)
        if comm.rank == 1 and case == "bad":
            shards.features[0, 0] = 99
        found = train(shards)
        row_worker.say(digest(*found, *shards.parameters(), *shards.adam_state()))
    except Exception as error:
        row_worker.say(f"{time.monotonic() - began:.1f} {type(error).__name__}: {error}")
    if kind == "torch":
        import torch

        torch.distributed.destroy_process_group()  # otherwise a process may abort while the others end


if __name__ == "__main__":
    main(*sys.argv[1:])
