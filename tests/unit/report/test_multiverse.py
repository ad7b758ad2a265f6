"""The multiverse of a table, from planted results: claims that survive, claims that turn, and what is missing."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from bench.api import FloatArray, UserError
from bench.api.early_stopping import TrainingStage
from bench.metrics import METRICS
from bench.report.analysis import join_tables, write
from bench.report.multiverse import build_analysis
from bench.report.multiverse.compute import compute_multiverse
from bench.report.multiverse.definitions import FAMILIES, OPEN_RULES, is_right, squad_normalised
from bench.report.multiverse.figure import plot_claims, plot_ranks
from bench.report.multiverse.model import Multiverse, PairOutcome, Universe
from bench.report.multiverse.result_sets import Exclusions, eligible_rows
from bench.report.multiverse.verdict import verdict
from bench.report.selection import MultiverseRequest
from bench.report.tables import formats
from bench.results import files, question_texts
from bench.results.question_texts import ANSWER_SEPARATOR, QuestionText
from bench.results.row import LabelsSeen, ResultRow, Training, answers_after_traces
from bench.stats import Settings
from tests.fixtures.readable import check_readable, look, words
from tests.kit.command import bench
from tests.kit.golden import as_cases, check_golden
from tests.kit.world import result_row, write_failure, write_result

N, TASK, MODEL = 360, "shores-oe", "alpha"
FAST = Settings(draws=500)
_RNG = np.random.default_rng(5)
CHANCE = _RNG.uniform(0.3, 0.95, size=N)
"""True chance of each answer to be right."""
CORRECT = _RNG.random(N) < CHANCE
PARSED = np.arange(N) % 40 != 7
NONE = np.zeros(N, dtype=np.bool_)
ELSEWHERE = [f"x/{i}" for i in range(N)]
SPREAD = {"good": 0.02, "fair": 0.2, "poor": 0.6}
"""How far confidences of a method are from the true chances."""


def noisy(method: str, seed: int, spread: float) -> FloatArray:
    return CHANCE + spread * np.random.default_rng([seed, *map(ord, method)]).normal(size=N)


def plant(folder: Path, method: str, confidence: FloatArray | int, **changes: Any) -> ResultRow:
    """Write a result; an integer is the seed of the noise of `good`, `fair` and `poor`."""
    p = noisy(method, confidence, SPREAD[method]) if isinstance(confidence, int) else confidence
    fields = {"model": MODEL, "task": TASK, "judge": "match", "correct": CORRECT, **changes}
    if "status" in changes:
        return write_failure(folder, method, "no", **changes)
    return write_result(folder, method, np.clip(p, 0, 1), **fields)


def plant_each(folder: Path, *methods: str, noise: int = 0, **changes: Any) -> None:
    for method in methods:
        plant(folder, method, noise, **changes)


def found(folder: Path, model: str = MODEL, task: str = TASK, **options: Any) -> Multiverse:
    return compute_multiverse(MultiverseRequest(model, task, folder, **options), None, print, FAST)


def contest(multiverse: Multiverse, family: str, first: str, second: str) -> PairOutcome:
    (one,) = (c for c in multiverse.contests if (c.family, {c.first, c.second}) == (family, {first, second}))
    return one


def options(multiverse: Multiverse, dimension: str) -> dict[str, bool]:
    """Options of a dimension; True is the table's."""
    return {option.name: option.is_tables for option in multiverse.options if option.dimension == dimension}


def universe(multiverse: Multiverse, dimension: str, option: str) -> Universe:
    """That of the Brier score over questions with this option."""
    (one,) = (
        u for u in multiverse.of("Brier") if (u.choices[dimension], u.choices["average"]) == (option, "over questions")
    )
    return one


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`good` knows the chances, `fair` less, `poor` hardly."""
    made = tmp_path_factory.mktemp("results")
    for seed in (0, 1, 2):
        plant(made, "good", noisy("good", seed, 0.02), seed=seed)
        plant(made, "fair", 0.3 + 0.5 * noisy("fair", seed, 0.25), seed=seed)
        plant(made, "poor", 0.05 + 0.2 * noisy("poor", seed, 0.3), seed=seed)
    return made


@pytest.fixture(scope="module")
def multiverse(folder: Path) -> Multiverse:
    return found(folder)


@pytest.fixture(scope="module")
def hidden(tmp_path_factory: pytest.TempPathFactory) -> Multiverse:
    """In one equal-width bin errors of both signs cancel; in bins of equal mass, and of 15, they stand apart.

    RMSCE alone is tested, so that nothing is said to be reversed.
    """
    made = tmp_path_factory.mktemp("hidden")
    high = CORRECT | (np.cumsum(~CORRECT) <= 3)  # if it were in order throughout, its AUROC would have no interval
    for seed in (0, 1):
        noise = np.random.default_rng(seed).random(N) * 0.01
        plant(made, "hidden", np.where(high, 0.68, 0.602) + noise, seed=seed)
        plant(made, "plain", np.clip(CHANCE - 0.25 + noise, 0, 1), seed=seed)
    return found(made)


@pytest.fixture(scope="module")
def moody(tmp_path_factory: pytest.TempPathFactory) -> Multiverse:
    made = tmp_path_factory.mktemp("moody")
    for seed in (0, 1, 2):
        plant(made, "steady", 0.5 + 0.02 * noisy("steady", seed, 0.1), seed=seed)
        plant(made, "moody", noisy("moody", seed, 0.02) if seed else 1 - CHANCE, seed=seed)
    return found(made)


@pytest.fixture(scope="module")
def equal(tmp_path_factory: pytest.TempPathFactory) -> Multiverse:
    made = tmp_path_factory.mktemp("equal")
    for name in ("one", "two"):
        plant(made, name, noisy("same", 0, 0.1))
    return found(made)


def test_multiverse_tables_are_those_of_the_golden_file(
    multiverse: Multiverse, hidden: Multiverse, moody: Multiverse, equal: Multiverse
) -> None:
    """All tables of one, and verdicts of claims that fall with the definition or a seed, or that are none."""
    (one, *_) = (c for c in multiverse.contests if c.is_claim)
    fallen = {n: tuple(replace(one, first=f"method-{k}", holds=0) for k in range(n)) for n in (4, 6)}
    untested = tuple(replace(c, tested=0, significant=0, reversed=0) for c in multiverse.contests)
    unseen = tuple(replace(c, n=0, holds=0, tested=0, significant=0, reversed=0) for c in multiverse.contests)
    check_golden("multiverse.md.txt", as_cases({
        "three methods": formats.render(build_analysis(multiverse).views, "md").splitlines(),
        "one that the definition turns": verdict(hidden),
        "one that a seed turns": verdict(moody),
        "equal methods": verdict(equal),
        "nothing tested": verdict(replace(multiverse, contests=untested)),
        "nothing examined": verdict(replace(multiverse, contests=unseen)),
        **{f"{n} claims that fall": verdict(replace(multiverse, contests=own)) for n, own in fallen.items()},
    }))  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "survives", "is_shown"),
    [({}, True, False), ({"reversed": 1}, False, False), ({"holds": 94}, False, False),
     ({"holds": 95, "significant": 95}, True, True), ({"tested": 0, "significant": 0}, True, False)],
)  # fmt: skip
def test_claim_falls_with_a_significant_reversal(changes: dict[str, int], survives: bool, is_shown: bool) -> None:
    counts = {"n": 100, "holds": 99, "tested": 100, "significant": 90, "reversed": 0, **changes}
    claim = PairOutcome("Brier", "a", "b", -0.1, 0.01, is_claim=True, **counts)
    assert (claim.survives, claim.is_shown) == (survives, is_shown)


def test_claims_that_no_universe_examines_are_named(tmp_path: Path) -> None:
    """`good` and `poor` share no seed: neither counted, nor told to survive or fall, in any rendering."""
    for method, seeds in (("good", (0, 1)), ("poor", (2, 3)), ("fair", (0, 1, 2, 3))):
        for seed in seeds:
            plant(tmp_path, method, noisy(method, seed, SPREAD[method]), seed=seed)
    multiverse = found(tmp_path)
    told = verdict(multiverse)
    assert "Not examined in Brier, as no universe has numbers of both: “good beats poor”." in told
    assert [text for text in told if "good beats poor" in text and not text.startswith("Not examined")] == []
    n = sum(c.is_claim for c in multiverse.contests if c.family == "Brier") - 1
    assert any(text.startswith("Brier (") and f" {n} of {n} claims of the table survive" in text for text in told)
    views = build_analysis(multiverse).views
    assert next(row.cells[2].text for row in views.grids[0].rows if row.cells[0].text == "Brier") == str(n)
    record = next(r for r in views.records() if (r["first"], r["second"], r["family"]) == ("good", "poor", "Brier"))
    assert (record["is_claim"], record["universes"], record["survives"], record["shown"]) == (True, 0, None, None)
    figure = plot_claims(multiverse)
    assert figure is not None
    assert "good beats poor" not in words(figure)


def test_universe_values_are_those_of_the_result_files(folder: Path, multiverse: Multiverse) -> None:
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


def test_universe_of_the_table_says_what_it_says(tmp_path: Path) -> None:
    plant_each(tmp_path, *SPREAD)
    multiverse = compute_multiverse(MultiverseRequest(MODEL, TASK, tmp_path), None, print)  # draws as the table
    for family in multiverse.families:
        own = (u for u in multiverse.of(family.name) if u.metric == family.metric)
        table = next(u for u in own if u.choices["average"] == "over questions")
        claims = {(c.first, c.second) for c in multiverse.claims(family.name)}
        assert claims == {pair for pair in table.wins or () if set(pair) <= set(multiverse.methods[family.name])}
    assert multiverse.claims("Brier")


def test_universe_shares_and_places_are_counted_by_hand(multiverse: Multiverse) -> None:
    def is_better(universe: Universe, first: str, second: str) -> bool:
        a, b = universe.values[first], universe.values[second]
        return a > b if METRICS[universe.metric].higher_is_better else a < b

    definitions = {u.choices["definition"] for u in multiverse.universes if u.wins is not None}
    assert definitions == {"RMSCE", "Brier", "AUROC", "AUCPR"}
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


def test_calibration_definitions_are_all_of_the_family() -> None:
    """A new calibration error has to be admitted or named here, so that none is left out without a decision."""
    family = {definition.metric for definition in FAMILIES[0].definitions}
    others = {"ece_floor", "brier", "acc", "nll", "brier_dsc", "brier_unc"}
    assert family | others == {name for name, metric in METRICS.items() if not metric.is_rank_based}


@pytest.fixture(scope="module")
def presets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Preset `fixed` lacks one of three methods and one of two seeds."""
    made = tmp_path_factory.mktemp("presets")
    for seed in (0, 1):
        plant_each(made, *SPREAD, noise=seed, seed=seed)
    plant_each(made, "good", "fair", noise=2, preset="fixed")
    return made


def test_preset_that_one_method_lacks_counts_for_others(presets: Path) -> None:
    multiverse = found(presets, preset="demo")
    assert contest(multiverse, "Brier", "good", "fair").n == 6
    assert contest(multiverse, "Brier", "good", "poor").n == 4
    assert (len(multiverse.complete("Brier")), len(multiverse.of("Brier"))) == (4, 6)
    assert "No result with preset fixed, seed 0: poor." in multiverse.remarks
    assert any("Of 4 combinations" in each and "3 are there" in each for each in multiverse.remarks)
    assert set(options(multiverse, "preset")) == {"demo", "fixed"}


def test_recalibration_and_tuning_are_choices_for_all(tmp_path: Path) -> None:
    for name in ("good", "poor"):
        plant(tmp_path, name, 0)
        plant(tmp_path, f"{name}+isotonic", 0.2 + 0.6 * noisy(name, 0, SPREAD[name]))
        plant(tmp_path, name, 3, config={"tune": 8})
    multiverse = found(tmp_path)
    assert options(multiverse, "recalibration") == {"none": True, "isotonic": False}
    assert not options(multiverse, "tuning")["8 configurations"]
    assert set(multiverse.methods["Brier"]) == {"good", "poor"}
    assert contest(multiverse, "Brier", "good", "poor").n == 3 * 2
    assert any("Of 4 combinations" in each for each in multiverse.remarks)


def test_unread_answers_count_or_are_left_out(tmp_path: Path) -> None:
    correct = CORRECT & PARSED
    plant_each(tmp_path, "good", "poor", parsed=PARSED, correct=correct)
    multiverse = found(tmp_path)
    p = np.clip(noisy("good", 0, 0.02), 0, 1)
    expected = float(np.mean(np.square(p - correct)[PARSED]))
    assert universe(multiverse, "unread answers", "left out").values["good"] == pytest.approx(expected)
    (option,) = (o for o in multiverse.options if o.name == "left out")
    assert option.note == "up to 9 answers"


def test_gradings_are_choices_where_they_change_labels(tmp_path: Path) -> None:
    """`match` takes the hyphen for a blank, SQuAD's text drops it: they disagree about "blue green"."""
    gold = [("tin" if i % 2 else "Blue-Green") if CORRECT[i] else "lead" for i in range(N)]
    plant_each(tmp_path, "good", "poor", answer=["Tin" if i % 2 else "blue green" for i in range(N)])
    asked = [QuestionText(f"{TASK}/test/{i}", f"subject {i % 3}", "Which?", (), gold[i]) for i in range(N)]
    question_texts.write(TASK, 1, asked, tmp_path)
    multiverse = found(tmp_path)
    notes = {o.name: o.note for o in multiverse.options if o.dimension == "grading"}
    assert notes == {"as run": "", "SQuAD's text": f"changes up to {int(CORRECT[::2].sum())} labels"}
    assert any("the same labels as “as run”: “match”." in each for each in multiverse.remarks)
    assert any("the same labels as “SQuAD's text”: “same text”, “contains it”." in each for each in multiverse.remarks)
    p = np.clip(noisy("good", 0, 0.02), 0, 1)
    expected = float(np.mean(np.square(p - (CORRECT & (np.arange(N) % 2 == 1)))))
    assert universe(multiverse, "grading", "SQuAD's text").values["good"] == pytest.approx(expected)


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
def test_grading_rules_are_those_of_their_sources(answer: str, gold: str, right: set[str]) -> None:
    question = QuestionText("1", "s", "Which?", (), f"someone else{ANSWER_SEPARATOR}{gold}")
    assert {name for name, rule in OPEN_RULES.items() if is_right(rule, answer, question, "abcd")} == right


def test_squad_text_is_that_of_its_script() -> None:
    """The four steps of evaluate-v1.1.py, on texts whose result differs if one is left out or their order changes."""
    assert squad_normalised("  An apple, the  A-team  ") == "apple ateam"
    assert squad_normalised("the\tend.") == "end"


Results = Sequence[tuple[str, FloatArray | int, dict[str, Any]]]
"""Method, confidence as of `plant`, and changes of each."""


def both(noise: int = 0, **changes: Any) -> Results:
    return [(name, noise, changes) for name in ("good", "fair")]


def traced(budget: int) -> dict[str, Any]:
    settings = {"think_budget": budget, "thinking": "template"}
    return {"answers_source": answers_after_traces("generate", budget), "config": settings}


IMPORTED = {"answer_ids": "retokenised", "shots": 0}
TEXTS = IMPORTED | {"answers": "file:a"}
RULE, CHANGED, DTYPE = {"protocol.empty_rule": "zero"}, {"good.steps": 3}, {"dtype": "float16"}
HASTY = Training(stages=(TrainingStage(name="", limit=10, taken=10, kept=10, epochs=1.0, cut_short=True),))
SEEN = {"labels_seen": LabelsSeen(train=N)}
FEWER = SEEN | {"config": {"train_limit": "100"}}
FAILED = {"status": "failed", "model": MODEL, "task": TASK}
BLIND = np.full(N, CORRECT.mean()) + 0.001 * np.random.default_rng(3).random(N)
OTHERS: dict[str, tuple[Results, int, str]] = {
    "rule of the protocol": ([*both(), *both(4, deviations=RULE, config=RULE)], 4, ""),
    "traces": ([each for budget, noise in ((320, 0), (640, 4)) for each in both(noise, **traced(budget))], 4, ""),
    "texts as answers": ([*both(), *both(4, answers_source="file:a", config=TEXTS, deviations=IMPORTED)], 4, ""),
    "traces alone": (both(**traced(320)), 2, ", answers (generate after traces of at most 320 tokens). bench run with"),
    "learned elsewhere": (both(config={"train_on": "there"}), 2, "Methods learned on there (--train-on)."),
    "own settings": (
        [*both(config=DTYPE), ("good", noisy("good", 5, 0.5), {"deviations": CHANGED, "config": CHANGED | DTYPE})],
        2, "Left out: good with settings of its own (good.steps) (1 result).",
    ),
    "fewer labels of one": (
        [*both(**SEEN), ("few", noisy("few", 0, 0.3), FEWER)],
        2, "Left out: few with settings of its own (train_limit) (1 result).",
    ),
    "fewer labels of all that read some": ([("good", 0, FEWER), ("fair", 0, {})], 2, ""),
    "other arithmetic of one": (
        [*both(), ("half", noisy("half", 0, 0.3), {"config": DTYPE})],
        2, "Left out: half with settings of its own (dtype) (1 result).",
    ),
    "other arithmetic of all but one": (
        [*both(config=DTYPE), ("full", noisy("full", 0, 0.3), {})],
        2, "Left out: full with settings of its own (dtype) (1 result).",
    ),
    "three arithmetics": (
        [*both(config=DTYPE), *(("half", noisy("half", 0, 0.3), {"config": {"dtype": d}}) for d in ("bfloat16", "a"))],
        2, "Left out: half with settings of its own (dtype) (2 results).",
    ),
    "fewer labels of all but one": (
        [*both(**FEWER), ("many", noisy("many", 0, 0.3), SEEN), ("blind", BLIND, {})],
        2, "Left out: many with settings of its own (train_limit) (1 result).",
    ),
    "learned elsewhere but one": (
        [*both(**SEEN, config={"train_on": "there"}), ("here", noisy("here", 0, 0.3), SEEN)],
        2, "Left out: here with settings of its own (train_on) (1 result).",
    ),
    "other arithmetic of what failed": (
        [*both(config=DTYPE), *((f"bad{i}", CHANCE, FAILED) for i in range(3))],
        2, "Left out: bad0 was failed with preset demo (1 result).",
    ),
    "other arithmetic of two seeds": ([*both(), *both(4, config=DTYPE)], 2, "fair with settings of its own (dtype)"),
    "relations of one": ([("good", 0, {"config": {"nli": "small"}}), ("fair", 0, {})], 2, ""),
    "other labels": (
        [*both(), ("other", noisy("other", 0, 0.3), {"correct": ~CORRECT})],
        2, "other rests on other answers or labels",
    ),
    "other questions": (
        [*both(), *both(1, preset="fixed", id=ELSEWHERE)],
        2, "preset fixed, seed 0 asks other questions than the table",
    ),
    "training cut short": (
        [*both(), ("hasty", CHANCE, {"training": HASTY}), ("hasty", CHANCE, {"seed": 1})],
        2, "Left out: training of hasty was cut short with preset demo (2 results).",
    ),
    "no order": ([*both(), ("blind", BLIND, {})], 2, "In calibration blind takes no part"),
    "tuned alone": (
        [*both(), ("good", 4, {"config": {"tune": 8}})],
        2, "Left out: good alone has a result with preset demo, tuning by 8 configurations, seed 0 (1 result).",
    ),
    "budget of tokens": ([*both(), ("good", 0, {"config": {"token_budget": 512}})], 2, ""),
    "nothing read": (
        [*both(parsed=PARSED, correct=CORRECT & PARSED), *both(parsed=NONE, correct=NONE, preset="fixed")],
        6, "In 1 of 2 sets of results no answer was read",
    ),
    "one subject": (both(subjects=1), 1, ""),
}  # fmt: skip


@pytest.mark.parametrize(("results", "n", "remark"), OTHERS.values(), ids=OTHERS)
def test_universes_are_of_comparable_results(tmp_path: Path, results: Results, n: int, remark: str) -> None:
    for method, confidence, changes in results:
        plant(tmp_path, method, confidence, **changes)
    multiverse = found(tmp_path, preset="demo")
    assert len(multiverse.of("Brier")) == contest(multiverse, "Brier", "good", "fair").n == n
    assert any(remark in each for each in multiverse.remarks) or not remark
    assert set(multiverse.methods["Brier"]) - {"blind"} == {"good", "fair"}
    assert set(multiverse.methods["calibration"]) == {"good", "fair"}


def test_options_of_partial_results_count_nothing() -> None:
    rows = [result_row("good", config=DTYPE), *(result_row(name, limit=40) for name in ("few", "less"))]
    assert eligible_rows(rows, Exclusions()) == rows[:1]


@pytest.mark.parametrize(
    ("results", "request_", "message"),
    [
        ([("good", 0, {})], {}, r"a claim needs two methods .* there is good alone; run more: bench run"),
        ([("good", 0, {}), ("fair", 0, {"id": ELSEWHERE})], {}, "a claim needs two methods"),
        ([("good", 0, {}), ("poor", 0, {"seed": 1})], {}, r"No seed has results of two methods .* \(good, poor\)"),
        ([*both(), ("good", 9, {"config": {"token_budget": 512}})], {},
         r"good on shores-oe, seed 0: two results of one setting differ, .*json and"),
        ([*both(), *both(2, preset="fixed")], {}, "presets demo, fixed; choose with --preset"),
        ([*both(), *both(2, preset="fixed")], {"preset": "fixd"}, "no result with preset 'fixd'; there are demo"),
        ([*both(), *both(2, preset="fixed")], {"model": "Alpha", "task": "SHORES-OE"},
         "alpha on shores-oe have presets demo, fixed"),
        (both(), {"methods": ("god",)}, "--method: no ranked method 'god'; there are fair, good"),
        (both(), {"model": "alhpa"}, "--model: no result of model 'alhpa'; there are alpha. Did you mean"),
        (both(), {"task": "shores"}, "--task: no result of task 'shores'; there are shores-oe."),
    ],
)  # fmt: skip
def test_multiverse_without_a_table_is_refused(
    tmp_path: Path, results: Results, request_: dict[str, Any], message: str
) -> None:
    for method, confidence, changes in results:
        plant(tmp_path, method, confidence, **changes)
    with pytest.raises(UserError, match=message):
        found(tmp_path, **request_)


def test_multiverse_data_and_print_say_the_same(multiverse: Multiverse) -> None:
    views = build_analysis(multiverse).views
    records = list(csv.DictReader(io.StringIO(formats.render(views, "csv"))))
    data = json.loads(formats.render(views, "json"))
    for record, claim, one in zip(records, data["claims"], multiverse.contests, strict=True):
        assert (record["first"], int(record["holds"])) == (claim["first"], claim["holds"]) == (one.first, one.holds)
        assert claim["survives"] == (one.survives if one.is_claim else None)
    assert len(data["universes"]) == len(multiverse.universes)
    told = " ".join(formats.render(join_tables([build_analysis(multiverse, ("fair",))]), "terminal", width=250).split())
    assert "fair beats poor" in told
    assert "good beats poor" not in told


def test_multiverse_figures_show_every_method_and_share(multiverse: Multiverse, equal: Multiverse) -> None:
    places, claims = plot_ranks(multiverse), plot_claims(multiverse)
    assert places is not None
    assert claims is not None
    for figure in (places, claims):
        check_readable(figure)
    check_golden("looks-multiverse.txt", as_cases({"places": look(places), "claims": look(claims)}))
    assert words(places).count("good") == words(places).count("poor") == 3
    assert "100" in words(places)
    assert any(text.startswith("100 %") for text in words(claims))
    assert plot_claims(equal) is None


def test_multiverse_files_leave_tables_alone(presets: Path, multiverse: Multiverse, tmp_path: Path) -> None:
    run = partial(bench, env={"CONFBENCH_CACHE": str(tmp_path / "cache")})
    words = ("--results", presets, "--model", MODEL, "--task", TASK, "--preset", "demo", "--format", "json")
    done = run("analyze", "multiverse", *words, "--out", presets / "analyses")
    assert json.loads(done.stdout)["about"]["model"] == MODEL, done.stderr
    assert {path.name.removeprefix(f"{MODEL}--multiverse--{TASK}") for path in (presets / "analyses").iterdir()} == {
        ".md", ".csv", ".json", *(f"--{name}.{kind}" for name in ("places", "claims") for kind in ("svg", "png")),
    }  # fmt: skip
    assert run("table", "--results", presets, "--preset", "demo").returncode == 0
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="can't be written"):
        write([build_analysis(multiverse)], tmp_path / "file")
