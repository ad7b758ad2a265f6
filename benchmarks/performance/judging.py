"""Metrics, intervals and paired tests of a whole comparison: 12 methods with three seeds, MMLU's 57 subjects."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bench.stats import summary
from benchmarks.performance.measure import Line, seconds_of

METHODS, SEEDS, SUBJECTS, QUESTIONS = 12, 3, 57, 14_042


def lines(_repeats: int = 1) -> Iterator[Line]:
    """Seconds of all of it together; the second call, as the first one imports."""
    rng = np.random.default_rng(0)
    sizes = 100 + np.floor(rng.dirichlet(np.full(SUBJECTS, 1.0)) * (QUESTIONS - 100 * SUBJECTS)).astype(np.int64)
    sizes[0] += QUESTIONS - sizes.sum()  # from 100 questions to some 1,500, as in MMLU
    subjects = [f"subject_{k}" for k in np.repeat(np.arange(SUBJECTS), sizes)]
    strength = rng.normal(0.5, 1.2, QUESTIONS)
    correct = rng.random(QUESTIONS) < 1 / (1 + np.exp(-strength))
    confidence = {
        f"method-{k}": 1 / (1 + np.exp(-(strength * (1 - 0.05 * k) + rng.normal(0, 0.1 + 0.1 * k, (SEEDS, QUESTIONS)))))
        for k in range(METHODS)
    }
    few = {name: values[:, :500] for name, values in confidence.items()}
    summary(few, correct[:500], [f"subject_{i % 5}" for i in range(500)])
    seconds = seconds_of(lambda: summary(confidence, correct, subjects))
    note = f"{METHODS} methods, {SEEDS} seeds, {SUBJECTS} subjects, {QUESTIONS:,} questions: bench.stats.summary"
    yield Line("metrics, intervals, paired tests, seconds", seconds, "<= 10", note)
