"""`bench table` from files: numbers against scikit-learn, the paper beside ours, comparisons, layouts, bad input."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import average_precision_score, brier_score_loss, log_loss, precision_score, roc_auc_score

from bench.api import UserError
from bench.api.protocol import Protocol
from bench.cli import app
from bench.metrics import METRICS, summarise
from bench.report import recomputed
from bench.report.recomputed import read_recomputed as rows_to_show
from bench.report.selection import Against, AverageOver, Layout, View
from bench.report.tables import formats
from bench.report.tables.build import _NOT_BUILT_IN
from bench.report.tables.grid import TableViews
from bench.report.tables.model import COLUMNS
from bench.report.tables.published import read as published_cells
from bench.report.tables.request import build_views, tables_of
from bench.results.files import read, read_records, stored_path, to_json, write
from bench.results.question_records import QuestionRecords
from bench.results.row import LabelsSeen, ResultRow
from bench.results.submissions.recomputation import recompute_row
from bench.stats import TESTED, Settings, ranks, summary
from bench.store.disk_cache import with_digest

PROTOCOL = Protocol()
N = 120
SUBJECTS = ["onlyright" if k < 10 else f"subject {k % 3}" for k in range(N)]
TRUTH = np.random.default_rng(1).normal(size=N)
CORRECT = (TRUTH + np.random.default_rng(2).normal(size=N) > 0) | (np.arange(N) < 10)
BY_ID = np.argsort([f"q{i}" for i in range(N)])
SKILLS = {"ptrue": 0.1, "litcab": 0.5, "ccps": 0.95}


def put(out: Path, method: str, *, skill: float | None = None, seed: int = 0, **changes: object) -> ResultRow:
    """Write a result as a run does; its confidences are right more often the larger the skill."""
    skill = SKILLS[method] if skill is None else skill
    noise = np.random.default_rng([seed, len(method)]).normal(size=N)
    p = np.round(1 / (1 + np.exp(-2 * (skill * TRUTH + (1 - skill) * noise))), 2).clip(0.01, 0.99)
    scores = summarise(p, CORRECT, SUBJECTS, PROTOCOL)
    row = ResultRow(
        method=method, model="llama8b", task="mmlu-choice", preset="fixed", seed=seed, protocol=PROTOCOL.digest(),
        task_version=1, status="ok", n=N, metrics=scores.metrics, per_subject=scores.per_subject,
        labels_seen=LabelsSeen(4096, 512),
    )  # fmt: skip
    row = replace(row, **changes)
    records = QuestionRecords([f"q{i}" for i in range(N)], SUBJECTS, CORRECT, p, ["a"] * N, np.ones(N, dtype=bool))
    write(row, records, out)
    return row


def fail(out: Path, row: ResultRow, method: str) -> None:
    write(replace(row, method=method, status="failed", reason="loss became NaN", metrics={}, per_subject={}), None, out)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models; on the second one method is missing, and on the first one failed."""
    folder = tmp_path_factory.mktemp("results")
    for seed in (0, 1):
        put(folder, "ccps", seed=seed)
    put(folder, "litcab")
    row = put(folder, "ptrue")
    fail(folder, row, "ct")
    for method in ("ptrue", "ccps"):
        put(folder, method, model="qwen14b")
    return folder


def table(out: Path, cache: Path, **view: object) -> TableViews:
    return build_views(View(out, **view), cache)  # type: ignore[arg-type]


def rows_of(sheet: TableViews) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(formats.render(sheet, "csv"))))


def test_a_mean_edited_in_the_json_file_is_not_shown(tmp_path: Path, cache: Path) -> None:
    put(tmp_path, "ccps")
    put(tmp_path, "ptrue")
    honest = {record["method"]: record for record in rows_of(table(tmp_path, cache))}
    (path,) = tmp_path.rglob("ccps*.json")
    values = json.loads(path.read_text(encoding="utf-8"))
    values["metrics"]["brier"]["mean"] = values["per_subject"]["subject 1"]["brier"] = 0.054
    path.write_text(json.dumps(with_digest(values)), encoding="utf-8")
    for _ in range(2):  # also once all is kept that is kept
        shown = {record["method"]: record for record in rows_of(table(tmp_path, cache))}
        assert shown["ccps"]["brier_mean"] == honest["ccps"]["brier_mean"] != 0.054
        assert "other numbers than its Parquet file" in shown["ccps"]["notes"]
        assert shown["ptrue"] == honest["ptrue"]
    (row,) = (row for row in rows_to_show(tmp_path, cache) if row.method == "ccps")
    assert row.per_subject["subject 1"]["brier"] != 0.054


def test_a_metric_that_a_json_file_lacks_is_computed(tmp_path: Path, cache: Path) -> None:
    """Another version of the program wrote it: nothing in it is wrong, and nothing has to be run again."""
    row = put(tmp_path, "ccps")
    (path,) = tmp_path.rglob("ccps*.json")
    write(recompute_row(row, read_records(path)), read_records(path), tmp_path)
    before = rows_to_show(tmp_path, None)
    values = json.loads(path.read_text(encoding="utf-8"))
    for named in (values["metrics"], *values["per_subject"].values()):
        del named["coverage95"]
    path.write_text(json.dumps(with_digest(values)), encoding="utf-8")
    for _ in range(2):  # computed, then remembered
        (row,) = rows_to_show(tmp_path, cache)
        assert (row.metrics, row.per_subject, row.notes) == (before[0].metrics, before[0].per_subject, ())


def test_a_result_whose_last_run_failed_is_shown_with_a_footnote(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONFBENCH_CACHE", str(tmp_path / "cache"))
    row = put(tmp_path / "results", "ccps")
    put(tmp_path / "results", "ptrue")
    monkeypatch.setenv("COLUMNS", "200")
    before = rows_of(table(tmp_path / "results", tmp_path / "cache"))
    fail(tmp_path / "results", row, "ccps")
    code, said, complaints = command(capsys, monkeypatch, "--results", tmp_path / "results")
    assert (code, complaints) == (0, "")
    assert re.search(r"the last run of seed 0 failed \(20.* UTC: loss became NaN\); shown is the one before", said)
    after = rows_of(table(tmp_path / "results", tmp_path / "cache"))
    assert [(line["method"], line["ece_mean"]) for line in after] == [
        (line["method"], line["ece_mean"]) for line in before
    ]
    page = tmp_path / "report.html"
    monkeypatch.setattr("sys.argv", ["bench", "report", "--results", str(tmp_path / "results"), "--out", str(page)])
    with pytest.raises(SystemExit, match="0"):
        app.main()
    assert "the last run of seed 0 failed" in page.read_text(encoding="utf-8")


def test_a_plugin_is_marked_and_drawn_as_its_folder_says(tmp_path: Path, cache: Path) -> None:
    put(tmp_path, "ccps")
    put(tmp_path, "mine", skill=0.5)
    (tmp_path / "style.toml").write_text('[mine]\ncolour = "#123456"\nmarker = "o"\ndash = "solid"\n')
    (found,) = tables_of(View(tmp_path), cache)
    assert {line.method: _NOT_BUILT_IN in line.notes for line in found.lines} == {"ccps": False, "mine": True}
    assert [(line.method, line.style.colour) for line in found.ordered_lines] == [
        ("mine", "#123456"),
        ("ccps", "#b53a08"),
    ]


def test_numbers_are_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row, path = put(tmp_path, "ccps"), tmp_path / "llama8b/mmlu-choice/ccps--fixed--s0.json"
    row = recompute_row(row, read_records(path))
    write(row, read_records(path), tmp_path)
    said: list[str] = []
    first = rows_to_show(tmp_path, tmp_path / "cache", say=said.append)
    assert len(said) == 1
    monkeypatch.setattr(recomputed.recomputation, "recompute_row", None)
    assert rows_to_show(tmp_path, tmp_path / "cache", say=said.append) == first == [read(path)]
    assert len(said) == 1
    write(replace(row, notes=("x",)), read_records(path), tmp_path)
    with pytest.raises(TypeError, match="not callable"):
        rows_to_show(tmp_path, tmp_path / "cache")


@pytest.mark.parametrize(("bins", "complaint"), [([1], "expected a value of type int"), (10**9, "at most 10,000")])
def test_bins_that_can_t_be_are_named(tmp_path: Path, bins: object, complaint: str) -> None:
    put(tmp_path, "ccps", deviations={"protocol.ece_bins": bins}, config={"protocol.ece_bins": bins})
    with pytest.raises(UserError, match=rf"ccps--fixed--s0--[0-9a-f]{{8}}\.json: .*{complaint}"):
        rows_to_show(tmp_path, None)


# --- every number, again ----------------------------------------------------------------------------------------------


def naive_ece(p: np.ndarray, o: np.ndarray) -> float:
    total = 0.0
    for j in range(10):
        inside = [k for k in range(p.size) if j / 10 <= p[k] < (j + 1) / 10 or (j == 9 and p[k] == 1)]
        if inside:
            total += len(inside) / p.size * abs(np.mean([p[k] for k in inside]) - np.mean([o[k] for k in inside]))
    return total


def naive_rmsce(p: np.ndarray, o: np.ndarray) -> float | None:
    """Root, with its sign, of the mean over answers of the mean product of p - o over pairs of their bin's answers."""
    if p.size < 30:
        return None
    bins = min(15, p.size // 10)
    place = [int(bins * (np.sum(p < each) + np.sum(p <= each))) // (2 * p.size) for each in p]
    total = 0.0
    for j in set(place):
        gap = [p[k] - o[k] for k in range(p.size) if place[k] == j]
        products = [gap[a] * gap[b] for a in range(len(gap)) for b in range(len(gap)) if a != b]
        total += len(gap) / p.size * np.mean(products) if products else 0.0
    return float(np.copysign(np.sqrt(abs(total)), total))


def accuracy(o: np.ndarray, p: np.ndarray) -> float:
    return float(np.mean([(p[k] > 0.5) == o[k] for k in range(p.size)]))


def recalibrated(o: np.ndarray, p: np.ndarray) -> float:
    """Brier of the isotonic fit to the very answers."""
    fit = IsotonicRegression(y_min=0, y_max=1).fit_transform(p, o)
    return float(brier_score_loss(o, fit, labels=[0, 1]))


def covered(o: np.ndarray, p: np.ndarray) -> float:
    """Largest share of answers above some threshold of which 95 % are right."""
    shares = [np.mean(p >= least) for least in set(p) if precision_score(o, p >= least) >= 0.95]
    return float(max(shares, default=0))


def risk_area(o: np.ndarray, p: np.ndarray) -> float:
    """Mean over k of the share of mistakes among the k most confident answers; equal ones are in every order."""
    risk = []
    for k in range(1, p.size + 1):
        least = np.sort(p)[::-1][k - 1]
        above, level = p > least, p == least
        mistakes = np.sum(1 - o[above]) + (k - above.sum()) * np.mean(1 - o[level])
        risk.append(mistakes / k)
    return float(np.mean(risk))


AGAIN = {
    "ece": lambda o, p: naive_ece(p, o),
    "rmsce": lambda o, p: naive_rmsce(p, o),
    "brier": lambda o, p: brier_score_loss(o, p, labels=[0, 1]),
    "acc": accuracy,
    "aucpr": lambda o, p: average_precision_score(o, p) if len(set(o)) > 1 else None,
    "auroc": lambda o, p: roc_auc_score(o, p) if len(set(o)) > 1 else None,
    "nll": lambda o, p: log_loss(o, p, labels=[0, 1]),
    "brier_unc": lambda o, _p: float(np.var(o)),
    "brier_mcb": lambda o, p: brier_score_loss(o, p, labels=[0, 1]) - recalibrated(o, p),
    "brier_dsc": lambda o, p: float(np.var(o)) - recalibrated(o, p),
    "aurc": risk_area,
    "coverage95": covered,
    "eaurc": lambda o, p: risk_area(o, p) - risk_area(o, o.astype(float)),
}


def mean_of(name: str, values: Sequence[float]) -> float:
    """The mean; of `rmsce` the root of that of the squares, which keep their signs."""
    mean = np.mean(np.sign(values) * np.square(values)) if name == "rmsce" else np.mean(values)
    return float(np.copysign(np.sqrt(abs(mean)), mean) if name == "rmsce" else mean)


@pytest.mark.parametrize("average", ["questions", "subjects"])
def test_every_number_comes_out_of_the_parquet_files_again(out: Path, cache: Path, average: str) -> None:
    """Those of all questions at once, or their means over subjects; in JSON and in the table the same."""
    checked = 0
    sheet = table(out, cache, stats=True, average=AverageOver(average))
    told = {(t["model"], line["method"]): line["metrics"] for t in sheet.data() for line in t["lines"]}
    assert {t["average"] for t in sheet.data()} == {average}
    for record in rows_of(sheet):
        assert record["average"] == average
        by_seed = defaultdict(list)
        for path in sorted(out.glob(f"{record['model']}/mmlu-choice/{record['method']}--*.parquet")):
            questions = pq.read_table(path).to_pandas()
            for name, again in AGAIN.items():
                whole, *parts = (
                    again(part["correct"].to_numpy(dtype=int), part["confidence"].to_numpy())
                    for part in (questions, *(each for _, each in questions.groupby("subject")))
                )
                known = [value for value in parts if value is not None]
                by_seed[name].append((whole if average == "questions" else mean_of(name, known), np.std(known)))
        for name, seeds in by_seed.items():
            values, stds = zip(*seeds, strict=True)
            expected = mean_of(name, values)
            assert float(record[f"{name}_mean"]) == pytest.approx(max(0, expected), abs=1e-9)
            assert told[record["model"], record["method"]][name]["mean"] == float(record[f"{name}_mean"])
            assert float(record[f"{name}_std"]) == pytest.approx(np.mean(stds), abs=1e-9)
            if len(seeds) > 1:
                assert float(record[f"{name}_seed_std"]) == pytest.approx(np.std(values, ddof=1), abs=1e-9)
            checked += 1
    assert checked == 5 * len(AGAIN)


def test_printed_numbers_are_the_exact_ones_rounded(out: Path, cache: Path) -> None:
    sheet = table(out, cache)
    exact = {(record["model"], record["method"]): record for record in rows_of(sheet)}
    for grid, model in zip(sheet.grids, ("llama8b", "qwen14b"), strict=True):
        for row in grid.rows:
            record = exact[model, row.cells[0].text]
            for name, cell in zip(COLUMNS, row.cells[2:], strict=False):
                parts = [f"{name}_mean", f"{name}_half", *(["ece_floor"] if name == "ece" else [])]
                signs = ["", " ±", " / "]
                known = [(sign, record[part]) for sign, part in zip(signs, parts, strict=False) if record[part]]
                wanted = "".join(f"{sign}{100 * float(value):.1f}" for sign, value in known)
                assert cell.text == (wanted or "failed")
                if record[f"{name}_half"]:
                    low, mean, high = (float(record[f"{name}_{part}"]) for part in ("low", "mean", "high"))
                    assert float(record[f"{name}_half"]) == pytest.approx(max(low and mean - low, high - mean))


def test_one_class_subjects_are_left_out_and_counted(out: Path, cache: Path) -> None:
    said = "AUROC leaves out 1 of 4 subjects, where it is undefined"
    assert said in table(out, cache, average=AverageOver.SUBJECTS).grids[0].footnotes
    assert said not in table(out, cache).grids[0].footnotes  # that of all questions leaves none out


# --- marks and statistics ---------------------------------------------------------------------------------------------


def test_what_is_best_and_how_sure_is_what_the_tests_say(out: Path, cache: Path) -> None:
    for found in table(out, cache).data():
        lines = {line["method"]: line for line in found["lines"] if line["metrics"]}
        for name in ("brier", "acc", "aucpr"):
            better = max if METRICS[name].higher_is_better else min
            best = better(lines, key=lambda method: lines[method]["metrics"][name]["mean"])
            pairs = [
                pair
                for pair in found["comparisons"]
                if pair["metric"] == name and best in {pair["first"]["method"], pair["second"]["method"]}
            ]
            assert len(pairs) == len(lines) - 1
            is_sure = all(pair["p_corrected"] < 0.05 for pair in pairs)
            assert lines[best]["metrics"][name]["best"] == ("beyond chance" if is_sure else "not beyond chance")
            ranks = {method: line["standing"]["ranks"][name] for method, line in lines.items()}
            assert ranks[best] == 1
            assert not is_sure or sorted(ranks.values())[1] > 1


def test_intervals_name_their_estimand_and_stand_under_their_method(out: Path, cache: Path) -> None:
    sheet = table(out, cache, stats=True)
    assert len(sheet.grids) == 6
    main, calibration, selection = sheet.grids[:3]
    labels = [row.cells[0].text for row in main.rows]
    assert labels == [
        "ccps", "these subjects", "std over subjects", "std between seeds", "litcab", "these subjects",
        "std over subjects", "ptrue", "these subjects", "std over subjects", "ct",
    ]  # fmt: skip
    found = sheet.data()[0]["lines"][0]["metrics"]["brier"]["interval"]
    assert main.rows[1].cells[4].text == f"{100 * found['low']:.1f}\u2013{100 * found['high']:.1f}"
    assert main.remarks == ("no interval (other subjects): 20 subjects are needed to speak of others, there are 4",)
    headings = [column.label for grid in (calibration, selection) for column in grid.columns]
    for label in (
        "p calibrated",
        "ECE floor",
        "smECE ↓",
        "ECE (equal mass) ↓",
        "Brier MCB ↓",
        "NLL ↓",
        "AURC ↓",
        "E-AURC ↓",
    ):
        assert label in headings
    for kind in ("terminal", "md", "tex"):
        assert "these subjects" in formats.render(sheet, kind, width=100)


def test_all_is_in_the_json(out: Path, cache: Path) -> None:
    (first, _) = json.loads(formats.render(table(out, cache), "json"))
    line = next(line for line in first["lines"] if line["method"] == "ccps")
    assert line["standing"]["ranks"]["brier"] == 1
    assert 0 < line["standing"]["p_calibrated"] <= 1
    assert line["metrics"]["auroc"]["interval"]["estimand"] == "fixed-subjects"
    assert line["metrics"]["auroc"]["clustered"]["reason"].startswith("20 subjects")
    assert len(line["metrics"]["brier"]["by_seed"]) == 2
    assert {pair["metric"] for pair in first["comparisons"]} == set(TESTED)
    assert len(first["comparisons"]) == 3 * len(TESTED)


# --- the paper --------------------------------------------------------------------------------------------------------


def test_published_numbers_and_differences_stand_beside_ours(out: Path, cache: Path) -> None:
    cells = published_cells(out)
    sheet = table(out, cache, against=Against.PAPER)
    for record in rows_of(sheet):
        for name in ("ece", "brier", "acc", "aucpr", "auroc"):
            cell = cells[record["model"], "mmlu-choice", record["method"], name]
            assert float(record[f"{name}_published"]) == cell.mean
            assert record[f"{name}_no_target"] == cell.reason
            if record["status"] == "ok":
                difference = float(record[f"{name}_mean"]) - cell.mean
                assert float(record[f"{name}_difference"]) == pytest.approx(difference, abs=1e-12)
    (grid, _) = sheet.grids
    place = next(i for i, row in enumerate(grid.rows) if row.cells[0].text == "ptrue")
    assert [row.cells[0].text for row in grid.rows[place + 1 :]] == ["published", "difference", "ct", "published"]
    ours, published, difference, failed, alone = (row.cells[4].text for row in grid.rows[place:])
    assert published == "39.4 ±4.2"
    gap, half = float(ours.split()[0]) - 39.4, ours.split()[1]
    found = difference.replace("\u2212", "-").split()
    assert (float(found[0]), found[1]) == (pytest.approx(gap, abs=0.051), half)
    assert (failed, alone) == ("failed", "21.1 ±5.7")
    assert [row.cells[3].text for row in grid.rows[place + 1 : place + 3]] == ["", ""]  # the paper has no RMSCE


def test_beside_the_paper_numbers_are_means_over_subjects_as_its_own_unless_others_are_asked_for(
    out: Path, cache: Path
) -> None:
    questions, subjects = (rows_of(table(out, cache, average=average)) for average in AverageOver)
    for average, expected in ((None, subjects), (AverageOver.SUBJECTS, subjects), (AverageOver.QUESTIONS, questions)):
        sheet = table(out, cache, against=Against.PAPER, average=average)
        for record, own in zip(rows_of(sheet), expected, strict=True):
            assert {name: record[name] for name in own} == own
        said = "Numbers are of all questions at once" if expected is questions else "Numbers are means over subjects"
        assert said in " ".join(sheet.grids[0].legend)
    assert rows_of(table(out, cache)) == questions


def test_intervals_ranks_and_tests_are_of_what_is_averaged(out: Path, cache: Path) -> None:
    for average in AverageOver:
        for found in tables_of(View(out, average=average), cache):
            runs = {
                line.key: [read_records(stored_path(row, out)).take(BY_ID) for row in line.ok_rows]
                for line in found.ordered_lines
                if line.ok_rows
            }
            first = next(iter(runs.values()))[0]
            told = summary(
                {key.method: np.stack([run.confidence for run in records]) for key, records in runs.items()},
                first.correct, first.subject, Settings(average=average.value),
            )  # fmt: skip
            able = [line.method for line in found.lines if line.ok_rows and line.orders_answers]
            expected = {**told.ranks, "rmsce": ranks(able, told.comparisons["rmsce"])}
            for line in found.lines:
                for name, estimate in told.methods[line.method].estimates.items() if line.ok_rows else ():
                    assert line.estimate(name).standing == estimate
                    assert line.standing
                    assert line.rank(name) == expected[name].get(line.method)
            pairs = [pair for of_metric in told.comparisons.values() for pair in of_metric]
            assert [pair.p_corrected for pair in found.standings.pairs] == [pair.p_corrected for pair in pairs]


def test_what_is_no_target_has_a_footnote_with_the_reason(out: Path, cache: Path) -> None:
    (grid, _) = table(out, cache, against=Against.PAPER).grids
    place = next(i for i, row in enumerate(grid.rows) if row.cells[0].text == "litcab")
    cell = grid.rows[place + 1].cells[2]
    assert cell.text == "10.9 ±4.8"
    assert cell.notes == ("no target: answers with confidence 1 fell into no bin",)
    assert "answers with confidence 1" in formats.render(
        table(out, cache, against=Against.PAPER), "terminal", width=100
    )


def test_what_the_paper_does_not_have_takes_no_row_and_where_it_has_nothing_that_is_one_sentence(
    tmp_path: Path, cache: Path
) -> None:
    put(tmp_path, "ccps", model="tiny", task="atlas-choice")
    put(tmp_path, "ccps+platt", skill=0.9)
    put(tmp_path, "ptrue")
    known, unknown = table(tmp_path, cache, against=Against.PAPER).grids
    assert unknown.remarks == ("The paper has nothing to compare tiny on atlas-choice with.",)
    assert [row.cells[0].text for row in unknown.rows] == ["ccps"]
    assert "Published" not in " ".join(unknown.legend)
    assert [row.cells[0].text for row in known.rows] == ["ptrue", "published", "difference", "ccps+platt"]
    assert known.remarks == ()
    (chosen,) = table(tmp_path, cache, against=Against.PAPER, metrics=("nll", "auroc"), models=("llama8b",)).grids
    under = [[cell.text for cell in row.cells[1:3]] for row in chosen.rows if row.is_subrow]
    assert [row[:1] for row in under] == [[""], [""]]  # the paper has no NLL; a method alone has no rank
    assert all(row[1] for row in under)


# --- comparisons ------------------------------------------------------------------------------------------------------


def test_differences_are_taken_in_the_order_named(out: Path, cache: Path) -> None:
    one, other = (table(out, cache, compare=names) for names in (("ccps", "ptrue"), ("ptrue", "ccps")))
    for a, b in zip(rows_of(one), rows_of(other), strict=True):
        assert (a["first"], b["first"]) == ("ccps", "ptrue")
        assert float(a["difference"]) == -float(b["difference"])
        assert (float(a["difference"]) > 0) is bool(METRICS[a["metric"]].higher_is_better)
        assert (float(a["low"]), float(a["high"])) == (-float(b["high"]), -float(b["low"]))
        assert (a["p"], a["p_corrected"], a["verdict"]) == (b["p"], b["p_corrected"], b["verdict"])
        assert a["verdict"] == ("ccps is better" if float(a["p_corrected"]) < 0.05 else "can't be distinguished")
        assert float(a["p"]) <= float(a["p_corrected"])
    assert [record["metric"] for record in rows_of(one)] == [*TESTED] * 2


def test_a_comparison_is_that_of_the_means(out: Path, cache: Path) -> None:
    means = {(r["model"], r["method"]): float(r["brier_mean"]) for r in rows_of(table(out, cache)) if r["seeds"] != "0"}
    for record in rows_of(table(out, cache, compare=("ccps", "ptrue"))):
        if record["metric"] == "brier":
            gap = means[record["model"], "ccps"] - means[record["model"], "ptrue"]
            assert float(record["difference"]) == pytest.approx(gap, abs=1e-12)


def test_a_comparison_says_what_is_missing(out: Path, cache: Path) -> None:
    sheet = table(out, cache, compare=("ccps", "litcab", "ct"))
    assert sheet.grids[0].remarks == ("ct failed: loss became NaN",)
    assert sheet.grids[1].remarks == (
        "litcab was not run with qwen14b on mmlu-choice", "ct was not run with qwen14b on mmlu-choice",
    )  # fmt: skip
    for kind in ("terminal", "md", "tex", "csv", "json"):
        assert "ccps" in formats.render(sheet, kind, width=80)
    assert "litcab was not run with qwen14b" in formats.render(sheet, "terminal", width=80)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            ("ccps", "litcap"),
            r"no result of method 'litcap'; there are ccps, ct, litcab, ptrue. Did you mean 'litcab'\?",
        ),
        (("ccps",), "expected at least two different methods, got ccps"),
        (("ccps", "ccps"), "expected at least two different methods, got ccps"),
        ((), "expected at least two different methods, got none"),
    ],
)
def test_names_that_cannot_be_compared(out: Path, cache: Path, names: tuple[str, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        table(out, cache, compare=names)


@pytest.mark.parametrize(
    ("view", "message"),
    [
        (
            {"compare": ("a", "b"), "against": Against.PAPER},
            "--compare makes a table of its own, .*; leave out --against",
        ),
        ({"compare": ("a", "b"), "stats": True, "layout": Layout.MODELS}, "leave out --stats and --layout models"),
        ({"compare": ("a", "b"), "methods": ("a",)}, "of the methods that it names; leave out --method"),
        ({"compare": ("a", "b"), "headline": "brier"}, "leave out --sort"),
        ({"compare": ("ccps", "ptrue"), "metrics": ("ece", "aurc")}, "--compare: aurc has no test; there are tests of"),
        ({"layout": Layout.MODELS, "stats": True}, "--layout models has no room for --stats"),
    ],
)
def test_options_that_exclude_each_other(out: Path, cache: Path, view: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        table(out, cache, **view)


# --- two models side by side ------------------------------------------------------------------------------------------


def test_two_models_stand_side_by_side(out: Path, cache: Path) -> None:
    sheet = table(out, cache, layout=Layout.MODELS)
    (grid,) = sheet.grids
    assert [column.span for column in grid.columns] == ["", *["llama8b"] * 7, *["qwen14b"] * 7]
    rows = {row.cells[0].text: row for row in grid.rows}
    exact = {(record["model"], record["method"]): record for record in rows_of(sheet)}

    def mean(method: str) -> float:
        return sum(float(exact[model, method]["brier_mean"]) for model in ("llama8b", "qwen14b"))

    assert list(rows) == [*sorted(("ptrue", "ccps"), key=mean), "litcab", "ct"]  # what one model lacks comes last
    for place, model in ((1, "llama8b"), (8, "qwen14b")):
        mark = "▸" * int(exact[model, "ccps"]["leading"])
        assert rows["ccps"].cells[place].text == f"{mark}{exact[model, 'ccps']['rank']}"
        assert rows["ccps"].cells[place + 1].text == f"{100 * float(exact[model, 'ccps']['ece_mean']):.1f}"
    assert {cell.text for cell in rows["litcab"].cells[8:]} == {"\u2013"}
    assert rows["litcab"].cells[9].notes == ("litcab was not run with qwen14b on mmlu-choice",)
    assert r"\multicolumn{7}{c}{qwen14b}" in formats.render(sheet, "tex")
    assert "qwen14b AUROC ↑" in formats.render(sheet, "md")


def test_the_published_numbers_of_a_method_that_was_not_run_are_there(out: Path, cache: Path) -> None:
    (grid,) = table(out, cache, layout=Layout.MODELS, against=Against.PAPER).grids
    place = next(i for i, row in enumerate(grid.rows) if row.cells[0].text == "litcab")
    assert [cell.text for cell in grid.rows[place + 1].cells[8:]] == ["", "45.6", "", "20.0", "78.3", "83.7", "65.3"]
    assert {cell.text for cell in grid.rows[place + 2].cells[8:]} == {""}


def test_models_come_in_blocks_of_two_in_the_order_of_the_list(tmp_path: Path, cache: Path) -> None:
    for model in ("somebodys", "qwen32b", "llama8b"):
        put(tmp_path, "ccps", model=model)
    assert [grid.facts[0] for grid in table(tmp_path, cache, layout=Layout.MODELS).grids[1:]] == [
        "llama8b and qwen32b on mmlu-choice", "somebodys on mmlu-choice",
    ]  # fmt: skip


def test_what_does_not_belong_side_by_side_is_refused(tmp_path: Path, cache: Path) -> None:
    put(tmp_path, "ccps")
    put(tmp_path, "ccps", model="qwen14b", preset="paper")
    assert len(table(tmp_path, cache).grids) == 2
    with pytest.raises(
        UserError, match="presets fixed, paper, which don't belong side by side; choose one with --preset"
    ):
        table(tmp_path, cache, layout=Layout.MODELS)
    (alone,) = table(tmp_path, cache, layout=Layout.MODELS, preset="paper").grids
    assert {column.span for column in alone.columns} == {""}  # its name stands in the caption


def test_a_narrow_terminal_puts_models_below_one_another(out: Path, cache: Path) -> None:
    text = formats.render(table(out, cache, layout=Layout.MODELS), "terminal", width=70)
    assert max(map(len, text.splitlines())) <= 70
    assert len(re.findall(r"^method +rank +ECE ↓", text, re.MULTILINE)) == 2
    assert len(re.findall(r"^ +llama8b$", text, re.MULTILINE)) == 1


# --- the command, and bad input ---------------------------------------------------------------------------------------


def command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: object
) -> tuple[int, str, str]:
    monkeypatch.setattr("sys.argv", ["bench", "table", *map(str, arguments)])
    monkeypatch.setenv("COLUMNS", "100")
    try:
        app.main()
        code = 0
    except SystemExit as stop:
        code = int(stop.code or 0)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def spoil(out: Path, what: str) -> None:
    (path,) = out.rglob("ccps*.json")
    if what == "no parquet":
        path.with_suffix(".parquet").unlink()
    elif what == "nan":
        records = read_records(path)
        write(read(path), replace(records, confidence=np.array([np.nan, *records.confidence[1:]])), out)
    elif what == "schema":
        path.write_text(
            path.read_text(encoding="utf-8").replace('"schema_version": 5', '"schema_version": 1'), encoding="utf-8"
        )
    elif what == "empty":
        for file in list(out.rglob("*.*")):
            file.unlink()
    else:
        row = put(out, "litcab", skill=0.5, preset="paper") if what == "presets" else put(out, "litcab", task_version=7)
        assert to_json(row)


@pytest.mark.parametrize(
    ("what", "complaint"),
    [
        ("empty", "there are no results to show; run something first: bench run"),
        ("no parquet", r"ccps--fixed--s0\.json has no ccps--fixed--s0\.parquet beside it"),
        ("nan", r"ccps--fixed--s0\.parquet: confidence nan in row 0; expected values in \[0, 1\]"),
        ("schema", "schema version 1; this program reads version 5"),
        ("presets", "have presets fixed, paper, which don't belong in one table; choose one with --preset"),
        ("versions", "have task versions 1, 7, which don't belong in one table"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, what: str, complaint: str
) -> None:
    monkeypatch.setenv("CONFBENCH_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "results"
    put(folder, "ccps")
    put(folder, "ptrue")
    spoil(folder, what)
    code, said, complaints = command(capsys, monkeypatch, "--results", folder)
    assert (code, said) == (2, "")
    assert re.search(complaint, complaints.replace("\n", " "))
    assert "Traceback" not in complaints
    assert list(tmp_path.rglob("*.tmp")) == []
