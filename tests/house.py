"""The house in numbers: how much code there is, how long functions are, which names stand twice.

`make house` prints them, and fails where imports form a circle or where there is more code than `CODE_LINES`. Layers of
imports are a contract of `pyproject.toml`. Code lines are those that are neither blank nor comment nor docstring.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
PACKAGES = ("bench", "methods", "tasks")
CODE_LINES = 43_411
"""Most code lines of all packages together; a change that adds a feature raises it by what the feature is worth."""
LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
TEMPLATES = "bench/cli/templates"
"""Code that users get, not code of the harness: its class names may stand twice."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Source:
    path: str
    text: str

    def __post_init__(self) -> None:
        self.tree = ast.parse(self.text)
        tokens = list(tokenize.generate_tokens(io.StringIO(self.text).readline))
        lines = {n for t in tokens if t.type not in LAYOUT for n in range(t.start[0], t.end[0] + 1)}
        for node in ast.walk(self.tree):
            match node:
                case ast.Expr(value=ast.Constant(value=str())):
                    lines -= set(range(node.lineno, (node.end_lineno or 0) + 1))
        self.lines = lines
        """Numbers of its code lines."""

    @property
    def functions(self) -> list[Function]:
        return [node for node in ast.walk(self.tree) if isinstance(node, Function)]

    @property
    def classes(self) -> list[str]:
        return [node.name for node in ast.walk(self.tree) if isinstance(node, ast.ClassDef)]


def sources() -> list[Source]:
    paths = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return [Source(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")) for path in paths]


def code_lines(files: Iterable[Source]) -> int:
    return sum(len(file.lines) for file in files)


def twice(files: Iterable[Source]) -> dict[str, int]:
    names = Counter(name for file in files if not file.path.startswith(TEMPLATES) for name in file.classes)
    return {name: count for name, count in names.most_common() if count > 1}


def circle(imports: Mapping[str, set[str]]) -> list[str]:
    """One circle of imports; empty where there is none."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def module_imports() -> dict[str, set[str]]:
    """Imports of each module by another one of these packages, without those for type checkers."""
    graph = grimp.build_graph(*PACKAGES, exclude_type_checking_imports=True)
    return {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}


def report(files: list[Source]) -> Iterator[str]:
    functions, lines = sum(len(file.functions) for file in files), code_lines(files)
    for package in PACKAGES:
        yield f"{code_lines(f for f in files if f.path.startswith(package)):>8,} code lines in {package}"
    yield f"{lines:>8,} code lines, at most {CODE_LINES:,}"
    yield f"{lines / functions:>8.1f} code lines a function, in {len(files)} files and {functions:,} functions"
    names = twice(files)
    yield f"{len(names):>8,} class names stand twice: {', '.join(f'{name} ({n})' for name, n in names.items())}"


def main() -> int:
    files, found = sources(), circle(module_imports())
    for line in report(files):
        print(line)
    if found:
        print(f"circle of imports: {' -> '.join(found)}")
    return int(bool(found) or code_lines(files) > CODE_LINES)


if __name__ == "__main__":
    sys.exit(main())
