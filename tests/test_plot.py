"""Plots: positions and text of boxes, colours, images of importances, decision regions."""

import importlib.util
import sys
from types import SimpleNamespace

import numpy as np
import pytest

matplotlib = pytest.importorskip("matplotlib", minversion="3.8", reason="needs Matplotlib 3.8 or newer")
matplotlib.use("Agg")

from matplotlib import pyplot  # noqa: E402

import hforest  # noqa: E402
import hforest.plot as hp  # noqa: E402
from hforest import project, tree  # noqa: E402
from hforest.plot import shared, trees  # noqa: E402

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 5))
Y = (X[:, 0] > 0).astype(int) + (X[:, 1] + X[:, 2] > 0.5)
FOREST = hforest.grow(X, Y, 3, rng=0)
TARGETS = hforest.grow(X, X[:, :2] * 10, 2, task="regression", max_depth=3, rng=0)
OBLIQUE = hforest.grow(X, Y, 2, projections=project.sparse_distribution(5, 4.0), rng=0)


@pytest.fixture(autouse=True)
def closed():
    yield
    pyplot.close("all")


def boxes(ax):
    """Returns texts of nodes with their frames, in pixels of the drawing."""
    ax.figure.canvas.draw()
    return {text: text.get_bbox_patch().get_window_extent() for text in ax.texts if text.get_bbox_patch()}


def nodes(forest, m):
    return int(forest.tree_start[m + 1] - forest.tree_start[m])


# --------------------------------------------------------------------------- layout


def random_tree(n_splits, rng):
    """Returns the children of a random tree, breadth-first."""
    left, right, leaves = [-1], [-1], [0]
    for _ in range(n_splits):
        v = leaves.pop(int(rng.integers(len(leaves))))
        left[v], right[v] = len(left), len(left) + 1
        leaves += [len(left), len(left) + 1]
        left += [-1, -1]
        right += [-1, -1]
    return np.array(left), np.array(right)


def depths(left, right):
    depth = np.zeros(len(left), int)
    for v in range(len(left)):
        if left[v] >= 0:
            depth[[left[v], right[v]]] = depth[v] + 1
    return depth


@pytest.mark.parametrize("n_splits", [0, 1, 5, 60])
def test_boxes_of_a_level_keep_their_distance(n_splits):
    rng = np.random.default_rng(n_splits)
    for _ in range(10):
        left, right = random_tree(n_splits, rng)
        width = rng.uniform(1, 9, len(left))
        centre = trees.tidy(left, right, width, 0.5)
        depth = depths(left, right)
        for level in range(depth.max() + 1):
            of_level = np.flatnonzero(depth == level)
            order = of_level[np.argsort(centre[of_level])]
            room = np.diff(centre[order]) - (width[order][1:] + width[order][:-1]) / 2
            assert (room >= 0.5 - 1e-9).all()
        inner = left >= 0
        assert centre[inner] == pytest.approx((centre[left[inner]] + centre[right[inner]]) / 2)
        assert (centre[left[inner]] < centre[right[inner]]).all()


def test_subtrees_stand_as_close_as_they_can():
    # A root with two splits whose inner leaves determine the distance.
    left, right = np.array([1, 3, 5, -1, -1, -1, -1]), np.array([2, 4, 6, -1, -1, -1, -1])
    centre = trees.tidy(left, right, np.full(7, 2.0), 1.0)
    assert centre.tolist() == [0, -3, 3, -4.5, -1.5, 1.5, 4.5]
    # A mirrored tree has mirrored positions.
    mirrored = trees.tidy(right, left, np.full(7, 2.0), 1.0)
    assert mirrored.tolist() == [0, 3, -3, 4.5, 1.5, -1.5, -4.5]


# --------------------------------------------------------------------------- trees


@pytest.mark.parametrize("given", [False, True], ids=["new figure", "given axes"])
@pytest.mark.parametrize("forest", [FOREST, TARGETS, OBLIQUE], ids=["classes", "targets", "projections"])
def test_every_node_has_a_box_and_none_covers_another(forest, given):
    ax = pyplot.subplots(figsize=(9, 7))[1] if given else None
    names = ["a feature of a long name with many words", "b", "c" * 90, "d $1_2$", "e"]
    found = hp.tree(forest, 1, feature_names=names, ax=ax)
    assert found is ax or not given
    drawn = boxes(found)
    assert len(drawn) == nodes(forest, 1)
    frame = found.figure.bbox
    extents = list(drawn.values())
    for i, a in enumerate(extents):
        assert frame.x0 <= a.x0
        assert a.x1 <= frame.x1
        assert frame.y0 <= a.y0
        assert a.y1 <= frame.y1
        for b in extents[:i]:
            assert min(a.x1, b.x1) - max(a.x0, b.x0) <= 0.5 or min(a.y1, b.y1) - max(a.y0, b.y0) <= 0.5


def test_boxes_hold_their_text():
    for text, frame in boxes(hp.tree(OBLIQUE, 0, fontsize=12)).items():
        pixels = text.get_window_extent()
        assert text.get_fontsize() == 12
        assert frame.x0 < pixels.x0
        assert pixels.x1 < frame.x1


def test_texts_say_what_the_tree_does():
    names = [f"feature {f}" for f in range(5)]
    texts = [text.get_text() for text in boxes(hp.tree(FOREST, 2, feature_names=names))]
    start, row = FOREST.tree_start[2], (FOREST.tree_start[2] + 2) // 2
    for v, text in enumerate(texts):  # both are breadth-first
        feature = FOREST.feature[start + v]
        if feature == -1:
            value = FOREST.value[row + FOREST.left[start + v]]
            assert text.startswith(f"class {value.argmax()} {value.max():.2f}")
        else:
            assert text == f"feature {feature} <= {FOREST.threshold[start + v]:.4g}"


def test_sides_are_named_at_the_root():
    x = np.array([[0.0], [1.0]])
    forest = hforest.grow(x, np.array([0, 1]), 1, bootstrap=False, rng=0)
    ax = hp.tree(forest, class_names=["low", "high"])
    place = {text.get_text(): text.get_window_extent() for text in ax.texts}
    assert set(place) == {"x[0] <= 0.5", "low 1.00", "high 1.00", "yes", "no"}
    assert place["low 1.00"].x1 < place["high 1.00"].x0
    assert place["yes"].x1 < place["no"].x0
    assert place["low 1.00"].y1 < place["yes"].y0 < place["x[0] <= 0.5"].y0


def test_cut_trees_count_the_leaves_below():
    ax = hp.tree(FOREST, 0, max_depth=1)
    texts = [text.get_text() for text in boxes(ax)]
    assert len(texts) == 3
    hidden = [int(text.split()[1]) for text in texts if text.startswith("…")]
    assert sum(hidden) + (2 - len(hidden)) == (nodes(FOREST, 0) + 1) // 2
    assert [text.get_text() for text in boxes(hp.tree(FOREST, 0, max_depth=0))] == [
        f"… {(nodes(FOREST, 0) + 1) // 2} leaves"
    ]


def test_a_tree_of_one_leaf():
    forest = hforest.grow(X, np.zeros(300, int), 1, n_classes=3, rng=0)
    (text,) = boxes(hp.tree(forest))
    assert text.get_text() == "class 0 1.00"
    forest = hforest.grow(X, np.full(300, 2.5), 1, task="regression", rng=0)
    (text,) = boxes(hp.tree(forest))
    assert text.get_text() == "2.5"


def written(weights, threshold=1.0, *, n_shown=3, names=None):
    """Returns the text of a split by a projection of features 0, 1, ..."""
    n = len(weights)
    forest = tree.Forest(
        n_features=np.array(max(n, 1)), tree_start=np.array([0, 3]), feature=np.array([-2, -1, -1], np.int32),
        threshold=np.array([threshold, 0, 0]), left=np.array([1, 0, 1], np.int32), value=np.array([[0.0], [1.0]]),
        gain=np.zeros(3), indptr=np.array([0, n, n, n]), indices=np.arange(n, dtype=np.int32),
        data=np.array(weights, float),
    )  # fmt: skip
    texts = [text.get_text() for text in boxes(hp.tree(forest, feature_names=names, max_terms=n_shown))]
    return " ".join(texts[0].split())


def test_projections_are_written_by_their_largest_weights():
    assert written([0.7, -0.7]) == "0.7 x[0] - 0.7 x[1] <= 1"
    assert written([-1, 1], names=["a", "b"]) == "- a + b <= 1"
    assert written([0.1, -2, 0.3, 4], n_shown=2) == "- 2 x[1] + 4 x[3] + 2 more <= 1"
    assert written([1, 1, 1], n_shown=1) == "x[0] + 2 more <= 1"
    assert written([]) == "0 <= 1"
    assert written([2.0], threshold=np.inf) == "2 x[0] <= inf"


def node(**fields):
    """Returns labels of a forest of one split by feature 0, with fields of missing values and categories."""
    forest = SimpleNamespace(
        feature=np.array([0], np.int32),
        threshold=np.array([fields.pop("threshold", 0.5)], np.float32),
        **fields,
    )
    return trees.Labels(forest, ["size"], (), 3).split(0)


def test_missing_values_and_categories_are_written():
    largest = np.finfo(np.float32).max
    assert node() == "size <= 0.5"
    assert node(default_left=np.array([1], np.uint8)) == "size <= 0.5\nmissing: yes"
    assert node(default_left=np.array([2], np.uint8)) == "size <= 0.5\nmissing: no"
    assert node(default_left=np.array([3], np.uint8)) == "size <= 0.5"
    assert node(default_left=np.array([0], np.uint8), threshold=largest) == "size is not missing"
    bits = np.array([0b1001, 1], np.uint32)
    sets = {"category_indptr": np.array([0, 2]), "category_bits": bits, "threshold": 0}
    assert node(default_left=np.array([0], np.uint8), **sets) == "size in {0, 3, 32}\nmissing: no"
    sets["category_bits"] = ~bits
    assert node(default_left=np.array([3], np.uint8), **sets) == "size not in {0, 3, 32}\nmissing: yes"
    sets["category_bits"] = np.array([2**32 - 1, 0], np.uint32)
    text = node(default_left=np.array([1], np.uint8), **sets)
    assert " ".join(text.split()) == "size in {0, 1, 2, 3, 4, 5, 26 more} missing: yes"


def test_leaves_are_coloured_by_class_and_share():
    assert shared.of_shares(np.eye(3)) == pytest.approx(shared.of_classes(3))
    pale, full = shared.of_shares(np.array([[0.6, 0.4], [0.9, 0.1]]))
    assert (abs(1 - pale) <= abs(1 - full)).all()
    for n_classes in (2, 10, 11, 20, 26, 100):
        found = shared.of_classes(n_classes)
        assert len(np.unique(found.round(6), axis=0)) == n_classes
        assert ((found >= 0) & (found <= 1)).all()
    assert shared.of_text(np.array([1.0, 1, 1])) == "black"
    assert shared.of_text(np.array([0.0, 0, 0.5])) == "white"
    extremes = np.array([-1e308, 1e308])
    low, high = shared.of_values(extremes, *extremes)
    assert low.tolist() == list(matplotlib.colormaps["viridis"](0.0)[:3])
    assert high.tolist() == list(matplotlib.colormaps["viridis"](1.0)[:3])
    frames = [t.get_bbox_patch().get_facecolor()[:3] for t in boxes(hp.tree(FOREST, 0))]
    leaf = int(np.flatnonzero(FOREST.feature[: nodes(FOREST, 0)] == -1)[0])
    assert frames[leaf] == pytest.approx(shared.of_shares(FOREST.value[FOREST.left[leaf]][None])[0])
    assert frames[0] == (0.94, 0.94, 0.94)


@pytest.mark.parametrize(
    ("error", "settings", "message"),
    [
        (TypeError, {"forest": 3}, "forest: expected a hforest.tree.Forest"),
        (IndexError, {"tree": 3}, "tree: expected 0 <= tree < n_trees = 3, got 3; choose"),
        (TypeError, {"tree": 0.5}, "tree: expected an int, got float; pass"),
        (
            ValueError,
            {"feature_names": ["a"]},
            "feature_names: expected n_features = 5 names, got 1; pass one name",
        ),
        (TypeError, {"feature_names": "abcde"}, "feature_names: expected a sequence of str, got str; pass"),
        (TypeError, {"class_names": [1, 2, 3]}, r"class_names\[0\]: expected a str, got int; pass"),
        (
            ValueError,
            {"class_names": ["a"]},
            "class_names: expected n_classes = 3 names, got 1; pass one name",
        ),
        (ValueError, {"max_depth": -1}, "max_depth: expected 0 to .*, got -1; pass"),
        (ValueError, {"max_terms": 0}, "max_terms: expected 1 to .*, got 0; pass"),
        (ValueError, {"fontsize": 0}, "fontsize: expected a number above 0, at most 1000, got 0.0; pass"),
        (ValueError, {"fontsize": 1e9}, "fontsize: .* at most 1000, got 1000000000.0; pass"),
        (ValueError, {"fontsize": 10**400}, "fontsize: .* at most 1000, got inf; pass"),
        (TypeError, {"fontsize": "large"}, "fontsize: expected a number, got str; pass"),
        (TypeError, {"ax": 1}, "ax: expected matplotlib.axes.Axes, got int; pass"),
    ],
)
def test_wrong_arguments_of_trees(error, settings, message):
    with pytest.raises(error, match=message):
        hp.tree(**{"forest": FOREST, **settings})


def test_trees_of_too_many_nodes_are_refused():
    x = RNG.normal(size=(3000, 3))
    forest = hforest.grow(x, RNG.integers(0, 2, 3000), 1, rng=0)
    assert forest.feature.size > 1000
    wide = hforest.grow(x, np.arange(3000.0), 1, task="regression", rng=0)
    with pytest.raises(
        ValueError, match="max_depth: expected a depth with at most 2000 nodes, got None .*; pass"
    ):
        hp.tree(wide)
    assert len(boxes(hp.tree(wide, max_depth=2))) == 7


# --------------------------------------------------------------------------- importances


def test_importances_in_the_shape_of_a_sample():
    x = RNG.normal(size=(200, 24))
    y = x[:, 9] + x[:, 10] > 0
    forest = hforest.grow(x, y, 10, projections=project.patch_distribution((4, 6), patch_max=3), rng=0)
    for by in ("count", "gain"):
        image = hp.importance_image(forest, (4, 6), by=by)
        assert (image == tree.importance(forest, by=by).reshape(4, 6)).all()
        assert (hp.importance(forest, (4, 6), by=by).images[0].get_array() == image).all()
    bars = hp.importance(forest, [24]).patches
    assert [bar.get_height() for bar in bars] == tree.importance(forest, by="gain").tolist()
    of_channels = hp.importance_image(forest, (4, 3, 2))
    assert (hp.importance(forest, (4, 3, 2)).images[0].get_array() == of_channels.sum(axis=2)).all()
    one = hp.importance(forest, (4, 3, 2), channel=1, ax=pyplot.subplots()[1])
    assert (one.images[0].get_array() == of_channels[:, :, 1]).all()
    assert [a.get_ylabel() for a in one.figure.axes] == ["", "share of the gains"]


SHAP = tree.shap_values(TARGETS, X[:40], cover=X)


def labels(ax):
    return [text.get_text() for text in ax.get_yticklabels()]


def test_importances_of_columns():
    of_gain = tree.importance(FOREST, by="gain")
    ax = hp.importance(FOREST, feature_names=["$a", "b_", "c", "d", "e"])
    order = np.argsort(of_gain, kind="stable")
    assert [bar.get_width() for bar in ax.patches] == of_gain[order].tolist()
    assert labels(ax) == [["$a", "b_", "c", "d", "e"][i] for i in order]
    assert ax.get_xlabel() == "share of the gains"
    of_shap = abs(SHAP.values).mean(axis=0).sum(axis=1)
    ax = hp.importance(SHAP, max_features=2)
    assert [bar.get_width() for bar in ax.patches] == sorted(of_shap)[-2:]
    assert labels(ax) == [f"x[{i}]" for i in np.argsort(of_shap)[-2:]]
    assert ax.get_xlabel() == "mean |SHAP value|"
    np.testing.assert_array_equal(hp.importance_image(SHAP, (1, 5))[0], of_shap)


def test_summaries_have_a_point_for_each_sample():
    x = X[:40].copy()
    x[3] = np.nan
    ax = hp.shap_summary(SHAP, x, output=1, max_features=2)
    of_output = SHAP.values[:, :, 1]
    shown = np.argsort(abs(of_output).mean(axis=0))[-2:]
    assert labels(ax) == [f"x[{i}]" for i in shown]
    for row, (i, points) in enumerate(zip(shown, ax.collections, strict=True)):
        at, height = points.get_offsets().data.T
        np.testing.assert_array_equal(at, of_output[:, i])
        assert abs(height - row).max() <= 0.4
        assert len(np.unique(height)) > 1
        colours = points.get_facecolors()[:, :3]
        assert (colours[3] == 0.6).all()
        least, most = np.argsort(np.where(np.isnan(x[:, i]), 0, x[:, i]))[[0, -1]]
        np.testing.assert_array_equal(colours[[least, most]], shared.of_values(np.array([0, 1.0]), 0, 1))
    assert [text.get_text() for text in ax.figure.axes[1].get_yticklabels()] == ["low", "high"]
    # Values without a range, and one sample.
    one = SHAP._replace(values=np.zeros((1, 5, 1)))
    assert len(hp.shap_summary(one, x[:1]).collections) == 5


@pytest.mark.parametrize(
    ("error", "settings", "message"),
    [
        (TypeError, {"shap": SHAP.values}, "shap: expected a ShapValues, got ndarray; pass"),
        (
            ValueError,
            {"shap": SHAP._replace(values=SHAP.values[:0])},
            r"shap.values: expected shape .* got \(0, 5, 2\)",
        ),
        (
            ValueError,
            {"x": X[:39]},
            r"x: expected shape \(n_samples, n_features\) = \(40, 5\), got \(39, 5\); pass",
        ),
        (TypeError, {"x": "text"}, "x: expected an array of real numbers, got str; pass"),
        (IndexError, {"output": 2}, "output: expected 0 <= output < n_outputs = 2, got 2; choose"),
        (ValueError, {"max_features": 0}, "max_features: expected 1 to 1000, got 0; pass"),
        (ValueError, {"feature_names": ["a"]}, "feature_names: expected n_features = 5 names, got 1; pass"),
    ],
)
def test_wrong_arguments_of_summaries(error, settings, message):
    arguments = {"shap": SHAP, "x": X[:40], **settings}
    with pytest.raises(error, match=f"^{message}"):
        hp.shap_summary(arguments.pop("shap"), arguments.pop("x"), **arguments)


@pytest.mark.parametrize(
    ("error", "shape", "settings", "message"),
    [
        (ValueError, None, {"channel": 0}, "channel: expected None without a shape, got 0; pass"),
        (
            ValueError,
            (2, 3),
            {},
            r"shape: expected sizes that multiply to n_features = 5, got \(2, 3\); pass",
        ),
        (ValueError, (), {}, r"shape: expected \(length,\), .* got \(\); pass"),
        (ValueError, (1, 1, 5, 1), {}, r"shape: expected \(length,\)"),
        (TypeError, 5, {}, "shape: expected a tuple of ints, got int; pass"),
        (TypeError, (5.0,), {}, r"shape\[0\]: expected an int, got float; pass"),
        (
            ValueError,
            (1, 5),
            {"channel": 0},
            "channel: expected None for a shape without channels, got 0; pass",
        ),
        (
            IndexError,
            (1, 5, 1),
            {"channel": 1},
            "channel: expected 0 <= channel < channels = 1, got 1; choose",
        ),
        (ValueError, (1, 5), {"by": "depth"}, "by: expected"),
    ],
)
def test_wrong_arguments_of_importances(error, shape, settings, message):
    with pytest.raises(error, match=message):
        hp.importance(FOREST, shape, **settings)


# --------------------------------------------------------------------------- regions


def test_regions_ask_at_the_centres_of_pixels():
    asked = []

    def predict(points):
        asked.append(points)
        return np.stack([points[:, 0] < 1, points[:, 0] >= 1], axis=1).astype(np.float32)

    x = np.array([[0.0, 10.0], [2.0, 30.0]])
    ax = hp.regions(predict, x, resolution=4)
    (points,) = asked
    extent = ax.images[0].get_extent()
    assert extent == pytest.approx([-0.16, 2.16, 8.4, 31.6])
    assert points.shape == (16, 2)
    assert points[0] == pytest.approx([-0.16 + 0.29, 8.4 + 2.9])
    assert points[4:8, 0] == pytest.approx(points[:4, 0])
    first, second = shared.of_classes(2)
    image = ax.images[0].get_array()
    np.testing.assert_allclose(image[:, :2], np.broadcast_to(first, (4, 2, 3)))
    np.testing.assert_allclose(image[:, 2:], np.broadcast_to(second, (4, 2, 3)))
    assert ax.images[0].origin == "lower"
    assert not ax.collections


def test_regions_draw_samples_and_name_their_classes():
    x, y = X[:, :2], Y.copy()
    forest = hforest.grow(x, y, 5, rng=0)
    y[y == 1] = 0
    ax = hp.regions(lambda a: tree.predict(forest, a), x, y, class_names=["_a", "b", "$c"], resolution=9)
    assert [len(c.get_offsets()) for c in ax.collections] == [(y == 0).sum(), (y == 2).sum()]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["_a", "$c"]
    ax.figure.canvas.draw()
    of_class = shared.of_classes(3)[2]
    assert ax.collections[1].get_facecolor()[0, :3] == pytest.approx(of_class)


@pytest.mark.parametrize("column", [False, True])
def test_regions_of_targets(column):
    def predict(points):
        total = points.sum(axis=1)
        return total[:, None] if column else total

    ax = hp.regions(predict, X[:, :2], X[:, 0], resolution=5)
    image = ax.images[0].get_array()
    assert image.shape == (5, 5)
    assert (np.diff(image, axis=0) > 0).all()
    assert (np.diff(image, axis=1) > 0).all()
    assert ax.collections[0].get_array().tolist() == X[:, 0].tolist()


def test_regions_of_one_sample_and_of_many_points():
    sizes = []

    def predict(points):
        sizes.append(len(points))
        return np.full((len(points), 26), 1 / 26)

    ax = hp.regions(predict, [[1, 2]], [25], resolution=200)
    assert sum(sizes) == 40000
    assert max(sizes) == 2**14
    assert ax.get_xlim() == (0.5, 1.5)


@pytest.mark.parametrize(
    ("error", "settings", "message"),
    [
        (TypeError, {"predict": FOREST}, "predict: expected a function of .*, got Forest; pass"),
        (ValueError, {"predict": lambda x: x[:3]}, r"predict: expected a function from .* got float64 of shape \(3, 2\); pass"),
        (ValueError, {"predict": lambda x: x * np.nan}, "predict: expected finite numbers, got NaN or infinity; correct"),
        (ValueError, {"x": X}, r"x: expected shape \(n_samples, 2\), got \(300, 5\); choose"),
        (TypeError, {"x": [["a", "b"]]}, "x: expected an array of real numbers, got list; pass"),
        (ValueError, {"x": np.zeros((0, 2))}, r"x: expected shape"),
        (ValueError, {"x": X[:, :2] * np.inf}, "x: expected finite numbers, got NaN or infinity; leave"),
        (ValueError, {"x": [[-1e308, 0], [1e308, 1]], "y": [0, 1]}, "x: expected samples whose range .*; divide"),
        (ValueError, {"y": Y[:3]}, r"y: expected shape \(300,\), got \(3,\); pass"),
        (TypeError, {"y": Y.astype(str)}, "y: expected labels of an integer or bool dtype, got .*; number"),
        (IndexError, {"y": Y + 1}, "y: expected labels 0 <= y < n_classes = 3, got 1 to 3; number"),
        (ValueError, {"resolution": 1}, "resolution: expected 2 to 4000, got 1; pass"),
        (ValueError, {"class_names": ["a"]}, "class_names: expected n_classes = 3 names, got 1; pass one name"),
        (TypeError, {"ax": pyplot}, "ax: expected matplotlib.axes.Axes, got module; pass"),
    ],
)  # fmt: skip
def test_wrong_arguments_of_regions(error, settings, message):
    def predict(points):
        return np.full((len(points), 3), 1 / 3)

    given = {"predict": predict, "x": X[:, :2], "y": Y, "resolution": 10}
    with pytest.raises(error, match=message):
        hp.regions(**{**given, **settings})


def test_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    spec = importlib.util.spec_from_file_location(
        "hforest.another", hp.__file__, submodule_search_locations=[]
    )
    with pytest.raises(ImportError, match=r"expected Matplotlib 3.8 or newer, got none; .* -e '..plot.' in"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
