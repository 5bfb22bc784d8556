"""Memory that calls do not give back."""

import gc

from memory_in_use import in_use

import hforest

from .oracle import Case, Finding, call, told

CALLS = 20


def _growth(case: Case, n: int) -> tuple[float, float]:
    # A call's blocks and bytes that remain, mean over n calls.
    before = in_use()
    for _ in range(n):
        call(case.target.function, case.make())
    return tuple((b - a) / n for a, b in zip(before, in_use(), strict=True))  # type: ignore[return-value]


def run(case: Case) -> None:
    """Raises Finding if repeated calls use more and more memory."""
    threads = hforest.get_num_threads()
    hforest.set_num_threads(1)  # other threads have heaps of their own
    gc.freeze()  # collections then look at new objects alone
    try:
        outcome = call(case.target.function, case.make())
        _growth(case, 5)
        # What grows once is a table or a pool; what grows each time, and over many calls, is a leak.
        for n in (CALLS, CALLS, CALLS, 20 * CALLS):
            blocks, n_bytes = _growth(case, n)
            if blocks < 0.9 and n_bytes < 8:
                return
        raise told(
            Finding(f"memory is not given back: {blocks:.1f} blocks and {n_bytes:.0f} bytes a call"),
            case,
            outcome,
        )
    finally:
        gc.unfreeze()
        hforest.set_num_threads(threads)
