"""The multiverse of a table, from planted results: claims that survive, claims that turn, and what is missing."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner, Result

from bench.api import FloatArray, UserError
from bench.api.early_stopping import TrainingStage
from bench.api.protocol import Protocol
from bench.cli.app import app
from bench.metrics import METRICS
from bench.report.analysis import join_tables, write
from bench.report.multiverse import (
    Multiverse,
    PairOutcome,
    Universe,
    build_analysis,
    compute_multiverse,
    plot_claims,
    plot_ranks,
    verdict,
)
from bench.report.multiverse.definitions import FAMILIES, OPEN_RULES, is_right, squad_normalised
from bench.report.selection import MultiverseRequest
from bench.report.tables import formats
from bench.results import files, question_texts
from bench.results.question_records import QuestionRecords
from bench.results.question_texts import SEVERAL, QuestionText
from bench.results.row import ResultRow, Training
from bench.results.submissions.recomputation import recompute_row
from bench.stats import Settings
from tests.fixtures.readable import check_readable, words

N, TASK, MODEL = 360, "shores-oe", "alpha"
SUBJECTS = ("bells", "moss", "stars")
SUBJECT = [SUBJECTS[i % 3] for i in range(N)]
FAST = Settings(draws=500)
_RNG = np.random.default_rng(5)
CHANCE = _RNG.uniform(0.3, 0.95, size=N)
"""True chance of each answer to be right."""
CORRECT = _RNG.random(N) < CHANCE


def plant(folder: Path, method: str, confidence: FloatArray, **changes: Any) -> ResultRow:
    """One result; `correct`, `ids`, `parsed` and `answer` are of its records, the other changes of its row."""
    of_records = {name: changes.pop(name) for name in ("correct", "ids", "parsed", "answer") if name in changes}
    row = ResultRow(
        method=method, model=MODEL, task=TASK, preset="demo", seed=0, protocol=Protocol().digest(), task_version=1,
        status="ok", n=N, n_unparsed=0, n_empty=0, judge="match",
    )  # fmt: skip
    row = replace(row, **changes)
    records = QuestionRecords(
        id=of_records.get("ids", [f"{TASK}/test/{i}" for i in range(N)]), subject=SUBJECT,
        correct=of_records.get("correct", CORRECT), confidence=np.clip(confidence, 0, 1),
        answer=of_records.get("answer", ["tin"] * N), parsed=of_records.get("parsed", np.ones(N, dtype=np.bool_)),
    )  # fmt: skip
    row = recompute_row(row, records)
    files.write(row, records, folder)
    return row


def noisy(method: str, seed: int, spread: float) -> FloatArray:
    """The true chances with so much noise."""
    return CHANCE + spread * np.random.default_rng([seed, *map(ord, method)]).normal(size=N)


def found(folder: Path, **options: Any) -> Multiverse:
    return compute_multiverse(MultiverseRequest(MODEL, TASK, folder, **options), None, settings=FAST)


def contest(multiverse: Multiverse, family: str, first: str, second: str) -> PairOutcome:
    (one,) = (c for c in multiverse.contests if (c.family, {c.first, c.second}) == (family, {first, second}))
    return one


def text(multiverse: Multiverse) -> str:
    return " ".join(formats.render(build_analysis(multiverse).views, "terminal", width=250).split())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`good` knows the chances, `fair` less, `poor` hardly; the first two have three seeds, as the third."""
    made = tmp_path_factory.mktemp("results")
    for seed in (0, 1, 2):
        plant(made, "good", noisy("good", seed, 0.02), seed=seed)
        plant(made, "fair", 0.3 + 0.5 * noisy("fair", seed, 0.25), seed=seed)
        plant(made, "poor", 0.05 + 0.2 * noisy("poor", seed, 0.3), seed=seed)
    return made


@pytest.fixture(scope="module")
def multiverse(folder: Path) -> Multiverse:
    return found(folder)


# --- claims -----------------------------------------------------------------------------------------------------------


def test_a_method_that_is_better_under_every_choice_keeps_its_claims(multiverse: Multiverse) -> None:
    for family, n in (("calibration", 10 * 6), ("Brier", 6), ("discrimination", 3 * 6)):
        one = contest(multiverse, family, "good", "poor")
        assert (one.first, one.is_claim, one.n, one.holds, one.reversed) == ("good", True, n, n, 0)
        assert one.survives
        assert one.share == 1
        assert one.decides is None
        assert one.weakest is None
    for family in ("calibration", "Brier"):
        assert contest(multiverse, family, "good", "poor").is_shown
    averages = {option.name: option.is_tables for option in multiverse.options if option.dimension == "average"}
    assert averages == {"over questions": True, "over subjects": False}


def test_a_claim_that_turns_with_the_definition_falls_and_the_definition_is_named(tmp_path: Path) -> None:
    """In one equal-width bin errors of both signs cancel; in bins of equal mass, and of 15, they stand apart.

    RMSCE alone is tested, so that nothing is said to be reversed.
    """
    high = CORRECT | (np.cumsum(~CORRECT) <= 3)  # if it were in order throughout, its AUROC would have no interval
    for seed in (0, 1):
        noise = np.random.default_rng(seed).random(N) * 0.01
        plant(tmp_path, "hidden", np.where(high, 0.68, 0.602) + noise, seed=seed)
        plant(tmp_path, "plain", np.clip(CHANCE - 0.25 + noise, 0, 1), seed=seed)
    multiverse = found(tmp_path)
    one = contest(multiverse, "calibration", "hidden", "plain")
    assert (one.first, one.is_claim) == ("plain", True)
    assert not one.survives
    assert (one.tested, one.significant, one.reversed) == (4, 4, 0)
    assert one.decides == "definition"
    assert one.explained_most == pytest.approx(1.0)
    held = {each.option: each.holds / each.n for each in one.shares if each.dimension == "definition"}
    assert held["ECE 10 bins"] == held["ECE - floor"] == held["smECE"] == 0
    assert held["RMSCE"] == held["ECE 10 equal-mass bins"] == held["ECE 15 bins"] == held["Brier MCB"] == 1
    told = " ".join(verdict(multiverse))
    assert "Calibration (40 universes): 0 of 1 claims of the table survive in at least 95 % of these; 0 of 0" in told
    assert "“plain beats hidden” does not survive: it holds in 20 of 40 universes, least under ECE 10 bins: 0" in told
    assert "0 of 4; the choice of definition explains 100 % of that." in told


def test_where_nothing_is_tested_nothing_is_said_to_be_significant(multiverse: Multiverse) -> None:
    untested = tuple(replace(c, tested=0, significant=0, reversed=0) for c in multiverse.contests)
    assert "3 survivors with a test are also significant in 95 % of their tests" in " ".join(verdict(multiverse))
    told = verdict(replace(multiverse, contests=untested))
    assert all("0 of 0 survivors with a test" in line for line in told if "survive in" in line)
    assert sum("significant" in line for line in told) == 3
    assert "RMSCE, Brier, AUROC and AUCPR have one, other definitions are compared by value" in text(multiverse)
    tested = {u.choices["definition"] for u in multiverse.universes if u.wins is not None}
    assert tested == {"RMSCE", "Brier", "AUROC", "AUCPR"}


@pytest.mark.parametrize(("n", "rest"), [(4, ""), (5, "that do not survive: 1."), (6, "that do not survive: 2.")])
def test_four_claims_that_fall_are_named_and_the_others_counted(multiverse: Multiverse, n: int, rest: str) -> None:
    (one, *_) = (c for c in multiverse.contests if c.is_claim)
    fallen = tuple(replace(one, first=f"method-{k}", holds=0) for k in range(n))
    said = " ".join(verdict(replace(multiverse, contests=fallen)))
    assert said.count("does not survive") == min(n, 4)
    assert ("Further claims in " in said) is bool(rest)
    assert rest in said


def test_a_claim_that_one_seed_turns_names_the_seed(tmp_path: Path) -> None:
    for seed in (0, 1, 2):
        plant(tmp_path, "steady", 0.5 + 0.0 * CHANCE + 0.02 * noisy("steady", seed, 0.1), seed=seed)
        plant(tmp_path, "moody", noisy("moody", seed, 0.02) if seed else 1 - CHANCE, seed=seed)
    one = contest(found(tmp_path), "Brier", "moody", "steady")
    assert one.decides == "seed"
    assert one.explained_most == pytest.approx(1.0)
    least = one.weakest
    assert least is not None
    assert (least.dimension, least.holds) == ("seed", 0)


def test_a_significant_reversal_fells_a_claim_that_nearly_always_holds() -> None:
    held = PairOutcome(
        "Brier", "a", "b", -0.1, 0.01, is_claim=True, n=100, holds=99, tested=100, significant=90, reversed=0
    )
    assert held.survives
    assert not held.is_shown
    assert not replace(held, reversed=1).survives
    assert not replace(held, holds=94).survives
    assert replace(held, holds=95, significant=95).is_shown
    assert not replace(held, tested=0, significant=0).is_shown


def test_equal_methods_claim_nothing_and_neither_is_said_to_be_better(tmp_path: Path) -> None:
    for name in ("one", "two"):
        plant(tmp_path, name, noisy("same", 0, 0.1))
    multiverse = found(tmp_path)
    assert all((c.holds, c.is_claim, c.significant, c.reversed) == (0, False, 0, 0) for c in multiverse.contests)
    assert {places.spread.first for places in multiverse.places} == {1.0}
    assert "First in Brier by value, of 2 universes with numbers of all: one in 100 %, two in 100 %." in text(
        multiverse
    )
    assert "the table claims nothing, so nothing can fall" in text(multiverse)
    assert plot_claims(multiverse) is None


# --- against references -----------------------------------------------------------------------------------------------


def test_values_are_those_of_the_result_files(folder: Path, multiverse: Multiverse) -> None:
    rows = {(row.method, str(row.seed)): row for path in folder.glob(f"{MODEL}/*/*.json") for row in [files.read(path)]}
    bins = {d.label: d.bins for family in FAMILIES for d in family.definitions}
    checked = 0
    for universe in multiverse.universes:
        if bins[universe.choices["definition"]] in {None, 10}:
            for name, value in universe.values.items():
                own = rows[name, universe.choices["seed"]].metrics[universe.metric]
                expected = own.mean if universe.choices["average"] == "over subjects" else own.pooled
                assert expected is not None
                assert value == pytest.approx(max(0.0, expected), abs=1e-12)
                checked += 1
    assert checked == 3 * (8 + 1 + 3) * 6


def test_with_one_seed_the_universe_of_the_tables_choices_says_what_the_table_says(tmp_path: Path) -> None:
    for name, noise in (("good", 0.02), ("fair", 0.2), ("poor", 0.6)):
        plant(tmp_path, name, noisy(name, 0, noise))
    multiverse = compute_multiverse(MultiverseRequest(MODEL, TASK, tmp_path), None)  # as many draws as the table's
    for family in multiverse.families:
        table = next(
            u
            for u in multiverse.of(family.name)
            if u.metric == family.metric and u.choices["average"] == "over questions"
        )
        claims = {(c.first, c.second) for c in multiverse.claims(family.name)}
        assert claims == {pair for pair in table.wins or () if set(pair) <= set(multiverse.methods[family.name])}
    assert multiverse.claims("Brier")


def test_shares_and_places_are_those_of_a_count_by_hand(multiverse: Multiverse) -> None:
    def is_better(universe: Universe, first: str, second: str) -> bool:
        a, b = universe.values[first], universe.values[second]
        return a > b if METRICS[universe.metric].higher_is_better else a < b

    for one in multiverse.contests:
        both = multiverse.of(one.family)
        assert one.holds == sum(is_better(u, one.first, one.second) for u in both)
        tested = [u.wins for u in both if u.wins is not None]
        assert one.tested == len(tested)
        assert one.significant == sum((one.first, one.second) in wins for wins in tested)
        assert one.reversed == sum((one.second, one.first) in wins for wins in tested)
        for part in one.shares:
            own = [u for u in both if u.choices[part.dimension] == part.option]
            assert (part.n, part.holds) == (len(own), sum(is_better(u, one.first, one.second) for u in own))
    for places in multiverse.places:
        ranks = []
        for u in multiverse.of(places.family):
            sign = -1 if METRICS[u.metric].higher_is_better else 1
            order = stats.rankdata([sign * value for value in u.values.values()], method="min")
            ranks.append(int(order[list(u.values).index(places.method)]))
        assert places.counts == dict(sorted(Counter(ranks).items()))
        assert places.spread.first == ranks.count(1) / len(ranks)
        assert places.spread.median == sorted(ranks)[(len(ranks) - 1) // 2]


def test_every_calibration_definition_that_is_computed_is_one_of_the_family() -> None:
    """A new calibration error has to be admitted or named here, so that none is left out without a decision."""
    family = {definition.metric for definition in FAMILIES[0].definitions}
    others = {"ece_floor", "brier", "acc", "nll", "brier_dsc", "brier_unc"}
    assert family | others == {name for name, metric in METRICS.items() if not metric.is_rank_based}


# --- choices ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def presets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Preset `fixed` lacks one of three methods and one of two seeds."""
    made = tmp_path_factory.mktemp("presets")
    for name, noise in (("good", 0.02), ("fair", 0.2), ("poor", 0.6)):
        plant(made, name, noisy(name, 0, noise))
        plant(made, name, noisy(name, 1, noise), seed=1)
        if name != "poor":
            plant(made, name, noisy(name, 2, noise), preset="fixed")
    return made


def test_a_preset_that_one_method_lacks_counts_for_the_others_and_is_told(presets: Path) -> None:
    multiverse = found(presets, preset="demo")
    assert contest(multiverse, "Brier", "good", "fair").n == 6
    assert contest(multiverse, "Brier", "good", "poor").n == 4
    assert len(multiverse.complete("Brier")) == 4
    assert len(multiverse.of("Brier")) == 6
    assert "No result with preset fixed, seed 0: poor." in multiverse.remarks
    assert any("Of 4 combinations" in each and "3 are there" in each for each in multiverse.remarks)
    assert {o.name for o in multiverse.options if o.dimension == "preset"} == {"demo", "fixed"}


def test_several_presets_ask_which_table_is_meant(presets: Path) -> None:
    with pytest.raises(UserError, match="presets demo, fixed; choose with --preset"):
        found(presets)
    with pytest.raises(UserError, match="no result with preset 'fixd'; there are demo, fixed"):
        found(presets, preset="fixd")


def test_recalibrations_and_tuning_are_choices_made_for_all_methods_alike(tmp_path: Path) -> None:
    for name, noise in (("good", 0.02), ("poor", 0.6)):
        plant(tmp_path, name, noisy(name, 0, noise))
        plant(tmp_path, f"{name}+isotonic", 0.2 + 0.6 * noisy(name, 0, noise))
        plant(tmp_path, name, noisy(name, 3, noise), config={"tune": 8})
    multiverse = found(tmp_path)
    options = {(o.dimension, o.name): o.is_tables for o in multiverse.options}
    assert options["recalibration", "none"]
    assert not options["recalibration", "isotonic"]
    assert not options["tuning", "8 configurations"]
    assert set(multiverse.methods["Brier"]) == {"good", "poor"}
    assert contest(multiverse, "Brier", "good", "poor").n == 3 * 2
    assert any("Of 4 combinations" in each for each in multiverse.remarks)


def test_settings_of_a_methods_own_are_no_universe(tmp_path: Path) -> None:
    for name, noise in (("good", 0.02), ("poor", 0.6)):
        plant(tmp_path, name, noisy(name, 0, noise), config={"dtype": "float16"})
    changed = {"good.steps": 3}
    plant(tmp_path, "good", noisy("good", 5, 0.5), deviations=changed, config={**changed, "dtype": "float16"})
    multiverse = found(tmp_path)
    assert contest(multiverse, "Brier", "good", "poor").n == 2
    assert "Left out: good with settings of its own (good.steps) (1 result)." in multiverse.remarks


def test_rules_of_the_protocol_are_a_choice(tmp_path: Path) -> None:
    for name, noise in (("good", 0.02), ("poor", 0.6)):
        plant(tmp_path, name, noisy(name, 0, noise))
        rule = {"protocol.empty_rule": "zero"}
        plant(tmp_path, name, noisy(name, 4, noise), deviations=rule, config=rule)
    multiverse = found(tmp_path)
    assert {o.name for o in multiverse.options if o.dimension == "protocol"} == {"of the preset", "empty_rule=zero"}
    assert contest(multiverse, "Brier", "good", "poor").n == 4


def test_unread_answers_count_or_are_left_out(tmp_path: Path) -> None:
    parsed = np.arange(N) % 40 != 7
    correct = CORRECT & parsed
    for name, noise in (("good", 0.02), ("poor", 0.6)):
        plant(tmp_path, name, noisy(name, 0, noise), parsed=parsed, correct=correct)
    multiverse = found(tmp_path)
    (left,) = (
        u for u in multiverse.of("Brier")
        if (u.choices["unread answers"], u.choices["average"]) == ("left out", "over questions")
    )  # fmt: skip
    p = np.clip(noisy("good", 0, 0.02), 0, 1)
    assert left.values["good"] == pytest.approx(float(np.mean(np.square(p - correct)[parsed])))
    (option,) = (o for o in multiverse.options if o.name == "left out")
    assert option.note == "up to 9 answers"


def test_gradings_are_choices_where_they_change_a_label(tmp_path: Path) -> None:
    """`match` takes the hyphen for a blank, SQuAD's text drops it: they disagree about "blue green"."""
    answer = ["Tin" if i % 2 else "blue green" for i in range(N)]
    gold = ["tin" if CORRECT[i] else "lead" for i in range(N)]
    gold = [g if i % 2 else ("Blue-Green" if CORRECT[i] else "lead") for i, g in enumerate(gold)]
    for name, noise in (("good", 0.02), ("poor", 0.6)):
        plant(tmp_path, name, noisy(name, 0, noise), answer=answer)
    asked = [QuestionText(f"{TASK}/test/{i}", SUBJECT[i], "Which?", (), gold[i]) for i in range(N)]
    question_texts.write(TASK, 1, asked, tmp_path)
    multiverse = found(tmp_path)
    even = int(CORRECT[::2].sum())
    options = {o.name: o.note for o in multiverse.options if o.dimension == "grading"}
    assert options == {"as run": "", "SQuAD's text": f"changes up to {even} labels"}
    assert any("the same labels as “as run”: “match”." in each for each in multiverse.remarks)
    assert any("the same labels as “SQuAD's text”: “same text”, “contains it”." in each for each in multiverse.remarks)
    (other,) = (
        u for u in multiverse.of("Brier")
        if (u.choices["grading"], u.choices["average"]) == ("SQuAD's text", "over questions")
    )  # fmt: skip
    labels = CORRECT & (np.arange(N) % 2 == 1)
    p = np.clip(noisy("good", 0, 0.02), 0, 1)
    assert other.values["good"] == pytest.approx(float(np.mean(np.square(p - labels))))


@pytest.mark.parametrize(
    ("answer", "gold", "right"),
    [
        ("The Beatles!", "beatles", {"match", "SQuAD's text", "contains it"}),
        ("beatles ", "Beatles", {"match", "SQuAD's text", "same text", "contains it"}),
        ("It was the Beatles in 1964", "Beatles", {"contains it"}),
        ("1,000", "1000", {"match", "SQuAD's text"}),
        ("blue green", "blue-green", {"match"}),
        ("", "Beatles", set()),
        ("no idea", "Beatles", set()),
    ],
)
def test_rules_grade_as_their_sources_say(answer: str, gold: str, right: set[str]) -> None:
    question = QuestionText("1", "s", "Which?", (), f"someone else{SEVERAL}{gold}")
    assert {name for name, rule in OPEN_RULES.items() if is_right(rule, answer, question, "abcd")} == right


def test_squads_text_is_that_of_its_script() -> None:
    """The four steps of evaluate-v1.1.py, on texts whose result differs if one is left out or their order changes."""
    assert squad_normalised("  An apple, the  A-team  ") == "apple ateam"
    assert squad_normalised("the\tend.") == "end"


# --- what can't be compared -------------------------------------------------------------------------------------------


def test_a_method_on_other_labels_is_left_out_and_told(tmp_path: Path) -> None:
    for name, noise in (("good", 0.02), ("fair", 0.2)):
        plant(tmp_path, name, noisy(name, 0, noise))
    plant(tmp_path, "other", noisy("other", 0, 0.3), correct=~CORRECT)
    multiverse = found(tmp_path)
    assert set(multiverse.methods["Brier"]) == {"fair", "good"}
    assert any("other rests on other answers or labels" in each for each in multiverse.remarks)


def test_a_setting_with_other_questions_is_no_universe(tmp_path: Path) -> None:
    for name, noise in (("good", 0.02), ("fair", 0.2)):
        plant(tmp_path, name, noisy(name, 0, noise))
        plant(tmp_path, name, noisy(name, 1, noise), preset="fixed", ids=[f"x/{i}" for i in range(N)])
    multiverse = found(tmp_path, preset="demo")
    assert contest(multiverse, "Brier", "good", "fair").n == 2
    assert any("preset fixed, seed 0 asks other questions than the table" in each for each in multiverse.remarks)


def test_unequal_questions_alone_are_refused(tmp_path: Path) -> None:
    plant(tmp_path, "good", noisy("good", 0, 0.02))
    plant(tmp_path, "fair", noisy("fair", 0, 0.2), ids=[f"x/{i}" for i in range(N)])
    with pytest.raises(UserError, match="a claim needs two methods"):
        found(tmp_path)


def test_one_method_is_one_sentence(tmp_path: Path) -> None:
    plant(tmp_path, "good", noisy("good", 0, 0.02))
    with pytest.raises(UserError, match=r"a claim needs two methods .* there is good alone; run more: bench run"):
        found(tmp_path)


def test_training_that_was_cut_short_has_no_place_as_in_tables(tmp_path: Path) -> None:
    stage = TrainingStage(name="", limit=10, taken=10, kept=10, epochs=1.0, cut_short=True)
    for name, noise in (("good", 0.02), ("fair", 0.2)):
        plant(tmp_path, name, noisy(name, 0, noise))
    plant(tmp_path, "hasty", noisy("hasty", 0, 0.1), training=Training(stages=(stage,)))
    plant(tmp_path, "hasty", noisy("hasty", 1, 0.1), seed=1)
    multiverse = found(tmp_path)
    assert "hasty" not in multiverse.methods["Brier"]
    assert "Left out: training of hasty was cut short with preset demo (2 results)." in multiverse.remarks


def test_a_method_that_does_not_order_answers_takes_no_part_in_calibration(tmp_path: Path) -> None:
    for name, noise in (("good", 0.02), ("fair", 0.2)):
        plant(tmp_path, name, noisy(name, 0, noise))
    plant(tmp_path, "blind", np.full(N, CORRECT.mean()) + 0.001 * np.random.default_rng(3).random(N))
    multiverse = found(tmp_path)
    assert "blind" not in multiverse.methods["calibration"]
    assert "blind" in multiverse.methods["Brier"]
    assert any("In calibration blind takes no part" in each for each in multiverse.remarks)


def test_two_results_of_one_setting_that_differ_are_refused(tmp_path: Path) -> None:
    """A budget of tokens is no choice: it changes no number on purpose."""
    for name, noise in (("good", 0.02), ("fair", 0.25)):
        plant(tmp_path, name, noisy(name, 0, noise))
    budget = {"token_budget": 512}
    plant(tmp_path, "good", noisy("good", 0, 0.02), config=budget)
    assert contest(found(tmp_path), "Brier", "good", "fair").n == 2
    plant(tmp_path, "good", noisy("good", 9, 0.3), config=budget)
    with pytest.raises(UserError, match=r"good on shores-oe, seed 0: two results of one setting differ, .*json and"):
        found(tmp_path)


def test_results_of_one_method_alone_are_no_universe_and_are_told(tmp_path: Path) -> None:
    for name, noise in (("good", 0.02), ("poor", 0.6)):
        plant(tmp_path, name, noisy(name, 0, noise))
    plant(tmp_path, "good", noisy("good", 4, 0.02), config={"tune": 8})
    told = "Left out: good alone has a result with preset demo, tuning by 8 configurations, seed 0 (1 result)."
    assert told in found(tmp_path).remarks


def test_methods_without_a_seed_in_common_are_told_as_such(tmp_path: Path) -> None:
    plant(tmp_path, "good", noisy("good", 0, 0.02))
    plant(tmp_path, "poor", noisy("poor", 0, 0.6), seed=1)
    with pytest.raises(UserError, match=r"No seed has results of two methods of the table \(good, poor\)"):
        found(tmp_path)


def test_a_universe_in_which_no_answer_was_read_is_not_left_without_answers(tmp_path: Path) -> None:
    parsed = np.arange(N) % 40 != 7
    for name, noise in (("good", 0.02), ("poor", 0.6)):
        plant(tmp_path, name, noisy(name, 0, noise), parsed=parsed, correct=CORRECT & parsed)
        none = np.zeros(N, dtype=np.bool_)
        plant(tmp_path, name, noisy(name, 0, noise), parsed=none, correct=none, preset="fixed")
    multiverse = found(tmp_path, preset="demo")
    assert len(multiverse.of("Brier")) == 2 * 2 + 2
    assert any("In 1 of 2 sets of results no answer was read" in each for each in multiverse.remarks)


def test_a_single_subject_has_no_two_averages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.SUBJECT", ["bells"] * N)
    for name, noise in (("good", 0.02), ("poor", 0.6)):
        plant(tmp_path, name, noisy(name, 0, noise))
    assert contest(found(tmp_path), "Brier", "good", "poor").n == 1


# --- views ------------------------------------------------------------------------------------------------------------


def test_tables_csv_and_json_say_the_same(multiverse: Multiverse) -> None:
    views = build_analysis(multiverse).views
    records = list(csv.DictReader(io.StringIO(formats.render(views, "csv"))))
    data = json.loads(formats.render(views, "json"))
    assert len(records) == len(data["claims"]) == len(multiverse.contests)
    for record, claim, one in zip(records, data["claims"], multiverse.contests, strict=True):
        assert record["first"] == claim["first"] == one.first
        assert int(record["holds"]) == claim["holds"] == one.holds
        assert claim["survives"] == (one.survives if one.is_claim else None)
    assert len(data["universes"]) == len(multiverse.universes)
    told = text(multiverse)
    assert "share of that list, and no level of confidence" in told
    assert "good beats poor" in told
    assert "|" in formats.render(views, "md")


def test_claims_of_some_methods_can_be_printed_alone(multiverse: Multiverse, folder: Path) -> None:
    told = " ".join(formats.render(join_tables([build_analysis(multiverse, ("fair",))]), "terminal", width=250).split())
    assert "fair beats poor" in told
    assert "good beats poor" not in told
    with pytest.raises(UserError, match="--method: no ranked method 'god'; there are fair, good, poor"):
        found(folder, methods=("god",))


def test_figures_show_every_method_and_the_shares(multiverse: Multiverse) -> None:
    places, claims = plot_ranks(multiverse), plot_claims(multiverse)
    assert places is not None
    assert claims is not None
    for figure in (places, claims):
        check_readable(figure)
    assert words(places).count("good") == words(places).count("poor") == 3
    assert "100" in words(places)
    assert any(text.startswith("100 %") for text in words(claims))


def test_files_are_written_and_a_folder_that_can_not_be_is_one_sentence(multiverse: Multiverse, tmp_path: Path) -> None:
    written = write([build_analysis(multiverse)], tmp_path / "out")
    assert {path.name for path in written} == {
        *(f"{MODEL}--multiverse--{TASK}.{kind}" for kind in ("md", "csv", "json")),
        *(f"{MODEL}--multiverse--{TASK}--{name}.{kind}" for name in ("places", "claims") for kind in ("svg", "png")),
    }
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="can't be written"):
        write([build_analysis(multiverse)], tmp_path / "file")


# --- the command ------------------------------------------------------------------------------------------------------


def run(folder: Path, *words: object) -> Result:
    command = ["analyze", "multiverse", "--results", folder, "--out", folder / "analyses", *words]
    return CliRunner().invoke(app, list(map(str, command)))


def test_the_command_writes_prints_and_leaves_tables_alone(
    presets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONFBENCH_CACHE", str(tmp_path / "cache"))
    done = run(presets, "--model", MODEL, "--task", TASK, "--preset", "demo", "--format", "json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["about"]["model"] == MODEL
    assert (presets / "analyses" / f"{MODEL}--multiverse--{TASK}.md").is_file()
    table = CliRunner().invoke(app, ["table", "--results", str(presets), "--preset", "demo"])
    assert table.exit_code == 0, table.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--model", "alhpa", "--task", TASK), "--model: no result of model 'alhpa'; there are alpha. Did you mean"),
        (("--model", MODEL, "--task", "shores"), "--task: no result of task 'shores'; there are shores-oe."),
        (("--model", MODEL, "--task", TASK), "choose with --preset the one whose table is examined"),
    ],
)
def test_a_wrong_name_is_one_sentence(
    presets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], said: str
) -> None:
    monkeypatch.setenv("CONFBENCH_CACHE", str(tmp_path / "cache"))
    done = run(presets, *words)
    assert isinstance(done.exception, UserError)
    assert said in str(done.exception)
