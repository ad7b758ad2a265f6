"""Numbers, words and files of a transfer matrix, from planted results."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.api import BoolArray, FloatArray, UserError
from bench.report.analysis import write
from bench.report.page.transfer import Shift, section
from bench.report.tables.formats import render
from bench.report.text import MINUS
from bench.report.transfer import Matrix, build_analysis, compute_matrix, heat_map, verdict
from bench.report.transfer.figure import wrap_label
from bench.report.transfer.stored import UnreadableMatrix, load_matrices
from bench.report.transfer.views import format_value
from bench.results import files
from bench.results.question_records import QuestionRecords
from bench.results.transfer import Corpus, TransferCell
from bench.stats import Average, Settings
from bench.stats.comparison import normal_draws
from bench.stats.intervals import MAX_FREEDOM
from bench.stats.worst import MethodCells
from tests.fixtures.readable import note
from tests.fixtures.shifted import (
    A_FEWER,
    A_OUT,
    CORRECT,
    SHARES,
    SUBJECT,
    SUBJECTS,
    A,
    B,
    N,
    about,
    cells,
    noisy,
    planted,
)  # fmt: skip


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Matrix:
    return compute_matrix(cells(tmp_path_factory.mktemp("cells"), about()), about())


def auroc(sure: FloatArray, correct: BoolArray) -> float:
    right, wrong = sure[correct], sure[~correct]
    return float(np.mean((right[:, None] > wrong) + 0.5 * (right[:, None] == wrong)))


def test_prices_of_brier_are_paired_t_tests_within_subjects(matrix: Matrix) -> None:
    from scipy import stats

    for price in (each for each in matrix.prices if each.metric == "brier"):
        o = CORRECT[price.test]
        loss = [np.square(planted(price.method, c, price.test, 0) - o) for c in (price.corpus, price.home)]
        difference = loss[0] - loss[1]
        assert price.points == pytest.approx(difference.mean())
        parts = [difference[np.asarray(SUBJECT) == subject] for subject in SUBJECTS]
        v = np.array([part.var(ddof=1) / part.size for part in parts])
        error, df = np.sqrt(v.sum()) / 3, v.sum() ** 2 / np.sum(v**2 / (np.array([p.size for p in parts]) - 1))
        assert price.p == pytest.approx(2 * stats.t.sf(abs(price.points) / error, df), abs=1e-12)
        half = stats.t.ppf(0.975, df) * error
        assert price.interval.ends == pytest.approx((price.points - half, price.points + half))


def test_holm_covers_all_prices_of_a_metric(matrix: Matrix) -> None:
    own = sorted((p for p in matrix.prices if p.metric == "brier"), key=lambda price: price.p or 0)
    assert len(own) == 4
    largest = 0.0
    for step, price in enumerate(own):
        largest = max(largest, min(1.0, (4 - step) * (price.p or 0)))
        assert price.p_holm == pytest.approx(largest)


def test_prices_of_auroc_are_positive_where_it_is_worse_and_their_interval_covers_them(matrix: Matrix) -> None:
    for price in (each for each in matrix.prices if each.metric == "auroc"):
        o = CORRECT[price.test]
        values = [auroc(planted(price.method, c, price.test, 0), o) for c in (price.home, price.corpus)]
        assert price.points == pytest.approx(values[0] - values[1])
        if values == [1, 0]:  # the whole order is turned round, and that varies between no questions
            assert (price.interval.low, price.p) == (None, 1)
            continue
        assert price.interval.low is not None
        assert price.interval.low <= price.points <= (price.interval.high or 0)


@pytest.mark.parametrize(
    ("average", "words"), [("questions", "over all questions"), ("subjects", "mean over subjects")]
)
def test_numbers_are_of_all_questions_or_means_over_subjects_and_say_so(
    tmp_path: Path, average: Average, words: str
) -> None:
    def weak(method: str, corpus: Corpus | None, test: str, seed: int) -> FloatArray:
        return noisy(0.1, test, method, corpus) * np.where(np.asarray(SUBJECT) == "ash", 0.5, 1.0)

    matrix = compute_matrix(cells(tmp_path, about(), weak), about(), settings=Settings(average=average))
    parts = [np.asarray(SUBJECT) == subject for subject in SUBJECTS]
    every = np.ones(N, dtype=np.bool_)
    for entry in (each for each in matrix.entries if each.metric == "auroc"):
        sure, o = weak(entry.method, entry.corpus, entry.test, 0), CORRECT[entry.test]
        rows = [every] if average == "questions" else parts
        assert entry.value == pytest.approx(np.mean([auroc(sure[own], o[own]) for own in rows]))
    drawn = note(heat_map(matrix, "brier"))
    page = section(Shift([matrix]))
    for text in (render(build_analysis(matrix).views, "terminal", width=100), drawn, page):
        assert words in " ".join(text.split())
    assert json.loads(render(build_analysis(matrix).views, "json"))["average"] == average


def test_the_worst_cell_is_the_worst_of_all_and_the_ranking_follows_it(matrix: Matrix) -> None:
    for worst in matrix.worst:
        own = [e.value for e in matrix.entries if (e.method, e.metric) == (worst.method, worst.metric)]
        assert worst.value == (max(own) if worst.metric == "brier" else min(own))
    assert {w.method: w.rank for w in matrix.worst if w.metric == "brier"} == {"good": 1, "plain": 2, "rote": 3}


@pytest.mark.parametrize("apart", [0.0, 4.0])
def test_the_worst_of_more_cells_leads_and_loses_no_more_often_than_by_chance(apart: float) -> None:
    """Eight cells of a method are as bad as one of another method, whose second one is as bad or far better."""
    rng = np.random.default_rng(7)
    method = np.array(["many"] * 8 + ["few"] * 2)
    truth = np.array([0.0] * 9 + [-apart]) / 100
    covariance = np.eye(10) / 1e4
    draws = normal_draws(covariance, Settings(draws=1000))
    behind, covered = 0, 0
    for _ in range(400):
        value = truth + rng.multivariate_normal(np.zeros(10), covariance)
        one = MethodCells("brier", method, 0.5 + value, covariance, np.full(10, MAX_FREEDOM), draws)
        behind += max(one.rank_by_worst_cell(["many", "few"]).values()) > 1
        ends = one.interval("many").ends
        covered += ends is not None and ends[0] <= 0.5 <= ends[1]
    assert behind <= 30  # more come with a chance of 0.01 where the level is 0.05
    assert covered >= 370


def test_a_method_of_one_cell_has_the_interval_of_that_cell_and_ranks_are_of_paired_t_tests() -> None:
    from scipy import stats

    value, covariance = np.array([0.2, 0.3, 0.3]), np.array([[4.0, 2.0, 0.0], [2.0, 4.0, 0.0], [0.0, 0.0, 0.0]]) / 1e4
    draws = normal_draws(covariance, Settings())
    one = MethodCells("auroc", np.array(["a", "b", "c"]), value, covariance, np.full(3, 8.0), draws)
    half = stats.t.ppf(0.975, 8) * 0.02
    assert one.interval("a").ends == pytest.approx((0.2 - half, 0.2 + half), abs=0.002)
    assert one.interval("c").reason == "nothing varies between these questions"
    assert one.rank_by_worst_cell(["a", "b"]) == {"a": 2, "b": 1}  # 0.1 is 5 errors of 0.02
    assert one.rank_by_worst_cell(["b", "c"]) == {"b": 1, "c": 1}


def test_a_method_that_loses_all_is_worse_than_the_untold_one_and_the_verdict_says_so(matrix: Matrix) -> None:
    told = " ".join(verdict(matrix))
    assert "Leading by worst-cell Brier: good (" in told
    assert "worse than every method that is told nothing (plain) in some cell: rote; better than all" in told
    assert "better than all of these in every cell: good." in told
    moved = (
        r"Learning on another corpus is shown to worsen Brier in 2 of 2 cases, to improve it in 0; highest price: \d"
    )
    assert re.search(moved, told)
    assert "of 4 tested 4 are shown to be costs, 0 gains; dearest: rote, " in told


def test_against_all_that_are_told_nothing_the_least_clear_one_decides(tmp_path: Path) -> None:
    """`rote` is better than `lost` and worse than `plain`, so neither of both together; no best one is chosen."""

    def with_lost(method: str, corpus: Corpus | None, test: str, seed: int) -> FloatArray:
        return noisy(-0.9, test, method) if method == "lost" else planted(method, corpus, test, seed)

    matrix = compute_matrix(cells(tmp_path, about(), with_lost, ("good", "rote", "plain", "lost")), about())
    found = {(each.method, each.test): each for each in matrix.against_untrained}
    assert {each.untold for each in found.values()} == {("lost", "plain")}
    assert {found["rote", test].p for test in ("a", "b")} == {1.0}
    for test in ("a", "b"):
        good = found["good", test]
        loss = {m: np.square(with_lost(m, c, test, 0) - CORRECT[test])
                for m, c in (("good", good.corpus), ("plain", None))}  # fmt: skip
        assert good.against == "plain"
        assert good.points == pytest.approx((loss["good"] - loss["plain"]).mean())
        assert good.p_holm is not None
        assert 0 < (good.p or 0) <= good.p_holm < 0.05
    told = " ".join(verdict(matrix))
    assert "worse than every method that is told nothing (lost and plain) in some cell: none;" in told
    assert "better than all of these in every cell: good." in told


def test_where_nothing_is_shown_the_verdict_claims_nothing(tmp_path: Path) -> None:
    def same(method: str, corpus: Corpus | None, test: str, seed: int) -> FloatArray:
        return noisy(0.5, test, method, "" if method == "plain" else corpus, seed)

    matrix = compute_matrix(cells(tmp_path, about(), same), about())
    told = " ".join(verdict(matrix))
    assert "of 4 tested 0 are shown to be costs, 0 gains." in told
    assert "is shown to worsen Brier in 0 of 2 cases, to improve it in 0;" in told
    assert "worse than every method that is told nothing (plain) in some cell: none;" in told
    assert re.search(r"Tied by worst-cell Brier: \w+ \(.* can't be distinguished from \w+ and \w+\.", told)
    assert "Leading" not in told


def test_what_becomes_better_elsewhere_is_a_gain_though_it_loses_order(tmp_path: Path) -> None:
    """Far too unsure at home, elsewhere less so, but in a worse order: `good` and `rote` alike."""

    def moved(method: str, corpus: Corpus | None, test: str, seed: int) -> FloatArray:
        if corpus is None:
            return noisy(0.3, test, method)
        is_home = corpus.task == test
        sure = noisy(0.5 if is_home else 0.2, test, method, corpus, seed)
        return 0.2 * sure if is_home else 0.35 + 0.5 * sure

    matrix = compute_matrix(cells(tmp_path, about(), moved), about())
    told = " ".join(verdict(matrix)).replace(MINUS, "-")
    assert re.search(r"worsen Brier in 0 of 2 cases, to improve it in 2; highest price: -\d+\.\d points \[-", told)
    assert "of 4 tested 0 are shown to be costs, 4 gains." in told
    signs = {(mean.metric, (mean.interval.low or 0) > 0, (mean.interval.high or 0) < 0) for mean in matrix.means}
    assert signs == {("brier", False, True), ("auroc", True, False)}


def test_who_has_a_rank_alone_leads_nobody(tmp_path: Path) -> None:
    made = [cell for cell in cells(tmp_path, about()) if cell.method == "good"]
    told = " ".join(verdict(compute_matrix(made, replace(about(), learners=("good",)))))
    assert re.search(r"Nobody leads by worst-cell Brier: good \(.*\) is the only method with a rank\.", told)
    assert "Leading" not in told
    assert "(mean of 1 of 1 methods that learn)" in told
    assert "No method that learned elsewhere can be compared with one that is told nothing." in told


def test_better_everywhere_elsewhere_is_said_of_no_method_that_lacks_a_cell(tmp_path: Path) -> None:
    made = cells(tmp_path, about())
    gone = next(cell for cell in made if (cell.method, cell.corpus, cell.test) == ("good", B, "a"))
    made[made.index(gone)] = TransferCell("good", "a", B, missing="skipped: nothing to learn")
    told = " ".join(verdict(compute_matrix(made, about())))
    assert "better than all of these in every cell: none." in told
    assert "(mean of 1 of 2 methods that learn)" in told
    assert "Cells without numbers: 1 (good)." in told


def test_partial_results_and_overridden_constants_are_told_wherever_the_matrix_is(tmp_path: Path) -> None:
    made = [
        replace(cell, row=replace(cell.row, limit=N, deviations={"good.steps": 3}, counts={"b/train: in a/test": 7}))
        for cell in cells(tmp_path, about())
        if cell.row is not None
    ]
    matrix = compute_matrix(made, about())
    drawn = note(heat_map(matrix, "brier"))
    page = section(Shift([matrix]))
    for text in (
        render(build_analysis(matrix).views, "terminal", width=100),
        render(build_analysis(matrix).views, "json"),
        drawn,
        page,
    ):
        told = " ".join(text.split())
        assert "n = 120 questions of a, 120 questions of b." in told
        assert "Results are partial (--limit 120)." in told
        assert "Overridden constants: good.steps=3." in told
        assert "b/train: in a/test: 7." in told


def test_scores_that_one_corpus_can_t_scale_have_no_rank_by_brier(tmp_path: Path) -> None:
    """Their Brier score is unknown there, so their worst one is."""
    told = replace(about(), scaled=("scored",))
    made = cells(tmp_path, told)
    for corpus, test in ((corpus, test) for corpus in (A, B) for test in told.tests):
        row = replace(
            next(c.row for c in made if c.row and c.test == test), method="scored", config={"on": corpus.task}
        )
        score = noisy(0.6, test, "scored")
        sure = np.full(N, np.nan) if corpus == B else score
        records = replace(files.read_records(next(c.path for c in made if c.path and c.test == test)), confidence=sure)
        path = files.write(row, replace(records, score=score), tmp_path)
        made.append(TransferCell("scored", test, corpus, files.read(path), path))
    matrix = compute_matrix(made, told)
    found = {w.metric: (w.rank is None, w.reason) for w in matrix.worst if w.method == "scored"}
    assert found == {"brier": (True, "undefined in a cell"), "auroc": (False, "")}
    assert "undefined" in render(build_analysis(matrix).views, "terminal", width=120)


def test_a_missing_cell_is_told_and_its_method_has_no_rank(tmp_path: Path) -> None:
    made = cells(tmp_path, about())
    gone = next(cell for cell in made if (cell.method, cell.corpus, cell.test) == ("good", B, "a"))
    made[made.index(gone)] = TransferCell("good", "a", B, missing="skipped: nothing to learn")
    matrix = compute_matrix(made, about())
    (worst,) = (each for each in matrix.worst if each.method == "good" and each.metric == "brier")
    assert worst.rank is None
    assert "missing" in worst.reason
    assert not [p for p in matrix.prices if (p.method, p.corpus, p.test) == ("good", B, "a")]
    printed = render(build_analysis(matrix).views, "md")
    assert "skipped: nothing to learn" in printed
    assert "Cells without numbers: 1" in printed
    records = csv.DictReader(io.StringIO(render(build_analysis(matrix).views, "csv")))
    assert any("nothing to learn" in record["reason"] for record in records)
    heat_map(matrix, "brier")


def test_seeds_are_averaged_question_by_question(tmp_path: Path) -> None:
    told = about(seeds=(0, 1))
    matrix = compute_matrix(cells(tmp_path, told), told)
    loss = np.mean([np.square(planted("rote", B, "a", seed) - CORRECT["a"]) for seed in (0, 1)], axis=0)
    found = matrix.entry("rote", B, "a", "brier")
    assert found is not None
    assert found.value == pytest.approx(loss.mean())


def test_a_cell_that_one_seed_lacks_has_no_number(tmp_path: Path) -> None:
    """Its mean would be over fewer seeds than the one that its price is against."""
    told = about(seeds=(0, 1))
    made = cells(tmp_path, told)
    gone = max(i for i, c in enumerate(made) if (c.method, c.corpus, c.test) == ("good", B, "a"))
    made[gone] = TransferCell("good", "a", B, missing="skipped: nothing to learn")
    matrix = compute_matrix(made, told)
    assert matrix.entry("good", B, "a", "brier") is None
    assert not [p for p in matrix.prices if (p.method, p.corpus, p.test) == ("good", B, "a")]


def test_tables_of_prices_name_the_corpus_that_they_are_against(matrix: Matrix) -> None:
    titles = [grid.facts[0] for grid in build_analysis(matrix).views.grids]
    for test in ("a", "b"):
        assert f"tiny, tested on {test}: the price of learning elsewhere than on {test}, Brier, points" in titles


def test_leaving_subjects_out_is_a_row_of_its_own(tmp_path: Path) -> None:
    told = about(corpora=(A, B, A_OUT))
    matrix = compute_matrix(cells(tmp_path, told), told)
    corpora = {price.corpus for price in matrix.prices if price.test == "a"}
    assert corpora == {B, A_OUT}
    assert not matrix.novelty  # nothing of the same size to compare with


# --- a new subject, or fewer answers ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def matched(tmp_path_factory: pytest.TempPathFactory) -> Matrix:
    told = about(corpora=(A, B, A_OUT, A_FEWER), shares=SHARES)
    return compute_matrix(cells(tmp_path_factory.mktemp("matched"), told), told)


def test_the_price_of_a_new_subject_is_against_as_few_answers(matched: Matrix) -> None:
    """Student's t with Welch's degrees of freedom for the mean of strata, by hand."""
    from scipy import stats

    found = [price for price in matched.novelty if price.metric == "brier"]
    assert {(price.method, price.test) for price in found} == {("good", "a"), ("rote", "a")}
    for price in found:
        assert (price.corpus, price.home) == (A_OUT, A_FEWER)
        loss = [np.square(planted(price.method, c, "a", 0) - CORRECT["a"]) for c in (A_OUT, A_FEWER)]
        parts = [(loss[0] - loss[1])[np.asarray(SUBJECT) == subject] for subject in SUBJECTS]
        v = np.array([part.var(ddof=1) / part.size for part in parts])
        error, df = np.sqrt(v.sum()) / 3, v.sum() ** 2 / np.sum(v**2 / (np.array([p.size for p in parts]) - 1))
        assert price.points == pytest.approx(np.mean([part.mean() for part in parts]))
        assert price.p == pytest.approx(2 * stats.t.sf(abs(price.points) / error, df), abs=1e-12)
    smaller, larger = sorted(float(price.p or 0) for price in found)
    corrected = sorted(float(price.p_holm or 0) for price in found)
    assert corrected == pytest.approx([min(1, 2 * smaller), max(min(1, 2 * smaller), larger)])


def test_the_two_prices_add_up_to_that_of_leaving_the_subject_out(matched: Matrix) -> None:
    for method in ("good", "rote"):
        for metric in ("brier", "auroc"):
            own = {p.corpus: p.points for p in matched.prices if (p.method, p.metric, p.test) == (method, metric, "a")}
            (new,) = (p.points for p in matched.novelty if (p.method, p.metric) == (method, metric))
            assert own[A_OUT] == pytest.approx(own[A_FEWER] + new)


def test_what_only_loses_the_subject_pays_for_it_and_not_for_fewer_answers(matched: Matrix) -> None:
    fewer = [p for p in matched.prices if p.corpus == A_FEWER and p.metric == "brier"]
    assert len(fewer) == 2
    assert not any(price.is_shown for price in fewer)
    assert all(price.is_shown and price.points > 0 for price in matched.novelty if price.metric == "brier")
    told = " ".join(verdict(matched))
    assert "without the subject, against as few answers, is shown to worsen Brier in 1 of 1 case, to improve it" in told
    assert "without as many at random" not in told


def test_a_test_without_a_spread_takes_the_rank_from_all_that_were_tested_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else methods whose worst number is elsewhere would lead among themselves, before better ones without a rank."""
    few_right = np.zeros(N, dtype=np.bool_)
    few_right[:10] = True
    monkeypatch.setitem(CORRECT, "b", few_right)
    matrix = compute_matrix(cells(tmp_path, about()), about())
    ranks = {(w.method, w.metric): w.rank for w in matrix.worst}
    assert {ranks[name, "auroc"] for name in ("good", "rote", "plain")} == {None}
    assert None not in {ranks[name, "brier"] for name in ("good", "rote", "plain")}
    assert "Nobody leads by worst-cell AUROC: no method has a rank." in verdict(matrix)
    reason = "20 right answers are needed to tell how far AUROC varies, there are 10"
    assert {each.interval.reason for each in matrix.entries if (each.metric, each.test) == ("auroc", "b")} == {reason}
    assert {price.interval.reason for price in matrix.prices if (price.metric, price.test) == ("auroc", "b")} == {
        reason
    }


def test_a_move_to_another_corpus_without_the_subject_stands_in_the_table_alone(tmp_path: Path) -> None:
    """Nor does the same with fewer answers: it pays for the move as well."""
    told = replace(about(corpora=(A, B, A_OUT, A_FEWER)), homes={"a": "b", "b": "b"})
    text = " ".join(verdict(compute_matrix(cells(tmp_path, told), told)))
    assert re.search(r"Learning on another corpus is shown to worsen Brier in \d of 2 cases", text)
    assert "Learning without the subject is" not in text
    assert "Learning without the subject, against as few answers, is shown to worsen Brier in 1 of 1 case" in text


def test_as_few_answers_are_no_shift_and_stand_in_no_rank(tmp_path: Path) -> None:
    """A control that is worse than everything else moves no worst cell, and no comparison with what is told nothing."""

    def broken(method: str, corpus: Corpus | None, test: str, seed: int) -> FloatArray:
        return noisy(-1.0, test, method) if corpus == A_FEWER else planted(method, corpus, test, seed)

    told = about(corpora=(A, B, A_OUT, A_FEWER))
    matrix = compute_matrix(cells(tmp_path, told, broken), told)
    assert A_FEWER not in {each.corpus for each in matrix.worst}
    assert A_FEWER not in {each.corpus for each in matrix.against_untrained}
    assert {w.method: w.rank for w in matrix.worst if w.metric == "brier"} == {"good": 1, "plain": 2, "rote": 3}


@pytest.mark.slow
def test_a_shift_that_does_nothing_is_shown_in_one_of_twenty_matrices(tmp_path: Path) -> None:
    """Confidences that are drawn alike wherever a method learned: some price is shown in 5 % of matrices at most."""
    build_analysis = 0
    for draw in range(40):

        def alike(method: str, corpus: Corpus | None, test: str, seed: int, draw: int = draw) -> FloatArray:
            return noisy(0.5, test, method, corpus, seed, draw)

        told = about()
        matrix = compute_matrix(cells(tmp_path / str(draw), told, alike), told, settings=Settings(draws=20))
        build_analysis += any(price.is_shown for price in matrix.prices if price.metric == "brier")
    assert build_analysis <= 7  # more come with a chance of 0.0007 where the level is 0.05


# --- shares of right answers ------------------------------------------------------------------------------------------


def test_a_constant_pays_what_the_changed_share_costs(matched: Matrix) -> None:
    """(q - y)² for each question, q the share of the corpus, or that of the fit for the subject."""
    found = {(c.corpus, c.test): c for c in matched.constants}
    assert set(found) == {(A, "a"), (B, "a"), (A_OUT, "a"), (A_FEWER, "a"), (A, "b"), (B, "b")}
    y = CORRECT["a"]
    by_subject = np.asarray([{"ash": 0.5, "elm": 0.6, "fir": 0.7}[subject] for subject in SUBJECT])
    losses = {A: np.square(0.6 - y), B: np.square(0.2 - y), A_OUT: np.square(by_subject - y)}
    for corpus, loss in losses.items():
        assert found[corpus, "a"].value == pytest.approx(loss.mean())
    assert found[A, "a"].points is None
    assert found[B, "a"].points == pytest.approx((losses[B] - losses[A]).mean())
    assert found[A_FEWER, "a"].points == pytest.approx(0.0)
    table = render(build_analysis(matched).views, "md")
    points = f"+{100 * (found[B, 'a'].points or 0):.1f}"
    assert any(line.startswith("| share of right answers |") and points in line for line in table.splitlines())
    assert not any(each.method == "share of right answers" for each in (*matched.worst, *matched.prices))


def test_no_share_no_constant(matrix: Matrix) -> None:
    assert not matrix.constants
    assert "share of right answers" not in render(build_analysis(matrix).views, "md")


# --- what lies in a folder --------------------------------------------------------------------------------------------


@pytest.fixture
def kept(tmp_path: Path) -> tuple[Matrix, Path]:
    """A matrix and the folder that it was written to."""
    told = about(corpora=(A, B, A_OUT, A_FEWER), shares=SHARES)
    made = [*cells(tmp_path, told), TransferCell("gone", "a", A, missing="skipped: no rows")]
    matrix = compute_matrix(made, told)
    (tmp_path / "tiny--transfer.json").write_text(render(build_analysis(matrix).views, "json"), encoding="utf-8")
    return matrix, tmp_path


def test_a_matrix_is_computed_again_from_its_results(kept: tuple[Matrix, Path]) -> None:
    matrix, folder = kept
    path = folder / "tiny--transfer.json"
    values = json.loads(path.read_text(encoding="utf-8"))
    for entry in values["entries"]:
        entry["value"] = 0.0  # numbers of the file are not believed
    path.write_text(json.dumps(values), encoding="utf-8")
    assert load_matrices(folder, {"tiny": "demo", "other": "demo"}) == [matrix]


def test_a_matrix_of_another_preset_or_of_no_model_of_the_page_is_passed_over(kept: tuple[Matrix, Path]) -> None:
    assert load_matrices(kept[1], {"tiny": "paper"}) == []
    assert load_matrices(kept[1], {"other": "demo"}) == []
    assert load_matrices(kept[1] / "nowhere", {"tiny": "demo"}) == []


@pytest.mark.parametrize("harm", ["changed", "gone", "no cells", "no JSON", "elsewhere", "no numbers"])
def test_a_matrix_that_does_not_fit_its_results_is_not_shown_and_says_why(kept: tuple[Matrix, Path], harm: str) -> None:
    matrix, folder = kept
    path = folder / "tiny--transfer.json"
    cell = matrix.cells[0]
    values = json.loads(path.read_text(encoding="utf-8"))
    if harm == "changed":
        row = files.read(folder / cell.file)
        records = files.read_records(folder / cell.file)
        files.write(row, replace(records, confidence=1 - records.confidence), folder)
    elif harm == "gone":
        (folder / cell.file).unlink()
    elif harm == "no cells":
        del values["cells"]
    elif harm == "elsewhere":
        values["cells"][0]["file"] = f"../{folder.name}/{cell.file}"
    elif harm == "no numbers":
        values["cells"] = []
    path.write_text("{" if harm == "no JSON" else json.dumps(values), encoding="utf-8")
    (found,) = load_matrices(folder, {"tiny": "demo"})
    assert isinstance(found, UnreadableMatrix)
    assert found.model == "tiny"
    expected = {
        "changed": "is no longer the result", "gone": "is not there", "no cells": "does not say which results",
        "no JSON": "is no matrix", "elsewhere": "is not there", "no numbers": "No cell of the matrix has numbers",
    }  # fmt: skip
    assert expected[harm] in found.reason
    assert "bench analyze transfer" in found.reason


def test_cells_of_other_answers_are_left_out_and_told(tmp_path: Path) -> None:
    made = cells(tmp_path, about())
    odd = next(cell for cell in made if (cell.method, cell.corpus, cell.test) == ("rote", B, "b"))
    assert odd.row is not None
    records = QuestionRecords(
        [f"b/{i}" for i in range(N)], SUBJECT, ~CORRECT["b"], np.full(N, 0.5), ["x"] * N, np.ones(N, dtype=np.bool_)
    )
    files.write(odd.row, records, tmp_path)
    matrix = compute_matrix(made, about())
    assert [(m.method, m.corpus, m.test) for m in matrix.missing] == [("rote", B, "b")]
    assert "other answers" in matrix.missing[0].reason


def test_no_cell_with_numbers_is_an_error_with_the_reason() -> None:
    nothing = [TransferCell("good", test, A, missing="skipped: no rows") for test in ("a", "b")]
    with pytest.raises(UserError, match="skipped: no rows"):
        compute_matrix(nothing, about())


def test_files_say_the_same_as_the_tables(matrix: Matrix, tmp_path: Path) -> None:
    analysis = build_analysis(matrix)
    written = write([analysis], tmp_path / "t")
    assert {path.name for path in written} >= {"tiny--transfer.json", "tiny--transfer--brier.svg"}
    data = json.loads((tmp_path / "t" / "tiny--transfer.json").read_text(encoding="utf-8"))
    assert data["verdict"] == list(verdict(matrix))
    assert len(data["entries"]) == len(matrix.entries)
    records = list(csv.DictReader(io.StringIO(render(analysis.views, "csv"))))
    price = next(p for p in matrix.prices if p.method == "rote" and p.metric == "brier")
    row = next(r for r in records if r["method"] == "rote" and r["metric"] == "brier" and r["price"])
    assert float(row["price"]) == pytest.approx(price.points)
    text = render(analysis.views, "terminal", width=100)
    assert "same" in text
    svg = (tmp_path / "t" / "tiny--transfer--brier.svg").read_text(encoding="utf-8")
    assert all(name in svg for name in ("good", "rote", "plain", "tested on a"))


def test_numbers_of_the_heat_map_stand_beside_the_name_of_their_method(matrix: Matrix) -> None:
    figure = heat_map(matrix, "brier")
    texts = [(text.get_text(), text.get_position()[1]) for axes in figure.axes for text in axes.texts]
    heights = {name.get_text(): y for name, y in zip(figure.axes[0].get_yticklabels(), range(9), strict=False)}
    entries = [each for each in matrix.entries if each.metric == "brier"]
    for each in entries:
        beside = [words for words, y in texts if y == pytest.approx(heights[each.method])]
        assert any(words.startswith(format_value("brier", each)) for words in beside)
    assert {each.method for each in entries} == {"good", "rote", "plain"}


def test_a_narrow_column_of_the_heat_map_breaks_the_name_of_a_corpus_after_a_hyphen() -> None:
    """Cut, `ct-local-choice` and `ct-local-oe` would be the same."""
    assert wrap_label("ct-local-choice without the subject", 9) == "ct-local-\nchoice\nwithout\nthe\nsubject"
    assert wrap_label("ct-local-oe", 30) == "ct-local-oe"
