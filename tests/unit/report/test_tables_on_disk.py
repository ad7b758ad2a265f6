"""`bench table` from files: every number again, the paper beside ours, comparisons, traces."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from bench import load_results
from bench.api import UserError
from bench.metrics import METRICS
from bench.report.competition import displayed_value
from bench.report.grouping import group_rows
from bench.report.guard import build_analysis as build_guards
from bench.report.guard.compute import compute_guards
from bench.report.recomputed import read_recomputed
from bench.report.selection import Against, AverageOver, GuardRequest, View
from bench.report.tables import formats
from bench.report.tables.build import _NOT_BUILT_IN
from bench.report.tables.caption import distinguishing_labels
from bench.report.tables.grid import Grid, GridRow, TableViews
from bench.report.tables.published import read as published_cells
from bench.report.tables.reasoning import paired_views
from bench.report.tables.request import build_views, tables_of
from bench.report.text import EN_DASH
from bench.results import files
from bench.results.cells import read_all
from bench.results.files import read, read_records, stored_path, write
from bench.results.row import LabelsSeen, ResultRow, answers_after_traces
from bench.results.submissions import recomputation
from bench.stats import TESTED
from bench.store.disk_cache import with_digest
from tests.kit import command
from tests.kit.world import Answers, question_records, result_row, write_failure, write_result

N = 120
SUBJECTS = ["onlyright" if k < 10 else f"subject {k % 3}" for k in range(N)]
ANSWERS = Answers.drawn(N, seed=1, noise=1.0)
CORRECT = ANSWERS.correct | (np.arange(N) < 10)
SKILLS = {"ptrue": 0.1, "litcab": 0.5, "ccps": 0.95, "mine": 0.5, "ccps+platt": 0.9}
PLACE: dict[str, Any] = {"model": "llama8b", "task": "mmlu-choice", "preset": "fixed"}


def put(out: Path, method: str, *, seed: int = 0, **changes: Any) -> ResultRow:
    """Write a result with confidences of two digits."""
    confidence = ANSWERS.confidences(SKILLS[method], seed + 10 * len(method), slope=2.0).round(2).clip(0.01, 0.99)
    fields = {**PLACE, "subject": SUBJECTS, "labels_seen": LabelsSeen(4096, 512), "seed": seed, **changes}
    return write_result(out, method, confidence, CORRECT, **fields)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models; on the second one method is missing, and on the first one failed."""
    folder = tmp_path_factory.mktemp("results")
    for method, seed in (("ccps", 0), ("ccps", 1), ("litcab", 0), ("ptrue", 0)):
        put(folder, method, seed=seed)
    write_failure(folder, "ct", "loss became NaN", **PLACE)
    for method in ("ptrue", "ccps"):
        put(folder, method, model="qwen14b")
    return folder


def table(out: Path, cache: Path, **view: Any) -> TableViews:
    return build_views(View(out, **view), cache)


def rows_of(sheet: TableViews) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(formats.render(sheet, "csv"))))


def by_method(sheet: TableViews) -> dict[str, dict[str, str]]:
    return {record["method"]: record for record in rows_of(sheet)}


def first_cells(grid: Grid) -> list[str]:
    return [row.cells[0].text for row in grid.rows]


def rows_from(grid: Grid, method: str) -> tuple[GridRow, ...]:
    return grid.rows[first_cells(grid).index(method) :]


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a JSON file, with its digest."""
    values = json.loads(path.read_text(encoding="utf-8"))
    change(values)
    path.write_text(json.dumps(with_digest(values)), encoding="utf-8")


def test_mean_edited_in_a_json_file_is_ignored(tmp_path: Path, cache: Path) -> None:
    put(tmp_path, "ccps")
    put(tmp_path, "ptrue")
    honest = by_method(table(tmp_path, cache))
    (path,) = tmp_path.rglob("ccps*.json")
    edit(path, lambda values: values["metrics"]["brier"].update(mean=0.054))
    edit(path, lambda values: values["per_subject"]["subject 1"].update(brier=0.054))
    for _ in range(2):  # also once all is kept that is kept
        shown = by_method(table(tmp_path, cache))
        assert shown["ccps"]["brier_mean"] == honest["ccps"]["brier_mean"]
        assert "other numbers than its Parquet file" in shown["ccps"]["notes"]
        assert shown["ptrue"] == honest["ptrue"]
    (row,) = (row for row in read_recomputed(tmp_path, cache) if row.method == "ccps")
    assert row.per_subject["subject 1"]["brier"] != 0.054


def test_metric_that_a_json_file_lacks_is_computed(tmp_path: Path, cache: Path) -> None:
    """Another version of the program wrote it: nothing in it is wrong, and nothing has to be run again."""
    before = put(tmp_path, "ccps")
    (path,) = tmp_path.rglob("ccps*.json")
    edit(path, lambda values: [of.pop("coverage95") for of in (values["metrics"], *values["per_subject"].values())])
    for _ in range(2):  # computed, then remembered
        (row,) = read_recomputed(tmp_path, cache)
        assert (row.metrics, row.per_subject, row.notes) == (before.metrics, before.per_subject, ())


def test_numbers_are_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = put(tmp_path, "ccps")
    path, said = stored_path(row, tmp_path), list[str]()
    first = read_recomputed(tmp_path, tmp_path / "cache", say=said.append)
    assert len(said) == 1
    monkeypatch.setattr(recomputation, "recompute_row", None)
    assert read_recomputed(tmp_path, tmp_path / "cache", say=said.append) == first == [read(path)]
    assert len(said) == 1
    write(replace(row, notes=("x",)), read_records(path), tmp_path)
    with pytest.raises(TypeError, match="not callable"):
        read_recomputed(tmp_path, tmp_path / "cache")


@pytest.mark.parametrize(("bins", "complaint"), [([1], "expected a value of type int"), (10**9, "at most 10,000")])
def test_bins_that_cannot_be_are_named(tmp_path: Path, bins: object, complaint: str) -> None:
    odd = {"protocol.ece_bins": bins}
    write(result_row(**PLACE, config=odd, deviations=odd), question_records([0.5], [True]), tmp_path)
    with pytest.raises(UserError, match=rf"ccps--fixed--s0--[0-9a-f]{{8}}\.json: .*{complaint}"):
        read_recomputed(tmp_path, None)


def test_result_whose_last_run_failed_has_a_footnote(tmp_path: Path) -> None:
    folder, env = tmp_path / "results", {"CONFBENCH_CACHE": str(tmp_path / "cache")}
    put(folder, "ccps")
    put(folder, "ptrue")
    before = by_method(table(folder, tmp_path / "cache"))
    write_failure(folder, "ccps", "loss became NaN", **PLACE)
    done = command.bench("table", "--results", folder, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(
        r"the last run of seed 0 failed \(20.* UTC: loss became NaN\); shown is the one before", done.stdout
    )
    after = by_method(table(folder, tmp_path / "cache"))
    assert {name: of["ece_mean"] for name, of in after.items()} == {name: of["ece_mean"] for name, of in before.items()}
    assert not command.bench("report", "--results", folder, "--out", tmp_path / "report.html", env=env).returncode
    assert "the last run of seed 0 failed" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_plugin_is_marked_and_drawn_by_its_folder(tmp_path: Path, cache: Path) -> None:
    put(tmp_path, "ccps")
    put(tmp_path, "mine")
    (tmp_path / "style.toml").write_text('[mine]\ncolour = "#123456"\nmarker = "o"\ndash = "solid"\n')
    (found,) = tables_of(View(tmp_path), cache)
    assert {line.method: _NOT_BUILT_IN in line.notes for line in found.lines} == {"ccps": False, "mine": True}
    drawn = [(line.method, line.style.colour) for line in found.ordered_lines]
    assert drawn == [("mine", "#123456"), ("ccps", "#b53a08")]


COMPUTED = [name for name in METRICS if name not in {"ece_floor", "ece_debiased"}]  # which are drawn


@pytest.mark.parametrize("average", ["questions", "subjects"])
def test_numbers_are_those_of_the_parquet_files(out: Path, cache: Path, average: str) -> None:
    """Those of all questions at once, or their means over subjects; in JSON and in the table the same."""

    def compute(name: str, questions: Any) -> float | None:
        return METRICS[name].compute(questions["confidence"].to_numpy(), questions["correct"].to_numpy())

    checked = 0
    sheet = table(out, cache, stats=True, average=AverageOver(average))
    told = {(t["model"], line["method"]): line["metrics"] for t in sheet.data() for line in t["lines"]}
    assert {t["average"] for t in sheet.data()} == {average}
    for record in rows_of(sheet):
        assert record["average"] == average
        by_seed = defaultdict(list)
        for path in sorted(out.glob(f"{record['model']}/mmlu-choice/{record['method']}--*.parquet")):
            questions = pq.read_table(path).to_pandas()
            for name in COMPUTED:
                parts = [compute(name, part) for _, part in questions.groupby("subject")]
                known = [value for value in parts if value is not None]
                whole = compute(name, questions) if average == "questions" else METRICS[name].mean(known)
                by_seed[name].append((whole, np.std(known)))
        for name, seeds in by_seed.items():
            values, stds = zip(*seeds, strict=True)
            expected = METRICS[name].mean(values)
            assert float(record[f"{name}_mean"]) == pytest.approx(displayed_value(name, expected or 0), abs=1e-9)
            assert told[record["model"], record["method"]][name]["mean"] == float(record[f"{name}_mean"])
            assert float(record[f"{name}_std"]) == pytest.approx(np.mean(stds), abs=1e-9)
            if len(seeds) > 1:
                assert float(record[f"{name}_seed_std"]) == pytest.approx(np.std(values, ddof=1), abs=1e-9)
            checked += 1
    assert checked == 5 * len(COMPUTED)
    for line in (line for found in tables_of(View(out, average=AverageOver(average)), cache) for line in found.lines):
        for name in TESTED if line.ok_rows else ():
            mean, standing = line.estimate(name).mean, line.estimate(name).standing
            assert standing
            assert displayed_value(name, standing.value or 0) == pytest.approx(mean)


FORMATS = ("terminal", "md", "tex", "csv", "json")


@pytest.mark.parametrize("kind", FORMATS)
def test_skipped_runs_are_told_in_each_format(tmp_path: Path, kind: str) -> None:
    """Of a method and of a single seed; in tables, comparisons and guards."""
    for method, seed in (("ccps", 0), ("ccps", 1), ("ptrue", 0), ("ptrue", 1), ("litcab", 0)):
        put(tmp_path, method, seed=seed)
    reasons = ("litcab", "no room left", 1), ("pik", "three hours", 0)
    for method, reason, seed in reasons:
        write_failure(tmp_path, method, reason, status="skipped", seed=seed, **PLACE)
    cache, names = tmp_path / "cache", ("ccps", "litcab", "pik")
    guards = compute_guards(GuardRequest(tmp_path, risk=0.3), cache, lambda _: None)
    for views in (
        *(build_views(View(tmp_path, compare=compare), cache) for compare in (None, names, ("litcab", "pik"))),
        build_guards(guards).views,
    ):
        text = " ".join(formats.render(views, kind, width=200).split())
        assert [reason for _, reason, _ in reasons if reason not in text] == [], text


@pytest.mark.parametrize(("subjects", "shown"), [(1, {EN_DASH}), (2, {"number"})])
def test_spread_over_one_subject_is_a_dash(tmp_path: Path, subjects: int, shown: set[str]) -> None:
    answers = Answers.drawn(120)
    write_result(tmp_path, "ccps", answers.confidences(0.9, 1), answers.correct, subjects=subjects)
    view = View(tmp_path, stats=True, metrics=("ece", "brier", "auroc"))
    text = formats.render(build_views(view, tmp_path / "cache"), "md")
    (cells,) = re.findall(r"^\| &emsp;std over subjects \|(.*)\|$", text, flags=re.MULTILINE)[:1]
    found = {cell.strip() for cell in cells.split("|")} - {""}
    assert {"number" if re.fullmatch(r"\d+\.\d", cell) else cell for cell in found} == shown
    frame = load_results(tmp_path, cache=tmp_path / "cache", quiet=True).frame()
    assert frame["std"].isna().all() == (subjects == 1)
    (record,) = csv.DictReader(io.StringIO(formats.render(build_views(view, tmp_path / "cache"), "csv")))
    assert (record["brier_std"] == "") == (subjects == 1)


def test_published_numbers_and_differences_stand_beside_ours(out: Path, cache: Path) -> None:
    cells = published_cells(out)
    sheet = table(out, cache, against=Against.PAPER)
    for record in rows_of(sheet):
        for name in ("ece", "brier", "acc", "aucpr", "auroc"):
            cell = cells[record["model"], "mmlu-choice", record["method"], name]
            assert float(record[f"{name}_published"]) == cell.mean
            assert record[f"{name}_no_target"] == cell.reason
            if record["status"] == "ok":
                ahead = float(record[f"{name}_mean"]) - cell.mean
                assert float(record[f"{name}_difference"]) == pytest.approx(ahead, abs=1e-12)
    rows = rows_from(sheet.grids[0], "ptrue")
    assert [row.cells[0].text for row in rows[1:]] == ["published", "difference", "ct", "published"]
    ours, published, difference, failed, alone = (row.cells[4].text for row in rows)
    assert (published, failed, alone) == ("39.4 ±4.2", "failed", "21.1 ±5.7")
    own, gap = ours.split(), difference.replace("\u2212", "-").split()
    assert gap[1] == own[1]
    assert float(gap[0]) == pytest.approx(float(own[0]) - 39.4, abs=0.051)
    assert [row.cells[3].text for row in rows[1:3]] == ["", ""]  # the paper has no RMSCE
    no_target = rows_from(sheet.grids[0], "litcab")[1].cells[2]
    assert (no_target.text, no_target.notes) == (
        "10.9 ±4.8", ("no target: answers with confidence 1 fell into no bin",)
    )  # fmt: skip
    assert "answers with confidence 1" in formats.render(sheet, "terminal", width=100)


@pytest.mark.parametrize(
    ("average", "same"), [(None, "subjects"), (AverageOver.SUBJECTS, "subjects"), (AverageOver.QUESTIONS, "questions")]
)
def test_paper_comparison_takes_means_over_subjects_unless_asked(
    out: Path, cache: Path, average: AverageOver | None, same: str
) -> None:
    sheet = table(out, cache, against=Against.PAPER, average=average)
    for record, own in zip(rows_of(sheet), rows_of(table(out, cache, average=AverageOver(same))), strict=True):
        assert {name: record[name] for name in own} == own
    said = {"questions": "Numbers are of all questions at once", "subjects": "Numbers are means over subjects"}
    assert said[same] in " ".join(sheet.grids[0].legend)
    assert {record["average"] for record in rows_of(table(out, cache))} == {"questions"}


def test_paper_without_a_number_takes_no_row(tmp_path: Path, cache: Path) -> None:
    put(tmp_path, "ccps", model="tiny", task="atlas-choice")
    put(tmp_path, "ccps+platt")
    put(tmp_path, "ptrue")
    known, unknown = table(tmp_path, cache, against=Against.PAPER).grids
    assert unknown.remarks == ("The paper has nothing to compare tiny on atlas-choice with.",)
    assert first_cells(unknown) == ["ccps"]
    assert "Published" not in " ".join(unknown.legend)
    assert (first_cells(known), known.remarks) == (["ptrue", "published", "difference", "ccps+platt"], ())
    (chosen,) = table(tmp_path, cache, against=Against.PAPER, metrics=("nll", "auroc"), models=("llama8b",)).grids
    under = [[cell.text for cell in row.cells[1:3]] for row in chosen.rows if row.is_subrow]
    assert [row[:1] for row in under] == [[""], [""]]  # the paper has no NLL; a method alone has no rank
    assert all(row[1] for row in under)


def test_differences_are_of_the_means_as_named(out: Path, cache: Path) -> None:
    one, other = (rows_of(table(out, cache, compare=names)) for names in (("ccps", "ptrue"), ("ptrue", "ccps")))
    means = {(r["model"], r["method"]): float(r["brier_mean"]) for r in rows_of(table(out, cache)) if r["seeds"] != "0"}
    assert [record["metric"] for record in one] == [*TESTED] * 2
    for a, b in zip(one, other, strict=True):
        assert (a["first"], b["first"]) == ("ccps", "ptrue")
        assert float(a["difference"]) == -float(b["difference"])
        assert (float(a["difference"]) > 0) is bool(METRICS[a["metric"]].higher_is_better)
        assert (float(a["low"]), float(a["high"])) == (-float(b["high"]), -float(b["low"]))
        assert (a["p"], a["p_corrected"], a["verdict"]) == (b["p"], b["p_corrected"], b["verdict"])
        assert a["verdict"] == ("ccps is better" if float(a["p_corrected"]) < 0.05 else "can't be distinguished")
        assert float(a["p"]) <= float(a["p_corrected"])
        if a["metric"] == "brier":
            gap = means[a["model"], "ccps"] - means[a["model"], "ptrue"]
            assert float(a["difference"]) == pytest.approx(gap, abs=1e-12)


def test_comparison_says_which_results_are_missing(out: Path, cache: Path) -> None:
    sheet = table(out, cache, compare=("ccps", "litcab", "ct"))
    assert sheet.grids[0].remarks == ("ct failed: loss became NaN",)
    assert sheet.grids[1].remarks == (
        "litcab has no result in the table of qwen14b on mmlu-choice",
        "ct has no result in the table of qwen14b on mmlu-choice",
    )  # fmt: skip
    assert all("ccps" in formats.render(sheet, kind, width=80) for kind in ("terminal", "md", "tex", "csv", "json"))
    assert "litcab has no result in the table of qwen14b" in formats.render(sheet, "terminal", width=80)


@pytest.mark.parametrize(
    ("view", "message"),
    [
        ({"compare": ("ccps", "litcap")}, r"no result of method 'litcap'; there are ccps, .* mean 'litcab'\?"),
        ({"compare": ("P(True)", "PTRUE")}, "expected at least two different methods, got ptrue"),
        ({"compare": ("ccps",)}, "expected at least two different methods, got ccps"),
        ({"compare": ()}, "expected at least two different methods, got none"),
        ({"compare": ("a", "b"), "against": Against.PAPER}, "makes a table of its own, .*; leave out --against"),
        ({"compare": ("a", "b"), "stats": True, "headline": "brier"}, "leave out --stats and --sort"),
        ({"compare": ("a", "b"), "methods": ("a",)}, "of the methods that it names; leave out --method"),
        ({"compare": ("ccps", "ptrue"), "metrics": ("ece", "aurc")}, "--compare: aurc has no test; there are tests of"),
    ],
)
def test_options_that_exclude_each_other(out: Path, cache: Path, view: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        table(out, cache, **view)


TRACED: dict[str, Any] = {
    "answers_source": answers_after_traces("generate", 320), "config": {"think_budget": 320, "thinking": "template"},
    "counts": {
        "atlas-choice/test: empty traces": 3, "atlas-choice/train: empty traces": 9,
        "atlas-choice/test: outputs with a second end marker, divided at the first": 2,
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two methods without traces, and with: more answers are right, and `ptrue` tells them better."""
    folder = tmp_path_factory.mktemp("results")
    before, after = (Answers.drawn(400, seed=1, threshold=at) for at in (0.6, -0.4))
    for answers, fields, skill, tokens in ((before, {}, 0.1, 400), (after, TRACED, 1.0, 90_000)):
        for method, own in (("ptrue", skill), ("sequence-probability", 0.5)):
            write_result(
                folder, method, answers.confidences(own, 9), answers.correct, test_generated_tokens=tokens, n=400,
                llm_accuracy=float(answers.correct.mean()), **fields,
            )  # fmt: skip
    return folder


def test_tables_never_mix_answers_with_and_without_traces(traces: Path) -> None:
    groups = group_rows(read_all(traces), preset=None, deviations=False, partial=False)
    assert [{row.answers_source for row in group.rows} for group in groups] == [
        {"generate"}, {"generate after traces of at most 320 tokens"}
    ]  # fmt: skip
    assert distinguishing_labels([group.rows for group in groups]) == ["", "after traces of at most 320 tokens"]
    assert len({path.name for path in traces.rglob("*.json")}) == 4


def test_table_pairs_answers_with_traces_and_without(traces: Path) -> None:
    views = build_views(View(traces), None)
    assert len(views.grids) == 3
    title, *facts = views.grids[2].facts
    assert title == "tiny on atlas-choice, with traces of at most 320 tokens against without: paired differences"
    rows = {(row.cells[0].text, row.cells[2].text): row.cells for row in views.grids[2].rows}
    shares = {
        name: read.correct.mean()
        for name, read in ((path.stem, files.read_records(path)) for path in traces.rglob("ptrue*.parquet"))
    }
    gain = 100 * abs(np.subtract(*shares.values()))
    what = "outputs with a second end marker, divided at the first"
    more, fewer = (f"{100 * share * (1 - share):.1f}" for share in sorted(shares.values(), reverse=True))
    assert facts == [
        "n = 400 questions that both have.",
        "An answer takes 225 written tokens with traces, 1 without.",
        f"Empty traces: 3; {what}: 2; answers that could not be read: 0 with, 0 without.",
        "ACC of `answers` is the share of right ones.",
        f"Brier scores move with it: a constant has {more} with traces, {fewer} without.",
    ]
    accuracy = rows["answers (with)", "ACC ↑"]
    assert float(accuracy[3].text) == pytest.approx(gain, abs=0.06)
    assert accuracy[-1].text == "answers (with) is better"
    assert rows["ptrue (with)", "AUROC ↑"][-1].text == "ptrue (with) is better"
    assert {name for name, _ in rows} == {"answers (with)", "ptrue (with)", "sequence-probability (with)"}
    assert {metric for _, metric in rows} == {"ACC ↑", "RMSCE ↓", "AUROC ↑"}
    assert "after traces of at most 320 tokens" in formats.render(views, "md")
    assert load_results(traces, quiet=True).table().render("md") == formats.render(views, "md")


def test_traces_pair_hidden_methods_in_the_correction(traces: Path) -> None:
    def pairs(*methods: str) -> list[dict[str, Any]]:
        (views,) = paired_views(tables_of(View(traces, methods=methods), None), traces)
        return [dict(record) for record in views.records()]

    every = pairs()
    for method in ("ptrue", "sequence-probability"):
        named = {"answers (with)", f"{method} (with)"}
        assert pairs(method) == [record for record in every if record["first"] in named]


def test_traces_pair_runs_of_the_same_settings(tmp_path: Path) -> None:
    """Labels of lines leave out what a table shares, so `ccps` with traces has the label of the other `ccps`."""
    answers = Answers.drawn(400, seed=1)
    learned = {"train_on": "atlas-choice/train", "labels_seen": LabelsSeen(160, 40), "n": 400}
    few, traced = {"train_limit": "160+40"}, {**TRACED["config"], "train_limit": "160+40"}
    for skill, fields in ((2.0, {}), (0.5, {"config": few}), (0.5, {**TRACED, "config": traced})):
        write_result(tmp_path, "ccps", answers.confidences(skill, 9), answers.correct, **learned, **fields)
    pair = build_views(View(tmp_path), None).grids[-1]
    (auroc,) = (row.cells for row in pair.rows if row.cells[2].text == "AUROC ↑")
    assert auroc[3].text == "0.0"


def test_traces_pair_says_what_tells_it_from_others(tmp_path: Path) -> None:
    answers = Answers.drawn(400, seed=1)
    for fields in ({}, TRACED):
        config = {**fields.get("config", {}), "train_on": "there"}
        learned = {**fields, "config": config, "train_on": "there/train", "limit": 400, "n": 400}
        write_result(tmp_path, "ccps", answers.confidences(0.5, 9), answers.correct, **learned)
    pair = build_views(View(tmp_path, partial=True), None).grids[-1]
    title = "tiny on atlas-choice (partial, --limit 400, learned on there), with traces of at most 320 tokens against"
    assert pair.facts[0].startswith(title)


def test_traces_are_not_better_calibrated_where_nothing_is_ordered(tmp_path: Path) -> None:
    answers = Answers.drawn(400, seed=1)
    rate = answers.correct.mean()
    flat = np.full(400, rate) + np.random.default_rng(0).normal(0, 1e-4, 400)
    for confidence, fields in ((np.full(400, 0.99), {}), (flat, TRACED)):
        write_result(tmp_path, "ptrue", confidence, answers.correct, n=400, **fields)
    pair = build_views(View(tmp_path), None).grids[-1]
    (rmsce,) = (row.cells for row in pair.rows if row.cells[2].text == "RMSCE ↓")
    assert rmsce[-1].text == "no verdict"


def test_traces_without_a_twin_are_not_paired(traces: Path, tmp_path: Path) -> None:
    answers = Answers.drawn(400)
    write_result(tmp_path, "ptrue", answers.confidences(1.0, 9), answers.correct, n=400, **TRACED)
    assert len(build_views(View(tmp_path), None).grids) == 1
    write_result(tmp_path, "litcab", answers.confidences(1.0, 9), answers.correct, n=400)
    assert len(build_views(View(tmp_path), None).grids) == 2  # no method is in both


def test_traces_of_other_judges_are_not_paired(tmp_path: Path) -> None:
    answers = Answers.drawn(400)
    for fields in ({"judge": "match"}, {"judge": "openai:judge", **TRACED}):
        write_result(tmp_path, "ptrue", answers.confidences(1.0, 9), answers.correct, n=400, **fields)
    assert len(build_views(View(tmp_path), None).grids) == 2
