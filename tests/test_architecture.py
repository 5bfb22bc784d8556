"""Architecture: allowed imports, contents of subpackages, one signature for all backends, and words."""

import ast
import importlib
import importlib.util
import inspect
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from conftest import PAGES_OF_SEVERAL

import hforest
from hforest.core import launch

PACKAGE = Path(hforest.__file__).parent
ROOT = Path(__file__).resolve().parents[1]

# From the bottom up. A subpackage imports from lower layers; within a layer only from those in ALLOWED.
LAYERS = [
    {"core"},
    {"split", "tree", "project", "layers", "optim"},
    {"growth"},
    {"alternating", "co2", "hinge", "neural"},
    {"cascade", "stats", "tabular"},
    {"demo", "images"},
    {"scale"},
    {"torch", "jax", "sklearn", "treelite", "onnx", "plot", "dask"},
]
INTEGRATIONS = LAYERS[-2] | LAYERS[-1]
"""Optional packages: each is imported only by its own name, and uses only public functions."""
NO_LIBRARY = {"scale"}
"""Integrations that need no library: they take objects of a caller's library."""
LIBRARY = {"plot": "matplotlib"}
"""Libraries of integrations that have another name."""
LAYER = {name: level for level, layer in enumerate(LAYERS) for name in layer}
SUBPACKAGES = sorted(
    path.name for path in PACKAGE.iterdir() if path.is_dir() and (path / "__init__.py").exists()
)
NESTED = ["growth.by_level"]
"""Public folders of subpackages, whose names may also be those of public functions."""
WITH_KERNELS = [name for name in SUBPACKAGES if any((PACKAGE / name).rglob("cpu.pyx"))]
# Only on the CPU: OC1, which is a baseline, and values computed from the samples in leaves.
CPU_ONLY = {
    "co2": {"fit_oc1"},
    "tree": {
        "group", "quantiles", "count_neighbors", "neighbors", "shap_interventional", "shap_path_dependent",
    },
}  # fmt: skip
GPU_ONLY = {"hinge": {"adam_step"}}  # elsewhere its parts are called


def imported_subpackages(path):
    """Returns the subpackages that a file imports, by absolute or relative name."""
    package = ["hforest", *path.relative_to(PACKAGE).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base = base + (node.module.split(".") if node.module else [])
            names = [base + [alias.name] for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        else:
            continue
        for name in names:
            if name[0] == "hforest" and len(name) > 1 and name[1] in SUBPACKAGES:
                yield name[1]


def imported_names(path):
    """Returns (package, name) for each name that a file imports from other subpackages of hforest."""
    own = path.relative_to(PACKAGE).parts[0]
    package = ["hforest", *path.relative_to(PACKAGE).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base = base + (node.module.split(".") if node.module else [])
            found = [(".".join(base), alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            found = [tuple(alias.name.rpartition(".")[::2]) for alias in node.names]
        else:
            continue
        for module, name in found:
            if module.split(".")[0] == "hforest" and module.split(".")[1:2] != [own] and name != own:
                yield module, name


@pytest.mark.parametrize(
    "path",
    sorted(path for name in INTEGRATIONS for path in (PACKAGE / name).rglob("*.py")),
    ids=lambda p: str(p.relative_to(PACKAGE)),
)
def test_integrations_use_public_functions(path):
    for module, name in imported_names(path):
        if module.startswith("hforest.core") and path.relative_to(PACKAGE).parts[0] in NO_LIBRARY:
            continue  # checks and progress, as applications have them
        if module == "hforest.core.aliases":
            continue  # names of types
        public = importlib.import_module(module).__all__
        assert name in public, f"{path.name} imports {module}.{name}, which is not public"
    # Attributes of public subpackages: hinge.forward, hforest.hinge.forward.
    packages = {name for module, name in imported_names(path) if module == "hforest"}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in packages:
            owner = getattr(hforest, node.value.id)
            if inspect.ismodule(owner):
                assert node.attr in owner.__all__, f"{path.name}: {node.value.id}.{node.attr} is not public"


WITH_LIBRARY = {
    name: LIBRARY.get(name, name) for name in sorted((INTEGRATIONS & set(SUBPACKAGES)) - NO_LIBRARY)
}

WITHOUT_LIBRARIES = """
import importlib, json, sys, hforest
modules, errors = sorted(sys.modules), {}
for name, library in json.loads(sys.argv[1]).items():
    sys.modules[library] = None
    try:
        importlib.import_module(f"hforest.{name}")
    except BaseException as error:
        errors[name] = f"{type(error).__name__}: {error}"
print(json.dumps([modules, errors]))
"""


@pytest.fixture(scope="module")
def without_libraries():
    """Returns the modules that importing hforest imports, and the error of each integration without its library."""
    command = [sys.executable, "-c", WITHOUT_LIBRARIES, json.dumps(WITH_LIBRARY)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120, cwd=ROOT)
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", sorted(INTEGRATIONS))
def test_importing_hforest_imports_no_integration(name, without_libraries):
    assert not {LIBRARY.get(name, name), f"hforest.{name}"} & set(without_libraries[0])


@pytest.mark.parametrize("name", WITH_LIBRARY)
def test_an_integration_without_its_library_names_the_remedy(name, without_libraries):
    error = without_libraries[1][name]
    assert error.startswith("ImportError: ")
    assert f"pip install -e '.[{name}]' in the checkout" in error


# Each takes milliseconds to import, or imports modules that do.
SLOW_TO_IMPORT = {
    "argparse", "asyncio", "concurrent", "email", "importlib.metadata", "multiprocessing", "numpy.polynomial",
    "socket", "sqlite3", "ssl", "statistics", "subprocess", "tempfile", "unittest",
}  # fmt: skip


def test_importing_hforest_imports_numpy_and_little_else():
    code = "import sys, numpy; before = set(sys.modules); import hforest; print(*set(sys.modules) - before)"
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=120, cwd=ROOT
    )
    imported = set(done.stdout.split())
    assert "hforest.hinge" in imported
    packages = {name.split(".")[0] for name in imported} - sys.stdlib_module_names
    # Cython's modules have the names of its version, and its code for memoryviews is known by this one, too.
    assert {name for name in packages if "cython" not in name} <= {"hforest", "numpy", "_cyutility"}
    assert not imported & SLOW_TO_IMPORT


def hints():
    """Returns the extras in commands and errors, with their file."""
    files = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *PACKAGE.rglob("*.py")]
    for path in sorted([*files, *(ROOT / "bench").rglob("*.py"), *(ROOT / "lab").rglob("*.py")]):
        text = path.read_text(encoding="utf-8")
        for names in re.findall(r"'\.\[([\w, ]+)\]'", text):
            yield from ((path.name, extra.strip()) for extra in names.split(","))
        for node in ast.walk(ast.parse(text)) if path.suffix == ".py" else ():
            called = ast.unparse(node.func).split(".")[-1] if isinstance(node, ast.Call) else ""
            if called.lstrip("_") in ("missing", "command"):
                extras = node.args[2 if called.endswith("missing") else 0 :]
                yield from ((path.name, a.value) for a in extras if isinstance(a, ast.Constant))
        # No package is on an index yet.
        assert not re.search(r"""pip install [^\n`]*(["']hforest\b|hforest\[)|pip install hforest""", text), (
            path
        )


def test_install_hints_name_extras_that_exist():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = set(hints())
    assert {extra for _, extra in found} <= set(project["optional-dependencies"])
    named = {extra for path, extra in found if path != "install.md"}
    assert {*(INTEGRATIONS - NO_LIBRARY), "mpi", "cuda12", "cuda13"} <= named
    assert any(name.startswith("scipy>=") for name in project["dependencies"])


def test_editors_find_an_editable_install():
    # Without this setuptools installs an import hook, which no type checker follows.
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    assert tool["setuptools"]["package-dir"] == {"": "."}


def test_every_subpackage_has_a_layer():
    assert set(SUBPACKAGES) <= set(LAYER)
    assert len(WITH_KERNELS) >= 2


# The package itself sees every subpackage.
@pytest.mark.parametrize("path", sorted(PACKAGE.glob("*/**/*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_run_downwards(path):
    parts = path.relative_to(PACKAGE).parts
    for other in imported_subpackages(path):
        if other != parts[0]:
            assert LAYER[other] < LAYER[parts[0]], f"{parts[0]} imports {other}"


INCLUDE = re.compile(r'^\s*(?:#\s*include "|cdef extern from ")([^"]+)"', re.M)
CIMPORT = re.compile(r"^\s*(?:from ([\w.]+) )?cimport ([\w., ]*)", re.M)
COMPILED = sorted(path for kind in ("*.h", "*.cu", "*.cuh", "*.pyx", "*.pxd") for path in PACKAGE.rglob(kind))


def compiled_in(path):
    """Returns the files of the package that a C or Cython file includes or cimports, as relative paths.

    The package is the only include folder of the compiler, so every include names its subpackage.
    """
    text = path.read_text(encoding="utf-8")
    for name in INCLUDE.findall(text):
        if name not in ("pythread.h", "numpy/arrayobject.h"):  # Python's and NumPy's own
            yield name
    for module, names in CIMPORT.findall(text):
        for name in [module] if module else [name.split(" as ")[0].strip() for name in names.split(",")]:
            if name.startswith("hforest."):
                yield "/".join(name.split(".")[1:]) + ".pxd"
            elif name.startswith("."):
                yield path.relative_to(PACKAGE).with_name(name.lstrip(".") + ".pxd").as_posix()


@pytest.mark.parametrize("path", COMPILED, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_includes_and_cimports_run_downwards(path):
    own = path.relative_to(PACKAGE).parts[0]
    for name in compiled_in(path):
        assert (PACKAGE / name).exists(), f"{path.name} includes {name}: name it by its subpackage"
        other = name.split("/")[0]
        assert other == own or LAYER[other] < LAYER[own], f"{own} includes {name}"


def numbers_of(path):
    """Returns the names of the numbers that a Python module or a kernel file or header declares."""
    if path.suffix != ".py":
        return {name.removeprefix("HF_") for name in launch.declared_numbers(path)}
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assigned = [node for node in tree.body if isinstance(node, ast.Assign)]
    literal = [node for node in assigned if not isinstance(node.value, ast.Call)]
    return {a.id for node in literal for a in ast.walk(node.targets[0]) if isinstance(a, ast.Name)}


@pytest.mark.parametrize(
    "name", sorted({path.relative_to(PACKAGE).parts[0] for path in PACKAGE.rglob("*.h")} | {"layers"})
)
def test_python_reads_the_numbers_of_kernels(name):
    kernels = [path for kind in ("*.h", "*.cu", "*.cuh") for path in (PACKAGE / name).rglob(kind)]
    declared = set().union(*map(numbers_of, kernels))
    twice = {path.name for path in (PACKAGE / name).rglob("*.py") if numbers_of(path) & declared}
    assert twice <= {"scores.py"}  # its criteria are compared with score.h


def test_no_header_includes_itself():
    graph = {p.relative_to(PACKAGE).as_posix(): set(compiled_in(p)) for p in COMPILED}

    def visit(name, trail):
        assert name not in trail, " -> ".join([*trail, name])
        for other in graph[name]:
            visit(other, [*trail, name])

    for name in graph:
        visit(name, [])


def imports_of(module_path):
    """Returns the modules of the same subpackage that a file imports anywhere, as paths without suffix."""
    package = module_path.relative_to(PACKAGE).parts[:-1]
    own, found = PACKAGE / package[0], set()
    for node in ast.walk(ast.parse(module_path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ImportFrom) or not node.level:
            continue
        parents = package[: len(package) - node.level + 1]
        base = PACKAGE.joinpath(*parents, *(node.module or "").split("."))
        for name in (base / alias.name for alias in node.names):
            # A module, a name of a module, a folder, or a name of a folder. Compiled modules import no others.
            places = (name, base, name / "__init__", base / "__init__")
            kinds = [(place, place.with_suffix(kind)) for place in places for kind in (".py", ".pyx")]
            place, file = next((place, file) for place, file in kinds if file.exists())
            if file.suffix == ".py" and place.is_relative_to(own):
                found.add(place.relative_to(own).as_posix())
    return found - {module_path.relative_to(own).with_suffix("").as_posix()}


def refuse_circles(graph):
    done: set[str] = set()

    def visit(name, trail):
        assert name not in trail, " -> ".join([*trail, name])
        if name not in done:
            for other in graph.get(name, ()):
                visit(other, [*trail, name])
            done.add(name)

    for name in graph:
        visit(name, [])


def imports_within(subpackage):
    """Returns for each module of a subpackage the modules of that subpackage that it imports."""
    return {
        path.relative_to(PACKAGE / subpackage).with_suffix("").as_posix(): imports_of(path)
        for path in (PACKAGE / subpackage).rglob("*.py")
    }


@pytest.mark.parametrize("subpackage", SUBPACKAGES)
def test_no_circular_imports_within_a_subpackage(subpackage):
    refuse_circles(imports_within(subpackage))


@pytest.mark.parametrize("subpackage", SUBPACKAGES)
def test_no_circular_imports_between_the_folders_of_a_subpackage(subpackage):
    """`__init__` of the subpackage has the public names of all folders."""
    graph: dict[str, set[str]] = {}
    for name, others in imports_within(subpackage).items():
        if name != "__init__":
            folder = name.rpartition("/")[0]
            graph.setdefault(folder, set()).update({o.rpartition("/")[0] for o in others} - {folder})
    refuse_circles(graph)


def test_the_import_tests_see_imports():
    assert {"core", "hinge"} <= set(imported_subpackages(PACKAGE / "hinge" / "training.py"))
    assert {"hinge", "layers", "optim", "core"} <= set(imported_subpackages(PACKAGE / "demo" / "network.py"))
    assert ("hforest", "hinge") in imported_names(PACKAGE / "torch" / "operators.py")
    assert ("hforest.core", "check") in imported_names(PACKAGE / "hinge" / "training.py")
    assert "aliases" in imports_of(PACKAGE / "core" / "dispatch.py")
    assert imports_of(PACKAGE / "growth" / "by_level" / "nodes.py") == {"trees"}
    assert "by_level/parts" in imports_of(PACKAGE / "growth" / "by_level" / "batches.py")
    assert "rows/workers" in imports_of(PACKAGE / "scale" / "hinge" / "shards.py")
    assert ("hforest.growth.by_level", "grow") in imported_names(PACKAGE / "scale" / "rows" / "by_rows.py")
    assert {"core/machine.pxd", "growth/cpu/cpu.pxd"} <= set(compiled_in(PACKAGE / "co2" / "cpu" / "cpu.pyx"))


@pytest.mark.parametrize("subpackage", WITH_KERNELS)
def test_files_of_an_algorithm(subpackage):
    for backend in ("reference", "cpu", "gpu"):
        found = [
            *(PACKAGE / subpackage).glob(f"{backend}.py*"),
            *(PACKAGE / subpackage).glob(f"{backend}/__init__.py"),
        ]
        assert len(found) == 1, (backend, found)
    assert len([*(PACKAGE / subpackage).rglob("gpu.cu")]) == 1


@pytest.mark.parametrize(
    "subpackage", [name for name in SUBPACKAGES if LAYER.get(name, 0) in (1, 2, 3) or name in INTEGRATIONS]
)
def test_every_subpackage_has_test_and_page(subpackage):
    assert (ROOT / "tests" / f"test_{subpackage}.py").exists()
    assert (ROOT / "docs" / f"{PAGES_OF_SEVERAL.get(subpackage, subpackage)}.md").exists()


PAGE = ROOT / "docs" / "architecture.md"
SOURCES = {".py", ".pyx", ".pxd", ".pyi", ".h", ".cu", ".cuh"}
FLAT = {"core"}
"""Subpackages of more than 30 files in a folder."""


def blocks_of(text):
    """Returns the lines of each code block of a page."""
    return [block.splitlines()[1:] for block in text.split("```")[1::2]]


def block_of(text, first):
    """Returns the lines of the one code block whose first line starts with a word."""
    (block,) = (lines for lines in blocks_of(text) if lines[0].startswith(first))
    return block


def layers_on(text):
    """Returns the layers that a page shows, from the bottom up."""
    return [set(re.findall(r"(\w+)/", line)) for line in reversed(block_of(text, "integrations"))]


def folders_on(text):
    """Returns the folders inside of subpackages that a page shows."""
    rows = (line.split() for line in block_of(text, "tree/"))
    return {first + folder.rstrip("/") for first, *rest in rows for folder in rest}


def sources_by_folder():
    """Returns the source files of each folder inside of a subpackage."""
    files: dict[str, set[str]] = {}
    for path in PACKAGE.glob("*/**/*"):
        if path.suffix in SOURCES:
            files.setdefault(path.parent.relative_to(PACKAGE).as_posix(), set()).add(path.name)
    return files


def files_on(text):
    """Returns (folder, file) of all files of `growth` that a page shows."""
    folders = ["growth"]
    for line in block_of(text, "growth/")[1:]:
        depth = (len(line) - len(line.lstrip())) // 2
        if folder := re.match(r" *(\w+)/", line):
            folders[depth:] = [folder[1]]
        yield from (
            ("/".join(folders[: depth + bool(folder)]), name) for name in re.findall(r"\w+\.\w+", line)
        )


def compare_page(text):
    """Refuses a page that shows other layers, folders or files than there are."""
    files = sources_by_folder()
    assert layers_on(text) == LAYERS
    assert folders_on(text) == {name for name in files if "/" in name}
    shown = set(files_on(text))
    assert {(folder, name) for folder, name in shown if name not in files[folder]} == set()
    assert {folder for folder, _ in shown} >= {"growth", "growth/cpu", "growth/gpu"}


def test_the_page_shows_the_folders():
    compare_page(PAGE.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("shown", "fault"),
    [
        ("demo/  images/", "demo/  images/  cascade/"),
        ("cascade/  stats/  tabular/", "cascade/  stats/"),
        ("cpu/scorers/simd/  gpu/", "gpu/"),
        ("hinge/    reference/", "hinge/    reference/  kernels/"),
        ("small_nodes.py", "little_nodes.py"),
        ("growing.py samples.py", "reference.py samples.py"),
    ],
)
def test_a_page_with_a_fault_is_refused(shown, fault):
    text = PAGE.read_text(encoding="utf-8")
    assert shown in text
    with pytest.raises(AssertionError):
        compare_page(text.replace(shown, fault))


IDEAS = {"reference": "reference", "CPU": "cpu", "by level": "by_level"}
"""Columns of the table of ideas, and their folders of `growth`."""


def named_files(text):
    """Returns (folder, name, file) of each "`name` in `file`" of the table of ideas on a page."""
    table = text[text.index("| idea |") :].split("\n\n")[0].splitlines()
    columns = [cell.strip() for cell in table[0].strip("|").split("|")]
    for line in table[2:]:
        for column, cell in zip(columns, line.strip("|").split("|"), strict=True):
            for name, file in re.findall(r"`(\w+)` in `([\w.]+)`", cell):
                if column in IDEAS:
                    yield IDEAS[column], name, file


def missing_ideas(text):
    """Returns what the table of ideas names and no file contains."""
    for folder, name, file in named_files(text):
        paths = [*(PACKAGE / "growth" / folder).rglob(file), *(PACKAGE / "growth").glob(file)]
        if not any(re.search(rf"\b{name}\b", path.read_text(encoding="utf-8")) for path in paths):
            yield folder, name, file


def test_the_table_of_ideas_names_what_there_is():
    text = (ROOT / "docs" / "tree-growing.md").read_text(encoding="utf-8")
    assert len(list(named_files(text))) > 15
    assert list(missing_ideas(text)) == []
    assert len(list(missing_ideas(text.replace("`Node` in `node_samples.py`", "`Node` in `leaves.py`")))) == 1


def test_no_folder_has_more_than_30_files():
    files = sources_by_folder()
    assert {name for name, found in files.items() if len(found) > 30} == FLAT


def functions(module):
    return {
        name: list(inspect.signature(f).parameters)
        for name, f in vars(module).items()
        if callable(f)
        and not isinstance(f, type)
        and not name.startswith("_")
        and getattr(f, "__module__", None)
        in (module.__name__, f"{module.__name__}.cpu", f"{module.__name__}.shap")
    }


@pytest.mark.parametrize("subpackage", WITH_KERNELS)
def test_backends_have_one_signature(subpackage):
    names = ("reference", "cpu", "gpu")
    expected, *others = (functions(importlib.import_module(f"hforest.{subpackage}.{name}")) for name in names)
    assert expected
    for name, found in zip(names[1:], others, strict=True):
        missing = CPU_ONLY.get(subpackage, set()) if name == "gpu" else set()
        for f in GPU_ONLY.get(subpackage, set()) if name == "gpu" else set():
            del found[f]
        assert found == {f: parameters for f, parameters in expected.items() if f not in missing}


def missing(name):
    """Returns whether the library of an integration is missing."""
    return name not in NO_LIBRARY and importlib.util.find_spec(LIBRARY.get(name, name)) is None


def public_functions():
    names = [name for name in SUBPACKAGES if LAYER[name] and not (name in INTEGRATIONS and missing(name))]
    modules = [hforest, *(importlib.import_module(f"hforest.{name}") for name in [*names, *NESTED])]
    for module in modules:
        for name in module.__all__:
            function = getattr(module, name)
            if inspect.isfunction(function):
                yield pytest.param(function, id=f"{module.__name__}.{name}")


PUBLIC = list(public_functions())


@pytest.mark.parametrize("function", PUBLIC)
def test_arguments_are_named(function):
    for parameter in inspect.signature(function).parameters.values():
        assert parameter.kind is not parameter.VAR_KEYWORD, "no **kwargs"
        if isinstance(parameter.default, bool):
            assert parameter.kind is parameter.KEYWORD_ONLY, "no positional booleans"


@pytest.mark.parametrize("function", PUBLIC)
def test_signatures_are_readable(function):
    signature = inspect.signature(function)
    text = str(signature).replace("dict[str, typing.Any]", "")  # a table of several types
    assert "typing.Any" not in text
    shown = re.sub(r"= '[^']*'|Literal\[[^]]*\]|<class '[\w.]*'>", "", text)
    assert "'" not in shown, "an annotation is shown as a string"
    for name, parameter in signature.parameters.items():
        assert parameter.annotation is not parameter.empty, name
    if "rng" in signature.parameters:
        assert signature.parameters["rng"].default is None
        assert repr(signature.parameters["rng"].annotation) == "int | numpy.random.Generator | None"
    if "progress" in signature.parameters:
        assert signature.parameters["progress"].default is None
        shown = repr(signature.parameters["progress"].annotation)
        assert shown == "bool | collections.abc.Callable[[int, int], bool | None] | None"


# The left column of the table of words in DESIGN, as names of arguments.
NOT_ARGUMENTS = {
    "class_weights", "sample_weights", "splitter_bins", "max_codes", "eta", "q", "n_drawn", "n_candidates", "n_columns",
    "bags", "folds", "batch", "start", "index_", "callback", "verbose", "random_state", "n_estimators", "seed",
}  # fmt: skip


@pytest.mark.parametrize("function", PUBLIC)
def test_arguments_have_the_one_name_of_their_concept(function):
    parameters = inspect.signature(function).parameters
    assert not NOT_ARGUMENTS & set(parameters)


# Words with a standard term, and the term. C headers of growth and hinge are not read here.
NOT_WORDS = {
    "twin": "backend", "twins": "backends", "law": "reference implementation", "door": "public function",
    "doors": "public functions", "furniture": "files", "bags": "bootstrap, in-bag counts", "crown": "top levels",
    "max_codes": "max_bins", "class_weights": "class_weight",
}  # fmt: skip
READ = [
    *(p for p in PACKAGE.rglob("*") if p.suffix in (".py", ".pyi", ".pyx", ".pxd", ".cu", ".cuh")),
    *(p for p in (PACKAGE / "core").glob("*.h")),
    *(p for p in (ROOT / "tests").rglob("*.py") if p.name != "test_architecture.py"),
    *(ROOT / "bench").rglob("*.py"),
    *(ROOT / "lab").rglob("*.py"),
    *(ROOT / "docs").glob("*.md"),
    ROOT / "README.md",
]


@pytest.mark.parametrize(
    "folder",
    sorted({path.parent for path in READ}),
    ids=lambda p: str(p.relative_to(PACKAGE.parent if p.is_relative_to(PACKAGE) else ROOT)),
)
def test_words(folder):
    words = re.compile(rf"\b({'|'.join(NOT_WORDS)})\b", re.IGNORECASE)
    for path in (path for path in READ if path.parent == folder):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            found = words.search(line)
            assert not found, f"{path.name}:{number}: {found[0]!r}: write {NOT_WORDS[found[0].lower()]!r}"


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.pyx")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_every_parallel_region_says_how_many_threads(path):
    """The default number of OpenMP is unbounded, and differs between native threads."""
    text = path.read_text(encoding="utf-8")
    assert "omp_get_max_threads" not in text, "use hf_threads"
    for found in re.finditer(r"\b(prange|parallel)\(", text):
        depth, end = 1, found.end()
        while depth:
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        region = text[found.start() : end]
        assert "num_threads=" in region, f"line {text[: found.start()].count(chr(10)) + 1}: {region}"


IN_PLACE = {"optim/cpu.pyx", "hinge/cpu/steps.pyx"}
"""Steps that change parameters do not stop once they have begun."""


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.pyx")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_units_of_work_ask_the_watch(path):
    """A dynamic loop is a prange whose units call hf_begin first, so that Ctrl-C ends it: see core/watch.h."""
    text = path.read_text(encoding="utf-8")
    if str(path.relative_to(PACKAGE)) in IN_PLACE:
        return
    loops = re.findall(r"\bprange\(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\):\n *(.*)\n", text)
    assert len(loops) == len(re.findall(r"\bprange\(", text))
    for arguments, first_line in loops:
        if 'schedule="dynamic"' in arguments:
            assert first_line.startswith("if hf_begin("), arguments
    assert text.count("if hf_begin(") == text.count("hf_end(") == text.count('schedule="dynamic"')
    assert not re.search(r"\bparallel\(", text), "use prange"


CALLED_BY_C = {"jax/foreign.pyx": ["cdef hf_xla_error* _handle(hf_xla_call* call) noexcept with gil:"]}
"""Functions that take the GIL and cannot raise, since C calls them; each converts exceptions to a value."""


@pytest.mark.parametrize(
    "path",
    sorted([*PACKAGE.rglob("*.pyx"), *PACKAGE.rglob("*.pxd")]),
    ids=lambda p: str(p.relative_to(PACKAGE)),
)
def test_no_function_that_touches_python_swallows_exceptions(path):
    """`noexcept` without `nogil` may lose a KeyboardInterrupt, and continue with a partly filled value."""
    called_by_c = CALLED_BY_C.get(path.relative_to(PACKAGE).as_posix(), [])
    lines = path.read_text(encoding="utf-8").splitlines()
    for line in called_by_c:
        lines.remove(line)
    code = "\n".join(line.partition("#")[0] for line in lines)
    assert not re.search(r"\bnoexcept\b(?!\s+nogil\b)", code), "leave noexcept out, or add nogil"
    assert not re.search(r"\bwith\s+gil\b", code), "return a value, and raise where the GIL is held"


RUNS_CODE = {
    "pickle", "_pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve", "copyreg", "runpy", "code",
}  # fmt: skip
"""Modules whose readers execute their input."""


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_nothing_that_is_read_is_executed(path):
    """Files and messages are arrays and JSON. The lower-case methods of mpi4py pickle."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module]
        assert not {name.split(".")[0] for name in names} & RUNS_CODE, f"{path.name}:{node.lineno}"
        if isinstance(node, ast.Call):
            called = node.func.id if isinstance(node.func, ast.Name) else None
            assert called not in ("eval", "exec", "compile", "__import__"), f"{path.name}:{node.lineno}"
            assert not any(
                word.arg in ("allow_pickle", "weights_only")
                and getattr(word.value, "value", None) is not safe
                for word in node.keywords
                for safe in [word.arg == "weights_only"]
            ), f"{path.name}:{node.lineno}"


def test_nothing_unfinished():
    words = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b")
    for pattern in ("**/*.py", "**/*.pyx", "**/*.cu", "**/*.h", "**/*.cuh"):
        for path in PACKAGE.glob(pattern):
            assert not words.search(path.read_text(encoding="utf-8")), path


# ---------------------------------------------------------------------------------------------- size

# Functions of more than 12 parameters or 80 lines and files of more than 600 lines, as bench/counts.py counts them.
# Entries leave these lists when they are fixed; none may be added. Python functions repeat their Cython
# backend's parameters.
MANY_PARAMETERS: set[str] = set()
LONG_FILES: set[str] = set()


@pytest.fixture
def counts(script):
    return script("counts")


def test_no_more_functions_of_many_parameters(counts):
    found = {f"{f.file} {f.name}" for f in counts.functions() if f.parameters > counts.MAX_PARAMETERS}
    assert found - MANY_PARAMETERS == set(), "give them a struct or a NamedTuple"
    assert MANY_PARAMETERS - found == set(), "mended: take them off the list"


def test_no_long_compiled_functions(counts):
    long = {
        f"{f.kind}: {f.file}: {f.name}, {f.lines}" for f in counts.functions() if f.lines > counts.MAX_BODY
    }
    assert not long, "divide them into steps"


BODIES = {
    "a.h": ("#define OF(T) \\\n    static T name(int a) { \\\n", "    f(a); \\\n", "    }\n"),
    "gpu.cu": ('extern "C" __global__ void name(\n    int a\n) {\n', "    if (a) { /* }\n    */ }\n", "}\n"),
    "scan.cuh": (
        "template <class T>\n__device__ static T name(T a) {\n",
        "    // }\n    const A b = {};\n",
        "}\n",
    ),
    "cpu.pyx": ("cdef int name(\n    int a\n) noexcept nogil:\n", "    # A comment.\n\n    f(a)\n", "f(1)\n"),
}
"""Head of a function, lines of its body, and what follows them, by file."""


@pytest.mark.parametrize("times", [1, 90])
@pytest.mark.parametrize("name", BODIES)
def test_lines_of_compiled_functions_are_counted(counts, tmp_path, name, times):
    head, lines, end = BODIES[name]
    (tmp_path / "hforest").mkdir()
    (tmp_path / "hforest" / name).write_text(head + times * lines + end)
    (found,) = [f.lines for f in counts.functions(tmp_path) if f.name == "name"]
    assert found == times * lines.count("\n")


def test_no_more_long_files(counts):
    found = {name for name, _ in counts.counts()["long"]}
    assert found - LONG_FILES == set(), "divide them by subject"
    assert LONG_FILES - found == set(), "mended: take them off the list"


def test_parameters_are_counted(counts, tmp_path):
    many = ", ".join(f"int a{i}" for i in range(13))
    texts = {
        "a.h": f"""
            /* int no({many}) {{ }} */
            int declared({many});
            static inline int thirteen({many}) {{ if (a0) {{ return f(a1); }} return 0; }}
            #define BODY(A, B) \\
                static int pasted_##A({many}) {{ return 0; }}
            static void none(void) {{}}
            HF_INLINE int pointer(int (*f)(int, int), const double *x, struct s {{ int a, b; }} y) {{ return 0; }}
            """,
        "gpu.cu": f'extern "C" __global__ void __launch_bounds__(128) kernel({many}) {{}}',
        "cpu.pyx": f"""
cdef extern from "a.h":
    int thirteen({many}) nogil
cdef inline int two(const real[:, ::1] x, (int, int) pair) noexcept nogil:
    return f({many})
def grow({many.replace("int ", "")}, *, more=1):
    pass
""",
        "a.py": "def f(x, y, /, z=(1, 2), *, w=None): pass",
    }
    (tmp_path / "hforest").mkdir()
    for name, text in texts.items():
        (tmp_path / "hforest" / name).write_text(text)
    found = {f.name: (f.kind, f.parameters) for f in counts.functions(tmp_path)}
    assert found == {
        "BODY": ("C macro", 2), "thirteen": ("C", 13), "pasted_##A": ("C", 13), "none": ("C", 0), "pointer": ("C", 3),
        "kernel": ("CUDA kernel", 13), "two": ("Cython", 2), "grow": ("Cython", 13), "f": ("Python", 3),
    }  # fmt: skip
