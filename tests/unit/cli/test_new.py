"""`bench new` writes what works, under a name that nothing else has, and never over a file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import registry
from bench.api import UserError
from bench.api.errors import home_of
from bench.cli import new
from bench.testing import check_plugin
from tests.kit.command import bench

KINDS = pytest.mark.parametrize(
    ("kind", "template"), [("method", "untrained"), ("method", "trained"), ("task", "choice"), ("task", "open")]
)
BOTH = {"first_try.py", "test_first_try.py"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    assert not [path for path in tmp_path.rglob("*") if path.suffix not in {".py", ".pyc", ""}]


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@KINDS
def test_plugin_keeps_every_rule_and_a_method_is_unpublished(folder: Path, kind: new.Kind, template: str) -> None:
    path = new.write(kind, "first-try", template)
    assert files(folder) == BOTH
    for text in (file.read_text(encoding="utf-8") for file in folder.iterdir()):
        assert not re.search(r"my.(method|task)", text, re.IGNORECASE)  # no placeholder is left
        assert max(map(len, text.splitlines())) <= 120
        assert "FirstTry" in text
    results = check_plugin(path)
    assert len(results) > 9
    assert all(result.ok for result in results)
    assert [result.message for result in results if result.message] == ["unpublished: it has no reference"] * (
        kind == "method"
    )


@KINDS
@pytest.mark.parametrize("name", ["batch", "task", "hidden", "needs", "format", "none"])
def test_plugin_may_have_a_name_that_its_file_uses(kind: new.Kind, template: str, name: str) -> None:
    path = new.write(kind, name, template, Path(f"own_{name}.py"))
    loaded = registry.methods([path]) if kind == "method" else registry.tasks([path])
    assert home_of(loaded.get(name)).name == path.name  # type: ignore[union-attr]


@KINDS
def test_plugin_named_as_in_the_docs_has_a_plain_class(kind: new.Kind, template: str) -> None:
    text = new.write(kind, f"my-{kind}", template).read_text(encoding="utf-8")
    assert f"class My{kind.title()}(" in text


@pytest.mark.parametrize(
    ("name", "out", "complaint"),
    [
        ("Upper", None, "expected a name of lower-case words joined by '-', e.g. my-method, got 'Upper'"),
        *((name, None, "expected a name of lower-case words")
          for name in ("two words", "snake_case", "-dash", "dash-", "9lives", "", "../up")),
        ("ptrue", None, "there is a method 'ptrue' already; choose another name"),
        ("atlas-choice", None, "there is a task 'atlas-choice' already"),
        ("untrained", None, "'untrained' means a group of methods"),
        ("class", None, "expected a file that Python can import, e.g. my_class.py, got class.py"),
        ("json", None, "json.py would hide the module 'json'"),
        ("numpy", None, "numpy.py would hide the module 'numpy'"),
        ("bench", None, "bench.py would hide the module 'bench'"),
        ("first-try", "x.txt", "expected a file that Python can import"),
        ("first-try", "a-b.py", "expected a file that Python can import"),
        ("first-try", "no/such/x.py", "there is no folder no/such; make it first"),
        ("first-try", "os.py", "os.py would hide the module 'os'"),
    ],
)  # fmt: skip
def test_plugin_that_cannot_be_had_is_refused(folder: Path, name: str, out: str | None, complaint: str) -> None:
    with pytest.raises(UserError, match=re.escape(complaint)):
        new.write("method", name, "untrained", None if out is None else Path(out))
    assert files(folder) == set()


@pytest.mark.parametrize("there", sorted(BOTH))
def test_plugin_is_not_written_over_a_file_or_link(folder: Path, there: str) -> None:
    (folder / there).write_text("mine", encoding="utf-8")
    with pytest.raises(UserError, match=f"{there} is there already and is not overwritten"):
        new.write("method", "first-try", "untrained")
    assert (folder / there).read_text(encoding="utf-8") == "mine"
    assert files(folder) == {there}
    (folder / there).unlink()
    (folder / there).symlink_to(folder / "elsewhere.py")  # to nowhere
    with pytest.raises(UserError, match="is there already"):
        new.write("method", "first-try", "untrained")
    assert not (folder / "elsewhere.py").exists()


def test_plugin_is_written_with_its_tests_or_not(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Path.open

    def full(path: Path, *arguments: str, **options: str) -> object:
        if path.name.startswith("test_") and "x" in arguments:
            raise OSError(28, "No space left on device", str(path))
        return whole(path, *arguments, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(UserError, match=r"test_first_try.py can't be written: No space left on device"):
        new.write("method", "first-try", "untrained")
    assert files(folder) == set()


@pytest.mark.parametrize(
    ("words", "run"),
    [
        (("method", "first-try", "--trained"), "--plugin first_try.py --method first-try --model tiny"),
        (("task", "first-try", "--open"), "--plugin first_try.py --task first-try --method ptrue --model tiny"),
    ],
)
def test_command_says_what_to_do_next(words: tuple[str, ...], run: str) -> None:
    done = bench("new", *words)
    assert done.returncode == 0
    for command in ("bench check first_try.py", f"bench run {run}", "pytest test_first_try.py"):
        assert f"  {command}\n" in done.stdout
