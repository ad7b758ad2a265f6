"""Mutation testing: which changes are drawn, how kept ones are found again, and what an attempt says."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.mutants import __main__ as command
from tests.mutants import changes

SOURCE = '''"""Module."""

LIMIT = 3


def clipped(value: int, *, low: int = 0) -> int:
    """Clip a value."""
    if value < low and low != 1:
        print("low", flush=True)
        return low
    return min(value - low, LIMIT)
'''


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A repository with one module."""
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "__init__.py").touch()
    (tmp_path / "bench" / "clip.py").write_text(SOURCE, encoding="utf-8")
    for module in (changes, command):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    caches: list[Callable[[], None]] = [
        each.cache_clear for each in (changes.definitions, changes._candidates, changes._files)
    ]
    for clear in caches:
        clear()
    yield tmp_path
    for clear in caches:
        clear()


def test_mutants_of_each_kind(root: Path) -> None:
    made = {(each.kind, each.new.strip()) for each in changes.changes_of("bench/clip.py")}
    assert made == {
        ("argument", 'print("low", )'),
        ("arithmetic", "return min(value + low, LIMIT)"),
        ("call", "pass"),
        ("comparison", "if value <= low and low != 1:"),
        ("comparison", "if value < low and low == 1:"),
        ("condition", "if value < low or low != 1:"),
        ("condition", "if not (value < low and low != 1):"),
        ("constant", "LIMIT = 4"),
        ("constant", "def clipped(value: int, *, low: int = 1) -> int:"),
        ("constant", "if value < low and low != 2:"),
        ("constant", 'print("low", flush=False)'),
        ("return", "return None"),
    }


def test_mutant_is_caught_by_the_test_that_fails(root: Path) -> None:
    """One test sees the limit, none sees the comparison's edge; after a change the same copy serves the next."""
    test = "from bench.clip import clipped\n\n\ndef test_limit():\n    assert clipped(9) == 3\n"
    (root / "test_clip.py").write_text(test, encoding="utf-8")
    for words in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *words], cwd=root, check=True)
    copy = command._copied(root / "copy")
    tests = ["test_clip.py::test_limit"]
    limit, edge = (
        next(each for each in changes.changes_of("bench/clip.py") if each.new.strip().startswith(text))
        for text in ("LIMIT = 4", "if value <= low and")
    )
    for change, expected in ((limit, ("caught", tests[0])), (edge, ("survived", "1 tests pass"))):
        found = command._attempted(change, tests, copy)
        assert (found.result, found.by) == expected
        assert (copy / "bench" / "clip.py").read_text(encoding="utf-8") == SOURCE


def test_mutant_is_tried_first_on_what_caught_it(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is measured where that test fails again; what fails without any change catches nothing."""
    monkeypatch.setattr(command, "BUILD", root / "build")
    test = "from bench.clip import clipped\n\n\ndef test_limit():\n    assert clipped(9) == 3\n"
    (root / "test_clip.py").write_text(test, encoding="utf-8")
    for words in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *words], cwd=root, check=True)
    (limit,) = (each for each in changes.changes_of("bench/clip.py") if each.new == "LIMIT = 4")
    known = [replace(limit, name="1-00", by="test_clip.py::test_limit")]
    assert command._tried(known, again=False)["1-00"].test == known[0].by

    (root / "test_clip.py").write_text(test.replace("== 3", "== 5"), encoding="utf-8")
    with pytest.raises(SystemExit, match=r"test_clip.py::test_limit fails without any change"):
        command._tried(known, again=True)
