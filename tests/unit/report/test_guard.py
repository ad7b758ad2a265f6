"""Guards of result files: planted methods, scores, seeds, other tasks, and what can't be guarded."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from bench.api import Question, UserError
from bench.api.protocol import Protocol
from bench.cli.app import app
from bench.data.contamination import count_duplicates
from bench.report.guard import GuardedTable, GuardRequest, build_analysis, compute_guards
from bench.report.tables import formats
from bench.results import files, question_texts
from bench.results.files import write
from bench.results.question_records import QuestionRecords
from bench.results.question_texts import QuestionText
from bench.results.row import LabelsSeen, ResultRow, Tuning
from bench.results.submissions.recomputation import recompute_row
from bench.stats.guard import held_out_mask

N = 600
TASK, OTHER, MODEL = "atlas-oe", "rivers-oe", "alpha"
TRAINED = {"train_on": "ct-oe/train", "labels_seen": LabelsSeen(64, 16), "base_rate": 0.7}


def plant(
    folder: Path, method: str, *, skill: float = 1.0, right: float = 0.7, task: str = TASK, seed: int = 0, n: int = N,
    score: bool = False, confidence: np.ndarray | None = None, ids: str | None = None, **changes: Any,
) -> ResultRow:  # fmt: skip
    """One result; answers are the same for all methods, and order them the better the more skill a method has."""
    truth = np.random.default_rng([n, len(task)]).random(n)
    correct = truth < right
    noise = np.random.default_rng([seed, *map(ord, method)]).random(n)
    values = skill * (1 - truth) + (1 - skill) * noise if confidence is None else confidence
    row = ResultRow(
        method=method, model=MODEL, task=task, preset="demo", seed=seed, protocol=Protocol().digest(), task_version=1,
        status="ok", n=n, n_unparsed=0, n_empty=0, llm_accuracy=float(correct.mean()),
    )  # fmt: skip
    row = replace(row, **changes)
    if row.status != "ok":
        write(replace(row, n=None, llm_accuracy=None, n_unparsed=None, n_empty=None), None, folder)
        return row
    records = QuestionRecords(
        id=[f"{ids or task}/test/{i}" for i in range(n)], subject=["bells" if i % 2 else "moss" for i in range(n)],
        correct=correct, confidence=np.full(n, np.nan) if score else values, answer=["a"] * n,
        parsed=np.ones(n, dtype=np.bool_), score=values - 5 if score else None,
    )  # fmt: skip
    row = recompute_row(row, records)
    write(row, records, folder)
    return row


def found(folder: Path, **options: Any) -> GuardedTable:
    (table,) = compute_guards(GuardRequest(folder, **options), None)
    return table


def text(table: GuardedTable, kind: str = "terminal", width: int = 200) -> str:
    return " ".join(formats.render(build_analysis([table]).views, kind, width=width).split())


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    plant(folder, "ccps", skill=0.95, seed=0)
    plant(folder, "ccps", skill=0.95, seed=1)
    plant(folder, "ptrue", skill=0.0)
    plant(folder, "margin", skill=0.9, score=True)
    plant(folder, "self-consistency", skill=0.8, confidence=None)
    plant(folder, "it", status="skipped", reason="no train split")
    return folder


# --- what is said -----------------------------------------------------------------------------------------------------


def test_a_good_method_has_a_threshold_that_keeps_its_risk_on_the_other_questions(planted: Path) -> None:
    table = found(planted, risk=0.1)
    best = table.lines[0]
    assert best.line.method == "ccps"
    assert [seed.row.seed for seed in best.seeds] == [0, 1]
    assert best.seeds[0].threshold != best.seeds[1].threshold
    for seed in best.seeds:
        assert seed.bound <= 0.1
        assert seed.realised is not None
        assert 0.4 < seed.realised.coverage < 0.8
        kept = seed.rest.values >= seed.threshold
        assert (seed.realised.accepted, seed.realised.mistakes) == (kept.sum(), (kept & ~seed.rest.correct).sum())
    said = text(table)
    assert "a chance of 90 %)? Yes: 3 of 4 methods with a threshold that keeps this. Largest share kept:" in said
    assert f"{100 * best.coverage:.1f} % of the answers, by ccps from a confidence of 0." in said
    assert "on (2 of 2 seeds)." in said
    assert "asks for 22 answers without a mistake or 38 with one" in said
    assert "ask for --level 0.98, at which all of them hold together" in said
    assert "rounded; CSV and JSON have all digits" in said


def test_a_method_that_orders_nothing_has_none_and_that_is_an_answer(planted: Path) -> None:
    line = next(line for line in found(planted, risk=0.1).lines if line.line.method == "ptrue")
    assert (line.passed_seeds, line.coverage) == ((), 0.0)
    said = text(found(planted, risk=0.1, methods=("ptrue",)))
    assert "No: 0 of 1 methods with a threshold that keeps this. Closest: ptrue (seed 0): of the " in said
    assert (
        "above the strictest threshold, so that it takes a better order of the answers or a higher --risk: ptrue."
        in said
    )
    sentence = "Where there is no threshold, bound and calibration are those of the strictest one."
    assert (sentence in said, sentence in text(found(planted, risk=0.1, methods=("ccps",)))) == (True, False)


def test_the_level_at_which_all_hold_together_is_rounded_up_and_never_1(tmp_path: Path) -> None:
    for seed in (0, 1):
        plant(tmp_path, "ccps", skill=0.95, seed=seed)
    for level in (0.9, 0.9999999):
        asked = re.search(r"ask for --level ([\d.]+), at which", text(found(tmp_path, risk=0.2, level=level)))
        assert asked is not None
        assert 1 - float(asked[1]) <= (1 - level) / 2 + 1e-15
        found(tmp_path, risk=0.2, level=float(asked[1]))


def test_too_few_answers_for_any_method_are_told_first(tmp_path: Path) -> None:
    plant(tmp_path, "ccps", n=60)
    said = text(found(tmp_path, risk=0.05))
    assert "No: 0 of 1 methods with a threshold that keeps this." in said
    assert "Closest" not in said
    assert "no method can certify a risk below" in said
    assert "or keep more than 0.0 % at 5 %, which asks for 45 answers without a mistake" in said


def test_too_few_answers_for_a_method_say_how_many_it_takes(tmp_path: Path) -> None:
    plant(tmp_path, "ccps", right=0.97, confidence=np.full(N, 0.4))
    (easy,) = found(tmp_path, risk=0.5).lines[0].seeds
    assert easy.n_wrong > 0
    table = found(tmp_path, risk=1.2 * easy.n_wrong / easy.accepted)
    (seed,) = table.lines[0].seeds
    assert seed.threshold is None
    assert seed.answers_needed is not None
    assert seed.answers_needed > len(seed.calibration.values)
    assert f"Calibration answers that would do instead of {len(seed.calibration.values)}" in text(table)


def test_failed_seed_is_a_footnote_of_its_method(tmp_path: Path) -> None:
    """Thresholds are those of the seeds that are ok; the table tells why another seed has none."""
    plant(tmp_path, "ccps", skill=0.95)
    plant(tmp_path, "ccps", seed=1, status="failed", reason="CUDA out of memory")
    plant(tmp_path, "pik", skill=0.95)
    (grid,) = build_analysis([found(tmp_path, risk=0.1)]).views.grids
    assert list(grid.footnotes) == ["failed (seed 1): CUDA out of memory"]


def test_scores_without_a_scale_have_thresholds_of_scores(planted: Path) -> None:
    line = next(line for line in found(planted, risk=0.1).lines if line.line.method == "margin")
    (seed,) = line.passed_seeds
    assert seed.is_score
    assert seed.threshold is not None
    assert seed.threshold < 0
    assert "its thresholds are of scores without a scale" in text(found(planted, risk=0.1))


def test_answers_of_one_class(tmp_path: Path) -> None:
    plant(tmp_path, "ccps", right=1.1)
    (seed,) = found(tmp_path / ".").lines[0].seeds
    assert (seed.threshold, seed.n_wrong) == (0.0, 0)
    assert seed.realised is not None
    assert seed.realised.coverage == 1.0
    plant(tmp_path / "wrong", "ccps", right=-0.1)
    table = found(tmp_path / "wrong")
    assert table.certified == ()
    assert "answers right no method can certify a risk below 100.0 %, or keep more than 0.0 %" in text(table)


def test_equal_confidences_are_kept_together(tmp_path: Path) -> None:
    plant(tmp_path, "ccps", right=0.97, confidence=np.full(N, 0.4))
    (seed,) = found(tmp_path, risk=0.1).lines[0].seeds
    assert (seed.threshold, seed.accepted) == (0.0, len(seed.calibration.values))


def test_all_methods_are_calibrated_on_the_same_questions(planted: Path) -> None:
    aside = held_out_mask([f"{TASK}/test/{i}" for i in range(N)], share=0.3, seed=4)
    table = found(planted, risk=0.1, share=0.3, split_seed=4)
    truth = np.random.default_rng([N, len(TASK)]).random(N) < 0.7
    for line in table.evaluated:
        for seed in line.seeds:
            assert seed.calibration.correct.tolist() == truth[aside].tolist()
            assert seed.rest.correct.tolist() == truth[~aside].tolist()


def test_labels_of_the_other_questions_decide_nothing(tmp_path: Path) -> None:
    """Turning them all round changes what is reported, and no threshold."""
    plant(tmp_path / "a", "ccps", skill=0.9)
    path = next((tmp_path / "a").rglob("*.json"))
    row, own = files.read(path), files.read_records(path)
    aside = held_out_mask(own.id, share=0.5, seed=0)
    turned = replace(own, correct=np.where(aside, own.correct, ~own.correct))
    write(recompute_row(replace(row, llm_accuracy=float(turned.correct.mean())), turned), turned, tmp_path / "b")
    (one,), (other,) = (found(tmp_path / name, risk=0.1).lines[0].seeds for name in "ab")
    assert one.threshold == other.threshold is not None
    assert (one.accepted, one.n_wrong) == (other.accepted, other.n_wrong)
    assert one.realised != other.realised


def test_skipped_methods_are_listed_with_their_reason(planted: Path) -> None:
    for kind in ("terminal", "md", "csv", "json"):
        assert "no train split" in text(found(planted), kind)


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_names_stay_whole_however_narrow_the_terminal(planted: Path, width: int) -> None:
    printed = formats.render(build_analysis([found(planted, risk=0.1)]).views, "terminal", width=width)
    for name in ("ccps", "self-consistency", "margin", "seed 1"):
        assert re.search(rf"^ *{name} ", printed, flags=re.MULTILINE), printed


def test_formats_for_programs_have_a_record_for_each_seed(planted: Path) -> None:
    table = found(planted, risk=0.1)
    records = list(csv.DictReader(io.StringIO(formats.render(build_analysis([table]).views, "csv"))))
    assert [(r["method"], r["seed"]) for r in records][:2] == [("ccps", "0"), ("ccps", "1")]
    assert len(records) == 6
    (data,) = json.loads(formats.render(build_analysis([table]).views, "json"))
    cell = data["cells"][0]
    assert cell["threshold"] == table.lines[0].seeds[0].threshold == float(records[0]["threshold"])
    assert cell["coverage_low"] < cell["coverage"] < cell["coverage_high"]
    assert cell["realised_risk_low"] < cell["realised_risk"] < cell["realised_risk_high"]
    assert data["verdict"][0].startswith("Can answers be trusted")


# --- another task -----------------------------------------------------------------------------------------------------


def both(folder: Path, **changes: Any) -> None:
    plant(folder, "ccps", skill=0.9, **TRAINED)
    plant(folder, "ccps", skill=0.9, task=OTHER, **{**TRAINED, **changes})


def test_thresholds_of_another_task_with_the_same_fit(tmp_path: Path) -> None:
    both(tmp_path)
    table = found(tmp_path, risk=0.1, calibrate_on=OTHER)
    (seed,) = table.lines[0].seeds
    assert (table.table.task, table.calibrated_on) == (TASK, OTHER)
    assert (len(seed.calibration.values), len(seed.rest.values)) == (N, N)
    assert seed.threshold is not None
    assert f"The bounds hold for questions like those of {OTHER}" in text(table)
    assert "were compared by their ids alone" in text(table)
    for task in (TASK, OTHER):
        asked = [QuestionText(f"{task}/test/{i}", "bells", f"Who rang bell {i} of {task}?", (), "a") for i in range(3)]
        question_texts.write(task, 1, asked, tmp_path)
    assert "by their ids alone" not in text(found(tmp_path, risk=0.1, calibrate_on=OTHER))


def test_a_shift_that_breaks_the_risk_is_told_with_the_answer(tmp_path: Path) -> None:
    plant(tmp_path, "ptrue", skill=0.9, right=0.6)
    plant(tmp_path, "ptrue", skill=0.9, right=0.95, task=OTHER)
    said = text(found(tmp_path, risk=0.1, calibrate_on=OTHER))
    assert f"Can answers be trusted on questions like those of {OTHER} (" in said
    assert "Yes: 1 of 1 methods with a threshold" in said
    broken = (
        f"More than 10 % wrong on the other questions, of {TASK}, beyond chance: ptrue (38.5 %, 95 % interval 34.6 to"
    )
    assert broken in said


def test_methods_that_have_a_threshold_with_some_seeds_only_are_counted_as_such(tmp_path: Path) -> None:
    plant(tmp_path, "ccps", skill=0.95)
    plant(tmp_path, "pik", skill=0.95)
    plant(tmp_path, "pik", skill=0.0, seed=1)
    said = text(found(tmp_path, risk=0.1))
    assert "2 of 2 methods with a threshold that keeps this, 1 of them not with every seed." in said


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"train_on": "rivers-oe/train"}, "learned from ct-oe/train here and from rivers-oe/train for rivers-oe"),
        ({"base_rate": 0.6}, "is of another fit: it differs in base rate"),
        ({"seed": 3}, "has no result with seed 0 on rivers-oe"),
        ({"status": "skipped", "reason": "no"}, "has no result with seed 0 on rivers-oe"),
        ({"ids": TASK}, "600 of its 600 questions are also of atlas-oe, e.g. atlas-oe/test/0"),
    ],
)
def test_another_fit_or_the_same_questions_can_not_calibrate(tmp_path: Path, changes: Any, told: str) -> None:
    both(tmp_path, **changes)
    with pytest.raises(UserError, match=told):
        found(tmp_path, calibrate_on=OTHER)


def test_the_same_texts_under_other_ids_are_the_same_questions(tmp_path: Path) -> None:
    both(tmp_path)
    for task in (TASK, OTHER):
        asked = [QuestionText(f"{task}/test/{i}", "bells", f"Who rang bell {i}?", (), "a") for i in range(3)]
        question_texts.write(task, 1, asked, tmp_path)
    with pytest.raises(UserError, match="3 of its 600 questions are also of atlas-oe"):
        found(tmp_path, calibrate_on=OTHER)


@pytest.mark.parametrize("name", ["validation", "atlas-oe/validation", "atlas-oe:train"])
def test_what_a_fit_has_seen_is_refused_with_the_reason(planted: Path, name: str) -> None:
    with pytest.raises(UserError, match=r"early stopping, scaling and recalibration have seen it"):
        found(planted, calibrate_on=name)


def test_a_task_without_results_and_the_task_itself(planted: Path) -> None:
    with pytest.raises(UserError, match=r"no result of task 'atlas-eo'; there are atlas-oe. Did you mean"):
        found(planted, calibrate_on="atlas-eo")
    with pytest.raises(UserError, match="expected results of another task"):
        found(planted, calibrate_on=TASK)


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["risk", "level", "share"])
@pytest.mark.parametrize("value", [0.0, 1.0, -0.1, 5.0, float("nan")])
def test_numbers_outside_their_range(planted: Path, option: str, value: float) -> None:
    with pytest.raises(UserError, match=f"--{option}: expected a .*between 0 and 1"):
        found(planted, **{option: value})


def test_a_share_that_leaves_nothing_on_one_side(tmp_path: Path) -> None:
    plant(tmp_path, "ccps", n=20)
    with pytest.raises(UserError, match="expected questions on both sides, got 0 to choose"):
        found(tmp_path, share=0.0001)


def test_nothing_but_skipped_methods(tmp_path: Path) -> None:
    plant(tmp_path, "it", status="skipped", reason="no train split")
    with pytest.raises(UserError, match=r"no method has a result to guard \(it: skipped: no train split\)"):
        found(tmp_path)


def test_a_task_on_which_the_chosen_methods_have_no_result_is_left_out_and_said(tmp_path: Path) -> None:
    plant(tmp_path, "ccps", skill=0.9)
    plant(tmp_path, "it", task="elsewhere", status="skipped", reason="no train split")
    said: list[str] = []
    [only] = compute_guards(GuardRequest(tmp_path, risk=0.1), None, said.append)
    assert only.table.task == TASK
    assert [text for text in said if "left out" in text] == [
        f"{MODEL} on elsewhere: left out, as none of the chosen methods has a result there"
    ]


def test_tables_of_one_model_and_task_are_told_apart(tmp_path: Path) -> None:
    plant(tmp_path, "ccps", skill=0.95)
    plant(tmp_path, "ccps", skill=0.5, config={"tune": 8}, tuning=Tuning(8))
    tables = compute_guards(GuardRequest(tmp_path, risk=0.1), None)
    views = build_analysis(tables).views
    assert [grid.facts[0] for grid in views.grids] == [
        "alpha on atlas-oe",
        "alpha on atlas-oe (tuned, 8 configurations)",
    ]
    assert [record["results"] for record in views.records()] == ["", "tuned, 8 configurations"]


def test_copies_and_answers_without_a_verdict_are_told(tmp_path: Path) -> None:
    """In 1,500 draws in which each question stood there three times, guards broke 10 % in 14.5 % of them."""
    copies = [Question(key, "bells", "Who?", ("a", "b"), 0) for key in "abc"]
    counts = {f"{TASK}/test: {what}": n for what, n in count_duplicates(copies).items()}
    plant(tmp_path, "ccps", counts=counts, n_undecided=7)
    said = text(found(tmp_path, risk=0.1))
    assert "Of the questions of atlas-oe, 2 repeat an earlier one." in said
    assert "On 7 further answers the judge came to no verdict" in said


def test_partial_results_say_so(tmp_path: Path) -> None:
    plant(tmp_path, "ccps", skill=0.9, limit=600)
    assert "The results are partial (--limit 600)" in text(found(tmp_path, risk=0.1))


# --- the command line -------------------------------------------------------------------------------------------------


def invoke(folder: Path, *words: str) -> Result:
    env = {"CONFBENCH_CACHE": str(folder.parent / "cache"), "COLUMNS": "120"}
    return CliRunner().invoke(app, ["guard", "--results", str(folder), *words], env=env)


def test_the_command_prints_and_writes(planted: Path, tmp_path: Path) -> None:
    out = tmp_path / "guards"
    done = invoke(planted, "--risk", "0.1", "--method", "ccps,ptrue", "--out", str(out))
    assert done.exit_code == 0, done.output
    assert done.stdout.index("Can answers be trusted") < done.stdout.index("method")
    assert sorted(path.name for path in out.iterdir()) == ["alpha--atlas-oe--guard.svg", "guard.csv", "guard.json"]
    drawn = (out / "alpha--atlas-oe--guard.svg").read_text(encoding="utf-8")
    assert "ptrue" in drawn
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    invoke(planted, "--risk", "0.1", "--method", "ccps,ptrue", "--out", str(out))
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    only = invoke(planted, "--format", "json")
    assert json.loads(only.stdout)[0]["task"] == TASK


def test_what_is_no_folder_is_not_written_to(planted: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine", encoding="utf-8")
    done = invoke(planted, "--out", str(file))
    assert "expected a folder" in str(done.exception)
    assert file.read_text(encoding="utf-8") == "mine"


def test_a_folder_that_is_no_head_is_told_before_the_work(planted: Path, tmp_path: Path) -> None:
    done = invoke(planted, "--head", str(tmp_path))
    assert isinstance(done.exception, UserError)
    assert "expected head.json in it, found none" in str(done.exception)
