"""The network of Lay et al. 2018, Fig. 2c, in torch modules, step by step beside the NumPy network of
`hforest.demo`.

    python lab/paper/hinge_torch.py [--data FILE] [--steps 100] [--mode rows] [--n-trees 100] [--depth 10]

The network has convolutions of 5x5 with stride 3 (or inner products, --n-kernels 0), normalisation by running
statistics, a hinge forest with the classes in its leaves, the sum over trees, and softmax. Adam updates all
parameters. Both networks start with the same numbers and see the same batches, in float64. The script prints
losses and the largest differences of losses and of parameters so far, and stops if one exceeds 1e-9. The data
are the embedded digits, or an .npz file as `hforest.demo.load_data` reads it.

--mode selects dense or sparse gradients ("rows"). The results are the same.
"""

import argparse
import math
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

import numpy as np
from common import need

from hforest import demo

MODES = ("dense", "rows")
WINDOW, STRIDE = 5, 3


def build(config: demo.Config, state: dict[str, Any], mode: str) -> tuple[Any, Any]:
    """Returns the network with the parameters of a state of `hforest.demo.start`, and its optimiser."""
    import torch
    from torch import nn

    import hforest.torch as ht

    kernel = torch.from_numpy(state["kernel"].copy())
    first: Any
    if config.n_kernels:
        conv = nn.Conv2d(1, config.n_kernels, WINDOW, STRIDE, bias=False, dtype=kernel.dtype)
        conv.weight = nn.Parameter(kernel[:, None].contiguous())
        first = nn.Sequential(conv, nn.Flatten())
    else:
        first = nn.Linear(*kernel.shape, bias=False, dtype=kernel.dtype)
        first.weight = nn.Parameter(kernel.T.contiguous())
    n_features, n_classes = len(state["mean"]), state["weights"].shape[-1]
    forest = ht.HingeForest(
        n_features, config.n_trees, config.depth, n_classes,
        kind=config.kind, sparse=mode != "dense", dtype=kernel.dtype,
    )  # fmt: skip
    names = ("thresholds", "features", "weights")
    forest.load_state_dict({name: torch.from_numpy(state[name].copy()) for name in names})
    net = nn.Sequential(first, ht.RunningNorm(n_features, dtype=kernel.dtype), forest)
    return net, ht.RowAdam(net.parameters(), lr=config.lr)


def step(net: Any, optimizer: Any, x: Any, y: Any) -> float:
    """Takes a step; returns the loss before it."""
    loss = net_loss(net, x, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return float(loss.detach())


def net_loss(net: Any, x: Any, y: Any) -> Any:
    """Returns the mean softmax loss of a batch."""
    import torch

    images = not isinstance(net[0], torch.nn.Linear)
    side = math.isqrt(x.shape[1])
    x = x.reshape(-1, 1, side, side) if images else x
    return torch.nn.functional.cross_entropy(net(x), y)


def differences(net: Any, state: dict[str, Any]) -> float:
    """Returns the largest differences of parameters and running statistics, after all steps of both."""
    first, norm, forest = net
    kernel = next(first.parameters()).detach().numpy()
    kernel = kernel[:, 0] if kernel.ndim == 4 else kernel.T
    pairs = [(kernel, state["kernel"]), (norm.mean.numpy(), state["mean"]), (norm.var.numpy(), state["var"])]
    pairs += [(getattr(forest, name).detach().numpy(), state[name]) for name in ("thresholds", "weights")]
    return max(float(abs(a - b).max()) for a, b in pairs)


def side_by_side(
    config: demo.Config, x: Any, y: Any, *, mode: str = "rows", every: int = 13
) -> list[dict[str, Any]]:
    """Trains both networks on `config.steps` batches; yields losses, and differences every few steps."""
    import torch

    x, y = np.asarray(x, np.float64), np.asarray(y)
    state = demo.start(config, x.shape[1], int(y.max()) + 1, dtype=np.float64)
    net, optimizer = build(config, state, mode)
    rng = np.random.default_rng(config.seed)
    rows = []
    for i in range(config.steps):
        picked = rng.choice(len(x), config.batch_size, replace=False)
        loss = demo.step(config, state, x[picked], y[picked])
        mine = step(net, optimizer, torch.from_numpy(x[picked]), torch.from_numpy(y[picked]).long())
        row = {"step": i + 1, "loss": mine, "loss_difference": abs(mine - loss)}
        if i % every == 0 or i + 1 == config.steps:
            demo.predict(config, state, x[:1])  # brings its forest up to date
            optimizer.flush()
            row["parameter_difference"] = differences(net, state)
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="an .npz file of square images")
    parser.add_argument("--mode", choices=MODES, default="rows")
    parser.add_argument("--kind", choices=["tree", "fern"], default="tree")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--n-trees", type=int, default=100)
    parser.add_argument("--depth", type=int, default=10)
    parser.add_argument("--n-kernels", type=int, default=80)
    args = parser.parse_args()
    need("-e '.[bench,torch]'", "torch")
    data = demo.load_data(args.data) if args.data else demo.load_digits()
    config = demo.Config(
        kind=args.kind, n_trees=args.n_trees, depth=args.depth, n_kernels=args.n_kernels, steps=args.steps
    )
    rows = side_by_side(config, data.x_train, data.y_train, mode=args.mode)
    worst = {"loss_difference": 0.0, "parameter_difference": 0.0}
    for row in rows:
        worst = {name: max(value, row.get(name, 0.0)) for name, value in worst.items()}
        if "parameter_difference" in row:
            print(
                f"step {row['step']:5}  loss {row['loss']:.6f}  largest difference of losses "
                f"{worst['loss_difference']:.1e}, of parameters {worst['parameter_difference']:.1e}"
            )
    if max(worst.values()) > 1e-9:
        raise SystemExit("the networks differ")


if __name__ == "__main__":
    main()
