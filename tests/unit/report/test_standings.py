"""Standings: the statistics of a table from its Parquet files, what is compared with what, and what is kept."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any, get_args

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench import stats
from bench.api import BoolArray, FloatArray, UserError
from bench.report.grouping import Key, rows_by_line
from bench.report.selection import ReportRequest
from bench.report.standings import cache as kept
from bench.report.standings import compute
from bench.report.standings.cache import StandingsReader
from bench.report.standings.compute import Standings
from bench.report.style import built_in
from bench.report.write import write as write_report
from bench.results.cells import read_all
from bench.results.files import path_of, write
from bench.results.row import LabelsSeen, ResultRow
from bench.stats import Average
from bench.store.disk_cache import with_digest
from bench.store.files import read_cached
from tests.kit.tables import CUT_SHORT
from tests.kit.world import Answers, question_records, result_row

N = 160
EVIDENCE = np.random.default_rng(1).normal(size=N)
ANSWERS = Answers(EVIDENCE, EVIDENCE + np.random.default_rng(2).normal(size=N) > 0)
CORRECT = ANSWERS.correct
SUBJECTS = [f"subject {min(k % 5, 3)}" for k in range(N)]
CCPS, LITCAB, PTRUE, IT, LTS, PIK = (Key(name, "") for name in ("ccps", "litcab", "ptrue", "it", "lts", "pik"))


def confidences(skill: float, seed: int = 0) -> FloatArray:
    return ANSWERS.confidences(skill, seed, slope=1.0)


def put(
    out: Path, method: str, confidence: FloatArray, *, correct: BoolArray = CORRECT, order: Sequence[int] = range(N),
    **changes: Any,
) -> ResultRow:  # fmt: skip
    """Write a result whose questions are in this order, without metrics, which nothing here reads."""
    row, at = result_row(method, n=len(order), **changes), np.array(order)
    names: dict[str, Any] = {"id": [f"q{i:03}" for i in order], "subject": [SUBJECTS[i] for i in order]}
    write(row, question_records(confidence[at], correct[at], **names), out)
    return row


def put_twin(out: Path, method: str) -> None:
    """Two seeds that differ from those of `ccps` by chance alone."""
    for seed in (0, 1):
        noise = np.random.default_rng(seed + 3).normal(scale=0.01, size=N)
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


@pytest.mark.parametrize("average", ["questions", "subjects"])
def test_standings_are_those_of_the_statistics(out: Path, average: Average) -> None:
    found = read(out, average=average)
    runs = {PTRUE: confidences(0.1, 8)[None], LITCAB: confidences(0.6, 7)[None]}
    runs[CCPS] = np.stack([confidences(0.9, 0), confidences(0.9, 1)])
    told = stats.summary({k.method: p for k, p in runs.items()}, CORRECT, SUBJECTS, stats.Settings(average=average))
    assert found.lines.keys() == runs.keys()
    for key, line in found.lines.items():
        method = told.methods[key.method]
        assert (line.calibrated_p, line.metrics) == (method.calibrated_p, method.estimates)
        own = [metric for metric in stats.TESTED if line.orders_answers or metric not in {"rmsce", "aucpr"}]
        assert line.ranks == {metric: told.ranks[metric][key.method] for metric in own}
        assert {(each.fixed.estimand, len(each.by_seed)) for each in line.metrics.values()} == {
            ("fixed-subjects", len(runs[key]))
        }
        assert all("20 subjects are needed" in each.clustered.reason for each in line.metrics.values())

    assert [(pair.metric, pair.first, pair.second) for pair in found.pairs] == [
        (metric, a, b) for metric in stats.TESTED for a, b in combinations((PTRUE, LITCAB, CCPS), 2)
    ]


def ranks_of(found: compute.Standings, *without: Key) -> dict[Key, Mapping[str, int]]:
    return {key: line.ranks for key, line in found.lines.items() if key not in without}


def test_ranks_ignore_recalibrated_and_cut_short_methods(out: Path) -> None:
    before = ranks_of(read(out))
    put_twin(out, "ccps+platt")
    put(out, "it", confidences(0.99, 3), training=CUT_SHORT)
    after, platt = read(out), Key("ccps+platt", "")
    assert ranks_of(after, platt, IT) == before
    assert after.lines[platt].ranks == after.lines[IT].ranks == {}  # one is alone in its block
    assert after.lines[IT].metrics["brier"].fixed.low is not None
    for key in (platt, IT):
        own = [pair for pair in after.pairs if key in {pair.first, pair.second} and IT != pair.first != pair.second]
        assert any(pair.p_corrected is not None for pair in own)


def test_constant_of_other_grades_is_not_taken(out: Path) -> None:
    """A method judged by other grades learned on training answers that another share of was right."""
    put(out, "it", confidences(0.7), correct=~CORRECT, base_rate=0.1)
    constants = {line.constant_confidence for key, line in read(out).lines.items() if key != IT}
    assert constants == {CORRECT.mean()}


def test_constant_is_the_share_right_in_training(out: Path) -> None:
    untrained = read(out).lines.values()
    share = np.mean(CORRECT)
    constants = [(line.constant_confidence, line.constant) for line in untrained]
    assert constants == [pytest.approx((share, share * (1 - share)))] * len(constants)
    put(out, "litcab", confidences(0.6, 7), base_rate=0.6)
    put(out, "lts", np.full(N, 0.6), base_rate=0.6)
    put(out, "pik", confidences(0.6, 7), base_rate=0.1)
    found = read(out)
    subjects = np.array(SUBJECTS)
    by_subject = {b: [np.mean((b - CORRECT[subjects == s]) ** 2) for s in set(SUBJECTS)] for b in (0.6, 0.1)}
    constant = {b: np.mean((b - CORRECT) ** 2) for b in (0.6, 0.1)}
    assert found.lines[LTS].constant == pytest.approx(constant[0.6])
    assert found.lines[PIK].constant == pytest.approx(constant[0.1])
    assert found.lines[PTRUE].constant == found.lines[LTS].constant  # it learns nothing, so that of another line
    assert {key for key, line in found.lines.items() if line.worse_than_constant} == {LTS}  # it is that constant
    assert read(out, average="subjects").lines[PIK].constant == pytest.approx(np.mean(by_subject[0.1])) != constant[0.1]


def test_constant_of_untrained_methods_is_of_most_labels(out: Path) -> None:
    few, most = (LabelsSeen(train, 40) for train in (0, 160))
    put(out, "lts", confidences(0.6, 7), base_rate=0.7, labels_seen=few)
    put(out, "pik", confidences(0.6, 7), base_rate=0.6, labels_seen=most)
    put(out, "saplma-f", confidences(0.6, 7), base_rate=0.65, labels_seen=few)
    found = read(out).lines
    assert [*found].index(LTS) < [*found].index(PIK)
    assert [found[key].constant_confidence for key in (LTS, PIK, PTRUE)] == [0.7, 0.6, 0.6]


def test_constant_is_beaten_by_paired_losses_alone() -> None:
    """Surer of most right answers and of no wrong one, or hardly any other than a constant: intervals err on both."""
    correct, noise = np.arange(400) >= 20, np.random.default_rng(0).uniform(-0.02, 0.02, 400)
    rare = np.where(correct, 0.8, 0.1) + noise  # 20 wrong answers: a better mean, but t is 0.9
    common = np.arange(400) % 10 >= 3
    near = np.where(common, 0.71, 0.69)
    found = {
        name: compute.standings_of(
            {CCPS: [(result_row("ccps"), question_records(p, o).by_id())]}, stats.Settings(null_draws=9)
        ).lines[CCPS]
        for name, p, o in (("rare", rare, correct), ("near", near, common), ("wrong", 1 - near, common))
    }
    ends = {name: (line.metrics["brier"].fixed.high or 0.0) < line.constant for name, line in found.items()}
    assert ends == {"rare": True, "near": False, "wrong": False}
    assert {name: line.beats_constant for name, line in found.items()} == {"rare": False, "near": True, "wrong": False}


def test_constant_is_tested_of_a_method_cut_short() -> None:
    correct = np.arange(400) % 10 >= 3
    row = result_row("ccps", training=CUT_SHORT)
    records = question_records(np.where(correct, 0.9, 0.2), correct).by_id()
    assert compute.standings_of({CCPS: [(row, records)]}, stats.Settings(null_draws=9)).lines[CCPS].beats_constant


def test_ranks_of_equal_means_keep_no_order() -> None:
    """The best one beats alone what differs from it on the fewest questions; another of the same mean is untouched."""
    right = np.arange(200) < 150
    answers = {
        CCPS: np.where(np.arange(200) < 30, ~right, right),  # 30 wrong
        LITCAB: np.where((np.arange(200) >= 10) & (np.arange(200) < 40), ~right, right),  # 30 wrong, apart from `it`'s
        IT: np.where(np.arange(200) < 20, ~right, right),
    }
    ranks = []
    for keys in ((CCPS, LITCAB, IT), (LITCAB, CCPS, IT)):
        runs = {k: [(result_row(k.method), question_records(0.1 + 0.8 * answers[k], right).by_id())] for k in keys}
        found = compute.standings_of(runs, stats.Settings(null_draws=9)).lines
        ranks.append({key.method: line.ranks["acc"] for key, line in found.items()})
    assert ranks == [{"ccps": 2, "litcab": 1, "it": 1}] * 2


def test_order_of_questions_in_a_file_is_free(out: Path) -> None:
    before = read(out)
    put(out, "litcab", confidences(0.6, 7), order=np.random.default_rng(5).permutation(N).tolist())
    assert read(out) == before


def test_bins_are_those_of_the_protocol(out: Path) -> None:
    deviating = {"protocol.ece_bins": 3}
    ten = read(out).lines[PTRUE].calibrated_p
    rows = [replace(row, deviations=deviating) for row in read_all(out)]
    three = StandingsReader(out)(rows_by_line(rows, built_in())).lines[PTRUE].calibrated_p
    settings = stats.Settings(bins=3)
    assert three == stats.calibrated_p(confidences(0.1, 8), CORRECT, SUBJECTS, settings) != ten


def test_lines_with_other_labels_are_compared_apart(out: Path) -> None:
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


def test_lines_on_the_most_questions_are_judged(tmp_path: Path) -> None:
    """It was the order of files that decided who was best."""
    for method, n in (("ccps", 100), ("pik", 100), ("lts", N), ("ptrue", N)):
        put(tmp_path, method, confidences(0.9, n), order=range(n))
    assert {key.method: line.labels for key, line in read(tmp_path).lines.items()} == {
        "ccps": 1, "pik": 1, "lts": 0, "ptrue": 0,
    }  # fmt: skip


def test_seeds_on_different_labels_have_no_standing(out: Path) -> None:
    put(out, "litcab", confidences(0.6), correct=~CORRECT, seed=1)
    found = read(out)
    assert found.left_out == {LITCAB: compute._SEEDS_DIFFER}
    assert set(found.lines) == {CCPS, PTRUE}


def test_standings_are_computed_once(out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    first = read(out, tmp_path / "cache", said)
    assert said == ["computing intervals and tests of tiny on atlas-choice; kept for next time"]
    assert len(list((tmp_path / "cache" / "standings").iterdir())) == 1
    monkeypatch.setattr(kept, "compute_standings", None)
    assert read(out, tmp_path / "cache", said) == first
    assert len(said) == 1


def test_standings_of_either_average_are_kept_apart(out: Path, tmp_path: Path) -> None:
    for _ in range(2):
        for average in get_args(Average):
            assert read(out, tmp_path, average=average) == read(out, average=average)
    assert read(out) != read(out, average="subjects")
    assert len(list((tmp_path / "standings").iterdir())) == 2


def other_json(path: Path, _: pytest.MonkeyPatch) -> None:
    values = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(with_digest({**values, "notes": ["x"]})), encoding="utf-8")


def other_bytes(path: Path, _: pytest.MonkeyPatch) -> None:
    table = path.with_suffix(".parquet")
    rewrite(table, pq.read_table(table), compression="none")


def other_source(_: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(kept, "_statistics_digest", lambda: "another")


@pytest.mark.parametrize("change", [other_json, other_bytes, other_source])
def test_standings_of_changed_sources_are_computed_again(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path, pytest.MonkeyPatch], None]
) -> None:
    read(out, tmp_path)
    (path,) = out.rglob("litcab*.json")
    change(path, monkeypatch)
    read(out, tmp_path)
    assert len(list((tmp_path / "standings").iterdir())) == 2


def test_standings_are_kept_for_the_code_of_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who needs an order to be ranked, and what an empty answer counts as, stands outside of the statistics."""
    monkeypatch.setattr(kept, "source_digest", lambda paths: " ".join(path.name for path in paths))
    read_by = {"cache.py", "compute.py", "competition.py", "grouping.py", "files.py", "question_records.py"}
    assert read_by | {"stats", "metrics"} == {*kept._statistics_digest.__wrapped__().split()}


def test_standings_of_a_broken_file_are_computed_again(out: Path, tmp_path: Path) -> None:
    first = read(out, tmp_path)
    (file,) = (tmp_path / "standings").iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    assert read(out, tmp_path) == first
    assert file.read_bytes() == whole
    said: list[str] = []
    assert read(out, file, said) == first  # a cache that can't be written costs no number
    assert "can't be kept in" in said[-1]


FIELDS = st.sampled_from(["lines", "level", "pairs", "left_out"])
LEAVES = st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5)
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner))


@settings(max_examples=50, deadline=None)
@given(VALUES)
def test_standings_are_no_other_value(tmp_path_factory: pytest.TempPathFactory, value: object) -> None:
    path, packed = tmp_path_factory.mktemp("kept") / "x.msgpack", msgspec.msgpack.encode(value)
    for content in (b"", packed, *(hashlib.sha256(body).digest() + body for body in (packed, b"\xc1"))):
        path.write_bytes(content)
        assert read_cached(path, Standings) is None


def test_records_with_a_question_twice_are_named(out: Path) -> None:
    (path,) = out.rglob("litcab*.parquet")
    table = pq.read_table(path)
    rewrite(path, table.set_column(0, table.schema.field("id"), [["q000", *table["id"].to_pylist()[:-1]]]))
    with pytest.raises(UserError, match=r"litcab--demo--s0\.parquet: expected each question once, got id 'q000' twice"):
        read(out)
    rewrite(path, table.slice(0, 0))
    with pytest.raises(UserError, match="got no question"):
        read(out)


def test_result_that_was_renamed_is_named(out: Path) -> None:
    (path,) = out.rglob("litcab*.json")
    for file in (path, path.with_suffix(".parquet")):
        file.rename(file.with_name(file.name.replace("litcab", "mine")))
    with pytest.raises(UserError, match=r"litcab--demo--s0\.json is not there, though .* don't rename results"):
        read(out)


def test_results_that_are_partial_are_found_anywhere(tmp_path: Path) -> None:
    row = put(tmp_path, "ccps", confidences(0.9), limit=N)
    assert path_of(row, tmp_path).is_file()
    lines = rows_by_line([row], built_in())
    assert StandingsReader(tmp_path)(lines) == StandingsReader(tmp_path / "partial")(lines)
    for folder in (tmp_path, tmp_path / "partial"):
        page = tmp_path / f"{folder.name}.html"
        write_report(ReportRequest(folder, out=page, partial=True, deviations=True), None)
        assert page.is_file()
