"""Hinge forests with an inner product at each vertex in PyTorch: bits of the NumPy functions, PyTorch's checks."""

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch (the extra torch)")

import hforest.torch as ht  # noqa: E402
from hforest import hinge  # noqa: E402

kinds = pytest.mark.parametrize("kind", ["tree", "fern"])
aggregates = pytest.mark.parametrize("aggregate", [None, "sum", "mean"])


def problem(kind, dtype=np.float64, n=20, outputs=(2,)):
    rng = np.random.default_rng(0)
    t, _, w = getattr(hinge, f"{kind}_init")(3, 3, 5, outputs, scale=1.0, dtype=dtype, rng=rng)
    p = rng.normal(size=(*t.shape, 5)).astype(dtype)
    return rng.normal(size=(n, 5)).astype(dtype), t, p, w


def tensors(arrays):
    return tuple(torch.from_numpy(a.copy()).requires_grad_() for a in arrays)


@kinds
@aggregates
@pytest.mark.parametrize("n", [20, 0])
def test_bits_of_the_numpy_functions(kind, aggregate, n):
    arrays = problem(kind, np.float32, n)
    want, route = getattr(hinge, f"{kind}_linear_forward")(*arrays, aggregate=aggregate, return_route=True)
    given = tensors(arrays)
    function = getattr(ht, f"hinge_{kind}_linear")
    y = function(*given, aggregate=aggregate)
    np.testing.assert_array_equal(y.detach().numpy(), want)
    with torch.no_grad():
        assert torch.equal(function(*given, aggregate=aggregate), y)
    grad_y = np.random.default_rng(1).normal(size=want.shape).astype(np.float32)
    y.backward(torch.from_numpy(grad_y))
    x, _, p, w = arrays
    grads = getattr(hinge, f"{kind}_linear_backward")(grad_y, *route, x, p, w, aggregate=aggregate)
    for tensor, grad in zip(given, grads, strict=True):
        np.testing.assert_array_equal(tensor.grad.numpy(), grad)


@kinds
def test_opcheck_and_gradcheck(kind):
    given = tensors(problem(kind))
    torch.library.opcheck(getattr(torch.ops.hforest, f"hinge_{kind}_linear").default, (*given, "sum"))
    assert torch.autograd.gradcheck(getattr(ht, f"hinge_{kind}_linear"), given, eps=1e-7, atol=1e-5)


@kinds
def test_same_as_a_linear_layer_below_a_forest(kind):
    torch.manual_seed(0)
    layer = ht.LinearHingeForest(5, 4, 3, outputs=2, kind=kind, dtype=torch.float64)
    x = torch.randn(30, 5, dtype=torch.float64)
    z = x @ layer.projections.flatten(0, 1).T
    features = torch.arange(layer.thresholds.numel(), dtype=torch.int32).reshape(layer.thresholds.shape)
    want = getattr(ht, f"hinge_{kind}")(z, layer.thresholds, features, layer.weights)
    torch.testing.assert_close(layer(x), want)


@kinds
def test_module(kind):
    torch.manual_seed(0)
    layer = ht.LinearHingeForest(5, 4, 3, outputs=2, kind=kind)
    x = torch.randn(7, 5)
    again = ht.LinearHingeForest(5, 4, 3, outputs=2, kind=kind)
    again.load_state_dict(layer.state_dict())
    assert torch.equal(again(x), layer(x))
    assert torch.equal(copy.deepcopy(layer)(x), layer(x))
    a, b = (ht.LinearHingeForest(5, 4, 3, generator=torch.Generator().manual_seed(1)) for _ in range(2))
    assert all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))
    assert f"5, n_trees=4, depth=3, outputs=(2,), kind='{kind}'" in repr(layer)


def test_a_layer_learns():
    """Labels by the sign of a product of two inner products, which no single column tells."""
    torch.manual_seed(0)
    x = torch.randn(600, 8)
    y = ((x @ torch.randn(8)) * (x @ torch.randn(8)) > 0).long()
    layer = ht.LinearHingeForest(8, 40, 4, outputs=2)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.02)
    for _ in range(150):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(layer(x), y).backward()
        optimizer.step()
    assert (layer(x).argmax(1) == y).float().mean() > 0.9


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"x": torch.ones(2, 4)}, ValueError, "projections: expected shape"),
        ({"x": torch.ones(2, 5).half()}, TypeError, "x: expected dtype float32 or float64, got float16"),
        ({"x": np.ones((2, 5), np.float32)}, TypeError, "x: expected a torch.Tensor"),
        ({"x": torch.full((2, 5), torch.nan)}, ValueError, "x: expected finite"),
        ({"aggregate": "max"}, ValueError, "aggregate: expected"),
    ],
)
def test_bad_input_is_refused(change, error, message):
    names = ("x", "thresholds", "projections", "weights")
    given = dict(zip(names, tensors(problem("tree", np.float32)), strict=True))
    with pytest.raises(error, match=message):
        ht.hinge_tree_linear(**{**given, **change})
    with pytest.raises(ValueError, match="kind: expected"):
        ht.LinearHingeForest(5, 4, 3, kind="bush")
    with pytest.raises(ValueError, match="aggregate: expected"):
        ht.LinearHingeForest(5, 4, 3, aggregate="max")


@kinds
@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("layout", ["to_sparse", "to_sparse_csr", "to_mkldnn", "quantized"])
@pytest.mark.filterwarnings("ignore:Sparse CSR")
@pytest.mark.filterwarnings("ignore:.*quantize")
def test_tensors_that_are_not_dense(kind, place, layout):
    given = list(map(torch.from_numpy, problem(kind, np.float32)))
    name = ("x", "thresholds", "projections", "weights")[place]
    a = given[place]
    if layout == "quantized":
        given[place] = torch.quantize_per_tensor(a, 0.1, 0, torch.quint8)
    elif layout == "to_mkldnn" and not torch.backends.mkldnn.is_available():
        pytest.skip("needs oneDNN")
    else:
        given[place] = getattr(a, layout)()
    function = ht.hinge_tree_linear if kind == "tree" else ht.hinge_fern_linear
    with pytest.raises(
        TypeError, match=rf"^{name}: expected a dense tensor of a NumPy dtype, got .*; pass {name}\."
    ):
        function(*given)
