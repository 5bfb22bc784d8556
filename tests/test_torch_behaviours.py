"""What PyTorch does with modules, of every kind of layer: copies, casts, hooks, transforms, tracers, modes."""

import copy
import io
import pickle
import threading

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install torch")
ht = pytest.importorskip("hforest.torch")
prune = pytest.importorskip("torch.nn.utils.prune")
flops = pytest.importorskip("torch.utils.flop_counter")
nn, func = torch.nn, torch.func

# These warnings are those of PyTorch's tracers.
pytestmark = pytest.mark.filterwarnings("ignore")

ROWS, IMAGES = (6, 5), (6, 2, 5, 4)
LAYERS = {
    "tree": (lambda: ht.HingeForest(5, 4, 3, 2, scale=1.0), ROWS),
    "fern": (lambda: ht.HingeForest(5, 4, 3, 2, kind="fern", scale=1.0, aggregate=None), ROWS),
    "projection": (lambda: ht.HingeForest(5, 4, 3, 2, margin="projection", scale=1.0), ROWS),
    "sparse": (lambda: ht.HingeForest(5, 4, 3, 2, scale=1.0, sparse=True), ROWS),
    "points": (lambda: ht.HingeForest(2, 4, 3, 2, scale=1.0), IMAGES),
    "convolution": (lambda: ht.HingeConv2d(2, 4, 3, 2, 2, groups=2, padding="same"), IMAGES),
    "neural": (lambda: ht.NeuralForest(5, 2, 3, 4, n_functions=6), ROWS),
    "normalisation": (lambda: ht.RunningNorm(5), ROWS),
}
BEHAVIOURS = {}

SPARSE = "sparse: expected False where tensors are on a GPU, traced or transformed, got True; leave it out"
NO_PARAMETERS = None
"""A layer without parameters has nothing of this."""
# What is refused, with the message, or does not apply (None).
REFUSED = {
    **dict.fromkeys([(b, "sparse") for b in (
        "vmap_over_samples", "gradient_as_function",
        "jacobian_as_function", "jacobian_by_a_batch_of_gradients", "jit_trace", "to_meta",
        "flops_are_counted",
    )], SPARSE),
    ("distributed", "sparse"): "Cannot access storage of SparseTensorImpl",
    ("clip_by_norm", "sparse"): "Could not run 'aten::linalg_vector_norm'|foreach_norm|SparseCPU",
    **dict.fromkeys([(b, "normalisation") for b in (
        "hook_of_a_gradient", "hook_after_accumulation", "parametrization", "weight_norm", "pruning",
        "frozen", "clip_by_norm", "clip_by_value", "distributed", "step_of_adam", "as_one_vector",
        "zero_grad", "grad_scaler",
    )], NO_PARAMETERS),
}  # fmt: skip


def behaviour(function):
    """Adds a function of a layer and an input."""
    BEHAVIOURS[function.__name__] = function
    return function


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)


def loss(layer, x):
    return layer(x).square().sum()


def gradients(layer, x):
    """Returns the gradients with respect to x and each parameter, dense."""
    x = x.detach().clone().requires_grad_()
    layer.zero_grad()
    loss(layer, x).backward()
    return [x.grad, *(p.grad.to_dense() for p in layer.parameters() if p.grad is not None)]


def same(a, b, x):
    """Checks that two layers have the same outputs and gradients."""
    close(a(x), b(x))
    for one, two in zip(gradients(a, x), gradients(b, x), strict=True):
        close(one, two)


def first_parameter(layer):
    return next(iter(layer.named_parameters()))


# ------------------------------------------------------------------------------------- copies and files


@behaviour
def deep_copy(layer, x):
    same(copy.deepcopy(layer), layer, x)


@behaviour
def pickled(layer, x):
    same(pickle.loads(pickle.dumps(layer)), layer, x)


@behaviour
def saved_whole(layer, x):
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    same(torch.load(file, weights_only=False), layer, x)


@behaviour
def state_from_a_file(layer, x):
    file, other = io.BytesIO(), make_like(layer)
    torch.save(layer.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    same(other.eval(), layer, x)


@behaviour
def state_that_is_not_strict(layer, x):
    name, *_ = layer.state_dict()
    state = {"more": torch.ones(1)} | {k: v for k, v in layer.state_dict().items() if k != name}
    result = make_like(layer).load_state_dict(state, strict=False)
    assert result.missing_keys == [name]
    assert result.unexpected_keys == ["more"]


@behaviour
def assigned_state(layer, x):
    other = make_like(layer)
    other.load_state_dict(layer.state_dict(keep_vars=True), assign=True)
    for name, p in layer.named_parameters():
        assert dict(other.named_parameters())[name].data_ptr() == p.data_ptr()
    same(other.eval(), layer, x)


@behaviour
def shared_memory(layer, x):
    expected = layer(x)
    assert layer.share_memory() is layer
    assert all(t.is_shared() for t in layer.state_dict().values())
    assert torch.equal(layer(x), expected)


@behaviour
def as_one_vector(layer, x):
    vector = nn.utils.parameters_to_vector(layer.parameters()).clone()
    other = make_like(layer)
    other.load_state_dict({**other.state_dict(), **dict(layer.named_buffers())})
    nn.utils.vector_to_parameters(vector, other.parameters())
    same(other.eval(), layer, x)


@behaviour
def moving_average(layer, x):
    average = torch.optim.swa_utils.AveragedModel(layer)
    average.update_parameters(layer)
    close(average(x), layer(x))


# --------------------------------------------------------------------------------- casts, devices, start


@behaviour
def to_double(layer, x):
    expected = layer(x)
    y = layer.double()(x.double())
    assert y.dtype == torch.float64
    torch.testing.assert_close(y.float(), expected, rtol=1e-4, atol=1e-5)


@behaviour
def to_half_and_back(layer, x):
    expected = layer.half().float()(x)
    assert expected.dtype == torch.float32


@behaviour
def half_types_are_refused(layer, x):
    with pytest.raises(TypeError, match="expected dtype float32|same dtype|expected dtype"):
        layer.half()(x.half())


def autocast(layer, x, dtype):
    half = x.to(dtype).requires_grad_()
    with torch.autocast("cpu", dtype):
        y = layer(half)
    assert y.dtype == torch.float32
    if not isinstance(layer, ht.NeuralForest):  # whose linear map is computed in the half type
        assert torch.equal(y, layer(half.detach().float()))
    y.sum().backward()
    assert half.grad.dtype == dtype
    assert all(p.dtype == p.grad.dtype == torch.float32 for p in layer.parameters())


@behaviour
def autocast_to_bfloat16(layer, x):
    autocast(layer, x, torch.bfloat16)


@behaviour
def autocast_to_float16(layer, x):
    autocast(layer, x, torch.float16)


@behaviour
def to_meta(layer, x):
    shape = layer(x).shape
    assert layer.to("meta")(x.to("meta")).shape == shape


@behaviour
def from_meta(layer, x):
    torch.manual_seed(1)
    wanted = make_like(layer)
    other = make_like(layer).to("meta").to_empty(device="cpu")
    torch.manual_seed(1)
    other.reset_parameters()
    same(other.eval(), wanted.eval(), x)


@behaviour
def another_device_is_named(layer, x):
    with pytest.raises((TypeError, RuntimeError), match="device|meta"):
        layer(x.to("meta"))


@behaviour
def another_dtype_is_named(layer, x):
    with pytest.raises(TypeError, match="^x: expected dtype float32 like .*, got float64; pass x.float()"):
        layer(x.double())


@behaviour
def integers_are_named(layer, x):
    with pytest.raises(TypeError, match="^x: expected dtype float32 like .*, got int64; pass x.float()"):
        layer(x.long())


@behaviour
def default_dtype(layer, x):
    try:
        torch.set_default_dtype(torch.float64)
        other = make_like(layer)
    finally:
        torch.set_default_dtype(torch.float32)
    assert all(t.dtype == torch.float64 for t in other.state_dict().values() if t.is_floating_point())
    assert other(x.double()).dtype == torch.float64


@behaviour
def device_context(layer, x):
    with torch.device("meta"):
        other = make_like(layer)
    assert all(t.is_meta for t in other.state_dict().values())


# -------------------------------------------------------------------------------- as a part of a network


@behaviour
def training_and_evaluation(layer, x):
    assert layer.train().training
    assert not layer.eval().training
    net = nn.Sequential(layer)
    assert net.train()[0].training


@behaviour
def names_of_tensors(layer, x):
    net = nn.Sequential(nn.Identity(), layer)
    names = [name for name, _ in net.named_parameters()] + [name for name, _ in net.named_buffers()]
    assert {name.removeprefix("1.") for name in names} == set(layer.state_dict())
    assert sum(p.numel() for p in net.parameters()) == sum(p.numel() for p in layer.parameters())


@behaviour
def description(layer, x):
    assert type(layer).__name__ in repr(nn.Sequential(layer))
    assert not hasattr(layer, "no_such_name")


@behaviour
def function_on_every_module(layer, x):
    found = []
    layer.apply(found.append)
    assert found[-1] is layer


@behaviour
def hook_after_forward(layer, x):
    expected = layer(x)
    layer.register_forward_hook(lambda module, inputs, output: 2 * output)
    assert torch.equal(layer(x), 2 * expected)


@behaviour
def hook_before_forward(layer, x):
    expected = layer(2 * x)
    layer.register_forward_pre_hook(lambda module, inputs: (2 * inputs[0],))
    assert torch.equal(layer(x), expected)


@behaviour
def hook_of_the_backward_pass(layer, x):
    seen = []
    layer.register_full_backward_hook(lambda module, by_x, by_y: seen.append((by_x[0], by_y[0])))
    by_x = gradients(layer, x)[0]
    assert torch.equal(seen[0][0], by_x)
    assert seen[0][1].shape == layer(x).shape


@behaviour
def hook_of_a_gradient(layer, x):
    seen = []
    _, p = first_parameter(layer)
    p.register_hook(lambda grad: seen.append(grad.clone()))
    gradients(layer, x)
    assert torch.equal(seen[0], p.grad)


@behaviour
def hook_after_accumulation(layer, x):
    seen = []
    _, p = first_parameter(layer)
    p.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad))
    gradients(layer, x)
    assert seen[0] is p.grad


@behaviour
def parametrization(layer, x):
    class Twice(nn.Module):
        def forward(self, a):
            return 2 * a

    name, p = first_parameter(layer)
    owner = layer.get_submodule(name.rpartition(".")[0])
    other, before = copy.deepcopy(layer), p.detach().clone()
    nn.utils.parametrize.register_parametrization(owner, name.rpartition(".")[2], Twice())
    dict(other.named_parameters())[name].data.copy_(2 * before)
    close(layer(x), other(x))
    by_half, by_whole = (gradients(a, x) for a in (layer, other))
    close(by_half[0], by_whole[0])


@behaviour
def weight_norm(layer, x):
    name, _ = first_parameter(layer)
    owner = layer.get_submodule(name.rpartition(".")[0])
    expected = layer(x)
    nn.utils.parametrizations.weight_norm(owner, name.rpartition(".")[2])
    close(layer(x), expected)
    gradients(layer, x)
    assert all(p.grad is not None for p in owner.parametrizations.parameters())


@behaviour
def pruning(layer, x):
    name, _ = first_parameter(layer)
    owner, name = layer.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2]
    prune.l1_unstructured(owner, name, amount=0.5)
    assert (getattr(owner, name) == 0).float().mean() >= 0.4
    gradients(layer, x)
    prune.remove(owner, name)
    assert isinstance(getattr(owner, name), nn.Parameter)
    layer(x)


@behaviour
def frozen(layer, x):
    layer.requires_grad_(False)
    assert not layer(x).requires_grad
    by_x, *others = gradients(layer, x)
    assert by_x.any()
    assert not others


@behaviour
def zero_grad(layer, x):
    gradients(layer, x)
    layer.zero_grad(set_to_none=False)
    assert not any(p.grad.to_dense().any() for p in layer.parameters())
    layer.zero_grad()
    assert all(p.grad is None for p in layer.parameters())


@behaviour
def clip_by_norm(layer, x):
    gradients(layer, x)
    norm = nn.utils.clip_grad_norm_(layer.parameters(), 1e-3)
    assert norm > 1e-3
    total = torch.stack([p.grad.norm() for p in layer.parameters()]).norm()
    torch.testing.assert_close(total, torch.tensor(1e-3), rtol=1e-2, atol=0)


@behaviour
def clip_by_value(layer, x):
    gradients(layer, x)
    dense = [p for p in layer.parameters() if not p.grad.is_sparse]
    nn.utils.clip_grad_value_(dense, 1e-3)
    assert all(p.grad.abs().max() <= 1e-3 for p in dense)


@behaviour
def step_of_adam(layer, x):
    optimizer = (ht.RowAdam if getattr(layer, "sparse", False) else torch.optim.Adam)(
        layer.parameters(), lr=0.01
    )
    before = loss(layer, x).item()
    for _ in range(20):
        optimizer.zero_grad()
        value = layer(x).float().log_softmax(1)[:, 0].mean().neg()
        value.backward()
        optimizer.step()
    assert loss(layer, x).item() != before


@behaviour
def grad_scaler(layer, x):
    scaler, dense = torch.amp.GradScaler("cpu"), list(layer.parameters())
    optimizer = torch.optim.SGD(dense, lr=0.1)
    before = [p.detach().clone() for p in dense]
    scaler.scale(loss(layer, x)).backward()
    scaler.step(optimizer)
    scaler.update()
    assert not all(torch.equal(a, b) for a, b in zip(before, dense, strict=True))


@behaviour
def distributed(layer, x):
    def check(wanted):  # which frees the wrapper: the process can hang where it is freed after the group
        found = gradients(nn.parallel.DistributedDataParallel(layer), x)
        for one, two in zip(found, wanted, strict=True):
            close(one, two)

    wanted, store = gradients(layer, x), torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        check(wanted)
    finally:
        torch.distributed.destroy_process_group()


# ------------------------------------------------------------------------------------------------ inputs


@behaviour
def no_samples(layer, x):
    y = layer(x[:0])
    assert y.shape == (0, *layer(x).shape[1:])
    gradients(layer, x[:0])


@behaviour
def strided_input(layer, x):
    strided = torch.stack([x, -x], -1)[..., 0]
    assert not strided.is_contiguous()
    assert torch.equal(layer(strided), layer(x))


@behaviour
def expanded_input(layer, x):
    expanded = x[:1].expand_as(x)
    assert torch.equal(layer(expanded), layer(expanded.clone()))
    gradients(layer, expanded)


@behaviour
def channels_last(layer, x):
    image = x if x.dim() == 4 else x[..., None, None].expand(*x.shape, 2, 3)
    if isinstance(layer, ht.NeuralForest):
        image = image.movedim(1, -1)
    moved = image.contiguous(memory_format=torch.channels_last)
    assert torch.equal(layer(moved), layer(image.contiguous()))


@behaviour
def nan_is_named(layer, x):
    x[1] = float("nan")
    with pytest.raises(ValueError, match="^[xf]: expected finite numbers, got nan at index"):
        layer(x)


@behaviour
def input_is_unchanged(layer, x):
    before, state = x.clone(), copy.deepcopy(layer.state_dict())
    gradients(layer, x)
    assert torch.equal(x, before)
    for name, t in layer.state_dict().items():
        assert torch.equal(t, state[name])


@behaviour
def threads_of_python(layer, x):
    expected, found = layer(x), []
    threads = [threading.Thread(target=lambda: found.append(layer(x))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(y, expected) for y in found)
    assert len(found) == 4


# ------------------------------------------------------------------------------------------------ modes


@behaviour
def without_gradients(layer, x):
    with torch.no_grad():
        y = layer(x)
    assert not y.requires_grad
    assert torch.equal(y, layer(x))


@behaviour
def inference(layer, x):
    with torch.inference_mode():
        y = layer(x)
    assert y.is_inference()
    assert torch.equal(y, layer(x))


@behaviour
def anomaly_detection(layer, x):
    with torch.autograd.detect_anomaly(check_nan=True):
        gradients(layer, x)


@behaviour
def deterministic_algorithms(layer, x):
    try:
        torch.use_deterministic_algorithms(True)
        one, two = gradients(layer, x), gradients(layer, x)
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


@behaviour
def two_backward_passes(layer, x):
    x.requires_grad_()
    y = loss(layer, x)
    y.backward(retain_graph=True)
    once = x.grad.clone()
    y.backward()
    assert torch.equal(x.grad, 2 * once)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.backward()


@behaviour
def checkpoint(layer, x):
    wanted = gradients(layer, x)
    for reentrant in (False, True):
        found = gradients(Checkpointed(layer, reentrant), x)
        assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


class Checkpointed(nn.Module):
    def __init__(self, layer, reentrant):
        super().__init__()
        self.layer, self.reentrant = layer, reentrant

    def forward(self, x):
        return torch.utils.checkpoint.checkpoint(self.layer, x, use_reentrant=self.reentrant)


@behaviour
def hooks_of_saved_tensors(layer, x):
    wanted = gradients(layer, x)
    with torch.autograd.graph.save_on_cpu():
        found = gradients(layer, x)
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


@behaviour
def changes_after_forward_are_found(layer, x):
    x.requires_grad_()
    y = loss(layer, x)
    saved = next(iter(layer.parameters()), None) if isinstance(layer, ht.NeuralForest) else None
    saved = layer.var if isinstance(layer, ht.RunningNorm) else saved
    saved = layer.weights if saved is None else saved
    with torch.no_grad():
        saved.add_(1)
    with pytest.raises(RuntimeError, match="modified (by an )?inplace"):
        y.backward()


@behaviour
def second_derivatives_are_refused(layer, x):
    x.requires_grad_()
    with pytest.raises(RuntimeError, match="hforest.torch: expected at most first derivatives, got a second"):
        (by_x,) = torch.autograd.grad(loss(layer, x), x, create_graph=True)
        by_x.sum().backward()


@behaviour
def forward_mode_is_refused(layer, x):
    ad = torch.autograd.forward_ad
    with ad.dual_level(), pytest.raises(RuntimeError, match="^[xf]: expected no forward-mode tangent"):
        layer(ad.make_dual(x, torch.ones_like(x)))


@behaviour
def flops_are_counted(layer, x):
    with flops.FlopCounterMode(display=False):
        y = layer(x)
    assert torch.equal(y, layer(x))


# ------------------------------------------------------------------------------- transforms and tracers


@behaviour
def gradient_is_that_of_differences(layer, x):
    layer.double()
    x = x.double().requires_grad_()
    assert torch.autograd.gradcheck(layer, (x,))


@behaviour
def functional_call(layer, x):
    state = {name: 2 * p for name, p in layer.named_parameters()}
    y = func.functional_call(layer, state, (x,))
    with torch.no_grad():
        for p in layer.parameters():
            p.mul_(2)
    close(y, layer(x))


@behaviour
def vmap_over_samples(layer, x):
    close(func.vmap(lambda a: layer(a[None])[0])(x), layer(x))


@behaviour
def gradient_as_function(layer, x):
    close(func.grad(lambda a: loss(layer, a))(x), gradients(layer, x)[0])


@behaviour
def jacobian_as_function(layer, x):
    wanted = torch.autograd.functional.jacobian(layer, x[:2])
    close(func.jacrev(layer)(x[:2]), wanted)


@behaviour
def jacobian_by_a_batch_of_gradients(layer, x):
    wanted = torch.autograd.functional.jacobian(layer, x[:2])
    close(torch.autograd.functional.jacobian(layer, x[:2], vectorize=True), wanted)


@behaviour
def jit_trace(layer, x):
    same(torch.jit.trace(layer, (x,)), layer, x)


@behaviour
def fx_graph(layer, x):
    for net in (layer, nn.Sequential(nn.Identity(), layer)):
        graph = torch.fx.symbolic_trace(net)
        same(graph, layer, x)
        assert len([n for n in graph.graph.nodes if n.op == "call_module"]) <= 2
        same(pickle.loads(pickle.dumps(graph)), layer, x)


@behaviour
def compiled(layer, x):
    torch.compiler.reset()
    same(torch.compile(layer, backend="aot_eager", fullgraph=not getattr(layer, "sparse", False)), layer, x)


@behaviour
def exported(layer, x):
    with torch.no_grad():
        program = torch.export.export(layer, (x,))
    close(program.module()(x), layer(x))


@behaviour
def exported_to_onnx(layer, x):
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    exchange = pytest.importorskip("hforest.onnx")
    with torch.no_grad():
        program = torch.onnx.export(
            layer, (x,), dynamo=True, custom_translation_table=exchange.translations(), verbose=False
        )
    session = runtime.InferenceSession(program.model_proto.SerializeToString())
    (y,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    torch.testing.assert_close(torch.from_numpy(y), layer(x).detach(), rtol=1e-4, atol=1e-5)


# ------------------------------------------------------------------------------------------------- test


def make_like(layer):
    return LAYERS[layer.kind_of_test][0]()


def cases():
    """Returns every pair; those that take seconds are slow except for one layer."""
    pairs = []
    long = {"compiled", "distributed", "exported", "exported_to_onnx"}
    for kind in LAYERS:
        for name in BEHAVIOURS:
            slow = name in long and kind != "tree"
            pairs.append(pytest.param(kind, name, marks=[pytest.mark.slow] * slow, id=f"{kind}-{name}"))
    return pairs


@pytest.mark.parametrize(("kind", "name"), cases())
def test_behaviour(kind, name):
    torch.manual_seed(0)
    make, shape = LAYERS[kind]
    layer, x = make(), torch.randn(shape)
    layer.kind_of_test = kind
    if kind == "neural":  # uniform leaves have no gradient
        layer.leaves.copy_(torch.randn(layer.leaves.shape).softmax(2))
    if kind == "normalisation":
        layer(3 * torch.randn(shape) + 1)
    layer.eval()
    message = REFUSED.get((name, kind), "")
    if message is None:
        assert not list(layer.parameters())
        return
    if message:
        with pytest.raises((RuntimeError, ValueError, NotImplementedError), match=message):
            BEHAVIOURS[name](layer, x)
    else:
        BEHAVIOURS[name](layer, x)
