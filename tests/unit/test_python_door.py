"""`from bench import run, load_results, report`: light to import, callable whatever was imported, and forgiving."""

from __future__ import annotations

import inspect
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

import bench
from bench.api import ConfidenceMethod, UserError
from bench.api.options import from_keywords
from bench.cli import python as door
from bench.report.selection import Against, Selection, View
from bench.run.config import RunConfig

ROOT = Path(__file__).parents[2]


def in_a_new_process(code: str) -> str:
    program = [sys.executable, "-c", code]
    return subprocess.run(program, capture_output=True, text=True, check=True, cwd=ROOT, timeout=60).stdout.strip()


@pytest.mark.parametrize(
    "first",
    [
        "bench.run.config", "bench.report.page", "bench.cli.python", "bench.report.write",
        pytest.param("bench.run.pipeline", marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_the_functions_stay_functions_when_their_rooms_are_imported(first: str) -> None:
    """A submodule is bound over a function of its name: so both must be one."""
    code = f"import {first}; from bench import run, report; print(callable(run), callable(report))"
    assert in_a_new_process(code) == "True True"


def test_waiting_threads_sleep_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    told = "import bench, os; print(os.environ['GOMP_SPINCOUNT'])"
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    assert in_a_new_process(told).strip() == "1000"
    monkeypatch.setenv("GOMP_SPINCOUNT", "5")  # the user's own
    assert in_a_new_process(told).strip() == "5"


def test_dir_and_star_name_the_door() -> None:
    assert set(bench.__all__) <= set(dir(bench))
    assert not [name for name in dir(bench) if name.startswith("_") and not name.startswith("__")]
    for name in bench.__all__:
        assert callable(getattr(bench, name)), name


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'runn'"):
        _ = bench.runn  # type: ignore[attr-defined]


def test_the_signature_shows_every_option_with_its_default() -> None:
    """Editors and notebooks complete options from it."""
    shown = inspect.signature(bench.run).parameters
    assert {field.name for field in fields(RunConfig)} <= set(shown)
    assert shown["limit"].default is None
    assert shown["seed"].default == 0
    assert "options" not in shown
    loaded = inspect.signature(bench.load_results).parameters
    assert {field.name for field in fields(Selection)} - {"results"} <= set(loaded)


# --- options as keywords ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "methods",
    [
        "ptrue,lts",
        "ptrue, lts",
        ["ptrue", "lts"],
        ("ptrue,lts",),
        iter(["ptrue", "lts"]),
        {"ptrue": 1, "lts": 2}.keys(),
    ],
)
def test_one_text_stands_for_several(methods: object) -> None:
    assert from_keywords(RunConfig, {"methods": methods, "model": "tiny"}, "run()").methods == ("ptrue", "lts")


def test_paths_may_be_texts_and_texts_paths() -> None:
    given = {
        "methods": "all",
        "model": Path("models/x"),
        "out": "out",
        "task_files": "q.csv",
        "answers": Path("a.jsonl"),
    }
    made = from_keywords(RunConfig, given, "run()")
    assert (made.model, made.out, made.task_files, made.answers) == (
        "models/x",
        Path("out"),
        (Path("q.csv"),),
        "a.jsonl",
    )


def test_home_is_expanded_as_a_shell_does() -> None:
    made = from_keywords(RunConfig, {"methods": "all", "model": "tiny", "out": "~/out"}, "run()")
    assert made.out == Path.home() / "out"


def test_a_text_with_commas_stays_whole_where_the_command_line_keeps_it() -> None:
    made = from_keywords(RunConfig, {"methods": "all", "model": "tiny", "overrides": "ccps.sizes=1,2"}, "run()")
    assert made.overrides == ("ccps.sizes=1,2",)


def test_the_names_of_the_command_line_do_too() -> None:
    made = from_keywords(RunConfig, {"method": "ptrue", "model": "tiny", "task": "rivers", "set": "a=1"}, "run()")
    assert (made.methods, made.tasks, made.overrides) == (("ptrue",), ("rivers",), ("a=1",))
    assert from_keywords(View, {"sort": "auroc", "against": "paper"}, "table()") == View(
        headline="auroc", against=Against.PAPER
    )


def test_numbers_of_numpy_are_numbers() -> None:
    made = from_keywords(
        RunConfig, {"methods": "all", "model": "tiny", "limit": np.int64(5), "method_timeout": 3}, "run()"
    )
    assert type(made.limit) is int
    assert made.limit == 5
    assert type(made.method_timeout) is float


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"metods": "ptrue"}, "run() has no option 'metods'. Did you mean 'methods'?"),
        ({"limit": "ten"}, "run(), limit: expected a whole number, got 'ten'"),
        ({"limit": 1.5}, "run(), limit: expected a whole number, got 1.5"),
        ({"limit": True}, "run(), limit: expected a whole number, got True"),
        ({"dry_run": 1}, "run(), dry_run: expected True or False, got 1"),
        ({"out": None}, "run(), out: expected a path, got None"),
        ({"tasks": 3}, "run(), tasks: expected a text, got 3"),
        ({"tasks": {"rivers": 1}}, "run(), tasks: expected one or several values"),
        ({"method": "lts"}, "run(): method was given twice, also as methods"),
    ],
)
def test_bad_options_are_one_sentence(given: dict[str, object], words: str) -> None:
    with pytest.raises(UserError) as told:
        bench.run("ptrue", "tiny", **given)
    assert words in str(told.value)


def test_what_is_needed_is_asked_for() -> None:
    with pytest.raises(UserError, match="expected model, got none"):
        bench.run("ptrue")
    with pytest.raises(UserError, match="expected methods, got none"):
        bench.run(model="tiny")


def test_a_class_must_be_a_method_with_a_name() -> None:
    class Nameless(ConfidenceMethod):
        pass

    for given in (Nameless, int, [Nameless]):
        with pytest.raises(UserError, match=r"expected a ConfidenceMethod with a name, got the class (Nameless|int)"):
            bench.run(given, "tiny")


def test_ipython_shows_the_sentence_alone() -> None:
    assert UserError("expected this, got that")._render_traceback_() == ["UserError: expected this, got that"]


def test_progress_is_printed_unless_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    for quiet in (False, True):
        door._progress(quiet=quiet).say("reading")
    assert capsys.readouterr().err == "reading\n"
