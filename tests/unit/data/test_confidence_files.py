"""Files with confidences: what is read of each kind, and a sentence for every way in which one can be wrong."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

import bench
from bench.api import UserError
from bench.data.confidence_files import MOST_BYTES, read_sheet

FIXTURES = Path(__file__).parents[2] / "fixtures"


def test_sheet_of_an_inspect_log_has_scores_and_metadata() -> None:
    sheet = read_sheet([FIXTURES / "confidences/inspect.eval"])
    row = {name: values[0] for name, values in sheet.columns.items()}
    assert (sheet.name, len(sheet.where)) == ("quiz", 120)
    assert row == {
        "file": "inspect", "correct": "C", "model": "mockllm/model", "task": "quiz", "id": "q0", "epoch": 1,
        "score_verbal": "C", "score_verbal_confidence": 100, "metadata_topic": "law",
    }  # fmt: skip


def test_sheet_of_lm_eval_has_the_softmax_over_options() -> None:
    sheet = read_sheet([FIXTURES / "logs/lm-eval-choice.jsonl"])
    assert sheet.columns["correct"] == [True, True, True, False]
    assert sheet.columns["softmax"][0] == pytest.approx(0.7758, abs=1e-4)
    assert sheet.columns["id"][0] == "lm-eval-choice/0"
    with pytest.raises(UserError, match="texts have no confidence"):
        read_sheet([FIXTURES / "logs/lm-eval-oe.jsonl"])


def test_sheet_of_several_files_knows_the_file_of_each_row(tmp_path: Path) -> None:
    for name in ("big", "small"):
        (tmp_path / f"{name}.csv").write_text("id,correct,p\n1,1,0.5\n2,0,0.4\n", encoding="utf-8")
    audit = bench.audit([tmp_path / "big.csv", tmp_path / "small.csv"], group="file")
    assert [table.model for table in audit.tables] == ["big", "small"]


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_sheet_with_a_byte_order_mark_is_read(mark: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"{mark}correct,p\n1,0.5\n0,0.4\n", encoding="utf-8")
    (tmp_path / "a.json").write_text(f'{mark}[{{"correct": true, "p": 0.5}}]', encoding="utf-8")
    assert set(read_sheet([tmp_path / "a.csv"]).columns) == {"file", "correct", "p"}
    assert read_sheet([tmp_path / "a.json"]).columns["p"] == [0.5]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.csv", b"", "expected at least one row"),
        ("a.csv", b"correct,p\n", "expected at least one row"),
        ("a.csv", b"\xef\xbb\xbfcorrect;p\n1;0,7\n", "separated by commas, got 'correct;p'; .*numbers as 0.85"),
        ("a.csv", b"correct\tp\n1\t0.7\n", r"separated by commas, got 'correct\\tp'"),
        ("a.csv", b"correct|p\n1|0.7\n", r"separated by commas, got 'correct\|p'"),
        (
            "a.csv",
            b"Export of May\ncorrect,p\n1,0.7\n",
            "names of columns in the first line.*got 'Export of May'; take",
        ),
        (
            "a.csv",
            b"sep=,\ncorrect,p,q\n1,0.7,1\n",
            "expected 2 cells as in the first line, the names of columns, got 3",
        ),
        ("a.csv", "correct,p\n1,0.5\n".encode("utf-16"), r"expected text in UTF-8.*UTF-16"),
        ("a.parquet", b"correct,p\n1,0.5\n", "expected a whole Parquet file"),
        ("a.jsonl", b"correct,p\n1,0.5\n", "expected a JSON object"),
        ("a.json", b'{"a": 1}', "expected a list of objects, or a log of Inspect"),
        ("a.json", b"[]", "expected at least one row"),
        ("a.json", b"[", "expected JSON, but it can't be read"),
        ("a.json", b'{"correct": 1}\n{"correct": 0}\n', "end its name in .jsonl if each line is an object"),
        ("a.eval", b"no zip", "expected a whole log of Inspect"),
        ("a.xlsx", b"x", r"ends in .csv, .jsonl, .json, .parquet, .eval, got '.xlsx'; save the sheet as CSV"),
        ("a.man", b"x", "pickles of any kind may hold code"),
        ("a", b"x", "got 'no ending'"),
    ],
)
def test_sheet_that_cannot_be_read_is_refused(name: str, content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=said):
        read_sheet([tmp_path / name])


def test_parquet_value_that_does_not_convert_is_refused(tmp_path: Path) -> None:
    times = pa.array([2**62, 0], pa.timestamp("us"))
    parquet.write_table(pa.table({"correct": [True, False], "p": [0.5, 0.7], "at": times}), tmp_path / "a.parquet")
    with pytest.raises(
        UserError, match=r"a.parquet: a value can't be read \(date value out of range\); write columns of"
    ):
        read_sheet([tmp_path / "a.parquet"])


@pytest.mark.parametrize("data", [None, 5, {"correct": [1]}, [{"correct": 1}], b"a.csv", np.ones((2, 2)), pa.table({})])
def test_data_of_another_kind_is_refused(data: object) -> None:
    with pytest.raises(
        UserError, match=r"audit\(\): expected a pandas DataFrame or names of files, got .*; make a DataFr"
    ):
        bench.audit(data)


def test_files_of_one_name_are_told_apart_by_their_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder, p in (("big", 0.5), ("small", 0.4)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "scores.csv").write_text(f"id,correct,p\n1,1,{p}\n2,0,{p}\n", encoding="utf-8")
    files = [Path("big/scores.csv"), Path("small/scores.csv")]
    assert [table.model for table in bench.audit(files, group="file").tables] == ["big/scores.csv", "small/scores.csv"]
    with pytest.raises(UserError, match=r"small/scores.csv line 2: it has the id '1' of big/scores.csv line 2"):
        bench.audit(files)


def test_sheet_that_is_missing_or_huge_is_refused_unread(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"Expected a file with confidences at .*none.csv: No such file"):
        read_sheet([tmp_path / "none.csv"])
    (tmp_path / "huge.csv").touch()
    os.truncate(tmp_path / "huge.csv", 10 * 2**30)
    with pytest.raises(UserError, match=f"it has 10.7 GB, and at most {MOST_BYTES / 1e9:g} GB is read; draw"):
        read_sheet([tmp_path / "huge.csv"])


ROWS = {"id": ["a", "b"], "correct": [True, False], "p": [0.5, 0.7]}


@pytest.mark.parametrize(
    ("changes", "options", "said"),
    [
        ({}, {"correct": "rigth"}, r"expected a column 'rigth', found only correct, id, p; name .* with --correct"),
        ({}, {"confidences": "q"}, "expected a column 'q', found only correct, id, p"),
        ({"p": ["0.5", "85%"]}, {}, "row 1: expected a number from 0 to 1 in column 'p', got '85%'; write numbers"),
        ({"p": ["0.5", "0,85"]}, {}, "got '0,85'; write numbers with a point"),
        ({"p": [0.5, float("nan")]}, {}, "row 1: .* got nan; 1 of 2 rows have none"),
        ({"p": ["0.5", "NaN"]}, {}, "1 of 2 rows have none"),
        ({"p": [0.5, None]}, {}, "1 of 2 rows have none"),
        ({"p": [0.5, 1.7]}, {}, "row 1: .* got 1.7; if this column goes up to 10, say --scale p=10"),
        ({"p": [7, 85]}, {}, "row 0: .* got 7; if this column goes up to 100, say --scale p=100"),
        ({"p": [0.5, -0.2]}, {}, "row 1: .* got -0.2; correct it"),
        ({"p": [-0.5, -0.2]}, {}, r"got -0.5; of log-probabilities write exp\(value\)"),
        ({"p": [[0.5], [0.7]]}, {}, r"row 0: expected a number .* got \[0.5\]"),
        ({"p": [{"value": 0.5}, {"value": 0.7}]}, {}, "row 0: expected a number"),
        ({"p": [0.5, 10**400]}, {}, "row 1: expected a number"),
        ({"p": [0.5, np.bool_(True)]}, {}, "row 1: expected a number"),
        ({"p": ["very high", "low"]}, {}, "--words 'low=...,very high=...'"),
        ({"p": [5, 7]}, {"scale": "100"}, "none is above 10; leave out --scale"),
        ({"id": ["a", None]}, {}, "row 1: expected the question's id in column 'id', got nan"),
        ({"id": [1, float("nan")]}, {}, "row 1: expected the question's id"),
        ({"id": ["a", "a"]}, {}, "row 1: it has the id 'a' of row 0, but another grade or confidence; .* --group"),
        ({"p": [0.5, float("inf")]}, {}, "got inf"),
        ({"p": [True, False]}, {}, "got True"),
        ({"p": ["high", "low"]}, {}, r"give words numbers \(--words high=...,low=...\)"),
        ({"p": ["high", "low"]}, {"words": "high=0.9"}, r"row 1: .*\(--words low=...\)"),
        ({}, {"words": "high"}, "--words: expected a name and a number from 0 to 1, e.g. high=0.9, got 'high'"),
        ({}, {"words": "high=90"}, "--words: expected"),
        ({}, {"scale": "50"}, "--scale: expected 100"),
        ({}, {"scale": "q=100"}, "--scale: expected 100"),
        ({"correct": [1, 0.5]}, {}, "row 1: expected true or false, 1 or 0, C or I in column 'correct', got 0.5"),
        ({"correct": [1, None]}, {}, "row 1: expected true or false"),
        ({"note": ["a text", "b"]}, {}, "in column 'note', got 'a text'; name the columns of confidences"),
        ({}, {"recalibrate": "magic"}, "--recalibrate: no recalibration 'magic'"),
        ({}, {"learn_on": "dev"}, "--learn-on dev: expected splits of which there are rows"),
        ({"split": ["dev", "dev"]}, {"learn_on": "dev", "recalibrate": "platt"}, "--learn-on dev: .*others to judge"),
        ({}, {"fail_above": "p"}, "--fail-above: expected a name and a number"),
        ({}, {"fail_above": "q=0.1"}, "--fail-above: no confidence 'q'; there are p"),
        ({}, {"risk": 2.0}, "--risk: expected a share of mistakes"),
        ({}, {"metrics": "foo"}, "--metrics: no metric 'foo'"),
        ({}, {"by": "zz"}, "expected a column 'zz'"),
        (
            {},
            {"by": "correct"},
            "expected another column for each purpose, got 'correct' for two: right or wrong is no",
        ),
        ({}, {"group": "correct"}, "expected another column for each purpose, got 'correct' for two"),
        ({}, {"confidences": "correct"}, "expected another column for each purpose, got 'correct' for two"),
        ({}, {"confidences": "p", "uncertainties": "p"}, "got 'p' for two: .* a confidence no uncertainty"),
        ({"exact": [1, 0]}, {}, "column 'exact' is 1 where the answer is right and else 0, so it is a grade; name the"),
        ({"": [1, 0], "p": ["a", "b"]}, {"confidences": "z"}, "found only correct, id, one without a name, p"),
        ({}, {"group": "p"}, "expected a column of confidences, found only correct, id, p; name it with --confidence"),
    ],
)
def test_value_or_option_that_is_unclear_is_refused(
    changes: dict[str, list[object]], options: dict[str, object], said: str
) -> None:
    with pytest.raises(UserError, match=said):
        bench.audit(pd.DataFrame({**ROWS, **changes}), **options)


def test_column_of_too_many_values_is_refused() -> None:
    table = pd.DataFrame({"id": range(1_001), "correct": True, "p": 0.5})
    with pytest.raises(UserError, match="--by: expected a column of at most 1,000 values, got 1,001; name another"):
        bench.audit(table, by="id")
    with pytest.raises(UserError, match="--group: expected a column of at most 50 values, got 1,001"):
        bench.audit(table, confidences="p", group="id")


def test_grade_that_is_named_as_a_confidence_is_judged() -> None:
    assert bench.audit(pd.DataFrame({**ROWS, "p": [1.0, 0.0]}), confidences="p").tables[0].lines[0].n == 2


@pytest.mark.parametrize("save", ["csv", "csv of a csv", "parquet"])
def test_index_that_pandas_saved_is_no_confidence(save: str, tmp_path: Path) -> None:
    table = pd.DataFrame({"correct": [1, 0, 1], "p": [5, 70, 90]}).iloc[[0, 2]]
    path = tmp_path / ("a.parquet" if save == "parquet" else "a.csv")
    if save == "csv of a csv":
        table = table.reset_index().rename(columns={"index": "Unnamed: 0"})
    (table.to_parquet if save == "parquet" else table.to_csv)(path)
    assert [line.method for line in bench.audit(path, scale="100").tables[0].lines] == ["p"]


def test_names_are_read_without_spaces_and_with_any_letter(tmp_path: Path) -> None:
    table = pd.DataFrame(
        {"id": [1, 2, 1], "correct": [1, 0, 1], "p": [0.5, 0.7, 0.9], "group": ["big ", " big", "small"]}
    )
    assert [each.model for each in bench.audit(table, confidences="p").tables] == ["big", "small"]
    row = json.dumps({"correct": True, "p": 0.5, "subject": "\ud800", "group": "\udcff"})
    (tmp_path / "a.jsonl").write_text(row, encoding="ascii")
    assert bench.audit(tmp_path / "a.jsonl", by="subject").found.gaps[0].value == "\\ud800"


def test_column_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    table = pa.table([[True, False], [0.5, 0.7], [0.1, 0.2]], names=["correct", "p", "p"])
    parquet.write_table(table, tmp_path / "a.parquet")
    frame = pd.DataFrame({"correct": [1, 0], 1: [0.5, 0.7], "1": [0.1, 0.2]})
    for data, name in ((tmp_path / "a.parquet", "p"), (frame, "1")):
        with pytest.raises(UserError, match=f"expected each column once, found '{name}' twice; rename one"):
            bench.audit(data)


def test_index_of_a_frame_that_is_named_like_a_role_has_it() -> None:
    table = pd.concat([pd.DataFrame({**ROWS, "p": [0.5, p]}) for p in (0.6, 0.7)])
    with pytest.raises(UserError, match="row 3: it has the id 'b' of row 1"):
        bench.audit(table.set_index("id"))


def inspect_log(path: Path, task: str, samples: Sequence[tuple[int, int, str, float]]) -> Path:
    """A log of Inspect with (id, epoch, grade, confidence) of each sample."""
    scored = [
        {"id": id_, "epoch": epoch, "scores": {"match": {"value": grade, "metadata": {"confidence": p}}}}
        for id_, epoch, grade, p in samples
    ]
    path.write_text(json.dumps({"eval": {"task": task, "model": "m"}, "samples": scored}), encoding="utf-8")
    return path


def test_inspect_logs_of_one_model_are_not_taken_for_repeats(tmp_path: Path) -> None:
    first = inspect_log(tmp_path / "a.json", "quiz", [(1, 2, "I", 0.3), (2, 1, "C", 0.9), (1, 1, "C", 0.8)])
    assert bench.audit(first).questions()["confidence"].tolist() == [0.8, 0.9]  # the first epoch, not the first done
    other = inspect_log(tmp_path / "b.json", "law", [(1, 1, "I", 0.1)])
    (table,) = bench.audit([first, other]).tables  # whose ids are the same numbers
    assert (table.task, table.lines[0].n) == ("quiz, law", 3)
    again = inspect_log(tmp_path / "c.json", "quiz", [(1, 1, "I", 0.5)])
    with pytest.raises(UserError, match=r"c.json row 0: it has the id '1' of a.json row 1, .*--group file"):
        bench.audit([first, again])
    assert len(bench.audit([first, again], group="file").tables) == 2


def test_first_scorer_of_the_log_grades_every_sample(tmp_path: Path) -> None:
    """A sample that it did not score is not graded by the next scorer."""
    scored: list[dict[str, object]] = [
        {"id": k, "scores": {"graded": {"value": "I", "metadata": {"confidence": 0.5}}, "fluency": {"value": "C"}}}
        for k in range(3)
    ]
    path = tmp_path / "log.json"
    for missing in (0, 2):
        silent = {"id": missing, "scores": {"fluency": {"value": "C", "metadata": {"confidence": 0.5}}}}
        log = {"eval": {"task": "quiz", "model": "m"}, "samples": [*scored[:missing], silent, *scored[missing + 1 :]]}
        path.write_text(json.dumps(log), encoding="utf-8")
        sheet = read_sheet([path])
        assert sheet.columns["correct"] == sheet.columns["score_graded"]
        said = f"row {missing}: expected true or false, 1 or 0, C or I in column 'correct', got nothing"
        with pytest.raises(UserError, match=said):
            bench.audit(path, confidences="score_graded_confidence")


def test_first_scorer_of_samples_in_two_orders_grades(tmp_path: Path) -> None:
    scores = {"graded": {"value": "I", "metadata": {"confidence": 0.5}}, "fluency": {"value": "C"}}
    orders = [{}, scores, dict(reversed(scores.items()))]
    log = {"eval": {"task": "quiz", "model": "m"}, "samples": [{"id": k, "scores": of} for k, of in enumerate(orders)]}
    (tmp_path / "log.json").write_text(json.dumps(log), encoding="utf-8")
    assert read_sheet([tmp_path / "log.json"]).columns["correct"] == ["I", "I"]


def test_values_are_read_as_they_are_named() -> None:
    table = pd.DataFrame({"right": ["C", "N", "I", "yes"], "p": ["80", "High", "20", " 5 "], "q": [0.1, 0.2, 0.3, 0.4]})
    audit = bench.audit(table, correct="right", confidences="p,q", scale="p=100", words="high=0.9")
    values = audit.questions().pivot(index="id", columns="method", values="confidence")
    assert values["p"].tolist() == [0.8, 0.9, 0.2, 0.05]
    assert values["q"].tolist() == [0.1, 0.2, 0.3, 0.4]
    assert audit.tables[0].rows[0].llm_accuracy == 0.5
    tens = bench.audit(pd.DataFrame({**ROWS, "p": ["none", 7]}), scale="10", words="none=0.1")
    assert tens.questions()["confidence"].tolist() == [0.1, 0.7]
