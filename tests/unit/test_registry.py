"""How plugins are found, and what a user reads when one can't be."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bench import registry
from bench.api import Batch, ConfidenceMethod, ContractError, FloatArray, Needs, UserError, registration
from bench.registry import METHOD, PluginEntry, Registry

ROOT = Path(__file__).parents[2]

METHOD_FILE = """
import numpy as np
from bench.api import ConfidenceMethod, Needs, method

@method("{name}")
class Half(ConfidenceMethod):
    "Always one half."
    reference = "arXiv:0000.00000"
    needs = Needs()

    def predict(self, batch):
        return np.full(len(batch), 0.5)
"""

TASK_FILE = """
from bench.api import Format, PromptStyle, Task, TaskCard, task

@task("{name}")
class Nothing(Task):
    "No questions."
    format = Format.CHOICE
    card = TaskCard(license="MIT", version=1, splits={{}}, sizes={{}}, options=(2, 2), why="none")
    style = PromptStyle(header="", footer="", context="")

    def questions(self, split):
        return iter(())
"""


class Half(ConfidenceMethod):
    """One half."""

    reference = "arXiv:0000.00000"
    needs = Needs()

    def predict(self, batch: Batch) -> FloatArray:
        return np.full(len(batch), 0.5)


@pytest.fixture(autouse=True, scope="module")
def loaded() -> None:
    """Built-ins declare themselves once a process, when they are imported: before a test puts the list back."""
    registry.methods()
    registry.tasks()


def _registry(*entries: PluginEntry[ConfidenceMethod]) -> Registry[ConfidenceMethod]:
    return Registry(METHOD, entries)


def _entry(name: str, module: str = "methods.x", origin: str = "built-in") -> PluginEntry[ConfidenceMethod]:
    return PluginEntry(name, Half, module, origin)


BROKEN: PluginEntry[ConfidenceMethod] = PluginEntry(
    "sad", None, "sad_plugin", "confbench-sad 0.1", "ImportError: no module 'x'"
)


# --- the record of what is there --------------------------------------------------------------------------------------


def test_names_are_sorted_and_broken_ones_are_listed_last() -> None:
    found = _registry(_entry("b"), BROKEN, _entry("a"))
    assert found.names() == ("a", "b")
    assert [e.name for e in found.entries()] == ["a", "b", "sad"]
    assert found.get("a") is Half


def test_unknown_name_gets_a_suggestion_the_list_and_the_command() -> None:
    with pytest.raises(UserError) as caught:
        _registry(_entry("ccps"), _entry("ptrue")).get("cpps")
    assert str(caught.value) == (
        "Unknown method 'cpps'. Did you mean 'ccps'? Known: ccps, ptrue. See: bench list methods"
    )


def test_unknown_name_that_resembles_nothing_gets_no_suggestion() -> None:
    with pytest.raises(UserError, match=r"Unknown method 'zzz'\. Known: ccps\."):
        _registry(_entry("ccps")).get("zzz")


def test_broken_plugin_hurts_only_who_asks_for_it() -> None:
    found = _registry(_entry("a"), BROKEN)
    assert found.get("a") is Half
    with pytest.raises(UserError, match=r"'sad' of confbench-sad 0\.1 is broken: ImportError: no module 'x'"):
        found.get("sad")
    with pytest.raises(UserError, match=r"Broken plugins: sad\."):
        found.get("other")


def test_name_taken_twice_names_both_modules() -> None:
    with pytest.raises(UserError, match=r"'a': one in methods\.x \(built-in\), one in margin \(margin\.py\)"):
        _registry(_entry("a"), _entry("a", "margin", "margin.py"))


# --- what is installed ------------------------------------------------------------------------------------------------


def _modules_on_disk(folder: str) -> set[str]:
    paths = [p for p in (ROOT / folder).iterdir() if not p.name.startswith(("_", "."))]
    return {p.stem for p in paths if p.suffix == ".py" or (p / "__init__.py").is_file()}


@pytest.mark.parametrize(("load", "folder"), [(registry.methods, "methods"), (registry.tasks, "tasks")])
def test_every_file_in_the_folder_is_registered_by_being_there(
    load: Callable[[], Registry[object]], folder: str
) -> None:
    entries = [e for e in load().entries() if e.origin == registry.BUILT_IN]
    assert {e.module.split(".")[1] for e in entries} == _modules_on_disk(folder)
    assert all(e.plugin is not None for e in entries)


def test_loading_twice_gives_the_same_classes() -> None:
    first, second = registry.tasks(), registry.tasks()
    assert first.names() == second.names()
    assert all(first.get(name) is second.get(name) for name in first.names())


def _python(code: str, *path: Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [*path, ROOT]))},
        cwd=cwd, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["tasks.py", "methods.py"])
def test_foreign_module_that_shadows_ours_is_named(tmp_path: Path, name: str) -> None:
    """A file in the folder where Python or a notebook runs."""
    (tmp_path / name).write_text("raise SystemExit('not ours')\n")
    done = _python(
        """
        import bench
        try:
            bench.run(methods="ptrue", model="tiny", tasks="atlas-choice", limit=2)
        except bench.UserError as error:
            print(error)
        """,
        tmp_path,
        cwd=tmp_path,
    )
    assert str((tmp_path / name).resolve()) in done.stdout, done.stderr
    assert "rename or uninstall" in done.stdout


def test_without_installation_the_command_to_install_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: importlib.metadata.EntryPoints())
    with pytest.raises(UserError, match=r"pip install -e \."):
        registry.methods()


def test_the_built_in_ones_are_had_without_importing_others(monkeypatch):
    real = [p for kind in (registry.METHOD, registry.TASK) for p in importlib.metadata.entry_points(group=kind.group)]
    foreign = importlib.metadata.EntryPoint("margin", "not_there", "confbench.methods")
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda: importlib.metadata.EntryPoints([*real, foreign]))
    assert [entry.name for entry in registry.methods().entries() if entry.error] == ["margin"]
    registry.built_in.cache_clear()  # to be looked for beside that one
    for found in registry.built_in():
        assert {entry.origin for entry in found.entries()} == {registry.BUILT_IN}


def test_the_built_in_ones_are_looked_for_once() -> None:
    """A look through all installed packages takes long, and tables ask for each of their lines."""
    assert registry.built_in() is registry.built_in()


# --- packages of third parties ----------------------------------------------------------------------------------------


def _install(site: Path, value: str, files: dict[str, str]) -> None:
    """What pip leaves behind: the files and a `.dist-info` with an entry point."""
    info = site / "confbench_margin-0.3.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: confbench-margin\nVersion: 0.3\n")
    (info / "entry_points.txt").write_text(f"[confbench.methods]\nmargin = {value}\n")
    for name, text in files.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)


LIST = """
    from bench import registry
    for e in registry.methods().entries():
        if e.origin != "built-in":
            print(e.name, "|", e.module, "|", e.origin, "|", e.error)
"""


@pytest.mark.parametrize(
    ("value", "files", "expected"),
    [
        ("one_file", {"one_file.py": METHOD_FILE.format(name="half")}, "half | one_file | confbench-margin 0.3 | "),
        (
            "pack",
            {"pack/__init__.py": "", "pack/half.py": METHOD_FILE.format(name="half"), "pack/_private.py": "1 / 0"},
            "half | pack.half | confbench-margin 0.3 | ",
        ),
        ("pack", {"pack/__init__.py": METHOD_FILE.format(name="half")}, "half | pack | confbench-margin 0.3 | "),
        (
            "pack",
            {"pack/__init__.py": "", "pack/half.py": METHOD_FILE.format(name="half"), "pack/idle.py": ""},
            "margin | pack | confbench-margin 0.3 | pack.idle registers no method; decorate",
        ),
        (
            "one_file",
            {"one_file.py": "1 / 0"},
            "margin | one_file | confbench-margin 0.3 | one_file can't be imported: ZeroDivisionError: division by",
        ),
        (
            "absent",
            {},
            "margin | absent | confbench-margin 0.3 | absent can't be imported: ModuleNotFoundError: No module named",
        ),
        ("one_file", {"one_file.py": "exit(3)"}, "margin | one_file | confbench-margin 0.3 | SystemExit: 3"),
    ],
)
def test_installed_plugin_is_listed_whole_or_as_broken(
    tmp_path: Path, value: str, files: dict[str, str], expected: str
) -> None:
    _install(tmp_path, value, files)
    done = _python(LIST, tmp_path)
    (line,) = done.stdout.splitlines() or [done.stderr]
    assert line.startswith(expected)


# --- plugin files -----------------------------------------------------------------------------------------------------


def _write(folder: Path, text: str, name: str = "plugin.py") -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_plugin_file_is_loaded_once_and_said_to_have_run(tmp_path: Path) -> None:
    path = _write(tmp_path, METHOD_FILE.format(name="from-a-file") + TASK_FILE.format(name="task-from-a-file"))
    first = registry.methods([path])
    assert first.notes == (f"--plugin {path}: the code in this file was run",)
    assert [e.origin for e in first.entries() if e.name == "from-a-file"] == [str(path)]
    assert registry.methods([path]).get("from-a-file") is first.get("from-a-file")
    assert "task-from-a-file" in registry.tasks([path]).names()
    assert "from-a-file" not in registry.methods().names()


def test_file_that_registers_only_tasks_is_fine_when_methods_are_loaded(tmp_path: Path) -> None:
    path = _write(tmp_path, TASK_FILE.format(name="only-a-task"))
    assert registry.methods([path]).names() == registry.methods().names()


def test_file_that_changed_is_run_again(tmp_path: Path) -> None:
    path = _write(tmp_path, METHOD_FILE.format(name="before"))
    registry.methods([path])
    _write(tmp_path, METHOD_FILE.format(name="after"))
    names = registry.methods([path]).names()
    assert "after" in names
    assert "before" not in names


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("raise RuntimeError('boom')", "can't be imported: RuntimeError: boom"),
        ("import no_such_package", "can't be imported: ModuleNotFoundError: No module named 'no_such_package'"),
        ("def f(:", "can't be imported: SyntaxError"),
        ("raise SystemExit(0)", "can't be imported: SystemExit: 0"),
        ("x = 1", "registers nothing"),
        (METHOD_FILE.format(name="a") + METHOD_FILE.format(name="a"), "Two methods are called 'a'"),
        (METHOD_FILE.format(name="../a"), "expected a name of lower-case words"),
        (METHOD_FILE.format(name="all"), "other than 'paper' and 'untrained' and 'trained' and 'all'"),
        (METHOD_FILE.format(name="paper"), "other than 'paper'"),
        ("from bench.api import method\n@method('a')\nclass A: pass", "expected a subclass of ConfidenceMethod"),
        ("from bench.api import method\n@method('a')\ndef a(): pass", "expected a subclass of ConfidenceMethod"),
        (
            "from bench.api import *\n@method('a')\nclass A(ConfidenceMethod):\n  reference = ''\n",
            "A lacks predict, needs",
        ),
        (METHOD_FILE.format(name="a") + "method('b')(Half)", "also registered as 'b'; make a subclass for each"),
    ],
)
def test_plugin_file_that_cannot_be_used_is_named_with_the_reason(tmp_path: Path, text: str, reason: str) -> None:
    path = _write(tmp_path, text)
    declared = list(registration.DECLARED)
    for _ in range(2):  # the second try must not find leavings of the first
        with pytest.raises(UserError) as caught:
            registry.methods([path])
        assert str(path) in str(caught.value)
        assert reason in str(caught.value)
    registration.DECLARED[:] = declared


def test_an_edit_within_a_second_runs_also_where_it_is_as_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python would take the bytecode of before, since it goes by whole seconds and by length."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = tmp_path / "edited.py"
    for value in range(3):
        path.write_text(f"VALUE = {value}\n", encoding="utf-8")
        os.utime(path, (1e9, 1e9))
        assert value == sys.modules[registry.run_file(path)].VALUE


def test_plugin_file_that_is_not_there_or_not_python(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere\.py, given with --plugin: No such file"):
        registry.methods([tmp_path / "nowhere.py"])
    with pytest.raises(UserError, match=r"ending in \.py"):
        registry.methods([_write(tmp_path, "x = 1", "notes.txt")])


@pytest.mark.parametrize(
    ("needs", "reason"),
    [
        (
            "needs = Needs(predict=frozenset({TokenIds(Of.GOLD)}))",
            r"TokenIds\(of=Of.GOLD\), which tells the right answer",
        ),
        ("needs = Needs(predict=frozenset({TokenIds(Of.WRONG)}))", r"TokenIds\(of=Of.WRONG\), which tells"),
        ("needs = Needs(predict=frozenset({Hidden(at=At.GOLD_PREDICTING)}))", r"At.GOLD_PREDICTING\), which tells"),
        ("needs = Needs(predict=frozenset({Hidden(at=At.WRONG_PREDICTING)}))", r"At.WRONG_PREDICTING\), which tells"),
        ("needs = Needs()\n    fit_on = 'test'", r"fit_on: expected one of train, validation, got 'test'"),
        ("needs = Needs()\n    output = 'logit'", r"output: expected one of probability, score, got 'logit'"),
        (
            "needs = Needs()\n    output = 'score'\n    def fit(self, train, ctx):\n        return self",
            r"output is 'score', but it learns",
        ),
        ("needs = frozenset()", r"needs: expected Needs\(...\), got frozenset"),
    ],
)
def test_method_that_would_see_the_right_answer_is_not_registered(tmp_path: Path, needs: str, reason: str) -> None:
    path = tmp_path / "peek.py"
    text = METHOD_FILE.format(name="peek").replace("needs = Needs()", needs)
    path.write_text("from bench.api import At, Hidden, Of, TokenIds\n" + text)
    with pytest.raises(UserError, match=r"method 'peek' in .*" + reason):
        registry.methods([path])


def test_plugin_file_cannot_take_the_name_of_a_built_in(tmp_path: Path) -> None:
    path = _write(tmp_path, TASK_FILE.format(name="mmlu-choice"))
    with pytest.raises(UserError, match=r"'mmlu-choice': one in tasks\.mmlu \(built-in\), one in confbench_plugin_"):
        registry.tasks([path])


def test_built_in_that_is_broken_stops_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    declared = [d for d in registration.DECLARED if d.module != "tasks.mmlu"]
    monkeypatch.setattr(registration, "DECLARED", declared)
    with pytest.raises(ContractError, match=r"tasks\.\w+ registers no task"):
        registry.tasks()


FOREIGN = """
import sys
from bench import registry
if {ours}:
    registry.import_built_ins()
print(len(registry.methods().names()), sys.path[0])
"""


@pytest.mark.parametrize("ours", [True, False])
def test_foreign_packages_of_our_names_do_not_stop_the_command(tmp_path: Path, *, ours: bool) -> None:
    for name in ("tasks", "methods"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('not ours')\n", encoding="utf-8")
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", FOREIGN.format(ours=ours)], capture_output=True, text=True, check=False, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{root}"},
    )  # fmt: skip
    assert (done.returncode == 0) is ours, done.stderr
    assert ours or "Expected the folder `methods` beside `bench`" in done.stderr


# --- groups of methods ------------------------------------------------------------------------------------------------

ELEVEN = ["ccps", "ct", "it", "lts", "litcab", "pik", "ptrue", "saplma-f", "saplma-m", "saplma-um", "self-consistency"]


def test_groups_stand_for_their_methods() -> None:
    known = registry.built_in()[0]
    assert sorted(registry.expand_groups(["paper"], known)) == sorted(ELEVEN)
    assert registry.expand_groups(["all"], known) == known.names()
    trained, untrained = (set(registry.expand_groups([group], known)) for group in ("trained", "untrained"))
    assert trained == {name for name in known.names() if known.get(name).trains()}
    assert trained | untrained == set(known.names())
    assert not trained & untrained
    assert registry.expand_groups(["combined", "paper", "ccps"], known)[0] == "combined"
    assert set(registry.expand_groups(["combined", "paper", "ccps"], known)) == {"combined", *ELEVEN}


def test_plugins_are_in_the_groups_of_what_they_do(tmp_path: Path) -> None:
    path = tmp_path / "half.py"
    path.write_text(METHOD_FILE.format(name="some-half"), encoding="utf-8")
    known = registry.methods([path])
    assert "some-half" in registry.expand_groups(["untrained"], known)
    assert "some-half" in registry.expand_groups(["all"], known)
    assert "some-half" not in registry.expand_groups(["paper", "trained"], known)


def test_names_are_found_in_the_spelling_of_papers() -> None:
    known = registry.built_in()[0]
    spelt = ["P(True)", "P(IK)", "SAPLMA-F", "CCPS", "LitCab", "Self-Consistency", "self consistency", "IT"]
    names = ("ptrue", "pik", "saplma-f", "ccps", "litcab", "self-consistency", "it")
    assert registry.expand_groups(spelt, known) == names
    assert known.get("P(True)").name == "ptrue"
    assert registry.expand_groups(["Paper"], known) == registry.expand_groups(["paper"], known)


@pytest.mark.parametrize(
    ("name", "meant"),
    [("papr", "paper"), ("untraned", "untrained"), ("trainde", "trained"), ("litcap", "litcab"), ("pike", "pik")],
)
def test_misspelt_groups_and_methods_are_told_apart(name: str, meant: str) -> None:
    with pytest.raises(UserError, match=rf"Unknown method '{name}'\. Did you mean '{meant}'\?"):
        registry.expand_groups(["ccps", name], registry.built_in()[0])


def test_methods_say_what_they_need_of_a_model() -> None:
    needs = {
        "ptrue": ("logits",), "verbalised": (), "self-consistency": ("samples",), "cocoa": ("logits", "samples"),
        "ccps": ("states",), "eigenscore": ("states", "samples"), "it": ("logits", "adapter"), "not-built-in": (),
    }  # fmt: skip
    assert {name: registry.resources_of(name) for name in needs} == needs
