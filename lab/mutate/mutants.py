"""Mutants: small changes of a source that a test should see.

Python is changed at nodes of its syntax tree, Cython, C and CUDA at tokens; everything else of a file stays as it is.
Docstrings, comments, messages of errors, annotations and `__repr__` are left alone.
"""

import ast
import difflib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

KINDS = {".py": "python", ".pyx": "cython", ".pxd": "cython", ".h": "c", ".cuh": "c", ".cu": "c"}
RELATIONAL = {
    b"<": b"<=", b"<=": b"<", b">": b">=", b">=": b">", b"==": b"!=", b"!=": b"==",
    b"is": b"is not", b"is not": b"is", b"in": b"not in", b"not in": b"in",
}  # fmt: skip
ARITHMETIC = {
    b"+": b"-", b"-": b"+", b"*": b"/", b"/": b"*", b"//": b"*", b"%": b"*", b"**": b"*", b"<<": b">>", b">>": b"<<",
    b"&": b"|", b"|": b"&", b"+=": b"-=", b"-=": b"+=", b"*=": b"/=", b"/=": b"*=", b"//=": b"*=", b"%=": b"*=",
    b"<<=": b">>=", b">>=": b"<<=", b"&=": b"|=", b"|=": b"&=",
}  # fmt: skip


class Mutant(NamedTuple):
    """Bytes `start:end` of a file become `new`; lines `first` to `last` are its statement's, 0 outside of functions."""

    file: str
    operator: str
    start: int
    end: int
    new: bytes
    first: int = 0
    last: int = 0

    def apply(self, text: bytes) -> bytes:
        return text[: self.start] + self.new + text[self.end :]

    def line(self, text: bytes) -> int:
        return text.count(b"\n", 0, self.start) + 1

    def change(self, text: bytes) -> tuple[str, str]:
        """Returns the lines that change, and what they become, without the white space around them."""
        start, end = text.rfind(b"\n", 0, self.start) + 1, text.find(b"\n", self.end)
        end = end if end >= 0 else len(text)
        old, new = text[start:end], text[start : self.start] + self.new + text[self.end : end]
        return tuple(" ".join(part.decode().split()) for part in (old, new))

    def diff(self, text: bytes) -> str:
        texts = [t.decode().splitlines() for t in (text, self.apply(text))]
        return "\n".join(difflib.unified_diff(*texts, self.file, self.file, n=0, lineterm=""))


def constant(text: bytes) -> bytes:
    """Returns another number: n + 1, and 0 of 1."""
    value = ast.literal_eval(text.decode())
    return repr(0 if isinstance(value, int) and value == 1 else value + 1).encode()


# ------------------------------------------------------------------------------------------- Python


class _Python:
    """Walks the syntax tree of a file."""

    def __init__(self, file: str, text: bytes) -> None:
        self.file, self.text = file, text
        self.offsets = [0]
        for line in text.splitlines(keepends=True):
            self.offsets.append(self.offsets[-1] + len(line))
        self.span = 0, 0
        self.mutants: list[Mutant] = []

    def at(self, node: ast.AST) -> tuple[int, int]:
        start = self.offsets[node.lineno - 1] + node.col_offset
        return start, self.offsets[node.end_lineno - 1] + node.end_col_offset

    def add(self, operator: str, start: int, end: int, new: bytes) -> None:
        self.mutants.append(Mutant(self.file, operator, start, end, new, *self.span))

    def between(self, left: ast.AST, right: ast.AST, table: dict[bytes, bytes], operator: str) -> None:
        """Changes the operator between two operands."""
        start, end = self.at(left)[1], self.at(right)[0]
        gap = self.text[start:end]
        found = None if b"#" in gap else re.search(rb"[^\s()\\]+(\s+(not|in)\b)?", gap)
        if found and found[0] in table:
            self.add(operator, start + found.start(), start + found.end(), table[found[0]])

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.JoinedStr | ast.Import | ast.ImportFrom):
            return
        before = self.span
        if isinstance(node, ast.stmt):
            self.statement(node)
        if isinstance(node, ast.Compare):
            for left, right in zip([node.left, *node.comparators], node.comparators, strict=False):
                self.between(left, right, RELATIONAL, "relation")
        elif isinstance(node, ast.BinOp):
            texts = (ast.JoinedStr, ast.Constant)
            if not any(isinstance(n, texts) and not number(n) for n in (node.left, node.right)):
                self.between(node.left, node.right, ARITHMETIC, "arithmetic")
        elif isinstance(node, ast.AugAssign):
            self.between(node.target, node.value, ARITHMETIC, "arithmetic")
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            self.add("constant", *self.at(node), str(not node.value).encode())
        elif isinstance(node, ast.Constant) and number(node):
            start, end = self.at(node)
            self.add("constant", start, end, constant(self.text[start:end]))
        for test in conditions(node):
            start, end = self.at(test)
            self.add("condition", start, end, b"(not (" + self.text[start:end] + b"))")
        for child in children(node):
            self.visit(child)
        self.span = before

    def statement(self, node: ast.stmt) -> None:
        function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        body = getattr(node, "body", None)
        if isinstance(node, ast.ClassDef):
            self.span = 0, 0
            return
        if function or self.span[0]:
            first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
            self.span = first, max(first, body[0].lineno - 1) if body else node.end_lineno
        if self.span[0] and not function and deletable(node):
            self.add("deletion", *self.at(node), b"pass")
        for child in body[1:] if function else ():
            start = self.at(child)[0]
            indent = self.text[self.offsets[child.lineno - 1] : start]
            if not indent.strip() and not isinstance(child, ast.Return | ast.Raise | ast.FunctionDef):
                outer, self.span = self.span, (child.lineno, child.lineno)
                self.add("return", start, start, b"return\n" + indent)
                self.span = outer


def number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)


def deletable(node: ast.stmt) -> bool:
    return isinstance(
        node, ast.Assign | ast.AugAssign | ast.Raise | ast.Delete | ast.Break | ast.Continue
    ) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call))


def conditions(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert):
        return [node.test]
    return node.ifs if isinstance(node, ast.comprehension) else []


def children(node: ast.AST) -> Iterator[ast.AST]:
    """Returns the parts of a node that may change."""
    if isinstance(node, ast.Raise) or getattr(node, "name", None) in ("__repr__", "__str__"):
        return
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("warnings.warn", "cast", "typing.cast"):
        return
    for name, value in ast.iter_fields(node):
        if name not in ("annotation", "returns", "decorator_list", "type_params", "type_comment"):
            yield from (v for v in (value if isinstance(value, list) else [value]) if isinstance(v, ast.AST))


# ------------------------------------------------------------------------------------ Cython, C and CUDA

STRING = r'"""(?:.|\n)*?"""|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''
COMMENT = {"cython": r"\#[^\n]*", "c": r"//[^\n]*|/\*(?:.|\n)*?\*/|^[ \t]*\#[^\n]*"}
# A message may take several lines, up to the end of a line at which no parenthesis is open.
RAISE = {"cython": r"\braise\b[^\n]*(?:\((?:[^()]|\([^()]*\))*\))?[^\n]*", "c": r"\bHF_PREFETCH\b[^\n]*"}
TOKEN = (
    r"(?P<number>(?<![\w.:])(?<![pP][-+])\d+(?:\.\d*)?(?:[eE][-+]?\d+)?(?=[uUlLfF]*\b))|(?P<word>\b(?:True|False)\b)"
    r"|(?P<sign>(?<=[ ])(?:<<=|>>=|<<|>>|//=?|\*\*|[-+*/%&|<>=!]=|[-+*/%&|<>])(?=[ ]))"
)
"""Operators between spaces: others are signs, pointers and casts."""
DECLARATION = re.compile(
    r"[ \t]*(?:(?:cimport|import|from|cdef extern|ctypedef|include|template|struct|typedef|enum|union)\b|@)"
    r"|[ \t]*(?:cdef|cpdef)\b[^=\n]*(?:\(|\bexcept\b|\bnoexcept\b)"
)
CONDITION = {
    "cython": re.compile(r"^[ \t]*(?:if|elif|while) (?P<part>[^\n#]+):[ \t]*$", re.MULTILINE),
    "c": re.compile(r"\b(?:if|while) \((?P<part>(?:[^()\n]|\((?:[^()\n]|\([^()\n]*\))*\))+)\)"),
}
TARGET = r"\w[\w.>\-]*(?:\[[^\n=]*\])? [-+*/|&]?= "
STATEMENT = {
    "cython": re.compile(
        rf"^[ \t]+(?P<part>{TARGET}[^\n]*[^\n,(\[\\]|continue|break|\w+\([^\n]*\))$", re.MULTILINE
    ),
    "c": re.compile(
        rf"^[ \t]+(?P<part>(?:[*]?{TARGET}[^\n;]*|continue|break|\w+\([^\n;=]*\));)[ \t\\]*$", re.MULTILINE
    ),
}
HEADER = re.compile(r"^(?:cdef|def|static|HF_|__device__|extern)[^\n]*", re.MULTILINE)
EMPTY = {"cython": ("not ({})", "pass", "return"), "c": ("!({})", ";", "return;")}


def compiled(file: str, code: str, kind: str) -> Iterator[Mutant]:
    """Yields the mutants of a file that is compiled; some may not compile."""
    skipped = []

    def mutant(operator: str, match: re.Match, part: str, new: str) -> Iterator[Mutant]:
        start = match.start(part)
        line = code[code.rfind("\n", 0, start) + 1 : start]
        if not DECLARATION.match(line) and not any(first <= start < last for first, last in skipped):
            before = len(code[:start].encode())
            yield Mutant(file, operator, before, before + len(match[part].encode()), new.encode())

    pattern = f"(?P<skip>{STRING}|{COMMENT[kind]}|{RAISE[kind]})|{TOKEN}"
    for match in re.finditer(pattern, code, re.MULTILINE):
        part = match.lastgroup or ""
        text = match[0].encode()
        if part == "skip":
            skipped.append(match.span())
        elif part == "number":
            if not re.fullmatch("0[0-9]+", match[0]):
                yield from mutant("constant", match, part, constant(text).decode())
        elif part == "word":
            yield from mutant("constant", match, part, str(match[0] == "False"))
        else:
            for operator, table in (("relation", RELATIONAL), ("arithmetic", ARITHMETIC)):
                if text in table:
                    yield from mutant(operator, match, part, table[text].decode())
    negated, nothing, early = EMPTY[kind]
    for match in CONDITION[kind].finditer(code):
        yield from mutant("condition", match, "part", negated.format(match["part"]))
    headers = list(HEADER.finditer(code))
    for match in STATEMENT[kind].finditer(code):
        if match["part"].count("(") == match["part"].count(")"):
            yield from mutant("deletion", match, "part", nothing)
            above = [header[0] for header in headers if header.end() < match.start()]
            if above and re.search(r"\bvoid\b(?! \*)|^def ", above[-1]):
                yield from mutant("return", match, "part", early)


# --------------------------------------------------------------------------------------------- all


def mutants(file: str, text: bytes) -> list[Mutant]:
    """Returns the mutants of a file, in order."""
    kind = KINDS[Path(file).suffix]
    if kind == "python":
        walk = _Python(file, text)
        walk.visit(ast.parse(text))
        found = walk.mutants
    else:
        found = list(compiled(file, text.decode(), kind))
    return sorted(set(found))


def valid(mutant: Mutant, text: bytes) -> bool:
    """Whether a mutant of Python is another program."""
    if KINDS[Path(mutant.file).suffix] != "python":
        return True
    try:
        return ast.dump(ast.parse(mutant.apply(text))) != ast.dump(ast.parse(text))
    except SyntaxError:
        return False
