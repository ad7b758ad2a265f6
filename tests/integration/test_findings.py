"""Tables and figures of docs/findings.md and the README are those of the results; `make pictures` writes them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from bench.results.files import write
from bench.results.row import LabelsSeen
from benchmarks import findings
from tests.kit.world import question_records, result_row


@pytest.mark.slow
def test_findings_are_those_of_the_committed_results(tmp_path: Path) -> None:
    data = findings.read()
    for path, text in findings.pages(data).items():
        assert text == path.read_text(encoding="utf-8"), f"{path.name} is old, run: make pictures"
    figures = [(metric, findings.dot_plot(findings.tested(data), metric)) for metric in findings.DRAWN]
    for name, figure in [*figures, *findings.curves()]:
        drawn = findings.save(figure, tmp_path / f"findings-{name}.svg")
        assert drawn.read_bytes() == (findings.PICTURES / drawn.name).read_bytes(), f"{drawn.name}, run: make pictures"


@pytest.mark.parametrize(
    ("page", "until"), [(findings.PAGE, "\n## How it was run"), (findings.README, "\n## Three doors")],
    ids=["findings", "README"],
)  # fmt: skip
def test_findings_prose_has_the_decimals_of_the_tables(page: Path, until: str) -> None:
    """A number that stands in no generated table is old, or was never measured."""
    block = re.compile(r"<!-- \w+ -->\n.*?<!-- end -->", re.DOTALL)
    tables = "".join(table for each in (findings.PAGE, page) for table in block.findall(each.read_text("utf-8")))
    prose = block.sub("", page.read_text("utf-8").partition("\n## What")[2].partition(until)[0])
    decimals = re.compile(r"(?<![\w.-])\d+\.\d+(?! billion)(?![\w-])")
    assert len(decimals.findall(prose)) > 5
    assert not set(decimals.findall(prose)) - set(decimals.findall(tables))


def test_findings_constant_is_that_of_most_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings, "RESULTS", tmp_path)
    told = {"lts": (0.6, LabelsSeen(0, 250)), "pik": (0.5, LabelsSeen(1000, 250)), "ptrue": (None, LabelsSeen())}
    rows = [result_row(name, base_rate=rate, labels_seen=seen) for name, (rate, seen) in told.items()]
    for row in rows:
        write(row, question_records([0.2, 0.7], [False, True]), tmp_path)
    assert {findings.Cells(order).learned_right for order in (rows, rows[::-1])} == {0.5}


def test_findings_marks_are_of_the_methods_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere, twelve methods whose scores were scaled have no Brier score, so that its tests don't count them."""
    monkeypatch.setattr(findings, "RESULTS", tmp_path)
    draw, task = np.random.default_rng(0), next(iter(findings.TASKS))
    right, plain = draw.random(300) < 0.5, draw.uniform(0.3, 0.7, 300)
    told = {findings.PLAIN: plain, "pik": plain + 0.07 * (right - 0.5) + draw.uniform(-0.2, 0.2, 300)}
    told |= {f"scaled-{k}": draw.uniform(0.3, 0.7, 300) for k in range(12)}
    rows = [result_row(name, labels_seen=LabelsSeen(0, 250 * ("scaled" in name))) for name in told]
    for row in rows:
        write(row, question_records(told[row.method], right), tmp_path)
    data = {(task, source): findings.Cells(rows) for source in findings.SOURCES}
    brier, auroc = (
        {cells[1].strip(): [text.strip() for text in cells[2:4]] for cells in (line.split("|") for line in lines)}
        for lines in (findings.scores_table(data, metric) for metric in ("brier", "auroc"))
    )
    assert brier["pik"][1] == f"{brier['pik'][0]}+"
    assert brier["scaled-0"][0]
    assert not brier["scaled-0"][1]
    assert auroc["scaled-0"][0] == auroc["scaled-0"][1]


def test_claims_name_what_there_is() -> None:
    """A claim that names a method, task or metric that is not there could never be tested."""
    from bench import registry
    from bench.metrics import METRICS

    for claim in findings.read_claims():
        for side in (claim.better, claim.worse):
            method, _, source = side.partition("@")
            assert method in registry.built_in()[0].names()
            assert source in {"", *findings.SOURCES}
        assert claim.metric in METRICS
        tasks = [name for task in claim.tasks for name in (task, findings.holdout(task))]
        assert set(tasks) <= set(registry.built_in()[1].names())
