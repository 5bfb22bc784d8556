"""RowAdam: whatever happens to an optimiser and a model, values equal those of dense Adam, or an error is raised."""

import contextlib
import copy
import gc
import io
import os
import pickle
import random
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install torch")
ht = pytest.importorskip("hforest.torch")

from hforest.hinge import Windows  # noqa: E402
from hforest.torch import rows  # noqa: E402

counts = pytest.mark.skipif(not rows.COUNTS, reason="this PyTorch lets no rows miss steps")

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:Sparse invariant checks"),
]

MODES = ("rows", "backward")
LIVES = 60


def make(mode, kind="tree", depth=5, dtype=torch.float32, lr=0.01, seed=0):
    """Returns a forest and its optimiser: dense Adam, rows, or steps in the backward pass."""
    generator = torch.Generator().manual_seed(seed)
    net = ht.HingeForest(
        4, 3, depth, 2, kind=kind, sparse=mode != "adam", scale=0.1, generator=generator, dtype=dtype
    )
    with torch.no_grad():
        net.thresholds.mul_(0.1)
    return net, optimizer_of(mode, net, lr)


def optimizer_of(mode, net, lr=0.01):
    if mode == "adam":
        return torch.optim.Adam(net.parameters(), lr=lr)
    optimizer = ht.RowAdam(net.parameters(), lr=lr)
    if mode == "backward":
        optimizer.step_in_backward(net.thresholds, net.weights)
    return optimizer


def batch(net, seed, n=2):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 4, generator=generator, dtype=torch.float64).to(net.thresholds.dtype)
    return x, torch.randn(n, 2, generator=generator, dtype=torch.float64).to(x.dtype)


def train(net, optimizer, first, last):
    for step in range(first, last):
        x, goal = batch(net, step)
        optimizer.zero_grad()
        ((net(x) - goal) ** 2).sum().backward()
        optimizer.step()


def trained(mode, last=20, **settings):
    """Returns a forest and an optimiser after some steps, and the forest of dense Adam."""
    pair, (plain, adam) = make(mode, **settings), make("adam", **settings)
    train(*pair, 0, last)
    train(plain, adam, 0, last)
    return *pair, plain, adam


def close(a, b, atol=3e-7):
    torch.testing.assert_close(a.detach(), b.detach(), rtol=0, atol=atol)


def same(net, plain):
    for a, b in zip(net.parameters(), plain.parameters(), strict=True):
        close(a, b)


@contextlib.contextmanager
def unmoved(net):
    """Fails if a block changes a bit of a forest."""
    before = copy.deepcopy(net.state_dict())
    yield
    for name, a in net.state_dict().items():
        assert torch.equal(a, before[name])


def go_on(pairs, first, last):
    """Takes the same steps with forests and their optimisers: net, optimizer, plain, adam."""
    for net, optimizer in (pairs[:2], pairs[2:]):
        train(net, optimizer, first, last)


def use(net, weights):
    n = len(weights)
    x, _ = batch(net, 99, n=5)
    return ht.hinge_forest(x, net.thresholds[:n], net.features[:n], weights, kind=net.kind)


# ------------------------------------------------------------------------------------ what is read


@pytest.mark.parametrize("mode", MODES)
def test_an_optimizer_that_is_collected_takes_its_steps_along(mode):
    def fit(mode):
        net, optimizer = make(mode)
        train(net, optimizer, 0, 20)
        return net

    net, plain = fit(mode), fit("adam")
    gc.collect()
    x, _ = batch(net, 99, n=50)
    close(net(x), plain(x))
    same(net, plain)
    assert type(net.weights) is torch.nn.Parameter
    for n in (net, plain):
        n.zero_grad()
        n(x).sum().backward()  # no optimiser moves it any more
    same(net, plain)
    close(net.weights.grad.to_dense() if net.weights.grad.is_sparse else net.weights.grad, plain.weights.grad)


def through_file(w):
    file = io.BytesIO()
    torch.save(w, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


class Passing(torch.utils._python_dispatch.TorchDispatchMode):
    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        return function(*arguments, **keywords or {})


def in_mode(net):
    with Passing():
        return net.weights * 1


def in_autocast(net):
    with torch.autocast("cpu", torch.bfloat16):
        return net(batch(net, 9)[0].bfloat16())


READS = {
    "slice": lambda net: use(net, net.weights[:2]),
    "whole": lambda net: use(net, net.weights),
    "windows": lambda net: ht.hinge_forest(
        torch.ones(1, 4, 3), net.thresholds, net.features, net.weights, kind=net.kind, windows=Windows(1)
    ),
    "detach": lambda net: net.weights.detach(),
    "data": lambda net: net.weights.data,
    "double": lambda net: net.weights.double(),
    "numpy": lambda net: torch.from_numpy(net.weights.detach().numpy()),
    "sum": lambda net: net.weights.sum(),
    "keyword": lambda net: torch.add(torch.zeros(2), other=net.weights),
    "list": lambda net: torch.stack([net.weights, net.weights]),
    "norm": lambda net: torch.nn.utils.parameters_to_vector(net.parameters()),
    "vmap": lambda net: torch.func.vmap(lambda w: w.sum())(net.weights),
    "Parameter": lambda net: torch.nn.Parameter(net.weights),
    "deepcopy": lambda net: copy.deepcopy(net).weights,
    "copy": lambda net: copy.copy(net.weights),
    "pickle": lambda net: pickle.loads(pickle.dumps(net)).weights,
    "save": lambda net: through_file(net.weights),
    "state_dict": lambda net: net.state_dict()["weights"],
    "keep_vars": lambda net: net.state_dict(keep_vars=True)["weights"][1],
    "model.double": lambda net: net.double().weights,
    "model.half": lambda net: net.half().weights.float(),
    "iterate": lambda net: next(iter(net.weights)),
    "foreach": lambda net: torch._foreach_mul([net.weights], 2)[0],
    "thresholds": lambda net: net.thresholds * 1,
    "dispatch mode": lambda net: in_mode(net),
    "func.grad": lambda net: torch.func.grad(lambda a: (net.weights * a).sum())(torch.ones(2)),
    "functional_call": lambda net: torch.func.functional_call(
        net, dict(net.named_parameters()), (batch(net, 9)[0],)
    ),
    "autocast": lambda net: in_autocast(net),
    "map": lambda net: net.margin_map(batch(net, 9)[0]),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("read", READS)
def test_what_is_read_has_no_missed_steps(read, mode):
    net, optimizer, plain, _ = trained(mode)
    got, want = READS[read](net), READS[read](plain)
    assert isinstance(got, type(want))
    if (mode, read) not in (("backward", "Parameter"), ("backward", "model.double")):
        assert type(got) is type(want)
    close(got, want, atol=5e-4 if read == "model.half" else 3e-7)
    assert not isinstance(got, torch.nn.Parameter) or got.requires_grad
    del optimizer


@pytest.mark.parametrize("mode", MODES)
def test_fake_tensors_do_not_reach_the_memory(mode):
    from torch._subclasses.fake_tensor import FakeTensorMode

    net, _optimizer, plain, _ = trained(mode)
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert (net.weights * 2).shape == (3, 32, 2)
    same(net, plain)


@pytest.mark.parametrize("mode", MODES)
def test_parameters_are_freed_without_a_collection(mode):
    net, optimizer, _, _ = trained(mode)
    weights = weakref.ref(net.weights)
    gc.collect()
    gc.disable()
    try:
        del net, optimizer
        assert weights() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("mode", MODES)
def test_what_is_written_stays(mode):
    net, optimizer, plain, adam = trained(mode)
    for n in (net, plain):
        with torch.no_grad():
            n.weights[1] = 2
            n.weights.data = n.weights.data * 3
            n.weights.mul_(0.1)
    go_on((net, optimizer, plain, adam), 20, 40)
    same(net, plain)


@pytest.mark.parametrize("mode", MODES)
def test_what_shares_memory_sees_every_step(mode):
    net, optimizer, plain, adam = trained(mode, last=0)
    before = [n.weights.detach() for n in (net, plain)]
    arrays = [n.state_dict()["thresholds"].numpy() for n in (net, plain)]
    go_on((net, optimizer, plain, adam), 0, 20)
    close(*before)
    np.testing.assert_allclose(*arrays, rtol=0, atol=3e-7)
    part = net.weights[1:]  # made from a table with missed steps, read after more of them
    go_on((net, optimizer, plain, adam), 20, 30)
    close(part, plain.weights[1:])


class Own(torch.nn.Parameter):
    """A class unknown to RowAdam."""


@counts
@pytest.mark.parametrize("kind", ["Parameter", "Tensor", "Own", "view", "shared"])
def test_tables_of_other_classes(kind):
    base = torch.zeros(6)
    start = {"view": base.view(2, 3), "shared": torch.zeros(2, 3).share_memory_()}.get(
        kind, torch.zeros(2, 3)
    )
    make = {"Tensor": lambda a: a.requires_grad_(), "Own": Own}.get(kind, torch.nn.Parameter)
    table, plain = make(start), torch.nn.Parameter(torch.zeros(2, 3))
    del start  # which shares the memory
    cls, optimizer, adam = type(table), ht.RowAdam([table], lr=0.1), torch.optim.Adam([plain], lr=0.1)
    for row in (0, 1, 1):
        table.grad = torch.sparse_coo_tensor([[row]], torch.ones(1, 3), (2, 3), check_invariants=True)
        plain.grad = table.grad.to_dense()
        optimizer.step()
        adam.step()
    assert isinstance(table, cls)
    assert (type(table) is cls) == (kind in ("Own", "view", "shared"))
    if kind == "view":
        close(base.view(2, 3), plain)
    close(table, plain)
    assert type(table) is cls


@counts
def test_swapped_contents_are_refused():
    net, _optimizer, plain, _ = trained("rows")
    other = torch.nn.Parameter(torch.zeros_like(plain.weights))
    with pytest.raises(RuntimeError, match="weakref"):
        torch.utils.swap_tensors(net.weights, other)
    same(net, plain)


@counts
@pytest.mark.parametrize(("padding", "taken"), [(None, False), (0, False), (None, True)])
def test_an_embedding_takes_the_steps_of_its_rows(padding, taken):
    """The rows that it reads; with `taken` those of a call."""
    found = []
    for optimizer_of in (ht.RowAdam, torch.optim.Adam):
        torch.manual_seed(0)
        in_rows = optimizer_of is ht.RowAdam
        embedding = torch.nn.Embedding(40, 3, sparse=in_rows, dtype=torch.float64, padding_idx=padding)
        optimizer = optimizer_of(embedding.parameters(), lr=0.1)
        generator = torch.Generator().manual_seed(0)
        for _ in range(30):
            read = torch.randint(40, (2, 2), generator=generator)
            if taken and in_rows:
                optimizer.take_missed_steps(embedding.weight, read.unique())
            embedding(read).sin().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        if in_rows:  # no call has taken the steps of all rows
            last = rows.missed(embedding.weight).last
            assert last.min() < 28 < last.max()
            with pytest.raises(IndexError):
                embedding(torch.tensor([40]))
        found.append(embedding.weight.detach())
    torch.testing.assert_close(*found, rtol=0, atol=1e-13)


def test_leaves_outside_of_a_table_are_an_error():
    net, _optimizer, plain, _ = trained("rows")
    x, _ = batch(net, 0)
    deeper = torch.zeros(3, 127), torch.zeros(3, 127, dtype=torch.int32)
    with pytest.raises(ValueError, match="weights"):
        ht.hinge_forest(x, *deeper, net.weights)
    with pytest.raises(ValueError, match="weights|features|thresholds"):
        ht.hinge_forest(x, net.thresholds[:2], net.features[:2], net.weights)
    same(net, plain)


@pytest.mark.parametrize("mode", MODES)
def test_a_cast_is_refused_until_the_state_is_cast(mode):
    net, optimizer, plain, adam = trained(mode)
    for n in (net, plain):
        n.double()
    x, _ = batch(net, 20)
    with torch.no_grad():
        close(net(x), plain(x))
    with pytest.raises(TypeError, match=r"params: expected .* of torch.float32 on cpu as at the last step"):
        train(net, optimizer, 20, 21)
    for n, o in ((net, optimizer), (plain, adam)):
        o.load_state_dict(o.state_dict())
        train(n, o, 20, 40)
    same(net, plain)


@counts
def test_compiled_code_reads_tables_that_miss_steps():
    table = torch.nn.Parameter(torch.zeros(4, 3))
    optimizer = ht.RowAdam([table], lr=0.1)
    torch.compiler.reset()
    compiled = torch.compile(lambda: (table * 2).sum(), backend="eager")
    for step in range(4):
        table.grad = torch.sparse_coo_tensor([[step]], torch.ones(1, 3), (4, 3), check_invariants=True)
        optimizer.step()
        assert type(table) is not torch.nn.Parameter
        got = compiled()
        assert type(table) is torch.nn.Parameter
        close(got, table.sum() * 2, atol=1e-6)
    assert got < -3  # with the steps of all rows


# ------------------------------------------------------------------------------------ what is moved


def dense(net, x):
    """Returns the outputs of a plain copy, and their gradient with respect to x."""
    plain = copy.deepcopy(net)
    plain.sparse = False
    x = x.clone().requires_grad_()
    return plain(x), torch.autograd.grad(plain(x).sum(), x)[0]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("aggregate", ["sum", "mean"])
def test_frozen_forests_are_not_moved(mode, aggregate):
    net, optimizer, _, _ = trained(mode)
    net.aggregate = aggregate
    net.requires_grad_(False)
    x = batch(net, 99)[0].requires_grad_()
    with unmoved(net):
        optimizer.zero_grad()
        net(x).sum().backward()
        optimizer.step()
        got = torch.autograd.grad(net(x).sum(), x)[0]
        close(x.grad, dense(net, x.detach())[1])
        close(got, x.grad)


def test_forests_frozen_between_the_passes_are_not_moved():
    net, optimizer, _, _ = trained("backward")
    x = batch(net, 99)[0].requires_grad_()
    y = net(x).sum()
    with unmoved(net):
        net.requires_grad_(False)
        y.backward()
        optimizer.step()


@pytest.mark.parametrize("change", ["deleted", "off", "twice"])
def test_a_pass_that_comes_too_late_is_refused(change):
    net, optimizer, _, _ = trained("backward")
    y = net(batch(net, 99)[0]).sum()
    if change == "deleted":
        del optimizer
    elif change == "off":
        optimizer.step_in_backward(net.thresholds, net.weights, on=False)
    else:
        y.backward(retain_graph=True)
    message = "backward: expected one forward and one backward pass per step"
    with unmoved(net), pytest.raises(RuntimeError, match=message):
        y.backward()


@pytest.mark.parametrize("how", ["grad", "inputs"])
def test_gradients_by_the_input_alone_move_nothing(how):
    net, optimizer, plain, adam = trained("backward")
    x = batch(net, 99)[0].requires_grad_()
    y = net(x)
    if how == "grad":
        got = torch.autograd.grad(y.sum(), x, retain_graph=True)[0]
    else:
        y.sum().backward(inputs=[x], retain_graph=True)
        got = x.grad
    close(got, dense(net, x.detach())[1])
    same(net, plain)
    adam.zero_grad()
    y.sum().backward()  # the same pass moves when it is asked to
    plain(x).sum().backward()
    for o in (optimizer, adam):
        o.step()
    same(net, plain)


@pytest.mark.parametrize("frozen", ["thresholds", "weights"])
def test_one_frozen_parameter(frozen):
    """With gradients it is unchanged and the other moves; in the backward pass it is refused."""
    net, optimizer, plain, adam = trained("rows")
    fused, in_backward, _, _ = trained("backward")
    for n, o in ((net, optimizer), (plain, adam)):
        getattr(n, frozen).requires_grad_(False)
        train(n, o, 20, 30)
    same(net, plain)
    x, _ = batch(fused, 0)
    y = fused(x).sum()
    getattr(fused, frozen).requires_grad_(False)
    match = "step_in_backward: expected gradients of both thresholds and weights, or of neither"
    with unmoved(fused):
        for call in (y.backward, lambda: fused(x)):
            with pytest.raises(RuntimeError, match=match):
                call()
        with torch.no_grad():
            assert fused(x).shape == (2, 2)
    in_backward.step_in_backward(fused.thresholds, fused.weights, on=False)
    train(fused, in_backward, 20, 30)
    same(fused, plain)


def test_gradients_by_what_moves_are_refused():
    net, _optimizer, plain, _ = trained("backward")
    for p in ([net.weights], [net.thresholds, net.weights]):
        with pytest.raises(
            RuntimeError, match=r"a call of torch.autograd.grad; call optimizer.step_in_backward"
        ):
            torch.autograd.grad(net(batch(net, 0)[0]).sum(), p)
    with pytest.raises(RuntimeError, match="or of neither"):
        net(batch(net, 0)[0]).sum().backward(inputs=[net.weights])
    same(net, plain)


# ------------------------------------------------------------------------------------ forks


def in_child(check):
    """Returns whether `check` holds in a forked child, which has half a minute."""
    child = os.fork()
    if child == 0:
        threading.Timer(30, os._exit, (2,)).start()
        try:
            os._exit(0 if check() else 1)
        except BaseException:
            os._exit(3)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


FORK = """
import os, threading, time, warnings
warnings.simplefilter("ignore")
import torch, hforest.torch as ht

forest = ht.HingeForest(6, 20, 10, 2, sparse=True)
optimizer = ht.RowAdam(forest.parameters(), lr=0.01)
done = threading.Event()
x = torch.randn(300, 6)

def read():
    with torch.no_grad():
        while not done.is_set():
            forest(x)

threads = [threading.Thread(target=read) for _ in range(2)]
for step in range(30):
    forest(x[:3]).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    if step == 5:
        [t.start() for t in threads]
    if step > 9:
        child = os.fork()
        if child == 0:
            with torch.no_grad():
                whole = forest(x)
                forest.weights.sum()
                os._exit(0 if torch.equal(forest(x), whole) else 1)
        until = time.monotonic() + 20
        while True:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid or time.monotonic() > until:
                break
            time.sleep(0.005)
        if not pid:
            os.kill(child, 9)
            os.waitpid(child, 0)
            done.set()
            raise SystemExit("the child hangs")
        assert status == 0, status
done.set()
print("as the parent")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_that_is_forked_while_a_thread_reads_works():
    run = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=200)
    assert run.stdout == "as the parent\n", run.stderr


# ------------------------------------------------------------------------------------ lives


class Life:
    """A forest under RowAdam and one under dense Adam, which undergo the same events."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.mode = self.random.choice(MODES)
        settings = {
            "kind": self.random.choice(["tree", "fern"]),
            "depth": self.random.randint(2, 7),
            "lr": self.random.choice([0.001, 0.005, 0.01]),
            "seed": seed,
        }
        self.settings, self.step = settings, 0
        self.worlds = [[mode, *make(mode, **settings)] for mode in (self.mode, "adam")]
        self.kept = []  # things that hold memory or copies, a pair each

    def both(self, f):
        return [f(*world) for world in self.worlds]

    def compare(self, f, atol=3e-7):
        with torch.no_grad():
            close(*self.both(f), atol)

    # Each method is an event.

    def train(self):
        first, self.step = self.step, self.step + self.random.randint(1, 5)
        net = self.worlds[0][1]
        learns = [p.requires_grad for p in (net.thresholds, net.weights)]
        if not any(learns):
            return
        if self.mode == "backward" and not all(learns):
            with pytest.raises(RuntimeError, match="or of neither"):
                net(batch(net, first)[0])
            return
        self.both(lambda _, net, o: train(net, o, first, self.step))

    def read(self):
        name = self.random.choice([k for k in READS if k not in ("windows", "model.double", "model.half")])
        if name == "autocast" and self.worlds[0][1].weights.dtype == torch.float64:
            return  # refuses half types
        atol = 3e-5 if name in ("sum", "vmap", "func.grad") else 3e-7  # sums of up to 768 numbers
        self.compare(lambda _, net, o: READS[name](net), atol)

    def predict(self):
        seed, n = self.random.randint(0, 99), self.random.choice([1, 10])
        self.compare(lambda _, net, o: net(batch(net, seed, n)[0]))

    def grad_by_input(self):
        seed = self.random.randint(0, 99)
        net = self.worlds[0][1]
        if net.thresholds.requires_grad != net.weights.requires_grad:
            return

        def grad(_, net, o):
            x = batch(net, seed)[0].requires_grad_()
            return torch.autograd.grad(net(x).sum(), x)[0]

        close(*self.both(grad))

    def freeze(self):
        names = self.random.choice([["thresholds"], ["weights"], ["thresholds", "weights"]])

        def apply(_, net, o):
            o.zero_grad()
            for name in names:
                getattr(net, name).requires_grad_(False)

        self.both(apply)

    def thaw(self):
        if self.mode == "backward" and self.random.random() < 0.5:
            return
        self.both(lambda _, net, o: net.requires_grad_(True))

    def cast(self):
        dtype = self.worlds[0][1].weights.dtype

        def apply(_, net, o):
            net.double()
            net(batch(net, 0)[0])
            net.to(dtype)

        with torch.no_grad():
            self.both(apply)

    def cast_and_train(self):
        (_, net, o), first = self.worlds[0], self.step
        if not o.state or not all(p.requires_grad for p in net.parameters()):
            return
        to = torch.float64 if net.weights.dtype == torch.float32 else torch.float32
        self.both(lambda _, net, o: net.to(to))
        with pytest.raises(TypeError, match="params: expected"):
            train(net, o, first, first + 1)
        self.both(lambda _, net, o: o.load_state_dict(o.state_dict()))
        self.both(lambda _, net, o: train(net, o, first, first + 2))
        self.step += 2
        self.settings["dtype"] = to

    def slice(self):
        n = self.random.randint(1, 3)
        self.compare(lambda _, net, o: use(net, net.weights[:n]))

    def keep(self):
        make = self.random.choice(
            [
                lambda net: net.weights.detach(),
                lambda net: net.weights.data[1:],
                lambda net: net.state_dict()["thresholds"],
                lambda net: copy.deepcopy(net).weights,
                lambda net: net.weights.clone(),
            ]
        )
        self.kept.append(self.both(lambda _, net, o: make(net)))

    def drop(self):
        for pair in self.kept:
            close(*pair)
        self.kept = []

    def write(self):
        def apply(_, net, o):
            with torch.no_grad():
                net.weights[0] += 0.01

        self.both(apply)

    def replace_data(self):
        def apply(_, net, o):
            net.weights.data = net.weights.data * 0.5

        self.both(apply)

    def save_and_load(self):
        def apply(world):
            mode, net, o = world
            file = io.BytesIO()
            torch.save({"model": net.state_dict(), "optimizer": o.state_dict()}, file)
            file.seek(0)
            saved = torch.load(file, weights_only=True)
            new, optimizer = make(mode, **self.settings)
            if self.random.random() < 0.5:
                new.load_state_dict(saved["model"])
                optimizer.load_state_dict(saved["optimizer"])
            else:
                optimizer.load_state_dict(saved["optimizer"])
                new.load_state_dict(saved["model"])
            for p, q in zip(new.parameters(), net.parameters(), strict=True):
                p.requires_grad_(q.requires_grad)
            world[1:] = new, optimizer

        for world in self.worlds:
            apply(world)

    def copy(self):
        before = [world[1] for world in self.worlds]
        for world in self.worlds:
            through = copy.deepcopy if self.random.random() < 0.5 else lambda a: pickle.loads(pickle.dumps(a))
            frozen = [p.requires_grad for p in world[1].parameters()]
            world[1:] = through((world[1], world[2]))
            assert [p.requires_grad for p in world[1].parameters()] == frozen
        self.kept.append([net.weights for net in before])

    def collect(self):
        for world in self.worlds:
            world[2] = None
        gc.collect()
        if self.random.random() < 0.5:
            self.predict()
        for world in self.worlds:
            world[2] = optimizer_of(world[0], world[1], self.settings["lr"])

    def swap_states(self):
        ours, plain = (world[2] for world in self.worlds)
        a, b = copy.deepcopy(ours.state_dict()), copy.deepcopy(plain.state_dict())
        ours.load_state_dict(b)
        plain.load_state_dict(a)

    def start_anew(self):
        self.both(lambda _, net, o: o.state.clear())

    def change_rate(self):
        rate = self.random.choice([0.001, 0.004, 0.01])
        for world in self.worlds:
            world[2].param_groups[0]["lr"] = rate

    def take_some(self):
        _, net, o = self.worlds[0]
        n = net.weights.shape[0] * net.weights.shape[1]
        o.take_missed_steps(net.weights, torch.arange(0, n, self.random.randint(1, 5)))

    def fork(self):
        if not hasattr(os, "fork"):
            return
        want = self.worlds[1][1].weights.detach().numpy()
        net = self.worlds[0][1]

        def check():
            with torch.no_grad():
                net(batch(net, 0)[0])
            return np.abs(net.weights.detach().numpy() - want).max() <= 3e-7

        assert in_child(check)

    def die(self):
        """Model, optimiser, parameters, a view and a graph are deleted in any order; the others stay valid."""
        self.train()
        net = self.worlds[0][1]
        x = batch(net, self.step)[0] if net.thresholds.requires_grad == net.weights.requires_grad else None
        del net

        def parts(_, net, o):
            left = {"net": net, "optimizer": o, "weights": net.weights, "thresholds": net.thresholds}
            return left | {"view": net.weights.detach()[1:]} | ({} if x is None else {"outputs": net(x)})

        left = self.both(parts)
        self.worlds = []
        names = self.random.sample(list(left[0]), len(left[0]))
        for i, name in enumerate(names):
            for own in left:
                del own[name]
            if self.random.random() < 0.03:
                gc.collect()
            if self.random.random() < 0.3 or i == len(names) - 2:
                for other in left[0].keys() - {"optimizer"}:
                    (same if other == "net" else close)(*(own[other] for own in left))

    def live(self):
        others = ("both", "compare", "live", "train", "fork", "die")
        events = [name for name in vars(Life) if not name.startswith("_") and name not in others]
        history = []
        try:
            for _ in range(self.random.randint(4, 12)):
                name = "train" if self.random.random() < 0.5 else self.random.choice(events)
                name = "fork" if self.random.random() < 0.02 else name
                history.append(name)
                getattr(self, name)()
            same(self.worlds[0][1], self.worlds[1][1])
            self.drop()
            self.die()
        except BaseException as error:
            raise AssertionError(f"{self.mode} {self.settings}: {history}") from error


@pytest.mark.parametrize("part", range(4))
def test_lives(part):
    for seed in range(part * LIVES // 4, (part + 1) * LIVES // 4):
        Life(seed).live()


@pytest.mark.slow
def test_many_lives():
    for seed in range(LIVES, 2000):
        Life(seed).live()
