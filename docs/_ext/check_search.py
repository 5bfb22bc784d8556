"""Checks the search of the built site: python docs/_ext/check_search.py docs/_build/html

Each question must be the main entry of the index on the page that answers it. The search shows such entries
first: Sphinx's searchtools.js gives 100 points to an entry that equals the question, and at most 15 to
titles. Exits with 1 if a check fails.
"""

import json
import sys
from pathlib import Path

ANSWERS = {
    "missing values": "tabular",
    "predict one row": "tree",
    "p-value": "stats",
    "GPU": "gpu",
    "save model": "tabular",
    "feature importance": "tree",
    "learning rate": "torch-mlp-head",
    "random seed": "faq",
    "imbalanced": "classic",
    "text": "tabular",
    "notebook": "faq",
    "cross validation": "sklearn",
    "calibration": "tabular",
    "boosting": "boosting",
    "choosing": "choosing",
}
"""Questions, and the pages that answer them, which have a comment <!-- index: question -->."""


def main(root: Path) -> int:
    """Prints the questions whose main entry is on another page, and returns their number."""
    text = (root / "searchindex.js").read_text(encoding="utf-8")
    index = json.loads(text[text.index("(") + 1 : text.rindex(")")])
    bad = 0
    for question, page in ANSWERS.items():
        entries = index["indexentries"].get(question.lower(), [])
        pages = [index["docnames"][document] for document, _, is_main in entries if is_main]
        if pages != [page]:
            print(f"{question}: expected an entry of the index on {page}, got {pages}")
            bad += 1
    return bad


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])) > 0)
