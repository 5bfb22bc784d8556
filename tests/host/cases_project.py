"""Cases of `hforest.project`: sparse, patches, empty projections, all samples and some."""

from collections.abc import Iterator

import numpy as np

from hforest import project

from .case import Case


def _results(n: int, n_projections: int, dtype: type) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(n)
    x = rng.normal(size=(n, 12)).astype(dtype)
    sparse = project.sample(project.sparse_distribution(12, 3.0), n_projections, dtype=dtype, rng=1)
    cyclic = project.patch_distribution((3, 4), patch_max=3, cyclic=True)
    patches = project.sample(cyclic, n_projections, dtype=dtype, rng=2)
    samples = rng.integers(0, n, 2 * n, np.int32)
    return {
        "sparse": project.project(x, *sparse),
        "patches": project.project(x, *patches, samples=samples),
        "empty": project.project(x, np.zeros(3, np.int64), sparse.indices[:0], sparse.data[:0]),
    }


def cases(dtype: type) -> Iterator[Case]:
    """Few and many values."""
    for n, n_projections in ((1, 1), (40, 7), (130, 20)):
        yield Case(f"n={n} projections={n_projections}", lambda n=n, p=n_projections: _results(n, p, dtype))
