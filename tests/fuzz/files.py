"""Parsers of files: of questions, results, released answers, and of what the cache holds."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import AutoTokenizer

from bench.api import Question
from bench.api.protocol import Protocol
from bench.data.answer_files import read_answers
from bench.data.question_files import task_of_file
from bench.data.released import Release, ReleaseFolder
from bench.grading.grade import JudgeCase
from bench.grading.verdicts import VerdictCache
from bench.model.specs import resolve
from bench.progress import Silent
from bench.prompts.chat import Chat
from bench.prompts.shards import PromptTokeniser
from bench.results import question_texts
from bench.results.files import read, read_records, to_json
from bench.results.question_texts import QuestionText
from bench.results.row import LabelsSeen
from bench.signals.files import load_signal
from bench.store.disk_cache import Store, key_of
from tasks.mmlu import MMLUChoice, MMLUOpen
from tests.fuzz.inputs import EDITS, RAW, Target, document, patched, text
from tests.kit.world import write_result

ROWS: list[dict[str, Any]] = [
    {"id": 1, "question": "What do bees make?", "choices": ["wax, honey", "silk"], "answer": "a", "split": "test"},
    {
        "id": 2,
        "question": "How many?",
        "choices": ["1", "2", "3"],
        "answer": "2 ",
        "subject": "numbers",
        "split": "train",
    },
]
OPEN: list[dict[str, Any]] = [{"question": "Where?", "answer": "here"}, {"question": "When?", "answer": "now"}]
JUDGE = {"kind": "openai", "model": "judge"}
FOLDERS = {"mmlu-choice": "MMLU-CHOICE", "mmlu-oe": "MMLU-OE"}
ANSWERS: list[dict[str, Any]] = [
    {"id": "a", "text": "So it is honey. Honey", "final_start": 16, "samples": ["wax", "honey"], "grade": True},
    {"id": 2, "tokens": [5, 6], "samples": [[7], [8, 9]], "grade": 0, "judge": "said"},
    {"id": "c", "text": "So honey.", "final": "honey", "grade": False, "judge": "said"},
]
RECORD = {
    "context": "Question:\nWhere?\n\nChoices:\n  (a): in a lake\n  (b): in the sea", "target": "b", "llm_output": "b",
    "conversation": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Where?"}],
    "query_label": 1, "dataset_name": "obqa", "hash_id": "1f", "wrong_targets": "0",
}  # fmt: skip


def _lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def _changed_lines(data: bytes, valid: list[dict[str, Any]]) -> bytes:
    """JSON Lines: the bytes, or valid rows with changes."""
    if data[:1] != EDITS:
        return data[1:]
    rows = json.loads(document(data, valid))
    return _lines(rows) if isinstance(rows, list) else json.dumps(rows).encode()


Fuzzed = Callable[[bytes], object]


def task_file(name: str, content: Callable[[bytes], bytes]) -> Callable[[Path], Fuzzed]:
    """A file of questions."""

    def prepare(folder: Path) -> Fuzzed:
        def call(data: bytes) -> None:
            (folder / name).write_bytes(content(data))
            task: Any = task_of_file(folder / name)
            for split in task.card.splits:
                list(task(None).questions(split))

        return call

    return prepare


def _csv() -> bytes:
    out = io.StringIO()
    writer = csv.DictWriter(out, ["question", "choices", "answer", "id"], extrasaction="ignore")
    writer.writeheader()
    writer.writerows({**row, "choices": json.dumps(row["choices"])} for row in ROWS)
    return out.getvalue().encode()


@cache
def _parquet_of_rows() -> bytes:
    import pyarrow as pa
    from pyarrow import parquet as pq

    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([{**row, "also": 1.5} for row in ROWS]), buffer)
    return buffer.getvalue()


def prompts(folder: Path) -> Fuzzed:
    writer = PromptTokeniser(Chat(AutoTokenizer.from_pretrained(resolve("tiny").source)), 2048, Protocol())
    (folder / "mine.jsonl").write_bytes(_lines(ROWS))
    made: Any = task_of_file(folder / "mine.jsonl")
    task = made(None)

    def call(data: bytes) -> None:
        said = text(data).encode("utf-8", "replace").decode()  # a file of questions has no half of a surrogate pair
        subject, question, *options = [*said.split("\n"), "x", "y"]
        asked = Question("1", subject, question, tuple(options[:26]), 0)
        (shard,) = writer.shards(task, [asked], {}, Silent(), "test")
        assert shard.prompts.total == len(shard.prompts[0])

    return call


def released(folder: Path) -> Fuzzed:
    files = [folder / "CCPS" / part / "model" / "test.jsonl" for part in FOLDERS.values()]
    for file in files:
        file.parent.mkdir(parents=True)
    release = Release(ReleaseFolder(folder / "CCPS"), "model", FOLDERS)
    nothing: Any = None  # they read no rows
    tasks = [MMLUChoice(nothing), MMLUOpen(nothing)]

    def call(data: bytes) -> None:
        which = data[0] % 2 if data else 0
        files[which].write_bytes(_changed_lines(data[1:], [RECORD, {**RECORD, "hash_id": "2f"}]))
        release.records(tasks[which], "test")

    return call


@cache
def _result() -> tuple[bytes, bytes]:
    more: dict[str, Any] = {"labels_seen": LabelsSeen(4, 2), "config": {"steps": 5}, "notes": ("one",)}
    more["provenance"] = {"code": {"version": "1"}, "revisions": {"tiny": None}}
    with TemporaryDirectory() as name:
        write_result(Path(name), "ccps", np.linspace(0.1, 0.9, 8), np.arange(8) % 3 > 0, subjects=2, **more)
        (path,) = (path for path in Path(name).rglob("*.json"))
        return path.read_bytes(), path.with_suffix(".parquet").read_bytes()


def result(folder: Path) -> Fuzzed:
    told, records = _result()
    valid = json.loads(told)
    path = folder / "ccps--fixed--s0.json"
    path.with_suffix(".parquet").write_bytes(records)

    def call(data: bytes) -> None:
        path.write_bytes(document(data, valid))
        to_json(replace(read(path), seed=1))

    return call


def confidences(folder: Path) -> Fuzzed:
    path = folder / "ccps--fixed--s0.parquet"

    def call(data: bytes) -> None:
        path.write_bytes(patched(data, _result()[1]))
        read_records(path)

    return call


def asked_texts(folder: Path) -> Fuzzed:
    path = question_texts.write("mine", 1, [QuestionText("q1", "a", "Which?", ("x", "y"), "a")], folder)
    valid = path.read_bytes()

    def call(data: bytes) -> None:
        path.write_bytes(patched(data, valid))
        question_texts.read(folder, "mine", 1)

    return call


def verdicts(folder: Path) -> Fuzzed:
    kept = VerdictCache(folder, JUDGE)
    for number in range(3):
        kept.put(JudgeCase("Where?", "here", f"there {number}"), number > 0, "judge-1")
    valid = [json.loads(line) for line in kept.path.read_text(encoding="utf-8").splitlines()]

    def call(data: bytes) -> None:
        kept.path.write_bytes(_changed_lines(data, valid))
        found = VerdictCache(folder, JUDGE)
        assert found.get(JudgeCase("Where?", "here", "never asked")) is None

    return call


SIGNALS: Mapping[str, Any] = {"signals": ["hidden"], "answers": "0"}


def stored(name: str) -> Callable[[Path], Fuzzed]:
    """An entry of the store whose manifest, or whose signal, is odd: used whole or not at all."""

    def save(folder: Path) -> None:
        file = f"{hashlib.sha256(b'hidden').hexdigest()[:16]}.safetensors"
        save_file({"values": torch.ones(4, 3, dtype=torch.bfloat16)}, folder / file)

    def prepare(folder: Path) -> Fuzzed:
        store, key = Store(folder), key_of(SIGNALS)
        store.prepare()
        entry = store.put("readings", key, SIGNALS, save)
        whole = {path.name: path.read_bytes() for path in entry.folder.iterdir()}
        valid = json.loads(whole["manifest.json"])

        def call(data: bytes) -> None:
            shutil.rmtree(entry.folder, ignore_errors=True)
            entry.folder.mkdir(parents=True)
            for file, content in whole.items():
                odd = (file == "manifest.json") == (name == "manifest")
                new = document(data, valid) if file == "manifest.json" else patched(data, content)
                (entry.folder / file).write_bytes(new if odd else content)
            found = store.get("readings", key)
            assert found is None or dict(found.manifest) == valid
            assert found is None or load_signal([found], "hidden")["values"].shape == (4, 3)
            store.notes.clear()

        return call

    return prepare


def answers(folder: Path) -> Fuzzed:
    def call(data: bytes) -> None:
        path = folder / "said.jsonl"
        path.write_bytes(_changed_lines(data, ANSWERS))
        read_answers(path)

    return call


TARGETS = {
    "task-jsonl": Target(
        task_file("mine.jsonl", lambda data: _changed_lines(data, OPEN if data[1:2] == b"\0" else ROWS)),
        lambda: [EDITS, RAW + _lines(ROWS), RAW + _lines(OPEN)],
    ),
    "task-csv": Target(task_file("mine.csv", bytes), lambda: [_csv(), b"question,answer\nWhere?,here\n"]),
    "task-parquet": Target(
        task_file("mine.parquet", lambda data: patched(data, _parquet_of_rows())),
        lambda: [EDITS, RAW + _parquet_of_rows()],
    ),
    "prompts": Target(prompts, lambda: [b"bees\nWhat?\nwax\nhoney", b"<|end|>\n{text}\n{{ x }}\n%s"]),
    "released": Target(released, lambda: [b"\0" + EDITS, b"\1" + EDITS, b"\0" + RAW + _lines([RECORD])]),
    "answers": Target(answers, lambda: [EDITS, RAW + _lines(ANSWERS)]),
    "result": Target(result, lambda: [EDITS, RAW + _result()[0]]),
    "records": Target(confidences, lambda: [EDITS, RAW + _result()[1]]),
    "questions": Target(asked_texts, lambda: [EDITS]),
    "verdicts": Target(verdicts, lambda: [EDITS, RAW + b"\n", RAW + b'{"key": 1}\n']),
    "manifest": Target(stored("manifest"), lambda: [EDITS, RAW + b"{}"]),
    "stored-signal": Target(stored("signal"), lambda: [EDITS]),
}
