"""Verdicts: planted standings and the sentences on them, and the questions that would decide, against a simulation."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench import load_results
from bench.report.competition import questions_needed
from bench.report.page.verdict import verdict_data
from bench.report.selection import Selection
from bench.report.tables.build import build, table_views
from bench.report.tables.model import Table
from bench.report.tables.request import tables_of
from bench.report.text import EN_DASH, two_digits
from bench.report.verdict import summary_of, verdict_of
from bench.report.verdict.verdicts import COLUMNS, MOST_LINES
from bench.results.row import LabelsSeen
from bench.stats import Comparison, Influence, Sampling, Settings, compare, strata_of
from tests.kit.golden import check_golden
from tests.kit.tables import CUT_SHORT, Tests, planted, render, scored
from tests.kit.world import Answers, write_result

USUAL = {"labels_seen": LabelsSeen(1280, 320), "n_parameters": 258, "forward_tokens_alone": 25_400,
         "test_forward_tokens": 25_400}  # fmt: skip
FEW = {"n": 60, "llm_accuracy": 0.5}
SKIPPED = {"status": "skipped", "reason": "no validation split"}


def judged(means: dict[str, Any], *, every: dict[str, Any] | None = None, **options: Any) -> Table:
    """A planted table whose methods cost the same, with fields for every method or some (`rows`)."""
    own = options.pop("rows", {})
    return planted(means, rows={name: {**USUAL, **(every or {}), **own.get(name, {})} for name in means}, **options)


def worlds() -> Iterator[tuple[str, Table, str | None]]:
    """Name, table and metric."""
    winner = judged({"ccps": {"brier": 0.11, "auroc": 0.9}, "lts": 0.149, "pik": {"brier": 0.16, "auroc": 0.86}})
    yield "one clear winner", winner, None
    yield "two tied ahead of the rest", judged({"ccps": 0.141, "pik": 0.147, "litcab": 0.17, "ptrue": 0.2}), None
    noisy = judged({"a": 0.10, "b": 0.12, "c": 0.14}, noisy=[frozenset("ac")])
    yield "a leader not better than every other, since one pair is noisy", noisy, None
    yield "forty tied", judged({f"m{k:02}": 0.14 + k / 1e4 for k in range(40)}), None
    yield "one method alone", judged({"ccps": 0.14}), None
    both = judged({m: {"brier": v, "auroc": None} for m, v in (("a", 0.1), ("b", 0.2))}, every={"llm_accuracy": 1.0})
    yield "all answers right", both, None
    wrong = {"n": 1200, "llm_accuracy": 0.0}
    yield "all answers wrong", judged({"a": 0.1, "b": 0.2}, every=wrong), None
    chance = {"n": 1200, "llm_accuracy": 0.26, "chance_accuracy": 0.25, "n_unparsed": 841}
    yield "a model at chance", judged({"a": 0.1, "b": 0.2}, every=chance), None
    yield (
        "ten answers, half of them right",
        judged({"a": 0.1, "b": 0.2}, every={"n": 10, "llm_accuracy": 0.5, "chance_accuracy": 0.25}),
        None,
    )
    yield "one method, worse than a constant", judged({"ccps": 0.3}), None
    yield "worse than a constant, by ECE", judged({
        "a": {"brier": 0.3, "rmsce": 0.01, "auroc": 0.9}, "b": {"brier": 0.1, "rmsce": 0.05, "auroc": 0.9},
    }), "ece"  # fmt: skip
    yield "a model above chance", judged({"a": 0.1, "b": 0.2}, every={**chance, "llm_accuracy": 0.28}), None
    yield "few questions", judged({"a": 0.1, "b": 0.2}, every=FEW), None
    for name, (right, wrong) in {"a judge that errs": (50, 61), "a judge that errs seldom": (46, 138)}.items():
        measured = {"q/test: right options that the judge accepts, of 50": right,
                    "q/test: wrong options that it refuses, of 150": wrong}  # fmt: skip
        yield name, judged({"a": 0.1, "b": 0.2}, every={"counts": measured}), None
    low = judged({"a": {"brier": 0.1, "auroc": 0.52}, "b": {"brier": 0.2, "auroc": 0.45}})
    yield "no AUROC above chance", low, None
    constants = {"worse than a constant": (0.21, 0.25), "second worse": (0.2, 0.21), "both worse": (0.205, 0.21)}
    for name, (a, b) in {**constants, "better than a constant": (0.2, 0.25)}.items():
        yield name, judged({"a": a, "b": b}, constant=0.2047), None
    yield "worse than a constant, by AUROC", judged({"a": 0.21, "b": 0.25}, constant=0.2047), "auroc"
    rows = {"ct": {"training": CUT_SHORT}, "lts": SKIPPED, "it": {**SKIPPED, "status": "failed"}}
    some: dict[str, Any] = {"a": 0.12, "b": 0.2, "ct": 0.1, "x": 0.3, "lts": {}, "it": {}}
    yield "unranked for many reasons", judged(some, rows=rows, labels={"x": 1}), None
    yield "recalibrated", judged({"a": 0.2, "b": 0.25, "a+isotonic": 0.1, "b+isotonic": 0.11}), None
    yield "a pair without a test", judged({"a": 0.1, "b": 0.2, "c": 0.3}, untested=[frozenset("ab")]), None
    yield "a metric without a test", judged({"a": {"aurc": 0.1}, "b": {"aurc": 0.2}}), "aurc"
    yield "no answers in common", judged({"a": 0.1, "b": 0.2}, labels={"b": 1}), None
    yield "no standings", build([scored("a", brier=0.1), scored("b", brier=0.2)])[0], None
    yield "a yardstick", judged({"a": 0.1, "b": 0.2}), "ece_floor"
    means = {"a": (0.05, -0.01, 0.9), "b": (0.04, 0.03, 0.8), "c": (0.03, 0.0, 0.5)}
    ordered = judged({m: dict(zip(("ece", "rmsce", "auroc"), of, strict=True)) for m, of in means.items()})
    yield "ECE, judged by what chance does not explain", ordered, "ece"
    yield "AUROC, told once", ordered, "auroc"
    yield "a hopeless difference", judged({"a": 0.1, "b": 0.1001, "c": 0.2}), None
    for name, gap in {"just below a tenth of the interval": 0.0019, "a tenth of the interval": 0.002}.items():
        yield name, judged({"a": 0.1, "b": 0.1 + gap, "c": 0.2}, error=0.0196 / 3.92), None
    plain = judged({"ccps": 0.15, "sequence-probability": 0.2, "ptrue": 0.26}, rows={
        "sequence-probability": {"labels_seen": LabelsSeen()}, "ptrue": {"labels_seen": LabelsSeen()}})  # fmt: skip
    yield "the plain probability beaten", plain, None
    plain = judged({"sequence-probability": 0.15, "ccps": 0.2}, every={"labels_seen": LabelsSeen()})
    yield "the plain probability wins", plain, None
    plain = judged({"ccps": 0.15, "sequence-probability": 0.155}, error=0.01)
    yield "the plain probability not shown to be beaten", plain, None
    variants = [scored("ccps", brier=0.15, **USUAL)]
    variants += [
        scored("sequence-probability", brier=b, **USUAL, config={"dtype": d}) for d, b in (("a", 0.2), ("b", 0.3))
    ]
    yield "the plain probability in two dtypes", build(variants, standings_of=Tests())[0], None
    means = {"ccps": 0.15, "pik": 0.2, "sequence-probability": 0.12}
    yield "the plain probability of other grades", judged(means, labels={"sequence-probability": 1}), None
    means = {"ccps": 0.15, "pik": 0.2, "sequence-probability": {}}
    yield "the plain probability skipped", judged(means, rows={"sequence-probability": SKIPPED}), None
    free = judged({"ccps": 0.15, "ptrue": 0.26}, rows={"ptrue": {"labels_seen": LabelsSeen()}})
    yield "a constant beats all without labels", free, None
    seeds = [scored("a", seed=k, brier=0.1, **USUAL) for k in range(2)] + [scored("a", seed=2, status="failed")]
    seeds += [scored("b", seed=k, brier=0.2, **USUAL) for k in range(3)]
    yield "a failed seed", build(seeds, standings_of=Tests())[0], None
    rows = {
        "a": {"test_forward_tokens": 90_000}, "b": {"test_generated_tokens": 14_000},
        "c": {"test_forward_tokens": 20_000, "labels_seen": LabelsSeen(), "test_generated_tokens": 1_300},
    }  # fmt: skip
    yield "cheapest of tied, one without labels", judged({"a": 0.1, "b": 0.101, "c": 0.102}, rows=rows), None
    none = {name: {"labels_seen": LabelsSeen()} for name in "bc"}
    yield "best without labels behind", judged({"a": 0.1, "b": 0.15, "c": 0.2}, rows=none), None
    yield "best has no labels", judged({"c": 0.1, "a": 0.15, "b": 0.2}, rows=none), None
    yield "nothing would be significant", judged({"a": 0.1, "b": 0.11}, critical=None), None
    unknown = {"a": {"test_forward_tokens": None}}
    yield "unknown cost of a leader", judged({"a": 0.1, "b": 0.101, "c": 0.2}, rows=unknown), None
    # by single seeds b is ahead of a once, and c never
    seeds = {"a": (0.10, 0.10, 0.13), "b": (0.14, 0.14, 0.12), "c": (0.3, 0.3, 0.3)}
    of_seeds = [scored(name, seed=k, brier=v, **USUAL) for name, of in seeds.items() for k, v in enumerate(of)]
    yield "a leader with two of three seeds", build(of_seeds, standings_of=Tests())[0], None
    yield "averaged over subjects", replace(winner, average="subjects"), None
    yield "AUROC below chance", judged({"a": {"auroc": 0.4}, "b": {"auroc": 0.2}}), "auroc"
    higher = {"a": {"brier": 0.1, "auroc": 0.8}, "b": {"brier": 0.2, "auroc": 0.7}, "s": {"auroc": 0.9}}
    yield "a higher AUROC that is not ranked", judged(higher, labels={"s": 1}), None
    yield "an end close to 0", judged({"a": 0.1, "b": 0.11}, error=0.0098 / 1.96, critical=1.0), None
    means = {"combined": 0.213, "sequence-probability": 0.215, "perplexity": 0.218, "mean-token-entropy": 0.219}
    plain = judged(means, rows={"sequence-probability": {"labels_seen": LabelsSeen()}}, error=0.003)
    yield "the plain probability tied, named once", plain, None


def test_verdicts_are_those_of_the_golden_file() -> None:
    texts = list[str]()
    for name, table, metric in worlds():
        found = verdict_of(table, metric)
        leaders = ", ".join(line.method for line in found.leaders)
        brief = [f"- {what}: {words}" for what, words in asdict(found.brief).items()]
        assert sum(len(textwrap.wrap(sentence, COLUMNS)) for sentence in found.sentences) <= MOST_LINES
        texts += [f"## {name}\n", *found.sentences, "", *found.details, "", f"{found.state}: {leaders}", *brief, ""]
    check_golden("verdicts.txt", "\n".join(texts))


def test_verdict_names_better_means_that_fail() -> None:
    """`a` is no better than a constant by Brier score, but has the best ACC and RMSCE, and nobody beats it there."""
    of = {"a": (0.72, 0.245, 0.01), "b": (0.715, 0.2, 0.02), "c": (0.713, 0.21, 0.025), "d": (0.6, 0.2, 0.09)}
    means = {name: dict(zip(("acc", "brier", "rmsce"), values, strict=True)) for name, values in of.items()}
    fails = "with a better mean, but a Brier score no better than a constant's: a ({})"
    alone = verdict_of(judged({name: means[name] for name in "abd"}, constant=0.23), "acc")
    assert (
        alone.sentences[0]
        == f"Best mean by ACC of those with a better Brier score than a constant: b (71.5); {fails.format('72.0')}."
    )
    assert (alone.state, alone.brief.by) == ("tied", "\u22120.5 [\u22121.5, 0.5] over a")
    found = verdict_of(judged(means, constant=0.23, noisy=[frozenset("ac")]), "acc").sentences[0]
    assert found.startswith(
        "Tied by ACC of those with a better Brier score than a constant: b (71.5) and c (71.3) can't be told apart; "
    )
    assert found.endswith(f"would decide; {fails.format('72.0')}.")
    two = judged({name: means[name] for name in "abd"}, constant=0.23)
    for table, rest in ((judged(means, constant=0.23), ", but it can't be distinguished from c"), (two, "")):
        (text,) = (s for s in verdict_of(table, "auroc").sentences if "Best calibrated" in s)
        assert text == f"Best calibrated (RMS calibration error): b (2.0){rest}; {fails.format('1.0')}."
    assert summary_of([replace(two, model=m, headline="acc") for m in "xy"])[0].by == "\u22120.5"


def test_verdict_names_methods_that_look_equal() -> None:
    """To the last digit that is shown; of many the first two."""
    means, free = {"a": 0.1, "b": 0.16, "c": 0.16001, "d": 0.1602}, {"labels_seen": LabelsSeen()}
    found = verdict_of(judged(means, rows=dict.fromkeys("bcd", free))).sentences
    assert found[1] == "Best without labels: b (16.0, like c and d), 6.0 points behind (5.0 to 7.0)."
    (text, *_) = verdict_of(judged(dict.fromkeys("abcde", 0.3))).sentences
    assert "; best is a (30.0, like b, c and 2 others); recalibrated ones may" in text
    pairs = [frozenset(pair) for pair in ("ab", "ac", "bc")]
    (text, *_) = verdict_of(judged({"a": 0.1, "b": 0.1004, "c": 0.1006}, untested=pairs)).sentences
    assert text.endswith("; the best mean is a (10.0, like b).")


def test_verdict_escapes_names_in_each_format() -> None:
    table = judged({"a_b*": 0.1, "[red]c|": 0.2, "\\textbf": 0.3})
    first = verdict_of(table).sentences[0]
    assert first in re.sub(r"\s+", " ", render([table], "terminal", width=300))
    assert r"**Best by Brier score: a\_b\* \(10.0\), significantly" in render([table], "md")
    assert r"\textbf{Best by Brier score: a\_b{*} (10.0), significantly" in render([table], "tex")
    assert r"both others; \[red\]c\| is 10.0 points behind" in render([table], "md")


def test_summary_counts_leaders_over_models() -> None:
    other = [replace(judged({"ccps": 0.2 - k, "lts": 0.1 + k}), model=f"{k}") for k in (0.0, 0.1, 0.2, 0.3)]
    assert (summary_of(other)[0].leads, summary_of(other)[0].sure) == ("ccps 3 of 4 (sure 3), lts 1 (sure 1)", "4 of 4")
    assert table_views(other).grids[0].facts == ("Who leads, by Brier score",)
    assert len(table_views(other[:2]).grids) == 2
    few = [judged({"a": 0.1, "b": 0.2}, every=FEW), replace(judged({"a": 0.1, "b": 0.2}), model="two")]
    assert summary_of(few)[0].sure == "2 of 2, 1 on few questions"


def test_summary_counts_no_order_at_chance() -> None:
    """On `weak` no AUROC is above chance, so that nobody orders answers best there."""
    weak = [judged({"a": {"auroc": 0.52}, "b": {"auroc": 0.51}}) for _ in range(2)]
    weak = [replace(table, model=model) for table, model in zip(weak, ("weak", "weaker"), strict=True)]
    strong = judged({"a": {"auroc": 0.9}, "b": {"auroc": 0.8}})
    assert summary_of([strong, weak[0]])[0].orders == "a 1 of 2 (sure 1)"
    assert summary_of(weak)[0].orders == verdict_of(weak[0]).brief.orders == "none"


def test_summary_leaves_out_models_at_chance() -> None:
    """They have tables and first sentences of their own, and no say in who leads."""
    weak = judged({"a": 0.2, "b": 0.1})
    weak = replace(weak, model="weak", warnings={**weak.warnings, "at_chance": "It guesses."})
    (row,) = summary_of([judged({"a": 0.1, "b": 0.2}), weak])
    assert (row.leads, row.sure, row.models) == ("a", "sure", 1)
    assert row.task == "atlas-choice (tiny, 1 at chance or badly judged left out)"
    (row,) = summary_of([weak])  # there is no other
    assert (row.leads, row.task) == ("b", "atlas-choice")


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_summary_leaves_out_models_that_judge_nothing(share: float) -> None:
    """Of answers that are all right or all wrong."""
    empty = judged({"a": 0.2, "b": 0.1}, every={"llm_accuracy": share})
    good, weak = judged({"a": 0.1, "b": 0.2}), judged({"a": 0.2, "b": 0.1})
    weak = replace(weak, model="weak", warnings={**weak.warnings, "at_chance": "It guesses."})
    (row,) = summary_of([good, replace(empty, model="empty")])
    assert (row.leads, row.sure, row.models) == ("a", "sure", 1)
    assert row.task == "atlas-choice (tiny, 1 all right or all wrong left out)"
    assert summary_of([weak, empty])[0].leads == "b", "none is better than one that guesses"
    (row,) = summary_of([empty])
    assert (row.leads, row.models) == ("no answers to judge by", 0)
    assert (row.sure, row.by, row.orders, row.cost) == (EN_DASH,) * 4
    assert row.task == "atlas-choice (1 all right or all wrong left out)"
    (texts,) = (each["texts"] for each in verdict_data([empty], [empty.model])["rows"])
    assert texts[1:3] == ["no answers to judge by", "nothing to compare"]


def test_verdicts_on_parts_and_other_answers_are_named(tmp_path: Path) -> None:
    """All questions, a part of them, and answers from elsewhere: who leads is another one each time."""
    answers = Answers.drawn(300, noise=0.5)
    elsewhere = {"answers_source": "file:0123", "config": {"answers": "file:0123"}}
    for fields, n, skills in (({}, 300, (0.9, 0.3)), ({"limit": 60}, 60, (0.2, 0.95)), (elsewhere, 300, (0.1, 0.95))):
        for method, skill in zip(("ccps", "pik"), skills, strict=True):
            write_result(tmp_path, method, answers.confidences(skill, n)[:n], answers.correct[:n], **fields)
    found = load_results(tmp_path, partial=True, cache=tmp_path / "kept", quiet=True)
    first = re.compile(r"(.*?): (?:Too few [^.]*[.] )?Best by Brier score: (\w+)")
    leader = dict(first.match(text).groups() for text in found.verdict())  # type: ignore[union-attr]
    assert leader == {
        "tiny on atlas-choice (partial, --limit 60)": "pik",
        "tiny on atlas-choice": "ccps",
        "tiny on atlas-choice (answers from file:0123)": "pik",
    }
    tables = tables_of(Selection(tmp_path, partial=True), tmp_path / "cache")
    rows = verdict_data(tables[:2], ["one", "two"])["rows"]
    assert [row["texts"][:2] for row in rows] == [["atlas-choice (--limit 60)", "pik"], ["atlas-choice", "ccps"]]
    assert verdict_data(tables[:1], ["one"])["rows"][0]["texts"][0] == "atlas-choice"


def losers(table: Table, metric: str) -> dict[str, set[str]]:
    """By line, those that a test finds significantly worse, from the pairs themselves."""
    higher, found = metric == "auroc", dict[str, set[str]]()
    for pair in table.standings.pairs if table.standings else ():
        if pair.metric == metric and pair.p_corrected is not None and pair.p_corrected < 0.05 and pair.difference:
            winner, loser = (pair.first, pair.second) if (pair.difference > 0) == higher else (pair.second, pair.first)
            found.setdefault(winner.method, set()).add(loser.method)
    return found


SOME_MEANS = st.lists(st.integers(100, 200).map(lambda n: n / 1000), min_size=1, max_size=9)


@settings(deadline=None)
@given(SOME_MEANS, st.sampled_from([0.001, 0.005, 0.02]), st.sampled_from(["brier", "auroc"]))
def test_leaders_follow_from_the_pairs(values: Sequence[float], error: float, metric: str) -> None:
    table = judged({f"m{k}": {metric: value} for k, value in enumerate(values)}, error=error)
    found, beats = verdict_of(table, metric), losers(table, metric)
    names = [line.method for line in table.lines]
    beaten = set[str]().union(*beats.values())
    assert {line.method for line in found.leaders} == (set(names) - beaten if len(names) > 1 else set())
    is_sure = len(names) > 1 and any(len(worse) == len(names) - 1 for worse in beats.values())
    assert (found.state == "sure") == is_sure
    assert ("significantly better" in found.sentences[0]) == is_sure
    has_mark = any(line.estimate(metric).best == "beyond chance" for line in table.lines)
    assert has_mark == (is_sure and (metric != "auroc" or max(values) > 0.5))


SUBJECTS = 4
EFFECTS = (0.0, 0.012, 0.03, 0.031)


def experiment(n: int, effects: Sequence[float], rng: np.random.Generator) -> Comparison[str]:
    """Comparison of the first two of some methods, whose losses are normal and have a part in common.

    Args:
        n: questions.
        effects: mean loss of each method.
        rng: of the losses.
    """
    losses = np.array(effects)[:, None] + rng.normal(0, 0.2, n) + rng.normal(0, 0.1, (len(effects), n))
    methods = {
        str(k): Influence(float(loss.mean()), (loss - loss.mean()) / n, np.empty(0)) for k, loss in enumerate(losses)
    }
    strata = strata_of([str(k % SUBJECTS) for k in range(n)])
    sampling = Sampling.of(strata, np.arange(n) % 2 == 0, "questions")
    pairs = compare("brier", methods, sampling, [list(methods)], Settings(draws=1000))
    return next(pair for pair in pairs if (pair.first, pair.second) == ("0", "1"))


@pytest.mark.parametrize(("repeats", "within"), [(100, 0.12), pytest.param(600, 0.08, marks=pytest.mark.slow)])
def test_questions_that_are_named_decide_80_percent(repeats: int, within: float) -> None:
    """As many questions as ten first tests of 600 ask for on average.

    Three standard errors of 100 tests are 0.12, those of 600 are 0.05, and the errors that first tests found have
    their own chance.
    """
    rng = np.random.default_rng(5)
    firsts = [experiment(600, EFFECTS, rng) for _ in range(10)]
    needed = [questions_needed(600, EFFECTS[1], first.error or 0, first.critical or 0) for first in firsts]
    n = two_digits(float(np.mean(needed)))
    assert 1000 < n < 3000
    decided = [experiment(n, EFFECTS, rng).winner(0.05) == "0" for _ in range(repeats)]
    assert np.mean(decided) == pytest.approx(0.8, abs=within)
