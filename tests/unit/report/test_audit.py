"""Audits of confidences that somebody already has: the first line, what data can't show, groups, gaps, limits."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest

import bench
from bench.api import UserError
from bench.data.confidence_files import Sheet
from bench.report.audit import gate_sentence
from bench.report.audit.compute import Gate
from bench.report.notebook.audit import Audit
from bench.report.selection import AuditRequest
from bench.report.verdict.audit import calibration_sentences, error_ends, points
from bench.stats import Interval, overconfidence_of

FIXTURES = Path(__file__).parents[2] / "fixtures"


def frame(n: int = 600, *, skill: float = 0.66, seed: int = 0) -> pd.DataFrame:
    """Answers with a calibrated confidence `logprob`."""
    rng = np.random.default_rng(seed)
    p = rng.beta(6 * skill, 6 * (1 - skill), n)
    return pd.DataFrame({"id": [f"q{k}" for k in range(n)], "correct": rng.random(n) < p, "logprob": p})


def surer(table: pd.DataFrame, by: float = 0.2) -> pd.DataFrame:
    return table.assign(verbal=np.clip(table.logprob + by, 0, 1).round(3))


def models(n: int = 400) -> pd.DataFrame:
    """Two models on the same questions; `small` is overconfident."""
    good, bad = frame(n).assign(group="big"), surer(frame(n, skill=0.4, seed=1)).assign(group="small")
    return pd.concat([good.assign(confidence=good.logprob), bad.assign(confidence=bad.verbal)], ignore_index=True)


def saved(table: pd.DataFrame, path: Path) -> Path:
    """The path of a file with a table."""
    kinds: dict[str, Callable[[Path], object]] = {
        ".csv": lambda path: table.to_csv(path, index=False), ".parquet": table.to_parquet,
        ".jsonl": lambda path: table.to_json(path, orient="records", lines=True),
    }  # fmt: skip
    kinds[path.suffix](path)
    return path


FILES: Mapping[str, tuple[Path | pd.DataFrame, str, dict[str, Any], str]] = {
    "log of Inspect": (
        FIXTURES / "confidences/inspect.eval", "", {"scale": "100"},
        r"score_verbal_confidence is overconfident by 1\d\.\d points \(.*\): \S+ % sure on average, \S+ % right\.",
    ),
    "CSV of DSPy, in words": (
        FIXTURES / "confidences/dspy.csv", "", {"correct": "exact", "words": "high=0.9,medium=0.6,low=0.3"},
        r"confidence is overconfident by 9\.[45] points \(2\.7 to 16\.2\): 68\.0 % sure on average, 58\.5 % right\.",
    ),
    "samples of lm-eval": (
        FIXTURES / "logs/lm-eval-choice.jsonl", "", {},
        r"Too few to judge by: .*4 questions instead of 100.*\.",
    ),
    "uncertainties as LM-Polygraph computes them": (
        frame().assign(MeanTokenEntropy=lambda t: -np.log(t.logprob)), "a.csv",
        {"uncertainties": "MeanTokenEntropy", "confidences": "logprob"},
        r"logprob is not shown to be over- or underconfident on average: .* \(off by .* points .*\)\.",
    ),
    "spreadsheet in percent": (
        surer(frame()).assign(verbal=lambda t: (100 * t.verbal).round().astype(int)), "a.csv",
        {"confidences": "verbal", "scale": "100"},
        r"verbal is overconfident by 1[5-9]\.\d points .*",
    ),
    "two confidences": (
        surer(frame()), "a.jsonl", {},
        r"Overconfident: verbal by .* points .*; not shown to be off on average: logprob\.",
    ),
    "judge that says 0.95 of all": (
        frame()[["correct"]].assign(judge=0.95), "a.jsonl", {},
        r"The same confidence in every answer, so it tells none from another: judge \(95\.0 %\)\.",
    ),
    "several models": (models(), "a.parquet", {"confidences": "confidence"}, r"confidence is (not shown|over).*"),
    "all right": (
        frame().assign(correct=True), "a.csv", {},
        r"All 600 answers are right, so no confidence can order them: .*",
    ),
    "thirty rows": (frame(30), "a.csv", {}, r"Too few to judge by: .*30 questions instead of 100.*\."),
    "hedging": (
        frame(skill=0.9).assign(confidence=lambda t: t.logprob - 0.2).query("confidence > 0"), "a.csv",
        {"confidences": "confidence"}, r"confidence is underconfident by 2\d\.\d points .*",
    ),
    "the wrong way round": (
        frame().assign(confidence=lambda t: 1 - t.logprob), "a.csv", {"confidences": "confidence"},
        r"confidence is underconfident by .*",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", FILES)
def test_audit_first_line_says_what_a_file_shows(kind: str, tmp_path: Path) -> None:
    source, name, options, expected = FILES[kind]
    audit = bench.audit(source if isinstance(source, Path) else saved(source, tmp_path / name), **options)
    first = audit.table().views.grids[0].verdict[0]
    assert re.fullmatch(expected, first), first
    advice = audit.table().render("terminal", width=100).partition("\n\n")[0].splitlines()[1:]
    assert len([line for line in advice if not line.startswith("n = ")]) <= 6
    text = audit.report().render("md")
    assert not re.search(r"(?i)\blabels?\b|\btokens?\b|preset|dtype|without labels|plain probability", text), text


def test_audit_of_a_file_is_of_its_frame(tmp_path: Path) -> None:
    table = surer(frame())
    paths = [saved(table, tmp_path / f"a.{kind}") for kind in ("csv", "jsonl", "parquet")]
    wide = [bench.audit(each, headline="rmsce").wide().reset_index() for each in (table, *paths)]
    named = ["answers_source", "task"]
    for other in wide[1:]:
        pd.testing.assert_frame_equal(wide[0].drop(columns=named), other.drop(columns=named), rtol=1e-6)


def test_audit_numbers_are_those_of_metrics_and_stats() -> None:
    table = surer(frame())
    audit = bench.audit(table, confidences="verbal")
    line = audit.tables[0].lines[0]
    assert line.estimate("brier").mean == pytest.approx(((table.verbal - table.correct) ** 2).mean())
    assert line.standing is not None
    assert line.standing.constant == pytest.approx(table.correct.mean() * (1 - table.correct.mean()))
    off = audit.tables[0].overconfidence[line.key]
    assert off.value == pytest.approx(table.verbal.mean() - table.correct.mean())
    low, high = off.interval.ends or (0, 0)
    assert low < 0.2 < high + 0.1
    assert audit.questions().confidence.tolist() == table.sort_values("id").verbal.tolist()


@pytest.mark.parametrize("rate", [1.0, 0.002])
def test_overconfidence_interval_covers_the_true_gap(rate: float) -> None:
    """Where hardly any answer is right, what varies is the confidence."""
    rng, found = np.random.default_rng(0), []
    for _ in range(400):
        p = rng.beta(4, 2, 200)
        found.append(overconfidence_of(np.clip(p + 0.1, 0, 1), rng.random(200) < rate * p, [""] * 200).interval)
    truth = float((np.clip((p := rng.beta(4, 2, 1_000_000)) + 0.1, 0, 1) - rate * p).mean())
    assert np.mean([each.kind == "exact" for each in found]) == (rate < 1)
    assert 0.92 <= np.mean([low < truth < high for low, high in (each.ends or (0, 0) for each in found)]) <= 0.995


def test_overconfidence_without_spread_has_no_interval() -> None:
    """Copies in each subject: what differs between subjects is no error of other questions of the same ones."""
    right = np.repeat(np.arange(40) % 2 > 0, 3)
    off = overconfidence_of(np.where(right, 0.9, 0.5), right, [f"{k // 3}" for k in range(120)])
    assert (off.word, off.interval.reason) == ("too few to tell", "nothing varies between these questions")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([0.9] * 200, "every confidence is 0.9: it tells no answer from another"),
        ([0.2, 0.8] * 100, "it has two values only, 0.2 and 0.8"),
        ([0.95] * 120 + np.linspace(0.1234, 0.9, 80).tolist(), "60.0 % of its confidences are 0.95"),
        (np.tile([0.1, 0.3, 0.5, 0.7], 50).tolist(), "its confidences are rounded to 0.1: 4 values"),
        (np.tile([0.15, 0.35, 0.5, 0.7], 50).tolist(), "its confidences are rounded to 0.05: 4 values"),
        (np.linspace(0.1234, 0.9, 200).tolist(), ""),
    ],
)
def test_audit_says_what_values_cannot_show(values: list[float], said: str) -> None:
    right = np.random.default_rng(0).random(200) < 0.6
    notes = bench.audit(pd.DataFrame({"correct": right, "p": values})).tables[0].lines[0].notes
    assert any(note.startswith(said) for note in notes) if said else not notes


def test_audit_says_which_numbers_may_be_fractions() -> None:
    table = frame(200).assign(verbal=lambda t: np.where(t.index < 150, 100 * t.logprob, t.logprob).round(2))
    notes = bench.audit(table, confidences="verbal", scale="100").tables[0].lines[0].notes
    assert notes == ("with --scale 100 50 of its numbers are below 1: were these written from 0 to 1?",)


def test_audit_leaves_out_repeated_ids_and_says_so() -> None:
    table = frame()
    audit = bench.audit(pd.concat([table, table[:50]]).assign(subject=["one"] + ["many"] * 649))
    assert audit.tables[0].lines[0].n == 600
    facts = " ".join(audit.tables[0].facts)
    assert "50 rows with the id of an earlier row, left out." in facts
    assert "subjects of one row, of which nothing can be said: 1." in facts
    with pytest.raises(UserError, match=r"row 600: it has the id 'q0' of row 0, but another grade.*--group"):
        bench.audit(pd.concat([table.assign(model="a"), table.assign(model="b", logprob=0.9)]), confidences="logprob")


def test_audit_of_an_inspect_log_takes_one_epoch() -> None:
    table = {name: column.tolist() * 4 for name, column in frame(200).items()}
    sheet = Sheet("quiz", {**table, "model": ["m"] * 800}, [""] * 800, is_inspect=True)
    audit = Audit.of(sheet, AuditRequest(confidences=("logprob",)))
    assert (audit.tables[0].model, audit.tables[0].lines[0].n) == ("m", 200)


def test_audit_recalibrates_on_named_splits() -> None:
    table = surer(frame(900)).assign(split=["dev", "test", "test"] * 300)
    audit = bench.audit(table, confidences="verbal", recalibrate="isotonic", learn_on="dev")
    raw, learned = audit.tables[0].lines
    assert (raw.n, learned.n, learned.method) == (600, 600, "verbal+isotonic")
    assert learned.notes == ("recalibrated on 300 rows of dev",)
    assert (learned.estimate("rmsce").mean or 0) < (raw.estimate("rmsce").mean or 0) / 2
    assert any("Best when recalibrated, by Brier score: verbal+isotonic" in text for text in audit.verdict())
    crossed = bench.audit(table, confidences="verbal", recalibrate="platt").tables[0].lines[1]
    assert re.fullmatch(r"recalibrated by cross-fitting, in five parts; \d+ confidences of 0 or 1 .*", crossed.notes[0])
    assert crossed.n == 900
    said = "rows of all splits are judged (dev, test); --learn-on names those that were learned on"
    assert bench.audit(table, confidences="verbal").notes == (said,)
    assert audit.notes == ()


def test_audit_refuses_to_learn_on_few_rows() -> None:
    table = surer(frame(300)).assign(split=["dev"] * 19 + ["test"] * 281)
    with pytest.raises(UserError, match="at least 20 rows to learn on and 1 to judge, got 19 and 281; add rows"):
        bench.audit(table, recalibrate="platt", learn_on="dev")
    with pytest.raises(UserError, match="expected at least 2 rows to judge, got 0 and 1; add rows"):
        bench.audit(table[:1], recalibrate="platt")


@pytest.mark.parametrize("kind", ["platt", "beta", "temperature", "isotonic"])
def test_audit_recalibrates_confidences_of_0_and_1(kind: str) -> None:
    rng = np.random.default_rng(0)
    table = frame(1000).assign(p=lambda t: np.where(rng.random(1000) < 0.5, t.logprob.round(), t.logprob))
    raw, learned = bench.audit(table, confidences="p", recalibrate=kind).tables[0].lines
    sure = bench.audit(table, confidences="p", recalibrate=kind).questions().query("method != 'p'").confidence
    assert np.isfinite(sure).all()
    assert sure.between(0, 1).all()
    assert (learned.estimate("brier").mean or 1) < (raw.estimate("brier").mean or 0)
    assert (learned.estimate("auroc").mean or 0) == pytest.approx(raw.estimate("auroc").mean, abs=0.04)
    ends = int(table.p.isin([0, 1]).sum())
    said = f"{ends:,} confidences of 0 or 1 count as 2^-24 from these, as their log-odds are infinite"
    assert any(said in note for note in learned.notes) == (kind != "isotonic")


def test_audit_has_every_metric_for_later() -> None:
    shown = bench.audit(surer(frame()), confidences="verbal").table(metrics="nll,smece").render("md")
    assert re.search(r"\| verbal \| 1\.\d.* \| 1\d\.\d \|", shown), shown


def test_audit_judges_no_question_that_was_learned_on() -> None:
    both = pd.concat([frame().assign(split="dev"), frame()[:9].assign(split="test")])
    with pytest.raises(UserError, match=r"9 ids, e.g. 'q0', are among the rows to learn on and among those to judge"):
        bench.audit(both, recalibrate="isotonic", learn_on="dev")


def test_audit_recalibration_never_sees_the_answer_it_maps() -> None:
    noise = pd.DataFrame({"correct": np.random.default_rng(0).random(400) < 0.5, "p": np.linspace(0.001, 0.999, 400)})
    line = bench.audit(noise, recalibrate="isotonic").tables[0].lines[1]
    assert (line.estimate("brier").mean or 0) > 0.24  # fitted in place, isotonic regression would be far below


def test_audit_uncertainty_gives_its_order_alone() -> None:
    table = frame().assign(entropy=lambda t: 1_000 - 7 * t.logprob)
    audit = bench.audit(table, confidences="logprob", uncertainties="entropy")
    lines = {line.method: line for line in audit.tables[0].lines}
    assert lines["entropy"].estimate("auroc").mean == pytest.approx(lines["logprob"].estimate("auroc").mean)
    assert lines["entropy"].key not in audit.tables[0].overconfidence
    reverse = bench.audit(frame().assign(p=lambda t: 1 - t.logprob), confidences="p")
    assert any("Wrong answers are the surer ones: p." in text for text in reverse.verdict())


def test_audit_compares_groups_on_the_questions_they_share() -> None:
    table = models()
    audit = bench.audit(table[~((table.group == "big") & table.id.isin(["q0", "q1"]))], confidences="confidence")
    assert [each.model for each in audit.tables] == ["big", "small"]
    (compared,) = audit.found.compared
    assert compared.facts == ("confidence in frame", "n = 398 questions that all groups share, by id.")
    brier = next(pair for pair in compared.standings.pairs if pair.metric == "brier")  # type: ignore[union-attr]
    both = table.pivot(index="id", columns="group", values=["confidence", "correct"]).dropna().drop(["q0", "q1"])
    loss = {g: ((both["confidence"][g] - both["correct"][g].astype(float)) ** 2).mean() for g in ("big", "small")}
    assert brier.difference == pytest.approx(loss["big"] - loss["small"])
    assert (brier.p_corrected or 1) < 0.001
    assert "big is better" in audit.report().render("md")
    alone = bench.audit(table.assign(id=range(len(table))), confidences="confidence")
    assert len(alone.notes) == 1
    assert alone.notes[0].startswith("no question is in all groups (by id), so they are not compared")


def test_audit_compares_groups_of_equal_confidences() -> None:
    right = np.arange(400) % 10 > 0
    good = pd.DataFrame({"id": range(400), "correct": right, "judge": 0.9, "group": "good"})
    bad = good.assign(correct=np.arange(400) % 2 > 0, group="bad")
    (compared,) = bench.audit(pd.concat([good, bad]), confidences="judge").found.compared
    for metric in ("brier", "rmsce"):
        (pair,) = (pair for pair in compared.standings.pairs if pair.metric == metric)  # type: ignore[union-attr]
        assert (pair.p or 1) < 0.001, metric


@pytest.mark.parametrize("n_few", [1, 2])
def test_audit_of_few_wrong_answers_tests_other_groups(n_few: int) -> None:
    right = {"sharp": np.arange(300) % 2 > 0, "blunt": np.arange(300) % 2 == 0}
    right |= {f"few {k}": np.arange(300) % 300 >= 12 + k for k in range(n_few)}
    draw, skill = np.random.default_rng(0), {"sharp": 0.9, "blunt": 0.1}
    parts = [
        pd.DataFrame({"id": range(300), "correct": is_right, "group": group})
        .assign(judge=0.5 + 0.4 * skill.get(group, 0.5) * (is_right - 0.5) + draw.uniform(-0.2, 0.2, 300))
        for group, is_right in right.items()
    ]  # fmt: skip
    (alone,) = bench.audit(pd.concat(parts[:2]), confidences="judge").found.compared
    (compared,) = bench.audit(pd.concat(parts), confidences="judge").found.compared
    before, after = ({frozenset((p.first.method, p.second.method, p.metric)): p for p in c.standings.pairs}  # type: ignore[union-attr]
                     for c in (alone, compared))  # fmt: skip
    auroc = frozenset(("sharp", "blunt", "auroc"))
    assert before[auroc].p == after[auroc].p
    assert before[auroc].p_corrected == after[auroc].p_corrected
    assert (after[auroc].p or 1) < 1e-9
    few = {key: pair for key, pair in after.items() if "auroc" in key and key != auroc}
    assert len(few) == {1: 2, 2: 5}[n_few]
    for key, pair in few.items():
        least = 12 if "few 0" in key else 13
        assert (pair.p, pair.p_corrected) == (None, None)
        assert pair.fixed.reason == f"20 wrong answers are needed to tell how far AUROC varies, there are {least}"


def test_audit_has_no_verdict_for_confidences_without_order() -> None:
    rng, right = np.random.default_rng(0), np.arange(300) % 2 > 0
    sharp = pd.DataFrame({"id": range(300), "correct": right, "judge": np.where(right, 0.9, 0.1), "group": "sharp"})
    noise = sharp.assign(judge=0.5 + rng.uniform(-0.001, 0.001, 300), group="noise")
    audit = bench.audit(pd.concat([sharp, noise]), confidences="judge")
    (compared,) = audit.found.compared
    p = {pair.metric: (pair.p, pair.p_corrected) for pair in compared.standings.pairs}  # type: ignore[union-attr]
    assert (p["rmsce"][0] or 1) < 0.05
    assert p["rmsce"][1] is None
    assert p["brier"][1] == 0.0
    text = audit.report().render("md")
    assert "no verdict" in text
    assert "noise: AUROC not above 50 % beyond chance" in text
    assert "noise is better" not in text
    groups = json.loads(audit.report().render("json"))["groups"]
    verdicts = {pair["metric"]: pair["verdict"] for pair in groups[0]["comparisons"]}
    assert verdicts["rmsce"] == "no verdict"


def test_audit_finds_where_confidences_are_off() -> None:
    table = frame(1500).assign(topic=["law", "maths", "art"] * 500)
    table["confidence"] = np.clip(table.logprob + table.topic.map({"law": 0.2, "maths": -0.2, "art": 0.0}), 0, 1)
    audit = bench.audit(table, confidences="confidence", by="topic")
    gaps = {gap.value: gap.off for gap in audit.found.gaps}
    assert [gaps[name].word for name in ("law", "maths", "art")] == ["overconfident", "underconfident", "not shown"]
    assert list(gaps)[2] == "art"
    alone = overconfidence_of(*(table[table.topic == "law"][name].to_numpy() for name in ("confidence", "correct")),
                              [""] * 500)  # fmt: skip
    wide, narrow = (off.interval.high - off.interval.low for off in (gaps["law"], alone))  # type: ignore[operator]
    assert wide / narrow == pytest.approx(2.401 / 1.965, rel=0.01)  # Bonferroni for three
    few = bench.audit(table.assign(topic=["one"] * 3 + ["rest"] * 1497), confidences="confidence", by="topic")
    assert [gap.off.word for gap in few.found.gaps if gap.value == "one"] == ["too few to tell"]


def test_audit_names_two_worst_gaps_and_counts_others() -> None:
    shifts = {"chess": -0.15, "law": 0.3, "rest": 0.0, "art": 0.2, "maths": -0.25}
    table = frame(2500).assign(topic=[*shifts] * 500)
    table["confidence"] = np.clip(table.logprob + table.topic.map(shifts), 0, 1)
    text = bench.audit(table, confidences="confidence", by="topic").report().render("md")
    said = r"Worst: confidence for law is over\S+ by [^,]*, confidence for maths is under\S+ by [^,]* and 2 others\."
    assert re.search(said, text)


def test_audit_sees_where_every_answer_is_wrong() -> None:
    table = frame(1000).assign(topic=["refund"] * 300 + ["rest"] * 700)
    table = table.assign(correct=table.correct & (table.topic == "rest"))
    table["confidence"] = table.logprob.where(table.topic == "rest", 0.9)
    first, _ = bench.audit(table, confidences="confidence", by="topic").found.gaps
    assert (first.value, first.off.word, first.off.interval.kind) == ("refund", "overconfident", "exact")
    assert first.off.interval.ends == pytest.approx((0.9 - 0.0145, 0.9), abs=1e-4)  # 0 of 300, together for two topics
    audit = bench.audit(pd.DataFrame({"correct": [False] * 500, "p": 0.95}), fail_above="p=0.1")
    said = "failed: p (all answers) has a calibration error of 95.0 points (94.3 to 100.0), above 10.0 beyond chance"
    assert (audit.failed, audit.limits) == (True, (said,))
    audit = bench.audit(pd.DataFrame({"correct": [True] * 497 + [False] * 3, "p": np.linspace(0.4, 0.6, 500)}))
    assert any("p is underconfident by 49.4 points (48.1 to 50.1)" in text for text in audit.verdict())


def test_audit_limit_fails_above_the_lower_end() -> None:
    table = surer(frame())
    audit = bench.audit(table, confidences="verbal", fail_above="verbal=0.05")
    assert audit.failed
    assert re.fullmatch(r"failed: verbal \(all answers\) has a calibration error of .*, above 5.0 beyond chance",
                        audit.limits[0])  # fmt: skip
    (gate,) = audit.found.gates
    low, high = gate.ends or (0.0, 0.0)
    off = audit.tables[0].overconfidence[audit.tables[0].lines[0].key]
    assert off.least <= low < (gate.rmsce or 0.0) < high  # RMSCE is no smaller than overconfidence
    between = (low + (gate.rmsce or 0.0)) / 2
    assert not bench.audit(table, confidences="verbal", fail_above=f"verbal={between}").failed


@pytest.mark.parametrize(
    ("n", "right", "sure", "said"),
    [
        (99, 0, 0.95, "failed: p (all answers) has a calibration error of 95.0 points (91.3 to 100.0), above 10.0"),
        (10, 0, 0.95, "failed: p (all answers) has a calibration error of 64.2 points (64.2 to 100.0), above 10.0"),
        (40, 20, 0.95, "failed: p (all answers) has a calibration error of 44."),
        (40, 20, 0.6, "not tested: p (all answers) against a calibration error of 10.0 points: 100 questions are "),
        (99, 99, 0.99, "not tested: "),
        (9, 0, 0.95, "not tested: "),
        (300, 300, 0.999, "passed: "),
        (300, 298, 0.99, "passed: "),
    ],
)  # fmt: skip
def test_audit_limit_of_few_or_one_sided_answers(n: int, right: int, sure: float, said: str) -> None:
    """What is not shown to be kept fails; the lower ends are those of Clopper and Pearson."""
    audit = bench.audit(pd.DataFrame({"correct": np.arange(n) < right, "p": sure}), fail_above="p=0.1")
    assert audit.limits[0].startswith(said)
    assert audit.failed != said.startswith("passed")
    if right == 0 and n > 9:
        (gate,) = audit.found.gates
        assert (gate.ends or (0.0,))[0] == pytest.approx(sure - binomtest(0, n).proportion_ci(0.95).high)


def test_audit_prints_no_error_below_its_interval() -> None:
    """RMSCE, estimated without what chance adds, may be smaller than the overconfidence that is sure."""
    (table,) = bench.audit(frame(), confidences="logprob").tables
    (line,) = table.lines
    low = (line.estimate("rmsce").mean or 0.0) + 0.01
    sure = Interval("fixed-subjects", low, 0.2, 0.95)
    shifted = replace(table, overconfidence={line.key: table.overconfidence[line.key]._replace(interval=sure)})
    *_, text = calibration_sentences(shifted)
    ends = error_ends(line, shifted)
    assert ends is not None
    assert text.startswith(f"Calibration error (RMS, without what chance adds): {points(low, *ends)}")
    said = gate_sentence(Gate("all", "p", 0.01, 0.0, (0.013, 0.086)))
    assert said == "failed: p (all) has a calibration error of 1.3 points (1.3 to 8.6), above 1.0 beyond chance"


def test_audit_of_a_constant_has_a_page(tmp_path: Path) -> None:
    audit = bench.audit(frame(200).assign(doubt=1.5), uncertainties="doubt", headline="auroc", out=tmp_path / "out")
    said = "No order of answers is shown: AUROC 50.0 (nothing varies between these questions)."
    assert audit.verdict()[0].endswith(said)
    assert said in (tmp_path / "out/audit.html").read_text(encoding="utf-8")


def test_audit_sees_the_order_of_perfect_confidences() -> None:
    right = np.arange(600) >= 300
    sure = np.where(right, np.linspace(0.2, 0.99, 600), np.linspace(0.01, 0.79, 600))
    audit = bench.audit(pd.DataFrame({"correct": right, "p": sure}))
    said = "Right answers have the higher confidences: AUROC 100.0 (nothing varies between these questions)."
    assert said in " ".join(audit.verdict())


def test_audit_thresholds_are_of_the_file(tmp_path: Path) -> None:
    """They could not be used if they were of probabilities that only the audit has, learned from all labels."""
    table = frame(1200).assign(doubt=lambda rows: 3 * (1 - rows.logprob))
    audit = bench.audit(table, confidences="logprob", uncertainties="doubt", recalibrate="platt")
    (data,) = json.loads(audit.guard(0.3).render("json"))
    found = {cell["method"]: (cell["threshold_of"], cell["threshold"]) for cell in data["cells"]}
    assert found.keys() == {"logprob", "doubt"}
    assert found["doubt"] == ("score", pytest.approx(-3 * (1 - found["logprob"][1])))
    text = " ".join(audit.guard(0.3).render("md").split())
    assert "its thresholds are of scores, minus the uncertainty" in text
    assert "Recalibrated confidences have no threshold" in text


def test_audit_guards_and_files(tmp_path: Path) -> None:
    audit = bench.audit(surer(frame(1200)), out=tmp_path / "out", risk=0.3, recalibrate="platt")
    names = {path.name for path in audit.paths}
    assert names == {
        "audit.md", "audit.csv", "audit.json", "audit.html", "audit--reliability.svg", "audit--platt--reliability.svg",
        "guard.csv", "guard.json",
        *(path.name for path in audit.paths if path.suffix == ".svg"),
    }  # fmt: skip
    page = (tmp_path / "out/audit.html").read_text(encoding="utf-8")
    shown = re.sub(r"<script.*?</script>|<style.*?</style>", "", page, flags=re.DOTALL)
    assert "Overconfident: verbal by" in shown
    assert not re.search(r"(?i)>(labels|tokens read|generated)<|preset audit|told to be right or wrong", shown)
    data = json.loads((tmp_path / "out/audit.json").read_text(encoding="utf-8"))
    assert set(data) == {"tables", "overconfidence", "groups", "by", "fail_above"}
    assert "1,200 answers choose the thresholds" in audit.guard(0.3).render("md")
    assert isinstance(audit, Audit)
    assert audit.figures.reliability() is not None
