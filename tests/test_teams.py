"""Parallel loops end, and Ctrl-C ends them, with all settings, runtimes and teams of OpenMP."""

import ctypes.util
import hashlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hforest
from hforest import tree

ROOT = Path(__file__).resolve().parents[1]
MOST_SECONDS = 3.0
"""As in test_interrupts.py: the promise is one second."""

SETTINGS = {
    "no setting": {},
    "a limit below the number asked for": {"OMP_THREAD_LIMIT": "2"},
    "a limit of one thread": {"OMP_THREAD_LIMIT": "1"},
    "teams as the runtime likes": {"OMP_DYNAMIC": "true"},
    "nested teams": {"OMP_MAX_ACTIVE_LEVELS": "3"},
    "threads that do not spin": {"OMP_WAIT_POLICY": "passive"},
}

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a timer that sends signals")


def _llvm():
    """Returns the file name of LLVM's OpenMP runtime, which also has GCC's interface."""
    name = ctypes.util.find_library("omp")
    if sys.platform != "linux" or name is None:
        pytest.skip("needs libomp on Linux: apt install libomp5")
    return name


@pytest.fixture(params=["gcc", "gcc, LLVM's runtime", "clang"])
def teams(request, tmp_path):
    """Compiles teams.c; returns the command and its environment."""
    compiler = shutil.which(request.param.split(",")[0])
    program = tmp_path / "teams"
    if compiler is None:
        pytest.skip(f"needs {request.param}")
    command = [compiler, "-O2", "-std=gnu11", "-fopenmp", "-w", f"-I{ROOT / 'hforest'}"]
    built = subprocess.run(
        [*command, str(ROOT / "tests" / "teams.c"), "-o", str(program)], capture_output=True
    )
    if built.returncode:
        pytest.skip(f"{request.param} builds no OpenMP programs")
    return [str(program)], {"LD_PRELOAD": _llvm()} if "LLVM" in request.param else {}


@pytest.mark.slow
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("n_threads", [2, 5])
def test_loops_end_and_look_for_signals(teams, settings, n_threads):
    command, environment = teams
    environment = {**os.environ, **environment, **settings}
    command = [*command, str(n_threads)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    *waited, faults = done.stdout.splitlines()
    assert faults == "0 faults"
    assert len(waited) == 4
    for line in waited:
        assert 0 <= int(line.split()[-2]) < 1000 * MOST_SECONDS, done.stdout


_SCRIPT = """
import hashlib, signal, sys
sys.path.insert(0, "bench")
import numpy as np
import hforest
import interrupts
from hforest import tree

def results():
    x = np.random.default_rng(0).random((3000, 20), dtype=np.float32)
    forest = hforest.grow(x, (5 * x[:, 0]).astype(int), 20, rng=0)
    return hashlib.sha256(tree.predict(forest, x).tobytes()).hexdigest()

def handler(number, frame):
    inside.append(results())  # a region in a region
    signal.setitimer(signal.ITIMER_REAL, 0.05)

hforest.set_num_threads(5)
print(results())
x = np.random.default_rng(0).random((1_000_000, 40), dtype=np.float32)
print(interrupts.latency(lambda: hforest.samples(x).bins(), 0.3))
inside = []
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.05)
hforest.samples(x[:300_000]).bins()
# A handler that is late starts the timer again: the signal must not end the process.
signal.signal(signal.SIGALRM, signal.SIG_IGN)
print(*inside, results())
"""


@pytest.mark.slow
@pytest.mark.parametrize("runtime", ["as built", "LLVM's runtime"])
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_calls_are_interrupted_in_every_team(runtime, settings):
    more = {} if runtime == "as built" else {"LD_PRELOAD": _llvm()}
    command, environment = [sys.executable, "-c", _SCRIPT], {**os.environ, **settings, **more}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    first, seconds, last = done.stdout.splitlines()
    x = np.random.default_rng(0).random((3000, 20), dtype=np.float32)
    forest = hforest.grow(x, (5 * x[:, 0]).astype(int), 20, rng=0)
    assert first == hashlib.sha256(tree.predict(forest, x).tobytes()).hexdigest()
    assert set(last.split()) == {first}
    assert seconds != "None", "the call ended before the signal came"
    assert float(seconds) < MOST_SECONDS
