"""Numbers of an analysis in words: verdicts that say when nothing shows, the paper's numbers beside ours."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench.api import UserError
from bench.report import method_analyses, variants
from bench.report.figures.variants import differences_of_variants
from bench.report.tables import formats
from bench.report.text import MINUS
from bench.stats.variants import SeedMean, StepRow, VariantRow, Variants
from tests.fixtures.readable import check_readable, words

RESULTS = Path(__file__).parents[3] / "results"


def made(p: float, count: int = 2, model: str = "llama8b") -> Variants:
    names = ["original", "perturbation", *(f"v{k}" for k in range(count - 2))][:count]
    own = VariantRow("full", "auroc", SeedMean(0.8, 0.7, 0.9, 0.05, 0.1))
    others = [
        VariantRow(name, "auroc", SeedMean(0.7, 0.6, 0.8, 0.05), SeedMean(0.1 - k / 100, 0.02, 0.18, 0.04, 0.5), p, p)
        for k, name in enumerate(names)
    ]
    return Variants(
        "ccps", "features", model, "mmlu-choice", "fixed", "Is it so?", "full", (0, 1, 2, 3, 4), 100, ("auroc",),
        (own, *others), published="feature_ablation.csv",
    )  # fmt: skip


def test_the_papers_numbers_stand_beside_ours_where_it_has_some() -> None:
    found = made(0.01)
    paper = variants.read_published(found, RESULTS)
    assert {row["variant"]: row["paper"] for row in variants.variant_rows(found, paper)} == {
        "full": "77.1", "original": "56.3", "perturbation": "63.0",
    }  # fmt: skip
    other = made(0.01, model="tiny")
    assert all("paper" not in row for row in variants.variant_rows(other, paper))
    assert "12 other models and tasks, single runs: AUROC of full minus original is +0.3 to +" in " ".join(
        variants.legend(other, paper)
    )


def test_it_is_said_what_metrics_are_of_and_stored() -> None:
    found = made(0.01)  # like a file that doesn't say
    assert "Percent, means over subjects, averaged over seeds, with 95 %" in variants.legend(found, {})[0]
    pooled = replace(found, average="questions")
    assert "Percent, of all questions at once, averaged over seeds, with 95 %" in variants.legend(pooled, {})[0]
    for each, average in ((found, "subjects"), (pooled, "questions")):
        (record,) = json.loads(formats.render(method_analyses.build_analysis(each, {}).views, "json"))
        assert record["average"] == average


def test_an_ece_has_values_alone_and_no_panel() -> None:
    found = made(0.01)
    value = SeedMean(0.1, None, None, None)
    bare = [
        replace(row, metric="ece", p=None, p_corrected=None, difference=row.difference and value) for row in found.rows
    ]
    found = replace(found, metrics=("ece", "auroc"), rows=(*bare, *found.rows))
    rows = [row for row in variants.variant_rows(found, {}) if row["metric"] == "ECE"]
    assert [(row["value"], row["its interval"], row["p"]) for row in rows[1:]] == [("70.0", "", ""), ("70.0", "", "")]
    figure = differences_of_variants(found)
    check_readable(figure)
    assert any(text.startswith("AUROC") for text in words(figure))
    assert not any(text.startswith("ECE") for text in words(figure))


def test_a_verdict_names_what_differs_and_says_when_nothing_does() -> None:
    decided = variants.verdict(made(0.01))
    assert "full is better than original, by +10.0 (2.0 to 18.0), p 0.010" in decided
    assert "Nothing shows" not in decided
    nothing = variants.verdict(made(0.2))
    assert "Nothing shows: none of the 2 variants differs significantly from full in AUROC" in nothing
    assert "Without correction an interval reaches 8.0 points to each side" in nothing
    assert "Nothing shows: none of the 1 variant differs" in variants.verdict(made(0.2, count=1))


def test_a_verdict_says_why_there_is_none() -> None:
    found = made(0.2)
    bare = [replace(row, p=None, p_corrected=None) for row in found.rows]
    assert variants.verdict(replace(found, rows=tuple(bare))).endswith("there are no intervals of AUROC.")
    nothing = [VariantRow(row.variant, "auroc", None) for row in found.rows]
    assert "AUROC is undefined, as where all answers are right or all are wrong." in variants.verdict(
        replace(found, rows=tuple(nothing), accuracy=1.0)
    )


def test_a_verdict_of_one_metric_does_not_say_that_nothing_shows_where_another_one_does() -> None:
    found = made(0.2)
    of_brier = tuple(replace(row, metric="brier", p_corrected=0.01) for row in made(0.01).rows[1:])
    told = variants.verdict(replace(found, metrics=("brier", "auroc"), rows=(*found.rows, *of_brier)))
    assert "Nothing shows" not in told
    assert "None of the 2 variants differs significantly from full in AUROC" in told
    assert "In other metrics some do: 2 in Brier." in told


def test_people_see_the_ends_of_a_long_list_and_data_has_all() -> None:
    found = made(0.5, count=75)
    assert len(variants.variant_rows(found, {})) == 1 + 2 * variants.ENDS
    assert len(formats.render(method_analyses.build_analysis(found, {}).views, "csv").splitlines()) == 1 + 76
    (record,) = json.loads(formats.render(method_analyses.build_analysis(found, {}).views, "json"))
    assert len(record["rows"]) == 76
    assert "| AUROC | original | 70.0 |" in formats.render(method_analyses.build_analysis(found, {}).views, "md")


def with_steps(p: float, gain: float = 0.1) -> Variants:
    """From "original" over "perturbation" to "full"; shares where the gain is shown."""
    found = made(p)
    (whole,) = (row for row in found.rows if row.variant == "original")
    shown = p < 0.05 and gain > 0
    steps = tuple(
        StepRow(
            start, end, adds, "auroc", SeedMean(part, part - 0.05, part + 0.05, 0.02, 0.2), p, p,
            SeedMean(share, share - 0.3, share + 0.3, None) if shown else None,
        )
        for start, end, adds, part, share in (
            ("original", "perturbation", "noise", 0.02, 0.2), ("perturbation", "full", "the direction", 0.08, 0.8)
        )
    )  # fmt: skip
    rows = [
        replace(row, difference=SeedMean(gain, gain - 0.08, gain + 0.08, 0.04, 0.5)) if row is whole else row
        for row in found.rows
    ]
    return replace(found, rows=tuple(rows), steps=steps)


def test_steps_and_their_shares_stand_below_the_variants() -> None:
    found = with_steps(0.01)
    records = variants.step_rows(found)
    assert [record["step"] for record in records] == ["original → perturbation", "perturbation → full"]
    assert [record["share"] for record in records] == ["20 %", "80 %"]
    assert records[0]["interval of the share"].replace("\u00a0", " ") == f"{MINUS}10 % to 50 %"
    assert "| AUROC | perturbation → full | the direction |" in formats.render(
        method_analyses.build_analysis(found, {}).views, "md"
    ).replace("\\", "")
    assert "Holm: p corrected for 2 variants and 1 step, which" in " ".join(variants.legend(found, {}))
    assert "Holm: p corrected for 2 variants, which intervals are not;" in " ".join(variants.legend(made(0.01), {}))
    assert not variants.step_rows(made(0.01))
    lines = list(csv.DictReader(io.StringIO(formats.render(method_analyses.build_analysis(found, {}).views, "csv"))))
    assert [(line["variant"], line["against"], line["adds"], line["share"]) for line in lines] == [
        ("full", "", "", ""), ("original", "full", "", ""), ("perturbation", "full", "", ""),
        ("original", "perturbation", "noise", "0.2"), ("perturbation", "full", "the direction", "0.8"),
    ]  # fmt: skip
    (record,) = json.loads(formats.render(method_analyses.build_analysis(found, {}).views, "json"))
    assert record["steps"][1]["share"]["value"] == 0.8


def test_a_verdict_tells_shares_only_of_a_gain_that_is_shown() -> None:
    shown = variants.verdict(with_steps(0.01))
    assert "AUROC of full minus original is +10.0 (2.0 to 18.0), p 0.010 after Holm's correction: noise +2.0" in shown
    assert "the direction +8.0 (3.0 to 13.0), p 0.010, 80 % of it (50 % to 110 %). " in shown
    unclear = variants.verdict(with_steps(0.3))
    assert "No share can be said, since a gain is not shown: AUROC of full minus original is +10.0" in unclear
    assert "% of it" not in unclear
    assert "the direction +8.0 (3.0 to 13.0), p 0.300. " in unclear
    assert "Nothing shows: none of the 2 variants" in unclear
    first = replace(with_steps(0.3).steps[0], p_corrected=0.01)
    harm = variants.verdict(replace(with_steps(0.3), steps=(first, *with_steps(0.3).steps[1:])))
    assert "Nothing shows" not in harm
    assert " None of the 2 variants differs significantly from full" in harm
    assert "since there is no gain: " in variants.verdict(with_steps(0.01, gain=-0.1))


@pytest.mark.parametrize("mean", ["much", "nan", "inf"])
def test_a_broken_file_of_published_numbers_is_one_sentence(tmp_path: Path, mean: str) -> None:
    folder = tmp_path / "paper"
    folder.mkdir()
    (folder / "feature_ablation.csv").write_text(f"model,task,variant,metric,mean\na,b,c,d,{mean}\n", encoding="utf-8")
    with pytest.raises(UserError, match="expected numbers in percent"):
        variants.read_published(made(0.5), tmp_path)


@pytest.mark.parametrize(("width", "pieces"), [(60, 2), (100, 1)])
def test_columns_that_name_a_row_stand_in_every_piece(width: int, pieces: int) -> None:
    lines = formats.render(method_analyses.build_analysis(made(0.01), {}).views, "terminal", width=width).splitlines()
    headings = [line.split() for line in lines if line.startswith("metric")]
    assert len(headings) == pieces
    assert all(heading[:2] == ["metric", "variant"] for heading in headings)
    assert sum(line.split()[:2] == ["AUROC", "original"] for line in lines) == pieces
