"""`bench new` writes what works, under a name that nothing else has, and never over a file."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench import registry
from bench.api import UserError
from bench.api.errors import home_of
from bench.cli import new
from bench.testing import check_plugin

KINDS = [("method", "untrained"), ("method", "trained"), ("task", "choice"), ("task", "open")]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    assert not [path for path in tmp_path.rglob("*") if path.suffix not in {".py", ".pyc", ""}]


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize(("kind", "template"), KINDS)
def test_what_it_writes_keeps_every_rule_without_a_remark(folder: Path, kind: new.Kind, template: str) -> None:
    path = new.write(kind, "first-try", template)
    assert files(folder) == {"first_try.py", "test_first_try.py"}
    results = check_plugin(path)
    assert len(results) > 9
    assert [result for result in results if not result.ok or result.message] == []


@pytest.mark.parametrize(("kind", "template"), KINDS)
def test_no_placeholder_is_left_and_lines_stay_short(folder: Path, kind: new.Kind, template: str) -> None:
    new.write(kind, "first-try", template)
    for path in folder.iterdir():
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"my.(method|task)", text, re.IGNORECASE)
        assert max(map(len, text.splitlines())) <= 120
        assert "FirstTry" in text


@pytest.mark.parametrize(("kind", "template"), KINDS)
def test_the_name_that_the_docs_use_gives_a_plain_class(kind: new.Kind, template: str) -> None:
    text = new.write(kind, f"my-{kind}", template).read_text(encoding="utf-8")
    assert f"class My{kind.title()}(" in text


@pytest.mark.parametrize(("kind", "template"), KINDS)
@pytest.mark.parametrize("name", ["batch", "task", "hidden", "needs", "format", "none"])
def test_a_name_that_the_file_uses_otherwise_still_works(kind: new.Kind, template: str, name: str) -> None:
    path = new.write(kind, name, template, Path(f"own_{name}.py"))
    loaded = registry.methods([path]) if kind == "method" else registry.tasks([path])
    assert home_of(loaded.get(name)).name == path.name  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("Upper", "expected a name of lower-case words joined by '-', e.g. my-method, got 'Upper'"),
        ("two words", "expected a name of lower-case words"),
        ("snake_case", "expected a name of lower-case words"),
        ("-dash", "expected a name of lower-case words"),
        ("dash-", "expected a name of lower-case words"),
        ("9lives", "expected a name of lower-case words"),
        ("", "expected a name of lower-case words"),
        ("../up", "expected a name of lower-case words"),
        ("ptrue", "there is a method 'ptrue' already; choose another name"),
        ("atlas-choice", "there is a task 'atlas-choice' already"),
        ("untrained", "'untrained' means a group of methods"),
        ("class", "expected a file that Python can import, e.g. my_class.py, got class.py"),
        ("json", "json.py would hide the module 'json'"),
        ("numpy", "numpy.py would hide the module 'numpy'"),
        ("bench", "bench.py would hide the module 'bench'"),
    ],
)
def test_a_name_that_cannot_be_had_is_refused(folder: Path, name: str, complaint: str) -> None:
    with pytest.raises(UserError, match=re.escape(complaint)):
        new.write("method", name, "untrained")
    assert files(folder) == set()


@pytest.mark.parametrize(
    ("out", "complaint"),
    [
        ("x.txt", "expected a file that Python can import"),
        ("a-b.py", "expected a file that Python can import"),
        ("no/such/x.py", "there is no folder no/such; make it first"),
        ("os.py", "os.py would hide the module 'os'"),
    ],
)
def test_a_file_that_cannot_be_had_is_refused(folder: Path, out: str, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        new.write("task", "first-try", "choice", Path(out))
    assert files(folder) == set()


@pytest.mark.parametrize("there", ["first_try.py", "test_first_try.py"])
def test_nothing_is_overwritten(folder: Path, there: str) -> None:
    (folder / there).write_text("mine", encoding="utf-8")
    with pytest.raises(UserError, match=f"{there} is there already and is not overwritten"):
        new.write("method", "first-try", "untrained")
    assert (folder / there).read_text(encoding="utf-8") == "mine"
    assert files(folder) == {there}


def test_a_link_to_nowhere_is_not_followed(folder: Path) -> None:
    (folder / "first_try.py").symlink_to(folder / "elsewhere.py")
    with pytest.raises(UserError, match="is there already"):
        new.write("method", "first-try", "untrained")
    assert not (folder / "elsewhere.py").exists()


def test_both_files_are_written_or_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Path.open

    def full(path: Path, *arguments: str, **options: str) -> object:
        if path.name.startswith("test_") and "x" in arguments:
            raise OSError(28, "No space left on device", str(path))
        return whole(path, *arguments, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(UserError, match=r"test_first_try.py can't be written: No space left on device"):
        new.write("method", "first-try", "untrained")
    assert files(folder) == set()


def test_it_says_what_to_do_next() -> None:
    done = CliRunner().invoke(new.app, ["method", "first-try", "--trained"], env={"COLUMNS": "200"})
    assert done.exit_code == 0
    assert "  bench check first_try.py\n" in done.output
    assert "  bench run --plugin first_try.py --method first-try --model tiny\n" in done.output
    assert "  pytest test_first_try.py\n" in done.output
    assert all(name in sys.modules for name in ("bench.api.methods", "bench.api.signals"))
    done = CliRunner().invoke(new.app, ["task", "second-try", "--open"], env={"COLUMNS": "200"})
    assert "  bench run --plugin second_try.py --task second-try --method ptrue --model tiny\n" in done.output
