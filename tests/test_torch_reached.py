"""The warning of a layer in training whose samples reach few of its leaves."""

import copy
import warnings

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install torch")
ht = pytest.importorskip("hforest.torch")
nn = torch.nn

WORDS = r"^x: expected samples that reach many leaves, got 53 samples in 50 of 3,200 leaves of 50 trees; normalise"


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def raw(n=53, *axes):
    """Returns samples far from the thresholds, which are U(-3, 3)."""
    return torch.randn(n, 8, *axes) + 100


@pytest.mark.parametrize("kind", ["tree", "fern"])
@pytest.mark.parametrize("sparse", [False, True])
def test_raw_samples_are_named_once(kind, sparse):
    layer = ht.HingeForest(8, 50, 6, 2, kind=kind, sparse=sparse)
    for _ in range(7):
        layer(raw())
    other = copy.deepcopy(layer)
    for a in (layer, other):
        for n in (1, 31):  # too few samples to tell
            a(raw(n))
        with pytest.warns(UserWarning, match=WORDS):
            a(raw())
        for _ in range(10):
            a(raw())


def test_images_and_positions():
    for layer, x in ((ht.HingeConv2d(8, 50, 6, 2), raw(2, 6, 12)), (ht.HingeForest(8, 50, 6), raw(2, 8, 8))):
        for _ in range(7):
            layer(x)
        with pytest.warns(UserWarning, match="in 50 of 3,200 leaves of 50 trees"):
            layer(x)
        layer(x)


@pytest.mark.parametrize("kind", ["tree", "fern"])
@pytest.mark.parametrize("depth", [3, 6, 10])
def test_right_use_says_nothing(kind, depth):
    norm, layer = ht.RunningNorm(8), ht.HingeForest(8, 20, depth, 2, kind=kind)
    medians = ht.HingeForest(8, 20, depth, 2, kind=kind)
    medians.median_thresholds(raw(1000))
    plain = ht.HingeForest(8, 20, depth, 2, kind=kind)
    for n in (53,) * 10 + (500,):
        layer(norm(raw(n)))
        medians(raw(n))
        plain(torch.randn(n, 8))
    single = ht.HingeForest(8, 20, depth, 2, kind=kind)
    for _ in range(20):
        single(raw(1))


def test_what_is_not_training_says_nothing():
    layer = ht.HingeForest(8, 50, 6, 2).eval()
    for _ in range(10):
        layer(raw())
    layer.train()
    with torch.no_grad():
        for _ in range(10):
            layer(raw())
    for _ in range(10):
        torch.func.vmap(layer)(raw())
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(10):
            layer(raw())
    assert len([w for w in seen if "many leaves" in str(w.message)]) == 1
