"""Layers beside PyTorch's own: import time, states, initial values, shapes of inputs, function transforms."""

import copy
import io
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install torch")
ht = pytest.importorskip("hforest.torch")
nn = torch.nn

# Each kind of layer, and an input of three samples.
LAYERS = {
    "tree": (lambda **settings: ht.HingeForest(5, 4, 3, 2, **settings), (3, 5)),
    "fern": (lambda **settings: ht.HingeForest(5, 4, 3, 2, kind="fern", **settings), (3, 5)),
    "projection": (lambda **settings: ht.HingeForest(5, 4, 3, 2, margin="projection", **settings), (3, 5)),
    "sequential": (
        lambda **settings: ht.HingeForest(5, 4, 3, features="sequential", scale=2.0, **settings),
        (3, 5),
    ),
    "convolution": (
        lambda **settings: ht.HingeConv2d(2, 4, 3, (3, 2), 2, groups=2, **settings),
        (3, 2, 6, 5),
    ),
    "shared": (lambda **settings: ht.NeuralForest(5, 2, 3, 4, n_functions=6, **settings), (3, 5)),
    "neural": (lambda **settings: ht.NeuralForest(5, 2, 3, 4, **settings), (3, 5)),
    "normalisation": (lambda generator=None, **settings: ht.RunningNorm(5, **settings), (3, 5)),
}
layers = pytest.mark.parametrize("layer", LAYERS)


def same_state(a, b):
    torch.testing.assert_close(dict(a.state_dict()), dict(b.state_dict()), rtol=0, atol=0)


def test_the_import_leaves_out_the_compiler():
    code = (
        "import sys, hforest.torch; print([name for name in sys.modules if name.startswith('torch._dynamo')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=300
    )
    assert done.stdout.strip() == "[]"


# ------------------------------------------------------------------------------------------------- states


def other_sizes():
    """Returns pairs of layers whose tensors have the same shapes, and what the message says of the first."""
    conv = "in_channels = {}, kernel_size = {}, groups = {}, vector_features = {}"
    here = ht.HingeConv2d(2, 4, 3, (2, 3), 2)
    pairs = [
        (ht.HingeForest(9, 4, 3), ht.HingeForest(8, 4, 3), "in_features = 9"),
        (ht.HingeForest(8, 4, 3), ht.HingeForest(9, 4, 3), "in_features = 8"),
    ]
    for settings in ((2, (3, 2), 1, 0), (3, (2, 3), 1, 0), (4, (2, 3), 2, 0), (2, (2, 3), 1, 2)):
        channels, kernel, groups, vector = settings
        there = ht.HingeConv2d(channels, 4, 3, kernel, 2 * groups, groups=groups, vector_features=vector)
        pairs.append((there, here, conv.format(*settings)))
    six, four = (ht.HingeConv1d(12 // size, 4, 3, size, margin="projection") for size in (2, 3))
    pairs.append((six, four, "in_channels = 6, kernel_size = (2,)"))
    six, seven = (ht.NeuralForest(n, 2, 3, 4, linear=False, n_functions=n) for n in (6, 7))
    pairs.append((six, seven, "in_features = 6, n_functions = 6"))
    return pairs


@pytest.mark.parametrize("strict", [False, True])
def test_a_state_of_another_input_is_refused(strict):
    for there, here, words in other_sizes():
        name = "index" if isinstance(here, ht.NeuralForest) else "features"
        for net, other in ((here, there), (nn.Sequential(here), nn.Sequential(there))):
            file = io.BytesIO()
            torch.save(other.state_dict(), file)
            file.seek(0)
            state = torch.load(file, weights_only=True)
            with pytest.raises(
                RuntimeError, match=f"size mismatch for .*{name}: expected the state of"
            ) as error:
                net.load_state_dict(state, strict=strict)
            assert words in str(error.value)
            before = copy.deepcopy(other)
            other.load_state_dict(state, strict=strict)
            same_state(other, before)


def test_states_without_sizes_are_checked_by_their_columns():
    small, large = ht.HingeForest(3, 40, 3), ht.HingeForest(9, 40, 3)
    with pytest.raises(RuntimeError, match=r"features: expected .* in_features = 3, got columns 0 to 8"):
        small.load_state_dict(dict(large.state_dict()))
    large.load_state_dict(dict(small.state_dict()))
    assert torch.equal(large.features, small.features)
    negative = dict(small.state_dict()) | {"features": torch.full_like(small.features, -1)}
    with pytest.raises(RuntimeError, match="got columns -1 to -1"):
        small.load_state_dict(negative)


@layers
def test_keys_of_states_are_names_of_tensors(layer):
    made = LAYERS[layer][0]()
    names = {name for name, _ in made.named_parameters()} | {name for name, _ in made.named_buffers()}
    assert set(made.state_dict()) == names


# ----------------------------------------------------------------------------------------- initial values


@layers
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_initial_values_again(layer, dtype):
    make, shape = LAYERS[layer]
    torch.manual_seed(3)
    new = make(dtype=dtype)
    torch.manual_seed(4)
    changed = make(dtype=dtype)
    changed.train()(torch.randn(shape, dtype=dtype))
    for p in changed.parameters():
        p.data.add_(1)
    torch.manual_seed(3)
    changed.reset_parameters()
    same_state(changed, new)
    empty = make(device="meta", dtype=dtype)
    assert all(t.is_meta for t in empty.state_dict().values())
    empty.reset_parameters()  # nothing to draw
    empty.to_empty(device="cpu")
    torch.manual_seed(3)
    empty.reset_parameters()
    same_state(empty, new)
    if layer != "normalisation":
        one, two = (torch.Generator().manual_seed(7) for _ in range(2))
        changed.reset_parameters(one)
        same_state(changed, make(dtype=dtype, generator=two))
    assert torch.equal(empty(torch.ones(shape, dtype=dtype)), new(torch.ones(shape, dtype=dtype)))


def test_initial_values_of_vectors_and_after_missed_steps():
    conv = ht.HingeConv2d(3, 4, 3, 3, vector_features=2)
    torch.manual_seed(1)
    conv.reset_parameters()
    torch.manual_seed(1)
    same_state(conv, ht.HingeConv2d(3, 4, 3, 3, vector_features=2))
    forest = ht.HingeForest(5, 4, 3, 2, sparse=True)
    optimizer = ht.RowAdam(forest.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        forest(torch.randn(2, 5)).sum().backward()
        optimizer.step()
    torch.manual_seed(2)
    forest.reset_parameters()
    torch.manual_seed(2)
    assert torch.equal(forest.weights, ht.HingeForest(5, 4, 3, 2).weights)


# --------------------------------------------------------------------------------------- shapes of inputs


@pytest.mark.parametrize("aggregate", ["sum", None])
@pytest.mark.parametrize("batch", [(), (4,), (4, 3), (2, 0), (2, 3, 2)], ids=str)
def test_batches_as_of_linear(aggregate, batch):
    x = torch.randn(*batch, 5)
    forest = ht.HingeForest(5, 6, 3, (2, 2), scale=1.0, dim=-1, aggregate=aggregate)
    rows = x.reshape(-1, 5)
    y = forest(rows)
    assert torch.equal(forest(x), y.reshape(*batch, *y.shape[1:]))
    assert torch.equal(forest.leaf_map(x), forest.leaf_map(rows).reshape(*batch, 6))
    assert torch.equal(forest.path_map(x), forest.path_map(rows).reshape(*batch, 6, 3))
    assert torch.equal(forest.leaf_counts(x), forest.leaf_counts(rows))
    norm, other = ht.RunningNorm(5, dim=-1), ht.RunningNorm(5)
    for _ in range(2):
        assert torch.equal(norm(x), other(rows).reshape(x.shape))
    same_state(norm, other)
    for settings in ({}, {"n_functions": 6}):
        head = ht.NeuralForest(5, 2, 3, 4, **settings)
        labels = torch.randint(4, batch)
        assert torch.equal(head(x), head(rows).reshape(*batch, 4))
        torch.testing.assert_close(head.decisions(x), head.decisions(rows).reshape(head.decisions(x).shape))
        assert head.decisions(x).shape[: len(batch)] == batch
        if rows.shape[0]:
            assert torch.equal(head.loss(x, labels), head.loss(rows, labels.reshape(-1)))
            head.update_leaves(x, labels)
            fitted = head.leaves.clone()
            head.update_leaves(rows, labels.reshape(-1), restart=True)
            assert torch.equal(head.leaves, fitted)


def test_one_sample_and_its_gradient():
    forest, norm, x = ht.HingeForest(5, 6, 3, 2, scale=1.0), ht.RunningNorm(5).eval(), torch.randn(5)
    one, row = x.clone().requires_grad_(), x[None].clone().requires_grad_()
    y = forest(norm(one))
    assert torch.equal(y[None], forest(norm(row)))
    y.sum().backward()
    forest(norm(row)).sum().backward()
    assert torch.equal(one.grad[None], row.grad)
    assert forest.leaf_map(x).shape == (6,)
    assert forest.path_map(x).shape == (6, 3)
    assert repr(ht.HingeForest(5, 6, 3, dim=-1)).endswith("dim=-1)")
    assert repr(ht.RunningNorm(5, dim=-1)) == "RunningNorm(5, dim=-1)"


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: ht.HingeForest(5, 6, 3, dim=-1), (3, 5, 4)),
        (lambda: ht.RunningNorm(5, dim=-1), (3, 5, 4)),
        (lambda: ht.NeuralForest(5, 2, 2, 3), (3, 4)),
        (lambda: ht.NeuralForest(5, 2, 2, 3), (5, 3)),
        (lambda: ht.NeuralForest(6, 2, 2, 3, linear=False), (4, 2, 3)),
        (lambda: ht.NeuralForest(5, 2, 2, 3), ()),
    ],
)
def test_shapes_are_named(make, shape):
    layer = make()
    names = r"\(\.\.\., (in|n)_features\) = \(\.\.\., [56]\)"
    with pytest.raises(ValueError, match=rf"^x: expected shape {names}, got \({str(shape)[1:-1]}\); pass"):
        layer(torch.zeros(shape))


def test_messages_of_arguments():
    head = ht.NeuralForest(5, 2, 2, 3)
    with pytest.raises(TypeError, match="^x: expected a torch.Tensor, got int"):
        head(3)
    for call in (head.loss, head.update_leaves):
        with pytest.raises(
            ValueError, match=r"^y: expected shape \(4, 2\), got \(8,\); pass a label for each"
        ):
            call(torch.zeros(4, 2, 5), torch.zeros(8, dtype=torch.int64))
    for layer, sizes in ((ht.HingeForest, (5, 4, 3)), (ht.RunningNorm, (5,))):
        with pytest.raises(ValueError, match="^dim: expected 1 or -1, got 2; pass 1 for"):
            layer(*sizes, dim=2)
    needs = r"call HingeConv2d\(in_channels, n_trees, depth, kernel_size\)"
    with pytest.raises(TypeError, match=rf"^depth: expected a value, got none; {needs}$"):
        ht.HingeConv2d(3, 4)
    with pytest.raises(TypeError, match=rf"^in_channels: expected a value, got none; {needs}$"):
        ht.HingeConv2d(n_trees=4, depth=3, kernel_size=3)
    with pytest.raises(
        TypeError, match=r"got none; call NeuralForest\(in_features, n_trees, depth, n_classes\)"
    ):
        ht.NeuralForest(3)


# ------------------------------------------------------------------------------------------------ padding


@pytest.mark.parametrize("kernel", [(3, 3), (2, 4), (1, 2)], ids=str)
@pytest.mark.parametrize("dilation", [1, (1, 3)], ids=str)
def test_same_padding_is_that_of_conv2d(kernel, dilation):
    x, layers = torch.randn(2, 3, 7, 6), []
    for padding in ("same", "valid"):
        torch.manual_seed(0)
        layers.append(ht.HingeConv2d(3, 5, 3, kernel, 2, padding=padding, dilation=dilation))
    steps = (dilation, dilation) if isinstance(dilation, int) else dilation
    totals = [d * (k - 1) for d, k in zip(steps, kernel, strict=True)]
    sides = [n for total in reversed(totals) for n in (total // 2, total - total // 2)]
    y = layers[0](x)
    assert y.shape == (2, 2, 7, 6)
    assert torch.equal(y, layers[1](nn.functional.pad(x, sides)))
    convolution = nn.Conv2d(3, 1, kernel, padding="same", dilation=dilation)
    assert list(convolution._reversed_padding_repeated_twice) == sides
    assert ("padding='same'" in repr(layers[0])) == any(total % 2 for total in totals)


@pytest.mark.parametrize(("layer", "n_axes"), [(ht.HingeConv1d, 1), (ht.HingeConv2d, 2), (ht.HingeConv3d, 3)])
def test_same_padding_in_any_number_of_axes(layer, n_axes):
    made = layer(2, 4, 3, 4, 2, padding="same")
    x = torch.randn(2, 2, *(5,) * n_axes, requires_grad=True)
    y = made(x)
    assert y.shape == (2, 2, *(5,) * n_axes)
    y.sum().backward()
    assert x.grad.isfinite().all()
    with pytest.raises(ValueError, match="^stride: expected 1 with padding='same', got 2; choose stride=1"):
        layer(2, 4, 3, 4, padding="same", stride=2)
    with pytest.raises(TypeError, match="^padding: expected an int or one int for each"):
        layer(2, 4, 3, 4, padding="full")


def test_every_window_reads_the_vector():
    layer = ht.HingeConv1d(1, 8, 2, 2, padding="same", vector_features=1)
    with torch.no_grad():
        layer.features.fill_(3)  # the number of the vector
        layer.weights.normal_()
    y = layer(torch.randn(1, 1, 6), torch.ones(1, 1))
    assert torch.equal(y, y[..., :1].expand_as(y))


# -------------------------------------------------------------------------------------- function transforms

TRANSFORMED = {
    "tree": lambda: ht.HingeForest(5, 4, 3, 2, scale=1.0),
    "fern": lambda: ht.HingeForest(5, 4, 3, (), kind="fern", scale=1.0, aggregate=None),
    "projection": lambda: ht.HingeForest(5, 4, 3, 2, scale=1.0, margin="projection"),
    "neural": lambda: ht.NeuralForest(5, 2, 3, 2),
    "shared": lambda: ht.NeuralForest(5, 2, 3, 2, n_functions=4),
    "normalisation": lambda: ht.RunningNorm(5).eval(),
}


@pytest.fixture(params=TRANSFORMED)
def model(request):
    """Returns a layer, its parameters and a batch."""
    torch.manual_seed(0)
    layer = TRANSFORMED[request.param]().double()
    return layer, dict(layer.named_parameters()), torch.randn(6, 5, dtype=torch.float64)


def of(layer):
    """Returns the sum of squared outputs as a function of parameters and input."""
    return lambda p, x: torch.func.functional_call(layer, p, (x,)).square().sum()


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_gradients_as_functions(model):
    layer, p, x = model
    leaf = x.clone().requires_grad_()
    by_x, *by_p = torch.autograd.grad(of(layer)(p, leaf), [leaf, *p.values()])
    assert by_x.any()
    found_p, found_x = torch.func.grad(of(layer), argnums=(0, 1))(p, x)
    assert torch.equal(found_x, by_x)
    assert all(torch.equal(a, b) for a, b in zip(found_p.values(), by_p, strict=True))
    y, pull = torch.func.vjp(layer, x)
    assert torch.equal(pull(2 * y.detach())[0], by_x)
    each = torch.func.vmap(torch.func.grad(of(layer), argnums=(0, 1)), in_dims=(None, 0))(p, x)
    close(each[1], by_x)
    for a, b in zip(each[0].values(), by_p, strict=True):
        assert a.shape == (6, *b.shape)
        close(a.sum(0), b)
    close(torch.func.grad(lambda x: torch.func.vmap(layer)(x).square().sum())(x), by_x)


def test_jacobians(model):
    layer, _, x = model
    functional = torch.autograd.functional
    expected = functional.jacobian(layer, x)
    close(torch.func.jacrev(layer)(x), expected)
    close(functional.jacobian(layer, x, vectorize=True), expected)
    diagonal = expected[range(6), ..., range(6), :]
    close(torch.func.vmap(torch.func.jacrev(layer))(x), diagonal)
    leaf = x.clone().requires_grad_()
    y = layer(leaf)
    grads = torch.randn(3, *y.shape, dtype=y.dtype)
    (found,) = torch.autograd.grad(y, leaf, grads, is_grads_batched=True, retain_graph=True)
    close(found, torch.stack([torch.autograd.grad(y, leaf, g, retain_graph=True)[0] for g in grads]))


def test_batches_of_samples_are_one_call(model, monkeypatch):
    layer, p, x = model
    calls = []
    module = sys.modules["hforest.torch.normalization"].layers
    for owner, name in ((sys.modules["hforest.hinge"], "forward"), (sys.modules["hforest.hinge"], "forward_with_route"),
                        (sys.modules["hforest.neural"], "forward"), (module, "normalize")):  # fmt: skip
        whole = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *a, whole=whole, **k: (calls.append(1), whole(*a, **k))[1])
    assert torch.equal(torch.func.vmap(layer)(x), layer(x))
    assert len(calls) == 2
    batches = x.reshape(3, 2, 5).transpose(0, 1)
    y = torch.func.vmap(layer, in_dims=1, out_dims=1)(batches)
    close(y, torch.stack([layer(part) for part in batches.unbind(1)], 1))
    with torch.no_grad():
        assert torch.equal(torch.func.vmap(layer)(x), layer(x))
    if p:
        two = {name: torch.stack([a, 2 * a]) for name, a in p.items()}
        y = torch.func.vmap(lambda p: torch.func.functional_call(layer, p, (x,)))(two)
        for k in range(2):
            close(y[k], torch.func.functional_call(layer, {name: a[k] for name, a in two.items()}, (x,)))


def test_losses_and_windows():
    head, x, y = ht.NeuralForest(5, 2, 3, 2), torch.randn(6, 5), torch.tensor([0, 1, 1, 0, 1, 0])
    leaf = x.clone().requires_grad_()
    (expected,) = torch.autograd.grad(head.loss(leaf, y), leaf)
    assert torch.equal(torch.func.grad(lambda x: head.loss(x, y))(x), expected)
    each = torch.func.vmap(torch.func.grad(lambda x, y: head.loss(x, y)))(x, y)
    torch.testing.assert_close(each / 6, expected)
    conv, images = ht.HingeConv2d(2, 4, 3, 2, 2, padding="same"), torch.randn(3, 2, 5, 5)
    assert torch.equal(torch.func.vmap(lambda a: conv(a[None])[0])(images), conv(images))
    each = torch.func.vmap(torch.func.grad(lambda a: conv(a[None]).sum()))(images)
    torch.testing.assert_close(each, torch.func.grad(lambda a: conv(a).sum())(images))


def test_transforms_read_tables_after_their_missed_steps():
    torch.manual_seed(0)
    forest, x = ht.HingeForest(5, 20, 4, 2, sparse=True), torch.randn(6, 5)
    optimizer = ht.RowAdam(forest.parameters(), lr=0.1)
    for _ in range(4):
        optimizer.zero_grad()
        forest(torch.randn(2, 5)).sum().backward()
        optimizer.step()
    forest.sparse = False
    found = torch.func.grad(lambda x: forest(x).square().sum())(x)
    optimizer.flush()
    assert torch.equal(found, torch.func.grad(lambda x: forest(x).square().sum())(x))
    leaf = x.clone().requires_grad_()
    assert torch.equal(found, torch.autograd.grad(forest(leaf).square().sum(), leaf)[0])


def test_what_transforms_refuse(model):
    layer, p, x = model
    second = "^hforest.torch: expected at most first derivatives, got a second derivative"
    inner = torch.func.grad(lambda x: of(layer)(p, x))
    for outer in (torch.func.grad(lambda x: inner(x).sum()), torch.func.jacrev(inner)):
        with pytest.raises(RuntimeError, match=second):
            outer(x)
    head, y = ht.NeuralForest(5, 2, 3, 2).double(), torch.zeros(6, dtype=torch.int64)
    with pytest.raises(RuntimeError, match=second):
        torch.func.grad(lambda x: torch.func.grad(lambda x: head.loss(x, y))(x).sum())(x)
    with pytest.raises(
        RuntimeError, match="^RunningNorm: expected evaluation mode inside a transform of torch.func"
    ):
        torch.func.grad(lambda x: ht.RunningNorm(5).double()(x).sum())(x)
    sparse = ht.HingeForest(5, 4, 3, 2, sparse=True).double()
    with pytest.raises(
        ValueError, match="^sparse: expected False where tensors are on a GPU, traced or transformed"
    ):
        torch.func.grad(lambda x: sparse(x).sum())(x)
    with pytest.raises(RuntimeError, match="^sparse: expected False where tensors are on a GPU, traced or"):
        torch.autograd.functional.jacobian(sparse, x, vectorize=True)
