"""PyTorch modules that convolve with hinge forests: windows, groups, vectors, states, bad input."""

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch (the extra torch)")

import hforest.torch as ht  # noqa: E402
from hforest import hinge  # noqa: E402

kinds = pytest.mark.parametrize("kind", ["tree", "fern"])
margins = pytest.mark.parametrize("margin", ["column", "projection"])


def forest(layer, x, part=slice(None), **words):
    """Returns the function with the parameters of a layer, or with those of some trees."""
    parameters = (a[part] for a in (layer.thresholds, layer.features, layer.weights))
    return ht.hinge_forest(x, *parameters, kind=layer.kind, margin=layer.margin, **words)


@kinds
@margins
def test_same_as_the_unfolded_forest(kind, margin):
    torch.manual_seed(0)
    layer = ht.HingeConv2d(3, 8, 4, 3, outputs=5, padding=1, stride=2, kind=kind, margin=margin)
    x = torch.randn(4, 3, 9, 10)
    columns = torch.nn.functional.unfold(x, 3, padding=1, stride=2)  # (n, columns, positions)
    want = forest(layer, columns.transpose(1, 2).reshape(-1, 27)).reshape(4, 5, 5, 5).permute(0, 3, 1, 2)
    assert torch.equal(layer(x), want)


@margins
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PyTorch's compiler about itself
def test_compiles_whole(margin):
    torch.manual_seed(0)
    torch.compiler.reset()
    layer = ht.HingeConv2d(2, 6, 3, 3, outputs=4, padding=1, margin=margin)
    x = torch.randn(5, 2, 6, 6, requires_grad=True)

    def step(x):
        return layer(x).square().mean()

    want = torch.autograd.grad(step(x), (x, *layer.parameters()))
    got = torch.autograd.grad(torch.compile(step, fullgraph=True)(x), (x, *layer.parameters()))
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b)


@margins
def test_groups_see_their_channels_alone(margin):
    torch.manual_seed(0)
    layer = ht.HingeConv2d(4, 6, 3, 3, outputs=4, groups=2, margin=margin)
    x = torch.randn(2, 4, 5, 5)
    y = layer(x)
    assert y.shape == (2, 4, 3, 3)
    for g in range(2):
        part = slice(3 * g, 3 * g + 3)
        want = forest(layer, x[:, 2 * g : 2 * g + 2], part, windows=hinge.Windows(3))
        assert torch.equal(y[:, 2 * g : 2 * g + 2], want)
    y.sum().backward()
    assert all(p.grad.abs().sum() > 0 for p in layer.parameters())
    apart = ht.HingeConv2d(4, 6, 3, 3, groups=2, aggregate=None, margin=margin)
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
@margins
def test_modules(module, shape, want, kind, margin):
    layer = module(3, 4, 2, 3, outputs=2, stride=2, kind=kind, margin=margin)
    y = layer(torch.randn(shape))
    assert y.shape == want
    y.sum().backward()
    assert all(p.grad.shape == p.shape for p in layer.parameters())
    assert set(layer.state_dict()) == {"thresholds", "weights", "features"}
    assert isinstance(layer.features, torch.nn.Parameter) == (margin == "projection")
    again = module(3, 4, 2, 3, outputs=2, stride=2, kind=kind, margin=margin)
    again.load_state_dict(layer.state_dict())
    x = torch.randn(shape)
    assert torch.equal(again(x), layer(x))
    assert torch.equal(copy.deepcopy(layer)(x), layer(x))
    assert f"kind='{kind}', margin='{margin}'" in repr(layer)


STEPS = [("column", 1), ("projection", 1), ("column", 2)]


@kinds
@pytest.mark.parametrize(("margin", "groups"), STEPS)
def test_steps_of_row_adam(kind, margin, groups):
    """They equal those of dense Adam on the leaves that a batch reads."""
    settings = {
        "kind": kind,
        "margin": margin,
        "groups": groups,
        "generator": torch.Generator().manual_seed(0),
    }
    layer = ht.HingeConv2d(4, 4, 8, 3, outputs=2, sparse=True, **settings)
    dense = copy.deepcopy(layer)
    dense.sparse = False
    optimizers = ht.RowAdam(layer.parameters(), lr=0.05), torch.optim.Adam(dense.parameters(), lr=0.05)
    for seed in range(12):
        x = torch.randn(1, 4, 4, 4, generator=torch.Generator().manual_seed(seed))
        for net, optimizer in zip((layer, dense), optimizers, strict=True):
            optimizer.zero_grad()
            (net(x) - 1).square().sum().backward()
            optimizer.step()
        assert dense.weights.grad is not None
        assert layer.table.grad.is_sparse
    if groups == 1:  # no call has taken the steps of all rows
        assert layer.missed.last.min() < 11 < layer.missed.last.max()
    for a, b in zip(layer.parameters(), dense.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-5)


def test_vertices_look_at_the_window_or_the_vector():
    torch.manual_seed(0)
    layer = ht.HingeConv2d(2, 30, 3, 3, outputs=2, padding=1, vector_features=4)
    x, vector = torch.randn(5, 2, 6, 7), torch.randn(5, 4, requires_grad=True)
    y = layer(x, vector)
    # Each position by itself: the window, unfolded, and the vector behind it.
    windows = torch.nn.functional.unfold(x, 3, padding=1).transpose(1, 2)
    samples = torch.cat([windows, vector[:, None].expand(-1, 42, -1)], dim=2).reshape(-1, 22).contiguous()
    f = layer.features.clone()
    assert bool((f >= 18).any())
    f[f >= 18] = 18 + (f[f >= 18] - 18 - 4) // 9
    by_row = ht.hinge_forest(samples, layer.thresholds, f, layer.weights)
    want = by_row.reshape(5, 6, 7, 2).permute(0, 3, 1, 2)
    assert torch.equal(y, want)
    y.sum().backward()
    assert bool((vector.grad != 0).any())
    with pytest.raises(ValueError, match=r"vector: expected shape \(5, 4\), got None"):
        layer(x)
    with pytest.raises(ValueError, match="vector: expected shape None"):
        ht.HingeConv2d(2, 3, 3, 3)(x, vector)
    for more in ({"groups": 2}, {"margin": "projection"}):
        with pytest.raises(ValueError, match="vector_features: expected"):
            ht.HingeConv2d(2, 4, 3, 3, outputs=2, vector_features=4, **more)


def test_generator_repeats_the_start():
    a, b = (ht.HingeConv2d(3, 4, 2, 3, generator=torch.Generator().manual_seed(7)).weights for _ in range(2))
    assert torch.equal(a, b)


@kinds
def test_states_of_hinge_tree_for_torch(kind):
    """One tree per output and channel, which reads that channel; leaves have the least significant bit first."""
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
    """A network of a convolution and a linear layer finds the position of a bright square."""
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
    ("change", "message"),
    [
        ({"kind": "bush"}, "kind: expected"),
        ({"margin": "columns"}, "margin: expected"),
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
