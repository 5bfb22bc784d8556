"""Growth level by level, from sums over parts of the samples, which may be on several machines.

Trees equal those of `hforest.growth`. Large nodes are split by sums of histograms over all parts; small nodes
are gathered and finished by `hforest.growth`. Drivers are `hforest.scale` and `hforest.dask`, whose parts are
on workers. An `Engine` calls functions of parts. `check_settings` makes `Checked`, with which `grow` returns
the forest; `hforest.scale.grow_on_engine` calls both. Functions of parts return arrays, tuples of them and
`RECORDS`, which engines may send.

An engine with its parts in a list:

>>> import numpy as np, hforest, hforest.scale
>>> class Parts:
...     n_tasks = 1
...     def map(self, function, handles, *args, each=()):
...         values = enumerate(zip(*handles))
...         return [function(*value, *args, *each[p : p + 1]) for p, value in values]
...     collect = map
...     def total(self, function, handles, *args, shape, dtype):
...         return sum(self.map(function, handles, *args))
...     def exchange(self, send, handles, items, receive, args):
...         sent = [self.map(send, handles, item) for item in items]
...         return [receive(found, *more) for found, more in zip(sent, args)]
...     def agree(self, go_on):
...         return go_on()
>>> x = np.random.default_rng(0).normal(size=(300, 4))
>>> y = x[:, 0] > x[:, 1]
>>> samples = [(x[i : i + 100], y[i : i + 100], None) for i in (0, 100, 200)]
>>> grown = hforest.scale.grow_on_engine(Parts(), samples, 10, rng=0)
>>> forest = hforest.grow(hforest.samples(x, max_bins=256), y, 10, bootstrap="poisson", rng=0)
>>> all((a == b).all() for a, b in zip(forest, grown))
True
"""

from ..trees import Trees
from .engine import Engine
from .growing import grow
from .parts import Description, Gathered
from .settings import Checked, Settings, by_rows, check_settings

__all__ = ["RECORDS", "Checked", "Engine", "Settings", "by_rows", "check_settings", "grow"]

RECORDS = Description, Gathered, Trees
"""Named tuples that functions of parts return, and engines send."""

# Classes are known by their public names, in `help` and in pickles, whatever file holds them.
for _member in (*RECORDS, Checked, Engine, Settings):
    _member.__module__ = __name__
del _member
