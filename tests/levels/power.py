"""How often a difference that is there is found; imports only what the statistics of `former.py` have too."""

from __future__ import annotations

import numpy as np

from bench.stats import Settings, summary
from tests.levels.populations import Cell

FOUND = ("brier", "acc", "auroc", "aucpr", "nll")
"""Metrics that both statistics test."""


def power(cell: Cell, data_sets: int) -> dict[str, float]:
    """Share of pairs and data sets in which the better method is named, by metric."""
    found = dict.fromkeys(FOUND, 0.0)
    for seed in range(data_sets):
        correct, confidence = cell.draw_different(np.random.default_rng([seed, cell.questions]))
        methods = {f"m{k}": p for k, p in enumerate(confidence)}  # the best one first
        comparisons = summary(methods, correct, cell.names, Settings(null_draws=1)).comparisons
        for metric in FOUND:
            pairs = comparisons[metric]
            found[metric] += sum(pair.winner(0.05) == pair.first for pair in pairs) / len(pairs) / data_sets
    return found
