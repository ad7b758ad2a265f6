"""Measures of an analysis as text, data, figure and page."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from html.parser import HTMLParser
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

COLUMNS = (
    MeasureColumn("what", "what", "text"),
    MeasureColumn("n", "words", "count"),
    MeasureColumn("impact", "impact", "points", "low", "high", decimals=2),
    MeasureColumn("p", "p", "probability"),
    MeasureColumn("size", "size"),
)
ROWS = [
    {"what": "content", "n": 1234, "impact": 0.0182, "low": 0.00001, "high": 0.03, "p": 0.0001},
    {"what": "function", "impact": -0.00001},
    {"what": "other"},
]


def made(model: str = "llama8b", **changes: Any) -> AnalysisMeasures:
    given = replace(Measures("Is it so?", "It is.", COLUMNS, ROWS, "impact", notes=["Known."]), **changes)
    return AnalysisMeasures("ccps", "tokens", model, "mmlu-oe", "fixed", (0, 1), 100, validate_measures("ccps", given))


def test_rows_for_people_have_units_intervals_and_signs() -> None:
    content, function, other = measures_table.blocks(made(), {})[0]
    assert content == {
        "what": "content", "words": "1,234", "impact": "+1.82", "p": "<0.001",
        "impact: interval": "0.001\u00a0to\u00a03.00",
    }  # fmt: skip
    assert function["impact"] == "0.00"
    assert set(other.values()) == {"other", ""}


def test_data_has_all_rows_and_people_the_first() -> None:
    found = made(shown=1)
    assert len(measures_table.blocks(found, {})[0]) == 1
    assert "Shown: the first 1 of 3 rows" in " ".join(measures_table.legend(found, {}))
    (record,) = json.loads(formats.render(method_analyses.build_analysis(found, {}).views, "json"))
    assert record["rows"][0]["impact"] == 0.0182
    assert [row["what"] for row in record["rows"]] == ["content", "function", "other"]
    lines = list(csv.DictReader(io.StringIO(formats.render(method_analyses.build_analysis(found, {}).views, "csv"))))
    assert [(line["what"], line["low"]) for line in lines] == [("content", "1e-05"), ("function", ""), ("other", "")]
    text = formats.render(method_analyses.build_analysis(found, {}).views, "md")
    assert r"| content | 1,234 | \+1.82 | 0.001" in text
    assert "Is it so? It is." in text


def test_the_papers_numbers_stand_beside_ours_or_are_told_as_a_range(tmp_path: Path) -> None:
    folder = tmp_path / "paper"
    folder.mkdir()
    lines = ["model,row,column,value", "llama8b,content,impact,1.6", "qwen14b,content,impact,2.5"]
    (folder / "words.csv").write_text("\n".join(lines), encoding="utf-8")
    found = made(published="words.csv")
    paper = measures_table.read_published(found, tmp_path)
    assert measures_table.blocks(found, paper)[0][0]["impact: paper"] == "+1.60"
    assert measures_table.legend(found, paper) == ["Known."]
    told = " ".join(measures_table.legend(made("tiny", published="words.csv"), paper))
    assert "2 other models, single runs: impact of content is +1.60 to +2.50, median +2.05" in told
    (record,) = json.loads(formats.render(method_analyses.build_analysis(found, paper).views, "json"))
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


class Tags(HTMLParser):
    """Elements of a page with their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


PIECES = [
    Piece("<b>", 0.5, "content", "a noun"), Piece(" & "), Piece("of", 0.25, "function"), Piece("\x1b[2J", 0.0),
    Piece("\u202e'", None, "function", '"x"'),
]  # fmt: skip
STRIPS = Strips("impact", "Some.", [Strip("q<1>", PIECES, "as & is")], {"content": "content", "function": "function"})


def test_a_page_of_coloured_texts_is_text_alone() -> None:
    page = Tags(text_heatmap.page("ccps <tokens>", STRIPS))
    tags = {tag for tag, _ in page.found}
    assert not tags & {"script", "img", "link", "b", "iframe"}
    assert not any(name.startswith("on") or name in {"src", "href", "style"} for _, a in page.found for name in a)
    (policy,) = (a["content"] for tag, a in page.found if a.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "<b>" in page.text
    assert "\x1b" not in page.text
    assert "\u202e" not in page.text
    rubies = [a["title"] for tag, a in page.found if tag == "ruby"]
    assert rubies == ["0.5: a noun", "0.25", "0"]
    classes = [a.get("class") for tag, a in page.found if tag == "span" and "m" in str(a.get("class"))]
    assert classes == ["m0", "m1", "c10 m0", "c5 m1", "m1"]


def test_files_are_written_for_what_there_is(tmp_path: Path) -> None:
    names = [
        path.name for path in write([method_analyses.build_analysis(made(strips=STRIPS), {}, ("png",))], tmp_path / "a")
    ]
    assert names == [f"llama8b--mmlu-oe--ccps-tokens.{kind}" for kind in ("json", "html", "png")]
    bare = write([method_analyses.build_analysis(made(drawn=""), {}, ("png",))], tmp_path / "b")
    assert [path.suffix for path in bare] == [".json"]
