"""Greatest errors of exp and log of hforest/core/series.h, in units of the last place, and their time.

python lab/series.py             10**8 float64 numbers, against extended precision: ten minutes
python lab/series.py --float32   all 2**32 float32 numbers, against exp and log of NumPy in float64
"""

import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from test_series import LIMITS, float64_numbers, worst

from hforest.core import series

PART = 1 << 22


def float32_error(name: str) -> float:
    """Returns the greatest error of all float32 numbers, in units of the last place of float32."""
    most = 0.0
    for first in range(0, 1 << 32, PART):
        a = np.arange(first, first + PART, dtype=np.uint32).view(np.float32)
        a = a[np.isfinite(a) & ((a > 0) | (name == "exp"))]
        if not len(a):
            continue
        with np.errstate(over="ignore", under="ignore"):
            want = getattr(np, name)(a.astype(np.float64))
            unit = np.spacing(abs(want).astype(np.float32)).astype(np.float64)
        got = getattr(series, name)(a).astype(np.float64)
        inside = np.isfinite(unit)
        assert (np.isinf(got[~inside])).all()
        most = max(most, float(np.max(abs(got[inside] - want[inside]) / unit[inside], initial=0)))
    return most


def float64_error(name: str, n: int) -> float:
    """Returns the greatest error of n numbers."""
    rng = np.random.default_rng(1)
    return max(worst(name, float64_numbers(name, PART // 8, rng)) for _ in range(-(-n // (PART // 4))))


def main() -> None:
    for name in LIMITS:
        start = time.perf_counter()
        if "--float32" not in sys.argv:
            print(f"float64 {name}: {float64_error(name, 10**8):.4f}", flush=True)
        elif name in ("exp", "log"):
            print(f"float32 {name}: {float32_error(name):.9f}", flush=True)
        print(f"{time.perf_counter() - start:.0f} s", flush=True)
    a = np.random.default_rng(0).uniform(1e-3, 5, PART)
    for name in ("exp", "log"):
        for label, function in (("series", getattr(series, name)), ("NumPy", getattr(np, name))):
            times = []
            for _ in range(9):
                start = time.process_time()
                function(a)
                times.append(time.process_time() - start)
            print(f"{name}, {label}: {1e9 * min(times) / PART:.2f} ns per number")


if __name__ == "__main__":
    main()
