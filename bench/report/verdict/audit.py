"""Sentences of the verdict on an audit: how far confidences are off on average, and whether they order answers."""

from __future__ import annotations

from collections.abc import Iterator

from bench.metrics import METRICS
from bench.report.competition import CALIBRATION, CHANCE
from bench.report.tables.model import Line, Table
from bench.report.text import interval_text, metric_name, percent, precise
from bench.report.verdict.phrases import name_first_few, with_value
from bench.stats.overconfidence import NOT_SHOWN, OVER, TOO_FEW, UNDER, Overconfidence

METRIC = METRICS["brier"]
"""A metric whose values are in percentage points."""


def off_by(off: Overconfidence) -> str:
    """Return how far the mean confidence is off, e.g. `21.3 points (18.0 to 24.5)`."""
    low, high = off.interval.ends or (0.0, 0.0)
    return points(abs(off.value), *((low, high) if off.value > 0 else (-high, -low)))


def points(value: float, low: float, high: float) -> str:
    """Format a fraction and its interval in percentage points, e.g. `21.3 points (18.0 to 24.5)`."""
    return f"{precise(METRIC, value)} points ({interval_text(METRIC, low, high)})"


def error_ends(line: Line, table: Table) -> tuple[float, float] | None:
    """Return the interval of the calibration error (RMSCE); None without one.

    It is no smaller than the overconfidence of the same answers, so the nearer end of that is a lower end, too. This
    end alone is known of fewer than a hundred answers, and where hardly any are right, or wrong.
    """
    ends, off = line.estimate(CALIBRATION).ends, table.overconfidence.get(line.key)
    least = off.least if off else 0.0
    ends = ends or ((least, 1.0) if least else None)
    return ends and (max(0.0, ends[0], least), ends[1])


def calibration_sentences(table: Table) -> Iterator[str]:
    """Yield the sentences that say which confidences are over- or underconfident on average, and by how much."""
    known = [
        (line, off)
        for line in table.lines
        if not line.key.recalibration and (off := table.overconfidence.get(line.key))
    ]
    if same := [f"{line.key.label} ({percent(off.confidence)} %)" for line, off in known if off.distinct == 1]:
        yield f"The same confidence in every answer, so it tells none from another: {name_first_few(same)}."
    for line, off in known if len(known) < 2 else ():
        means = f"{percent(off.confidence)} % sure on average, {percent(off.accuracy)} % right"
        if off.least:
            yield f"{line.key.label} is {off.word} by {off_by(off)}: {means}."
        else:
            why = off.interval.reason or f"off by {off_by(off)}"
            yield f"{line.key.label} is not shown to be over- or underconfident on average: {means} ({why})."
        if (error := line.estimate(CALIBRATION)).mean is not None and (ends := error_ends(line, table)):
            yield f"Calibration error (RMS, without what chance adds): {points(max(error.mean, ends[0]), *ends)}."
    if len(known) < 2:
        return
    texts = []
    for word in (OVER, UNDER, NOT_SHOWN, TOO_FEW):
        names = [line.key.label + f" by {off_by(off)}" * bool(off.least) for line, off in known if off.word == word]
        texts += [f"{word}{' to be off on average' * (word == NOT_SHOWN)}: {name_first_few(names)}"] if names else []
    text = "; ".join(texts)
    yield f"{text[:1].upper()}{text[1:]}." * bool(text)


def order_sentences(table: Table) -> Iterator[str]:
    """Yield the sentences on the order of answers: of a confidence alone, and of those that order them in reverse."""
    lines = [(line, line.estimate("auroc")) for line in table.lines if not line.key.recalibration]
    known = [
        (line, auroc.mean, auroc.standing.fixed) for line, auroc in lines if auroc.mean is not None and auroc.standing
    ]
    for line, mean, fixed in known if len(lines) < 2 else ():
        orders = "Right answers have the higher confidences" if line.orders_answers else "No order of answers is shown"
        inside = interval_text(METRICS["auroc"], *fixed.ends) if fixed.ends else fixed.reason
        yield f"{orders}: AUROC {percent(mean)} ({inside})."
    if reverse := [line.key.label for line, _, fixed in known if fixed.ends and fixed.ends[1] < CHANCE]:
        yield f"Wrong answers are the surer ones: {name_first_few(reverse)}. Is it the other way round (--uncertainty)?"


def recalibrated_sentence(table: Table) -> str:
    """Return the sentence on the best recalibrated confidence; empty without one."""
    lines = [line for line in table.lines if line.key.recalibration and line.badness(table.headline) is not None]
    best = min(lines, key=lambda line: line.badness(table.headline) or 0.0, default=None)
    by = f"Best when recalibrated, by {metric_name(table.headline)}"
    return f"{by}: {with_value(best, table.headline, lines)}; not tested against these." if best else ""
