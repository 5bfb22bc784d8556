"""Good values of the arguments of optimisers, layers and projections."""

import numpy as np

from hforest import project

from .values import Setting, _x, options, value

# ------------------------------------------------------------------------------------------- optim


def _shape(s: Setting) -> tuple[int, ...]:
    return s.argument("param").shape


def _n_rows(s: Setting) -> int:
    rows = s.given("rows")
    return _shape(s)[0] if rows is None else len(rows)


value("param")(lambda s: s.numbers(*s.choice(((3, 2), (2,), (20, 3), (40, 17), (0, 2)))))
value("rows")(lambda s: np.flatnonzero(s.random.integers(0, 2, _shape(s)[0])))
value("optim.grad")(lambda s: s.numbers(_n_rows(s), *_shape(s)[1:]))
value("m")(lambda s: s.numbers(*_shape(s)))
value("optim.state", "v")(lambda s: s.positive(*_shape(s)))
value("last")(lambda s: s.indices(s.argument("step"), _shape(s)[0], dtype=np.int64))
value("optim.step")(lambda s: s.choice((1, 3, 40)))

# ------------------------------------------------------------------------------------------ layers

options("stride", 1, 2, 3)
value("layers.normalize.x", "layers.normalize_update.x", "grad_z")(_x)
value("mean")(lambda s: s.numbers(s.n_features))
value("var")(lambda s: s.positive(s.n_features))
options("layers.step", 1, 2, 100)
value("scores", "prediction", "layers.squared_loss.y")(lambda s: s.numbers(s.n, s.n_classes))


@value("layers.x")
def _images(s: Setting) -> np.ndarray:
    return s.numbers(s.n, *s.choice(((), (1,), (3,))), *s.choice(((4, 5), (7, 7), (3, 3))))


@value("kernels")
def _kernels(s: Setting) -> np.ndarray:
    x = s.argument("x")
    return s.numbers(s.n_trees, *x.shape[1:-2], s.integer(1, 3), s.integer(1, 3))


@value("layers.grad_y")
def _grad_of_images(s: Setting) -> np.ndarray:
    x, kernels, stride = (s.argument(name) for name in ("x", "kernels", "stride"))
    size = [(i - k) // stride + 1 for i, k in zip(x.shape[-2:], kernels.shape[-2:], strict=True)]
    return s.numbers(len(x), len(kernels), *size)


# ----------------------------------------------------------------------------------------- project

options("density", 1.5, 0.5, 4.0)
options("n_projections", 2, 1, 20)


@value("project.grouped_distribution.distribution")
def _without_patches(s: Setting) -> project.Distribution:
    kind = s.choice(("axis", "sparse", "probe"))
    return getattr(project, f"{'axis' if s.n_features < 2 else kind}_distribution")(s.n_features)


@value("groups")
def _groups(s: Setting) -> list[np.ndarray]:
    columns = s.random.permutation(s.n_features)
    return np.split(columns, sorted({s.integer(1, s.n_features) for _ in range(2)} - {s.n_features}))


value("project.grouped_distribution.n_projections")(
    lambda s: s.choice((3, [s.integer(1, 9) for _ in s.argument("groups")]))
)


@value("distribution")
def _distribution(s: Setting) -> project.Distribution:
    kind = s.choice(("plain", "patch", "kernel", "groups"))
    if kind == "kernel":
        return project.kernel_distribution(
            (s.n_features,), [[1.0], s.numbers(s.integer(1, s.n_features)) + 9]
        )
    if kind == "patch":
        n = s.n_features
        return project.patch_distribution((n,), patch_max=min(3, n), cyclic=s.flag())
    plain = _without_patches(s)
    return plain if kind == "plain" else project.grouped_distribution(plain, _groups(s), s.integer(1, 2))


value("projections")(lambda s: _distribution(s) if s.flag() else None)


@value("growth.n_projections", "scale.n_projections", "alternating.n_projections")
def _n_projections(s: Setting) -> int | None:
    projections = s.argument("projections")
    if projections is None:
        return None
    n = sum(projections.n_projections)
    return s.choice((None, n)) if n else s.integer(1, 20)


@value("project.kernel_distribution.kernels")
def _kernels(s: Setting) -> list[np.ndarray]:
    n_axes = len(s.argument("shape")) - bool(s.argument("channels"))
    return [np.ones((1,) * n_axes) for _ in range(s.integer(1, 3))]


value("project.probe_distribution.n_features")(lambda s: max(2, s.n_features))


def _projections(s: Setting) -> project.Projections:
    if "_projections" not in s._arguments:
        s._arguments["_projections"] = project.sample(_distribution(s), s.integer(1, 9), dtype=s.dtype, rng=0)
    return s._arguments["_projections"]


value("indptr")(lambda s: _projections(s).indptr)
value("indices")(lambda s: _projections(s).indices)
value("project.data")(lambda s: _projections(s).data)
value("samples")(lambda s: s.indices(s.n, s.n and s.integer(0, 9)))
