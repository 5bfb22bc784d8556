"""Forests on windows of images: known answers, samples, borders, channels, scores, errors."""

from functools import partial

import numpy as np
import pytest
from conftest import check_changed

import hforest
from hforest import co2, images, project, tree
from hforest.growth import cpu, encoding
from hforest.images import windows

SHORT = {"n_trees": 6, "n_pixels": 1500, "rng": 0}


def noise(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def shifted(axis=2, by=3, shape=(3, 24, 26, 1)):
    """Returns images, and labels: the sign of the value some pixels before, cyclic at the borders."""
    x = noise(*shape)
    return x, np.roll(x[..., 0] > 0, by, axis=axis)


def right(model, x, y, rows=slice(None)):
    return (images.predict_labels(model, x) == y)[rows].mean()


# --------------------------------------------------------------------------------------- known answers

GROWERS = {
    "best": hforest.grow,
    "extra": partial(hforest.grow, splitter="random", bootstrap=False),
    "probe": partial(hforest.grow, projections=project.probe_distribution(49, 0.5)),
    "sparse": partial(hforest.grow, projections=project.sparse_distribution(49), n_projections=40),
    "patch": partial(
        hforest.grow,
        projections=project.patch_distribution((7, 7, 1), patch_max=3, channels=True),
        n_projections=40,
    ),
    "co2": partial(co2.grow, max_depth=3),
    "function": lambda x, y, **settings: hforest.grow(x, y, **settings),
}


@pytest.mark.parametrize("name", GROWERS)
def test_a_class_by_the_value_three_pixels_to_the_left(name):
    x, y = shifted()
    model = images.fit(x, y, GROWERS[name], window=7, **SHORT)
    new, label = shifted(shape=(2, 30, 20, 1))
    assert right(model, new, label, np.s_[:, :, 3:]) > (0.9 if name in ("best", "function", "co2") else 0.75)
    # A window that does not reach that pixel has no information.
    grow = GROWERS[name]
    if name in ("probe", "sparse"):
        grow = partial(grow, projections=grow.keywords["projections"]._replace(n_features=25))
    small = images.fit(x, y, hforest.grow if name == "patch" else grow, window=5, **SHORT)
    assert right(small, new, label, np.s_[:, :, 3:]) < 0.65


@pytest.mark.parametrize(("axis", "by", "number"), [(1, 2, 0), (1, -2, 4), (2, 2, 0), (2, -1, 3)])
def test_the_feature_is_the_place_in_the_window(axis, by, number):
    # Rows and columns, before and after: the root compares the number at (row, column, channel) of a window.
    x, y = shifted(axis, by, (2, 16, 18, 2))
    model = images.fit(
        x, y, partial(hforest.grow, max_features=None, max_depth=1, bootstrap=False), window=5, border="wrap",
        n_trees=2, n_pixels=500, rng=1,
    )  # fmt: skip
    place = (number, 2, 0) if axis == 1 else (2, number, 0)
    feature = np.ravel_multi_index(place, (5, 5, 2))
    assert set(model.forest.feature[model.forest.feature >= 0]) == {feature}
    assert right(model, x, y) > 0.99


@pytest.mark.parametrize("shape", [(2, 60, 1), (2, 12, 13, 2), (1, 8, 9, 10, 1)])
def test_one_to_three_axes_of_space(shape):
    x, y = shifted(len(shape) - 2, 1, shape)
    grow = partial(hforest.grow, max_features=None)
    model = images.fit(x, y, grow, window=(3,) * (len(shape) - 2), border="wrap", **SHORT)
    assert right(model, x, y) > 0.99
    assert images.predict(model, x).shape == (*shape[:-1], 2)


def test_every_step_th_pixel_is_read():
    x, y = shifted(by=4)
    model = images.fit(x, y, partial(hforest.grow, max_features=None), window=9, step=4, **SHORT)
    assert int(model.forest.n_features) == 9
    assert right(model, x, y, np.s_[:, :, 4:]) > 0.99
    model = images.fit(x, y, partial(hforest.grow, max_features=None), window=9, step=2, **SHORT)
    assert int(model.forest.n_features) == 25


# --------------------------------------------------------------------------------------------- windows


def naive(x, pixel, frame):
    """Returns windows as slices of padded images."""
    whole, r = windows.padded(x, frame), frame.radius
    rows = []
    for i in pixel:
        n, a, b = np.unravel_index(i, x.shape[:-1])
        if frame.border == windows.LEFT_OUT:
            a, b = a - r[0], b - r[1]
        a_step, b_step = slice(a, a + frame.window[0], frame.step), slice(b, b + frame.window[1], frame.step)
        rows.append(whole[n, a_step, b_step].ravel())
    return np.array(rows)


@pytest.mark.parametrize("border", windows.BORDERS)
def test_windows_are_those_of_slices(border):
    x = noise(3, 11, 9, 2)
    frame = windows.Frame((7, 5), 1, border)
    inside = np.flatnonzero(windows.inside(x.shape[:-1], frame.margin))
    assert len(inside) == (3 * 5 * 5 if border == "leave_out" else 3 * 11 * 9)
    pixel = inside[:: 1 + len(inside) // 60]
    places = windows.around(windows.padded(x, frame), pixel, frame)
    assert (windows.copied(places) == naive(x, pixel, frame)).all()
    assert (windows.copied(places, slice(3, 8)) == naive(x, pixel, frame)[3:8]).all()
    assert hforest.samples(places.x, windows=(places.base, places.offset)).shape == (len(pixel), 70)


def test_copies_in_blocks_are_the_same(monkeypatch):
    x = noise(2, 9, 9, 1)
    frame = windows.Frame((5, 5), 1, "reflect")
    places = windows.around(windows.padded(x, frame), np.arange(162), frame)
    scale = np.linspace(1, 2, 25)
    whole = windows.copied(places), windows.copied(places, scale=scale)
    deviations = windows.inverse_deviations(whole[0])
    monkeypatch.setattr(windows, "_BLOCK", 60)
    assert (windows.copied(places) == whole[0]).all()
    assert (windows.copied(places, scale=scale) == whole[1]).all()
    assert np.allclose(windows.inverse_deviations(whole[0]), deviations, rtol=1e-12)
    assert np.allclose(deviations, 1 / whole[0].std(axis=0, dtype=np.float64), rtol=1e-9)


def test_unit_norm_of_any_range():
    x = np.array([[3.0, 4.0], [0, 0], [3e300, 4e300], [3e-300, 4e-300]])
    assert np.allclose(windows.to_unit_norm(x), [[0.6, 0.8], [0, 0], [0.6, 0.8], [0.6, 0.8]], rtol=1e-15)
    assert windows.inverse_deviations(np.full((9, 1), 0.1)) == 1  # rounding is no deviation


def test_windows_of_unit_norm_do_not_see_the_contrast():
    x, y = shifted(shape=(3, 16, 16, 1))
    grow = GROWERS["probe"]
    model = images.fit(x, y, grow, window=7, normalize=True, **SHORT)
    assert model.scale.shape == (49,)
    p = images.predict(model, x)
    gain = 2.0 ** np.arange(-1, 2)[:, None, None, None]
    assert (images.predict(model, (x * gain).astype(np.float32)) == p).all()
    assert right(model, x, y, np.s_[:, :, 3:]) > 0.75
    plain = images.fit(x, y, grow, window=7, **SHORT)
    assert plain.scale is None
    assert (images.predict(plain, (x * gain).astype(np.float32)) != images.predict(plain, x)).any()


def test_normalized_windows_have_norm_one_before_and_deviation_one_after():
    seen = []

    def grow(x, y, **settings):
        seen.append(x.copy())
        return hforest.grow(x, y, **settings)

    x, y = shifted(shape=(2, 16, 16, 2))
    model = images.fit(x, y, grow, window=3, normalize=True, n_trees=2, n_pixels=400, rng=0)
    assert np.allclose(seen[0].std(axis=0, dtype=np.float64), 1, atol=1e-5)
    for a in seen:  # the second draw is scaled by the deviations of the first
        assert np.allclose(np.linalg.norm(a / model.scale, axis=1), 1, atol=1e-5)
    assert not np.allclose(seen[1].std(axis=0, dtype=np.float64), 1, atol=1e-5)


def test_windows_in_place_grow_what_copies_grow():
    x, y = shifted()
    random = partial(GROWERS["extra"], max_features=1)
    for grow in (*(GROWERS[name] for name in GROWERS if name != "function"), random):
        one = images.fit(x, y, grow, window=7, **SHORT)
        two = images.fit(x, y, lambda *a, grow=grow, **b: grow(*a, **b), window=7, **SHORT)
        assert (images.predict(one, x) == images.predict(two, x)).all()
    oc1 = images.fit(x, y, partial(co2.grow, splitter="oc1", max_depth=1), window=3, n_trees=1, n_pixels=90)
    assert right(oc1, x, y) > 0.3  # this path reads copies

    def binned(x, y, **settings):  # bins of a draw
        return hforest.grow(hforest.samples(x, max_bins=16), y, max_features=None, **settings)

    model = images.fit(x, y, binned, window=7, **SHORT)
    assert right(model, x, y, np.s_[:, :, 3:]) > 0.9


def test_images_are_encoded_once(monkeypatch):
    calls = []
    for name, module in (("encode", encoding), ("prepare_projections", cpu)):
        made = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *a, made=made, **b: calls.append(1) or made(*a, **b))
    x, y = shifted()
    for n, grow in enumerate((hforest.grow, GROWERS["probe"]), 1):
        images.fit(x, y, grow, window=7, n_trees=5, n_pixels=50, rng=0)
        assert len(calls) == n


# ----------------------------------------------------------------------------------------------- draws

LABELS = np.zeros((2, 10, 12), np.int16)
LABELS[0, :3, :4] = 1
LABELS[1, 5, 6:8] = 2
LABELS[:, 9] = -5


def test_balanced_draws_have_each_class_equally_often():
    pixel, factor = images.draw(LABELS, 301, 4, void=-5, rng=0)
    assert pixel.shape == (4, 301)
    drawn = LABELS.ravel()[pixel]
    assert (drawn == np.arange(301) % 3).all()
    counts = np.array([(LABELS == c).sum() for c in range(3)])
    assert np.allclose(factor, np.array([101, 100, 100]) / 301 / (counts / counts.sum()))
    assert len(set(pixel[drawn == 2])) == 2
    assert len(set(pixel[drawn == 1])) == 12
    assert len(set(pixel[drawn == 0])) > 150


def test_draws_as_they_come_have_the_shares_of_the_image():
    pixel, factor = images.draw(LABELS, 20000, balance=False, void=-5, rng=1)
    assert (factor == 1).all()
    counts = np.array([(LABELS == c).sum() for c in range(3)])
    drawn = np.bincount(LABELS.ravel()[pixel[0]], minlength=3)
    expected = 20000 * counts / counts.sum()
    assert (abs(drawn - expected) < 5 * np.sqrt(expected)).all()
    times = np.bincount(pixel[0], minlength=LABELS.size)
    assert (times[LABELS.ravel() == -5] == 0).all()
    mean = 20000 / counts.sum()
    known = times[LABELS.ravel() != -5]
    assert abs(known - mean).max() < 6 * np.sqrt(mean)
    assert 0.7 < known.var() / mean < 1.4  # of a Poisson distribution, nearly


def test_a_draw_depends_on_its_number_alone():
    whole = images.draw(LABELS, 50, 5, void=-5, rng=3).pixel
    assert (images.draw(LABELS, 50, 2, first_draw=2, void=-5, rng=3).pixel == whole[2:4]).all()
    assert (images.draw(LABELS, 50, 5, void=-5, rng=4).pixel != whole).any()
    assert (whole[0] != whole[1]).any()
    assert (images.draw(LABELS, 30, 1, void=-5, rng=3).pixel == whole[:1, :30]).all()


def test_margins_and_absent_classes():
    pixel, factor = images.draw(LABELS, 40, margin=(2, 5), n_classes=4, void=-5, rng=0)
    _, row, column = np.unravel_index(pixel[0], LABELS.shape)
    assert row.min() >= 2
    assert row.max() <= 7
    assert column.min() >= 5
    assert column.max() <= 6
    assert factor[1] == factor[3] == 0
    assert factor[0] > 0
    assert factor[2] > 0


@pytest.mark.parametrize(("per_draw", "n_draws"), [(1, 5), (2, 3), (5, 1), (9, 1)])
def test_trees_share_draws(per_draw, n_draws):
    seen = []

    def grow(x, y, **settings):
        seen.append((x, settings["n_trees"], settings["first_tree"]))
        return hforest.grow(x, y, **settings)

    x, y = shifted()
    model = images.fit(x, y, grow, window=1, n_trees=5, n_pixels=60, trees_per_draw=per_draw, rng=7)
    assert len(seen) == n_draws
    assert sum(n for _, n, _ in seen) == 5 == len(model.forest.tree_start) - 1
    assert [first for _, _, first in seen] == list(range(0, 5, per_draw))
    pixels = images.draw(y, 60, n_draws, rng=7).pixel
    assert all((a[:, 0] == x.ravel()[p]).all() for (a, *_), p in zip(seen, pixels, strict=True))


def test_windows_fit_into_max_memory():
    x, y = shifted()
    seen = []

    def grow(x, y, **settings):
        seen.append(x.nbytes)
        return hforest.grow(x, y, **settings)

    images.fit(x, y, grow, window=7, n_trees=1, max_memory=10_000, rng=0)
    assert seen == [10_000 // (49 * 4) * 49 * 4]
    images.fit(x, y, grow, window=7, n_trees=1, void=1, n_classes=1, rng=0)
    assert seen[1:] == [(y == 0).sum() * 49 * 4]  # all labelled pixels
    with pytest.raises(ValueError, match=r"n_pixels: expected at most 51 windows .* got 52; draw fewer"):
        images.fit(x, y, grow, window=7, n_trees=1, n_pixels=52, max_memory=10_000, rng=0)
    with pytest.raises(ValueError, match="max_memory: expected at least 196 bytes"):
        images.fit(x, y, grow, window=7, max_memory=195, rng=0)
    images.fit(x, y, hforest.grow, window=7, n_trees=1, n_pixels=52, max_memory=10_000, rng=0)  # 8 bytes each


# ----------------------------------------------------------------------------------- shares, borders, void


def test_shares_are_weighted_back():
    # Constant images: a single leaf has the class shares of the sample, and then those of the images.
    y = np.zeros((1, 10, 10), int)
    y[0, 0] = 1
    model = images.fit(np.zeros((1, 10, 10, 1)), y, partial(hforest.grow, bootstrap=False), window=1, n_trees=3,
                       n_pixels=200, rng=0)  # fmt: skip
    assert np.allclose(model.class_factor, [0.5 / 0.9, 0.5 / 0.1])
    x = np.zeros((1, 2, 2, 1))
    assert np.allclose(images.predict(model, x), [0.9, 0.1])
    assert np.allclose(images.predict(model, x, weight_back=0.0), [0.5, 0.5])
    assert np.allclose(images.predict(model, x, weight_back=0.5), [0.75, 0.25])
    assert (images.predict_labels(model, x) == 0).all()
    plain = images.fit(np.zeros((1, 10, 10, 1)), y, partial(hforest.grow, bootstrap=False), window=1, n_trees=3,
                       n_pixels=20000, balance=False, rng=0)  # fmt: skip
    assert np.allclose(images.predict(plain, x), [0.9, 0.1], atol=0.02)


def test_an_absent_class_has_no_share():
    x, y = shifted()
    model = images.fit(x, 2 * y, hforest.grow, window=7, n_classes=4, **SHORT)
    p = images.predict(model, x)
    assert (p[..., [1, 3]] == 0).all()
    assert np.allclose(p.sum(axis=-1), 1)


def test_borders():
    x, y = shifted(by=1, shape=(2, 12, 12, 1))
    grow = partial(hforest.grow, max_features=None)
    settings = {"window": 3, **SHORT}
    assert right(images.fit(x, y, grow, border="wrap", **settings), x, y) == 1
    edge = images.fit(x, y, grow, border="edge", **settings)
    assert 0 < right(edge, x, y, np.s_[:, :, 0]) <= 1
    out = images.fit(x, y, grow, border="leave_out", **settings)
    p, label = images.predict(out, x), images.predict_labels(out, x)
    inside = windows.inside((2, 12, 12), (1, 1))
    assert inside.sum() == 200
    assert np.isnan(p[~inside]).all()
    assert np.isfinite(p[inside]).all()
    assert (label[~inside] == 2).all()
    assert (label[inside] == y[inside]).all()
    assert images.confusion(y, label, 2).sum() == 200


def test_no_window_is_drawn_from_a_border_that_is_left_out():
    y = np.ones((1, 8, 8), int)
    y[:, 1:-1, 1:-1] = 0
    model = images.fit(np.zeros((1, 8, 8, 1)), y, hforest.grow, window=3, border="leave_out", **SHORT)
    assert model.class_factor.tolist() == [1, 0]


def test_void_is_left_out():
    x, y = shifted()
    marked = np.where(x[..., 0] > 1, 7, y)
    model = images.fit(x, marked, hforest.grow, window=7, void=7, **SHORT)
    assert model.n_classes == 2
    known = images.draw(marked, 500, void=7, rng=0).pixel
    assert (marked.ravel()[known] != 7).all()
    with pytest.raises(IndexError, match="labels: expected 0 <= label < n_classes = 2, got 7"):
        images.fit(x, marked, hforest.grow, window=7, n_classes=2)


# ---------------------------------------------------------------------------------- predictions, progress


def test_tiles_and_threads_do_not_change_bits(threads):
    x, y = shifted()
    results = []
    for n_threads, max_memory in ((1, 1 << 26), (2, 1), (7, 5000)):
        threads(n_threads)
        for grow in (hforest.grow, GROWERS["probe"]):
            model = images.fit(x, y, grow, window=7, normalize=grow is not hforest.grow, **SHORT)
            results.append(images.predict(model, x[:1], max_memory=max_memory))
            label = images.predict_labels(model, x[:1], max_memory=max_memory)
            assert (label == results[-1].argmax(axis=-1)).all()
    for i in (2, 4):
        assert (results[i] == results[0]).all()
        assert (results[i + 1] == results[1]).all()


def test_bytes_and_lists_are_images():
    x = np.random.default_rng(0).integers(0, 256, (2, 12, 12, 1), dtype=np.uint8)
    y = np.roll(x[..., 0] > 99, 1, axis=2)
    model = images.fit(x, y, hforest.grow, window=3, **SHORT)
    assert model.forest.threshold.dtype == np.float32
    wide = images.fit(x.astype(np.float64), y.astype(np.uint8), hforest.grow, window=3, **SHORT)
    assert wide.forest.threshold.dtype == np.float64
    p = images.predict(model, x)
    assert (images.predict(model, x.tolist()) == p).all()
    assert (images.predict(model, x[:0])).shape == (0, 12, 12, 2)
    assert right(model, x, y, np.s_[:, :, 1:]) > 0.9


def test_progress_ends_the_work():
    x, y = shifted()
    seen = []

    def stop(done, total):
        seen.append((done, total))
        return done < 2

    model = images.fit(x, y, hforest.grow, window=3, n_trees=5, n_pixels=50, progress=stop, rng=0)
    assert seen == [(1, 5), (2, 5)]
    assert len(model.forest.tree_start) == 3
    first = images.fit(x, y, hforest.grow, window=3, n_trees=2, n_pixels=50, rng=0)
    assert (images.predict(model, x) == images.predict(first, x)).all()
    seen.clear()
    assert len(images.predict(model, x, progress=stop)) == 2
    assert len(images.predict_labels(model, x, progress=stop)) == 2
    assert seen == [(1, 3), (2, 3)] * 2


# ------------------------------------------------------------------------------------------------ files


@pytest.mark.parametrize("normalize", [False, True])
def test_files(tmp_path, normalize):
    x, y = shifted()
    model = images.fit(x, y, hforest.grow, window=(3, 7), normalize=normalize, border="edge", **SHORT)
    images.save(tmp_path / "m.npz", model)
    back = images.load(tmp_path / "m.npz")
    assert back._replace(class_factor=0, forest=0, scale=0) == model._replace(
        class_factor=0, forest=0, scale=0
    )
    assert (back.scale is None) == (not normalize)
    assert (images.predict(back, x) == images.predict(model, x)).all()


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("images_format", np.array(2), "newer version"),
        ("class_factor", np.array([1.0, -1.0]), "at least 0"),
        ("class_factor", np.ones(3), "class_factor"),
        ("class_factor", np.ones(2, np.float32), "float64"),
        ("scale", np.ones(8), "scale"),
        ("scale", np.zeros(9), "scale"),
        ("window", np.array([3, 4]), "odd sizes"),
        ("window", np.array([5, 5]), "n_features"),
        ("border", np.array("nowhere"), "border"),
        ("step", np.array(0), "step"),
        ("forest/left", None, "left"),
    ],
)
def test_files_whose_arrays_contradict_each_other(tmp_path, field, value, message):
    x, y = shifted()
    model = images.fit(x, y, hforest.grow, window=3, normalize=True, n_trees=1, n_pixels=50, rng=0)
    images.save(tmp_path / "m.npz", model)
    check_changed(tmp_path / "m.npz", images.load, {field: value}, message)


# --------------------------------------------------------------------------------------------- refusals

X, Y = shifted(shape=(2, 10, 12, 2))


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"labels": Y[:, :-1]}, ValueError, r"labels: expected shape .*\(2, 10, 12\), got \(2, 9, 12\)"),
        ({"labels": Y[:1]}, ValueError, "labels: expected shape"),
        ({"labels": Y - 1}, IndexError, "labels: expected labels of at least 0, got -1"),
        ({"labels": Y + 1.5}, TypeError, "labels: expected labels of an integer"),
        ({"n_classes": 1}, IndexError, "labels: expected 0 <= label < n_classes = 1, got 1"),
        ({"labels": 2 * Y}, ValueError, "none of class 1"),
        ({"labels": 0 * Y, "void": 0}, ValueError, "labels: expected at least one labelled pixel"),
        ({"images": X[..., 0]}, ValueError, "labels: expected shape"),
        ({"images": X[0, 0]}, ValueError, "images: expected shape"),
        ({"images": X[:, :, :, :0]}, ValueError, "images: expected shape"),
        ({"images": X[:0], "labels": Y[:0]}, ValueError, "images: expected at least one"),
        ({"images": X.astype(str)}, TypeError, "images: expected an array of real numbers"),
        ({"images": np.where(X > 1, np.nan, X)}, ValueError, "images: .*nan"),
        ({"window": 4}, ValueError, "window: expected odd sizes"),
        ({"window": (3, 6)}, ValueError, "window: expected odd sizes"),
        ({"window": 11}, ValueError, "window: expected at most 10 pixels along spatial axis 0, got 11"),
        ({"window": (9, 13)}, ValueError, "window: expected at most 12 pixels along spatial axis 1, got 13"),
        ({"window": (3, 3, 3)}, ValueError, "window: expected an int or a tuple of 2"),
        ({"window": 9, "step": 3}, ValueError, "step: expected a divisor of"),
        ({"border": "mirror"}, ValueError, "border: expected one of"),
        ({"n_pixels": 1}, ValueError, "n_pixels: expected at least one for each of 2 classes"),
        *(({"grow": partial(hforest.grow, **{name: 3})}, TypeError, f"grow: expected .* got a functools.partial that binds {name}; ")
          for name in ("n_trees", "first_tree", "progress", "rng")),
        ({"grow": lambda x, y: None}, TypeError, "grow: "),
        ({"grow": lambda x, y, **more: None}, TypeError, "grow: expected a function that returns"),
        ({"grow": "best"}, TypeError, "grow: expected a function, got str"),
        ({"grow": partial(hforest.grow, task="regression")}, ValueError, "task"),
        ({"n_trees": 0}, ValueError, "n_trees"),
        ({"trees_per_draw": 0}, ValueError, "trees_per_draw"),
        ({"balance": 1}, TypeError, "balance"),
        ({"normalize": 1}, TypeError, "normalize"),
        ({"progress": 3}, TypeError, "progress"),
    ],
)  # fmt: skip
def test_fit_refuses(changes, error, message):
    settings = {"window": 3, "n_trees": 1, "n_pixels": 20, "rng": 0}
    arguments = {"images": X, "labels": Y, "grow": hforest.grow, **settings}
    images.fit(**arguments)
    with pytest.raises(error, match=message):
        images.fit(**{**arguments, **changes})


@pytest.fixture(scope="module")
def model():
    return images.fit(X, Y, hforest.grow, window=5, n_trees=2, n_pixels=50, rng=0)


@pytest.mark.parametrize("function", [images.predict, images.predict_labels])
@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"images": X[..., :1]}, ValueError, "images: expected n_channels = 2, got 1; pass the channels"),
        ({"images": X[:, :3]}, ValueError, "window: expected at most 3 pixels"),
        ({"images": X[:, 0]}, ValueError, "images: expected 2 spatial axes, got 1"),
        ({"images": X + np.inf}, ValueError, "images: "),
        ({"weight_back": 1.1}, ValueError, "weight_back"),
        ({"max_memory": 0}, ValueError, "max_memory"),
        ({"model": None}, TypeError, r"model: expected a hforest\.images\.Model"),
    ],
)
def test_predictions_refuse(function, model, changes, error, message):
    with pytest.raises(error, match=message):
        function(**{"model": model, "images": X, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_channels": 3}, r"model\.forest: expected n_features = 75, got 50"),
        ({"window": (3, 3)}, r"model\.forest: expected n_features = 18"),
        ({"window": (5,)}, r"model\.forest: expected n_features"),
        ({"window": (5, 4)}, r"model\.window: expected odd sizes"),
        ({"border": "none"}, r"model\.border"),
        ({"step": 0}, r"model\.step"),
        ({"class_factor": np.ones(3)}, r"model\.class_factor"),
        ({"class_factor": np.array([1, np.nan])}, r"model\.class_factor"),
        ({"scale": np.ones(3)}, r"model\.scale"),
    ],
)
def test_changed_models_are_refused(model, changes, message):
    with pytest.raises(ValueError, match=message):
        images.predict(model._replace(**changes), X)
    masked = np.ma.masked_equal(model.class_factor, model.class_factor[0])
    with pytest.raises(TypeError, match="^model.class_factor: expected .*, got MaskedArray; "):
        images.predict(model._replace(class_factor=masked), X)
    broken = model.forest._replace(left=model.forest.left + 1000)
    with pytest.raises((ValueError, IndexError), match=r"model\.forest"):
        images.predict(model._replace(forest=broken), X)


# --------------------------------------------------------------------------------------------- channels


def test_boxes_are_means():
    x = noise(2, 9, 8, 2)
    found = images.boxes(x, [1, 3, 5])
    assert found.shape == (2, 9, 8, 6)
    assert found.dtype == np.float32
    assert np.allclose(found[..., :2], x)
    whole = np.pad(x, [(0, 0), (2, 2), (2, 2), (0, 0)], mode="symmetric")
    for a in range(9):
        for b in range(8):
            assert np.allclose(
                found[:, a, b, 4:], whole[:, a : a + 5, b : b + 5].mean(axis=(1, 2)), atol=1e-6
            )
            inner = whole[:, a + 1 : a + 4, b + 1 : b + 4]
            assert np.allclose(found[:, a, b, 2:4], inner.mean(axis=(1, 2)), atol=1e-6)


@pytest.mark.parametrize(("down", "right_", "place"), [(0, 1, 0), (1, 1, 1), (2, 0.1, 1), (1, -1, 3), (-1, -1, 1), (0, -3, 0)])  # fmt: skip
def test_gradients_of_ramps(down, right_, place):
    row, column = np.mgrid[:21, :21]
    ramp = 0.1 * row  # a weaker channel, which is not used
    x = np.stack([ramp, down * row + right_ * column], axis=-1)[None].astype(float)
    found = images.gradients(x)[0, 10, 10]
    size = np.hypot(down, right_)
    expected = np.zeros(5)
    expected[[0, 1 + place]] = size
    assert np.allclose(found, expected, rtol=0.01)


def test_gradients_of_signals_and_volumes():
    line = images.gradients(np.arange(20.0).reshape(1, 20, 1), 0)
    assert line.shape == (1, 20, 1)
    assert abs(line[0, 10, 0] - 1) < 0.01
    volume = np.broadcast_to(np.arange(12.0)[:, None, None, None], (1, 12, 12, 12, 1))
    assert abs(images.gradients(volume, 0)[0, 6, 6, 6, 0] - 1) < 0.01
    with pytest.raises(ValueError, match="n_orientations: expected 0 for images without two spatial axes"):
        images.gradients(volume, 4)


def test_coordinates_tell_where_a_pixel_is():
    x = noise(2, 10, 20, 1)
    y = np.broadcast_to(np.arange(20) > 12, (2, 10, 20))
    place = images.coordinates(x)
    assert np.allclose(place[1, 3, 7], [0.35, 0.375])
    joined = np.concatenate([x, place], axis=-1)
    model = images.fit(joined, y, partial(hforest.grow, max_features=None), window=1, **SHORT)
    assert right(model, joined, y) > 0.99


def test_opponent_colours_are_a_rotation():
    x = noise(1, 5, 5, 3)
    assert np.allclose(np.linalg.norm(images.opponent(x), axis=-1), np.linalg.norm(x, axis=-1), atol=1e-6)
    red, blue = np.eye(3)[0], np.eye(3)[2]
    assert images.opponent(red[None, None, None])[0, 0, 0, 0] > 0
    assert images.opponent(blue[None, None, None])[0, 0, 0, 1] < 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: images.boxes(X, [2]), r"sizes\[0\]: expected an odd size"),
        (lambda: images.boxes(X, [3, 11]), r"sizes\[1\]: expected 1 to 10, got 11"),
        (lambda: images.boxes(X.astype(float) * 3e307, [3]), "images: expected numbers from"),
        (lambda: images.boxes(X, []), "sizes: expected at least one"),
        (lambda: images.opponent(X), "images: expected three channels, red, green and blue, got 2"),
        (lambda: images.gradients(X, sigma=0.0), "sigma"),
        (lambda: images.coordinates(X[0, 0]), "images: expected shape"),
    ],
)
def test_channels_refuse(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# ----------------------------------------------------------------------------------------------- scores


def test_scores_are_those_of_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(0)
    y = random.integers(0, 5, (2, 30, 20))
    p = np.where(random.random(y.shape) < 0.6, y, random.integers(0, 4, y.shape))  # class 4 is void
    counts = images.confusion(y, p, 4, void=4)
    known = y != 4
    left = (y[known & (p < 4)], p[known & (p < 4)])
    assert (counts == metrics.confusion_matrix(*left, labels=range(4))).all()
    found = images.scores(counts)
    assert np.allclose(found.jaccard, metrics.jaccard_score(*left, average=None, labels=range(4)))
    assert np.allclose(found.recall, metrics.recall_score(*left, average=None, labels=range(4)))
    assert found.mean_jaccard == pytest.approx(metrics.jaccard_score(*left, average="macro"))
    assert found.mean_recall == pytest.approx(metrics.balanced_accuracy_score(*left))
    assert found.pixels == pytest.approx(metrics.accuracy_score(*left))
    one, two = (images.confusion(y[i], p[i], 4, void=4) for i in range(2))
    assert (one + two == counts).all()


def test_absent_classes_are_not_averaged():
    found = images.scores([[3, 1, 0], [0, 0, 0], [0, 0, 2]])
    assert found.jaccard.tolist() == [0.75, 0, 1]
    assert np.isnan(found.recall[1])
    assert found.mean_jaccard == 0.875
    assert found.mean_recall == 0.875
    assert np.isnan(images.scores([[3, 0], [0, 0]]).jaccard[1])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: images.confusion(Y, Y[:, 1:]), ValueError, "predicted: expected shape"),
        (lambda: images.confusion(Y, Y + 2), IndexError, "predicted: expected 0 <= label"),
        (lambda: images.confusion(Y + 2, Y, 2), IndexError, "labels: expected 0 <= label"),
        (lambda: images.confusion(Y, Y - 1), IndexError, "predicted: "),
        (lambda: images.scores([[0, 0], [0, 0]]), ValueError, "counts: expected at least one pixel"),
        (lambda: images.scores([[1, -1], [0, 0]]), ValueError, "counts: expected numbers of at least 0"),
        (lambda: images.scores([[1.5]]), ValueError, "counts: expected whole numbers"),
        (lambda: images.scores([["1"]]), TypeError, "counts: expected an array of real numbers"),
        (lambda: images.scores([[np.nan]]), ValueError, "counts: "),
        (lambda: images.scores([1, 2]), ValueError, "counts: expected shape"),
    ],
)
def test_scores_refuse(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_label_maps_as_channels():
    # A second model reads the first one's shares (auto-context): majorities of noisy pixels.
    random = np.random.default_rng(0)
    y = np.kron(random.integers(0, 2, (4, 5, 5)), np.ones((1, 6, 6), int))
    x = (y + random.normal(size=y.shape) * 1.5)[..., None].astype(np.float32)
    first = [images.fit(x[i : i + 2], y[i : i + 2], hforest.grow, window=3, **SHORT) for i in (0, 2)]
    shares = np.concatenate([images.predict(first[1], x[:2]), images.predict(first[0], x[2:])])
    joined = np.concatenate([x, shares], axis=-1)
    train, test = slice(0, 3), slice(3, 4)
    second = images.fit(joined[train], y[train], hforest.grow, window=5, **SHORT)
    assert right(second, joined[test], y[test]) > right(first[0], x[test], y[test]) + 0.03


def test_predictions_are_those_of_the_forest_on_copies(model):
    frame = windows.Frame((5, 5), 1, "reflect")
    rows = naive(X[:1], range(120), frame)
    p = tree.predict(model.forest, rows) / model.class_factor
    p /= p.sum(axis=1, keepdims=True)
    assert np.allclose(images.predict(model, X[:1]).reshape(-1, 2), p, atol=1e-6)
