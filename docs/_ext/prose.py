"""Checks the English of the pages: python docs/_ext/prose.py

Reads README.md and docs/*.md without code and formulas. Matches of RULES are errors. So are sentences of more
than 30 words outside of tables; a colon or semicolon also ends a sentence.
Exits with 1 if there is an error. docs/contributing.md has the rules.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MAX_WORDS = 30
RULES = {
    r"\bsame bits\b": "bit-identical to",
    r"\bso many\b": "the number",
    r"\bsuch a share\b": "the share",
    r"\bas so often\b": "nothing",
    r"\bchose nothing\b": "used neither for training nor for selection",
    r"\b(?:gradients?|derivatives?|differentiable) by (?!default|finite|central|rows?\b)": "with respect to",
    r"\b(?:samples|rows|bytes|cache|seconds|threads) a (?:core|row|tree|node|step|call|second)\b": "per",
}
"""Regular expressions, and the words to write instead."""


def prose(text: str) -> str:
    """Returns a page with the same lines, without code, comments, formulas and addresses of links."""
    for pattern, instead in (
        (r"^(```|:::).*?^\1$|<!--.*?-->|\$\$.*?\$\$", ""),
        (r"`[^`]*`|\$[^$\n]+\$", "X"),
        (r"\]\([^)]*\)", "]"),
    ):
        text = re.sub(
            pattern, lambda m, i=instead: i + "\n" * m[0].count("\n"), text, flags=re.DOTALL | re.MULTILINE
        )
    return text


def long_sentences(text: str) -> list[tuple[int, str]]:
    """Returns the line and the text of each sentence of more than 30 words outside of tables and headings."""
    found, text = [], prose(text)
    for block in re.finditer(r"(?:^(?!\||#|\s*$).*\n?)+", text, re.MULTILINE):
        items = re.split(r"^\s*(?:[*-]|\d+\.) ", block[0], flags=re.MULTILINE)
        for item in items:
            for sentence in re.split(r"(?<=[.!?:;])\s+", item):
                if len(re.findall(r"[^\W\d_][\w'’-]*", sentence)) > MAX_WORDS:
                    line = text.count("\n", 0, block.start()) + 1
                    found.append((line, " ".join(sentence.split())))
    return found


def check(name: str, text: str) -> list[str]:
    """Returns the errors of a page."""
    errors = [
        f"{name}:{number}: {found[0]!r}: write {instead!r}"
        for number, line in enumerate(prose(text).splitlines(), 1)
        for pattern, instead in RULES.items()
        for found in re.finditer(pattern, line, re.IGNORECASE)
    ]
    errors += [
        f"{name}:{line}: more than {MAX_WORDS} words: {sentence}" for line, sentence in long_sentences(text)
    ]
    return errors


def main() -> int:
    """Prints all errors and returns their number."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    errors = [error for page in pages for error in check(page.name, page.read_text(encoding="utf-8"))]
    print(*errors, sep="\n", end="\n" if errors else "")
    return len(errors)


if __name__ == "__main__":
    sys.exit(main() > 0)
