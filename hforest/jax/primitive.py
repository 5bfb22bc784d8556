"""JAX primitive of a forest: shape, program for XLA, gradient and batching.

A forest takes samples first, then its parameters: y = forest(samples, *parameters). `Forest` describes it.

    jit     the foreign call of the function's name
    grad    a `jax.custom_vjp`, whose backward pass is a foreign call on what the forward pass stored
    vmap    over samples alone: one call on all of them, and so is its gradient;
            over parameters: a call for each, in a loop
    shard_map   all arguments and results differ over the axes over which an argument does; JAX then sums
            the gradients of arguments that do not
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from .calls import reads_x
from .foreign import NAME


class Forest(NamedTuple):
    """Description of a call."""

    name: str
    """"hinge_forest" or "neural_forest"."""
    settings: str
    """Keyword arguments of the public function, as JSON."""
    outputs: tuple[int, ...]
    """Axes of y after the axis of the samples."""


_KINDS = "manual_axis_type", "vma"
"""What newer and older JAX call the axes of devices over which values of a type differ."""


def _axes(*arrays: Any) -> set[str]:
    """Returns the axes of devices over which some arrays differ inside `jax.shard_map`."""
    axes: set[str] = set()
    for a in arrays:
        if isinstance(a, jax.core.Tracer) and hasattr(jax, "typeof"):
            found = next(
                (getattr(jax.typeof(a), name) for name in _KINDS if hasattr(jax.typeof(a), name)), ()
            )
            axes.update(getattr(found, "varying", found))
    return axes


def _over(axes: set[str], a: jax.Array) -> jax.Array:
    """Returns an array that differs over axes of devices, as far as JAX knows. Its values are the same."""
    new = tuple(sorted(axes - _axes(a)))
    if not new:
        return a
    lax: Any = jax.lax
    return lax.pcast(a, new, to="varying") if hasattr(lax, "pcast") else lax.pvary(a, new)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2))
def _call(
    name: str, settings: str, results: tuple[jax.ShapeDtypeStruct, ...], *arguments: jax.Array
) -> tuple[jax.Array, ...]:
    """Returns the results of a foreign call, arrays of the shapes and dtypes in `results`."""
    call = jax.ffi.ffi_call(NAME, results, vmap_method="sequential")
    axes = _axes(*arguments)
    return tuple(_over(axes, a) for a in call(*arguments, function=name, setting=settings))


@_call.defjvp
def _no_second_derivative(*_: Any) -> Any:
    raise TypeError(
        "hforest.jax: expected at most first derivatives, got a second derivative; differentiate once"
    )


def _like(a: jax.Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(a.shape, a.dtype)


def _y(forest: Forest, samples: jax.Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((samples.shape[0], *forest.outputs), samples.dtype)


def _forward(*arguments: jax.Array, forest: Forest) -> jax.Array:
    return _call(forest.name, forest.settings, (_y(forest, arguments[0]),), *arguments)[0]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _differentiable(forest: Forest, *arguments: jax.Array) -> jax.Array:
    return _forward(*arguments, forest=forest)


def _fwd(forest: Forest, *inputs: Any) -> tuple[jax.Array, Any]:
    arguments = tuple(a.value for a in inputs)
    if forest.name == "neural_forest":
        # The structure of a tree says which gradients are needed: values would be traced.
        wanted = tuple(() if a.perturbed else None for a in inputs)
        return _forward(*arguments, forest=forest), (wanted, arguments)
    x, thresholds, features, weights = arguments
    out = _y(forest, x)
    route = (
        *out.shape[: x.ndim - 1],
        len(thresholds),
    )  # images and positions have one axis more
    results = (out, *(jax.ShapeDtypeStruct(route, dtype) for dtype in (jnp.int32, x.dtype, jnp.int32)))
    y, *route_arrays = _call(f"{forest.name}_routed", forest.settings, results, *arguments)
    if not reads_x(forest.settings):
        # Only the shape of x is needed: an array without elements has it.
        x = x[:0]
    return y, (*route_arrays, x, features, weights)


def _bwd(forest: Forest, stored: Any, grad_y: Any) -> tuple[jax.Array | None, ...]:
    if isinstance(grad_y, SymbolicZero):
        grad_y = _over(_axes(*jax.tree.leaves(stored)), jnp.zeros(grad_y.shape, grad_y.dtype))
    name = f"{forest.name}_backward"
    if forest.name == "neural_forest":
        wanted, (f, leaves, *index) = stored
        arguments = (grad_y, f, leaves, *index)
        grad_f = grad_leaves = None
        if wanted[0] is not None:
            (grad_f,) = _call(name, forest.settings, (_like(f),), *arguments)
        if wanted[1] is not None:
            (grad_leaves,) = _call(
                "neural_forest_leaves_backward", forest.settings, (_like(leaves),), *arguments
            )
        return (grad_f, grad_leaves, *(None for _ in index))
    leaf, margin, vertex, x, features, weights = stored
    grad_x = jax.ShapeDtypeStruct((len(grad_y), *x.shape[1:]), x.dtype)
    grad_thresholds = jax.ShapeDtypeStruct(features.shape[:2], x.dtype)
    learned = (_like(features),) if jnp.issubdtype(features.dtype, jnp.floating) else ()
    results = (grad_x, grad_thresholds, *learned, _like(weights))
    by_x, by_thresholds, *by_features, by_weights = _call(
        name, forest.settings, results, grad_y, leaf, margin, vertex, x, features, weights
    )
    return by_x, by_thresholds, *(by_features or (None,)), by_weights


_differentiable.defvjp(_fwd, _bwd, symbolic_zeros=True)


_forest = Primitive("hforest")


@_forest.def_abstract_eval
def _shape(*arguments: Any, forest: Forest) -> Any:
    y = _y(forest, arguments[0])
    kind, first = jax.core.ShapedArray(y.shape, y.dtype), arguments[0]
    for name in _KINDS:
        found = getattr(first, name, ())
        if getattr(found, "varying", found):
            spec = jax.sharding.PartitionSpec(*(None,) * len(y.shape))
            sharding = jax.sharding.NamedSharding(first.sharding.mesh, spec)
            return kind.update(sharding=sharding, **{name: found})
    return kind


@functools.lru_cache(maxsize=4096)
def _compiled(forest: Forest) -> Any:
    return jax.jit(functools.partial(_forward, forest=forest))


@_forest.def_impl
def _run(*arguments: jax.Array, forest: Forest) -> jax.Array:
    return _compiled(forest)(*arguments)


def _jvp(primals: Sequence[jax.Array], tangents: Sequence[Any], *, forest: Forest) -> Any:
    """Returns the derivative with respect to arguments that have a tangent, through `jax.custom_vjp`."""
    chosen = [i for i, t in enumerate(tangents) if type(t) is not ad.Zero and t.dtype != jax.dtypes.float0]

    def of_chosen(*values: jax.Array) -> jax.Array:
        arguments = list(primals)
        for i, value in zip(chosen, values, strict=True):
            arguments[i] = value
        return _differentiable(forest, *arguments)

    return jax.jvp(of_chosen, [primals[i] for i in chosen], [tangents[i] for i in chosen])


def _batch(arguments: Sequence[jax.Array], axes: Sequence[Any], *, forest: Forest) -> Any:
    first = [a if axis is None else jnp.moveaxis(a, axis, 0) for a, axis in zip(arguments, axes, strict=True)]
    if all(axis is None for axis in axes[1:]):
        samples, *parameters = first
        n_batches, n = samples.shape[:2]
        merged = samples.reshape(n_batches * n, *samples.shape[2:])
        y = _forest.bind(merged, *parameters, forest=forest)
        return y.reshape(n_batches, n, *forest.outputs), 0
    mapped = [a for a, axis in zip(first, axes, strict=True) if axis is not None]

    def one(values: Sequence[jax.Array]) -> jax.Array:
        left = iter(values)
        chosen = (a if axis is None else next(left) for a, axis in zip(first, axes, strict=True))
        return _forest.bind(*chosen, forest=forest)

    return jax.lax.map(one, mapped), 0


ad.primitive_jvps[_forest] = _jvp
batching.primitive_batchers[_forest] = _batch
mlir.register_lowering(_forest, mlir.lower_fun(_forward, multiple_results=False), platform="cpu")


def bind(forest: Forest, *arguments: jax.Array) -> jax.Array:
    """Returns y of a forest. Arguments are the samples, then the parameters; nothing is checked here."""
    axes = _axes(*arguments)
    return _forest.bind(*(_over(axes, a) for a in arguments), forest=forest)
