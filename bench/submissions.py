"""Whether result files may stand on the leaderboard: whole, clean, and every number follows from their own records.

Reads JSON and Parquet only: no method, task or model that a file names is imported.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bench import metrics, results
from bench.errors import UserError
from bench.protocol import PRESETS, Protocol
from bench.records import MetricSummary, ResultRow

TOLERANCE = 1e-9


@dataclass(frozen=True)
class Verdict:
    """What was found about one result."""

    file: str
    """Its path below the folder of results."""
    problems: tuple[str, ...]
    """Empty where it may be committed."""


def check_results(folder: Path) -> list[Verdict]:
    """One verdict for each JSON file below a folder of results, those of partial runs included.

    Raises:
        UserError: there is no such folder, or no result in it.
    """
    if not folder.is_dir():
        raise UserError(f"--results {folder}: expected a folder of results, there is none")
    files = [
        path
        for path in sorted(folder.rglob("*.json"))
        if not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]
    if not files:
        raise UserError(f"--results {folder}: expected result files, found none; run something: bench run --method all")
    return [Verdict(str(path.relative_to(folder)), tuple(_problems(path, folder))) for path in files]


def _problems(path: Path, folder: Path) -> Iterator[str]:
    try:
        row = results.read(path)
        records = results.read_records(path) if row.status == "ok" else None
    except UserError as error:
        yield str(error)
        return
    if row.limit is not None:
        yield f"it is partial (--limit {row.limit}); run the whole task"
    elif results.path_of(row, folder) != path:
        yield f"it says that it is {results.path_of(row, folder).relative_to(folder)}; don't rename results"
    yield from _unclean(row.provenance)
    if row.status != "ok":
        yield f"its cell is {row.status} ({row.reason}); only numbers are committed"
    if records is not None:
        yield from _mismatches(row, records)


def _unclean(provenance: Mapping[str, Any]) -> Iterator[str]:
    code = provenance.get("code") or {}
    if code.get("dirty"):
        yield "it was made with uncommitted changes; commit them and run it again"
    elif not code.get("git_sha") and not code.get("record_digest"):
        yield "it doesn't say which code made it; run it from a checkout or an installed wheel"


def _mismatches(row: ResultRow, records: results.Records) -> Iterator[str]:
    """Numbers of the JSON file that its Parquet file does not give."""
    if not records.id:
        yield "its Parquet file has no rows"
        return
    if len(set(records.id)) != len(records.id):
        yield "its Parquet file has a question twice"
    found = {
        "n": len(records.id),
        "n_unparsed": int((~records.parsed).sum()),
        "llm_accuracy": float(np.mean(records.correct)),
    }
    scores = metrics.summarise(records.confidence, records.correct, list(records.subject), _protocol(row))
    found |= {"n_excluded": scores.n_excluded, "n_clipped": scores.n_clipped}
    for name, value in found.items():
        yield from _differs(name, getattr(row, name), value)
    yield from _other_names("metrics", row.metrics, scores.metrics)
    for name in row.metrics.keys() & scores.metrics.keys():
        yield from _differing_summary(name, row.metrics[name], scores.metrics[name])
    yield from _other_names("per_subject", row.per_subject, scores.per_subject)
    for subject in row.per_subject.keys() & scores.per_subject.keys():
        expected = scores.per_subject[subject]
        yield from _other_names(f"per_subject.{subject}", row.per_subject[subject], expected)
        for name in row.per_subject[subject].keys() & expected.keys():
            yield from _differs(f"per_subject.{subject}.{name}", row.per_subject[subject][name], expected[name])


def _differing_summary(name: str, said: MetricSummary, found: MetricSummary) -> Iterator[str]:
    for field in ("mean", "std", "pooled", "n_undefined"):
        yield from _differs(f"metrics.{name}.{field}", getattr(said, field), getattr(found, field))


def _other_names(what: str, said: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted(said.keys() ^ found.keys()):
        where = "is not in its JSON file" if name in found else "does not follow from its Parquet file"
        yield f"{what}.{name} {where}"


def _differs(name: str, said: float | None, found: float | None) -> Iterator[str]:
    same = said is None and found is None
    if said is not None and found is not None:
        same = math.isclose(said, found, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    if not same:
        yield f"{name} is {said} in the JSON file, and {found} by its Parquet file"


def _protocol(row: ResultRow) -> Protocol:
    """The shared numbers that metrics depend on."""
    overridden = {
        key: row.deviations[f"protocol.{key}"]
        for key in ("ece_bins", "std_ddof")
        if f"protocol.{key}" in row.deviations
    }
    return replace(PRESETS.get(row.preset, Protocol()), **overridden)
