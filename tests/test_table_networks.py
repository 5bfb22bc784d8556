"""Networks of bench/table_networks.py: formulas of their papers, and small runs of the benches of layers."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", "2.4", reason="needs torch 2.4")
BENCH = Path(__file__).resolve().parents[1] / "bench"


@pytest.fixture
def networks(script):
    return script("table_networks")


def test_entmax_is_the_solution_of_its_problem(networks):
    torch.manual_seed(0)
    z = 3 * torch.randn(7, 50, dtype=torch.float64)
    p = networks.Entmax15.apply(z)
    torch.testing.assert_close(p.sum(dim=0), torch.ones(50, dtype=torch.float64))
    assert 0 < (p == 0).double().mean() < 1
    # Where p > 0, z / 2 - sqrt(p) is the threshold tau; elsewhere z / 2 is at most tau.
    tau = torch.where(p > 0, z / 2 - p.sqrt(), torch.inf).amin(dim=0)
    torch.testing.assert_close((z / 2 - tau).clamp(min=0).square(), p)
    assert torch.autograd.gradcheck(networks.Entmax15.apply, z[:, :5].clone().requires_grad_())


def test_entmoid_is_entmax_of_two_numbers(networks):
    t = torch.linspace(-3, 3, 101, dtype=torch.float64)
    both = networks.Entmax15.apply(torch.stack([t, torch.zeros_like(t)]))
    torch.testing.assert_close(networks.entmoid15(t), both[0])


def test_oblivious_trees_by_hand(networks):
    torch.manual_seed(0)
    x = torch.randn(40, 3)
    layer = networks.Oblivious(x, 4, 2, 5)
    shares = layer.shares(x)
    torch.testing.assert_close(shares.sum(dim=1), torch.ones(40, 4))
    f = x @ networks.Entmax15.apply(layer.logits)
    c = networks.entmoid15((f - layer.thresholds) / layer.log_tau.exp()).reshape(40, 2, 4)
    torch.testing.assert_close(shares[:, 1], (1 - c[:, 0]) * c[:, 1])
    torch.testing.assert_close(shares[:, 2], c[:, 0] * (1 - c[:, 1]))
    torch.testing.assert_close(layer(x).unflatten(1, (4, 5)).sum(dim=1), layer.total(x))
    assert ((f - layer.thresholds) / layer.log_tau.exp()).abs().amax() <= 1 + 1e-5


@pytest.mark.parametrize("name", ["MLP", "RealMLP", "NODE", "hinge", "hinge, grown start"])
def test_networks_learn(networks, name):
    torch.manual_seed(0)
    x = torch.randn(300, 4)
    y = (x[:, 0] * x[:, 1] > 0).long() + (x[:, 2] > 1)
    method = networks.METHODS[name]
    for form in method.forms:
        network = method.make(x, y, 3, form)
        assert sum(len(g["params"]) for g in network.groups) == len(list(network.module.parameters()))
        groups = [{"params": g["params"], "lr": method.rates[1] * g["factor"]} for g in network.groups]
        optimizer = torch.optim.Adam(groups)
        losses = []
        for _ in range(60):
            losses.append(networks.loss_of(network, network.module(x), y))
            optimizer.zero_grad()
            losses[-1].backward()
            optimizer.step()
        assert losses[-1] < 0.9 * losses[0]


def test_columns_are_scaled_as_in_the_papers(script):
    scaled = script("layer_tables").scaled
    x = np.array([[0.0, 5, 0], [1, 5, 0], [2, 5, 0], [3, 5, 0], [4, 5, 9]], np.float32)
    z = (x - [2, 5, 0]) / [2, np.inf, 4.5]
    np.testing.assert_allclose(scaled(x, x, "robust"), z / np.sqrt(1 + (z / 3) ** 2), rtol=1e-6)
    q = scaled(x, x, "quantiles")
    assert np.isfinite(q).all()
    assert (np.diff(q[:, 0]) > 0).all()
    np.testing.assert_allclose(q[[2, 0], [0, 1]], 0, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("words", ["layer_tables", "layer_uses --only pixels stream leaves latency"])
def test_quick_runs(words):
    for library in ("onnxruntime", "onnxscript"):
        pytest.importorskip(library, reason=f"needs {library}")
    name, *rest = words.split()
    command = [sys.executable, BENCH / f"{name}.py", "--quick", *rest]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "| hinge" in done.stdout


def test_settings_are_chosen_by_validation_alone(script):
    rows = [
        {
            "table": "letter",
            "method": "MLP",
            "rate": rate,
            "form": 0,
            "seed": seed,
            "validation": v,
            "error": e,
        }
        for rate, seed, v, e in ((0.1, 0, 5, 1), (0.2, 0, 4, 9), (0.2, 1, 8, 7))
    ]
    assert [row["error"] for row in script("layer_tables").chosen(rows, "letter", "MLP")] == [9, 7]
