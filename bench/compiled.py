"""torch.compile in the benches: one static graph for each function, in a process of its own, or an error.

PyTorch compiles a function again for every shape and gradient mode, and after eight times (its limit for one
code object in a process) runs it without compiling, with no more than a warning. A time measured then is not
that of torch.compile.
"""

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any


def compiled(
    function: Callable[..., Any], backend: str = "inductor", fullgraph: bool = True
) -> Callable[..., Any]:
    """Returns the function compiled by PyTorch for the shapes of its first call.

    A graph break, a compiler that fails, a second compilation of the same code in this process, and a call
    that does not compile are errors. `fullgraph=False` is for optimisers, whose step PyTorch itself breaks
    before its one graph. The settings of PyTorch for this apply to the whole process.
    """
    import torch
    from torch._dynamo.utils import counters

    torch._dynamo.config.error_on_recompile = True
    torch._dynamo.config.suppress_errors = False
    fast = torch.compile(function, dynamic=False, fullgraph=fullgraph, backend=backend)
    checked = False

    def call(*arguments: Any) -> Any:
        nonlocal checked
        if checked:
            return fast(*arguments)
        before = counters["stats"]["unique_graphs"]
        result = fast(*arguments)
        graphs = counters["stats"]["unique_graphs"] - before
        if graphs != 1:
            name = getattr(function, "__qualname__", type(function).__name__)
            raise RuntimeError(
                f"{name}: expected one graph compiled by torch.compile, got {graphs}; compile it once in a "
                "process, and unset TORCH_COMPILE_DISABLE and TORCHDYNAMO_DISABLE"
            )
        checked = True
        return result

    return call


def new_process() -> ProcessPoolExecutor:
    """Returns an executor of one new process, in which PyTorch has compiled nothing."""
    return ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
