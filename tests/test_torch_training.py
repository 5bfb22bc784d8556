"""hforest.torch in training: RowAdam against dense Adam, saved and resumed; networks of Lay et al. 2018."""

import copy
import io
import pickle

import numpy as np
import pytest

from hforest import demo, hinge, optim

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install torch")
ht = pytest.importorskip("hforest.torch")

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:Sparse invariant checks"),
]


@pytest.fixture(params=[torch.float32, torch.float64], ids=["float32", "float64"])
def real(request):
    return request.param


def sparse(rows, values, shape):
    return torch.sparse_coo_tensor(rows, values, shape, check_invariants=True)


def touched(generator, p, most=6):
    """Returns a sparse gradient of up to `most` random (tree, leaf) rows, in random order."""
    n_rows = p.shape[0] * p.shape[1]
    n = int(torch.randint(0, most, (), generator=generator))
    flat = torch.randperm(n_rows, generator=generator)[:n]
    values = torch.randn(n, *p.shape[2:], generator=generator, dtype=p.dtype)
    return sparse(torch.stack([flat // p.shape[1], flat % p.shape[1]]), values, p.shape)


def layer_of(values):
    """Returns a layer whose table has these values."""
    n_trees, n_leaves, *outputs = values.shape
    layer = ht.HingeForest(2, n_trees, n_leaves.bit_length() - 1, outputs, dtype=values.dtype)
    layer.weights = torch.nn.Parameter(values)
    return layer


def tables(optimizer_of, dtype, steps, schedule=None, shape=(5, 8, 3)):
    """Returns a table after steps that touch few of its rows, and a dense parameter."""
    generator = torch.Generator().manual_seed(0)
    layer = layer_of(torch.randn(*shape, generator=generator, dtype=dtype))
    table = layer.weights
    dense = torch.nn.Parameter(torch.randn(4, 2, generator=generator, dtype=dtype))
    optimizer = optimizer_of([table, dense])
    scheduler = schedule(optimizer) if schedule else None
    for _ in range(steps):
        grad = touched(generator, table)
        table.grad = grad if isinstance(optimizer, ht.RowAdam) else grad.to_dense()
        dense.grad = torch.randn(4, 2, generator=generator, dtype=dtype)
        optimizer.step()
        if scheduler:
            scheduler.step()
    return layer.weights.detach(), dense.detach()


SCHEDULES = {
    "constant": None,
    "steps": lambda o: torch.optim.lr_scheduler.StepLR(o, 30, 0.5),
    "every step": lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.98),
    "one cycle": lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.05, total_steps=150),  # changes betas too
}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_rows_are_those_of_dense_adam(real, schedule):
    steps = 150
    got = tables(lambda p: ht.RowAdam(p, lr=0.02), real, steps, SCHEDULES[schedule])
    want = tables(lambda p: torch.optim.Adam(p, lr=0.02), torch.float64, steps, SCHEDULES[schedule])
    if real == torch.float32:  # the same start and gradients, from random numbers of the dtype
        want = tables(lambda p: torch.optim.Adam(p, lr=0.02), real, steps, SCHEDULES[schedule])
    torch.testing.assert_close(got, want, rtol=0, atol=1e-13 if real == torch.float64 else 4e-6)


def test_scalar_leaves_and_other_betas():
    settings = {"lr": 0.02, "betas": (0.8, 0.95), "eps": 1e-3}
    got = tables(lambda p: ht.RowAdam(p, **settings), torch.float64, 80, shape=(3, 4))
    want = tables(lambda p: torch.optim.Adam(p, **settings), torch.float64, 80, shape=(3, 4))
    torch.testing.assert_close(got, want, rtol=0, atol=1e-13)


@pytest.mark.parametrize("schedule", ["constant", "steps", "one cycle"])
@pytest.mark.parametrize("weight_decay", [0.05, 10.0])  # 10: beta1 / (1 - lr weight_decay) is above 1
def test_weight_decay_is_that_of_adamw(real, schedule, weight_decay):
    settings = {"lr": 0.02, "weight_decay": weight_decay}
    got = tables(lambda p: ht.RowAdam(p, **settings), real, 150, SCHEDULES[schedule])
    want = tables(lambda p: torch.optim.AdamW(p, **settings), real, 150, SCHEDULES[schedule])
    close = 1e-13 if real == torch.float64 else 5e-6
    torch.testing.assert_close(got, want, rtol=close, atol=close)


def test_weight_decay_in_groups_and_states():
    torch.manual_seed(0)
    params = [torch.nn.Parameter(torch.randn(3, dtype=torch.float64)) for _ in range(2)]
    groups = [{"params": params[:1], "weight_decay": 0.5}, {"params": params[1:]}]
    optimizer = ht.RowAdam(groups, lr=0.1)
    copies = [torch.nn.Parameter(p.detach().clone()) for p in params]
    adamw = torch.optim.AdamW(
        [{"params": copies[:1], "weight_decay": 0.5}, {"params": copies[1:], "weight_decay": 0.0}], lr=0.1
    )

    def step(optimizer, params):
        for p in params:
            p.grad = 2 * p.detach()
        optimizer.step()

    for _ in range(5):
        step(optimizer, params), step(adamw, copies)
    adamw.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert [group["weight_decay"] for group in adamw.param_groups] == [0.5, 0.0]
    step(optimizer, params), step(adamw, copies)
    if "decoupled_weight_decay" in adamw.param_groups[0]:  # otherwise it could be that of Adam
        optimizer.load_state_dict(adamw.state_dict())
    step(optimizer, params), step(adamw, copies)
    torch.testing.assert_close(params, copies, rtol=0, atol=1e-14)


def test_missed_steps_matter():
    """A reference that is kept outside lags: the values that the other tests compare would differ."""
    layer = layer_of(torch.zeros(1, 2, dtype=torch.float64))
    table = layer.weights
    optimizer = ht.RowAdam([table], lr=0.1)
    for leaf in (0, 1, 1):
        table.grad = sparse([[0], [leaf]], torch.ones(1, dtype=torch.float64), (1, 2))
        optimizer.step()
    before = table[0, 0].item()
    assert layer.weights[0, 0].item() < before - 0.05
    assert layer.weights is table


def test_dense_parameters_have_the_bits_of_hforest(real):
    torch.manual_seed(0)
    plain, images = torch.randn(3, 4, dtype=real), torch.randn(2, 3, 4, 5, dtype=real)
    last = images.to(memory_format=torch.channels_last)
    number = torch.tensor(0.5, dtype=real)
    params = [torch.nn.Parameter(a.clone()) for a in (plain, images, last, number)]
    optimizer = ht.RowAdam(params, lr=0.1)
    arrays = [a.clone().numpy() for a in (plain, images, images, number.reshape(1))]
    moments = [(np.zeros_like(a), np.zeros_like(a)) for a in arrays]
    for step in range(1, 6):
        for p, a, (m, v) in zip(params, arrays, moments, strict=True):
            p.grad = torch.randn(p.shape, dtype=real)
            optim.adam(a, p.grad.numpy().reshape(a.shape), m, v, step, 0.1)
        optimizer.step()
    for p, a in zip(params, arrays, strict=True):
        assert np.array_equal(p.detach().numpy().reshape(a.shape), a)
    assert params[2].is_contiguous(memory_format=torch.channels_last)


def network(mode, kind="tree", depth=4, dtype=torch.float64, lr=0.01):
    """Returns a linear map and a forest with an optimiser: dense Adam, or rows."""
    generator = torch.Generator().manual_seed(3)
    forest = ht.HingeForest(
        5, 6, depth, 3, kind=kind, sparse=mode != "adam", scale=1.0, generator=generator, dtype=dtype
    )
    linear = torch.nn.Linear(5, 5, dtype=dtype)
    with torch.no_grad():
        for p in linear.parameters():
            p.copy_(torch.randn(p.shape, generator=generator, dtype=dtype))
    net = torch.nn.Sequential(linear, forest)
    return net, (torch.optim.Adam if mode == "adam" else ht.RowAdam)(net.parameters(), lr=lr)


def train(net, optimizer, first, last, dtype=torch.float64, evaluate=()):
    """Returns the losses of steps, each with its own batches, and outputs in evaluation."""
    losses, outputs = [], []
    for step in range(first, last):
        generator = torch.Generator().manual_seed(step)
        x, goal = (torch.randn(4, k, generator=generator, dtype=dtype) for k in (5, 3))
        loss = ((net(x) - goal) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step in evaluate:
            with torch.no_grad():
                outputs.append(net(torch.randn(50, 5, generator=generator, dtype=dtype)))
    return losses, outputs


def close(a, b, atol=1e-12):
    torch.testing.assert_close([*a.parameters()], [*b.parameters()], rtol=0, atol=atol)


@pytest.mark.parametrize(("kind", "depth"), [("tree", 4), ("tree", 11), ("fern", 6)])
def test_a_network_trains_as_with_dense_adam(kind, depth):
    (net, optimizer), (plain, adam) = network("rows", kind, depth), network("adam", kind, depth)
    found = []
    for n, o in ((net, optimizer), (plain, adam)):
        scheduler = torch.optim.lr_scheduler.StepLR(o, 1, 0.5)
        parts = []
        for epoch in range(3):
            parts.append(train(n, o, 30 * epoch, 30 * epoch + 30, evaluate=(7, 33, 34, 70)))
            scheduler.step()
        found.append(parts)
    for (losses, outputs), (want, want_outputs) in zip(*found, strict=True):
        np.testing.assert_allclose(losses, want, rtol=1e-11)
        torch.testing.assert_close(outputs, want_outputs, rtol=0, atol=1e-12)  # flush was not called
    close(net, plain)
    assert [p.grad.is_sparse for p in net[1].parameters()] == [False, True]


def same_bits(a, b):
    return all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_saved_and_resumed_to_the_same_bits(dtype):
    net, optimizer = network("rows", depth=11, dtype=dtype)
    train(net, optimizer, 0, 30, dtype)
    file = io.BytesIO()
    torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict()}, file)
    losses = train(net, optimizer, 30, 60, dtype)[0]
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    again, resumed = network("rows", depth=11, dtype=dtype, lr=0.5)
    train(again, resumed, 0, 7, dtype)  # to be forgotten
    again.load_state_dict(saved["model"])
    resumed.load_state_dict(saved["optimizer"])
    assert train(again, resumed, 30, 60, dtype)[0] == losses
    assert same_bits(net, again)
    assert set(saved["optimizer"]["state"][0]) == {"step", "exp_avg", "exp_avg_sq"}


@pytest.mark.parametrize("way", ["deepcopy", "pickle"])
def test_copies_go_on_to_the_same_bits(way):
    net, optimizer = network("rows", depth=11)
    train(net, optimizer, 0, 20)
    both = (net, optimizer)
    net2, optimizer2 = copy.deepcopy(both) if way == "deepcopy" else pickle.loads(pickle.dumps(both))
    found = []
    for n, o in ((net, optimizer), (net2, optimizer2)):
        with torch.no_grad():
            outputs = n(torch.ones(3, 5, dtype=torch.float64))
        losses = train(n, o, 20, 50)[0]
        found.append((losses, outputs.tolist()))
    assert found[0] == found[1]
    assert same_bits(net, net2)
    assert next(net.parameters()).data_ptr() != next(net2.parameters()).data_ptr()


def test_state_goes_to_adam_and_back():
    (net, adam), (other, rows) = network("adam"), network("rows")
    train(net, adam, 0, 20)
    other.load_state_dict(net.state_dict())
    rows.load_state_dict(adam.state_dict())
    for n, o in ((net, adam), (other, rows)):
        train(n, o, 20, 50)
    third, adam2 = network("adam")
    adam2.load_state_dict(rows.state_dict())
    third.load_state_dict(other.state_dict())
    for n, o in ((net, adam), (third, adam2)):
        train(n, o, 50, 70)
    close(net, third)


def test_loading_copies_the_state():
    (net, optimizer), (other, second) = network("rows"), network("rows")
    train(net, optimizer, 0, 5)
    second.load_state_dict(optimizer.state_dict())
    before = optimizer.state_dict()["state"][0]["exp_avg"].clone()
    train(other, second, 5, 10)
    assert torch.equal(optimizer.state_dict()["state"][0]["exp_avg"], before)


def test_gradients_of_several_passes_add_up():
    def step(net, optimizer, first):
        optimizer.zero_grad()
        for part in (first, first + 1, first):
            x = torch.randn(4, 5, generator=torch.Generator().manual_seed(part), dtype=torch.float64)
            net(x).square().sum().backward()
        optimizer.step()

    (net, optimizer), (plain, adam) = network("rows"), network("adam")
    for first in range(40):
        step(net, optimizer, first)
        step(plain, adam, first)
    close(net, plain, atol=1e-11)


def test_a_table_may_have_dense_gradients_at_times():
    def run(optimizer_of):
        generator = torch.Generator().manual_seed(1)
        layer = layer_of(torch.randn(4, 4, generator=generator, dtype=torch.float64))
        table = layer.weights
        optimizer = optimizer_of([table], lr=0.05)
        for step in range(60):
            grad = touched(generator, table)
            dense = step % 7 == 3 or optimizer_of is torch.optim.Adam
            table.grad = grad.to_dense() if dense else grad
            if step % 11 == 5:
                table.grad = None
            optimizer.step()
        return layer.weights.detach()

    torch.testing.assert_close(run(ht.RowAdam), run(torch.optim.Adam), rtol=0, atol=1e-13)


def test_a_second_optimizer_takes_over():
    (net, first), (plain, adam) = network("rows"), network("adam")
    train(net, first, 0, 20)
    train(plain, adam, 0, 20)
    second, adam2 = ht.RowAdam(net.parameters(), lr=0.03), torch.optim.Adam(plain.parameters(), lr=0.03)
    train(net, second, 20, 40)
    train(plain, adam2, 20, 40)
    close(net, plain)


def test_closure_and_groups():
    a, b = (torch.nn.Parameter(torch.zeros(2)) for _ in range(2))
    optimizer = ht.RowAdam([{"params": [a]}, {"params": [b], "lr": 0.5}], lr=0.25)

    def closure():
        optimizer.zero_grad()
        loss = (a + b - 1).square().sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 2
    np.testing.assert_allclose(a.tolist() + b.tolist(), [0.25, 0.25, 0.5, 0.5], rtol=1e-6)


def test_a_step_between_forward_and_backward_is_seen():
    net, optimizer = network("rows")
    train(net, optimizer, 0, 2)
    y = net(torch.ones(2, 5, dtype=torch.float64)).sum()
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_no_rows_and_no_samples():
    net, optimizer = network("rows")
    train(net, optimizer, 0, 3)
    net(torch.zeros(0, 5, dtype=torch.float64)).sum().backward()
    optimizer.step()
    assert optimizer.state_dict()["state"][3]["step"] == 4


@pytest.mark.parametrize(
    ("settings", "kind", "message"),
    [
        ({"lr": -1.0}, ValueError, "lr: expected a finite number >= 0"),
        ({"lr": "fast"}, TypeError, "lr: expected a number"),
        ({"lr": torch.tensor(0.1)}, TypeError, "lr: expected a number, got a Tensor; pass lr.item()"),
        ({"betas": (0.9, 1.0)}, ValueError, "beta2: expected"),
        ({"betas": 0.9}, TypeError, "betas: expected two numbers, got 0.9"),
        ({"eps": 0.0}, ValueError, "eps: expected"),
        ({"weight_decay": -1.0}, ValueError, "weight_decay: expected a finite number >= 0"),
        ({"lr": 0.1, "weight_decay": 10.0}, ValueError, "weight_decay: expected a number below 1 / lr = 10"),
    ],
)
def test_wrong_settings(settings, kind, message):
    with pytest.raises(kind, match=message):
        ht.RowAdam([torch.nn.Parameter(torch.zeros(2))], **settings)


def test_wrong_parameters_and_gradients():
    for dtype in (torch.float16, torch.bfloat16):
        with pytest.raises(TypeError, match="params: expected parameters of float32 or float64, got "):
            ht.RowAdam([torch.nn.Parameter(torch.zeros(2, dtype=dtype))])
    layer = layer_of(torch.zeros(2, 4))
    optimizer = ht.RowAdam(layer.parameters())
    layer.weights.grad = sparse([[0], [1]], torch.ones(1), (2, 4))
    optimizer.step()
    layer.weights.grad = sparse([[1]], torch.ones(1, 4), (2, 4))
    with pytest.raises(
        ValueError, match=r"grad: expected a sparse gradient with the axes \(tree, leaf\), got"
    ):
        optimizer.step()
    turned = layer_of(torch.zeros(4, 2).T)
    other = ht.RowAdam(turned.parameters())
    turned.weights.grad = sparse([[0], [1]], torch.ones(1), (2, 4))
    with pytest.raises(ValueError, match="params: expected a contiguous parameter for a sparse gradient"):
        other.step()


def test_tables_that_belong_to_no_layer_are_refused():
    message = (
        r"params: expected weights of a layer of hforest.torch for a sparse gradient, got a tensor of shape "
    )
    embedding = torch.nn.Embedding(4, 2, sparse=True)
    embedding(torch.tensor([1])).sum().backward()
    table = torch.nn.Parameter(torch.zeros(2, 4))
    table.grad = sparse([[0], [1]], torch.ones(1), (2, 4))
    layer = layer_of(torch.zeros(2, 4))
    gone = layer.weights
    gone.grad = table.grad
    del layer
    for p in (table, gone):
        with pytest.raises(ValueError, match=message + r"\(2, 4\) that belongs to none; use HingeForest"):
            ht.RowAdam([p]).step()
    with pytest.raises(ValueError, match="or torch.optim.SparseAdam$"):
        ht.RowAdam(embedding.parameters()).step()


def test_adam_with_weight_decay_is_not_loaded():
    p = torch.nn.Parameter(torch.zeros(2))
    adam = torch.optim.Adam([p], weight_decay=0.1)
    with pytest.raises(ValueError, match="state_dict: expected decoupled weight decay as in RowAdam"):
        ht.RowAdam([p]).load_state_dict(adam.state_dict())


def test_an_optimizer_that_is_gone_owns_nothing():
    net, optimizer = network("rows")
    train(net, optimizer, 0, 5)
    optimizer.flush()
    del optimizer
    x = torch.ones(2, 5, dtype=torch.float64)
    with torch.no_grad():
        want = hinge.forward(
            net[0](x).numpy(), *(net[1].state_dict()[k].numpy() for k in ("thresholds", "features", "weights")),
            aggregate="sum",
        )  # fmt: skip
        assert np.array_equal(net(x).numpy(), want)


# ------------------------------------------------------------------------------- the paper's networks


@pytest.mark.parametrize("mode", ["dense", "rows"])
@pytest.mark.parametrize(("kind", "n_kernels"), [("tree", 8), ("tree", 0), ("fern", 8)])
def test_network_of_the_paper_is_that_of_numpy(kind, n_kernels, mode, script):
    module = script("hinge_torch")
    digits = demo.load_digits()
    config = demo.Config(
        kind=kind, n_trees=20, depth=5, n_features=30, n_kernels=n_kernels, lr=0.005, steps=40
    )
    rows = module.side_by_side(config, digits.x_train, digits.y_train, mode=mode)
    assert len(rows) == 40
    assert max(row["loss_difference"] for row in rows) < 1e-10
    assert max(row["parameter_difference"] for row in rows[::13]) < 1e-9
    assert rows[-1]["loss"] < rows[0]["loss"]
