"""Messages between workers: values arrive unchanged, damaged ones raise, nothing is executed, no worker hangs."""

import pickle
import sys
from contextlib import suppress

import numpy as np
import pytest
import row_comms

from hforest import hinge, scale
from hforest.growth.by_level import parts
from hforest.growth.trees import Trees
from hforest.scale.rows import messages
from hforest.scale.rows.communicators import OneWorker
from hforest.scale.rows.workers import Workers

TREES = Trees(
    tree_start=np.arange(3), feature=np.arange(3, dtype=np.int32), threshold=np.arange(3.0), left=np.arange(3),
    value=np.ones((3, 2)), gain=np.arange(3.0), indptr=np.arange(3), indices=np.arange(2), data=np.arange(2.0),
)  # fmt: skip
VALUES = [
    None, True, -3, 2**70, 0.1, float("inf"), "text \u00fc", [1, [2.5, None]], (1, ("a",)), [], (),
    {"a": 1, (0, 3): np.arange(4)},
    np.arange(6, dtype=np.int16).reshape(2, 3), np.asfortranarray(np.eye(3)[:, :2]), np.zeros((3, 0), np.float32),
    np.array(4.5), np.float32(0.1), np.int64(-7), np.array([True, False]), np.array([np.nan, -0.0]),
    np.arange(3, dtype=">f8"),
    messages.Failure("ValueError", "x: expected"),
    parts.Description(3, 2, 8, np.zeros(2, bool), [None, np.arange(2.0)], 2, np.arange(2), None, 3, 1, 12, np.ones(2, bool)),
    parts.Gathered(np.array([0, 2]), np.zeros((3, 2), np.uint8), np.zeros(2, np.int32), None, np.ones(2, np.int32)),
    TREES, TREES._replace(default_left=np.arange(3, dtype=np.uint8)),
    [hinge.RowGradient(np.arange(2), np.ones((2, 3)))], hinge.Parameters(*(np.ones((1, 1)) for _ in range(3))),
    hinge.AdamState(*(np.ones((1, 1)) for _ in range(6))),
]  # fmt: skip


def assert_same(a, b):
    assert type(a) is type(b)
    if isinstance(a, np.ndarray):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert a.tobytes() == b.tobytes()
        assert a.flags.writeable
    elif isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            assert_same(a[key], b[key])
    elif isinstance(a, list | tuple):
        assert len(a) == len(b)
        for one, other in zip(a, b, strict=True):
            assert_same(one, other)
    else:
        assert a == b


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_comes_back(value):
    assert_same(messages.decoded(messages.encoded(value)), value)


@pytest.mark.parametrize("value", [b"bytes", {1, 2}, print, np.array([None]), np.array(["a"]), 1j, slice(3)])
def test_other_values_are_not_sent(value):
    with pytest.raises(TypeError, match="^comm: expected numbers, text and arrays of numbers to send, got "):
        messages.encoded([value])


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_damaged_messages_are_refused_or_are_other_values(value):
    """The only error is ValueError, and no array is larger than the message."""
    data = messages.encoded(value)
    rng = np.random.default_rng(0)
    for end in {*range(0, len(data), 7), len(data) - 1}:
        with pytest.raises(ValueError, match="^bytes that are not a message"):
            messages.decoded(data[:end])
    with pytest.raises(ValueError, match="^bytes that are not a message"):
        messages.decoded(data + b"0")
    for _ in range(200):
        changed = bytearray(data)
        for at in rng.integers(0, len(data), rng.integers(1, 4)):
            changed[at] = rng.integers(256)
        with suppress(ValueError):
            messages.decoded(bytes(changed))


def with_text(text):
    return b"HFM1" + np.array(len(text), "<i8").tobytes() + text.encode()


@pytest.mark.parametrize(
    "text",
    [
        '["array","<f8",[1000000000000]]', '["array","<f8",[-1]]', '["array","|O",[1]]', '["array","<f8",[true]]',
        '["Popen","id"]', '["Trees"]', '{"a":1}', "[]", "[" * 100_000, '["dict",[["list"],1]]', "[1]", "nonsense",
        '["array","<V99",[0]]', '["array","<f8",3]',
    ],
)  # fmt: skip
def test_texts_that_are_no_message(text):
    with pytest.raises(ValueError, match="^bytes that are not a message"):
        messages.decoded(with_text(text))


ran = []


class Bomb:
    def __reduce__(self):
        return ran.append, (1,)


class Hostile:
    """The communicator of a worker whose peer sends arbitrary bytes."""

    rank, size = 0, 2

    def __init__(self, sent):
        self.sent = sent

    def allreduce(self, a):
        return a

    def allgather(self, data):
        return [data, self.sent]

    def alltoall(self, data):
        return [data[0], self.sent]


def test_nothing_that_a_worker_sends_is_executed():
    comm = Hostile(pickle.dumps(Bomb()))
    pattern = "^comm: expected messages of hforest, got from worker 1 bytes that are not a message"
    with pytest.raises(RuntimeError, match=pattern):
        scale.grow_by_rows(comm, np.eye(4), np.arange(4), 2, rng=0)
    with pytest.raises(RuntimeError, match=pattern):
        scale.gather_gradients(comm, [[np.ones(2)]])
    with pytest.raises(RuntimeError, match=pattern):
        scale.HingeShards(comm, "tree", *hinge.init(3, 2, 4, rng=0))
    with pytest.raises(RuntimeError, match=pattern):
        Workers(comm).exchange(lambda item: item, (), [1], lambda found: found, [()])
    assert not ran


@pytest.mark.parametrize("total", [1, np.zeros(5), np.zeros((2, 3), np.int64), None])
def test_sums_of_a_communicator_are_checked(total):
    class Odd(OneWorker):
        def allreduce(self, a):
            return total

    with pytest.raises(ValueError, match=r"^comm: expected an array of shape .* from allreduce, got "):
        scale.grow_by_rows(Odd(), np.eye(4), np.arange(4), 2, rng=0)


@pytest.mark.parametrize(
    "change",
    [
        {"labels": np.array([0, 2**30], np.int32)}, {"labels": np.array([0, -1], np.int32)}, {"labels": None},
        {"labels": np.zeros(2, np.int64)}, {"codes": np.full((2, 2), 200, np.uint8)},
        {"codes": np.zeros((1, 2), np.uint8)}, {"codes": np.zeros((2, 2), np.uint16)},
        {"indptr": np.array([1, 2])}, {"indptr": np.array([0, 3])}, {"indptr": np.array([0, 1, 2])},
        {"weight": np.zeros(2, np.int32)}, {"weight": np.ones(3, np.int32)}, {"targets": np.ones((2, 1))},
    ],
    ids=str,
)  # fmt: skip
def test_rows_of_another_worker_that_contradict_each_other(change, monkeypatch):
    """Compiled code uses labels and bins as indices of its arrays."""
    gathered, changed = parts.gathered, []

    def other(part, state, nodes):
        found = gathered(part, state, nodes)
        n = found.codes.shape[1]
        if part.first_row == 0 or not n or len(found.indptr) != 2:
            return found
        new = parts.Gathered(
            np.array([0, 2]), found.codes[:, [0, 0]], found.labels[[0, 0]], None, found.weight[[0, 0]]
        )
        changed.append(1)
        return new._replace(**change)

    monkeypatch.setattr(parts, "gathered", other)
    rng = np.random.default_rng(0)
    x, y = rng.random((40, 2)), rng.integers(0, 3, 40)
    found = row_comms.run(
        2,
        lambda comm: scale.grow_by_rows(
            comm, x[comm.rank :: 2], y[comm.rank :: 2], 1, max_gathered=1000, n_classes=3, rng=0
        ),
    )
    assert changed
    for error in found:
        assert isinstance(error, ValueError), error
        assert str(error).startswith(
            "comm: expected the rows of nodes from worker 1, got arrays that contradict"
        )


@pytest.mark.parametrize("error", [ValueError, OSError, KeyboardInterrupt, SystemExit])
def test_progress_that_raises_on_one_worker_ends_all(error):
    x, y = np.random.default_rng(0).random((60, 3)), np.arange(60) % 3

    def progress(done, total):
        raise error("enough")

    def work(comm):
        try:
            return scale.grow_by_rows(
                comm,
                x[comm.rank :: 3],
                y[comm.rank :: 3],
                4,
                progress=progress if comm.rank == 1 else None,
                rng=0,
            )
        except BaseException as caught:
            return caught

    found = row_comms.run(3, work)
    if issubclass(error, Exception):
        kind = error if error is ValueError else RuntimeError
        assert [type(a) for a in found] == [kind] * 3
        assert all("enough (on worker 1)" in str(a) for a in found)
    else:
        assert [type(a) for a in found] == [RuntimeError, error, RuntimeError]
        assert str(found[0]) == f"{error.__name__}: enough (on worker 1)"


class _Tensor:
    """An array with the methods of a tensor that TorchComm calls."""

    def __init__(self, a):
        self._a = a

    def __getitem__(self, part):
        return _Tensor(self._a[part])

    def numpy(self):
        return self._a


class _Torch:
    """Replaces torch.distributed for worker 1 of three; the test chooses the messages of the others."""

    uint8 = np.uint8

    def __init__(self, others):
        self.others, self.distributed, self.closed = others, self, []

    from_numpy = staticmethod(_Tensor)

    def zeros(self, n, dtype):
        return _Tensor(np.zeros(n, dtype))

    empty = zeros

    def is_initialized(self):
        return True

    def get_rank(self, group):
        return 1

    def get_world_size(self, group):
        return 3

    def all_gather(self, parts, mine, group):
        for rank, part in enumerate(parts):
            first = np.frombuffer(self.others[rank], np.uint8)[: len(part.numpy()) - 8]
            size = np.array([len(self.others[rank])]).view(np.uint8)
            part.numpy()[: 8 + len(first)] = np.concatenate([size, first])
        assert (parts[1].numpy() == mine.numpy()).all()

    def broadcast(self, end, group, group_src):
        data = np.frombuffer(self.others[group_src], np.uint8)
        end.numpy()[:] = data[len(data) - len(end.numpy()) :]

    def isend(self, byte, group, group_dst, tag):
        if group_dst in self.closed:
            raise RuntimeError("Connection closed by peer")

    def all_reduce(self, total, group):
        raise RuntimeError("Connection closed by peer")


def test_messages_of_torch_that_are_longer_than_those_before(monkeypatch):
    """The rest of each message follows its beginning, for this worker and for others."""
    torch = _Torch([])
    monkeypatch.setitem(sys.modules, "torch", torch)
    comm = scale.TorchComm()
    for torch.others in ([b"ab", b"c", b""], [b"", b"defghi", b"jk"], [b"l" * 9, b"mno", b"pq" * 4]):
        assert comm.allgather(torch.others[1]) == torch.others


@pytest.mark.parametrize(("closed", "who"), [([2], "worker 2"), ([0, 2], "workers 0 and 2")])
def test_an_error_of_torch_names_the_workers_that_ended(monkeypatch, closed, who):
    torch = _Torch([])
    torch.closed = closed
    monkeypatch.setitem(sys.modules, "torch", torch)
    with pytest.raises(
        RuntimeError, match=f"^comm: expected a sum with every worker, got on worker 1: {who} ended: "
    ):
        scale.TorchComm().allreduce(np.arange(3))
