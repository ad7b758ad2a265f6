"""What a reader concludes: planted results in which a view could say more than the tests, or something else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench import load_results
from bench.api.early_stopping import TrainingStage
from bench.api.protocol import Protocol
from bench.report import page
from bench.report.figures import cost_quality, differences_to_best
from bench.report.front import front_candidates, pareto_front
from bench.report.page import verdict
from bench.report.selection import Selection
from bench.report.tables import comparison
from bench.report.tables.build import render, table_views
from bench.report.tables.choice import apply_selection
from bench.report.tables.model import Table
from bench.report.tables.request import tables_of
from bench.report.verdict import verdict_of
from bench.results import files
from bench.results.files import write
from bench.results.question_records import QuestionRecords
from bench.results.row import LabelsSeen, ResultRow, Training
from bench.results.submissions.recomputation import recompute_row
from tests.fixtures import large_page as large
from tests.fixtures.readable import artists, note, words

N = 300
TRUTH = np.random.default_rng(0).normal(size=N)
CORRECT = TRUTH + 0.5 * np.random.default_rng(1).normal(size=N) > -0.3
SUBJECTS = [f"subject {i % 3}" for i in range(N)]


def skilled(skill: float, seed: int = 0) -> np.ndarray:
    noise = np.random.default_rng(seed).normal(size=N)
    return np.asarray(1 / (1 + np.exp(-2.5 * (skill * TRUTH + (1 - skill) * noise))))


def put(out: Path, method: str, confidence: np.ndarray, correct: np.ndarray = CORRECT, **changes: object) -> None:
    """Write a result as a run does."""
    n = len(confidence)
    row = ResultRow(
        method=method, model="tiny", task="atlas-choice", preset="demo", seed=0, protocol=Protocol().digest(),
        task_version=1, status="ok", n=n, n_unparsed=0, n_empty=0, labels_seen=LabelsSeen(64, 16), llm_accuracy=0.6,
        forward_tokens_alone=1000, generated_tokens_alone=0,
    )  # fmt: skip
    ids = [f"q{i:03}" for i in range(n)]
    records = QuestionRecords(ids, SUBJECTS[:n], correct, confidence, ["a"] * n, np.ones(n, dtype=np.bool_))
    write(recompute_row(replace(row, **changes), records), records, out)


def tables_in(out: Path, **options: object) -> list[Table]:
    return tables_of(Selection(out, **options), out / "cache")


def page_of(tables: Sequence[Table], out: Path) -> dict:
    return page.payload(tables, lambda row: files.read_records(files.stored_path(row, out)), lambda task, version: {})


# --- calibration ------------------------------------------------------------------------------------------------------


def test_a_constant_is_not_best_calibrated_where_auroc_has_no_interval(tmp_path):
    """Four wrong answers refuse all intervals of AUROC; that of a constant is 50 % all the same."""
    correct = np.arange(N) % 75 > 0
    put(tmp_path, "ccps", skilled(0.9) * 0.5 + 0.2 * correct, correct)
    put(tmp_path, "pik", skilled(0.8, 1) * 0.5 + 0.2 * correct, correct)
    put(tmp_path, "lts", np.full(N, correct.mean()), correct)
    [table] = tables_in(tmp_path)
    line = {line.method: line for line in table.lines}
    assert line["lts"].estimate("auroc").half is line["ccps"].estimate("auroc").half is None
    assert line["lts"].estimate("auroc").mean == 0.5
    assert line["lts"].estimate("ece").mean == pytest.approx(0)
    assert line["lts"].estimate("rmsce").mean == 0
    assert [line[m].standing.orders_answers for m in ("lts", "ccps", "pik")] == [False, None, None]
    assert {each.estimate("rmsce").best for each in table.lines} == {None}
    assert table.leaders("ece") == verdict_of(table, "ece").leaders == ()
    assert any("does not order answers" in note for note in line["lts"].estimate("rmsce").notes)
    (note,) = line["ccps"].estimate("rmsce").notes
    assert note.startswith("whether it orders answers can't be told: 20 wrong answers are needed")
    assert table.competition("ece").excluded[line["ccps"].key] == "it can't be told whether it orders answers"
    (exported,) = json.loads(render([table], "json"))
    assert {each["standing"]["orders_answers"] for each in exported["lines"]} == {False, None}


def test_noise_near_the_share_of_right_answers_is_not_best_calibrated_where_order_can_not_be_told(tmp_path):
    """With 19 wrong answers of 300 an AUROC a little above 50 % crowned it."""
    correct = np.arange(N) % 300 > 18
    put(tmp_path, "ccps", 1 / (1 + np.exp(-np.where(correct, 1.5, 0.3) - 0.6 * skilled(0, 3))), correct)
    put(tmp_path, "pik", correct.mean() + 0.01 * np.where(correct, skilled(0, 1), skilled(0, 2) - 0.1), correct)
    [table] = tables_in(tmp_path)
    noise = next(line for line in table.lines if line.method == "pik")
    assert noise.estimate("auroc").mean > 0.5
    assert noise.estimate("rmsce").mean < 0.01
    assert (noise.estimate("rmsce").best, table.leaders("ece")) == (None, ())


def test_a_constant_takes_no_part_in_ranks_of_calibration_and_no_comparison_calls_it_better(tmp_path):
    """It had the first rank without the lead, and --compare called it better than every method."""
    put(tmp_path, "ccps", np.clip(skilled(0.9) * 0.6 + 0.4, 0, 1))
    put(tmp_path, "pik", np.clip(skilled(0.9, 1) * 0.2 + 0.8, 0, 1))
    put(tmp_path, "lts", np.full(N, CORRECT.mean()))
    [table] = tables_in(tmp_path, headline="rmsce")
    assert {line.method: line.rank("rmsce") for line in table.lines} == {"ccps": 1, "pik": 2, "lts": None}
    assert [line.method for line in table.leaders()] == [line.method for line in verdict_of(table).leaders] == ["ccps"]
    assert {line.method: line.estimate("rmsce").best for line in table.lines if line.estimate("rmsce").best} == {
        "ccps": "beyond chance"
    }
    compared = comparison.build([table], ["lts", "ccps", "pik"])
    said = {(r["first"], r["second"]): r["verdict"] for r in compared.records() if r["metric"] == "rmsce"}
    assert said == {("lts", "ccps"): "no verdict", ("lts", "pik"): "no verdict", ("ccps", "pik"): "ccps is better"}
    assert "lts: does not order answers" in " ".join(compared.grids[0].footnotes)
    assert {"no verdict", "ccps is better"} <= {c["verdict"] for c in compared.data()[0]["comparisons"]}


# --- tables of one model and task -------------------------------------------------------------------------------------


@pytest.fixture
def twice(tmp_path: Path) -> Path:
    """All questions, a part of them, and answers from elsewhere: who leads is another one each time."""
    put(tmp_path, "ccps", skilled(0.9))
    put(tmp_path, "pik", skilled(0.3, 1))
    put(tmp_path, "ccps", skilled(0.2, 2)[:60], CORRECT[:60], limit=60)
    put(tmp_path, "pik", skilled(0.95, 3)[:60], CORRECT[:60], limit=60)
    elsewhere = {"answers_source": "file:0123", "config": {"answers": "file:0123"}}
    put(tmp_path, "ccps", skilled(0.1, 4), **elsewhere)
    put(tmp_path, "pik", skilled(0.95, 5), **elsewhere)
    return tmp_path


def test_verdicts_on_one_model_and_task_say_what_they_are_on(twice, tmp_path):
    found = load_results(twice, partial=True, cache=tmp_path / "kept", quiet=True).verdict()
    leader = {text.partition(": Best by ")[0]: text.partition("Brier score: ")[2].partition(" ")[0] for text in found}
    assert leader == {
        "tiny on atlas-choice (partial, --limit 60)": "pik",
        "tiny on atlas-choice": "ccps",
        "tiny on atlas-choice (answers from file:0123)": "pik",
    }


def test_the_page_names_tables_of_one_model_and_task_apart(twice):
    tables = tables_in(twice, partial=True)
    built = page_of(tables, twice)
    assert [block["label"] for block in built["blocks"]] == [
        "partial, --limit 60", "", "answers from file:0123",
    ]  # fmt: skip
    some = verdict.verdict_data(tables[:2], ["one", "two"])
    assert [row["texts"][:2] for row in some["rows"]] == [
        ["atlas-choice (first 60)", "pik"], ["atlas-choice", "ccps"],
    ]  # fmt: skip
    [alone] = verdict.verdict_data(tables[:1], ["one"])["rows"]
    assert alone["texts"][0] == "atlas-choice"


# --- several models ---------------------------------------------------------------------------------------------------


def test_models_that_are_sure_of_another_method_are_not_counted_for_the_leader():
    """The methods' names swapped in one model: it is sure of another one than the rest."""

    def named(row: ResultRow) -> ResultRow:
        other = {"ccps": "it", "it": "ccps"} if row.model == large.MODELS[0] else {}
        return replace(row, method=other.get(row.method, row.method))

    rows = [named(row) for row in large.rows() if row.task == "mmlu-pro" and row.method in {"ccps", "it", "ptrue"}]
    tables = large.build(rows, standings_of=large.standings_of)
    states = {table.model: (verdict_of(table).state, verdict_of(table).leaders[0].method) for table in tables}
    sure = [method for state, method in states.values() if state == "sure"]
    assert (sure.count("ccps"), sure.count("it")) == (3, 1)
    [row] = verdict.verdict_data(tables, list(states))["rows"]
    _, leads, told, *_ = row["texts"]
    assert (leads, told) == ("ccps 3 of 4 (sure 3), it 1 (sure 1)", "4 of 4")


# --- costs ------------------------------------------------------------------------------------------------------------


def test_a_leader_of_unknown_cost_is_not_the_cheapest(tmp_path):
    put(tmp_path, "ccps", skilled(0.9), forward_tokens_alone=None)
    put(tmp_path, "pik", skilled(0.9))
    tables = tables_in(tmp_path)
    assert len(verdict_of(tables[0]).leaders) == 2
    [row] = verdict.verdict_data(tables, ["one"])["rows"]
    assert row["texts"][-1] == verdict_of(tables[0]).brief.cost == "pik: 1,000 tokens, 80 labels"


def fronts(table: Table, metric: str) -> tuple[list[str], list[str]]:
    """Names of the lines shown on the front by tokens, and of those that can be on one."""
    shown = {line.key for line in table.lines}
    kinds = {line.key.recalibration for line in (*table.lines, *table.others)}
    on = [key.method for key in pareto_front(table, metric, "tokens", kinds) if key in shown]
    return on, [line.method for line in front_candidates(table, metric) if line.key in shown]


def test_methods_that_are_not_shown_count_on_the_front(tmp_path):
    put(tmp_path, "ccps", skilled(0.95), forward_tokens_alone=10)
    put(tmp_path, "pik", skilled(0.4, 1), forward_tokens_alone=20)
    put(tmp_path, "lts", skilled(0.2, 2), forward_tokens_alone=30)
    [table] = tables_in(tmp_path)
    [some] = apply_selection([table], Selection(tmp_path, methods=("pik", "lts")))
    assert fronts(table, "brier") == (["ccps"], ["ccps", "pik", "lts"])
    assert fronts(some, "brier")[0] == []
    assert [key.method for key in pareto_front(some, "brier", "tokens", {""})] == ["ccps"]


def test_methods_on_other_labels_are_on_no_front(tmp_path):
    put(tmp_path, "ccps", skilled(0.9), forward_tokens_alone=20)
    put(tmp_path, "pik", skilled(0.4, 1), forward_tokens_alone=10)
    put(tmp_path, "lts", skilled(0.3, 2), forward_tokens_alone=30)
    for method, skill in (("ptrue", 0.9), ("ct", 0.8)):
        put(tmp_path, method, skilled(skill, 3), CORRECT | (TRUTH > -2), forward_tokens_alone=1)
    [table] = tables_in(tmp_path)
    assert table.lines[0].method in {"ptrue", "ct", "ccps"}
    on, can = fronts(table, "brier")
    assert (on, set(can)) == (["pik", "ccps"], {"ccps", "pik", "lts"})
    figure = cost_quality([table])
    fills = {
        name.split("/")[-2]: each.get_fillstyle()
        for name, each in artists(figure)
        if name.startswith("tokens/brier/") and name.endswith("/mean")
    }
    assert {method for method, fill in fills.items() if fill == "none"} == {"ptrue", "ct"}
    assert "hollow and not on the front: ptrue, ct (other answers or labels)." in note(figure)
    notes = {line.method: [note for note in line.notes if "labels" in note] for line in table.lines}
    others = "rests on other answers or labels than the lines that are judged"
    assert notes["ptrue"] == [f"{others}: ranked and compared only with ct"]
    assert notes["ccps"] == []


def test_the_front_by_calibration_takes_less_than_nothing_as_nothing_and_no_constant(tmp_path):
    """Of two whose squared error is estimated below 0, the cheaper one is on the front, and not the lower one."""
    put(tmp_path, "lts", np.full(N, CORRECT.mean()), forward_tokens_alone=1)
    place = np.empty(N)
    for kind in (CORRECT, ~CORRECT):
        place[kind] = np.arange(kind.sum()) / kind.sum()
    for method, cost, share in (("pik", 10, 0.9), ("ccps", 20, 0.6)):
        sure = np.where(CORRECT, place < share, place > share)  # two groups, each calibrated to the digit
        put(tmp_path, method, np.where(sure, CORRECT[sure].mean(), CORRECT[~sure].mean()), forward_tokens_alone=cost)
    put(tmp_path, "ptrue", skilled(0.5) ** 4, forward_tokens_alone=5)
    [table] = tables_in(tmp_path)
    [pik, ccps, ptrue] = (
        next(line for line in table.lines if line.method == method).rows[0].metrics["rmsce"].pooled
        for method in ("pik", "ccps", "ptrue")
    )
    assert ccps < pik < 0 < ptrue
    on, can = fronts(table, "rmsce")
    assert (on, set(can)) == (["ptrue", "pik"], {"ptrue", "pik", "ccps"})


# --- figures ----------------------------------------------------------------------------------------------------------


def test_a_small_difference_has_its_sign_in_the_forest_plot(tmp_path):
    put(tmp_path, "ccps", skilled(0.9))
    put(tmp_path, "pik", np.clip(skilled(0.9) + np.where(CORRECT, -1, 1) * 1e-4, 0, 1))
    tables = tables_in(tmp_path)
    [pair] = [pair for pair in tables[0].standings.pairs if pair.metric == "brier"]
    assert 0 < abs(100 * pair.difference) < 0.05
    texts = words(differences_to_best(tables))
    assert any(text.removeprefix("\u2248 ").startswith("+0.0") and text[:6].strip("\u2248 +0.") for text in texts)


# --- questions --------------------------------------------------------------------------------------------------------


def test_questions_are_right_or_wrong_as_most_methods_have_them(tmp_path):
    """The method that is listed first has another judge; its labels are its own."""
    put(tmp_path, "lts", skilled(0.9), ~CORRECT)
    put(tmp_path, "pik", skilled(0.4, 1))
    put(tmp_path, "ccps", skilled(0.3, 2))
    tables = tables_in(tmp_path)
    assert tables[0].ordered_lines[0].method == "lts"
    [block] = page_of(tables, tmp_path)["blocks"]
    found = block["questions"]
    assert found["correct"] == [int(CORRECT[int(name.removeprefix("q"))]) for name in found["id"]]
    assert found["relabelled"] == [0]
    assert [(first, second) for first, second, *_ in found["disagreements"]] == [(1, 2)]


# --- words ------------------------------------------------------------------------------------------------------------


def test_methods_that_never_differ_have_no_interval_to_speak_of(tmp_path):
    put(tmp_path, "ccps", skilled(0.9))
    put(tmp_path, "pik", skilled(0.9))
    put(tmp_path, "lts", skilled(0.2, 1))
    [table] = tables_in(tmp_path)
    said = " ".join(verdict_of(table).sentences)
    assert "ccps (9.9) can't be distinguished" in said
    assert "would decide" not in said


def test_a_footnote_of_one_model_is_not_on_the_other_beside_it(tmp_path):
    stage = TrainingStage(name="", limit=10, taken=10, kept=10, epochs=1.0, cut_short=True)
    for model, training in (("tiny", None), ("small", Training(stages=(stage,)))):
        put(tmp_path, "ccps", skilled(0.9), model=model, training=training)
        put(tmp_path, "pik", skilled(0.4, 1), model=model)
    [grid] = table_views(tables_in(tmp_path), models=True).grids
    notes = {row.cells[0].text: row.cells[0].notes for row in grid.rows}
    assert notes["pik"] == ()
    [note] = notes["ccps"]
    assert note.startswith("with small: ")


def test_the_only_ranked_method_leads_nobody(tmp_path):
    """The method with the better mean was cut short, so that the other one was tested against nobody."""
    stage = TrainingStage(name="", limit=10, taken=10, kept=10, epochs=1.0, cut_short=True)
    put(tmp_path, "ccps", skilled(0.95), training=Training(stages=(stage,)))
    put(tmp_path, "pik", skilled(0.2, 1))
    for method in ("ccps+isotonic", "pik+isotonic"):
        put(tmp_path, method, skilled(0.9 if method.startswith("ccps") else 0.3, 2))
    tables = tables_in(tmp_path)
    found = verdict_of(tables[0])
    assert (found.state, found.leaders, found.places, tables[0].leaders()) == ("not tested", (), (), ())
    assert not any("Cost" in sentence for sentence in found.sentences)
    [row] = verdict.verdict_data(tables, ["one"])["rows"]
    assert (row["texts"][1], row["texts"][-1]) == ("nobody", "nobody leads")
    [block] = page_of(tables, tmp_path)["blocks"]
    assert block["headlines"]["brier"]["leads"] == []
    assert 'class="leads"' not in "".join(
        map("".join, page.pictures(tables, lambda row: files.read_records(files.stored_path(row, tmp_path))))
    )
    [grid] = table_views(tables).grids
    assert not any(cell.shaded for row in grid.rows for cell in row.cells)
    assert "▸" not in " ".join(grid.legend)
