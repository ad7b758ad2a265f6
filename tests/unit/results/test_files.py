"""Result files: where they lie, that they are whole or absent, and what is said of broken ones."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import subprocess
import sys
import typing
from collections.abc import Iterator
from dataclasses import is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.api import UserError
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
from bench.results.submissions.recomputation import recompute_row
from bench.store.disk_cache import DIGEST
from tests.kit import world

GOLDEN = Path(__file__).parents[2] / "golden"

RECORDS = QuestionRecords(
    id=["q/0", "q/1", "q/2"],
    subject=["art", "art", "law"],
    correct=np.array([True, False, True]),
    confidence=np.array([0.9, 0.1, 1 / 3]),
    answer=["a", "\U0001f600 <b>", "c"],
    parsed=np.array([True, False, True]),
)
ROW = recompute_row(
    world.result_row(
        labels_seen=LabelsSeen(train=12), train_on="atlas-choice:train", n=3, n_unparsed=1, n_shots_dropped=0,
        letter_rule_disagreement=0.0, n_excluded=0, n_clipped=0, n_parameters=9542, timings={"answers": 0.25},
        peak_memory_mb=812.5, cost={"answers": StageTokens(100, 110, 99)}, forward_tokens_alone=99,
        generated_tokens_alone=3, notes=("batch halved once",),
        provenance={"python": "3.11", "code": {"dirty": False}},
        tuning=Tuning(
            2, {"learning_rate": "0.1 to 10 times 0.0001"},
            (Configuration({"learning_rate": "1e-4"}, 0.7, 1.5), Configuration({"learning_rate": "3e-4"}, None, 1.0)),
        ),
    ),
    RECORDS,
)  # fmt: skip
FAILED = world.result_row(status="failed", reason="loss is NaN")


def as_written(row, path):
    """The row with the digest of its Parquet file."""
    return replace(row, records_digest=hashlib.sha256(path.with_suffix(".parquet").read_bytes()).hexdigest())


# --- names and paths --------------------------------------------------------------------------------------------------


def test_result_is_named_by_method_preset_seed_limit_and_config():
    assert path_of(ROW, Path("results")) == Path("results/tiny/atlas-choice/ccps--demo--s0.json")
    assert path_of(replace(ROW, limit=40), Path("r")) == Path("r/partial/tiny/atlas-choice/ccps--demo--s0--n40.json")
    path = path_of(replace(ROW, config={"dtype": "float32", "train_on": "x"}), Path("r"))
    assert path == path_of(replace(ROW, config={"train_on": "x", "dtype": "float32"}), Path("r"))
    assert path != path_of(replace(ROW, config={"train_on": "y", "dtype": "float32"}), Path("r"))
    assert re.fullmatch("ccps--demo--s0--[0-9a-f]{8}", path.stem)


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
    assert model_label(model_label(model)) == model_label(model)


def test_model_folders_are_told_apart_without_their_place(tmp_path, monkeypatch):
    first, second = model_label("/home/alice/models/llama"), model_label("/home/bob/models/llama")
    assert first != second
    assert first.startswith("llama-")
    assert "alice" not in first
    monkeypatch.chdir(tmp_path)
    assert model_label("./llama/") == model_label(str(tmp_path / "llama"))
    assert model_label(r"C:\models\llama").startswith("llama-")
    assert model_folder("meta-llama/Llama-3.1-8B-Instruct") == "meta-llama--Llama-3.1-8B-Instruct"


# --- writing and reading ----------------------------------------------------------------------------------------------


def test_result_is_read_back(tmp_path):
    path = write(ROW, RECORDS, tmp_path)
    assert read(path) == as_written(ROW, path)
    assert read_all(tmp_path) == [read(path)]
    records = read_records(path)
    assert records.confidence.tobytes() == RECORDS.confidence.tobytes()
    assert (records.id, records.subject, records.answer) == (RECORDS.id, RECORDS.subject, RECORDS.answer)
    assert records.correct.tolist() == RECORDS.correct.tolist()
    assert records.parsed.tolist() == RECORDS.parsed.tolist()
    assert recompute_row(ROW, records).metrics == read(path).metrics


def test_json_is_strict_sorted_and_without_paths(tmp_path):
    path = write(
        replace(ROW, model="/home/alice/llama", timings={"fit": np.float32(0.5)}, n=np.int64(3)), RECORDS, tmp_path
    )
    text = path.read_text()
    assert text == json.dumps(json.loads(text), indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    assert (json.loads(text)["reason"], json.loads(text)["timings"]["fit"]) == (None, 0.5)
    assert "alice" not in text
    assert read(path).model == path.parts[-3] == model_label("/home/alice/llama")
    with pytest.raises(ValueError, match="JSON compliant"):
        write(replace(ROW, llm_accuracy=float("nan"), seed=1), RECORDS, tmp_path)
    assert [path.name for path in sorted(tmp_path.rglob("*s1*"))] == []


def test_failure_is_told_where_there_is_nothing_better(tmp_path):
    path = write(FAILED, None, tmp_path)
    assert [file.name for file in path.parent.iterdir()] == ["ccps--demo--s0.failed.json"]
    assert read_all(tmp_path) == [FAILED]


@pytest.mark.parametrize(("status", "ended"), [("failed", "failed"), ("skipped", "was skipped")])
def test_failed_run_takes_no_numbers_away(tmp_path, status, ended):
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


def test_failure_of_another_cell_is_refused(tmp_path):
    write(ROW, RECORDS, tmp_path)
    failed = write(replace(FAILED, seed=3), None, tmp_path)
    failed.rename(failed.with_name("ccps--demo--s0.failed.json"))
    with pytest.raises(UserError, match=r"s0\.failed\.json says that it is of another cell: ccps--demo--s3\.failed"):
        read_all(tmp_path)


def test_write_that_fails_leaves_the_older_cell(tmp_path, monkeypatch):
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


def files_below(folder):
    return {file.name: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("before", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_killed_at_any_moment_old_or_new_cell_is_there(tmp_path, before):
    """A child is ended before its k-th call to the system, for every k."""
    old, new = RECORDS, replace(RECORDS, confidence=np.full(3, 0.5))
    seen = set()
    for k in itertools.count(1):
        out = tmp_path / str(k)
        if before:
            write(ROW, old, out)
        write(FAILED, None, out)
        ended = in_a_child_that_ends_at(k, lambda out=out: write(replace(ROW, notes=("new",)), new, out))
        (row,) = read_all(out)
        seen.add((row.status, row.notes))
        if before or row.status == "ok":
            path = path_of(ROW, out)
            confidence = read_records(path).confidence.tolist()
            assert confidence == (new if read(path).notes == ("new",) else old).confidence.tolist()
            assert [file.name for file in path.parent.glob("[!.]*")].count("ccps--demo--s0.parquet") == 1
        if ended:
            break
    assert k > 8
    assert (row.status, row.notes) == ("ok", ("new",))
    assert len(seen) == 2


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


def test_pending_file_is_found_while_another_process_writes(tmp_path):
    """A reader that has read an old JSON file and meets the new Parquet file reads both again."""
    path = write(ROW, RECORDS, tmp_path)
    old = path.read_text()
    write(replace(ROW, notes=("new",)), replace(RECORDS, confidence=np.full(3, 0.5)), tmp_path)
    texts = iter([old])
    real = Path.read_text
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "read_text", lambda self, **kw: next(texts, None) or real(self, **kw))
        assert read(path).notes == ("new",)


def test_partial_and_reserved_folders_are_not_in_the_whole(tmp_path):
    whole = as_written(ROW, write(ROW, RECORDS, tmp_path))
    for limit in (8, 16):
        write(replace(ROW, limit=limit), RECORDS, tmp_path)
    published = tmp_path / "paper" / "llama" / "numbers.json"
    published.parent.mkdir(parents=True)
    published.write_text("[]")
    assert read_all(tmp_path) == [whole]
    assert [row.limit for row in read_all(tmp_path / "partial")] == [16, 8]
    assert [row.limit for row in read_all(tmp_path, partial=True)] == [None, 16, 8]


def test_foreign_file_is_passed_over_and_counted(tmp_path):
    write(ROW, RECORDS, tmp_path)
    write(replace(ROW, limit=8), RECORDS, tmp_path)
    (tmp_path / "tiny" / "atlas-choice" / "config.json").write_text("{")
    assert [row.limit for row in read_all(tmp_path)] == [None]
    said = skipped_notes(tmp_path)
    assert len(said) == 2
    assert re.search(r"no results are passed over: 1, e\.g\. .*config\.json", said[0])
    assert "partial results (--limit) are not shown: 1; show them with --partial" in said[1]
    assert len(skipped_notes(tmp_path, partial=True)) == 1


def test_damaged_result_of_another_name_is_refused(tmp_path):
    path = write(ROW, RECORDS, tmp_path)
    path.with_name("mine.json").write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UserError, match=r"mine\.json"):
        read_all(tmp_path)


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), OSError(5, "Input/output error")])
def test_unreadable_file_is_said_to_be_tried_again(tmp_path, monkeypatch, error):
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
    with pytest.raises(pa.ArrowInvalid):
        write(ROW, replace(RECORDS, id=["only one"]), tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_folder_of_one_model_is_refused_with_what_was_meant(tmp_path):
    write(ROW, RECORDS, tmp_path)
    folder = tmp_path / ROW.model
    with pytest.raises(UserError, match=f"one model; .* --results {re.escape(str(tmp_path))} --model {ROW.model}$"):
        read_all(folder)


def test_folder_may_be_empty_but_not_missing(tmp_path):
    assert read_all(tmp_path) == []
    with pytest.raises(UserError, match=r"nowhere.*does not exist; run something first"):
        read_all(tmp_path / "nowhere")


# --- a folder that can't be written -----------------------------------------------------------------------------------


def test_writable_folder_is_left_as_it_was(tmp_path):
    ensure_writable(tmp_path / "new" / "results")
    ensure_writable(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("below", ["", "results"])
def test_file_in_the_way_is_said_before_any_work(tmp_path, below):
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(UserError, match=r"can't be written .*; name another one with --out"):
        ensure_writable(blocked / below)
    with pytest.raises(UserError, match="can't be written"):
        write(ROW, RECORDS, blocked)


@pytest.mark.parametrize("below", ["", "results"])
def test_links_to_nowhere_are_said_before_any_work(tmp_path, below):
    (tmp_path / "disk").symlink_to(tmp_path / "not mounted")
    with pytest.raises(UserError, match=r"can't be written \(No such file"):
        ensure_writable(tmp_path / "disk" / below)


def test_folder_that_may_not_be_entered_is_said(tmp_path, monkeypatch):
    def refused(path):
        raise PermissionError(13, "Permission denied", path)

    for name in ("exists", "is_symlink"):
        monkeypatch.setattr(Path, name, refused)
    with pytest.raises(UserError, match=r"written \(Permission denied\); name another one with --out"):
        ensure_writable(tmp_path / "results")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser may write anywhere")
def test_folder_without_permission_is_said(tmp_path):
    tmp_path.chmod(0o555)
    with pytest.raises(UserError, match="Permission denied"):
        ensure_writable(tmp_path / "results")


# --- results that git tracks ------------------------------------------------------------------------------------------


def test_result_that_git_tracks_is_refused(tmp_path):
    path = write(ROW, RECORDS, tmp_path)
    files.refuse_tracked([ROW], tmp_path)  # no repository
    subprocess.run(["git", "-C", tmp_path, "init", "--quiet"], check=True)
    files.refuse_tracked([ROW], tmp_path)
    subprocess.run(["git", "-C", tmp_path, "add", "."], check=True)
    told = f"{path}: git tracks this, and the run would change it; name another folder with --out, or .* --overwrite"
    with pytest.raises(UserError, match=told):
        files.refuse_tracked([ROW], tmp_path)
    with pytest.raises(UserError, match="and others: git tracks"):
        files.refuse_tracked([ROW, replace(ROW, seed=1), ROW], tmp_path)
    files.refuse_tracked([replace(ROW, seed=1)], tmp_path)
    files.refuse_tracked([ROW], tmp_path / "elsewhere")


# --- the schema -------------------------------------------------------------------------------------------------------


def schema() -> str:
    """Fields and types of a result as text, one per line; what the schema version stands for."""
    lines: list[str] = []
    pending: list[type] = [ResultRow]
    for record in pending:
        for name, hint in typing.get_type_hints(record).items():
            kind = str(hint) if typing.get_args(hint) else hint.__name__
            kind = re.sub(r"^typing\.Optional\[(.+)\]$", r"\1 | None", kind)  # so it is written if a range is given
            lines.append(f"{record.__name__}.{name}: {kind}")
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


def test_result_without_scores_has_no_column_for_them(tmp_path):
    back = read_records(write(ROW, RECORDS, tmp_path))
    assert back.score is None
    assert back.ranking_values is back.confidence
