"""torch.compile in the benches: one static graph for each function, in a separate process, or an error.

PyTorch compiles a function again for every shape and gradient mode. After eight times (its limit for one code
object in a process) it runs the function without compiling, and only warns. A time measured then is not that
of torch.compile.
"""

import multiprocessing
import types
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

FAST = {"assert_indirect_indexing": False, "unroll_reductions_threshold": 16}
"""Settings of torch.compile that were faster: indices are not checked, sums of up to 16 numbers unrolled."""


def compiled(
    function: Callable[..., Any],
    backend: str = "inductor",
    fullgraph: bool = True,
    options: dict[str, Any] | None = None,
) -> Callable[..., Any]:
    """Returns the function compiled by PyTorch for the shapes of its first call.

    A plain function gets a code object of its own, so that functions of one definition are compiled apart.

    A graph break, a compiler that fails, a second compilation of the same code in this process, and a call
    that does not compile are errors. `fullgraph=False` is for optimisers, whose step PyTorch itself breaks
    before its one graph. The settings of PyTorch for this apply to the whole process.
    """
    import torch
    from torch._dynamo.utils import counters

    torch._dynamo.config.error_on_recompile = True
    torch._dynamo.config.suppress_errors = False
    own = function
    if isinstance(function, types.FunctionType):
        own = types.FunctionType(
            function.__code__.replace(),
            function.__globals__,
            function.__name__,
            function.__defaults__,
            function.__closure__,
        )
    fast = torch.compile(own, dynamic=False, fullgraph=fullgraph, backend=backend, options=options)
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
