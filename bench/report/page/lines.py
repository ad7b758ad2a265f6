"""The lines of a block of the page: one method over its seeds, as JSON-ready dicts.

    {"method": index, "variant": "", "column": of questions' confidences,
     "status": "ok" | "skipped" | "failed" | "missing", "reasons": [footnote], "notes": [footnote],
     "seeds": [0, 1], "runs": 2, "n", "labels": [train, validation], "trained_on", "parameters", "tokens", "seconds",
     "mean": [x], "text": ["15.4"], "std": ["1.1"], "between": ["0.3"], "best": [0 | 1], "undefined": [footnote | 0],
     "subjects": [[value of each subject]], "bins": {"n", "confidence", "hits"},
     "ci": [["14.3", "16.5"] | null], "leads": [0 | 1], "rank": {metric: 1}, "calibrated_p": "0.031"}

Lists without a word on them go over the metrics. What is not known is null. The last row is there where standings were
given: `ci` is the interval for these subjects and other questions, `leads` says that the best mean is better than the
runner-up beyond chance, `rank` is by loss, `calibrated_p` the p value of perfect calibration.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.metrics import METRICS, Metric
from bench.metrics.answers import bin_of
from bench.protocol import Protocol
from bench.records import ResultRow
from bench.report.groups import Key
from bench.report.tables import OTHER_LABELS
from bench.report.text import MINUS, plain, probability, shown
from bench.results import Records

if TYPE_CHECKING:
    from bench.report.standings import Standings

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


def line_of(line: Line, subjects: Sequence[str], footnotes: Footnotes, standings: Standings | None) -> dict[str, Any]:
    """One line without its method's index, its column, and `best`.

    Args:
        line: with at least one run.
        subjects: of the block, in the order of columns `subjects`.
        footnotes: what is to be said of it is added.
        standings: of its block, where they were computed.
    """
    done = line.done
    seeded = len(line.rows) > 1
    reasons = dict.fromkeys(_reason(row, seeded=seeded) for row in line.rows if row.status != "ok")
    notes = dict.fromkeys([*_said(line.key, standings), *(note for row in line.rows for note in row.notes)])
    head = {
        "variant": plain(line.key.variant),
        "status": "ok" if done else line.rows[0].status,
        "reasons": list(map(footnotes.number, reasons)),
        "notes": list(map(footnotes.number, notes)),
        "seeds": [row.seed for row in done],
        "runs": len(line.rows),
        "n": next((row.n for row in [*done, *line.rows] if row.n is not None), None),
    }
    return {**head, **_effort(done), **_numbers(line, subjects, footnotes, standings)} if done else head


def missing_line(footnotes: Footnotes) -> dict[str, Any]:
    """Of a method that others of the page were compared with, but that was not run here."""
    reasons = [footnotes.number(NOT_RUN)]
    return {"variant": "", "status": "missing", "reasons": reasons, "notes": [], "seeds": [], "runs": 0, "n": None}


def _said(key: Key, standings: Standings | None) -> Iterable[str]:
    """What tells this line from others."""
    if key.variant:
        yield f"with {key.variant}"
    if standings and key in standings.left_out:
        yield standings.left_out[key]
    if standings and key in standings.lines and standings.lines[key].labels:
        yield OTHER_LABELS


def _reason(row: ResultRow, *, seeded: bool) -> str:
    return f"{row.status}{f' (seed {row.seed})' if seeded else ''}: {row.reason or 'no reason given'}"


def _effort(rows: Sequence[ResultRow]) -> dict[str, Any]:
    """What the runs took; means over seeds."""
    first = rows[0]
    tokens = _mean(row.forward_tokens_alone for row in rows)
    seconds = _mean(sum(row.timings.values()) if row.timings else None for row in rows)
    return {
        "labels": [first.labels_seen.train, first.labels_seen.validation],
        "trained_on": None if first.train_on is None else plain(first.train_on),
        "parameters": first.n_parameters,
        "tokens": None if tokens is None else round(tokens),
        "seconds": None if seconds is None else round(seconds, 2),
    }


def _numbers(line: Line, subjects: Sequence[str], footnotes: Footnotes, standings: Standings | None) -> dict[str, Any]:
    """The metrics, each a column over METRICS, and the bins."""
    done = line.done
    columns: dict[str, list[Any]] = defaultdict(list)
    for name, metric in METRICS.items():
        means = [row.metrics[name].mean if name in row.metrics else None for row in done]
        mean = _mean(means)
        columns["mean"].append(None if mean is None else round(mean, DIGITS))
        columns["text"].append(_shown(metric, mean))
        stds = (row.metrics[name].std for row in done if name in row.metrics)
        columns["std"].append(_shown(metric, _mean(stds)))
        known = [value for value in means if value is not None]
        columns["between"].append(shown(metric, statistics.stdev(known)) if len(known) >= SEVERAL else None)
        columns["undefined"].append(_undefined(done, metric, footnotes))
        values = (_mean(_of_subject(row, subject, name) for row in done) for subject in subjects)
        columns["subjects"].append(list(map(_parts, values)))
    return {**columns, "bins": bins_of(line), **_standing(line, standings)}


def _standing(line: Line, standings: Standings | None) -> dict[str, Any]:
    """How sure its means are, where that was computed."""
    standing = standings.lines.get(line.key) if standings else None
    if standings is None or standing is None:
        return {}
    ranges = {name: found.fixed for name, found in standing.metrics.items()}
    known = {name: (r.low, r.high) for name, r in ranges.items() if r.low is not None and r.high is not None}
    return {
        "ci": [[shown(METRICS[name], end) for end in known[name]] if name in known else None for name in METRICS],
        "leads": [int(line.key in standings.leaders.get(name, ())) for name in METRICS],
        "rank": dict(standing.ranks),
        "calibrated_p": probability(standing.calibrated_p),
    }


def _undefined(rows: Sequence[ResultRow], metric: Metric, footnotes: Footnotes) -> int:
    """Number of the footnote that says in how many subjects a metric is undefined; 0 where it is defined in all."""
    summaries = [row.metrics[metric.name] for row in rows if metric.name in row.metrics]
    if not summaries:
        return footnotes.number(f"{metric.label} was not computed")
    if all(summary.mean is None for summary in summaries):
        return footnotes.number(f"{metric.label} is undefined in every subject")
    most = max(summary.n_undefined for summary in summaries)
    total = len(rows[0].per_subject)
    said = f"{metric.label} leaves out {most} of {total} subjects, where it is undefined"
    return footnotes.number(said) if most else 0


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


def mark_best(lines: Sequence[dict[str, Any]]) -> None:
    """Add `best` to the lines that are ok: no other mean is better at the precision shown."""
    done = [line for line in lines if line["status"] == "ok"]
    columns = []
    for i, metric in enumerate(METRICS.values()):
        values = [_number(line["text"][i]) for line in done]
        known = [value for value in values if value is not None]
        ranked = metric.higher_is_better is not None and len(known) >= SEVERAL
        best = (max if metric.higher_is_better else min)(known) if ranked else None
        columns.append([int(best is not None and value == best) for value in values])
    for k, line in enumerate(done):
        line["best"] = [column[k] for column in columns]


def _shown(metric: Metric, value: float | None) -> str | None:
    return None if value is None else shown(metric, value)


def _number(text: str | None) -> float | None:
    return None if text is None else float(text.replace(MINUS, "-"))


def _of_subject(row: ResultRow, subject: str, name: str) -> float | None:
    return row.per_subject.get(subject, {}).get(name)


def _parts(value: float | None) -> int | None:
    return None if value is None else round(value * PARTS)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
