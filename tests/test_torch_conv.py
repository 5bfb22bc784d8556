"""Convolution with hinge forests in PyTorch: bits of the NumPy functions, PyTorch's own checks, modules, bad input."""

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch (the extra torch)")

import hforest.torch as ht  # noqa: E402
from hforest import hinge  # noqa: E402

KINDS = ("tree", "fern")
kinds = pytest.mark.parametrize("kind", KINDS)
aggregates = pytest.mark.parametrize("aggregate", [None, "sum", "mean"])
# Shape of x, kernel_size, stride, padding, dilation.
CASES = [
    ((3, 2, 9), 3, 2, 1, 1),
    ((2, 3, 7, 8), (3, 2), (1, 2), (2, 0), (2, 1)),
    ((1, 2, 4, 5, 3), 2, 1, 0, 1),
    ((0, 2, 5, 5), 3, 1, 1, 1),
]
cases = pytest.mark.parametrize("case", CASES, ids=lambda case: str(case[0]))


def problem(kind, case, dtype=np.float64, outputs=(2,)):
    shape, kernel_size = case[:2]
    n_axes = len(shape) - 2
    kernel = kernel_size if isinstance(kernel_size, tuple) else (kernel_size,) * n_axes
    rng = np.random.default_rng(0)
    make = getattr(hinge, f"{kind}_init")
    t, f, w = make(3, 3, shape[1] * int(np.prod(kernel)), outputs, scale=1.0, dtype=dtype, rng=rng)
    return rng.normal(size=shape).astype(dtype), t, f, w


def words(case):
    return dict(zip(("stride", "padding", "dilation"), case[2:], strict=True))


def channels_first(y, n_axes):
    return np.moveaxis(y, tuple(range(1, 1 + n_axes)), tuple(range(-n_axes, 0)))


def tensors(arrays, *, learn=True):
    x, t, f, w = (torch.from_numpy(a) for a in arrays)
    return tuple(a.requires_grad_(learn and a.is_floating_point()) for a in (x, t, f, w))


@kinds
@aggregates
@cases
def test_bits_of_the_numpy_functions(kind, aggregate, case):
    arrays = problem(kind, case, np.float32)
    n_axes = arrays[0].ndim - 2
    want, route = getattr(hinge, f"{kind}_conv_forward")(
        *arrays, case[1], **words(case), aggregate=aggregate, return_route=True
    )
    x, t, f, w = tensors(arrays)
    y = getattr(ht, f"hinge_{kind}_conv")(x, t, f, w, case[1], **words(case), aggregate=aggregate)
    np.testing.assert_array_equal(y.detach().numpy(), channels_first(want, n_axes))
    with torch.no_grad():
        alone = getattr(ht, f"hinge_{kind}_conv")(x, t, f, w, case[1], **words(case), aggregate=aggregate)
    assert torch.equal(alone, y)
    grad_y = np.random.default_rng(1).normal(size=want.shape).astype(np.float32)
    y.backward(torch.from_numpy(channels_first(grad_y, n_axes)))
    grads = getattr(hinge, f"{kind}_conv_backward")(
        grad_y, route, *arrays[2:], arrays[0].shape, case[1], **words(case), aggregate=aggregate
    )
    for tensor, grad in zip((x, t, w), grads, strict=True):
        np.testing.assert_array_equal(tensor.grad.numpy(), grad)


@kinds
@aggregates
def test_opcheck(kind, aggregate):
    x, t, f, w = tensors(problem(kind, CASES[1]))
    operator = getattr(torch.ops.hforest, f"hinge_{kind}_conv").default
    torch.library.opcheck(operator, (x, t, f, w, [3, 2], [1, 2], [2, 0], [2, 1], aggregate))


@kinds
def test_gradcheck(kind):
    x, t, f, w = tensors(problem(kind, CASES[1]))

    def function(x, t, w):
        return getattr(ht, f"hinge_{kind}_conv")(x, t, f, w, (3, 2), **words(CASES[1]))

    # Ten times less than the distance to the nearest tie of these numbers.
    assert torch.autograd.gradcheck(function, (x, t, w), eps=1e-7, atol=1e-5)


def test_same_as_the_unfolded_forest():
    torch.manual_seed(0)
    layer = ht.HingeConv2d(3, 8, 4, 3, outputs=5, padding=1, stride=2)
    x = torch.randn(4, 3, 9, 10)
    columns = torch.nn.functional.unfold(x, 3, padding=1, stride=2)  # (n, columns, positions)
    rows = columns.transpose(1, 2).reshape(-1, 27)
    y = ht.hinge_tree(rows, layer.thresholds, layer.features, layer.weights)
    want = y.reshape(4, 5, 5, 5).permute(0, 3, 1, 2)
    assert torch.equal(layer(x), want)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PyTorch's compiler about itself
def test_compiles_whole():
    torch.manual_seed(0)
    layer = ht.HingeConv2d(2, 6, 3, 3, outputs=4, padding=1)
    x = torch.randn(5, 2, 6, 6, requires_grad=True)

    def step(x):
        return layer(x).square().mean()

    want = torch.autograd.grad(step(x), (x, *layer.parameters()))
    got = torch.autograd.grad(torch.compile(step, fullgraph=True)(x), (x, *layer.parameters()))
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b)


def test_groups_see_their_channels_alone():
    torch.manual_seed(0)
    layer = ht.HingeConv2d(4, 6, 3, 3, outputs=4, groups=2)
    x = torch.randn(2, 4, 5, 5)
    y = layer(x)
    assert y.shape == (2, 4, 3, 3)
    for g in range(2):
        part = slice(3 * g, 3 * g + 3)
        want = ht.hinge_tree_conv(
            x[:, 2 * g : 2 * g + 2], layer.thresholds[part], layer.features[part], layer.weights[part], 3
        )
        assert torch.equal(y[:, 2 * g : 2 * g + 2], want)
    apart = ht.HingeConv2d(4, 6, 3, 3, groups=2, aggregate=None)
    assert apart(x).shape == (2, 6, 3, 3)


@pytest.mark.parametrize(
    ("module", "shape", "want"),
    [
        (ht.HingeConv1d, (2, 3, 11), (2, 2, 5)),
        (ht.HingeConv2d, (2, 3, 11, 9), (2, 2, 5, 4)),
        (ht.HingeConv3d, (1, 3, 5, 5, 7), (1, 2, 2, 2, 3)),
    ],
)
@kinds
def test_modules(module, shape, want, kind):
    layer = module(3, 4, 2, 3, outputs=2, stride=2, kind=kind)
    y = layer(torch.randn(shape))
    assert y.shape == want
    y.sum().backward()
    assert layer.weights.grad.shape == layer.weights.shape
    assert set(layer.state_dict()) == {"thresholds", "weights", "features"}
    again = module(3, 4, 2, 3, outputs=2, stride=2, kind=kind)
    again.load_state_dict(layer.state_dict())
    x = torch.randn(shape)
    assert torch.equal(again(x), layer(x))
    assert torch.equal(copy.deepcopy(layer)(x), layer(x))
    assert f"kind='{kind}'" in repr(layer)


def test_vertices_look_at_the_window_or_the_vector():
    torch.manual_seed(0)
    layer = ht.HingeConv2d(2, 30, 3, 3, outputs=2, padding=1, vector_features=4)
    x, vector = torch.randn(5, 2, 6, 7), torch.randn(5, 4, requires_grad=True)
    y = layer(x, vector)
    # Each position by itself: the window, unfolded, and the vector behind it.
    windows = torch.nn.functional.unfold(x, 3, padding=1).transpose(1, 2)
    rows = torch.cat([windows, vector[:, None].expand(-1, 42, -1)], dim=2).reshape(-1, 22).contiguous()
    f = layer.features.clone()
    assert bool((f >= 18).any())
    f[f >= 18] = 18 + (f[f >= 18] - 18 - 4) // 9
    want = ht.hinge_tree(rows, layer.thresholds, f, layer.weights).reshape(5, 6, 7, 2).permute(0, 3, 1, 2)
    assert torch.equal(y, want)
    y.sum().backward()
    assert bool((vector.grad != 0).any())
    with pytest.raises(ValueError, match=r"vector: expected shape \(5, 4\), got None"):
        layer(x)
    with pytest.raises(ValueError, match="vector: expected shape None"):
        ht.HingeConv2d(2, 3, 3, 3)(x, vector)
    with pytest.raises(ValueError, match="vector_features: expected"):
        ht.HingeConv2d(2, 4, 3, 3, groups=2, outputs=2, vector_features=4)


def test_generator_repeats_the_start():
    a, b = (ht.HingeConv2d(3, 4, 2, 3, generator=torch.Generator().manual_seed(7)).weights for _ in range(2))
    assert torch.equal(a, b)


@kinds
def test_states_of_hinge_tree_for_torch(kind):
    """A tree for each output and channel, which sees that channel; leaves by the least significant bit first."""
    torch.manual_seed(0)
    n_out, channels, depth = 3, 2, 3
    n_vertices = 2**depth - 1 if kind == "tree" else depth
    state = {
        "thresholds": torch.randn(n_out, channels, n_vertices),
        "ordinals": torch.randint(9, (n_out, channels, n_vertices)),
        "weights": torch.randn(n_out, channels, 2**depth),
    }
    layer = ht.HingeConv2d(channels, n_out * channels, depth, 3, kind=kind, aggregate=None)
    layer.load_state_dict(dict(state))
    x = torch.randn(2, channels, 5, 6)
    y = layer(x).unflatten(1, (n_out, channels)).sum(2)
    for n, o, i, j in np.ndindex(2, n_out, 3, 4):
        want = 0.0
        for c in range(channels):
            window = x[n, c, i : i + 3, j : j + 3].reshape(-1)
            v, leaf, margins = 0, 0, []
            for level in range(depth):
                at = v if kind == "tree" else level
                margin = float(window[state["ordinals"][o, c, at]].detach() - state["thresholds"][o, c, at])
                leaf |= int(margin > 0) << level
                v = 2 * v + 1 + int(margin > 0)
                margins.append(abs(margin))
            want += float(state["weights"][o, c, leaf]) * min(margins)
        assert float(y[n, o, i, j].detach()) == pytest.approx(want, rel=1e-5, abs=1e-5)


def test_other_layouts_are_copied():
    layer = ht.HingeConv2d(3, 4, 2, 3)
    x = torch.randn(2, 3, 6, 6)
    assert torch.equal(layer(x.to(memory_format=torch.channels_last)), layer(x))
    assert torch.equal(layer(x.transpose(2, 3).contiguous().transpose(2, 3)), layer(x))


def test_autocast_computes_in_float32():
    layer = ht.HingeConv2d(3, 4, 2, 3)
    x = torch.randn(2, 3, 6, 6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = layer(x.bfloat16())
    assert y.dtype == torch.float32
    assert torch.equal(y, layer(x.bfloat16().float()))


def test_a_layer_learns():
    """A network of a convolution and a linear layer tells where a bright square is."""
    torch.manual_seed(0)
    x = torch.randn(200, 1, 8, 8) / 4
    y = torch.arange(200) % 2
    for i, label in enumerate(y.tolist()):
        x[i, 0, 2:5, 4 * label : 4 * label + 3] += 1
    network = torch.nn.Sequential(
        ht.HingeConv2d(1, 10, 3, 3, outputs=4), torch.nn.Flatten(), torch.nn.Linear(144, 2)
    )
    optimizer = torch.optim.Adam(network.parameters(), lr=0.02)
    for _ in range(40):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(network(x), y)
        loss.backward()
        optimizer.step()
    assert (network(x).argmax(1) == y).float().mean() > 0.95


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"x": torch.ones(2, 3)}, ValueError, "x: expected .* one to three axes in space"),
        (
            {"x": torch.ones(2, 3, 5, 5).double()},
            TypeError,
            "x: expected dtype float32 like thresholds, got float64",
        ),
        (
            {"x": torch.ones(2, 3, 5, 5).half()},
            TypeError,
            "x: expected dtype float32 or float64, got float16",
        ),
        ({"x": np.ones((2, 3, 5, 5), np.float32)}, TypeError, "x: expected a torch.Tensor"),
        ({"x": torch.full((2, 3, 5, 5), torch.nan)}, ValueError, "x: expected finite"),
        ({"x": torch.ones(2, 3, 5, 5, device="meta")}, TypeError, "thresholds: expected a tensor on meta"),
        ({"kernel_size": 9}, ValueError, "kernel_size: expected kernels inside"),
        ({"kernel_size": (3, 3, 3)}, TypeError, "kernel_size: expected an int or one int for each of the 2"),
        ({"stride": 0}, ValueError, "stride: expected"),
        ({"padding": "same"}, TypeError, "padding: expected"),
        ({"aggregate": "max"}, ValueError, "aggregate: expected"),
        ({"features": torch.full((3, 7), 99, dtype=torch.int32)}, IndexError, "features: expected"),
    ],
)
def test_bad_input_is_refused(change, error, message):
    arrays = problem("tree", ((2, 3, 5, 5), 3, 1, 0, 1), np.float32)
    given = dict(zip(("x", "thresholds", "features", "weights"), tensors(arrays), strict=True))
    with pytest.raises(error, match=message):
        ht.hinge_tree_conv(**{**given, "kernel_size": 3, **change})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "bush"}, "kind: expected"),
        ({"aggregate": "max"}, "aggregate: expected"),
        ({"groups": 2}, "in_channels: expected a positive multiple of groups = 2, got 3"),
        ({"groups": 3, "n_trees": 6, "outputs": 4}, "outputs: expected a positive multiple of groups = 3"),
        ({"groups": 0}, "in_channels: expected a positive multiple"),
        ({"depth": 0}, "depth: expected"),
    ],
)
def test_bad_settings_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        ht.HingeConv2d(**{"in_channels": 3, "n_trees": 4, "depth": 2, "kernel_size": 3, **change})
    with pytest.raises(ValueError, match="x: expected"):
        ht.HingeConv2d(3, 4, 2, 3)(torch.ones(2, 4, 5, 5))


@pytest.mark.parametrize("name", ["in_channels", "n_trees", "groups", "vector_features"])
def test_counts_are_integers(name):
    with pytest.raises(TypeError, match=f"{name}: expected an int, got str"):
        ht.HingeConv2d(**{"in_channels": 3, "n_trees": 4, "depth": 2, "kernel_size": 3, name: "3"})
