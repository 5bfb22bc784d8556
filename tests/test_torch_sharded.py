"""Layers whose parameters two processes share: FullyShardedDataParallel and fully_shard, on gloo."""

import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install torch")
ht = pytest.importorskip("hforest.torch")
if not (torch.distributed.is_available() and torch.distributed.is_gloo_available()):
    pytest.skip("needs gloo", allow_module_level=True)
pytest.importorskip("torch.distributed.fsdp", reason="needs torch.distributed.fsdp")
if not hasattr(torch.distributed.fsdp, "fully_shard"):
    pytest.skip("needs a PyTorch with fully_shard", allow_module_level=True)

PROCESSES = """
import copy, os, sys, torch, torch.distributed as dist
import hforest.torch as ht
from torch import nn
from torch.distributed.checkpoint import state_dict as states
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

def flat(net):
    return FullyShardedDataParallel(net, use_orig_params=True, device_id=torch.device("cpu"))

def each(net):
    mesh = init_device_mesh("cpu", (2,))
    fully_shard(net[1], mesh=mesh)
    return fully_shard(net, mesh=mesh)

def case(rank, shard, **settings):
    torch.manual_seed(0)
    forest = ht.HingeForest(8, 10, 4, 3, scale=1.0, **settings)
    whole = nn.Sequential(nn.Linear(6, 8, bias=False), forest, nn.Flatten(1))
    sharded = shard(copy.deepcopy(whole))
    x, y = torch.randn(40, 6), torch.randint(3, (40,))
    half = slice(20 * rank, 20 * rank + 20)
    steps = [(net, part, torch.optim.SGD(net.parameters(), lr=0.1))
             for net, part in ((sharded, half), (whole, slice(None)))]
    for _ in range(3):
        torch.testing.assert_close(sharded(x[half]), whole(x[half]))
        for net, part, optimizer in steps:
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x[part]), y[part]).backward()
            optimizer.step()
    options = states.StateDictOptions(full_state_dict=True)
    state = states.get_model_state_dict(sharded, options=options)
    torch.testing.assert_close(dict(state), dict(whole.state_dict()))
    states.set_model_state_dict(sharded, dict(whole.state_dict()), options=options)
    assert torch.equal(sharded(x), whole(x))

if __name__ == "__main__":
    rank = int(sys.argv[1])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
    for shard in (flat, each):
        for kind in ("tree", "fern"):
            for aggregate in ("sum", "mean", None):
                case(rank, shard, kind=kind, aggregate=aggregate)
                print(shard.__name__, kind, aggregate, flush=True)
    dist.barrier()
    os._exit(0)  # PyTorch's own end of a gloo group may wait for ever
"""


@pytest.mark.skipif(
    torch.__version__.startswith("2.8."),
    reason="fully_shard of PyTorch 2.8 adds gradients over gloo, that of 2.13 takes their mean",
)
def test_two_processes_share_parameters(tmp_path):
    script = tmp_path / "processes.py"
    script.write_text(PROCESSES)
    running = [
        subprocess.Popen(
            [sys.executable, str(script), str(rank), str(tmp_path / "store")],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        for process in running:
            lines, errors = process.communicate(timeout=240)
            assert process.returncode == 0, errors
            assert len(lines.splitlines()) == 12
    finally:
        for process in running:
            process.kill()


def test_memory_of_tensors_stays_resizable():
    torch.manual_seed(0)
    for layer, x in (
        (ht.HingeForest(5, 4, 3, 2), torch.randn(3, 5)),
        (ht.HingeForest(5, 4, 3, 2, margin="projection", sparse=True), torch.randn(3, 5)),
        (ht.HingeConv2d(2, 4, 3, 2, 2), torch.randn(3, 2, 4, 4)),
        (ht.NeuralForest(5, 2, 3, 4), torch.randn(3, 5)),
        (ht.RunningNorm(5), torch.randn(3, 5)),
    ):
        x.requires_grad_()
        layer(x).sum().backward()
        layer(x.detach())
        for name, t in (("x", x), *layer.named_parameters(), *layer.named_buffers()):
            assert t.untyped_storage().resizable(), name
