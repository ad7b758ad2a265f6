"""The commands as the contract of their options sees them: a call of each, and the functions that it hands its work to.

These functions stand outside of `bench.cli`, so that everything inside is real; each is replaced by one that keeps its
arguments and gives what the command needs to go on.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, make_dataclass
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace as Fake
from typing import Any

import pytest

from bench import registry
from bench.data.logs import Imported
from bench.model.training_memory import Footprint
from bench.results.row import ResultRow
from bench.results.submissions import SubmissionVerdict
from bench.run.paper_runs import PaperRuns
from bench.run.pipeline import RunReport
from bench.run.rerun import Rerun
from bench.run.scorers.score_file import ScoreReport
from bench.store.pruning import PruneResult
from bench.store.usage import UsageRow
from bench.testing import CheckResult

Values = Mapping[str, Any]


class Absent:
    """What is there in one of two calls only, seen from the other."""

    def __repr__(self) -> str:
        return "absent"


ABSENT = Absent()


@dataclass(frozen=True)
class Holding:
    """Equal to whatever holds this part."""

    part: object

    def __eq__(self, other: object) -> bool:
        return hasattr(other, "__contains__") and self.part in other

    __hash__ = None  # type: ignore[assignment]


class Json:
    """Equal to every text that is JSON."""

    def __eq__(self, other: object) -> bool:
        try:
            json.loads(str(other))
        except ValueError:
            return False
        return True

    __hash__ = None  # type: ignore[assignment]


JSON = Json()


def same(value: Any) -> Any:
    """The value itself."""
    return value


@dataclass(frozen=True)
class Row:
    """One call of a command; each of its options is added to it, or takes the place of what is given here."""

    command: str
    handed: Values
    """Function that the command hands its work to -> what that gives. The value of an option arrives in the first one,
    under the option's name; what else it changes is in `changes`."""
    given: Values = field(default_factory=dict)
    """Parameter -> what is given for it in every call."""
    changes: Mapping[str, Values | str] = field(default_factory=dict)
    """Parameter -> what else its value changes, and to what; functions are called with the value. A text is the place
    where the value arrives, too."""
    values: Mapping[str, Values] = field(default_factory=dict)
    """Parameter -> text -> value, where not every text will do."""
    replaced: Values = field(default_factory=dict)
    """Other functions -> what stands for them."""
    without: Sequence[str] = ()
    """Parameters that mean nothing in this call; another row has them."""
    only: Sequence[str] | None = None
    """The parameters that this row is for. Default: all."""
    more: Sequence[str] = ()
    """Words at the end."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Files in the folder of the call."""
    environment: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Variable -> places of its value."""
    code: int = 0
    """Exit code."""


# --- what the functions give ------------------------------------------------------------------------------------------

NOTES = ["what is to be known"]
RESULT = ResultRow(
    method="m", model="m", task="t", preset="p", seed=0, protocol="x", task_version=1, status="ok",
)  # fmt: skip
CARD = make_dataclass("Card", ["name", "test", "method", "asked"])(
    "a", {"metrics": {}}, {"constants": {}}, {"protocol": {}}
)
USE = UsageRow("fits", Path("fits/ab"), 1000, model="a-model")
FINDING = Fake(threshold=0.5, bound=0.1, accepted=1, n_wrong=0, row=Fake(records_digest="d"),
               calibration=Fake(values=[1]), request=Fake(risk=0.1, level=0.9))  # fmt: skip


def shown_as(kind: str) -> str:
    """What stands for a table in some format; JSON where that is the format."""
    return json.dumps(f"as {kind}") + "\n" if kind == "json" else f"as {kind}\n"


class Plugin:
    """A method or a task; the questions of a split are its name."""

    name = ""
    format = "choice"
    card = Fake(splits=("test", "validation"))

    def __init__(self, _source: object = None) -> None:
        pass

    def questions(self, split: str) -> list[str]:
        return [split]

    def n_parameters(self, _facts: object) -> int:
        return 7

    def reads(self) -> Fake:
        return Fake(predict=())


def plugin(name: str) -> type[Plugin]:
    return type(name, (Plugin,), {"name": name})


FILE_TASK = plugin("a")
"""Task of a file of questions."""


def registered(*names: str) -> Fake:
    """A registry of plugins, which knows every name."""
    entries = [Fake(name=name, origin="built-in", plugin=None, error="broken") for name in names]
    return Fake(names=lambda: list(names), entries=lambda: entries, get=plugin)


def guarded(arguments: Values) -> list[Fake]:
    """A guard of the head's own result, as it was asked for."""
    return [Fake(lines=[Fake(seeds=[FINDING])], request=arguments["request"], calibrated_on="t")]


class InThisProcess:
    """Stands for a process of plugins: its module is run here, and what it sends is received in order.

    The message of each check says how long it might take.
    """

    def __init__(self, module: str, arguments: Sequence[str], _log: object) -> None:
        self.connection, self.sent = self, list[Any]()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(f"{module}.begin", lambda: (self, arguments))
            patch.setattr(f"{module}.os", Fake(_exit=lambda _code: None))
            import_module(module).main()

    def send_bytes(self, message: bytes) -> None:
        self.sent.append(pickle.loads(message))  # noqa: S301 - of this process

    @contextmanager
    def kill_after(self, seconds: float) -> Iterator[None]:
        self.seconds = seconds
        yield

    def recv(self) -> Any:
        sent = self.sent.pop(0)
        return sent._replace(message=f"within {self.seconds}") if isinstance(sent, CheckResult) else sent

    def end(self) -> None:
        pass


TABLES = {
    "bench.report.tables.formats.render": lambda _views, kind: shown_as(kind),
    "bench.report.tables.formats.print_terminal": lambda _grids, console: console.print("as terminal"),
}
SHOWN = Fake(views=Fake(grids=[]), printed=None)
"""What an analysis ends in."""
FORMAT_AND_FILES: Mapping[str, Values] = {"format_": {"stdout": shown_as, "stderr": Holding("note: wrote ")}}
"""Where data are printed, the files that were written are notes."""
SOURCE = {"bench.data.sources.FolderSource": "source"}
FROM_FOLDER: Mapping[str, Values] = {"data_dir": {"FolderSource.data_dir": same, "FolderSource.given_as": "--data-dir"}}
IN_FOLDER = {"CONFBENCH_DATA": ["FolderSource.data_dir"]}


# --- the commands -----------------------------------------------------------------------------------------------------

METHODS, TASKS = registry.built_in()
USED = {"bench.cli.cache.list_usage": [USE]}
RUN = {
    "bench.run.seeds.run": RunReport(["read it"], [RESULT], [Path("a.json")], [Path("a-head")], NOTES),
    "bench.report.style.read": None,
    "bench.report.tables.request.tables_of": [],
}
ENDED = dict.fromkeys(("run", "read", "tables_of"), ABSENT)
CHECKED = [CheckResult("a rule", ok=True, message="")]
OF_RERUN = ("rerun", "model", "tokenizer")

TABLE = [
    Row("", USED, more=["cache"], changes={"version": {"list_usage": ABSENT, "stdout": Holding("confbench ")}},
        environment={"CONFBENCH_CACHE": ["list_usage.root", "stdout"]}),
    Row(
        "run", RUN, given={"methods": "ptrue", "model": "tiny"}, replaced=TABLES, files={"a.toml": "tune = 7\n"},
        values={"file": {"a.toml": None}, "dump_config": {"b.toml": None}, "train_limit": {"64+16": "64+16"}},
        changes={
            "file": {"run.config.tune": 7},
            "dump_config": {**ENDED, "stdout": "wrote b.toml\n", "stderr": "", "files.b.toml": Holding('"tiny"')},
            "model": {"stdout": Holding("--model a-model")},
            "tokenizer": {"stdout": Holding("--model tiny --tokenizer a-tokenizer")},
            "served": {"stdout": Holding("--model tiny --served a-served")},
            "preset": {"stdout": Holding("--preset a-preset")},
            "trust_remote_code": {"stdout": Holding("--trust-remote-code")},
            "plugins": {"stdout": Holding("--plugin a-plugins --plugin b-plugins")},
            "limit": {"stdout": Holding("--partial")},
            "out": {"read.results": same, "tables_of.selection.results": same, "stdout": Holding("--results a-out")},
            "seed": {"stderr": Holding("one after the other"), "stdout": Holding("wrote a.json\n" * 2)},
            "dry_run": {"stderr": Holding("Plan: looking")},
            "as_json": {"read": ABSENT, "tables_of": ABSENT, "stdout": JSON, "stderr": "working\n"},
        },
        environment={"CONFBENCH_CACHE": ["tables_of.cache"]},
    ),
    Row("run", RUN, given={"methods": "ptrue", "model": "tiny", "dry_run": True}, replaced=TABLES, only=["quiet"],
        changes={"quiet": {"stdout": Holding("read it")}}, environment={"CONFBENCH_CACHE": ["tables_of.cache"]}),
    Row(
        "doctor", {"bench.cli.doctor.check_torch": []}, changes={"out": {"stdout": Holding("a-out")}},
        without=["model", "tokenizer", "task", "served", "method"],
        replaced={
            f"bench.cli.doctor.{name}": list
            for name in (
                "check_python", "check_packages", "other_bench", "check_libraries", "check_memory", "check_hub",
            )
        } | {"shutil.disk_usage": lambda _folder: Fake(free=5e10)},
        environment={"CONFBENCH_CACHE": ["stdout"]},
    ),
    Row(
        "doctor", {"bench.cli.doctor_model.check_model": []}, given={"model": "http://h/v1"},
        replaced={"bench.cli.doctor.run_checks": lambda _out: []},
        only=["model", "tokenizer", "task", "served", "method"],
        changes={"model": "check_model.name", "task": "check_model.tasks", "method": "check_model.methods"},
    ),
    Row(
        "drift",
        {
            "bench.report.figures.drawing.save": None,
            "bench.run.drift.read_sides": [None, None],
            "bench.run.drift.compare_sides": {
                "a": "A", "b": "B", "test": "t/test", "questions": 1, "steps": {}, "methods": [], "causes": {},
                "skipped": {},
            },
        },
        given={"a": "tiny", "b": "http://h/v1", "out": "a.svg"}, values={"out": {"b.svg": Path("b.svg")}},
        replaced={
            "bench.report.figures.drift.drift_figure": lambda _found: None,
            "bench.model.specs.is_gguf": lambda name: name == "tiny",
        },
        changes={
            "a": {"read_sides.configs.model": lambda value: (value, "http://h/v1")},
            "b": {"read_sides.configs.model": lambda value: ("tiny", value)},
            "task": {"read_sides.configs.tasks": lambda value: (value,)},
            "limit": "read_sides.configs.limit",
            "served": {"read_sides.configs.served": lambda value: (None, value)},
            "tokenizer": {"read_sides.configs.tokenizer": lambda value: (value, None)},
            "data_dir": "read_sides.configs.data_dir",
            "out": {"save.path": same, "stdout": Holding("wrote b.svg")},
        },
    ),
    Row(
        "score", {"bench.run.scorers.score_file.score": ScoreReport(["{}"], NOTES)},
        given={"questions": "q.jsonl", "head": "a"}, changes={"out": {"stdout": "", "files.a-out": "{}\n"}},
    ),
    Row(
        "reproduce",
        {
            "subprocess.Popen": Fake(wait=lambda: 0),
            "bench.run.paper_runs.PaperRuns": lambda arguments: PaperRuns(**arguments),
            "bench.registry.methods": lambda _arguments: METHODS, "bench.registry.tasks": lambda _arguments: TASKS,
        },
        given={"name": "ccps", "models": "qwen14b"}, more=["--device", "cpu"], without=["as_json"],
        values={"name": {"ptrue": None}, "models": {"llama8b": ("llama8b",)}},
        changes={
            "name": {"Popen": ABSENT, "PaperRuns": ABSENT, "tasks": ABSENT, "code": 2, "stdout": "",
                     "stderr": Holding("ptrue")},
            "models": {"PaperRuns.models": same, "Popen.args": Holding("llama8b"), "stdout": Holding("llama8b")},
            "dry_run": {"Popen": ABSENT, "stdout": Holding("Left, which")},
            "verbose": {"Popen.args": Holding("--verbose")},
            "quiet": {"Popen.args": Holding("--quiet")},
        },
    ),
    Row("reproduce", {}, given={"name": "ccps", "dry_run": True}, only=["as_json"]),
    Row(
        "guard",
        {
            "bench.report.guard.compute.compute_guards": guarded, "bench.results.cells.skipped_notes": NOTES,
            "bench.report.analysis.write": [Path("a.svg")],
            "bench.run.scorers.card.read_card": Fake(
                name="a head", test=Fake(records="d"), asked=Fake(answers="generate")
            ),
            "bench.run.scorers.card.write_guard": None,
        },
        given={"out": "a", "head": "b"},
        replaced={**TABLES, "bench.report.guard.build_analysis": lambda _found: SHOWN},
        changes={
            "results": "skipped_notes.folder",
            "partial": "skipped_notes.partial",
            "share": "write_guard.guard.share",
            "split_seed": "write_guard.guard.split_seed",
            "out": "write.out",
            "head": {"read_card.folder": same, "write_guard.folder": same, "stderr": Holding("a-head: trusted")},
            "calibrate_on": {"write_guard.guard.share": None, "write_guard.guard.split_seed": None},
            **FORMAT_AND_FILES,
        },
        environment={"CONFBENCH_CACHE": ["compute_guards.cache"]},
    ),
    Row(
        "audit",
        {
            "bench.report.notebook.audit.Audit.of": Fake(
                analyses=lambda: [Fake(views=Fake(grids=[], data=dict))], limits=[], failed=False,
                write=lambda _out, _say: [], notes=["what is to be known"],
            ),
            "bench.data.confidence_files.read_sheet": None,
        },
        given={"files": "a.csv"},
        values={"files": {"b.csv": (Path("b.csv"),)}},
        changes={"files": "read_sheet.data"},
    ),
    *(
        Row("list", {f"bench.registry.{kind}": registered("one") for kind in (kind, other)},
            given={"kind": kind}, values={"kind": {other: None}},
            changes={"kind": {kind: ABSENT, other: {"plugins": (), "made": ()}}, "plugin": f"{kind}.plugins"})
        for kind, other in (("methods", "tasks"), ("tasks", "methods"))
    ),
    Row("show", {f"bench.registry.{kind}": registered() for kind in ("methods", "tasks")}, given={"name": "tiny"},
        values={"name": {"protocol": None}},
        changes={"name": {"stdout": Holding("templates")}, "plugin": "tasks.plugins"},
        without=["example", "data_dir", "task_file", "constants"]),
    Row("show", {}, given={"name": "ccps"}, only=["constants"], changes={"constants": {"stdout": Holding("radius")}}),
    Row("show", {"bench.data.question_files.task_of_file": FILE_TASK, "bench.registry.tasks": registered("a"),
                 "bench.data.example.example_prompt": {"user": "What?"}, **SOURCE},
        given={"task_file": "a.jsonl", "example": "1"}, only=["task_file"],
        changes={"task_file": {"task_of_file.path": same, "tasks.made": lambda path: ((FILE_TASK, str(path)),)}},
        environment=IN_FOLDER),
    Row(
        "show",
        {"bench.registry.tasks": registered("a"), "bench.data.example.example_prompt": {"user": "What?"}, **SOURCE},
        given={"name": "a", "example": "1"},
        changes={"name": "example_prompt.task", "example": "example_prompt.row", **FROM_FOLDER},
        without=["task_file", "constants"], environment=IN_FOLDER,
    ),
    *(
        Row(
            "params",
            {"bench.registry.methods": registered("m"), "bench.model.language_model.facts_from_config": None,
             "bench.model.training_memory.reading_footprint": Footprint(1, 2, 3)},
            given={"model": "qwen14b", **given}, without=given,
            values={"model": {"llama8b": "llama8b", "llama8b, qwen32b": ("llama8b", "qwen32b")}},
            replaced={"bench.model.training_memory.config_from_settings": lambda _settings: None},
            changes={"model": {"facts_from_config.name": same, "stdout": Holding("llama8b")},
                     "memory": {"reading_footprint": {"config": None, "budget": 1024},
                                "stdout": Holding("GB of 1e9 bytes")}},
        )
        for given in ({}, {"memory": True})
    ),
    Row(
        "table", {"bench.report.tables.request.build_views": Fake(grids=[]),
                  "bench.results.cells.skipped_notes": NOTES},
        replaced=TABLES,
        changes={"results": "skipped_notes.folder", "partial": "skipped_notes.partial",
                 "format_": {"stdout": shown_as}},
        environment={"CONFBENCH_CACHE": ["build_views.cache"]},
    ),
    Row(
        "report", {"bench.report.write.write": [Path("a.html")], "bench.results.cells.skipped_notes": NOTES},
        changes={"results": "skipped_notes.folder", "partial": "skipped_notes.partial"},
        environment={"CONFBENCH_CACHE": ["write.cache"]},
    ),
    *(
        Row(
            "import",
            {"bench.data.logs.lm_eval_records": [], "bench.data.logs.inspect_records": [], **known, **SOURCE,
             "bench.data.logs.import_records": Imported([{"id": 1}])},
            given={"tool": "lm-eval", "log": "a.jsonl", **given}, without=without,
            values={"tool": {"inspect": None}, "split": {"validation": "validation"}},
            changes={
                "tool": {"lm_eval_records": ABSENT, "inspect_records": {"path": Path("a.jsonl")}},
                "log": {"lm_eval_records.path": same, "files.a.answers.jsonl": ABSENT,
                        "files.a-log.answers.jsonl": '{"id": 1}\n', "stdout": Holding("wrote a-log.answers.jsonl")},
                "out": {"files.a.answers.jsonl": ABSENT, "files.a-out": '{"id": 1}\n',
                        "stdout": Holding("wrote a-out")},
                "plugin": "tasks.plugins",
                "split": {
                    "import_records.questions": lambda value: (value,), "stdout": Holding("/validation"),
                    **({"task_of_file.purpose": same} if "task_file" in given else {}),
                },
                "task": {"stdout": Holding("a-task/test")},
                "task_file": "task_of_file.path",
                **FROM_FOLDER,
            },
            environment=IN_FOLDER,
        )
        for given, known, without in (
            ({"task": "t"}, {"bench.registry.tasks": registered()}, ["task_file"]),
            ({"task_file": "f"}, {"bench.data.question_files.task_of_file": plugin("f")}, ["task", "plugin"]),
        )
    ),
    Row(
        "check", {"bench.cli.check_process.checks_of": [("a rule", lambda: CHECKED[0])], **SOURCE},
        given={"target": "a.py"}, without=["results", *OF_RERUN], values={"target": {"b.py": "b.py"}},
        replaced={"bench.cli.check_process.Child": InThisProcess},
        changes={
            "target": "checks_of.target",
            "timeout": {"stdout": lambda seconds: Holding(f"within {seconds}")},
            **FROM_FOLDER,
        },
        environment=IN_FOLDER,
    ),
    Row(
        "check", {"bench.cli.check.check_plugin": CHECKED, **SOURCE}, given={"target": "ptrue"},
        without=["results", *OF_RERUN, "timeout"],
        changes={"verbose": {"stdout": Holding("a rule")}, **FROM_FOLDER}, environment=IN_FOLDER,
    ),
    Row("check", {"bench.cli.check.check_results": [SubmissionVerdict("a", ())]}, given={"results": "a"},
        without=["target", "timeout", *OF_RERUN], changes={"results": "check_results.folder"}),
    Row(
        "check",
        {"bench.cli.check.check_results": [SubmissionVerdict("a", ())],
         "bench.cli.check.rerun": Rerun("a", reproduced=True, reason="so it is")},
        given={"results": "a", "rerun": "b"}, without=["target", "timeout"],
        changes={"results": {"check_results.folder": same, "rerun.folder": same}, "rerun": "rerun.cell",
                 "data_dir": "rerun.data_dir", "model": "rerun.model", "tokenizer": "rerun.tokenizer"},
    ),
    Row("cache", USED, environment={"CONFBENCH_CACHE": ["list_usage.root", "stdout"]}),
    *(
        Row(
            "cache prune",
            {**USED, "bench.store.pruning.select_entries": PruneResult([USE], []),
             "bench.store.pruning.prune": PruneResult([USE], [])},
            given=given, only=only, code=code,
            values={"older_than": {"5h": 5 * 3600.0, "3d": 3 * 86_400.0, "2w": 14 * 86_400.0}},
            changes={
                "model": "select_entries.model",
                "older_than": "select_entries.seconds",
                "fits": {"select_entries.kinds": ("fits", "adapters")},
                "signals": {"select_entries.kinds": (*(("fits", "adapters") if "fits" in given else ()), "readings")},
                "dry_run": {"prune": ABSENT, "stdout": Holding("1 entry")},
                "yes": {"prune": Holding("root"), "code": 0, "stdout": Holding("removed"), "stderr": ""},
                "quiet": {"stdout": "removed 1 entry, 1.0 kB\n"},
            },
            environment={
                "CONFBENCH_CACHE": ["list_usage.root", "select_entries.root", *(["prune.root"] if given else [])]
            },
        )
        for given, only, code in (
            ({"yes": True}, ["model", "older_than", "fits", "signals", "dry_run", "verbose", "quiet"], 0),
            ({"yes": True, "fits": True}, ["signals"], 0),
            ({}, ["yes"], 2),
        )
    ),
    *(
        Row(
            f"new {kind}", {}, given={"name": "one"}, values={"out": {"two.py": None}},
            changes={
                "name": {"files.one.py": ABSENT, "files.test_one.py": ABSENT, "files.a_name.py": Holding('"a-name"'),
                         "files.test_a_name.py": Holding("a_name"), "stdout": Holding("wrote a_name.py")},
                "out": {"files.one.py": ABSENT, "files.test_one.py": ABSENT, "files.two.py": Holding('"one"'),
                        "files.test_two.py": Holding("two"), "stdout": Holding("wrote two.py")},
                form: {"files.one.py": Holding(text), "files.test_one.py": Holding("one")},
            },
        )
        for kind, form, text in (("method", "trained", "LogisticRegression"), ("task", "choice", "Format.OPEN"))
    ),
    Row("head show", {"bench.run.scorers.card.read_card": CARD}, given={"folder": "a"}),
    Row("head export", {"bench.run.scorers.exporting.export": {"folder": "b"}}, given={"folder": "a", "out": "b"}),
    Row("head check", {"bench.run.scorers.checking.check": Fake(passed=True, lines=lambda: ["as it was"])},
        given={"folder": "a"}, replaced={"bench.run.scorers.checking.as_record": lambda _found: {}}),
    Row("analyze METHOD", {"bench.run.analyses.method_analyses.load_analyses": {"one": None}}, given={"method": "ccps"},
        only=["method"]),
    Row(
        "analyze METHOD",
        {
            "bench.run.analyses.method_analyses.run_analysis": ["found"], "bench.results.files.ensure_writable": None,
            "bench.report.method_analyses.build_analysis": SHOWN, "bench.report.analysis.write": [Path("a.json")],
        },
        given={"method": "ccps", "analysis": "features", "out": "a"},
        replaced=TABLES,
        changes={
            "analysis": "run_analysis.name",
            "out": {"ensure_writable.out": same, "write.out": same},
            **FORMAT_AND_FILES,
        },
    ),
    Row(
        "analyze transfer",
        {
            "bench.run.analyses.transfer.run_transfer": Fake(
                about=Fake(model="m"), cells=[], notes=NOTES, any_failed=False
            ),
            "bench.report.transfer.compute.compute_matrix": None, "bench.report.analysis.write": [Path("a.csv")],
        },
        given={"model": "tiny"},
        replaced={**TABLES, "bench.report.transfer.build_analysis": lambda _found: SHOWN},
        changes={"out": "write.out", "as_json": {"stderr": Holding("note: wrote ")}},
    ),
    Row(
        "analyze labels",
        {
            "bench.run.analyses.label_budgets.run_labels": Fake(curves=["curves"], notes=NOTES),
            "bench.report.analysis.write": [Path("a.csv")],
        },
        given={"model": "tiny"},
        replaced={**TABLES, "bench.report.label_budgets.build_analysis": lambda *_: SHOWN,
                  "bench.report.label_budgets.read_counts": lambda _results: []},
        changes={"out": "write.out", "as_json": {"stderr": Holding("note: wrote ")}},
    ),
    Row(
        "analyze multiverse",
        {
            "bench.report.multiverse.compute.compute_multiverse": None, "bench.results.files.ensure_writable": None,
            "bench.report.multiverse.build_analysis": SHOWN,
            "bench.report.analysis.write": [Path("a.csv")],
        },
        given={"model": "tiny", "task": "t"},
        replaced=TABLES,
        changes={
            "out": {"ensure_writable.out": same, "write.out": same},
            "methods": "build_analysis.methods",
            **FORMAT_AND_FILES,
        },
        environment={"CONFBENCH_CACHE": ["compute_multiverse.cache"]},
    ),
]  # fmt: skip
