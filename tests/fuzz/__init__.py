"""The project's fuzzer: calls of every public function, good and bad, whose outcomes are held against what is promised.

`pytest tests/fuzz` takes seconds. `python -m tests.fuzz --minutes 30` runs long; see docs/promises.md.

targets.py     public functions, found by introspection
values.py      sizes that the arguments of one call share, and values of arguments by name: kernels
layers.py      values of the arguments of optimisers, layers and projections
growing.py     values of the arguments of functions that grow and apply forests
layouts.py     one array in other layouts and dtypes
bad.py         one argument that is wrong
malformed.py   tuples of arrays that contradict themselves; arrays that overlap
damaged.py     files with damage
cases.py       kinds of cases: what is called, and what must come of it
oracle.py      runs a case and judges its outcome
leaks.py       runs a case many times and looks at the memory in use
search.py      runs many cases, in this process or in forked ones
known.py       findings that are not yet mended
"""
