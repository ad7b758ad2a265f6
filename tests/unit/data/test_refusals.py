"""Sentences of every reader about damaged input, in one golden file (kit/refusals.py says how it is rewritten)."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from bench.api import Format, Row, UserError
from bench.data.answer_files import read_answers
from bench.data.logs import inspect_records, lm_eval_records
from bench.data.question_files import task_of_file
from bench.data.released import Release, ReleaseFolder
from bench.data.sources import FolderSource
from bench.grading.judges import JudgeOptions, open_judge
from bench.model.cost import StageTokens
from bench.results import cells, files, question_texts
from bench.results.question_texts import QuestionText
from bench.store.disk_cache import with_digest
from tasks import _choices
from tasks.ct.composer import CHOICE_SETS
from tasks.ct.data_set import ReadOptions
from tasks.mmlu import MMLUChoice
from tests.kit import refusals as kit
from tests.kit import world
from tests.unit.data.test_released import CHOICE, CONTEXT, CONVERSATION, FOLDERS, OPEN, OpenRivers, ReleasedRivers

TESTS = Path(__file__).parents[2]
LOG = (TESTS / "fixtures/logs/inspect-oe.eval").read_bytes()
CT_ROWS = json.loads((TESTS / "fixtures/ct_rows.json").read_text(encoding="utf-8"))["rows"]
CT_SETS = {each.name: each for each in CHOICE_SETS}
BEES: dict[str, Any] = {"question": "What do bees make?", "choices": ["honey", "silk", "ink"], "answer": "a"}
NAMES: dict[str, Any] = {
    "CHOICE": CHOICE, "OPEN": OPEN, "CONTEXT": CONTEXT, "CONVERSATION": CONVERSATION, "LOG": LOG, "nan": float("nan"),
    "inf": float("inf"), "lm_eval_records": lm_eval_records, "inspect_records": inspect_records,
}  # fmt: skip
"""Names that inputs of the golden file may have."""
Reader = Callable[[Path, Any], object]
"""Gets an empty folder and an input."""
GONE = "(gone)"
"""Value of what is taken out."""


def lines(path: Path, *rows: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def saved(path: Path, content: bytes | str) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def damaged(folder: Path, what: Any, **columns: Sequence[Any]) -> Path:
    """A Parquet file: with other columns; cut to so many bytes; or with `old` bytes replaced by `new` ones."""
    path = folder / "bees.parquet"
    names, arrays = what if isinstance(what, tuple) and isinstance(what[0], list) else (list(columns), columns.values())
    arrays = [pa.array(array) for array in arrays]
    arrays = [array.view(pa.string()) if pa.types.is_binary(array.type) else array for array in arrays]
    parquet.write_table(pa.table(arrays, names=names), path, store_schema=False)
    if isinstance(what, int):
        path.write_bytes(path.read_bytes()[:what])
    elif isinstance(what, tuple) and isinstance(what[0], bytes):
        path.write_bytes(path.read_bytes().replace(*what))
    return path


# --- questions, answers, released records, logs -----------------------------------------------------------------------


def question_row(folder: Path, change: dict[str, Any]) -> object:
    return task_of_file(lines(folder / "bees.jsonl", {**BEES, "id": "first"}, {**BEES, **change}))


def question_file(folder: Path, name: str) -> object:
    (folder / "folder.jsonl").mkdir()
    return task_of_file(folder / name if name in {"nothing.jsonl", "folder.jsonl"} else lines(folder / name, BEES))


def release(folder: Path, name: str, rows: Sequence[object]) -> object:
    lines(folder / f"{name}/small/test.jsonl", *rows)
    task: Any = ReleasedRivers if name == "RIVERS-CHOICE" else OpenRivers
    return list(Release(ReleaseFolder(folder), "small", FOLDERS).records(task(None), "test"))


def record(folder: Path, change: dict[str, Any]) -> object:
    changed = {**CHOICE, "hash_id": "2", **change}
    return release(folder, "RIVERS-CHOICE", [CHOICE, {key: value for key, value in changed.items() if value != GONE}])


# --- rows of data sets ------------------------------------------------------------------------------------------------

HUB_ROW = {"question": "Q?", "subject": "anatomy", "choices": ["a", "b", "c", "d"], "answer": 3}


def choice_row(_: Path, change: dict[str, Any]) -> object:
    fields = _choices.Fields("subject", "question", "choices", "answer")
    return _choices.question(Row(12, "mmlu/test.parquet row 12", HUB_ROW | change), fields, "mmlu/test/12")


def ct_row(_: Path, change: tuple[str, dict[str, Any]]) -> object:
    name, values = change
    options = ReadOptions(Format.CHOICE, 23)
    return CT_SETS[name].read(Row(0, f"{name}.parquet row 0", CT_ROWS[name][0] | values), options)


def folder_file(folder: Path, what: Any) -> object:
    """Rows of MMLU in a folder whose file is gone, or is cut, overwritten, of other columns, of other values, empty."""
    path = folder / "mmlu/test.parquet"
    path.parent.mkdir()
    row = HUB_ROW | (what if isinstance(what, dict) else {})
    table = pa.table({key: [value] * 9 for key, value in row.items()})
    parquet.write_table(table.select(what) if isinstance(what, list) else table, path)
    if isinstance(what, int):
        path.write_bytes(path.read_bytes()[:what])
    elif isinstance(what, bytes):
        path.write_bytes(path.read_bytes()[:4] + what + path.read_bytes()[4 + len(what) :])
    elif what == "no rows":
        parquet.write_table(table.slice(0, 0), path)
    elif what == GONE:
        path.unlink()
    return list(MMLUChoice(FolderSource(folder)).questions("test"))


def folder_parts(folder: Path, rows: Mapping[str, int]) -> object:
    """Rows of MMLU in a folder with parts that have so many rows."""
    (folder / "mmlu").mkdir()
    for name, n in rows.items():
        table = pa.table({key: pa.array([value] * 2).slice(0, n) for key, value in HUB_ROW.items()})
        parquet.write_table(table, folder / f"mmlu/test-{name}.parquet")
    return list(MMLUChoice(FolderSource(folder)).questions("test"))


# --- results ----------------------------------------------------------------------------------------------------------


@cache
def results() -> Path:
    """Written once: metrics take a while."""
    folder = Path(tempfile.mkdtemp())
    fields: dict[str, Any] = {"cost": {"answers": StageTokens(100, 110, 99)}, "timings": {"answers": 0.25}}
    world.write_result(folder, "ccps", [0.9, 0.1, 0.3], [True, False, True], **fields)
    return folder


def result(folder: Path) -> Path:
    shutil.copytree(results(), folder, dirs_exist_ok=True)
    return folder / "tiny/atlas-choice/ccps--demo--s0.json"


def result_fields(folder: Path, change: dict[str, Any]) -> object:
    path = result(folder)
    values = whole = json.loads(path.read_text(encoding="utf-8"))
    ((keys, value),) = change.items()
    *above, key = keys.split(".")
    for name in above:
        values = values.setdefault(name, {})
    values[key] = value
    if value == GONE:
        del values[key]
    path.write_text(json.dumps(with_digest(whole)), encoding="utf-8")
    return cells.read_all(folder)


def result_file(folder: Path, what: bytes | str) -> object:
    path = result(folder)
    if isinstance(what, bytes):
        path.write_bytes(what)
    elif what == "folder":
        path.unlink()
        path.mkdir()
    elif what == "no Parquet file":
        path.with_suffix(".parquet").unlink()
    elif what == "another one":
        path.with_suffix(".parquet").write_bytes(b"x")
    else:
        path.write_text(path.read_text(encoding="utf-8").replace(what, "0.27", 1), encoding="utf-8")
    return cells.read_all(folder)


def result_columns(folder: Path, what: Any) -> object:
    """Records of a result whose Parquet file has other columns, is cut, has bytes replaced, or is gone."""
    path = result(folder).with_suffix(".parquet")
    table = parquet.read_table(path)
    for column, values in (what if isinstance(what, dict) else {}).items():
        table = table.drop_columns([column] if column in table.column_names else [])
        place = ("id", "subject", "correct", "confidence", "answer", "parsed", "score").index(column)
        table = table.add_column(place, column, pa.array(values))
    parquet.write_table(table, path, store_schema=False)
    if isinstance(what, int):
        path.write_bytes(path.read_bytes()[:what])
    elif isinstance(what, tuple):
        path.write_bytes(path.read_bytes().replace(*what))
    elif what == GONE:
        path.unlink()
    return files.read_records(path)


def kept_questions(folder: Path, what: Any) -> object:
    texts = [QuestionText(f"t/{i}", "bells", f"Which bell rings {i} times?", ("one", "two"), "a") for i in range(4)]
    path = question_texts.write("rivers", 1, texts, folder)
    table = parquet.read_table(path)
    if what == "another text":
        table = table.set_column(2, "text", pa.array(["?", *table["text"].to_pylist()[1:]]))
    elif what == "nulls":
        table = pa.table({name: pa.array([None], table.schema.field(name).type) for name in table.column_names})
    elif isinstance(what, dict):
        table = pa.table(what)
    parquet.write_table(table, path)
    if isinstance(what, int):
        path.write_bytes(path.read_bytes()[:what])
    if what == "another task's":
        question_texts.write("rivers", 1, texts, folder / "b")
        path = (folder / "b/questions/rivers--v1.parquet").rename(path.with_name("hills--v1.parquet"))
    return question_texts.read(folder, path.stem.partition("--")[0], 1)


# --- all of them ------------------------------------------------------------------------------------------------------

READERS: dict[str, Reader] = {
    "A question file whose second row has other values": question_row,
    "A question file of these rows": lambda f, rows: task_of_file(lines(f / "bees.jsonl", *rows)),
    "A question file in JSON Lines": lambda f, text: task_of_file(saved(f / "bees.jsonl", text)),
    "A question file in CSV": lambda f, text: task_of_file(saved(f / "bees.csv", text)),
    "A question file in Parquet: of so many bytes, of other bytes, or of columns": lambda f, what: task_of_file(
        damaged(f, what, question=["q"] * 50, answer=["x"] * 50)
    ),
    "A question file of this name": question_file,
    "A question file to learn on": lambda f, rows: task_of_file(lines(f / "bees.jsonl", *rows), "train"),
    "A file of answers": lambda f, rows: read_answers(lines(f / "qwen.jsonl", *rows)),
    "A file of answers in Parquet": lambda f, what: read_answers(damaged(f, what)),
    "A file of answers that is not there": lambda f, name: read_answers(f / name),
    "A release whose second record has other values": record,
    "A release of these records": lambda f, what: release(f, *what),
    "A log of lm-evaluation-harness": lambda f, log: lm_eval_records(saved(f / "s.jsonl", log)),
    "A log of Inspect": lambda f, log: inspect_records(saved(f / log[0], log[1])),
    "A log that is not there": lambda f, read: read(f / "none.json"),
    "Options of a judge": lambda f, options: open_judge(JudgeOptions(*options), f),
    "A row with options": choice_row,
    "A row of a data set of CT": ct_row,
    "Rows of a folder: the file's bytes, columns or values": folder_file,
    "Rows of a folder: parts, and how many rows they have": folder_parts,
    "A field of a result": result_fields,
    "The JSON file of a result": result_file,
    "The Parquet file of a result: columns, bytes": result_columns,
    "Questions kept beside results": kept_questions,
}


@pytest.mark.parametrize("reader", READERS)
def test_refusals_are_those_of_the_golden_file(reader: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    said = []
    for i, line in enumerate(kit.golden(reader)):
        damage = line.removeprefix("- `").partition("`:")[0]
        folder = tmp_path / str(i)
        folder.mkdir()
        with pytest.raises(UserError) as caught:
            READERS[reader](folder, eval(damage, dict(NAMES)))  # noqa: S307 - committed by ourselves
        assert "\n" not in str(caught.value)
        said.append(f"- `{damage}`: {kit.stable(str(caught.value), folder)}")
    if kit.UPDATING:
        kit.rewrite(reader, said)
    assert said
    assert said == kit.golden(reader)
