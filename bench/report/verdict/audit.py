"""Sentences of the verdict on an audit: how far confidences are off on average, and whether they order answers."""

from __future__ import annotations

from collections.abc import Iterator

from bench.metrics import METRICS
from bench.report.competition import CALIBRATION, SEVERAL
from bench.report.tables.model import Line, Table
from bench.report.text import interval_text, percent, precise
from bench.report.verdict.phrases import label, name_first_few
from bench.stats import Overconfidence
from bench.stats.overconfidence import NOT_SHOWN, TOO_FEW

_POINTS = METRICS["brier"]


def off_by(off: Overconfidence) -> str:
    """Return how far the mean confidence is off, e.g. `21.3 points (18.0 to 24.5)`."""
    low, high = off.interval.ends or (0.0, 0.0)
    ends = (low, high) if off.value > 0 else (-high, -low)
    return f"{precise(_POINTS, abs(off.value))} points ({interval_text(_POINTS, *ends)})"


def calibration_sentences(table: Table) -> Iterator[str]:
    """Yield the sentences that say which confidences are over- or underconfident on average, and by how much."""
    lines = [line for line in table.lines if not line.part and line.key in table.overconfidence]
    same = [f"{label(line)} ({percent(off.confidence)} %)" for line in lines
            if (off := table.overconfidence[line.key]).distinct == 1]  # fmt: skip
    if same:
        yield f"The same confidence in every answer, so it tells none from another: {name_first_few(same)}."
    if len(lines) < SEVERAL:
        yield from (sentence for line in lines for sentence in _alone(line, table.overconfidence[line.key]))
        return
    texts = []
    for word in ("overconfident", "underconfident", NOT_SHOWN, TOO_FEW):
        offs = [(line, off) for line in lines if (off := table.overconfidence[line.key]).word == word]
        names = [label(line) + f" by {off_by(off)}" * bool(off.least) for line, off in offs]
        texts += [f"{word}{' to be off on average' * (word == NOT_SHOWN)}: {name_first_few(names)}"] if names else []
    text = "; ".join(texts)
    yield f"{text[:1].upper()}{text[1:]}."


def _alone(line: Line, off: Overconfidence) -> Iterator[str]:
    means = f"{percent(off.confidence)} % sure on average, {percent(off.accuracy)} % right"
    if off.least:
        yield f"{label(line)} is {off.word} by {off_by(off)}: {means}."
    else:
        why = off.interval.reason or f"off by {off_by(off)}"
        yield f"{label(line)} is not shown to be over- or underconfident on average: {means} ({why})."
    error = line.estimate(CALIBRATION)
    if error.mean is not None and error.ends is not None:
        ends = interval_text(_POINTS, max(0.0, error.ends[0]), error.ends[1])
        yield f"Calibration error (RMS, without what chance adds): {precise(_POINTS, error.mean)} points ({ends})."


def order_sentences(table: Table) -> Iterator[str]:
    """Yield the sentences on the order of answers: of a confidence alone, and of those that order them in reverse."""
    lines = [line for line in table.lines if not line.part and line.standing]
    for line in lines if len(lines) < SEVERAL else ():
        auroc = line.estimate("auroc")
        if auroc.mean is not None and auroc.ends is not None:
            orders = "Right answers have the higher confidences" if line.orders_answers else "No order of answers shown"
            yield f"{orders}: AUROC {percent(auroc.mean)} ({interval_text(METRICS['auroc'], *auroc.ends)})."
    reverse = [label(line) for line in lines if (ends := line.estimate("auroc").ends) and ends[1] < 0.5]  # noqa: PLR2004
    if reverse:
        yield f"Wrong answers have the higher values: {name_first_few(reverse)}. Is more less sure (--uncertainty)?"
