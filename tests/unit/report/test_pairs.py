"""Comparisons of the page: the numbers of `bench table --compare`, planted cases, and the questions of a pair."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from itertools import combinations

import numpy as np
import pytest

from bench.metrics import METRICS
from bench.report import page
from bench.report.figures.forest import differences_by_metric
from bench.report.page import disagreements, pairs
from bench.report.page.disagreements import Depth, largest_disagreements
from bench.report.page.questions import QuestionTexts
from bench.report.page.render import html
from bench.report.selection import Selection, View
from bench.report.tables.request import build_views, tables_of
from bench.report.text import EN_DASH, interval_text, p_text, precise
from bench.results import files, question_texts
from bench.results.question_texts import QuestionText
from bench.results.submissions.recomputation import recompute_row
from bench.stats import TESTED
from tests.fixtures import compared
from tests.kit.tables import planted


def test_best_method_is_one_in_figure_and_numbers():
    """The best mean is of a method that a constant beats, so another one leads."""
    means = {"ptrue": {"rmsce": 0.01, "brier": 0.3}, "ccps": {"rmsce": 0.012}, "lts": {"rmsce": 0.1}}
    table = planted(means).ordered_by("ece")
    (differences,) = differences_by_metric(table, ["rmsce"])
    assert differences.best.method == table.ordered_lines[pairs.best_columns(table)[""]].method == "ccps"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("results")
    compared.write_all(out)
    return out


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def tables(folder, cache):
    return tables_of(Selection(folder), cache)


@pytest.fixture(scope="module")
def built(tables, folder):
    return payload_of(tables, folder)


def payload_of(tables, folder):
    return page.payload(
        tables,
        lambda row: files.read_records(files.stored_path(row, folder)),
        lambda task, version: question_texts.read(folder, task, version),
    )


def names_in(built, block):
    """Names of the lines in pairs, by place."""
    lines = {line["column"]: built["methods"][line["method"]]["name"] for line in block["lines"]}
    return [lines[column] for column in block["pairs"]["columns"]]


TURNED = {"+": "-", "-": "+"}


def between(told, metric, first, second):
    """Texts of the pair of two places, and the verdict on the first of them."""
    i, j = sorted((first, second))
    size = len(told["columns"])
    texts = told["metrics"][metric][i * size - i * (i + 1) // 2 + j - i - 1]
    return texts[:3], pairs.VERDICTS[texts[3] if first < second else TURNED.get(texts[3], texts[3])]


def test_pairs_are_those_of_the_comparison_table(built, folder, cache):
    """Through `bench table --compare`, which computes and formats on another path."""
    block = built["blocks"][0]
    names = names_in(built, block)
    (table,) = build_views(View(folder, compare=names, models=("alpha",)), cache).data()
    without = set()
    for record in table["comparisons"]:
        first, second = (names.index(record[end]["method"]) for end in ("first", "second"))
        (difference, ends, p), verdict = between(block["pairs"], record["metric"], first, second)
        metric, sign = METRICS[record["metric"]], 1 if first < second else -1
        size = sign * record["difference"]
        assert difference == "+" * (size > 1e-12) + precise(metric, size)
        if "reason" in record["interval"]:
            assert (ends, verdict) == (EN_DASH, "can't be distinguished"), record["interval"]["reason"]
            is_root = record["metric"] == "rmsce"
            assert ("neither is off" if is_root else "there are 0") in record["interval"]["reason"]
            without.add(record["metric"])
            continue
        low, high = sorted(sign * record["interval"][end] for end in ("low", "high"))
        assert ends == interval_text(metric, low, high)
        assert p == p_text(record["p_corrected"])
        better = {"better": f"{names[first]} is better", "worse": f"{names[second]} is better"}
        assert better.get(verdict, verdict) == record["verdict"]
    assert len(table["comparisons"]) == len(TESTED) * len(names) * (len(names) - 1) // 2
    assert "rmsce" in without


def test_wins_and_losses_make_the_ranks(built):
    """1 + losses among the lines that are ranked together."""
    for block in built["blocks"]:
        lines = {line["column"]: line for line in block["lines"]}
        lines = [lines[column] for column in block["pairs"]["columns"]]
        names = names_in(built, block)
        for metric in TESTED:
            for i, line in enumerate(lines):
                kind = names[i].partition("+")[2]
                rivals = [
                    j for j, other in enumerate(lines)
                    if j != i and metric in other["rank"] and names[j].partition("+")[2] == kind
                ]  # fmt: skip
                losses = sum(between(block["pairs"], metric, i, j)[1] == "worse" for j in rivals)
                assert line["rank"].get(metric, 1 + losses) == 1 + losses
            assert metric not in lines[names.index(compared.CUT_SHORT)]["rank"]


def test_pairs_leave_out_scores_and_skipped_lines(built):
    block = built["blocks"][0]
    names = names_in(built, block)
    assert set(names) == {*compared.SKILLS, compared.RECALIBRATED, "pik+isotonic"}
    lines = {line["column"]: built["methods"][line["method"]]["name"] for line in block["lines"]}
    (told,) = re.findall("Not compared: ([^<]*)", built["differences"][0])
    assert told.startswith(f"{compared.SCORES} (its scores are no probabilities")
    assert ";" not in told
    assert all(compared.SCORES not in {lines[a], lines[b]} for a, b, *_ in block["questions"]["disagreements"])


def test_best_of_each_recalibration_is_its_first_leader(built):
    block = built["blocks"][0]
    names = names_in(built, block)
    best = {kind: names[place] for kind, place in block["pairs"]["best"].items()}
    mean = {built["methods"][line["method"]]["name"]: line["mean"][list(METRICS).index("brier")]
            for line in block["lines"] if line["status"] == "ok"}  # fmt: skip
    ranked = [name for name in compared.SKILLS if name != compared.CUT_SHORT]
    assert best[""] == min(ranked, key=mean.__getitem__)
    assert best["isotonic"] == min((compared.RECALIBRATED, "pik+isotonic"), key=mean.__getitem__)
    assert mean[compared.CUT_SHORT] < mean[best[""]]  # which has no rank and is never the best


def test_pairs_of_one_method_are_none(tmp_path):
    compared.cell(tmp_path, "ccps", "alpha", "atlas-choice")
    told = payload_of(tables_of(Selection(tmp_path), None), tmp_path)
    assert (told["blocks"][0]["pairs"], told["blocks"][0]["questions"]["disagreements"]) == (None, [])
    assert "No two methods were tested against each other here." in html(told)
    compared.cell(tmp_path, "ptrue", "alpha", "atlas-choice")
    found = payload_of(tables_of(Selection(tmp_path), None), tmp_path)["blocks"][0]["pairs"]
    assert (found["columns"], {len(pairs) for pairs in found["metrics"].values()}) == ([0, 1], {1})


def test_pairs_without_hidden_lines_keep_their_correction(tables, built):
    (keys,) = [[line.key for line in t.lines if line.key.method != "ptrue"] for t in tables[:1]]
    fewer = pairs.pair_data(tables[0].with_lines(keys))
    names = [line.key.method for line in tables[0].with_lines(keys).ordered_lines]
    names = [names[column] for column in fewer["columns"]]
    assert "ptrue" not in names
    every = names_in(built, built["blocks"][0])
    for first, second in combinations(names, 2):
        ends = every.index(first), every.index(second)
        own = between(fewer, "brier", names.index(first), names.index(second))
        assert own == between(built["blocks"][0]["pairs"], "brier", *ends)


@pytest.mark.parametrize("odd", ["ccps", "ptrue"])
def test_lines_on_other_labels_share_no_questions(tmp_path, odd):
    """Questions and labels are those of most lines, also where the line that is placed first, `ptrue`, has others."""
    rows = {name: compared.cell(tmp_path, name, "alpha", "atlas-choice") for name in ("ccps", "litcab", "ptrue")}
    own = compared.records(odd, "alpha", "atlas-choice", 0)
    turned = replace(own, correct=~own.correct)
    files.write(recompute_row(rows[odd], turned), turned, tmp_path)
    built = payload_of(tables_of(Selection(tmp_path), None), tmp_path)
    block = built["blocks"][0]
    assert len(block["pairs"]["columns"]) == 2
    assert f"Not compared: {odd} (shares its answers and labels with no other method" in built["differences"][0]
    found, usual = block["questions"], dict(zip(own.id, own.correct.tolist(), strict=True))
    assert [ends for *ends, _, _ in found["disagreements"]] == [block["pairs"]["columns"]]
    assert found["correct"] == [int(usual[name]) for name in found["id"]]
    assert len(found["relabelled"]) == 1


def test_disagreements_are_the_largest_differences(built):
    for (model, task), block in zip(compared.TABLES, built["blocks"], strict=True):
        lines = {line["column"]: built["methods"][line["method"]]["name"] for line in block["lines"]}
        columns = block["pairs"]["columns"]
        found = {(a, b): sides for a, b, *sides in block["questions"]["disagreements"]}
        assert set(found) == set(combinations(columns, 2))
        for (a, b), sides in found.items():
            first, second = (
                np.mean([compared.records(lines[c], model, task, s).confidence for s in seeds_of(lines[c])], axis=0)
                for c in (a, b)
            )
            for difference, rows in zip((first - second, second - first), sides, strict=True):
                ids = [block["questions"]["id"][row] for row in rows]
                largest = np.sort(difference)[::-1][:10]
                values = [difference[compared.ids(task).index(key)] for key in ids]
                assert values == pytest.approx(largest[: len(values)])
                assert len(values) == min(10, int((difference > 0).sum()))


def seeds_of(method):
    return (0, 1) if method == "ccps" else (0,)


def test_disagreements_are_ordered_and_of_known_confidences():
    confidence = np.array([[0.9, 0.9, np.nan, 0.1, 0.5], [0.1, 0.1, 0.0, 0.9, 0.5]])
    ((_, _, above, below),) = largest_disagreements(confidence, [(0, 1)], 1)
    assert (above.tolist(), below.tolist()) == ([0], [3])
    assert largest_disagreements(np.array([[np.nan], [0.3]]), [(0, 1)], 10) == []


def test_page_of_many_tables_keeps_the_best_pairs(tables, monkeypatch):
    small, large = disagreements.fit_depth(tables), disagreements.fit_depth(list(tables) * 40)
    assert small == Depth(10, all_pairs=True)
    assert not large.all_pairs
    wanted = disagreements.select_pairs(tables[1], large)
    best = pairs.best_columns(tables[1])[""]
    assert len(wanted) == len(compared.SKILLS) - 1
    assert all(best in ends for ends in wanted)
    monkeypatch.setattr(disagreements, "_BUDGET", 1)
    assert disagreements.fit_depth(tables) == Depth(5, all_pairs=False)


def test_questions_of_disagreements_are_in_no_group(built):
    told = built["blocks"][0]["questions"]
    grouped = {row for rows in told["groups"].values() for row in rows}
    assert grouped < set(range(len(told["id"])))
    assert {name: len(rows) for name, rows in told["groups"].items()} == dict.fromkeys(told["groups"], 50)


def test_texts_of_disagreements_give_way_first(monkeypatch):
    texts = QuestionTexts()
    written = "w" * 300 + "\n\n  (a): tin\n  (b): bronze"
    asked = [QuestionText(f"q{i}", "", written, ("tin", "bronze"), "a") for i in range(40)]
    for i, question in enumerate(asked):
        texts.add("rivers", 1, question, brief=i >= 10)
    assert texts.add("rivers", 1, asked[39]) == 39  # in a group after all
    monkeypatch.setattr("bench.report.page.questions._BRIEF_BUDGET", 29 * 250)
    shown = texts.shortened([])
    assert texts.limit is None
    assert texts.brief_limit == 200
    assert [len(text) for text, _, _ in shown] == [300] * 10 + [201] * 29 + [300]
    assert [options for _, options, _ in shown] == [["tin", "bronze"]] * 10 + [[]] * 29 + [["tin", "bronze"]]


def test_static_table_has_the_differences_to_the_best(tables, built):
    rows = [
        [unescape(re.sub("<[^>]*>", "", cell)) for cell in re.findall(r"<t[hd].*?</t[hd]>", row)]
        for row in re.findall("<tr.*?</tr>", "".join(built["differences"]))
    ]
    brier = METRICS["brier"]
    for table, block in zip(tables, built["blocks"], strict=True):
        best = names_in(built, block)[block["pairs"]["best"][""]]
        for pair in table.standings.pairs:
            if pair.metric == "brier" and best in {pair.first.method, pair.second.method}:
                own = pair if pair.second.method == best else pair.reversed()
                size = precise(brier, own.difference)
                texts = ["+" * (own.difference > 0) + size, interval_text(brier, own.fixed.low, own.fixed.high)]
                assert any(row[0] == own.first.method and row[1:3] == texts for row in rows)
    assert sum(row[0] == "Method" for row in rows) == len(built["blocks"])


def test_names_in_the_static_table_are_text(tables):
    assert "&lt;i&gt;on&lt;/i&gt;: Brier" in pairs.differences_table(tables[0], "<i>on</i>")
