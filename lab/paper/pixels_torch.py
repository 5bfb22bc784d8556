"""Labels of pixels by networks in PyTorch: convolutions, and hinge forests (Lay et al. 2018) between them.

    python lab/paper/pixels_torch.py --data DIR
    python lab/paper/pixels_torch.py

Both networks have the same form. Each level has half the size of the one before. A block has a convolution of
3 x 3, a normalisation, and a rectifier or a hinge tree for each channel. In the decoder a block reads the
level below, enlarged, and its own level. The networks are trained on the images of `co2_pixels.py`, mirrored
at random, with cross-entropy and Adam, whose rate rises and falls. The epoch and the power of the class
shares with the highest Jaccard score on validation images are used on test images. Without --data the table
of the record is printed. Seconds are processor time.
"""

import argparse
import copy
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

import co2_data
import co2_pixels
import numpy as np
from co2_pixels import N_CLASSES, POWERS, SCORES, VOID
from common import RESULTS

import hforest
from hforest import images

BATCH, RATE = 8, 5e-3
WIDTHS = (12, 24, 40, 48)
"""Channels of each level."""
LEARNERS = ("CNN", "hinge CNN")


def network(learner: str, n_channels: int) -> Any:
    """Returns a network from (n, channels, height, width) to scores (n, classes, height, width) of pixels."""
    import torch
    from torch import nn

    import hforest.torch

    def block(n_in: int, n_out: int) -> nn.Module:
        parts: list[nn.Module] = [nn.Conv2d(n_in, n_out, 3, padding=1, bias=False), nn.BatchNorm2d(n_out)]
        if learner == "CNN":
            return nn.Sequential(*parts, nn.ReLU(inplace=True))
        trees = hforest.torch.HingeConv2d(n_out, n_out, 4, 1, aggregate=None)
        return nn.Sequential(*parts, trees, nn.BatchNorm2d(n_out))

    class Net(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            ins = (n_channels, *WIDTHS[:-1])
            self.down = nn.ModuleList(
                nn.Sequential(block(a, b), block(b, b)) for a, b in zip(ins, WIDTHS, strict=True)
            )
            pairs = zip(WIDTHS[1:], WIDTHS[:-1], strict=True)
            self.up = nn.ModuleList(block(a + b, b) for a, b in pairs)
            self.head = nn.Conv2d(WIDTHS[0], N_CLASSES, 1)

        def forward(self, x: torch.Tensor) -> Any:
            levels = []
            for i, blocks in enumerate(self.down):
                x = blocks(x if i == 0 else nn.functional.max_pool2d(x, 2))
                levels.append(x)
            for i in reversed(range(len(self.up))):
                x = nn.functional.interpolate(x, size=levels[i].shape[-2:])
                x = self.up[i](torch.cat([x, levels[i]], dim=1))
            return self.head(x)

    return Net()


def tensor(x: np.ndarray) -> Any:
    """Returns channels scaled to about -2 to 2, with the position of the pixel."""
    import torch

    wide = np.concatenate([x / 64 - 2, images.coordinates(x)], axis=-1)
    return torch.tensor(wide.transpose(0, 3, 1, 2).copy(), dtype=torch.float32)


def judge(net: Any, x: Any, y: np.ndarray, shares: np.ndarray, powers: tuple[float, ...]) -> dict[str, Any]:
    """Returns scores for each power of the classes' shares, and the seconds of an image."""
    import torch

    def shares_of(image: Any) -> np.ndarray:
        with torch.inference_mode():
            p: np.ndarray = net(image[None])[0].softmax(dim=0).permute(1, 2, 0).numpy()
        return p

    net.eval()
    # power 1 leaves the shares as they are, 0 divides them by the classes' shares
    found = co2_pixels.judge(shares_of, x, y, shares, tuple(1 - power for power in powers))
    for row in found["scores"]:
        row["power"] = 1 - row["power"]
    return found


def train(
    learner: str, data: co2_pixels.Data, epochs: int, seed: int
) -> tuple[Any, np.ndarray, dict[str, Any]]:
    """Returns the network of the best epoch, the shares of the classes, and its figures."""
    import torch
    from torch.nn import functional

    torch.manual_seed(seed)
    x, x_val = (tensor(data.of(part, "raw")) for part in ("train", "val"))
    y = torch.tensor(data.y["train"]).long()
    shares = np.bincount(data.y["train"].reshape(-1), minlength=VOID + 1)[:N_CLASSES].astype(float)
    shares /= shares.sum()
    net = network(learner, x.shape[1])
    optimizer = torch.optim.Adam(net.parameters(), lr=RATE)
    n_steps = len(x) // BATCH
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, RATE, total_steps=epochs * n_steps, pct_start=0.2
    )
    best: dict[str, Any] = {"mean_jaccard": -1.0}
    kept, seconds = net.state_dict(), 0.0
    for epoch in range(1, epochs + 1):
        begin = time.process_time()
        net.train()
        for rows in torch.randperm(len(x))[: n_steps * BATCH].split(BATCH):
            mirrored = [-1] if torch.rand(()) < 0.5 else []
            scores = net(x[rows].flip(mirrored))
            loss = functional.cross_entropy(scores, y[rows].flip(mirrored), ignore_index=VOID)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        seconds += time.process_time() - begin
        if epoch % 5 and epoch != epochs:
            continue
        found = judge(net, x_val, data.y["val"], shares, POWERS)
        top = max(found["scores"], key=lambda score: score["mean_jaccard"])
        words = (f"{100 * top[name]:.1f}" for name in SCORES)
        print(learner, "epoch", epoch, *words, f"{seconds:.0f} s", file=sys.stderr, flush=True)
        if top["mean_jaccard"] > best["mean_jaccard"]:
            best, kept = {**top, "epoch": epoch}, copy.deepcopy(net.state_dict())
    net.load_state_dict(kept)
    n_parameters = sum(p.numel() for p in net.parameters())
    return net, shares, {"val": best, "seconds": seconds, "n_parameters": n_parameters}


def table(rows: list[dict[str, Any]]) -> str:
    """Returns a table of test scores of networks, a line for each."""
    lines = co2_pixels.headed("network", "parameters", "seeds")
    for learner in LEARNERS:
        if of := [row for row in rows if row["learner"] == learner]:
            words = (learner, f"{of[0]['n_parameters']:,}", str(len(of)), *co2_pixels.cells(of, 3))
            lines.append(f"| {' | '.join(words)} |")
    return "\n".join(lines)


def main() -> None:
    """Makes every run that the record lacks, then prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder of the data sets; without it the record is printed")
    parser.add_argument("--learners", nargs="+", choices=LEARNERS, default=list(LEARNERS))
    parser.add_argument("--epochs", type=int, default=25)
    parser.add_argument("--every", type=int, default=1, help="use every n-th training image")
    parser.add_argument("--held-every", type=int, default=1, help="use every n-th validation and test image")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path, default=RESULTS / "pixels_torch.json")
    args = parser.parse_args()
    record = co2_data.Record(args.json)
    if args.data:
        import torch

        torch.set_num_threads(1)
        hforest.set_num_threads(1)
        data = co2_pixels.Data(args.data, args.every, args.held_every)
    for seed in range(args.seeds) if args.data else ():
        for learner in args.learners:
            key = {"part": "test", "learner": learner, "epochs": args.epochs, "every": args.every,
                   "held_every": args.held_every, "seed": seed}  # fmt: skip
            if record.find(key):
                continue
            net, shares, known = train(learner, data, args.epochs, seed)
            power = (known["val"]["power"],)
            found = judge(net, tensor(data.of("test", "raw")), data.y["test"], shares, power)
            record.add({**key, **known, **found})
            record.write()
    print(table(record.rows))


if __name__ == "__main__":
    main()
