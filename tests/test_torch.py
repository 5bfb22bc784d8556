"""Operators in PyTorch: bit-identical to the NumPy functions; gradients, compilers, bad input."""

import weakref
from functools import partial

import numpy as np
import pytest

import hforest
from hforest import hinge, neural

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install torch")
ht = pytest.importorskip("hforest.torch")

# These warnings are those of compilers and exporters of PyTorch itself.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    # PyTorch's warnings about its tensors that are not dense.
    pytest.mark.filterwarnings("ignore:Sparse"),
    pytest.mark.filterwarnings("ignore:.*quantize"),
]

kinds = pytest.mark.parametrize("kind", ["tree", "fern"])
aggregates = pytest.mark.parametrize("aggregate", ["sum", "mean", None])
# The margin, the windows, and the shape of x.
FORMS = {
    "columns": ("column", None, (30, 6)),
    "projections": ("projection", None, (30, 6)),
    "projections, no samples": ("projection", None, (0, 6)),
    "1 axis": ("column", hinge.Windows(3, 2, 1, 1), (3, 2, 9)),
    "2 axes": ("column", hinge.Windows((3, 2), (1, 2), (2, 0), (2, 1)), (2, 3, 7, 8)),
    "3 axes": ("column", hinge.Windows(2, 1, 0, 1), (1, 2, 4, 5, 3)),
    "no images": ("column", hinge.Windows(3, 1, 1, 1), (0, 2, 5, 5)),
    "projections, 2 axes": ("projection", hinge.Windows((3, 2), (1, 2), (2, 0), (2, 1)), (2, 3, 7, 8)),
}
forms = pytest.mark.parametrize("form", FORMS)
MAIN = ("columns", "projections", "2 axes", "projections, 2 axes")
main_forms = pytest.mark.parametrize("form", MAIN)


def problem(kind, form="columns", outputs=(2,), dtype=np.float32, n=None, n_trees=4, depth=3):
    """Returns a batch and a forest as NumPy arrays, and the settings for `hinge`."""
    margin, windows, shape = FORMS[form]
    shape = shape if n is None else (n, *shape[1:])
    n_features = shape[1]
    if windows is not None:
        size = windows.kernel_size
        n_features *= int(np.prod(size)) if isinstance(size, tuple) else size ** (len(shape) - 2)
    start = hinge.init(
        n_trees, depth, n_features, outputs, kind=kind, margin=margin, scale=1.0, dtype=dtype, rng=1
    )
    x = np.random.default_rng(0).normal(size=shape).astype(dtype)
    return (x, *start), {"kind": kind, "margin": margin, "windows": windows}


def tensors(*arrays, learn=True):
    """Returns the arrays as tensors; those of real numbers require gradients."""
    found = [torch.tensor(a) for a in arrays]
    return [a.requires_grad_(learn and a.is_floating_point()) for a in found]


def settings(words, x, aggregate):
    """Returns the settings in the form that the operator takes."""
    windows = words["windows"]
    if windows is not None:
        windows = [i for a in windows for i in (a if isinstance(a, tuple) else (a,) * (x.ndim - 2))]
    return words["kind"], words["margin"], windows, aggregate


def operator(*arguments, route=True):
    return torch.ops.hforest.hinge_forest.default(*arguments, route)


def numpy_step(arrays, words, grad_y, aggregate):
    """Returns y and the gradients with respect to x, thresholds, features and weights, by NumPy functions."""
    y, route = hinge.forward_with_route(*arrays, **words, aggregate=aggregate)
    return y, *hinge.backward(grad_y(y), route, *arrays, **words, aggregate=aggregate)


def channels_first(y, n_axes):
    """Returns y with the positions of windows after the outputs."""
    return np.moveaxis(y, tuple(range(1, 1 + n_axes)), tuple(range(-n_axes, 0))) if n_axes else y


def same_bits(tensor, array):
    """Returns whether a tensor has the dtype and shape of an array, and is bit-identical to it."""
    a = tensor.detach().numpy()
    return a.dtype == array.dtype and a.shape == array.shape and a.tobytes() == array.tobytes()


def grad_like(y):
    return np.random.default_rng(2).normal(size=y.shape).astype(y.dtype)


def ones_like(y):
    return np.ones_like(y)


def of(given):
    """Returns the gradients of tensors; None for those without one."""
    return [a.grad for a in given]


def assert_gradients(found, wanted):
    """Fails if gradients, tensors or None, are not bit-identical to arrays or None."""
    for a, b in zip(found, wanted, strict=True):
        assert a is b is None or same_bits(a, b)


def assert_same_gradients(given, others):
    """Fails if the gradients of tensors, dense or sparse, are not equal to those of others."""
    for a, b in zip(of(given), of(others), strict=True):
        assert a is b is None or torch.equal(a.to_dense(), b.to_dense())


# ------------------------------------------------------------------------------------------------ bits

# Compilers and the operator have one shape of outputs.
BITS = [
    (form, path, outputs)
    for form in FORMS
    for path in ("eager", "operator", "compiled")
    for outputs in ((), (3,), (2, 2))
    if path == "eager" or outputs == (3,)
]


@kinds
@aggregates
@pytest.mark.parametrize(("form", "path", "outputs"), BITS, ids=lambda a: str(a))
def test_bits_of_the_numpy_functions(kind, aggregate, dtype, form, path, outputs):
    arrays, words = problem(kind, form, outputs, dtype)
    n_axes = arrays[0].ndim - 2
    want, *wanted = numpy_step(arrays, words, grad_like, aggregate)
    given = tensors(*arrays)
    if path == "operator":
        y = operator(*given, *settings(words, arrays[0], aggregate))[0]
        assert same_bits(y, want)
        y.backward(torch.tensor(grad_like(want)))
    else:
        function = ht.hinge_forest
        if path == "compiled":
            torch.compiler.reset()
            function = torch.compile(function, fullgraph=True, backend="aot_eager")
        y = function(*given, **words, aggregate=aggregate)
        assert same_bits(y, channels_first(want, n_axes))
        y.backward(torch.tensor(channels_first(grad_like(want), n_axes)))
    assert_gradients(of(given), wanted)
    with torch.no_grad():
        alone = ht.hinge_forest(*given, **words, aggregate=aggregate)
        assert same_bits(alone, channels_first(want, n_axes))


@kinds
@main_forms
def test_no_route_is_stored_without_gradients(kind, form):
    arrays, words = problem(kind, form)
    given, words = tensors(*arrays), settings(words, arrays[0], "sum")
    with torch.no_grad():
        y, leaf, margin, vertex = operator(*given, *words, route=False)
    assert leaf.numel() == margin.numel() == vertex.numel() == 0
    assert torch.equal(y, operator(*given, *words)[0])
    with pytest.raises(RuntimeError, match="route: expected True where gradients"):
        operator(*given, *words, route=False)[0].sum().backward()


@kinds
@aggregates
@main_forms
def test_sparse_gradient(kind, aggregate, dtype, form):
    arrays, words = problem(kind, form, (2, 3), dtype, n=2, n_trees=3, depth=4)
    n_axes = arrays[0].ndim - 2
    want, *wanted = numpy_step(arrays, words, grad_like, aggregate)
    given = tensors(*arrays)
    grad_y = torch.tensor(channels_first(grad_like(want), n_axes))
    y = ht.hinge_forest(*given, **words, aggregate=aggregate, sparse=True)
    y.backward(grad_y, retain_graph=True)
    *dense, by_weight = of(given)
    assert by_weight.is_sparse
    assert (by_weight.sparse_dim(), by_weight.dense_dim()) == (2, 2)
    leaf = hinge.traverse(*arrays[:3], **words).leaf
    rows = hinge.leaf_rows(leaf.reshape(-1, 3), 16)
    indices = by_weight._indices()
    assert (indices[0] * 16 + indices[1]).tolist() == rows.tolist()
    assert_gradients((*dense, by_weight.to_dense()), wanted)
    assert torch.autograd.grad(y, given[3], grad_y)[0].is_coalesced()
    # As the gradient of a parameter, and twice: gradients add.
    weights = torch.nn.Parameter(given[3].detach().clone())
    for _ in range(2):
        y = ht.hinge_forest(*given[:3], weights, **words, aggregate=aggregate, sparse=True)
        y.backward(grad_y)
    assert weights.grad.is_sparse
    torch.testing.assert_close(weights.grad.to_dense(), 2 * by_weight.to_dense())
    torch.optim.SGD([weights], lr=0.5).step()
    torch.testing.assert_close(weights.detach(), given[3].detach() - by_weight.to_dense())


@kinds
@main_forms
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
def test_sparse_gradients_leave_the_compiled_graph(kind, form):
    torch.compiler.reset()
    arrays, words = problem(kind, form)
    x, t, f, w = tensors(*arrays)

    def loss(x):
        return ht.hinge_forest(2 * x, t, f, w, **words, sparse=True).sum()

    torch.compile(loss, backend="eager")(x).backward()
    assert w.grad.is_sparse
    torch.compiler.reset()
    with pytest.raises(Exception, match=r"torch\.compiler\.disable|skip|disabled"):
        torch.compile(loss, backend="eager", fullgraph=True)(x)


# ------------------------------------------------------------------------------------- PyTorch's checks


@kinds
@aggregates
@main_forms
def test_gradcheck(kind, aggregate, form):
    arrays, words = problem(kind, form, dtype=np.float64, n=2 if "axes" in form else 8)
    given = tensors(*arrays)
    learned = [a for a in given if a.requires_grad]

    def whole(learned):
        rest = iter(learned)
        return [next(rest) if a.requires_grad else a for a in given]

    def run(*learned):
        return ht.hinge_forest(*whole(learned), **words, aggregate=aggregate)

    def by_operator(*learned):
        return operator(*whole(learned), *settings(words, arrays[0], aggregate))[0]

    # Less than the distance to the nearest tie of these numbers.
    assert torch.autograd.gradcheck(run, learned, eps=1e-7, atol=1e-5)
    assert torch.autograd.gradcheck(by_operator, learned, eps=1e-7, atol=1e-5)


@kinds
@aggregates
@main_forms
def test_opcheck(kind, aggregate, dtype, form):
    arrays, words = problem(kind, form, dtype=dtype)
    given, words = tensors(*arrays), settings(words, arrays[0], aggregate)
    torch.library.opcheck(torch.ops.hforest.hinge_forest.default, (*given, *words, True))
    x, t, f, w = (a.detach() for a in given)
    torch.library.opcheck(torch.ops.hforest.hinge_forest.default, (x, t, f, w, *words, False))
    y, *route = operator(x, t, f, w, *words)
    read = x if words[1] == "projection" else None
    torch.library.opcheck(
        torch.ops.hforest.hinge_forest_backward.default,
        (torch.ones_like(y), *route, read, list(x.shape), f, w, *words),
    )


@kinds
@aggregates
@main_forms
def test_fake_tensors_and_shapes_of_symbols(kind, aggregate, form):
    """A graph compiled once serves batches of any size."""
    torch.compiler.reset()
    graphs = []

    def backend(module, _):
        graphs.append(module)
        return module.forward

    arrays, words = problem(kind, form)
    _, t, f, w = tensors(*arrays)
    forest = partial(ht.hinge_forest, **words, aggregate=aggregate)
    step = torch.compile(lambda x: forest(x, t, f, w), fullgraph=True, dynamic=True, backend=backend)
    for n in (5, 7, 30):
        x = torch.tensor(problem(kind, form, n=n)[0][0])
        assert torch.equal(step(x), forest(x, t, f, w))
    assert len(graphs) == 1


# ------------------------------------------------------------------------------------------- any input


def turned(a):
    """Returns a tensor with the same numbers whose axes have another order in memory."""
    axes = tuple(reversed(range(a.ndim)))
    return a.detach().permute(axes).contiguous().permute(axes).requires_grad_(a.requires_grad)


@kinds
@aggregates
@main_forms
def test_layouts_and_empty_batches(kind, aggregate, form):
    arrays, words = problem(kind, form)
    n_axes = arrays[0].ndim - 2
    want, *wanted = numpy_step(arrays, words, ones_like, aggregate)
    x, t, f, w = tensors(*arrays)
    given = [turned(x), t, turned(f), w]
    assert not given[0].is_contiguous()
    assert not given[2].is_contiguous()
    y = ht.hinge_forest(*given, **words, aggregate=aggregate)
    y.sum().backward()  # its gradient has strides 0
    assert same_bits(y, channels_first(want, n_axes))
    assert_gradients(of(given), wanted)
    empty = x.detach()[:0].requires_grad_()
    y = ht.hinge_forest(empty, t, f, w, **words, aggregate=aggregate)
    places = y.shape[y.ndim - n_axes :]
    assert y.shape == ((0, 2, *places) if aggregate else (0, 4, 2, *places))
    t.grad = w.grad = None
    y.sum().backward()
    assert empty.grad.shape == empty.shape
    assert not w.grad.any()
    assert not t.grad.any()
    assert f.grad is None or not f.grad.any()


def test_channels_last():
    arrays, words = problem("tree", "2 axes")
    x, t, f, w = tensors(*arrays)
    y = ht.hinge_forest(x, t, f, w, **words)
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(ht.hinge_forest(x.to(memory_format=torch.channels_last), t, f, w, **words), y)


@kinds
@main_forms
def test_memory_is_read_in_place(kind, form):
    arrays, words = problem(kind, form, n_trees=50, depth=10)
    x, t, f, w = tensors(*arrays)
    with torch.no_grad():
        before = ht.hinge_forest(x, t, f, w, **words)
        w *= 2
        assert torch.equal(ht.hinge_forest(x, t, f, w, **words), 2 * before)


@kinds
@main_forms
def test_weights_that_change_before_the_backward_pass_are_an_error(kind, form):
    arrays, words = problem(kind, form)
    x, t, f, w = tensors(*arrays)
    y = ht.hinge_forest(x, t, f, w, **words).sum()
    with torch.no_grad():
        w += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


@kinds
@main_forms
@pytest.mark.parametrize("sparse", [False, True])
def test_what_a_graph_keeps(kind, form, sparse):
    """It keeps x only if its gradient reads it, and the route until the backward pass."""
    arrays, words = problem(kind, form)
    given = tensors(*arrays)
    kept = weakref.ref(x := 2 * given[0])
    y = ht.hinge_forest(x, *given[1:], **words, sparse=sparse)
    del x
    assert (kept() is None) == (words["margin"] == "column")
    y.sum().backward(retain_graph=True)
    first = [a if a is None else a.to_dense() for a in of(given)]
    for a in given:
        a.grad = None
    y.sum().backward()
    for a, b in zip(first, of(given), strict=True):
        assert a is b is None or torch.equal(a, b.to_dense())
    assert kept() is None
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.sum().backward()


@pytest.mark.skipif(
    not hasattr(torch._C._autograd, "_get_current_graph_task_keep_graph"), reason="this PyTorch keeps routes"
)
@pytest.mark.skipif(
    not hasattr(torch._C._autograd, "_top_saved_tensors_default_hooks"),
    reason="this PyTorch does not tell its hooks, so that routes are saved as tensors",
)
def test_the_route_is_freed_by_the_backward_pass():
    (x, t, f, w), _ = problem("tree")
    y = ht.hinge_forest(*tensors(x, t, f, w))
    leaf = weakref.ref(y.grad_fn.route.leaf)
    y.sum().backward(retain_graph=True)
    assert leaf() is not None
    y.sum().backward()
    assert leaf() is None


PACKS = {
    "as they are": (lambda t: t, lambda t: t),
    "copies": (lambda t: t.clone(), lambda t: t),
    "other layouts": (lambda t: t, lambda t: turned(t)),
    "half": (lambda t: t.half(), lambda t: t),
    "half and back": (lambda t: (t.dtype, (t * 3000).half()), lambda a: a[1].to(a[0])),
    "smaller": (lambda t: t[:1], lambda t: t),
    "other dtypes": (lambda t: t.double(), lambda t: t),
}


@kinds
@main_forms
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("pack", PACKS)
def test_hooks_of_saved_tensors(kind, form, sparse, pack):
    """Results of hooks are checked again: gradients are the same, or an error is raised."""
    arrays, words = problem(kind, form)
    given, others = tensors(*arrays), tensors(*arrays)
    with torch.autograd.graph.saved_tensors_hooks(*PACKS[pack]):
        y = ht.hinge_forest(*given, **words, sparse=sparse)
    if pack in ("as they are", "copies", "other layouts"):
        y.sum().backward()
        ht.hinge_forest(*others, **words, sparse=sparse).sum().backward()
        assert_same_gradients(given, others)
    else:
        with pytest.raises((TypeError, ValueError, IndexError), match=": expected "):
            y.sum().backward()


@kinds
@main_forms
@pytest.mark.parametrize("sparse", [False, True])
def test_checkpoints(kind, form, sparse):
    arrays, words = problem(kind, form)
    given, others = tensors(*arrays), tensors(*arrays)

    def run(*given):
        return ht.hinge_forest(*given, **words, sparse=sparse).sum()

    torch.utils.checkpoint.checkpoint(run, *given, use_reentrant=False).backward()
    run(*others).backward()
    assert_same_gradients(given, others)


# The gradient of columns does not read x.
READ = [(form, name) for form in MAIN for name in ("x", "features", "weights")[not form.startswith("proj") :]]


@pytest.mark.parametrize(("form", "name"), READ)
@pytest.mark.parametrize("change", ["fewer", "double"])
def test_data_that_is_replaced_before_the_backward_pass(form, name, change):
    arrays, words = problem("tree", form)
    given = dict(zip(("x", "thresholds", "features", "weights"), tensors(*arrays), strict=True))
    y = ht.hinge_forest(*given.values(), **words)
    a = given[name]
    a.data = a.data[1:] if change == "fewer" else a.data.double()
    with pytest.raises((TypeError, ValueError), match=": expected "):
        y.sum().backward()


@pytest.mark.parametrize("form", [form for form in MAIN if not form.startswith("proj")])
@pytest.mark.parametrize("sparse", [False, True])
def test_columns_whose_data_changes_before_the_backward_pass(form, sparse):
    """The version of a tensor ignores changes through `data`, and columns are addresses in memory."""
    arrays, words = problem("tree", form)
    x, t, f, w = tensors(*arrays)
    y = ht.hinge_forest(x, t, f, w, **words, sparse=sparse)
    f.data[1] = 2**30
    with pytest.raises(
        IndexError, match=rf"^features: expected 0 <= index < .*got {2**30} at index \(1, \d\)"
    ):
        y.sum().backward()


@kinds
@main_forms
@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("sparse", [False, True])
def test_half_types(kind, form, half, sparse):
    arrays, words = problem(kind, form)
    x, t, f, w = tensors(*arrays)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = ht.hinge_forest(x.to(half), t, f, w, **words, sparse=sparse)
        by_operator = operator(x.to(half), t, f, w, *settings(words, arrays[0], "sum"))[0]
        product = torch.ones(30, 6) @ torch.ones(6, 6)  # of half type
        if form == "columns":
            ht.hinge_forest(product, t, f, w, kind=kind)
    assert product.dtype == torch.bfloat16
    assert y.dtype == torch.float32
    assert torch.equal(y, ht.hinge_forest(x.to(half).float(), t, f, w, **words))
    assert torch.equal(y, torch.tensor(channels_first(by_operator.detach().numpy(), x.ndim - 2)))
    y.sum().backward()
    assert x.grad.dtype == torch.float32
    name = str(half).removeprefix("torch.")
    with pytest.raises(
        TypeError, match=rf"^x: expected dtype float32 or float64, got {name}; convert it with x.float"
    ):
        ht.hinge_forest(x.to(half), t, f, w, **words)
    with pytest.raises(TypeError, match=rf"^weights: expected dtype float32 or float64, got {name}"):
        ht.hinge_forest(x, t, f, w.to(half), **words)


def message(function, *arguments, **settings):
    with pytest.raises((TypeError, ValueError, IndexError)) as found:
        function(*arguments, **settings)
    return type(found.value), str(found.value)


BAD = {
    "nan": lambda x, t, f, w: (np.where(x > 1.5, np.nan, x).astype(x.dtype), t, f, w),
    "nan threshold": lambda x, t, f, w: (x, t * np.float32("nan"), f, w),
    "feature": lambda x, t, f, w: (x, t, f + 30 if f.ndim == 2 else f * np.float32("nan"), w),
    "dtype": lambda x, t, f, w: (x, t.astype(np.float64), f, w),
    "integers": lambda x, t, f, w: (x.astype(np.int64), t, f, w),
    "int64 features": lambda x, t, f, w: (x, t, f.astype(np.int64), w),
    "features of another margin": lambda x, t, f, w: (
        x, t, np.zeros(t.shape, np.int32) if f.ndim == 3 else np.zeros((*t.shape, x.shape[1]), x.dtype), w
    ),
    "weights": lambda x, t, f, w: (x, t, f, w[:, 1:].copy()),
    "trees": lambda x, t, f, w: (x, t[1:].copy(), f, w),
    "axes": lambda x, t, f, w: (x[0], t, f, w),
    "features": lambda x, t, f, w: (x, t, f[:, :, 1:].copy() if f.ndim == 3 else f[:, 1:].copy(), w),
}  # fmt: skip


@kinds
@main_forms
@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("learn", [False, True])
def test_bad_input_has_numpys_message(kind, form, case, learn):
    arrays, words = problem(kind, form)
    given = tensors(*(arrays := BAD[case](*arrays)), learn=learn)
    expected = message(hinge.forward, *arrays, **words, aggregate="sum")
    columns = case == "int64 features" and arrays[2].ndim == 2
    if (
        not columns and case not in ("dtype", "integers") and not (case == "axes" and words["windows"])
    ):  # the next tests
        assert message(ht.hinge_forest, *given, **words) == expected
    if not (case == "axes" and words["windows"]):
        assert message(operator, *given, *settings(words, arrays[0], "sum")) == expected


IMAGES = torch.ones(2, 3, 5, 5)


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"x": torch.ones(2, 3)}, ValueError, "x: expected .* one to three axes in space"),
        ({"x": IMAGES.double()}, TypeError, "x: expected dtype float32 like thresholds, got float64"),
        ({"x": IMAGES.half()}, TypeError, "x: expected dtype float32 or float64, got float16"),
        ({"x": IMAGES.numpy()}, TypeError, "x: expected a torch.Tensor"),
        ({"x": IMAGES * torch.nan}, ValueError, "x: expected finite"),
        ({"x": IMAGES.to("meta")}, TypeError, "thresholds: expected a tensor on meta"),
        ({"windows": 3}, TypeError, "windows: expected Windows or None, got int"),
        ({"windows": hinge.Windows(9)}, ValueError, "kernel_size: expected kernels inside"),
        ({"windows": hinge.Windows((3, 3, 3))}, TypeError, "kernel_size: expected an int or one int for each of the 2"),
        ({"windows": hinge.Windows(3, stride=0)}, ValueError, "stride: expected"),
        ({"windows": hinge.Windows(3, padding="same")}, TypeError, "padding: expected"),
        ({"aggregate": "max"}, ValueError, "aggregate: expected one of None, 'sum', 'mean', got 'max'"),
        ({"kind": "bush"}, ValueError, "kind: expected"),
        ({"margin": "column of x"}, ValueError, "margin: expected"),
        ({"features": torch.full((4, 7), 99, dtype=torch.int32)}, IndexError, "features: expected"),
        ({"features": torch.ones(4, 7).long()}, TypeError, r"features: expected .*, got int64; pass features.int\(\)$"),
        ({"features": torch.ones(4, 7, requires_grad=True)}, TypeError, "features: expected dtype int32, got float32"),
        ({"weights": torch.ones(4, 8, 2).double()}, TypeError, r"weights: expected .*, got float64; pass weights.float\(\),"),
        ({"weights": torch.ones(4, 8, 2).to("meta")}, TypeError, "weights: expected a tensor on cpu like x, got a tensor on meta"),
        ({"sparse": 1}, TypeError, "sparse: expected True or False, got int"),
    ],
)  # fmt: skip
def test_bad_windows_and_words_are_refused(change, error, text):
    names = ("x", "thresholds", "features", "weights")
    start = hinge.init(4, 3, 27, 2, rng=0)
    given = dict(zip(names, tensors(np.ones((2, 3, 5, 5), np.float32), *start), strict=True))
    with pytest.raises(error, match=text):
        ht.hinge_forest(**{**given, "windows": hinge.Windows(3), **change})


LAYERS = {
    "HingeForest": (lambda dtype: ht.HingeForest(3, 2, 2, dtype=dtype), (4, 3), "thresholds"),
    "HingeForest of points": (lambda dtype: ht.HingeForest(3, 2, 2, dtype=dtype), (4, 3, 5), "thresholds"),
    "HingeConv2d": (lambda dtype: ht.HingeConv2d(3, 2, 2, 2, dtype=dtype), (4, 3, 5, 5), "thresholds"),
    "HingeForest of projections": (
        lambda dtype: ht.HingeForest(3, 2, 2, margin="projection", dtype=dtype), (4, 3), "thresholds"
    ),
    "NeuralForest": (lambda dtype: ht.NeuralForest(3, 2, 2, 2, dtype=dtype), (4, 3), "leaves"),
    "RunningNorm": (lambda dtype: ht.RunningNorm(3, dtype=dtype), (4, 3), "mean"),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_input_of_another_dtype_than_the_layer(name):
    make, shape, like = LAYERS[name]
    x = torch.zeros(shape)
    start = f"x: expected dtype float32 like {like}, got "
    layer = make(torch.float32)
    assert message(layer, x.double()) == (
        TypeError, f"{start}float64; pass x.float(), or convert the layer with layer.double()"
    )  # fmt: skip
    assert message(layer, x.long()) == (TypeError, f"{start}int64; pass x.float()")
    assert "got bool; pass x.float()" in message(layer, x > 0)[1]
    # The remedy in the message works.
    assert layer(x.double().float()).dtype == torch.float32
    layer.double()
    assert layer(x.double()).dtype == torch.float64
    assert message(layer, x)[1].endswith("pass x.double(), or convert the layer with layer.float()")
    x[1, 2] = torch.nan
    kind, text = message(make(torch.float32), x)
    assert kind is ValueError
    assert ": expected finite numbers, got nan at index (1, " in text
    assert text.endswith(
        "; impute or drop such samples, or lower the learning rate if layers before this one computed them"
    )


def test_neural_functions_of_two_dtypes():
    f, leaves = torch.zeros(4, 2, 3), torch.full((2, 4, 2), 0.5)
    for function, y in ((ht.neural_forest, ()), (ht.neural_loss, (torch.zeros(4, dtype=torch.int64),))):
        assert message(function, f.double(), leaves, *y)[1].startswith(
            "f: expected dtype float32 like leaves, got float64; pass f.float(), or "
        )


def not_dense(a):
    """Returns the tensor as sparse, quantised or in a layout of a library, if PyTorch supports it."""
    yield a.to_sparse()
    if a.ndim == 2:
        yield a.to_sparse_csr()
    if a.is_floating_point():
        yield torch.quantize_per_tensor(a, 0.1, 0, torch.quint8)
        if torch.backends.mkldnn.is_available():
            yield a.to_mkldnn()


def refuses(function, **given):
    """Checks that a tensor that is not dense is refused with its name."""
    for name, a in given.items():
        for b in not_dense(a.detach()):
            with pytest.raises(
                TypeError, match=rf"^{name}: expected a dense tensor of a NumPy dtype, got .*; pass {name}\."
            ):
                function(**{**given, name: b})


@kinds
@main_forms
@pytest.mark.parametrize("sparse", [False, True])
def test_tensors_that_are_not_dense(kind, form, sparse):
    arrays, words = problem(kind, form)
    given = dict(zip(("x", "thresholds", "features", "weights"), map(torch.tensor, arrays), strict=True))
    refuses(partial(ht.hinge_forest, **words, sparse=sparse), **given)


def test_tensors_that_are_not_dense_elsewhere():
    f, leaves, y = torch.zeros(4, 2, 3), torch.full((2, 4, 2), 0.5), torch.zeros(4, dtype=torch.int64)
    refuses(ht.neural_forest, f=f, leaves=leaves)
    refuses(partial(ht.neural_loss, y=y), f=f, leaves=leaves)
    refuses(ht.RunningNorm(3), x=torch.ones(4, 3))


@kinds
def test_sparse_gradients_are_refused_on_a_gpu(kind):
    arrays, words = problem(kind)
    with pytest.raises(ValueError, match="^sparse: expected False where tensors are on a GPU"):
        ht.hinge_forest(*(a.to("meta") for a in tensors(*arrays)), **words, sparse=True)


@kinds
@main_forms
@pytest.mark.parametrize("sparse", [False, True])
def test_gradients_that_are_not_finite(kind, form, sparse):
    arrays, words = problem(kind, form)
    given = tensors(*arrays)
    y = ht.hinge_forest(*given, **words, sparse=sparse)
    with pytest.raises(ValueError, match="^grad_y: expected finite numbers, got nan at index"):
        (y * float("nan")).sum().backward()
    with hforest.unchecked():
        ht.hinge_forest(*given, **words, sparse=sparse).sum().mul(float("nan")).backward()
    assert given[3].grad.to_dense().isnan().any()


@kinds
@main_forms
def test_derivatives_that_there_are_not(kind, form):
    arrays, words = problem(kind, form)
    x, t, f, w = tensors(*arrays)
    by_operator = operator(x, t, f, w, *settings(words, arrays[0], "sum"))[0]
    for y in (ht.hinge_forest(x, t, f, w, **words), by_operator):
        (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        with pytest.raises(RuntimeError, match="expected at most first derivatives"):
            first.sum().backward()
    with pytest.raises(RuntimeError, match="expected at most first derivatives"):
        torch.autograd.grad(ht.hinge_forest(x, t, f, w, **words, sparse=True).sum(), x, create_graph=True)
    tangent = torch.ones_like(x)
    with pytest.raises(RuntimeError, match="x: expected no forward-mode tangent"):
        torch.func.jvp(lambda x: ht.hinge_forest(x, t, f, w, **words), (x.detach(),), (tangent,))


@kinds
@main_forms
def test_modes_and_traces_see_the_operator(kind, form):
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    arrays, words = problem(kind, form)
    given = tensors(*arrays)
    with Mode():
        ht.hinge_forest(*given, **words).sum().backward()
    assert "hforest.hinge_forest.default" in seen
    assert "hforest.hinge_forest_backward.default" in seen
    y = ht.hinge_forest(*given, **words, aggregate=None)
    meta = ht.hinge_forest(*(a.detach().to("meta") for a in given), **words, aggregate=None)
    assert meta.shape == y.shape
    assert meta.stride() == y.stride()


@kinds
@main_forms
def test_threads_follow_hforests_own_setting(kind, form, threads):
    arrays, words = problem(kind, form, n=2000 if form == "columns" else 40)
    x, t, f, w = tensors(*arrays)
    results = []
    for n in (1, 2):
        threads(n)
        y = ht.hinge_forest(x, t, f, w, **words)
        results.append((y.detach(), *torch.autograd.grad(y.sum(), (x, t, w))))
    assert hforest.get_num_threads() == 2
    torch.testing.assert_close(*results, rtol=0, atol=0)


# ------------------------------------------------------------------------------------------ neural forests


def soft_problem(dtype=np.float32, shared=False, n=20, n_trees=3, depth=3, n_classes=4, scale=1.0):
    """Returns decision functions, leaves, labels and the index of shared functions (or None), as NumPy arrays."""
    rng = np.random.default_rng(0)
    width = (5,) if shared else (n_trees, 2**depth - 1)
    f = (scale * rng.normal(size=(n, *width))).astype(dtype)
    leaves = rng.dirichlet(np.ones(n_classes), (n_trees, 2**depth)).astype(dtype)
    index = rng.integers(0, 5, (n_trees, 2**depth - 1), dtype=np.int32) if shared else None
    return f, leaves, rng.integers(0, n_classes, n), index


def maybe(index):
    return None if index is None else torch.tensor(index)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("path", ["eager", "operator", "compiled"])
def test_neural_forest_has_the_bits_of_numpy(dtype, shared, path):
    f, leaves, y, index = soft_problem(dtype, shared)
    p = neural.forward(f, leaves, index=index)
    grad_p = grad_like(p)
    expected = neural.backward(grad_p, f, leaves, index=index)
    expected_loss, by_loss = neural.loss_backward(f, leaves, y, index=index, loss="tree")
    forest, loss = ht.neural_forest, ht.neural_loss
    if path == "operator":
        forest = lambda f, leaves, index: torch.ops.hforest.neural_forest(f, leaves, index)  # noqa: E731
        loss = lambda f, leaves, y, index, loss: torch.ops.hforest.neural_loss(f, leaves, y, index, loss)[0]  # noqa: E731
    elif path == "compiled":
        torch.compiler.reset()
        forest = torch.compile(forest, fullgraph=True, backend="aot_eager")
        loss = torch.compile(loss, fullgraph=True, backend="aot_eager")
    a, b = torch.tensor(f, requires_grad=True), torch.tensor(leaves)
    found = forest(a, b, index=maybe(index))
    assert same_bits(found, p)
    assert same_bits(torch.autograd.grad(found, a, torch.tensor(grad_p))[0], expected)
    found = loss(a, b, torch.tensor(y), index=maybe(index), loss="tree")
    assert same_bits(found, np.array(expected_loss, dtype))
    (grad,) = torch.autograd.grad(found, a, retain_graph=True)
    assert same_bits(grad, by_loss)
    assert torch.equal(torch.autograd.grad(3 * found, a)[0], 3 * grad)
    with torch.no_grad():
        assert same_bits(ht.neural_forest(a, b, index=maybe(index)), p)
        assert torch.equal(ht.neural_loss(a, b, torch.tensor(y), index=maybe(index), loss="tree"), found)


def test_gradient_by_leaves(dtype, monkeypatch):
    from hforest.torch import neural as operators

    f, leaves, _, index = soft_problem(dtype, shared=True)
    grad_p = np.random.default_rng(1).normal(size=(20, 4)).astype(dtype)
    expected = np.einsum("nml,nk->mlk", neural.route(f, index=index).astype(np.float64), grad_p) / 3
    results = []
    for size in (2**26, 24 * f.itemsize * 7):  # all samples at once; seven at a time
        monkeypatch.setattr(operators, "_MU_BYTES", size)
        for function in (ht.neural_forest, torch.ops.hforest.neural_forest):
            b = torch.tensor(leaves, requires_grad=True)
            function(torch.tensor(f), b, index=maybe(index)).backward(torch.tensor(grad_p))
            np.testing.assert_allclose(
                b.grad, expected, rtol=2e-5 if dtype == np.float32 else 1e-12, atol=1e-6
            )
            results.append(b.grad)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[2], results[3])
    empty = torch.tensor(leaves, requires_grad=True)
    ht.neural_forest(torch.tensor(f[:0]), empty, index=maybe(index)).sum().backward()
    assert empty.grad.shape == empty.shape
    assert not empty.grad.any()


def test_neural_gradcheck():
    f, leaves, y, index = soft_problem(np.float64, shared=True, n=6)
    a, i = torch.tensor(f, requires_grad=True), maybe(index)
    scores = torch.tensor(leaves).log().requires_grad_()

    def forest(a, scores):
        return ht.neural_forest(a, scores.softmax(2), index=i)

    def regression(a, values):
        return ht.neural_forest(a, values, index=i, task="regression")

    assert torch.autograd.gradcheck(forest, (a, scores))
    assert torch.autograd.gradcheck(regression, (a, scores))
    for kind in ("forest", "tree"):
        assert torch.autograd.gradcheck(
            lambda a, kind=kind: ht.neural_loss(a, torch.tensor(leaves), torch.tensor(y), index=i, loss=kind),
            (a,),
        )


def test_neural_opcheck(dtype):
    f, leaves, y, index = soft_problem(dtype, shared=True)
    a, b, i = torch.tensor(f, requires_grad=True), torch.tensor(leaves), maybe(index)
    ops = torch.ops.hforest
    torch.library.opcheck(ops.neural_forest.default, (a, b, i))
    torch.library.opcheck(ops.neural_forest.default, (a, b.clone().requires_grad_(), i, "regression"))
    torch.library.opcheck(ops.neural_loss.default, (a, b, torch.tensor(y), i, "tree"))
    p = torch.ones(20, 4, dtype=b.dtype)
    torch.library.opcheck(ops.neural_backward.default, (p, a.detach(), b, i))
    torch.library.opcheck(ops.neural_backward_leaves.default, (p, a.detach(), i))
    torch.library.opcheck(ops.neural_loss_backward.default, (p.sum(), a.detach()))


def test_the_loss_is_exact_where_probabilities_are_not():
    """In a saturated float32 forest p is 0 in the dtype, but the loss and its gradient are exact."""
    f = torch.full((1, 1, 1), -200.0, requires_grad=True)
    leaves = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    loss = ht.neural_loss(f, leaves, torch.tensor([0]))
    loss.backward()
    assert loss.item() == 200.0
    assert f.grad.item() == -1.0
    assert ht.neural_forest(f, leaves).detach()[0, 0] == 0


def test_neural_bad_input():
    f, leaves, y, _ = soft_problem()
    a, b, c = torch.tensor(f, requires_grad=True), torch.tensor(leaves), torch.tensor(y)
    assert message(ht.neural_forest, a, 2 * b) == message(neural.forward, f, 2 * leaves)
    assert message(ht.neural_loss, a, b, c + 4) == message(neural.loss_backward, f, leaves, y + 4)
    for function, given, text in (
        (ht.neural_forest, (a * float("nan"), b), "f: expected finite numbers, got nan"),
        (ht.neural_loss, (a, b.clone().requires_grad_(), c), "leaves: expected leaves without a gradient"),
        (partial(ht.neural_forest, index=torch.zeros(3, 7, requires_grad=True)), (a, b), "index: expected integers without a gradient"),
        (ht.neural_loss, (a, b, c.to("meta")), "y: expected a tensor on cpu like f"),
        (ht.neural_forest, (a.bfloat16(), b), "f: expected dtype float32 or float64, got bfloat16"),
    ):  # fmt: skip
        assert text in message(function, *given)[1]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(ht.neural_forest(a.bfloat16(), b), ht.neural_forest(a.bfloat16().float(), b))
        assert ht.neural_loss(a.bfloat16(), b, c).dtype == torch.float32
    for found in (ht.neural_forest(a, b).sum(), ht.neural_loss(a, b, c)):
        with pytest.raises(RuntimeError, match="expected at most first derivatives"):
            torch.autograd.grad(found, a, create_graph=True)[0].sum().backward()
    assert ht.neural_loss(a[:0], b, c[:0]).item() == 0
    assert ht.neural_forest(a[:0], b).shape == (0, 4)


# ------------------------------------------------------------------------------------------------- CUDA


@pytest.mark.skipif(
    np.lib.NumpyVersion(np.__version__) < "2.1.0", reason="from_dlpack of NumPy 2.0 returns read-only arrays"
)
def test_calls_with_cuda_tensors_go_through_dlpack_on_the_current_stream(monkeypatch):
    """The file that calls CuPy runs with NumPy in its place: arguments, stream and results are compared."""
    import contextlib
    import sys
    import types

    from hforest.torch import cuda

    entered = []

    def context(*arguments):
        entered.append(arguments)
        return contextlib.nullcontext()

    cupy = types.SimpleNamespace(
        ndarray=type("ndarray", (), {}),
        from_dlpack=np.from_dlpack,
        asarray=np.asarray,
        cuda=types.SimpleNamespace(Device=context, ExternalStream=context),
    )
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(
        ImportError, match="^hforest.torch: expected CuPy 14 .*pip install -e '..cuda12.' or '..cuda13.' in"
    ):
        cuda.import_cupy()
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: types.SimpleNamespace(cuda_stream=77))
    given = tensors(*problem("tree")[0])
    from hforest.torch import operators

    words = ("tree", "column", None, "sum")
    found = cuda.call(operators._forward_kernel, (*given, *words, True))
    for a, b in zip(found, operator(*given, *words), strict=True):
        assert torch.equal(a, b)
    assert entered == [(None,), (77, None)]
    x, mean = given[0], torch.zeros(6)
    assert cuda.call(lambda x, mean: np.copyto(mean, x[0]), (x, mean)) is None
    assert torch.equal(mean, x.detach()[0])
