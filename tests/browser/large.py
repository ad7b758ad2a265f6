"""A page of 11 methods on 4 models and 5 benchmarks, as large as one gets; made up, with standings that agree with it.

Run it to look at the page: `python -m tests.browser.large page.html`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from bench.metrics import METRICS
from bench.metrics.summary import MetricSummary
from bench.report import page
from bench.report.grouping import Key
from bench.report.standings.compute import LineStanding, Pair, Range, Standing, Standings
from bench.report.tables.build import build
from bench.report.tables.model import Table
from bench.results.files import Records
from bench.results.questions import QuestionText
from bench.results.row import LabelsSeen, ResultRow

MODELS = ("llama8b", "mistral24b", "qwen14b", "qwen32b")
BENCHMARKS = {"mmlu-choice": 57, "mmlu-oe": 57, "mmlu-pro": 14, "medmcqa": 21, "medmcqa-oe": 21}
"""Benchmark -> subjects."""
QUALITY = {
    "ccps": 0.9, "litcab": 0.85, "pik": 0.8, "saplma-f": 0.7, "self-consistency": 0.65, "it": 0.6, "ct": 0.55,
    "lts": 0.5, "saplma-um": 0.45, "saplma-m": 0.4, "ptrue": 0.3,
}  # fmt: skip
"""Method -> how good it is, from 0 to 1."""
N = 900
RANKED = ("ece_debiased", "brier", "acc", "aucpr", "auroc", "nll")
CRITICAL = 0.012
"""Differences from which on a test is significant here."""


def payload() -> dict[str, Any]:
    """What the page is written from."""
    return page.payload(tables(), records_of, asked)


def tables() -> list[Table]:
    """The 20 tables."""
    return build(rows(), standings_of=standings_of)


def rows() -> list[ResultRow]:
    """The 220 results."""
    return [_row(method, model, task) for task in BENCHMARKS for model in MODELS for method in QUALITY]


def _rng(*words: str) -> np.random.Generator:
    return np.random.default_rng([sum(map(ord, word)) for word in words])


def _mean(name: str, quality: float, noise: float) -> float:
    higher = METRICS[name].higher_is_better
    return 0.55 + 0.4 * quality + noise if higher else 0.3 - 0.22 * quality - noise


def _row(method: str, model: str, task: str) -> ResultRow:
    rng, subjects = _rng(method, model, task), [f"some subject with a name {k}" for k in range(BENCHMARKS[task])]
    means = {name: float(_mean(name, QUALITY[method], rng.normal(0, 0.01))) for name in METRICS}
    learned = method not in {"ptrue", "self-consistency"}
    return ResultRow(
        method=method, model=model, task=task, preset="fixed", seed=0, protocol="0", task_version=1, status="ok", n=N,
        n_unparsed=0, n_empty=0, llm_accuracy=0.6, n_parameters=123_456 if learned else 0, timings={"fit": 12.0},
        labels_seen=LabelsSeen(4_000, 1_000) if learned else LabelsSeen(), forward_tokens_alone=45_200_000,
        train_on="ct/train" if learned else None, generated_tokens_alone=910_000 if method == "self-consistency" else 0,
        metrics={name: MetricSummary(mean, 0.05, mean, 0) for name, mean in means.items()},
        per_subject={s: {"n": 200.0, **{name: float(rng.random()) for name in METRICS}} for s in subjects},
    )  # fmt: skip


def records_of(row: ResultRow) -> Records:
    """Confidences of a row; the answers are those of its model and task."""
    correct = _rng(row.model, row.task).random(N) < 0.6
    noise = _rng(row.method, row.model, row.task).normal(0, 0.2, N)
    return Records(
        id=[f"{row.task}/test/{i}" for i in range(N)],
        subject=[f"some subject with a name {i % BENCHMARKS[row.task]}" for i in range(N)],
        correct=correct, confidence=np.clip(0.45 + 0.25 * correct + noise, 0, 1),
        answer=["ab"[i % 2] for i in range(N)],
        parsed=np.ones(N, dtype=np.bool_),
    )  # fmt: skip


def asked(task: str, version: int) -> dict[str, QuestionText]:
    """Questions as long as those of real benchmarks are on average, or longer."""
    options = [f"an option of some length, number {k}" for k in range(10)]
    shown = "\n".join(f"  ({'abcdefghij'[k]}): {option}" for k, option in enumerate(options))
    stem = "A question about things that nobody asked before. " * 13
    return {
        f"{task}/test/{i}": QuestionText(f"{task}/test/{i}", "", f"{i} {stem}\n\n{shown}", tuple(options), "a")
        for i in range(N)
    }


def standings_of(lines: Mapping[Key, Sequence[ResultRow]]) -> Standings:
    """Tests in which a difference of `CRITICAL` is significant, with intervals of that width."""
    none = Range("clustered", reason="made up")
    values = {key: {name: runs[0].metrics[name].mean for name in METRICS} for key, runs in lines.items()}
    pairs, better = [], {}
    for name in RANKED:
        for first, second in combinations(lines, 2):
            difference = values[first][name] - values[second][name]
            p = 0.001 if abs(difference) > CRITICAL else 0.4
            ends = Range("fixed-subjects", difference - CRITICAL, difference + CRITICAL, 0.95, "t")
            pairs.append(Pair(name, first, second, difference, ends, none, p, p))
            if p < 0.05:
                worse = first if (difference > 0) != bool(METRICS[name].higher_is_better) else second
                better[name, worse] = better.get((name, worse), 0) + 1
    found = {}
    for key in lines:
        of_line = {
            name: Standing(value, Range("fixed-subjects", value - 0.01, value + 0.01, 0.95, "t"), none, (value,), None,
                           0, 0)
            for name, value in values[key].items()
        }  # fmt: skip
        ranks = {name: 1 + better.get((name, key), 0) for name in RANKED}
        found[key] = LineStanding(0, of_line, 0.01, none, 0.2, ranks, 0.24)
    return Standings(0.95, found, tuple(pairs), {})


if __name__ == "__main__":
    page.write(Path(sys.argv[1]), payload())
