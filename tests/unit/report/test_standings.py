"""Standings: the statistics of a table from its Parquet files, what is compared with what, and what is kept."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench import stats
from bench.api import UserError
from bench.api.early_stopping import TrainingStage
from bench.api.protocol import Protocol
from bench.report.grouping import Key, rows_by_line
from bench.report.selection import ReportRequest
from bench.report.standings import cache as kept
from bench.report.standings import compute
from bench.report.standings.cache import StandingsReader
from bench.report.style import built_in
from bench.report.write import write as write_report
from bench.results.cells import read_all
from bench.results.files import path_of, write
from bench.results.question_records import QuestionRecords
from bench.results.row import ResultRow, Training
from bench.stats import Average
from bench.store.disk_cache import with_digest

PROTOCOL = Protocol()
SUBJECTS = [f"subject {min(k % 5, 3)}" for k in range(160)]
TRUTH = np.random.default_rng(1).normal(size=160)
CORRECT = TRUTH + np.random.default_rng(2).normal(size=160) > 0


def confidences(skill: float, seed: int = 0) -> np.ndarray:
    noise = np.random.default_rng(seed).normal(size=TRUTH.size)
    return np.asarray(1 / (1 + np.exp(-(skill * TRUTH + (1 - skill) * noise))))


def put(
    out: Path,
    method: str,
    confidence: np.ndarray,
    *,
    correct: np.ndarray = CORRECT,
    order: Sequence[int] | None = None,
    **changes: object,
) -> ResultRow:
    """Write a result as a run does."""
    row = ResultRow(
        method=method, model="tiny", task="atlas-choice", preset="demo", seed=0, protocol=PROTOCOL.digest(),
        task_version=1, status="ok", n=160,
    )  # fmt: skip
    row = replace(row, **changes)
    rows = list(range(160)) if order is None else list(order)
    records = QuestionRecords(
        [f"q{i:03}" for i in rows], [SUBJECTS[i] for i in rows], correct[rows], confidence[rows], ["a"] * len(rows),
        np.ones(len(rows), dtype=bool),
    )  # fmt: skip
    write(row, records, out)
    return row


def put_twin(out: Path, method: str) -> None:
    """Two seeds that differ from those of `ccps` by chance alone."""
    for seed in (0, 1):
        noise = np.random.default_rng(seed + 3).normal(scale=0.01, size=160)
        put(out, method, np.clip(confidences(0.9, seed) + noise, 0, 1), seed=seed)


def rewrite(path: Path, table: pa.Table, **options: str) -> None:
    """Put another Parquet file in the place of one, with its digest in the JSON file."""
    pq.write_table(table, path, **options)
    row = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    row["records_digest"] = hashlib.sha256(path.read_bytes()).hexdigest()
    path.with_suffix(".json").write_text(json.dumps(with_digest(row)), encoding="utf-8")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    folder = tmp_path / "results"
    for seed in (0, 1):
        put(folder, "ccps", confidences(0.9, seed), seed=seed)
    put(folder, "litcab", confidences(0.6, 7))
    put(folder, "ptrue", confidences(0.1, 8))
    return folder


def read(
    out: Path, cache: Path | None = None, said: list[str] | None = None, average: Average = "questions"
) -> compute.Standings:
    lines = rows_by_line(read_all(out, partial=True), built_in())
    return StandingsReader(out, cache, (said if said is not None else []).append, average)(lines)


CCPS, LITCAB, PTRUE = Key("ccps", ""), Key("litcab", ""), Key("ptrue", "")


# --- the numbers ------------------------------------------------------------------------------------------------------


def test_numbers_are_those_of_the_statistics(out: Path) -> None:
    found = read(out)
    told = stats.summary(
        {"p": confidences(0.1, 8), "l": confidences(0.6, 7), "c": np.stack([confidences(0.9, 0), confidences(0.9, 1)])},
        CORRECT,
        SUBJECTS,
    )
    for key, name in ((PTRUE, "p"), (LITCAB, "l"), (CCPS, "c")):
        method, line = told.methods[name], found.lines[key]
        assert line.calibrated_p == method.calibrated_p
        own = [metric for metric in stats.TESTED if line.orders_answers or metric != "rmsce"]
        assert line.ranks == {metric: told.ranks[metric][name] for metric in own}
        assert set(line.metrics) == set(method.estimates)
        for metric, standing in line.metrics.items():
            estimate = method.estimates[metric]
            assert standing.value == estimate.value
            assert (standing.fixed.low, standing.fixed.high) == (estimate.fixed.low, estimate.fixed.high)
            assert standing.fixed.estimand == "fixed-subjects"
            assert "20 subjects are needed" in standing.clustered.reason
            assert standing.by_seed == estimate.by_seed
    brier = found.lines[CCPS].metrics["brier"]
    assert brier.spread == pytest.approx(np.std(brier.by_seed, ddof=1))
    assert found.lines[PTRUE].metrics["brier"].spread is None
    assert [(pair.metric, pair.first, pair.second) for pair in found.pairs] == [
        (metric, a, b) for metric in stats.TESTED for a, b in combinations((PTRUE, LITCAB, CCPS), 2)
    ]


def test_the_better_of_two_beats_the_other_only_beyond_chance(out: Path) -> None:
    assert read(out).beaten["brier", CCPS] == {LITCAB, PTRUE}
    put_twin(out, "twin")
    found = read(out)
    twin = Key("twin", "")
    assert found.beaten["brier", CCPS] == found.beaten["brier", twin] == {LITCAB, PTRUE}
    assert found.lines[CCPS].ranks["brier"] == found.lines[twin].ranks["brier"] == 1


def test_a_pair_turned_round_says_the_same(out: Path) -> None:
    pair = read(out).pairs[0]
    turned = pair.reversed()
    assert (turned.first, turned.second, turned.difference) == (pair.second, pair.first, -pair.difference)
    assert (turned.fixed.low, turned.fixed.high) == (-pair.fixed.high, -pair.fixed.low)  # type: ignore[operator]
    assert turned.clustered == pair.clustered
    assert turned.reversed() == pair


def test_a_recalibrated_method_changes_nothing_about_the_block_of_the_method_that_it_came_from(out: Path) -> None:
    before = read(out)
    put_twin(out, "ccps+platt")
    after = read(out)
    platt = Key("ccps+platt", "")
    assert {key: line.ranks for key, line in after.lines.items() if key != platt} == {
        key: line.ranks for key, line in before.lines.items()
    }
    assert after.lines[platt].ranks == {}  # it is alone in its block
    assert {pair.p_corrected is None for pair in after.pairs if platt in {pair.first, pair.second}} == {False}


def test_a_single_method_has_no_rank(tmp_path: Path) -> None:
    put(tmp_path, "ccps", confidences(0.9))
    found = read(tmp_path)
    assert (found.beaten, found.pairs) == ({}, ())
    assert found.lines[CCPS].ranks == {}


def test_a_method_whose_training_was_cut_short_has_no_rank_and_takes_part_in_no_others(out: Path) -> None:
    before = read(out)
    stage = TrainingStage("", limit=128, taken=128, kept=128, epochs=2.0, cut_short=True)
    put(out, "it", confidences(0.99, 3), training=Training((stage,)))
    after = read(out)
    it = Key("it", "")
    assert after.lines[it].ranks == {}
    assert after.lines[it].metrics["brier"].fixed.low is not None
    assert {key: line.ranks for key, line in after.lines.items() if key != it} == {
        key: line.ranks for key, line in before.lines.items()
    }
    assert any(it in {pair.first, pair.second} and pair.p_corrected is not None for pair in after.pairs)


def test_a_constant_confidence_is_the_share_of_right_answers_in_training(out: Path) -> None:
    assert {line.constant for line in read(out).lines.values()} == {None}
    put(out, "litcab", confidences(0.6, 7), base_rate=0.6)
    put(out, "lts", np.full(160, 0.6), base_rate=0.6)
    put(out, "pik", confidences(0.6, 7), base_rate=0.1)
    found = read(out)
    subjects = np.array(SUBJECTS)
    by_subject = {b: [np.mean((b - CORRECT[subjects == s]) ** 2) for s in set(SUBJECTS)] for b in (0.6, 0.1)}
    constant = {b: np.mean((b - CORRECT) ** 2) for b in (0.6, 0.1)}
    lts, pik = Key("lts", ""), Key("pik", "")
    assert found.lines[lts].constant == pytest.approx(constant[0.6])
    assert found.lines[pik].constant == pytest.approx(constant[0.1])
    assert found.lines[PTRUE].constant == found.lines[lts].constant  # it learns nothing, so that of another line
    assert {key for key, line in found.lines.items() if line.worse_than_constant} == {lts}  # it is that constant
    assert read(out, average="subjects").lines[pik].constant == pytest.approx(np.mean(by_subject[0.1])) != constant[0.1]


def test_confidences_that_do_not_order_answers_are_known(out: Path) -> None:
    put(out, "lts", np.full(160, 0.6))
    put(out, "pik", 1 - confidences(0.9))
    assert {key for key, line in read(out).lines.items() if not line.orders_answers} >= {
        Key("lts", ""), Key("pik", ""),
    }  # fmt: skip
    assert read(out).lines[CCPS].orders_answers


def test_the_order_of_questions_in_a_file_does_not_matter(out: Path) -> None:
    before = read(out)
    put(out, "litcab", confidences(0.6, 7), order=np.random.default_rng(5).permutation(160))
    assert read(out) == before


def test_nothing_is_told_of_rows_that_are_not_ok(tmp_path: Path) -> None:
    row = put(tmp_path / "other", "ccps", confidences(0.5))
    write(replace(row, status="failed", reason="x", metrics={}, per_subject={}), None, tmp_path)
    found = read(tmp_path)
    assert (found.lines, found.pairs, found.left_out) == ({}, (), {})


def test_bins_are_those_of_the_protocol(out: Path) -> None:
    deviating = {"protocol.ece_bins": 3}
    ten = read(out).lines[PTRUE].calibrated_p
    rows = [replace(row, deviations=deviating) for row in read_all(out)]
    three = StandingsReader(out)(rows_by_line(rows, built_in())).lines[PTRUE].calibrated_p
    settings = stats.Settings(bins=3)
    assert three == stats.calibrated_p(confidences(0.1, 8), CORRECT, SUBJECTS, settings) != ten


# --- what is compared with what ---------------------------------------------------------------------------------------


def test_lines_with_other_labels_are_compared_among_themselves_only(out: Path) -> None:
    other = CORRECT.copy()
    other[:3] = ~other[:3]
    for method, skill in (("ccps", 0.9), ("ptrue", 0.1)):
        put(out, method, confidences(skill, 9), correct=other, config={"judge": "openai"}, judge="openai")
    found = read(out)
    judged = {key for key in found.lines if key.variant}
    assert {key: line.labels for key, line in found.lines.items()} == {key: int(key in judged) for key in found.lines}
    assert len(found.lines) == 5
    assert all((pair.first in judged) == (pair.second in judged) for pair in found.pairs)
    assert sum(pair.first in judged for pair in found.pairs) == len(stats.TESTED)
    assert {found.lines[key].ranks["brier"] for key in judged} == {1, 2}


def test_of_as_many_lines_those_on_the_most_questions_are_judged(tmp_path: Path) -> None:
    """It was the order of files that decided who was best."""
    for method, n in (("ccps", 100), ("pik", 100), ("lts", 160), ("ptrue", 160)):
        put(tmp_path, method, confidences(0.9, n), order=range(n))
    assert {key.method: line.labels for key, line in read(tmp_path).lines.items()} == {
        "ccps": 1, "pik": 1, "lts": 0, "ptrue": 0,
    }  # fmt: skip


def test_seeds_on_different_labels_have_no_standing(out: Path) -> None:
    put(out, "litcab", confidences(0.6), correct=~CORRECT, seed=1)
    found = read(out)
    assert found.left_out == {LITCAB: compute._SEEDS_DIFFER}
    assert set(found.lines) == {CCPS, PTRUE}


# --- what is kept -----------------------------------------------------------------------------------------------------


@pytest.fixture
def no_computing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr(kept, "compute_standings", refuse)


def test_what_was_computed_is_kept(out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    first = read(out, tmp_path / "cache", said)
    assert said == ["computing intervals and tests of tiny on atlas-choice; kept for next time"]
    assert len(list((tmp_path / "cache" / "standings").iterdir())) == 1
    monkeypatch.setattr(kept, "compute_standings", None)
    assert read(out, tmp_path / "cache", said) == first
    assert len(said) == 1


def test_means_over_subjects_are_kept_apart_from_what_is_of_all_questions(out: Path, tmp_path: Path) -> None:
    for _ in range(2):
        for average in ("questions", "subjects"):
            assert read(out, tmp_path, average=average) == read(out, average=average)  # type: ignore[arg-type]
    assert read(out) != read(out, average="subjects")
    assert len(list((tmp_path / "standings").iterdir())) == 2


@pytest.mark.parametrize("suffix", [".json", ".parquet"])
def test_any_changed_byte_is_computed_again(out: Path, tmp_path: Path, suffix: str, no_computing: None) -> None:
    (path,) = out.rglob(f"litcab*{suffix}")
    if suffix == ".json":
        values = json.loads(path.read_text(encoding="utf-8"))
        path.write_text(json.dumps(with_digest({**values, "notes": ["x"]})), encoding="utf-8")
    else:
        rewrite(path, pq.read_table(path), compression="none")
    with pytest.raises(AssertionError, match="computed again"):
        read(out, tmp_path / "cache")


def test_another_source_of_the_statistics_is_computed_again(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read(out, tmp_path)
    monkeypatch.setattr(kept, "_statistics_digest", lambda: "another")
    read(out, tmp_path)
    assert len(list((tmp_path / "standings").iterdir())) == 2


def signed(body: bytes) -> bytes:
    """As it is kept: the digest, and what it is of."""
    return hashlib.sha256(body).digest() + body


BREAKS = {
    "truncated": lambda content: content[: len(content) // 2],
    "empty": lambda _: b"",
    "another byte": lambda content: content[:-1] + bytes([content[-1] ^ 1]),
    "no standings": lambda _: signed(msgspec.msgpack.encode({})),
    "null": lambda _: signed(msgspec.msgpack.encode(None)),
    "no MessagePack": lambda _: signed(b"\xc1"),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_file_is_computed_again_and_replaced(out: Path, tmp_path: Path, name: str) -> None:
    first = read(out, tmp_path)
    (file,) = (tmp_path / "standings").iterdir()
    whole = file.read_bytes()
    file.write_bytes(BREAKS[name](whole))
    assert read(out, tmp_path) == first
    assert file.read_bytes() == whole


def test_a_cache_that_cannot_be_written_is_said_and_costs_no_number(out: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file", encoding="utf-8")
    said: list[str] = []
    assert read(out, tmp_path / "cache", said) == read(out)
    assert "can't be kept in" in said[-1]


FIELDS = st.sampled_from(["lines", "level", "pairs", "left_out"])
LEAVES = st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5)
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner))


@settings(max_examples=50, deadline=None)
@given(VALUES)
def test_no_value_in_the_cache_is_fatal(tmp_path_factory: pytest.TempPathFactory, value: object) -> None:
    path = tmp_path_factory.mktemp("kept") / "x.msgpack"
    for content in (msgspec.msgpack.encode(value), signed(msgspec.msgpack.encode(value))):
        path.write_bytes(content)
        assert kept._read_cached(path) is None


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [math.nan, -0.1, 1.5, math.inf])
def test_a_confidence_that_is_none_is_named(out: Path, bad: float) -> None:
    (path,) = out.rglob("litcab*.parquet")
    table = pq.read_table(path)
    column = table["confidence"].to_pylist()
    column[17] = bad
    rewrite(path, table.set_column(3, table.schema.field("confidence"), [column]))
    with pytest.raises(UserError, match=rf"litcab--demo--s0\.parquet: confidence {bad} in row 17; expected .*\[0, 1\]"):
        read(out)


def test_a_question_twice_and_no_question_are_named(out: Path) -> None:
    (path,) = out.rglob("litcab*.parquet")
    table = pq.read_table(path)
    rewrite(path, table.set_column(0, table.schema.field("id"), [["q000", *table["id"].to_pylist()[:-1]]]))
    with pytest.raises(UserError, match=r"litcab--demo--s0\.parquet: expected each question once, got id 'q000' twice"):
        read(out)
    rewrite(path, table.slice(0, 0))
    with pytest.raises(UserError, match="got no question"):
        read(out)


def test_a_renamed_result_is_named(out: Path) -> None:
    (path,) = out.rglob("litcab*.json")
    for file in (path, path.with_suffix(".parquet")):
        file.rename(file.with_name(file.name.replace("litcab", "mine")))
    with pytest.raises(UserError, match=r"litcab--demo--s0\.json is not there, though .* don't rename results"):
        read(out)


def test_partial_results_are_found_from_either_folder(tmp_path: Path) -> None:
    row = put(tmp_path, "ccps", confidences(0.9), limit=160)
    assert path_of(row, tmp_path).is_file()
    lines = rows_by_line([row], built_in())
    assert StandingsReader(tmp_path)(lines) == StandingsReader(tmp_path / "partial")(lines)
    pages = [tmp_path / f"{k}.html" for k in range(2)]
    for folder, page in zip((tmp_path, tmp_path / "partial"), pages, strict=True):
        write_report(ReportRequest(folder, out=page, partial=True, deviations=True), None)
    assert all(page.is_file() for page in pages)
