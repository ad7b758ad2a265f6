"""What the repository cites is in it: each section of `docs/methods.md`, and no page from outside."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/methods.md").read_text(encoding="utf-8")
FOLDERS = ("bench", "methods", "tasks", "tests", "docs")
SUFFIXES = {".py", ".md", ".toml", ".json", ".html", ".js"}

WHERE = r"(?:§\d+(?:\.\d+)?|#\d+|\d+\.\d+)"
CITED = re.compile(rf"docs/methods\.md,? ({WHERE}(?:(?:, | and | to |; |-| ){WHERE})*)")
OUTSIDE = re.compile(r"(?<![\w/.])(?<!\]\()(?:methods|architecture|revisions|house|peers|style)\.md\b")


def files() -> Iterator[Path]:
    yield from (path for path in ROOT.glob("*.md"))
    yield from (ROOT / "results").glob("**/*.md")
    for folder in FOLDERS:
        yield from (path for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES)


def joined(text: str) -> str:
    """As one line: a citation may go on in the next line of a docstring or a comment, or in the next string."""
    return re.sub(r'"?\s*\n\s*(?:#\s)?"?', " ", text)


TEXTS = {
    path.relative_to(ROOT).as_posix(): joined(path.read_text(encoding="utf-8"))
    for path in files()
    if path != Path(__file__).resolve()  # its examples are made up
}


def sections(citation: str) -> set[str]:
    """`§0.16-0.17` and `§6 #8, #9` as the numbers that they name.

    Of `§6 #8` the section is `#8`.
    """
    return {number.lstrip("§") for number in re.findall(WHERE, re.sub(r"§6 (?=#)", "", citation))}


def headings() -> set[str]:
    return set(re.findall(r"^#{2,4} (#\d+|\d+(?:\.\d+)?)\.? ", PAGE, re.MULTILINE))


CITATIONS = {
    name: {number for found in CITED.findall(text) for number in sections(found)} for name, text in TEXTS.items()
}


@pytest.mark.parametrize("name", sorted(name for name, cited in CITATIONS.items() if cited))
def test_cited_sections_are_there(name: str) -> None:
    assert CITATIONS[name] <= headings()


def test_every_disagreement_has_its_number() -> None:
    numbers = re.findall(r"^#### #(\d+) ", PAGE, re.MULTILINE)
    assert [int(number) for number in numbers] == list(range(1, 75))


def test_citations_are_found() -> None:
    assert {"0.19", "1.4", "2.0", "2.12", "3", "4", "#46"} <= set.union(*CITATIONS.values())
    assert OUTSIDE.search("(architecture.md §6)")
    assert not OUTSIDE.search("[definitions](methods.md#4-metrics)")  # a page beside it, which test_readme looks for


def test_nothing_outside_of_the_repository_is_cited() -> None:
    found = {name: OUTSIDE.findall(text) for name, text in TEXTS.items()}
    assert {name: cited for name, cited in found.items() if cited} == {}
