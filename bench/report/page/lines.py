"""Data of the lines of the page's tables as JSON-ready dicts; a line is one method over its seeds.

    {"method": index, "variant": "", "column": index in the questions' "confidence", "csv": index of its CSV row,
     "status": "ok" | "skipped" | "failed" | "missing", "reasons": [footnote number], "notes": [footnote number],
     "seeds": [0, 1], "runs": 2, "n", "labels": [train, validation, gold], "trained_on", "parameters", "tokens",
     "generated", "seconds", "training": [[name, text]], "costs": {column: text},
     "mean": [x], "text": ["15.4"], "std": ["1.1"], "between": ["0.3"], "remarks": [[footnote number]],
     "best": ["beyond chance" | "not beyond chance" | "not tested" | null],
     "subjects": [[text of each subject]],
     "ci": [["14.3", "16.5"] | null], "half": ["1.1" | null], "rank": {metric: 1}, "calibrated_p": "0.031",
     "calibrated": bool, "constant": "22.1" | null, "worse": bool}

From `mean` on, lists have one entry for each metric. Unknown values are null. The keys from `labels` on exist only if
the status is "ok", and those from `ci` on only if significance tests were computed, too. `csv` does not exist if the
status is "missing". `ci` is the interval for other questions of these subjects, and `half` the length of its longer
side. `calibrated_p` is the p value of the test of perfect calibration, and `calibrated` tells whether the page marks
the method as calibrated. `constant` is the Brier score of a constant confidence; `worse` tells whether the method's
Brier score is not better than `constant`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.metrics import METRICS, Metric
from bench.report import training
from bench.report.tables.model import Line, MetricValue
from bench.report.text import Footnotes, count, mean_of, p_text, plain, value_text
from bench.report.verdict.phrases import compact_count, n_labels

DIGITS = 6
"""Decimals to which metrics are rounded in the page's data; the page sorts methods by these numbers."""
_SHORT = 0.05
"""Number of seconds below which a time is shown as `< 0.1`, since one decimal would show 0.0."""
_NOT_RUN = "no result in this table"


def line_data(line: Line, subjects: Sequence[str], footnotes: Footnotes) -> dict[str, Any]:
    """Return the page's data of one line of a table, i.e. of one method over its seeds.

    The keys `method`, `column` and `csv` are missing; the caller adds them.

    Args:
        line: line of a table, with at least one run.
        subjects: names of the table's subjects; values by subject are listed in this order.
        footnotes: footnotes of the page; those of the line are added.
    """
    data: dict[str, Any] = {
        "variant": line.variant,
        "status": line.status,
        "reasons": list(map(footnotes.number, map(plain, line.reasons))),
        "notes": list(map(footnotes.number, map(plain, line.notes))),
        "seeds": list(line.seeds),
        "runs": line.n_runs,
        "n": line.n,
    }
    if line.status != "ok":
        return data
    first, seconds, labels = line.ok_rows[0], mean_of(line.seconds), n_labels(line)
    amounts = {"tokens": mean_of(line.tokens), "generated": mean_of(line.generated), "parameters": first.n_parameters}
    costs = {} if line.n is None else {"n": count(line.n)}
    costs["seeds"] = str(line.n_runs) if len(line.seeds) == line.n_runs else f"{len(line.seeds)} of {line.n_runs}"
    costs["labels"] = count(labels) if labels else "none"
    costs["group"] = line.group
    costs |= {name: compact_count(amount) for name, amount in amounts.items() if amount is not None}
    if seconds is not None:
        costs["seconds"] = "< 0.1" if seconds < _SHORT else f"{seconds:,.1f}"
    data |= {
        "labels": [first.labels_seen.train, first.labels_seen.validation, first.labels_seen.gold],
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
        data["remarks"].append(list(map(footnotes.number, map(plain, value.notes))))
        data["between"].append(_shown(metric, value.spread))
        data["subjects"].append([_shown(metric, line.in_subject(subject, name)) for subject in subjects])
    if line.standing is not None:
        estimates = [(metric, line.estimate(name)) for name, metric in METRICS.items()]
        data |= {
            "ci": [value.ends and [value_text(metric, end) for end in value.ends] for metric, value in estimates],
            "half": [_shown(metric, value.half) for metric, value in estimates],
            "rank": dict(line.standing.ranks),
            "calibrated_p": p_text(line.standing.calibrated_p),
            "calibrated": line.is_calibrated and line.orders_answers,
            "constant": _shown(METRICS["brier"], line.standing.constant),
            "worse": line.is_worse_than_constant,
        }
    return data


def missing_line(footnotes: Footnotes) -> dict[str, Any]:
    """Return the data of a method that has results elsewhere on the page, but none in this table."""
    reasons = [footnotes.number(_NOT_RUN)]
    return {"variant": "", "status": "missing", "reasons": reasons, "notes": [], "seeds": [], "runs": 0, "n": None}


def _shown(metric: Metric, value: float | None) -> str | None:
    return None if value is None else value_text(metric, value)
