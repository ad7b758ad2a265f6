"""Metrics, intervals and paired tests of a whole comparison: 12 methods with three seeds, MMLU's 57 subjects."""

from __future__ import annotations

import importlib
import importlib.util
import time
from collections.abc import Iterator

import numpy as np

from bench.api import FloatArray, IntArray
from tests.performance.measure import Line, NotMeasured, Options

METHODS, SEEDS, SUBJECTS, QUESTIONS = 12, 3, 57, 14_042


def lines(_options: Options) -> Iterator[Line]:
    """Seconds of all of it together; the second call, as the first one imports."""
    if importlib.util.find_spec("bench.stats") is None:
        raise NotMeasured("there is no bench.stats, which makes intervals and paired tests")
    summary = importlib.import_module("bench.stats").summary
    rng = np.random.default_rng(0)
    # Subjects from 100 questions to some 1,500, as in MMLU.
    shares = rng.dirichlet(np.full(SUBJECTS, 1.0))
    subjects = [f"subject_{k}" for k in np.repeat(np.arange(SUBJECTS), _sizes(shares))]
    strength = rng.normal(0.5, 1.2, QUESTIONS)
    correct = rng.random(QUESTIONS) < 1 / (1 + np.exp(-strength))
    confidence = {
        f"method-{k}": 1 / (1 + np.exp(-(strength * (1 - 0.05 * k) + rng.normal(0, 0.1 + 0.1 * k, (SEEDS, QUESTIONS)))))
        for k in range(METHODS)
    }
    few = {name: values[:, :500] for name, values in confidence.items()}
    summary(few, correct[:500], [f"subject_{i % 5}" for i in range(500)])
    start = time.perf_counter()
    summary(confidence, correct, subjects)
    seconds = time.perf_counter() - start
    note = f"{METHODS} methods, {SEEDS} seeds, {SUBJECTS} subjects, {QUESTIONS:,} questions: bench.stats.summary"
    yield Line("metrics, intervals, paired tests, seconds", seconds, "<= 10", note)


def _sizes(shares: FloatArray) -> IntArray:
    """Whole numbers, at least 100, that add up."""
    sizes: IntArray = 100 + np.floor(shares * (QUESTIONS - 100 * SUBJECTS)).astype(np.int64)
    sizes[0] += QUESTIONS - sizes.sum()
    return sizes
