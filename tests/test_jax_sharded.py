"""Forests inside `jax.shard_map` on two devices, and exported programs."""

import os
import subprocess
import sys

import numpy as np
import pytest

from hforest import hinge
from hforest.core.extras import is_older

jax = pytest.importorskip("jax", minversion="0.5", reason="needs JAX 0.5 or newer")
hj = pytest.importorskip("hforest.jax")

SHARDED = """
import jax, jax.numpy as jnp, numpy as np
import hforest.jax as hj
from hforest import hinge, neural
from jax.sharding import Mesh, PartitionSpec as P

mesh = Mesh(np.array(jax.devices()), ("d",))
rng = np.random.default_rng(0)

def cases():
    for kind, margin, outputs in (("tree", "column", ()), ("fern", "projection", (2,))):
        t, f, w = hinge.init(4, 3, 5, outputs, kind=kind, margin=margin, scale=1.0, rng=0)
        x = rng.normal(size=(8, 5)).astype(np.float32)
        call = lambda x, t, f, w: hj.hinge_forest(x, t, f, w, kind=kind, margin=margin)
        learned = (0, 1, 3) if margin == "column" else (0, 1, 2, 3)
        yield (kind, margin, outputs), call, (x, t, f, w), learned
    leaves = rng.dirichlet(np.ones(4), (3, 8)).astype(np.float32)
    shared = rng.normal(size=(8, 6)).astype(np.float32)
    index = rng.integers(6, size=(3, 7)).astype(np.int32)
    yield "shared", lambda f, p, i: hj.neural_forest(f, p, index=i), (shared, leaves, index), (0, 1)

def close(found, wanted):
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)

for name, call, arguments, learned in cases():
    split = (P("d"), *(P(),) * (len(arguments) - 1))
    whole = call(*arguments)
    loss = lambda *a: (call(*a) ** 2).sum()
    wanted = jax.grad(loss, learned)(*arguments)
    for check in (True, False):
        sharded = lambda f, out: jax.shard_map(f, mesh=mesh, in_specs=split, out_specs=out, check_vma=check)
        assert np.array_equal(jax.jit(sharded(call, P("d")))(*arguments), whole)
        outside = sharded(lambda *a: jax.lax.psum(loss(*a), "d"), P())
        close(jax.jit(jax.grad(outside, learned))(*arguments), wanted)

        def inside(*a):
            grads = jax.grad(loss, learned)(*a)
            if check:  # JAX has summed the gradients of arguments that all devices share
                return grads
            return (grads[0], *(jax.lax.psum(g, "d") for g in grads[1:]))

        out = tuple(split[i] for i in learned)
        close(jax.jit(sharded(inside, out))(*arguments), wanted)
        # Parameters that differ over the devices, and samples that do not.
        turned = [jnp.stack([a, a[::-1]]) if i and i in learned else a for i, a in enumerate(arguments)]
        specs = tuple(P("d") if i and i in learned else P() for i in range(len(arguments)))
        pick = lambda *a: call(*(b[0] if i and i in learned else b for i, b in enumerate(a)))
        each = jax.jit(jax.shard_map(
            lambda *a: pick(*a)[None], mesh=mesh, in_specs=specs, out_specs=P("d"), check_vma=check))
        both = each(*turned)
        reversed_ = [a[::-1] if i and i in learned else a for i, a in enumerate(arguments)]
        assert np.array_equal(both[0], whole)
        assert np.array_equal(both[1], call(*reversed_))
        if not check:
            continue
        total = lambda *a: (each(*a) ** 2).sum()
        by_samples = jax.jit(jax.grad(total))(*turned)
        close([by_samples], [wanted[0] + jax.grad(loss)(*reversed_)])
        try:
            jax.make_jaxpr(jax.grad(lambda x: jax.grad(outside)(x, *arguments[1:]).sum()))(arguments[0])
        except TypeError as error:
            assert "expected at most first derivatives" in str(error)
        else:
            raise AssertionError("a second derivative")
    print(name, flush=True)
"""


@pytest.mark.slow  # of compilations
@pytest.mark.skipif(not hasattr(jax, "shard_map"), reason="needs a JAX with jax.shard_map")
def test_forests_in_shard_map():
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2"
    done = subprocess.run(
        [sys.executable, "-c", SHARDED], env=os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 3


def test_exported_programs():
    if is_older(jax.__version__, 0, 6):
        pytest.importorskip("absl", reason="jax.export of JAX 0.5 needs absl-py")
    from jax import export

    t, f, w = hinge.init(4, 3, 5, (2,), scale=1.0, rng=0)
    x = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32)
    forest = jax.jit(lambda x: hj.hinge_forest(x, t, f, w))
    with pytest.raises(ValueError, match="custom_call.*hforest"):
        export.export(forest)(x)
    checks = [export.DisabledSafetyCheck.custom_call("hforest")]
    text = export.export(forest, disabled_checks=checks)(x).serialize(vjp_order=1)
    program = export.deserialize(text)
    assert np.array_equal(program.call(x), forest(x))
    found = jax.grad(lambda x: (program.call(x) ** 2).sum())(x)
    assert np.array_equal(found, jax.grad(lambda x: (forest(x) ** 2).sum())(x))
