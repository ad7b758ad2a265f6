"""Phrases of which sentences are made: metrics, methods, differences, counts."""

from __future__ import annotations

from collections.abc import Sequence

from bench.metrics import METRICS
from bench.report.competition import counted
from bench.report.standings.compute import Pair
from bench.report.tables.model import Line
from bench.report.text import count, interval_text, precise, shown

_NAMED = 4
"""Methods that a sentence names; of more, one fewer is, and the others are counted."""
_THOUSAND, _MILLION = 10_000, 1_000_000


def name(line: Line) -> str:
    """A method, with its settings where it has several lines."""
    return line.key.label


def with_value(line: Line, metric: str) -> str:
    """A method with its mean, e.g. `ccps (14.1)`."""
    return f"{name(line)} ({value(line, metric)})"


def value(line: Line, metric: str) -> str:
    """The mean that judges."""
    mean = line.estimate(metric).mean
    return "unknown" if mean is None else shown(METRICS[metric], counted(metric, mean))


def joined(texts: Sequence[str], last: str = "and") -> str:
    """Texts with commas between, and a word before the last.

    >>> joined(["a", "b", "c"]), joined(["a"])
    ('a, b and c', 'a')
    """
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} {last} {texts[-1]}"


def named(texts: Sequence[str], last: str = "and", most: int = _NAMED) -> str:
    """Texts, of which the first few are named and the others are counted.

    >>> named(["a", "b", "c", "d", "e"])
    'a, b, c and 2 others'
    """
    if len(texts) <= most:
        return joined(texts, last)
    return joined([*texts[: most - 1], f"{len(texts) - most + 1} others"], last)


def amount(metric: str, difference: float) -> str:
    """The size of a difference with its unit, e.g. `3.9 points`."""
    size = precise(METRICS[metric], abs(difference))
    unit = "points" if METRICS[metric].is_fraction else "nats"
    return f"{size} {unit.removesuffix('s') if size.rstrip('0') == '1.' else unit}"


def interval(pair: Pair) -> str:
    """The interval of a pair; empty where there is none."""
    if pair.fixed.low is None or pair.fixed.high is None:
        return ""
    level = f"{100 * (pair.fixed.level or 0):.0f}"
    return f"{level} % interval of this pair {interval_text(METRICS[pair.metric], pair.fixed.low, pair.fixed.high)}"


def behind(pair: Pair, ahead: str = "") -> str:
    """The distance of a lead's other method, e.g. `is behind by 3.9 points (95 % interval …)`.

    Args:
        pair: by `Judgement.lead`.
        ahead: the method that it is behind; empty where that is clear.
    """
    if not pair.difference:
        return f"has the same mean{f' as {ahead}' if ahead else ''}"
    way = f"is {'behind' if pair.difference > 0 else 'ahead of'} {ahead or 'it'}"
    way = "is behind" if pair.difference > 0 and not ahead else way
    inside = interval(pair)
    return f"{way} by {amount(pair.metric, pair.difference)}" + (f" ({inside})" if inside else "")


def compact(number: float) -> str:
    """A large count in few characters.

    >>> compact(812), compact(73_412), compact(1_234_567), compact(0.4e6)
    ('812', '73 k', '1.2 M', '400 k')
    """
    if number < _THOUSAND:
        return count(number)
    return f"{number / 1e6:,.1f} M" if number >= _MILLION else f"{number / 1e3:,.0f} k"
