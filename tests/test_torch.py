"""Operators in PyTorch: bits of the NumPy functions, gradients, compilers, bad input."""

import numpy as np
import pytest

import hforest
from hforest import hinge, neural

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install torch")
ht = pytest.importorskip("hforest.torch")

# Of compilers and exporters of PyTorch itself.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

INIT = {"tree": hinge.tree_init, "fern": hinge.fern_init}
FORWARD = {"tree": hinge.tree_forward, "fern": hinge.fern_forward}
BACKWARD = {"tree": hinge.tree_backward, "fern": hinge.fern_backward}
OPERATOR = {"tree": ht.hinge_tree, "fern": ht.hinge_fern}


@pytest.fixture(params=["tree", "fern"])
def kind(request):
    return request.param


@pytest.fixture(params=["sum", "mean", None])
def aggregate(request):
    return request.param


def problem(kind, outputs=(2,), dtype=np.float32, n=30, n_features=6, n_trees=4, depth=3):
    """A batch and a forest as NumPy arrays."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, n_features)).astype(dtype), *INIT[kind](
        n_trees, depth, n_features, outputs, scale=1.0, dtype=dtype, rng=1
    )


def tensors(x, t, f, w):
    """The arrays as tensors; all but the features require gradients."""
    x, t, f, w = map(torch.tensor, (x, t, f, w))
    return x.requires_grad_(), t.requires_grad_(), f, w.requires_grad_()


def numpy_step(kind, x, t, f, w, grad_y, aggregate):
    """y and the gradients by x, thresholds and weights, of the NumPy functions."""
    y, route = FORWARD[kind](x, t, f, w, aggregate=aggregate, return_route=True)
    return y, *BACKWARD[kind](grad_y, *route, f, w, x.shape[1], aggregate=aggregate)


def same_bits(tensor, array):
    """Whether a tensor has the dtype, the shape and the bits of an array."""
    a = tensor.detach().numpy()
    return a.dtype == array.dtype and a.shape == array.shape and a.tobytes() == array.tobytes()


def grad_like(y):
    return np.random.default_rng(2).normal(size=y.shape).astype(y.dtype)


# ------------------------------------------------------------------------------------------------ bits


@pytest.mark.parametrize("outputs", [(), (3,), (2, 2)], ids=str)
@pytest.mark.parametrize("path", ["eager", "operator", "compiled"])
def test_hinge_has_the_bits_of_numpy(kind, aggregate, dtype, outputs, path):
    arrays = problem(kind, outputs, dtype)
    grad_y = grad_like(FORWARD[kind](*arrays, aggregate=aggregate))
    expected = numpy_step(kind, *arrays, grad_y, aggregate)
    x, t, f, w = tensors(*arrays)
    if path == "operator":
        y = getattr(torch.ops.hforest, f"hinge_{kind}")(x, t, f, w, aggregate)[0]
    else:
        function = OPERATOR[kind]
        if path == "compiled":
            torch.compiler.reset()
            function = torch.compile(function, fullgraph=True, backend="aot_eager")
        y = function(x, t, f, w, aggregate=aggregate)
    y.backward(torch.tensor(grad_y))
    for found, wanted in zip((y, x.grad, t.grad, w.grad), expected, strict=True):
        assert same_bits(found, wanted)
    with torch.no_grad():
        assert same_bits(OPERATOR[kind](x, t, f, w, aggregate=aggregate), expected[0])


def test_no_route_is_stored_without_gradients(kind):
    x, t, f, w = tensors(*problem(kind))
    operator = getattr(torch.ops.hforest, f"hinge_{kind}")
    with torch.no_grad():
        y, leaf, margin, vertex = operator(x, t, f, w, "sum", False)
    assert leaf.numel() == margin.numel() == vertex.numel() == 0
    assert torch.equal(y, operator(x, t, f, w, "sum", True)[0])
    with pytest.raises(RuntimeError, match="route: expected True where gradients"):
        operator(x, t, f, w, "sum", False)[0].sum().backward()


def test_sparse_gradient(kind, aggregate, dtype):
    arrays = problem(kind, (2, 3), dtype, n=5)
    grad_y = grad_like(FORWARD[kind](*arrays, aggregate=aggregate))
    _, *expected = numpy_step(kind, *arrays, grad_y, aggregate)
    x, t, f, w = tensors(*arrays)
    y = OPERATOR[kind](x, t, f, w, aggregate=aggregate, sparse=True)
    found = torch.autograd.grad(y, (x, t, w), torch.tensor(grad_y), retain_graph=True)
    by_weight = found[2]
    assert by_weight.is_sparse
    assert by_weight.is_coalesced()
    assert (by_weight.sparse_dim(), by_weight.dense_dim()) == (2, 2)
    rows = hinge.leaf_rows(FORWARD[kind](*arrays, return_route=True)[1].leaf, 8)
    assert (by_weight.indices()[0] * 8 + by_weight.indices()[1]).tolist() == rows.tolist()
    for g, wanted in zip((found[0], found[1], by_weight.to_dense()), expected, strict=True):
        assert same_bits(g, wanted)
    # As the gradient of a parameter, and twice: they add.
    weights = torch.nn.Parameter(w.detach().clone())
    for _ in range(2):
        y = OPERATOR[kind](x, t, f, weights, aggregate=aggregate, sparse=True)
        y.backward(torch.tensor(grad_y))
    assert weights.grad.is_sparse
    torch.testing.assert_close(weights.grad.to_dense(), 2 * by_weight.to_dense())
    torch.optim.SGD([weights], lr=0.5).step()
    torch.testing.assert_close(weights.detach(), w.detach() - by_weight.to_dense())


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
def test_sparse_gradients_leave_the_compiled_graph(kind):
    torch.compiler.reset()
    x, t, f, w = tensors(*problem(kind))

    def loss(x):
        return OPERATOR[kind](2 * x, t, f, w, sparse=True).sum()

    torch.compile(loss, backend="eager")(x).backward()
    assert w.grad.is_sparse
    torch.compiler.reset()
    with pytest.raises(Exception, match=r"torch\.compiler\.disable|skip|disabled"):
        torch.compile(loss, backend="eager", fullgraph=True)(x)


# ------------------------------------------------------------------------------------- PyTorch's checks


def test_gradcheck(kind, aggregate):
    x, t, f, w = tensors(*problem(kind, dtype=np.float64, n=8))

    def run(x, t, w):
        return OPERATOR[kind](x, t, f, w, aggregate=aggregate)

    def operator(x, t, w):
        return getattr(torch.ops.hforest, f"hinge_{kind}")(x, t, f, w, aggregate)[0]

    assert torch.autograd.gradcheck(run, (x, t, w))
    assert torch.autograd.gradcheck(operator, (x, t, w))


def test_opcheck(kind, aggregate, dtype):
    x, t, f, w = tensors(*problem(kind, dtype=dtype))
    operator = getattr(torch.ops.hforest, f"hinge_{kind}").default
    torch.library.opcheck(operator, (x, t, f, w, aggregate))
    x, t, w = (a.detach() for a in (x, t, w))
    torch.library.opcheck(operator, (x, t, f, w, aggregate, False))
    y, *route = operator(x, t, f, w, aggregate)
    torch.library.opcheck(
        torch.ops.hforest.hinge_backward.default,
        (torch.ones_like(y), *route, f, w, x.shape[1], kind, aggregate),
    )


def test_fake_tensors_and_shapes_of_symbols(kind, aggregate):
    """A graph compiled once serves batches of any size."""
    torch.compiler.reset()
    graphs = []

    def backend(module, _):
        graphs.append(module)
        return module.forward

    _, t, f, w = tensors(*problem(kind))
    step = torch.compile(
        lambda x: OPERATOR[kind](x, t, f, w, aggregate=aggregate),
        fullgraph=True,
        dynamic=True,
        backend=backend,
    )
    for n in (5, 7, 30):
        x = torch.tensor(problem(kind, n=n)[0])
        assert torch.equal(step(x), OPERATOR[kind](x, t, f, w, aggregate=aggregate))
    assert len(graphs) == 1


# ------------------------------------------------------------------------------------------- any input


def test_layouts_and_empty_batches(kind, aggregate):
    x, t, f, w = problem(kind)
    expected = numpy_step(
        kind, x, t, f, w, np.ones_like(FORWARD[kind](x, t, f, w, aggregate=aggregate)), aggregate
    )
    a, t2, f2, w2 = tensors(x, t, f, w)
    a = a.detach().t().contiguous().t().requires_grad_()
    assert not a.is_contiguous()
    y = OPERATOR[kind](a, t2, f2.t().contiguous().t(), w2, aggregate=aggregate)
    y.sum().backward()  # its gradient has strides 0
    for found, wanted in zip((y, a.grad, t2.grad, w2.grad), expected, strict=True):
        assert same_bits(found, wanted)
    empty = a.detach()[:0].requires_grad_()
    y = OPERATOR[kind](empty, t2, f2, w2, aggregate=aggregate)
    assert y.shape == ((0, 2) if aggregate else (0, 4, 2))
    t2.grad = w2.grad = None
    y.sum().backward()
    assert empty.grad.shape == (0, 6)
    assert not w2.grad.any()
    assert not t2.grad.any()


def test_memory_is_read_in_place(kind):
    x, t, f, w = tensors(*problem(kind, n_trees=50, depth=10))
    with torch.no_grad():
        before = OPERATOR[kind](x, t, f, w)
        w *= 2
        assert torch.equal(OPERATOR[kind](x, t, f, w), 2 * before)


def test_weights_that_change_before_the_backward_pass_are_an_error(kind):
    x, t, f, w = tensors(*problem(kind))
    y = OPERATOR[kind](x, t, f, w).sum()
    with torch.no_grad():
        w += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("sparse", [False, True])
def test_half_types(kind, half, sparse):
    x, t, f, w = tensors(*problem(kind))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = OPERATOR[kind](x.to(half), t, f, w, sparse=sparse)
        by_operator = getattr(torch.ops.hforest, f"hinge_{kind}")(x.to(half), t, f, w, "sum")[0]
        product = x @ torch.ones(6, 6)  # of half type
        OPERATOR[kind](product, t, f, w)
    assert product.dtype == torch.bfloat16
    assert y.dtype == torch.float32
    assert torch.equal(y, OPERATOR[kind](x.to(half).float(), t, f, w))
    assert torch.equal(y, by_operator)
    y.sum().backward()
    assert x.grad.dtype == torch.float32
    name = str(half).removeprefix("torch.")
    with pytest.raises(
        TypeError, match=rf"^x: expected dtype float32 or float64, got {name}; convert it with x.float"
    ):
        OPERATOR[kind](x.to(half), t, f, w)
    with pytest.raises(TypeError, match=rf"^weights: expected dtype float32 or float64, got {name}"):
        OPERATOR[kind](x, t, f, w.to(half))


def message(function, *arguments, **settings):
    with pytest.raises((TypeError, ValueError, IndexError)) as found:
        function(*arguments, **settings)
    return type(found.value), str(found.value)


BAD = {
    "nan": lambda x, t, f, w: (np.where(x > 2, np.nan, x).astype(x.dtype), t, f, w),
    "nan threshold": lambda x, t, f, w: (x, t * np.float32("nan"), f, w),
    "feature": lambda x, t, f, w: (x, t, f + 3, w),
    "dtype": lambda x, t, f, w: (x, t.astype(np.float64), f, w),
    "integers": lambda x, t, f, w: (x.astype(np.int64), t, f, w),
    "int64 features": lambda x, t, f, w: (x, t, f.astype(np.int64), w),
    "weights": lambda x, t, f, w: (x, t, f, w[:, 1:].copy()),
    "trees": lambda x, t, f, w: (x, t[1:].copy(), f, w),
    "axes": lambda x, t, f, w: (x[0], t, f, w),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("learn", [False, True])
def test_bad_input_has_numpys_message(kind, case, learn):
    arrays = BAD[case](*problem(kind))
    expected = message(FORWARD[kind], *arrays, aggregate="sum")
    given = [torch.tensor(a).requires_grad_(learn and a.dtype.kind == "f") for a in arrays]
    if case not in ("dtype", "integers"):  # the next test
        assert message(OPERATOR[kind], *given) == expected
    assert message(getattr(torch.ops.hforest, f"hinge_{kind}"), *given, "sum") == expected


LAYERS = {
    "HingeForest": (lambda dtype: ht.HingeForest(3, 2, 2, dtype=dtype), (4, 3), "thresholds"),
    "HingeForest of points": (lambda dtype: ht.HingeForest(3, 2, 2, dtype=dtype), (4, 3, 5), "thresholds"),
    "HingeConv2d": (lambda dtype: ht.HingeConv2d(3, 2, 2, 2, dtype=dtype), (4, 3, 5, 5), "thresholds"),
    "LinearHingeForest": (lambda dtype: ht.LinearHingeForest(3, 2, 2, dtype=dtype), (4, 3), "thresholds"),
    "NeuralForest": (lambda dtype: ht.NeuralForest(3, 2, 2, 2, dtype=dtype), (4, 3), "leaves"),
    "RunningNorm": (lambda dtype: ht.RunningNorm(3, dtype=dtype), (4, 3), "mean"),
}


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
    # What the message says helps.
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


def test_bad_words_and_gradients(kind):
    x, t, f, w = tensors(*problem(kind))
    run = OPERATOR[kind]
    assert (
        "aggregate: expected one of None, 'sum', 'mean', got 'max'"
        in message(run, x, t, f, w, aggregate="max")[1]
    )
    assert "sparse: expected True or False, got int" in message(run, x, t, f, w, sparse=1)[1]
    assert "x: expected a torch.Tensor, got ndarray" in message(run, x.detach().numpy(), t, f, w)[1]
    assert (
        "features: expected integers without a gradient"
        in message(run, x, t, f.float().requires_grad_(), w)[1]
    )
    assert (
        "weights: expected a tensor on cpu like x, got one on meta" in message(run, x, t, f, w.to("meta"))[1]
    )
    assert "x: expected a dense tensor" in message(run, x.detach().to_sparse(), t, f, w)[1]
    with pytest.raises(ValueError, match="^grad_y: expected finite numbers, got nan at index"):
        (run(x, t, f, w) * float("nan")).sum().backward()
    with pytest.raises(ValueError, match="^sparse: expected False where tensors are on a GPU"):
        run(*(a.to("meta") for a in (x, t, f, w)), sparse=True)


def test_derivatives_that_there_are_not(kind):
    x, t, f, w = tensors(*problem(kind))
    for y in (OPERATOR[kind](x, t, f, w), getattr(torch.ops.hforest, f"hinge_{kind}")(x, t, f, w)[0]):
        (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        with pytest.raises(RuntimeError, match="expected first derivatives"):
            first.sum().backward()
    with pytest.raises(RuntimeError, match="expected first derivatives"):
        torch.autograd.grad(OPERATOR[kind](x, t, f, w, sparse=True).sum(), x, create_graph=True)
    tangent = torch.ones_like(x)
    with pytest.raises(RuntimeError, match="x: expected no forward-mode tangent"):
        torch.func.jvp(lambda x: OPERATOR[kind](x, t, f, w), (x.detach(),), (tangent,))


def test_modes_and_traces_see_the_operator(kind):
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    x, t, f, w = tensors(*problem(kind))
    with Mode():
        OPERATOR[kind](x, t, f, w).sum().backward()
    assert f"hforest.hinge_{kind}.default" in seen
    assert "hforest.hinge_backward.default" in seen
    with torch.device("meta"):
        pass
    y = OPERATOR[kind](*(a.detach().to("meta") for a in (x, t, f, w)), aggregate=None)
    assert y.shape == (30, 4, 2)


def test_threads_follow_hforests_own_setting(kind, threads):
    x, t, f, w = tensors(*problem(kind, n=2000))
    results = []
    for n in (1, 2):
        threads(n)
        y = OPERATOR[kind](x, t, f, w)
        results.append((y.detach(), *torch.autograd.grad(y.sum(), (x, t, w))))
    assert hforest.get_num_threads() == 2
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)


# ------------------------------------------------------------------------------------------ neural forests


def soft_problem(dtype=np.float32, shared=False, n=20, n_trees=3, depth=3, n_classes=4, scale=1.0):
    """Decision functions, leaves, labels and the index of shared functions (or None), as NumPy arrays."""
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
    """A saturated forest in float32: p is 0 in the dtype, the loss and its gradient are not lost."""
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
    assert "f: expected finite numbers, got nan" in message(ht.neural_forest, a * float("nan"), b)[1]
    assert (
        "leaves: expected leaves without a gradient" in message(ht.neural_loss, a, b.requires_grad_(), c)[1]
    )
    b = b.detach()
    assert (
        "index: expected integers without a gradient"
        in message(ht.neural_forest, a, b, index=torch.zeros(3, 7, requires_grad=True))[1]
    )
    assert "y: expected a tensor on cpu like f" in message(ht.neural_loss, a, b, c.to("meta"))[1]
    assert (
        "f: expected dtype float32 or float64, got bfloat16" in message(ht.neural_forest, a.bfloat16(), b)[1]
    )
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(ht.neural_forest(a.bfloat16(), b), ht.neural_forest(a.bfloat16().float(), b))
        assert ht.neural_loss(a.bfloat16(), b, c).dtype == torch.float32
    for found in (ht.neural_forest(a, b).sum(), ht.neural_loss(a, b, c)):
        with pytest.raises(RuntimeError, match="expected first derivatives"):
            torch.autograd.grad(found, a, create_graph=True)[0].sum().backward()
    assert ht.neural_loss(a[:0], b, c[:0]).item() == 0
    assert ht.neural_forest(a[:0], b).shape == (0, 4)


# ------------------------------------------------------------------------------------------------- CUDA


def test_calls_with_cuda_tensors_go_through_dlpack_on_the_current_stream(monkeypatch):
    """The file that calls CuPy, with NumPy in its place: what it is given, on which stream, and what comes back."""
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
    x, t, f, w = tensors(*problem("tree"))
    from hforest.torch import operators

    kernel = operators._forward_kernel("tree")
    found = cuda.call(kernel, (x, t, f, w, "sum", True))
    for a, b in zip(found, torch.ops.hforest.hinge_tree(x, t, f, w, "sum"), strict=True):
        assert torch.equal(a, b)
    assert entered == [(None,), (77, None)]
    mean = torch.zeros(6)
    assert cuda.call(lambda x, mean: np.copyto(mean, x[0]), (x, mean)) is None
    assert torch.equal(mean, x.detach()[0])
