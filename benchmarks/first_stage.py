"""Recalibrated CCPS if its first stage, too, were chosen without the answers that the map is read on.

`python -m benchmarks.first_stage 0,1,2` takes about a minute a seed: five fits more, each of which has seen four
fifths of the validation answers. Prints Brier score and ECE of the test as they are, and the difference, in percent.
"""

import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bench.api import BoolArray, FloatArray
from bench.api.methods import outputs_of, validation_signals
from bench.metrics.recalibration import by_folds
from bench.run.config import RunConfig
from bench.run.fitting import derived_seed
from bench.run.inputs import Inputs
from bench.run.pipeline import run
from bench.run.recalibration import Recalibration

KINDS, METRICS = ("platt", "isotonic"), ("brier", "ece")


def nested(made: Recalibration, name: str, validation: Inputs) -> FloatArray:
    """Return confidences `(m,)` in the validation answers, of fits that saw the other four fifths alone."""
    learned, batches = validation.learned, made.fitter.batches
    if learned is None:
        raise ValueError("ccps learns")
    reads = made.fitter.resolved.methods[name].reads()
    train = batches.batch(learned, reads.fit, labels=True)
    held = batches.batch(validation.predicted, validation_signals(reads), labels=True)
    seed = derived_seed(made.fitter.seed, name, made.fitter.lm.files.weights, str(learned.where))

    def by_others(others: BoolArray, own: BoolArray) -> FloatArray:
        ctx = made.fitter.context(name, learned, held.take(others), seed)
        return outputs_of(made.fitter.resolved.new_method(name).fit(train, ctx), held.take(own))

    return by_folds(held.correct, made.fitter.seed, by_others)


def main(seeds: list[int]) -> None:
    """Run each seed, and print the means over seeds."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    patched: Any = Recalibration
    confidence, version = patched._predict_validation, patched._version
    others: list[FloatArray] = []

    def both(made: Recalibration, name: str, validation: Inputs) -> FloatArray:
        others[:] = [nested(made, name, validation)]
        sure: FloatArray = confidence(made, name, validation)
        return sure

    def versions(made: Recalibration, kind: str, row: Any, test: Any, sure: Any, validated: Any) -> Any:
        now = version(made, kind, row, test, sure, validated)
        then = version(made, kind, row, test, sure, replace(validated, confidence=others[0]))
        for metric in METRICS:
            pair = (now.row.metrics[metric].mean, then.row.metrics[metric].mean)
            found.setdefault((kind, metric), []).append(pair)
        return now

    patched._predict_validation, patched._version = both, versions
    with tempfile.TemporaryDirectory() as folder:
        for seed in seeds:
            config = RunConfig(
                ("ccps",), "tiny", tasks=("atlas-choice",), recalibrate=KINDS, seed=seed, device="cpu",
                out=Path(folder) / "out", cache=Path(folder) / "cache",
            )  # fmt: skip
            run(config)
    for (kind, metric), pairs in found.items():
        now, then = 100 * np.asarray(pairs).T
        change = then - now
        print(f"{kind} {metric}: {now.mean():.2f}, change {change.mean():+.3f}, by seed {change.round(2)}")


if __name__ == "__main__":
    main([int(seed) for seed in sys.argv[1].split(",")])
