"""Checks the links of the built site: python docs/_ext/check_links.py docs/_build/html

Every relative link, picture, script and style sheet of every page must lead to a file, and every ``#part`` to
an element of that name, except in listings of source, which use only one name of a function. No page may load
anything from another host. Exits with 1 if a check fails.
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """Links of a page, files that it loads, and names of its elements."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.names: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Reads one element."""
        given = {name: value or "" for name, value in attrs}
        self.names |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif "src" in given:
            self.loaded.append(given["src"])
        elif tag == "link" and given.get("rel") in ("stylesheet", "preload", "icon") and "href" in given:
            self.loaded.append(given["href"])


def main(root: Path) -> int:
    """Prints the broken links and returns their number."""
    found = (path for path in sorted(root.rglob("*.html")) if "_static" not in path.parts)
    pages = {path: Page(path) for path in found}
    bad, checked = [], 0
    for path, page in pages.items():
        for link in page.links + page.loaded:
            parts = urlsplit(link)
            checked += 1
            if parts.scheme or parts.netloc:
                if link in page.loaded and parts.scheme != "data":
                    bad.append(f"{path}: loads {link}")
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path.resolve()
            if not target.exists():
                bad.append(f"{path}: no file {link}")
            elif "_modules" in path.parts or not parts.fragment or target not in pages:
                continue
            elif unquote(parts.fragment) not in pages[target].names:
                bad.append(f"{path}: no part {link}")
    print(*bad, f"{checked} links of {len(pages)} pages, {len(bad)} lead nowhere", sep="\n")
    return len(bad)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()) > 0)
