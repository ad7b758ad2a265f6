"""Export comparison tables as CSV records and JSON: fractions with all digits, None for missing numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from bench.metrics import METRICS
from bench.report import training
from bench.report.competition import displayed_value, ranked_by
from bench.report.standings.compute import Pair
from bench.report.tables.model import COLUMNS, Line, Table
from bench.report.text import mean_of, plain
from bench.report.verdict import verdict_of
from bench.stats import TESTED, Interval

# --- CSV --------------------------------------------------------------------------------------------------------------


def csv_records(tables: Sequence[Table], *, stats: bool = False) -> list[dict[str, Any]]:
    """Return a CSV record for each table and method.

    A record has the requested metrics. Without a request it has those in `COLUMNS`, or all metrics with `stats`.
    """
    return [
        _csv_record(table, line, table.metrics or (tuple(METRICS) if stats else COLUMNS))
        for table in tables
        for line in table.lines
    ]


def _csv_record(table: Table, line: Line, names: Sequence[str]) -> dict[str, Any]:
    standing = line.standing
    labels_seen = line.labels[0] if line.labels else None
    record: dict[str, Any] = table.head | {
        "group": line.group, "method": line.method, "variant": line.variant, "sorted_by": table.headline,
        "rank": line.rank(table.headline), "leading": int(line in table.leaders()), "status": line.status, "n": line.n,
        "seeds": len(line.seeds), "runs": line.n_runs,
        "labels_train": labels_seen and labels_seen.train, "labels_validation": labels_seen and labels_seen.validation,
        "labels_gold": labels_seen and labels_seen.gold,
        "ece_floor": line.estimate("ece_floor").mean,
        "p_calibrated": standing and standing.calibrated_p,
        "orders_answers": None if standing is None or standing.orders_answers is None else int(standing.orders_answers),
        "constant_brier": standing and standing.constant,
        "worse_than_constant": None if standing is None else int(standing.worse_than_constant),
    }  # fmt: skip
    record |= {f"rank_{name}": standing and standing.ranks.get(name) for name in TESTED}
    for name in names:
        estimate, cell = line.estimate(name), table.cell(line.method, name)
        fixed = estimate.standing and estimate.standing.fixed
        of_metric: dict[str, Any] = {
            "mean": estimate.mean, "half": estimate.half, "low": fixed and fixed.low, "high": fixed and fixed.high,
            "std": estimate.std, "seed_std": estimate.spread, "best": estimate.best,
        }  # fmt: skip
        if table.published is not None:
            of_metric |= {
                "published": cell and cell.mean, "published_std": cell and cell.std,
                "difference": table.difference(line, name), "no_target": cell and cell.reason,
            }  # fmt: skip
        record |= {f"{name}_{key}": value for key, value in of_metric.items()}
    record |= {f"steps_{name}": training.sum_of_stages(line.training, name) for name in ("limit", "taken", "kept")}
    record["epochs"] = training.sum_of_stages(line.training, "epochs")
    record |= {name: training.mean_of_field(line.training, name) for name in training.LOSSES}
    record["base_rate"] = line.base_rate
    record |= _token_costs(line)
    metric_notes = (note for name in names if name in line.estimates for note in line.estimates[name].notes)
    record["notes"] = "; ".join(dict.fromkeys([*line.notes, *line.reasons, *metric_notes]))
    return {**record, **table.warnings, "caption": table.caption}


def _token_costs(line: Line) -> dict[str, float | None]:
    """Return how many tokens the model reads and generates for this method alone, as means over seeds."""
    return {"forward_tokens_alone": mean_of(line.tokens), "generated_tokens_alone": mean_of(line.generated)}


# --- JSON -------------------------------------------------------------------------------------------------------------


def json_records(tables: Sequence[Table]) -> list[dict[str, Any]]:
    """Return each table as a JSON object, with its lines (methods) and paired differences."""
    json_tables: list[dict[str, Any]] = []
    for table in tables:
        # paired differences between shown lines, in the requested metrics
        shown = {line.key for line in table.lines}
        metrics = TESTED if table.metrics is None else tuple(map(ranked_by, table.metrics))
        verdict = verdict_of(table).record()
        if table.others:  # with hidden lines, the indices of shown leaders are ascending
            verdict["leaders"].sort()
        pairs = table.standings and [
            pair_record(pair)
            for pair in table.standings.pairs
            if {pair.first, pair.second} <= shown and pair.metric in metrics
        ]
        json_tables.append(
            table.head
            | {
                "task_version": table.task_version, "facts": list(table.facts), **table.warnings,
                "sorted_by": table.headline, "verdict": verdict,
                "lines": [_json_line(table, line) for line in table.lines], "comparisons": pairs,
            }
        )  # fmt: skip
    return json_tables


def pair_record(pair: Pair) -> dict[str, Any]:
    """Return a paired difference between two methods as a JSON object."""
    first, second = ({"method": plain(key.method), "variant": plain(key.variant)} for key in (pair.first, pair.second))
    return {
        "metric": pair.metric, "first": first, "second": second, "difference": pair.difference,
        "interval": _interval(pair.fixed), "clustered": _interval(pair.clustered), "p": pair.p,
        "p_corrected": pair.p_corrected, "error": pair.error, "critical": pair.critical,
    }  # fmt: skip


def _json_line(table: Table, line: Line) -> dict[str, Any]:
    standing = line.standing
    metrics: dict[str, dict[str, Any]] = {}
    for name, estimate in line.estimates.items():
        if table.metrics is not None and name not in table.metrics:
            continue
        metrics[name] = {
            "mean": estimate.mean, "std": estimate.std, "best": estimate.best, "notes": list(estimate.notes),
        }  # fmt: skip
        if (est := estimate.standing) is not None:
            metrics[name] |= {
                "half": estimate.half, "interval": _interval(est.fixed), "clustered": _interval(est.clustered),
                "by_seed": [None if value is None else displayed_value(name, value) for value in est.by_seed],
                "seed_std": estimate.spread, "n_undefined": est.n_undefined,
            }  # fmt: skip
    record: dict[str, Any] = {
        "group": line.group, "method": line.method, "variant": line.variant, "rank": line.rank(table.headline),
        "leading": line in table.leaders(), "status": line.status, "reasons": list(line.reasons),
        "notes": list(line.notes), "n": line.n, "seeds": list(line.seeds), "runs": line.n_runs,
        "labels_seen": [asdict(labels) for labels in line.labels], "base_rate": line.base_rate, **_token_costs(line),
        "training": [asdict(of_seed) for of_seed in line.training],
        "standing": standing and {
            "p_calibrated": standing.calibrated_p, "ranks": dict(standing.ranks),
            "orders_answers": standing.orders_answers, "constant_brier": standing.constant,
            "constant_confidence": standing.constant_confidence, "worse_than_constant": standing.worse_than_constant,
            "labels_group": standing.labels,
        },
        "metrics": metrics,
    }  # fmt: skip
    if table.published is not None:
        cells = ((name, table.cell(line.method, name)) for name in table.columns)
        record["published"] = {
            name: cell and {**asdict(cell), "difference": table.difference(line, name)} for name, cell in cells
        }
    return record


def _interval(interval: Interval) -> dict[str, Any]:
    """Return an interval as a JSON object; without interval, the object has the reason."""
    if interval.low is None:
        return {"estimand": interval.estimand, "reason": interval.reason}
    return {
        "estimand": interval.estimand, "low": interval.low, "high": interval.high, "level": interval.level,
        "kind": interval.kind,
    }  # fmt: skip
