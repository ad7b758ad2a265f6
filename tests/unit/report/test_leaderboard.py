"""The committed leaderboard is what the committed results give."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.report import leaderboard
from bench.submissions import check_results

RESULTS = Path(__file__).parents[3] / "results"
COMMITTED = sorted(RESULTS.glob("tiny/*/*.json"))


def test_without_results_it_says_so_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert leaderboard.main([str(tmp_path)]) == 2
    assert "no results" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    assert leaderboard.main([]) == 2


def test_the_committed_results_may_stand_where_they_stand() -> None:
    problems = {problem for verdict in check_results(RESULTS) for problem in verdict.problems}
    assert not {problem for problem in problems if "questions_digest" not in problem}  # to come with the next results
    methods = {path.name.partition("--")[0] for path in COMMITTED}
    seeds = {path.stem.rpartition("--s")[2] for path in COMMITTED}
    assert (len(methods), seeds, len(COMMITTED)) == (11, {"0", "1", "2"}, 11 * 3 * 2)


def test_the_page_names_every_method_of_the_results() -> None:
    page = (RESULTS / leaderboard.NAME).read_text(encoding="utf-8")
    assert page.startswith(leaderboard.ABOUT)
    for path in COMMITTED:
        assert f"| {path.name.partition('--')[0]} |" in page
