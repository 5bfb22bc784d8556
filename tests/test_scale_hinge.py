"""Hinge forests on several workers are bit-identical to those on one worker."""

import itertools
import re

import numpy as np
import pytest
import row_comms
import shard_worker
from growers import on_threads
from shard_worker import N_STEPS, batch, digest, forest, train
from test_scale_rows import processes

from hforest import hinge, layers, optim, scale
from hforest.scale.hinge import chunks

KINDS = ("tree", "fern")
DTYPES = (np.float32, np.float64)


def results(size, work):
    """Returns the results of all workers; raises the first error."""
    found = row_comms.run(size, work)
    for one in found:
        if isinstance(one, Exception):
            raise one
    return found


def same(a, b):
    a = [one for one in a if one is not None]  # a state of columns lacks these
    assert len(a) == len(b)
    for one, other in zip(a, b, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


def check_raised(size, work, error, message):
    """Checks that all workers raise the same error."""
    found = row_comms.run(size, work)
    assert len({(type(a), str(a)) for a in found}) == 1
    with pytest.raises(error, match=message):
        raise found[0]


def trained(shards, **settings):
    """Returns the results of training, and the parameters and the state after it."""
    return train(shards, **settings), shards.parameters(), shards.adam_state()


def check_workers(sizes, work, want):
    """Checks that each worker of any number of workers has the results of one process."""
    for size in sizes:
        for found in results(size, work):
            for a, b in zip(found, want, strict=True):
                same(a, b)


# ------------------------------------------------------------------------------------------- reference


def pairwise(parts):
    """Returns the sum of arrays in the fixed binary tree; the left part has a power of two of them."""
    if len(parts) == 1:
        return parts[0]
    half = 1 << ((len(parts) - 1).bit_length() - 1)
    return pairwise(parts[:half]) + pairwise(parts[half:])


def reference(
    kind, parameters, n_chunks, dtype, n_steps=N_STEPS, lr=lambda step: 0.01, aggregate="sum", margin="column"
):
    """Returns outputs, gradients and parameters of one process, by the fused steps of hinge per chunk."""
    words = {"kind": kind, "margin": margin}
    n_trees = len(parameters[0])
    starts = [n_trees * c // n_chunks for c in range(n_chunks + 1)]
    slices = [slice(a, b) for a, b in itertools.pairwise(starts)]
    parts = [tuple(a[s].copy() for a in parameters) for s in slices]
    states = [hinge.adam_state(t, w, f if margin == "projection" else None) for t, f, w in parts]
    found, before = [], 0.0
    for step in range(n_steps):
        x, labels = batch(step, dtype)
        if lr(step) != before:
            sync(parts, states, step, before)
        before = lr(step)
        calls = [
            hinge.adam_forward(x, *p, s, step + 1, lr(step), **words)
            for p, s in zip(parts, states, strict=True)
        ]
        y = pairwise([y for y, _ in calls])
        y = y / dtype(n_trees) if aggregate == "mean" else y
        _, grad_y = layers.softmax_loss(y, labels)
        given = grad_y / dtype(n_trees) if aggregate == "mean" else grad_y
        grads = [
            hinge.adam_backward(given, route, x, *p, s, step + 1, lr(step), **words)
            for (_, route), p, s in zip(calls, parts, states, strict=True)
        ]
        found += [y, pairwise(grads)]
    sync(parts, states, n_steps, before)
    return found, *(
        [np.concatenate(a) for a in zip(*b, strict=True) if a[0] is not None] for b in (parts, states)
    )


def sync(parts, states, step, lr):
    for (t, _, w), state in zip(parts, states, strict=True):
        hinge.adam_sync(t, w, state, step, lr)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_chunks", [None, 21, 5, 1])
def test_the_bits_of_one_process(kind, dtype, n_chunks):
    """Outputs, gradients of the input, parameters and moments are compared for 1 to 5 workers."""
    parameters = forest(kind, dtype)
    want = reference(kind, parameters, n_chunks or 16, dtype)

    def work(comm):
        return trained(scale.HingeShards(comm, kind, *parameters, n_chunks=n_chunks), dtype=dtype)

    check_workers((1, 2, 3, 4) if n_chunks != 21 else (1, 5), work, want)
    # Other chunks change the bits, so the comparison above depends on the order of sums.
    other = reference(kind, parameters, 1, dtype)
    assert any(
        (a != b).any() for a, b in zip(other[0], reference(kind, parameters, 16, dtype)[0], strict=True)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_the_mean_of_trees_and_rates_that_change(kind):
    def lr(step):
        return 0.02 if step < 7 else 0.005

    parameters = forest(kind, np.float64)
    want = reference(kind, parameters, 6, np.float64, lr=lr, aggregate="mean")

    def work(comm):
        shards = scale.HingeShards(comm, kind, *parameters, n_chunks=6, aggregate="mean")
        return trained(shards, dtype=np.float64, lr=lr)

    check_workers((1, 3), work, want)


@pytest.mark.parametrize("kind", KINDS)
def test_inner_products_have_the_bits_of_one_process(kind):
    """Also for deep trees, in which all vertices move at every step, and for workers without trees."""
    for sizes, n_steps in (({}, N_STEPS), ({"n_trees": 2, "depth": 11}, 3)):
        parameters = forest(kind, margin="projection", **sizes)
        n_chunks = min(5, len(parameters.weights))
        want = reference(kind, parameters, n_chunks, np.float32, n_steps, margin="projection")

        def work(comm, parameters=parameters, n_chunks=n_chunks, n_steps=n_steps):
            shards = scale.HingeShards(comm, kind, *parameters, margin="projection", n_chunks=n_chunks)
            outputs, after, state = trained(shards, n_steps=n_steps)
            again = scale.HingeShards(comm, kind, *after, margin="projection", state=state, steps=n_steps)
            same(again.adam_state(), state)
            return outputs, after, state

        check_workers((1, 3), work, want)
        assert (want[1][1] != parameters.features).any(), "they are learned"


def dense_numpy(kind, parameters, n_steps):
    """Returns the results of dense steps of Adam in NumPy on the whole forest."""
    words = {"kind": kind, "aggregate": "sum"}
    t, f, w = (a.copy() for a in parameters)
    moments = [np.zeros_like(a) for a in (t, t, w, w)]
    for step in range(1, n_steps + 1):
        x, labels = batch(step - 1, t.dtype)
        y, route = hinge.forward_with_route(x, t, f, w, **words)
        _, grad_y = layers.softmax_loss(y, labels)
        grads = hinge.backward(grad_y, route, x, t, f, w, **words)
        for p, g, m, v in zip(
            (t, w), (grads.thresholds, grads.weights), moments[::2], moments[1::2], strict=True
        ):
            m += 0.1 * (g - m)
            v += 0.001 * (g * g - v)
            p -= 0.01 * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)
    return t, f, w


@pytest.mark.parametrize("kind", KINDS)
def test_the_numbers_of_dense_adam(kind):
    parameters = forest(kind, np.float64)
    want = dense_numpy(kind, parameters, N_STEPS)

    def work(comm):
        shards = scale.HingeShards(comm, kind, *parameters, n_chunks=5)
        train(shards, dtype=np.float64)
        return shards.parameters()

    for found in results(3, work):
        for a, b in zip(found, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
    assert np.abs(want[2] - parameters[2]).max() > 0.05


def test_deep_trees_move_only_what_is_touched():
    """Below the tenth level thresholds take missed steps when they are read."""
    parameters = forest("tree", np.float64, n_trees=3, depth=12)
    want = reference("tree", parameters, 3, np.float64)

    def work(comm):
        shards = scale.HingeShards(comm, "tree", *parameters)
        found = train(shards, dtype=np.float64)
        late = (shards.state.thresholds_last[:, 1023:] < N_STEPS).mean() if len(shards.weights) else 1.0
        assert late > 0.9
        return found, shards.parameters(), shards.adam_state()

    check_workers([2], work, want)


def test_bits_do_not_depend_on_threads(threads):
    parameters = forest("tree")

    def work(comm):
        return digest(*train(scale.HingeShards(comm, "tree", *parameters)))

    found = on_threads(threads, lambda: results(2, work))
    assert len({digest for both in found for digest in both}) == 1


def test_outputs_of_any_shape_and_no_samples():
    for outputs in ((), (1,), (2, 2)):
        parameters = forest("tree", outputs=outputs)
        x = batch(0)[0]
        want = hinge.forward(x, *parameters, aggregate="sum")

        def work(comm, parameters=parameters, x=x):
            shards = scale.HingeShards(comm, "tree", *parameters)
            y, route = shards.forward(x)
            nothing = shards.forward(x[:0])[0]
            return y, nothing, shards.backward(np.ones_like(y), route)

        for y, nothing, gradients in results(3, work):
            np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-5)
            assert nothing.shape == (0, *outputs)
            assert gradients.weights.values.shape[1:] == outputs


def test_more_workers_than_chunks():
    parameters = forest("tree", n_trees=2)
    want = reference("tree", parameters, 2, np.float32)

    def work(comm):
        shards = scale.HingeShards(comm, "tree", *parameters)
        assert len(shards.weights) == comm.rank % 2
        return trained(shards)

    check_workers([4], work, want)


def test_each_worker_passes_its_own_trees():
    parameters = forest("fern")
    want = reference("fern", parameters, 7, np.float32)

    def work(comm):
        own = scale.own_trees(comm, 21, n_chunks=7)
        part = [a[own].copy() for a in parameters]
        shards = scale.HingeShards(comm, "fern", *part, n_trees=21, n_chunks=7)
        found = train(shards)
        shards.sync()
        assert shards.weights is part[2]
        np.testing.assert_array_equal(part[2], want[1][2][own])
        return found, shards.parameters(), shards.adam_state()

    check_workers([3], work, want)


def test_training_goes_on_with_another_number_of_workers():
    parameters = forest("tree")

    def until(n_steps):
        def work(comm):
            shards = scale.HingeShards(comm, "tree", *parameters)
            train(shards, n_steps)
            return shards.parameters(), shards.adam_state(), train(shards), shards.parameters()

        return results(3, work)[0]

    middle, state, *want = until(5)

    def work(comm):
        shards = scale.HingeShards(comm, "tree", *middle, state=state, steps=5)
        return train(shards), shards.parameters()

    check_workers([2], work, want)


def test_nodes_cover_each_chunk_once():
    for n_chunks, size in itertools.product(range(1, 40), range(1, 9)):
        parts = [np.array([float(c)]) for c in range(n_chunks)]
        sent = []
        for rank in range(size):
            own = chunks.owned(n_chunks, rank, size)
            sums = chunks.node_sums(parts[own.start : own.stop], own, n_chunks)
            assert len(sums) <= 2 * n_chunks.bit_length()
            if (
                n_chunks % size == 0
                and size & (size - 1) == 0
                and (n_chunks // size) & (n_chunks // size - 1) == 0
            ):
                assert len(sums) == 1
            sent.append(sums)
        assert chunks.joined(sent, n_chunks)[0] == n_chunks * (n_chunks - 1) / 2
        cover = [
            c
            for sums in sent
            for level, number in sums
            for c in range(number << level, min((number + 1) << level, n_chunks))
        ]
        assert cover == list(range(n_chunks))


def test_bytes_of_a_step():
    parameters = forest("tree", n_trees=64, n_features=5)
    x, labels = batch(0)
    for size, n_sums in ((2, 1), (4, 1), (3, 3)):

        def work(comm):
            shards = scale.HingeShards(comm, "tree", *parameters)
            before = comm.n_bytes
            y, route = shards.forward(x)
            _, grad_y = layers.softmax_loss(y, labels)
            shards.step(shards.backward(grad_y, route), 0.01)
            return comm.n_bytes - before

        numbers = 4 * len(x) * (3 + 5)
        most = max(results(size, work))
        assert n_sums * numbers <= most <= n_sums * (numbers + 400) + 1000


# ------------------------------------------------------------------------------------------- errors


def bad(name, shards, x, grad_y):
    """Calls of a worker, one of which is wrong."""
    lr = 0.01
    if name == "NaN":
        x = np.where(np.arange(x.size).reshape(x.shape) == 7, np.nan, x).astype(x.dtype)
    elif name == "other samples":
        x = x + 1
    elif name == "samples":
        x = x[1:]
    elif name == "list":
        x = x.tolist()
    elif name == "features":
        x = x[:, :2].copy()
    _, route = shards.forward(x)
    if name == "grad_y":
        grad_y = np.full_like(grad_y, np.inf)
    elif name == "other grad_y":
        grad_y = 2 * grad_y
    elif name == "grad_y shape":
        grad_y = grad_y[:, :2].copy()
    elif name == "route":
        route = route._replace(step=5)
    elif name == "no route":
        route = None
    elif name == "call":
        shards.forward(x)
    gradients = shards.backward(grad_y, route, input_gradient=name != "input gradient")
    if name == "rate":
        lr = -1.0
    elif name == "other rate":
        lr = 0.02
    elif name == "rows":
        gradients = gradients._replace(
            weights=gradients.weights._replace(rows=gradients.weights.rows + 10**6)
        )
    elif name == "gradients":
        gradients = None
    shards.step(gradients, lr)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("NaN", ValueError, "^x: expected .*on worker 1"),
        ("other samples", ValueError, "^x: expected the same value on every worker.* on worker 1; pass the same"),
        ("samples", ValueError, "^x: expected the same value on every worker.* on worker 1; pass the same"),
        ("list", TypeError, "^x: expected a numpy.ndarray.*on worker 1"),
        ("features", (IndexError, ValueError), "^(x|features): expected .*on worker 1"),
        ("grad_y", ValueError, "^grad_y: expected finite.*on worker 1"),
        ("other grad_y", ValueError, "^grad_y: expected the same value on every worker"),
        ("grad_y shape", ValueError, "^grad_y: expected shape.*on worker 1"),
        ("route", ValueError, "^route: expected the route of .*on worker 1"),
        ("no route", TypeError, "^route: expected a ShardRoute.*on worker 1"),
        ("call", ValueError, "^comm: expected the same value on every worker, got backward after 0 steps on worker 0 "
                             "and forward after 0 steps on worker 1"),
        ("input gradient", ValueError, "^input_gradient: expected the same value on every worker"),
        ("rate", ValueError, "^lr: expected .*on worker 1"),
        ("other rate", ValueError, "^lr: expected the same value on every worker, got 0.01 on worker 0 and 0.02"),
        ("rows", IndexError, "^gradients.weights.rows: expected .*on worker 1"),
        ("gradients", TypeError, "^gradients: expected ShardGradients.*on worker 1"),
    ],
)  # fmt: skip
def test_what_is_wrong_on_one_worker_is_raised_on_all(name, error, message, size):
    parameters = forest("tree")
    x, labels = batch(0)
    _, grad_y = layers.softmax_loss(hinge.forward(x, *parameters, aggregate="sum"), labels)
    taken = []

    def work(comm):
        shards = scale.HingeShards(comm, "tree", *parameters)
        before = shards.weights.copy()
        try:
            bad(name if comm.rank == 1 else "", shards, x, grad_y)
        finally:
            taken.append((shards.steps, (shards.weights == before).all()))

    check_raised(size, work, error, message)
    assert taken == [(0, True)] * size


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"kind": "bush"}, ValueError, "^kind: expected"),
        ({"kind": "fern"}, ValueError, "^weights: expected .*on worker 1"),
        ({"margin": "plane"}, ValueError, "^margin: expected"),
        ({"margin": "projection"}, TypeError, "^features: expected vectors.*pass margin='column'.*on worker 1|on worker 1; pass margin='column'"),
        ({"thresholds": "half"}, ValueError, "^(thresholds|features|n_trees): expected .*"),
        ({"thresholds": "float"}, TypeError, "^weights: expected dtype float64.*on worker 1"),
        ({"thresholds": "nan"}, ValueError, "^thresholds: expected .*on worker 1"),
        ({"weights": "other"}, ValueError, "^parameters: expected the same value on every worker"),
        ({"n_chunks": 3}, ValueError, "^n_chunks: expected the same value on every worker, got 16 on worker 0 and 3 on worker 1"),
        ({"n_chunks": 22}, ValueError, "^n_chunks: expected 1 to 21, got 22.*on worker 1"),
        ({"aggregate": "mean"}, ValueError, "^aggregate: expected the same value on every worker"),
        ({"aggregate": None}, ValueError, "^aggregate: expected .*on worker 1"),
        ({"beta1": 0.8}, ValueError, "^beta1: expected the same value on every worker"),
        ({"beta1": 2}, ValueError, "^beta1: expected .*on worker 1"),
        ({"steps": 3}, ValueError, "^steps: expected the same value on every worker, got 0 on worker 0 and 3 on worker 1"),
        ({"n_trees": 4}, ValueError, "^thresholds: expected the 2 trees 2 to 3 of 4, got 21.*on worker 1"),
        ({"state": 3}, TypeError, "^state: expected an AdamState, got int.*on worker 1"),
        ({"state": "old", "steps": 3}, ValueError, "^state.thresholds_last: expected steps = 3 in every row"),
    ],
)  # fmt: skip
def test_forests_and_settings_that_are_refused(change, error, message):
    def work(comm):
        given = {"kind": "tree", **forest("tree")._asdict()}
        if comm.rank == 1:
            new = dict(change)
            if "thresholds" in new:
                t = given["thresholds"]
                new["thresholds"] = {"half": t[:, :7], "float": t.astype(np.float64), "nan": t * np.nan}[
                    new["thresholds"]
                ].copy()
            if "weights" in new:
                new["weights"] = given["weights"] + 1
            if new.get("state") == "old":
                new["state"] = hinge.adam_state(given["thresholds"], given["weights"])
            given |= new
        return scale.HingeShards(comm, **given)

    check_raised(2, work, error, message)


def test_objects_that_are_no_communicator():
    for call in (
        lambda: scale.HingeShards(3, "tree", *forest("tree")),
        lambda: scale.own_trees(3, 10),
        lambda: scale.gather_gradients(3, []),
    ):
        with pytest.raises(TypeError, match="^comm: expected a communicator with rank, got int; pass"):
            call()


def test_training_that_has_diverged_is_told_to_all():
    def work(comm):
        shards = scale.HingeShards(comm, "tree", *forest("tree"))
        train(shards, 2)
        if comm.rank == 1:
            shards.state.weights_v[...] = np.nan
        return shards.parameters()

    check_raised(2, work, ValueError, r"^state.weights_v: expected .*on worker 1")


# ------------------------------------------------------------------------------------------- batches


def data_parallel(comm, parameters, n_parts, n_steps=N_STEPS):
    """Trains a forest; each worker has some parts of each batch, and all trees."""
    t, f, w = (a.copy() for a in parameters)
    t_m, t_v = np.zeros_like(t), np.zeros_like(t)
    flat = w.reshape(-1, *w.shape[2:])
    m, v, last = np.zeros_like(flat), np.zeros_like(flat), np.zeros(len(flat), np.int64)
    own = chunks.owned(n_parts, comm.rank, comm.size)
    for step in range(1, n_steps + 1):
        x, labels = batch(step - 1, t.dtype)
        parts = []
        for part in own:
            rows = slice(len(x) * part // n_parts, len(x) * (part + 1) // n_parts)
            route = hinge.traverse(x[rows], t, f)
            read = hinge.leaf_rows(route.leaf, w.shape[1])
            optim.adam_catch_up(flat, m, v, last, step - 1, 0.01, rows=read)
            y = hinge.leaf_outputs(route.leaf, route.margin, w, aggregate="sum")
            _, grad_y = layers.softmax_loss(y, labels[rows])
            grad_y *= len(y) / len(x)
            grads = hinge.backward_sparse(grad_y, route, x[rows], t, f, w, aggregate="sum")
            parts.append([grads.thresholds, grads.weights])
        by_threshold, by_weight = scale.gather_gradients(comm, parts)
        grad = np.zeros_like(t)
        grad.reshape(-1)[by_threshold.rows] = by_threshold.values
        optim.adam(t, grad, t_m, t_v, step, 0.01)
        optim.adam_rows(flat, *by_weight, m, v, last, step, 0.01)
    optim.adam_catch_up(flat, m, v, last, n_steps, 0.01)
    return t, f, w, m, v


def test_batches_over_workers():
    parameters = forest("tree", np.float64)
    whole = dense_numpy("tree", parameters, N_STEPS)

    # One part per worker: all workers agree, and equal one process up to rounding.
    for size in (1, 2, 3):
        found = results(size, lambda comm: data_parallel(comm, parameters, comm.size))
        for one in found:
            same(one, found[0])
        for a, b in zip(found[0][:3], whole, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-11)
    # Fixed parts: the bits do not depend on the number of workers, even with an idle one.
    want = results(1, lambda comm: data_parallel(comm, parameters, 4))[0]
    for size in (2, 3, 4, 5):
        for one in results(size, lambda comm: data_parallel(comm, parameters, 4)):
            same(one, want)


def test_gradients_are_added_in_the_order_of_parts():
    """The sum of these numbers depends on the order in float64; it is rounded once."""
    values = [1e16, 1.0, -1e16, 1.0]
    parts = [
        [hinge.RowGradient(np.array([1, i + 2]), np.array([[a], [1.0]])), np.array([a, 1.0])]
        for i, a in enumerate(values)
    ]
    for size in (1, 2, 3, 4):

        def work(comm):
            own = chunks.owned(4, comm.rank, comm.size)
            return scale.gather_gradients(comm, parts[own.start : own.stop])

        for rows, dense in results(size, work):
            assert rows.rows.tolist() == [1, 2, 3, 4, 5]
            assert rows.values.ravel().tolist() == [1.0] * 5
            assert dense.tolist() == [1.0, 4.0]
    order = [parts[i] for i in (1, 3, 0, 2)]
    assert scale.gather_gradients(None, order)[1].tolist() == [2.0, 4.0]
    single = [[np.full(1, a, np.float32)] for a in (2.0**24, 1.0, 1.0)]
    assert scale.gather_gradients(None, single)[0][0] == 2.0**24 + 2
    single = [[hinge.RowGradient(np.array([5]), a)] for (a,) in single]
    assert scale.gather_gradients(None, single)[0].values[0] == 2.0**24 + 2


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda r, d: 3, TypeError, "^shards: expected a list, got int.*on worker 1"),
        (lambda r, d: [r], TypeError, "^shards.0.: expected a list of gradients.*on worker 1"),
        (lambda r, d: [[r, d.tolist()]], TypeError, "^shards.0..1.: expected a numpy.ndarray.*on worker 1"),
        (lambda r, d: [[r, d * np.nan]], ValueError, "^shards.0..1.: expected finite.*on worker 1"),
        (lambda r, d: [[r, d.astype(int)]], TypeError, "^shards.0..1.: expected dtype.*on worker 1"),
        (
            lambda r, d: [[r._replace(rows=r.rows[::-1].copy()), d]],
            (ValueError, IndexError),
            "^shards.0..0..rows: ",
        ),
        (lambda r, d: [[r._replace(rows=r.rows[:1]), d]], ValueError, "^shards.0..0..values: .*on worker 1"),
        (
            lambda r, d: [[r]],
            ValueError,
            "^shards: expected gradients of the same parameters, got float32 rows",
        ),
        (lambda r, d: [[r, d[:2]]], ValueError, "^shards: expected gradients of the same parameters"),
        (lambda r, d: [[r, d.astype(np.float64)]], ValueError, "^shards: expected gradients of the same"),
        (lambda r, d: [[r, d], [d, r]], ValueError, "^shards: expected gradients of the same"),
    ],
)
def test_gradients_that_are_refused(change, error, message):
    rows = hinge.RowGradient(np.array([0, 3]), np.ones((2, 3), np.float32))
    dense = np.ones(4, np.float32)

    def work(comm):
        return scale.gather_gradients(comm, change(rows, dense) if comm.rank == 1 else [[rows, dense]])

    check_raised(2, work, error, message)


def test_no_gradients():
    with pytest.raises(ValueError, match="^shards: expected a part on at least one worker, got none; pass"):
        scale.gather_gradients(None, [])


# ------------------------------------------------------------------------------------------- processes


@pytest.mark.parametrize(
    ("kind", "size", "case"), [("torch", 2, "tree"), ("torch", 3, "fern"), ("mpi", 2, "tree")]
)
def test_processes_have_the_bits_of_one(kind, size, case):
    shards = scale.HingeShards(None, case, *forest(case))
    found = train(shards)
    want = digest(*found, *shards.parameters(), *shards.adam_state())
    assert processes(kind, size, case, shard_worker.__file__) == [(want, 0)] * size


@pytest.mark.parametrize("kind", ["torch", "mpi"])
def test_an_error_of_one_process_is_raised_in_all(kind):
    found = processes(kind, 2, "bad", shard_worker.__file__)
    assert len(found) == 2
    for line, _ in found:
        assert re.match(r"[\d.]+ IndexError: features: expected .*on worker 1", line), line


@pytest.mark.parametrize("size", [2, 3])
def test_a_process_that_is_killed_ends_the_others(size):
    first, killed, *last = processes("torch", size, "killed", shard_worker.__file__)
    assert killed[1] == 7
    ended = set()
    for rank, survivor in zip((0, 2), (first, *last), strict=False):
        seconds, _, message = survivor[0].partition(" ")
        assert float(seconds) < 30
        # A surviving worker may first notice that another one has ended for the same reason.
        text = f"RuntimeError: comm: expected messages with every worker, got on worker {rank}: worker "
        assert re.match(re.escape(text) + f"[^{rank}] ended: ", message), message
        ended.add(message.removeprefix(text)[0])
    assert "1" in ended


def test_a_process_of_mpi_that_is_killed_ends_all():
    found = processes("mpi", 2, "killed", shard_worker.__file__)
    assert all(status != 0 for _, status in found)
