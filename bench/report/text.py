"""Format names, reasons, numbers and intervals as text, the same in all tables, figures and pages."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from bench.metrics import METRICS, Metric
from bench.progress import visible

if TYPE_CHECKING:
    from bench.stats.settings import Average

REASON_LENGTH = 300
"""Maximum number of characters of a reason or a note that are shown."""
_JOINERS = "\u200c\u200d"
"""Zero-width characters that `plain` keeps, because Persian and composed emoji need them."""
EN_DASH = "\u2013"
MINUS = "\u2212"
NO_BREAK = "\u00a0"
_THREE_DECIMALS = re.compile(r"(?<![\d.])\d\.\d{3}(?![\d.])")
_METRIC_NAMES = {"brier": "Brier score", "rmsce": "RMS calibration error"}
"""Names of metrics for sentences, where they differ from the labels in tables."""
_ROUNDING = 1e-12
"""Numbers with a smaller absolute value count as 0."""
ARROWS = {True: " ↑", False: " ↓", None: ""}
"""Arrow behind a metric's label, by the metric's `higher_is_better`; empty if neither direction is better."""


def plain(text: str) -> str:
    r"""Return a text as one printable line of at most `REASON_LENGTH` characters.

    Control characters are escaped by `visible`, and zero-width characters other than joiners become spaces.

    >>> print(plain("a\x1b[2J\n b"))
    a\x1b[2J b
    """
    printable = "".join(" " if unicodedata.category(c) == "Cf" and c not in _JOINERS else c for c in visible(text))
    words = " ".join(printable.split())
    return words if len(words) <= REASON_LENGTH else words[: REASON_LENGTH - 1] + "…"


class Footnotes:
    """Texts of footnotes, numbered from 1 on; each text is stored once.

    Texts that differ only in their first number with three decimals, as those of seeds do, are one footnote, which has
    the smallest and the largest of these numbers. Settings (`with ccps.learning_rate=0.001`) tell lines apart and stay
    as they are.
    """

    def __init__(self, texts: Iterable[str] = ()) -> None:
        """Number the texts in the order in which they first occur."""
        self._by_words: dict[str, list[str]] = {}
        for text in texts:
            self.number(text)

    def number(self, text: str) -> int:
        """Return the number of a footnote with this text, and add the footnote if it is new."""
        words = text if text.startswith("with ") else _THREE_DECIMALS.sub("", text, count=1)
        self._by_words.setdefault(words, []).append(text)
        return list(self._by_words).index(words) + 1

    @property
    def texts(self) -> list[str]:
        """Texts of all footnotes; footnote number k is at index k - 1."""
        merged = []
        for texts in self._by_words.values():
            first, last = min(texts), max(texts)  # alike up to the number, which has one digit before its point
            number = _THREE_DECIMALS.search(last)
            merged.append(
                first
                if number is None or first == last
                else f"{first[: number.end()]} to {number[0]}{last[number.end() :]}"
            )
        return merged


def metric_name(metric: str) -> str:
    """Return the name of a metric for use in sentences.

    >>> metric_name("brier"), metric_name("auroc")
    ('Brier score', 'AUROC')
    """
    return _METRIC_NAMES.get(metric, METRICS[metric].label)


def averaged(average: Average) -> str:
    """Return in words whether metrics are pooled over questions or averaged over subjects.

    >>> averaged("questions"), averaged("subjects")
    ('of all questions at once', 'means over subjects')
    """
    return {"questions": "of all questions at once", "subjects": "means over subjects"}[average]


def with_arrow(metric: str) -> str:
    """Return a metric's label with an arrow in the better direction; a reference metric has no arrow.

    >>> with_arrow("brier"), with_arrow("ece_floor")
    ('Brier ↓', 'ECE floor')
    """
    return METRICS[metric].label + ARROWS[METRICS[metric].higher_is_better]


def percent(fraction: float) -> str:
    """Format a fraction in percent with one decimal, without the percent sign."""
    return f"{100 * fraction:.1f}"


def value_text(metric: Metric, value: float) -> str:
    """Format a metric's value as in tables: fractions in percent with one decimal, nats with three decimals.

    >>> from bench.metrics import METRICS
    >>> value_text(METRICS["ece"], 0.0812), value_text(METRICS["nll"], 0.45)
    ('8.1', '0.450')
    """
    return rounded(100 * value, 1) if metric.is_fraction else rounded(value, 3)


def with_half(name: str, value: float, ends: tuple[float, float] | None) -> str:
    """Format a metric's value, followed by ± the distance to the farther end of its interval, if it has one.

    >>> with_half("brier", 0.18, (0.17, 0.2)), with_half("brier", 0.18, None)
    ('18.0 ±2.0', '18.0')
    """
    metric = METRICS[name]
    half = f" ±{value_text(metric, max(ends[1] - value, value - ends[0]))}" if ends else ""
    return value_text(metric, value) + half


def signed(metric: Metric, value: float) -> str:
    """Format a difference of a metric with its sign; a difference that is rounded to 0 has no sign."""
    text = value_text(metric, value)
    return f"+{text}" if value > 0 and text.strip("0.") else text


def precise(metric: Metric, value: float) -> str:
    """Format a metric's value as `value_text` does, with more decimals if a nonzero value would look like 0.

    >>> from bench.metrics import METRICS
    >>> precise(METRICS["brier"], 0.0812), precise(METRICS["brier"], 0.0003), precise(METRICS["brier"], 0.0)
    ('8.1', '0.03', '0.0')
    """
    number, decimals = (100 * value, 1) if metric.is_fraction else (value, 3)
    return rounded(number if abs(value) > _ROUNDING else 0.0, decimals, never_zero=True)


def precise_difference(metric: Metric, value: float) -> str:
    """Format a difference of a metric as `precise` does, with a plus sign if it is positive."""
    return "+" * (value > _ROUNDING) + precise(metric, value)


def rounded(number: float, decimals: int, *, never_zero: bool = False) -> str:
    """Format a number with a real minus sign (U+2212); a number that is rounded to 0 has no sign.

    Args:
        number: finite number.
        decimals: minimum number of decimals.
        never_zero: add decimals until a nonzero number does not look like 0.

    >>> rounded(-0.03, 1), rounded(0.03, 1, never_zero=True), rounded(1e-15, 1, never_zero=True)
    ('0.0', '0.03', '0.0')
    """
    if never_zero and abs(number) > _ROUNDING:
        small = abs(number) < 0.5 * 10**-decimals
        decimals = max(decimals, -math.floor(math.log10(abs(number))) if small else 0)
    text = f"{number:.{decimals}f}"
    return (text if float(text) else text.lstrip("-")).replace("-", MINUS)


def interval_text(metric: Metric, low: float, high: float) -> str:
    """Format the interval of a metric, with so many decimals that only an end of 0 looks like 0.

    >>> from bench.metrics import METRICS
    >>> interval_text(METRICS["brier"], 0.0003, 0.012)
    '0.03 to 1.2'
    """
    return f"{precise(metric, low)} to {precise(metric, high)}"


def p_text(p: float | None) -> str:
    """Format a p value with three decimals; empty if it is None.

    >>> p_text(0.0312), p_text(1e-9), p_text(None)
    ('0.031', '<0.001', '')
    """
    return "" if p is None else "<0.001" if p < 0.0005 else f"{p:.3f}"  # would be printed as 0.000


def count(value: float) -> str:
    """Format a whole number with commas between thousands."""
    return f"{value:,.0f}"


def two_digits(value: float) -> int:
    """Round a count to two significant digits.

    >>> two_digits(4347.1), two_digits(97.2), two_digits(996)
    (4300, 97, 1000)
    """
    return int(float(f"{value:.1e}"))


def plural(n: int, noun: str) -> str:
    """Format a number with its noun, in the plural unless the number is 1.

    >>> plural(1, "universe"), plural(1200, "universe")
    ('1 universe', '1,200 universes')
    """
    return f"{n:,} {noun}{'s' * (n != 1)}"


def seeds_text(seeds: Sequence[int]) -> str:
    """Format seeds after the noun `seed` or `seeds`.

    >>> seeds_text([0]), seeds_text([0, 1])
    ('seed 0', 'seeds 0, 1')
    """
    return f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"


def range_text(values: Iterable[float | None], text: Callable[[float], str]) -> str:
    """Format the smallest and the largest of the values that are not None, once if both look alike.

    Without such values the text is `unknown`.
    """
    known = [value for value in values if value is not None]
    if not known:
        return "unknown"
    ends = dict.fromkeys((text(min(known)), text(max(known))))
    return EN_DASH.join(ends)


def mean_of(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are not None, or None if all are.

    >>> mean_of([1.0, None, 3.0]), mean_of([None])
    (2.0, None)
    """
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def omitted_subjects(label: str, left_out: Sequence[int], total: int | None = None) -> str:
    """Say how many subjects a mean over subjects leaves out, because the metric is undefined in these subjects.

    Args:
        label: label of the metric.
        left_out: number of subjects left out, for each mean.
        total: number of subjects; None if it differs between means.

    >>> omitted_subjects("AUROC", [2], 8), omitted_subjects("AUROC", [1])
    ('AUROC leaves out 2 of 8 subjects, where it is undefined', 'AUROC leaves out 1 subject, where it is undefined')
    """
    of_total = "" if total is None else f" of {total}"
    subjects = "subject" if total is None and max(left_out) == 1 else "subjects"
    return f"{label} leaves out {range_text(left_out, count)}{of_total} {subjects}, where it is undefined"


def join(values: Iterable[Any]) -> str:
    """Join the distinct values, sorted, with commas."""
    return ", ".join(sorted({plain(str(value)) for value in values}))


def setting_text(value: Any) -> str:
    """Format the value of a setting: a string as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
