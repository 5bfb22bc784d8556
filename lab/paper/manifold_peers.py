"""The other classifiers in Perry et al. 2019, Fig. 1 to 3: those of scikit-learn, and a CNN in PyTorch.

Classifiers of scikit-learn have their default parameters (section 4). The CNN has two convolutions with ReLU
and max pooling, then dropout and two dense layers. The paper gives no sizes. Widths of kernels and layers,
Adam's rate of 0.001, at most 100 epochs of one batch each, and the stop are those of the authors' code
(neurodata/SPORF, Python/paper_figures_v2/utils/cnn.py). There, training ends once the standard error of the
last five losses is below 0.001, but not before epoch 12. For MNIST, this script uses batches of 64 and at
most 20 epochs.
"""

import statistics
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

PEERS = ("LogReg", "LinSVM", "SVM", "kNN", "MLP", "CNN")
KERNEL = {"circle": 6, "impulse": 10, "bars": 5, "mnist": 5}
DENSE = {"circle": 200, "impulse": 500, "bars": 200, "mnist": 200}
Predictor = Callable[[Any], Any]


def cnn(data: str, x: Any, y: Any, shape: tuple[int, ...], n_classes: int, seed: int) -> Predictor:
    """Trains the CNN; returns a function that predicts labels."""
    import torch
    from torch import nn

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    conv: Any = nn.Conv1d if len(shape) == 1 else nn.Conv2d
    pool: Any = nn.MaxPool1d if len(shape) == 1 else nn.MaxPool2d
    width = KERNEL[data]
    net = nn.Sequential(
        conv(1, 32, width), nn.ReLU(), pool(2), conv(32, 64, width), nn.ReLU(), pool(2),
        nn.Flatten(), nn.Dropout(0.5), nn.LazyLinear(DENSE[data]), nn.Linear(DENSE[data], n_classes),
    )  # fmt: skip

    def images(samples: Any) -> Any:
        return torch.from_numpy(np.reshape(samples, (len(samples), 1, *shape)))

    x_all, y_all = images(x), torch.from_numpy(y).long()
    net(x_all[:1])  # determines the size of the first dense layer
    adam = torch.optim.Adam(net.parameters(), lr=0.001)
    epochs, batch = (20, 64) if data == "mnist" else (100, len(x))
    losses: list[float] = []
    for epoch in range(epochs):
        for some in torch.randperm(len(x)).split(batch):
            loss = nn.functional.cross_entropy(net(x_all[some]), y_all[some])
            adam.zero_grad()
            loss.backward()
            adam.step()
        losses.append(loss.item())
        if epoch > 10 and statistics.stdev(losses[-5:]) / 5**0.5 < 0.001:
            break
    net.eval()

    def predict(samples: Any) -> Any:
        with torch.no_grad():
            return torch.cat([net(part).argmax(dim=1) for part in images(samples).split(1000)]).numpy()

    return predict


def fit(
    method: str, data: str, x: Any, y: Any, shape: tuple[int, ...], n_classes: int, seed: int
) -> Predictor:
    """Trains a classifier; returns a function that predicts labels, the only class if there is one."""
    if len(np.unique(y)) == 1:  # scikit-learn's linear classifiers and SVM refuse it
        return lambda samples: np.full(len(samples), y[0])
    if method == "CNN":
        return cnn(data, x, y, shape, n_classes, seed)
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.neural_network import MLPClassifier
    from sklearn.svm import SVC, LinearSVC

    kinds: dict[str, Callable[[], Any]] = {
        "LogReg": LogisticRegression,
        "LinSVM": lambda: LinearSVC(random_state=seed),
        "SVM": SVC,
        "kNN": KNeighborsClassifier,
        "MLP": lambda: MLPClassifier(random_state=seed),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # default numbers of iterations do not always converge
        trained: Any = kinds[method]().fit(x, y)
    predict: Predictor = trained.predict
    return predict
