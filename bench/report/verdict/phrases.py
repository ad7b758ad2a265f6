"""Build the phrases of a verdict's sentences: methods, differences, counts and costs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bench.metrics import METRICS
from bench.report.competition import displayed_value
from bench.report.standings.compute import Pair
from bench.report.tables.model import Line
from bench.report.text import count, interval_text, precise, value_text

_NAMED = 4
"""Maximum number of methods that a phrase names. In a longer list, a count of the others replaces the last name."""


def with_value(line: Line, metric: str, others: Sequence[Line] = ()) -> str:
    """Return a method with its mean of a metric, and which others look the same, e.g. `ccps (14.1, like pik)`."""
    mean = _mean_text(line, metric)
    same = [each.key.label for each in others if each is not line and _mean_text(each, metric) == mean]
    return f"{line.key.label} ({value_phrase(line, metric)}{like_phrase(same)})"


def like_phrase(names: Sequence[str]) -> str:
    """Return `, like pik and lts`, of methods whose number looks the same; empty without any."""
    return f", like {name_first_few(names, most=3)}" if names else ""


def _mean_text(line: Line, metric: str) -> str:
    mean = line.estimate(metric).mean
    return "unknown" if mean is None else value_text(METRICS[metric], displayed_value(metric, mean))


def value_phrase(line: Line, metric: str) -> str:
    """Return a method's mean of a metric, and how many seeds it has where some failed, e.g. `14.1, 2 of 3 seeds`."""
    return _mean_text(line, metric) + f", {len(line.seeds)} of {line.n_runs} seeds" * (len(line.seeds) != line.n_runs)


def join_with_and(texts: Sequence[str]) -> str:
    """Join texts with commas, and "and" before the last.

    >>> join_with_and(["a", "b", "c"]), join_with_and(["a"])
    ('a, b and c', 'a')
    """
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


def name_first_few(texts: Sequence[str], most: int = _NAMED) -> str:
    """Join the first few texts and count the others, if there are more than `most`.

    >>> name_first_few(["a", "b", "c", "d", "e"])
    'a, b, c and 2 others'
    """
    if len(texts) <= most:
        return join_with_and(texts)
    return join_with_and([*texts[: most - 1], f"{len(texts) - most + 1} others"])


def distance_phrase(lead: Pair) -> str:
    """Say how far the second method of a comparison is behind the first, e.g. `3.9 points behind (2.9 to 4.9)`.

    Args:
        lead: comparison from `Competition.comparison_to`, positive if the first method is better.
    """
    if not lead.difference:
        return "with the same mean"
    metric, fixed = METRICS[lead.metric], lead.fixed
    size = precise(metric, abs(lead.difference))
    unit = ("point" if metric.is_fraction else "nat") + "s" * (size.rstrip("0") != "1.")
    text = f"{size} {unit} {'behind' if lead.difference > 0 else 'ahead'}"
    return text if fixed.ends is None else f"{text} ({interval_text(metric, *fixed.ends)})"


def compact_count(number: float) -> str:
    """Format a count in few characters, with k for thousands and M for millions.

    >>> compact_count(2.34), compact_count(812), compact_count(73_412), compact_count(1_234_567), compact_count(0.4e6)
    ('2.3', '812', '73 k', '1.2 M', '400 k')
    """
    if number < 10 and number % 1:
        return f"{number:.1f}"
    if number < 10_000:
        return count(round(number))
    return f"{number / 1e6:,.1f} M" if number >= 1e6 else f"{number / 1e3:,.0f} k"


def sort_by_cost(lines: Sequence[Line]) -> list[Line]:
    """Sort methods by cost: tokens of an answer, then labels; unknown costs come last, equal ones stay in order."""
    return sorted(lines, key=lambda line: (sum(line.answer_tokens or (math.inf,)), n_labels(line)))


def n_labels(line: Line) -> int:
    """Return the number of labels that a method uses; if seeds differ, the largest number."""
    return max((seen.train + seen.validation + seen.gold for seen in line.labels), default=0)


def cost_phrase(line: Line) -> str:
    """Format the cost of a method: tokens read + generated for a tested answer, and labels."""
    costs = ["unknown"]
    if line.answer_tokens:
        read, generated = line.answer_tokens
        costs = [compact_count(read) + f" + {compact_count(generated)}" * bool(generated)]
    if line.labels:
        costs.append(f"{count(n)} labels" if (n := n_labels(line)) else "no labels")
    return ", ".join(costs)
