"""Measures of an analysis as text, data, figure and page."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.api import MeasureColumn, Measures, Piece, Strip, Strips, UserError
from bench.report import measures_table, method_analyses, text_heatmap
from bench.report.analysis import write
from bench.report.figures.dot_plot import dots_of_measures
from bench.report.tables import formats
from bench.stats.analysis_measures import AnalysisMeasures, validate_measures
from tests.fixtures.readable import labels, note
from tests.kit.golden import check_golden

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


def shown(measures: AnalysisMeasures, paper: Any = None, kind: str = "md") -> str:
    return formats.render(method_analyses.build_analysis(measures, paper or {}).views, kind)


def test_data_has_all_rows_and_people_the_first() -> None:
    found = made(shown=1)
    (record,) = json.loads(shown(found, kind="json"))
    assert record["rows"][0]["impact"] == 0.0182
    assert [row["what"] for row in record["rows"]] == ["content", "function", "other"]
    lines = list(csv.DictReader(io.StringIO(shown(found, kind="csv"))))
    assert [(line["what"], line["low"]) for line in lines] == [("content", "1e-05"), ("function", ""), ("other", "")]


def test_measures_and_the_papers_numbers_look_as_in_the_golden_file(tmp_path: Path) -> None:
    folder = tmp_path / "paper"
    folder.mkdir()
    lines = ["model,row,column,value", "llama8b,content,impact,1.6", "qwen14b,content,impact,2.5"]
    (folder / "words.csv").write_text("\n".join(lines), encoding="utf-8")
    found, other = made(published="words.csv"), made("tiny", published="words.csv")
    paper = measures_table.read_published(found, tmp_path)
    texts = {"all rows": shown(made()), "the first row": shown(made(shown=1))}
    texts |= {"the paper beside": shown(found, paper), "another model than the paper's": shown(other, paper)}
    check_golden("measures.md.txt", "\n".join(f"# {name}\n\n{text}" for name, text in texts.items()))
    (record,) = json.loads(shown(found, paper, "json"))
    assert {"model": "qwen14b", "row": "content", "column": "impact", "value": 0.025} in record["published"]
    (folder / "words.csv").write_text("model,row,column,value\na,b,c,much\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"words\.csv: expected numbers"):
        measures_table.read_published(found, tmp_path)


def test_a_figure_draws_what_is_known_and_none_where_nothing_is_to_be_drawn() -> None:
    figure = dots_of_measures(made())
    assert figure is not None
    assert [f"impact/{k}/value" in labels(figure) for k in range(3)] == [True, True, False]
    assert "impact/0/interval" in labels(figure)
    assert "impact/1/interval" not in labels(figure)
    assert dots_of_measures(made(drawn="")) is None
    assert dots_of_measures(made(rows=[])) is not None
    many = made(rows=[{"what": str(k), "impact": float(k)} for k in range(200)])
    shown = dots_of_measures(many)
    assert shown is not None
    assert "Shown: the first 30 of 200 rows; the numbers have all." in note(shown)


PIECES = [
    Piece("<b>", 0.5, "content", "a noun"), Piece(" & "), Piece("of", 0.25, "function"), Piece("\x1b[2J", 0.0),
    Piece("\u202e'", None, "function", '"x"'),
]  # fmt: skip
STRIPS = Strips("impact", "Some.", [Strip("q<1>", PIECES, "as & is")], {"content": "content", "function": "function"})


def test_a_page_of_coloured_texts_is_text_alone() -> None:
    """No script, no link, no style but its own, no sign that turns the text."""
    page = text_heatmap.page("ccps <tokens>", STRIPS)
    check_golden("measures_strips.html.txt", page.replace("><", ">\n<"))
    assert not re.search("[\x1b\u202e]|<(script|img|link|b|iframe)[ >]|<[^>]* (on\\w+|src|href|style)=", page)


def test_files_are_written_for_what_there_is(tmp_path: Path) -> None:
    names = [
        path.name for path in write([method_analyses.build_analysis(made(strips=STRIPS), {}, ("png",))], tmp_path / "a")
    ]
    assert names == [f"llama8b--mmlu-oe--ccps-tokens.{kind}" for kind in ("json", "html", "png")]
    bare = write([method_analyses.build_analysis(made(drawn=""), {}, ("png",))], tmp_path / "b")
    assert [path.suffix for path in bare] == [".json"]
