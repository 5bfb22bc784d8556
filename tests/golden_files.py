"""Formats of the files in tests/data: functions that write each file, and outputs computed from it.

`python tests/golden_files.py` writes the missing files, and beside each FILE a FILE.expected.npz with samples
`x` and the arrays that `outputs` computes from them. An existing file is never written again: a new format
gets a new name, and files of earlier versions must load in every later one.
"""

import argparse
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import hforest
from hforest import _tables, cascade, co2, demo, project, tabular, tree
from hforest import images as pixels

FOLDER = Path(__file__).parent / "data"
N, N_FEATURES = 80, 6

Outputs = dict[str, np.ndarray]


@dataclass(frozen=True)
class Format:
    """One golden file."""

    file: str
    needs: tuple[str, ...]
    """Packages that writing and reading need."""
    write: Callable[[Path], None]
    samples: Callable[[], np.ndarray]
    outputs: Callable[[Path, np.ndarray], Outputs]
    """Loads the file and computes arrays from it and the samples."""
    rtol: float
    """Relative error of the outputs; 0 if they are bit-identical."""

    @property
    def expected(self) -> Path:
        return FOLDER / f"{self.file}.expected.npz"


FORMATS: list[Format] = []


def golden(
    file: str, outputs: Any, *, samples: Any, rtol: float = 0.0, needs: tuple[str, ...] = ()
) -> Callable[[Callable[[Path], None]], Callable[[Path], None]]:
    def add(write: Callable[[Path], None]) -> Callable[[Path], None]:
        FORMATS.append(Format(file, needs, write, samples, outputs, rtol))
        return write

    return add


def table(dtype: Any = np.float32, *, missing: bool = False, n: int = N) -> np.ndarray:
    """Returns normal numbers; with `missing`, the last column has categories and a tenth is NaN."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(n, N_FEATURES)).astype(dtype)
    if missing:
        x[:, -1] = rng.integers(0, 40, n)
        x[rng.random(x.shape) < 0.1] = np.nan
    return x


def labels(x: np.ndarray) -> np.ndarray:
    return np.digitize(np.nan_to_num(x[:, 0] + x[:, 1] * x[:, 2]), [-0.5, 0.5]).astype(np.int32)


def images(n: int = N) -> np.ndarray:
    """Returns images of 8x8 pixels as rows."""
    return np.random.default_rng(6).normal(size=(n, 64)).astype(np.float32)


few = partial(table, n=12)


# -------------------------------------------------------------------------------------------- forests


def _of_forest(path: Path, x: np.ndarray) -> Outputs:
    forest = tree.load(path)
    return {
        "leaf": tree.apply(forest, x),
        "mean": tree.predict(forest, x),
        "importances": tree.importance(forest, by="gain"),
    }


holes = partial(few, missing=True)


@golden("forest_classes.npz", _of_forest, samples=holes)
def _(path: Path) -> None:
    x = table(missing=True)
    samples = hforest.samples(x, categorical=[N_FEATURES - 1])
    forest = hforest.grow(samples, labels(x), 3, max_depth=5, rng=0)
    assert forest.category_bits.size
    assert forest.default_left.any()
    tree.save(path, forest)


@golden("forest_targets.npz", _of_forest, samples=partial(few, np.float64))
def _(path: Path) -> None:
    x = table(np.float64)
    tree.save(path, hforest.grow(x, x[:, :2] ** 2, 3, task="regression", max_depth=4, rng=0))


@golden("forest_projections.npz", _of_forest, samples=few)
def _(path: Path) -> None:
    x = table()
    projections = project.sparse_distribution(N_FEATURES)
    tree.save(path, hforest.grow(x, labels(x), 3, projections=projections, max_depth=4, rng=0))


@golden("forest_hyperplanes.npz", _of_forest, samples=few)
def _(path: Path) -> None:
    x = table()
    tree.save(path, co2.grow(x, labels(x), 2, max_depth=3, rng=0))


@golden("forest_format_1.npz", _of_forest, samples=few)
def _(path: Path) -> None:
    # As written by versions without missing values and categories.
    x = table()
    forest = hforest.grow(x, labels(x), 3, max_depth=4, rng=0)
    arrays = {name: a for name, a in forest._asdict().items() if name not in tree.forest.OPTIONAL}
    np.savez(path, forest_format=np.array(1), **arrays)


# ------------------------------------------------------------------------------------------- cascades

_LEVEL = [
    partial(hforest.grow, n_trees=2, max_depth=3),
    partial(hforest.grow, n_trees=2, max_depth=3, splitter="random", max_features=1, bootstrap=False),
]


def _of_cascade(path: Path, x: np.ndarray) -> Outputs:
    grown = cascade.load(path)
    return {"p": cascade.predict(grown, x), "scores": np.array(grown.scores)}


@golden("cascade_folds.npz", _of_cascade, samples=few)
def _(path: Path) -> None:
    x = table()
    cascade.save(path, cascade.grow(x, labels(x), _LEVEL, max_levels=2, patience=2, n_folds=2, rng=0))


@golden("cascade_out_of_bag.npz", _of_cascade, samples=few)
def _(path: Path) -> None:
    x, level = table(), [partial(hforest.grow, n_trees=6, max_depth=3)]
    settings: Any = {"class_vectors": "out_of_bag", "max_levels": 2, "patience": 2, "rng": 0}
    cascade.save(path, cascade.grow(x, labels(x), level, **settings))


def _of_scanner(path: Path, x: np.ndarray) -> Outputs:
    return {"vectors": cascade.scan_vectors(cascade.load(path), x)}


@golden("scanner.npz", _of_scanner, samples=partial(images, 4))
def _(path: Path) -> None:
    x = images()
    y = (x[:, 0] > 0).astype(int)
    scanner, _ = cascade.grow_scanner(x, y, (8, 8), (4, 4), _LEVEL, stride=2, max_windows=2, rng=0)
    cascade.save(path, scanner)


# --------------------------------------------------------------------------------------------- tables


def _of_table(path: Path, x: np.ndarray) -> Outputs:
    return {"y": tabular.predict(tabular.load(path), x)}


_SMALL: Any = {"n_trees": 3, "depth": 3, "n_projections": 4, "steps": 30, "n_members": 2, "rng": 0}


@golden("table_targets.npz", _of_table, samples=few, rtol=1e-4)
def _(path: Path) -> None:
    x = table()
    tabular.save(path, tabular.fit(x, x[:, 0] * x[:, 1], task="regression", **_SMALL))


def _named(x: np.ndarray) -> dict[str, np.ndarray]:
    """Returns columns of text, dates and numbers, with missing values."""
    words = np.array(["red", "green", "blue", None], object)
    colour = words[np.digitize(np.nan_to_num(x[:, 0]), [-0.7, 0.0, 1.5])]
    days = np.datetime64("2024-01-31") + np.nan_to_num(100 * x[:, 1]).astype(np.int64)
    return {"colour": colour, "day": days, "size": x[:, 2]}


def _of_named_table(path: Path, x: np.ndarray) -> Outputs:
    return {"y": tabular.predict(tabular.load(path), _named(x))}


@golden("table_columns.npz", _of_named_table, samples=partial(table, missing=True, n=20), rtol=1e-4)
def _(path: Path) -> None:
    x = table(missing=True)
    tabular.save(path, tabular.fit(_named(x), labels(x), **_SMALL))


def _of_labelled_table(path: Path, x: np.ndarray) -> Outputs:
    model = _tables._load_model(str(path))
    return {"y": model.predict(x), "classes": model.classes}


@golden("table_classes.npz", _of_labelled_table, samples=few, rtol=1e-4)
def _(path: Path) -> None:
    # As `python -m hforest --save` writes it, with labels.
    x = table()
    model = tabular.fit(x, labels(x), task="classification", n_classes=3, **_SMALL)
    tabular.save(path, model._replace(classes=np.array(["ant", "bee", "cow"], np.dtypes.StringDType())))


# ------------------------------------------------------------------------------------ runs of the demo


def _of_run(path: Path, x: np.ndarray) -> Outputs:
    # Scores as loaded, and after one more step.
    config, state, fingerprint, classes = demo.load_checkpoint(path)
    scores = demo.predict(config, state, x)
    demo.step(config, state, x, np.arange(len(x)) % len(classes))
    after = demo.predict(config, state, x)
    return {"scores": scores, "after": after, "classes": classes, "fingerprint": np.array(fingerprint)}


def _run(path: Path, x: np.ndarray, settings: dict[str, Any]) -> None:
    y = labels(x)
    data = demo.Data(x[20:], y[20:], x[:20], y[:20], np.array(["ant", "bee", "cow"]))
    config = demo.Config(n_trees=3, depth=3, steps=6, eval_every=3, **settings)
    state = demo.start(config, x.shape[1], 3)
    demo.train(config, state, *data[:4])
    demo.save_checkpoint(path, config, state, data)


@golden("run_adam_tree.npz", _of_run, samples=few, rtol=1e-4)
def _(path: Path) -> None:
    _run(path, table(), {"n_features": 5, "kind": "tree", "optimizer": "adam"})


@golden("run_adagrad_fern_kernels.npz", _of_run, samples=partial(images, 12), rtol=1e-4)
def _(path: Path) -> None:
    _run(path, images(), {"n_kernels": 2, "kind": "fern", "optimizer": "adagrad"})


# -------------------------------------------------------------------------------------------- PyTorch


def _modules() -> dict[str, Any]:
    """Returns float64 modules of each kind, which take `table`, or images for convolutions."""
    import torch

    import hforest.torch as ht

    more: dict[str, Any] = {"generator": torch.Generator().manual_seed(0), "dtype": torch.float64}
    return {
        "tree": ht.HingeForest(N_FEATURES, 2, 3, 2, **more),
        "fern": ht.HingeForest(N_FEATURES, 2, 3, (2, 2), kind="fern", aggregate=None, **more),
        "linear": ht.HingeForest(N_FEATURES, 2, 2, 2, margin="projection", **more),
        "neural": ht.NeuralForest(N_FEATURES, 2, 2, 3, **more),
        "neural_shared": ht.NeuralForest(N_FEATURES, 2, 2, 3, n_functions=4, **more),
        "norm": ht.RunningNorm(N_FEATURES, dtype=torch.float64),
        "conv1": ht.HingeConv1d(2, 2, 2, 3, 2, **more),
        "conv2": ht.HingeConv2d(2, 2, 2, 2, 2, padding=1, groups=2, **more),
        "conv3": ht.HingeConv3d(1, 2, 2, 2, 2, kind="fern", **more),
    }


def _inputs(name: str, x: np.ndarray) -> Any:
    import torch

    shapes = {"conv1": (2, 2, -1), "conv2": (2, 2, 3, -1), "conv3": (2, 1, 3, 3, -1)}
    return torch.tensor(x).reshape(shapes.get(name, x.shape))


def _of_modules(path: Path, x: np.ndarray) -> Outputs:
    import torch

    states = torch.load(path, weights_only=True)
    found = {}
    for name, module in _modules().items():
        for p in module.parameters():
            p.data.zero_()
        module.load_state_dict(states[name])
        found[name] = module.eval()(_inputs(name, x)).detach().numpy()
    return found


wide = partial(few, np.float64)


@golden("torch_modules.pt", _of_modules, samples=wide, rtol=1e-9, needs=("torch",))
def _(path: Path) -> None:
    import torch

    modules = _modules()
    x = torch.tensor(table(np.float64))
    modules["norm"].train()(x)
    for name in ("neural", "neural_shared"):
        modules[name].update_leaves(x, torch.tensor(labels(table())))
    torch.save({name: module.state_dict() for name, module in modules.items()}, path)


def _network() -> Any:
    import torch

    import hforest.torch as ht

    torch.manual_seed(0)
    more: dict[str, Any] = {"sparse": True, "dtype": torch.float64}
    return torch.nn.Sequential(
        torch.nn.Linear(N_FEATURES, 4, dtype=torch.float64), ht.HingeForest(4, 2, 3, 2, **more)
    )


def _train(net: Any, optimizer: Any, x: np.ndarray, n_steps: int) -> None:
    import torch

    for i in range(n_steps):
        batch = torch.tensor(x[i * 3 : i * 3 + 3])
        optimizer.zero_grad()
        net(batch).square().sum().backward()
        optimizer.step()


def _of_training(path: Path, x: np.ndarray) -> Outputs:
    # Outputs as loaded, and after three more steps of RowAdam, and of torch.optim.Adam from the same state.
    import torch

    import hforest.torch as ht

    found, states = {}, torch.load(path, weights_only=True)
    for name, optimizer_of in {"rows": ht.RowAdam, "dense": torch.optim.Adam}.items():
        net = _network()
        net.load_state_dict(states["model"])
        net[1].sparse = name == "rows"
        optimizer = optimizer_of(net.parameters())
        optimizer.load_state_dict(states["optimizer"])
        found[f"{name} as loaded"] = net(torch.tensor(x)).detach().numpy()
        _train(net, optimizer, x, 3)
        found[f"{name} after"] = net(torch.tensor(x)).detach().numpy()
    return found


@golden("torch_row_adam.pt", _of_training, samples=wide, rtol=1e-9, needs=("torch",))
def _(path: Path) -> None:
    import torch

    import hforest.torch as ht

    net = _network()
    optimizer = ht.RowAdam(net.parameters(), lr=0.05, betas=(0.8, 0.99))
    _train(net, optimizer, table(np.float64), 5)
    torch.save({"optimizer": optimizer.state_dict(), "model": net.state_dict()}, path)


def _of_ordinals(path: Path, x: np.ndarray) -> Outputs:
    import torch

    import hforest.torch as ht

    found = {}
    for kind, state in torch.load(path, weights_only=True).items():
        module = ht.HingeForest(N_FEATURES, 2, 3, 2, kind=kind, dtype=torch.float64)
        module.load_state_dict(state)
        found[kind] = module(torch.tensor(x)).detach().numpy()
    return found


@golden("torch_ordinals.pt", _of_ordinals, samples=wide, rtol=1e-9, needs=("torch",))
def _(path: Path) -> None:
    # The layout of HingeTreeForTorch's RandomHingeForest and RandomHingeFern.
    import torch

    torch.manual_seed(1)
    states = {}
    for kind, n_vertices in {"tree": 7, "fern": 3}.items():
        states[kind] = {
            "weights": torch.randn(2, 8, 2, dtype=torch.float64),
            "thresholds": torch.randn(2, n_vertices, dtype=torch.float64),
            "ordinals": torch.randint(N_FEATURES, (2, n_vertices)),
        }
    torch.save(states, path)


# ------------------------------------------------------------------------------------- labels of pixels


def _of_pixels(path: Path, x: np.ndarray) -> Outputs:
    model = pixels.load(path)
    return {"p": pixels.predict(model, x, weight_back=0.5), "labels": pixels.predict_labels(model, x)}


@golden("pixels.npz", _of_pixels, samples=lambda: images(2).reshape(2, 8, 8, 1))
def _(path: Path) -> None:
    x = images(12).reshape(12, 8, 8, 1)
    grow = partial(hforest.grow, projections=project.probe_distribution(9, 0.5), max_depth=4)
    y = np.roll(x[..., 0] > 0.5, 1, axis=2)
    settings: Any = {"normalize": True, "border": "leave_out", "n_trees": 3, "n_pixels": 200, "rng": 0}
    pixels.save(path, pixels.fit(x, y, grow, window=3, **settings))


# ------------------------------------------------------------------------------------------- exchange


def _of_treelite(path: Path, x: np.ndarray) -> Outputs:
    import treelite

    import hforest.treelite as exchange

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s).*originated from a newer Treelite version")
        model = treelite.Model.deserialize_bytes(path.read_bytes())
    again = exchange.to_treelite(tree.load(FOLDER / "forest_classes.npz"))
    return {
        "by hforest": exchange.predict(exchange.from_treelite(model), x),
        "by treelite": treelite.gtil.predict(model, x, nthread=1),
        "exported again": treelite.gtil.predict(again, x, nthread=1),
    }


@golden("forest_classes_treelite.bin", _of_treelite, samples=holes, rtol=1e-5, needs=("treelite",))
def _(path: Path) -> None:
    import hforest.treelite as exchange

    path.write_bytes(exchange.to_treelite(tree.load(FOLDER / "forest_classes.npz")).serialize_bytes())


def _of_onnx(path: Path, x: np.ndarray) -> Outputs:
    import onnxruntime

    import hforest.onnx as exchange

    again = exchange.to_onnx(tree.load(FOLDER / "forest_projections.npz"))
    found = {}
    for name, content in {"": path.read_bytes(), " exported again": again.SerializeToString()}.items():
        session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
        for output, a in zip(session.get_outputs(), session.run(None, {"x": x}), strict=True):
            found[output.name + name] = a
    return found


@golden("forest_projections.onnx", _of_onnx, samples=few, rtol=1e-5, needs=("onnx", "onnxruntime"))
def _(path: Path) -> None:
    import hforest.onnx as exchange

    path.write_bytes(exchange.to_onnx(tree.load(FOLDER / "forest_projections.npz")).SerializeToString())


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    FOLDER.mkdir(exist_ok=True)
    for form in FORMATS:
        path = FOLDER / form.file
        if not path.exists():
            form.write(path)
            x = form.samples()
            np.savez_compressed(form.expected, x=x, **form.outputs(path, x))
            print(path.name, path.stat().st_size + form.expected.stat().st_size)


if __name__ == "__main__":
    main()
