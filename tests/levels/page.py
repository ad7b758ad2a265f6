"""The page of the simulations: what must hold, whether it does, and all numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bench.metrics import METRICS
from bench.report.tables.formats import markdown_table
from bench.stats import TESTED
from tests.levels.measure import METHODS
from tests.levels.populations import CELLS, DIFFERENT, GAPS, POWERED, SHAPED, SHAPES
from tests.levels.power import FOUND

Outcomes = Mapping[str, Any]
"""Job -> what it measured."""
SEEN = 100
"""Data sets below which a cell's share is no outcome: they are those that chance let through a limit."""
_OPENING = f"""\
# How often tests err, and intervals cover

`make simulate` judges simulated answers, whose truth is known, with `bench.stats.summary`, as every comparison is
judged, and writes this page (half an hour on an idle core; started again, it goes on with what is left). {METHODS}
methods that differ by chance alone, with much in common, stand for a comparison in which nothing may be named; their
true metrics are those of a million questions. ± is the Monte-Carlo error."""
_SHAPES = """\
Two methods are off in different ways. Data sets in which the first : the second is named the better calibrated, %, by
RMSCE, and beside it by the raw ECE, which is tested alike, by its influences. Where the first is off by less, naming
the second is wrong."""
_POWER = f"""\
Pairs of {DIFFERENT} methods that differ in which the better one is named, %, by the former statistics (commit
{{commit}}: means over subjects, bootstrap resamples) → by these, on the same data sets."""


@dataclass(frozen=True)
class Criterion:
    """Something that must hold."""

    text: str
    found: str
    met: bool


class Share(NamedTuple):
    """Data sets with an error, or the share of intervals that cover, in one cell."""

    metric: str
    cell: str
    share: float
    data_sets: int

    def __str__(self) -> str:
        return f"{self.share:.1%}: {METRICS[self.metric].label}, {self.cell}"


def criteria(outcomes: Outcomes, former: Mapping[str, Any]) -> list[Criterion]:
    """All of them, of all outcomes."""
    told = [(cell.name, metric, outcomes[f"levels: {cell.name}"][metric]) for cell in CELLS for metric in TESTED]
    told = [(cell, metric, found) for cell, metric, found in told if found["tested"] >= SEEN]
    errors = [Share(m, cell, x["named"] / x["tested"], x["tested"]) for cell, m, x in told]
    covered = [Share(m, cell, x["covered"], x["tested"]) for cell, m, x in told]
    told_apart = [
        (f"{shape}, {cell.name}, {row['gaps']}", row["named"]["rmsce"], row["data_sets"])
        for cell in SHAPED for shape in SHAPES for row in outcomes[f"shapes: {cell.name}: {shape}"]
    ]  # fmt: skip
    first, second = ([Share("rmsce", name, named[k] / n, n) for name, named, n in told_apart] for k in range(2))
    equal, _, apart = (str([*gaps]) for gaps in GAPS)
    either = [a._replace(share=a.share + b.share) for a, b in zip(first, second, strict=True) if equal in a.cell]
    found = min((each for each in first if f"8 x 150, {apart}" in each.cell), key=lambda each: each.share)
    wrong = max((each for each in second if equal not in each.cell), key=lambda each: each.share)
    low, means = min(covered, key=lambda each: each.share), _means(covered)
    gains = [
        (100 * (outcomes[f"power: {cell.name}"][m] - former["found"][cell.name][m]), f"{METRICS[m].label}, {cell.name}")
        for cell in POWERED for m in FOUND
    ]  # fmt: skip
    seconds = outcomes["time"]
    return [
        *_levels("Of methods that don't differ, one is named better", errors),
        *_levels("Of two methods of the same RMSCE in other shapes, one is named better by RMSCE", either),
        Criterion("RMSCEs of 4 and 10 % are told apart in at least half, 8 x 150, each pair of shapes",
                  f"least {found}", found.share >= 0.5),
        Criterion("The worse RMSCE is named in at most 2.5 %", f"most {wrong}", wrong.share <= 0.025),
        Criterion("Intervals of 95 % cover in at least 91.75 %, each cell", f"least {low}", low.share >= 0.9175),
        Criterion("and in 94 to 97 % on average, each metric", _listed(means),
                  all(0.94 <= mean <= 0.97 for mean in means.values())),
        Criterion("Power is at most two points below that of the former statistics",
                  "least gain {:+.1f}: {}".format(*min(gains)), min(gains)[0] >= -2),
        Criterion("12 methods x 14,042 questions x 3 seeds are judged in at most 10 s",
                  f"{seconds:.1f} s", seconds <= 10),
    ]  # fmt: skip


def _levels(text: str, errors: list[Share]) -> Iterator[Criterion]:
    """Where 5 % are true, 33 of 400 and 13 of 100 come by chance in 0.4 and 0.1 % of simulations."""
    worst = max(errors, key=lambda each: each.share)
    met = all(each.share < (0.13 if each.data_sets <= SEEN else 0.0825) for each in errors)
    yield Criterion(f"{text} in less than 8.25 % of data sets (13 % of 100), each cell", f"most {worst}", met)
    means = _means(errors)
    yield Criterion("and in at most 5.5 % on average, each metric", _listed(means), max(means.values()) <= 0.055)


def _means(shares: Iterable[Share]) -> dict[str, float]:
    by_metric: dict[str, list[float]] = {}
    for each in shares:
        by_metric.setdefault(each.metric, []).append(each.share)
    return {metric: float(np.mean(found)) for metric, found in by_metric.items()}


def _listed(means: Mapping[str, float]) -> str:
    return ", ".join(f"{METRICS[metric].label} {mean:.1%}" for metric, mean in means.items())


def written(outcomes: Outcomes, former: Mapping[str, Any], of: str) -> str:
    """The whole page; `of` says of which commit and machine."""
    rows = [[each.text, each.found, "holds" if each.met else "**fails**"] for each in criteria(outcomes, former)]
    labels = ["questions", *(METRICS[metric].label for metric in TESTED)]
    found = {cell.name: outcomes[f"levels: {cell.name}"] for cell in CELLS}
    named = ([name, *(_named(metrics[metric]) for metric in TESTED)] for name, metrics in found.items())
    covered = ([name, *(_covered(metrics[metric]) for metric in TESTED)] for name, metrics in found.items())
    paragraphs = [
        _OPENING, of, markdown_table(["what must hold", "found", "holds?"], rows),
        "## Methods that don't differ",
        f"Data sets in which any method is named better than another, %, of those that are tested, {SEEN} at least.",
        markdown_table(labels, named, "lr"), [*_reasons(outcomes)],
        "## Intervals",
        f"Intervals of 95 % that contain the true value, %, of those that there are, in {SEEN} data sets at least.",
        markdown_table(labels, covered, "lr"),
        "## Calibration errors of other shapes",
        _SHAPES, [f"- {name}: {draw.__doc__}" for name, draw in SHAPES.items()],
        markdown_table(["questions", "shapes", "true RMSCEs, %", "RMSCE", "raw ECE"], _shapes(outcomes), "llr"),
        "## Power",
        _POWER.format(**former),
        markdown_table(["questions", *(METRICS[metric].label for metric in FOUND)], _power(outcomes, former), "lr"),
    ]  # fmt: skip
    return "\n\n".join(each if isinstance(each, str) else "\n".join(each) for each in paragraphs) + "\n"


def _named(found: Mapping[str, Any]) -> str:
    named, tested, untested = found["named"], found["tested"], sum(found["untested"].values())
    if tested < SEEN:
        return f"{tested} tested" if tested else "no test"
    share = named / tested
    text = f"{100 * share:.1f} ± {100 * np.sqrt(share * (1 - share) / tested):.1f}"
    return text + (f" ({untested / (untested + tested):.0%} untested)" if untested else "")


def _covered(found: Mapping[str, Any]) -> str:
    if found["tested"] < SEEN:
        return "few intervals" if found["intervals"] else "no interval"
    none = 1 - found["intervals"]
    return f"{100 * found['covered']:.1f} ± {100 * found['error']:.1f}" + (f" ({none:.0%} none)" if none > 0 else "")


def _reasons(outcomes: Outcomes) -> Iterator[str]:
    for cell in CELLS:
        reasons = [
            f"{count:,} of {count + found['tested']:,} data sets, {reason}"
            for found in outcomes[f"levels: {cell.name}"].values() for reason, count in found["untested"].items()
        ]  # fmt: skip
        yield from (f"- Untested, {cell.name}: {reason}." for reason in reasons)


def _shapes(outcomes: Outcomes) -> Iterator[list[str]]:
    for cell in SHAPED:
        for shape in SHAPES:
            for row in outcomes[f"shapes: {cell.name}: {shape}"]:
                shares = [np.divide(row["named"][metric], row["data_sets"]) for metric in ("rmsce", "ece")]
                figures = (" : ".join(f"{100 * one:.1f}" for one in pair) for pair in (row["true"], *shares))
                yield [cell.name, shape, *figures]


def _power(outcomes: Outcomes, former: Mapping[str, Any]) -> Iterator[list[str]]:
    for cell in POWERED:
        before, now = former["found"][cell.name], outcomes[f"power: {cell.name}"]
        yield [cell.name, *(f"{100 * before[metric]:.1f} → {100 * now[metric]:.1f}" for metric in FOUND)]
