"""The lines of a block of the page: one method over its seeds, as JSON-ready dicts.

    {"method": index, "variant": "", "column": of questions' confidences,
     "status": "ok" | "skipped" | "failed" | "missing", "reasons": [footnote], "notes": [footnote],
     "seeds": [0, 1], "runs": 2, "n", "labels": [train, validation, gold], "trained_on", "parameters", "tokens",
     "generated", "seconds", "training": [[name, text]], "costs": {column: text},
     "mean": [x], "text": ["15.4"], "std": ["1.1"], "between": ["0.3"], "remarks": [[footnote]],
     "best": ["beyond chance" | "not beyond chance" | "not tested" | null],
     "subjects": [[text of each subject]],
     "ci": [["14.3", "16.5"] | null], "half": ["1.1" | null], "rank": {metric: 1}, "calibrated_p": "0.031",
     "calibrated": bool, "constant": "22.1" | null, "worse": bool}

Lists without a word on them go over the metrics. What is not known is null. The last two rows are there where standings
were given: `ci` is the interval for these subjects and other questions, `half` half its width on the longer side,
`calibrated_p` the p value of perfect calibration, `calibrated` that it has the sign of it, `constant` the Brier of a
constant confidence, `worse` that the line's is no better.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.metrics import METRICS, Metric
from bench.report import training
from bench.report.averages import mean_of
from bench.report.tables.model import Line, MetricValue
from bench.report.text import count, plain, probability, shown
from bench.report.verdict.phrases import compact
from bench.report.verdict.phrases import labels as labels_of

DIGITS = 6
"""Decimals of means, which are sorted by."""
_SHORT = 0.05
"""Seconds that would be printed as 0."""
_NOT_RUN = "not run on this model and benchmark"


@dataclass
class Footnotes:
    """Texts with numbers from 1 on, the same for the same text."""

    texts: list[str] = field(default_factory=list)

    def number(self, text: str) -> int:
        """Number of a text, which is added where it is new."""
        text = plain(text)
        if text not in self.texts:
            self.texts.append(text)
        return self.texts.index(text) + 1


# --- one line ---------------------------------------------------------------------------------------------------------


def line_of(line: Line, subjects: Sequence[str], footnotes: Footnotes) -> dict[str, Any]:
    """One line without its method's index and its column.

    Args:
        line: of a table, with at least one run.
        subjects: of the block, in the order of columns `subjects`.
        footnotes: notes on it are added.
    """
    head = {
        "variant": line.variant,
        "status": line.status,
        "reasons": list(map(footnotes.number, line.reasons)),
        "notes": list(map(footnotes.number, line.notes)),
        "seeds": list(line.seeds),
        "runs": line.runs,
        "n": line.n,
    }
    if line.status != "ok":
        return head
    return {**head, **_effort(line), **_numbers(line, subjects, footnotes), **_standing(line)}


def missing_line(footnotes: Footnotes) -> dict[str, Any]:
    """The line of a method that others of the page were compared with, but that was not run here."""
    reasons = [footnotes.number(_NOT_RUN)]
    return {"variant": "", "status": "missing", "reasons": reasons, "notes": [], "seeds": [], "runs": 0, "n": None}


def _effort(line: Line) -> dict[str, Any]:
    """Labels, parameters, tokens, seconds and training; means over seeds."""
    first = line.done[0]
    tokens, generated, seconds = mean_of(line.tokens), mean_of(line.generated), mean_of(line.seconds)
    return {
        "labels": [first.labels_seen.train, first.labels_seen.validation, first.labels_seen.gold],
        "trained_on": None if first.train_on is None else plain(first.train_on),
        "parameters": first.n_parameters,
        "tokens": None if tokens is None else round(tokens),
        "generated": None if generated is None else round(generated),
        "seconds": None if seconds is None else round(seconds, 2),
        "training": training.sentences(line.training),
        "costs": _costs(line),
    }


def _costs(line: Line) -> dict[str, str]:
    """Texts of the columns of costs, where they are known."""
    labels, parameters, seconds = labels_of(line), line.done[0].n_parameters, mean_of(line.seconds)
    tokens, generated = mean_of(line.tokens), mean_of(line.generated)
    found = {
        "n": None if line.n is None else count(line.n),
        "seeds": str(line.runs) if len(line.seeds) == line.runs else f"{len(line.seeds)} of {line.runs}",
        "labels": count(labels) if labels else "none",
        "tokens": None if tokens is None else compact(tokens),
        "generated": None if generated is None else compact(generated),
        "parameters": None if parameters is None else compact(parameters),
        "seconds": None if seconds is None else "< 0.1" if seconds < _SHORT else f"{seconds:,.1f}",
    }
    return {name: text for name, text in found.items() if text is not None}


def _numbers(line: Line, subjects: Sequence[str], footnotes: Footnotes) -> dict[str, Any]:
    """The metrics, each a column over METRICS."""
    columns: dict[str, list[Any]] = defaultdict(list)
    for name, metric in METRICS.items():
        found = line.estimates.get(name, MetricValue(notes=(f"{metric.label} was not computed",)))
        columns["mean"].append(None if found.mean is None else round(found.mean, DIGITS))
        columns["text"].append(_shown(metric, found.mean))
        columns["std"].append(_shown(metric, found.std))
        columns["best"].append(found.best)
        columns["remarks"].append(list(map(footnotes.number, found.notes)))
        columns["between"].append(_shown(metric, found.spread))
        columns["subjects"].append([_shown(metric, line.in_subject(subject, name)) for subject in subjects])
    return columns


def _standing(line: Line) -> dict[str, Any]:
    """Intervals, ranks and tests, where they were computed."""
    standing = line.standing
    if standing is None:
        return {}
    found = [(METRICS[name], line.estimate(name)) for name in METRICS]
    return {
        "ci": [_ends(metric, estimate) for metric, estimate in found],
        "half": [_shown(metric, estimate.half) for metric, estimate in found],
        "rank": dict(standing.ranks),
        "calibrated_p": probability(standing.calibrated_p),
        "calibrated": line.is_calibrated and line.orders_answers,
        "constant": _shown(METRICS["brier"], standing.constant),
        "worse": line.is_worse_than_constant,
    }


def _ends(metric: Metric, estimate: MetricValue) -> list[str] | None:
    """Ends of the interval for these subjects; None where there is none."""
    return None if estimate.ends is None else [shown(metric, end) for end in estimate.ends]


def _shown(metric: Metric, value: float | None) -> str | None:
    return None if value is None else shown(metric, value)
