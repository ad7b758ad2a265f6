"""Numbers of an analysis in words: verdicts that say when nothing shows, the paper's numbers beside ours."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.api import UserError
from bench.report import method_analyses, variants
from bench.report.figures.variants import differences_of_variants
from bench.report.tables import formats
from bench.stats.variants import SeedMean, StepRow, VariantRow, Variants
from tests.fixtures.readable import check_readable, words
from tests.kit.golden import check_golden

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


def with_ece() -> Variants:
    """Values of ECE have neither interval nor test."""
    found, value = made(0.01), SeedMean(0.1, None, None, None)
    bare = [
        replace(row, metric="ece", p=None, p_corrected=None, difference=row.difference and value) for row in found.rows
    ]
    return replace(found, metrics=("ece", "auroc"), rows=(*bare, *found.rows))


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


def worlds() -> Iterator[tuple[str, Variants, Path | None]]:
    """Name, variants, and where the published numbers are."""
    found = made(0.2)
    yield "decided, beside the paper", made(0.01), RESULTS
    yield "another model than the paper's", made(0.01, model="tiny"), RESULTS
    yield "of all questions at once", replace(made(0.01), average="questions"), None
    yield "an ECE", with_ece(), None
    yield "undecided", found, None
    yield "undecided, one variant", made(0.2, count=1), None
    bare = tuple(replace(row, p=None, p_corrected=None) for row in found.rows)
    yield "no intervals", replace(found, rows=bare), None
    undefined = tuple(VariantRow(row.variant, "auroc", None) for row in found.rows)
    yield "undefined", replace(found, rows=undefined, accuracy=1.0), None
    of_brier = tuple(replace(row, metric="brier", p_corrected=0.01) for row in made(0.01).rows)
    yield "decided in another metric", replace(found, metrics=("brier", "auroc"), rows=(*found.rows, *of_brier)), None
    yield "a long list", made(0.5, count=75), None
    yield "steps", with_steps(0.01), None
    yield "undecided steps", with_steps(0.3), None
    first, second = with_steps(0.3).steps
    yield "undecided but for one step", replace(with_steps(0.3), steps=(replace(first, p_corrected=0.01), second)), None
    yield "steps without a gain", with_steps(0.01, gain=-0.1), None


def test_variants_look_as_in_the_golden_file() -> None:
    texts = []
    for name, found, results in worlds():
        paper = variants.read_published(found, results) if results else {}
        texts.append(f"# {name}\n\n{formats.render(method_analyses.build_analysis(found, paper).views, 'md')}")
    check_golden("variants.md.txt", "\n".join(texts))


def data_of(found: Variants) -> tuple[list[dict[str, str]], dict[str, Any]]:
    """CSV and JSON."""
    views = method_analyses.build_analysis(found, {}).views
    (record,) = json.loads(formats.render(views, "json"))
    return list(csv.DictReader(io.StringIO(formats.render(views, "csv")))), record


def test_data_have_all_rows_steps_and_averages() -> None:
    lines, record = data_of(made(0.5, count=75))
    assert len(lines) == len(record["rows"]) == 76
    lines, record = data_of(with_steps(0.01))
    assert [(line["variant"], line["against"], line["adds"], line["share"]) for line in lines] == [
        ("full", "", "", ""), ("original", "full", "", ""), ("perturbation", "full", "", ""),
        ("original", "perturbation", "noise", "0.2"), ("perturbation", "full", "the direction", "0.8"),
    ]  # fmt: skip
    assert (record["steps"][1]["share"]["value"], record["average"]) == (0.8, "subjects")  # of a file that doesn't say
    assert data_of(replace(made(0.01), average="questions"))[1]["average"] == "questions"


def test_an_ece_has_no_panel() -> None:
    figure = differences_of_variants(with_ece())
    check_readable(figure)
    assert any(text.startswith("AUROC") for text in words(figure))
    assert not any(text.startswith("ECE") for text in words(figure))


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
