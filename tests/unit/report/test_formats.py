"""LaTeX of every form of the tables compiles, whatever names, reasons and notes hold; and fits on the page."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bench.api.early_stopping import TrainingStage
from bench.metrics import METRICS
from bench.report.tables import build, comparison, formats
from bench.report.tables.grid import Cell, Column, Grid, GridRow
from bench.report.tables.published import Published
from bench.results.row import ResultRow, Training
from tests.kit.tables import Tests, scored

HOSTILE = (
    "a&b", "100%", "a_b^c", "#~`", "$x^2$", r"\input{x}", r"\end{table}", "[2pt]", "*", "{", "}", "a|b", '"q"',
    "--x---", "αβγ ≥ ½ … \u2013 \u2014 \u2018\u2019", "日本語", "שלום", "e\u0301", "😀", "<b>", r"\\", "a" * 200,
)  # fmt: skip
MODELS = ("llama_8b&", "qwen 100%", "odd#")
ENGINES = ("pdflatex", "tectonic")
REQUIRED = "CONFBENCH_REQUIRE_LATEX"


STAGE = TrainingStage("100% of_it", 128, 128, 64, 2.0, (64, 128), (0.5, 0.6))
TRAINING = Training((STAGE, STAGE), 0.3, 0.4, 0.6)


def cell(method: str, model: str = MODELS[0], **changes: Any) -> ResultRow:
    every = dict.fromkeys(METRICS, 0.2)
    return scored(method, **{"model": model, "task": "mmlu_oe%", **every, "training": TRAINING, **changes})


def all_forms() -> list[Grid]:
    """Everything that can stand in a table, once."""
    tests = Tests(constant=0.1, untested=[frozenset(HOSTILE[:2])], reason="subject 'a_b&%' has one question")
    rows = [cell(name, notes=(f"note {name}",), seed=seed) for name in HOSTILE[:6] for seed in (0, 1)]
    rows += [cell(name, status="failed", reason=f"because {name}") for name in HOSTILE[6:]]
    rows += [cell("ccps", model) for model in MODELS] + [cell("ccps+isotonic"), cell("ccps", config={"x_y": "&%"})]
    built = build.build(rows, standings_of=tests)
    published = Published(0.3, 0.1, "t", "larger than √Brier & 100 % of_it")
    beside = build.add_published(built, {(MODELS[0], "mmlu_oe%", "ccps", name): published for name in ("ece", "acc")})
    return [
        *build.table_views(built).grids,
        *build.table_views(beside, stats=True).grids,
        *comparison.build(built, ["ccps", *HOSTILE[:3]]).grids,
    ]


def compiled(body: str, folder: Path) -> str:
    """The log of a compiler on a document with this body; skips where there is none, unless one is required."""
    engine = next((name for name in ENGINES if shutil.which(name)), None)
    if engine is None:
        (pytest.fail if os.environ.get(REQUIRED) == "1" else pytest.skip)(
            f"neither {' nor '.join(ENGINES)} is installed"
        )
    head = r"\documentclass{article}\usepackage{booktabs,graphicx}\usepackage[table]{xcolor}\begin{document}"
    document = head + body.replace(r"\end{table}" + "\n", r"\end{table}\clearpage" + "\n") + r"\end{document}"
    (folder / "t.tex").write_text(document, encoding="utf-8")
    options = ["-halt-on-error", "-interaction=nonstopmode"] if engine == "pdflatex" else ["--keep-logs"]
    done = subprocess.run([engine, *options, "t.tex"], cwd=folder, capture_output=True, text=True, errors="replace", check=False)  # fmt: skip  # noqa: E501
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return (folder / "t.log").read_text(encoding="utf-8", errors="replace")


def test_latex_compiles_and_is_no_wider_than_lines(tmp_path: Path) -> None:
    grids = all_forms()
    log = compiled(formats.latex(grids), tmp_path)
    assert (tmp_path / "t.pdf").stat().st_size > 10_000
    assert "Missing character" not in log
    wide = [float(width) for width in re.findall(r"Overfull \\hbox \(([\d.]+)pt too wide\) detected", log)]
    assert wide == []  # of tables; a name of 200 letters may stand out of a paragraph


TEXTS = st.text(st.characters(exclude_categories=["C", "Z"]) | st.sampled_from("\\{}$&#^_%~[]*|-"), max_size=30)


@settings(max_examples=300)
@given(TEXTS)
@example("▸")
def test_latex_has_no_command_or_column_from_text(text: str) -> None:
    (grid,) = [Grid(("t",), (Column("a"), Column("b")), (GridRow([Cell(text), Cell("x", notes=(text,))]),))]
    lines = formats.latex([grid]).splitlines()
    row = lines[lines.index(r"\midrule") + 1]
    bare = re.sub(r"\\(textbackslash|textasciitilde|textasciicircum|textless|textgreater|textbar|dots|textsuperscript)", "", row)  # fmt: skip  # noqa: E501
    bare = re.sub(
        r"\$(\\pm|\\uparrow|\\downarrow|-|\^\{\\dagger\}|\\geq|\\surd|\\triangleright)\$", "", bare
    ).removesuffix(r" \\")
    assert bare.isascii() or all("\u00a1" <= c <= "\u00ff" for c in bare if not c.isascii())
    assert not re.search(r"\\[^{}$&#%_]", bare)  # no command is left but escaped signs
    assert len(re.findall(r"(?<!\\)&", bare)) == 1
    assert not re.findall(r"(?<!\\)[$#%_^~]", bare)
    depth = 0
    for brace in re.findall(r"(?<!\\)[{}]", bare):
        depth += 1 if brace == "{" else -1
        assert depth >= 0
    assert depth == 0
