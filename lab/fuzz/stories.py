"""Calls that follow on each other: `CALLS` return arrays, which kinds of cases compare; `STORIES` compare by themselves."""

import functools
import importlib.util
import inspect
import os
import shutil
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hforest import hinge, scale
from hforest.__main__ import main

from .growing import folder
from .oracle import Case, Finding, Outcome, _quiet, told
from .targets import SANITIZED, Target
from .values import options, value

STORIES: dict[str, Target] = {}
CALLS: dict[str, Target] = {}

value("stories.seed")(lambda s: s.integer(0, 1 << 20))
options("stories.kind", "tree", "fern")


def listed(where: dict[str, Target]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a function of drawn arguments."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        name = f"stories.{function.__name__}"
        where[name] = Target(name, function, dict(inspect.signature(function).parameters))
        return function

    return register


def possible(target: Target) -> bool:
    """Whether the libraries of a story are installed. AddressSanitizer watches no PyTorch."""
    wanted = target.last.startswith("torch")
    return not wanted or (not SANITIZED and importlib.util.find_spec("torch") is not None)


def run(case: Case) -> None:
    """Raises Finding if a story raises."""
    with _quiet(True):
        try:
            case.target.function(**case.make())
        except Exception as error:
            cause = error.__cause__ or error
            text = f"{type(cause).__name__}: {cause}\n  {error}"
            raise told(Finding(text), case, Outcome(None, type(error), str(error))) from None


# ------------------------------------------------------------------------------------ calls of classes


@listed(CALLS)
def shards(kind: str, seed: int) -> Any:
    """Two steps of a forest that lies on one worker."""
    rng = np.random.default_rng(seed)
    x, p = rng.normal(size=(9, 4)), hinge.init(3, 3, 4, kind=kind, dtype=np.float64, rng=rng)
    forest = scale.HingeShards(None, kind, *p)
    for _ in range(2):
        y, route = forest.forward(x)
        forest.step(forest.backward(y - x[:, 0], route), 0.1)
    return y, forest.thresholds, forest.weights, forest.state


@listed(CALLS)
def torch_conv(kind: str, seed: int) -> Any:
    """Outputs and gradients of a convolution in PyTorch."""
    import torch

    import hforest.torch as ht

    rng = np.random.default_rng(seed)
    t, f, w = hinge.init(3, 3, 8, kind=kind, rng=rng)
    x, t, w = (
        torch.tensor(a, requires_grad=True) for a in (rng.normal(size=(2, 2, 5, 5)).astype(np.float32), t, w)
    )
    y = ht.hinge_forest(x, t, torch.tensor(f), w, kind=kind, windows=hinge.Windows(2))
    y.sum().backward()
    return [a.detach().numpy() for a in (y, x.grad, t.grad, w.grad)]


# --------------------------------------------------------------------------------- RowAdam in PyTorch


@listed(STORIES)
def torch_lives(seed: int) -> None:
    """A model under RowAdam, and what may become of it; tests/test_torch_lives.py."""
    importlib.import_module("test_torch_lives").Life(seed).live()


@listed(STORIES)
def torch_forks(kind: str, seed: int) -> None:
    """A child that is forked while a thread reads a table with missed steps."""
    lives = importlib.import_module("test_torch_lives")
    net, optimizer, plain, adam = lives.trained(last=seed % 9, kind=kind, seed=seed)
    x, end = lives.batch(net, seed)[0], threading.Event()

    def read() -> None:
        while not end.is_set():
            net(x).detach()

    thread = threading.Thread(target=read)
    thread.start()
    try:
        assert not hasattr(os, "fork") or lives.in_child(lambda: lives.same(net, plain) is None)
    finally:
        end.set()
        thread.join()
    for n, o in ((net, optimizer), (plain, adam)):
        lives.train(n, o, 10, 15)
    lives.same(net, plain)


# ---------------------------------------------------------------------------------- paths of outputs

_SMALL = ("--n-trees", "2", "--set", "depth=2", "n_features=3", "--steps", "2")
_NETWORK = (*_SMALL, "--set", "eval_every=1", "--kind", "tree", "--data", "@data.npz", "--train", "20")
COMMANDS = {
    "table --save": (("--data", "@data.npz", *_SMALL, "--save"), "model.npz"),
    "predict --out": (("predict", "@model.npz", "@data.npz", "--out"), "predictions.npz"),
    "predict --report": (("predict", "@model.npz", "@data.npz", "--report"), "report.html"),
    "network --save": ((*_NETWORK, "--no-plot", "--save"), "network.npz"),
    "network --plot": ((*_NETWORK, "--plot"), "picture.png"),
}
"""Arguments of commands, @ for the folder and without the output's path, and the older file that it may replace."""

OLDER = (
    "nothing.npz",
    *(older for _, older in COMMANDS.values()),
    "data.npz",
    "other.npz",
    "text.npz",
    "a folder",
)

options("stories.command", *COMMANDS)
options("stories.content", *OLDER)
options("stories.link", None, os.symlink, os.link)


def _main(place: Path, command: str, output: Path) -> int:
    return main([a.replace("@", f"{place}/") for a in COMMANDS[command][0]] + [str(output)])


@functools.cache
def _files() -> Path:
    """A folder with the files that an output may be confused with."""
    place = Path(tempfile.mkdtemp(dir=folder()))
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 3)), np.arange(30) % 2
    np.savez(place / "data.npz", x=x, y=y)
    np.savez(place / "other.npz", labels=y)
    (place / "text.npz").write_text("of others: hforest")
    (place / "a folder").mkdir()
    (place / "a folder" / "inside").touch()
    for command, (_, older) in COMMANDS.items():
        assert _main(place, command, place / older) == 0
    return place


def _content(place: Path) -> dict[str, bytes]:
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


@listed(STORIES)
def outputs(command: str, content: str, link: Any) -> None:
    """An output of a command where something is: it takes the place of its own older output alone."""
    own = COMMANDS[command][1]
    if not (_files() / own).exists():
        return  # Matplotlib is not installed
    with tempfile.TemporaryDirectory(dir=folder()) as name:
        place = Path(name)
        shutil.copytree(_files(), place, dirs_exist_ok=True)
        output, older = place / f"output{Path(own).suffix}", place / content
        if link is os.symlink or (link and older.is_file()):
            link(older, output)
        elif older.is_dir():
            shutil.copytree(older, output)
        elif older.exists():
            shutil.copyfile(older, output)
        free = content == own or not older.exists()  # as a picture without Matplotlib
        before = _content(place)
        status, after = _main(place, command, output), _content(place)
        changed = {path for path in before | after if before.get(path) != after.get(path)}
        may = {output.name, content if link is os.symlink else output.name} if free else set()
        assert status == (0 if free else 2), f"status {status}"
        assert changed <= may, f"changed: {sorted(changed - may)}"
        assert not free or after[output.name], "no output"
