"""Costs of methods in words: tokens that the model reads and writes, labels, trained parameters."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from bench.report.averages import mean_of
from bench.report.tables.model import Line
from bench.report.text import count
from bench.report.verdict.phrases import compact

UNKNOWN = "tokens unknown"
"""Words for a cost in brief where it isn't known how many tokens the model read."""


def cheapest_first(lines: Sequence[Line]) -> list[Line]:
    """Lines by token positions, labels and parameters; what isn't known comes last."""
    return sorted(lines, key=lambda line: (_mean(line.tokens), labels(line), _mean(line.parameters), line.place))


def labels(line: Line) -> int:
    """Answers or questions that it was told right or wrong, of the seed with the most."""
    return max((seen.train + seen.validation + seen.gold for seen in line.labels), default=0)


def in_brief(line: Line) -> str:
    """Cost in a few words, e.g. `25 k tokens, 1,600 labels`."""
    tokens = [f"{compact(_mean(line.tokens))} tokens" if line.tokens else UNKNOWN]
    tokens += [f"{compact(_mean(line.generated))} generated"] if any(line.generated) else []
    n = labels(line)
    return ", ".join([*tokens, f"{count(n)} labels" if n else "no labels"])


def costs_of(line: Line) -> Iterator[str]:
    """What a method costs: tokens for each answer of the test with those of training, labels, trained parameters."""
    if line.tokens and line.n:
        tokens = f"{compact(_mean(line.tokens) / line.n)} tokens read"
        tokens += f" and {compact(_mean(line.generated) / line.n)} generated" if any(line.generated) else ""
        yield f"{tokens} for each of {count(line.n)} answers (training included)"
    else:
        yield UNKNOWN
    if line.labels:
        yield f"{count(n)} labels" if (n := labels(line)) else "no labels"
    if trained := mean_of(line.parameters):
        yield f"{compact(trained)} trained parameters"


def _mean(values: Sequence[float]) -> float:
    """Mean over seeds; infinity where unknown."""
    found = mean_of(values)
    return math.inf if found is None else found
