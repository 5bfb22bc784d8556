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
prune = pytest.importorskip("torch.nn.utils.prune")

from hforest.hinge import Windows  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:Sparse invariant checks"),
    pytest.mark.filterwarnings("ignore:To copy construct"),
    pytest.mark.filterwarnings("ignore:The .grad attribute"),
]

LIVES = 60


def make(mode, kind="tree", depth=5, dtype=torch.float32, lr=0.01, seed=0):
    """Returns a forest and its optimiser: RowAdam, or dense Adam."""
    generator = torch.Generator().manual_seed(seed)
    net = ht.HingeForest(
        4, 3, depth, 2, kind=kind, sparse=mode == "rows", scale=0.1, generator=generator, dtype=dtype
    )
    with torch.no_grad():
        net.thresholds.mul_(0.1)
    return net, optimizer_of(mode, net, lr)


def optimizer_of(mode, net, lr=0.01):
    return (torch.optim.Adam if mode == "adam" else ht.RowAdam)(net.parameters(), lr=lr)


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


def trained(last=20, **settings):
    """Returns a forest and RowAdam after some steps, and the same of dense Adam."""
    pair, (plain, adam) = make("rows", **settings), make("adam", **settings)
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


def test_an_optimizer_that_is_collected_takes_its_steps_along():
    def fit(mode):
        net, optimizer = make(mode)
        train(net, optimizer, 0, 20)
        return net

    net, plain = fit("rows"), fit("adam")
    gc.collect()
    x, _ = batch(net, 99, n=50)
    close(net(x), plain(x))
    same(net, plain)
    for n in (net, plain):
        n.zero_grad()
        n(x).sum().backward()  # no optimiser moves it any more
    same(net, plain)
    close(net.weights.grad.to_dense(), plain.weights.grad)


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


def shared(net):
    """Returns the weights of another layer that has the same table."""
    other = ht.HingeForest(4, 3, net.depth, 2, kind=net.kind)
    other.weights = net.table  # as it is, with missed steps
    return other.weights


def averaged(net):
    model = torch.optim.swa_utils.AveragedModel(torch.nn.Sequential(net))
    model.update_parameters(torch.nn.Sequential(net))
    return model.module[0].weights


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
    "tensor": lambda net: torch.tensor(net.weights),
    "new_tensor": lambda net: torch.ones(1).new_tensor(net.weights),
    "as_tensor": lambda net: torch.as_tensor(net.weights),
    "asarray": lambda net: torch.asarray(net.weights.detach()),
    "Tensor": lambda net: torch.Tensor(net.weights),
    "from_dlpack": lambda net: torch.from_dlpack(net.weights.detach()),
    "tolist": lambda net: torch.tensor(net.weights.tolist()),
    "new": lambda net: net.weights.new_zeros(2) + net.weights,
    "get_parameter": lambda net: torch.nn.Sequential(net).get_parameter("0.weights"),
    "parameters": lambda net: [*net.parameters(recurse=False)][1],
    "outer": lambda net: [*torch.nn.Sequential(torch.nn.Linear(1, 1), net).parameters()][3],
    "outer state_dict": lambda net: torch.nn.Sequential(net).state_dict()["0.weights"],
    "outer double": lambda net: torch.nn.Sequential(net).double()[0].weights,
    "outer copy": lambda net: copy.deepcopy(torch.nn.Sequential(net))[0].weights,
    "copied layer": lambda net: copy.copy(net).weights,
    "shared table": shared,
    "averaged": averaged,
}


@pytest.mark.parametrize("read", READS)
def test_what_is_read_has_no_missed_steps(read):
    net, optimizer, plain, _ = trained()
    assert net.missed.last.min() < 20  # some rows have missed steps
    got, want = READS[read](net), READS[read](plain)
    assert type(got) is type(want)
    close(got, want, atol=5e-4 if read == "model.half" else 3e-7)
    assert not isinstance(got, torch.nn.Parameter) or got.requires_grad
    del optimizer


def test_a_reference_that_is_kept_lags_until_the_layer_is_read():
    net, optimizer, plain, _ = trained()
    table = net.table
    assert type(table) is torch.nn.Parameter
    lagging = table.detach().clone()
    for read in (lambda: net.weights, optimizer.flush, net.take_missed_steps):
        assert read() in (None, table) if read() is None else read() is table
        close(table, plain.weights)
    assert not torch.equal(lagging, table)
    x, goal = batch(net, 20)
    ((net(x) - goal) ** 2).sum().backward()
    optimizer.step()
    assert type(net.table) is type(net.weights) is torch.nn.Parameter


def test_fake_tensors_do_not_reach_the_memory():
    from torch._subclasses.fake_tensor import FakeTensorMode

    net, _optimizer, plain, _ = trained()
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert (net.weights * 2).shape == (3, 32, 2)
    same(net, plain)


def test_layers_and_parameters_are_freed_without_a_collection():
    net, optimizer, _, _ = trained()
    weights, layer = weakref.ref(net.weights), weakref.ref(net)
    train(net, optimizer, 20, 22)
    gc.collect()
    gc.disable()
    try:
        del net
        assert layer() is None
        del optimizer
        assert weights() is None
    finally:
        gc.enable()


def test_what_is_written_stays():
    net, optimizer, plain, adam = trained()
    for n in (net, plain):
        with torch.no_grad():
            n.weights[1] = 2
            n.weights.data = n.weights.data * 3
            n.weights.mul_(0.1)
    go_on((net, optimizer, plain, adam), 20, 40)
    same(net, plain)


def swapped(net):
    torch.utils.swap_tensors(net.weights, torch.nn.Parameter(torch.ones_like(net.weights)))


REPLACED = {
    "assigned": lambda net: setattr(net, "weights", torch.nn.Parameter(2 * net.weights.detach())),
    "loaded": lambda net: net.load_state_dict(
        {k: v.clone() for k, v in net.state_dict().items()}, assign=True
    ),
    "swapped": swapped,
    "pruned": lambda net: prune.l1_unstructured(net, "weights", 0.5),
    "parametrized": lambda net: torch.nn.utils.parametrizations.weight_norm(net, "weights"),
    "normed": lambda net: torch.nn.utils.weight_norm(net, "weights"),
}


@pytest.mark.parametrize("way", REPLACED)
def test_tables_that_are_replaced(way):
    net, optimizer, plain, adam = trained()
    for n in (net, plain):
        REPLACED[way](n)
    x, _ = batch(net, 99, n=9)
    close(net.weights, plain.weights)
    close(net(x), plain(x))
    net.sparse = False  # what replaces a table has dense gradients
    pairs = [(n, optimizer_of(mode, n)) for mode, n in (("rows", net), ("adam", plain))]
    go_on((*pairs[0], *pairs[1]), 20, 30)
    close(net.weights, plain.weights)
    close(net(x), plain(x))
    del optimizer, adam
    if way == "pruned":
        prune.remove(net, "weights")
        assert type(net.weights) is torch.nn.Parameter


def test_one_table_of_two_layers():
    """The second layer takes the steps that rows missed by those of the first."""
    nets = []
    for mode in ("rows", "adam"):
        (net, optimizer), (other, _) = make(mode), make(mode, seed=1)
        other.weights = net.weights
        model = torch.nn.Sequential(net, other)
        for step in range(40):
            optimizer.zero_grad()
            model[step % 3 == 0](batch(net, step)[0]).square().sum().backward()
            optimizer.step()
        nets.append(model)
    assert nets[0][0].missed is nets[0][1].missed
    assert nets[0][0].missed.last.min() < 38
    x, _ = batch(nets[0][0], 99, n=3)
    close(nets[0][1](x), nets[1][1](x))
    same(*nets)


def test_other_optimizers_move_what_has_no_missed_steps():
    nets = [make(mode) for mode in ("rows", "adam")]
    for net, optimizer in nets:
        other = torch.optim.SGD(optimizer.param_groups[0]["params"], lr=0.1, weight_decay=0.5)
        for step in range(0, 40, 8):
            train(net, optimizer, step, step + 8)
            if step % 3:
                other.zero_grad()
                net(batch(net, step)[0]).sum().backward()
                for p in net.parameters():
                    p.grad = p.grad.to_dense()
                other.step()
    same(nets[0][0], nets[1][0])


class Wrapper(torch.optim.SGD):
    """An optimiser that steps another one, as ZeroRedundancyOptimizer does before it sends parameters."""

    def __init__(self, optimizer):
        super().__init__(optimizer.param_groups[0]["params"], lr=1.0)
        self.optim = optimizer

    def step(self):
        self.optim.step()
        self.sent = [p.detach().clone() for p in self.param_groups[0]["params"]]


def test_an_optimizer_inside_of_another_leaves_no_missed_steps():
    net, optimizer, plain, adam = trained()
    outer = Wrapper(optimizer)
    go_on((net, outer, plain, adam), 20, 25)
    for sent, p in zip(outer.sent, plain.parameters(), strict=True):
        close(sent, p)


def test_shared_memory_has_no_missed_steps():
    net, optimizer, plain, adam = trained()
    net.zero_grad()  # sparse tensors have no memory that can be shared
    net.share_memory()
    table = net.table
    go_on((net, optimizer, plain, adam), 20, 30)
    close(table, plain.weights)


def test_leaves_outside_of_a_table_are_an_error():
    net, _optimizer, plain, _ = trained()
    x, _ = batch(net, 0)
    thresholds, features = net.thresholds, net.features
    for t, f in (
        (torch.zeros(3, 127), torch.zeros(3, 127, dtype=torch.int32)),
        (thresholds[:2].detach(), features[:2]),
    ):
        net.thresholds, net.features = torch.nn.Parameter(t), f
        with pytest.raises(ValueError, match="weights|features|thresholds"):
            net(x)
    net.thresholds, net.features = thresholds, features
    same(net, plain)


def test_a_cast_is_refused_until_the_state_is_cast():
    net, optimizer, plain, adam = trained()
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


@pytest.mark.parametrize("what", ["outputs", "weights"])
def test_compiled_code_reads_tables_that_miss_steps(what):
    (net, optimizer), (plain, adam) = make("rows"), make("adam")
    read = {"outputs": lambda n, x: n(x).sin(), "weights": lambda n, x: (n.weights * 2).sum() + x.sum()}[what]
    torch.compiler.reset()
    compiled = torch.compile(lambda x: read(net, x), backend="eager")
    for step in range(5):
        go_on((net, optimizer, plain, adam), 4 * step, 4 * step + 4)
        assert net.missed.last.min() < 4 * step + 3
        x, _ = batch(net, step)
        close(compiled(x), read(plain, x), atol=1e-4)
        assert what == "outputs" or net.missed is None
    torch.compiler.reset()


def test_compiled_training():
    (net, optimizer), (plain, adam) = make("rows"), make("adam")
    torch.compiler.reset()
    compiled = torch.compile(torch.nn.Sequential(net), backend="eager")
    compiled.thresholds = net.thresholds
    train(compiled, optimizer, 0, 10)
    train(plain, adam, 0, 10)
    assert net.missed.last.min() < 9
    same(net, plain)
    torch.compiler.reset()


# ------------------------------------------------------------------------------------ what is moved


@pytest.mark.parametrize("aggregate", ["sum", "mean"])
def test_frozen_forests_are_not_moved(aggregate):
    net, optimizer, _, _ = trained()
    net.aggregate = aggregate
    net.requires_grad_(False)
    x = batch(net, 99)[0].requires_grad_()
    with unmoved(net):
        optimizer.zero_grad()
        net(x).sum().backward()
        optimizer.step()
        got = torch.autograd.grad(net(x).sum(), x)[0]
        plain = copy.deepcopy(net)
        plain.sparse = False
        close(x.grad, torch.autograd.grad(plain(x).sum(), x)[0])
        close(got, x.grad)


@pytest.mark.parametrize("frozen", ["thresholds", "weights"])
def test_one_frozen_parameter(frozen):
    net, optimizer, plain, adam = trained()
    for n, o in ((net, optimizer), (plain, adam)):
        getattr(n, frozen).requires_grad_(False)
        train(n, o, 20, 30)
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
        settings = {
            "kind": self.random.choice(["tree", "fern"]),
            "depth": self.random.randint(2, 7),
            "lr": self.random.choice([0.001, 0.005, 0.01]),
            "seed": seed,
        }
        self.settings, self.step = settings, 0
        self.worlds = [[mode, *make(mode, **settings)] for mode in ("rows", "adam")]
        self.kept = []  # layers, and things that hold memory or copies of their weights, a pair each

    def both(self, f):
        return [f(*world) for world in self.worlds]

    def compare(self, f, atol=3e-7):
        with torch.no_grad():
            close(*self.both(f), atol)

    # Each method is an event.

    def train(self):
        first, self.step = self.step, self.step + self.random.randint(1, 5)
        net = self.worlds[0][1]
        if any(p.requires_grad for p in (net.thresholds, net.table)):
            self.both(lambda _, net, o: train(net, o, first, self.step))

    def read(self):
        name = self.random.choice(
            [k for k in READS if k not in ("windows", "model.double", "outer double", "model.half")]
        )
        if name == "autocast" and self.worlds[0][1].weights.dtype == torch.float64:
            return  # refuses half types
        atol = 3e-5 if name in ("sum", "vmap", "func.grad") else 3e-7  # sums of up to 768 numbers
        self.compare(lambda _, net, o: READS[name](net), atol)

    def predict(self):
        seed, n = self.random.randint(0, 99), self.random.choice([1, 10])
        self.compare(lambda _, net, o: net(batch(net, seed, n)[0]))

    def grad_by_input(self):
        seed = self.random.randint(0, 99)

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
        self.kept.append(self.both(lambda _, net, o: (net, make(net))))

    def drop(self):
        for pair in self.kept:
            for net, _ in pair:
                net.take_missed_steps()
            close(*(thing for _, thing in pair))
        self.kept = []

    def step_by_another(self):
        def apply(_, net, o):
            for p in net.parameters():
                p.grad = torch.ones_like(p) if p.requires_grad else None
            torch.optim.SGD(o.param_groups[0]["params"], lr=0.01, weight_decay=0.1).step()

        self.both(apply)

    def share(self):
        if self.random.random() < 0.2:
            self.worlds[0][1].zero_grad()  # sparse tensors have no memory that can be shared
            self.worlds[0][1].share_memory()

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
        self.kept.append([(net, net.weights) for net in before])

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
        """Model, optimiser, a view and a graph are deleted in any order; the others stay valid."""
        self.train()
        x = batch(self.worlds[0][1], self.step)[0]

        def parts(_, net, o):
            left = {"net": net, "optimizer": o, "weights": net.table, "thresholds": net.thresholds}
            return left | {"view": net.table.detach()[1:], "outputs": net(x)}

        left = self.both(parts)
        self.worlds = []
        names = self.random.sample(list(left[0]), len(left[0]))
        for name in names:
            for own in left:
                del own[name]
            if self.random.random() < 0.03:
                gc.collect()
            for read in ("net", "optimizer"):  # either of them takes the missed steps
                if read in left[0] and self.random.random() < 0.5:
                    left[0][read].take_missed_steps() if read == "net" else left[0][read].flush()
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
            raise AssertionError(f"{self.settings}: {history}") from error


@pytest.mark.parametrize("part", range(4))
def test_lives(part):
    for seed in range(part * LIVES // 4, (part + 1) * LIVES // 4):
        Life(seed).live()


@pytest.mark.slow
def test_many_lives():
    for seed in range(LIVES, 2000):
        Life(seed).live()
