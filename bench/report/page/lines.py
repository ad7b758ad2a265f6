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

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.metrics import METRICS, Metric
from bench.report import training
from bench.report.averages import mean_of
from bench.report.tables.model import Line, MetricValue
from bench.report.text import count, plain, probability, shown
from bench.report.verdict.phrases import compact, n_labels

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


def line_data(line: Line, subjects: Sequence[str], footnotes: Footnotes) -> dict[str, Any]:
    """One line without its method's index and its column.

    Args:
        line: of a table, with at least one run.
        subjects: of the block, in the order of columns `subjects`.
        footnotes: notes on it are added.
    """
    data: dict[str, Any] = {
        "variant": line.variant,
        "status": line.status,
        "reasons": list(map(footnotes.number, line.reasons)),
        "notes": list(map(footnotes.number, line.notes)),
        "seeds": list(line.seeds),
        "runs": line.runs,
        "n": line.n,
    }
    if line.status != "ok":
        return data
    first, labels_seen, seconds, labels = (
        line.done[0],
        line.done[0].labels_seen,
        mean_of(line.seconds),
        n_labels(line),
    )
    amounts = {"tokens": mean_of(line.tokens), "generated": mean_of(line.generated), "parameters": first.n_parameters}
    costs = {} if line.n is None else {"n": count(line.n)}
    costs["seeds"] = str(line.runs) if len(line.seeds) == line.runs else f"{len(line.seeds)} of {line.runs}"
    costs["labels"] = count(labels) if labels else "none"
    costs |= {name: compact(amount) for name, amount in amounts.items() if amount is not None}
    if seconds is not None:
        costs["seconds"] = "< 0.1" if seconds < _SHORT else f"{seconds:,.1f}"
    data |= {
        "labels": [labels_seen.train, labels_seen.validation, labels_seen.gold],
        "trained_on": None if first.train_on is None else plain(first.train_on),
        "parameters": first.n_parameters,
        **{name: n if n is None else round(n) for name, n in amounts.items() if name != "parameters"},
        "seconds": None if seconds is None else round(seconds, 2),
        "training": training.training_facts(line.training),
        "costs": costs,
        **{name: [] for name in ("mean", "text", "std", "best", "remarks", "between", "subjects")},
    }
    for name, metric in METRICS.items():
        value = line.estimates.get(name, MetricValue(notes=(f"{metric.label} was not computed",)))
        data["mean"].append(None if value.mean is None else round(value.mean, DIGITS))
        data["text"].append(_shown(metric, value.mean))
        data["std"].append(_shown(metric, value.std))
        data["best"].append(value.best)
        data["remarks"].append(list(map(footnotes.number, value.notes)))
        data["between"].append(_shown(metric, value.spread))
        data["subjects"].append([_shown(metric, line.in_subject(subject, name)) for subject in subjects])
    if line.standing is not None:
        estimates = [(metric, line.estimate(name)) for name, metric in METRICS.items()]
        data |= {
            "ci": [value.ends and [shown(metric, end) for end in value.ends] for metric, value in estimates],
            "half": [_shown(metric, value.half) for metric, value in estimates],
            "rank": dict(line.standing.ranks),
            "calibrated_p": probability(line.standing.calibrated_p),
            "calibrated": line.is_calibrated and line.orders_answers,
            "constant": _shown(METRICS["brier"], line.standing.constant),
            "worse": line.is_worse_than_constant,
        }
    return data


def missing_line(footnotes: Footnotes) -> dict[str, Any]:
    """The line of a method that others of the page were compared with, but that was not run here."""
    reasons = [footnotes.number(_NOT_RUN)]
    return {"variant": "", "status": "missing", "reasons": reasons, "notes": [], "seeds": [], "runs": 0, "n": None}


def _shown(metric: Metric, value: float | None) -> str | None:
    return None if value is None else shown(metric, value)
