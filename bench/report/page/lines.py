"""The lines of a block of the page: one method over its seeds, as JSON-ready dicts.

    {"method": index, "variant": "", "column": of questions' confidences,
     "status": "ok" | "skipped" | "failed" | "missing", "reasons": [footnote], "notes": [footnote],
     "seeds": [0, 1], "runs": 2, "n", "labels": [train, validation, gold], "trained_on", "parameters", "tokens",
     "seconds", "training": [[name, text]],
     "mean": [x], "text": ["15.4"], "std": ["1.1"], "between": ["0.3"], "remarks": [[footnote]],
     "best": ["beyond chance" | "not beyond chance" | "not tested" | null],
     "subjects": [[value of each subject]], "bins": {"n", "confidence", "hits"},
     "ci": [["14.3", "16.5"] | null], "half": ["1.1" | null], "rank": {metric: 1}, "calibrated_p": "0.031",
     "calibrated": bool, "constant": "22.1" | null, "worse": bool}

Lists without a word on them go over the metrics. What is not known is null. The last two rows are there where standings
were given: `ci` is the interval for these subjects and other questions, `half` half its width on the longer side,
`calibrated_p` the p value of perfect calibration, `calibrated` that it has the sign of it, `constant` the Brier of a
constant confidence, `worse` that the line's is no better.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bench.api.protocol import Protocol
from bench.metrics import METRICS, Metric
from bench.metrics.answers import bin_of
from bench.report import training
from bench.report.grouping import Key
from bench.report.standings.compute import Standing
from bench.report.tables.model import Estimate
from bench.report.tables.model import Line as Told
from bench.report.text import plain, probability, shown
from bench.results.files import Records
from bench.results.row import ResultRow

PARTS = 10_000
"""Fractions of subjects, bins and questions are integers in these parts of 1."""
DIGITS = 6
"""Decimals of means, which are sorted by and drawn."""
SEVERAL = 2
"""Values that a standard deviation or a comparison needs."""
NOT_RUN = "not run on this model and benchmark"


@dataclass(frozen=True)
class Line:
    """The runs of one method with one set of settings, by seed."""

    key: Key
    rows: Sequence[ResultRow]
    records: Sequence[Records]
    """Of those that are ok, in the same order."""

    @property
    def done(self) -> list[ResultRow]:
        """Runs that are ok."""
        return [row for row in self.rows if row.status == "ok"]


@dataclass
class Footnotes:
    """Texts with numbers from 1 on, the same for the same text."""

    texts: list[str] = field(default_factory=list)

    def number(self, text: str) -> int:
        """Of a text, which is added where it is new."""
        text = plain(text)
        if text not in self.texts:
            self.texts.append(text)
        return self.texts.index(text) + 1


# --- one line ---------------------------------------------------------------------------------------------------------


def line_of(line: Line, told: Told, subjects: Sequence[str], footnotes: Footnotes) -> dict[str, Any]:
    """One line without its method's index and its column.

    Args:
        line: with at least one run.
        told: the same line of the table.
        subjects: of the block, in the order of columns `subjects`.
        footnotes: what is to be said of it is added.
    """
    head = {
        "variant": told.variant,
        "status": told.status,
        "reasons": list(map(footnotes.number, told.reasons)),
        "notes": list(map(footnotes.number, told.notes)),
        "seeds": list(told.seeds),
        "runs": told.runs,
        "n": told.n,
    }
    if told.status != "ok":
        return head
    return {**head, **_effort(line.done, told), **_numbers(line, told, subjects, footnotes), **_standing(told)}


def missing_line(footnotes: Footnotes) -> dict[str, Any]:
    """Of a method that others of the page were compared with, but that was not run here."""
    reasons = [footnotes.number(NOT_RUN)]
    return {"variant": "", "status": "missing", "reasons": reasons, "notes": [], "seeds": [], "runs": 0, "n": None}


def _effort(rows: Sequence[ResultRow], told: Told) -> dict[str, Any]:
    """What the runs took; means over seeds."""
    first = rows[0]
    tokens = _mean(row.forward_tokens_alone for row in rows)
    seconds = _mean(sum(row.timings.values()) if row.timings else None for row in rows)
    return {
        "labels": [first.labels_seen.train, first.labels_seen.validation, first.labels_seen.gold],
        "trained_on": None if first.train_on is None else plain(first.train_on),
        "parameters": first.n_parameters,
        "tokens": None if tokens is None else round(tokens),
        "seconds": None if seconds is None else round(seconds, 2),
        "training": training.sentences(told.training),
    }


def _numbers(line: Line, told: Told, subjects: Sequence[str], footnotes: Footnotes) -> dict[str, Any]:
    """The metrics, each a column over METRICS, and the bins."""
    done = line.done
    columns: dict[str, list[Any]] = defaultdict(list)
    for name, metric in METRICS.items():
        found = told.estimates.get(name, Estimate(None, None, notes=(f"{metric.label} was not computed",)))
        columns["mean"].append(None if found.mean is None else round(found.mean, DIGITS))
        columns["text"].append(_shown(metric, found.mean))
        columns["std"].append(_shown(metric, found.std))
        columns["best"].append(found.best)
        columns["remarks"].append(list(map(footnotes.number, found.notes)))
        known = [row.metrics[name].mean for row in done if name in row.metrics]
        seeds = [value for value in known if value is not None]
        columns["between"].append(shown(metric, statistics.stdev(seeds)) if len(seeds) >= SEVERAL else None)
        values = (_mean(_of_subject(row, subject, name) for row in done) for subject in subjects)
        columns["subjects"].append(list(map(_parts, values)))
    return {**columns, "bins": bins_of(line)}


def _standing(told: Told) -> dict[str, Any]:
    """How sure its means are, where that was computed."""
    standing = told.standing
    if standing is None:
        return {}
    found = {name: told.estimates.get(name, Estimate(None, None)) for name in METRICS}
    return {
        "ci": [_ends(METRICS[name], estimate.standing) for name, estimate in found.items()],
        "half": [_shown(METRICS[name], estimate.half) for name, estimate in found.items()],
        "rank": dict(standing.ranks),
        "calibrated_p": probability(standing.calibrated_p),
        "calibrated": told.is_calibrated and told.orders_answers,
        "constant": _shown(METRICS["brier"], standing.constant),
        "worse": told.is_worse_than_constant,
    }


def _ends(metric: Metric, standing: Standing | None) -> list[str] | None:
    """Of the interval for these subjects; None where there is none."""
    if standing is None or standing.fixed.low is None or standing.fixed.high is None:
        return None
    return [shown(metric, standing.fixed.low), shown(metric, standing.fixed.high)]


def bins_of(line: Line) -> dict[str, list[float]]:
    """Its reliability diagram over all questions: the bins of `ece`, means over seeds.

    `n` and `hits` are answers and right answers in each bin, `confidence` their mean confidence, 0 in an empty bin.
    """
    bins = int(line.rows[0].deviations.get("protocol.ece_bins", Protocol().ece_bins))
    totals = np.zeros((3, bins))
    for records in line.records:
        p = np.asarray(records.confidence, dtype=np.float64)
        group = bin_of(p, bins)
        weights = (np.ones(p.size), np.asarray(records.correct, dtype=np.float64), p)
        totals += [np.bincount(group, weights=w, minlength=bins) for w in weights]
    n, hits, mass = totals / len(line.records)
    mean = np.divide(mass, n, out=np.zeros(bins), where=n > 0)
    return {
        "n": np.round(n, 2).tolist(),
        "hits": np.round(hits, 2).tolist(),
        "confidence": np.round(mean * PARTS).astype(int).tolist(),
    }


def _shown(metric: Metric, value: float | None) -> str | None:
    return None if value is None else shown(metric, value)


def _of_subject(row: ResultRow, subject: str, name: str) -> float | None:
    return row.per_subject.get(subject, {}).get(name)


def _parts(value: float | None) -> int | None:
    return None if value is None else round(value * PARTS)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
