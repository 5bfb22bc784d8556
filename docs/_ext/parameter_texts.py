"""Writes parameter texts that several functions share from a table into their docstrings.

    python docs/_ext/parameter_texts.py            writes the texts into the sources
    python docs/_ext/parameter_texts.py --check    lists differences from the table; exit status 1

parameters.toml has the texts, and describes how to add one. Only items in the table change. The script finds
docstrings by the syntax tree and imports nothing of hforest.
"""

import argparse
import ast
import re
import sys
import textwrap
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
TABLE = Path(__file__).with_name("parameters.toml")
REMEDY = f"Remedy: change {TABLE.relative_to(ROOT)} and run python {Path(__file__).relative_to(ROOT)}"
WIDTH = 110
SHARED = 3
"""An item that occurs word for word in this number of docstrings belongs in the table."""


class Text(NamedTuple):
    """An entry of the table."""

    place: str
    """Its name in messages, such as "rng.seed"."""
    type: str | None
    """None keeps the type in the docstring."""
    body: str


class Item(NamedTuple):
    """One or several parameters that a docstring describes together."""

    function: str
    """Folder and qualified name: "classic.grow", "torch.HingeForest.forward"."""
    section: str
    names: tuple[str, ...]
    type: str | None
    body: str
    start: int
    """Its lines in the file are start to stop - 1, counted from 0."""
    stop: int


Key = tuple[str, str, str]
"""Section, parameter and a pattern of functions, such as "classic.grow*"."""
Table = dict[Key, Text]


def read_table(path: Path = TABLE) -> Table:
    """Returns the texts of a table."""
    entries = {
        f"{name}.{variant}": (name, entry)
        for name, variants in tomllib.loads(path.read_text(encoding="utf-8")).items()
        for variant, entry in variants.items()
    }

    def whole(place: str) -> Text:
        entry = entries[place][1]
        unknown = entry.keys() - {"section", "type", "text", "continues", "functions"}
        if unknown:
            raise ValueError(f"{place}: expected the keys that {path.name} explains, got {sorted(unknown)}")
        first = whole(entry["continues"]) if "continues" in entry else Text(place, None, "")
        body = f"{first.body} {entry.get('text', '')}"
        if "\\" in body or '"""' in body:
            raise ValueError(f"{place}: expected no backslash and no three quotes: a docstring reads them")
        return Text(place, entry.get("type", first.type), " ".join(body.split()))

    table: Table = {}
    for place, (name, entry) in entries.items():
        text = whole(place)
        for function in entry.get("functions", ()):
            key = entry.get("section", "Parameters"), name, function
            if table.setdefault(key, text) is not text:
                raise ValueError(f"{place}: {function} has the text {table[key].place}, too; remove one")
    return table


def key_of(table: Table, item: Item, name: str) -> Key | None:
    """Returns the key of the table entry for one of the parameters of an item."""
    keys = [key for key in table if key[:2] == (item.section, name) and fnmatchcase(item.function, key[2])]
    if len(keys) > 1:
        places = ", ".join(sorted({table[key].place for key in keys}))
        raise ValueError(f"{item.function}: expected one text of {name}, got {places}; narrow their patterns")
    return keys[0] if keys else None


def docstrings(path: Path, folder: str) -> Iterator[tuple[str, int, int]]:
    """Yields name, first line and last line of the docstring of each public class and function of a file."""

    def below(node: ast.AST, owner: str) -> Iterator[tuple[str, int, int]]:
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.ClassDef | ast.FunctionDef):
                yield from below(child, owner)
            elif not child.name.startswith("_"):
                name = f"{owner}{child.name}"
                if ast.get_docstring(child, clean=False) is not None:
                    text = child.body[0]
                    yield name, text.lineno - 1, (text.end_lineno or text.lineno) - 1
                if isinstance(child, ast.ClassDef):
                    yield from below(child, f"{name}.")

    yield from below(ast.parse(path.read_text(encoding="utf-8")), f"{folder}." if folder else "")


def items(lines: list[str], function: str, first: int, last: int) -> Iterator[Item]:
    """Yields the items in the sections of a docstring, in lines first to last."""
    starts = [last]
    for i in range(last - 1, first, -1):
        title = re.fullmatch(r"(\s*)(\w[\w ]*)", lines[i])
        if title and re.fullmatch(r"\s*-{3,}", lines[i + 1]):
            if lines[last].strip() != '"""':
                raise ValueError(f"{function}: expected the closing quotes on a line of their own")
            indent, section = title.groups()
            heads = [k for k in range(i + 2, starts[-1]) if re.match(rf"{indent}\S", lines[k])]
            for start, stop in zip(heads, [*heads[1:], starts[-1]], strict=True):
                while not lines[stop - 1].strip():
                    stop -= 1
                head, colon, type_ = lines[start].strip().partition(" : ")
                names = (head,) if section in ("Returns", "Raises") else tuple(head.split(", "))
                body = " ".join(" ".join(lines[start + 1 : stop]).split())
                yield Item(function, section, names, type_ if colon else None, body, start, stop)
            starts.append(i)


def wrapped(body: str, indent: str) -> list[str]:
    """Returns the lines of a text. Code between backticks stays on one line."""
    whole = re.sub(r"``.+?``|`[^`]+`", lambda code: code[0].replace(" ", "\0"), body)
    lines = textwrap.wrap(
        whole, WIDTH, initial_indent=indent, subsequent_indent=indent,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    return [line.replace("\0", " ") for line in lines]


def described(item: Item, texts: list[Text | None], lines: list[str]) -> list[str]:
    """Returns the lines of an item with texts of the table; parameters with different texts are separated."""
    indent = re.match(r"\s*", lines[item.start])[0]  # type: ignore[index]
    result: list[str] = []
    others: list[str] = []
    for name, text in [*zip(item.names, texts, strict=True), ("", None)]:
        if others and (text or not name):
            result.append(indent + ", ".join(others) + (f" : {item.type}" if item.type else ""))
            result += lines[item.start + 1 : item.stop]
            others = []
        if text:
            kind = text.type or item.type
            result.append(f"{indent}{name} : {kind}" if kind else indent + name)
            result += wrapped(text.body, indent + "    ")
        elif name:
            others.append(name)
    return result


def applied(package: Path, table: Table) -> tuple[dict[Path, str], list[str], list[str]]:
    """Returns new texts of changed files; differences; and differences that only the table can remove."""
    changed: dict[Path, str] = {}
    differences: list[str] = []
    unused = set(table)
    alike: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for path in sorted(package.rglob("*.py")):
        old = path.read_text(encoding="utf-8")
        lines = old.split("\n")
        folder = ".".join(path.parent.relative_to(package).parts)
        found = [item for name, *span in docstrings(path, folder) for item in items(lines, name, *span)]
        for item in sorted(found, key=lambda item: item.start, reverse=True):
            keys = [key_of(table, item, name) for name in item.names]
            unused -= set(keys)
            if not any(keys):
                if item.section == "Parameters" and item.body:
                    alike[*item.names, item.type or "", item.body].append(item.function)
                continue
            texts = [table[key] if key else None for key in keys]
            new = described(item, texts, lines)
            if new != lines[item.start : item.stop]:
                places = ", ".join(sorted({text.place for text in texts if text}))
                differences.append(
                    f"{path}: {item.function}: {', '.join(item.names)}: expected the text {places}, not this"
                )
                lines[item.start : item.stop] = new
        if (text := "\n".join(lines)) != old:
            changed[path] = text
    faults = [f"{table[key].place}: {key[2]} has no {key[1]} among its {key[0]}" for key in sorted(unused)]
    faults += [
        f"{', '.join(functions)}: {', '.join(names)}: one text, which is not in the table"
        for (*names, _, _), functions in alike.items()
        if len(functions) >= SHARED
    ]
    return changed, differences, faults


def main(arguments: list[str]) -> int:
    """Writes or checks the texts, and returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--check", action="store_true", help="name what differs; write nothing")
    parser.add_argument("--package", type=Path, default=ROOT / "hforest", help="folder of the sources")
    options = parser.parse_args(arguments)
    changed, differences, faults = applied(options.package, read_table())
    if not options.check:
        differences = []
        for path, text in changed.items():
            path.write_text(text, encoding="utf-8")
            print(path)
    for sentence in differences + faults:
        print(sentence)
    if differences or faults:
        print(REMEDY)
    return int(bool(differences or faults))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
