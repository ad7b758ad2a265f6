"""Every option of every command arrives: it changes what the command hands on in its own field, and nothing else.

The options are those of the real command tree, and get values of their types. So a new one is tried in each row of
`commands.py` that its command has; where it arrives under its own name there is nothing to write.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import io
import pkgutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer.main

import bench
from bench import registry
from bench.cli import verbosity
from bench.cli.app import app
from bench.cli.exit_codes import exit_code
from bench.progress import DECISIONS
from bench.report.selection import AuditRequest, GuardRequest, MultiverseRequest, ReportRequest, View
from bench.run.analyses.request import AnalysisRequest, LabelsConfig, TransferConfig
from bench.run.config import HeadSetting, RunConfig
from tests.contract.commands import ABSENT, JSON, TABLE, Holding, Plugin, Row, Values

for module in pkgutil.walk_packages(bench.__path__, "bench."):
    # one that was imported during a call would keep what stands for its functions
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)


# --- the command tree -------------------------------------------------------------------------------------------------

OF_TYPER = {"install_completion", "show_completion"}


def tree(command: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every command that has options or arguments, by its words."""
    if command.params:
        yield name, command
    for word, below in getattr(command, "commands", {}).items():
        yield from tree(below, f"{name} {word}".strip())


BENCH = typer.main.get_command(app)
COMMANDS = dict(tree(BENCH))


def parameters(command: str) -> list[Any]:
    """Options and arguments."""
    return [parameter for parameter in COMMANDS[command].params if parameter.name not in OF_TYPER]


def words_of(row: Row, given: Values) -> list[str]:
    """The command line that gives these values."""
    arguments, options = list[str](), list[str]()
    for parameter in (each for each in parameters(row.command) if each.name in given):
        value = given[parameter.name]
        if parameter.param_type_name == "argument":
            arguments.append(value)
        elif isinstance(value, bool):
            options.append((parameter.opts if value else parameter.secondary_opts)[0])
        else:
            texts = value if isinstance(value, tuple) else (value,)
            options += [word for text in texts for word in (parameter.opts[0], text)]
    return [*row.command.replace("METHOD", "").split(), *arguments, *options, *row.more]


# --- a call -----------------------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    """Standard error of somebody who looks at it."""

    def isatty(self) -> bool:
        return True


def is_record(value: object) -> bool:
    """Whether its fields are values that a user gave; a dataclass that can be changed is the program's own."""
    if isinstance(value, type) or not is_dataclass(value):
        return isinstance(value, SimpleNamespace)
    return value.__dataclass_params__.frozen


def plain(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """An argument by its name, the fields of a record by theirs; objects that are no values are left out."""
    if isinstance(value, list | tuple):
        items = [dict(plain(name, each)) for each in value]
        yield from joined(items).items() if items and all(map(is_record, value)) else [(name, tuple(value))]
    elif is_record(value):
        for field in (each.name for each in fields(value)) if is_dataclass(value) else vars(value):
            yield from plain(f"{name}.{field}", getattr(value, field))
    elif isinstance(value, Plugin):
        yield name, value.name
    elif value is None or isinstance(value, str | int | float | Path):
        yield name, value


def joined(records: Sequence[Values]) -> dict[str, Any]:
    """Records as one: a value in which they differ is a tuple of theirs."""
    names = dict.fromkeys(name for record in records for name in record)
    found = {name: tuple(record.get(name) for record in records) for name in names}
    return {name: values[0] if len(set(map(repr, values))) == 1 else values for name, values in found.items()}


def called(row: Row, given: Values, **environment: str) -> dict[str, Any]:
    """Outcome of a call: the name of each function -> its arguments, and what was printed and written."""
    calls: dict[str, list[Values]] = {}

    def stand_in(place: str, gives: Any) -> Any:
        signature = inspect.signature(pkgutil.resolve_name(place))

        def stands(*args: Any, **options: Any) -> Any:
            bound = signature.bind(*args, **options)
            bound.apply_defaults()
            found = dict(item for name, value in bound.arguments.items() for item in plain(name, value))
            calls.setdefault(place.rpartition(".")[2], []).append(found)
            DECISIONS.info("at work")
            for listener in bound.arguments.values():
                if inspect.isfunction(listener) or hasattr(listener, "say"):
                    getattr(listener, "say", listener)("working")
            return gives(bound.arguments) if inspect.isfunction(gives) else gives

        return stands

    out, err = io.StringIO(), Terminal()
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["bench", *words_of(row, given)])
        patch.setattr(registry, "import_built_ins", lambda: None)  # it looks through all that is installed here
        usually = {"CONFBENCH_CACHE": "cache", "CONFBENCH_DATA": "data", "COLUMNS": "200", "TERM": "dumb"}
        for name, value in {**usually, **environment}.items():
            patch.setenv(name, value)
        standing = {place: stand_in(place, gives) for place, gives in row.handed.items()}
        for place, value in {**standing, **row.replaced}.items():
            patch.setattr(place, value)
        for name, text in row.files.items():
            Path(name).write_text(text, encoding="utf-8")
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = exit_code(lambda: BENCH(prog_name="bench"))
        written = {str(path): path.read_text(encoding="utf-8") for path in Path().rglob("*") if path.is_file()}
    state = {"verbose": verbosity.is_verbose(), "quiet": verbosity.is_quiet()}
    verbosity.set_level(verbose=False, quiet=False)
    said = {"code": code, "stdout": out.getvalue(), "stderr": err.getvalue(), "files": written}
    return {**{name: joined(each) for name, each in calls.items()}, **said, **state}


@functools.cache
def usual(i: int) -> dict[str, Any]:
    """Outcome of the call of a row as it is."""
    found = called(TABLE[i], TABLE[i].given)
    assert found["code"] == TABLE[i].code, found["stderr"]
    return found


def changed(before: Values, after: Values) -> dict[str, Any]:
    """The part of an outcome that is new, by its name; that of an argument is `function.argument`."""
    found: dict[str, Any] = {}
    for name in {**before, **after}:
        one, other = before.get(name, ABSENT), after.get(name, ABSENT)
        if isinstance(one, dict) and isinstance(other, dict):
            found |= {f"{name}.{below}": value for below, value in changed(one, other).items()}
        elif one != other:
            found[name] = other
    return found


# --- values, and what they change -------------------------------------------------------------------------------------


def values(row: Row, parameter: Any) -> dict[Any, Any]:
    """Text or texts of an option -> the value that it means; none is the default, or a value of another option."""
    if parameter.name in row.values:
        return dict(row.values[parameter.name])
    kind, name = parameter.type.name.split()[0], parameter.name
    number = 1 + COMMANDS[row.command].params.index(parameter)
    if kind == "boolean":
        return {not parameter.default: not parameter.default}
    if kind == "choice":
        choices = [getattr(each, "value", each) for each in parameter.type.choices]
        others = tuple(each for each in choices if each != getattr(parameter.default, "value", parameter.default))
        return {others: others} if parameter.multiple else {each: each for each in others}
    if parameter.metavar == "INTEGERS":
        return {f"{1000 + number},{2000 + number}": (1000 + number, 2000 + number)}
    numbers = {"int": 1000 + number, "integer": 1000 + number, "float": number / 1024}
    texts = (f"a-{name}", f"b-{name}")
    found = tuple(map(Path, texts)) if kind == "path" else texts
    return {texts: found} if parameter.multiple else {str(numbers.get(kind, texts[0])): numbers.get(kind, found[0])}


FIELDS = {"plugin": "plugins"}
"""Option -> the field that it is, where this has another name."""


def expected(row: Row, name: str, value: Any, before: Values) -> dict[str, Any]:
    """What this value must change: the field of its name in the first function of the row, and what the row says."""
    first = next(iter(row.handed), "").rpartition(".")[2]
    field = FIELDS.get(name, name)
    of_all: dict[str, Values] = {
        "quiet": {"quiet": True, **({"stderr": ""} if before["stderr"] else {})},
        "verbose": {"verbose": True, **({"stderr": Holding("decided: at work")} if first in before else {})},
        "as_json": {"stdout": JSON},
    }
    own = row.changes.get(name, {})
    rules = {
        **{f"{first}.{each}": value for each in before.get(first, ()) if each.rpartition(".")[2] == field},
        **of_all.get(name, {}),
        **({own: value} if isinstance(own, str) else own),
    }
    return {place: rule(value) if inspect.isfunction(rule) else rule for place, rule in rules.items()}


CASES = [
    pytest.param(i, parameter.name, text, value, id=f"{row.command or 'bench'} {parameter.name} {text}")
    for i, row in enumerate(TABLE)
    for parameter in parameters(row.command)
    if parameter.name not in row.without and (row.only is None or parameter.name in row.only)
    for text, value in values(row, parameter).items()
]


@pytest.mark.parametrize(("i", "name", "text", "value"), CASES)
def test_options_change_their_own_field_alone(i: int, name: str, text: Any, value: Any) -> None:
    row, before = TABLE[i], usual(i)
    wanted = expected(row, name, value, before)
    assert wanted, f"nothing that is handed on is called {name}: say in commands.py where it arrives"
    assert changed(before, called(row, {**row.given, name: text})) == wanted


def test_options_all_have_a_row() -> None:
    tried = {(TABLE[i].command, name) for i, name, *_ in (case.values for case in CASES)}
    assert {(command, each.name) for command in COMMANDS for each in parameters(command)} - tried == set()


@pytest.mark.parametrize(
    ("command", "made", "others"),
    [
        ("run", RunConfig, {"cache"}),
        ("table", View, set()),
        ("report", ReportRequest, set()),
        ("guard", GuardRequest, {"metrics", "average", "headline"}),
        ("audit", AuditRequest, set()),
        ("head check", HeadSetting, set()),
        ("score", HeadSetting, {"attention", "plain"}),
        (
            "head export",
            HeadSetting,
            {"device", "dtype", "attention", "token_budget", "plain", "trust_remote_code"},
        ),
        ("analyze METHOD", AnalysisRequest, set()),
        ("analyze transfer", TransferConfig, {"cache"}),
        ("analyze labels", LabelsConfig, {"cache"}),
        ("analyze multiverse", MultiverseRequest, set()),
    ],
)
def test_options_stand_for_every_field(command: str, made: Any, others: set[str]) -> None:
    assert {field.name for field in fields(made)} - {each.name for each in parameters(command)} == others
    assert [field.name for field in fields(made) if field.default is True] == []  # a flag that is not given is off


@pytest.mark.parametrize("variable", ["CONFBENCH_CACHE", "CONFBENCH_DATA"])
@pytest.mark.parametrize("i", range(len(TABLE)), ids=[row.command for row in TABLE])
def test_environment_stands_for_options(i: int, variable: str) -> None:
    row, value = TABLE[i], "elsewhere"
    wanted = {
        place: Holding(value) if place == "stdout" else Path(value) for place in row.environment.get(variable, ())
    }
    assert changed(usual(i), called(row, row.given, **{variable: value})) == wanted


NOTED = ["run", "score", "guard", "audit", "table", "report", "analyze transfer", "analyze labels"]


@pytest.mark.parametrize("command", NOTED)
def test_notes_are_printed_on_standard_error(command: str) -> None:
    outcome = usual(next(i for i, row in enumerate(TABLE) if row.command == command))
    assert "note: what is to be known\n" in outcome["stderr"]


# --- options of a run that other commands take ------------------------------------------------------------------------

RUN = next(row for row in TABLE if row.command == "run")
OWN = {"file", "dump_config", "as_json", "verbose", "quiet"}
"""Options of the command, no fields of `RunConfig`."""
CHOSEN = {p.name: next(iter(values(RUN, p).items())) for p in parameters("run") if p.name not in OWN}
"""Field of a run -> text and value."""


def fields_of_run(outcome: Values) -> dict[str, Any]:
    return {name.removeprefix("config."): value for name, value in outcome["run"].items() if name.startswith("config.")}


def test_run_files_hold_every_option() -> None:
    every = {name: text for name, (text, _) in CHOSEN.items()}
    told = {name: value for name, (_, value) in CHOSEN.items()}
    dumped = called(RUN, {**every, "dump_config": "all.toml"})["files"]["all.toml"]
    again = called(replace(RUN, files={"all.toml": dumped}), {"file": "all.toml"})
    assert fields_of_run(again) == {**told, "cache": None}


OF_PAPER = {"methods", "tasks", "preset", "seed", "model", "tokenizer", "limit"}
REPRODUCE = next(row for row in TABLE if row.command == "reproduce")


def test_reproduce_hands_on_every_option_of_run() -> None:
    others = {name: pair for name, pair in CHOSEN.items() if name not in {*OF_PAPER, "dry_run"}}
    more = words_of(Row("run", {}), {name: text for name, (text, _) in others.items()})[1:]
    made = called(replace(REPRODUCE, more=more), REPRODUCE.given)
    started = made["Popen"]["args"]
    run = fields_of_run(called(replace(RUN, more=started[started.index("run") + 1 :]), {}))
    told = {name: value for name, (_, value) in others.items()}
    assert {name: run[name] for name in told} == told
    assert (made["PaperRuns"]["judge"], made["PaperRuns"]["out"]) == (told["judge"], told["out"])
    assert made["methods"]["plugins"] == made["tasks"]["plugins"] == told["plugins"]


@pytest.mark.parametrize(
    ("name", "option"), [(p.name, option) for p in parameters("run") if p.name in OF_PAPER for option in p.opts]
)
def test_reproduce_refuses_options_of_the_paper(name: str, option: str) -> None:
    _, text, *_ = words_of(Row("run", {}), {name: CHOSEN[name][0]})[1:]
    outcome = called(replace(REPRODUCE, more=[option, text]), REPRODUCE.given)
    assert (outcome["code"], "Popen" in outcome) == (2, False)
    assert f"{option}: the paper says it" in outcome["stderr"]


def test_reproduce_refuses_them_in_run_files() -> None:
    row = replace(REPRODUCE, more=["few.toml", *REPRODUCE.more], files={"few.toml": "limit = 3\n"})
    outcome = called(row, REPRODUCE.given)
    assert (outcome["code"], "Popen" in outcome) == (2, False)
    assert "--limit: the paper says it" in outcome["stderr"]


def run_of(request: Any) -> RunConfig:
    return request.config("m", Path("c")) if isinstance(request, AnalysisRequest) else request.run_config()


@pytest.mark.parametrize(
    ("command", "made", "differs"),
    [
        ("METHOD", AnalysisRequest, lambda _: {"methods": ("m",), "out": Path(), "cache": Path("c")}),
        ("transfer", TransferConfig, lambda request: {"tasks": request.on}),
        ("labels", LabelsConfig, lambda _: {}),
    ],
)
def test_analyses_read_the_run_of_their_options(command: str, made: Any, differs: Any) -> None:
    row = next(row for row in TABLE if row.command == f"analyze {command}")
    given = {parameter.name: next(iter(values(row, parameter).values())) for parameter in parameters(row.command)}
    request = made(**{field.name: given[field.name] for field in fields(made) if field.name in given})
    shared = {field.name: getattr(request, field.name, field.default) for field in fields(RunConfig)}
    assert vars(run_of(request)) == {**shared, **differs(request)}
