"""Options, names and files of questions that nobody should give, and what somebody gets who does."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tests.faults import workload
from tests.faults.commands import Outcome, Ran, bench, cells, require

TITLE = "hostile options, names and questions"

_LONG = "m" * 5_000
_HALF = "\ud800"
"""Half of a surrogate pair: JSON can say it, UTF-8 can't."""


def cases(folder: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    file = workload.questions_file(folder, sizes={"test": 6, "train": 12, "validation": 6})
    for number, (name, more) in enumerate(_OPTIONS.items()):
        yield name, partial(_refused, folder / f"o{number}", file, "ccps,ptrue", *more)
    for number, (name, row) in enumerate(_ROWS.items()):
        yield f"question: {name}", partial(_row_refused, folder / f"r{number}", row)
    for number, (name, content) in enumerate(_FILES.items()):
        yield f"file: {name}", partial(_file_refused, folder / f"f{number}", *content)
    for number, (name, row) in enumerate(_HARMLESS.items()):
        yield f"harmless: {name}", partial(_row_used, folder / f"h{number}", row)
    for number, (name, words) in enumerate(_OTHER_COMMANDS.items()):
        yield name, partial(_command_refused, folder / f"c{number}", words)


def _ran(folder: Path, file: Path, methods: str = "ptrue", *more: str) -> Ran:
    return bench(*workload.command(file, folder, methods, *more), folder=folder, env=workload.cache(folder))


def _refused(folder: Path, file: Path, *more: str) -> Ran:
    ran = _ran(folder, file, *more).refused()
    done = any((folder / "out").rglob("*.parquet")) or any((folder / "cache").rglob("*.safetensors"))
    require(not done, Outcome.LOST, "it was refused after work, not before it")
    return ran


def _row(**changes: Any) -> dict[str, Any]:
    return {"id": "q7", "subject": "s", "question": "Which?", "choices": ["red", "blue"], "answer": "a"} | changes


def _with_row(folder: Path, row: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "rows.jsonl"
    lines = [_row(id=f"q{i}", question=f"Which is {i}?") for i in range(5)]
    path.write_text("".join(json.dumps(line) + "\n" for line in [*lines, row]), encoding="ascii")
    return path


def _row_refused(folder: Path, row: dict[str, Any]) -> None:
    ran = _refused(folder, _with_row(folder, row))
    require("line 6" in ran.err or "q7" in ran.err, Outcome.LOST, f"the row isn't named: {ran.err[-200:]!r}")


def _row_used(folder: Path, row: dict[str, Any]) -> None:
    _ran(folder, _with_row(folder, row)).expect(0)
    (cell,) = cells(folder / "out").values()
    require(cell["status"] == "ok" and cell["n"] == 6, Outcome.LOST, f"{cell['status']}: {cell['reason']}")


def _file_refused(folder: Path, name: str, content: bytes) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content)
    _refused(folder, folder / name)


def _command_refused(folder: Path, words: Sequence[str]) -> None:
    bench(*words, folder=folder, env=workload.cache(folder)).refused()


_OPTIONS: dict[str, Sequence[str]] = {
    "number is nan": ("--set", "ccps.learning_rate=nan"),
    "number is infinite": ("--set", "ccps.radius=inf"),
    "number is 1e999": ("--set", "ccps.margin=1e999"),
    "number without a type so far is nan": ("--set", "ccps.unflipped_at_test=nan"),
    "share of validation is nan": ("--set", "protocol.validation_fraction=nan"),
    "share of validation is 2": ("--set", "protocol.validation_fraction=2"),
    "negative steps": ("--set", "ccps.classifier_steps=-1"),
    "no steps": ("--set", "ccps.contrastive_steps=0"),
    "batch of 0": ("--set", "ccps.batch_size=0"),
    "batch of 2^70": ("--set", f"ccps.batch_size={2**70}"),
    "negative rate": ("--set", "ccps.learning_rate=-0.1"),
    "negative decay": ("--set", "ccps.weight_decay=-1"),
    "all is dropped out": ("--set", "ccps.classifier_dropout=1"),
    "more than all is dropped out": ("--set", "ccps.contrastive_dropout=1.5"),
    "radius 0": ("--set", "ccps.radius=0"),
    "a number of 5,000 digits": ("--set", f"ccps.steps={'9' * 5_000}"),
    "seed -1": ("--seed", "-1"),
    "seed 2^63": ("--seed", str(2**63)),
    "seed 2^70": ("--seed", str(2**70)),
    "limit -5": ("--limit", "-5"),
    "limit 2^70": ("--limit", str(2**70)),
    "budget -1": ("--token-budget", "-1"),
    "budget 2^70": ("--token-budget", str(2**70)),
    "exemplar sets -1": ("--exemplar-sets", "-1"),
    "exemplar sets 2^70": ("--exemplar-sets", str(2**70)),
    "seed of the split -1": ("--set", "protocol.split_seed=-1"),
    "bins 10^9": ("--set", "protocol.ece_bins=1000000000"),
    "half a surrogate in an override": ("--set", "ccps.optimiser=\udcff"),
    "half a surrogate in letters": ("--set", "protocol.letters=ab\udcff"),
    "half a surrogate in a method": ("--method", "ptrue\udcff"),
    "half a surrogate in the folder of results": ("--out", "out\udcff"),
    "half a surrogate in the model": ("--model", "mod\udcffel"),
    "half a surrogate in the preset": ("--preset", "\udcff"),
    "model of 5,000 letters": ("--model", _LONG),
    "model of 5,000 letters of the Hub": ("--model", f"org/{_LONG}"),
    "model with a control character": ("--model", "org/mo\x1bdel"),
    "folder of results of 5,000 letters": ("--out", _LONG),
    "data folder of 5,000 letters": ("--data-dir", _LONG),
    "plugin of 5,000 letters": ("--plugin", f"{_LONG}.py"),
    "task file of 5,000 letters": ("--task-file", f"{_LONG}.jsonl"),
    "file to learn on of 5,000 letters": ("--train-on", f"{_LONG}.jsonl"),
    "task of 5,000 letters": ("--task", _LONG),
    "a method's name of 5,000 letters": ("--method", _LONG),
}
_ROWS: dict[str, dict[str, Any]] = {
    "half a surrogate in the question": _row(question=f"Which {_HALF}?"),
    "half a surrogate in an option": _row(choices=["red", _HALF]),
    "half a surrogate in the id": _row(id=f"q7{_HALF}"),
    "half a surrogate in the subject": _row(subject=_HALF),
    "half a surrogate in the answer": _row(answer=f"r{_HALF}"),
    "half a surrogate in the split": _row(split=_HALF),
    "question is a number": _row(question=7),
    "27 options": _row(choices=[str(i) for i in range(100, 127)]),
    "no option fits the answer": _row(answer="z"),
    "an empty option": _row(choices=["red", " "]),
    "id is a list": _row(id=["q7"]),
    "question of a million words": _row(question="word " * 1_000_000),
}
_FILES: dict[str, tuple[str, bytes]] = {
    "empty": ("a.jsonl", b""),
    "no JSON": ("a.jsonl", b"\x00\x01\x02"),
    "deep JSON": ("a.jsonl", b"[" * 200_000),
    "number of 5,000 digits": ("a.jsonl", b'{"question": ' + b"9" * 5_000 + b"}"),
    "UTF-16": ("a.jsonl", '{"question": "x"}'.encode("utf-16")),
    "Parquet that is none": ("a.parquet", b"PAR1" + b"\xff" * 100 + b"PAR1"),
    "CSV with a quote that stays open": ("a.csv", b'question,answer\n"a,b\n'),
    "name of signs only": ("!!!.jsonl", b"{}"),
    "name of 200 letters": ("n" * 200 + ".jsonl", b"{}"),
    "name that is all": ("all.jsonl", b"{}"),
    "other ending": ("a.exe", b"{}"),
}
_HARMLESS: dict[str, dict[str, Any]] = {
    "a path as subject": _row(subject="../../x"),
    "escape sequences": _row(question="\x1b[2J\x1b]0;x\x07", subject="\x1b[31m"),
    "text from right to left": _row(question="\u202egnorw si siht"),
    "a NUL": _row(question="a\x00b"),
    "emoji and marks": _row(question="👩🏽‍🚀 e\u0301", choices=["ß", "İ"]),
    "the chat template's own marks": _row(question="<|user|> x <|end|> {{ 7 * 7 }} {% raw %}"),
    "markup": _row(subject="=cmd|' /C calc'!A0", question="<script>alert(1)</script> \\input{/etc/passwd}"),
}
_OTHER_COMMANDS: dict[str, Sequence[str]] = {
    "table of a folder of 5,000 letters": ("table", "--results", _LONG),
    "report into a file of 5,000 letters": ("report", "--out", _LONG),
    "check of a file of 5,000 letters": ("check", f"{_LONG}.py"),
    "check of results of 5,000 letters": ("check", "--results", _LONG),
    "show a name of 5,000 letters": ("show", _LONG),
    "params of a model of 5,000 letters": ("params", "--model", _LONG),
    "list half a surrogate": ("list", "\udcff"),
}
