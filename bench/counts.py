"""Counts the code of hforest: lines, named numbers, functions of many parameters or lines, long files.

    python bench/counts.py [--root DIR] [--json]

Lines are counted by subpackage and kind of file. Named numbers, which were chosen or tuned, are numbers with
a name in upper case: `#define`, members of an enum, `constexpr`, and assignments of a module. 0 and 1 are
excluded, because they are switches. Keyword-only parameters of Python functions are not counted. Lines of a
compiled function are those of its body. DIR is a checkout (default: that of this file).
"""

import argparse
import ast
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
KINDS = {
    ".pyx": "Cython", ".pxd": "Cython", ".h": "C header", ".cu": "CUDA", ".cuh": "CUDA", ".py": "Python",
    ".pyi": "Python",
}  # fmt: skip
MAX_PARAMETERS, MAX_LINES, MAX_BODY = 12, 600, 80


class Function(NamedTuple):
    """A function with its number of parameters; `kind` is C, CUDA kernel, CUDA, Cython or Python."""

    kind: str
    file: str
    name: str
    parameters: int
    lines: int = 0
    """Of the body, with comments; 0 in Python, and of a macro: its functions have the lines."""


def sources(root: Path) -> list[Path]:
    """Returns the files of the package, without generated ones."""
    return sorted(path for path in (root / "hforest").rglob("*") if path.suffix in KINDS)


def without_comments(text: str) -> str:
    """Returns C code on the same lines, without comments, and with the continued lines of macros joined."""
    joined, comment = text.replace("\\\n", "\n"), r"/\*.*?\*/|//[^\n]*"
    return re.sub(comment, lambda found: " " + "\n" * found[0].count("\n"), joined, flags=re.DOTALL)


def closing(text: str, begin: int) -> int:
    """Returns the index after the bracket that closes the one before `begin`."""
    depth = 1
    while depth and begin < len(text):
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(text[begin], 0)
        begin += 1
    return begin


def n_parameters(text: str) -> int:
    """Returns the number of parameters between brackets: commas outside of inner brackets, and one."""
    depth, n = 0, 1
    for letter in text:
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(letter, 0)
        n += letter == "," and depth == 0
    return n if text.replace("void", "").strip(" \n,") else 0


def c_functions(path: Path, name: str) -> Iterator[Function]:
    """Yields functions with a body and function-like macros of a C header or CUDA file."""
    text = without_comments(path.read_text())
    for found in re.finditer(r"#define[ \t]+(\w+)\(", text):
        end = closing(text, found.end())
        yield Function("C macro", name, found[1], n_parameters(text[found.end() : end - 1]))
    for found in re.finditer(r"([\w*\]>)]+[\s*]+)([\w#]+)\s*\(", text):
        if found[2] in ("if", "for", "while", "switch", "return") or found[1].strip() in (
            "#define",
            "return",
        ):
            continue
        end = closing(text, found.end())
        if not text[end:].lstrip().startswith("{"):
            continue
        before = text[max(0, found.start() - 200) : found.start()]
        kernel = "__global__" in re.split(r"[;}]", before)[-1]
        kind = "CUDA kernel" if kernel else "CUDA" if path.suffix in (".cu", ".cuh") else "C"
        body = text.index("{", end) + 1
        lines = max(1, text.count("\n", body, closing(text, body)) - 1)
        yield Function(kind, name, found[2], n_parameters(text[found.end() : end - 1]), lines)


def cython_functions(path: Path, name: str) -> Iterator[Function]:
    """Yields `def`, `cdef` and `cpdef` functions with a body."""
    text = re.sub(r"#[^\n]*", "", path.read_text())
    for found in re.finditer(r"^[ \t]*(?:c?p?def)\b[^\n(=:]*?(\w+)\(", text, re.MULTILINE):
        end = closing(text, found.end())
        if re.match(
            r"[^\n]*:[ \t]*$", text[end : text.find("\n", end)] if "\n" in text[end:] else text[end:]
        ):
            positional = re.split(r",\s*\*\s*,", text[found.end() : end - 1])[0]
            indent = len(found[0]) - len(found[0].lstrip())
            body = text[text.find("\n", end) + 1 :]
            left = re.search(rf"^[ \t]{{0,{indent}}}\S", body, re.MULTILINE)
            lines = len(body[: left.start() if left else None].rstrip().splitlines())
            yield Function("Cython", name, found[1], n_parameters(positional), lines)


def python_functions(path: Path, name: str) -> Iterator[Function]:
    """Yields functions and methods."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield Function("Python", name, node.name, len(node.args.posonlyargs) + len(node.args.args))


def functions(root: Path = ROOT) -> list[Function]:
    """Yields every function with a body; stubs are left out, since they repeat those of modules."""
    readers = {
        "Cython": cython_functions,
        "C header": c_functions,
        "CUDA": c_functions,
        "Python": python_functions,
    }
    found: list[Function] = []
    for path in sources(root):
        if path.suffix != ".pyi":
            found += readers[KINDS[path.suffix]](path, path.relative_to(root).as_posix())
    return found


def named_numbers(root: Path = ROOT) -> list[tuple[str, str, str]]:
    """Returns file, name and value of each named number."""
    number = r"(-?\(?[\d.][\w.]*(?:[ ]?(?:<<|\*\*|[-+*/])[ ]?[\w.]+)*\)?)"
    found = []
    for path in sources(root):
        name, text = path.relative_to(root).as_posix(), path.read_text()
        if KINDS[path.suffix] in ("C header", "CUDA"):
            text = without_comments(text)
            pairs = re.findall(rf"#define[ \t]+([A-Z]\w*)[ \t]+{number}[ \t]*$", text, re.MULTILINE)
            bodies = re.findall(r"enum \{([^}]*)\}", text) + re.findall(r"constexpr ([^;]*);", text)
        else:
            text = re.sub(r"#[^\n]*", "", text)
            pairs = re.findall(rf"^([A-Z][A-Z0-9_]+)(?:: \w+)? = {number}[ \t]*$", text, re.MULTILINE)
            bodies = re.findall(r"cdef enum[^\n]*:\n((?:[ \t]+[^\n]*\n|\n)*)", text)
        for body in bodies:
            pairs += re.findall(rf"\b([A-Z]\w*)\s*=\s*{number}", body)
        found += [(name, constant, value) for constant, value in pairs if value not in ("0", "1")]
    return found


def counts(root: Path = ROOT) -> dict[str, Any]:
    """Returns the tables that the command prints."""
    lines: dict[str, Counter[str]] = {}
    long = []
    for path in sources(root):
        name, n = path.relative_to(root / "hforest"), len(path.read_text().splitlines())
        package = name.parts[0] if len(name.parts) > 1 else "(package)"
        lines.setdefault(package, Counter())[KINDS[path.suffix]] += n
        if n > MAX_LINES:
            long.append((f"hforest/{name.as_posix()}", n))
    found = functions(root)
    many = sorted({f for f in found if f.parameters > MAX_PARAMETERS})
    bodies = sorted({f for f in found if f.lines > MAX_BODY})
    return {"lines": lines, "numbers": named_numbers(root), "many": many, "bodies": bodies, "long": long}


def show(found: dict[str, Any]) -> None:
    """Prints the tables."""
    kinds = list(dict.fromkeys(KINDS.values()))
    total: Counter[str] = Counter()
    print(f"{'lines':12}" + "".join(f"{kind:>10}" for kind in kinds) + f"{'all':>10}")
    for package, of in found["lines"].items():
        total.update(of)
        print(f"{package:12}" + "".join(f"{of[kind]:10}" for kind in kinds) + f"{of.total():10}")
    print(f"{'all':12}" + "".join(f"{total[kind]:10}" for kind in kinds) + f"{total.total():10}")
    packages = Counter(name.split("/")[1] for name, _, _ in found["numbers"])
    print(
        f"\n{len(found['numbers'])} named numbers: {', '.join(f'{k} {n}' for k, n in packages.most_common())}"
    )
    for name, constant, value in found["numbers"]:
        print(f"  {name}: {constant} = {value}")
    of_kind = Counter(f.kind for f in found["many"])
    each = ", ".join(f"{kind} {n}" for kind, n in of_kind.items())
    print(f"\n{len(found['many'])} functions of more than {MAX_PARAMETERS} parameters: {each or 'none'}")
    for f in found["many"]:
        print(f"  {f.kind}: {f.file}: {f.name}, {f.parameters}")
    print(f"\n{len(found['bodies'])} functions of more than {MAX_BODY} lines")
    for f in found["bodies"]:
        print(f"  {f.kind}: {f.file}: {f.name}, {f.lines}")
    print(f"\n{len(found['long'])} files of more than {MAX_LINES} lines")
    for name, n in found["long"]:
        print(f"  {name}, {n}")


def main() -> None:
    """Runs the command."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--root", type=Path, default=ROOT)
    parser.add_argument("--json", action="store_true", help="print the tables as JSON")
    options = parser.parse_args()
    found = counts(options.root)
    if options.json:
        print(json.dumps(found, indent=1))
    else:
        show(found)


if __name__ == "__main__":
    main()
