"""Networks with layers of hforest.torch as ONNX models, by `torch.onnx.export` and onnxruntime."""
# ruff: noqa: E402 (modules that need libraries are imported where these are known to be there)

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", minversion="1.16", reason="needs onnx 1.16 or newer")
torch = pytest.importorskip("torch", minversion="2.8", reason="needs PyTorch 2.8 or newer")

import hforest.onnx as exchange
import hforest.torch as layers

pytestmark = pytest.mark.filterwarnings("ignore")  # of the exporter


def network():
    body = torch.nn.Sequential(torch.nn.Linear(4, 6), layers.RunningNorm(6))
    body(torch.randn(50, 4) + 2)  # statistics of a batch
    return torch.nn.Sequential(body, layers.HingeForest(6, 5, 3, 2))


CASES = {
    "network": (network, (4,)),
    "fern": (lambda: layers.HingeForest(6, 5, 3, (2, 3), kind="fern", aggregate=None), (6,)),
    "projections": (lambda: layers.HingeForest(6, 5, 3, margin="projection", aggregate="mean"), (6,)),
    "positions": (lambda: layers.HingeForest(6, 5, 3, 2), (6, 2, 3)),
    "depth 1": (lambda: layers.HingeForest(6, 5, 1, 2), (6,)),
    "conv1d": (lambda: layers.HingeConv1d(3, 4, 3, kernel_size=3, outputs=2, dilation=2), (3, 20)),
    "conv2d": (lambda: layers.HingeConv2d(3, 4, 3, kernel_size=3, outputs=2, padding=1, stride=2), (3, 8, 7)),
    "groups": (lambda: layers.HingeConv2d(4, 4, 3, kernel_size=3, outputs=2, groups=2), (4, 8, 7)),
    "conv3d": (
        lambda: layers.HingeConv3d(2, 4, 3, kernel_size=(2, 3, 1), outputs=2, aggregate=None),
        (2, 5, 6, 7),
    ),
    "neural": (lambda: layers.NeuralForest(6, 5, 3, 4), (6,)),
    "shared functions": (lambda: layers.NeuralForest(6, 5, 3, 4, n_functions=9), (6,)),
}


@pytest.fixture(autouse=True)
def _libraries():
    pytest.importorskip("onnxscript", reason="needs onnxscript")
    pytest.importorskip("onnxruntime", minversion="1.20", reason="needs onnxruntime 1.20 or newer")


def exported(module, x):
    """Returns the ONNX model of a module in evaluation mode, with a dynamic axis of samples."""
    program = torch.onnx.export(
        module.eval(), (x,), dynamo=True, custom_translation_table=exchange.translations(), verbose=False,
        dynamic_shapes=({0: torch.export.Dim("n_samples")},),
    )  # fmt: skip
    return program.model_proto


def outputs(model, x):
    import onnxruntime

    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: x.numpy()})[0]


DOUBLE = ("network", "projections", "neural")


@pytest.mark.parametrize(
    ("case", "dtype"), [*((a, torch.float32) for a in CASES), *((a, torch.float64) for a in DOUBLE)]
)
def test_layers(case, dtype):
    torch.manual_seed(0)
    create, shape = CASES[case]
    x = torch.randn(12, *shape, dtype=dtype)
    module = create().to(dtype)
    if isinstance(module, layers.NeuralForest):
        module.update_leaves(x, torch.arange(12) % 4)
    model = exported(module, x)
    for samples in (x, torch.randn(5, *shape, dtype=dtype)):
        expected = module(samples).detach().numpy()
        found = outputs(model, samples)
        assert found.dtype == expected.dtype
        assert np.ptp(expected) > 1e-3
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_a_table_of_every_operator_of_inference():
    names = {str(operator) for operator in exchange.translations()}
    assert names == {
        "hforest.hinge_forest.default",
        "hforest.neural_forest.default",
        "hforest.normalize.default",
    }


def test_training_mode_is_refused():
    with pytest.raises(Exception, match="normalize_update"):
        torch.onnx.export(
            network().train(), (torch.randn(3, 4),), dynamo=True, verbose=False,
            custom_translation_table=exchange.translations(),
        )  # fmt: skip


def test_a_dynamic_size_of_images_is_refused():
    layer = layers.HingeConv1d(3, 4, 3, kernel_size=3, outputs=2).eval()
    with pytest.raises(Exception, match="expected a dynamic axis of samples alone"):
        torch.onnx.export(
            layer, (torch.randn(3, 3, 20),), dynamo=True, verbose=False,
            custom_translation_table=exchange.translations(),
            dynamic_shapes=({2: torch.export.Dim("length", min=8)},),
        )  # fmt: skip
