"""The project's fuzzer: calls of every public function, good and bad, whose outcomes are held against what is promised.

`pytest lab/fuzz` takes seconds. `python -m lab.fuzz --minutes 30` runs long; see docs/promises.md.

targets.py     public functions, found by introspection
values.py      sizes that the arguments of one call share, and values of arguments by name: kernels
values_*.py    values of the arguments of a package, found by their names
growing.py     values of the arguments of functions that grow and apply forests
layouts.py     one array in other layouts and dtypes
bad.py         one argument that is wrong
malformed.py   tuples of arrays that contradict themselves; arrays that overlap
damaged.py     files with damage; files with foreign members
signals.py     runs a case with signals whose handler raises
forks.py       runs a case in a process that is forked beside a running call
cuda.py        float32 subnormals and missing values of both signs on the CUDA backends, on the host
stories.py     calls that follow on each other: lives of a model in PyTorch, commands whose output is there
cases.py       kinds of cases: what is called, and what must come of it
oracle.py      runs a case and judges its outcome
leaks.py       runs a case many times and looks at the memory in use
search.py      runs many cases, in this process or in forked ones
known.py       findings that are not yet mended
"""
