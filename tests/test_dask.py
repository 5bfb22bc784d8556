"""Forests on Dask collections: bit-identical to those of one machine, even if a worker ends."""
# ruff: noqa: E402 (modules that need Dask are imported where it is known to be there)

import os
import signal

import numpy as np
import pytest
from conftest import assert_same_bits

pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")

import dask.array
import row_worker

import hforest
import hforest.dask
from hforest import scale
from hforest.growth.by_level import batches, planning

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(scope="module")
def client():
    with distributed.Client(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0"
    ) as client:
        yield client


@pytest.mark.parametrize("chunks", [(400,), (150, 250), (1, 99, 0, 300)])
@pytest.mark.parametrize("case", ["classification", "regression", "projections"])
def test_arrays(client, case, chunks):
    x, y, settings = row_worker.samples(case)
    weight = np.arange(len(y)) % 3
    settings |= {"min_weight_fraction_leaf": 0.05}
    want = scale.grow_by_rows(None, x, y, 4, sample_weight=weight, rng=5, **settings)
    found = hforest.dask.grow(
        client, dask.array.from_array(x, chunks=(chunks, 3)), dask.array.from_array(y, chunks=70), 4,
        sample_weight=dask.array.from_array(weight, chunks=200), rng=5, **settings,
    )  # fmt: skip
    assert_same_bits(want, found)


def test_frames(client):
    pd = pytest.importorskip("pandas")
    frames = pytest.importorskip("dask.dataframe")
    x, y, settings = row_worker.samples("classification")
    table = pd.DataFrame(x).assign(y=y)
    table.columns = [str(name) for name in table.columns]
    parts = frames.from_pandas(table, npartitions=3)
    found = hforest.dask.grow(client, parts.drop(columns="y"), parts["y"], 4, rng=5, **settings)
    assert_same_bits(scale.grow_by_rows(None, x, y, 4, rng=5, **settings), found)


def test_a_worker_that_is_killed(monkeypatch):
    """Dask recomputes its partitions and their states."""
    monkeypatch.setattr(planning, "_BATCH", 2)
    x, y, settings = row_worker.samples("classification")
    want = scale.grow_by_rows(None, x, y, 6, rng=5, **settings)
    levels = 0
    with distributed.Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
        kept = client.persist(dask.array.from_array(x, chunks=(100, 6)))
        pids = list(client.run(os.getpid).values())
        best_splits = batches.best_splits

        def kills(*args):
            nonlocal levels
            levels += 1
            if levels == 5:  # in the middle of a level, whose state is on the workers
                os.kill(pids[0], signal.SIGKILL)
            return best_splits(*args)

        monkeypatch.setattr(batches, "best_splits", kills)
        found = hforest.dask.grow(client, kept, dask.array.from_array(y, chunks=100), 6, rng=5, **settings)
    assert levels > 5
    assert_same_bits(want, found)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"client": 3}, TypeError, "client: expected a distributed.Client, got int; pass"),
        ({"x": np.zeros((4, 2))}, TypeError, "x: expected a Dask array or DataFrame, got ndarray; pass"),
        ({"y": dask.array.zeros(5, chunks=1)}, ValueError, "y: expected the 2 partitions of x, got 5; pass"),
        ({"y": dask.array.from_array(np.array([0, 1, 0, -1]), chunks=2)}, IndexError, "y: .*partition 1"),
        ({"bootstrap": np.ones((1, 4), int)}, TypeError, 'bootstrap: expected "poisson" or False, got'),
        ({"bootstrap": True}, ValueError, 'bootstrap: expected "poisson", False'),
        ({"max_bins": 0}, ValueError, "max_bins: expected"),
    ],
)
def test_what_is_refused(client, change, error, message):
    arguments = {
        "client": client, "x": dask.array.from_array(np.arange(8.0).reshape(4, 2), chunks=2),
        "y": dask.array.from_array(np.array([0, 1, 0, 1]), chunks=2), "n_trees": 1, **change,
    }  # fmt: skip
    with pytest.raises(error, match=f"^{message}"):
        hforest.dask.grow(**arguments)


def test_a_closed_client(client):
    with distributed.Client(client.cluster) as other:
        pass
    x = dask.array.from_array(np.eye(4))
    with pytest.raises(ValueError, match="^client: expected a connected client, got a closed one; "):
        hforest.dask.grow(other, x, x[:, 0] > 0, 2)


def test_progress_ends_the_growth(client, monkeypatch):
    monkeypatch.setattr(planning, "_BATCH", 2)
    x, y, settings = row_worker.samples("classification")
    found = hforest.dask.grow(
        client, dask.array.from_array(x, chunks=(200, 6)), dask.array.from_array(y, chunks=200), 6,
        progress=lambda done, total: done < 4, rng=5, **settings,
    )  # fmt: skip
    assert_same_bits(scale.grow_by_rows(None, x, y, 4, rng=5, **settings), found)
