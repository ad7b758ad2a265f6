"""The committed leaderboard is what the committed results give."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from bench.api import UserError
from bench.api.protocol import PRESETS
from bench.report import leaderboard
from bench.results import files, question_texts
from bench.results.submissions import check_results

RESULTS = Path(__file__).parents[3] / "results"
COMMITTED = sorted({*RESULTS.glob("tiny/*/*.json")} - {*RESULTS.glob("tiny/*/*.failed.json")})


def test_without_results_it_says_so_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert leaderboard.main([str(tmp_path)]) == 2
    assert "expected result files, found none" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    assert leaderboard.main([]) == 2


@pytest.fixture
def cell(tmp_path: Path) -> Path:
    """A copy of one committed cell, which draws nothing, with its questions."""
    (tmp_path / "tiny/atlas-oe").mkdir(parents=True)
    for file in RESULTS.glob("tiny/atlas-oe/ptrue--demo--s0.*"):
        shutil.copy(file, tmp_path / "tiny/atlas-oe" / file.name)
    (tmp_path / "questions").mkdir()
    for file in RESULTS.glob("questions/atlas-*"):
        shutil.copy(file, tmp_path / "questions" / file.name)
    return tmp_path / "tiny/atlas-oe/ptrue--demo--s0.json"


def test_leaderboard_has_nothing_that_the_check_refuses(cell: Path, tmp_path: Path) -> None:
    row = files.read(cell)
    digest = question_texts.digest(question_texts.read(tmp_path, "atlas-oe", 1).values())
    row = replace(row, questions_digest=digest, protocol=PRESETS[row.preset].digest())
    files.write(row, files.read_records(cell), tmp_path)
    (tmp_path / "questions/atlas-choice--v1.parquet").unlink()
    assert leaderboard.main([str(tmp_path)]) == 0
    (tmp_path / leaderboard.NAME).unlink()
    dirty = {**row.provenance, "code": {**row.provenance["code"], "dirty": True}}
    files.write(replace(row, provenance=dirty), files.read_records(cell), tmp_path)
    with pytest.raises(
        UserError, match=r"1 of 2 files can't stand .* tiny/atlas-oe/ptrue--demo--s0\.json: it was made"
    ):
        leaderboard.write(tmp_path)
    assert not (tmp_path / leaderboard.NAME).exists()


def test_leaderboard_of_partial_results_alone_is_refused(cell: Path, tmp_path: Path) -> None:
    row, records = files.read(cell), files.read_records(cell)
    for file in cell.parent.iterdir():
        file.unlink()
    files.write(replace(row, limit=len(records.id)), records, tmp_path)
    with pytest.raises(UserError, match="expected results of whole tasks"):
        leaderboard.write(tmp_path)


@pytest.mark.usefixtures("cell")
def test_committed_answers_give_committed_intervals(tmp_path: Path) -> None:
    assert leaderboard.main([str(tmp_path)]) == 0
    again, committed = (
        re.findall(r"^\| ptrue \|.*$", (folder / leaderboard.NAME).read_text(encoding="utf-8"), re.MULTILINE)[-1]
        for folder in (tmp_path, RESULTS)
    )
    intervals = re.findall(r"[\d.]+ ±[\d.]+", again)
    assert len(intervals) == 5
    assert intervals == re.findall(r"[\d.]+ ±[\d.]+", committed)


@pytest.mark.slow
def test_leaderboard_has_all_committed_results() -> None:
    assert not {problem for verdict in check_results(RESULTS) for problem in verdict.problems}
    methods = {path.name.partition("--")[0] for path in COMMITTED}
    seeds = {path.stem.rpartition("--s")[2] for path in COMMITTED}
    assert (len(methods), seeds, len(COMMITTED)) == (32, {"0", "1", "2"}, (30 + 32) * 3)
    page = (RESULTS / leaderboard.NAME).read_text(encoding="utf-8")
    assert page.startswith(leaderboard._ABOUT)
    assert all(re.search(rf"\| (\*\*)?{re.escape(name)}( |<|\*)", page) for name in methods)
