"""Numbers, words and files of a transfer matrix, from planted results."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from bench.api import BoolArray, FloatArray, UserError
from bench.report.analysis import write
from bench.report.page.transfer import Shift, section
from bench.report.selection import ReportRequest
from bench.report.tables.build import build
from bench.report.tables.formats import render
from bench.report.transfer import build_analysis, stored
from bench.report.transfer.compute import compute_matrix
from bench.report.transfer.figure import heat_map
from bench.report.transfer.model import Matrix
from bench.report.transfer.stored import UnreadableMatrix, load_matrices
from bench.report.transfer.verdict import verdict
from bench.report.transfer.views import format_value
from bench.report.write import write_tables
from bench.results import files
from bench.results.transfer import About, Corpus, TransferCell
from bench.stats import Average, Settings
from tests.fixtures import shifted
from tests.fixtures.readable import look, note
from tests.fixtures.shifted import (
    A_FEWER,
    A_OUT,
    CORRECT,
    SHARES,
    SUBJECT,
    SUBJECTS,
    A,
    B,
    Confidence,
    N,
    about,
    cells,
    noisy,
    planted,
)  # fmt: skip
from tests.kit.golden import as_cases, check_golden
from tests.kit.world import question_records, result_row

PARTS = [np.asarray(SUBJECT) == subject for subject in SUBJECTS]
MATCHED = about(corpora=(A, B, A_OUT, A_FEWER), shares=SHARES)


def made(folder: Path, told: About | None = None, confidence: Confidence = planted) -> Matrix:
    told = told or about()
    return compute_matrix(cells(folder, told, confidence), told)


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Matrix:
    return made(tmp_path_factory.mktemp("cells"))


@pytest.fixture(scope="module")
def matched(tmp_path_factory: pytest.TempPathFactory) -> Matrix:
    """One with a corpus without a subject, and with as few answers of all."""
    return made(tmp_path_factory.mktemp("matched"), MATCHED)


def with_lost(method: str, corpus: Corpus | None, test: str, seed: int) -> FloatArray:
    """`rote` is better than `lost` and worse than `plain`, so neither of both together; no best one is chosen."""
    return noisy(-0.9, test, method) if method == "lost" else planted(method, corpus, test, seed)


def alike(method: str, corpus: Corpus | None, test: str, seed: int) -> FloatArray:
    return noisy(0.5, test, method, "" if method == "plain" else corpus, seed)


def better_elsewhere(method: str, corpus: Corpus | None, test: str, seed: int) -> FloatArray:
    """Far too unsure at home, elsewhere less so, but in a worse order: `good` and `rote` alike."""
    if corpus is None:
        return noisy(0.3, test, method)
    is_home = corpus.task == test
    sure = noisy(0.5 if is_home else 0.2, test, method, corpus, seed)
    return 0.2 * sure if is_home else 0.35 + 0.5 * sure


def lost(folder: Path) -> Matrix:
    return compute_matrix(cells(folder, about(), with_lost, ("good", "rote", "plain", "lost")), about())


def lacking(folder: Path, told: About | None = None) -> Matrix:
    """`good` has no number with the last seed where it learned on b and is tested on a."""
    told = told or about()
    own = cells(folder, told)
    gone = max(i for i, c in enumerate(own) if (c.method, c.corpus, c.test) == ("good", B, "a"))
    own[gone] = TransferCell("good", "a", B, missing="skipped: nothing to learn")
    return compute_matrix(own, told)


def partial(folder: Path) -> Matrix:
    changes = {"limit": N, "deviations": {"good.steps": 3}, "counts": {"b/train: in a/test": 7},
               "config": {"train_limit": "64"}}  # fmt: skip
    own = [replace(cell, row=replace(cell.row, **changes)) for cell in cells(folder, about()) if cell.row]  # type: ignore[arg-type]
    return compute_matrix(own, about())


def scored(folder: Path) -> Matrix:
    """Scores that one corpus can't scale: their Brier score is unknown there, so their worst one is."""
    told, own = replace(about(), scaled=("scored",)), cells(folder, about())
    for corpus, test in ((corpus, test) for corpus in (A, B) for test in told.tests):
        like = next(c for c in own if c.test == test and c.row and c.path)
        score = noisy(0.6, test, "scored")
        records = replace(files.read_records(like.path), confidence=np.full(N, np.nan) if corpus == B else score)  # type: ignore[arg-type]
        row = replace(like.row, method="scored", config={"on": corpus.task})  # type: ignore[type-var]
        path = files.write(row, replace(records, score=score), folder)  # type: ignore[arg-type]
        own.append(TransferCell("scored", test, corpus, files.read(path), path))
    return compute_matrix(own, told)


def few_right(folder: Path) -> Matrix:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(CORRECT, "b", np.arange(N) < 10)
        return made(folder)


OTHER_HOME = replace(MATCHED, shares=(), homes={"a": "b", "b": "b"})
"""A move to another corpus without the subject pays for the move as well, also with fewer answers."""
ALONE = replace(about(), learners=("good",))

WORLDS: dict[str, Callable[[Path], Matrix]] = {
    "good loses little elsewhere, rote all": made,
    "a method that is told nothing and lost": lost,
    "the same wherever it learned": lambda folder: made(folder, confidence=alike),
    "better elsewhere, in a worse order": lambda folder: made(folder, confidence=better_elsewhere),
    "one method alone": lambda folder: compute_matrix(cells(folder, ALONE, methods=("good",)), ALONE),
    "a cell without a number": lacking,
    "partial, with constants of its own": partial,
    "scores that one corpus can't scale": scored,
    "ten right answers": few_right,
    "a subject left out, and as few answers": lambda folder: made(folder, MATCHED),
    "another home": lambda folder: made(folder, OTHER_HOME),
    "tasks of sources that overlap": lambda folder: made(folder, replace(about(), overlapping=(("a", "b"),))),
}


def words(matrix: Matrix) -> Iterator[str]:
    """Verdict, remarks, and the ranks of the worst cells."""
    yield from verdict(matrix)
    yield from build_analysis(matrix).views.grids[0].remarks
    for each in matrix.worst:
        yield f"worst {each.metric} of {each.method}: rank {each.rank}{f', {each.reason}' if each.reason else ''}"


def test_transfer_words_are_those_of_the_golden_file(tmp_path: Path) -> None:
    found = {name: make(tmp_path / str(i)) for i, (name, make) in enumerate(WORLDS.items())}
    whole = render(build_analysis(found["a subject left out, and as few answers"]).views, "md").splitlines()
    check_golden("transfer.md.txt", as_cases({**{k: words(m) for k, m in found.items()}, "tables": whole}))


def test_partial_matrix_says_so_wherever_it_is(tmp_path: Path) -> None:
    matrix = partial(tmp_path)
    texts = [render(build_analysis(matrix).views, kind, width=100) for kind in ("terminal", "json")]
    for text in (*texts, note(heat_map(matrix, "brier")), section(Shift([matrix]))):
        told = " ".join(text.split())
        for said in ("n = 120 questions of a, 120 questions of b.", "Results are partial (--limit 120).",
                     "Overridden constants: good.steps=3.", "b/train: 7 in a/test.",
                     "(--train-limit 64)"):  # fmt: skip
            assert said in told


@pytest.mark.parametrize(("average", "said"), [("questions", "over all questions"), ("subjects", "mean over subjects")])
def test_transfer_numbers_are_of_questions_or_subjects(tmp_path: Path, average: Average, said: str) -> None:
    def weak(method: str, corpus: Corpus | None, test: str, seed: int) -> FloatArray:
        return noisy(0.1, test, method, corpus) * np.where(PARTS[0], 0.5, 1.0)

    matrix = compute_matrix(cells(tmp_path, about(), weak), about(), settings=Settings(average=average))
    rows = [np.ones(N, dtype=np.bool_)] if average == "questions" else PARTS
    for entry in (each for each in matrix.entries if each.metric == "auroc"):
        sure, o = weak(entry.method, entry.corpus, entry.test, 0), CORRECT[entry.test]
        assert entry.value == pytest.approx(np.mean([auroc(sure[own], o[own]) for own in rows]))
    printed = render(build_analysis(matrix).views, "terminal", width=100)
    for text in (printed, note(heat_map(matrix, "brier")), section(Shift([matrix]))):
        assert said in " ".join(text.split())
    assert json.loads(render(build_analysis(matrix).views, "json"))["average"] == average


def auroc(sure: FloatArray, correct: BoolArray) -> float:
    right, wrong = sure[correct], sure[~correct]
    return float(np.mean((right[:, None] > wrong) + 0.5 * (right[:, None] == wrong)))


def welch(method: str, test: str, one: Corpus, other: Corpus) -> tuple[float, float, float]:
    """By hand: mean difference of losses, p and half of the interval, with Welch's degrees of freedom for strata."""
    loss = [np.square(planted(method, c, test, 0) - CORRECT[test]) for c in (one, other)]
    parts = [(loss[0] - loss[1])[part] for part in PARTS]
    v = np.array([part.var(ddof=1) / part.size for part in parts])
    error, df = np.sqrt(v.sum()) / 3, v.sum() ** 2 / np.sum(v**2 / (np.array([p.size for p in parts]) - 1))
    points = float(np.mean([part.mean() for part in parts]))
    return points, 2 * stats.t.sf(abs(points) / error, df), stats.t.ppf(0.975, df) * error


def holm(p: list[float]) -> list[float]:
    """Of p-values in rising order."""
    return np.maximum.accumulate([min(1.0, (len(p) - i) * value) for i, value in enumerate(p)]).tolist()


def test_transfer_prices_of_brier_are_paired_t_tests(matrix: Matrix) -> None:
    own = sorted((each for each in matrix.prices if each.metric == "brier"), key=lambda price: price.p or 0)
    for price in own:
        points, p, half = welch(price.method, price.test, price.corpus, price.home)
        assert [price.points, price.p] == pytest.approx([points, p], abs=1e-12)
        assert price.interval.ends == pytest.approx((points - half, points + half))
    assert len(own) == 4
    assert [price.p_holm for price in own] == pytest.approx(holm([price.p or 0 for price in own]))


def test_transfer_prices_are_counted_by_metric(matrix: Matrix) -> None:
    fewer = replace(matrix, prices=tuple(p for p in matrix.prices if (p.metric, p.method) != ("auroc", "rote")))
    legends = "\n".join(line for grid in build_analysis(fewer).views.grids for line in grid.legend)
    assert set(re.findall(r"the (\d+) prices of (\w+)", legends)) == {("4", "Brier"), ("2", "AUROC")}


def test_transfer_price_of_subjects_is_against_fewer_answers(matched: Matrix) -> None:
    own = sorted((each for each in matched.novelty if each.metric == "brier"), key=lambda price: price.p or 0)
    assert {(price.method, price.test) for price in own} == {("good", "a"), ("rote", "a")}
    for price in own:
        assert (price.corpus, price.home) == (A_OUT, A_FEWER)
        points, p, _ = welch(price.method, "a", A_OUT, A_FEWER)
        assert [price.points, price.p] == pytest.approx([points, p], abs=1e-12)
        assert price.is_shown
        assert price.points > 0
    assert [price.p_holm for price in own] == pytest.approx(holm([price.p or 0 for price in own]))
    fewer = [price for price in matched.prices if price.corpus == A_FEWER and price.metric == "brier"]
    assert [price.is_shown for price in fewer] == [False, False]
    for method, metric in ((method, metric) for method in ("good", "rote") for metric in ("brier", "auroc")):
        paid = {p.corpus: p.points for p in matched.prices if (p.method, p.metric, p.test) == (method, metric, "a")}
        (new,) = (p.points for p in matched.novelty if (p.method, p.metric) == (method, metric))
        assert paid[A_OUT] == pytest.approx(paid[A_FEWER] + new)


def test_transfer_means_are_shown_after_correction(matched: Matrix) -> None:
    for means, metric in (
        (of, metric) for of in (matched.means, matched.novelty_means) for metric in ("brier", "auroc")
    ):
        own = sorted((mean for mean in means if mean.metric == metric), key=lambda mean: mean.p or 0)
        assert [mean.p_holm for mean in own] == pytest.approx(holm([mean.p or 0 for mean in own]))
    once = replace(matched, means=tuple(replace(mean, p=0.04, p_holm=0.08) for mean in matched.means))
    found = [sentence for sentence in verdict(once) if sentence.startswith("Learning on another corpus")]
    assert ["in 0 of 2 cases, to improve it in 0;" in sentence for sentence in found] == [True]


def test_transfer_prices_of_auroc_are_positive_if_worse(matrix: Matrix) -> None:
    for price in (each for each in matrix.prices if each.metric == "auroc"):
        o = CORRECT[price.test]
        values = [auroc(planted(price.method, c, price.test, 0), o) for c in (price.home, price.corpus)]
        assert price.points == pytest.approx(values[0] - values[1])
        if values == [1, 0]:  # the whole order is turned round, and that varies between no questions
            assert (price.interval.low, price.p) == (None, 1)
            continue
        assert price.interval.low is not None
        assert price.interval.low <= price.points <= (price.interval.high or 0)


def test_transfer_seeds_are_averaged_question_by_question(tmp_path: Path) -> None:
    """A cell that one seed lacks has no number: it would be over fewer seeds than the one that its price is against."""
    matrix = lacking(tmp_path, about(seeds=(0, 1)))
    loss = np.mean([np.square(planted("rote", B, "a", seed) - CORRECT["a"]) for seed in (0, 1)], axis=0)
    found = matrix.entry("rote", B, "a", "brier")
    assert found is not None
    assert found.value == pytest.approx(loss.mean())
    assert matrix.entry("good", B, "a", "brier") is None
    assert not [p for p in matrix.prices if (p.method, p.corpus, p.test) == ("good", B, "a")]
    records = csv.DictReader(io.StringIO(render(build_analysis(matrix).views, "csv")))
    assert any("nothing to learn" in record["reason"] for record in records)
    assert "missing" in [text.get_text() for axes in heat_map(matrix, "brier").axes for text in axes.texts]


def test_transfer_gain_may_lose_order(tmp_path: Path) -> None:
    matrix = made(tmp_path, confidence=better_elsewhere)
    signs = {(mean.metric, (mean.interval.low or 0) > 0, (mean.interval.high or 0) < 0) for mean in matrix.means}
    assert signs == {("brier", False, True), ("auroc", True, False)}


def test_transfer_of_few_right_answers_has_no_spread(tmp_path: Path) -> None:
    matrix = few_right(tmp_path)
    reason = "20 right answers are needed to tell how far AUROC varies, there are 10"
    for numbers in (matrix.entries, matrix.prices):
        assert {each.interval.reason for each in numbers if (each.metric, each.test) == ("auroc", "b")} == {reason}


@pytest.mark.slow
def test_shift_without_effect_is_rarely_shown(tmp_path: Path) -> None:
    """Confidences that are drawn alike wherever a method learned: some price is shown in 5 % of matrices at most."""
    shown = 0
    for draw in range(40):

        def alike(method: str, corpus: Corpus | None, test: str, seed: int, draw: int = draw) -> FloatArray:
            return noisy(0.5, test, method, corpus, seed, draw)

        told = about()
        matrix = compute_matrix(cells(tmp_path / str(draw), told, alike), told, settings=Settings(draws=20))
        shown += any(price.is_shown for price in matrix.prices if price.metric == "brier")
    assert shown <= 7  # more come with a chance of 0.0007 where the level is 0.05


def test_worst_cell_is_the_worst_of_all(matrix: Matrix) -> None:
    for worst in matrix.worst:
        own = [e.value for e in matrix.entries if (e.method, e.metric) == (worst.method, worst.metric)]
        assert worst.value == (max(own) if worst.metric == "brier" else min(own))
    assert {w.method: w.rank for w in matrix.worst if w.metric == "brier"} == {"good": 1, "plain": 2, "rote": 3}


def test_worst_cells_differing_on_three_questions_rank_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of one subject, where each question says the same, so that nothing varies."""

    def nearly_alike(method: str, corpus: Corpus | None, test: str, seed: int) -> FloatArray:
        p = noisy(0.9 if test == "b" else 0.3, test)
        p[:3] = 0.5 + (-0.3 if method == "rote" else 0.3) * (2 * CORRECT[test][:3] - 1)
        return p

    monkeypatch.setattr(shifted, "SUBJECT", ["oak"] * 3 + ["elm"] * (N - 3))
    found = made(tmp_path, confidence=nearly_alike)
    assert {w.method: w.rank for w in found.worst if w.metric == "brier"} == {"good": 1, "plain": 1, "rote": 1}
    rote, good = (next(w.value for w in found.worst if w.method == name) for name in ("rote", "good"))
    assert rote > good


def test_methods_stand_in_the_order_of_their_labels(tmp_path: Path) -> None:
    told = replace(about(), scaled=("plain",))
    matrix = compute_matrix(cells(tmp_path, told, with_lost, ("good", "rote", "plain", "lost")), told)
    assert matrix.methods == ("good", "rote", "plain", "lost")


def test_methods_beat_the_least_clear_of_the_untold(tmp_path: Path) -> None:
    found = {(each.method, each.test): each for each in lost(tmp_path).against_untrained}
    assert {each.untold for each in found.values()} == {("lost", "plain")}
    assert {found["rote", test].p for test in ("a", "b")} == {1.0}
    for test in ("a", "b"):
        good, o = found["good", test], CORRECT[test]
        loss = [np.square(with_lost(name, c, test, 0) - o) for name, c in (("good", good.corpus), ("plain", None))]
        assert good.against == "plain"
        assert good.points == pytest.approx((loss[0] - loss[1]).mean())
        assert 0 < (good.p or 0) <= (good.p_holm or 0) < 0.05


def test_control_of_fewer_answers_has_no_rank(tmp_path: Path) -> None:
    """A control that is worse than everything else moves no worst cell, and no comparison with what is told nothing."""

    def broken(method: str, corpus: Corpus | None, test: str, seed: int) -> FloatArray:
        return noisy(-1.0, test, method) if corpus == A_FEWER else planted(method, corpus, test, seed)

    matrix = made(tmp_path, MATCHED, broken)
    assert A_FEWER not in {each.corpus for each in (*matrix.worst, *matrix.against_untrained)}
    assert {w.method: w.rank for w in matrix.worst if w.metric == "brier"} == {"good": 1, "plain": 2, "rote": 3}


def test_constant_pays_what_the_changed_share_costs(matched: Matrix) -> None:
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
    assert not any(each.method == "share of right answers" for each in (*matched.worst, *matched.prices))


def test_matrix_without_shares_or_controls_lacks_both(matrix: Matrix, tmp_path: Path) -> None:
    assert not matrix.constants
    assert "share of right answers" not in render(build_analysis(matrix).views, "md")
    without = made(tmp_path, about(corpora=(A, B, A_OUT)))
    assert {price.corpus for price in without.prices if price.test == "a"} == {B, A_OUT}
    assert not without.novelty  # nothing of the same size to compare with


@pytest.fixture
def kept(tmp_path: Path) -> tuple[Matrix, Path]:
    """A matrix and its file."""
    own = [*cells(tmp_path, MATCHED), TransferCell("gone", "a", A, missing="skipped: no rows")]
    matrix, path = compute_matrix(own, MATCHED), tmp_path / "tiny--transfer.json"
    path.write_text(render(build_analysis(matrix).views, "json"), encoding="utf-8")
    return matrix, path


def test_stored_matrix_is_computed_again_from_its_results(kept: tuple[Matrix, Path]) -> None:
    matrix, path = kept
    values = json.loads(path.read_text(encoding="utf-8"))
    for entry in values["entries"]:
        entry["value"] = 0.0  # numbers of the file are not believed
    path.write_text(json.dumps(values), encoding="utf-8")
    assert load_matrices(path.parent, {"tiny": ["demo"], "other": ["demo"]}) == [matrix]
    assert load_matrices(path.parent, {"tiny": ["paper"]}) == load_matrices(path.parent, {"other": ["demo"]}) == []
    assert load_matrices(path.parent / "nowhere", {"tiny": ["demo"]}) == []
    assert load_matrices(path.parent, {"tiny": ["paper", "demo"]}, ["elsewhere", matrix.about.tests[0]]) == [matrix]
    assert load_matrices(path.parent, {"tiny": ["demo"]}, ["elsewhere"]) == []


def test_page_asks_for_matrices_of_all_shown_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every preset of a model, and with --tasks of shown tasks alone."""
    asked: list[object] = []

    def noted(_: Path, models: Mapping[str, set[str]], tasks: Collection[str], __: object) -> None:
        asked.append((dict(models), set(tasks)))
        raise UserError("enough")

    monkeypatch.setattr(stored, "load_matrices", noted)
    tables = build([result_row(), result_row(task="mmlu-choice", preset="fixed")])
    for tasks in ((), ("atlas-choice", "mmlu-choice")):
        with pytest.raises(UserError, match="enough"):
            write_tables(tables, ReportRequest(tmp_path, tasks=tasks, out=tmp_path / "r.html"), print)
    assert asked == [({"tiny": {"demo", "fixed"}}, set(shown)) for shown in ((), ("atlas-choice", "mmlu-choice"))]


@pytest.mark.parametrize(
    ("harm", "expected"),
    [
        ("changed", "is no longer the result"), ("gone", "is not there"), ("no cells", "does not say which results"),
        ("no JSON", "is no matrix"), ("elsewhere", "is not there"),
        ("no numbers", "No cell of the matrix has numbers"),
    ],
)  # fmt: skip
def test_stored_matrix_without_its_results_says_why(kept: tuple[Matrix, Path], harm: str, expected: str) -> None:
    matrix, path = kept
    result = path.parent / matrix.cells[0].file
    values = json.loads(path.read_text(encoding="utf-8"))
    if harm == "changed":
        records = files.read_records(result)
        files.write(files.read(result), replace(records, confidence=1 - records.confidence), path.parent)
    elif harm == "gone":
        result.unlink()
    elif harm == "no cells":
        del values["cells"]
    elif harm == "elsewhere":
        values["cells"][0]["file"] = f"../{path.parent.name}/{matrix.cells[0].file}"
    elif harm == "no numbers":
        values["cells"] = []
    path.write_text("{" if harm == "no JSON" else json.dumps(values), encoding="utf-8")
    (found,) = load_matrices(path.parent, {"tiny": ["demo"]})
    assert isinstance(found, UnreadableMatrix)
    assert found.model == "tiny"
    assert expected in found.reason
    assert "bench analyze transfer" in found.reason


def test_cells_of_other_answers_are_left_out(tmp_path: Path) -> None:
    own = cells(tmp_path, about())
    odd = next(cell for cell in own if (cell.method, cell.corpus, cell.test) == ("rote", B, "b"))
    assert odd.row is not None
    other = question_records(np.full(N, 0.5), ~CORRECT["b"], id=[f"b/{i}" for i in range(N)], subject=SUBJECT)
    files.write(odd.row, other, tmp_path)
    (missing,) = compute_matrix(own, about()).missing
    assert (missing.method, missing.corpus, missing.test) == ("rote", B, "b")
    assert "other answers" in missing.reason
    nothing = [TransferCell("good", test, A, missing="skipped: no rows") for test in ("a", "b")]
    with pytest.raises(UserError, match="skipped: no rows"):
        compute_matrix(nothing, about())


def test_transfer_files_say_the_same_as_the_tables(matrix: Matrix, tmp_path: Path) -> None:
    analysis = build_analysis(matrix)
    written = {path.name: path for path in write([analysis], tmp_path / "t")}
    data = json.loads(written["tiny--transfer.json"].read_text(encoding="utf-8"))
    assert data["verdict"] == list(verdict(matrix))
    assert len(data["entries"]) == len(matrix.entries)
    records = list(csv.DictReader(io.StringIO(render(analysis.views, "csv"))))
    price = next(p for p in matrix.prices if p.method == "rote" and p.metric == "brier")
    row = next(r for r in records if r["method"] == "rote" and r["metric"] == "brier" and r["price"])
    assert float(row["price"]) == pytest.approx(price.points)
    svg = written["tiny--transfer--brier.svg"].read_text(encoding="utf-8")
    assert all(name in svg for name in ("good", "rote", "plain", "tested on a"))


def test_heat_map_numbers_stand_beside_their_method(matrix: Matrix) -> None:
    figure = heat_map(matrix, "brier")
    check_golden("looks-transfer.txt", "\n".join(look(figure)))
    texts = [(text.get_text(), text.get_position()[1]) for axes in figure.axes for text in axes.texts]
    heights = {name.get_text(): y for name, y in zip(figure.axes[0].get_yticklabels(), range(9), strict=False)}
    entries = [each for each in matrix.entries if each.metric == "brier"]
    for each in entries:
        beside = [words for words, y in texts if y == pytest.approx(heights[each.method])]
        assert any(words.startswith(format_value("brier", each)) for words in beside)
    assert {each.method for each in entries} == {"good", "rote", "plain"}
