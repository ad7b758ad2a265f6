"""Result files: where they lie, that they are whole or absent, and what is said of broken ones."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import textwrap
import time
import typing
from collections.abc import Iterator
from dataclasses import is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.api import UserError
from bench.api.protocol import FIXED
from bench.metrics import summarise
from bench.model.cost import StageTokens
from bench.model.specs import model_label
from bench.results import files
from bench.results.cells import read_all, skipped_notes
from bench.results.files import (
    QuestionRecords,
    ensure_writable,
    model_folder,
    path_of,
    read,
    read_records,
    to_json,
    write,
)
from bench.results.row import SCHEMA_VERSION, Configuration, LabelsSeen, ResultRow, Tuning
from bench.store.disk_cache import DIGEST, with_digest

GOLDEN = Path(__file__).parents[2] / "golden"

RECORDS = QuestionRecords(
    id=["q/0", "q/1", "q/2"],
    subject=["art", "art", "law"],
    correct=np.array([True, False, True]),
    confidence=np.array([0.9, 0.1, 1 / 3]),
    answer=["a", "\U0001f600 <b>", "c"],
    parsed=np.array([True, False, True]),
)
SCORES = summarise(RECORDS.confidence, RECORDS.correct, RECORDS.subject, FIXED)
ROW = ResultRow(
    method="ccps",
    model="tiny",
    task="atlas-choice",
    preset="demo",
    seed=0,
    protocol=FIXED.digest(),
    task_version=1,
    train_on="atlas-choice:train",
    labels_seen=LabelsSeen(train=12),
    tuning=Tuning(
        2,
        {"learning_rate": "0.1 to 10 times 0.0001"},
        (Configuration({"learning_rate": "0.0001"}, 0.7, 1.5), Configuration({"learning_rate": "0.0003"}, None, 1.0)),
    ),
    status="ok",
    n=3,
    n_unparsed=1,
    n_empty=0,
    n_shots_dropped=0,
    llm_accuracy=2 / 3,
    letter_rule_disagreement=0.0,
    metrics=SCORES.metrics,
    n_excluded=0,
    n_clipped=0,
    per_subject=SCORES.per_subject,
    n_parameters=9542,
    timings={"answers": 0.25},
    peak_memory_mb=812.5,
    cost={"answers": StageTokens(100, 110, 99)},
    forward_tokens_alone=99,
    generated_tokens_alone=3,
    notes=("batch halved once",),
    provenance={"python": "3.11", "code": {"dirty": False}},
)


def as_written(row, path):
    """The row with the digest of its Parquet file."""
    return replace(row, records_digest=hashlib.sha256(path.with_suffix(".parquet").read_bytes()).hexdigest())


# --- names and paths --------------------------------------------------------------------------------------------------


def test_a_default_run_is_named_by_method_preset_and_seed():
    assert path_of(ROW, Path("results")) == Path("results/tiny/atlas-choice/ccps--demo--s0.json")


def test_a_changed_configuration_appends_its_digest_whatever_the_order_of_its_keys():
    path = path_of(replace(ROW, config={"dtype": "float32", "train_on": "x"}), Path("r"))
    assert path == path_of(replace(ROW, config={"train_on": "x", "dtype": "float32"}), Path("r"))
    assert path != path_of(replace(ROW, config={"train_on": "y", "dtype": "float32"}), Path("r"))
    stem, digest = path.stem.rsplit("--", 1)
    assert stem == "ccps--demo--s0"
    assert len(digest) == 8
    assert int(digest, 16) >= 0


def test_a_limited_run_lies_under_partial():
    assert path_of(replace(ROW, limit=40), Path("r")) == Path("r/partial/tiny/atlas-choice/ccps--demo--s0--n40.json")


@pytest.mark.parametrize("field", ["method", "task", "preset"])
@pytest.mark.parametrize("name", ["", "a--b", "../x", "a/b", ".x", "-x", "x-", "a b", "x\n", "CON:", "é", "x" * 81])
def test_names_that_could_leave_their_folder_are_refused(field, name):
    with pytest.raises(UserError, match=f"{field} name"):
        path_of(replace(ROW, **{field: name}), Path("r"))


@pytest.mark.parametrize("name", ["ccps", "self-consistency", "saplma-um", "ccps+isotonic", "my_method.v2", "x" * 80])
def test_ordinary_names_are_kept(name):
    assert path_of(replace(ROW, method=name), Path("r")).name == f"{name}--demo--s0.json"


@given(st.text(min_size=1))
def test_no_model_name_leaves_its_folder(model):
    folder = model_folder(model)
    path = path_of(replace(ROW, model=model), Path("/results"))
    assert path.parts[:3] == ("/", "results", folder)
    assert not folder.startswith(".")
    assert folder not in {"partial", "paper"}
    assert set(folder).isdisjoint('/\\:*?"<>|\0 \n')
    assert len(folder) <= 170


@given(st.text(min_size=1))
def test_a_label_is_its_own_label(model):
    assert model_label(model_label(model)) == model_label(model)


def test_local_folders_are_told_apart_without_telling_where_they_are(tmp_path, monkeypatch):
    first, second = model_label("/home/alice/models/llama"), model_label("/home/bob/models/llama")
    assert first != second
    assert first.startswith("llama-")
    assert "alice" not in first
    monkeypatch.chdir(tmp_path)
    assert model_label("./llama/") == model_label(str(tmp_path / "llama"))
    assert model_label(r"C:\models\llama").startswith("llama-")
    assert model_folder("meta-llama/Llama-3.1-8B-Instruct") == "meta-llama--Llama-3.1-8B-Instruct"


# --- writing and reading ----------------------------------------------------------------------------------------------


def test_what_is_written_is_read_back(tmp_path):
    path = write(ROW, RECORDS, tmp_path)
    assert read(path) == as_written(ROW, path)
    assert read_all(tmp_path) == [read(path)]
    records = read_records(path)
    assert records.confidence.tobytes() == RECORDS.confidence.tobytes()
    assert (records.id, records.subject, records.answer) == (RECORDS.id, RECORDS.subject, RECORDS.answer)
    assert records.correct.tolist() == RECORDS.correct.tolist()
    assert records.parsed.tolist() == RECORDS.parsed.tolist()
    again = summarise(records.confidence, records.correct, records.subject, FIXED)
    assert again.metrics == read(path).metrics


def test_json_is_strict_sorted_and_ends_in_a_newline(tmp_path):
    text = write(ROW, RECORDS, tmp_path).read_text()
    assert text.endswith("}\n")
    assert text == json.dumps(json.loads(text), indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    assert json.loads(text)["reason"] is None
    with pytest.raises(ValueError, match="JSON compliant"):
        write(replace(ROW, llm_accuracy=float("nan"), seed=1), RECORDS, tmp_path)
    assert [path.name for path in sorted(tmp_path.rglob("*s1*"))] == []


def test_numpy_numbers_are_written_as_numbers():
    assert json.loads(to_json(replace(ROW, n=np.int64(3), timings={"fit": np.float32(0.5)})))["timings"]["fit"] == 0.5


def test_a_models_path_is_not_written(tmp_path):
    path = write(replace(ROW, model="/home/alice/llama"), RECORDS, tmp_path)
    assert "alice" not in path.read_text()
    assert read(path).model == path.parts[-3] == model_label("/home/alice/llama")


FAILED = replace(
    ResultRow(
        method="ccps", model="tiny", task="atlas-choice", preset="demo", seed=0, protocol="0", task_version=1,
        status="failed",
    ),
    reason="loss is NaN",
)  # fmt: skip


def test_a_failure_is_told_where_there_is_nothing_better(tmp_path):
    path = write(FAILED, None, tmp_path)
    assert path.name == "ccps--demo--s0.failed.json"
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert read_all(tmp_path) == [FAILED]


@pytest.mark.parametrize(("status", "ended"), [("failed", "failed"), ("skipped", "was skipped")])
def test_a_run_without_numbers_takes_none_away_and_is_told_until_one_has_them(tmp_path, status, ended):
    path = write(ROW, RECORDS, tmp_path)
    before = path.read_bytes()
    failed = write(replace(FAILED, status=status, reason="loss\nis " + "very " * 100), None, tmp_path)
    assert path.read_bytes() == before
    assert read(path) == as_written(ROW, path)
    (row,) = read_all(tmp_path)
    assert row.metrics == ROW.metrics
    *_, note = row.notes
    assert re.match(
        rf"the last run of seed 0 {ended} \(20\d\d-.* UTC: loss is very .*…\); shown is the one before", note
    )
    write(ROW, RECORDS, tmp_path)
    assert not failed.exists()
    assert read_all(tmp_path) == [as_written(ROW, path)]


def test_a_failure_of_another_cell_is_not_told_of_this_one(tmp_path):
    write(ROW, RECORDS, tmp_path)
    failed = write(replace(FAILED, seed=3), None, tmp_path)
    failed.rename(failed.with_name("ccps--demo--s0.failed.json"))
    with pytest.raises(UserError, match=r"s0\.failed\.json says that it is of another cell: ccps--demo--s3\.failed"):
        read_all(tmp_path)


def test_a_write_that_fails_leaves_the_older_cell(tmp_path, monkeypatch):
    path = write(ROW, RECORDS, tmp_path)
    write(FAILED, None, tmp_path)
    before = files_below(tmp_path)
    real = os.fsync
    for last in (1, 2):
        calls = itertools.count(1)

        def full(descriptor, calls=calls, last=last):
            if next(calls) == last:
                raise OSError(28, "No space left on device")
            real(descriptor)

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(UserError, match="No space left on device"):
            write(replace(ROW, notes=("new",)), replace(RECORDS, confidence=np.full(3, 0.5)), tmp_path)
        assert read(path) == as_written(ROW, path)
        assert {name: text for name, text in files_below(tmp_path).items() if not name.startswith(".")} == before
    monkeypatch.undo()
    write(ROW, RECORDS, tmp_path)
    assert list(path.parent.glob(".*.parquet")) == []


def test_a_failure_is_told_until_the_numbers_are_there(tmp_path):
    for k in itertools.count(1):
        out = tmp_path / str(k)
        write(FAILED, None, out)
        ended = in_a_child_that_ends_at(k, lambda out=out: write(ROW, RECORDS, out))
        (row,) = read_all(out)
        assert row.status == "failed" or row.metrics == ROW.metrics
        if ended:
            break


def files_below(folder):
    return {file.name: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_killed_at_any_moment_the_old_cell_or_the_new_one_is_there(tmp_path):
    """A child is ended before its k-th call to the system, for every k."""
    old, new = RECORDS, replace(RECORDS, confidence=np.full(3, 0.5))
    seen = set()
    for k in itertools.count(1):
        out = tmp_path / str(k)
        path = write(ROW, old, out)
        write(FAILED, None, out)
        ended = in_a_child_that_ends_at(k, lambda out=out: write(replace(ROW, notes=("new",)), new, out))
        row, shown = read(path), read_all(out)
        confidence = read_records(path).confidence.tolist()
        seen.add(row.notes)
        assert confidence == (new if row.notes == ("new",) else old).confidence.tolist()
        assert [file.name for file in path.parent.glob("[!.]*")].count("ccps--demo--s0.parquet") == 1
        assert len(shown) == 1
        if ended:
            break
    assert k > 8
    assert seen == {ROW.notes, ("new",)}
    assert [row.notes for row in shown] == [("new",)]


def in_a_child_that_ends_at(k, work):
    """Whether the work was done before the child's k-th call to open, rename, remove or list files."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    calls = itertools.count(1)

    def count(event, _):
        if event in {"open", "os.rename", "os.remove", "os.mkdir", "os.scandir", "fcntl.flock"} and next(calls) == k:
            os._exit(9)

    try:
        sys.addaudithook(count)
        work()
        os._exit(0)
    finally:
        os._exit(1)


def test_what_waits_for_its_name_is_found_also_while_another_process_writes(tmp_path):
    """A reader that has read an old JSON file and meets the new Parquet file reads both again."""
    path = write(ROW, RECORDS, tmp_path)
    old = path.read_text()
    write(replace(ROW, notes=("new",)), replace(RECORDS, confidence=np.full(3, 0.5)), tmp_path)
    texts = iter([old])
    real = Path.read_text
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "read_text", lambda self, **kw: next(texts, None) or real(self, **kw))
        assert read(path).notes == ("new",)


def test_runs_of_different_limits_lie_beside_each_other(tmp_path):
    for limit in (8, 16):
        write(replace(ROW, limit=limit), RECORDS, tmp_path)
    assert [row.limit for row in read_all(tmp_path, partial=True)] == [16, 8]


@pytest.mark.parametrize("old", ['"seed": 0', '"n": 3', "0.66666", "0.25"])
def test_one_changed_digit_is_noticed(tmp_path, old):
    path = write(ROW, RECORDS, tmp_path)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, old[:-1] + "7", 1))
    with pytest.raises(UserError, match="something in it was changed; copy it again, or run that cell again"):
        read(path)


def test_a_file_of_someone_else_is_passed_over_and_counted(tmp_path):
    write(ROW, RECORDS, tmp_path)
    write(replace(ROW, limit=8), RECORDS, tmp_path)
    (tmp_path / "tiny" / "atlas-choice" / "config.json").write_text("{")
    assert [row.limit for row in read_all(tmp_path)] == [None]
    said = skipped_notes(tmp_path)
    assert len(said) == 2
    assert re.search(r"no results are passed over: 1, e\.g\. .*config\.json", said[0])
    assert "partial results (--limit) are not shown: 1; show them with --partial" in said[1]
    assert len(skipped_notes(tmp_path, partial=True)) == 1


def test_a_damaged_result_under_another_name_is_not_passed_over(tmp_path):
    path = write(ROW, RECORDS, tmp_path)
    path.with_name("mine.json").write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UserError, match=r"mine\.json"):
        read_all(tmp_path)


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), OSError(5, "Input/output error")])
def test_what_cannot_be_read_for_the_moment_is_said(tmp_path, monkeypatch, error):
    path = write(ROW, RECORDS, tmp_path)

    def fail(*_, **__):
        raise error

    for step in ("open", "read_text"):
        with monkeypatch.context() as patch:
            patch.setattr(Path, step, fail)
            with pytest.raises(UserError, match=rf"ccps--demo--s0.*can't be read \({error.strerror}\); try again"):
                read(path)
    assert read(path) == as_written(ROW, path)


@pytest.mark.parametrize(("status", "records"), [("ok", None), ("failed", RECORDS), ("skipped", RECORDS)])
def test_records_belong_to_ok_cells_only(tmp_path, status, records):
    with pytest.raises(ValueError, match="records exactly for status ok"):
        write(replace(ROW, status=status), records, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_columns_of_different_length_leave_nothing(tmp_path):
    with pytest.raises(pa.ArrowInvalid):
        write(ROW, replace(RECORDS, id=["only one"]), tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_partial_and_reserved_folders_are_not_in_the_whole(tmp_path):
    whole = as_written(ROW, write(ROW, RECORDS, tmp_path))
    write(replace(ROW, limit=3), RECORDS, tmp_path)
    published = tmp_path / "paper" / "llama" / "numbers.json"
    published.parent.mkdir(parents=True)
    published.write_text("[]")
    assert read_all(tmp_path) == [whole]
    assert read_all(tmp_path / "partial") == [replace(whole, limit=3)]


def test_an_empty_folder_has_no_rows_and_a_missing_one_is_named(tmp_path):
    assert read_all(tmp_path) == []
    with pytest.raises(UserError, match=r"nowhere.*does not exist; run something first"):
        read_all(tmp_path / "nowhere")


# The child overwrites one cell over and over until it is killed; seeds of confidences and row tell each version apart.
WRITE_FOREVER = """
    import dataclasses, itertools, pathlib, pickle, sys
    import numpy as np
    from bench.results.files import write
    row, records = pickle.loads(pathlib.Path(sys.argv[1], "cell").read_bytes())
    for k in itertools.count():
        cell = dataclasses.replace(records, confidence=np.full(3, (k % 97) / 97))
        write(dataclasses.replace(row, timings={"k": (k % 97) / 97}), cell, pathlib.Path(sys.argv[1], "out"))
        if not k:
            print("ready", flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.003, 0.011, 0.017, 0.029])
def test_killed_while_writing_a_cell_is_whole_or_absent(tmp_path, delay):
    (tmp_path / "cell").write_bytes(pickle.dumps((ROW, RECORDS)))
    command = [sys.executable, "-c", textwrap.dedent(WRITE_FOREVER), str(tmp_path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(delay)
        child.send_signal(signal.SIGKILL)
    for row in read_all(tmp_path / "out"):
        records = read_records(path_of(row, tmp_path / "out"))
        assert records.confidence.tolist() == [row.timings["k"]] * 3


# --- what is wrong with a file ----------------------------------------------------------------------------------------


def broken(tmp_path, change):
    """A written cell whose JSON object went through `change`."""
    path = write(ROW, RECORDS, tmp_path)
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(with_digest(values)))
    return path


def nested(levels, kind):
    """So many objects or lists, each in the one before."""
    value = kind()
    for _ in range(levels):
        value = {"in": value} if kind is dict else [value]
    return value


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v: v.pop("seed"), "missing key 'seed'"),
        (lambda v: v["metrics"]["ece"].pop("std"), "missing metrics.ece 'std'"),
        (lambda v: v.update(speed=3), "unknown key 'speed'"),
        (
            lambda v: v.update(schema_version=SCHEMA_VERSION + 1),
            f"schema version {SCHEMA_VERSION + 1}; this program reads versions 5 and 6",
        ),
        (lambda v: v.pop("schema_version"), "schema version None"),
        (lambda v: v.update(status="canceled"), "status: expected ok or skipped or failed, got 'canceled'"),
        (lambda v: v.update(n="3"), "n: expected int, got '3'"),
        (lambda v: v.update(n=True), "n: expected int, got 'True'"),
        (lambda v: v.update(n=2.5), "n: expected int, got '2.5'"),
        (lambda v: v.update(method=None), "method: expected str, got 'None'"),
        (lambda v: v.update(metrics=[]), "metrics: expected an object"),
        (lambda v: v.update(labels_seen=3), "labels_seen: expected an object"),
        (lambda v: v.update(notes="x"), "notes: expected a list"),
        (
            lambda v: v["metrics"]["ece"].update(mean=float("nan")),
            "metrics.ece.mean: expected a finite number, got 'nan'",
        ),
        (
            lambda v: v["per_subject"]["art"].update(ece=float("inf")),
            "per_subject.art.ece: expected a finite number, got 'inf'",
        ),
        (lambda v: v["cost"]["answers"].update(forward_tokens=1.5), "cost.answers.forward_tokens: expected int"),
        (lambda v: v["provenance"].update(code={"a": nested(20, list)}), "provenance: expected at most 20 levels"),
        (lambda v: v["provenance"].update(code=nested(20, dict)), "provenance: expected at most 20 levels"),
    ],
)
def test_a_wrong_field_is_named_with_its_file(tmp_path, change, message):
    path = broken(tmp_path, change)
    with pytest.raises(UserError) as caught:
        read_all(tmp_path)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[1]", b"null", b"[" * 100_000])
def test_what_is_no_json_object_is_named(tmp_path, content):
    path = write(ROW, RECORDS, tmp_path)
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"ccps--demo--s0\.json"):
        read_all(tmp_path)


def test_what_is_no_file_is_named(tmp_path):
    (tmp_path / "tiny" / "atlas-choice" / "ccps--demo--s0.json").mkdir(parents=True)
    with pytest.raises(UserError, match=r"ccps--demo--s0\.json can't be read"):
        read_all(tmp_path)


def test_a_missing_parquet_file_is_named(tmp_path):
    path = write(ROW, RECORDS, tmp_path)
    path.with_suffix(".parquet").unlink()
    with pytest.raises(UserError, match=r"has no ccps--demo--s0\.parquet beside it"):
        read(path)
    with pytest.raises(UserError, match=r"ccps--demo--s0\.parquet can't be read"):
        read_records(path)


def test_no_number_is_read_beside_a_parquet_file_that_it_was_not_written_with(tmp_path):
    path = write(ROW, RECORDS, tmp_path)
    other = write(replace(ROW, seed=1), replace(RECORDS, confidence=np.array([0.9, 0.1, 0.4])), tmp_path)
    path.with_suffix(".parquet").write_bytes(other.with_suffix(".parquet").read_bytes())
    with pytest.raises(UserError, match=r"s0\.parquet is not the file that its JSON file was written with"):
        read_all(tmp_path)
    path = broken(tmp_path, lambda v: v.update(records_digest=None))
    with pytest.raises(UserError, match="expected SHA-256 None"):
        read(path)


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("confidence", [0.1, float("nan"), 0.2], "confidence nan in row 1"),
        ("confidence", [0.1, 0.2, 1.5], "confidence 1.5 in row 2"),
        ("confidence", [0.1, None, 0.2], "without nulls"),
        ("correct", [1, 0, 1], "other columns than expected: id string"),
    ],
)
def test_a_wrong_parquet_file_is_named(tmp_path, column, values, message):
    path = write(ROW, RECORDS, tmp_path).with_suffix(".parquet")
    table = pq.read_table(path)
    pq.write_table(table.set_column(table.column_names.index(column), column, pa.array(values)), path)
    with pytest.raises(UserError, match=message) as caught:
        read_records(path)
    assert str(path) in str(caught.value)


def test_a_truncated_parquet_file_is_named(tmp_path):
    path = write(ROW, RECORDS, tmp_path).with_suffix(".parquet")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UserError, match=r"ccps--demo--s0\.parquet can't be read"):
        read_records(path)


def test_a_parquet_file_with_a_column_whose_name_is_no_text_is_named(tmp_path):
    path = write(ROW, RECORDS, tmp_path).with_suffix(".parquet")
    pq.write_table(pq.read_table(path), path, store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"answer", b"\xffnswer"))
    with pytest.raises(UserError, match=r"ccps--demo--s0\.parquet can't be read .*utf-8"):
        read_records(path)


# --- a folder that can't be written -----------------------------------------------------------------------------------


def test_a_writable_folder_is_left_as_it_was(tmp_path):
    ensure_writable(tmp_path / "new" / "results")
    ensure_writable(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("below", ["", "results"])
def test_a_file_in_the_way_is_said_before_any_work(tmp_path, below):
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(UserError, match=r"can't be written .*; name another one with --out"):
        ensure_writable(blocked / below)
    with pytest.raises(UserError, match="can't be written"):
        write(ROW, RECORDS, blocked)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser may write anywhere")
def test_a_folder_without_permission_is_said_before_any_work(tmp_path):
    tmp_path.chmod(0o555)
    with pytest.raises(UserError, match="Permission denied"):
        ensure_writable(tmp_path / "results")


# --- the schema -------------------------------------------------------------------------------------------------------


def schema() -> str:
    """Fields and types of a result as text, one per line; what the schema version stands for."""
    lines: list[str] = []
    pending: list[type] = [ResultRow]
    for record in pending:
        for name, hint in typing.get_type_hints(record).items():
            lines.append(f"{record.__name__}.{name}: {hint if typing.get_args(hint) else hint.__name__}")
            pending += [part for part in _record_types(hint) if part not in pending]
    columns, scores = files._column_types()
    lines += [f"json.{DIGEST}: str", *(f"parquet.{name}: {kind}" for name, kind in columns.items())]
    lines += [f"parquet.{name} (of scores only): {kind}" for name, kind in scores.items()]
    return re.sub(r"\bbench[\w.]*\.(?=\w)", "", "\n".join(lines)) + "\n"  # a record may move to another module


def _record_types(hint: Any) -> Iterator[type]:
    if is_dataclass(hint) and isinstance(hint, type):
        yield hint
    for argument in typing.get_args(hint):
        yield from _record_types(argument)


def test_schema_changes_come_with_a_new_version():
    """When this fails: raise SCHEMA_VERSION, and write the new schema under the new version's name."""
    golden = GOLDEN / f"result_schema_{SCHEMA_VERSION}.txt"
    assert schema() == golden.read_text(encoding="utf-8")


def test_json_example_has_every_field_of_the_schema():
    fields = {line.split(":")[0].removeprefix("ResultRow.") for line in schema().splitlines() if "ResultRow." in line}
    assert set(json.loads(to_json(ROW))) == fields | {"digest"}


def test_tokens_written_cannot_be_taken_out_or_changed_unnoticed(tmp_path):
    path = write(ROW, RECORDS, tmp_path)
    values = json.loads(path.read_text())
    for other in ({**values, "generated_tokens_alone": 2}, {**values, "generated_tokens_alone": None}):
        path.write_text(json.dumps(other))
        with pytest.raises(UserError, match="something in it was changed"):
            read(path)
    del values["generated_tokens_alone"]
    path.write_text(json.dumps(values))
    with pytest.raises(UserError, match="missing key 'generated_tokens_alone'"):
        read(path)


# --- scores -----------------------------------------------------------------------------------------------------------


def scores(score, confidence=RECORDS.confidence):
    return replace(RECORDS, score=np.array(score), confidence=np.asarray(confidence, dtype=float))


@pytest.mark.parametrize("confidence", [RECORDS.confidence, [np.nan] * 3])
def test_scores_come_back_to_the_bit_also_without_confidences(tmp_path, confidence):
    records = scores([-1e300, 1 / 3, -np.inf], confidence)
    back = read_records(write(ROW, records, tmp_path))
    assert back.score.tobytes() == records.score.tobytes()
    assert back.confidence.tobytes() == records.confidence.tobytes()
    assert (back.probabilities is None) is bool(np.isnan(records.confidence).all())
    assert back.ranking_values is back.score
    assert back.take(np.array([2, 0])).score.tolist() == [-np.inf, -1e300]


def test_a_result_without_scores_has_no_column_for_them(tmp_path):
    back = read_records(write(ROW, RECORDS, tmp_path))
    assert back.score is None
    assert back.ranking_values is back.confidence


@pytest.mark.parametrize(
    ("records", "said"),
    [
        (scores([1.0, np.nan, 2.0]), "score nan in row 1; expected a finite one"),
        (scores([1.0, 2.0, np.inf]), "score inf in row 2; expected a finite one"),
        (scores([1.0, 2.0, 3.0], [0.5, np.nan, 0.5]), "confidence nan in row 1"),
        (replace(RECORDS, confidence=np.full(3, np.nan)), "confidence nan in row 0"),
    ],
)
def test_numbers_that_scores_and_confidences_cannot_be_are_refused(tmp_path, records, said):
    path = write(ROW, records, tmp_path)
    with pytest.raises(UserError, match=said):
        read_records(path)
