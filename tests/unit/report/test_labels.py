"""Study of label budgets: words, tables, figure and files, from planted curves."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.api import FloatArray, UserError
from bench.report.label_budgets import build_analysis
from bench.report.label_budgets.figure import small_multiples
from bench.report.label_budgets.verdict import verdict
from bench.report.label_budgets.views import crossing_range, read_counts
from bench.report.tables.formats import render
from bench.report.text import EN_DASH
from bench.stats.label_budgets import (
    ONE_KIND,
    CorrectCounts,
    Crossing,
    LabelCurves,
    SeedConfidences,
    Study,
    compute_label_curves,
)
from bench.stats.settings import Average
from tests.fixtures.readable import artist, check_readable, drawn, labels, look, note
from tests.kit.golden import as_cases, check_golden

N, SUBJECTS = 400, [f"s{i % 2}" for i in range(400)]
CORRECT = np.random.default_rng(2).random(N) < 0.5
SIZES, SEEDS = (20, 50, 100), (0, 1, 2, 3, 4)
COUNTS = (CorrectCounts("atlas/train", 60, 20), CorrectCounts("atlas/validation", 15, 5))
STUDY = Study(
    "tiny", "atlas", "demo", SIZES, 100, SEEDS, ("pupil",), (), ("flat",), COUNTS, {"it": "not trained again"},
    {20: 4, 50: 10, 100: 20},
)  # fmt: skip


def sure(strength: float, *key: int) -> FloatArray:
    noise = np.random.default_rng(list(key)).normal(size=N)
    return 1 / (1 + np.exp(-(strength * (2.0 * CORRECT - 1) + noise)))


def made(
    strength: tuple[float, ...], *, seeds: tuple[int, ...] = SEEDS, broken: int = 0, most: int = 100, scored: str = "",
    **study: Any,
) -> LabelCurves:  # fmt: skip
    """Curves of `pupil`, as strong as planted at each size, beside `flat`; of the first size some draws are broken.

    `scored` is the name of an untrained method that has scores and no confidences.
    """
    told = {("flat", size): SeedConfidences(0, dict.fromkeys(seeds, sure(0.8, 9))) for size in SIZES}
    for i, (size, own) in enumerate(zip(SIZES, strength, strict=True)):
        gone = dict.fromkeys(seeds[:broken] if not i else (), ONE_KIND)
        told["pupil", size] = SeedConfidences(
            min(size, most), {s: sure(own, s, i) for s in seeds if s not in gone}, missing=gone
        )
        if scored:
            order, missing = dict.fromkeys(seeds, sure(0.3, 4)), dict.fromkeys(seeds, ONE_KIND)
            told[scored, size] = SeedConfidences(size, {}, order, missing)
    about = replace(STUDY, seeds=seeds, scaled=(scored,) if scored else (), **study)
    return compute_label_curves(told, about, CORRECT, SUBJECTS)


WORLDS: dict[str, tuple[tuple[float, ...], dict[str, Any]]] = {
    "ahead with all labels": ((0.1, 0.8, 2.5), {}),
    "ahead with the most labels that were tried": ((0.1, 0.8, 2.5), {"available": 1600}),
    "never ahead": ((0.1, 0.1, 0.1), {}),
    "a lead that does not last": ((0.1, 2.5, 0.1), {}),
    "a lead at two sizes that does not last": ((2.5, 2.5, 0.1), {}),
    "a lead from the first size on": ((2.5, 2.5, 2.5), {}),
    "a lead from the second size on": ((0.1, 2.5, 2.5), {}),
    "told 30 labels at most": ((0.1, 0.1, 0.1), {"most": 30}),
    "2 of 5 draws broken at the first size": ((0.1, 0.8, 2.5), {"broken": 2}),
    "two seeds": ((0.1, 0.8, 2.5), {"seeds": (0, 1)}),
    "an untrained method without confidences": ((0.1, 0.8, 2.5), {"scored": "scored"}),
}
WHOLE = (
    "ahead with all labels", "told 30 labels at most", "2 of 5 draws broken at the first size", "two seeds",
)  # fmt: skip
"""Worlds whose tables are compared whole; of the others it is the verdict."""


@cache
def curves_of(world: str = "ahead with all labels") -> LabelCurves:
    strength, changes = WORLDS[world]
    return made(strength, **changes)


def rendered(curves: LabelCurves, kind: str = "md", counts: tuple[Any, ...] = ()) -> str:
    return render(build_analysis(curves, counts).views, kind)


def test_label_tables_are_those_of_the_golden_file() -> None:
    whole = {name: rendered(curves_of(name)).splitlines() for name in WHOLE}
    verdicts = {name: verdict(curves_of(name)) for name in WORLDS if name not in WHOLE}
    check_golden("labels.md.txt", as_cases({**whole, **verdicts}))


@pytest.mark.parametrize(
    ("better_from", "worse", "text"),
    [(100, (20, 50), "50 to 100"), (20, (), "≤ 20"), (None, (20, 1600), "> 1,600"), (None, (), EN_DASH)],
)
def test_crossing_range_is_shown_on_both_sides(better_from: int | None, worse: tuple[int, ...], text: str) -> None:
    told = {size: size for size in (*SIZES, 1600)}
    assert crossing_range(Crossing("a", "b", "brier", better_from, worse, ()), told) == text


def test_label_data_have_every_point_and_the_verdict() -> None:
    curves = curves_of()
    assert len(list(csv.DictReader(io.StringIO(rendered(curves, "csv"))))) == 2 * 2 * 3 + 2 * 3
    (data,) = json.loads(rendered(curves, "json"))
    assert data["verdict"] == list(verdict(curves))
    assert {point["size"] for point in data["points"]} == set(SIZES)
    assert [each.get("base_rate", each["right"]) for each in data["study"]["counts"]] == [60, 15]


@pytest.mark.parametrize(
    ("average", "words"), [("questions", "of all questions at once"), ("subjects", "means over subjects")]
)
def test_label_average_is_said_and_stored(average: Average, words: str) -> None:
    curves = replace(curves_of(), average=average)
    assert f"Percent, {words}, averaged over draws" in rendered(curves)
    (data,) = json.loads(rendered(curves, "json"))
    assert data["average"] == average
    assert f"Values, {words}, averaged over draws of labels" in note(small_multiples(curves))


def paper(folder: Path, *lines: str) -> Path:
    (folder / "paper").mkdir(parents=True, exist_ok=True)
    path = folder / "paper" / "label_distribution.csv"
    path.write_text("\n".join(["task,split,model,correct,incorrect,total", *lines, ""]), encoding="utf-8")
    return folder


def test_paper_counts_stand_beside_ours_or_below(tmp_path: Path) -> None:
    counts = read_counts(paper(tmp_path, "atlas,train,big,30,70,100", "ct,validation,big,90,10,100",
                               "mmlu,test,big,1,99,100"))  # fmt: skip
    same = rendered(made((0.1, 0.8, 2.5), model="big"), counts=counts)
    assert "| atlas/train | 60 | 20 | 75.0 | 30 | 70 | 30.0 |" in same
    assert "Paper, " not in same
    other = rendered(curves_of(), counts=counts)
    assert "Paper, 2 training and validation splits of other models and tasks, 100 to 100 answers each" in other
    assert "30.0 to 90.0 % right" in other, "tests are none that is learned from"


def test_paper_counts_sum_up() -> None:
    counts = read_counts(Path("nowhere"))
    assert len(counts) == 28
    of = {(each.task, each.split, each.model): each for each in counts}
    assert of["ct-choice", "train", "llama8b"].base_rate == pytest.approx(12654 / 18650)
    assert {each.model for each in counts} == {"llama8b", "qwen14b", "mistral24b", "qwen32b"}


@pytest.mark.parametrize("line", ["a,b,c,1,2,4", "a,b,c,x,2,4", "a,b,c,-1,5,4", "a,b,c,0,0,0"])
def test_paper_counts_that_are_none_are_refused(tmp_path: Path, line: str) -> None:
    with pytest.raises(UserError, match="expected counts of right and wrong answers"):
        read_counts(paper(tmp_path, line))


def test_label_figure_fills_the_points_that_are_ahead() -> None:
    figure = small_multiples(curves_of())
    for metric in ("brier", "auroc"):
        assert {f"{metric}/pupil/interval", f"{metric}/pupil/untrained/flat"} <= set(labels(figure))
        assert drawn(figure, f"{metric}/pupil/ahead")[:, 0] == pytest.approx([100])
        assert drawn(figure, f"{metric}/pupil/not ahead")[:, 0] == pytest.approx([20, 50])
        assert artist(figure, f"{metric}/pupil/not ahead").get_markerfacecolor() == "white"
        values = [p.estimate.value for p in curves_of().of("pupil", metric) if p.estimate]
        assert drawn(figure, f"{metric}/pupil/curve")[:, 1] == pytest.approx(values)
    broken = small_multiples(curves_of("2 of 5 draws broken at the first size"))
    assert drawn(broken, "brier/pupil/not ahead")[:, 0] == pytest.approx([50])
    told = note(small_multiples(curves_of("told 30 labels at most")))
    assert "no more labels for them: pupil 30 at most." in told


def test_label_figure_of_six_methods_is_readable() -> None:
    names = tuple(f"pupil-{k}" for k in range(6))
    told = {("flat", size): SeedConfidences(0, dict.fromkeys(SEEDS[:3], sure(0.8, 9))) for size in SIZES}
    for name in names:
        told |= {(name, size): SeedConfidences(size, {s: sure(1.0, s, size) for s in SEEDS[:3]}) for size in SIZES}
    about = Study("tiny", "atlas", "demo", SIZES, 100, SEEDS[:3], names, (), ("flat",))
    figure = small_multiples(compute_label_curves(told, about, CORRECT, SUBJECTS))
    check_readable(figure)
    check_golden("looks-labels.txt", "\n".join(look(figure)))
