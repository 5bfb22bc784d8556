"""Parts of bits.py on PyTorch and JAX, if installed: functions with gradients, layers and optimisers.

As in bits_hinge.py, results have the names of cases, and names of functions occur once.
"""

import importlib.util
from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np
from bits_hinge import KINDS, Aggregate, Case, parameters, problems
from digests import Results, Task, digest

import hforest


def installed(module: str) -> bool:
    """Returns whether a framework can be imported."""
    return importlib.util.find_spec(module) is not None


# ------------------------------------------------------------------ names of the functions of both frameworks


def torch_forest(case: Case, x: Any, p: Any, aggregate: Aggregate, sparse: bool = False) -> Any:
    """Returns the outputs of a forest as a tensor."""
    import hforest.torch as ht

    windows = hforest.hinge.Windows(**case.windows) if case.windows else None
    words: Any = {"kind": case.kind, "margin": case.margin, "windows": windows}
    return ht.hinge_forest(x, *p, **words, aggregate=aggregate, sparse=sparse)


def torch_forms(case: Case) -> tuple[str, ...]:
    """Yields the forms of the gradient of weights to hash; both have the same numbers in every case."""
    return ("dense", "sparse") if case.margin == "column" and not case.windows else ("dense",)


def jax_forest(case: Case, x: Any, p: Any, aggregate: Aggregate) -> Any:
    """Returns the outputs of a forest as an array of JAX."""
    import hforest.jax as hj

    windows = hforest.hinge.Windows(**case.windows) if case.windows else None
    return hj.hinge_forest(x, *p, kind=case.kind, margin=case.margin, windows=windows, aggregate=aggregate)


def in_jax(case: Case) -> bool:
    """Returns whether JAX has functions of this case."""
    return case.margin == "column" and not case.windows


# ----------------------------------------------------------------------------------------------- PyTorch


def plain(a: Any) -> Any:
    """Returns tensors and containers of tensors as arrays; a sparse tensor as its rows and values."""
    import torch

    if isinstance(a, torch.Tensor):
        if a.layout == torch.sparse_coo:
            a = a.coalesce()
            return a.indices().numpy(), a.values().numpy()
        return a.detach().numpy()
    if isinstance(a, dict):
        return [plain(a[name]) for name in sorted(a, key=str)]
    if isinstance(a, str):
        return np.array(a)
    return [plain(b) for b in a] if isinstance(a, (list, tuple)) else a


def tensor_results(key: str, y: Any, tensors: Iterable[tuple[str, Any]]) -> Results:
    """Yields hashes of outputs, and of gradients after a backward pass with y as the gradient of y."""
    yield f"{key} forward", digest(plain(y))
    y.backward(y.detach())
    for name, tensor in tensors:
        if tensor.grad is not None:
            yield f"{key} gradient of {name}", digest(plain(tensor.grad))


def of_torch(task: Task) -> Results:
    """Yields functions, layers and optimisers of PyTorch, with its own operations on one thread."""
    if not installed("torch"):
        return
    import torch

    n_threads = hforest.get_num_threads()
    torch.set_num_threads(1)
    hforest.set_num_threads(n_threads)
    yield from torch_functions(task)
    for part in (torch_layers, torch_convolutions, torch_soft_layers, torch_steps, torch_states):
        yield from part(task)


def torch_functions(task: Task) -> Results:
    """Yields every kind, margin and aggregate, dense and sparse."""
    import torch

    names = ("x", "thresholds", "vectors", "weights")
    for name, case, x, p, aggregates in problems(task.x):
        for aggregate in aggregates:
            for word in torch_forms(case):
                leaves = [torch.tensor(a) for a in (x, *p)]
                for a in leaves:
                    a.requires_grad_(a.is_floating_point())
                y = torch_forest(case, leaves[0], leaves[1:], aggregate, word == "sparse")
                key = f"torch {name} {aggregate or 'apart'} {word}"
                yield from tensor_results(key, y, zip(names, leaves, strict=True))
    f, y, leaves = (torch.tensor(a) for a in soft(task))
    index = torch.arange(28, dtype=torch.int32).reshape(4, 7) % 5
    for word, more in (("", {}), (" shared", {"index": index})):
        given = f if not more else f[:, 0, :5].contiguous()
        for outputs in ("classification", "regression"):
            a, b = given.clone().requires_grad_(), leaves.clone().requires_grad_()
            p = hforest.torch.neural_forest(a, b, task=outputs, **more)
            key = f"torch neural function {outputs}{word}"
            yield from tensor_results(key, p, (("decisions", a), ("leaves", b)))
        for loss in ("forest", "tree"):
            a = given.clone().requires_grad_()
            value = hforest.torch.neural_loss(a, leaves, y, loss=loss, **more)
            yield from tensor_results(f"torch neural loss {loss}{word}", value, (("decisions", a),))


def soft(task: Task) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns decision functions (100, 4, 7), labels, and leaves that are not uniform."""
    leaves = np.random.default_rng(4).random((4, 8, 3)).astype(task.x.dtype)
    return task.decisions, task.labels[:100], leaves / leaves.sum(axis=2, keepdims=True)


def made(task: Task, cls: Any, *sizes: Any, **settings: Any) -> Any:
    """Returns a layer in the dtype of the task, from its own generator."""
    import torch

    generator = torch.Generator().manual_seed(5)
    return cls(*sizes, dtype=torch.tensor(task.x).dtype, generator=generator, **settings)


def projections(task: Task, kind: Any, aggregate: Aggregate) -> Any:
    """Returns a forest of projections that loads random vectors by their former name."""
    import torch

    import hforest.torch as ht

    layer = made(task, ht.HingeForest, 12, 7, 4, 3, kind=kind, margin="projection", aggregate=aggregate)
    generator = torch.Generator().manual_seed(5)
    seed = int(torch.randint(2**63 - 1, (), generator=generator))
    t, _, w = hforest.hinge.init(7, 4, 12, 3, kind=kind, dtype=task.x.dtype, rng=seed)
    vectors = torch.randn((*t.shape, 12), generator=generator, dtype=layer.features.dtype)
    state = {"thresholds": torch.tensor(t), "weights": torch.tensor(w), "projections": vectors / 12**0.5}
    layer.load_state_dict(state)
    return layer


def torch_layers(task: Task) -> Results:
    """Yields forests as layers: outputs, gradients, starts, repair and maps."""
    import torch

    import hforest.torch as ht

    x = torch.tensor(task.x)
    maps = x[:96].reshape(8, 12, 3, 4)
    for kind in KINDS:
        for aggregate in ("sum", "mean", None):
            key = f"torch layer {kind} {aggregate or 'apart'}"
            for word, samples in (("", x), (" image", maps)):
                layer = made(task, ht.HingeForest, 12, 7, 4, 3, kind=kind, aggregate=aggregate)
                samples = samples.clone().requires_grad_()
                tensors = (("x", samples), *layer.named_parameters())
                yield from tensor_results(f"{key} column{word}", layer(samples), tensors)
            layer = projections(task, kind, aggregate)
            samples = x.clone().requires_grad_()
            # The name of the vectors may change, their order does not.
            named = zip(
                ("x", "thresholds", "vectors", "weights"), (samples, *layer.parameters()), strict=False
            )
            yield from tensor_results(f"{key} projection", layer(samples), named)
        layer = made(task, ht.HingeForest, 12, 7, 4, 3, kind=kind)
        for name in ("leaf_map", "margin_map", "path_map", "leaf_counts"):
            word = name.replace("_", " ")
            yield f"torch layer {kind} {word}", digest(plain([getattr(layer, name)(a) for a in (x, maps)]))
        yield f"torch layer {kind} consistent", digest(plain(layer.thresholds_consistent()))
        layer.repair_thresholds()
        yield f"torch layer {kind} repaired", digest(plain(layer.state_dict()))
        layer.median_thresholds(x)
        yield f"torch layer {kind} medians", digest(plain(layer.state_dict()))


def torch_convolutions(task: Task) -> Results:
    """Yields layers on windows of 1 to 3 axes."""
    import torch

    import hforest.torch as ht

    x = torch.tensor(task.x).reshape(-1)
    sizes: dict[str, tuple[Any, tuple[int, ...], dict[str, Any]]] = {
        "1 axis": (ht.HingeConv1d, (8, 4, 25), {"kernel_size": 5, "padding": 2}),
        "2 axes": (ht.HingeConv2d, (4, 4, 9, 8), {"kernel_size": (3, 2), "stride": 2, "dilation": (1, 2)}),
        "3 axes": (ht.HingeConv3d, (2, 4, 5, 4, 6), {"kernel_size": 2, "padding": 1}),
    }
    for kind in KINDS:
        for word, (cls, shape, windows) in sizes.items():
            for more in ({}, {"aggregate": None}, {"groups": 2}, {"vector_features": 3}):
                settings: dict[str, Any] = {"kind": kind, **windows, **more}
                layer = made(task, cls, 4, 6, 3, outputs=2, **settings)
                images = x[: int(np.prod(shape))].reshape(shape).clone().requires_grad_()
                given = [images, *([x[: 3 * shape[0]].reshape(-1, 3)] if "vector_features" in more else [])]
                key = f"torch layer {kind} windows {word} {' '.join(more)}".rstrip()
                yield from tensor_results(key, layer(*given), (("x", images), *layer.named_parameters()))


def torch_soft_layers(task: Task) -> Results:
    """Yields the neural head, and the norm of features."""
    import torch

    import hforest.torch as ht

    x, y = torch.tensor(task.x), torch.tensor(task.labels)
    for loss in ("forest", "tree"):
        for word, more in (("", {}), (" shared", {"n_functions": 9})):
            head = made(task, ht.NeuralForest, 12, 4, 3, 3, loss=loss, **more)
            head.update_leaves(x, y, n_iter=5)
            key = f"torch neural layer {loss}{word}"
            yield f"{key} leaves", digest(plain(head.leaves))
            yield f"{key} forward", digest(plain(head(x)))
            yield from tensor_results(f"{key} loss", head.loss(x, y), head.named_parameters())
    norm = ht.RunningNorm(12, dtype=x.dtype)
    for first in (0, 100, 200):
        samples = x[first : first + 100].clone().requires_grad_()
        z = norm(samples)
    yield from tensor_results("torch norm", z, (("x", samples),))
    yield "torch norm statistics", digest(plain(norm.state_dict()))


def trained(task: Task, kind: str, form: str, aggregate: str = "sum") -> tuple[Any, Any]:
    """Returns a forest after twelve steps of RowAdam with dense or sparse gradients."""
    import torch

    import hforest.torch as ht

    x = torch.tensor(task.x)
    words: Any = {"kind": kind, "aggregate": aggregate, "sparse": form == "sparse"}
    layer = made(task, ht.HingeForest, 12, 5, 6, 3, **words)
    optimizer = ht.RowAdam(layer.parameters(), lr=0.01)
    for step in range(12):
        y = layer(x[7 * step : 7 * step + 20])
        optimizer.zero_grad()
        y.backward(y.detach() - 1)
        optimizer.step()
    return layer, optimizer


def torch_steps(task: Task) -> Results:
    """Yields RowAdam's steps in all forms of gradients."""
    for kind in KINDS:
        for form in ("dense", "sparse"):
            for aggregate in ("sum", "mean"):
                layer, optimizer = trained(task, kind, form, aggregate)
                key = f"torch steps {kind} {form} {aggregate}"
                yield f"{key} forward", digest(plain(layer(layer.weights.new_tensor(task.x[:9]))))
                state = optimizer.state_dict()["state"]
                yield f"{key} parameters and state", digest(plain([layer.state_dict(), state]))


def torch_states(task: Task) -> Results:
    """Yields layers that load states of HingeTreeForTorch."""
    import torch

    import hforest.torch as ht

    x = torch.tensor(task.x)
    rng = np.random.default_rng(8)
    for kind in KINDS:
        for word, leading, n_columns in (("forest", (6,), 12), ("windows", (3, 2), 9)):
            t, _, w = parameters(Case(kind), 12, task.x.dtype, int(np.prod(leading)), 3, 2)
            state = {
                "thresholds": torch.tensor(t).reshape(*leading, -1),
                "ordinals": torch.tensor(rng.integers(0, n_columns, (*leading, t.shape[1]))),
                "weights": torch.tensor(w).reshape(*leading, *w.shape[1:]),
            }
            if word == "forest":
                layer = made(task, ht.HingeForest, 12, 6, 3, 2, kind=kind, aggregate=None)
                samples = x
            else:
                layer = made(task, ht.HingeConv2d, 2, 6, 3, 3, 2, kind=kind, aggregate=None)
                samples = x[:64].reshape(8, 2, 6, 8)
            layer.load_state_dict(state)
            key = f"torch state of HingeTreeForTorch {kind} {word}"
            yield key, digest(plain([layer(samples), layer.state_dict()]))


# --------------------------------------------------------------------------------------------------- JAX


def of_jax(task: Task) -> Results:
    """Yields functions of JAX and their gradients, called at once and compiled."""
    if not installed("jax"):
        return
    import jax

    # JAX before 0.8 has the context manager only in jax.experimental.
    x64: Any = getattr(jax, "enable_x64", None)
    if x64 is None:
        x64 = vars(jax.experimental)["enable_x64"]
    with jax.default_device(jax.devices("cpu")[0]), x64(task.x.dtype == np.float64):
        lines = list(jax_functions(task))
    yield from lines


def jax_functions(task: Task) -> Results:
    """Yields every kind, margin and aggregate that JAX has, and neural forests."""
    import jax

    import hforest.jax as hj

    def of(key: str, function: Any, floats: tuple[Any, ...], names: tuple[str, ...]) -> Results:
        def both(*arrays: Any) -> Any:
            y, back = jax.vjp(function, *arrays)
            return y, back(y)

        for word, run in (("", both), (" compiled", jax.jit(both))):
            y, grads = run(*map(jax.numpy.asarray, floats))
            yield f"{key}{word} forward", digest(y)
            for name, grad in zip(names, grads, strict=True):
                yield f"{key}{word} gradient of {name}", digest(grad)

    for name, case, x, p, aggregates in problems(task.x):
        if not in_jax(case):
            continue
        for aggregate in aggregates:
            is_float = [a.dtype.kind == "f" for a in p]
            floats = (x, *(a for a, real in zip(p, is_float, strict=True) if real))
            names = ("x", "thresholds", *(("vectors",) if all(is_float) else ()), "weights")

            def run(x: Any, *given: Any, case: Case, p: Any, aggregate: Aggregate) -> Any:
                rest = iter(given)
                whole = [next(rest) if a.dtype.kind == "f" else a for a in p]
                return jax_forest(case, x, whole, aggregate)

            function = partial(run, case=case, p=p, aggregate=aggregate)
            yield from of(f"jax {name} {aggregate or 'apart'}", function, floats, names)
    f, _, leaves = soft(task)
    index = np.arange(28, dtype=np.int32).reshape(4, 7) % 5
    settings: tuple[tuple[str, Any, dict[str, Any]], ...] = (
        ("", f, {}),
        (" shared", f[:, 0, :5].copy(), {"index": index}),
    )
    for word, given, more in settings:
        for outputs in ("classification", "regression"):
            function = partial(hj.neural_forest, task=outputs, **more)
            key = f"jax neural function {outputs}{word}"
            yield from of(key, function, (given, leaves), ("decisions", "leaves"))
