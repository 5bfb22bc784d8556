"""Statements of pages and sources about the papers agree with their texts: quoted numbers, and numbers of
equations, algorithms, sections, tables and figures.

The texts are not part of the checkout; tests that read them skip if they are missing.
"""

import re
from pathlib import Path

import pytest

from hforest import demo

ROOT = Path(__file__).resolve().parents[1]
PAPERS = ROOT.parent / "shared" / "papers"
FIRST_WORDS = {
    "Lay et al. 2018": "Random Hinge Forest for Differentiable Learning",
    "Norouzi et al. 2015": "CO2 Forest: Improved Random Forest",
    "Perry et al. 2019": "Manifold Forests: Closing the Gap",
    "Zhang 2017": "# Ensemble Tree Model With Deep Architecture",
}
SUBJECTS = {
    "hinge": "Lay et al. 2018",
    "co2": "Norouzi et al. 2015",
    "manifold": "Perry et al. 2019",
}
"""The paper of the pages docs/NAME.md and docs/results-NAME.md if the text names none."""
SUFFIXES = (".py", ".pyx", ".pxd", ".h", ".cu", ".md", ".toml")
ITEM = r"(?:\d{1,2}(?:\.\d+)?[a-d]?|[IVX]+)(?!\w|\.\d)"
LOCATOR = re.compile(rf"\b((?i:eq|alg|fig|table|section))s?\.? ({ITEM}(?:(?:, | and |-|–){ITEM})*)")
CITED = re.compile(r"\b[A-Z][\w-]+(?:,? (?:et al\.|and [A-Z]\w+|[A-Z]\w+))* \(?(?:19|20)\d\d\b")
FIGURE = re.compile(r"(?<![\w.])\d+\.\d+(?!\w)")


def text_of(paper: str) -> str:
    for path in PAPERS.glob("*.txt"):
        text = path.read_text(encoding="utf-8")
        if text.startswith(FIRST_WORDS[paper]):
            return text
    return pytest.skip(f"needs the text of {paper} in {PAPERS}")


def stands(kind: str, item: str, text: str) -> bool:
    """Returns whether the paper has an equation, algorithm, section, table or figure of this number."""
    number, part = re.fullmatch(r"([\d.]+|[IVX]+)([a-d]?)", item).groups()
    number = re.escape(number)
    pattern = {
        "eq": rf"\({number}\)$",
        "alg": rf"^ *Algorithm {number}\b",
        "fig": rf"^ *(?:Figure|图) ?{number}\b",
        "table": rf"^(?:Table|TABLE) {number}:",
        "section": rf"^(?:#+ )?{number}\.? [A-Z]",
    }[kind]
    found = re.search(pattern, text, re.M)
    return bool(found) and (not part or re.search(rf"^\({part}\) ", text, re.M) is not None)


def expanded(items: str) -> list[str]:
    # "9-12" is 9, 10, 11, 12; "3, 4" is 3, 4.
    numbers = []
    for item in re.split(r", | and ", items):
        first, *last = re.split(r"-|–", item)
        numbers += map(str, range(int(first), int(last[0]) + 1)) if last else [first]
    return numbers


def locators(path: Path, text: str) -> list[tuple[str, str, str]]:
    """Returns (paper, kind, item) for each reference of a source to a numbered item of the four papers.

    An item belongs to the work named last before it in its paragraph or row, or to the page's paper.
    """
    own = SUBJECTS.get(path.stem.removeprefix("results-")) if path.suffix == ".md" else None
    found = []
    for part in re.split(r"\n\s*\n|^\|", text, flags=re.M):
        part = re.sub(r"\s*\n[ \t]*(?:#|//|\*)?[ \t]*", " ", part)
        for match in LOCATOR.finditer(part):
            before = list(CITED.finditer(part, 0, match.start()))
            near = before and match.start() - before[-1].end() <= 60
            words = before[-1][0].replace("(", "") if near else own or ""
            for paper in filter(words.endswith, FIRST_WORDS):
                found += [(paper, match[1].lower(), item) for item in expanded(match[2])]
    return found


SOURCES = [
    path
    for folder in ("hforest", "docs", "bench", "tests", "lab")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in SUFFIXES and "_build" not in path.parts and path != Path(__file__)
]


@pytest.mark.parametrize("paper", FIRST_WORDS)
def test_places_in_the_papers_exist(paper):
    text = text_of(paper)
    seen = 0
    for path in [*SOURCES, ROOT / "README.md"]:
        for said, kind, item in locators(path, path.read_text(encoding="utf-8")):
            if said == paper:
                seen += 1
                assert stands(kind, item, text), f"{path.relative_to(ROOT)}: {paper} has no {kind} {item}"
    assert seen >= 20, "sources name places of each paper"


def figures(page: str) -> list[tuple[str, str]]:
    """Returns (row or sentence, number) of all numbers that a page of results quotes from its paper: cells of
    columns "paper", and numbers after the word.
    """
    found, columns = [], []
    for line in page.splitlines():
        if not line.startswith("|"):
            columns = []
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if not columns and cells:
            columns = [i for i, cell in enumerate(cells) if re.match(r"(?:the )?paper\b", cell)]
        else:
            found += [(line, n) for i in columns if i < len(cells) for n in FIGURE.findall(cells[i])]
        for run in re.findall(r"\bpaper:? (?:has )?(\d+\.\d+(?:(?: / |, | and )\d+\.\d+)*)", line):
            found += [(line, n) for n in FIGURE.findall(run)]
    return found


def quoted(number: str, text: str) -> bool:
    # The texts repeat formulas without spaces: a number ends where a bracket, a space or a % follows.
    return re.search(rf"(?<![\d.]){re.escape(number)}(?=[\s()\\%,;]|\.\s|$)", text) is not None or (
        re.search(rf"\({re.escape(number)}\)", text) is not None
    )


@pytest.mark.parametrize("page", SUBJECTS)
def test_figures_of_the_paper_stand_in_its_text(page):
    text = text_of(SUBJECTS[page])
    found = figures((ROOT / "docs" / f"results-{page}.md").read_text(encoding="utf-8"))
    assert len(found) >= {"hinge": 40, "co2": 20}.get(page, 0)
    for where, number in found:
        assert quoted(number, text), f"results-{page}.md: {SUBJECTS[page]} has no {number}: {where}"


ROWS = {"tree": "Random Hinge Forest", "fern": "Random Hinge Ferns"}


@pytest.mark.parametrize("script", ["table2", "table3"])
def test_figures_of_hinge_tables_stand_in_their_rows(script):
    """Each number is in the paper's row of the data set (Table 2) or of the kind of forest (Table 3)."""
    text = text_of("Lay et al. 2018")
    source = (ROOT / "lab" / "paper" / f"{script}.py").read_text(encoding="utf-8")
    checked = 0
    for name, kind, mean, deviation in re.findall(
        r'"([\w]+)(?:-\d+)?-(tree|fern|forest)": .*?"(?:R² )?([\d.]+) ± ([\d.]+)[ "]', source
    ):
        name = {"isolet": "human activity", "madelon_selected": "madelon"}.get(name, name.replace("_", " "))
        start = ROWS[kind] if script == "table3" else name
        lines = [line for line in text.splitlines() if line.startswith(start + " ")]
        number = rf"(?<![\d.]){re.escape(mean)}0?\s*\({re.escape(deviation)}\)"
        more = [text] if script == "table3" and name == "mnist" else []  # 1000 trees are in section 6
        assert any(re.search(number, line) for line in [*lines, *more]), (
            f"{name}, {kind}: {mean} ({deviation})"
        )
        checked += 1
    assert checked >= 6


@pytest.mark.parametrize(
    ("data", "n_inputs", "n_classes", "n_kernels"),
    [("letter", 16, 26, 0), ("usps", 256, 10, 0), ("mnist", 784, 10, 80)],
)
def test_numbers_of_parameters_are_those_of_the_page(data, n_inputs, n_classes, n_kernels):
    counts = []
    for kind in ("tree", "fern"):
        config = demo.Config(kind, optimizer="adagrad", n_kernels=n_kernels)
        state = demo.start(config, n_inputs, n_classes)
        counts.append(sum(state[name].size for name in ("kernel", "thresholds", "weights")))
    counts.append(100 * ((2**10 - 1) * (n_inputs + 1) + 2**10 * n_classes))
    page = (ROOT / "docs" / "results-hinge.md").read_text(encoding="utf-8")
    trees, ferns, wide = (f"{n:,}".replace(",", " ") for n in counts)
    a, b, c = counts
    assert f"| {data} | {trees} | {ferns} | {b / a:.2f} | {wide} | {c / a:.2g} |" in page


def test_a_wrong_place_and_a_wrong_figure_are_seen():
    text = "1 Introduction\nx = y (1)\nFigure 2: Two\n(a) One.\n iris 2.13(2.66)2.132.66 4.13(2.33)\n"
    page = ROOT / "docs" / "hinge.md"
    said = "As Perry et al. 2019, eq. 3, 4, and\nLay et al. 2018 (eq. 9-11; Fig. 2a). See section 7."
    assert locators(page, said) == [
        *(("Perry et al. 2019", "eq", n) for n in "34"),
        *(("Lay et al. 2018", "eq", n) for n in ("9", "10", "11")),
        ("Lay et al. 2018", "fig", "2a"),
        ("Lay et al. 2018", "section", "7"),
    ]
    for kind, item, there in [
        ("eq", "1", True), ("eq", "2", False), ("fig", "2a", True), ("fig", "2b", False), ("fig", "1", False),
        ("section", "1", True), ("section", "2", False), ("table", "1", False), ("alg", "1", False),
    ]:  # fmt: skip
        assert stands(kind, item, text) is there, (kind, item)
    table = "| data | paper | here |\n|---|---|---|\n| iris | 2.13 ± 2.66 | 3.1 |\n\nHere 3.1, paper 4.13 and 9.9."
    assert [n for _, n in figures(table)] == ["2.13", "2.66", "4.13", "9.9"]
    assert [quoted(n, text) for n in ("2.13", "2.66", "4.13", "9.9", "13.2", "2.1")] == [True] * 3 + [
        False
    ] * 3
