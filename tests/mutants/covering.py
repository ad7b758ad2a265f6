"""Which tests run a line, and how long each takes: from one run of the whole suite under coverage."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import chain, zip_longest
from pathlib import Path

from coverage import CoverageData

from tests.mutants.changes import PACKAGES, ROOT, Change, definitions

MARKED_OUT = "not slow and not gpu and not network and not readme"
BUILD = ROOT / "build" / "mutants"
_SETTINGS = "[run]\nbranch = true\nsource = {packages}\nrelative_files = true\ndata_file = {data}\n"


def digests(*folders: str) -> dict[str, str]:
    """SHA-256 of each committed file below folders; the changes themselves are left out."""
    listed = subprocess.run(["git", "ls-files", "-z", *folders], cwd=ROOT, check=True, capture_output=True, text=True)
    paths = [name for name in listed.stdout.split("\0") if name and not name.startswith("tests/mutants/")]
    return {name: hashlib.sha256((ROOT / name).read_bytes()).hexdigest() for name in paths if (ROOT / name).is_file()}


def digest(*folders: str) -> str:
    return hashlib.sha256(json.dumps(digests(*folders)).encode()).hexdigest()[:16]


class Covering:
    def __init__(self, folder: Path) -> None:
        self.data = CoverageData(str(folder / "coverage"))
        self.data.read()
        seconds = json.loads((folder / "durations.json").read_text(encoding="utf-8"))
        self.seconds: dict[str, float] = {name: each for name, each in seconds.items() if not name.endswith("::setup")}
        self.measured = self.data.measured_files()

    def tests(self, change: Change, seconds: float) -> list[str]:
        """Tests to run for a change, at most so many seconds of them: those that run its line, else what is next to it.

        Cases named after the plugin, and files that quote the words of the line, name its function, or are named after
        its source give half, the quickest tests first; then each file gives its quickest test, its second one, and so
        on. What tests run in another process isn't covered, so a file with the source's name counts as running it.
        """
        beside = {test for test in self.seconds if Path(test.partition("::")[0]).stem == f"test_{change.source.stem}"}
        known = self._at(change) | beside
        by_file: dict[str, list[str]] = defaultdict(list)
        for test in sorted(known & self.seconds.keys(), key=lambda test: (self.seconds[test], test)):
            by_file[test.partition("::")[0]].append(test)
        stem, name = change.source.stem, change.function.rpartition(".")[2]
        named = re.compile(rf"\b{name}\b" if name else r"(?!)")
        said = [text.strip() for text in re.findall(r"[^\"'{}]{8,}", change.old) if text.count(" ") > 1]
        telling = {file for file in by_file if any(text in _text(file) for text in said)}
        own = telling | {file for file in by_file if stem in Path(file).stem or named.search(_text(file))}
        folder = change.source.parent.name
        plugin = (folder if stem == "method" else stem).replace("_", "-")
        its_cases = re.compile(rf"\[(.*-)?{re.escape(plugin)}(-.*)?\]")
        files = sorted(by_file, key=lambda f: (f not in telling, f not in own, folder not in Path(f).parts, f))
        cases = {test for test in chain.from_iterable(by_file.values()) if its_cases.search(test)}
        owned = cases.union(*(by_file[file] for file in own))
        rank = {test: (test not in cases, test.partition("::")[0] not in telling, self.seconds[test]) for test in owned}
        first = sorted(owned, key=lambda test: (rank[test], test))
        others = filter(None, chain.from_iterable(zip_longest(*(by_file[file] for file in files))))
        taken: dict[str, float] = {}
        for tests, most in ((first, seconds / 2), (others, seconds)):
            for test in tests:
                if not taken or sum(taken.values()) + self.seconds[test] <= most:
                    taken[test] = self.seconds[test]
        return list(taken)

    def _at(self, change: Change) -> set[str]:
        """Tests that run the line; else its function, whatever names what it defines, its file; else that name it."""
        if change.tests:
            return {test for test in self.seconds if test.startswith(change.tests)}
        if change.source.suffix == ".py":
            lines = self._lines(change.file)
            statement, names = _statement(change)
            around = next((node for node, name in definitions(change.file) if name == change.function), None)
            body = range(around.body[0].lineno, (around.end_lineno or 0) + 1) if around else range(0)
            for tests in (
                _union(lines, statement) if change.function and not isinstance(around, ast.ClassDef) else set(),
                _union(lines, body) if not isinstance(around, ast.ClassDef) else set(),
                self._mentioning(names or {change.function.rpartition(".")[2]} - {""}),
                _union(lines, lines),
            ):
                if tests:
                    return tests
        named = re.compile(rf"\b{re.escape(change.source.stem)}\b")
        return {test for test in self.seconds if named.search(_text(test.partition("::")[0]))}

    @cache  # noqa: B019 - one object in a process
    def _lines(self, file: str) -> dict[int, set[str]]:
        contexts = self.data.contexts_by_lineno(file) if file in self.measured else {}
        return {line: {name.rpartition("|")[0] for name in names if name} for line, names in contexts.items()}

    def _mentioning(self, names: Iterable[str]) -> set[str]:
        """Tests that run a line with one of these names."""
        pattern = re.compile("|".join(rf"\b{re.escape(name)}\b" for name in names) or r"(?!)")
        found: set[str] = set()
        for file in self.measured:
            text = _text(file)
            if pattern.search(text):
                lines = [n for n, line in enumerate(text.splitlines(), start=1) if pattern.search(line)]
                found |= _union(self._lines(file), lines)
        return found


def _union(lines: dict[int, set[str]], wanted: Iterable[int]) -> set[str]:
    return set().union(*(lines.get(line, ()) for line in wanted))


def _statement(change: Change) -> tuple[range, set[str]]:
    """Lines of the innermost statement around a change, of a compound one those of its head, and names it defines."""
    tree = ast.parse(change.source.read_text(encoding="utf-8"))
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    inner = max((node for node in statements if _first(node) <= change.line <= (node.end_lineno or 0)), key=_first)
    body = getattr(inner, "body", None)
    last = body[0].lineno - 1 if isinstance(body, list) and body[0].lineno > change.line else inner.end_lineno or 0
    return range(_first(inner), max(last, _first(inner)) + 1), set(_defined(inner))


def _first(node: ast.stmt) -> int:
    """First line of a statement, its decorators included."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min(node.lineno, *(each.lineno for each in decorators)) if decorators else node.lineno


def _defined(node: ast.stmt) -> Iterator[str]:
    for target in getattr(node, "targets", [getattr(node, "target", node)]):
        if isinstance(target, ast.Name):
            yield target.id
        elif isinstance(target, ast.FunctionDef | ast.ClassDef):
            yield target.name


@cache
def _text(file: str) -> str:
    return (ROOT / file).read_text(encoding="utf-8")


def measured() -> Covering:
    folder = BUILD / f"coverage-{digest(*PACKAGES)}"
    folder.mkdir(parents=True, exist_ok=True)
    done, durations = folder / "tests.json", folder / "durations.json"
    known = json.loads(done.read_text(encoding="utf-8")) if done.is_file() else {}
    now = {name: sha for name, sha in digests("tests").items() if Path(name).match("test_*.py")}
    if new := [name for name, sha in now.items() if known.get(name) != sha]:
        seconds = json.loads(durations.read_text(encoding="utf-8")) if known else {}
        seconds = {name: spent for name, spent in seconds.items() if name.partition("::")[0] in now.keys() - {*new}}
        seconds |= _run(folder, new if known else [])
        durations.write_text(json.dumps(seconds), encoding="utf-8")
        done.write_text(json.dumps(now), encoding="utf-8")
    return Covering(folder)


def _run(folder: Path, files: list[str]) -> dict[str, float]:
    """Run test files, or all, under coverage, and add it to what is known; returns the seconds of each test."""
    settings, seconds, log = folder / "coveragerc", folder / "last.json", folder / "log"
    settings.write_text(_SETTINGS.format(packages=",".join(PACKAGES), data=folder / "last"), encoding="utf-8")
    command = [
        sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", "-m", MARKED_OUT, "--cov",
        f"--cov-config={settings}", "--cov-context=test", "--cov-report=", *files,
    ]  # fmt: skip
    environment = {**os.environ, "DURATIONS_FILE": str(seconds)}
    with log.open("wb") as out:
        code = subprocess.run(command, cwd=ROOT, check=False, stdout=out, stderr=out, env=environment).returncode
    if code not in {0, 5}:
        sys.exit(f"the tests fail without any change (exit code {code}); see {log}")
    known, last = CoverageData(str(folder / "coverage")), CoverageData(str(folder / "last"))
    last.read()
    known.read()
    known.update(last)
    known.write()
    return dict(json.loads(seconds.read_text(encoding="utf-8")))
