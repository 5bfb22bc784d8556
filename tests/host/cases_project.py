"""Cases of `hforest.project`: sparse, patches, empty projections, all samples and some."""

from collections.abc import Iterator

import numpy as np

from hforest import project

from .case import Case


def _results(n: int, n_projections: int, dtype: type) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(n)
    x = rng.normal(size=(n, 12)).astype(dtype)
    sparse = project.sample_sparse(n_projections, 12, density=3, dtype=dtype, rng=1)
    patches = project.sample_patches(n_projections, (3, 4), patch_max=3, cyclic=True, dtype=dtype, rng=2)
    samples = rng.integers(0, n, 2 * n, np.int32)
    return {
        "sparse": project.project(x, *sparse),
        "patches": project.project(x, *patches, samples=samples),
        "empty": project.project(x, np.zeros(3, np.int64), sparse.index[:0], sparse.weight[:0]),
    }


def cases(dtype: type) -> Iterator[Case]:
    """Few and many values."""
    for n, n_projections in ((1, 1), (40, 7), (130, 20)):
        yield Case(f"n={n} projections={n_projections}", lambda n=n, p=n_projections: _results(n, p, dtype))
