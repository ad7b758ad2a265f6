"""How often a difference that is there is found.

`python -m tests.levels.power CHECKOUT COMMIT` measures it for the statistics as they were before, means over subjects
with bootstrap resamples within them, into `former.json`: CHECKOUT is a folder with the code of COMMIT, and this module
imports only what that has, too. The data sets are those of `make simulate`, by seed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])  # `bench` is the one of that folder

import numpy as np

from bench.stats import Settings, summary
from tests.levels.populations import POWERED, Cell

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


if __name__ == "__main__":
    record = {"commit": sys.argv[2], "found": {cell.name: power(cell, cell.data_sets) for cell in POWERED}}
    Path(__file__).with_name("former.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
