"""Configuration of the site: the pages of this folder, and a page for each public function.

    python -m sphinx -W --keep-going -b html docs docs/_build/html

Reference pages are written to docs/api when the site is built, from the public names of the subpackages. If
the library of an integration is not installed, its pages are left out, with a note.
"""

import ast
import importlib
import importlib.util
import inspect
import os
import re
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.ext import autosummary
from sphinx.pycode import ModuleAnalyzer

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs" / "_ext")]
os.environ.setdefault("OMP_NUM_THREADS", "1")  # imports of the scripts of the gallery

import hforest  # noqa: E402 (from this checkout)

SOURCE = os.environ.get("HFOREST_URL", "")
"""Public address of the repository, to which each page links; without links if empty."""

project = "hforest"
version = release = hforest.__version__
extensions = [
    "myst_parser", "numpydoc", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.viewcode",
    "sphinx_copybutton", "sphinx_gallery.gen_gallery", "mathml", "numeric_cells", "thumbnails",
]  # fmt: skip
templates_path = ["_templates"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build", "_ext", "gallery"]
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence", "dollarmath"]
html_math_renderer = "mathml"  # browsers draw MathML without a script or a font from another host
suppress_warnings = ["myst.xref_missing"]  # links to files of the repository, which tests/test_docs.py checks
autosummary_generate = True
autosummary_imported_members = True
autosummary.WELL_KNOWN_ABBREVIATIONS += ("eq.", "Alg.", "Fig.")  # the summary continues after them
default_role = "py:obj"  # names in docstrings link to their pages
autodoc_typehints = "none"  # signatures are those of help(); docstrings name the types
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
html_theme = "pydata_sphinx_theme"
html_title = f"hforest {version}"
html_theme_options = {
    "show_prev_next": False, "navigation_with_keys": False, "secondary_sidebar_items": ["page-toc"],
    "icon_links": [{"name": "Source", "url": SOURCE, "icon": "fa-solid fa-code"}] if SOURCE else [],
}  # fmt: skip
html_show_sourcelink = False
html_context = {"default_mode": "auto"}  # light or dark, as in the browser
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_extra_path = ["llms.txt"]
GROUPS = ("tables", "networks", "oblique", "images", "statistics", "speed")
sphinx_gallery_conf = {
    "examples_dirs": "gallery", "gallery_dirs": "auto_gallery", "download_all_examples": False,
    "image_scrapers": ("matplotlib",), "matplotlib_animations": False, "min_reported_time": 20,
    "reset_modules": ("matplotlib", "pictures.style"), "abort_on_example_error": True,
    "within_subsection_order": "FileNameSortKey", "thumbnail_size": (400, 400),
    "subsection_order": [f"gallery/{group}" for group in GROUPS],
    "doc_module": ("hforest",), "backreferences_dir": "api/examples",
    "write_computation_times": False,  # that page loads scripts from another host
    "ignore_pattern": r"__init__\.py" if importlib.util.find_spec("torch") else r"plot_torch\.py",
}  # fmt: skip
copybutton_exclude = ".linenos, .gp, .go"

LAYERS = next(
    ast.literal_eval(node.value)
    for node in ast.parse((ROOT / "tests" / "test_architecture.py").read_text(encoding="utf-8")).body
    if isinstance(node, ast.Assign) and ast.unparse(node.targets) == "LAYERS"
)
FORESTS = sorted(set().union(*(layer for layer in LAYERS if layer & {"hinge", "cascade"})))
INTEGRATIONS = LAYERS[-1]
SUBPACKAGES = {
    "Tables": ["tabular", "sklearn"],
    "Networks": ["hinge", "neural", "torch", "jax", "layers", "optim"],
    "Oblique and alternating forests, images, cascades": ["co2", "alternating", "images", "cascade"],
    "Apply, explain and test forests": ["tree", "plot", "stats"],
    "Several workers, other libraries": ["scale", "dask", "onnx", "treelite"],
    "Grow forests, parts to build them from": ["growth", "split", "project", "demo"],
}
"""Subpackages, from those that users need to those that authors of forests need."""
OTHERS = set().union(*LAYERS[1:]).difference(*SUBPACKAGES.values())
if OTHERS:
    SUBPACKAGES["Others"] = sorted(OTHERS)
LIBRARY = {"plot": "matplotlib"}
"""Libraries of integrations with another name."""
NESTED = {"growth": ["by_level"]}
"""Public subpackages of subpackages, each imported by its own name."""


def _said(what: str, form: str) -> dict[str, str]:
    """Returns text by function from comments on pages, such as <!-- equation of hinge.traverse -->."""
    pages = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("*.md"))]
    found = re.findall(rf"^<!-- {what} of ([^:>]+?){form}$", "\n".join(pages), re.MULTILINE | re.DOTALL)
    return {name: text.replace("\n", " ") for names, text in found for name in names.split(", ")}


EQUATIONS = _said("equation", r" -->\n\$\$(.+?)\$\$")
"""Formulas that pages of functions show above the plain text of the docstring."""
REFERENCES = _said("reference", r": (.+?) -->")
"""Names of reference implementations that differ from the names of their functions."""


def _title(text: str) -> list[str]:
    return [text, "=" * len(text), ""]


def _write(path: Path, lines: list[str]) -> None:
    text = "\n".join(lines) + "\n"
    if not path.is_file() or path.read_text(encoding="utf-8") != text:  # unchanged pages are not read again
        path.write_text(text)


def _is_installed(name: str) -> bool:
    return name not in INTEGRATIONS or importlib.util.find_spec(LIBRARY.get(name, name)) is not None


def _public(module: Any, modules: bool) -> list[str]:
    return [name for name in module.__all__ if inspect.ismodule(getattr(module, name)) == modules]


def write_reference(folder: Path) -> None:
    """Writes a page for each subpackage, with a table of its public names, and a page of all subpackages."""
    folder.mkdir(exist_ok=True)
    index = [*_title("Reference"), "What `import hforest` has itself: :doc:`hforest`.", ""]
    pages = {"hforest": hforest}
    for group, names in SUBPACKAGES.items():
        found = [name for name in names if _is_installed(name)]
        modules = {name: importlib.import_module(f"hforest.{name}") for name in found}
        index += [group, "-" * len(group), "", ".. toctree::", "   :hidden:", ""]
        index += [f"   {name}" for name in found] + ["", ".. list-table::", "   :widths: 25 75", ""]
        for name, module in modules.items():
            first = " ".join((module.__doc__ or "").strip().split("\n\n")[0].split())
            index += [f"   * - :doc:`hforest.{name} <{name}>`", f"     - {first}"]
        index += [""]
        missing = [name for name in names if name not in found]
        if missing:
            index += [f"Not built here, for lack of their libraries: {', '.join(missing)}.", ""]
        pages |= modules
    nested = {name: [*_public(module, True), *NESTED.get(name, [])] for name, module in pages.items()}
    for name, parts in list(nested.items())[1:]:  # public modules of subpackages
        pages |= {f"{name}.{part}": importlib.import_module(f"hforest.{name}.{part}") for part in parts}
    _write(folder / "index.rst", [*index, ".. toctree::", "   :hidden:", "", "   hforest"])
    public = {f"{module.__name__}.{name}" for module in pages.values() for name in _public(module, False)}
    for path in [*folder.glob("*.rst"), *folder.glob("generated/*.rst")]:  # pages of earlier builds
        if path.stem not in {*pages, *public, "index"}:
            path.unlink()
    for name, module in pages.items():
        parts = [] if module is hforest else nested.get(name, [])
        _write(
            folder / f"{name}.rst",
            [
                *_title(module.__name__), f".. automodule:: {module.__name__}", "   :no-members:", "",
                f".. currentmodule:: {module.__name__}", "", ".. autosummary::", "   :toctree: generated", "",
                *(f"   {public}" for public in _public(module, False)), "",
                *([".. toctree::", "", *(f"   {name}.{part}" for part in parts)] if parts else []),
            ],
        )  # fmt: skip


def escape_formulas(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Escapes formulas such as |r*| in docstrings, which are written for help(), for reStructuredText."""
    in_example = in_table = False
    titles = r"(?<![\w*])\*([A-Z][^*`\n]*(?:\n[^*`\n]+)?[\w.?!])\*(?![\w*])"
    lines[:] = re.sub(titles, "\0\\1\0", "\n".join(lines)).split("\n")  # stars in titles stay
    for i, line in enumerate(lines):
        if re.fullmatch(r"\s*=+( +=+)+", line):
            in_table = i + 1 < len(lines) and bool(lines[i + 1].strip())
        if in_table:
            # A backslash takes the place of a space after the cell.
            lines[i] = re.sub(r"(?<=[ (])\*(\w+\S*)  ", r"\\*\1 ", line)
        in_example = line.lstrip().startswith(">>>") or (in_example and bool(line.strip()))
        if in_example or in_table:
            continue
        bullet, text = re.match(r"(\s*(?:[*-] )?)(.*)", line).groups()
        parts = re.split(r"(``.*?``|`.*?`)", re.sub(r":(?:ref|term):`([^`<]*?)(?: <[^>]*>)?`", r"\1", text))
        for j in range(0, len(parts), 2):
            parts[j] = re.sub(r"(?<!\\)([*|])", r"\\\1", parts[j])
            parts[j] = re.sub(r"(\w)_(?!\w)", r"\1\\_", parts[j])
        lines[i] = bullet + "".join(parts)
    lines[:] = [line.replace("\0", "*") for line in lines]


def find_reference(name: str) -> tuple[Path, str] | None:
    """Returns the file and the name of the reference implementation of a function such as hinge.backward."""
    package, _, function = name.partition(".")
    folder = ROOT / "hforest" / package
    for path in sorted([*folder.glob("reference.py"), *folder.glob("reference/*.py")]):
        if f"\ndef {function}(" in path.read_text(encoding="utf-8"):
            return path, function
    return None


def add_reference_implementation(
    app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Shows the reference implementation that a function is tested against."""
    if what != "function":
        return
    own = name.removeprefix("hforest.")
    for place, reference in filter(None, map(find_reference, REFERENCES.get(own, own).split(", "))):
        source = place.relative_to(ROOT).as_posix()
        lines += [
            "", ".. rubric:: Reference implementation", "", f"Backends are tested against `{source}`:", "",
            f".. literalinclude:: /../{source}", f"   :pyobject: {reference}", "",
        ]  # fmt: skip


def add_equation(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Shows the equation of a function below its first line."""
    latex = EQUATIONS.get(name.removeprefix("hforest."))
    if latex is not None:
        first = next(i for i, line in enumerate(lines) if line.strip())
        end = next((i for i, line in enumerate(lines) if i > first and not line.strip()), len(lines))
        lines[end:end] = ["", ".. math::", "", f"   {latex}"]


def add_field(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Shows the docstring of a field of a tuple in place of its number."""
    if what != "attribute" or not lines or not lines[0].startswith("Alias for field number"):
        return
    module, owner, field = name.rsplit(".", 2)
    folder = ROOT / module.replace(".", "/")
    # The module of a tuple is its public subpackage, but another file defines it.
    for path in (*folder.glob("*.py"), *folder.parent.rglob("*.py")):
        if f"\nclass {owner}(" in path.read_text(encoding="utf-8"):
            documented = ModuleAnalyzer.for_file(path, module).find_attr_docs()
            lines[:] = documented.get((owner, field), [])
            return


def list_forests(app: Any, docname: str, source: list[str]) -> None:
    """Adds the pages on forests that the user guide does not list to its list of other pages."""
    if docname == "forests":
        listed = set(source[0].splitlines())
        pages = "\n".join(name for name in FORESTS if name not in listed)
        source[0] = source[0].replace("\nother forests\n", f"\n{pages}\n")


def link_gallery(app: Any, doctree: Any) -> None:
    """Replaces links to scripts of the gallery, made for viewers of Markdown, by links to their pages."""
    for download in list(doctree.findall(addnodes.download_reference)):
        path = Path(download["reftarget"])
        if "gallery" in path.parts and path.suffix == ".py":
            target = "/auto_gallery/" + path.with_suffix("").as_posix().partition("gallery/")[2]
            page = {"reftype": "doc", "reftarget": target, "refdoc": app.env.docname}
            link = addnodes.pending_xref("", refdomain="std", refexplicit=True, refwarn=True, **page)
            link += nodes.inline("", download.astext())
            download.replace_self(link)


def write_index_entries(app: Any, docname: str, source: list[str]) -> None:
    """Makes index entries, which the search shows first, from comments such as <!-- index: save model -->."""
    source[0] = re.sub(r"^<!-- index: (.+) -->$", r"```{index} ! \1\n```", source[0], flags=re.MULTILINE)


def show_picture_first(app: Any, doctree: Any) -> None:
    """Moves the pictures of a page of the gallery below its title."""
    if not app.env.docname.startswith("auto_gallery/"):
        return
    title = next(iter(doctree.findall(nodes.title)), None)
    pictures = [node for node in doctree.findall() if type(node).__name__ == "imgsgnode"]
    for node in reversed(pictures if title is not None else []):
        node.parent.remove(node)
        title.parent.insert(title.parent.index(title) + 1, node)


def name_parameters(app: Any, doctree: Any) -> None:
    """Gives each parameter of a function's page an anchor, such as #hforest.grow.n_trees."""
    for field in doctree.findall(nodes.field):
        owner = field.parent
        while owner is not None and not isinstance(owner, addnodes.desc):
            owner = owner.parent
        if field[0].astext() != "Parameters" or owner is None or not owner[0]["ids"]:
            continue
        for item in field.findall(nodes.definition_list_item):
            for name in item[0].findall(nodes.strong):
                anchor = f"{owner[0]['ids'][0]}.{name.astext().lstrip('*')}"
                link = f'<a class="headerlink" href="#{anchor}" title="Link to this parameter">#</a>'
                item[0]["ids"].append(anchor)
                item[0] += nodes.raw("", link, format="html")


def skip_member(app: Any, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool:
    """Leaves out methods that scikit-learn adds to every estimator to route metadata."""
    return skip or name.endswith("_request") or name == "get_metadata_routing"


def drop_compiled(app: Any, env: Any) -> None:
    """Leaves compiled modules, whose source Sphinx does not show, out of the index of sources."""
    modules = getattr(env, "_viewcode_modules", {})
    for name in [name for name, entry in modules.items() if not entry]:
        del modules[name]


def setup(app: Any) -> None:
    """Writes the reference pages before the site is read."""
    write_reference(Path(__file__).parent / "api")
    app.connect("autodoc-skip-member", skip_member)
    app.connect("env-updated", drop_compiled)
    for name in EQUATIONS:
        package, _, function = name.partition(".")
        if _is_installed(package) and not hasattr(importlib.import_module(f"hforest.{package}"), function):
            raise ValueError(f"<!-- equation of {name} -->: expected public functions")
    for name in {name for names in REFERENCES.values() for name in names.split(", ")} - {"none"}:
        if find_reference(name) is None:
            raise ValueError(f"<!-- reference of ...: {name} -->: expected reference functions, or none")
    app.connect("source-read", list_forests)
    app.connect("source-read", write_index_entries)
    app.connect("doctree-read", link_gallery)
    app.connect("doctree-read", show_picture_first)
    app.connect("doctree-read", name_parameters)
    app.connect("autodoc-process-docstring", escape_formulas, priority=100)
    app.connect("autodoc-process-docstring", add_equation, priority=800)
    app.connect("autodoc-process-docstring", add_field, priority=50)
    app.connect("autodoc-process-docstring", add_reference_implementation, priority=900)
