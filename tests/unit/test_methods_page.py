"""What `docs/methods.md` says is so: constants against the code, quoted numbers against `results/paper`, links."""

from __future__ import annotations

import csv
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from bench import registry
from bench.api import PromptStyle
from bench.api.protocol import PRESETS
from bench.metrics import METRICS
from bench.prompts import templates as wording
from methods.ccps.features import FEATURES
from tasks._choices import LETTERED, OPEN
from tasks.ct import knowledge
from tasks.ct.composer import CHOICE_SETS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/methods.md").read_text(encoding="utf-8")
METHODS = registry.methods(())

MODELS = ("llama8b", "qwen14b", "mistral24b", "qwen32b")
TESTS = {"MMLU": "mmlu-choice", "MMLU-Pro": "mmlu-pro-choice", "MMLU-OE": "mmlu-oe"}
PROBES = ("saplma-f", "saplma-m", "saplma-um")
BASELINES = ("ptrue", "lts", "it", "ct", "pik", *PROBES, "litcab")


def section(number: str) -> str:
    """From a heading to the next one that is not below it."""
    found = re.search(rf"^(#+) {re.escape(number)}\.? .*?(?=^#{{1,2}} |^\1 |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None, number
    return found[0]


def rows(table: str) -> list[list[str]]:
    """Cells of a table without its head."""
    lines = [line for line in table.splitlines() if line.startswith("|")]
    return [[cell.strip().strip("*") for cell in line.strip("|").split("|")] for line in lines[2:]]


# --- constants --------------------------------------------------------------------------------------------------------


def tables() -> dict[str, list[list[str]]]:
    found = re.findall(r"<!-- constants: (.+) -->\n((?:\|.*\n)+)", PAGE)
    return {name: rows(table) for names, table in found for name in names.split()}


def values(name: str) -> Mapping[str, Mapping[str, Any]]:
    """Preset -> constant -> value."""
    if name == "protocol":
        return {preset: {k: v for k, v in vars(p).items() if k != "preset"} for preset, p in PRESETS.items()}
    cls: Any = METHODS.get(name)
    return {preset: cls(**arguments).params() for preset, arguments in cls.presets.items()}


WORDS: Mapping[object, set[str]] = {True: {"on"}, False: {"off"}, None: {"none", "all"}}


def says(cell: str, value: Any) -> bool:
    if isinstance(value, bool | None):
        return cell in WORDS[value]
    if isinstance(value, int | float):
        return float(cell.replace(",", "")) == value
    if isinstance(value, tuple | list):
        return cell == ", ".join(map(str, value))
    return bool(cell == getattr(value, "value", value))


def test_every_method_with_constants_has_a_table() -> None:
    with_constants = {name for name in METHODS.names() if METHODS.get(name).presets}
    assert set(tables()) == with_constants | {"protocol"}


@pytest.mark.parametrize("name", sorted(tables()))
def test_constants_are_those_of_the_code(name: str) -> None:
    written = {
        line[0].strip("`"): dict(zip(("paper", "refcode", "fixed", "demo"), line[1:], strict=True))
        for line in tables()[name]
    }
    by_preset = values(name)
    assert set(by_preset) == {"paper", "refcode", "fixed", "demo"}
    for preset, constants in by_preset.items():
        assert set(constants) == set(written)
        wrong = {k: (written[k][preset], v) for k, v in constants.items() if not says(written[k][preset], v)}
        assert not wrong, preset


def test_features_have_the_names_and_the_order_of_the_code() -> None:
    named = [(columns, name.strip("`")) for columns, name, _ in rows(section("3"))]
    written: list[str] = []
    for columns, name in named:
        own = [name] if " to " not in columns else [f"{name}_{what}" for what in ("min", "max", "mean", "std")]
        assert columns.split(" to ")[0] == str(len(written) + 1)
        written += own
    assert tuple(written) == FEATURES


def test_every_metric_has_a_section() -> None:
    headings = " ".join(re.findall(r"^### 4\..*$", PAGE, re.MULTILINE))
    assert {name for name in METRICS if f"`{name}`" not in headings} == set()


# --- prompts ----------------------------------------------------------------------------------------------------------


def blanked(words: str) -> str:
    """As the page writes a template, whatever is filled in."""
    written = words.replace("\n", "\\n").replace("{options}", "OPTIONS").replace(", ".join(knowledge.KINDS), "{}")
    return re.sub(r"\{[^}]*\}", "{}", re.sub(r"\[[^]]*\{s\}[^]]*\]", "{}", written))


def templates() -> set[str]:
    """All words in code spans of the section on prompts, with and without options."""
    spans = set(re.findall(r"(?<!`)`([^`\n]+)`", section("1.4")))
    return {
        blanked(s.replace("(…)", f"(with {what})")) for s in spans for what in ("answers", "multiple-choice answers")
    }


STYLES = [(each.name, style) for each in CHOICE_SETS for style in (each.choice, each.open) if style is not None]


@pytest.mark.parametrize(("name", "style"), [*STYLES, ("mmlu", LETTERED), ("mmlu", OPEN)])
def test_words_around_questions_are_those_of_the_code(name: str, style: PromptStyle) -> None:
    assert {blanked(words) for words in (style.header, style.footer, style.context)} <= templates(), name


def test_system_messages_and_query_are_those_of_the_code() -> None:
    assert all(f"`{words}`" in section("1.5") for words in wording.SYSTEM.values())
    assert f"```\n{wording.query_text('ab').strip()}\n```" in section("2.0")


# --- links ------------------------------------------------------------------------------------------------------------


def anchors() -> Iterator[str]:
    """As GitHub makes them of headings."""
    for heading in re.findall(r"^#+ (.*)$", PAGE, re.MULTILINE):
        yield re.sub(r"[^\w\s-]", "", heading.lower()).replace(" ", "-")


def test_links_within_the_page_lead_somewhere() -> None:
    assert set(re.findall(r"\]\(#([^)]*)\)", PAGE)) <= set(anchors())


# --- published numbers ------------------------------------------------------------------------------------------------


def published() -> Mapping[tuple[str, str, str], Mapping[str, float]]:
    """(model, task, method) -> metric -> percent."""
    cells: dict[tuple[str, str, str], dict[str, float]] = defaultdict(dict)
    with (ROOT / "results/paper/results.csv").open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            cells[line["model"], line["task"], line["method"]][line["metric"]] = float(line["mean"])
    return cells


CELLS = published()


def key(label: str) -> tuple[str, str]:
    """`Qwen-14B, MMLU` -> model and task."""
    model, test = label.split(", ")
    return model.replace("-", "").lower(), TESTS[test]


def test_impossible_calibration_errors_are_all_that_there_are() -> None:
    """Rounding gives an ECE 0.05 and a Brier score 0.05 at most."""
    impossible = {k for k, c in CELLS.items() if c["ece"] - 0.05 > 100 * math.sqrt((c["brier"] + 0.05) / 100)}
    written = rows(section("#4"))
    for label, method, ece, brier, root in written:
        cell = CELLS[(*key(label), "litcab" if method == "LitCab" else method)]
        assert (cell["ece"], cell["brier"]) == (float(ece), float(brier))
        assert f"{100 * math.sqrt(cell['brier'] / 100):.1f}" == root
    assert impossible == {(*key(label), method.lower()) for label, method, *_ in written}


def test_lts_differs_from_ptrue_where_the_page_says() -> None:
    differing = 0
    written = rows(section("#46"))
    for label, *pairs in written:
        ptrue, lts = (CELLS[(*key(label), method)] for method in ("ptrue", "lts"))
        for metric, pair in zip(("acc", "aucpr", "auroc"), pairs, strict=True):
            assert [ptrue[metric], lts[metric]] == [float(number) for number in pair.strip("*").split(", ")]
        differing += any(abs(ptrue[metric] - lts[metric]) > 0.11 for metric in ("acc", "aucpr", "auroc"))
    assert (differing, len(written)) == (10, 12)


def reductions(metric: str, rivals: tuple[str, ...]) -> list[float]:
    """How much smaller CCPS' value is than the best rival's, in percent, for each model and test."""
    found = []
    for model in MODELS:
        for task in TESTS.values():
            best = min(CELLS[model, task, rival][metric] for rival in rivals)
            found.append(100 * (1 - CELLS[model, task, "ccps"][metric] / best))
    return found


def test_the_abstracts_reductions_are_those_against_two_of_nine_baselines() -> None:
    eces, all_eces = reductions("ece", ("litcab", "ct")), reductions("ece", BASELINES)
    figures = [mean(eces), max(eces), mean(all_eces), max(all_eces), mean(reductions("brier", BASELINES))]
    text = " ".join(section("#4").split())
    assert [f"{figure:.1f} %" in text for figure in figures] == [True] * 5
    assert f"{mean(reductions('brier', ('litcab', 'ct'))):.0f} % lower Brier" in text


def test_probes_are_at_chance_as_the_page_says() -> None:
    probes = [CELLS[m, t, probe]["auroc"] for m in MODELS for t in TESTS.values() for probe in PROBES]
    assert (min(probes), max(probes), len(probes)) == (49.3, 50.6, 36)
    pik = {(m, t): CELLS[m, t, "pik"]["auroc"] for m in MODELS for t in TESTS.values()}
    above = {cell: value for cell, value in pik.items() if value > 50.6}
    assert above == {("mistral24b", "mmlu-choice"): 56.3, ("mistral24b", "mmlu-oe"): 52.7}
    assert min(pik.values()) == 49.1
