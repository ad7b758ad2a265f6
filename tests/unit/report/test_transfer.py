"""Numbers, words and files of a transfer matrix, from planted results."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bench.api import BoolArray, FloatArray, UserError
from bench.report.tables.formats import render
from bench.report.transfer import About, Matrix, computed, heat_map, verdict, views, write
from bench.results import files
from bench.results.records import Records
from bench.results.row import ResultRow
from bench.results.transfer import Corpus, TransferCell
from bench.stats import Settings

N, SUBJECTS = 120, ("ash", "elm", "fir")
SUBJECT = [SUBJECTS[i % 3] for i in range(N)]
CORRECT = {test: np.random.default_rng(seed).random(N) < 0.6 for seed, test in enumerate(("a", "b"))}
A, B, A_OUT = Corpus("a"), Corpus("b"), Corpus("a", leaves_out=True)
Confidence = Callable[[str, "Corpus | None", str, int], FloatArray]


def about(*, corpora: tuple[Corpus, ...] = (A, B), seeds: tuple[int, ...] = (0,)) -> About:
    return About("tiny", "demo", corpora, ("a", "b"), {"a": "a", "b": "b"}, ("good", "rote"), (), seeds)


def noisy(strength: float, *key: object) -> FloatArray:
    """Confidences that know the answer so well."""
    test = str(key[0])
    noise = np.random.default_rng([ord(c) for c in "".join(map(str, key))]).random(N)
    return np.clip(0.5 + strength * (CORRECT[test] - 0.5) + 0.3 * (noise - 0.5), 0, 1)


def planted(method: str, corpus: Corpus | None, test: str, seed: int) -> FloatArray:
    """`good` loses little elsewhere, `rote` nearly all, `plain` learns nothing."""
    at_home = corpus is None or corpus == Corpus(test)
    strength = {"good": 0.8 if at_home else 0.6, "rote": 0.7 if at_home else -0.5, "plain": 0.3}[method]
    return noisy(strength, test, method, corpus, seed)


def cells(out: Path, told: About, confidence: Confidence = planted) -> list[TransferCell]:
    """Result files of all cells."""
    made = []
    for method, seed in ((method, seed) for method in ("good", "rote", "plain") for seed in told.seeds):
        for corpus in told.corpora if method != "plain" else (None,):
            for test in told.tests:
                row = ResultRow(
                    method=method, model="tiny", task=test, preset="demo", seed=seed, protocol="0" * 16, task_version=1,
                    status="ok", n=N, config={} if corpus is None else {"learned": corpus.label},
                )  # fmt: skip
                records = Records(
                    [f"{test}/{i}" for i in range(N)], SUBJECT, CORRECT[test], confidence(method, corpus, test, seed),
                    ["x"] * N, np.ones(N, dtype=np.bool_),
                )  # fmt: skip
                path = files.write(row, records, out)
                made.append(TransferCell(method, test, corpus, row, path))
    return made


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Matrix:
    return computed(cells(tmp_path_factory.mktemp("cells"), about()), about())


def macro(values: FloatArray) -> float:
    return float(np.mean([values[np.asarray(SUBJECT) == subject].mean() for subject in SUBJECTS]))


def auroc(sure: FloatArray, correct: BoolArray) -> float:
    right, wrong = sure[correct], sure[~correct]
    return float(np.mean((right[:, None] > wrong) + 0.5 * (right[:, None] == wrong)))


def test_prices_of_brier_are_paired_t_tests_of_the_macro_mean(matrix: Matrix) -> None:
    from scipy import stats

    for price in (each for each in matrix.prices if each.metric == "brier"):
        o = CORRECT[price.test]
        loss = [np.square(planted(price.method, c, price.test, 0) - o) for c in (price.corpus, price.home)]
        difference = loss[0] - loss[1]
        assert price.points == pytest.approx(macro(difference))
        parts = [difference[np.asarray(SUBJECT) == subject] for subject in SUBJECTS]
        v = np.array([part.var(ddof=1) / part.size for part in parts])
        error, df = np.sqrt(v.sum()) / 3, v.sum() ** 2 / np.sum(v**2 / (np.array([p.size for p in parts]) - 1))
        assert price.p == pytest.approx(2 * stats.t.sf(abs(price.points) / error, df), abs=1e-12)
        half = stats.t.ppf(0.975, df) * error
        assert price.ends[:2] == pytest.approx((price.points - half, price.points + half))


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
        values = [
            np.mean([auroc(planted(price.method, c, price.test, 0)[s], o[s])
                     for s in (np.asarray(SUBJECT) == subject for subject in SUBJECTS)])
            for c in (price.home, price.corpus)
        ]  # fmt: skip
        assert price.points == pytest.approx(values[0] - values[1])
        assert price.ends.low is not None
        assert price.ends.low <= price.points <= (price.ends.high or 0)


def test_the_worst_cell_is_the_worst_of_all_and_the_ranking_follows_it(matrix: Matrix) -> None:
    for worst in matrix.worst:
        own = [e.value for e in matrix.entries if (e.method, e.metric) == (worst.method, worst.metric)]
        assert worst.value == (max(own) if worst.metric == "brier" else min(own))
    assert {w.method: w.rank for w in matrix.worst if w.metric == "brier"} == {"good": 1, "plain": 2, "rote": 3}


def test_a_method_that_loses_all_is_worse_than_the_untrained_one_and_the_verdict_says_so(matrix: Matrix) -> None:
    told = " ".join(verdict(matrix))
    assert "By its worst Brier, good leads" in told
    assert "Trained elsewhere, rote is worse than plain" in told
    assert "Wherever trained, good stays better than it" in told
    assert re.search(r"Moving from a to b, tested on a, costs \d+\.\d points \[", told)


def test_where_nothing_is_shown_the_verdict_claims_nothing(tmp_path: Path) -> None:
    def same(method: str, corpus: Corpus | None, test: str, seed: int) -> FloatArray:
        return noisy(0.5, test, method, "" if method == "plain" else corpus, seed)

    matrix = computed(cells(tmp_path, about(), same), about())
    told = " ".join(verdict(matrix))
    assert "No single price is shown" in told
    assert told.count("no cost is shown") == 2
    assert "no method is shown to be worse than plain" in told
    assert "no single method leads" in told
    assert not re.search(r"leads: \d", told)
    assert re.search(r"worst Brier, no single method leads: the best one is", told)


def test_a_missing_cell_is_told_and_its_method_has_no_rank(tmp_path: Path) -> None:
    made = cells(tmp_path, about())
    gone = next(cell for cell in made if (cell.method, cell.corpus, cell.test) == ("good", B, "a"))
    made[made.index(gone)] = TransferCell("good", "a", B, missing="skipped: nothing to learn")
    matrix = computed(made, about())
    (worst,) = (each for each in matrix.worst if each.method == "good" and each.metric == "brier")
    assert worst.rank is None
    assert "missing" in worst.reason
    assert not [p for p in matrix.prices if (p.method, p.corpus, p.test) == ("good", B, "a")]
    shown = render(views(matrix), "md")
    assert "skipped: nothing to learn" in shown
    assert "Cells without numbers: 1" in shown
    assert [
        row for row in csv.DictReader(io.StringIO(render(views(matrix), "csv"))) if "nothing to learn" in row["reason"]
    ]
    heat_map(matrix, "brier")


def test_seeds_are_averaged_question_by_question(tmp_path: Path) -> None:
    told = about(seeds=(0, 1))
    matrix = computed(cells(tmp_path, told), told)
    loss = np.mean([np.square(planted("rote", B, "a", seed) - CORRECT["a"]) for seed in (0, 1)], axis=0)
    found = matrix.entry("rote", B, "a", "brier")
    assert found is not None
    assert found.value == pytest.approx(macro(loss))


def test_leaving_subjects_out_is_a_row_of_its_own(tmp_path: Path) -> None:
    told = about(corpora=(A, B, A_OUT))
    matrix = computed(cells(tmp_path, told), told)
    corpora = {price.corpus for price in matrix.prices if price.test == "a"}
    assert corpora == {B, A_OUT}


def test_cells_of_other_answers_are_left_out_and_told(tmp_path: Path) -> None:
    made = cells(tmp_path, about())
    odd = next(cell for cell in made if (cell.method, cell.corpus, cell.test) == ("rote", B, "b"))
    assert odd.row is not None
    records = Records(
        [f"b/{i}" for i in range(N)], SUBJECT, ~CORRECT["b"], np.full(N, 0.5), ["x"] * N, np.ones(N, dtype=np.bool_)
    )
    files.write(odd.row, records, tmp_path)
    matrix = computed(made, about())
    assert [(m.method, m.corpus, m.test) for m in matrix.missing] == [("rote", B, "b")]
    assert "other answers" in matrix.missing[0].reason


def test_no_cell_with_numbers_is_an_error_with_the_reason() -> None:
    nothing = [TransferCell("good", test, A, missing="skipped: no rows") for test in ("a", "b")]
    with pytest.raises(UserError, match="skipped: no rows"):
        computed(nothing, about())


def test_files_say_the_same_as_the_tables(matrix: Matrix, tmp_path: Path) -> None:
    shown = views(matrix)
    written = write(matrix, shown, tmp_path / "t")
    assert {path.name for path in written} >= {"tiny--transfer.json", "tiny--transfer--brier.svg"}
    data = json.loads((tmp_path / "t" / "tiny--transfer.json").read_text(encoding="utf-8"))
    assert data["verdict"] == list(verdict(matrix))
    assert len(data["entries"]) == len(matrix.entries)
    records = list(csv.DictReader(io.StringIO(render(shown, "csv"))))
    price = next(p for p in matrix.prices if p.method == "rote" and p.metric == "brier")
    row = next(r for r in records if r["method"] == "rote" and r["metric"] == "brier" and r["price"])
    assert float(row["price"]) == pytest.approx(price.points)
    text = render(shown, "terminal", width=100)
    assert "same" in text
    svg = (tmp_path / "t" / "tiny--transfer--brier.svg").read_text(encoding="utf-8")
    assert all(name in svg for name in ("good", "rote", "plain", "tested on a"))


def test_settings_of_resamples_are_the_callers(tmp_path: Path) -> None:
    made = cells(tmp_path, about())
    few = computed(made, about(), settings=Settings(replicates=50))
    assert few.entries[0].value == computed(made, about()).entries[0].value
