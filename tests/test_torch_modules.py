"""PyTorch modules: equal to the NumPy functions, compiled, exported, saved, in several processes."""

import copy
import io
import pickle
import subprocess
import sys

import numpy as np
import pytest

import hforest
from hforest import hinge, layers, neural

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install torch")
ht = pytest.importorskip("hforest.torch")
nn = torch.nn

# These warnings are those of compilers, exporters and process groups of PyTorch itself.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


@pytest.fixture(params=["tree", "fern"])
def kind(request):
    return request.param


@pytest.fixture(params=["column", "projection"])
def margin(request):
    return request.param


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def forest_of(kind, outputs=(2,), **settings):
    return ht.HingeForest(5, 4, 3, outputs, kind=kind, scale=1.0, **settings)


def arrays(forest):
    return tuple(a.detach().numpy() for a in (forest.thresholds, forest.features, forest.weights))


def words(forest):
    return {"kind": forest.kind, "margin": forest.margin}


def network():
    """Returns the network of Lay et al. 2018, Fig. 2c, for a vector: inner products, normalisation, forest."""
    return nn.Sequential(
        nn.Linear(6, 8, bias=False), ht.RunningNorm(8), ht.HingeForest(8, 10, 4, 3, scale=1.0)
    )


def batch(n=40):
    return torch.randn(n, 6), torch.randint(3, (n,))


# --------------------------------------------------------------------------------------- HingeForest


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(
    ("margin", "features"), [("column", "random"), ("column", "sequential"), ("projection", "random")]
)
def test_the_start_is_numpys(kind, margin, dtype, features):
    generator = torch.Generator().manual_seed(7)
    seed = int(torch.randint(2**63 - 1, (), generator=torch.Generator().manual_seed(7)))
    np_dtype = np.float32 if dtype == torch.float32 else np.float64
    expected = hinge.init(
        4, 3, 5, (2,), kind=kind, margin=margin, features=features, scale=1.0, dtype=np_dtype, rng=seed
    )
    forest = forest_of(kind, margin=margin, features=features, generator=generator, dtype=dtype)
    for found, wanted in zip(arrays(forest), expected, strict=True):
        np.testing.assert_array_equal(found, wanted, strict=True)
    torch.manual_seed(3)
    first = forest_of(kind, margin=margin).weights
    torch.manual_seed(3)
    assert torch.equal(first, forest_of(kind, margin=margin).weights)
    assert not torch.equal(first, forest_of(kind, margin=margin).weights)
    learned = ["features"] if margin == "projection" else []
    assert [name for name, _ in forest.named_parameters()] == ["thresholds", "weights", *learned]
    assert [name for name, _ in forest.named_buffers()] == ([] if learned else ["features"])


@pytest.mark.parametrize("outputs", [(), (3,), (2, 2)], ids=str)
@pytest.mark.parametrize("aggregate", ["sum", "mean", None])
@pytest.mark.parametrize("spatial", [(), (4,), (3, 2), (1, 2, 1, 3)], ids=str)
def test_hinge_forest_is_numpys(kind, margin, outputs, aggregate, spatial):
    forest = forest_of(kind, outputs, margin=margin, aggregate=aggregate)
    x = torch.randn(6, 5, *spatial)
    y = forest(x)
    rows = np.moveaxis(x.numpy().reshape(6, 5, -1), 1, 2).reshape(-1, 5).copy()
    expected = hinge.forward(rows, *arrays(forest), **words(forest), aggregate=aggregate)
    per_tree = () if aggregate else (4,)
    assert y.shape == (6, *per_tree, *outputs, *spatial)
    found = y.detach().numpy().reshape(6, *per_tree, *outputs, -1)
    expected = np.moveaxis(expected.reshape(6, -1, *per_tree, *outputs), 1, -1)
    assert found.tobytes() == np.ascontiguousarray(expected).tobytes()
    y.sum().backward()
    assert all(p.grad.any() for p in forest.parameters())
    assert forest(x[:0]).shape == (0, *y.shape[1:])
    if spatial:
        assert forest(x[:, :, :0]).numel() == 0


@pytest.mark.parametrize("spatial", [(), (4,), (0,)], ids=str)
def test_hinge_forest_learns_sparsely(kind, margin, spatial):
    forest = ht.HingeForest(5, 4, 6, 2, kind=kind, margin=margin, sparse=True)
    forest(torch.randn(3, 5, *spatial)).sum().backward()
    assert forest.weights.grad.is_sparse
    assert forest.weights.grad.shape == forest.weights.shape
    dense = copy.deepcopy(forest)
    dense.weights.grad = forest.weights.grad.to_dense()
    torch.optim.SparseAdam([forest.weights], lr=0.1).step()
    torch.optim.Adam([dense.weights], lr=0.1).step()
    torch.testing.assert_close(forest.weights, dense.weights)  # a first step: the same


def test_projections_learn():
    """Labels are the sign of a product of two inner products, which no single column determines."""
    x = torch.randn(600, 8)
    y = ((x @ torch.randn(8)) * (x @ torch.randn(8)) > 0).long()
    layer = ht.HingeForest(8, 40, 4, outputs=2, margin="projection")
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.02)
    for _ in range(150):
        optimizer.zero_grad()
        nn.functional.cross_entropy(layer(x), y).backward()
        optimizer.step()
    assert (layer(x).argmax(1) == y).float().mean() > 0.9


def test_copies_and_states(kind, margin):
    layer, again = (ht.HingeForest(5, 4, 3, outputs=2, kind=kind, margin=margin) for _ in range(2))
    x = torch.randn(7, 5)
    again.load_state_dict(layer.state_dict())
    assert torch.equal(again(x), layer(x))
    assert torch.equal(copy.deepcopy(layer)(x), layer(x))


def test_states_of_projections_by_their_former_name(kind):
    layer = forest_of(kind, margin="projection")
    state = dict(layer.state_dict())
    state["projections"] = state.pop("features")
    net = nn.Sequential(nn.Identity(), forest_of(kind, margin="projection"))
    net.load_state_dict({f"1.{name}": a for name, a in state.items()})
    x = torch.randn(7, 5)
    assert torch.equal(net(x), layer(x))
    assert "projections" in state
    with pytest.raises(RuntimeError, match="size mismatch for features"):
        forest_of(kind).load_state_dict(state)


def test_maps(kind, margin):
    forest = forest_of(kind, margin=margin)
    x = torch.randn(6, 5, 3, 2)
    rows = x.flatten(2).transpose(1, 2).reshape(-1, 5).numpy()
    t, f, _ = arrays(forest)
    leaf, margins, _ = hinge.traverse(rows, t, f, **words(forest))
    by_point = (6, 3, 2, 4)
    leaf_map, margin_map = forest.leaf_map(x), forest.margin_map(x)
    assert torch.equal(leaf_map, torch.tensor(leaf.reshape(by_point)).permute(0, 3, 1, 2))
    assert torch.equal(margin_map, torch.tensor(margins.reshape(by_point)).permute(0, 3, 1, 2))
    assert leaf_map.dtype == torch.int32
    counts = forest.leaf_counts(x)
    np.testing.assert_array_equal(counts.numpy(), hinge.leaf_counts(leaf, 8), strict=True)
    assert counts.sum() == 6 * 6 * 4
    assert forest.leaf_map(x[:, :, 0, 0]).shape == (6, 4)
    if margin == "projection":
        return
    path_map = forest.path_map(x)
    assert path_map.dtype == torch.int32
    assert path_map.shape == (6, 4, 3, 2, 3)
    if kind == "tree":
        path = hinge.tree_path(leaf, f).feature.reshape(*by_point, 3)
        assert torch.equal(path_map, torch.tensor(path).permute(0, 3, 1, 2, 4))
        assert torch.equal(path_map[..., 0], forest.features[:, 0].view(1, 4, 1, 1).expand(6, 4, 3, 2))
    else:
        assert torch.equal(path_map[2, :, 1, 1], forest.features)


@pytest.mark.parametrize(
    "method", ["median_thresholds", "from_forest", "thresholds_consistent", "repair_thresholds", "path_map"]
)
def test_what_projections_do_not_have(kind, method):
    forest = forest_of(kind, margin="projection")
    given = {"median_thresholds": 1, "path_map": 1, "from_forest": 3}.get(method, 0)
    before = copy.deepcopy(forest.state_dict())
    with pytest.raises(
        ValueError, match="^(margin: expected 'column', got 'projection'|kind: expected 'tree')"
    ):
        getattr(forest, method)(*(torch.randn(4, 5),) * given)
    assert all(torch.equal(before[name], a) for name, a in forest.state_dict().items())


def test_medians(kind):
    forest = forest_of(kind)
    before = forest.thresholds
    x = torch.randn(50, 5, 2) * 100
    forest.median_thresholds(x)
    medians = hinge.median_thresholds(
        x.transpose(1, 2).reshape(-1, 5).numpy(), forest.features.numpy(), kind=kind
    )
    np.testing.assert_array_equal(forest.thresholds.detach(), medians, strict=True)
    assert forest.thresholds is before
    if kind == "tree":
        assert (forest.leaf_counts(x) > 0).all()


@pytest.mark.parametrize("aggregate", ["sum", "mean", None])
def test_start_from_a_grown_forest(aggregate):
    x = torch.randn(200, 5)
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
    grown = hforest.grow(x.numpy(), y.numpy(), 4, max_depth=3, rng=0)
    forest = ht.HingeForest(5, 4, 3, 3, aggregate=aggregate)
    intercept = forest.from_forest(x, y, grown)
    parameters, same_intercept, _ = hinge.from_forest(x.numpy(), y.numpy(), grown, 3)
    np.testing.assert_array_equal(forest.thresholds.detach(), parameters.thresholds, strict=True)
    np.testing.assert_array_equal(forest.features, parameters.features, strict=True)
    np.testing.assert_array_equal(intercept, same_intercept, strict=True)
    scores = forest(x) if aggregate else forest(x).mean(dim=1)
    expected = hinge.forward(x.numpy(), *parameters, aggregate="sum")
    np.testing.assert_allclose(scores.detach(), expected, rtol=1e-5, atol=1e-5)
    assert ((scores + intercept).argmax(dim=1) == y).float().mean() > 0.8
    regression = ht.HingeForest(5, 4, 3, 2, aggregate=aggregate)
    grown = hforest.grow(x.numpy(), x[:, :2].numpy(), 4, max_depth=3, task="regression", rng=0)
    for targets in (x[:, :2], None):
        intercept = regression.from_forest(x, targets, grown, task="regression")
        p = regression(x) if aggregate else regression(x).mean(dim=1)
        assert ((p + intercept - x[:, :2]) ** 2).mean() < 0.5 * x[:, :2].var()
    with pytest.raises(ValueError, match="^forest: expected n_trees = 4 and outputs = .3,., got 4 and .2,."):
        forest.from_forest(x, x[:, :2], grown, task="regression")
    with pytest.raises(ValueError, match="^kind: expected 'tree'"):
        forest_of("fern").from_forest(x, y, grown)


def test_thresholds_are_repaired(kind):
    forest = ht.HingeForest(2, 5, 5, kind=kind)
    consistent = forest.thresholds_consistent()
    assert consistent.shape == forest.thresholds.shape
    assert consistent.dtype == torch.bool
    before = forest.thresholds.detach().clone()
    forest.repair_thresholds()
    assert forest.thresholds_consistent().all()
    if kind == "tree":
        assert not consistent.all()
        expected = hinge.repair_thresholds(before.numpy(), forest.features.numpy())
        np.testing.assert_array_equal(forest.thresholds.detach(), expected, strict=True)
    else:
        assert torch.equal(forest.thresholds, before)


def test_bad_settings_and_input(kind, margin):
    forest = forest_of(kind, margin=margin)
    for x in (torch.randn(6), torch.randn(()), torch.randn(3, 6), torch.randn(3, 6, 2)):
        with pytest.raises(ValueError, match=r"^x: expected shape \(n_samples, in_features, \.\.\.\)"):
            forest(x)
    with pytest.raises(TypeError, match="^x: expected a torch.Tensor, got ndarray"):
        forest(np.zeros((3, 5), np.float32))
    with pytest.raises(ValueError, match="^x: expected finite numbers, got nan at index"):
        forest(torch.full((3, 5), float("nan")))
    for settings, error, words in (
        ({"kind": "bush"}, ValueError, "kind: expected one of"),
        ({"margin": "columns"}, ValueError, "margin: expected one of"),
        ({"aggregate": "max"}, ValueError, "aggregate: expected one of"),
        ({"dtype": torch.float16}, TypeError, "dtype: expected float32 or float64, got torch.float16"),
        ({"depth": 31}, ValueError, "depth: expected 1 to 30"),
    ):
        with pytest.raises(error, match=f"^{words}"):
            ht.HingeForest(5, 4, **{"depth": 3, "margin": margin} | settings)
    settings = f"kind='{kind}', margin='{margin}', aggregate='sum'"
    assert repr(forest) == f"HingeForest(5, n_trees=4, depth=3, outputs=(2,), {settings})"


# ----------------------------------------------------------------------------- states of HingeTreeForTorch


def lsb_first_outputs(kind, state, x, depth):
    """Returns outputs of the forest of a state, whose leaves are numbered least significant bit first."""
    t, f, w = (state[name].numpy() for name in ("thresholds", "ordinals", "weights"))
    y = np.zeros((len(x), len(t), *w.shape[2:]), w.dtype)
    for n, row in enumerate(x):
        for m in range(len(t)):
            leaf, v, least = 0, 0, None
            for level in range(depth):
                i = level if kind == "fern" else v
                margin = row[f[m, i]] - t[m, i]
                right = int(margin > 0)
                if least is None or abs(margin) < abs(least):
                    least = margin
                leaf |= right << level
                v = 2 * v + 1 + right
            y[n, m] = w[m, leaf] * abs(least)
    return y


@pytest.mark.parametrize("extra", [(), (3,), (2, 2)], ids=str)
@pytest.mark.parametrize("depth", [1, 4])
def test_states_with_the_least_significant_bit_first(kind, extra, depth):
    n_vertices = 2**depth - 1 if kind == "tree" else depth
    state = {
        "weights": torch.randn(6, 2**depth, *extra),
        "thresholds": torch.randn(6, n_vertices),
        "ordinals": torch.randint(5, (6, n_vertices)),
    }
    kept = {name: t.clone() for name, t in state.items()}
    net = nn.Sequential(nn.Identity(), ht.HingeForest(5, 6, depth, extra, kind=kind, aggregate=None))
    result = net.load_state_dict({f"1.{name}": t for name, t in state.items()})
    assert not result.missing_keys
    assert not result.unexpected_keys
    net[1].load_state_dict(state)
    x = torch.randn(40, 5)
    expected = lsb_first_outputs(kind, state, x.numpy(), depth)
    assert net(x).detach().numpy().tobytes() == expected.tobytes()
    assert all(torch.equal(state[name], kept[name]) for name in kept)
    # Older versions kept the numbers of features in the dtype of the weights.
    net[1].load_state_dict({**state, "ordinals": state["ordinals"].float()})
    assert torch.equal(net[1].features, state["ordinals"].int())
    # Its results for points of an image have the outputs last.
    image = torch.randn(2, 5, 3, 4)
    by_point = lsb_first_outputs(kind, state, image.permute(0, 2, 3, 1).reshape(-1, 5).numpy(), depth)
    theirs = torch.tensor(by_point).reshape(2, 3, 4, 6, *extra).movedim(3, 1)
    ours = (
        net(image).movedim(tuple(range(2, 2 + len(extra))), tuple(range(-len(extra), 0)))
        if extra
        else net(image)
    )
    assert torch.equal(ours, theirs)
    # States of hforest are loaded unchanged.
    again = ht.HingeForest(5, 6, depth, extra, kind=kind, aggregate=None)
    again.load_state_dict(net[1].state_dict())
    assert torch.equal(again(x), net(x))
    with pytest.raises(RuntimeError, match="size mismatch for weights"):
        ht.HingeForest(5, 6, depth + 1, extra, kind=kind).load_state_dict(state)


# ---------------------------------------------------------------------------------------- RunningNorm


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_running_norm_has_the_bits_of_numpy(dtype):
    norm = ht.RunningNorm(5, dtype=dtype)
    mean, var = norm.mean.numpy().copy(), norm.var.numpy().copy()
    for step in range(120):
        x = (3 * torch.randn(1 + step % 7, 5, dtype=dtype) + 1).requires_grad_()
        z = norm(x)
        grad = torch.randn_like(z)
        assert z.detach().numpy().tobytes() == layers.normalize(x.detach().numpy(), mean, var).tobytes()
        z.backward(grad)
        assert x.grad.numpy().tobytes() == layers.normalize_backward(grad.numpy(), var).tobytes()
        layers.normalize_update(x.detach().numpy(), mean, var, step)
        assert norm.mean.numpy().tobytes() == mean.tobytes()
        assert norm.var.numpy().tobytes() == var.tobytes()
    assert norm.step == 120
    norm.eval()
    z = norm(x)
    assert z.detach().numpy().tobytes() == layers.normalize(x.detach().numpy(), mean, var).tobytes()
    assert norm.step == 120
    assert norm.mean.numpy().tobytes() == mean.tobytes()


def test_running_norm_of_images_half_types_and_bad_input():
    norm, rows = ht.RunningNorm(5), ht.RunningNorm(5)
    x = torch.randn(4, 5, 3, 2)
    z = norm(x)
    by_row = rows(x.permute(0, 2, 3, 1).reshape(-1, 5))
    assert torch.equal(z.permute(0, 2, 3, 1).reshape(-1, 5), by_row)
    assert torch.equal(norm.mean, rows.mean)
    assert norm(x.bfloat16()).dtype == torch.float32
    assert repr(norm) == "RunningNorm(5)"
    with pytest.raises(ValueError, match=r"^x: expected shape \(n_samples, n_features, \.\.\.\)"):
        norm(torch.randn(3, 4))
    mean = norm.mean.clone()
    with pytest.raises(ValueError, match="^x: expected finite numbers"):
        norm(torch.full((3, 5), float("inf")))
    assert torch.equal(norm.mean, mean)
    with pytest.raises(TypeError, match="^dtype: expected float32 or float64"):
        ht.RunningNorm(5, dtype=torch.float16)


def test_operators_of_the_normalisation():
    x, mean, var, step = torch.randn(7, 5, requires_grad=True), torch.zeros(5), torch.ones(5), torch.tensor(0)
    ops = torch.ops.hforest
    torch.library.opcheck(ops.normalize.default, (x, mean, var))
    torch.library.opcheck(ops.normalize_backward.default, (x.detach(), var))
    torch.library.opcheck(ops.normalize_update.default, (x.detach(), mean, var, step))
    x, norm = (
        torch.randn(7, 5, dtype=torch.float64, requires_grad=True),
        ht.RunningNorm(5, dtype=torch.float64),
    )
    norm(3 * x.detach())
    norm.eval()
    assert torch.autograd.gradcheck(norm, (x,))
    z = norm(x)
    with pytest.raises(RuntimeError, match="expected at most first derivatives"):
        torch.autograd.grad((z**2).sum(), x, create_graph=True)[0].sum().backward()


# --------------------------------------------------------------------------------------- NeuralForest


@pytest.mark.parametrize("settings", [{}, {"n_functions": 11}, {"loss": "tree"}], ids=str)
def test_neural_forest_is_numpys(settings):
    head = ht.NeuralForest(6, 4, 3, 5, **settings)
    x, y = torch.randn(30, 6), torch.randint(5, (30,))
    f = nn.functional.linear(x, head.linear.weight, head.linear.bias).detach().numpy()
    f = f if head.index is not None else f.reshape(30, 4, 7)
    index = None if head.index is None else head.index.numpy()
    uniform = neural.uniform_leaves(4, 3, 5)
    np.testing.assert_array_equal(head.leaves, uniform, strict=True)
    head.update_leaves(x, y, n_iter=3)
    leaves = neural.update_leaves(f, y.numpy(), uniform, 3, index=index)
    np.testing.assert_array_equal(head.leaves, leaves, strict=True)
    np.testing.assert_array_equal(head(x).detach(), neural.forward(f, leaves, index=index), strict=True)
    loss = head.loss(x, y)
    expected, grad_f = neural.loss_backward(
        f, leaves, y.numpy(), index=index, loss=settings.get("loss", "forest")
    )
    assert loss.item() == np.float32(expected)
    loss.backward()
    np.testing.assert_allclose(
        head.linear.weight.grad, grad_f.reshape(30, -1).T @ x.numpy(), rtol=1e-4, atol=1e-7
    )
    assert head.leaves.requires_grad is False
    assert set(head.state_dict()) >= {"leaves", "linear.weight", "linear.bias"}
    assert ("index" in head.state_dict()) == (head.index is not None)
    head.update_leaves(x, y, n_iter=3, restart=True)
    np.testing.assert_array_equal(head.leaves, leaves, strict=True)


@pytest.mark.parametrize("settings", [{}, {"linear": False}, {"n_functions": 11}], ids=str)
def test_leaves_are_fitted_some_trees_at_a_time(monkeypatch, settings):
    from hforest.torch import heads

    width = 28 if "linear" in settings else 6
    x, y = torch.randn(30, width), torch.randint(5, (30,))
    results = []
    for size in (2**28, 30 * 7 * 4 * 3):
        monkeypatch.setattr(heads, "_BLOCK_BYTES", size)
        torch.manual_seed(1)
        head = ht.NeuralForest(width, 4, 3, 5, **settings)
        head.update_leaves(x, y, n_iter=4)
        results.append(head.leaves)
    torch.testing.assert_close(results[0], results[1])  # the products are of other widths
    assert not torch.equal(results[0], torch.full_like(results[0], 0.2))


def test_neural_forest_on_given_functions():
    f = torch.randn(9, 28, requires_grad=True)
    head = ht.NeuralForest(28, 4, 3, 5, linear=False)
    assert head.linear is None
    assert torch.equal(head(f), ht.neural_forest(f.view(9, 4, 7), head.leaves))
    shared = ht.NeuralForest(28, 40, 3, 5, linear=False, n_functions=28)
    assert torch.equal(shared(f), ht.neural_forest(f, shared.leaves, index=shared.index))
    assert shared.index.unique().numel() == 28
    assert repr(shared) == "NeuralForest(28, n_trees=40, depth=3, n_classes=5, loss='forest')"
    for settings, words in (
        ({"linear": False}, "in_features: expected 28, the number of decision functions"),
        ({"n_functions": 0}, "n_functions: expected at least 1"),
        ({"loss": "mean"}, "loss: expected one of"),
    ):
        with pytest.raises(ValueError, match=f"^{words}"):
            ht.NeuralForest(27, 4, 3, 5, **settings)
    one, two = (ht.NeuralForest(8, 2, 2, 3, generator=torch.Generator().manual_seed(5)) for _ in range(2))
    assert torch.equal(one.linear.weight, two.linear.weight)
    assert one.linear.weight.abs().max() <= 8**-0.5


def test_a_head_learns_with_its_body():
    from hforest import demo

    digits = demo.load_digits()
    x, y = (torch.tensor(a[:1000]) for a in (digits.x_train, digits.y_train))
    x = x.float() / 16
    body, head = nn.Sequential(nn.Linear(64, 32), nn.ReLU()), ht.NeuralForest(32, 10, 5, 10)
    optimizer = torch.optim.Adam([*body.parameters(), *head.parameters()], lr=0.01)
    for _ in range(4):
        head.update_leaves(body(x), y)
        for part in torch.randperm(1000).split(100):
            optimizer.zero_grad()
            head.loss(body(x[part]), y[part].int()).backward()
            optimizer.step()
    assert (head(body(x)).argmax(dim=1) == y).float().mean() > 0.9


# --------------------------------------------------------------------------- compilers, files, processes


def training_step(net, parameters, x, y, lr=0.01):
    """Runs forward, backward and a step of gradient descent."""
    loss = nn.functional.cross_entropy(net(x), y)
    grads = torch.autograd.grad(loss, parameters)
    with torch.no_grad():
        for p, g in zip(parameters, grads, strict=True):
            p.sub_(lr * g)
    return loss.detach()


@pytest.mark.parametrize("compiler", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_a_whole_training_step_is_one_graph(compiler):
    config = torch._dynamo.config
    if not hasattr(config, "trace_autograd_ops"):
        pytest.skip("this PyTorch compiles no torch.autograd.grad: the loss alone is one graph")
    torch.compiler.reset()
    net = network()
    other = copy.deepcopy(net)
    x, y = batch()
    with config.patch(trace_autograd_ops=True):
        step = torch.compile(training_step, fullgraph=True, backend=compiler)
        for _ in range(4):
            found = step(net, tuple(net.parameters()), x, y)
            torch.testing.assert_close(found, training_step(other, tuple(other.parameters()), x, y))
    torch.testing.assert_close(dict(net.state_dict()), dict(other.state_dict()))


def test_the_loss_of_networks_is_one_graph():
    torch.compiler.reset()
    net = network()
    head = ht.NeuralForest(3, 5, 3, 3)
    other, other_head = copy.deepcopy(net), copy.deepcopy(head)

    def loss(net, head, x, y):
        scores = net(x)
        return nn.functional.cross_entropy(scores, y) + head.loss(scores, y)

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    for n in (40, 40, 25):
        x, y = batch(n)
        for module in (net, head, other, other_head):
            module.zero_grad()
        compiled(net, head, x, y).backward()
        loss(other, other_head, x, y).backward()
        torch.testing.assert_close(*(
            [p.grad for module in both for p in module.parameters()] for both in ((net, head), (other, other_head))
        ))  # fmt: skip
    assert torch.equal(net[1].mean, other[1].mean)
    assert net[1].step == 3


@pytest.mark.parametrize("strict", [False, True])
def test_export(strict):
    net = nn.Sequential(network(), ht.NeuralForest(3, 5, 3, 4)).eval()
    x, _ = batch()
    program = torch.export.export(
        net, (x,), dynamic_shapes=({0: torch.export.Dim("n", min=2)},), strict=strict
    )
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    loaded = torch.export.load(file).module()
    for n in (40, 7):
        torch.testing.assert_close(loaded(x[:n]), net(x[:n]), rtol=0, atol=0)
    names = {str(node.target) for node in program.graph.nodes}
    assert {"hforest.hinge_forest.default", "hforest.neural_forest.default"} <= names


def test_files_copies_and_pickles(tmp_path):
    net = nn.Sequential(network(), ht.NeuralForest(3, 5, 3, 4, n_functions=6))
    x, y = batch()
    net[1].loss(net[0](x), y).backward()
    net.eval()
    expected = net(x)
    torch.save(net.state_dict(), tmp_path / "state.pt")
    fresh = nn.Sequential(network(), ht.NeuralForest(3, 5, 3, 4, n_functions=6)).eval()
    assert not torch.equal(fresh(x), expected)
    fresh.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    torch.save(net, tmp_path / "net.pt")
    loaded = torch.load(tmp_path / "net.pt", weights_only=False)
    for other in (fresh, loaded, copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert torch.equal(other(x), expected)
        assert not other.training
    assert type(net[1]).__module__ == "hforest.torch"
    assert torch.equal(net.double()(x.double()).float() > 0, expected > 0)


def test_other_devices():
    with torch.device("meta"):
        modules = ht.HingeForest(5, 10, 4, 3), ht.RunningNorm(5), ht.NeuralForest(5, 2, 2, 3, n_functions=4)
    modules += ht.HingeForest(5, 10, 4, 3, device="meta"), ht.NeuralForest(5, 2, 2, 3, device="meta")
    for module in modules:
        assert all(t.is_meta for t in module.state_dict().values())
        assert module(torch.randn(7, 5, device="meta", requires_grad=True)).shape[0] == 7


class Leaves(torch.utils.data.Dataset):
    """A data set whose leaves a worker process computes."""

    def __init__(self, forest, x):
        self.forest, self.x = forest, x

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.forest(self.x[i : i + 1])[0].detach(), self.forest.leaf_map(self.x[i : i + 1])[0]


def test_workers_that_are_forked_after_threads_ran(kind, threads):
    threads(2)
    forest = ht.HingeForest(5, 20, 6, 3, kind=kind)
    x = torch.randn(2000, 5)
    y, leaf = forest(x), forest.leaf_map(x)
    y.sum().backward()
    loader = torch.utils.data.DataLoader(
        Leaves(forest, x[:40]), batch_size=10, num_workers=2, multiprocessing_context="fork", timeout=60
    )
    found = [torch.cat(parts) for parts in zip(*loader, strict=True)]
    assert torch.equal(found[0], y[:40])
    assert torch.equal(found[1], leaf[:40])
    assert torch.equal(forest(x), y)


PROCESSES = """
import os, sys, torch, torch.distributed as dist
import hforest.torch as ht
from torch import nn

def main(rank, file, result):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + file, rank=rank, world_size=2)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8, bias=False), ht.HingeForest(8, 10, 4, 3, scale=1.0))
    net = nn.parallel.DistributedDataParallel(net)
    x, y = torch.randn(40, 6), torch.randint(3, (40,))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        half = slice(20 * rank, 20 * rank + 20)
        nn.functional.cross_entropy(net(x[half]), y[half]).backward()
        optimizer.step()
    torch.save(net.module.state_dict(), f"{result}.{rank}")
    dist.barrier()
    os._exit(0)  # PyTorch's own end of a gloo group may wait for ever

if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
"""


def test_two_processes_train_as_one(tmp_path):
    script = tmp_path / "processes.py"
    script.write_text(PROCESSES)
    result = tmp_path / "state"
    command = [sys.executable, str(script)]
    running = [
        subprocess.Popen(
            [*command, str(rank), str(tmp_path / "store"), str(result)], stderr=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    try:
        for process in running:
            _, errors = process.communicate(timeout=240)
            assert process.returncode == 0, errors
    finally:
        for process in running:
            process.kill()
    first, second = (torch.load(f"{result}.{rank}") for rank in range(2))
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8, bias=False), ht.HingeForest(8, 10, 4, 3, scale=1.0))
    x, y = torch.randn(40, 6), torch.randint(3, (40,))
    for _ in range(3):
        training_step(net, tuple(net.parameters()), x, y, lr=0.1)
    for name, wanted in net.state_dict().items():
        assert torch.equal(first[name], second[name])
        torch.testing.assert_close(first[name], wanted)
