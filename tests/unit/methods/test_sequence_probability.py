"""Sequence probability against products of probabilities written out by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.api import Batch, Ragged, TokenScores
from bench.run.config import RunConfig
from bench.run.pipeline import run
from methods.sequence_probability import SequenceProbability

TOKENS = [[0.9, 0.4], [0.25], [1.0, 1.0, 1.0], [0.5, 0.5, 0.5, 0.5]]
"""Probabilities of each answer's tokens."""


def batch(rows: list[list[float]]) -> Batch:
    def scores(row: list[float]) -> np.ndarray:
        values = np.zeros(len(row), dtype=TokenScores().dtype)
        values["log_probability"] = np.log(row)
        return values

    return Batch([str(i) for i in range(len(rows))], {TokenScores(): Ragged.of([scores(row) for row in rows])})


def test_it_is_the_geometric_mean_of_the_tokens_probabilities() -> None:
    confidence = SequenceProbability().predict(batch(TOKENS))
    np.testing.assert_allclose(confidence, [0.6, 0.25, 1.0, 0.5], rtol=1e-6)
    assert confidence.dtype == np.float64


def test_without_normalisation_it_is_their_product() -> None:
    confidence = SequenceProbability(length_normalised=False).predict(batch(TOKENS))
    np.testing.assert_allclose(confidence, [0.36, 0.25, 1.0, 0.0625], rtol=1e-6)


def test_a_long_unlikely_answer_is_no_more_than_zero_and_no_less() -> None:
    confidence = SequenceProbability(length_normalised=False).predict(batch([[1e-30] * 40]))
    assert confidence.tolist() == [0.0]


@pytest.mark.parametrize("task", ["atlas-choice", "atlas-oe"])
def test_a_run_with_it_needs_nothing_but_the_answers(tmp_path: Path, task: str) -> None:
    options = {"limit": 16, "device": "cpu", "out": tmp_path / "out", "cache": tmp_path / "cache"}
    report = run(RunConfig(("sequence-probability",), "tiny", tasks=(task,), **options))
    (row,) = report.rows
    assert (row.status, row.train_on, row.labels_seen.train, row.n_parameters) == ("ok", None, 0, 0)
    read = {stage: cost for stage, cost in row.cost.items() if cost.forward_tokens or cost.forward_tokens_floor}
    assert set(read) == {"answers"}
    assert row.forward_tokens_alone == read["answers"].forward_tokens_floor
    product = RunConfig(
        ("sequence-probability",), "tiny", tasks=(task,), overrides=("sequence-probability.length_normalised=false",),
        **options,
    )  # fmt: skip
    again = run(product)
    assert again.forward_tokens == 0
    assert (again.rows[0].metrics == row.metrics) == (task == "atlas-choice")  # a letter is one token
