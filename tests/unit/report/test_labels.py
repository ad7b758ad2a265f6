"""Words, tables, figure and files of a study of label budgets, from planted curves."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.api import FloatArray, UserError
from bench.report.analysis import write
from bench.report.label_budgets import build_analysis, read_counts, small_multiples, verdict
from bench.report.label_budgets.views import AHEAD, crossing_range
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
from tests.fixtures.readable import artists, check_readable, drawn

N, SUBJECTS = 400, [f"s{i % 2}" for i in range(400)]
CORRECT = np.random.default_rng(2).random(N) < 0.5
SIZES = (20, 50, 100)
COUNTS = (CorrectCounts("atlas/train", 60, 20), CorrectCounts("atlas/validation", 15, 5))


def sure(strength: float, *key: int) -> FloatArray:
    noise = np.random.default_rng(list(key)).normal(size=N)
    return 1 / (1 + np.exp(-(strength * (2.0 * CORRECT - 1) + noise)))


def made(
    strength: tuple[float, ...], *, flat: float = 0.8, seeds: tuple[int, ...] = (0, 1, 2, 3, 4), broken: int = 0,
    model: str = "tiny", available: int = 100, most: int = 100,
) -> LabelCurves:  # fmt: skip
    """Curves of `pupil`, as strong as planted at each size, beside `flat`; of the first size some draws are broken."""
    told = {("flat", size): SeedConfidences(0, dict.fromkeys(seeds, sure(flat, 9))) for size in SIZES}
    for i, (size, own) in enumerate(zip(SIZES, strength, strict=True)):
        gone = dict.fromkeys(seeds[:broken] if not i else (), ONE_KIND)
        told["pupil", size] = SeedConfidences(
            min(size, most), {s: sure(own, s, i) for s in seeds if s not in gone}, missing=gone
        )
    about = Study(
        model, "atlas", "demo", SIZES, available, seeds, ("pupil",), (), ("flat",), COUNTS, {"it": "not trained again"},
        {20: 4, 50: 10, 100: 20},
    )  # fmt: skip
    return compute_label_curves(told, about, CORRECT, SUBJECTS)


GROWS = made((0.1, 0.8, 2.5))


def test_the_verdict_says_from_how_many_labels_on_a_method_is_ahead() -> None:
    told = " ".join(verdict(GROWS))
    assert "Brier score, shown to beat flat: pupil with all 100 labels." in told
    assert "Even with" not in told


def test_where_nothing_is_shown_nothing_is_claimed() -> None:
    told = " ".join(verdict(made((0.1, 0.1, 0.1))))
    assert "Brier score, shown to beat flat: none." in told
    worse = "even with 100 labels shown to be worse than untrained methods (than how many): pupil (1)."
    assert all(f"{label}, {worse}" in told for label in ("Brier score", "AUROC"))


def test_a_lead_that_does_not_last_is_told_as_such() -> None:
    assert "Brier score, shown to beat flat: pupil with 50 labels only." in verdict(made((0.1, 2.5, 0.1)))
    assert "Brier score, shown to beat flat: pupil with 20 and 50 labels only." in verdict(made((2.5, 2.5, 0.1)))


def test_the_most_labels_that_were_tried_are_not_all_that_there_are() -> None:
    assert "Brier score, shown to beat flat: pupil with 100 labels." in verdict(made((0.1, 0.8, 2.5), available=1600))


def test_a_method_that_is_told_fewer_labels_is_not_said_to_have_had_more() -> None:
    curves = made((0.1, 0.1, 0.1), most=30)
    assert "(than how many): pupil (1, told 30)." in " ".join(verdict(curves))
    text = render(build_analysis(curves, ()).views, "md")
    assert "is told 30 labels at most" in text
    assert "&gt; 30" in text
    assert "&gt; 100" not in text
    note = " ".join(each.get_text() for each in small_multiples(curves).texts)
    assert "no more labels for them: pupil 30 at most." in " ".join(note.split())


def test_an_untrained_method_without_numbers_leaves_the_crossings_of_the_others() -> None:
    """No trained method can then be better than all of them; the pairs that are there have been tested all the same."""
    seeds, truth = (0, 1, 2, 3, 4), {20: 0.1, 50: 0.8, 100: 2.5}
    told = {("flat", size): SeedConfidences(0, dict.fromkeys(seeds, sure(0.8, 9))) for size in SIZES}
    told |= {
        ("pupil", size): SeedConfidences(size, {s: sure(own, s, size) for s in seeds}) for size, own in truth.items()
    }
    order, missing = dict.fromkeys(seeds, sure(0.3, 4)), dict.fromkeys(seeds, ONE_KIND)
    told |= {("scored", size): SeedConfidences(size, {}, order, missing) for size in SIZES}
    about = Study("tiny", "atlas", "demo", SIZES, 100, seeds, ("pupil",), ("scored",), ("flat",))
    said = " ".join(verdict(compute_label_curves(told, about, CORRECT, SUBJECTS)))
    assert (
        "Brier score: whether a trained method beats all 2 untrained methods can't be said, since scored can't" in said
    )
    assert "nothing was tested" not in said
    assert f"scored with 20 labels, 5 of 5 draws ({ONE_KIND}, Brier score alone)" in said


def test_a_lead_that_lasts_is_told_by_its_first_number_of_labels() -> None:
    assert "Brier score, shown to beat flat: pupil from 20 labels on." in verdict(made((2.5, 2.5, 2.5)))
    assert "Brier score, shown to beat flat: pupil from 50 labels on." in verdict(made((0.1, 2.5, 2.5)))


def test_broken_draws_are_counted_in_verdict_and_table_and_have_no_interval() -> None:
    curves = made((0.1, 0.8, 2.5), broken=2)
    assert f"pupil with 20 labels, 2 of 5 draws ({ONE_KIND})" in " ".join(verdict(curves))
    text = render(build_analysis(curves, ()).views, "md")
    assert f"2 of 5 draws: {ONE_KIND}" in text
    assert "mean of 3 of 5 draws, the others have no number" in text


def test_too_few_seeds_have_no_crossing_and_the_verdict_says_it() -> None:
    told = " ".join(verdict(made((0.1, 0.8, 2.5), seeds=(0, 1))))
    assert "nothing was tested, so that no crossing is claimed" in told
    assert "2 of at least 5 seeds: no intervals, no tests, and so no crossings" in told
    assert "overtakes" not in render(build_analysis(made((0.1, 0.8, 2.5), seeds=(0, 1)), ()).views, "md"), (
        "dashes would be findings"
    )
    assert "beat" not in told


@pytest.mark.parametrize(
    ("better_from", "worse", "text"),
    [(100, (20, 50), "50 to 100"), (20, (), "≤ 20"), (None, (20, 1600), "> 1,600"), (None, (), EN_DASH)],
)
def test_a_bracket_is_what_is_shown_on_both_sides(better_from: int | None, worse: tuple[int, ...], text: str) -> None:
    told = {size: size for size in (*SIZES, 1600)}
    assert crossing_range(Crossing("a", "b", "brier", better_from, worse, ()), told) == text


def test_tables_have_every_number_and_what_takes_no_part() -> None:
    text = render(build_analysis(GROWS, ()).views, "md")
    assert "it takes no part: not trained again" in text
    assert "| pupil" in text
    rows = build_analysis(GROWS, ()).views.grids[0].rows
    marks = {row.cells[0].text: [cell.mark for cell in row.cells[1:]] for row in rows}
    assert marks == {"pupil": ["", "", AHEAD], "flat": ["", "", ""]}
    assert "all 100" in text
    assert "20 to 100" in text
    assert "validation has 4 of 20, 10 of 50, 20 of 100" in text
    lines = list(csv.DictReader(io.StringIO(render(build_analysis(GROWS, ()).views, "csv"))))
    assert len(lines) == 2 * 2 * 3 + 2 * 3
    (data,) = json.loads(render(build_analysis(GROWS, ()).views, "json"))
    assert data["verdict"] == list(verdict(GROWS))
    assert {point["size"] for point in data["points"]} == set(SIZES)
    assert [each["base_rate"] if "base_rate" in each else each["right"] for each in data["study"]["counts"]] == [60, 15]


def test_it_is_said_what_metrics_are_of_and_stored() -> None:
    told: dict[Average, str] = {"questions": "of all questions at once", "subjects": "means over subjects"}
    for average, words in told.items():
        curves = replace(GROWS, average=average)
        assert f"Percent, {words}, averaged over draws" in render(build_analysis(curves, ()).views, "md")
        (data,) = json.loads(render(build_analysis(curves, ()).views, "json"))
        assert data["average"] == average
        note = " ".join(" ".join(each.get_text() for each in small_multiples(curves).texts).split())
        assert f"Values, {words}, averaged over draws of labels" in note
    assert GROWS.average == "questions"


def paper(folder: Path, *lines: str) -> Path:
    (folder / "paper").mkdir(parents=True, exist_ok=True)
    path = folder / "paper" / "label_distribution.csv"
    path.write_text("\n".join(["task,split,model,correct,incorrect,total", *lines, ""]), encoding="utf-8")
    return folder


def test_the_papers_counts_stand_beside_ours_or_their_range_below(tmp_path: Path) -> None:
    counts = read_counts(paper(tmp_path, "atlas,train,big,30,70,100", "ct,validation,big,90,10,100",
                               "mmlu,test,big,1,99,100"))  # fmt: skip
    same = render(build_analysis(made((0.1, 0.8, 2.5), model="big"), counts).views, "md")
    assert "| atlas/train | 60 | 20 | 75.0 | 30 | 70 | 30.0 |" in same
    assert "Paper, " not in same
    other = render(build_analysis(GROWS, counts).views, "md")
    assert "Paper, 2 training and validation splits of other models and tasks, 100 to 100 answers each" in other
    assert "30.0 to 90.0 % right" in other, "tests are none that is learned from"


def test_the_papers_own_counts_sum_up() -> None:
    counts = read_counts(Path("nowhere"))
    assert len(counts) == 28
    of = {(each.task, each.split, each.model): each for each in counts}
    assert of["ct-choice", "train", "llama8b"].base_rate == pytest.approx(12654 / 18650)
    assert {each.model for each in counts} == {"llama8b", "qwen14b", "mistral24b", "qwen32b"}


@pytest.mark.parametrize("line", ["a,b,c,1,2,4", "a,b,c,x,2,4", "a,b,c,-1,5,4", "a,b,c,0,0,0"])
def test_counts_that_are_none_are_refused(tmp_path: Path, line: str) -> None:
    with pytest.raises(UserError, match="expected counts of right and wrong answers"):
        read_counts(paper(tmp_path, line))


def test_the_figure_shows_a_panel_for_each_metric_and_fills_what_is_shown() -> None:
    figure = small_multiples(GROWS)
    labels = dict(artists(figure))
    for metric in ("brier", "auroc"):
        assert {f"{metric}/pupil/curve", f"{metric}/pupil/interval", f"{metric}/pupil/untrained/flat"} <= labels.keys()
        ahead, other = labels[f"{metric}/pupil/ahead"], labels[f"{metric}/pupil/not ahead"]
        assert np.asarray(ahead.get_xdata()) == pytest.approx([100])
        assert np.asarray(other.get_xdata()) == pytest.approx([20, 50])  # type: ignore[attr-defined]
        assert other.get_markerfacecolor() == "white"  # type: ignore[attr-defined]
        assert labels[f"{metric}/pupil/curve"].get_ydata() == pytest.approx(  # type: ignore[attr-defined]
            [p.estimate.value for p in GROWS.of("pupil", metric) if p.estimate]
        )


def test_the_panels_of_six_methods_stand_in_two_rows_over_those_of_the_next_metric() -> None:
    seeds, names = (0, 1, 2), tuple(f"pupil-{k}" for k in range(6))
    told = {("flat", size): SeedConfidences(0, dict.fromkeys(seeds, sure(0.8, 9))) for size in SIZES}
    told |= {
        (name, size): SeedConfidences(size, {s: sure(1.0, s, size) for s in seeds}) for name in names for size in SIZES
    }
    about = Study("tiny", "atlas", "demo", SIZES, 100, seeds, names, (), ("flat",))
    check_readable(small_multiples(compute_label_curves(told, about, CORRECT, SUBJECTS)))


def test_a_broken_point_has_no_dot_in_the_figure() -> None:
    figure = small_multiples(made((0.1, 0.8, 2.5), broken=2))
    assert drawn(figure, "brier/pupil/not ahead")[:, 0] == pytest.approx([50])


def test_files_are_named_after_model_and_task(tmp_path: Path) -> None:
    paths = write([build_analysis(GROWS, ())], tmp_path / "a")
    assert [path.name for path in paths] == [
        f"tiny--labels--atlas.{kind}" for kind in ("md", "csv", "json", "svg", "png")
    ]
    assert sorted(paths) == sorted((tmp_path / "a").iterdir())
