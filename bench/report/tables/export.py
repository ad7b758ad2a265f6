"""Comparison tables as data: CSV records and JSON, fractions with all their digits, None where there is no number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from bench.metrics import METRICS
from bench.report import training
from bench.report.averages import mean_of
from bench.report.competition import counted, judged_by
from bench.report.standings.compute import Pair
from bench.report.tables.model import COLUMNS, Line, MetricValue, Table
from bench.report.text import plain
from bench.report.verdict import record, verdict_of
from bench.stats import TESTED, Interval

# --- CSV --------------------------------------------------------------------------------------------------------------


def records(tables: Sequence[Table], *, stats: bool = False) -> list[dict[str, Any]]:
    """One record for each method shown of each table; with statistics, metrics are all unless some were asked for."""
    return [
        _flat(table, line, table.metrics or (tuple(METRICS) if stats else COLUMNS))
        for table in tables
        for line in table.lines
    ]


def _flat(table: Table, line: Line, names: Sequence[str]) -> dict[str, Any]:
    standing = line.standing
    seen = line.labels[0] if line.labels else None
    record: dict[str, Any] = {
        "model": table.model, "task": table.task, "preset": table.preset, "answers_source": table.answers_source,
        "average": table.average, "group": line.group, "method": line.method, "variant": line.variant,
        "sorted_by": table.headline, "rank": line.rank(table.headline),
        "leading": int(line in table.leaders()), "status": line.status, "n": line.n, "seeds": len(line.seeds),
        "runs": line.runs,
        "labels_train": seen and seen.train, "labels_validation": seen and seen.validation,
        "labels_gold": seen and seen.gold,
        "ece_floor": line.estimate("ece_floor").mean,
        "p_calibrated": standing and standing.calibrated_p,
        "orders_answers": None if standing is None or standing.orders_answers is None else int(standing.orders_answers),
        "constant_brier": standing and standing.constant,
        "worse_than_constant": None if standing is None or standing.constant is None
        else int(line.is_worse_than_constant),
    }  # fmt: skip
    record |= {f"rank_{name}": standing and standing.ranks.get(name) for name in TESTED}
    for name in names:
        record |= {f"{name}_{key}": value for key, value in _flat_estimate(table, line, name).items()}
    record |= {f"steps_{name}": training.total(line.training, name) for name in ("limit", "taken", "kept")}
    record["epochs"] = training.total(line.training, "epochs")
    record |= {name: training.mean_of(line.training, name) for name in training.LOSSES}
    record["base_rate"] = line.base_rate
    record |= _costs(line)
    of_cells = (note for name in names if name in line.estimates for note in line.estimates[name].notes)
    record["notes"] = "; ".join(dict.fromkeys([*line.notes, *line.reasons, *of_cells]))
    record["too_few"] = table.too_few
    record["caption"] = ". ".join((table.facts[0], " ".join(table.facts[1:])))
    return record


def _costs(line: Line) -> dict[str, float | None]:
    """Tokens of the method alone, mean over seeds."""
    return {"forward_tokens_alone": mean_of(line.tokens), "generated_tokens_alone": mean_of(line.generated)}


def _flat_estimate(table: Table, line: Line, name: str) -> dict[str, Any]:
    found = line.estimate(name)
    standing = found.standing
    record: dict[str, Any] = {
        "mean": found.mean,
        "half": found.half,
        "low": standing and standing.fixed.low,
        "high": standing and standing.fixed.high,
        "std": found.std,
        "seed_std": found.spread,
        "best": found.best,
    }
    if table.published is not None:
        cell = table.cell(line.method, name)
        record |= {
            "published": cell and cell.mean,
            "published_std": cell and cell.std,
            "difference": table.difference(line, name),
            "no_target": cell and cell.reason,
        }
    return record


# --- JSON -------------------------------------------------------------------------------------------------------------


def as_json(tables: Sequence[Table]) -> list[dict[str, Any]]:
    """All that is known of each table."""
    return [
        {
            "model": table.model,
            "task": table.task,
            "preset": table.preset,
            "answers_source": table.answers_source,
            "average": table.average,
            "task_version": table.task_version,
            "facts": list(table.facts),
            "too_few": table.too_few,
            "sorted_by": table.headline,
            "verdict": _verdict(table),
            "lines": [_line(table, line) for line in table.lines],
            "comparisons": [pair_record(pair) for pair in _pairs(table)] if table.standings else None,
        }
        for table in tables
    ]


def _verdict(table: Table) -> dict[str, Any]:
    """The verdict on all lines; its leaders are numbers of those shown."""
    leaders = {line.key for line in table.leaders()}
    shown = [number for number, line in enumerate(table.lines) if line.key in leaders]
    found = record(verdict_of(table.whole()))
    return found if not table.others else {**found, "leaders": shown}


def _pairs(table: Table) -> Iterator[Pair]:
    """Paired differences between lines shown, in the metrics that were asked for."""
    shown = {line.key for line in table.lines}
    metrics = TESTED if table.metrics is None else tuple(map(judged_by, table.metrics))
    for pair in table.standings.pairs if table.standings else ():
        if {pair.first, pair.second} <= shown and pair.metric in metrics:
            yield pair


def pair_record(pair: Pair) -> dict[str, Any]:
    """A paired difference."""
    return {
        "metric": pair.metric,
        "first": _key(pair.first),
        "second": _key(pair.second),
        "difference": pair.difference,
        "interval": _range(pair.fixed),
        "clustered": _range(pair.clustered),
        "p": pair.p,
        "p_corrected": pair.p_corrected,
        "error": pair.error,
        "critical": pair.critical,
    }


def _key(key: tuple[str, str]) -> dict[str, str]:
    return {"method": plain(key[0]), "variant": plain(key[1])}


def _line(table: Table, line: Line) -> dict[str, Any]:
    standing = line.standing
    told = standing and {
        "p_calibrated": standing.calibrated_p,
        "ranks": dict(standing.ranks),
        "orders_answers": standing.orders_answers,
        "constant_brier": standing.constant,
        "worse_than_constant": None if standing.constant is None else standing.worse_than_constant,
        "labels_group": standing.labels,
    }
    return {
        "group": line.group,
        "method": line.method,
        "variant": line.variant,
        "rank": line.rank(table.headline),
        "leading": line in table.leaders(),
        "status": line.status,
        "reasons": list(line.reasons),
        "notes": list(line.notes),
        "n": line.n,
        "seeds": list(line.seeds),
        "runs": line.runs,
        "labels_seen": [asdict(labels) for labels in line.labels],
        "base_rate": line.base_rate,
        **_costs(line),
        "training": [asdict(of_seed) for of_seed in line.training],
        "standing": told,
        "metrics": {
            name: _estimate(name, estimate)
            for name, estimate in line.estimates.items()
            if table.metrics is None or name in table.metrics
        },
        **({} if table.published is None else {"published": _published(table, line)}),
    }


def _estimate(name: str, estimate: MetricValue) -> dict[str, Any]:
    record: dict[str, Any] = {
        "mean": estimate.mean,
        "std": estimate.std,
        "best": estimate.best,
        "notes": list(estimate.notes),
    }
    standing = estimate.standing
    if standing:
        record |= {
            "half": estimate.half,
            "interval": _range(standing.fixed),
            "clustered": _range(standing.clustered),
            "by_seed": [None if value is None else counted(name, value) for value in standing.by_seed],
            "seed_std": estimate.spread,
            "n_undefined": standing.n_undefined,
        }
    return record


def _published(table: Table, line: Line) -> dict[str, Any]:
    cells = {name: table.cell(line.method, name) for name in table.columns}
    return {name: cell and {**asdict(cell), "difference": table.difference(line, name)} for name, cell in cells.items()}


def _range(interval: Interval) -> dict[str, Any]:
    """Without what is empty: an interval, or why there is none."""
    if interval.low is None:
        return {"estimand": interval.estimand, "reason": interval.reason}
    return {
        "estimand": interval.estimand, "low": interval.low, "high": interval.high, "level": interval.level,
        "kind": interval.kind,
    }  # fmt: skip
