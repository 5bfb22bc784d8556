"""Layers beside PyTorch's own: import time, states, initial values, shapes of inputs, function transforms."""

import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install torch")
ht = pytest.importorskip("hforest.torch")


def test_the_import_leaves_out_the_compiler():
    code = (
        "import sys, hforest.torch; print([name for name in sys.modules if name.startswith('torch._dynamo')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=300
    )
    assert done.stdout.strip() == "[]"
