"""Sentences of every reader about damaged input, in one golden file (kit/refusals.py says how it is rewritten)."""

from __future__ import annotations

import json
import pickle
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

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
HONEY: dict[str, Any] = {"question": "What do bees make?", "answer": "honey"}
GONE = "(gone)"
"""Value of what is taken out."""


class Refusals(NamedTuple):
    """Input that a reader refuses."""

    title: str
    read: Callable[[Path, Any], object]
    """Gets an empty folder and one of the inputs."""
    inputs: Sequence[Any]


def each(fields: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """One change for each value of a field."""
    return [{field: value} for field, values in fields.items() for value in values]


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

QUESTION_ROWS: list[dict[str, Any]] = [
    *each(
        {
            "question": [None, "  ", 7, "What \ud800?"],
            "answer": [None, "", "d", 3, -1, "01", True, 1.0, float("nan"), ["a"], "9" * 5000],
            "choices": [
                "honey, silk, ink", ["honey"], [], [str(i) for i in range(27)], ["honey", 2], ["honey", None],
                ["honey", " "], ["honey", "\udfff", "ink"], {"text": ["honey"], "label": ["A"]}, None,
            ],
            "choice_a": ["wax"],
            "split": ["tset", ["test"], "\ud800"],
            "id": [1.5, "first", "q\ud800"],
            "subject": [5, "\ud800"],
        }
    ),
    {"choices": None, "choice_a": "x", "choice_c": "y"},
    *({"choices": ["1", "2", "3"], "answer": answer} for answer in (1, "2")),
    {"choices": ["b", "a"], "answer": "a"},
    {"choices": ["same", "other", "same"], "answer": "same"},
]  # fmt: skip
QUESTION_FILES: list[list[dict[str, Any]]] = [
    *([{"question": "What?", "answers": answers}] for answers in ([], [1], ["honey", " "], "honey")),
    [{"question": "What?"}],
    [{"answer": "honey"}],
    *([{**HONEY, column: "x"}] for column in ("options", "Options", "A", "option_a", "opa")),
    [HONEY, BEES],
    [{**BEES, "split": "train"}],
]
JSON_LINES: list[str | bytes] = [
    "", "\n \n", b"\xef\xbb\xbf", '{"question": "q"', "question,answer", "{'question': 'q'}", '["q", "a"]', "7", "null",
    "[" * 100_000, '{"a": ' + "9" * 5000 + "}", '{"a": "b"}\n"Café"'.encode("utf-16"),
    *('{"a": "b"}\n"Café"'.encode(encoding) for encoding in ("utf-16-le", "utf-16-be", "latin-1")),
]  # fmt: skip
SHEETS: list[str | bytes] = [
    "", "\n \n", b"\xef\xbb\xbf", "question,answer\n", "question\nx\n",
    *("question,answer\nCafé?,yes\n".encode(encoding) for encoding in ("utf-16", "utf-16-le", "utf-16-be", "latin-1")),
    "question,choices,answer\nq,honey; silk,a\n",
    'question,choices,answer\nq,"{""a"": 1}",a\n',
    "question,choices,answer\nq,\"['a', 'b']\",a\n",
    'question,choices,answer\nq,"[1, 2]",a\n',
    "question,answer\nq\n",
    "question,answer\nq,a\nwhy, oh why,b\n",
    "question,answer,question\nq,a,q\n",
    'question,answer\n"q,a\n',
    'question,answer\n"q"x,a\n',
    "question;answer\nq;a\n",
    f"question,answer\n{'q' * 200_000},a\n",
]  # fmt: skip
TABLES: list[Any] = [
    0, 4, 100, -1, -100, (b"answer", b"\xffnswer"), (["question"], [["q"]]), (["question"], [[]]),
    (["question", "answer", "answer"], [["q"], ["a"], ["b"]]), (["question", "answer"], [[b"\xfbx"], ["here"]]),
]  # fmt: skip
FILE_NAMES = [
    "nothing.jsonl", "folder.jsonl", "bees.json", "bees.tsv", "bees", "bees.jsonl.gz", "---.jsonl", "蜂.jsonl",
    "x" * 74 + ".jsonl",
]  # fmt: skip
ANSWERS: list[list[Any]] = [
    [], [[1]], [{"text": "a"}], [{"id": True, "text": "a"}], [{"id": "q"}],
    *([{"id": "q", **row}] for row in each({"text": [3, "\ud800"], "tokens": ["a", [1, True], [1.0]]})),
    *([{"id": "q", "text": "ab", "final_start": start}] for start in (3, -1, "1")),
    [{"id": "q", "text": "ab", "final": "c"}],
    [{"id": "q", "text": "ab", "final": "b", "final_start": 1}],
    [{"id": "q", "tokens": [1], "final": "b"}],
    *([{"id": "q", "text": "a", **row}] for row in each({"samples": ["b", [], [2]], "grade": ["yes", 0.5]})),
    *([{"id": "q", "text": "a", **row}] for row in each({"judge": ["x\n", "\ud800"], "grad": [1], "final_strat": [1]})),
    [{"id": "q", "text": "a", "Samples": 1}],
    [{"id": "q", "text": "a"}, {"id": "q", "text": "b"}],
    [{"id": "q", "text": "a", "grade": 1}, {"id": "r", "text": "b"}],
    [{"id": i, "text": "a", "grade": 1, "judge": f"j{i}"} for i in range(2)],
]  # fmt: skip
ANSWER_TABLES = [
    (["id", "text", "text"], [["q"], ["a"], ["b"]]),
    *((["id", "text", column], [["q"], ["b"], [1]]) for column in ("grad", "final_strat", "Samples")),
]
RECORDS: list[dict[str, Any]] = [
    *each(
        {
            "context": [None, ["x"], "Where?", "Where? Choices:\nyes, no"],
            "target": [None, "d", "", "bc", 1],
            "llm_output": [["b"], True],
            "query_label": [2, "yes", [1], 0.5, GONE],
            "hash_id": [None, ""],
            "conversation": [
                "Hello", [], [{"role": "user"}], [{"role": ["user"], "content": "x"}], ["Hello"],
                [*CONVERSATION, {"role": "assistant", "content": "b"}],
            ],
            "wrong_targets": [[0, 2]],
        }
    ),
    {"context": CONTEXT.replace("it end", "it begin"), "hash_id": "1f"},
]  # fmt: skip
RELEASES: list[tuple[str, list[Any]]] = [
    *(("RIVERS-CHOICE", rows) for rows in ([], [{**CHOICE, "query_label": -1}], [[]], ["b"])),
    ("RIVERS-OE", [{**OPEN, "target": " "}]),
]
LM_EVAL_LOGS = [
    b"", b"{}\n", b'{"doc": {}, "resps": [[["x"]]]}\n', b'{"doc": {}, "resps": [[["1", "True"]]]}\n',
    b'{"doc": {}, "resps": [[["nan", "True"]]], "arguments": {"gen_args_0": {"arg_0": "", "arg_1": " a"}}}\n',
    b'{"doc": {}, "resps": [3]}\n', pickle.dumps({"doc": {}}),
]  # fmt: skip
INSPECT_LOGS = [
    ("log.json", b""), ("log.json", b"[1]"), ("log.json", b'{"samples": [3]}'),
    ("log.json", b'{"samples": [{"id": []}]}'), ("log.json", b"[" * 100_000),
    ("log.eval", pickle.dumps({})), ("log.eval", LOG[:5000]),
]  # fmt: skip


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


# --- judges -----------------------------------------------------------------------------------------------------------

URL = "http://127.0.0.1:1/v1"
JUDGES: list[tuple[str, ...]] = [
    ("opnai",), ("human",), ("",), ("match", "tiny"), ("match", None, URL), ("hf", "tiny", URL), ("hf",),
    ("hf", "tinny"), ("openai",),
    *(("openai", "m", url) for url in (
        "", "127.0.0.1:8000", "ftp://host/v1", "http://", "http:///v1", "http://host:port/v1", "http://host:99999/v1",
        "http://host:0/v1", "http://a b/v1", "http://[::1/v1", "http://user:hunter2@host:x/v1",
        "http://" + "a." * 200 + "org/v1", "http://host/" + "v" * 5000, "http://h/\ud800",
    )),
    *((kind, name) for kind in ("openai", "hf")
      for name in ("", " ", "m\ud800", "m\x1b[2J", "m\u202ex", "a\nb", "x" * 10_000)),
]  # fmt: skip


# --- rows of data sets ------------------------------------------------------------------------------------------------

HUB_ROW = {"question": "Q?", "subject": "anatomy", "choices": ["a", "b", "c", "d"], "answer": 3}
CHOICE_ROWS = each(
    {
        "answer": [4, -1, None, "b", True],
        "question": [None, "", " \n", 7],
        "subject": [None],
        "choices": [["only"], [], ["x"] * 27, None, "abcd", ["a", None, "c"], ["a", "b", 3]],
    }
)
ABCD = list("ABCD")
CT: dict[str, dict[str, Sequence[Any]]] = {
    "cb": {"label": [3, "entailment", True, 1.0, -1, None]},
    "siqa": {"label": ["0", "12", ""], "answerA": [["x"]]},
    "hellaswag": {"label": ["4", ""], "endings": ["one", ["a", "b", "c"]], "ctx_b": [None]},
    "winogrande": {"answer": ["3", ""], "sentence": [None]},
    "math_qa": {"correct": ["f", ""], "options": [None]},
    "boolq": {"answer": ["true", 1], "passage": [None]},
    "arc": {
        "answerKey": ["E", 2, " "],
        "question": [" \n", None],
        "choices": [
            ["ice", "tin", "salt"],
            {"text": ABCD},
            {"text": "ABCD", "label": ABCD},
            {"text": ["a", None, "c", "d"], "label": ABCD},
            {"text": ABCD, "label": ABCD[:3]},
            {"text": ABCD[:2], "label": ABCD[:2]},
            {"text": list("ABCDEF"), "label": list("ABCDEF")},
        ],
    },
    "obqa": {"choices": [{"text": ABCD[:3], "label": ABCD[:3]}]},
    "commonsense_qa": {
        "choices": [{"text": ABCD, "label": ABCD}, None, {"label": []}, {"text": ["a", None]}],
        "answerKey": [""],
    },
    "piqa": {"sol2": [7]},
    "copa": {"choice1": [None], "label": [-1]},
    "cosmos_qa": {"answer3": [None], "label": [-1]},
    "sciq": {"support": [None], "distractor1": [None]},
    "multirc": {"answer": [["x"]], "label": [-1]},
    "snli": {"hypothesis": [""], "label": [-1]},
    "trec": {"coarse_label": [-1]},
}
FOLDER_FILES: list[Any] = [GONE, 0, 3, 100, -1, -200, b"\xff" * 76, ["question"], "no rows", {"answer": 9}]
FIRST, SECOND, THIRD = (f"{part:05d}-of-00003" for part in range(3))
FOLDER_PARTS: list[dict[str, int]] = [
    *({part: 2 for part in (FIRST, SECOND, THIRD) if part != missing} for missing in (FIRST, SECOND, THIRD)),
    {FIRST: 2, SECOND: 0, THIRD: 2},
    {FIRST: 2, SECOND: 2, THIRD: 2, "00000-of-00001": 2},
]


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


def nested(levels: int, kind: type) -> Any:
    """So many objects or lists, each in the one before."""
    value = kind()
    for _ in range(levels):
        value = {"in": value} if kind is dict else [value]
    return value


RESULT_FIELDS = each(
    {
        "seed": [GONE], "metrics.ece.std": [GONE], "speed": [3], "schema_version": [GONE, 6], "status": ["canceled"],
        "n": ["3", True, 2.5], "method": [None], "metrics": [[]], "labels_seen": [3], "notes": ["x"],
        "metrics.ece.mean": [float("nan")], "per_subject.subject 0.ece": [float("inf")],
        "cost.answers.forward_tokens": [1.5], "provenance": [{"code": 3}],
        "provenance.code": [{"a": nested(20, list)}, nested(20, dict)], "records_digest": [None],
        "generated_tokens_alone": [GONE],
    }
)  # fmt: skip
RESULT_FILES: list[bytes | str] = [
    b"", b"{", b"\xff\xfe", b"[1]", b"null", b"[" * 100_000, "folder", "no Parquet file", "another one", "0.25",
]  # fmt: skip
RESULT_COLUMNS: list[Any] = [
    *each({"confidence": [[0.1, float("nan"), 0.2], [0.1, 0.2, 1.5], [0.1, None, 0.2]], "correct": [[1, 0, 1]]}),
    *({"score": score} for score in ([1.0, float("nan"), 2.0], [1.0, 2.0, float("inf")])),
    {"score": [1.0, 2.0, 3.0], "confidence": [0.5, float("nan"), 0.5]},
    {"confidence": [float("nan")] * 3}, -20, (b"answer", b"\xffnswer"), GONE,
]  # fmt: skip
QUESTION_TABLES: list[Any] = [40, {"id": ["a"], "text": ["b"]}, "nulls", "another task's", "another text"]


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

REFUSALS = [
    Refusals("A question file whose second row has other values", question_row, QUESTION_ROWS),
    Refusals("A question file of these rows",
             lambda f, rows: task_of_file(lines(f / "bees.jsonl", *rows)), QUESTION_FILES),
    Refusals("A question file in JSON Lines", lambda f, text: task_of_file(saved(f / "bees.jsonl", text)), JSON_LINES),
    Refusals("A question file in CSV", lambda f, text: task_of_file(saved(f / "bees.csv", text)), SHEETS),
    Refusals("A question file in Parquet: of so many bytes, of other bytes, or of columns",
             lambda f, what: task_of_file(damaged(f, what, question=["q"] * 50, answer=["x"] * 50)), TABLES),
    Refusals("A question file of this name", question_file, FILE_NAMES),
    Refusals("A question file to learn on",
             lambda f, rows: task_of_file(lines(f / "bees.jsonl", *rows), "train"), [[{**BEES, "split": "test"}]]),
    Refusals("A file of answers", lambda f, rows: read_answers(lines(f / "qwen.jsonl", *rows)), ANSWERS),
    Refusals("A file of answers in Parquet", lambda f, what: read_answers(damaged(f, what)), ANSWER_TABLES),
    Refusals("A file of answers that is not there", lambda f, name: read_answers(f / name), ["none.jsonl"]),
    Refusals("A release whose second record has other values", record, RECORDS),
    Refusals("A release of these records", lambda f, what: release(f, *what), RELEASES),
    Refusals("A log of lm-evaluation-harness", lambda f, log: lm_eval_records(saved(f / "s.jsonl", log)), LM_EVAL_LOGS),
    Refusals("A log of Inspect", lambda f, log: inspect_records(saved(f / log[0], log[1])), INSPECT_LOGS),
    Refusals("A log that is not there", lambda f, read: read(f / "none.json"), [lm_eval_records, inspect_records]),
    Refusals("Options of a judge", lambda f, options: open_judge(JudgeOptions(*options), f), JUDGES),
    Refusals("A row with options", choice_row, CHOICE_ROWS),
    Refusals("A row of a data set of CT",
             ct_row, [(name, change) for name, fields in CT.items() for change in each(fields)]),
    Refusals("Rows of a folder: the file's bytes, columns or values", folder_file, FOLDER_FILES),
    Refusals("Rows of a folder: parts, and how many rows they have", folder_parts, FOLDER_PARTS),
    Refusals("A field of a result", result_fields, RESULT_FIELDS),
    Refusals("The JSON file of a result", result_file, RESULT_FILES),
    Refusals("The Parquet file of a result: columns, bytes", result_columns, RESULT_COLUMNS),
    Refusals("Questions kept beside results", kept_questions, QUESTION_TABLES),
]  # fmt: skip


def shown(value: Any) -> str:
    text = getattr(value, "__name__", None) or repr(value)
    return f"`{text[:90]}{'…' if len(text) > 90 else ''}`"


def sentence(refusals: Refusals, folder: Path, damage: Any) -> str:
    with pytest.raises(UserError) as caught:
        refusals.read(folder, damage)
    assert "\n" not in str(caught.value)
    return kit.stable(str(caught.value), folder)


@pytest.mark.parametrize("refusals", REFUSALS, ids=[refusals.title for refusals in REFUSALS])
def test_refusals_are_those_of_the_golden_file(
    refusals: Refusals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    said = []
    for i, damage in enumerate(refusals.inputs):
        (tmp_path / str(i)).mkdir()
        said.append(f"- {shown(damage)}: {sentence(refusals, tmp_path / str(i), damage)}")
    if kit.UPDATING:
        kit.rewrite(refusals.title, said)
    assert said == kit.golden(refusals.title)
