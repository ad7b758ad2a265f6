"""Verdicts and summaries as data for JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from bench.report.verdict.summary import Summary
from bench.report.verdict.verdicts import Verdict


def record(found: Verdict | Summary) -> dict[str, Any]:
    """A verdict, whose leaders are numbers of the table's lines; or a summary."""
    if isinstance(found, Summary):
        return asdict(found)
    return {
        "metric": found.metric,
        "state": found.state,
        "leaders": list(found.places),
        "sentences": list(found.sentences),
        "brief": asdict(found.brief),
    }
