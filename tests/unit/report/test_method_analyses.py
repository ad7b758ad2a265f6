"""Numbers of an analysis in words: its measures and its variants as text, data, figures and pages."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.api import MeasureColumn, Measures, Piece, Strip, Strips
from bench.report import method_analyses, text_heatmap
from bench.report.analysis import write
from bench.report.figures.dot_plot import dots_of_measures
from bench.report.figures.variants import differences_of_variants
from bench.report.tables import formats
from bench.stats.analysis_measures import AnalysisMeasures, validate_measures
from bench.stats.variants import SeedMean, StepRow, VariantRow, Variants
from tests.fixtures.readable import check_readable, labels, look, note, words
from tests.kit.golden import check_golden

RESULTS = Path(__file__).parents[3] / "results"


def shown(found: AnalysisMeasures | Variants, results: Path = RESULTS, kind: str = "md", **options: Any) -> str:
    return formats.render(method_analyses.build_analysis(found, results).views, kind, **options)


def data_of(found: AnalysisMeasures | Variants) -> tuple[list[dict[str, str]], dict[str, Any]]:
    """CSV and JSON."""
    (record,) = json.loads(shown(found, kind="json"))
    return list(csv.DictReader(io.StringIO(shown(found, kind="csv")))), record


COLUMNS = (
    MeasureColumn("what", "what", "text"),
    MeasureColumn("n", "words", "count"),
    MeasureColumn("impact", "impact", "points", "low", "high", decimals=2),
    MeasureColumn("p", "p", "probability"),
    MeasureColumn("size", "size"),
)
ROWS: list[dict[str, str | int | float | None]] = [
    {"what": "content", "n": 1234, "impact": 0.0182, "low": 0.00001, "high": 0.03, "p": 0.0001},
    {"what": "function", "impact": -0.00001},
    {"what": "other"},
]


def made(model: str = "llama8b", **changes: Any) -> AnalysisMeasures:
    given = replace(Measures("Is it so?", "It is.", COLUMNS, ROWS, "impact", notes=["Known."]), **changes)
    return AnalysisMeasures("ccps", "tokens", model, "mmlu-oe", "fixed", (0, 1), 100, validate_measures("ccps", given))


def test_measures_data_have_all_rows() -> None:
    lines, record = data_of(made(shown=1))
    assert [(row["what"], row.get("impact")) for row in record["rows"][:2]] == [
        ("content", 0.0182), ("function", -0.00001)
    ]  # fmt: skip
    assert [(line["what"], line["low"]) for line in lines] == [("content", "1e-05"), ("function", ""), ("other", "")]


def test_measures_are_those_of_the_golden_file(tmp_path: Path) -> None:
    folder = tmp_path / "paper"
    folder.mkdir()
    lines = ["model,row,column,value", "llama8b,content,impact,1.6", "qwen14b,content,impact,2.5"]
    (folder / "words.csv").write_text("\n".join(lines), encoding="utf-8")
    found, other = made(published="words.csv"), made("tiny", published="words.csv")
    texts = {"all rows": shown(made()), "the first row": shown(made(shown=1))}
    texts |= {"the paper beside": shown(found, tmp_path), "another model than the paper's": shown(other, tmp_path)}
    check_golden("measures.md.txt", "\n".join(f"# {name}\n\n{text}" for name, text in texts.items()))
    (record,) = json.loads(shown(found, tmp_path, "json"))
    assert {"model": "qwen14b", "row": "content", "column": "impact", "value": 0.025} in record["published"]


def test_measures_figure_draws_what_is_known() -> None:
    figure = dots_of_measures(made())
    assert figure is not None
    assert [f"impact/{k}/value" in labels(figure) for k in range(3)] == [True, True, False]
    assert "impact/0/interval" in labels(figure)
    assert "impact/1/interval" not in labels(figure)
    assert dots_of_measures(made(drawn="")) is None
    assert dots_of_measures(made(rows=[])) is not None
    many = dots_of_measures(made(rows=[{"what": str(k), "impact": float(k)} for k in range(200)]))
    assert many is not None
    assert "Shown: the first 30 of 200 rows; the numbers have all." in note(many)


PIECES = [
    Piece("<b>", 0.5, "content", "a noun"), Piece(" & "), Piece("of", 0.25, "function"), Piece("\x1b[2J", 0.0),
    Piece("\u202e'", None, "function", '"x"'),
]  # fmt: skip
STRIPS = Strips("impact", "Some.", [Strip("q<1>", PIECES, "as & is")], {"content": "content", "function": "function"})


def test_heatmap_page_is_text_alone() -> None:
    """No script, no link, no style but its own, no sign that turns the text."""
    page = text_heatmap.page("ccps <tokens>", STRIPS)
    check_golden("measures_strips.html.txt", page.replace("><", ">\n<"))
    assert not re.search("[\x1b\u202e]|<(script|img|link|b|iframe)[ >]|<[^>]* (on\\w+|src|href|style)=", page)


@pytest.mark.parametrize(
    ("changes", "kinds"), [({"strips": STRIPS}, ["json", "html", "svg"]), ({"drawn": ""}, ["json"])]
)
def test_measures_files_are_of_what_there_is(tmp_path: Path, changes: dict[str, Any], kinds: list[str]) -> None:
    paths = write([method_analyses.build_analysis(made(**changes), RESULTS)], tmp_path)
    assert [path.name for path in paths] == [f"llama8b--mmlu-oe--ccps-tokens.{kind}" for kind in kinds]


def compared(p: float, count: int = 2, model: str = "llama8b", published: str = "") -> Variants:
    names = ["original", "perturbation", *(f"v{k}" for k in range(count - 2))][:count]
    own = VariantRow("full", "auroc", SeedMean(0.8, 0.7, 0.9, 0.05, 0.1))
    others = [
        VariantRow(name, "auroc", SeedMean(0.7, 0.6, 0.8, 0.05), SeedMean(0.1 - k / 100, 0.02, 0.18, 0.04, 0.5), p, p)
        for k, name in enumerate(names)
    ]
    return Variants(
        "ccps", "features", model, "mmlu-choice", "fixed", "Is it so?", "full", (0, 1, 2, 3, 4), 100, ("auroc",),
        (own, *others), published=published,
    )  # fmt: skip


def with_ece() -> Variants:
    """Values of ECE have neither interval nor test."""
    found, value = compared(0.01), SeedMean(0.1, None, None, None)
    bare = [
        replace(row, metric="ece", p=None, p_corrected=None, difference=row.difference and value) for row in found.rows
    ]
    return replace(found, metrics=("ece", "auroc"), rows=(*bare, *found.rows))


def with_steps(p: float, gain: float = 0.1) -> Variants:
    """From "original" over "perturbation" to "full"; shares where the gain is shown."""
    found = compared(p)
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


def worlds() -> Iterator[tuple[str, Variants]]:
    """Name and variants; the first two have published numbers."""
    paper = "feature_ablation.csv"
    yield "decided, beside the paper", compared(0.01, published=paper)
    yield "another model than the paper's", compared(0.01, model="tiny", published=paper)
    yield "of all questions at once", replace(compared(0.01), average="questions")
    yield "an ECE", with_ece()
    found = compared(0.2)
    yield "undecided", found
    yield "undecided, one variant", compared(0.2, count=1)
    bare = tuple(replace(row, p=None, p_corrected=None) for row in found.rows)
    yield "no intervals", replace(found, rows=bare)
    same = tuple(replace(row, difference=row.difference and SeedMean(0.0, None, None, None)) for row in found.rows)
    yield "nothing varies", replace(found, rows=same)
    undefined = tuple(VariantRow(row.variant, "auroc", None) for row in found.rows)
    yield "undefined", replace(found, rows=undefined, accuracy=1.0)
    of_brier = tuple(replace(row, metric="brier", p_corrected=0.01) for row in compared(0.01).rows)
    yield "decided in another metric", replace(found, metrics=("brier", "auroc"), rows=(*found.rows, *of_brier))
    yield "a long list", compared(0.5, count=75)
    yield "steps", with_steps(0.01)
    yield "undecided steps", with_steps(0.3)
    first, second = with_steps(0.3).steps
    yield "undecided but for one step", replace(with_steps(0.3), steps=(replace(first, p_corrected=0.01), second))
    yield "steps without a gain", with_steps(0.01, gain=-0.1)


def test_variants_are_those_of_the_golden_file() -> None:
    texts = (f"# {name}\n\n{shown(found)}" for name, found in worlds())
    check_golden("variants.md.txt", "\n".join(texts))


def test_variants_data_have_rows_steps_and_averages() -> None:
    lines, record = data_of(compared(0.5, count=75))
    assert len(lines) == len(record["rows"]) == 76
    lines, record = data_of(with_steps(0.01))
    assert [(line["variant"], line["against"], line["adds"], line["share"]) for line in lines] == [
        ("full", "", "", ""), ("original", "full", "", ""), ("perturbation", "full", "", ""),
        ("original", "perturbation", "noise", "0.2"), ("perturbation", "full", "the direction", "0.8"),
    ]  # fmt: skip
    assert (record["steps"][1]["share"]["value"], record["average"]) == (0.8, "subjects")  # of a file that doesn't say
    assert data_of(replace(compared(0.01), average="questions"))[1]["average"] == "questions"


def test_variants_figure_has_no_panel_of_ece() -> None:
    figure = differences_of_variants(with_ece())
    check_readable(figure)
    check_golden("looks-variants.txt", "\n".join(look(figure)))
    assert any(text.startswith("AUROC") for text in words(figure))
    assert not any(text.startswith("ECE") for text in words(figure))


@pytest.mark.parametrize(("width", "pieces"), [(60, 2), (100, 1)])
def test_columns_of_names_stand_in_every_piece(width: int, pieces: int) -> None:
    lines = shown(compared(0.01), kind="terminal", width=width).splitlines()
    headings = [line.split() for line in lines if line.startswith("metric")]
    assert len(headings) == pieces
    assert all(heading[:2] == ["metric", "variant"] for heading in headings)
    assert sum(line.split()[:2] == ["AUROC", "original"] for line in lines) == pieces
