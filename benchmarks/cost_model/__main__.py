"""`make cost-model`: counts the work of every stage on every model of the paper, and computes hours on one H100.

Nothing is timed, and no accelerator is needed: counts come from dry passes of the real code (`dry.py`), lengths from
`workload.json`, rates from `arithmetic.py`. Ten minutes on one core; `figures.json` and `figures.md` are written here.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.report.tables.formats import markdown_table
from benchmarks.cost_model.arithmetic import DECODED_TOGETHER
from benchmarks.cost_model.dry_model import configurations
from benchmarks.cost_model.stages import MACHINE, computes_again, stages
from benchmarks.cost_model.workload import BUDGETS, CHARACTERS

FIGURES = Path(__file__).with_name("figures.json")
TABLE = Path(__file__).with_name("figures.md")
GROUPS = {
    "choice tests": ("read mmlu-choice", "read mmlu-pro-choice", "read medmcqa-choice"),
    "open tests": ("read mmlu-oe", "read medmcqa-oe"),
    "training corpus, choice": ("read ct-local-choice",),
    "training corpus, open": ("read ct-local-oe",),
    "LitCab, both fits": ("LitCab, choice", "LitCab, open"),
    "CCPS features, small networks": ("CCPS features", "probes and CCPS networks"),
}
"""Lines of the table without adapters -> their stages."""
ADAPTERS = {
    "adapters: training, 4": ("train IT, choice", "train CT, choice", "train IT, open", "train CT, open"),
    "adapters: reading the tests": ("adapters read the tests",),
}
TARGETS = {
    "open reading": (3.0, ("open tests", "training corpus, open")),
    "choice reading": (1.5, ("choice tests", "training corpus, choice")),
    "LitCab": (2.0, ("LitCab, both fits",)),
}
"""What is compared with the ideal -> the most that it should be, and its lines."""
MOST_HOURS = 8.0
"""Of the grid without adapters."""
Figures = Mapping[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cost_model", description=__doc__)
    parser.add_argument("--print", action="store_true", help="print the committed figures, count nothing")
    if not parser.parse_args().print:
        logging.disable(logging.WARNING)  # libraries that look for an accelerator
        warnings.simplefilter("ignore")
        FIGURES.write_text(json.dumps(computed(), indent=1) + "\n", encoding="utf-8")
        TABLE.write_text(table(read()), encoding="utf-8")
    print(TABLE.read_text(encoding="utf-8"), end="")


def read() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FIGURES.read_text(encoding="utf-8"))
    return found


def computed() -> dict[str, Any]:
    models: dict[str, Any] = {}
    for model in configurations():
        for name, count in stages(model).items():
            start = time.perf_counter()
            budgets = BUDGETS if "read" in name else BUDGETS[:1]  # fits don't know the budget of reading
            found = {str(budget): count(budget).record() for budget in budgets}
            models.setdefault(model, {})[name] = {
                str(budget): found.get(str(budget), found["1024"]) for budget in BUDGETS
            }
            print(f"{model}, {name}: {time.perf_counter() - start:.0f} s", file=sys.stderr)
    again = [model for model in models if computes_again(model)]
    return {"computed": True, "machine": asdict(MACHINE), "gradient checkpointing": again, "models": models}


def spent(figures: Figures, model: str, budget: int, chosen: tuple[str, ...], what: str = "seconds") -> float:
    return float(sum(figures["models"][model][name][str(budget)][what] for name in chosen))


def ratio(figures: Figures, model: str, budget: int, lines: tuple[str, ...]) -> float:
    chosen = tuple(name for line in lines for name in GROUPS[line])
    return spent(figures, model, budget, chosen) / spent(figures, model, budget, chosen, "ideal")


def hours(figures: Figures, model: str, budget: int, *, adapters: bool = False) -> float:
    groups = {**GROUPS, **ADAPTERS} if adapters else GROUPS
    return sum(spent(figures, model, budget, chosen) for chosen in groups.values()) / 3600


def table(figures: Figures) -> str:
    return "\n".join([*_head(figures), *_hours(figures), "", *_ratios(figures), "", *_counts(figures)]) + "\n"


def _head(figures: Figures) -> Iterator[str]:
    machine = figures["machine"]
    yield from ("# Hours of the whole comparison on one accelerator", "")
    rates = f"{machine['flops'] / 1e12:,.0f} TFLOP/s in bf16, {machine['flops32'] / 1e12:,.0f} in float32"
    host = f"{machine['launch'] * 1e6:.0f} us for each launched operation, {machine['copy'] * 1e6:.0f} us for each"
    memory, again = f"{machine['memory'] / 1e9:.0f} GB", ", ".join(figures["gradient checkpointing"]) or "no model"
    yield (
        f"COMPUTED, measured nowhere: one {machine['name']} with {rates}, {machine['bytes'] / 1e12:.2f} TB/s, {host}"
        " blocking copy. Operations, bytes and copies are counted in dry passes of this code; preset `paper`: 10,000"
        " steps of each training, to their end. Lengths are those of the questions in the tokens of `tiny`, scaled to a"
        " large model's; a small part of the training corpora stands in for the whole. The ideal is the same model with"
        f" prompts at half the peak and decoding in batches of {DECODED_TOGETHER}. A large model's token is assumed to"
        f" be {CHARACTERS} characters long. Packs are followed side by side as on a card of {memory}. Trained with"
        f" gradient checkpointing, as the trainer chooses there: {again}.\n"
    )


def _hours(figures: Figures) -> Iterator[str]:
    models = list(figures["models"])
    rows = []
    for line, chosen in {**GROUPS, **ADAPTERS}.items():
        cells = ([spent(figures, model, budget, chosen) / 3600 for budget in BUDGETS] for model in models)
        rows.append([line, *map(_cell, cells)])
    for line, adapters in (("**all without adapters**", False), ("**all**", True)):
        sums = ([hours(figures, model, budget, adapters=adapters) for budget in BUDGETS] for model in models)
        rows.append([line, *map(_cell, sums)])
    yield from markdown_table(["hours, token budget 1,024 → 8,192", *models], rows, "lr")


def _cell(values: list[float], digits: int = 2) -> str:
    texts = [f"{value:.{digits}f}" for value in values]
    return texts[0] if texts[0] == texts[1] else " → ".join(texts)


def _ratios(figures: Figures) -> Iterator[str]:
    models = list(figures["models"])
    rows = []
    for name, (most, lines) in TARGETS.items():
        cells = ([ratio(figures, model, budget, lines) for budget in BUDGETS] for model in models)
        rows.append([name, f"{most:g}", *(_cell(cell, digits=1) for cell in cells)])
    yield from markdown_table(["time ÷ ideal, budget 1,024 → 8,192", "at most", *models], rows, "lr")
    whole = [sum(hours(figures, model, budget) for model in models) for budget in BUDGETS]
    yield f"\nAll {len(models)} models without adapters: {_cell(whole)} hours; at most {MOST_HOURS:g} are wanted."


def _counts(figures: Figures) -> Iterator[str]:
    model = next(iter(figures["models"]))
    yield f"What is counted for {model} at budgets 1,024 and 8,192:\n"
    columns = ["stage", "budget", "passes", "tokens a pass", "launches a pass", "TB", "copies down", "copies up"]
    rows = []
    for name, by_budget in figures["models"][model].items():
        for budget, one in by_budget.items():
            if budget != "1024" and one == by_budget["1024"]:
                continue
            passes = one["passes"]
            each = (f"{one['tokens'] / passes:,.0f}", f"{one['launches'] / passes:,.0f}") if passes else ("", "")
            rows.append([
                name, f"{int(budget):,}", f"{passes:,.0f}", *each, f"{one['GB'] / 1e3:,.0f}", f"{one['down']:,.0f}",
                f"{one['up']:,.0f}", f"{one['seconds'] / 60:,.1f}", f"{one['ideal'] / 60:,.1f}",
            ])  # fmt: skip
    yield from markdown_table([*columns, "minutes", "ideal"], rows, "lr")


if __name__ == "__main__":
    main()
