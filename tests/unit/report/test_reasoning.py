"""What reasoning changes: tables never mix answers with and without traces, and a table pairs them by question."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.report.grouping import group_rows
from bench.report.selection import View
from bench.report.tables import formats
from bench.report.tables.caption import distinguishing_labels
from bench.report.tables.request import build_views
from bench.results import files
from bench.results.cells import read_all
from bench.results.row import answers_after_traces
from tests.kit.world import Answers, result_row, write_result

TRACED: dict[str, Any] = {
    "answers_source": answers_after_traces("generate", 320), "config": {"think_budget": 320, "thinking": "template"}
}  # fmt: skip


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two methods without traces, and with: more answers are right, and `ptrue` tells them better."""
    folder, seeds = tmp_path_factory.mktemp("results"), {"without": 1, "with": 1}
    before, after = (Answers.drawn(400, seed=seeds["with"], threshold=at) for at in (0.6, -0.4))
    for answers, fields, skill, tokens in ((before, {}, 0.1, 400), (after, TRACED, 1.0, 90_000)):
        for method, own in (("ptrue", skill), ("sequence-probability", 0.5)):
            write_result(
                folder, method, answers.confidences(own, 9), answers.correct, test_generated_tokens=tokens, n=400,
                llm_accuracy=float(answers.correct.mean()), **fields,
            )  # fmt: skip
    return folder


def test_tables_never_mix_answers_with_and_without_traces(results: Path) -> None:
    groups = group_rows(read_all(results), preset=None, deviations=False, partial=False)
    assert [{row.answers_source for row in group.rows} for group in groups] == [
        {"generate"}, {"generate after traces of at most 320 tokens"}
    ]  # fmt: skip
    assert distinguishing_labels([group.rows for group in groups]) == ["", "after traces of at most 320 tokens"]
    assert len({path.name for path in results.rglob("*.json")}) == 4


def test_names_of_files_tell_traces_and_their_budget(tmp_path: Path) -> None:
    rows = [result_row(), result_row(**TRACED), result_row(config={"think_budget": 64})]
    assert len({files.path_of(row, tmp_path) for row in rows}) == 3


def test_table_pairs_answers_with_traces_and_without(results: Path) -> None:
    views = build_views(View(results), None)
    assert len(views.grids) == 3
    title, *facts = views.grids[2].facts
    assert title == "tiny on atlas-choice, with traces of at most 320 tokens against without: paired differences"
    assert facts == ["n = 400 questions that both have.", "An answer takes 225 written tokens with traces, 1 without."]
    rows = {(row.cells[0].text, row.cells[2].text): row.cells for row in views.grids[2].rows}
    shares = {
        name: read.correct.mean()
        for name, read in ((path.stem, files.read_records(path)) for path in results.rglob("ptrue*.parquet"))
    }
    gain = 100 * abs(np.subtract(*shares.values()))
    accuracy = rows["answers (with)", "ACC ↑"]
    assert float(accuracy[3].text) == pytest.approx(gain, abs=0.06)
    assert accuracy[-1].text == "answers (with) is better"
    assert rows["ptrue (with)", "AUROC ↑"][-1].text == "ptrue (with) is better"
    assert {name for name, _ in rows} == {"answers (with)", "ptrue (with)", "sequence-probability (with)"}
    assert "after traces of at most 320 tokens" in formats.render(views, "md")


def test_without_a_twin_nothing_is_paired(results: Path, tmp_path: Path) -> None:
    answers = Answers.drawn(400)
    write_result(tmp_path, "ptrue", answers.confidences(1.0, 9), answers.correct, n=400, **TRACED)
    assert len(build_views(View(tmp_path), None).grids) == 1
    write_result(tmp_path, "litcab", answers.confidences(1.0, 9), answers.correct, n=400)
    assert len(build_views(View(tmp_path), None).grids) == 2  # no method is in both


def test_answers_that_different_judges_graded_are_not_paired(tmp_path: Path) -> None:
    answers = Answers.drawn(400)
    for fields in ({"judge": "match"}, {"judge": "openai:judge", **TRACED}):
        write_result(tmp_path, "ptrue", answers.confidences(1.0, 9), answers.correct, n=400, **fields)
    assert len(build_views(View(tmp_path), None).grids) == 2
