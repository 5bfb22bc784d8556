"""The rules of the house: who may import whom, what a room holds, and that twins have one signature."""

import ast
import importlib
import inspect
import re
from pathlib import Path

import pytest

import hforest

PACKAGE = Path(hforest.__file__).parent
ROOT = Path(__file__).resolve().parents[1]

# From the ground up; rooms on one floor never import each other.
FLOORS = [
    {"core"},
    {"split", "tree", "growth", "project", "layers", "optim"},
    {"hinge", "classic", "manifold", "co2", "neural"},
    {"cascade"},
    {"demo"},
]
FLOOR = {room: level for level, floor in enumerate(FLOORS) for room in floor}
ROOMS = sorted(path.name for path in PACKAGE.iterdir() if path.is_dir() and (path / "__init__.py").exists())
KERNEL_ROOMS = [room for room in ROOMS if (PACKAGE / room / "cpu.pyx").exists()]
# A baseline, on the CPU alone.
CPU_ONLY = {"co2": {"fit_oc1"}}


def imported_rooms(path):
    """Rooms that a file imports, by the absolute or relative name."""
    package = ["hforest", *path.relative_to(PACKAGE).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base = base + (node.module.split(".") if node.module else [])
            names = [base + [alias.name] for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        else:
            continue
        for name in names:
            if name[0] == "hforest" and len(name) > 1 and name[1] in ROOMS:
                yield name[1]


def test_every_room_has_a_floor():
    assert set(ROOMS) <= set(FLOOR)
    assert len(KERNEL_ROOMS) >= 2


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_run_downwards(path):
    parts = path.relative_to(PACKAGE).parts
    if len(parts) == 1:
        return  # the package itself sees every room
    for other in imported_rooms(path):
        if other != parts[0]:
            assert FLOOR[other] < FLOOR[parts[0]], f"{parts[0]} imports {other}"


def test_the_import_test_sees_imports():
    assert set(imported_rooms(PACKAGE / "hinge" / "__init__.py")) == {"core", "hinge"}
    assert {"hinge", "layers", "optim", "core"} <= set(imported_rooms(PACKAGE / "demo" / "network.py"))


@pytest.mark.parametrize("room", KERNEL_ROOMS)
def test_furniture(room):
    for name in ("__init__.py", "reference.py", "cpu.pyx", "cpu.pyi", "gpu.cu", "gpu.py"):
        assert (PACKAGE / room / name).exists(), name


@pytest.mark.parametrize("room", [room for room in ROOMS if FLOOR.get(room, 0) in (1, 2)])
def test_every_room_has_test_and_page(room):
    assert (ROOT / "tests" / f"test_{room}.py").exists()
    assert (ROOT / "docs" / f"{room}.md").exists()


def functions(module):
    return {
        name: list(inspect.signature(f).parameters)
        for name, f in vars(module).items()
        if callable(f) and not name.startswith("_") and getattr(f, "__module__", None) == module.__name__
    }


@pytest.mark.parametrize("room", KERNEL_ROOMS)
def test_twins_have_one_signature(room):
    names = ("reference", "cpu", "gpu")
    law, *others = (functions(importlib.import_module(f"hforest.{room}.{twin}")) for twin in names)
    assert len(law) >= 2
    for name, twin in zip(names[1:], others, strict=True):
        missing = CPU_ONLY.get(room, set()) if name == "gpu" else set()
        assert twin == {door: parameters for door, parameters in law.items() if door not in missing}


def doors():
    for room in ROOMS:
        if FLOOR[room] == 0:
            continue
        module = importlib.import_module(f"hforest.{room}")
        for name in module.__all__:
            door = getattr(module, name)
            if inspect.isfunction(door):
                yield pytest.param(door, id=f"{room}.{name}")


@pytest.mark.parametrize("door", list(doors()))
def test_docstrings_are_whole(door):
    text = inspect.getdoc(door)
    parameters = inspect.signature(door).parameters
    for section in ("Parameters", "Raises") if parameters else ():
        assert re.search(rf"^{section}\n-+$", text, re.MULTILINE), section
    for name, parameter in parameters.items():
        assert parameter.kind is not parameter.VAR_KEYWORD, "no **kwargs"
        assert re.search(rf"^[\w, ]*\b{name}\b", text[text.index("Parameters") :], re.MULTILINE), name
        if isinstance(parameter.default, bool):
            assert parameter.kind is parameter.KEYWORD_ONLY, "no positional booleans"


def test_nothing_unfinished():
    words = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b")
    for pattern in ("**/*.py", "**/*.pyx", "**/*.cu", "**/*.h", "**/*.cuh"):
        for path in PACKAGE.glob(pattern):
            assert not words.search(path.read_text()), path
