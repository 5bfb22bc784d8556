"""Documentation: docstring examples, code of the pages, commands of the README, and links all work."""

import doctest
import importlib.util
import pkgutil
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import PAGES_OF_SEVERAL

import hforest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MODULES = sorted(
    name for _, name, _ in pkgutil.walk_packages(hforest.__path__, "hforest.") if not name.endswith(("__main__", ".cpu", ".machine"))
)  # fmt: skip
SUBPACKAGES = [
    name
    for _, name, folder in pkgutil.iter_modules(hforest.__path__)
    if folder and name not in ("core", "demo")
]
"""Subpackages with a page."""


# Optional libraries of the pages and modules of these names.
INTEGRATIONS = {
    "torch": None,
    "jax": None,
    "sklearn": "1.6",
    "treelite": "4.0",
    "onnx": "1.16",
    "plot": "3.8",
    "dask": "2024.8",
}
"""Libraries with their oldest supported version."""
LIBRARY = {"plot": "matplotlib"}
"""Libraries of integrations that have another name."""
PAGE_NEEDS = {
    "exchange.md": ("treelite", "onnx", "onnxruntime", "xgboost"),
    "first-table.md": ("pandas", "narwhals"),
    "first-network.md": ("torch",),
}
"""Libraries of pages with another name."""
PAGES_OF_SEVERAL_LIBRARIES = ("README.md", "scale.md")
"""Pages whose blocks run if the libraries that they import are installed."""


def need(name):
    """Skips a test of a page or module of an integration whose library is not installed."""
    for own, oldest in INTEGRATIONS.items():
        if name.removesuffix(".md").split("-")[0] == own or name.split(".")[:2] == ["hforest", own]:
            library = LIBRARY.get(own, own)
            pytest.importorskip(library, oldest, reason=f"needs {library} {oldest or ''}")
    for library in PAGE_NEEDS.get(name, ()):
        pytest.importorskip(library, reason=f"needs {library}")


def blocks(page, language):
    return re.findall(
        rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )


@pytest.mark.parametrize("name", ["hforest", *MODULES])
def test_docstring_examples(name):
    need(name)
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    result = doctest.testmod(importlib.import_module(name), optionflags=flags)
    assert result.failed == 0


def test_examples_are_found():
    modules = [importlib.import_module(name) for name in MODULES if name.startswith("hforest.hinge.")]
    found = [test for module in modules for test in doctest.DocTestFinder().find(module)]
    assert sum(bool(test.examples) for test in found) >= 8


def importable(block):
    """Returns whether all libraries that a block imports are installed."""
    names = re.findall(r"^(?:import|from) (\w+)", block, re.MULTILINE)
    # load_wine(as_frame=True) makes a data frame of pandas, which tabular reads by narwhals.
    names += ["pandas", "narwhals"] if "as_frame" in block else []
    return all(importlib.util.find_spec(name) for name in names)


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # of Dask's workers
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page, marks=[pytest.mark.slow] * (page.name not in ("README.md", "guide.md")), id=page.name
        )
        for page in PAGES
        if blocks(page, "python")
    ],
)
def test_code_on_pages_runs(page, tmp_path, monkeypatch):
    need(page.name)
    monkeypatch.chdir(tmp_path)
    found = blocks(page, "python")
    if page.name in PAGES_OF_SEVERAL_LIBRARIES:
        found = [block for block in found if importable(block)]
    code = "\n".join(found)
    exec(compile(code, str(page), "exec"), {"__name__": "__main__"})  # also blocks for the main process


def test_the_readme_shows_what_its_examples_print(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.findall(r"^```python\n(.*?)^```\n+```text\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(shown) == 3
    for code, output in shown:
        if not importable(code):
            continue
        exec(compile(code, "README.md", "exec"), {"__name__": "page"})
        printed = capsys.readouterr().out
        if "torch" in code:  # its loss differs between releases of PyTorch
            output, printed = ([line.split("loss")[0] for line in a.splitlines()] for a in (output, printed))
        assert printed == output


def test_guide_has_code():
    assert blocks(ROOT / "docs" / "guide.md", "python")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?://)([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("subpackage", SUBPACKAGES)
def test_page_names_every_function(subpackage):
    need(f"hforest.{subpackage}")
    text = (ROOT / "docs" / f"{PAGES_OF_SEVERAL.get(subpackage, subpackage)}.md").read_text(encoding="utf-8")
    for name in importlib.import_module(f"hforest.{subpackage}").__all__:
        assert f"`{name}`" in text, name


# Papers have authors and a year: an internal number ("p" and a digit) means nothing to a reader. Lines with
# p0 have numbered quantities.
PAPER_NUMBER = re.compile(
    r"^(?!.*\bp0\b).*(?:\bp[1-5]\b|\bpapers? [1-5]\b(?!\.\d))", re.IGNORECASE | re.MULTILINE
)
SOURCES = (".py", ".pyi", ".pyx", ".pxd", ".h", ".cu", ".cuh", ".md", ".rst", ".toml", ".txt", ".json")


@pytest.mark.parametrize("folder", ["hforest", "docs", "bench", "tests", "lab"])
def test_papers_are_named_by_authors_and_year(folder):
    paths = [
        path for path in (ROOT / folder).rglob("*") if path.suffix in SOURCES and "_build" not in path.parts
    ]
    for path in [*paths, ROOT / "README.md", *(ROOT / "tests" / "host").glob("*.c")]:
        found = PAPER_NUMBER.search(path.read_text(encoding="utf-8"))
        assert not found, f"{path.relative_to(ROOT)}: {found[0].strip()!r}: write authors and year"


@pytest.mark.parametrize(
    "form", ["({} eq 10)", "{}'s eta", "{} = Lay et al.", "| {} |", "{}, step 2", "# {} Alg. 3"]
)
def test_a_paper_by_its_number_is_seen(form):
    for number in range(1, 6):
        assert PAPER_NUMBER.search("A line.\n" + form.format(f"p{number}"))
        assert PAPER_NUMBER.search(form.format(f"Paper {number}"))
    assert not PAPER_NUMBER.search(
        "(p0 + p4) of a sum; p10; exp2\nMNIST, paper 1.9\n(Lay et al. 2018, eq. 10)"
    )


def test_readme_begins_with_the_two_commands():
    main, tests = re.findall(
        r"^```\w*\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )[:2]
    assert main.rstrip().endswith("-m hforest")
    assert tests.rstrip().endswith('-m pytest -n auto -m "not slow"')
    for block in (main, tests):
        assert len(block.strip().splitlines()) == 1


def script(name):
    path = ROOT / "docs" / "_ext" / f"{name}.py"
    if not path.is_file():
        pytest.skip("docs/_ext is part of the checkout alone")
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def pictures():
    return script("page_pictures")


def test_pictures_are_those_of_the_gallery_and_its_records(pictures):
    found = {path.name: pictures.digest_of(path) for path in pictures.PICTURES.glob("*.png")}
    for script in pictures.SCRIPTS:
        names = [name for name in found if re.fullmatch(rf"{script}(_\d)?\.png", name)]
        assert names, f"run docs/_ext/page_pictures.py: {script} is not there"
        for name in names:
            assert found.pop(name) == pictures.digest(script), f"run docs/_ext/page_pictures.py: {name}"
    assert not found, "pictures of no script"


def test_a_picture_of_another_script_is_seen(pictures, tmp_path):
    whole = (pictures.PICTURES / "speed.png").read_bytes()
    assert pictures.digest_of(pictures.PICTURES / "speed.png") != pictures.digest("speed_hinge")
    (tmp_path / "damaged.png").write_bytes(whole.replace(b"digest", b"Digest"))
    with pytest.raises(ValueError, match="damaged"):
        pictures.digest_of(tmp_path / "damaged.png")


@pytest.fixture
def thumbnails():
    pytest.importorskip("sphinx")
    pytest.importorskip("PIL")
    return script("thumbnails")


def test_thumbnails_show_the_part_with_the_subject(thumbnails, tmp_path):
    images = importlib.import_module("PIL.Image")
    folder = tmp_path / "auto_gallery" / "networks" / "images"
    (folder / "thumb").mkdir(parents=True)
    wide = images.new("RGB", (900, 300), "red")
    wide.paste("blue", (600, 0, 900, 300))
    small = images.new("RGB", (600, 400), "red")
    for name, image in (("hinge_regions", wide), ("hinge_ferns", wide), ("split_entropy", small)):
        image.save(folder / f"sphx_glr_plot_{name}_001.png")
        images.new("RGB", (9, 9)).save(folder / "thumb" / f"sphx_glr_plot_{name}_thumb.png")
    thumbnails.write(SimpleNamespace(srcdir=tmp_path))
    colours = {}
    for path in (folder / "thumb").iterdir():
        with images.open(path) as image:
            assert image.size == (400, 400)
            colours[path.name[14:-10]] = image.getpixel((200, 5)), image.getpixel((200, 200))
    red, blue, white = (255, 0, 0), (0, 0, 255), (255, 255, 255)
    assert colours == {
        "hinge_regions": (blue, blue), "hinge_ferns": (red, red), "split_entropy": (white, red)
    }  # fmt: skip


def test_scripts_with_the_subject_on_the_right_exist(thumbnails):
    names = {path.stem.removeprefix("plot_") for path in (ROOT / "docs" / "gallery").rglob("plot_*.py")}
    assert set(thumbnails.RIGHT) <= names


@pytest.fixture
def prose():
    return script("prose")


def test_pages_follow_the_rules_of_english(prose, capsys):
    assert prose.main() == 0, capsys.readouterr().out


MAX_WORDS = 58_000
"""Words of all pages, with code and tables (docs/*.md): what is added takes the place of something."""


def test_pages_have_a_limit_of_words():
    words = {
        page.name: len(page.read_text(encoding="utf-8").split()) for page in PAGES if page.parent != ROOT
    }
    assert len(words) > 50
    longest = sorted(words, key=words.__getitem__)[-3:]
    assert sum(words.values()) <= MAX_WORDS, f"shorten pages, such as {', '.join(longest)}"


def test_what_the_rules_of_english_forbid_is_seen(prose):
    fair = "One idea.\n\n```text\nthe same bits\n```\n" + "word " * 29 + "`end`.\n"
    assert prose.check("page.md", fair) == []
    for text in ("a table\n\n| the same\tbits |", "the gradient by x", "ten seconds a step", "so many"):
        (error,) = prose.check("page.md", text.replace("\t", " "))
        assert error.startswith(f"page.md:{text.count(chr(10)) + 1}: ")
    long = "- " + "word " * 20 + "\n  " + "word " * 11 + "end."
    assert prose.check("page.md", "A `code\nof lines`.\n\n" + long)[0].startswith("page.md:4: more than 30")
