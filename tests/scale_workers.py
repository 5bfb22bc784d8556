"""Functions that workers import in tests of `hforest.scale`: growers that count, fail, or end their process."""

import os
import time
from pathlib import Path

import hforest


def note(folder, text=""):
    """Writes a new file into a folder that all workers share."""
    Path(folder, f"{os.getpid()}-{time.monotonic_ns()}").write_text(text, encoding="utf-8")


def notes(folder):
    """Returns the texts of all notes."""
    return [path.read_text(encoding="utf-8") for path in Path(folder).iterdir()]


class Counted:
    """Samples that leave a note each time that they are unpickled."""

    def __init__(self, x, folder):
        self.x, self.folder = x, folder

    def __reduce__(self):
        return _unpickled, (self.x, self.folder)


def _unpickled(x, folder):
    note(folder, str(os.getpid()))
    return Counted(x, folder)


def grow_counted(x, y, n_trees, *, first_tree, rng):
    time.sleep(0.05)
    return hforest.grow(x.x, y, n_trees, first_tree=first_tree, rng=rng)


def grow_slowly(x, y, n_trees, *, first_tree, rng, seconds=0.2):
    time.sleep(seconds)
    return hforest.grow(x, y, n_trees, first_tree=first_tree, rng=rng)


def end_process(x, y, n_trees, *, first_tree, rng, at=5):
    """Returns trees, but ends the process at tree `at`."""
    if first_tree <= at < first_tree + n_trees:
        os._exit(1)
    return hforest.grow(x, y, n_trees, first_tree=first_tree, rng=rng)


def end_process_once(x, y, n_trees, *, first_tree, rng, folder):
    """Calls `end_process` if no worker has ended before."""
    if first_tree and not notes(folder):
        note(folder)
        os._exit(1)
    return hforest.grow(x, y, n_trees, first_tree=first_tree, rng=rng)


def fail_once(x, y, n_trees, *, first_tree, rng, folder):
    """Raises an error that is not about an argument, if no worker has done so before."""
    if first_tree and not notes(folder):
        note(folder)
        raise OSError("no space left on device")
    return hforest.grow(x, y, n_trees, first_tree=first_tree, rng=rng)


def fail(x, y, n_trees, *, first_tree, rng, error=OSError):
    raise error("no space left on device")


def fewer_trees(x, y, n_trees, *, first_tree, rng):
    return hforest.grow(x, y, max(1, n_trees - 1), rng=rng)


def no_forest(x, y, n_trees, *, first_tree, rng):
    return n_trees
