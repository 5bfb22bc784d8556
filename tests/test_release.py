"""What a release says of itself: version, citation, recipe of conda-forge, long description."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import hforest

ROOT = Path(__file__).resolve().parents[1]


def read(name):
    path = ROOT / name
    if not path.exists():
        pytest.skip(f"{name} is part of the checkout alone")
    return path.read_text(encoding="utf-8")


def test_the_citation_and_the_changelog_have_the_version():
    assert f"\nversion: {hforest.__version__}\n" in read("CITATION.cff")
    assert read("docs/changelog.md").startswith(f"# Changelog\n\n## {hforest.__version__}, ")


def test_texts_of_the_citation_stand_on_the_page():
    page = (
        read("docs/cite.md").replace("{\\`o}", "ò").replace(" -- ", " – ").translate({123: None, 125: None})
    )
    entries = page.partition("```bibtex\n")[2].partition("```")[0].split("\n@")[1:]
    texts = read("CITATION.cff").partition("\nreferences:\n")[2].split("  - type: ")[1:]
    assert len(texts) == len(entries) >= 9
    for text in texts:
        title = re.search(r'\n    title: "?(.+?)"?\n', text)[1]
        (entry,) = (entry for entry in entries if f"title={title}," in entry)
        assert re.findall(r"family-names: (.+?)[,}]", text) == [
            name.partition(",")[0]
            for name in re.search(r"author=(.+?),?\n", entry + "\n")[1].split(" and ")
            if "," in name
        ]
        for value in re.findall(r'(?:year|start|end|doi|url|value|collection-title): "?([^"\n}]+)', text):
            assert value in entry, (title, value)


def test_the_recipe_has_the_requirements_of_the_package():
    recipe = read("packaging/recipe.yaml")
    project = tomllib.loads(read("pyproject.toml"))

    def section(name):
        """Returns the requirements of a section, without blanks."""
        lines = re.search(rf"^  {name}:\n((?:    - .+\n)+)", recipe, re.MULTILINE)[1].splitlines()
        return {line.removeprefix("    - ").replace(" ", "") for line in lines}

    assert f'\n  version: "{hforest.__version__}"\n' in recipe
    assert section("host") == {"python", "pip", *project["build-system"]["requires"]}
    assert section("run") == {"python", *project["project"]["dependencies"]}
    bound = project["project"]["requires-python"].removeprefix(">=")
    assert f'match(python, "<{bound}")' in recipe
    assert f"\n  summary: {project['project']['description']}\n" in recipe
    assert f"\n  license: {project['project']['license']}\n" in recipe


@pytest.mark.parametrize(
    "url", ["", "https://git.example/owner/hforest", "https://git.example/owner/hforest/"]
)
def test_links_of_the_long_description_lead_to_the_repository(url):
    pytest.importorskip("Cython")
    code = "import setup; print(setup.long_description(), end='')"
    command, environment = [sys.executable, "-c", code], {**os.environ, "HFOREST_URL": url, "PYTHONUTF8": "1"}
    text = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=True).stdout.decode()
    readme = read("README.md")
    if not url:
        assert text == readme
        return
    base = url.rstrip("/")
    prefixes = {"!": f"{base}/raw/v{hforest.__version__}/", "": f"{base}/blob/v{hforest.__version__}/"}
    link = r"(!?)\[([^]]*)\]\(([^)]*)\)"
    before, after = re.findall(link, readme), re.findall(link, text)
    assert len(before) == len(after) > 30
    for (kind, words, target), found in zip(before, after, strict=True):
        whole = target if target.startswith(("http", "#")) else prefixes[kind] + target
        assert found == (kind, words, whole)
    assert re.sub(link, "", text) == re.sub(link, "", readme)


def test_an_address_that_is_none_ends_the_build():
    pytest.importorskip("Cython")
    command, environment = (
        [sys.executable, "-c", "import setup"],
        {**os.environ, "HFOREST_URL": "owner/hforest"},
    )
    build = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert build.returncode == 1
    assert "HFOREST_URL: expected an address" in build.stderr
